//! The extents of a block status reply.
//!
//! The shell walks the allocation of a range front to back and pushes what it
//! finds; this merges neighbours of one kind, cuts at the end of the request,
//! and says when to stop. Its bytes follow the head that
//! [`Ticket::status`](super::Ticket::status) makes.

use super::transmission::Command;
use super::wire::{STATE_HOLE, STATE_ZERO};

/// Extents of one reply at most. A client asks again for the rest; this keeps
/// a reply at 32 KiB, far below the protocol's 2^20 extents.
pub const EXTENTS_MAX: usize = 4096;

/// What a range of an export holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Data, or not known.
    Data,
    /// Allocated, and reads as zeroes.
    Zero,
    /// Not allocated, and reads as zeroes.
    Hole,
}

impl Allocation {
    fn flags(self) -> u32 {
        match self {
            Self::Data => 0,
            Self::Zero => STATE_ZERO,
            Self::Hole => STATE_HOLE | STATE_ZERO,
        }
    }
}

/// Builds the extents of one reply.
#[derive(Clone, Debug)]
pub struct BlockStatus {
    bytes: Vec<u8>,
    /// The extent that may still grow.
    open: Option<(u64, Allocation)>,
    covered_bytes: u64,
    wanted_bytes: u64,
    extents_max: usize,
}

impl BlockStatus {
    /// For a request of `length` bytes, which is not zero.
    pub fn new(length: u32, one_extent: bool) -> Self {
        Self {
            bytes: Vec::new(),
            open: None,
            covered_bytes: 0,
            wanted_bytes: u64::from(length),
            extents_max: if one_extent { 1 } else { EXTENTS_MAX },
        }
    }

    /// For a command, if it is a block status.
    pub fn of(command: &Command) -> Option<Self> {
        match *command {
            Command::BlockStatus { length, one_extent, .. } => Some(Self::new(length, one_extent)),
            _ => None,
        }
    }

    /// Bytes of the range that are covered, from its start: where to look next.
    pub fn covered_bytes(&self) -> u64 {
        self.covered_bytes
    }

    /// Adds the next `length_bytes` of the range. Returns whether more can be
    /// added; what came too much is left out.
    pub fn push(&mut self, length_bytes: u64, allocation: Allocation) -> bool {
        let length = length_bytes.min(self.wanted_bytes - self.covered_bytes);
        if length == 0 {
            return self.wants_more();
        }
        match &mut self.open {
            Some((open, kind)) if *kind == allocation => *open += length,
            open => {
                if let Some((bytes, kind)) = *open {
                    if self.bytes.len() / 8 + 1 == self.extents_max {
                        // The reply is full, and this range starts another extent.
                        self.wanted_bytes = self.covered_bytes;
                        return false;
                    }
                    put_extent(&mut self.bytes, bytes, kind);
                }
                self.open = Some((length, allocation));
            }
        }
        self.covered_bytes += length;
        self.wants_more()
    }

    /// Ends the reply: the count of extents and their bytes. A range of which
    /// nothing is known counts as data, which is always true enough.
    pub fn finish(mut self) -> (usize, Vec<u8>) {
        let rest = (self.wanted_bytes, Allocation::Data);
        let (bytes, allocation) = self.open.unwrap_or(rest);
        put_extent(&mut self.bytes, bytes, allocation);
        (self.bytes.len() / 8, self.bytes)
    }

    fn wants_more(&self) -> bool {
        self.covered_bytes < self.wanted_bytes
    }
}

/// | bytes | field |
/// | --- | --- |
/// | 0..4 | length |
/// | 4..8 | status flags |
fn put_extent(output: &mut Vec<u8>, length_bytes: u64, allocation: Allocation) {
    // Cut to the request's length, which has 32 bits.
    output.extend((length_bytes as u32).to_be_bytes());
    output.extend(allocation.flags().to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_merge_and_the_end_is_cut() {
        let mut status = BlockStatus::new(0x3000, false);
        assert!(status.push(0x800, Allocation::Data));
        assert!(status.push(0x800, Allocation::Data));
        assert!(status.push(0x1000, Allocation::Hole));
        assert_eq!(status.covered_bytes(), 0x2000);
        assert!(!status.push(u64::MAX, Allocation::Zero));
        assert!(!status.push(1, Allocation::Data), "covered already");
        let (extents, bytes) = status.finish();
        assert_eq!(extents, 3);
        assert_eq!(bytes, b"\0\0\x10\0\0\0\0\0\0\0\x10\0\0\0\0\x03\0\0\x10\0\0\0\0\x02");
    }

    #[test]
    fn one_extent_ends_where_the_next_kind_starts() {
        let mut status = BlockStatus::new(0x3000, true);
        assert!(status.push(0x800, Allocation::Hole));
        assert!(status.push(0x800, Allocation::Hole), "it may still grow");
        assert!(!status.push(0x800, Allocation::Data));
        assert!(!status.push(0x800, Allocation::Hole), "it is closed");
        assert_eq!(status.finish(), (1, b"\0\0\x10\0\0\0\0\x03".to_vec()));
    }

    #[test]
    fn a_ragged_range_ends_at_the_most_extents() {
        let mut status = BlockStatus::new(u32::MAX, false);
        let mut pushed = 0_usize;
        while status.push(512, [Allocation::Data, Allocation::Hole][pushed % 2]) {
            pushed += 1;
        }
        assert_eq!(pushed, EXTENTS_MAX);
        assert_eq!(status.covered_bytes(), 512 * EXTENTS_MAX as u64);
        let (extents, bytes) = status.finish();
        assert_eq!((extents, bytes.len()), (EXTENTS_MAX, 8 * EXTENTS_MAX));
    }

    #[test]
    fn nothing_known_is_data_over_the_whole_range() {
        let (extents, bytes) = BlockStatus::new(0x200, false).finish();
        assert_eq!((extents, bytes), (1, b"\0\0\x02\0\0\0\0\0".to_vec()));
    }
}
