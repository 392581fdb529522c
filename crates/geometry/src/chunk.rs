//! Chunk arithmetic with the shift prepared.
//!
//! All levels but RAID 0 demand a power of two. md's RAID 0 takes any multiple of a
//! sector, so the division is kept for it; which of the two runs is decided once.

use crate::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, GeometryError, Level};

/// Unit md counts in: a chunk is always whole sectors.
pub(crate) const SECTOR_BYTES: u64 = 512;

/// A checked chunk size.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    bytes: u64,
    /// log2 of `bytes` where it is a power of two.
    shift: Option<u32>,
}

impl Chunk {
    /// A chunk that must be a power of two.
    pub fn power_of_two(level: Level, bytes: u64) -> Result<Chunk, GeometryError> {
        if !bytes.is_power_of_two() || !(CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&bytes) {
            return Err(GeometryError::Chunk { level, bytes, kind: "power of two" });
        }
        Ok(Chunk { bytes, shift: Some(bytes.trailing_zeros()) })
    }

    /// A chunk of whole sectors.
    pub fn sectors(level: Level, bytes: u64) -> Result<Chunk, GeometryError> {
        if !bytes.is_multiple_of(SECTOR_BYTES)
            || !(CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&bytes)
        {
            return Err(GeometryError::Chunk { level, bytes, kind: "multiple of 512" });
        }
        let shift = bytes.is_power_of_two().then(|| bytes.trailing_zeros());
        Ok(Chunk { bytes, shift })
    }

    /// Its size in bytes.
    #[inline]
    pub fn bytes(self) -> u64 {
        self.bytes
    }

    /// Chunk number and offset inside the chunk.
    #[inline]
    pub fn split(self, offset: u64) -> (u64, u64) {
        match self.shift {
            Some(shift) => (offset >> shift, offset & (self.bytes - 1)),
            None => (offset / self.bytes, offset % self.bytes),
        }
    }

    /// Whole chunks in `bytes`.
    #[inline]
    pub fn count(self, bytes: u64) -> u64 {
        self.split(bytes).0
    }
}
