//! Access specifications: which requests a workload consists of.
//!
//! A specification is a list of lines, as in Iometer: so many per cent of the
//! requests have this size, of those so many are reads, so many go to random
//! places. Checked when it is made, so that a generator need not ask again.
//!
//! Left out: how many requests are outstanding, where on the drive and for
//! how long. Those vary while the specification stays.

use thiserror::Error;

use crate::request::SECTOR_BYTES;

/// Most lines of a specification: with one per cent each it is full.
pub const LINES_MAX: usize = 100;

/// Most shares of a weighted specification. The generator deals one card per
/// share, and the deck stays small enough for the processor's first cache.
pub const SHARE_TOTAL_MAX: u32 = 10_000;

/// Largest request. Far above the 32 MiB of the widest published sweep, and
/// small enough that no queue of them exhausts an address space.
pub const REQUEST_BYTES_MAX: u32 = 1 << 30;

/// One line of a specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpecLine {
    /// Share of the requests: per cent in [`AccessSpec::new`], any weight in
    /// [`AccessSpec::weighted`].
    pub share: u32,
    /// Request size in bytes.
    pub request_bytes: u32,
    /// How many of 100 requests of this line are reads.
    pub read_percent: u8,
    /// How many of 100 requests of this line go to random places.
    pub random_percent: u8,
    /// Offsets are multiples of this; `None` is the default of the generator's
    /// mode (own size for random requests in the aligned mode, a sector in Iometer's).
    pub alignment_bytes: Option<u32>,
    /// Requests in a row before the delay is due again; at least 1.
    pub burst: u32,
    /// Pause before each burst in nanoseconds.
    pub delay_ns: u64,
}

impl SpecLine {
    /// A line with default alignment, no bursts and no delay.
    pub const fn new(share: u32, request_bytes: u32, read_percent: u8, random_percent: u8) -> Self {
        Self {
            share,
            request_bytes,
            read_percent,
            random_percent,
            alignment_bytes: None,
            burst: 1,
            delay_ns: 0,
        }
    }
}

/// What is wrong with a specification. Lines count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SpecError {
    /// Not a single line.
    #[error("the access specification has no lines")]
    NoLines,
    /// More than [`LINES_MAX`] lines.
    #[error("the access specification has {lines} lines, at most {LINES_MAX} are possible")]
    TooManyLines {
        /// Lines given.
        lines: usize,
    },
    /// A line that never occurs.
    #[error("line {line}: a share of 0 never occurs")]
    ShareZero {
        /// Line, from 1.
        line: usize,
    },
    /// Percentages that do not add up.
    #[error("the shares add up to {total} %, not to 100 %")]
    ShareTotal {
        /// Sum of the shares.
        total: u64,
    },
    /// Weights beyond [`SHARE_TOTAL_MAX`].
    #[error("the weights add up to {total}, at most {SHARE_TOTAL_MAX} are possible")]
    WeightTotal {
        /// Sum of the weights.
        total: u64,
    },
    /// A size that is not of whole sectors, or zero.
    #[error("line {line}: a request of {bytes} bytes is not a positive multiple of 512 bytes")]
    RequestNotSectors {
        /// Line, from 1.
        line: usize,
        /// Size given.
        bytes: u32,
    },
    /// A size beyond [`REQUEST_BYTES_MAX`].
    #[error("line {line}: a request of {bytes} bytes exceeds {REQUEST_BYTES_MAX} bytes")]
    RequestTooLarge {
        /// Line, from 1.
        line: usize,
        /// Size given.
        bytes: u32,
    },
    /// More than 100 % reads.
    #[error("line {line}: {percent} % reads, at most 100 % are possible")]
    ReadPercent {
        /// Line, from 1.
        line: usize,
        /// Percentage given.
        percent: u8,
    },
    /// More than 100 % random.
    #[error("line {line}: {percent} % random, at most 100 % are possible")]
    RandomPercent {
        /// Line, from 1.
        line: usize,
        /// Percentage given.
        percent: u8,
    },
    /// An alignment that is not of whole sectors, or zero.
    #[error("line {line}: an alignment of {bytes} bytes is not a positive multiple of 512 bytes")]
    AlignmentNotSectors {
        /// Line, from 1.
        line: usize,
        /// Alignment given.
        bytes: u32,
    },
    /// A burst without requests.
    #[error("line {line}: a burst has at least 1 request")]
    BurstZero {
        /// Line, from 1.
        line: usize,
    },
    /// A size was asked for where the sizes are the workload itself.
    #[error("the access specification mixes request sizes, one size can't replace them")]
    MixedSizes,
}

/// A checked list of lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessSpec {
    lines: Vec<SpecLine>,
    share_total: u32,
}

impl AccessSpec {
    /// A specification whose shares are per cent and add up to 100.
    pub fn new(lines: &[SpecLine]) -> Result<Self, SpecError> {
        let spec = Self::weighted(lines)?;
        if spec.share_total != 100 {
            return Err(SpecError::ShareTotal { total: u64::from(spec.share_total) });
        }
        Ok(spec)
    }

    /// A specification whose shares are weights with any sum up to
    /// [`SHARE_TOTAL_MAX`].
    pub fn weighted(lines: &[SpecLine]) -> Result<Self, SpecError> {
        if lines.is_empty() {
            return Err(SpecError::NoLines);
        }
        if lines.len() > LINES_MAX {
            return Err(SpecError::TooManyLines { lines: lines.len() });
        }
        for (index, line) in lines.iter().enumerate() {
            check_line(index + 1, line)?;
        }
        let total: u64 = lines.iter().map(|line| u64::from(line.share)).sum();
        let share_total = u32::try_from(total)
            .ok()
            .filter(|&total| total <= SHARE_TOTAL_MAX)
            .ok_or(SpecError::WeightTotal { total })?;
        Ok(Self { lines: lines.to_vec(), share_total })
    }

    /// One line of 100 %: the usual case of a sweep.
    pub fn uniform(
        request_bytes: u32,
        read_percent: u8,
        random_percent: u8,
    ) -> Result<Self, SpecError> {
        Self::new(&[SpecLine::new(100, request_bytes, read_percent, random_percent)])
    }

    /// The same mix with another request size, for a sweep over sizes.
    ///
    /// Fails if the lines have different sizes.
    pub fn with_request_bytes(&self, request_bytes: u32) -> Result<Self, SpecError> {
        let own = self.lines[0].request_bytes;
        if self.lines.iter().any(|line| line.request_bytes != own) {
            return Err(SpecError::MixedSizes);
        }
        let resized = |line: &SpecLine| SpecLine { request_bytes, ..*line };
        Self::weighted(&self.lines.iter().map(resized).collect::<Vec<_>>())
    }

    /// The lines, at least one.
    pub fn lines(&self) -> &[SpecLine] {
        &self.lines
    }

    /// The sum of the shares: 100, or that of the weights.
    pub const fn share_total(&self) -> u32 {
        self.share_total
    }

    /// Mean request size in bytes, each line by its share of the requests.
    pub fn mean_request_bytes(&self) -> f64 {
        self.mean(|line| u64::from(line.share), |line| u64::from(line.request_bytes))
    }

    /// Mean request size in bytes, each line by its share of the bursts. It
    /// differs from [`Self::mean_request_bytes`] only if bursts differ, and is
    /// what Iometer's rules give.
    pub fn mean_request_bytes_by_burst(&self) -> f64 {
        let requests = |line: &SpecLine| u64::from(line.share) * u64::from(line.burst);
        self.mean(requests, |line| u64::from(line.request_bytes))
    }

    /// Reads in per cent of all requests.
    pub fn read_percent(&self) -> f64 {
        self.mean(|line| u64::from(line.share), |line| u64::from(line.read_percent))
    }

    /// Random requests in per cent of all requests.
    pub fn random_percent(&self) -> f64 {
        self.mean(|line| u64::from(line.share), |line| u64::from(line.random_percent))
    }

    /// Whether any request writes.
    pub fn has_writes(&self) -> bool {
        self.lines.iter().any(|line| line.read_percent < 100)
    }

    /// The largest request in bytes, the size of a buffer for any of them.
    pub fn request_bytes_max(&self) -> u32 {
        self.lines.iter().map(|line| line.request_bytes).fold(0, u32::max)
    }

    fn mean(&self, weight: impl Fn(&SpecLine) -> u64, value: impl Fn(&SpecLine) -> u64) -> f64 {
        let weights: u128 = self.lines.iter().map(|line| u128::from(weight(line))).sum();
        let sum: u128 =
            self.lines.iter().map(|line| u128::from(weight(line)) * u128::from(value(line))).sum();
        sum as f64 / weights as f64
    }
}

fn check_line(number: usize, line: &SpecLine) -> Result<(), SpecError> {
    let not_sectors = |bytes: u32| bytes == 0 || !u64::from(bytes).is_multiple_of(SECTOR_BYTES);
    if line.share == 0 {
        return Err(SpecError::ShareZero { line: number });
    }
    if not_sectors(line.request_bytes) {
        return Err(SpecError::RequestNotSectors { line: number, bytes: line.request_bytes });
    }
    if line.request_bytes > REQUEST_BYTES_MAX {
        return Err(SpecError::RequestTooLarge { line: number, bytes: line.request_bytes });
    }
    if line.read_percent > 100 {
        return Err(SpecError::ReadPercent { line: number, percent: line.read_percent });
    }
    if line.random_percent > 100 {
        return Err(SpecError::RandomPercent { line: number, percent: line.random_percent });
    }
    if let Some(bytes) = line.alignment_bytes.filter(|&bytes| not_sectors(bytes)) {
        return Err(SpecError::AlignmentNotSectors { line: number, bytes });
    }
    if line.burst == 0 {
        return Err(SpecError::BurstZero { line: number });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mistake_has_its_error() {
        let good = SpecLine::new(100, 4096, 67, 100);
        let table = [
            (vec![], SpecError::NoLines),
            (vec![SpecLine::new(1, 512, 0, 0); 101], SpecError::TooManyLines { lines: 101 }),
            (vec![SpecLine { share: 95, ..good }], SpecError::ShareTotal { total: 95 }),
            (vec![good, SpecLine { share: 0, ..good }], SpecError::ShareZero { line: 2 }),
            (
                vec![SpecLine { request_bytes: 1000, ..good }],
                SpecError::RequestNotSectors { line: 1, bytes: 1000 },
            ),
            (
                vec![SpecLine { request_bytes: 0, ..good }],
                SpecError::RequestNotSectors { line: 1, bytes: 0 },
            ),
            (
                vec![SpecLine { request_bytes: 1 << 31, ..good }],
                SpecError::RequestTooLarge { line: 1, bytes: 1 << 31 },
            ),
            (
                vec![SpecLine { read_percent: 101, ..good }],
                SpecError::ReadPercent { line: 1, percent: 101 },
            ),
            (
                vec![SpecLine { random_percent: 255, ..good }],
                SpecError::RandomPercent { line: 1, percent: 255 },
            ),
            (
                vec![SpecLine { alignment_bytes: Some(0), ..good }],
                SpecError::AlignmentNotSectors { line: 1, bytes: 0 },
            ),
            (vec![SpecLine { burst: 0, ..good }], SpecError::BurstZero { line: 1 }),
            (
                vec![SpecLine { share: u32::MAX, ..good }; 3],
                SpecError::WeightTotal { total: 3 * u64::from(u32::MAX) },
            ),
        ];
        for (lines, error) in table {
            assert_eq!(AccessSpec::new(&lines), Err(error), "{error}");
        }
    }

    #[test]
    fn weights_need_not_be_per_cent() {
        let lines = [SpecLine::new(1, 512, 100, 100), SpecLine::new(2, 1024, 0, 100)];
        let spec = AccessSpec::weighted(&lines).unwrap();
        assert_eq!(spec.share_total(), 3);
        assert_eq!(spec.mean_request_bytes(), 2560.0 / 3.0);
        assert_eq!(spec.read_percent(), 100.0 / 3.0);
        assert!(spec.has_writes());
        assert_eq!(spec.request_bytes_max(), 1024);
        assert_eq!(spec.with_request_bytes(4096), Err(SpecError::MixedSizes));
    }

    #[test]
    fn bursts_weigh_in_iometers_mean() {
        let lines = [
            SpecLine { burst: 3, ..SpecLine::new(50, 512, 100, 100) },
            SpecLine::new(50, 4096, 100, 100),
        ];
        let spec = AccessSpec::new(&lines).unwrap();
        assert_eq!(spec.mean_request_bytes(), 2304.0);
        assert_eq!(spec.mean_request_bytes_by_burst(), (3.0 * 512.0 + 4096.0) / 4.0);
    }

    #[test]
    fn one_size_can_be_replaced() {
        let spec = AccessSpec::uniform(4096, 67, 100).unwrap();
        let larger = spec.with_request_bytes(65_536).unwrap();
        assert_eq!(larger.mean_request_bytes(), 65_536.0);
        assert_eq!(larger.read_percent(), 67.0);
        assert!(spec.with_request_bytes(100).is_err());
    }
}
