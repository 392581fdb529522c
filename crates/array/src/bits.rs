//! A set of numbers below a fixed bound, a bit each, in the order of md's bitmap: the lowest bit
//! of the first byte is number 0.

use std::ops::Range;

const WORD_BITS: u64 = 64;

/// The set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bits {
    words: Vec<u64>,
    len: u64,
}

/// The words a range touches, each with the bits of it that lie in the range.
fn masks(range: Range<u64>) -> impl Iterator<Item = (usize, u64)> {
    let words = if range.is_empty() { 0..0 } else { range.start / 64..range.end.div_ceil(64) };
    words.map(move |word| {
        let start = range.start.saturating_sub(word * WORD_BITS);
        let end = (range.end - word * WORD_BITS).min(WORD_BITS);
        (word as usize, (u64::MAX << start) & (u64::MAX >> (WORD_BITS - end)))
    })
}

impl Bits {
    /// No number below `len`.
    pub(crate) fn none(len: u64) -> Self {
        Bits { words: vec![0; len.div_ceil(WORD_BITS) as usize], len }
    }

    /// Every number below `len`.
    pub(crate) fn all(len: u64) -> Self {
        let mut bits = Bits::none(len);
        bits.insert(0..len);
        bits
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn insert(&mut self, range: Range<u64>) {
        for (word, mask) in masks(range) {
            self.words[word] |= mask;
        }
    }

    pub(crate) fn remove(&mut self, range: Range<u64>) {
        for (word, mask) in masks(range) {
            self.words[word] &= !mask;
        }
    }

    /// Whether any number of the range is in.
    pub(crate) fn any(&self, range: Range<u64>) -> bool {
        masks(range).any(|(word, mask)| self.words[word] & mask != 0)
    }

    /// Whether every number of the range is in.
    pub(crate) fn every(&self, range: Range<u64>) -> bool {
        masks(range).all(|(word, mask)| self.words[word] & mask == mask)
    }

    /// How many are in.
    pub(crate) fn count(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// The first number from `from` on that is in.
    pub(crate) fn next(&self, from: u64) -> Option<u64> {
        let (mask, word) = masks(from..self.len)
            .map(|(word, mask)| (self.words[word] & mask, word))
            .find(|(bits, _)| *bits != 0)?;
        Some(word as u64 * WORD_BITS + u64::from(mask.trailing_zeros()))
    }

    /// The first run of neighbours from `from` on.
    pub(crate) fn next_run(&self, from: u64) -> Option<Range<u64>> {
        let start = self.next(from)?;
        let gap = masks(start..self.len)
            .map(|(word, mask)| (!self.words[word] & mask, word as u64))
            .find(|(bits, _)| *bits != 0);
        let end = gap
            .map_or(self.len, |(bits, word)| word * WORD_BITS + u64::from(bits.trailing_zeros()));
        Some(start..end)
    }

    /// What is in, neighbours joined.
    pub(crate) fn runs(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let mut from = 0;
        std::iter::from_fn(move || {
            let run = self.next_run(from)?;
            from = run.end;
            Some(run)
        })
    }

    /// Adds what is in `other`, of the same length.
    pub(crate) fn add(&mut self, other: &Bits) {
        self.merge(other, |mine, other| mine | other);
    }

    /// Keeps only what is in `other` too.
    pub(crate) fn keep(&mut self, other: &Bits) {
        self.merge(other, |mine, other| mine & other);
    }

    /// Takes out what is in `other`.
    pub(crate) fn take_out(&mut self, other: &Bits) {
        self.merge(other, |mine, other| mine & !other);
    }

    fn merge(&mut self, other: &Bits, how: impl Fn(u64, u64) -> u64) {
        debug_assert_eq!(self.len, other.len, "sets of the same array");
        for (mine, other) in self.words.iter_mut().zip(&other.words) {
            *mine = how(*mine, *other);
        }
    }

    /// The numbers as bytes, the first `bytes.len()` from byte `from` on; zero behind the end.
    pub(crate) fn copy_to(&self, from: usize, bytes: &mut [u8]) {
        for (byte, at) in bytes.iter_mut().zip(from..) {
            *byte = self.words.get(at / 8).map_or(0, |word| word.to_le_bytes()[at % 8]);
        }
    }

    /// Takes over bytes from byte `from` on; bits behind the end are ignored.
    pub(crate) fn copy_from(&mut self, from: usize, bytes: &[u8]) {
        for (&byte, at) in bytes.iter().zip(from..) {
            let Some(word) = self.words.get_mut(at / 8) else { break };
            let shift = at % 8 * 8;
            *word = *word & !(0xff << shift) | u64::from(byte) << shift;
        }
        let last = self.len / WORD_BITS;
        if let Some(word) = self.words.get_mut(last as usize) {
            *word &= !(u64::MAX << (self.len % WORD_BITS));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use world::SplitMix64;

    use super::*;

    #[test]
    fn it_is_a_set_of_numbers() {
        let mut random = SplitMix64::new(7);
        for len in [1, 63, 64, 65, 200] {
            let (mut bits, mut set) = (Bits::none(len), BTreeSet::new());
            for _ in 0..200 {
                let start = random.below(len);
                let range = start..start + random.below(len - start + 1);
                if random.below(2) == 0 {
                    bits.insert(range.clone());
                    set.extend(range.clone());
                } else {
                    bits.remove(range.clone());
                    set.retain(|number| !range.contains(number));
                }
                assert_eq!(bits.count(), set.len() as u64);
                assert_eq!(bits.any(range.clone()), set.range(range.clone()).next().is_some());
                let from = random.below(len + 1);
                assert_eq!(bits.next(from), set.range(from..).next().copied());
                let every = range.clone().all(|number| set.contains(&number));
                assert_eq!(bits.every(range), every);
                assert!(bits.runs().flatten().eq(set.iter().copied()));
            }
            let mut bytes = vec![0; len.div_ceil(8) as usize];
            bits.copy_to(0, &mut bytes);
            assert!(set.iter().all(|&n| bytes[n as usize / 8] >> (n % 8) & 1 == 1));
            let mut copy = Bits::all(len);
            copy.copy_from(0, &bytes);
            assert_eq!(copy, bits);
        }
        let mut full = Bits::none(70);
        full.copy_from(0, &[0xff; 12]);
        assert_eq!(full, Bits::all(70));
    }

    #[test]
    fn sets_are_joined_and_cut() {
        let of = |range: Range<u64>| {
            let mut bits = Bits::none(100);
            bits.insert(range);
            bits
        };
        let mut bits = of(10..80);
        bits.keep(&of(0..70));
        bits.take_out(&of(20..30));
        bits.add(&of(90..91));
        assert_eq!(bits.runs().collect::<Vec<_>>(), [10..20, 30..70, 90..91]);
    }
}
