//! The timing of an SSD: a discrete-event machine without a clock.
//!
//! The owner submits commands at non-decreasing times, asks when the next event is due, and
//! advances to it; completions come out in order. Resources each have their own queue: host link,
//! controller, write buffer, channels and dies. Link, controller and channels serve in order of
//! arrival, so that a time when they are free is all their state; a die takes host reads before
//! programs and erases.
//!
//! Read: controller, die (tR by type of page), channel, link. The die is held until its page is
//! out. Write: controller, link, room in the buffer, acknowledgement; translation decides what is
//! programmed, and the buffer gives the room back once it is. Cleaning's reads, programs and
//! erases stand in the same queues of the dies as the host's programs.
//!
//! Left out: program and erase suspension, misses of the map's cache, error correction that takes
//! longer on worn cells, and traffic of the pseudo-SLC cache's folding (it happens while idle).

mod flash;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use super::hybrid::Hybrid;
use super::parameters::{Mapping, Parameters, transfer_ns};
use super::translation::{Counters, Effects, Place, State, Translation};
use crate::command::{Command, Completion, Timing};
use crate::split::{Split, Stage};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The controller passes a command on.
    Begin(u64),
    /// A write's data are in the controller.
    Arrived(u64),
    /// A die's operation, or the transfer after its read, ends.
    Die(u32),
    /// A command is over.
    End(u64),
}

#[derive(Debug)]
enum Operation {
    /// A page for the host: the part's request, its bytes, when it came, its way so far.
    Read {
        request: u64,
        bytes: u64,
        since_ns: u64,
        split: Split,
        page: u32,
    },
    /// A page that cleaning moves.
    Move {
        bytes: u64,
        page: u32,
    },
    Program {
        units: Vec<u32>,
        host_units: u32,
        sequence: u64,
        ns: u64,
    },
    Erase,
}

#[derive(Debug, Default)]
struct Die {
    current: Option<Operation>,
    transferring: bool,
    reads: VecDeque<Operation>,
    others: VecDeque<Operation>,
}

#[derive(Debug)]
struct Request {
    tag: u64,
    command: Command,
    submitted_ns: u64,
    since_ns: u64,
    parts: u32,
    split: Split,
    end_ns: u64,
}

#[derive(Debug)]
enum Map {
    Page(Box<Translation>),
    Hybrid(Hybrid),
}

/// Gathers what translation does into operations on dies.
#[derive(Debug, Default)]
struct Gather {
    stripe_units: u32,
    unit: u32,
    open: Vec<u32>,
    open_host: u32,
    last_read: Option<(u32, u32)>,
    last_stripe: u32,
    /// Units read since the last issue.
    moved: u64,
    /// Pages to move, stripes to program and blocks to erase, in order.
    made: VecDeque<Made>,
}

#[derive(Debug)]
enum Made {
    Move(Place),
    Program { stripe: u32, units: Vec<u32>, host_units: u32 },
    Erase,
}

impl Gather {
    fn close(&mut self, stripe: u32) {
        let units = std::mem::take(&mut self.open);
        let host_units = std::mem::take(&mut self.open_host);
        self.made.push_back(Made::Program { stripe, units, host_units });
    }
}

impl Effects for Gather {
    fn read(&mut self, place: Place) {
        self.moved += 1;
        let page = (place.block, place.slot / self.stripe_units);
        if self.last_read.replace(page) != Some(page) {
            self.made.push_back(Made::Move(place));
        }
    }

    fn program(&mut self, place: Place, host: bool) {
        if host {
            self.open.push(self.unit);
            self.open_host += 1;
        }
        self.last_stripe = place.slot / self.stripe_units;
        if (place.slot + 1).is_multiple_of(self.stripe_units) {
            self.close(self.last_stripe);
        }
    }

    fn erase(&mut self, _: u32) {
        self.made.push_back(Made::Erase);
    }
}

/// One SSD in time.
#[derive(Debug)]
pub struct Machine {
    parameters: Parameters,
    map: Map,
    gather: Gather,
    dies: Vec<Die>,
    channel_free_ns: Vec<u64>,
    link_free_ns: [u64; 2],
    controller_free_ns: u64,
    path_free_ns: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    pushed: u64,
    requests: BTreeMap<u64, Request>,
    submitted: u64,
    active: u32,
    /// Commands that wait for a place in the queue the drive offers.
    queued: VecDeque<(u64, u64, Command)>,
    buffer_used: u64,
    /// Writes that wait for room.
    waiting: VecDeque<u64>,
    /// How often a unit is in the buffer.
    buffered: BTreeMap<u32, u32>,
    /// Programs that are not over, by age.
    outstanding: BTreeSet<u64>,
    programs: u64,
    /// Flushes and durable writes: done when no program below their mark is outstanding.
    flushing: VecDeque<(u64, u64)>,
    slc_left: u64,
    last_write_ns: u64,
    dirty: bool,
    done: VecDeque<Completion>,
}

impl Machine {
    /// A drive in `state`; `seed` decides where content lies that no request has named.
    #[must_use]
    pub fn new(parameters: Parameters, state: State, seed: u64) -> Self {
        let map = match parameters.mapping {
            Mapping::Page { spare_permille, cleaning } => {
                let layout = parameters.layout(spare_permille, cleaning);
                Map::Page(Box::new(Translation::new(layout, state, seed)))
            }
            Mapping::Hybrid(shape) => Map::Hybrid(Hybrid::new(shape)),
        };
        let gather = Gather { stripe_units: parameters.stripe_units(), ..Gather::default() };
        // A drive that is full has no room left for the cache until it was idle.
        let slc = parameters.slc_cache.filter(|_| state == State::Fresh);
        Machine {
            map,
            gather,
            dies: (0..parameters.dies).map(|_| Die::default()).collect(),
            channel_free_ns: vec![0; parameters.channels as usize],
            link_free_ns: [0; 2],
            controller_free_ns: 0,
            path_free_ns: 0,
            events: BinaryHeap::new(),
            pushed: 0,
            requests: BTreeMap::new(),
            submitted: 0,
            active: 0,
            queued: VecDeque::new(),
            buffer_used: 0,
            waiting: VecDeque::new(),
            buffered: BTreeMap::new(),
            outstanding: BTreeSet::new(),
            programs: 0,
            flushing: VecDeque::new(),
            slc_left: slc.map_or(0, |slc| slc.bytes),
            last_write_ns: 0,
            dirty: false,
            done: VecDeque::new(),
            parameters,
        }
    }

    /// What it is made of.
    #[must_use]
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// What translation did so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        match &self.map {
            Map::Page(translation) => translation.counters(),
            Map::Hybrid(hybrid) => hybrid.counters(),
        }
    }

    fn accept(&mut self, now_ns: u64, submitted_ns: u64, tag: u64, command: Command) {
        let p = &self.parameters;
        let busy_ns = match command {
            Command::Read { .. } => p.read_command_ns,
            _ => p.write_command_ns,
        };
        let start = now_ns.max(self.controller_free_ns);
        self.controller_free_ns = start + busy_ns;
        let served = p.command_latency_ns;
        let mut split = Split::default();
        split.add(Stage::Queue, now_ns - submitted_ns, 0);
        split.add(Stage::Command, start - now_ns, served);
        let since_ns = start + served;
        let end_ns = since_ns;
        let request = Request { tag, command, submitted_ns, since_ns, parts: 0, split, end_ns };
        self.submitted += 1;
        let id = self.submitted;
        self.requests.insert(id, request);
        self.push(since_ns, Event::Begin(id));
    }

    fn request(&mut self, id: u64) -> &mut Request {
        self.requests.get_mut(&id).expect("a request is known until it ends")
    }

    fn push(&mut self, at_ns: u64, event: Event) {
        self.pushed += 1;
        self.events.push(Reverse((at_ns, self.pushed, event)));
    }

    /// Reserves the link; begin and end of the transfer.
    fn link(&mut self, now_ns: u64, bytes: u64, to_host: bool) -> (u64, u64) {
        let side = usize::from(to_host && self.parameters.duplex);
        let start = now_ns.max(self.link_free_ns[side]);
        let end = start + transfer_ns(bytes, self.parameters.link_bytes_per_s);
        self.link_free_ns[side] = end;
        (start, end)
    }

    fn begin(&mut self, now_ns: u64, id: u64) {
        match self.requests[&id].command {
            Command::Read { offset, bytes } => self.begin_read(now_ns, id, offset, bytes),
            Command::Write { bytes, .. } => {
                let (start, end) = self.link(now_ns, bytes, false);
                let request = self.request(id);
                request.split.add(Stage::Link, start - now_ns, end - start);
                request.since_ns = end;
                self.push(end, Event::Arrived(id));
            }
            Command::Flush => self.begin_flush(now_ns, id),
            Command::Trim { offset, bytes } => {
                let unit = u64::from(self.parameters.unit_bytes);
                let (first, end) = (offset.div_ceil(unit), (offset + bytes) / unit);
                if let Map::Page(translation) = &mut self.map
                    && first < end
                {
                    translation.trim(first as u32, (end - first) as u32);
                }
                self.request(id).end_ns = now_ns;
                self.push(now_ns, Event::End(id));
            }
        }
    }

    fn begin_read(&mut self, now_ns: u64, id: u64, offset: u64, bytes: u64) {
        let unit_bytes = u64::from(self.parameters.unit_bytes);
        let first = offset / unit_bytes;
        let end = (offset + bytes).div_ceil(unit_bytes);
        // Units that lie in the same page of flash are read together.
        let mut part: Option<(u32, u32, u64)> = None;
        let mut parts = Vec::new();
        let mut at_hand = 0;
        for unit in first..end {
            let here = unit * unit_bytes;
            let wanted = (here + unit_bytes).min(offset + bytes) - here.max(offset);
            let place = self.find(unit as u32);
            let Some(place) = place.filter(|_| !self.buffered.contains_key(&(unit as u32))) else {
                at_hand += wanted;
                continue;
            };
            let stripe = place.slot / self.parameters.stripe_units();
            match &mut part {
                Some((block, same, bytes)) if (*block, *same) == (place.block, stripe) => {
                    *bytes += wanted;
                }
                _ => parts.extend(part.replace((place.block, stripe, wanted))),
            }
        }
        parts.extend(part);
        self.request(id).parts = parts.len() as u32 + u32::from(at_hand > 0 || parts.is_empty());
        let split = self.requests[&id].split;
        for (_, stripe, bytes) in parts {
            let (die, page) = (stripe % self.parameters.dies, stripe / self.parameters.dies);
            let read = Operation::Read { request: id, bytes, since_ns: now_ns, split, page };
            self.dies[die as usize].reads.push_back(read);
            self.start_die(now_ns, die);
        }
        if self.requests[&id].parts > 0 && (at_hand > 0 || bytes == 0) {
            self.send_to_host(now_ns, id, at_hand, split);
        }
    }

    fn find(&self, unit: u32) -> Option<Place> {
        match &self.map {
            Map::Page(translation) => translation.find(unit),
            Map::Hybrid(hybrid) => Some(hybrid.find(unit)),
        }
    }

    /// A part of a read goes over the link.
    fn send_to_host(&mut self, now_ns: u64, id: u64, bytes: u64, mut split: Split) {
        let (start, end) = self.link(now_ns, bytes, true);
        split.add(Stage::Link, start - now_ns, end - start);
        let request = self.request(id);
        request.parts -= 1;
        if end >= request.end_ns {
            (request.end_ns, request.split) = (end, split);
        }
        if request.parts == 0 {
            let end_ns = request.end_ns;
            self.push(end_ns, Event::End(id));
        }
    }

    fn begin_flush(&mut self, now_ns: u64, id: u64) {
        self.request(id).since_ns = now_ns;
        if self.parameters.power_loss_protection || !self.dirty {
            self.request(id).end_ns = now_ns;
            self.push(now_ns, Event::End(id));
        } else {
            self.dirty = !self.waiting.is_empty();
            self.pad(now_ns);
            self.flushing.push_back((self.programs, id));
            self.end_flushes(now_ns);
        }
    }

    /// Flushes end whose programs are over; the map is saved after them.
    fn end_flushes(&mut self, now_ns: u64) {
        while let Some(&(mark, id)) = self.flushing.front() {
            if self.outstanding.first().is_some_and(|&oldest| oldest < mark) {
                return;
            }
            self.flushing.pop_front();
            // The controllers without a buffer keep no map that would have to be saved.
            let saves = matches!(self.map, Map::Page(_));
            let flush_ns = if saves { self.parameters.flush_ns } else { 0 };
            let request = self.request(id);
            request.split.add(Stage::Flush, now_ns - request.since_ns, flush_ns);
            request.end_ns = now_ns + flush_ns;
            self.push(now_ns + flush_ns, Event::End(id));
        }
    }

    fn end(&mut self, now_ns: u64, id: u64) {
        let Some(request) = self.requests.remove(&id) else { return };
        debug_assert_eq!(request.split.total_ns(), now_ns - request.submitted_ns);
        self.active -= 1;
        if let Some((submitted_ns, tag, command)) = self.queued.pop_front() {
            self.active += 1;
            self.accept(now_ns, submitted_ns, tag, command);
        }
        self.done.push_back(Completion {
            tag: request.tag,
            at_ns: now_ns,
            failed: false,
            split: request.split,
        });
    }

    /// Writes go into the buffer while there is room.
    fn admit(&mut self, now_ns: u64) {
        while let Some(&id) = self.waiting.front() {
            let Command::Write { offset, bytes, durable } = self.requests[&id].command else {
                return;
            };
            let room = self.units_of(offset, bytes).count() as u64 * self.unit_bytes();
            if self.buffer_used > 0 && self.buffer_used + room > self.parameters.buffer_bytes {
                // Nothing will give room back but what still waits for the rest of its page.
                if self.outstanding.is_empty() {
                    self.pad(now_ns);
                }
                return;
            }
            self.waiting.pop_front();
            self.refill_slc(now_ns);
            self.write(now_ns, offset, bytes);
            let acknowledge_ns = self.parameters.acknowledge_ns;
            let kept = self.parameters.power_loss_protection || !durable;
            let buffered = kept && matches!(self.map, Map::Page(_));
            let request = self.request(id);
            let served = if buffered { acknowledge_ns } else { 0 };
            request.split.add(Stage::Buffer, now_ns - request.since_ns, served);
            request.since_ns = now_ns;
            self.dirty = true;
            if !buffered {
                self.pad(now_ns);
                self.flushing.push_back((self.programs, id));
                // One of no bytes has nothing to wait for.
                self.end_flushes(now_ns);
            } else {
                self.push(now_ns + acknowledge_ns, Event::End(id));
            }
        }
    }
}

impl Timing for Machine {
    fn submit(&mut self, now_ns: u64, tag: u64, command: Command) {
        if self.active == self.parameters.queue_depth {
            self.queued.push_back((now_ns, tag, command));
        } else {
            self.active += 1;
            self.accept(now_ns, now_ns, tag, command);
        }
    }

    fn next_ns(&self) -> Option<u64> {
        self.events.peek().map(|Reverse((at, _, _))| *at)
    }

    fn advance(&mut self, now_ns: u64) {
        while self.next_ns().is_some_and(|at| at <= now_ns) {
            let Some(Reverse((at, _, event))) = self.events.pop() else { return };
            match event {
                Event::Begin(id) => self.begin(at, id),
                Event::Arrived(id) => {
                    self.waiting.push_back(id);
                    self.admit(at);
                }
                Event::Die(die) => self.die_done(at, die),
                Event::End(id) => self.end(at, id),
            }
        }
    }

    fn completion(&mut self) -> Option<Completion> {
        self.done.pop_front()
    }
}
