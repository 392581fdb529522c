//! The media cache: a part of the surface that takes small writes in the order they come.
//!
//! On a shingled disk tracks overlap, so that a band of them is only written from its beginning to
//! its end; what does not fit that goes to the media cache. Other disks have one so that writes
//! need no seek each. When the disk is idle, or the cache is full, its blocks go home: a shingled
//! band is read and written again, other blocks are written where they belong.
//!
//! It lies behind the last block the host knows. Its room is counted, and written round and round;
//! where exactly its own free space lies is left out.

use std::collections::BTreeMap;

use super::super::parameters::MediaCache;
use super::writes::Arrival;
use super::{Machine, Media};
use crate::split::Stage;

/// Writes of this many blocks go home at once where the disk can do that.
const LARGE_BLOCKS: u64 = 512;

/// What the media cache has.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// End and place of each run, by its first block.
    runs: BTreeMap<u64, (u64, u64)>,
    used: u64,
    /// Where the next write goes, from the cache's beginning.
    next: u64,
    /// From where on the next band is looked for.
    from: u64,
    /// A band that has been read and is to be written.
    band: Option<(u64, u64)>,
    /// Behind the last write that went home at once.
    stream: u64,
}

impl Log {
    /// Whether it has a block of a run.
    pub(super) fn within(&self, first: u64, end: u64) -> bool {
        self.runs.range(..end).next_back().is_some_and(|(_, run)| run.0 > first)
    }

    /// The first block from `from` on that it has.
    pub(super) fn next(&self, from: u64) -> Option<u64> {
        let before = self.runs.range(..from).next_back().filter(|(_, run)| run.0 > from);
        before.map(|_| from).or_else(|| self.runs.range(from..).next().map(|run| *run.0))
    }

    /// A run is somewhere else now.
    pub(super) fn forget(&mut self, first: u64, end: u64) {
        while let Some((&at, &(until, place))) = self.runs.range(..end).next_back()
            && until > first
        {
            self.runs.remove(&at);
            if at < first {
                self.runs.insert(at, (first, place));
            }
            if until > end {
                self.runs.insert(end, (until, place + (end - at)));
            }
            self.used -= until.min(end) - at.max(first);
        }
    }

    fn store(&mut self, first: u64, end: u64, place: u64) {
        self.forget(first, end);
        self.runs.insert(first, (end, place));
        self.used += end - first;
    }

    /// Where a run lies, piece by piece: place and blocks.
    pub(super) fn pieces(&self, first: u64, end: u64) -> Vec<(u64, u64)> {
        let mut pieces = Vec::new();
        let mut at = first;
        while at < end {
            let inside = self.runs.range(..=at).next_back().filter(|(_, run)| run.0 > at);
            if let Some((&begin, &(until, place))) = inside {
                let until = until.min(end);
                pieces.push((place + (at - begin), until - at));
                at = until;
            } else {
                let until = self.runs.range(at..end).next().map_or(end, |run| *run.0);
                pieces.push((at, until - at));
                at = until;
            }
        }
        pieces
    }
}

impl Machine {
    /// The media cache, if a write of these blocks goes there.
    pub(super) fn takes(&self, first: u64, end: u64) -> Option<MediaCache> {
        let media = self.parameters.media?;
        let home = match media.band_blocks {
            None => end - first >= LARGE_BLOCKS,
            Some(band) => {
                let begins = first.is_multiple_of(band) && end - first >= LARGE_BLOCKS;
                (begins || first == self.log.stream) && first / band == (end - 1) / band
            }
        };
        (!home).then_some(media)
    }

    /// The place a write will begin at.
    pub(super) fn write_place(&self, first: u64, end: u64) -> u64 {
        match self.takes(first, end) {
            Some(media) => self.parameters.blocks + self.log.next.min(media.blocks - 1),
            None => first,
        }
    }

    /// A run is written home.
    pub(super) fn goes_home(&mut self, first: u64, end: u64) {
        self.log.forget(first, end);
        self.log.stream = end;
    }

    /// How far a piece of a run may reach: a shingled band at most.
    pub(super) fn piece_end(&self, first: u64, end: u64) -> u64 {
        let band = self.parameters.media.and_then(|media| media.band_blocks);
        band.map_or(end, |band| end.min((first / band + 1) * band))
    }

    /// Whether the media cache has to be cleaned before anything is written to it.
    pub(super) fn log_presses(&self) -> bool {
        self.parameters.media.is_some_and(|media| {
            self.log.band.is_some() || self.log.used + 2 * media.batch_blocks_max() > media.blocks
        })
    }

    /// Runs go to the media cache one behind the other; when all of them are there.
    pub(super) fn append_runs(
        &mut self,
        start_ns: u64,
        runs: &[(u64, u64)],
        media: MediaCache,
        arrived_ns: u64,
    ) -> (u64, u64) {
        let blocks: u64 = runs.iter().map(|run| run.1 - run.0).sum();
        if self.log.next + blocks > media.blocks {
            self.log.next = 0;
        }
        let first = self.parameters.blocks + self.log.next;
        let mut place = first;
        for (begin, end) in runs {
            self.log.store(*begin, *end, place);
            place += end - begin;
        }
        self.log.next += blocks;
        let mechanics = &self.parameters.mechanics;
        let target = mechanics.layout.find(first);
        let visit = mechanics.visit(start_ns, self.position, (first, &target), true);
        let arrival = Arrival { first, start_ns: arrived_ns, block_ns: 0 };
        let (last, until_ns) = self.write_blocks(visit, first, first + blocks, arrival, 1);
        self.near = self.parameters.blocks - 1;
        self.media = Media::Writing { segment: None, visit: last, end: first + blocks, until_ns };
        (start_ns + visit.seek_ns, until_ns)
    }

    /// Writes that wait for the platter go to the media cache, some at a time.
    pub(super) fn append_requests(&mut self, now_ns: u64, id: usize, media: MediaCache) {
        let mut ids = vec![id];
        let mut blocks = self.request(id).blocks;
        for other in std::mem::take(&mut self.queue) {
            let request = self.request(other);
            let (first, end, write) = (request.first, request.end(), request.write);
            let fits = ids.len() < media.batch as usize && blocks < LARGE_BLOCKS;
            if write && fits && self.takes(first, end).is_some() {
                blocks += end - first;
                ids.push(other);
            } else {
                self.queue.push(other);
            }
        }
        let stopped_ns = self.stop(now_ns);
        let mut arrived_ns = now_ns;
        let mut start_ns = stopped_ns;
        let mut runs = Vec::new();
        for &id in &ids {
            let request = self.request(id);
            let ready_ns = request.ready_ns.max(now_ns);
            request.served(Stage::Command, request.ready_ns.min(ready_ns));
            request.waited(Stage::Queue, ready_ns);
            let (first, end) = (request.first, request.end());
            self.link_write(ready_ns + self.parameters.overheads.prepare_ns, id);
            self.forget(first, end, None);
            runs.push((first, end));
            start_ns = start_ns.max(ready_ns);
            arrived_ns = self.link_free_ns;
        }
        let (there_ns, until_ns) = self.append_runs(start_ns, &runs, media, arrived_ns);
        let complete_ns = self.parameters.overheads.complete_ns[1];
        for id in ids {
            let request = self.request(id);
            request.served(Stage::Seek, there_ns.min(until_ns));
            request.served(Stage::Media, until_ns);
            self.end_at(until_ns + complete_ns, id, Stage::Command);
        }
        self.hold_until(until_ns);
    }

    /// Takes the next step of cleaning; false if there is nothing to clean.
    pub(super) fn clean(&mut self, now_ns: u64) -> bool {
        let Some(media) = self.parameters.media else { return false };
        let start_ns = self.stop(now_ns);
        if let Some((first, end)) = self.log.band.take() {
            self.log.forget(first, end);
            self.pass(start_ns, first, end, true);
            return true;
        }
        let next = self.log.next(self.log.from).or_else(|| self.log.next(0));
        let Some(first) = next else { return false };
        let Some(band) = media.band_blocks else {
            let end = self.log.runs.range(..=first).next_back().map_or(first + 1, |run| run.1.0);
            self.log.forget(first, end);
            self.log.from = end;
            self.pass(start_ns, first, end, true);
            return true;
        };
        let first = first / band * band;
        let end = (first + band).min(self.parameters.blocks);
        self.log.band = Some((first, end));
        self.log.from = end;
        self.pass(start_ns, first, end, false);
        true
    }

    /// The head passes over blocks at home, for the disk itself.
    fn pass(&mut self, start_ns: u64, first: u64, end: u64, write: bool) {
        let mechanics = &self.parameters.mechanics;
        let place = mechanics.layout.find(first);
        let mut visit = mechanics.visit(start_ns, self.position, (first, &place), write);
        while visit.end < end {
            visit = mechanics.next(&visit, write).expect("blocks end on the disk");
        }
        let until_ns = visit.passed_ns(end - 1);
        self.near = end - 1;
        self.media = Media::Writing { segment: None, visit, end, until_ns };
        self.hold_until(until_ns);
    }
}

#[cfg(test)]
mod tests {
    use world::SplitMix64;

    use super::*;

    #[test]
    fn runs_are_where_the_last_write_put_them() {
        let mut random = SplitMix64::new(5);
        let mut log = Log::default();
        let mut naive = vec![None; 100];
        for step in 0..2000_u64 {
            let first = random.below(90);
            let end = first + 1 + random.below(10);
            if random.below(4) == 0 {
                log.forget(first, end);
                naive[first as usize..end as usize].fill(None);
            } else {
                let place = 1000 + step * 10;
                log.store(first, end, place);
                for block in first..end {
                    naive[block as usize] = Some(place + block - first);
                }
            }
            assert_eq!(log.used, naive.iter().flatten().count() as u64);
            let (first, end) = (random.below(50), 51 + random.below(49));
            let found: Vec<u64> = log
                .pieces(first, end)
                .iter()
                .flat_map(|(place, blocks)| *place..place + blocks)
                .collect();
            let wanted: Vec<u64> =
                (first..end).map(|block| naive[block as usize].unwrap_or(block)).collect();
            assert_eq!(found, wanted);
            let next = (first..100).find(|block| naive[*block as usize].is_some());
            assert_eq!(log.next(first), next);
            assert_eq!(log.within(first, end), next.is_some_and(|next| next < end));
        }
    }
}
