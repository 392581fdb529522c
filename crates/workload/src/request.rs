//! What a generator hands out: one request, and the range it may fall in.
//!
//! Values only. Who issues a request, on which drive and when, is the
//! runner's business.

use thiserror::Error;

/// The smallest unit a request is measured in. Every drive of the models and
/// of the operating system takes 512-byte sectors or multiples of them.
pub const SECTOR_BYTES: u64 = 512;

/// Where the last working set may end: what a signed file offset can address.
pub const OFFSET_MAX: u64 = i64::MAX as u64;

/// Which way the data goes, seen from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the drive to the client.
    Read,
    /// From the client to the drive.
    Write,
}

impl Direction {
    /// Both directions, in the order of [`Direction::index`].
    pub const ALL: [Self; 2] = [Self::Read, Self::Write];

    /// Position in a table by direction: 0 for reads, 1 for writes.
    pub const fn index(self) -> usize {
        match self {
            Self::Read => 0,
            Self::Write => 1,
        }
    }
}

/// One request of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// First byte, counted from the start of the drive (not of the working set).
    pub offset: u64,
    /// Length in bytes, a multiple of [`SECTOR_BYTES`].
    pub bytes: u32,
    /// Read or write.
    pub direction: Direction,
    /// How long the issuing worker pauses before it issues this request, in
    /// nanoseconds. Not zero only at the start of a burst of a line with a delay.
    pub delay_ns: u64,
}

/// Why a range is no working set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WorkingSetError {
    /// Nothing to work on.
    #[error("the working set is empty")]
    Empty,
    /// Start or length is not a multiple of the sector.
    #[error("working set start {start} and length {bytes} must be multiples of 512 bytes")]
    NotSectors {
        /// First byte.
        start: u64,
        /// Length in bytes.
        bytes: u64,
    },
    /// The range leaves the drive.
    #[error(
        "working set of {bytes} bytes from {start} ends behind the drive's {drive_bytes} bytes"
    )]
    BehindEnd {
        /// First byte.
        start: u64,
        /// Length in bytes.
        bytes: u64,
        /// Size of the drive.
        drive_bytes: u64,
    },
    /// The range ends where no file offset reaches.
    #[error("a working set of {bytes} bytes from {start} exceeds 64-bit file offsets")]
    BeyondOffsets {
        /// First byte.
        start: u64,
        /// Length in bytes.
        bytes: u64,
    },
    /// The range can't be divided into that many parts of whole sectors.
    #[error("a working set of {bytes} bytes can't be divided into {parts} parts")]
    TooManyParts {
        /// Length in bytes.
        bytes: u64,
        /// Parts asked for.
        parts: u32,
    },
}

/// The part of a drive a workload works on: `bytes` from byte `start` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkingSet {
    start: u64,
    bytes: u64,
}

impl WorkingSet {
    /// The range of `bytes` from `start` on a drive of `drive_bytes`.
    ///
    /// Fails if it is empty, not of whole sectors, or leaves the drive.
    pub fn new(start: u64, bytes: u64, drive_bytes: u64) -> Result<Self, WorkingSetError> {
        if bytes == 0 {
            return Err(WorkingSetError::Empty);
        }
        if !start.is_multiple_of(SECTOR_BYTES) || !bytes.is_multiple_of(SECTOR_BYTES) {
            return Err(WorkingSetError::NotSectors { start, bytes });
        }
        if start.checked_add(bytes).is_none_or(|end| end > drive_bytes) {
            return Err(WorkingSetError::BehindEnd { start, bytes, drive_bytes });
        }
        if start + bytes > OFFSET_MAX {
            return Err(WorkingSetError::BeyondOffsets { start, bytes });
        }
        Ok(Self { start, bytes })
    }

    /// All whole sectors of a drive of `drive_bytes`.
    pub fn whole(drive_bytes: u64) -> Result<Self, WorkingSetError> {
        Self::new(0, drive_bytes - drive_bytes % SECTOR_BYTES, drive_bytes)
    }

    /// First byte.
    pub const fn start(self) -> u64 {
        self.start
    }

    /// Length in bytes.
    pub const fn bytes(self) -> u64 {
        self.bytes
    }

    /// The byte after the last one. Does not overflow: `new` has checked it.
    pub const fn end(self) -> u64 {
        self.start + self.bytes
    }

    /// Part `index` of `parts` equal parts, each a multiple of `granule_bytes`
    /// long; the last part takes the rest too. For workers or streams that
    /// shall not meet.
    ///
    /// Fails if a part would be empty, or if there is no such part.
    pub fn part(self, index: u32, parts: u32, granule_bytes: u64) -> Result<Self, WorkingSetError> {
        let error = WorkingSetError::TooManyParts { bytes: self.bytes, parts };
        let granule = granule_bytes.max(SECTOR_BYTES).next_multiple_of(SECTOR_BYTES);
        let each = self.bytes.checked_div(u64::from(parts)).ok_or(error)? / granule * granule;
        if each == 0 || index >= parts {
            return Err(error);
        }
        let start = self.start + u64::from(index) * each;
        let bytes = if index + 1 == parts { self.end() - start } else { each };
        Ok(Self { start, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn working_set_checks_its_edges() {
        assert!(WorkingSet::new(512, 512, 1024).is_ok());
        assert_eq!(WorkingSet::new(0, 0, 1024), Err(WorkingSetError::Empty));
        assert_eq!(
            WorkingSet::new(1, 512, 1024),
            Err(WorkingSetError::NotSectors { start: 1, bytes: 512 })
        );
        assert!(matches!(
            WorkingSet::new(u64::MAX - 511, 1024, u64::MAX),
            Err(WorkingSetError::BehindEnd { .. })
        ));
        assert!(matches!(WorkingSet::whole(u64::MAX), Err(WorkingSetError::BeyondOffsets { .. })));
        assert_eq!(WorkingSet::whole(1300).map(WorkingSet::bytes), Ok(1024));
    }

    #[test]
    fn parts_cover_the_set_without_overlap() {
        let set = WorkingSet::new(4096, 1_000_448, 2_000_000).unwrap();
        let parts: Vec<_> = (0..3).map(|index| set.part(index, 3, 4096).unwrap()).collect();
        assert_eq!(parts[0].start(), set.start());
        assert_eq!(parts[0].end(), parts[1].start());
        assert_eq!(parts[1].end(), parts[2].start());
        assert_eq!(parts[2].end(), set.end());
        assert!(set.part(0, 0, 512).is_err());
        assert!(set.part(3, 3, 512).is_err());
        assert!(set.part(0, 1000, 4096).is_err());
    }
}
