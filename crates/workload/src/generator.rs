//! Generators: an endless, repeatable row of requests from a specification.
//!
//! Two modes, because two things are wanted. [`GeneratorMode::Aligned`] is the
//! lab's own: exact mixes and aligned offsets, so that short runs compare.
//! [`GeneratorMode::Iometer`] follows Iometer's rules, so that published
//! results can be reproduced, with their misaligned offsets. The same
//! specification in the two modes gives different load: a file server request
//! of Iometer's touches 3.645 flash pages of 4 KiB on average, an aligned one 2.920.
//!
//! A generator serves one worker on one target. It allocates when it is made
//! and never after. A run is named by mode, specification, working set, seed,
//! worker, streams, [`RANDOM_ALGORITHM`](crate::RANDOM_ALGORITHM) and
//! [`GENERATOR_VERSION`].
//!
//! Left out: skewed offsets (Zipf, hot and cold) and replies as in Iometer's
//! network workers.

mod aligned;
mod iometer;

use thiserror::Error;

use crate::request::{Request, WorkingSet, WorkingSetError};
use crate::spec::{AccessSpec, SpecLine};
use aligned::Aligned;
use iometer::Iometer;

/// Goes up when the same seed gives other requests than before.
pub const GENERATOR_VERSION: u32 = 1;

/// The rules a generator follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GeneratorMode {
    /// Exact mixes over every 100 requests (or the sum of the weights), random
    /// offsets aligned to the request, sequential streams that random requests
    /// do not disturb.
    Aligned,
    /// Iometer's rules: independent draws, offsets rounded up to the sector,
    /// one sequential pointer for everything.
    Iometer,
}

impl GeneratorMode {
    /// The name in plans and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aligned => "aligned",
            Self::Iometer => "iometer",
        }
    }

    /// The mode of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Aligned, Self::Iometer].into_iter().find(|mode| mode.name() == name)
    }
}

/// Where and how a generator works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneratorConfig {
    /// The rules.
    pub mode: GeneratorMode,
    /// The part of the drive that is worked on.
    pub working_set: WorkingSet,
    /// The seed of the run.
    pub seed: u64,
    /// Number of this worker; each worker of a run draws its own sequence.
    pub worker: u32,
    /// Sequential streams, each in its own equal part of the working set,
    /// served in turn. Iometer's rules know one only.
    pub streams: u32,
}

/// Why there is no such generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum GeneratorError {
    /// A request finds no place in the working set.
    #[error(
        "line {line}: a request of {request_bytes} bytes aligned to {alignment_bytes} \
         does not fit between byte {start} and byte {end}"
    )]
    NoRoom {
        /// Line, from 1.
        line: usize,
        /// Size of the request.
        request_bytes: u32,
        /// Its alignment.
        alignment_bytes: u32,
        /// First byte of the working set or of the stream's part of it.
        start: u64,
        /// The byte after the last one.
        end: u64,
    },
    /// No sequential stream at all.
    #[error("a generator needs at least 1 stream")]
    NoStreams,
    /// Streams that find no place each.
    #[error("no room for the streams")]
    Streams(#[from] WorkingSetError),
    /// Iometer fills a table of 100 slots.
    #[error("iometer's rules need shares that add up to 100, not to {total}")]
    IometerShares {
        /// Sum of the shares.
        total: u32,
    },
    /// Iometer has one sequential pointer per worker and target.
    #[error("iometer's rules know 1 stream per worker, not {streams}")]
    IometerStreams {
        /// Streams asked for.
        streams: u32,
    },
}

/// An endless row of requests. The same configuration gives the same row.
#[derive(Clone, Debug)]
pub struct Generator {
    rules: Rules,
    mean_request_bytes: f64,
}

#[derive(Clone, Debug)]
enum Rules {
    Aligned(Aligned),
    Iometer(Iometer),
}

impl Generator {
    /// A generator for `spec`.
    ///
    /// Fails if a request does not fit into the working set (or into a
    /// stream's part of it), or if the mode can't do what the specification asks.
    pub fn new(spec: &AccessSpec, config: &GeneratorConfig) -> Result<Self, GeneratorError> {
        Ok(match config.mode {
            GeneratorMode::Aligned => Self {
                rules: Rules::Aligned(Aligned::new(spec, config)?),
                mean_request_bytes: spec.mean_request_bytes(),
            },
            GeneratorMode::Iometer => Self {
                rules: Rules::Iometer(Iometer::new(spec, config)?),
                mean_request_bytes: spec.mean_request_bytes_by_burst(),
            },
        })
    }

    /// The next request.
    #[inline]
    pub fn next_request(&mut self) -> Request {
        match &mut self.rules {
            Rules::Aligned(rules) => rules.next_request(),
            Rules::Iometer(rules) => rules.next_request(),
        }
    }

    /// The mean request size in bytes that a long run must show. Bytes per
    /// second are requests per second times this: the check of a whole measurement.
    pub const fn mean_request_bytes(&self) -> f64 {
        self.mean_request_bytes
    }
}

/// The first aligned byte of `range` at which a request of `line` fits.
fn first_offset(
    number: usize,
    line: &SpecLine,
    alignment_bytes: u32,
    range: WorkingSet,
) -> Result<u64, GeneratorError> {
    let first = range.start().next_multiple_of(u64::from(alignment_bytes));
    if first + u64::from(line.request_bytes) > range.end() {
        return Err(GeneratorError::NoRoom {
            line: number,
            request_bytes: line.request_bytes,
            alignment_bytes,
            start: range.start(),
            end: range.end(),
        });
    }
    Ok(first)
}
