//! What writes write: filled once before the run, so that making data costs no time in it.
//!
//! Left out: content that follows from the offset. Each write takes the next bytes of a small
//! store, so the same content comes back after some mebibytes; whoever checks content fills his
//! own buffers.

use std::cell::Cell;

use world::{Buf, Pool, SLOT_ALIGN_BYTES, WriteBufs};

use crate::entropy::DataPattern;
use crate::spec::AccessSpec;

/// The least size of a piece: many small writes come from one piece before it is used again.
const PIECE_BYTES_MIN: u64 = 1 << 20;

/// All pieces together, unless requests are large: more than drives look back to find duplicates.
const STORE_BYTES: u64 = 8 << 20;

/// Even the largest requests take turns with another content.
const PIECES_MIN: u64 = 2;

/// The pieces, and where the next write begins.
pub(super) struct WriteData {
    pieces: Vec<Buf>,
    piece: Cell<usize>,
    at: Cell<usize>,
}

impl WriteData {
    /// Number and size of the pieces.
    fn pieces(spec: &AccessSpec) -> (u64, u64) {
        let piece_bytes = u64::from(spec.request_bytes_max()).max(PIECE_BYTES_MIN);
        ((STORE_BYTES / piece_bytes).max(PIECES_MIN), piece_bytes)
    }

    /// Bytes that the data for `spec` takes.
    pub(super) fn bytes(spec: &AccessSpec) -> u64 {
        let (pieces, piece_bytes) = Self::pieces(spec);
        pieces * piece_bytes
    }

    /// The data; none for a workload that does not write.
    pub(super) fn new(spec: &AccessSpec, pattern: DataPattern, pool: &Pool) -> Self {
        let (count, piece_bytes) = if spec.has_writes() { Self::pieces(spec) } else { (0, 0) };
        let pieces = (0..count).map(|index| {
            let mut piece = pool.take(piece_bytes as usize);
            pattern.fill(&mut piece, index * piece_bytes);
            piece.freeze()
        });
        Self { pieces: pieces.collect(), piece: Cell::new(0), at: Cell::new(0) }
    }

    /// The next `bytes`, aligned as direct I/O needs it.
    pub(super) fn next(&self, bytes: usize) -> WriteBufs {
        if self.at.get() + bytes > self.pieces[self.piece.get()].len() {
            self.piece.set((self.piece.get() + 1) % self.pieces.len());
            self.at.set(0);
        }
        let start = self.at.get();
        self.at.set((start + bytes).next_multiple_of(SLOT_ALIGN_BYTES));
        WriteBufs::from_iter([self.pieces[self.piece.get()].slice(start, bytes)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_get_different_aligned_data_until_the_store_is_through() {
        let spec = AccessSpec::uniform(6144, 0, 100).unwrap();
        let data = WriteData::new(&spec, DataPattern::Random { seed: 4 }, &Pool::new(0));
        let store_writes = 8 * ((1 << 20) / 8192);
        let seen: Vec<_> = (0..=store_writes).map(|_| data.next(6144)[0].clone()).collect();
        assert!(seen.iter().all(|buffer| buffer.as_ptr().addr() % SLOT_ALIGN_BYTES == 0));
        assert_eq!(seen[0][..], seen[store_writes][..]);
        let mut unique: Vec<&[u8]> = seen.iter().map(|buffer| &buffer[..16]).collect();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), store_writes);
    }

    #[test]
    fn the_largest_requests_have_two_contents() {
        let spec = AccessSpec::uniform(16 << 20, 0, 0).unwrap();
        assert_eq!(WriteData::bytes(&spec), 32 << 20);
        let reads = AccessSpec::uniform(512, 100, 0).unwrap();
        let data = WriteData::new(&reads, DataPattern::Zeros, &Pool::new(0));
        assert!(data.pieces.is_empty());
    }
}
