//! Data for writes: how much it holds decides what some drives make of it.
//!
//! Drives and links that compress answer zeros faster than random bytes, so a
//! result says what was written. The content of a byte depends on the pattern
//! and on its offset on the drive alone: what was written can be checked
//! later without having been kept, and a block is not a copy of another one.
//!
//! How to use it: fill a buffer just before the write where content is to be
//! checked; where only speed matters, fill a pool of buffers once, each from
//! another offset, and write from the pool. Random bytes come at several
//! gigabytes a second, zeros and constant bytes at the speed of memory.
//!
//! Left out: a share of duplicate blocks. Writing an offset twice with one
//! seed writes the same twice; give each pass its own seed.

use std::fmt;

use thiserror::Error;

use crate::random::{SPLITMIX64_STEP, mix64, splitmix64};

/// Blocks of a compressible pattern: the page that compressing drives and file
/// systems work on. Smaller blocks would let a compressor see less, larger
/// ones would let it find whole pages of zeros.
const BLOCK_BYTES: u64 = 4096;

const WORD_BYTES: u64 = 8;

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataPattern {
    /// Zeros. Some drives do not even store them.
    Zeros,
    /// One byte over and over.
    RepeatingByte(u8),
    /// Pseudo-random bytes that can't be compressed.
    Random {
        /// Which bytes.
        seed: u64,
    },
    /// Each block of 4 KiB begins with random bytes and ends with zeros; made
    /// by [`DataPattern::compressible`].
    Compressible(CompressiblePattern),
}

/// See [`DataPattern::compressible`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompressiblePattern {
    seed: u64,
    to_percent: u8,
}

/// Why data can't be made so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DataPatternError {
    /// More than all of it, or nothing.
    #[error("data can't be compressible to {to_percent} %, only to 1 to 100 %")]
    Percent {
        /// Percentage given.
        to_percent: u8,
    },
}

impl DataPattern {
    /// Data that a perfect compressor working on 4 KiB blocks makes
    /// `to_percent` (1 to 100) of its size; real ones come close.
    pub const fn compressible(seed: u64, to_percent: u8) -> Result<Self, DataPatternError> {
        if to_percent == 0 || to_percent > 100 {
            return Err(DataPatternError::Percent { to_percent });
        }
        Ok(Self::Compressible(CompressiblePattern { seed, to_percent }))
    }

    /// What a perfect compressor leaves of it in per cent.
    pub const fn compresses_to_percent(&self) -> u8 {
        match self {
            Self::Zeros | Self::RepeatingByte(_) => 0,
            Self::Random { .. } => 100,
            Self::Compressible(pattern) => pattern.to_percent,
        }
    }

    /// Fills `buffer` with what belongs at byte `offset` of the drive. Filling
    /// in pieces gives the same as filling at once.
    pub fn fill(&self, buffer: &mut [u8], offset: u64) {
        match *self {
            Self::Zeros => buffer.fill(0),
            Self::RepeatingByte(byte) => buffer.fill(byte),
            Self::Random { seed } => fill_random(buffer, offset, seed),
            Self::Compressible(pattern) => pattern.fill(buffer, offset),
        }
    }
}

impl fmt::Display for DataPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zeros => write!(f, "zeros"),
            Self::RepeatingByte(byte) => write!(f, "repeating byte {byte:#04x}"),
            Self::Random { .. } => write!(f, "random"),
            Self::Compressible(pattern) => write!(f, "compressible to {} %", pattern.to_percent),
        }
    }
}

impl CompressiblePattern {
    fn fill(self, mut buffer: &mut [u8], mut offset: u64) {
        let random_bytes = (BLOCK_BYTES * u64::from(self.to_percent)).div_ceil(100);
        while !buffer.is_empty() {
            let within = offset % BLOCK_BYTES;
            let (is_random, left) = match random_bytes.checked_sub(within) {
                Some(left) if left > 0 => (true, left),
                _ => (false, BLOCK_BYTES - within),
            };
            let bytes = left.min(buffer.len() as u64);
            let (piece, rest) = buffer.split_at_mut(bytes as usize);
            if is_random {
                fill_random(piece, offset, self.seed);
            } else {
                piece.fill(0);
            }
            buffer = rest;
            offset = offset.wrapping_add(bytes);
        }
    }
}

/// Word n of the drive is number n of the SplitMix64 sequence of the seed.
fn fill_random(buffer: &mut [u8], offset: u64, seed: u64) {
    let key = splitmix64(seed);
    let word = |index: u64| {
        mix64(key.wrapping_add(index.wrapping_add(1).wrapping_mul(SPLITMIX64_STEP))).to_le_bytes()
    };
    let index = offset / WORD_BYTES;
    let skipped = (offset % WORD_BYTES) as usize;
    let head_bytes = if skipped == 0 { 0 } else { (8 - skipped).min(buffer.len()) };
    let (head, body) = buffer.split_at_mut(head_bytes);
    head.copy_from_slice(&word(index)[skipped..skipped + head_bytes]);
    let first = if skipped == 0 { index } else { index.wrapping_add(1) };
    let (words, tail) = body.as_chunks_mut::<8>();
    let after = first.wrapping_add(words.len() as u64);
    for (number, chunk) in (0_u64..).zip(words) {
        *chunk = word(first.wrapping_add(number));
    }
    let tail_bytes = tail.len();
    tail.copy_from_slice(&word(after)[..tail_bytes]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filled(pattern: DataPattern, bytes: usize, offset: u64) -> Vec<u8> {
        let mut buffer = vec![0x55; bytes];
        pattern.fill(&mut buffer, offset);
        buffer
    }

    #[test]
    fn constant_patterns_are_constant() {
        assert_eq!(filled(DataPattern::Zeros, 100, 7), [0; 100]);
        assert_eq!(filled(DataPattern::RepeatingByte(0xa5), 100, 7), [0xa5; 100]);
    }

    #[test]
    fn random_bytes_are_even_and_never_change() {
        let pattern = DataPattern::Random { seed: 1 };
        let bytes = filled(pattern, 1 << 16, 0);
        assert_eq!(bytes[..8], GOLDEN);
        let mut counts = [0_u32; 256];
        bytes.iter().for_each(|&byte| counts[usize::from(byte)] += 1);
        // Chi-square with 255 degrees of freedom: 330.5 at one in a thousand.
        let chi: f64 = counts.iter().map(|&count| (f64::from(count) - 256.0).powi(2) / 256.0).sum();
        assert!(chi < 330.5, "{chi}");
        assert_ne!(bytes[..4096], bytes[4096..8192]);
        assert_ne!(filled(DataPattern::Random { seed: 2 }, 64, 0), bytes[..64]);
    }

    const GOLDEN: [u8; 8] = [30, 97, 57, 116, 8, 171, 65, 94];

    #[test]
    fn compressible_blocks_have_their_share_of_zeros() {
        for percent in [1, 25, 60, 100] {
            let pattern = DataPattern::compressible(3, percent).unwrap();
            let bytes = filled(pattern, 16 * 4096, 4096);
            for block in bytes.chunks(4096) {
                let zeros = block.iter().rev().take_while(|&&byte| byte == 0).count();
                let wanted = 4096 - (4096 * usize::from(percent)).div_ceil(100);
                // A random byte before them may be zero as well.
                assert!((wanted..wanted + 3).contains(&zeros), "{percent}: {zeros} {wanted}");
            }
            assert_eq!(pattern.compresses_to_percent(), percent);
        }
        for to_percent in [0, 101] {
            let refused = DataPattern::compressible(3, to_percent);
            assert_eq!(refused, Err(DataPatternError::Percent { to_percent }));
        }
    }

    #[test]
    fn patterns_say_what_they_are() {
        assert_eq!(DataPattern::RepeatingByte(10).to_string(), "repeating byte 0x0a");
        let pattern = DataPattern::compressible(3, 60).unwrap();
        assert_eq!(pattern.to_string(), "compressible to 60 %");
    }

    #[test]
    fn the_last_offset_is_no_overflow() {
        let pattern = DataPattern::compressible(3, 60).unwrap();
        assert_eq!(filled(pattern, 100, u64::MAX - 10).len(), 100);
        assert_eq!(filled(DataPattern::Random { seed: 1 }, 100, u64::MAX).len(), 100);
    }

    proptest! {
        #[test]
        fn pieces_are_parts_of_the_whole(
            seed: u64,
            percent in 1..=100_u8,
            start in 0..20_000_u64,
            bytes in 0..10_000_usize,
            cut in any::<prop::sample::Index>(),
        ) {
            for pattern in
                [DataPattern::Random { seed }, DataPattern::compressible(seed, percent).unwrap()]
            {
                let whole = filled(pattern, bytes, start);
                let cut = cut.index(bytes + 1);
                let mut pieces = filled(pattern, cut, start);
                pieces.extend(filled(pattern, bytes - cut, start + cut as u64));
                prop_assert_eq!(whole, pieces);
            }
        }
    }
}
