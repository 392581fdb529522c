//! Writes that wait for the arm: over the link into a segment, and to the platter.

use super::super::mechanics::Visit;
use super::super::parameters::Writes;
use super::{Holder, Machine, Media};
use crate::split::Stage;

/// When blocks come over the link.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    /// The first block of the transfer.
    pub(super) first: u64,
    /// When the transfer begins.
    pub(super) start_ns: u64,
    /// Time of a block.
    pub(super) block_ns: u64,
}

impl Arrival {
    /// When a block is in the buffer.
    fn ns(&self, block: u64) -> u64 {
        self.start_ns + (block - self.first + 1) * self.block_ns
    }
}

impl Machine {
    pub(super) fn write_arrives(&mut self, now_ns: u64, id: usize) {
        let after = usize::from(self.after_write);
        let ready_ns = now_ns + self.parameters.overheads.write_ns[after];
        let request = self.request(id);
        request.ready_ns = ready_ns;
        let to_platter = request.to_platter;
        if let Writes::InCache(cache) = self.parameters.writes
            && !to_platter
        {
            self.cache_write(now_ns, id, cache);
        } else if self.append(now_ns, id) {
        } else if self.holder != Holder::Nobody || !self.queue.is_empty() {
            self.request(id).ready_ns += self.parameters.overheads.write_leave_ns;
            self.queue.push(id);
        } else {
            self.start_write(now_ns, id, true);
        }
    }

    /// A write right behind the one that is on its way to the platter goes along with it.
    fn append(&mut self, now_ns: u64, id: usize) -> bool {
        let Media::Writing { segment: Some(segment), visit, end, .. } = self.media else {
            return false;
        };
        let appends = match self.parameters.writes {
            Writes::InBuffer { appends } => appends || self.queue.is_empty(),
            _ => false,
        };
        let request = self.request(id);
        let (first, request_end, to_platter) = (request.first, request.end(), request.to_platter);
        let ready_ns = request.ready_ns;
        if !appends || first != end || to_platter {
            return false;
        }
        // What is in the segment and not on the platter yet has to stay there.
        let held = request_end - visit.reached(now_ns).min(end);
        if held > self.parameters.buffer.segment_blocks {
            return false;
        }
        let start_ns = self.link_write(ready_ns + self.parameters.overheads.prepare_ns, id);
        let block_ns = self.parameters.link_block_ns[1];
        let arrival = Arrival { first, start_ns, block_ns };
        let (visit, until_ns) = self.write_blocks(visit, first, request_end, arrival, 1);
        self.media = Media::Writing { segment: Some(segment), visit, end: request_end, until_ns };
        self.forget(first, request_end, Some(segment));
        self.segments.fill(segment, request_end);
        debug_assert!(until_ns > now_ns);
        true
    }

    /// A write's data come over the link, and it is over for the host; when they begin to come.
    pub(super) fn link_write(&mut self, at_ns: u64, id: usize) -> u64 {
        let block_ns = self.parameters.link_block_ns[1];
        let complete_ns = self.parameters.overheads.complete_ns[1];
        let start_ns = at_ns.max(self.link_free_ns);
        self.after_write = true;
        let request = self.request(id);
        let (first, end) = (request.first, request.end());
        let end_ns = start_ns + request.blocks * block_ns;
        request.served(Stage::Command, at_ns);
        request.waited(Stage::Link, start_ns);
        request.served(Stage::Link, end_ns);
        self.link_free_ns = end_ns;
        self.spoiled.heal(first, end);
        if !self.request(id).to_platter {
            self.end_at(end_ns + complete_ns, id, Stage::Command);
        }
        start_ns
    }

    /// The arm is the request's. `fresh` ones have just come; others were in the queue.
    pub(super) fn start_write(&mut self, now_ns: u64, id: usize, fresh: bool) {
        let (first, end) = (self.request(id).first, self.request(id).end());
        if let Some(media) = self.takes(first, end) {
            self.append_requests(now_ns, id, media);
            return;
        }
        self.goes_home(first, end);
        let overheads = self.parameters.overheads.clone();
        let request = self.request(id);
        let (first, end, place, to_platter) =
            (request.first, request.end(), request.place, request.to_platter);
        let mut seek_at_ns = request.ready_ns.max(now_ns);
        request.served(Stage::Command, request.ready_ns.min(seek_at_ns));
        request.waited(Stage::Queue, seek_at_ns);
        let segment = self.segments.oldest(true);
        let last = *self.segments.get(segment);
        let elsewhere = last.written && last.end != first;
        // The write before this one was elsewhere, so that the disk leaves the link once more.
        let extra = overheads.extra.filter(|_| fresh && elsewhere && self.after_write);
        let mut link_at_ns = seek_at_ns + overheads.prepare_ns;
        if let Some(extra) = extra {
            seek_at_ns = now_ns + extra.seek_ns;
            link_at_ns = now_ns + extra.command_ns + extra.leave_ns + extra.away_ns;
        }
        if extra.is_some() || !fresh {
            link_at_ns += overheads.reselect_ns[0];
        }
        let start_ns = self.link_write(link_at_ns, id);
        let link_end_ns = self.link_free_ns;
        self.stop(now_ns);
        self.forget(first, end, Some(segment));
        self.segments.begin(segment, first, true);
        self.segments.fill(segment, end);
        let mechanics = &self.parameters.mechanics;
        let mut visit = mechanics.visit(seek_at_ns, self.position, (first, &place), true);
        if visit.seek_ns < overheads.write_seek_min_ns {
            seek_at_ns += overheads.write_seek_min_ns - visit.seek_ns;
            let from = (first, &place);
            visit = mechanics.visit(seek_at_ns, self.position, from, true);
        }
        let block_ns = self.parameters.link_block_ns[1];
        let arrival = Arrival { first, start_ns, block_ns };
        let blocks = end - first;
        // With the extra disconnection the platter waits for more than the first block.
        let least = match overheads.extra {
            Some(_) if blocks < 45 => blocks.min(10),
            Some(_) => 15,
            None => 1,
        };
        let (visit, until_ns) = self.write_blocks(visit, first, end, arrival, least);
        self.media = Media::Writing { segment: Some(segment), visit, end, until_ns };
        self.near = end;
        if !to_platter {
            let over_ns = link_end_ns + overheads.complete_ns[1];
            self.hold_until(until_ns.max(over_ns));
            return;
        }
        let leave_ns = extra.map_or(overheads.write_leave_ns, |extra| extra.leave_again_ns);
        let reselect_ns = overheads.reselect_ns[usize::from(extra.is_some())];
        let written_ns = until_ns.max(link_end_ns + leave_ns);
        let request = self.request(id);
        let (seek_end_ns, pass_ns) = (visit.start_ns - visit.wait_ns, visit.start_ns);
        request.served(Stage::Seek, seek_end_ns.min(written_ns));
        request.served(Stage::Rotation, pass_ns.min(written_ns));
        request.served(Stage::Media, written_ns);
        let over_ns = written_ns + reselect_ns + overheads.complete_ns[1];
        self.end_at(over_ns, id, Stage::Command);
        self.holder = Holder::Request(id);
    }

    /// Blocks from `first` to `end` go to the platter, none before it came over the link: whoever
    /// comes too late waits for a turn. The visit of the last block, and when it has passed.
    pub(super) fn write_blocks(
        &self,
        mut visit: Visit,
        first: u64,
        end: u64,
        arrival: Arrival,
        least: u64,
    ) -> (Visit, u64) {
        let mechanics = &self.parameters.mechanics;
        let mut from = first;
        loop {
            while from >= visit.end {
                let next = mechanics.next(&visit, true);
                visit = next.expect("a write ends on the disk");
            }
            let to = visit.end.min(end);
            // Blocks can only be written early if they are there when the head comes down.
            if visit.early < to && arrival.ns(to - 1) > visit.start_ns - visit.wait_ns {
                visit.in_order();
            }
            let starts_ns = |block: u64| {
                if block == visit.first { visit.start_ns } else { visit.passed_ns(block - 1) }
            };
            let needed = (from + least - 1).min(end - 1);
            let late = |wanted_ns: u64, there_ns: u64| there_ns.saturating_sub(wanted_ns);
            let late_ns = late(starts_ns(from), arrival.ns(needed.max(from)))
                .max(late(starts_ns(to - 1), arrival.ns(to - 1)));
            let turns = late_ns.div_ceil(mechanics.turn_ns);
            visit.delay(turns * mechanics.turn_ns);
            if to == end {
                return (visit, visit.passed_ns(end - 1));
            }
            from = to;
        }
    }

    /// What was under way is on the platter.
    pub(super) fn written(&mut self, now_ns: u64) {
        let Media::Writing { segment, visit, .. } = self.media else { return };
        self.position = visit.position;
        self.media = Media::Still;
        if let Some(segment) = segment
            && !self.parameters.buffer.hits_on_writes
        {
            self.segments.empty(segment);
        }
        self.cache_written(now_ns);
    }
}
