//! What the last scrub found, as members keep it: a block of 4 KiB, in two slots that are written
//! in turn, with the same content on every member.
//!
//! | offset | size | field |
//! | --- | --- | --- |
//! | 0 | 8 | magic `BPLNscrb` |
//! | 8 | 4 | version: 1 |
//! | 12 | 4 | CRC-32C of all 4096 bytes, with this field as zero |
//! | 16 | 16 | set uuid |
//! | 32 | 8 | sequence: counts blocks written; its lowest bit names the slot |
//! | 40 | 1 | what it was to do: 1 check, 2 repair, 3 repair that trusts the data |
//! | 41 | 1 | how it stands: 1 under way, 2 done, 3 stopped, 4 ended by an error |
//! | 42 | 2 | findings in the list |
//! | 44 | 4 | zero |
//! | 48 | 8 | when it was started, seconds since 1970 |
//! | 56 | 8 | when this was written, seconds since 1970 |
//! | 64 | 8 | position it reached |
//! | 72 | 8 | position it ends at |
//! | 80 | 88 | eleven counters, see [`ScrubCounts`] |
//! | 168 | 88 | zero |
//! | 256 | 24 × 160 | findings, in order of position |
//!
//! A finding:
//!
//! | offset | size | field |
//! | --- | --- | --- |
//! | 0 | 8 | position |
//! | 8 | 8 | bytes |
//! | 16 | 2 | slot of the member that is wrong; `ffff` nobody can know |
//! | 18 | 1 | what: 1 mismatch, 2 unreadable, 3 lost |
//! | 19 | 1 | what was done: 1 nothing, 2 mended, 3 made to agree as told, 4 mending failed |
//! | 20 | 4 | zero |
//!
//! Everything is little-endian. Positions are bytes of each member's data area on levels with
//! parity, and bytes of the array on the others: the unit of md's resync position.

use crate::bytes::{array, put, u16_le, u32_le, u64_le};
use crate::checksum::crc32c;
use crate::md::Uuid;

/// Bytes of the block.
pub const SCRUB_BLOCK_BYTES: usize = 4096;

/// Findings the block has room for.
pub const FINDINGS_MAX: usize = (SCRUB_BLOCK_BYTES - LIST_OFFSET) / FINDING_BYTES;

const MAGIC: [u8; 8] = *b"BPLNscrb";
const VERSION: u32 = 1;
const COUNTERS_OFFSET: usize = 80;
const COUNTERS: usize = 11;
const LIST_OFFSET: usize = 256;
const FINDING_BYTES: usize = 24;
const NOBODY_KNOWS: u16 = 0xffff;

/// What a scrub was to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubKind {
    /// Compare, and change nothing.
    Check,
    /// Mend what is known to be wrong.
    Repair,
    /// Mend what is known to be wrong; where nobody can know, believe the data (of copies the
    /// first).
    RepairTrustingData,
}

/// How it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubState {
    /// Under way, or the array's service ended suddenly.
    Running,
    /// Went over everything.
    Done,
    /// Was told to stop.
    Stopped,
    /// A member that the array can't do without erred.
    Failed,
}

/// What was found at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// Redundancy does not agree.
    Mismatch,
    /// A member could not be read, and redundancy knows what it should hold.
    Unreadable,
    /// Members could not be read, and there is too little redundancy left.
    Lost,
}

/// What was done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Nothing: it is as it was found.
    Left,
    /// The wrong member was rewritten from the others, and read back.
    Mended,
    /// Nobody could know; the data was believed, as told.
    AsTold,
    /// The rewriting failed.
    Failed,
}

/// A range in which the same was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// First byte: of each member's data area with parity, of the array elsewhere.
    pub position: u64,
    /// Length in the same unit.
    pub bytes: u64,
    /// What was found.
    pub kind: FindingKind,
    /// The member that is wrong or could not be read; `None` where nobody can know.
    pub slot: Option<u16>,
    /// What was done.
    pub outcome: Outcome,
}

/// What was counted. Bytes are of positions, each counted once, however many members they
/// concern, except where members are named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubCounts {
    /// Bytes whose redundancy was compared.
    pub compared_bytes: u64,
    /// Bytes that were not: redundancy is missing there, or is still to be made to agree.
    pub skipped_bytes: u64,
    /// Bytes that disagree, in whole sectors.
    pub mismatched_bytes: u64,
    /// Stripes (of mirrors: blocks of 4 KiB, or chunks) with such bytes.
    pub mismatched_stripes: u64,
    /// Of the bytes that disagree: those in which nobody can know which member is wrong.
    pub undecided_bytes: u64,
    /// Of the bytes that disagree: those that were left as they are.
    pub unmended_bytes: u64,
    /// Bytes of members that were wrong and were rewritten; what was made to agree as told counts
    /// once.
    pub mended_bytes: u64,
    /// Bytes of members that could not be read, and are known from the others.
    pub unreadable_bytes: u64,
    /// Of these: bytes that were rewritten.
    pub rewritten_bytes: u64,
    /// Bytes that can't be read and that nothing is known of.
    pub lost_bytes: u64,
    /// Ranges found, also those that the list has no room for.
    pub findings: u64,
}

impl ScrubCounts {
    /// In the order of the block.
    fn all(&mut self) -> [&mut u64; COUNTERS] {
        [
            &mut self.compared_bytes,
            &mut self.skipped_bytes,
            &mut self.mismatched_bytes,
            &mut self.mismatched_stripes,
            &mut self.undecided_bytes,
            &mut self.unmended_bytes,
            &mut self.mended_bytes,
            &mut self.unreadable_bytes,
            &mut self.rewritten_bytes,
            &mut self.lost_bytes,
            &mut self.findings,
        ]
    }
}

/// A scrub as members remember it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrubRecord {
    /// The set.
    pub set_uuid: Uuid,
    /// The higher, the newer.
    pub sequence: u64,
    /// What it was to do.
    pub kind: ScrubKind,
    /// How it stands.
    pub state: ScrubState,
    /// When it was started, seconds since 1970.
    pub started_seconds: u64,
    /// When this was written, seconds since 1970.
    pub written_seconds: u64,
    /// What lies below was gone over.
    pub position: u64,
    /// Where it ends.
    pub end: u64,
    /// What was counted.
    pub counts: ScrubCounts,
    /// The first ranges found, in order of position; at most [`FINDINGS_MAX`] are kept.
    pub findings: Vec<Finding>,
}

/// Why bytes are no record of this set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScrubRecordError {
    /// Fewer bytes than [`SCRUB_BLOCK_BYTES`].
    #[error("needs {SCRUB_BLOCK_BYTES} bytes and has {given}")]
    TooShort {
        /// Bytes given.
        given: usize,
    },
    /// Nothing of the kind is there.
    #[error("no magic")]
    BadMagic,
    /// Damaged.
    #[error("checksum is {computed:#010x} and should be {stored:#010x}")]
    BadChecksum {
        /// As stored.
        stored: u32,
        /// As computed.
        computed: u32,
    },
    /// Written by a later version of the format.
    #[error("version {found} is not known")]
    BadVersion {
        /// The version.
        found: u32,
    },
    /// A code or count that this version does not have.
    #[error("{field} {found} is not known")]
    BadField {
        /// Which field.
        field: &'static str,
        /// Its value.
        found: u16,
    },
}

impl ScrubRecord {
    /// Reads a record, whichever set's it is.
    ///
    /// # Errors
    /// [`ScrubRecordError`]: nothing is known then.
    pub fn parse(bytes: &[u8]) -> Result<ScrubRecord, ScrubRecordError> {
        let given = bytes.len();
        let bytes = bytes.get(..SCRUB_BLOCK_BYTES).ok_or(ScrubRecordError::TooShort { given })?;
        if bytes[..8] != MAGIC {
            return Err(ScrubRecordError::BadMagic);
        }
        let (stored, computed) = (u32_le(bytes, 12), block_crc(bytes));
        if stored != computed {
            return Err(ScrubRecordError::BadChecksum { stored, computed });
        }
        let found = u32_le(bytes, 8);
        if found != VERSION {
            return Err(ScrubRecordError::BadVersion { found });
        }
        let listed = usize::from(u16_le(bytes, 42));
        if listed > FINDINGS_MAX {
            let found = u16_le(bytes, 42);
            return Err(ScrubRecordError::BadField { field: "number of findings", found });
        }
        let mut counts = ScrubCounts::default();
        for (index, counter) in counts.all().into_iter().enumerate() {
            *counter = u64_le(bytes, COUNTERS_OFFSET + 8 * index);
        }
        let list = bytes[LIST_OFFSET..].chunks_exact(FINDING_BYTES).take(listed);
        Ok(ScrubRecord {
            set_uuid: Uuid(array(bytes, 16)),
            sequence: u64_le(bytes, 32),
            kind: decode("kind", bytes[40], &KINDS)?,
            state: decode("state", bytes[41], &STATES)?,
            started_seconds: u64_le(bytes, 48),
            written_seconds: u64_le(bytes, 56),
            position: u64_le(bytes, 64),
            end: u64_le(bytes, 72),
            counts,
            findings: list.map(parse_finding).collect::<Result<_, _>>()?,
        })
    }

    /// The [`SCRUB_BLOCK_BYTES`] to write at its slot.
    #[must_use]
    pub fn build(&self) -> Vec<u8> {
        let mut bytes = vec![0; SCRUB_BLOCK_BYTES];
        put(&mut bytes, 0, &MAGIC);
        put(&mut bytes, 8, &VERSION.to_le_bytes());
        put(&mut bytes, 16, &self.set_uuid.0);
        put(&mut bytes, 32, &self.sequence.to_le_bytes());
        bytes[40] = encode(self.kind, &KINDS);
        bytes[41] = encode(self.state, &STATES);
        let listed = self.findings.len().min(FINDINGS_MAX);
        put(&mut bytes, 42, &(listed as u16).to_le_bytes());
        let fixed = [self.started_seconds, self.written_seconds, self.position, self.end];
        let mut counts = self.counts;
        let counters = counts.all().map(|counter| *counter);
        for (index, word) in fixed.into_iter().chain(counters).enumerate() {
            put(&mut bytes, 48 + 8 * index, &word.to_le_bytes());
        }
        for (index, finding) in self.findings.iter().take(listed).enumerate() {
            let at = LIST_OFFSET + FINDING_BYTES * index;
            put(&mut bytes, at, &finding.position.to_le_bytes());
            put(&mut bytes, at + 8, &finding.bytes.to_le_bytes());
            put(&mut bytes, at + 16, &finding.slot.unwrap_or(NOBODY_KNOWS).to_le_bytes());
            bytes[at + 18] = encode(finding.kind, &FINDING_KINDS);
            bytes[at + 19] = encode(finding.outcome, &OUTCOMES);
        }
        let crc = block_crc(&bytes);
        put(&mut bytes, 12, &crc.to_le_bytes());
        bytes
    }

    /// Which of the two slots it is written to.
    #[must_use]
    pub fn slot(&self) -> u64 {
        self.sequence & 1
    }
}

/// Codes count from 1, in these orders.
const KINDS: [ScrubKind; 3] = [ScrubKind::Check, ScrubKind::Repair, ScrubKind::RepairTrustingData];
const STATES: [ScrubState; 4] =
    [ScrubState::Running, ScrubState::Done, ScrubState::Stopped, ScrubState::Failed];
const FINDING_KINDS: [FindingKind; 3] =
    [FindingKind::Mismatch, FindingKind::Unreadable, FindingKind::Lost];
const OUTCOMES: [Outcome; 4] = [Outcome::Left, Outcome::Mended, Outcome::AsTold, Outcome::Failed];

fn encode<T: PartialEq + Copy>(value: T, codes: &[T]) -> u8 {
    let index = codes.iter().position(|code| *code == value).unwrap_or(codes.len());
    index as u8 + 1
}

fn decode<T: Copy>(field: &'static str, code: u8, codes: &[T]) -> Result<T, ScrubRecordError> {
    let index = usize::from(code).checked_sub(1);
    let value = index.and_then(|index| codes.get(index)).copied();
    value.ok_or(ScrubRecordError::BadField { field, found: code.into() })
}

fn parse_finding(bytes: &[u8]) -> Result<Finding, ScrubRecordError> {
    let slot = u16_le(bytes, 16);
    Ok(Finding {
        position: u64_le(bytes, 0),
        bytes: u64_le(bytes, 8),
        kind: decode("kind of a finding", bytes[18], &FINDING_KINDS)?,
        slot: (slot != NOBODY_KNOWS).then_some(slot),
        outcome: decode("outcome of a finding", bytes[19], &OUTCOMES)?,
    })
}

fn block_crc(bytes: &[u8]) -> u32 {
    crc32c(&[&bytes[..12], &[0; 4], &bytes[16..]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(findings: usize) -> ScrubRecord {
        let finding = |index: usize| Finding {
            position: index as u64 * 65536,
            bytes: 512,
            kind: FINDING_KINDS[index % 3],
            slot: (index % 2 == 1).then_some(index as u16),
            outcome: OUTCOMES[index % 4],
        };
        let mut counts = ScrubCounts::default();
        for (index, counter) in counts.all().into_iter().enumerate() {
            *counter = 1 << (4 * index);
        }
        ScrubRecord {
            set_uuid: Uuid(*b"0123456789abcdef"),
            sequence: 7,
            kind: ScrubKind::Repair,
            state: ScrubState::Done,
            started_seconds: 1_700_000_000,
            written_seconds: 1_700_000_123,
            position: 1 << 30,
            end: 1 << 30,
            counts,
            findings: (0..findings).map(finding).collect(),
        }
    }

    #[test]
    fn build_and_parse_are_inverse() {
        for findings in [0, 1, 12, FINDINGS_MAX] {
            let record = record(findings);
            assert_eq!(ScrubRecord::parse(&record.build()), Ok(record));
        }
        let more = ScrubRecord::parse(&record(FINDINGS_MAX + 5).build());
        assert_eq!(more, Ok(record(FINDINGS_MAX)), "the first ones are kept");
    }

    #[test]
    fn bytes_are_as_the_tables_say() {
        let bytes = record(2).build();
        assert_eq!(&bytes[..12], b"BPLNscrb\x01\0\0\0");
        assert_eq!(&bytes[16..32], b"0123456789abcdef");
        assert_eq!(bytes[32..44], [7, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 0]);
        assert_eq!(bytes[80], 1, "compared");
        assert_eq!(bytes[96..98], [0, 1], "mismatched");
        assert_eq!(bytes[160..168], [0, 0, 0, 0, 0, 1, 0, 0], "findings");
        assert_eq!(bytes[272..280], [0xff, 0xff, 1, 1, 0, 0, 0, 0]);
        assert_eq!(bytes[280..290], [0, 0, 1, 0, 0, 0, 0, 0, 0, 2]);
        assert_eq!(bytes[296..300], [1, 0, 2, 2]);
        assert_eq!(LIST_OFFSET + FINDINGS_MAX * FINDING_BYTES, SCRUB_BLOCK_BYTES);
    }

    #[test]
    fn damage_and_other_bytes_are_refused() {
        let good = record(3).build();
        for at in 0..SCRUB_BLOCK_BYTES {
            let mut bytes = good.clone();
            bytes[at] ^= 0x40;
            assert!(ScrubRecord::parse(&bytes).is_err(), "byte {at}");
        }
        assert_eq!(ScrubRecord::parse(&good[1..]), Err(ScrubRecordError::TooShort { given: 4095 }));
        assert_eq!(ScrubRecord::parse(&[0; 4096]), Err(ScrubRecordError::BadMagic));
        for (at, field) in [(40, "kind"), (41, "state"), (43, "number of findings")] {
            let mut bytes = good.clone();
            bytes[at] = 9;
            let crc = block_crc(&bytes);
            put(&mut bytes, 12, &crc.to_le_bytes());
            let refused = ScrubRecord::parse(&bytes);
            let named =
                matches!(refused, Err(ScrubRecordError::BadField { field: it, .. }) if it == field);
            assert!(named, "{refused:?}");
        }
    }
}
