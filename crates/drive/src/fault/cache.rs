//! A volatile cache, block by block: every version that was written since the last flush.
//!
//! All versions are kept, not only the last, because a power cut may leave any of them: the drive
//! could have destaged an older one on its own and lost the newer.

use std::collections::BTreeMap;
use std::ops::Range;

use world::SplitMix64;

/// Blocks in a row that are stored together, in bytes at most.
const RUN_BYTES_MAX: usize = 1 << 20;

struct Version {
    number: u64,
    content: Box<[u8]>,
}

/// Unflushed versions by block index, oldest first.
pub(super) struct Cache {
    block_bytes: u64,
    versions: BTreeMap<u64, Vec<Version>>,
    next: u64,
}

/// Content and the offset it belongs to.
pub(super) type Run = (u64, Vec<u8>);

impl Cache {
    pub fn new(block_bytes: u32) -> Cache {
        Cache { block_bytes: u64::from(block_bytes), versions: BTreeMap::new(), next: 0 }
    }

    /// Blocks with an unflushed version.
    pub fn blocks(&self) -> usize {
        self.versions.len()
    }

    /// The number of the newest version.
    pub fn version(&self) -> u64 {
        self.next
    }

    /// Keeps whole blocks that were written at `offset`.
    pub fn put(&mut self, offset: u64, content: &[u8]) {
        self.next += 1;
        for (index, block) in content.chunks(self.block_bytes as usize).enumerate() {
            let version = Version { number: self.next, content: block.into() };
            let place = offset / self.block_bytes + index as u64;
            self.versions.entry(place).or_default().push(version);
        }
    }

    /// Keeps some of the blocks: those the seed lets arrive.
    pub fn put_some(&mut self, offset: u64, content: &[u8], random: &mut SplitMix64) {
        for (index, block) in content.chunks(self.block_bytes as usize).enumerate() {
            if random.chance(1, 2) {
                self.put(offset + index as u64 * self.block_bytes, block);
            }
        }
    }

    /// The newest versions up to number `until` of these blocks (`None`: all), in rows.
    pub fn runs(&self, blocks: Option<Range<u64>>, until: u64) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for (&block, versions) in self.versions.range(blocks.unwrap_or(0..u64::MAX)) {
            let newest = versions.iter().rev().find(|version| version.number <= until);
            if let Some(newest) = newest {
                join(&mut runs, block * self.block_bytes, &newest.content);
            }
        }
        runs
    }

    /// Forgets the versions up to number `until` of these blocks (`None`: all).
    pub fn forget(&mut self, blocks: Option<Range<u64>>, until: u64) {
        let blocks = blocks.unwrap_or(0..u64::MAX);
        let touched: Vec<u64> = self.versions.range(blocks).map(|(&block, _)| block).collect();
        for block in touched {
            let Some(versions) = self.versions.get_mut(&block) else { continue };
            versions.retain(|version| version.number > until);
            if versions.is_empty() {
                self.versions.remove(&block);
            }
        }
    }

    /// Empties the cache; gives for each block the version that lasted, if any did.
    pub fn take_survivors(&mut self, random: &mut SplitMix64) -> Vec<Run> {
        let mut runs = Vec::new();
        for (block, versions) in std::mem::take(&mut self.versions) {
            let choice = random.below(versions.len() as u64 + 1) as usize;
            // The last choice is that the block stays as it was before all of them.
            if let Some(version) = versions.get(choice) {
                join(&mut runs, block * self.block_bytes, &version.content);
            }
        }
        runs
    }
}

fn join(runs: &mut Vec<Run>, offset: u64, content: &[u8]) {
    if let Some((start, run)) = runs.last_mut()
        && *start + run.len() as u64 == offset
        && run.len() < RUN_BYTES_MAX
    {
        run.extend_from_slice(content);
        return;
    }
    runs.push((offset, content.to_vec()));
}
