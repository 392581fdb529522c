//! What [`decide`](super::decide) is given and what it answers.

use core::fmt;

use super::member::MemberView;
use super::types::{Features, Level, Uuid};
use super::validate::Implausible;

/// One superblock found on one drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The caller's number of the drive; a drive may carry several superblocks.
    pub drive: usize,
    /// What the superblock says.
    pub view: MemberView,
    /// Why it cannot be true on this drive, if so.
    pub implausible: Option<Implausible>,
}

/// What a candidate is in its set. Indexes are into the slice given to [`decide`](super::decide).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Holds the slot's data.
    InSync {
        /// Its slot.
        slot: u16,
    },
    /// Holds the slot's data below a byte of its data area; the rest is to be rebuilt.
    Recovering {
        /// Its slot.
        slot: u16,
        /// Valid below this byte.
        to_bytes: u64,
    },
    /// Is being filled to replace the holder of a slot.
    Replacement {
        /// The slot.
        slot: u16,
        /// Valid below this byte; `None`: everywhere.
        to_bytes: Option<u64>,
    },
    /// Holds nothing and waits.
    Spare,
    /// Carries the journal.
    Journal,
    /// Marked faulty in its own superblock.
    Faulty,
    /// Current, but the slot it claims is lost according to the reference.
    Ejected {
        /// The slot it claims.
        slot: u16,
        /// The reference.
        by: usize,
    },
    /// Left the set before the others went on: its content is old.
    Stale {
        /// The slot it claims; `None` for an old journal.
        slot: Option<u16>,
        /// Its event count.
        events: u64,
        /// The newest.
        newest: u64,
    },
    /// Belongs to another side of a split brain.
    SplitBrain {
        /// Index into the sides.
        side: usize,
    },
    /// The same member again: a clone, or a second path to it.
    DuplicateOf {
        /// The candidate that counts.
        candidate: usize,
    },
    /// Claims the same slot as another, equally new.
    DoubleClaim {
        /// The slot.
        slot: u16,
        /// The other.
        candidate: usize,
    },
    /// Describes another shape of the set at the same event count.
    Conflicting {
        /// The reference.
        with: usize,
    },
    /// Its slot or device number does not exist in the reference.
    Foreign,
    /// An older superblock on a drive that has a newer one.
    Ghost {
        /// The newer one.
        newer: usize,
    },
    /// The drive is smaller than its superblock says: copied, or its end is hidden.
    TooSmall {
        /// By this much.
        missing_bytes: u64,
    },
    /// The superblock cannot be true on this drive.
    Damaged(Implausible),
    /// A superblock wiped to nothing: no uuid or no members.
    Blank,
}

/// Members of a split brain that went on together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// The candidates.
    pub candidates: Vec<usize>,
    /// Its newest superblock.
    pub reference: usize,
    /// Its event count.
    pub events: u64,
}

/// Why a set is not started although its members are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nothing but ghosts, damaged or blank superblocks.
    NothingUsable,
    /// A feature bit this crate does not know: the data may not be where it seems.
    UnknownFeatures(Features),
    /// Other machines may have the set open.
    Clustered,
    /// A level that is not an array of data.
    UnsupportedLevel(Level),
    /// Two members describe different shapes at the same event count.
    ConflictingShape {
        /// One.
        candidate: usize,
        /// The other.
        other: usize,
    },
    /// Two members hold the same slot at the same event count, written at different times.
    DoubleClaim {
        /// The slot.
        slot: u16,
        /// One.
        candidate: usize,
        /// The other.
        other: usize,
    },
    /// The journal is missing or old, and may hold the only copy of some writes.
    JournalMissing,
    /// A degraded parity set that was not shut down and has no log: the blocks of the missing
    /// member in the stripes that were being written are lost.
    DirtyDegraded,
}

/// What can be done with a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArrayState {
    /// It runs; degraded if any slot is missing or recovering.
    Startable,
    /// It runs, in two shapes at once until the reshape is finished.
    Reshaping {
        /// Array byte the reshape has reached.
        position_bytes: u64,
    },
    /// Too few current members.
    Incomplete {
        /// Stale members that would complete it, the least old first; empty if even they are too
        /// few. Taking them back risks old content where the set was written since.
        forced: Vec<usize>,
    },
    /// Its members went on in separate sides.
    SplitBrain {
        /// The sides, the one with most events first.
        sides: Vec<Side>,
    },
    /// It is not started without being told to.
    Refused(Refusal),
}

/// One set and the verdict on every candidate that names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assembly {
    /// The set.
    pub set_uuid: Uuid,
    /// The candidate whose superblock is trusted: name, level, events, resync and reshape are
    /// read there.
    pub reference: usize,
    /// Every candidate of the set, in the order given, and what it is.
    pub verdicts: Vec<(usize, Verdict)>,
    /// Per slot of the set (of the larger shape while reshaping) its member, in sync or
    /// recovering.
    pub slots: Vec<Option<usize>>,
    /// What can be done.
    pub state: ArrayState,
}

impl Assembly {
    /// Slots without a member.
    pub fn missing(&self) -> Vec<u16> {
        (0..)
            .zip(&self.slots)
            .filter(|(_, member)| member.is_none())
            .map(|(slot, _)| slot)
            .collect()
    }

    /// The verdict on a candidate of this set.
    pub fn verdict(&self, candidate: usize) -> Option<Verdict> {
        self.verdicts.iter().find(|(index, _)| *index == candidate).map(|&(_, verdict)| verdict)
    }

    /// True if every slot has a member in sync.
    pub fn is_whole(&self) -> bool {
        self.slots.iter().flatten().count() == self.slots.len() && self.in_sync().all(|held| held)
    }

    /// Per slot: is there a member in sync.
    pub fn in_sync(&self) -> impl Iterator<Item = bool> {
        self.slots.iter().enumerate().map(|(slot, member)| {
            let holds =
                |candidate| self.verdict(candidate) == Some(Verdict::InSync { slot: slot as u16 });
            member.is_some_and(holds)
        })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InSync { slot } => write!(f, "in sync in slot {slot}"),
            Self::Recovering { slot, to_bytes } => {
                write!(f, "recovering in slot {slot}, done to byte {to_bytes}")
            }
            Self::Replacement { slot, to_bytes: Some(to_bytes) } => {
                write!(f, "replacement for slot {slot}, done to byte {to_bytes}")
            }
            Self::Replacement { slot, to_bytes: None } => {
                write!(f, "replacement for slot {slot}, done")
            }
            Self::Spare => f.write_str("spare"),
            Self::Journal => f.write_str("journal"),
            Self::Faulty => f.write_str("faulty"),
            Self::Ejected { slot, .. } => write!(f, "was failed out of slot {slot}"),
            Self::Stale { slot: Some(slot), events, newest } => {
                write!(f, "stale in slot {slot}: {events} events, the newest has {newest}")
            }
            Self::Stale { slot: None, events, newest } => {
                write!(f, "stale journal: {events} events, the newest has {newest}")
            }
            Self::SplitBrain { side } => write!(f, "on side {side} of a split brain"),
            Self::DuplicateOf { .. } => f.write_str("a duplicate of another member"),
            Self::DoubleClaim { slot, .. } => {
                write!(f, "claims slot {slot} like another member just as new")
            }
            Self::Conflicting { .. } => {
                f.write_str("describes another shape of the set at the same event count")
            }
            Self::Foreign => f.write_str("unknown to the newest superblock"),
            Self::Ghost { .. } => f.write_str("a ghost: the drive has a newer superblock"),
            Self::TooSmall { missing_bytes } => {
                write!(f, "the drive is {missing_bytes} bytes too small for its superblock")
            }
            Self::Damaged(implausible) => write!(f, "damaged: {implausible}"),
            Self::Blank => f.write_str("a blanked superblock"),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingUsable => f.write_str("no usable superblock"),
            Self::UnknownFeatures(features) => {
                write!(f, "unknown feature bits {:#x}", features.0)
            }
            Self::Clustered => f.write_str("the set is shared by a cluster"),
            Self::UnsupportedLevel(level) => write!(f, "{level} is not supported"),
            Self::ConflictingShape { .. } => {
                f.write_str("members describe different shapes at the same event count")
            }
            Self::DoubleClaim { slot, .. } => {
                write!(f, "two members just as new claim slot {slot}")
            }
            Self::JournalMissing => {
                f.write_str("the journal is missing and may hold the only copy of some writes")
            }
            Self::DirtyDegraded => f.write_str(
                "degraded and not shut down: what was being written may be lost on the missing \
                 members",
            ),
        }
    }
}
