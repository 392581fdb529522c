//! When requests are meant to start: closed and open loop as pure schedules.
//!
//! In a closed loop a new request follows a finished one: the load is a number
//! of outstanding requests, and a slow drive is asked less. In an open loop
//! requests come at their own times, as from clients that do not know each
//! other: the load is a rate. There the latency counts from the intended
//! start; a request that could not be issued in time has waited for it.
//!
//! Times are nanoseconds on the clock of whoever asks. Left out: waiting, and
//! what to do when too many requests are outstanding (issue late, which the
//! latency from the intended start then shows).

use thiserror::Error;

use crate::random::Random;

const NS_PER_SECOND: u64 = 1_000_000_000;

/// Largest rate: one request a nanosecond.
pub const RATE_MAX_PER_SECOND: u64 = NS_PER_SECOND;

/// How requests arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Always `queue_depth` requests outstanding, each followed by the next
    /// after `think_ns`.
    Closed {
        /// Requests outstanding per worker and target.
        queue_depth: u32,
        /// Pause between a completion and the request that follows it.
        think_ns: u64,
    },
    /// One request every 1/`per_second` seconds.
    Fixed {
        /// Requests per second.
        per_second: u64,
        /// Most requests outstanding; later ones wait to be issued.
        outstanding_max: u32,
    },
    /// Independent arrivals with `per_second` in the mean (exponential gaps).
    Poisson {
        /// Requests per second in the mean.
        per_second: u64,
        /// Most requests outstanding; later ones wait to be issued.
        outstanding_max: u32,
    },
}

/// Why requests can't arrive so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ArrivalError {
    /// Nothing may ever be outstanding.
    #[error("a queue depth of 0 issues nothing")]
    NoDepth,
    /// No rate, or one beyond [`RATE_MAX_PER_SECOND`].
    #[error(
        "a rate of {per_second} requests per second is not between 1 and {RATE_MAX_PER_SECOND}"
    )]
    Rate {
        /// Rate given.
        per_second: u64,
    },
}

impl Arrival {
    /// The schedule for a run that starts at `start_ns`. The seed and worker
    /// matter to Poisson arrivals only; they draw from a sequence of their own,
    /// so that requests stay the same when arrivals change.
    pub fn schedule(
        &self,
        start_ns: u64,
        seed: u64,
        worker: u32,
    ) -> Result<Schedule, ArrivalError> {
        let per_second = match *self {
            Self::Closed { .. } => 1,
            Self::Fixed { per_second, .. } | Self::Poisson { per_second, .. } => per_second,
        };
        if self.outstanding_max() == 0 {
            return Err(ArrivalError::NoDepth);
        }
        if !(1..=RATE_MAX_PER_SECOND).contains(&per_second) {
            return Err(ArrivalError::Rate { per_second });
        }
        Ok(match *self {
            Self::Closed { think_ns, .. } => Schedule::Closed { start_ns, think_ns },
            Self::Fixed { .. } => {
                Schedule::Open(OpenSchedule { start_ns, per_second, arrived: 0, gaps: None })
            }
            Self::Poisson { .. } => {
                // The upper half of the streams is for arrivals.
                let stream = 1 << 32 | u64::from(worker);
                let gaps = Some(Gaps { random: Random::new(seed, stream), elapsed_ns: 0.0 });
                Schedule::Open(OpenSchedule { start_ns, per_second, arrived: 0, gaps })
            }
        })
    }

    /// Most requests outstanding at once: the depth of a closed loop, the
    /// bound of an open one.
    pub const fn outstanding_max(&self) -> u32 {
        match *self {
            Self::Closed { queue_depth, .. } => queue_depth,
            Self::Fixed { outstanding_max, .. } | Self::Poisson { outstanding_max, .. } => {
                outstanding_max
            }
        }
    }

    /// The queue depth that is asked for; an open loop asks for none.
    pub const fn asked_depth(&self) -> Option<u32> {
        match *self {
            Self::Closed { queue_depth, .. } => Some(queue_depth),
            Self::Fixed { .. } | Self::Poisson { .. } => None,
        }
    }
}

/// Intended start times.
#[derive(Clone, Debug)]
pub enum Schedule {
    /// Start times follow from completions; see [`Schedule::after`].
    Closed {
        /// When the first requests start.
        start_ns: u64,
        /// Pause after a completion.
        think_ns: u64,
    },
    /// Start times are given; see [`OpenSchedule::next_intended_ns`].
    Open(OpenSchedule),
}

impl Schedule {
    /// Closed loop: when the request that follows the one completed at
    /// `completed_ns` starts. `None` in an open loop.
    pub const fn after(&self, completed_ns: u64) -> Option<u64> {
        match self {
            Self::Closed { think_ns, .. } => Some(completed_ns.saturating_add(*think_ns)),
            Self::Open(_) => None,
        }
    }
}

/// The start times of an open loop, never decreasing.
#[derive(Clone, Debug)]
pub struct OpenSchedule {
    start_ns: u64,
    per_second: u64,
    arrived: u64,
    gaps: Option<Gaps>,
}

#[derive(Clone, Debug)]
struct Gaps {
    random: Random,
    /// Since the start, with its fraction: rounding each gap would change the rate.
    elapsed_ns: f64,
}

impl OpenSchedule {
    /// The intended start of the next request.
    ///
    /// At a fixed rate the first is at the start and the n-th is computed from
    /// n, so that no error adds up. Stops at the end of 64-bit time.
    pub fn next_intended_ns(&mut self) -> u64 {
        let elapsed_ns = match &mut self.gaps {
            None => {
                let product = u128::from(self.arrived) * u128::from(NS_PER_SECOND);
                u64::try_from(product / u128::from(self.per_second)).unwrap_or(u64::MAX)
            }
            Some(gaps) => {
                let mean_ns = NS_PER_SECOND as f64 / self.per_second as f64;
                gaps.elapsed_ns += gaps.random.exponential() * mean_ns;
                gaps.elapsed_ns as u64
            }
        };
        self.arrived = self.arrived.saturating_add(1);
        self.start_ns.saturating_add(elapsed_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(arrival: Arrival, start_ns: u64, seed: u64) -> OpenSchedule {
        match arrival.schedule(start_ns, seed, 0) {
            Ok(Schedule::Open(schedule)) => schedule,
            other => panic!("not an open loop: {other:?}"),
        }
    }

    #[test]
    fn a_fixed_rate_does_not_drift() {
        let mut schedule = open(Arrival::Fixed { per_second: 3, outstanding_max: 1 }, 5, 0);
        let times: Vec<_> = (0..7).map(|_| schedule.next_intended_ns() - 5).collect();
        let third = 333_333_333;
        assert_eq!(
            times,
            [0, third, 2 * third, 1_000_000_000, 1_333_333_333, 1_666_666_666, 2_000_000_000]
        );
    }

    #[test]
    fn poisson_keeps_its_rate_and_its_seed() {
        let arrival = Arrival::Poisson { per_second: 10_000, outstanding_max: 64 };
        let mut schedule = open(arrival, 0, 77);
        let times: Vec<_> = (0..100_000).map(|_| schedule.next_intended_ns()).collect();
        assert!(times.is_sorted());
        let seconds = *times.last().unwrap() as f64 / 1e9;
        assert!((seconds - 10.0).abs() < 0.1, "{seconds}");
        assert_eq!(times[..4], GOLDEN);
        // Per 100 microseconds one arrival in the mean: none in 36.8 % of them.
        let mut occupied: Vec<_> = times.iter().map(|time| time / 100_000).collect();
        occupied.dedup();
        let empty = 1.0 - occupied.len() as f64 / (seconds * 10_000.0);
        assert!((empty - 0.368).abs() < 0.01, "{empty}");
    }

    const GOLDEN: [u64; 4] = [136_943, 242_634, 287_321, 403_846];

    #[test]
    fn a_closed_loop_follows_completions() {
        let arrival = Arrival::Closed { queue_depth: 4, think_ns: 10 };
        assert_eq!(arrival.asked_depth(), Some(4));
        let schedule = arrival.schedule(100, 0, 0).unwrap();
        assert_eq!(schedule.after(150), Some(160));
        assert_eq!(schedule.after(u64::MAX), Some(u64::MAX));
    }

    #[test]
    fn impossible_arrivals_are_refused() {
        let none = Arrival::Closed { queue_depth: 0, think_ns: 0 };
        assert_eq!(none.schedule(0, 0, 0).unwrap_err(), ArrivalError::NoDepth);
        for per_second in [0, RATE_MAX_PER_SECOND + 1] {
            let fixed = Arrival::Fixed { per_second, outstanding_max: 1 };
            assert_eq!(fixed.schedule(0, 0, 0).unwrap_err(), ArrivalError::Rate { per_second });
            assert_eq!(fixed.asked_depth(), None);
        }
    }

    #[test]
    fn the_end_of_time_is_no_overflow() {
        let mut schedule =
            open(Arrival::Fixed { per_second: 1, outstanding_max: 1 }, u64::MAX - 1, 0);
        assert_eq!(schedule.next_intended_ns(), u64::MAX - 1);
        assert_eq!(schedule.next_intended_ns(), u64::MAX);
    }
}
