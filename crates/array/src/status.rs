//! The one typed state of an array that every surface shows.

use crate::core::Core;
use crate::metadata::Failure;
use crate::slot::SlotState;

/// How the array as a whole is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// Every member is there and redundancy agrees.
    Healthy,
    /// All data is there and copies or parity are still being made to agree.
    Resyncing,
    /// All data is there, with less redundancy than the level has.
    Degraded,
    /// Data is missing.
    Failed,
}

impl Health {
    /// The word every surface uses.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Health::Healthy => "healthy",
            Health::Resyncing => "resyncing",
            Health::Degraded => "degraded",
            Health::Failed => "failed",
        }
    }
}

/// One slot as it stands.
#[derive(Debug, Clone)]
pub struct SlotStatus {
    /// The drive's name, where one is there.
    pub drive: Option<String>,
    /// What it is good for.
    pub state: SlotState,
    /// Bytes its bad-block log lists as unreadable.
    pub bad_bytes: u64,
    /// Reads it could not answer since the array was opened.
    pub read_errors: u64,
}

/// An array as it stands.
#[derive(Debug, Clone)]
pub struct Status {
    /// The array's name.
    pub name: String,
    /// How it is.
    pub health: Health,
    /// Nothing can be written.
    pub read_only: bool,
    /// Writes are under way, or were a moment ago.
    pub dirty: bool,
    /// Event count of its superblocks.
    pub events: u64,
    /// Bytes of each member (raid10: of the array) below which redundancy agrees; `None` where it
    /// does everywhere.
    pub synced_to_bytes: Option<u64>,
    /// Stripes (or runs of copies) that a resync had to leave as they are, since nothing readable
    /// was left to compare.
    pub unsynced_stripes: u64,
    /// Its slots, in order.
    pub slots: Vec<SlotStatus>,
    /// Spares at hand.
    pub spares: usize,
    /// Members that failed while it was open.
    pub failures: Vec<Failure>,
}

impl Status {
    pub(crate) fn of(core: &Core) -> Self {
        let missing = core.missing();
        let synced_to = core.synced_to.get();
        let health = if !core.geometry.survives(&missing) {
            Health::Failed
        } else if missing.contains(&true) {
            Health::Degraded
        } else if synced_to != u64::MAX {
            Health::Resyncing
        } else {
            Health::Healthy
        };
        let read_errors = core.metadata.read_errors();
        let slots = core.slots.iter().zip(read_errors).map(|(slot, read_errors)| SlotStatus {
            drive: slot.member().map(|member| member.drive.facts().name.to_string()),
            state: slot.state(),
            bad_bytes: slot.member().map_or(0, |member| member.bad.borrow().total_bytes()),
            read_errors,
        });
        Status {
            name: core.facts.name.to_string(),
            health,
            read_only: core.facts.read_only,
            dirty: core.metadata.dirty(),
            events: core.metadata.events(),
            synced_to_bytes: (synced_to != u64::MAX).then_some(synced_to),
            unsynced_stripes: core.unsynced_stripes.get(),
            slots: slots.collect(),
            spares: core.metadata.spare_count(),
            failures: core.metadata.failures(),
        }
    }
}
