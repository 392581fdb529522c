//! How fast a background pass may go: as fast as the drives give when nobody else wants them, and
//! as clients' latency allows when somebody does.
//!
//! Additive increase, multiplicative decrease, as congestion control does it: while clients wait
//! longer than the goal the rate is halved, else it grows by a step, never below the floor. A
//! period without clients lifts the limit. Source: Chiu and Jain, "Analysis of the increase and
//! decrease algorithms for congestion avoidance in computer networks" (1989).

use std::time::Duration;

/// What background work may take from clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobPolicy {
    /// Mean latency of clients' requests beyond which background work slows down.
    pub latency_goal: Duration,
    /// Bytes of each member per second it keeps whatever clients do.
    pub floor_bytes_per_second: u64,
    /// Bytes of each member per second it never goes beyond.
    pub ceiling_bytes_per_second: Option<u64>,
}

impl Default for JobPolicy {
    fn default() -> Self {
        JobPolicy {
            latency_goal: Duration::from_millis(20),
            floor_bytes_per_second: 1 << 20,
            ceiling_bytes_per_second: None,
        }
    }
}

/// How long clients are watched before the rate changes.
pub(crate) const PERIOD_NS: u64 = 100_000_000;

/// A rate grows by this share of the highest one seen, each period.
const STEPS_TO_PEAK: u64 = 32;

/// What clients saw during a period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Clients {
    /// Requests that ended.
    pub(crate) requests: u64,
    /// The sum of their latencies.
    pub(crate) waited_ns: u64,
    /// Requests under way at its end.
    pub(crate) waiting: u64,
}

/// What keeps a pass from going faster, as far as the pace knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    No,
    ByPolicy,
    ByClients,
}

/// The pace of one pass.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    policy: JobPolicy,
    /// What clients leave to it, in bytes per second.
    limit: Option<u64>,
    peak: u64,
    next_start_ns: u64,
}

impl Pace {
    pub(crate) fn new(policy: JobPolicy) -> Self {
        Pace { policy, limit: None, peak: policy.floor_bytes_per_second, next_start_ns: 0 }
    }

    /// A period has ended in which the pass reached `rate` bytes per second.
    pub(crate) fn adapt(&mut self, clients: Clients, rate: u64) {
        self.peak = self.peak.max(rate);
        if clients.requests == 0 && clients.waiting == 0 {
            self.limit = None;
            return;
        }
        let floor = self.policy.floor_bytes_per_second;
        let goal_ns = self.policy.latency_goal.as_nanos() as u64;
        // Nothing came back in a whole period: that is as slow as it gets.
        let mean_ns = clients.waited_ns.checked_div(clients.requests).unwrap_or(u64::MAX);
        self.limit = match self.limit {
            limit if mean_ns > goal_ns => {
                Some((limit.unwrap_or(rate).min(self.peak) / 2).max(floor))
            }
            None => None,
            Some(limit) => {
                let grown = limit + self.peak / STEPS_TO_PEAK + 1;
                (grown < 2 * self.peak).then_some(grown)
            }
        };
    }

    /// What it may reach now, and who says so.
    fn rate(&self) -> (Option<u64>, Held) {
        match (self.limit, self.policy.ceiling_bytes_per_second) {
            (Some(limit), ceiling) if ceiling.is_none_or(|ceiling| limit <= ceiling) => {
                (Some(limit), Held::ByClients)
            }
            (_, Some(ceiling)) => (Some(ceiling), Held::ByPolicy),
            (_, None) => (None, Held::No),
        }
    }

    /// Who holds it back.
    pub(crate) fn held(&self) -> Held {
        self.rate().1
    }

    /// When the next window of `bytes` may start; it counts as started then.
    pub(crate) fn start(&mut self, now_ns: u64, bytes: u64) -> u64 {
        let start_ns = self.next_start_ns.max(now_ns);
        let gap_ns = self.rate().0.map_or(0, |rate| {
            let gap = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
            u64::try_from(gap).unwrap_or(u64::MAX)
        });
        self.next_start_ns = start_ns.saturating_add(gap_ns);
        start_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn clients(requests: u64, mean_ms: u64, waiting: u64) -> Clients {
        Clients { requests, waited_ns: requests * mean_ms * 1_000_000, waiting }
    }

    #[test]
    fn clients_that_wait_too_long_halve_the_rate_down_to_the_floor() {
        let mut pace = Pace::new(JobPolicy::default());
        assert_eq!((pace.rate(), pace.start(5, MIB), pace.start(6, MIB)), ((None, Held::No), 5, 6));
        for expected in [50, 25, 12, 6] {
            pace.adapt(clients(10, 21, 1), 100 * MIB);
            assert_eq!(pace.rate().0.unwrap_or(0) / MIB, expected);
        }
        for _ in 0..10 {
            pace.adapt(clients(0, 0, 1), 100 * MIB);
        }
        assert_eq!(pace.rate(), (Some(MIB), Held::ByClients), "the floor stays");
        assert_eq!([pace.start(1000, MIB), pace.start(1001, MIB)], [1000, 1_000_001_000]);
    }

    #[test]
    fn it_grows_again_and_is_free_when_clients_are_gone() {
        let mut pace = Pace::new(JobPolicy::default());
        pace.adapt(clients(10, 50, 0), 64 * MIB);
        let halved = pace.limit.unwrap_or(0);
        pace.adapt(clients(10, 1, 0), 32 * MIB);
        assert_eq!(pace.limit.unwrap_or(0), halved + 2 * MIB + 1);
        pace.adapt(clients(0, 0, 0), 32 * MIB);
        assert_eq!(pace.rate(), (None, Held::No));
        pace.adapt(clients(10, 1, 0), 32 * MIB);
        assert_eq!(pace.rate(), (None, Held::No), "clients that are well served limit nothing");
    }

    #[test]
    fn the_ceiling_is_policy() {
        let ceiling_bytes_per_second = Some(10 * MIB);
        let mut pace = Pace::new(JobPolicy { ceiling_bytes_per_second, ..JobPolicy::default() });
        assert_eq!(pace.rate(), (Some(10 * MIB), Held::ByPolicy));
        pace.adapt(clients(10, 50, 0), 10 * MIB);
        assert_eq!(pace.rate(), (Some(5 * MIB), Held::ByClients));
    }
}
