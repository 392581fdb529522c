//! What a meter says in the end.
//!
//! Left out: CPU time, bytes at the drives, and anything else the runner
//! knows and the meter does not see.

use super::{IntervalTally, Meter, SampleTally, Tally};
use crate::histogram::Histogram;
use crate::request::Direction;

const NS_PER_SECOND: f64 = 1e9;

/// A stretch of time, the end not included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First nanosecond.
    pub from_ns: u64,
    /// The nanosecond after the last one.
    pub to_ns: u64,
}

impl Window {
    /// Whether `now_ns` lies in it.
    pub const fn contains(self, now_ns: u64) -> bool {
        self.from_ns <= now_ns && now_ns < self.to_ns
    }

    /// Length in nanoseconds.
    pub const fn length_ns(self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }
}

/// Requests that were outstanding when the window ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// How many, failed ones included.
    pub requests: u64,
    /// The longest of their latencies from the intended start.
    pub latency_max_ns: u64,
}

/// All of one run (or of several added up).
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The time that was measured.
    pub window: Window,
    /// Queue depth asked for; `None` in an open loop.
    pub asked_depth: Option<u32>,
    /// Mean number of requests outstanding; `None` if the window is empty.
    pub reached_depth: Option<f64>,
    /// Most requests outstanding; `None` if issues were not noted.
    pub depth_max: Option<u32>,
    /// The reads.
    pub reads: DirectionSummary,
    /// The writes.
    pub writes: DirectionSummary,
    /// The time series, one entry per interval of the window.
    pub series: Vec<Interval>,
    /// Requests that completed before the window.
    pub warmup_requests: u64,
    /// Requests that completed after it.
    pub drained: Drained,
    /// Requests whose times ran backwards; anything but 0 means that the clock
    /// or the runner is at fault.
    pub disordered: u64,
}

/// One direction, or both together.
#[derive(Clone, Debug, PartialEq)]
pub struct DirectionSummary {
    /// Requests that succeeded.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Requests that failed, not counted above.
    pub errors: u64,
    /// Requests per second; `None` if the window is empty.
    pub requests_per_second: Option<f64>,
    /// Bytes per second; `None` if the window is empty.
    pub bytes_per_second: Option<f64>,
    /// Latency from the issue.
    pub from_issue: Histogram,
    /// Latency from the intended start; the same in a closed loop.
    pub from_intended: Histogram,
}

/// One interval of the time series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Start, in nanoseconds from the start of the window.
    pub start_ns: u64,
    /// Length in nanoseconds; the last one may be shorter.
    pub length_ns: u64,
    /// The reads that completed in it; `None` if there were none.
    pub reads: Option<Sample>,
    /// The writes that completed in it; `None` if there were none.
    pub writes: Option<Sample>,
    /// Requests that failed in it.
    pub errors: u64,
    /// Mean number of requests outstanding.
    pub reached_depth: f64,
}

/// The requests of one direction in one interval, at least one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Requests that succeeded.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Requests per second.
    pub requests_per_second: f64,
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// Mean latency from the intended start.
    pub latency_mean_ns: f64,
    /// Greatest latency from the intended start.
    pub latency_max_ns: u64,
}

impl Meter {
    /// What was measured so far.
    pub fn summary(&self) -> Summary {
        let length_ns = self.window.length_ns();
        let [reads, writes] = &self.directions;
        Summary {
            window: self.window,
            asked_depth: self.asked_depth,
            reached_depth: (length_ns > 0).then(|| self.in_flight_ns as f64 / length_ns as f64),
            depth_max: self.depth_max,
            reads: DirectionSummary::new(reads, length_ns),
            writes: DirectionSummary::new(writes, length_ns),
            series: self.series(),
            warmup_requests: self.warmup_requests,
            drained: self.drained,
            disordered: self.disordered,
        }
    }

    fn series(&self) -> Vec<Interval> {
        let length_ns = self.window.length_ns();
        let starts =
            (0..length_ns).step_by(usize::try_from(self.interval_ns).unwrap_or(usize::MAX));
        self.intervals
            .iter()
            .zip(starts)
            .map(|(tally, start_ns)| {
                Interval::new(tally, start_ns, self.interval_ns.min(length_ns - start_ns))
            })
            .collect()
    }
}

impl Summary {
    /// Reads and writes together.
    pub fn total(&self) -> DirectionSummary {
        let mut total = self.reads.clone();
        total.requests = total.requests.saturating_add(self.writes.requests);
        total.bytes = total.bytes.saturating_add(self.writes.bytes);
        total.errors = total.errors.saturating_add(self.writes.errors);
        total.from_issue.merge(&self.writes.from_issue);
        total.from_intended.merge(&self.writes.from_intended);
        let length_ns = self.window.length_ns();
        total.requests_per_second = per_second(total.requests, length_ns);
        total.bytes_per_second = per_second(total.bytes, length_ns);
        total
    }

    /// One direction.
    pub const fn direction(&self, direction: Direction) -> &DirectionSummary {
        match direction {
            Direction::Read => &self.reads,
            Direction::Write => &self.writes,
        }
    }
}

impl DirectionSummary {
    fn new(tally: &Tally, length_ns: u64) -> Self {
        let requests = tally.from_issue.count();
        Self {
            requests,
            bytes: tally.bytes,
            errors: tally.errors,
            requests_per_second: per_second(requests, length_ns),
            bytes_per_second: per_second(tally.bytes, length_ns),
            from_issue: tally.from_issue.clone(),
            from_intended: tally.intended().clone(),
        }
    }

    /// Mean request size in bytes, to be compared with the specification's;
    /// `None` if no request succeeded.
    pub fn mean_request_bytes(&self) -> Option<f64> {
        (self.requests > 0).then(|| self.bytes as f64 / self.requests as f64)
    }
}

impl Interval {
    fn new(tally: &IntervalTally, start_ns: u64, length_ns: u64) -> Self {
        let [reads, writes] = &tally.samples;
        Self {
            start_ns,
            length_ns,
            reads: Sample::new(reads, length_ns),
            writes: Sample::new(writes, length_ns),
            errors: tally.errors,
            reached_depth: tally.in_flight_ns as f64 / length_ns as f64,
        }
    }

    /// Requests per second of both directions; `None` if none completed.
    pub fn requests_per_second(&self) -> Option<f64> {
        self.sum(|sample| sample.requests_per_second)
    }

    /// Bytes per second of both directions; `None` if no request completed.
    pub fn bytes_per_second(&self) -> Option<f64> {
        self.sum(|sample| sample.bytes_per_second)
    }

    fn sum(&self, of: impl Fn(&Sample) -> f64) -> Option<f64> {
        let samples = [&self.reads, &self.writes];
        let mut values = samples.into_iter().flatten().map(of);
        let first = values.next()?;
        Some(values.fold(first, |sum, value| sum + value))
    }
}

impl Sample {
    fn new(tally: &SampleTally, length_ns: u64) -> Option<Self> {
        (tally.requests > 0).then(|| Self {
            requests: tally.requests,
            bytes: tally.bytes,
            requests_per_second: tally.requests as f64 * NS_PER_SECOND / length_ns as f64,
            bytes_per_second: tally.bytes as f64 * NS_PER_SECOND / length_ns as f64,
            latency_mean_ns: tally.latency_sum_ns as f64 / tally.requests as f64,
            latency_max_ns: tally.latency_max_ns,
        })
    }
}

fn per_second(amount: u64, length_ns: u64) -> Option<f64> {
    (length_ns > 0).then(|| amount as f64 * NS_PER_SECOND / length_ns as f64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Completion, INTERVALS_MAX, MeterConfig, MeterError};
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    const CONFIG: MeterConfig = MeterConfig {
        start_ns: 0,
        warmup_ns: 2 * SECOND,
        measure_ns: 4 * SECOND,
        interval_ns: SECOND,
        asked_depth: Some(1),
    };

    fn read(issued_ns: u64, completed_ns: u64) -> Completion {
        Completion {
            intended_ns: issued_ns,
            issued_ns,
            completed_ns,
            bytes: 4096,
            direction: Direction::Read,
            ok: true,
        }
    }

    #[test]
    fn a_busy_drive_at_depth_one() {
        let mut meter = Meter::new(&CONFIG).unwrap();
        // One request every 10 ms without a pause, from 0 to 7 s.
        let step = SECOND / 100;
        for number in 0..700 {
            meter.note_issue(number * step, 1);
            meter.record(&read(number * step, (number + 1) * step));
        }
        let summary = meter.summary();
        assert_eq!(summary.reads.requests, 400);
        assert_eq!(summary.reads.requests_per_second, Some(100.0));
        assert_eq!(summary.reads.bytes_per_second, Some(409_600.0));
        assert_eq!(summary.reads.mean_request_bytes(), Some(4096.0));
        assert_eq!((summary.reached_depth, summary.depth_max), (Some(1.0), Some(1)));
        assert_eq!((summary.warmup_requests, summary.drained.requests), (199, 101));
        assert_eq!(summary.series.len(), 4);
        for interval in &summary.series {
            assert_eq!(interval.requests_per_second(), Some(100.0));
            assert_eq!(interval.reached_depth, 1.0);
            assert_eq!(interval.writes, None);
            assert_eq!(interval.reads.map(|sample| sample.latency_mean_ns), Some(step as f64));
        }
        assert_eq!(summary.writes.requests, 0);
        assert_eq!(summary.writes.from_issue.mean_ns(), None);
        assert_eq!(summary.total().requests, 400);
        assert_eq!(summary.disordered, 0);
    }

    #[test]
    fn a_silent_second_is_blank_and_a_long_request_fills_its_depth() {
        let mut meter = Meter::new(&CONFIG).unwrap();
        meter.record(&read(SECOND, 5 * SECOND + SECOND / 2));
        let summary = meter.summary();
        let blank: Vec<_> =
            summary.series.iter().map(|interval| interval.requests_per_second()).collect();
        assert_eq!(blank, [None, None, None, Some(1.0)]);
        let depths: Vec<_> = summary.series.iter().map(|interval| interval.reached_depth).collect();
        assert_eq!(depths, [1.0, 1.0, 1.0, 0.5]);
        assert_eq!(summary.reached_depth, Some(3.5 / 4.0));
        assert_eq!(summary.depth_max, None);
    }

    #[test]
    fn errors_stand_apart() {
        let mut meter = Meter::new(&CONFIG).unwrap();
        let failed =
            Completion { ok: false, direction: Direction::Write, ..read(3 * SECOND, 4 * SECOND) };
        meter.record(&failed);
        let summary = meter.summary();
        let writes = summary.direction(Direction::Write);
        assert_eq!((writes.errors, writes.requests, writes.bytes), (1, 0, 0));
        assert_eq!(summary.series[2].errors, 1);
        assert_eq!(summary.series[2].writes, None);
        assert_eq!(summary.reached_depth, Some(0.25));
    }

    #[test]
    fn an_open_loop_counts_the_wait_before_the_issue() {
        let mut meter = Meter::new(&CONFIG).unwrap();
        meter.record(&Completion { intended_ns: 2 * SECOND, ..read(3 * SECOND, 4 * SECOND) });
        let reads = meter.summary().reads;
        assert_eq!(reads.from_issue.max_ns(), Some(SECOND));
        assert_eq!(reads.from_intended.max_ns(), Some(2 * SECOND));
    }

    #[test]
    fn both_latencies_count_every_request_although_only_some_are_late() {
        let on_time = read(2 * SECOND, 3 * SECOND);
        let late = Completion { intended_ns: 2 * SECOND, ..read(3 * SECOND, 4 * SECOND) };
        let mut meter = Meter::new(&CONFIG).unwrap();
        for completion in [on_time, late, on_time] {
            meter.record(&completion);
        }
        let mut punctual = Meter::new(&CONFIG).unwrap();
        punctual.record(&on_time);
        let (mut first, mut second) = (meter.clone(), punctual.clone());
        first.absorb(&punctual).unwrap();
        second.absorb(&meter).unwrap();
        for meter in [first, second] {
            let reads = meter.summary().reads;
            assert_eq!(
                (reads.from_issue.count(), reads.from_issue.sum_ns()),
                (4, 4 * 1_000_000_000)
            );
            assert_eq!(reads.from_intended.count(), 4);
            assert_eq!(reads.from_intended.sum_ns(), 5 * 1_000_000_000);
        }
    }

    #[test]
    fn a_stopped_run_has_a_shorter_window() {
        let mut meter = Meter::new(&CONFIG).unwrap();
        meter.record(&read(2 * SECOND, 3 * SECOND));
        meter.end_at(3 * SECOND + SECOND / 2);
        meter.record(&read(3 * SECOND, 5 * SECOND));
        let summary = meter.summary();
        assert_eq!(summary.series.len(), 2);
        assert_eq!(summary.series[1].length_ns, SECOND / 2);
        assert_eq!(summary.reached_depth, Some(1.0));
        assert_eq!(summary.drained, Drained { requests: 1, latency_max_ns: 2 * SECOND });
        meter.end_at(0);
        let empty = meter.summary();
        assert_eq!((empty.reached_depth, empty.reads.requests_per_second), (None, None));
        assert!(empty.series.is_empty());
    }

    #[test]
    fn times_that_run_backwards_are_counted_and_do_not_panic() {
        let mut meter = Meter::new(&CONFIG).unwrap();
        meter.record(&read(5 * SECOND, 3 * SECOND));
        let summary = meter.summary();
        assert_eq!(summary.disordered, 1);
        assert_eq!(summary.reads.from_issue.max_ns(), Some(0));
        assert_eq!(summary.reached_depth, Some(0.0));
    }

    #[test]
    fn impossible_meters_are_refused() {
        let table = [
            (MeterConfig { measure_ns: 0, ..CONFIG }, MeterError::NoTime),
            (MeterConfig { interval_ns: 0, ..CONFIG }, MeterError::NoInterval),
            (
                MeterConfig { interval_ns: 1, ..CONFIG },
                MeterError::TooManyIntervals { intervals: 4 * SECOND },
            ),
            (MeterConfig { start_ns: u64::MAX, ..CONFIG }, MeterError::TimeOverflow),
        ];
        for (config, error) in table {
            assert_eq!(Meter::new(&config).unwrap_err(), error);
        }
        let longest = MeterConfig { interval_ns: 4 * SECOND / INTERVALS_MAX, ..CONFIG };
        let mut meter = Meter::new(&longest).unwrap();
        let other = Meter::new(&CONFIG).unwrap();
        assert_eq!(meter.absorb(&other), Err(MeterError::OtherWindow));
    }

    fn any_completion() -> impl Strategy<Value = Completion> {
        (0..8 * SECOND, 0..SECOND, 0..3 * SECOND, any::<bool>(), 0..10_u32).prop_map(
            |(intended_ns, wait_ns, service_ns, is_read, fate)| Completion {
                intended_ns,
                issued_ns: intended_ns + wait_ns,
                completed_ns: intended_ns + wait_ns + service_ns,
                bytes: 512,
                direction: if is_read { Direction::Read } else { Direction::Write },
                ok: fate > 0,
            },
        )
    }

    proptest! {
        #[test]
        fn the_series_adds_up_to_the_whole(
            one in prop::collection::vec(any_completion(), 0..60),
            other in prop::collection::vec(any_completion(), 0..60),
            interval_ns in SECOND / 10..5 * SECOND,
        ) {
            let config = MeterConfig { interval_ns, ..CONFIG };
            let mut meter = Meter::new(&config).unwrap();
            let mut second = Meter::new(&config).unwrap();
            let mut both = Meter::new(&config).unwrap();
            one.iter().for_each(|completion| meter.record(completion));
            other.iter().for_each(|completion| second.record(completion));
            one.iter().chain(&other).for_each(|completion| both.record(completion));
            meter.absorb(&second).unwrap();
            let summary = meter.summary();
            let mut expected = both.summary();
            expected.asked_depth = Some(2);
            prop_assert_eq!(&summary, &expected);

            let total = summary.total();
            let samples = |interval: &Interval| {
                let of = |sample: Option<Sample>| sample.map_or(0, |sample| sample.requests);
                of(interval.reads) + of(interval.writes)
            };
            prop_assert_eq!(summary.series.iter().map(samples).sum::<u64>(), total.requests);
            let errors = summary.series.iter().map(|interval| interval.errors).sum::<u64>();
            prop_assert_eq!(errors, total.errors);
            let all = total.requests + total.errors;
            let known = (one.len() + other.len()) as u64;
            prop_assert_eq!(all + summary.warmup_requests + summary.drained.requests, known);
            let length: u64 = summary.series.iter().map(|interval| interval.length_ns).sum();
            prop_assert_eq!(length, summary.window.length_ns());
            let in_flight: f64 = summary
                .series
                .iter()
                .map(|interval| interval.reached_depth * interval.length_ns as f64)
                .sum();
            let whole = summary.reached_depth.unwrap() * summary.window.length_ns() as f64;
            prop_assert!((in_flight - whole).abs() <= 1.0 + whole * 1e-9);
        }
    }
}
