//! Content that was on the drive before the first request, as counts for each block.
//!
//! A primed drive is full, but nobody has to know which unit lies where: the units that no request
//! has touched are alike, so for each block their number is enough. Where one of them lies is
//! drawn when it is first asked for, with the blocks' numbers as weights; so memory follows what
//! was written, and what happens has the same distribution as with a full map. The sums are kept
//! in a binary indexed tree (Fenwick 1994), so that a draw takes log2(blocks) steps.

/// Numbers of units by block, with their prefix sums.
#[derive(Debug, Clone)]
pub(super) struct Scattered {
    tree: Vec<u64>,
    total: u64,
}

impl Scattered {
    pub(super) fn new(blocks: usize) -> Self {
        Scattered { tree: vec![0; blocks + 1], total: 0 }
    }

    pub(super) fn add(&mut self, block: u32, units: u64) {
        self.total += units;
        self.update(block, |sum| sum + units);
    }

    pub(super) fn remove(&mut self, block: u32, units: u64) {
        self.total -= units;
        self.update(block, |sum| sum - units);
    }

    fn update(&mut self, block: u32, change: impl Fn(u64) -> u64) {
        let mut at = block as usize + 1;
        while at < self.tree.len() {
            self.tree[at] = change(self.tree[at]);
            at += at & at.wrapping_neg();
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The block that holds the unit number `which` (below the total), counted block by block.
    pub(super) fn find(&self, mut which: u64) -> u32 {
        debug_assert!(which < self.total, "there is no such unit");
        let mut at = 0;
        let mut step = (self.tree.len() - 1).next_power_of_two();
        while step > 0 {
            let next = at + step;
            if next < self.tree.len() && self.tree[next] <= which {
                which -= self.tree[next];
                at = next;
            }
            step /= 2;
        }
        at as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unit_is_found_in_its_block() {
        let counts = [3u64, 0, 5, 1, 0, 0, 7];
        let mut scattered = Scattered::new(counts.len());
        for (block, &units) in counts.iter().enumerate() {
            scattered.add(block as u32, units + 2);
            scattered.remove(block as u32, 2);
        }
        let expected: Vec<u32> = counts
            .iter()
            .enumerate()
            .flat_map(|(block, &units)| std::iter::repeat_n(block as u32, units as usize))
            .collect();
        let found: Vec<u32> = (0..scattered.total()).map(|which| scattered.find(which)).collect();
        assert_eq!(found, expected);
    }
}
