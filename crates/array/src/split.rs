//! Cutting client buffers into the pieces members get, and joining them again.

use smallvec::SmallVec;
use world::{Buf, BufMut, Pool, ReadBufs, WriteBufs};

/// Cuts read buffers from the front, across their borders.
pub(crate) struct ReadCutter {
    rest: std::iter::Peekable<<ReadBufs as IntoIterator>::IntoIter>,
}

impl ReadCutter {
    pub(crate) fn new(buffers: ReadBufs) -> Self {
        ReadCutter { rest: buffers.into_iter().peekable() }
    }

    /// The next `bytes` bytes.
    pub(crate) fn take(&mut self, mut bytes: u64) -> ReadBufs {
        let mut taken = ReadBufs::new();
        while bytes > 0 {
            let next = self.rest.peek_mut().expect("pieces sum up to the buffers");
            let len = next.len() as u64;
            if len <= bytes {
                taken.extend(self.rest.next());
                bytes -= len;
            } else {
                taken.push(next.split_to(bytes as usize));
                bytes = 0;
            }
        }
        taken
    }
}

/// Joins pieces in order into buffers of the original `lengths`. Pieces that were replaced on the
/// way, since a hanging drive holds the original, are copied together.
pub(crate) fn rejoin(
    pool: &Pool,
    lengths: &[usize],
    pieces: impl IntoIterator<Item = BufMut>,
) -> ReadBufs {
    let mut pieces = pieces.into_iter();
    let join = |&length: &usize| {
        let mut whole = pieces.next().expect("a piece for every buffer");
        let mut filled = whole.len();
        while filled < length {
            let next = pieces.next().expect("pieces sum up to the buffers");
            let bytes = next.len();
            let apart = if whole.len() == filled { whole.unsplit(next).err() } else { Some(next) };
            if let Some(next) = apart {
                if whole.len() == filled {
                    let mut copy = pool.take(length);
                    copy[..filled].copy_from_slice(&whole);
                    whole = copy;
                }
                whole[filled..filled + bytes].copy_from_slice(&next);
            }
            filled += bytes;
        }
        whole
    };
    lengths.iter().map(join).collect()
}

/// Lengths of buffers, for [`rejoin`].
pub(crate) fn lengths(buffers: &ReadBufs) -> SmallVec<[usize; 2]> {
    buffers.iter().map(|buffer| buffer.len()).collect()
}

/// Buffers of whole blocks, as parity and the logs count; a client's that end within a block are
/// copied together.
pub(crate) fn whole_blocks(pool: &Pool, buffers: WriteBufs, block: usize) -> WriteBufs {
    if buffers.iter().all(|buffer| buffer.len().is_multiple_of(block)) {
        return buffers;
    }
    let mut whole = pool.take(world::total_bytes(&buffers) as usize);
    let mut at = 0;
    for buffer in &buffers {
        whole[at..at + buffer.len()].copy_from_slice(buffer);
        at += buffer.len();
    }
    WriteBufs::from_iter([whole.freeze()])
}

/// Cuts write buffers from the front, across their borders, sharing their memory.
pub(crate) struct WriteCutter<'a> {
    buffers: &'a [Buf],
    start: usize,
}

impl<'a> WriteCutter<'a> {
    pub(crate) fn new(buffers: &'a [Buf]) -> Self {
        WriteCutter { buffers, start: 0 }
    }

    /// The next `bytes` bytes.
    pub(crate) fn take(&mut self, mut bytes: usize) -> WriteBufs {
        let mut taken = WriteBufs::new();
        while bytes > 0 {
            let (first, rest) = self.buffers.split_first().expect("pieces sum up to the buffers");
            let len = bytes.min(first.len() - self.start);
            taken.push(first.slice(self.start, len));
            bytes -= len;
            self.start += len;
            if self.start == first.len() {
                (self.buffers, self.start) = (rest, 0);
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cross_borders_and_come_back_whole() {
        let pool = Pool::new(0);
        let lens = [3usize, 5, 4];
        let mut value = 0;
        let buffers: ReadBufs = lens
            .iter()
            .map(|&len| {
                let mut buffer = pool.take(len);
                buffer.fill_with(|| {
                    value += 1;
                    value
                });
                buffer
            })
            .collect();
        let original = lengths(&buffers);
        let mut cutter = ReadCutter::new(buffers);
        let pieces: Vec<ReadBufs> = [1, 6, 5].map(|bytes| cutter.take(bytes)).into();
        assert_eq!(pieces.iter().map(|piece| piece.len()).collect::<Vec<_>>(), [1, 2, 2]);
        let whole = rejoin(&pool, &original, pieces.into_iter().flatten());
        let bytes: Vec<u8> = whole.iter().flat_map(|buffer| buffer.iter().copied()).collect();
        assert_eq!(bytes, (1..=12).collect::<Vec<u8>>());
        assert_eq!(lengths(&whole).as_slice(), lens);

        let mut cutter = ReadCutter::new(whole);
        let mut pieces: Vec<ReadBufs> = [1, 6, 5].map(|bytes| cutter.take(bytes)).into();
        let replaced: ReadBufs = pieces[1]
            .iter()
            .map(|piece| {
                let mut new = pool.take(piece.len());
                new.copy_from_slice(piece);
                new
            })
            .collect();
        let held = std::mem::replace(&mut pieces[1], replaced);
        let whole = rejoin(&pool, &original, pieces.into_iter().flatten());
        drop(held);
        let bytes: Vec<u8> = whole.iter().flat_map(|buffer| buffer.iter().copied()).collect();
        assert_eq!(bytes, (1..=12).collect::<Vec<u8>>(), "with a replaced piece");

        let shared: WriteBufs = whole.into_iter().map(BufMut::freeze).collect();
        let mut cutter = WriteCutter::new(&shared);
        let parts = [4usize, 8].map(|bytes| cutter.take(bytes));
        let bytes: Vec<Vec<u8>> =
            parts.iter().map(|part| part.iter().flat_map(|b| b.to_vec()).collect()).collect();
        assert_eq!(bytes, [(1..=4).collect::<Vec<u8>>(), (5..=12).collect()]);
    }
}
