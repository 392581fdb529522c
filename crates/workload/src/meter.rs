//! The meter: what the runner tells of each finished request, added up.
//!
//! A run has a warm-up and then a window. A request belongs to the window if
//! it *completes* in it; so requests, bytes and rates agree with each other
//! and with the length of the window. Requests that complete before are
//! counted as warm-up; those still outstanding at the end are to be recorded
//! when they finish, and are kept apart as drained with their longest latency,
//! because a drive that hangs at the end would otherwise look well.
//!
//! The reached queue depth is a mean over time: the time all requests were
//! outstanding inside the window, divided by the window. It is exact, and
//! needs no event but the completion with its issue time.
//!
//! Latency is kept twice: from the issue (what the drive needs) and from the
//! intended start (what a client waits in an open loop). A failed request
//! counts as an error only, not as a request, and is in no latency.
//!
//! Recording allocates nothing. Left out: clocks, and per-interval percentiles.

mod summary;

pub use summary::{DirectionSummary, Drained, Interval, Sample, Summary, Window};

use thiserror::Error;

use crate::histogram::Histogram;
use crate::request::Direction;

/// Most intervals of a time series: more than a day of seconds.
pub const INTERVALS_MAX: u64 = 100_000;

/// When to measure. Times in nanoseconds on the runner's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeterConfig {
    /// Start of the run.
    pub start_ns: u64,
    /// Warm-up (ramp-up) from the start on, not measured.
    pub warmup_ns: u64,
    /// Length of the window after the warm-up.
    pub measure_ns: u64,
    /// Length of an interval of the time series, usually a second.
    pub interval_ns: u64,
    /// Queue depth asked for; `None` in an open loop.
    pub asked_depth: Option<u32>,
}

/// Why there can be no such meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MeterError {
    /// Nothing to measure in.
    #[error("the measuring time is 0")]
    NoTime,
    /// Intervals without length.
    #[error("the interval of the time series is 0")]
    NoInterval,
    /// A longer series than is kept.
    #[error("{intervals} intervals exceed the {INTERVALS_MAX} of a time series")]
    TooManyIntervals {
        /// Intervals asked for.
        intervals: u64,
    },
    /// The window ends after 64-bit time.
    #[error("the run ends after the end of 64-bit time")]
    TimeOverflow,
    /// Meters of different windows can't be added.
    #[error("the meters measure different windows or intervals")]
    OtherWindow,
}

/// A finished request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// When it should have started; the issue time in a closed loop.
    pub intended_ns: u64,
    /// When it was given to the drive.
    pub issued_ns: u64,
    /// When the drive answered.
    pub completed_ns: u64,
    /// Bytes moved.
    pub bytes: u32,
    /// Read or write.
    pub direction: Direction,
    /// Whether it succeeded.
    pub ok: bool,
}

/// Adds up finished requests.
#[derive(Clone, Debug)]
pub struct Meter {
    window: Window,
    interval_ns: u64,
    asked_depth: Option<u32>,
    depth_max: Option<u32>,
    in_flight_ns: u128,
    directions: [Tally; 2],
    intervals: Vec<IntervalTally>,
    warmup_requests: u64,
    drained: Drained,
    disordered: u64,
}

#[derive(Clone, Debug, Default)]
struct Tally {
    bytes: u64,
    errors: u64,
    from_issue: Histogram,
    /// `None` as long as every request started when it should, as in a closed loop: then both are
    /// the same.
    late: Option<Box<Histogram>>,
}

impl Tally {
    #[inline]
    fn record(&mut self, from_issue_ns: u64, from_intended_ns: u64) {
        if from_issue_ns != from_intended_ns && self.late.is_none() {
            self.late = Some(Box::new(self.from_issue.clone()));
        }
        self.from_issue.record(from_issue_ns);
        if let Some(late) = &mut self.late {
            late.record(from_intended_ns);
        }
    }

    fn intended(&self) -> &Histogram {
        self.late.as_deref().unwrap_or(&self.from_issue)
    }

    fn absorb(&mut self, other: &Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.errors += other.errors;
        if self.late.is_some() || other.late.is_some() {
            let late = self.late.get_or_insert_with(|| Box::new(self.from_issue.clone()));
            late.merge(other.intended());
        }
        self.from_issue.merge(&other.from_issue);
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct IntervalTally {
    samples: [SampleTally; 2],
    errors: u64,
    in_flight_ns: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct SampleTally {
    requests: u64,
    bytes: u64,
    latency_sum_ns: u64,
    latency_max_ns: u64,
}

impl Meter {
    /// A meter with room for its whole time series.
    pub fn new(config: &MeterConfig) -> Result<Self, MeterError> {
        if config.measure_ns == 0 {
            return Err(MeterError::NoTime);
        }
        if config.interval_ns == 0 {
            return Err(MeterError::NoInterval);
        }
        let intervals = config.measure_ns.div_ceil(config.interval_ns);
        if intervals > INTERVALS_MAX {
            return Err(MeterError::TooManyIntervals { intervals });
        }
        let from_ns =
            config.start_ns.checked_add(config.warmup_ns).ok_or(MeterError::TimeOverflow)?;
        let to_ns = from_ns.checked_add(config.measure_ns).ok_or(MeterError::TimeOverflow)?;
        Ok(Self {
            window: Window { from_ns, to_ns },
            interval_ns: config.interval_ns,
            asked_depth: config.asked_depth,
            depth_max: None,
            in_flight_ns: 0,
            directions: Default::default(),
            intervals: vec![IntervalTally::default(); intervals as usize],
            warmup_requests: 0,
            drained: Drained::default(),
            disordered: 0,
        })
    }

    /// The window as it stands: the runner issues until its end.
    pub const fn window(&self) -> Window {
        self.window
    }

    /// Ends the window early, for a run that is stopped. To be called before
    /// the outstanding requests are drained; never makes the window longer.
    pub fn end_at(&mut self, now_ns: u64) {
        self.window.to_ns = self.window.to_ns.min(now_ns.max(self.window.from_ns));
    }

    /// Notes how many requests are outstanding after one was issued, for the
    /// greatest depth.
    #[inline]
    pub fn note_issue(&mut self, now_ns: u64, outstanding: u32) {
        if self.window.contains(now_ns) {
            self.depth_max = self.depth_max.max(Some(outstanding));
        }
    }

    /// Adds a finished request. Every one is to be recorded, those of the
    /// warm-up and those that finish after the window too.
    #[inline]
    pub fn record(&mut self, completion: &Completion) {
        let Completion { intended_ns, issued_ns, completed_ns, .. } = *completion;
        if intended_ns > issued_ns || issued_ns > completed_ns {
            self.disordered += 1;
        }
        let from_intended_ns = completed_ns.saturating_sub(intended_ns);
        self.add_in_flight(issued_ns, completed_ns);
        if completed_ns < self.window.from_ns {
            self.warmup_requests += 1;
            return;
        }
        if completed_ns >= self.window.to_ns {
            self.drained.requests += 1;
            self.drained.latency_max_ns = self.drained.latency_max_ns.max(from_intended_ns);
            return;
        }
        let tally = &mut self.directions[completion.direction.index()];
        let interval = (completed_ns - self.window.from_ns) / self.interval_ns;
        let interval = &mut self.intervals[interval as usize];
        if !completion.ok {
            tally.errors += 1;
            interval.errors += 1;
            return;
        }
        tally.bytes = tally.bytes.saturating_add(u64::from(completion.bytes));
        tally.record(completed_ns.saturating_sub(issued_ns), from_intended_ns);
        let sample = &mut interval.samples[completion.direction.index()];
        sample.requests += 1;
        sample.bytes = sample.bytes.saturating_add(u64::from(completion.bytes));
        sample.latency_sum_ns = sample.latency_sum_ns.saturating_add(from_intended_ns);
        sample.latency_max_ns = sample.latency_max_ns.max(from_intended_ns);
    }

    /// Spreads the time a request was outstanding over window and intervals.
    #[inline]
    fn add_in_flight(&mut self, issued_ns: u64, completed_ns: u64) {
        let from = issued_ns.max(self.window.from_ns);
        let to = completed_ns.min(self.window.to_ns);
        if from >= to {
            return;
        }
        self.in_flight_ns += u128::from(to - from);
        let mut index = ((from - self.window.from_ns) / self.interval_ns) as usize;
        let mut start = from;
        while start < to {
            // The end of an interval lies at most one interval after the end
            // of the window, which may be the end of time.
            let elapsed = (index as u64 + 1).saturating_mul(self.interval_ns);
            let end = self.window.from_ns.saturating_add(elapsed).min(to);
            self.intervals[index].in_flight_ns += end - start;
            start = end;
            index += 1;
        }
    }

    /// Adds what another worker has measured in the same window. Asked and
    /// greatest depths add up too; the sum of the greatest is an upper bound,
    /// as the workers need not have reached them at the same moment.
    pub fn absorb(&mut self, other: &Self) -> Result<(), MeterError> {
        if self.window != other.window
            || self.interval_ns != other.interval_ns
            || self.intervals.len() != other.intervals.len()
        {
            return Err(MeterError::OtherWindow);
        }
        let add = |own: Option<u32>, others: Option<u32>| match (own, others) {
            (Some(own), Some(others)) => Some(own.saturating_add(others)),
            (own, others) => own.or(others),
        };
        self.asked_depth = add(self.asked_depth, other.asked_depth);
        self.depth_max = add(self.depth_max, other.depth_max);
        self.in_flight_ns = self.in_flight_ns.saturating_add(other.in_flight_ns);
        self.warmup_requests += other.warmup_requests;
        self.drained.requests += other.drained.requests;
        self.drained.latency_max_ns = self.drained.latency_max_ns.max(other.drained.latency_max_ns);
        self.disordered += other.disordered;
        for (own, others) in self.directions.iter_mut().zip(&other.directions) {
            own.absorb(others);
        }
        for (own, others) in self.intervals.iter_mut().zip(&other.intervals) {
            own.absorb(others);
        }
        Ok(())
    }
}

impl IntervalTally {
    fn absorb(&mut self, other: &Self) {
        self.errors += other.errors;
        self.in_flight_ns = self.in_flight_ns.saturating_add(other.in_flight_ns);
        for (own, others) in self.samples.iter_mut().zip(&other.samples) {
            own.requests += others.requests;
            own.bytes = own.bytes.saturating_add(others.bytes);
            own.latency_sum_ns = own.latency_sum_ns.saturating_add(others.latency_sum_ns);
            own.latency_max_ns = own.latency_max_ns.max(others.latency_max_ns);
        }
    }
}
