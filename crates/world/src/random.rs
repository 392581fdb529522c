//! A tiny seeded generator (SplitMix64) for orderings in the virtual world.
//!
//! Steele, Lea, Flood: "Fast splittable pseudorandom number generators" (2014). Chosen because its
//! whole state is the seed plus a counter, so it is value-stable for ever.

/// SplitMix64: 64 bits of state, one output per step.
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// A generator whose sequence follows from `seed` alone.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        SplitMix64(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound` (which is not zero), by multiplication: Lemire's method without the
    /// rejection step, whose bias of at most `bound / 2^64` no ordering can notice.
    pub fn below(&mut self, bound: u64) -> u64 {
        debug_assert!(bound > 0, "a choice among nothing");
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// True `numerator` times out of `denominator`.
    pub fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_sequence_for_seed_0() {
        let mut random = SplitMix64::new(0);
        assert_eq!(random.next_u64(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(random.next_u64(), 0x6e78_9e6a_a1b9_65f4);
        assert_eq!(random.next_u64(), 0x06c4_5d18_8009_454f);
    }
}
