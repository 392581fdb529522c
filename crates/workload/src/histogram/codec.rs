//! The compact form of a histogram, for the store of the lab.
//!
//! | part | form |
//! | --- | --- |
//! | version | one byte, 1 |
//! | below, above | numbers |
//! | sum | number of up to 128 bits |
//! | least, greatest | numbers; both 0 in an empty histogram |
//! | buckets | in ascending order: a count; or 0 and how many empty ones follow |
//!
//! Numbers are little-endian base 128: seven bits a byte, the highest bit set
//! on all but the last. There is one form of each histogram: no number has
//! needless bytes, runs of empty buckets are whole, and nothing follows the
//! last bucket.
//!
//! Decoding takes bytes from outside. It trusts nothing, allocates one
//! histogram, and checks that count, sum, least and greatest agree with the buckets.

use thiserror::Error;

use super::{Bucket, Histogram};

/// Version of the form. Another layout of buckets is another version.
const VERSION: u8 = 1;

/// Why bytes are no histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HistogramDecodeError {
    /// The bytes end too early.
    #[error("the histogram is cut off")]
    CutOff,
    /// Another version, or something else altogether.
    #[error("histogram version {version} is not known, only version {VERSION} is")]
    Version {
        /// First byte.
        version: u8,
    },
    /// A number with needless bytes or too many bits.
    #[error("the number at byte {position} of the histogram is malformed")]
    Number {
        /// Where it starts.
        position: usize,
    },
    /// A run of empty buckets of no length, next to another, or past the last bucket.
    #[error("the run of empty buckets at byte {position} of the histogram is malformed")]
    Run {
        /// Where it starts.
        position: usize,
    },
    /// Bytes after the last bucket.
    #[error("{bytes} bytes follow the histogram")]
    Trailing {
        /// How many.
        bytes: usize,
    },
    /// More times than can be counted.
    #[error("the counts of the histogram overflow")]
    CountOverflow,
    /// Least, greatest or sum are impossible with these buckets.
    #[error("least, greatest or sum of the histogram contradict its buckets")]
    Contradiction,
}

impl Histogram {
    /// The compact form; see [`Histogram::decode`].
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        put(&mut bytes, u128::from(self.below));
        put(&mut bytes, u128::from(self.above));
        put(&mut bytes, self.sum_ns);
        put(&mut bytes, u128::from(self.min_ns().unwrap_or(0)));
        put(&mut bytes, u128::from(self.max_ns().unwrap_or(0)));
        let mut rest = &self.buckets[..];
        while let Some((&count, after)) = rest.split_first() {
            put(&mut bytes, u128::from(count));
            rest = after;
            if count == 0 {
                let empty = 1 + rest.iter().take_while(|&&count| count == 0).count();
                put(&mut bytes, empty as u128);
                rest = &rest[empty - 1..];
            }
        }
        bytes
    }

    /// The histogram of a compact form.
    ///
    /// Fails on anything that [`Histogram::encode`] does not make. Counts of a
    /// histogram so large that they were clipped can't be checked and fail too.
    pub fn decode(bytes: &[u8]) -> Result<Self, HistogramDecodeError> {
        let mut reader = Reader { bytes, position: 0 };
        let version = reader.byte()?;
        if version != VERSION {
            return Err(HistogramDecodeError::Version { version });
        }
        let mut histogram = Self::new();
        histogram.below = reader.number()?;
        histogram.above = reader.number()?;
        histogram.sum_ns = reader.wide_number()?;
        let min_ns = reader.number()?;
        let max_ns = reader.number()?;
        reader.buckets(&mut histogram.buckets[..])?;
        if reader.position < bytes.len() {
            let bytes = bytes.len() - reader.position;
            return Err(HistogramDecodeError::Trailing { bytes });
        }
        histogram.count = histogram
            .buckets
            .iter()
            .chain([&histogram.below, &histogram.above])
            .try_fold(0_u64, |sum, &count| sum.checked_add(count))
            .ok_or(HistogramDecodeError::CountOverflow)?;
        if histogram.count > 0 {
            histogram.min_ns = min_ns;
            histogram.max_ns = max_ns;
        }
        let agrees = match histogram.count {
            0 => (min_ns, max_ns, histogram.sum_ns) == (0, 0, 0),
            _ => histogram.is_consistent(),
        };
        agrees.then_some(histogram).ok_or(HistogramDecodeError::Contradiction)
    }

    /// Whether least and greatest lie in the outermost buckets and the sum is
    /// one that such times can have. For a histogram that is not empty.
    fn is_consistent(&self) -> bool {
        let holds = |value: u64, bucket: Option<Bucket>| {
            bucket.is_some_and(|bucket| (bucket.lower_ns..=bucket.upper_ns).contains(&value))
        };
        if self.min_ns > self.max_ns
            || !holds(self.min_ns, self.buckets().next())
            || !holds(self.max_ns, self.buckets().last())
        {
            return false;
        }
        // No overflow: 2^64 times of less than 2^64 each.
        let (mut least, mut greatest) = (0_u128, 0_u128);
        for bucket in self.buckets() {
            let count = u128::from(bucket.count);
            least += count * u128::from(bucket.lower_ns.max(self.min_ns));
            greatest += count * u128::from(bucket.upper_ns.min(self.max_ns));
        }
        (least..=greatest).contains(&self.sum_ns)
    }
}

fn put(bytes: &mut Vec<u8>, mut number: u128) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl Reader<'_> {
    fn byte(&mut self) -> Result<u8, HistogramDecodeError> {
        let byte = self.bytes.get(self.position).ok_or(HistogramDecodeError::CutOff)?;
        self.position += 1;
        Ok(*byte)
    }

    fn wide_number(&mut self) -> Result<u128, HistogramDecodeError> {
        let position = self.position;
        let malformed = HistogramDecodeError::Number { position };
        let mut number = 0_u128;
        for shift in (0..u128::BITS).step_by(7) {
            let byte = self.byte()?;
            let bits = u128::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return Err(malformed);
            }
            number |= bits << shift;
            if byte < 0x80 {
                let needless = byte == 0 && shift > 0;
                return if needless { Err(malformed) } else { Ok(number) };
            }
        }
        Err(malformed)
    }

    fn number(&mut self) -> Result<u64, HistogramDecodeError> {
        let position = self.position;
        u64::try_from(self.wide_number()?).map_err(|_| HistogramDecodeError::Number { position })
    }

    fn buckets(&mut self, buckets: &mut [u64]) -> Result<(), HistogramDecodeError> {
        let mut filled = 0;
        let mut after_run = false;
        while filled < buckets.len() {
            let position = self.position;
            let count = self.number()?;
            if count > 0 {
                buckets[filled] = count;
                filled += 1;
                after_run = false;
                continue;
            }
            let empty = self.number()?;
            let room = (buckets.len() - filled) as u64;
            if empty == 0 || empty > room || after_run {
                return Err(HistogramDecodeError::Run { position });
            }
            filled += empty as usize;
            after_run = true;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::histogram::BUCKETS;

    fn histogram(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        values.iter().for_each(|&value| histogram.record(value));
        histogram
    }

    #[test]
    fn a_usual_histogram_is_small() {
        let values: Vec<u64> = (0..10_000).map(|step| 80_000 + step * 17).collect();
        let bytes = histogram(&values).encode();
        assert!(bytes.len() < 300, "{}", bytes.len());
        assert!(Histogram::new().encode().len() < 12);
    }

    #[test]
    fn each_fault_has_its_error() {
        let good = histogram(&[150, 150, 151]).encode();
        // 1; below 0; above 0; sum 451 = c3 03; least 150 = 96 01; greatest 97 01; buckets.
        assert_eq!(good[..9], [1, 0, 0, 0xc3, 3, 0x96, 1, 0x97, 1]);
        assert_eq!(Histogram::decode(&[]), Err(HistogramDecodeError::CutOff));
        assert_eq!(Histogram::decode(&[9]), Err(HistogramDecodeError::Version { version: 9 }));
        let with = |position: usize, replaced: &[u8]| {
            let mut bytes = good.clone();
            bytes.splice(position..position + 1, replaced.iter().copied());
            Histogram::decode(&bytes)
        };
        let needless = HistogramDecodeError::Number { position: 1 };
        assert_eq!(with(1, &[0x80, 0]), Err(needless));
        assert_eq!(with(1, &[0xff; 30]), Err(needless));
        assert_eq!(with(3, &[0xff]), Err(HistogramDecodeError::Contradiction));
        assert_eq!(with(5, &[0x97]), Err(HistogramDecodeError::Contradiction));
        assert_eq!(with(9, &[0, 0, 0]), Err(HistogramDecodeError::Run { position: 9 }));
        assert_eq!(with(9, &[0, 1, 0]), Err(HistogramDecodeError::Run { position: 11 }));
        let mut longer = good.clone();
        longer.push(0);
        assert_eq!(Histogram::decode(&longer), Err(HistogramDecodeError::Trailing { bytes: 1 }));
        for end in 0..good.len() {
            assert!(Histogram::decode(&good[..end]).is_err());
        }
    }

    #[test]
    fn counts_that_overflow_are_refused() {
        let mut bytes = vec![VERSION];
        put(&mut bytes, u128::from(u64::MAX));
        put(&mut bytes, 1);
        assert!(Histogram::decode(&bytes).is_err());
        bytes.extend([0, 0, 0, 0]);
        put(&mut bytes, BUCKETS as u128);
        assert_eq!(Histogram::decode(&bytes), Err(HistogramDecodeError::CountOverflow));
    }

    proptest! {
        #[test]
        fn decoding_undoes_encoding(values in prop::collection::vec(any::<u64>(), 0..200),
                                    shift in 0..64_u32) {
            let values: Vec<_> = values.iter().map(|value| value >> shift).collect();
            let histogram = histogram(&values);
            prop_assert_eq!(Histogram::decode(&histogram.encode()), Ok(histogram));
        }

        #[test]
        fn any_bytes_are_refused_or_are_the_form_itself(
            mut bytes in prop::collection::vec(any::<u8>(), 0..64),
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            values in prop::collection::vec(100..10_000_u64, 0..20),
            random: bool,
        ) {
            if !random {
                bytes = histogram(&values).encode();
                for (index, flip) in flips {
                    let position = index.index(bytes.len());
                    bytes[position] ^= flip;
                }
            }
            if let Ok(histogram) = Histogram::decode(&bytes) {
                prop_assert_eq!(histogram.encode(), bytes);
            }
        }
    }
}
