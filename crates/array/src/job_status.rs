//! What is known of a background job: how far, how fast, what limits it, what it could not do.

use std::time::Duration;

/// What a background pass is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobKind {
    /// Makes copies and parity agree.
    Resync,
    /// Fills a member that took an empty slot.
    Rebuild,
    /// Fills a member that is to take over from one that still serves.
    Replace,
    /// Compares copies and parity, and changes nothing.
    Check,
    /// Compares them and mends what differs.
    Repair,
}

impl JobKind {
    /// The word every surface uses.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            JobKind::Resync => "resync",
            JobKind::Rebuild => "rebuild",
            JobKind::Replace => "replace",
            JobKind::Check => "check",
            JobKind::Repair => "repair",
        }
    }
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobEnd {
    /// Everything is as it should be.
    Done,
    /// It went over everything, and its losses could not be helped.
    DoneWithLoss,
    /// Somebody, or something more urgent, stopped it; it goes on where it was.
    Stopped,
    /// It could not go on.
    Failed {
        /// Why.
        reason: String,
    },
}

impl JobEnd {
    /// The words every surface uses.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            JobEnd::Done => "done",
            JobEnd::DoneWithLoss => "done with loss",
            JobEnd::Stopped => "stopped",
            JobEnd::Failed { .. } => "failed",
        }
    }
}

/// What keeps a job from going faster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Limiter {
    /// The highest rate it may have.
    Policy,
    /// Clients, whose latency comes first.
    Clients,
    /// The drive that answers last; its name, once it is known.
    SlowestDrive(Option<String>),
    /// Computing parity.
    Processor,
}

impl Limiter {
    /// The words every surface uses.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Limiter::Policy => "policy",
            Limiter::Clients => "clients",
            Limiter::SlowestDrive(_) => "slowest drive",
            Limiter::Processor => "processor",
        }
    }
}

/// Bytes of the array that a job could not bring in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// Where, in bytes of the array.
    pub array_offset: u64,
    /// How many.
    pub bytes: u64,
}

/// A background job as it stands, or as it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobStatus {
    /// What it is for.
    pub kind: JobKind,
    /// The slot it fills, where it fills one.
    pub slot: Option<usize>,
    /// Everything before this is done: bytes of each member, or of the array where copies are
    /// resynced.
    pub position_bytes: u64,
    /// Where it ends, in the same measure.
    pub end_bytes: u64,
    /// How fast the position moved lately.
    pub rate_bytes_per_second: u64,
    /// How long it takes at that rate; `None` while nothing is known.
    pub time_left: Option<Duration>,
    /// What keeps it from going faster.
    pub limiter: Limiter,
    /// What it could not do, by array offset; at most [`JobStatus::LOSSES_MAX`].
    pub losses: Vec<Loss>,
    /// How much that is, the ones not listed included.
    pub lost_bytes: u64,
    /// How it ended, once it has.
    pub end: Option<JobEnd>,
}

impl JobStatus {
    /// Losses listed one by one; more are only counted.
    pub const LOSSES_MAX: usize = 1000;
}

/// Losses as they come in: neighbours joined, a bounded number.
#[derive(Debug, Clone, Default)]
pub(crate) struct Losses {
    list: Vec<Loss>,
    total_bytes: u64,
}

impl Losses {
    pub(crate) fn add(&mut self, loss: Loss) {
        self.total_bytes += loss.bytes;
        let follows = |last: &&mut Loss| last.array_offset + last.bytes == loss.array_offset;
        if let Some(last) = self.list.last_mut().filter(follows) {
            last.bytes += loss.bytes;
        } else if self.list.len() < JobStatus::LOSSES_MAX {
            self.list.push(loss);
        }
    }

    /// By array offset.
    pub(crate) fn list(&self) -> Vec<Loss> {
        let mut list = self.list.clone();
        list.sort_unstable_by_key(|loss| loss.array_offset);
        list
    }

    pub(crate) fn total_bytes(&self) -> u64 {
        self.total_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_join_and_the_list_has_an_end() {
        let mut losses = Losses::default();
        for array_offset in [8192, 0, 4096] {
            losses.add(Loss { array_offset, bytes: 4096 });
        }
        let joined = [(0, 8192), (8192, 4096)];
        assert_eq!(
            losses.list().iter().map(|l| (l.array_offset, l.bytes)).collect::<Vec<_>>(),
            joined
        );
        for index in 0..2000 {
            losses.add(Loss { array_offset: 100_000 + index * 1024, bytes: 512 });
        }
        assert_eq!(losses.list().len(), JobStatus::LOSSES_MAX);
        assert_eq!(losses.total_bytes(), 3 * 4096 + 2000 * 512);
    }
}
