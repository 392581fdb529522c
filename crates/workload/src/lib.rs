//! Workloads: what is asked of a drive, and what came of it, as pure values.
//!
//! - [`AccessSpec`] says which requests a workload consists of, [`CATALOGUE`]
//!   holds the known ones, [`Generator`] turns one into an endless, repeatable
//!   row of requests, in the lab's own way or by Iometer's rules.
//! - [`Arrival`] says when they start: closed loop, fixed rate or Poisson.
//!   [`DataPattern`] says what is written. [`sweep`] holds the usual rows of
//!   queue depths and sizes.
//! - [`Meter`] adds up what was measured, [`Histogram`] keeps the latencies,
//!   [`stats`] compares repeated runs.
//!
//! Nothing here knows a file, a device, a thread or a clock: offsets and times
//! are numbers that come in and go out.

mod arrival;
mod catalogue;
mod entropy;
mod generator;
mod histogram;
mod meter;
mod random;
mod request;
mod spec;
pub mod stats;
pub mod sweep;

pub use arrival::{Arrival, ArrivalError, OpenSchedule, RATE_MAX_PER_SECOND, Schedule};
pub use catalogue::{CATALOGUE, Workload, find_workload};
pub use entropy::{CompressiblePattern, DataPattern, DataPatternError};
pub use generator::{GENERATOR_VERSION, Generator, GeneratorConfig, GeneratorError, GeneratorMode};
pub use histogram::{
    Bucket, Histogram, HistogramDecodeError, LATENCY_MAX_NS, LATENCY_MIN_NS, Percentile,
};
pub use meter::{
    Completion, DirectionSummary, Drained, INTERVALS_MAX, Interval, Meter, MeterConfig, MeterError,
    Sample, Summary, Window,
};
pub use random::{RANDOM_ALGORITHM, Random};
pub use request::{Direction, OFFSET_MAX, Request, SECTOR_BYTES, WorkingSet, WorkingSetError};
pub use spec::{AccessSpec, LINES_MAX, REQUEST_BYTES_MAX, SHARE_TOTAL_MAX, SpecError, SpecLine};
