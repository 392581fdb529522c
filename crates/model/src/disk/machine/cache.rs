//! The write cache: writes that are over for the host and not yet on the platter.
//!
//! Runs of blocks, sorted, neighbours merged. They go to the platter when the arm has nothing else
//! to do for a while, when there are too many of them, or for a flush; the one that is reached
//! soonest goes first.

use std::collections::{BTreeMap, VecDeque};

use super::super::parameters::{Schedule, WriteCache, Writes};
use super::writes::Arrival;
use super::{Machine, Media};
use crate::split::Stage;

/// How many runs on each side of the arm are looked at for the next one.
const SIDE_RUNS: usize = 16;

/// How much of a run goes to the platter before something else may have the arm. The rest follows
/// without a pause if nothing is nearer.
const PIECE_BLOCKS: u64 = 1024;

/// Runs of blocks that have to go to the platter.
#[derive(Debug, Default)]
pub(super) struct Cache {
    /// End of each run, by its first block.
    runs: BTreeMap<u64, u64>,
    blocks: u64,
    /// Runs that are on their way.
    under_way: Vec<(u64, u64)>,
    /// Writes that wait for room.
    waiting: VecDeque<usize>,
}

impl Cache {
    /// Whether all of a read is in one run.
    pub(super) fn has(&self, first: u64, blocks: u64) -> bool {
        let run = self.runs.range(..=first).next_back();
        let under_way = self.under_way.iter().map(|(first, end)| (first, end));
        run.into_iter().chain(under_way).any(|run| *run.0 <= first && first + blocks <= *run.1)
    }

    fn insert(&mut self, mut first: u64, mut end: u64) {
        while let Some((&at, &until)) = self.runs.range(..=end).next_back()
            && until >= first
        {
            first = first.min(at);
            end = end.max(until);
            self.runs.remove(&at);
            self.blocks -= until - at;
        }
        self.blocks += end - first;
        self.runs.insert(first, end);
    }

    pub(super) fn clean(&self) -> bool {
        self.blocks == 0 && self.under_way.is_empty() && self.waiting.is_empty()
    }
}

impl Machine {
    /// A write comes that is over once it is in the cache.
    pub(super) fn cache_write(&mut self, now_ns: u64, id: usize, cache: WriteCache) {
        let blocks = self.request(id).blocks;
        if !self.cache.waiting.is_empty() || !self.cache_takes(blocks, cache) {
            self.cache.waiting.push_back(id);
        } else {
            self.cache_store(now_ns, id);
        }
        self.dispatch(now_ns);
    }

    /// Whether there is room; a write that is larger than the cache comes in alone.
    fn cache_takes(&self, blocks: u64, cache: WriteCache) -> bool {
        let under_way: u64 = self.cache.under_way.iter().map(|run| run.1 - run.0).sum();
        let taken = self.cache.blocks + under_way;
        let runs = self.cache.runs.len() + self.cache.under_way.len();
        taken == 0 || taken + blocks <= cache.blocks && runs < cache.runs as usize
    }

    fn cache_store(&mut self, now_ns: u64, id: usize) {
        let request = self.request(id);
        request.served(Stage::Command, request.ready_ns.min(now_ns));
        request.waited(Stage::Buffer, now_ns);
        let (first, end) = (request.first, request.end());
        let at_ns = request.ready_ns.max(now_ns) + self.parameters.overheads.prepare_ns;
        self.link_write(at_ns, id);
        self.forget(first, end, None);
        self.cache.insert(first, end);
    }

    /// Whether the cache goes before reads.
    pub(super) fn cache_presses(&self) -> bool {
        let Writes::InCache(cache) = self.parameters.writes else { return false };
        let runs = self.cache.runs.len() as u64 * 4 > u64::from(cache.runs) * 3;
        runs || self.cache.blocks > cache.high_blocks || !self.cache.waiting.is_empty()
    }

    /// Sends a run to the platter if it is time for that; false if the arm is still free.
    pub(super) fn destage(&mut self, now_ns: u64) -> bool {
        let Writes::InCache(cache) = self.parameters.writes else { return false };
        if self.cache.runs.is_empty() {
            return false;
        }
        let pressed = !self.flushes.is_empty() || self.cache_presses();
        if !pressed && !self.idle_for(now_ns, cache.idle_ns) {
            return false;
        }
        let start_ns = self.stop(now_ns);
        let first = self.next_run(now_ns);
        let end = self.take_run(first);
        if let Some(media) = self.takes(first, end) {
            while self.cache.under_way.len() < media.batch as usize
                && let Some(next) = self.cache.runs.keys().next().copied()
            {
                self.take_run(next);
            }
            let runs = self.cache.under_way.clone();
            let (_, until_ns) = self.append_runs(start_ns, &runs, media, 0);
            self.hold_until(until_ns);
            return true;
        }
        self.goes_home(first, end);
        let mechanics = &self.parameters.mechanics;
        let place = mechanics.layout.find(first);
        let visit = mechanics.visit(start_ns, self.position, (first, &place), true);
        let there = Arrival { first, start_ns: 0, block_ns: 0 };
        let (visit, until_ns) = self.write_blocks(visit, first, end, there, 1);
        self.near = end;
        self.media = Media::Writing { segment: None, visit, end, until_ns };
        self.hold_until(until_ns);
        true
    }

    /// A run, or its first piece, is on its way; where it ends.
    fn take_run(&mut self, first: u64) -> u64 {
        let run_end = self.cache.runs.remove(&first).expect("it was there");
        let end = self.piece_end(first, run_end.min(first + PIECE_BLOCKS));
        if end < run_end {
            self.cache.runs.insert(end, run_end);
        }
        self.cache.blocks -= end - first;
        self.cache.under_way.push((first, end));
        end
    }

    /// The run that is reached soonest, of those around the arm; in order, if that is the schedule.
    fn next_run(&self, now_ns: u64) -> u64 {
        let runs = &self.cache.runs;
        let mechanics = &self.parameters.mechanics;
        let at = self.near;
        let above = runs.range(at..).map(|run| *run.0);
        if self.parameters.schedule == Schedule::FirstCome {
            let first = runs.keys().next().copied();
            return above.take(1).next().or(first).expect("there are runs");
        }
        let below = runs.range(..at).rev().map(|run| *run.0);
        let near = above.take(SIDE_RUNS).chain(below.take(SIDE_RUNS));
        let positioning = |first: &u64| {
            let place = mechanics.layout.find(*first);
            mechanics.positioning_ns(now_ns, self.position, &place, true)
        };
        near.min_by_key(positioning).expect("there are runs")
    }

    /// A run is on the platter.
    pub(super) fn cache_written(&mut self, now_ns: u64) {
        if self.cache.under_way.is_empty() {
            return;
        }
        self.cache.under_way.clear();
        let Writes::InCache(cache) = self.parameters.writes else { return };
        while let Some(&id) = self.cache.waiting.front() {
            let blocks = self.request(id).blocks;
            if !self.cache_takes(blocks, cache) {
                break;
            }
            self.cache.waiting.pop_front();
            self.cache_store(now_ns, id);
        }
    }
}
