//! The one typed state of an array that every surface shows.

use drive::DriveError;

use crate::bitmap::BitmapStatus;
use crate::checksums::ChecksumStatus;
use crate::core::Core;
use crate::job_status::{JobEnd, JobKind, JobStatus};
use crate::lost;
use crate::metadata::Failure;
use crate::mismatch::ScrubStatus;
use crate::slot::{Slot, SlotState};

/// How the array as a whole is: the worst of what is true of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// Every member is there, all of each can be read, and redundancy agrees.
    Healthy,
    /// ... and nothing can be written.
    ReadOnly,
    /// ... and copies and parity are being compared.
    Checking,
    /// All members and all data are there, and somewhere it takes fewer losses than the level
    /// promises to lose some: stripes a resync had to leave, blocks that can't be read,
    /// mismatches that a scrub found and nobody has mended. Or the journal has failed, and nothing
    /// is written any more.
    UnderProtected,
    /// All data is there and copies or parity are still to be made to agree.
    Resyncing,
    /// All data is there, with less redundancy than the level has.
    Degraded,
    /// A member is being filled.
    Rebuilding,
    /// Some of the data is lost; the rest is served.
    LostStripes,
    /// Too few members are left.
    Failed,
}

impl Health {
    /// Every one, the best first.
    pub const ALL: [Health; 9] = [
        Health::Healthy,
        Health::ReadOnly,
        Health::Checking,
        Health::UnderProtected,
        Health::Resyncing,
        Health::Degraded,
        Health::Rebuilding,
        Health::LostStripes,
        Health::Failed,
    ];

    /// The word every surface uses.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Health::Healthy => "healthy",
            Health::ReadOnly => "read-only",
            Health::Checking => "checking",
            Health::UnderProtected => "under-protected",
            Health::Resyncing => "resyncing",
            Health::Degraded => "degraded",
            Health::Rebuilding => "rebuilding",
            Health::LostStripes => "lost stripes",
            Health::Failed => "failed",
        }
    }

    /// Nobody has to do anything: all is well, or will be by itself.
    #[must_use]
    pub fn is_fine(self) -> bool {
        matches!(self, Health::Healthy | Health::ReadOnly | Health::Checking | Health::Resyncing)
    }

    fn of(signs: &Signs) -> Health {
        match signs {
            Signs { survives: false, .. } => Health::Failed,
            Signs { lost_bytes: 1.., .. } => Health::LostStripes,
            Signs { job: Some(JobKind::Rebuild | JobKind::Replace), .. } => Health::Rebuilding,
            Signs { missing: true, .. } => Health::Degraded,
            Signs { job: Some(JobKind::Resync), .. }
            | Signs { synced: false, given_up: false, .. } => Health::Resyncing,
            Signs { synced: false, .. }
            | Signs { unsynced_stripes: 1.., .. }
            | Signs { mismatched_bytes: 1.., .. }
            | Signs { bad_bytes: 1.., .. }
            | Signs { log_failed: true, .. } => Health::UnderProtected,
            Signs { job: Some(JobKind::Check | JobKind::Repair), .. } => Health::Checking,
            Signs { read_only: true, .. } => Health::ReadOnly,
            _ => Health::Healthy,
        }
    }
}

/// What an array's health is told by.
#[derive(Debug, Clone, Copy)]
struct Signs {
    /// The members that are in sync hold all data.
    survives: bool,
    /// A slot has no member that is in sync.
    missing: bool,
    synced: bool,
    /// The last resync failed.
    given_up: bool,
    unsynced_stripes: u64,
    bad_bytes: u64,
    lost_bytes: u64,
    /// Found by the last scrub, and left as they are.
    mismatched_bytes: u64,
    /// The journal has failed: writes are refused.
    log_failed: bool,
    job: Option<JobKind>,
    read_only: bool,
}

/// One slot as it stands.
#[derive(Debug, Clone)]
pub struct SlotStatus {
    /// The drive's name, where one is there.
    pub drive: Option<String>,
    /// What it is good for.
    pub state: SlotState,
    /// The drive that is to replace its member, while it is filled.
    pub replacement: Option<String>,
    /// It does not answer in time: the others are asked first.
    pub late: bool,
    /// Bytes its bad-block log lists as unreadable.
    pub bad_bytes: u64,
    /// Reads it could not answer since the array was opened.
    pub read_errors: u64,
    /// Blocks of 4 KiB that were not what their checksums say, since the array was opened.
    pub wrong_blocks: u64,
}

/// An array as it stands.
#[derive(Debug, Clone)]
pub struct Status {
    /// The array's name.
    pub name: String,
    /// How it is.
    pub health: Health,
    /// Nothing can be written: it was opened so, or its journal has failed.
    pub read_only: bool,
    /// What ended its journal, and with it its writes.
    pub journal_failure: Option<DriveError>,
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
    /// Its write-intent bitmap, where it keeps one.
    pub bitmap: Option<BitmapStatus>,
    /// What the checksums of its data are worth; `None` where it keeps none.
    pub checksums: Option<ChecksumStatus>,
    /// Its slots, in order.
    pub slots: Vec<SlotStatus>,
    /// Spares at hand.
    pub spares: usize,
    /// The background job under way.
    pub job: Option<JobStatus>,
    /// The background job that ended last, since the array was opened.
    pub last_job: Option<JobStatus>,
    /// The last scrub, or the one under way; `None`: there was none, and nothing is known.
    pub scrub: Option<ScrubStatus>,
    /// Members that failed while it was open.
    pub failures: Vec<Failure>,
}

impl Status {
    pub(crate) fn of(core: &Core) -> Self {
        let missing = core.missing();
        let synced_to = core.synced_to.get();
        let bad = |slot: &Slot| slot.member().map_or(0, |member| member.bad.total_bytes());
        let job = core.jobs.status(core);
        let last_job = core.jobs.last();
        let failed = |job: &JobStatus| {
            job.kind == JobKind::Resync && matches!(job.end, Some(JobEnd::Failed { .. }))
        };
        let scrub = ScrubStatus::of(core);
        let health = Health::of(&Signs {
            survives: core.geometry.survives(&missing),
            missing: missing.contains(&true),
            synced: synced_to == u64::MAX,
            given_up: last_job.as_ref().is_some_and(failed),
            unsynced_stripes: core.unsynced.count(),
            bad_bytes: core.slots.iter().map(bad).sum(),
            lost_bytes: lost_bytes(core, scrub.as_ref()),
            mismatched_bytes: scrub.as_ref().map_or(0, |scrub| scrub.counts.unmended_bytes),
            job: job.as_ref().map(|job| job.kind),
            log_failed: core.log.failure().is_some(),
            read_only: core.facts.read_only,
        });
        let read_errors = core.metadata.read_errors();
        let slots = core.slots.iter().zip(read_errors).map(|(slot, read_errors)| SlotStatus {
            drive: slot.member().map(|member| member.drive.facts().name.to_string()),
            state: slot.state(),
            replacement: slot
                .replacement()
                .map(|replacement| replacement.member.drive.facts().name.to_string()),
            late: slot.lateness.late(),
            bad_bytes: bad(slot),
            read_errors,
            wrong_blocks: slot
                .member()
                .and_then(|member| Some(member.sums.as_ref()?.wrong_blocks()))
                .unwrap_or(0),
        });
        Status {
            name: core.facts.name.to_string(),
            health,
            read_only: core.facts.read_only || core.log.failure().is_some(),
            journal_failure: core.log.failure().cloned(),
            dirty: core.metadata.dirty(),
            events: core.metadata.events(),
            synced_to_bytes: (synced_to != u64::MAX).then_some(synced_to),
            unsynced_stripes: core.unsynced.count(),
            bitmap: core.bitmap.as_ref().map(|bitmap| bitmap.status()),
            checksums: core.checksum_status(),
            slots: slots.collect(),
            spares: core.metadata.spare_count(),
            job,
            last_job,
            scrub,
            failures: core.metadata.failures(),
        }
    }
}

/// What jobs found to be lost since the array was opened, the last scrub ever, or the members'
/// logs tell: the same bytes, so the most counts.
fn lost_bytes(core: &Core, scrub: Option<&ScrubStatus>) -> u64 {
    let by_scrub = scrub.map_or(0, |scrub| scrub.counts.lost_bytes);
    core.jobs.lost_bytes().max(lost::lost_bytes(core)).max(by_scrub)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_sign_decides_and_nothing_doubtful_is_healthy() {
        let fine = Signs {
            survives: true,
            missing: false,
            synced: true,
            given_up: false,
            unsynced_stripes: 0,
            bad_bytes: 0,
            lost_bytes: 0,
            mismatched_bytes: 0,
            log_failed: false,
            job: None,
            read_only: false,
        };
        let rebuild = Some(JobKind::Rebuild);
        let table = [
            (fine, Health::Healthy),
            (Signs { read_only: true, ..fine }, Health::ReadOnly),
            (Signs { job: Some(JobKind::Check), read_only: true, ..fine }, Health::Checking),
            (Signs { unsynced_stripes: 1, ..fine }, Health::UnderProtected),
            (Signs { mismatched_bytes: 512, ..fine }, Health::UnderProtected),
            (Signs { log_failed: true, ..fine }, Health::UnderProtected),
            (Signs { bad_bytes: 512, read_only: true, ..fine }, Health::UnderProtected),
            (Signs { synced: false, ..fine }, Health::Resyncing),
            (Signs { synced: false, given_up: true, ..fine }, Health::UnderProtected),
            (Signs { missing: true, bad_bytes: 512, synced: false, ..fine }, Health::Degraded),
            (Signs { missing: true, job: rebuild, ..fine }, Health::Rebuilding),
            (Signs { missing: true, job: rebuild, lost_bytes: 1, ..fine }, Health::LostStripes),
            (Signs { survives: false, lost_bytes: 1, ..fine }, Health::Failed),
        ];
        for (signs, expected) in table {
            assert_eq!(Health::of(&signs), expected, "{signs:?}");
        }
    }
}
