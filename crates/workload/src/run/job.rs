//! What a run consists of, and whether a drive can take it.
//!
//! Everything that can be refused is refused here, before the first request: a job that starts
//! fails by its drive only.

use std::time::Duration;

use drive::{Durability, Facts};
use thiserror::Error;

use crate::arrival::{Arrival, ArrivalError};
use crate::entropy::DataPattern;
use crate::generator::{GeneratorConfig, GeneratorError, GeneratorMode};
use crate::meter::{MeterConfig, MeterError};
use crate::request::SECTOR_BYTES;
use crate::run::data::WriteData;
use crate::spec::AccessSpec;

/// Most requests outstanding over all workers: twice the tags of the largest hardware queue set
/// that one thread could keep busy, and few enough that their tasks stay below 100 MiB.
pub const OUTSTANDING_MAX: u64 = 65_536;

/// Most bytes of all buffers of a run: a quarter of a small server's memory.
pub const BUFFER_BYTES_MAX: u64 = 4 << 30;

/// A workload with everything that decides what it measures.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Which requests.
    pub spec: AccessSpec,
    /// Where they go, and the seed; `worker` is the number of the first worker.
    pub generator: GeneratorConfig,
    /// Workers, each with its own row of requests and its own arrivals.
    pub workers: u32,
    /// When the requests of a worker start. In an open loop the delays of the specification are
    /// not used: starts are given already.
    pub arrival: Arrival,
    /// What is written.
    pub data: DataPattern,
    /// When a write counts as done.
    pub durability: Durability,
    /// Warm-up before the window; not measured.
    pub ramp: Duration,
    /// Length of the window, or the most of it if `requests_max` comes first.
    pub time: Duration,
    /// Length of one interval of the time series: a second, or less for a window of few seconds,
    /// whose spread could not be judged otherwise.
    pub interval: Duration,
    /// The window ends early with this many successful requests in it (and those that complete at
    /// the same nanosecond).
    pub requests_max: Option<u64>,
    /// The run ends with this many errors in a row, as after a drive that is gone.
    pub errors_in_a_row_max: u32,
    /// How long to wait for outstanding requests after the end.
    pub drain_limit: Duration,
}

/// Why a job can't run on a drive.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum JobError {
    /// Nobody to issue anything.
    #[error("a run needs at least 1 worker")]
    NoWorkers,
    /// Beyond [`OUTSTANDING_MAX`].
    #[error("{outstanding} outstanding requests exceed {OUTSTANDING_MAX}")]
    Outstanding {
        /// Workers times the outstanding requests of each.
        outstanding: u64,
    },
    /// Beyond [`BUFFER_BYTES_MAX`].
    #[error("buffers of {bytes} bytes exceed {BUFFER_BYTES_MAX} bytes")]
    Buffers {
        /// Bytes of all requests that may be outstanding, and of the data to write.
        bytes: u64,
    },
    /// The first error would end the run before it happens.
    #[error("at least 1 error in a row must be allowed")]
    NoErrors,
    /// The working set leaves the drive.
    #[error("the working set ends at {end}, behind the {drive_bytes} bytes of {drive}")]
    BehindEnd {
        /// The byte after the last one of the working set.
        end: u64,
        /// Size of the drive.
        drive_bytes: u64,
        /// The drive's name.
        drive: String,
    },
    /// The drive takes whole blocks at multiples of blocks only.
    #[error("{what} of {bytes} bytes is no multiple of the {block_bytes}-byte block of {drive}")]
    Misaligned {
        /// The figure that does not fit.
        what: &'static str,
        /// Its value.
        bytes: u64,
        /// Block of the drive.
        block_bytes: u32,
        /// The drive's name.
        drive: String,
    },
    /// Writes for a drive that takes none.
    #[error("the workload writes, and {drive} is read-only")]
    ReadOnly {
        /// The drive's name.
        drive: String,
    },
    /// The requests are impossible.
    #[error("the requests can't be generated")]
    Generator(#[from] GeneratorError),
    /// The arrivals are impossible.
    #[error("the arrivals are impossible")]
    Arrival(#[from] ArrivalError),
    /// The window is impossible.
    #[error("the run can't be measured")]
    Meter(#[from] MeterError),
}

impl Job {
    /// Whether a drive with these facts can take every request of the job.
    pub(super) fn check(&self, facts: &Facts) -> Result<(), JobError> {
        if self.workers == 0 {
            return Err(JobError::NoWorkers);
        }
        if self.errors_in_a_row_max == 0 {
            return Err(JobError::NoErrors);
        }
        let outstanding = u64::from(self.workers) * u64::from(self.arrival.outstanding_max());
        if outstanding > OUTSTANDING_MAX {
            return Err(JobError::Outstanding { outstanding });
        }
        let mut bytes = outstanding * u64::from(self.spec.request_bytes_max());
        if self.spec.has_writes() {
            bytes += WriteData::bytes(&self.spec);
        }
        if bytes > BUFFER_BYTES_MAX {
            return Err(JobError::Buffers { bytes });
        }
        let drive = || facts.name.to_string();
        if self.spec.has_writes() && facts.read_only {
            return Err(JobError::ReadOnly { drive: drive() });
        }
        let (end, drive_bytes) = (self.generator.working_set.end(), facts.size_bytes);
        if end > drive_bytes {
            return Err(JobError::BehindEnd { end, drive_bytes, drive: drive() });
        }
        self.check_blocks(facts)
    }

    fn check_blocks(&self, facts: &Facts) -> Result<(), JobError> {
        let start = ("a working set's start", self.generator.working_set.start());
        let by_line = self.spec.lines().iter().flat_map(|line| {
            let request_bytes = u64::from(line.request_bytes);
            let alignment = line.alignment_bytes.map_or_else(
                || match self.generator.mode {
                    GeneratorMode::Aligned => request_bytes,
                    GeneratorMode::Iometer => SECTOR_BYTES,
                },
                u64::from,
            );
            [("a request", request_bytes), ("an alignment", alignment)]
        });
        let block_bytes = facts.block_bytes;
        let bad = std::iter::once(start)
            .chain(by_line)
            .find(|(_, bytes)| !bytes.is_multiple_of(u64::from(block_bytes)));
        match bad {
            None => Ok(()),
            Some((what, bytes)) => {
                let drive = facts.name.to_string();
                Err(JobError::Misaligned { what, bytes, block_bytes, drive })
            }
        }
    }

    /// When to measure, for a run that starts at `start_ns`.
    pub(super) fn meter_config(&self, start_ns: u64) -> MeterConfig {
        MeterConfig {
            start_ns,
            warmup_ns: nanoseconds(self.ramp),
            measure_ns: nanoseconds(self.time),
            interval_ns: nanoseconds(self.interval),
            asked_depth: self.arrival.asked_depth().map(|depth| depth * self.workers),
        }
    }
}

/// The meter refuses what does not fit 64 bits.
fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
