//! What the last check or repair found, as every command shows it.

use array::{FindingKind, Holds, Outcome, ScrubKind, ScrubState, ScrubStatus};
use serde::{Deserialize, Serialize};

use crate::values::{date, exact_size};

/// Findings that words list one by one; JSON has as many as the engine keeps.
const SHOWN: usize = 10;

/// What was done about a finding that is well now.
pub const DONE_WELL: [&str; 2] = ["mended", "made to agree as told"];

/// A check or repair as it stands, or as it ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the field's own words; units are in the names")]
pub struct Scrub {
    pub kind: String,
    pub state: String,
    pub started_unix_s: u64,
    pub recorded_unix_s: u64,
    pub position_bytes: u64,
    pub end_bytes: u64,
    pub compared_bytes: u64,
    /// Redundancy is missing there, or is still to be made to agree.
    pub skipped_bytes: u64,
    pub mismatched_bytes: u64,
    pub mismatched_stripes: u64,
    /// Nobody can know which member is wrong there.
    pub undecided_bytes: u64,
    /// Left as they are.
    pub unmended_bytes: u64,
    pub mended_bytes: u64,
    pub unreadable_bytes: u64,
    /// The first ones, by position.
    pub findings: Vec<Finding>,
}

/// A range in which redundancy does not agree, or could not be read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the field's own words; units are in the names")]
pub struct Finding {
    pub what: String,
    pub array_offset: u64,
    pub bytes: u64,
    pub stripe: Option<u64>,
    /// Who is wrong, or could not be read; `None`: nobody can know.
    pub slot: Option<usize>,
    pub done: String,
    /// Who holds something there.
    pub members: Vec<Place>,
}

/// What a member holds of a finding, and where.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the field's own words; units are in the names")]
pub struct Place {
    pub slot: usize,
    pub holds: String,
    pub drive_offset: Option<u64>,
}

impl From<&ScrubStatus> for Scrub {
    fn from(scrub: &ScrubStatus) -> Self {
        let counts = &scrub.counts;
        Scrub {
            kind: match scrub.kind {
                ScrubKind::Check => "check",
                ScrubKind::Repair => "repair",
                ScrubKind::RepairTrustingData => "repair that trusts the data",
            }
            .to_owned(),
            state: match scrub.state {
                ScrubState::Running => "under way",
                ScrubState::Done => "done",
                ScrubState::Stopped => "stopped",
                ScrubState::Failed => "failed",
            }
            .to_owned(),
            started_unix_s: scrub.started_seconds,
            recorded_unix_s: scrub.recorded_seconds,
            position_bytes: scrub.position_bytes,
            end_bytes: scrub.end_bytes,
            compared_bytes: counts.compared_bytes,
            skipped_bytes: counts.skipped_bytes,
            mismatched_bytes: counts.mismatched_bytes,
            mismatched_stripes: counts.mismatched_stripes,
            undecided_bytes: counts.undecided_bytes,
            unmended_bytes: counts.unmended_bytes,
            mended_bytes: counts.mended_bytes,
            unreadable_bytes: counts.unreadable_bytes,
            findings: scrub.findings.iter().map(Finding::from).collect(),
        }
    }
}

impl From<&array::Mismatch> for Finding {
    fn from(found: &array::Mismatch) -> Self {
        let places = found.members.iter().map(|member| Place {
            slot: member.slot,
            holds: match member.holds {
                Holds::Data { .. } => "data",
                Holds::P => "P",
                Holds::Q => "Q",
            }
            .to_owned(),
            drive_offset: member.drive_offset,
        });
        Finding {
            what: match found.kind {
                FindingKind::Mismatch => "mismatch",
                FindingKind::Unreadable => "unreadable",
                FindingKind::Lost => "lost",
            }
            .to_owned(),
            array_offset: found.array_offset,
            bytes: found.bytes,
            stripe: found.stripe,
            slot: found.slot,
            done: match found.outcome {
                Outcome::Left => "left as it is",
                Outcome::Mended => DONE_WELL[0],
                Outcome::AsTold => DONE_WELL[1],
                Outcome::Failed => "mending failed",
            }
            .to_owned(),
            members: places.collect(),
        }
    }
}

impl Scrub {
    /// A line for the whole, and one for each of the first findings.
    pub fn words(&self) -> Vec<String> {
        let when = date(self.started_unix_s);
        let mut head = format!("{} of {when} {}", self.kind, self.state);
        if self.mismatched_bytes == 0 {
            head.push_str(&format!(": no mismatch in {}", exact_size(self.compared_bytes)));
        } else {
            head.push_str(&format!(
                ": {} bytes in {} stripes disagree of {}",
                self.mismatched_bytes,
                self.mismatched_stripes,
                exact_size(self.compared_bytes)
            ));
        }
        let counts = [
            (self.undecided_bytes, "where nobody can know which member is wrong"),
            (self.mended_bytes, "mended"),
            (self.unmended_bytes, "left as they are"),
            (self.unreadable_bytes, "could not be read"),
            (self.skipped_bytes, "not compared"),
        ];
        for (bytes, what) in counts.iter().filter(|(bytes, _)| *bytes > 0) {
            head.push_str(&format!(", {bytes} {what}"));
        }
        let mut lines = vec![head];
        lines.extend(self.findings.iter().take(SHOWN).map(Finding::words));
        if self.findings.len() > SHOWN {
            lines.push(format!("and {} more places (--json)", self.findings.len() - SHOWN));
        }
        lines
    }
}

impl Finding {
    fn words(&self) -> String {
        let who = match self.slot {
            Some(slot) => format!("slot:{slot} is wrong"),
            None => {
                let slots: Vec<_> =
                    self.members.iter().map(|member| format!("slot:{}", member.slot)).collect();
                format!("one of {}", slots.join(" "))
            }
        };
        let Finding { what, array_offset, bytes, done, .. } = self;
        format!("{what}: {bytes} bytes at byte {array_offset}, {who}, {done}")
    }
}
