//! The request for a new set, and whether it makes sense before any size is looked at.

use super::SECTOR_BYTES;
use super::superblock1::ROLES_MAX;
use super::types::{DevFlags, Level, Timestamp, Uuid, Version};

/// The smallest chunk with parity or copies: a page.
const CHUNK_BYTES_MIN: u32 = 4096;

/// Which record of writes in flight the set keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// None.
    Resync,
    /// Write-intent bitmap.
    Bitmap,
    /// Partial parity log; RAID 5 only.
    Ppl,
    /// Journal on this further member.
    Journal(NewMember),
}

/// A drive that becomes a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewMember {
    /// Its size.
    pub device_bytes: u64,
    /// Its new identity.
    pub device_uuid: Uuid,
    /// Its flags.
    pub devflags: DevFlags,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateRequest {
    /// 1.0, 1.1 or 1.2.
    pub version: Version,
    /// Identity of the set.
    pub set_uuid: Uuid,
    /// Name, up to 32 bytes; md expects `host:name`.
    pub name: String,
    /// Level.
    pub level: Level,
    /// md's layout number. On raid0: 0 for equal members, else 1 (original) or 2 (alternate).
    pub layout: u32,
    /// Chunk; 0 for raid1, optional for linear.
    pub chunk_bytes: u32,
    /// The slots in order; `None` is a missing member.
    pub slots: Vec<Option<NewMember>>,
    /// Spares.
    pub spares: Vec<NewMember>,
    /// Bytes of each member to use; `None`: as much as the smallest has.
    pub size_bytes: Option<u64>,
    /// Record of writes in flight.
    pub consistency: Consistency,
    /// Keep room before the data for checksums of it ([`crate::own`]).
    pub checksums: bool,
    /// Copies and parity are said to be right already: no resync.
    pub assume_clean: bool,
    /// The time.
    pub created: Timestamp,
}

/// Why no such set can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreateError {
    /// Only version 1 is made.
    #[error("metadata version {0} is not made any more")]
    Version(Version),
    /// Only the levels that hold data.
    #[error("{0} cannot be created")]
    Level(Level),
    /// The name does not fit.
    #[error("name has {bytes} bytes, at most 32 fit")]
    NameTooLong {
        /// Bytes of the name.
        bytes: usize,
    },
    /// Too few slots for the level.
    #[error("{level} needs at least {needed} slots and has {given}")]
    TooFewSlots {
        /// The level.
        level: Level,
        /// Needed.
        needed: usize,
        /// Given.
        given: usize,
    },
    /// More members than a superblock can name.
    #[error("{given} members are more than the {ROLES_MAX} a superblock can name")]
    TooManyMembers {
        /// Slots, spares and journal together.
        given: usize,
    },
    /// More missing than the level has parity for, or all of them.
    #[error("{level} cannot start with {missing} members missing")]
    TooManyMissing {
        /// The level.
        level: Level,
        /// Missing.
        missing: usize,
    },
    /// The chunk does not suit the level.
    #[error("{level} cannot have a chunk of {chunk_bytes} bytes")]
    Chunk {
        /// The level.
        level: Level,
        /// The chunk.
        chunk_bytes: u32,
    },
    /// The layout number does not exist at this level.
    #[error("{level} has no layout {layout:#x}")]
    Layout {
        /// The level.
        level: Level,
        /// The layout.
        layout: u32,
    },
    /// This record of writes in flight does not exist at this level.
    #[error("{level} cannot keep this record of writes in flight")]
    Consistency {
        /// The level.
        level: Level,
    },
    /// Without redundancy md keeps no mark of writes in flight, which checksums rely on; and behind
    /// the data there is no room for them.
    #[error("{level} with metadata {version} cannot keep checksums")]
    Checksums {
        /// The level.
        level: Level,
        /// The version.
        version: Version,
    },
    /// A level without redundancy has no use for spares.
    #[error("{0} has no use for spares")]
    Spares(Level),
    /// A member has no room for metadata and at least one chunk.
    #[error("member {index} of {device_bytes} bytes is too small")]
    MemberTooSmall {
        /// Index in the order slots (missing ones not counted), spares, journal.
        index: usize,
        /// Its size.
        device_bytes: u64,
    },
    /// More asked for than the smallest member has.
    #[error("size {asked_bytes} is more than the {available_bytes} bytes the smallest member has")]
    SizeTooLarge {
        /// Asked for.
        asked_bytes: u64,
        /// Available.
        available_bytes: u64,
    },
}

impl CreateRequest {
    /// Checks level, counts, chunk, layout and record against each other.
    pub(super) fn check(&self) -> Result<(), CreateError> {
        let level = self.level;
        if self.version == Version::V0_90 {
            return Err(CreateError::Version(self.version));
        }
        if self.name.len() > 32 {
            return Err(CreateError::NameTooLong { bytes: self.name.len() });
        }
        let needed = match level {
            Level::Linear | Level::Raid0 | Level::Raid1 => 1,
            Level::Raid4 | Level::Raid5 | Level::Raid10 => 2,
            Level::Raid6 => 4,
            other => return Err(CreateError::Level(other)),
        };
        let given = self.slots.len();
        if given < needed {
            return Err(CreateError::TooFewSlots { level, needed, given });
        }
        let missing = self.slots.iter().filter(|slot| slot.is_none()).count();
        let bearable = match level {
            Level::Linear | Level::Raid0 => 0,
            Level::Raid4 | Level::Raid5 => 1,
            Level::Raid6 => 2,
            _ => given - 1,
        };
        if missing > bearable {
            return Err(CreateError::TooManyMissing { level, missing });
        }
        if !level.is_redundant() && !self.spares.is_empty() {
            return Err(CreateError::Spares(level));
        }
        let journal = usize::from(matches!(self.consistency, Consistency::Journal(_)));
        let all = given + self.spares.len() + journal;
        if all > ROLES_MAX {
            return Err(CreateError::TooManyMembers { given: all });
        }
        if self.checksums && (!level.is_redundant() || self.version == Version::V1_0) {
            return Err(CreateError::Checksums { level, version: self.version });
        }
        self.check_shape()
    }

    fn check_shape(&self) -> Result<(), CreateError> {
        let (level, layout, chunk_bytes) = (self.level, self.layout, self.chunk_bytes);
        let sectors = chunk_bytes / SECTOR_BYTES as u32;
        let whole = u64::from(chunk_bytes) % SECTOR_BYTES == 0;
        let chunk_fits = match level {
            Level::Raid1 => chunk_bytes == 0,
            Level::Linear => whole,
            Level::Raid0 => whole && sectors > 0,
            _ => chunk_bytes.is_power_of_two() && chunk_bytes >= CHUNK_BYTES_MIN,
        };
        if !chunk_fits {
            return Err(CreateError::Chunk { level, chunk_bytes });
        }
        let mut sizes = self.slots.iter().flatten().map(|member| member.device_bytes);
        let first = sizes.next();
        let equal = sizes.all(|size| Some(size) == first);
        let copies = u64::from(layout & 0xff) * u64::from(layout >> 8 & 0xff);
        let layout_fits = match level {
            Level::Linear | Level::Raid1 | Level::Raid4 => layout == 0,
            // Without a number md cannot know which of two layouts unequal members have.
            Level::Raid0 => layout <= 2 && (layout != 0 || equal),
            Level::Raid5 => layout <= 5,
            Level::Raid6 => matches!(layout, 0..=5 | 8..=10 | 16..=20),
            Level::Raid10 => layout >> 19 == 0 && copies > 0 && copies <= self.slots.len() as u64,
            _ => false,
        };
        if !layout_fits {
            return Err(CreateError::Layout { level, layout });
        }
        let consistency_fits = match self.consistency {
            Consistency::Resync => true,
            Consistency::Bitmap => level.is_redundant(),
            Consistency::Ppl => level == Level::Raid5,
            Consistency::Journal(_) => level.has_parity(),
        };
        if consistency_fits { Ok(()) } else { Err(CreateError::Consistency { level }) }
    }
}
