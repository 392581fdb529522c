//! The one source of chance: a named, value-stable generator.
//!
//! A stored plan names a seed, and the same seed must give the same requests
//! in ten years. So the algorithm is named ([`RANDOM_ALGORITHM`]), and all
//! that is drawn from it is made here with integers or with the four basic
//! floating-point operations, which every machine rounds alike. A logarithm of
//! the platform's mathematical library is not used: it may differ in the last bit.

use rand_core::Rng;
use rand_pcg::Pcg64;

/// The algorithm behind every seed, to be stored with a plan.
pub const RANDOM_ALGORITHM: &str = "pcg-xsl-rr-128/64, state by splitmix64";

/// Chance from a seed. Two streams of one seed are independent.
#[derive(Clone, Debug)]
pub struct Random {
    pcg: Pcg64,
}

impl Random {
    /// Stream `stream` of `seed`. Workers of one run share the seed and have a
    /// stream each.
    pub fn new(seed: u64, stream: u64) -> Self {
        // The raw state of neighbouring seeds and streams would give related
        // sequences; mixing them first does not.
        let low = splitmix64(seed);
        let high = splitmix64(low ^ stream);
        let state = u128::from(high) << 64 | u128::from(splitmix64(high));
        Self { pcg: Pcg64::new(state, u128::from(stream)) }
    }

    /// 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.pcg.next_u64()
    }

    /// A number from 0 to `limit - 1`, each equally likely; 0 if `limit` is 0.
    ///
    /// The high half of a 64 x 64 bit product, with those few draws rejected
    /// that would make some answers more likely than others
    /// (D. Lemire, "Fast Random Integer Generation in an Interval", 2019).
    #[inline]
    pub fn below(&mut self, limit: u64) -> u64 {
        let mut product = u128::from(self.bits()) * u128::from(limit);
        if (product as u64) < limit {
            let rejected_below = limit.wrapping_neg() % limit;
            while (product as u64) < rejected_below {
                product = u128::from(self.bits()) * u128::from(limit);
            }
        }
        (product >> 64) as u64
    }

    /// Puts `items` into a random order, each order equally likely.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last as u64 + 1) as usize;
            items.swap(last, other);
        }
    }

    /// A number above 0 and up to 1, in steps of 2^-53.
    pub fn unit(&mut self) -> f64 {
        const STEP: f64 = 1.0 / (1_u64 << 53) as f64;
        ((self.bits() >> 11) + 1) as f64 * STEP
    }

    /// The gap to the next event of a Poisson process: exponential, mean 1.
    pub fn exponential(&mut self) -> f64 {
        -natural_logarithm(self.unit())
    }
}

/// What a SplitMix64 state grows by for each number: 2^64 by the golden ratio.
pub(crate) const SPLITMIX64_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The first number of SplitMix64 from state `value` (G. Steele et al., "Fast
/// Splittable Pseudorandom Number Generators", 2014).
pub(crate) const fn splitmix64(value: u64) -> u64 {
    mix64(value.wrapping_add(SPLITMIX64_STEP))
}

/// SplitMix64's mixing of a state: 64 bits into 64 bits, none lost.
#[inline]
pub(crate) const fn mix64(state: u64) -> u64 {
    let mut mixed = state;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// ln(x) for a normal positive x, the same bits on every machine.
///
/// x = m * 2^e with m between sqrt(1/2) and sqrt(2);
/// ln m = 2 artanh s with s = (m - 1) / (m + 1), and the series
/// artanh s = s + s^3/3 + s^5/5 + ... with |s| <= 0.1716 is exact to the last
/// bits after ten terms.
fn natural_logarithm(x: f64) -> f64 {
    const EXPONENT_BIAS: i64 = 1023;
    const MANTISSA_BITS: u32 = 52;
    let bits = x.to_bits();
    let mut exponent = (bits >> MANTISSA_BITS) as i64 - EXPONENT_BIAS;
    let one = (EXPONENT_BIAS as u64) << MANTISSA_BITS;
    let mut mantissa = f64::from_bits(bits & ((1 << MANTISSA_BITS) - 1) | one);
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa *= 0.5;
        exponent += 1;
    }
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    let mut series = 0.0;
    for odd in (1..=21).rev().step_by(2) {
        series = series * square + 1.0 / f64::from(odd);
    }
    exponent as f64 * std::f64::consts::LN_2 + 2.0 * s * series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_of_a_seed_never_changes() {
        let mut random = Random::new(42, 0);
        let drawn: Vec<u64> = (0..4).map(|_| random.bits()).collect();
        assert_eq!(drawn, GOLDEN_BITS);
    }

    const GOLDEN_BITS: [u64; 4] = [
        15_704_354_698_218_677_020,
        2_223_164_937_330_732_485,
        9_520_263_995_278_644_222,
        13_007_244_422_519_085_637,
    ];

    #[test]
    fn streams_of_a_seed_differ() {
        let mut one = Random::new(1, 0);
        let mut other = Random::new(1, 1);
        assert!((0..8).all(|_| one.bits() != other.bits()));
    }

    #[test]
    fn below_is_even_over_a_limit_that_is_no_power_of_two() {
        let mut random = Random::new(7, 0);
        let mut counts = [0_u32; 7];
        for _ in 0..70_000 {
            counts[random.below(7) as usize] += 1;
        }
        assert!(counts.iter().all(|&count| (9_600..10_400).contains(&count)), "{counts:?}");
        assert_eq!(random.below(0), 0);
        assert_eq!(random.below(1), 0);
    }

    #[test]
    fn below_has_no_modulo_bias_at_a_huge_limit() {
        // With `bits % limit` the lower half would be twice as likely.
        let limit = 3 << 62;
        let mut random = Random::new(9, 0);
        let lower = (0..30_000).filter(|_| random.below(limit) < limit / 2).count();
        assert!((14_600..15_400).contains(&lower), "{lower}");
    }

    #[test]
    fn logarithm_agrees_with_the_library() {
        for x in [1e-16, 1e-9, 0.001, 0.3, 0.5, 0.6, 0.707_2, 0.999_999, 1.0, 2.5, 1e9] {
            let error = (natural_logarithm(x) - x.ln()).abs();
            assert!(error <= 1e-15 * x.ln().abs().max(1.0), "ln {x}: {error}");
        }
    }

    #[test]
    fn exponential_has_mean_one_and_its_variance() {
        let mut random = Random::new(3, 0);
        let gaps: Vec<f64> = (0..100_000).map(|_| random.exponential()).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let square = gaps.iter().map(|gap| gap * gap).sum::<f64>() / gaps.len() as f64;
        assert!((mean - 1.0).abs() < 0.01, "{mean}");
        assert!((square - 2.0).abs() < 0.06, "{square}");
    }
}
