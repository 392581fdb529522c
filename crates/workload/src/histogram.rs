//! Latency histograms: where the times of millions of requests are kept.
//!
//! Buckets are log-linear: each power of two is cut into 64 equal buckets, so
//! that a bucket is at most 1/64 (1.57 %) of its lower edge wide, from
//! [`LATENCY_MIN_NS`] (100 ns, below a copy in memory) to [`LATENCY_MAX_NS`]
//! (100 s, above the longest time-out of a drive). Below 128 ns a bucket is one
//! nanosecond, hence exact. Times outside go into two edge bins, so that they
//! are seen and flagged rather than silently moved. The index of a bucket is
//! the position of the highest bit and the six bits after it: no search, no
//! floating point. (The layout of fio's and HdrHistogram's recorders.)
//!
//! Count, sum, least and greatest are exact beside the buckets. Recording
//! allocates nothing. Histograms with the same layout, and there is only one,
//! merge by addition. A histogram is about 16 KiB in memory; [`Histogram::encode`]
//! stores a usual one in some hundred bytes.
//!
//! Left out: correction for requests never sent. The open loop measures from
//! the intended start, which needs no correction.

mod codec;

pub use codec::HistogramDecodeError;

/// Least time with a bucket, in nanoseconds.
pub const LATENCY_MIN_NS: u64 = 100;

/// Greatest time with a bucket, in nanoseconds.
pub const LATENCY_MAX_NS: u64 = 100_000_000_000;

/// Each power of two has 2^6 buckets: at most 1.57 % wide.
const SUB_BUCKET_BITS: u32 = 6;

/// Bucket number of [`LATENCY_MIN_NS`] before it is moved to 0.
const FIRST: usize = raw_index(LATENCY_MIN_NS);

/// Buckets between the edges.
const BUCKETS: usize = raw_index(LATENCY_MAX_NS) - FIRST + 1;

/// Six bits after the highest one, and its position: a number that grows with
/// the value and changes at bucket edges only. For values from 64 on.
const fn raw_index(value_ns: u64) -> usize {
    let shift = value_ns.ilog2() - SUB_BUCKET_BITS;
    ((shift as usize) << SUB_BUCKET_BITS) + (value_ns >> shift) as usize
}

/// First value of the bucket with that raw index.
const fn raw_lower(raw: usize) -> u64 {
    let shift = (raw >> SUB_BUCKET_BITS) - 1;
    ((raw - (shift << SUB_BUCKET_BITS)) as u64) << shift
}

/// Counts of latencies; see the module for the buckets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    buckets: Box<[u64; BUCKETS]>,
    below: u64,
    above: u64,
    count: u64,
    sum_ns: u128,
    min_ns: u64,
    max_ns: u64,
}

/// A bucket that is not empty. Both ends belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Least time that falls into it, in nanoseconds.
    pub lower_ns: u64,
    /// Greatest time that falls into it, in nanoseconds.
    pub upper_ns: u64,
    /// Times recorded.
    pub count: u64,
}

/// Answer to a percentile: the true one lies between the ends, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percentile {
    /// Lower end in nanoseconds.
    pub lower_ns: u64,
    /// Upper end in nanoseconds, the figure to report: it never flatters.
    pub upper_ns: u64,
    /// Whether it fell into an edge bin, below 100 ns or above 100 s, where
    /// the ends may be far apart.
    pub outside: bool,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// An empty histogram.
    pub fn new() -> Self {
        Self {
            buckets: Box::new([0; BUCKETS]),
            below: 0,
            above: 0,
            count: 0,
            sum_ns: 0,
            min_ns: u64::MAX,
            max_ns: 0,
        }
    }

    /// Counts one time.
    #[inline]
    pub fn record(&mut self, value_ns: u64) {
        if value_ns < LATENCY_MIN_NS {
            self.below = self.below.saturating_add(1);
        } else if value_ns > LATENCY_MAX_NS {
            self.above = self.above.saturating_add(1);
        } else {
            let bucket = &mut self.buckets[raw_index(value_ns) - FIRST];
            *bucket = bucket.saturating_add(1);
        }
        self.count = self.count.saturating_add(1);
        self.sum_ns = self.sum_ns.saturating_add(u128::from(value_ns));
        self.min_ns = self.min_ns.min(value_ns);
        self.max_ns = self.max_ns.max(value_ns);
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (own, others) in self.buckets.iter_mut().zip(other.buckets.iter()) {
            *own = own.saturating_add(*others);
        }
        self.below = self.below.saturating_add(other.below);
        self.above = self.above.saturating_add(other.above);
        self.count = self.count.saturating_add(other.count);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Times counted.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Sum of all times in nanoseconds, exact.
    pub const fn sum_ns(&self) -> u128 {
        self.sum_ns
    }

    /// Least time in nanoseconds, exact; `None` if nothing was counted.
    pub fn min_ns(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min_ns)
    }

    /// Greatest time in nanoseconds, exact; `None` if nothing was counted.
    pub fn max_ns(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max_ns)
    }

    /// Mean in nanoseconds, exact but for the last bit; `None` if nothing was counted.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ns as f64 / self.count as f64)
    }

    /// Times below [`LATENCY_MIN_NS`], which have no bucket.
    pub const fn below(&self) -> u64 {
        self.below
    }

    /// Times above [`LATENCY_MAX_NS`], which have no bucket.
    pub const fn above(&self) -> u64 {
        self.above
    }

    /// The buckets that are not empty, in ascending order, edge bins included.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> {
        let below = Bucket { lower_ns: 0, upper_ns: LATENCY_MIN_NS - 1, count: self.below };
        let above = Bucket { lower_ns: LATENCY_MAX_NS + 1, upper_ns: u64::MAX, count: self.above };
        let inside = self.buckets.iter().enumerate().map(|(index, &count)| Bucket {
            lower_ns: raw_lower(index + FIRST),
            upper_ns: (raw_lower(index + FIRST + 1) - 1).min(LATENCY_MAX_NS),
            count,
        });
        std::iter::once(below)
            .chain(inside)
            .chain(std::iter::once(above))
            .filter(|bucket| bucket.count > 0)
    }

    /// The time that `percent` of all times do not exceed (nearest rank: the
    /// least recorded time with at least that share at or below it), to within
    /// its bucket. `None` if nothing was counted or `percent` is not from 0 to 100.
    pub fn percentile(&self, percent: f64) -> Option<Percentile> {
        if self.count == 0 || !(0.0..=100.0).contains(&percent) {
            return None;
        }
        // 99.9 % of 1000 is 999.0000000000001 in floating point, and not rank
        // 1000: a millionth of a millionth is taken off before rounding up.
        let exact = percent / 100.0 * self.count as f64;
        let rank = ((exact * (1.0 - 1e-12)).ceil() as u64).clamp(1, self.count);
        let mut counted = 0_u64;
        for bucket in self.buckets() {
            counted = counted.saturating_add(bucket.count);
            if counted >= rank {
                return Some(Percentile {
                    lower_ns: bucket.lower_ns.max(self.min_ns),
                    upper_ns: bucket.upper_ns.min(self.max_ns),
                    outside: bucket.upper_ns < LATENCY_MIN_NS || bucket.lower_ns > LATENCY_MAX_NS,
                });
            }
        }
        // Only saturated counts come here; the greatest time is what is left.
        Some(Percentile { lower_ns: self.max_ns, upper_ns: self.max_ns, outside: false })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buckets_join_without_gaps_and_are_narrow() {
        let mut next = LATENCY_MIN_NS;
        for raw in FIRST..FIRST + BUCKETS {
            let (lower, after) = (raw_lower(raw), raw_lower(raw + 1));
            assert_eq!(lower, next);
            assert_eq!((raw_index(lower), raw_index(after - 1)), (raw, raw));
            let width = after - lower;
            assert!(width == 1 || (width as f64) <= lower as f64 / 64.0, "{lower}");
            next = after;
        }
        assert!(next > LATENCY_MAX_NS);
    }

    #[test]
    fn edges_are_counted_and_flagged() {
        let mut histogram = Histogram::new();
        for value in [0, 99, 100, LATENCY_MAX_NS, LATENCY_MAX_NS + 1, u64::MAX] {
            histogram.record(value);
        }
        assert_eq!((histogram.below(), histogram.above(), histogram.count()), (2, 2, 6));
        assert_eq!((histogram.min_ns(), histogram.max_ns()), (Some(0), Some(u64::MAX)));
        let least = histogram.percentile(0.0).unwrap();
        assert_eq!(least, Percentile { lower_ns: 0, upper_ns: 99, outside: true });
        let middle = histogram.percentile(50.0).unwrap();
        assert_eq!(middle, Percentile { lower_ns: 100, upper_ns: 100, outside: false });
        assert!(histogram.percentile(100.0).unwrap().outside);
        assert_eq!(histogram.buckets().count(), 4);
    }

    #[test]
    fn nothing_has_no_percentile() {
        let mut histogram = Histogram::new();
        assert_eq!(histogram.percentile(50.0), None);
        assert_eq!((histogram.min_ns(), histogram.max_ns()), (None, None));
        assert_eq!(histogram.mean_ns(), None);
        histogram.record(1000);
        assert_eq!(histogram.percentile(-1.0), None);
        assert_eq!(histogram.percentile(100.1), None);
        assert_eq!(histogram.percentile(f64::NAN), None);
        let only = Percentile { lower_ns: 1000, upper_ns: 1000, outside: false };
        assert_eq!(histogram.percentile(99.0), Some(only));
    }

    #[test]
    fn ranks_are_exact_where_binary_fractions_are_not() {
        let mut histogram = Histogram::new();
        for _ in 0..999 {
            histogram.record(101);
        }
        histogram.record(126);
        assert_eq!(histogram.percentile(99.9).map(|answer| answer.upper_ns), Some(101));
        assert_eq!(histogram.percentile(99.91).map(|answer| answer.upper_ns), Some(126));
    }

    fn any_latency() -> impl Strategy<Value = u64> {
        prop_oneof![
            (0..40_u32, any::<u64>()).prop_map(|(bits, value)| value >> (63 - bits)),
            any::<u64>()
        ]
    }

    proptest! {
        #[test]
        fn percentiles_hold_the_sorted_one(
            values in prop::collection::vec(any_latency(), 1..300),
            percent in 0.0..=100.0_f64,
        ) {
            let mut histogram = Histogram::new();
            values.iter().for_each(|&value| histogram.record(value));
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let rank = ((percent / 100.0 * sorted.len() as f64).ceil() as usize).max(1);
            let exact = sorted[rank - 1];
            let answer = histogram.percentile(percent).unwrap();
            prop_assert!(answer.lower_ns <= exact && exact <= answer.upper_ns);
            if !answer.outside {
                prop_assert!(answer.upper_ns - answer.lower_ns <= answer.lower_ns / 64);
            }
            prop_assert_eq!(histogram.min_ns(), sorted.first().copied());
            prop_assert_eq!(histogram.max_ns(), sorted.last().copied());
            let sum = values.iter().map(|&value| u128::from(value)).sum::<u128>();
            prop_assert_eq!(histogram.sum_ns(), sum);
        }

        #[test]
        fn merging_is_recording_all(
            one in prop::collection::vec(any_latency(), 0..100),
            other in prop::collection::vec(any_latency(), 0..100),
        ) {
            let (mut first, mut second, mut all) = Default::default();
            let fill = |histogram: &mut Histogram, values: &[u64]| {
                values.iter().for_each(|&value| histogram.record(value));
            };
            fill(&mut first, &one);
            fill(&mut second, &other);
            fill(&mut all, &one);
            fill(&mut all, &other);
            first.merge(&second);
            prop_assert_eq!(first, all);
        }
    }
}
