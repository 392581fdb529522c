//! Reads: from the buffer, from what is just coming in, from the platter.

use super::super::buffer::Found;
use super::super::mechanics::Visit;
use super::super::parameters::ReadAhead;
use super::{Event, Holder, Machine, Media, Ready};
use crate::split::Stage;

/// In the buffer before the request came.
const THERE: Ready = Ready { at_ns: 0, blocks: 1 };

impl Machine {
    pub(super) fn read_arrives(&mut self, now_ns: u64, id: usize) {
        let after = usize::from(self.after_write);
        let (first, blocks) = (self.request(id).first, self.request(id).blocks);
        let miss_ns = self.parameters.overheads.read_miss_ns[after];
        self.request(id).ready_ns = now_ns + miss_ns;
        let in_cache = self.cache.has(first, blocks);
        let found = self.segments.find(first, blocks, self.reading());
        let pass = in_cache
            || self.parameters.buffer.hits_pass
                && matches!(found, Found::Whole(_))
                && self.link_free_ns <= now_ns;
        if pass {
            let ns = self.parameters.overheads.read_hit_ns[after];
            let ready_ns = now_ns + ns + self.parameters.overheads.prepare_ns;
            let request = self.request(id);
            request.served(Stage::Command, ready_ns);
            request.ready = Ready { at_ns: ready_ns, blocks: 1 };
            if let Found::Whole(segment) = found {
                self.segments.touch(segment);
            }
            self.push(ready_ns, Event::Link(id));
        } else if self.holder != Holder::Nobody || !self.queue.is_empty() {
            let leave_ns = self.parameters.overheads.read_leave_ns[after];
            self.request(id).ready_ns += leave_ns;
            self.queue.push(id);
        } else {
            self.start_read(now_ns, id, true);
        }
    }

    /// The arm is the request's. `fresh` ones have just come; others were in the queue.
    pub(super) fn start_read(&mut self, now_ns: u64, id: usize, fresh: bool) {
        let overheads = &self.parameters.overheads;
        let hit_ns = overheads.read_hit_ns[usize::from(self.after_write)];
        let (prepare_ns, reselect_ns) = (overheads.prepare_ns, overheads.reselect_ns[0]);
        self.after_write = false;
        let request = self.request(id);
        let (first, end) = (request.first, request.end());
        let ready_ns = request.ready_ns.max(now_ns);
        let mut found = self.segments.find(first, end - first, self.reading());
        if let Found::Part(segment) = found
            && self.log.within(self.segments.get(segment).end, end)
        {
            found = Found::Nothing;
        }
        if !fresh {
            let request = self.request(id);
            request.served(Stage::Command, request.ready_ns.min(now_ns));
            request.waited(Stage::Queue, now_ns);
        }
        let (mut link_at_ns, ready) = match found {
            Found::Whole(segment) | Found::Part(segment) => {
                let at_ns = if fresh { now_ns + hit_ns } else { ready_ns + reselect_ns };
                self.request(id).served(Stage::Command, at_ns + prepare_ns);
                self.segments.touch(segment);
                self.allow_ahead(segment, first, end);
                (at_ns + prepare_ns, self.continue_read(now_ns, ready_ns, segment, end))
            }
            Found::Nothing if self.log.within(first, end) => {
                let ready = self.read_pieces(now_ns, ready_ns, id);
                (ready.at_ns + reselect_ns + prepare_ns, ready)
            }
            Found::Nothing => {
                let segment = self.segments.oldest(false);
                let start_ns = self.stop(now_ns).max(ready_ns);
                self.segments.begin(segment, first, false);
                self.allow_ahead(segment, first, end);
                let visit = self.begin_read(start_ns, segment, first);
                let request = self.request(id);
                request.served(Stage::Command, ready_ns);
                request.waited(Stage::Queue, start_ns);
                request.served(Stage::Seek, start_ns + visit.seek_ns);
                request.served(Stage::Rotation, visit.start_ns);
                let marked = self.passes(visit, first + self.watermark(end - first) - 1);
                (marked.at_ns + reselect_ns + prepare_ns, self.passes(visit, end - 1))
            }
        };
        let spoiled = self.spoiled.within(first, end);
        let recovery_ns = if spoiled { self.parameters.recovery_ns } else { 0 };
        let ready = Ready { at_ns: ready.at_ns + recovery_ns, ..ready };
        // The link is not kept waiting for blocks that are slower than it is.
        let before_last_ns = (end - first - ready.blocks) * self.parameters.link_block_ns[0];
        link_at_ns = link_at_ns.max(ready.at_ns.saturating_sub(before_last_ns));
        let request = self.request(id);
        request.ready = ready;
        request.failed = spoiled;
        request.served(Stage::Media, ready.at_ns.min(link_at_ns));
        self.push(link_at_ns, Event::Link(id));
        if self.parameters.preseek {
            self.hold_until(ready.at_ns.max(now_ns));
        } else {
            self.holder = Holder::Request(id);
        }
    }

    /// Some of the blocks are in the media cache: the head goes from piece to piece.
    fn read_pieces(&mut self, now_ns: u64, ready_ns: u64, id: usize) -> Ready {
        let start_ns = self.stop(now_ns).max(ready_ns);
        let request = self.requests[id].as_mut().expect("it is being served");
        let (first, end) = (request.first, request.end());
        request.served(Stage::Command, ready_ns);
        request.waited(Stage::Queue, start_ns);
        let mechanics = &self.parameters.mechanics;
        let mut at_ns = start_ns;
        for (place, blocks) in self.log.pieces(first, end) {
            let target = mechanics.layout.find(place);
            let mut visit = mechanics.visit(at_ns, self.position, (place, &target), false);
            request.served(Stage::Seek, at_ns + visit.seek_ns);
            request.served(Stage::Rotation, visit.start_ns);
            while visit.end < place + blocks {
                visit = mechanics.next(&visit, false).expect("blocks end on the disk");
            }
            at_ns = visit.passed_ns(place + blocks - 1);
            request.served(Stage::Media, at_ns);
            self.position = visit.position;
        }
        let segment = self.segments.oldest(false);
        self.segments.begin(segment, first, false);
        self.segments.fill(segment, end);
        self.near = first;
        Ready { at_ns, blocks: 1 }
    }

    /// The segment that blocks come into.
    fn reading(&self) -> Option<usize> {
        match self.media {
            Media::Reading { segment, .. } => Some(segment),
            _ => None,
        }
    }

    /// How many blocks of a request come in before the link is asked for.
    fn watermark(&self, blocks: u64) -> u64 {
        let size = self.parameters.buffer.segment_blocks;
        let mark = blocks.min(size) as f64 * self.parameters.buffer.watermark;
        (mark as u64).clamp(1, blocks)
    }

    /// A read's data go over the link.
    pub(super) fn link_read(&mut self, now_ns: u64, id: usize) {
        let block_ns = self.parameters.link_block_ns[0];
        let start_ns = now_ns.max(self.link_free_ns);
        let request = self.request(id);
        let link_end_ns = start_ns + request.blocks * block_ns;
        let end_ns = link_end_ns.max(request.ready.at_ns + request.ready.blocks * block_ns);
        request.served(Stage::Media, request.ready.at_ns.min(end_ns));
        request.waited(Stage::Link, start_ns.min(end_ns));
        request.served(Stage::Link, end_ns);
        self.link_free_ns = end_ns;
        let complete_ns = self.parameters.overheads.complete_ns[0];
        self.end_at(end_ns + complete_ns, id, Stage::Command);
    }

    /// The pass of the head for a miss.
    fn begin_read(&mut self, now_ns: u64, segment: usize, first: u64) -> Visit {
        self.near = first;
        let mechanics = &self.parameters.mechanics;
        let place = mechanics.layout.find(first);
        let visit = mechanics.visit(now_ns, self.position, (first, &place), false);
        if self.parameters.buffer.free_blocks {
            // Blocks before the first one may have passed under the head on the way to it.
            let blocks = u64::from(place.track_blocks);
            let passed = visit.wait_ns * blocks / mechanics.turn_ns;
            let before = (blocks - u64::from(place.run)).min(first);
            self.segments.extend_down(segment, first - passed.min(before));
        }
        self.media = Media::Reading { segment, visit };
        visit
    }

    /// The rest of a request that is partly there; when all of it is.
    fn continue_read(&mut self, now_ns: u64, ready_ns: u64, segment: usize, end: u64) -> Ready {
        let have = self.segments.get(segment).end;
        if let Media::Reading { segment: reading, visit } = self.media
            && reading == segment
        {
            return if have < end { self.passes(visit, end - 1) } else { THERE };
        }
        let ahead_end = self.segments.get(segment).ahead_end;
        if have >= end && !(self.parameters.buffer.ahead_on_hit && have < ahead_end) {
            return THERE;
        }
        let start_ns = self.stop(now_ns).max(ready_ns);
        let visit = self.begin_read(start_ns, segment, have);
        if have < end { self.passes(visit, end - 1) } else { THERE }
    }

    /// When a block and all before it have passed, on this track or a later one.
    fn passes(&self, mut visit: Visit, block: u64) -> Ready {
        while block >= visit.end {
            let next = self.parameters.mechanics.next(&visit, false);
            visit = next.expect("a request ends on the disk");
        }
        Ready { at_ns: visit.passed_ns(block), blocks: block - block.min(visit.early - 1) + 1 }
    }

    /// How far the segment of a request may be filled behind it.
    fn allow_ahead(&mut self, segment: usize, first: u64, end: u64) {
        let blocks = self.parameters.blocks;
        let layout = &self.parameters.mechanics.layout;
        let behind = |number: u64| layout.find(number.min(blocks - 1));
        let limit = match self.parameters.buffer.ahead {
            ReadAhead::Off => end,
            ReadAhead::Blocks(ahead) => end + ahead,
            ReadAhead::Track => {
                let last = behind(end - 1);
                end - 1 + u64::from(last.run)
            }
            ReadAhead::Cylinder => {
                let cylinder = behind(end - 1).cylinder;
                let mut limit = end;
                while limit < blocks && layout.find(limit).cylinder == cylinder {
                    limit += u64::from(layout.find(limit).run);
                }
                limit
            }
            ReadAhead::TrackThenNext => {
                let next = behind(end);
                let track_end = end + u64::from(next.run);
                let begun = self.segments.get(segment).first.min(first);
                // Whether the segment began on a track before this one.
                if begun + u64::from(behind(begun).run) < track_end {
                    track_end + u64::from(next.track_blocks)
                } else {
                    track_end
                }
            }
        };
        // Nothing is read ahead from where it takes long.
        let spoiled = self.spoiled.next(end).unwrap_or(blocks);
        // Nor from where blocks are elsewhere.
        let elsewhere = self.log.next(end).unwrap_or(blocks);
        self.segments.allow(segment, limit.min(blocks).min(spoiled).min(elsewhere));
    }
}
