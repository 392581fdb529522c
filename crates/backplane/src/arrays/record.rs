//! The records an array keeps of writes in flight, as every command shows them: bitmap, partial
//! parity log, journal.

use array::{BitmapStatus, Status};
use format::md::{ConsistencyPlace, MemberView, Verdict};
use serde::{Deserialize, Serialize};

use crate::scene::Found;
use crate::values::exact_size;

/// A write-intent bitmap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the field's own words; units are in the names")]
pub struct Bitmap {
    /// What a bit stands for.
    pub chunk_bytes: u64,
    pub chunks: u64,
    /// Chunks that are being written, or that a missing member may lack.
    pub dirty_chunks: u64,
    /// Chunks whose redundancy may not agree.
    pub unsynced_chunks: u64,
    /// Event of the array when bits were last cleared: members that left later may come back.
    pub events_cleared: u64,
}

/// A partial parity log, on every member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartialParityLog {
    /// Bytes of it on each member.
    pub member_bytes: u64,
    /// Whether it is a ring of several logs.
    pub multiple: bool,
}

/// A journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    /// Its drive; `None` where that is missing.
    pub drive: Option<String>,
    /// What ended it, and with it the array's writes.
    pub failure: Option<String>,
}

impl From<&BitmapStatus> for Bitmap {
    fn from(bitmap: &BitmapStatus) -> Self {
        Bitmap {
            chunk_bytes: bitmap.chunk_bytes,
            chunks: bitmap.chunks,
            dirty_chunks: bitmap.dirty_chunks,
            unsynced_chunks: bitmap.unsynced_chunks,
            events_cleared: bitmap.events_cleared,
        }
    }
}

impl Bitmap {
    /// `64 MiB a bit, 3 of 120 dirty`.
    pub fn words(&self) -> String {
        let chunk = lab::units::size(self.chunk_bytes);
        let dirty = format!("{chunk} a bit, {} of {} dirty", self.dirty_chunks, self.chunks);
        match self.unsynced_chunks {
            0 => dirty,
            unsynced => format!("{dirty}, {unsynced} to be resynced"),
        }
    }
}

impl PartialParityLog {
    /// The one that a member tells of.
    pub fn of(view: &MemberView) -> Option<Self> {
        let ConsistencyPlace::Ppl { range, multiple } = view.consistency else { return None };
        Some(PartialParityLog { member_bytes: range.length, multiple })
    }

    /// `1 MiB on each member`.
    pub fn words(&self) -> String {
        format!("{} on each member", exact_size(self.member_bytes))
    }
}

impl Journal {
    /// That of an array, in the state the engine has it in where that is known.
    pub fn of(found: &Found<'_>, status: Option<&Status>) -> Option<Self> {
        if found.view().consistency != ConsistencyPlace::Journal {
            return None;
        }
        let mut verdicts = found.assembly().verdicts.iter();
        let journal = verdicts.find(|(_, verdict)| *verdict == Verdict::Journal);
        let failure = status.and_then(|status| status.journal_failure.as_ref());
        Some(Journal {
            drive: journal.map(|(index, _)| found.drive_name(*index)),
            failure: failure.map(ToString::to_string),
        })
    }

    /// `d3`, or what is the matter with it.
    pub fn words(&self) -> String {
        let drive = self.drive.as_deref().unwrap_or("its drive is missing");
        let failed = self.failure.as_ref().map_or(String::new(), |why| format!(", failed: {why}"));
        format!("{drive}{failed}")
    }
}
