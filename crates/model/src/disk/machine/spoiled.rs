//! Blocks that can't be read, until they are written.

use std::collections::BTreeSet;

use super::Machine;

/// Blocks that can't be read. They are few, so that each stands by itself.
#[derive(Debug, Default)]
pub(super) struct Spoiled(BTreeSet<u64>);

impl Spoiled {
    /// Whether one of a run can't be read.
    pub(super) fn within(&self, first: u64, end: u64) -> bool {
        self.0.range(first..end).next().is_some()
    }

    /// The first one from a block on.
    pub(super) fn next(&self, from: u64) -> Option<u64> {
        self.0.range(from..).next().copied()
    }

    /// A run is written.
    pub(super) fn heal(&mut self, first: u64, end: u64) {
        while self.within(first, end) {
            let block = self.next(first).expect("one is within");
            self.0.remove(&block);
        }
    }
}

impl Machine {
    /// `blocks` blocks from `first` on can't be read until they are written. A read of one fails
    /// once the disk has tried for its recovery time.
    pub fn spoil(&mut self, first: u64, blocks: u64) {
        self.forget(first, first + blocks, None);
        self.spoiled.0.extend(first..first + blocks);
    }
}
