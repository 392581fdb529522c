//! What the dies do: host reads first, then programs, cleaning's reads and erases in order.

use super::{Die, Event, Machine, Made, Map, Operation, Stage};
use crate::ssd::parameters::transfer_ns;

impl Machine {
    pub(super) fn unit_bytes(&self) -> u64 {
        u64::from(self.parameters.unit_bytes)
    }

    pub(super) fn units_of(&self, offset: u64, bytes: u64) -> std::ops::Range<u32> {
        if bytes == 0 {
            return 0..0;
        }
        let end = (offset + bytes).div_ceil(self.unit_bytes());
        (offset / self.unit_bytes()) as u32..end as u32
    }

    /// A write that has room in the buffer is translated, and what that makes the flash do is
    /// given to the dies.
    pub(super) fn write(&mut self, now_ns: u64, offset: u64, bytes: u64) {
        self.last_write_ns = now_ns;
        for unit in self.units_of(offset, bytes) {
            let start = u64::from(unit) * self.unit_bytes();
            let whole = offset <= start && start + self.unit_bytes() <= offset + bytes;
            // Of a unit that is written in part the rest is read first.
            if !whole
                && !self.buffered.contains_key(&unit)
                && let Some(place) = self.find(unit)
            {
                self.gather.made.push_back(Made::Move(place));
            }
            self.buffer_used += self.unit_bytes();
            *self.buffered.entry(unit).or_default() += 1;
            self.gather.unit = unit;
            match &mut self.map {
                Map::Page(translation) => translation.write(unit, &mut self.gather),
                Map::Hybrid(hybrid) => hybrid.write(unit, &mut self.gather),
            }
        }
        self.issue(now_ns);
    }

    /// What waits for the rest of its page is programmed without it.
    pub(super) fn pad(&mut self, now_ns: u64) {
        match &mut self.map {
            Map::Page(translation) => {
                translation.pad(self.gather.stripe_units, &mut self.gather);
            }
            Map::Hybrid(_) if !self.gather.open.is_empty() => {
                self.gather.close(self.gather.last_stripe);
            }
            Map::Hybrid(_) => {}
        }
        self.issue(now_ns);
    }

    /// The cache of one bit per cell is emptied while no writes come.
    pub(super) fn refill_slc(&mut self, now_ns: u64) {
        let Some(slc) = self.parameters.slc_cache else { return };
        let idle_ns = (now_ns - self.last_write_ns).saturating_sub(slc.idle_ns);
        let folded = u128::from(idle_ns) * u128::from(slc.fold_bytes_per_s) / 1_000_000_000;
        self.slc_left = slc.bytes.min(self.slc_left.saturating_add(folded as u64));
    }

    fn program_ns(&mut self, host_units: u32) -> u64 {
        let bytes = u64::from(host_units) * self.unit_bytes();
        match self.parameters.slc_cache {
            Some(slc) if bytes > 0 && self.slc_left >= bytes => {
                self.slc_left -= bytes;
                slc.program_ns
            }
            _ => self.parameters.program_ns,
        }
    }

    fn issue(&mut self, now_ns: u64) {
        let dies = self.parameters.dies;
        // What is moved comes in on the same path that it goes out on.
        let moved = std::mem::take(&mut self.gather.moved) * self.unit_bytes();
        if moved > 0 {
            let rate = self.parameters.write_path_bytes_per_s;
            self.path_free_ns = self.path_free_ns.max(now_ns) + transfer_ns(moved, rate);
        }
        while let Some(made) = self.gather.made.pop_front() {
            match made {
                Made::Move(place) => {
                    let stripe = place.slot / self.gather.stripe_units;
                    let bytes = u64::from(self.gather.stripe_units) * self.unit_bytes();
                    let page = stripe / dies;
                    self.queue(now_ns, stripe % dies, Operation::Move { bytes, page });
                }
                Made::Program { stripe, units, host_units } => {
                    let sequence = self.programs;
                    self.programs += 1;
                    self.outstanding.insert(sequence);
                    let ns = self.program_ns(host_units);
                    let program = Operation::Program { units, host_units, sequence, ns };
                    self.queue(now_ns, stripe % dies, program);
                }
                Made::Erase => {
                    (0..dies).for_each(|die| self.queue(now_ns, die, Operation::Erase));
                }
            }
        }
    }

    fn queue(&mut self, now_ns: u64, die: u32, operation: Operation) {
        self.dies[die as usize].others.push_back(operation);
        self.start_die(now_ns, die);
    }

    /// Begins the die's next operation, if it is idle and has one.
    pub(super) fn start_die(&mut self, now_ns: u64, die: u32) {
        let Die { current, reads, others, .. } = &mut self.dies[die as usize];
        if current.is_some() {
            return;
        }
        let Some(mut next) = reads.pop_front().or_else(|| others.pop_front()) else { return };
        let read_ns = |page: u32| {
            let times = &self.parameters.read_ns;
            times[page as usize % times.len()]
        };
        let end = match &mut next {
            Operation::Read { page, since_ns, split, .. } => {
                split.add(Stage::Die, now_ns - *since_ns, read_ns(*page));
                now_ns + read_ns(*page)
            }
            Operation::Move { page, .. } => now_ns + read_ns(*page),
            Operation::Program { ns, .. } => {
                let ns = *ns;
                let bytes = u64::from(self.gather.stripe_units) * self.unit_bytes();
                let start = now_ns.max(self.path_free_ns);
                self.path_free_ns =
                    start + transfer_ns(bytes, self.parameters.write_path_bytes_per_s);
                self.channel(self.path_free_ns, die, bytes).1 + ns
            }
            Operation::Erase => now_ns + self.parameters.erase_ns,
        };
        self.dies[die as usize].current = Some(next);
        self.push(end, Event::Die(die));
    }

    /// Reserves a die's channel; begin and end of the transfer.
    fn channel(&mut self, now_ns: u64, die: u32, bytes: u64) -> (u64, u64) {
        let free = &mut self.channel_free_ns[self.parameters.channel_of(die) as usize];
        let start = now_ns.max(*free);
        *free = start + transfer_ns(bytes, self.parameters.channel_bytes_per_s);
        (start, *free)
    }

    pub(super) fn die_done(&mut self, now_ns: u64, die: u32) {
        let at = die as usize;
        let Some(current) = self.dies[at].current.take() else { return };
        match current {
            Operation::Read { .. } | Operation::Move { .. } if !self.dies[at].transferring => {
                self.transfer(now_ns, die, current);
                return;
            }
            Operation::Read { request, bytes, split, .. } => {
                self.send_to_host(now_ns, request, bytes, split);
            }
            Operation::Move { .. } | Operation::Erase => {}
            Operation::Program { units, host_units, sequence, .. } => {
                self.outstanding.remove(&sequence);
                self.buffer_used -= u64::from(host_units) * self.unit_bytes();
                for unit in units {
                    if let Some(times) = self.buffered.get_mut(&unit) {
                        *times -= 1;
                        if *times == 0 {
                            self.buffered.remove(&unit);
                        }
                    }
                }
            }
        }
        self.dies[at].transferring = false;
        self.start_die(now_ns, die);
        self.admit(now_ns);
        self.end_flushes(now_ns);
    }

    /// The page that was read leaves its die.
    fn transfer(&mut self, now_ns: u64, die: u32, mut operation: Operation) {
        let (Operation::Read { bytes, .. } | Operation::Move { bytes, .. }) = operation else {
            return;
        };
        let (start, end) = self.channel(now_ns, die, bytes);
        if let Operation::Read { split, .. } = &mut operation {
            split.add(Stage::Channel, start - now_ns, end - start);
        }
        self.dies[die as usize].current = Some(operation);
        self.dies[die as usize].transferring = true;
        self.push(end, Event::Die(die));
    }
}
