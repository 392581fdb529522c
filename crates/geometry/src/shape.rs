//! What an array is made of, and the limits every level shares.

use crate::Level;

/// Smallest chunk: the page md works in, and the block modern drives write whole.
pub const CHUNK_BYTES_MIN: u64 = 4 << 10;

/// Largest chunk. Beyond it one stripe no longer fits sensible buffers.
pub const CHUNK_BYTES_MAX: u64 = 16 << 20;

/// Granule of I/O where there is no chunk.
pub const BLOCK_BYTES: u64 = 4 << 10;

/// Most members: the role table of md's superblock 1.x has (4096 - 256) / 2 entries.
pub const MEMBERS_MAX: usize = 1920;

/// Largest array and largest member, in bytes: what a signed 64-bit file offset can say.
pub const BYTES_MAX: u64 = i64::MAX as u64;

/// What an array is made of, in md's numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// How the bytes are spread.
    pub level: Level,
    /// md's layout number for the level; ignored by linear, RAID 1 and RAID 4.
    pub layout: u32,
    /// Chunk in bytes. Ignored by RAID 1; for linear 0, or what members are rounded down to.
    pub chunk_bytes: u64,
    /// Usable data bytes of each member, in slot order. Redundant levels use the smallest
    /// of each.
    pub member_bytes: Vec<u64>,
}
