//! Which block is cleaned next: the oldest, or the one with the fewest valid units.
//!
//! Greedy keeps the closed blocks in one list per number of valid units (linked through arrays, so
//! that an overwrite moves a block in constant time); the lowest list that is not empty is found
//! from a mark that only an overwrite moves down. Within a list the block that came last is taken.

use std::collections::VecDeque;

/// How the next block to clean is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cleaning {
    /// The one with the fewest valid units.
    Greedy,
    /// The one that was written first.
    FirstInFirstOut,
}

const NONE: u32 = u32::MAX;

/// The closed blocks.
#[derive(Debug, Clone)]
pub(super) enum Victims {
    Greedy(Lists),
    Oldest(VecDeque<u32>),
}

#[derive(Debug, Clone)]
pub(super) struct Lists {
    heads: Vec<u32>,
    next: Vec<u32>,
    before: Vec<u32>,
    lowest: usize,
}

impl Victims {
    pub(super) fn new(cleaning: Cleaning, blocks: usize, units_per_block: u32) -> Self {
        match cleaning {
            Cleaning::FirstInFirstOut => Victims::Oldest(VecDeque::new()),
            Cleaning::Greedy => Victims::Greedy(Lists {
                heads: vec![NONE; units_per_block as usize + 1],
                next: vec![NONE; blocks],
                before: vec![NONE; blocks],
                lowest: 0,
            }),
        }
    }

    /// A block was written to its end.
    pub(super) fn close(&mut self, block: u32, valid: u32) {
        match self {
            Victims::Oldest(order) => order.push_back(block),
            Victims::Greedy(lists) => lists.push(block, valid),
        }
    }

    /// A closed block has one valid unit less; `valid` are left.
    pub(super) fn lose_one(&mut self, block: u32, valid: u32) {
        if let Victims::Greedy(lists) = self {
            lists.remove(block, valid + 1);
            lists.push(block, valid);
        }
    }

    /// A closed block has no valid unit left.
    pub(super) fn lose_all(&mut self, block: u32, valid: u32) {
        if let Victims::Greedy(lists) = self {
            lists.remove(block, valid);
            lists.push(block, 0);
        }
    }

    /// Takes the block to clean next out of the closed ones.
    pub(super) fn take(&mut self) -> Option<u32> {
        match self {
            Victims::Oldest(order) => order.pop_front(),
            Victims::Greedy(lists) => lists.take(),
        }
    }
}

impl Lists {
    fn push(&mut self, block: u32, valid: u32) {
        let head = std::mem::replace(&mut self.heads[valid as usize], block);
        self.next[block as usize] = head;
        self.before[block as usize] = NONE;
        if head != NONE {
            self.before[head as usize] = block;
        }
        self.lowest = self.lowest.min(valid as usize);
    }

    fn remove(&mut self, block: u32, valid: u32) {
        let (before, next) = (self.before[block as usize], self.next[block as usize]);
        match before {
            NONE => self.heads[valid as usize] = next,
            before => self.next[before as usize] = next,
        }
        if next != NONE {
            self.before[next as usize] = before;
        }
    }

    fn take(&mut self) -> Option<u32> {
        let valid = (self.lowest..self.heads.len()).find(|&valid| self.heads[valid] != NONE)?;
        self.lowest = valid;
        let block = self.heads[valid];
        self.remove(block, valid as u32);
        Some(block)
    }
}
