//! Why a shape is not an array.

use thiserror::Error;

use crate::{BYTES_MAX, CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, Level, MEMBERS_MAX};

/// Why [`Geometry::new`](crate::Geometry::new) refused a shape.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GeometryError {
    /// Fewer members than the level needs.
    #[error("{level} needs at least {min} members, got {members}")]
    TooFewMembers {
        /// The level asked for.
        level: Level,
        /// The fewest it works with.
        min: usize,
        /// Members given.
        members: usize,
    },
    /// More members than the metadata or the Q mathematics can name.
    #[error("{level} takes at most {max} members here, got {members}")]
    TooManyMembers {
        /// The level asked for.
        level: Level,
        /// The most it works with: [`MEMBERS_MAX`], or what Q's 255 exponents allow.
        max: usize,
        /// Members given.
        members: usize,
    },
    /// Chunk outside the range, or not of the kind the level demands.
    #[error(
        "chunk of {bytes} bytes does not suit {level}: expected a {kind} \
         from {CHUNK_BYTES_MIN} to {CHUNK_BYTES_MAX} bytes"
    )]
    Chunk {
        /// The level asked for.
        level: Level,
        /// The chunk given, in bytes.
        bytes: u64,
        /// What the level demands of it: "power of two", "multiple of 512".
        kind: &'static str,
    },
    /// A layout number the level does not have.
    #[error("{level} has no layout {layout:#x}")]
    Layout {
        /// The level asked for.
        level: Level,
        /// The number given.
        layout: u32,
    },
    /// RAID 10 without a second copy of anything.
    #[error("raid10 layout {layout:#x} keeps no second copy")]
    NoCopies {
        /// The number given.
        layout: u32,
    },
    /// RAID 10 with more copies than members.
    #[error("raid10 layout {layout:#x} keeps {copies} copies, but there are {members} members")]
    TooManyCopies {
        /// The number given.
        layout: u32,
        /// Near times far copies.
        copies: usize,
        /// Members given.
        members: usize,
    },
    /// RAID 10 layout in which md's own formula puts two chunks in one place.
    #[error("raid10 layout {layout:#x} on {members} members puts different data in one place")]
    Overlap {
        /// The number given.
        layout: u32,
        /// Members given.
        members: usize,
    },
    /// RAID 0 of unequal members, and the metadata does not say which of the two orders.
    #[error(
        "raid0 layout is unknown, and the members are unequal: original or alternate must be chosen"
    )]
    ZoneLayoutUnknown,
    /// A member without room for one chunk (or for one byte, where there are no chunks).
    #[error("member {member} has {bytes} usable bytes, less than the smallest piece of {need}")]
    MemberTooSmall {
        /// Slot of the member.
        member: usize,
        /// Its usable bytes.
        bytes: u64,
        /// Bytes it needs.
        need: u64,
    },
    /// The array, or a member, would pass [`BYTES_MAX`].
    #[error("the array would pass the limit of {BYTES_MAX} bytes")]
    TooLarge,
}

impl GeometryError {
    /// The bound on members for `level`, checked.
    pub(crate) fn check_members(level: Level, members: usize) -> Result<(), GeometryError> {
        let min = level.members_min();
        if members < min {
            return Err(GeometryError::TooFewMembers { level, min, members });
        }
        if members > MEMBERS_MAX {
            return Err(GeometryError::TooManyMembers { level, max: MEMBERS_MAX, members });
        }
        Ok(())
    }

    /// The smallest member, which must hold `need` bytes at least.
    pub(crate) fn smallest_member(member_bytes: &[u64], need: u64) -> Result<u64, GeometryError> {
        let mut smallest = u64::MAX;
        for (member, &bytes) in member_bytes.iter().enumerate() {
            if bytes < need {
                return Err(GeometryError::MemberTooSmall { member, bytes, need });
            }
            smallest = smallest.min(bytes);
        }
        Ok(smallest)
    }
}
