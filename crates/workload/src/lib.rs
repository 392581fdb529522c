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
//! A run in short, with a drive that answers everything after 100 microseconds:
//!
//! ```
//! use workload::{
//!     Completion, Generator, GeneratorConfig, GeneratorMode, Meter, MeterConfig, WorkingSet,
//!     find_workload,
//! };
//!
//! let spec = find_workload("database").ok_or("not in the catalogue")?.spec()?;
//! let config = GeneratorConfig {
//!     mode: GeneratorMode::Aligned,
//!     working_set: WorkingSet::whole(1 << 30)?,
//!     seed: 1,
//!     worker: 0,
//!     streams: 1,
//! };
//! let mut generator = Generator::new(&spec, &config)?;
//! let mut meter = Meter::new(&MeterConfig {
//!     start_ns: 0,
//!     warmup_ns: 1_000_000,
//!     measure_ns: 10_000_000,
//!     interval_ns: 1_000_000,
//!     asked_depth: Some(1),
//! })?;
//! let mut now_ns = 0;
//! while now_ns < meter.window().to_ns {
//!     let request = generator.next_request();
//!     meter.note_issue(now_ns, 1);
//!     meter.record(&Completion {
//!         intended_ns: now_ns,
//!         issued_ns: now_ns,
//!         completed_ns: now_ns + 100_000,
//!         bytes: request.bytes,
//!         direction: request.direction,
//!         ok: true,
//!     });
//!     now_ns += 100_000;
//! }
//! let summary = meter.summary();
//! assert_eq!(summary.total().requests_per_second, Some(10_000.0));
//! assert_eq!(summary.total().mean_request_bytes(), Some(generator.mean_request_bytes()));
//! assert_eq!(summary.reached_depth, Some(1.0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! All of that is pure: offsets and times are numbers that come in and go out.
//! [`run()`] alone does I/O: it carries a [`Job`] out on a drive of a world, real
//! or virtual. Nothing here knows a file, a device, a thread or a real clock.

mod arrival;
mod catalogue;
mod entropy;
mod generator;
mod histogram;
mod meter;
mod random;
mod request;
mod run;
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
pub use run::{
    BUFFER_BYTES_MAX, End, HeldBack, Job, JobError, Measured, OUTSTANDING_MAX, Observer, Progress,
    run,
};
pub use spec::{AccessSpec, LINES_MAX, REQUEST_BYTES_MAX, SHARE_TOTAL_MAX, SpecError, SpecLine};
