//! Reading around what can't be read: all of a range that can be read, and which parts can't.

use std::iter::once;
use std::ops::Range;

use drive::ErrorKind;
use world::BufMut;

use crate::batch::ReadBatch;
use crate::core::Core;

/// Where a range can't be read as a whole it is read in pieces of these sizes, one after the
/// other, and of the size wanted: few requests find the place of one bad sector.
const PIECES_BYTES: [usize; 2] = [64 << 10, 4 << 10];

/// A part of a member to be read.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<Key> {
    pub(crate) key: Key,
    pub(crate) slot: usize,
    /// In the data area.
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
}

/// What is there of it.
pub(crate) struct Part<Key> {
    pub(crate) key: Key,
    pub(crate) slot: usize,
    pub(crate) content: BufMut,
    /// What of it could not be read, rising and apart; the content there means nothing.
    pub(crate) unreadable: Vec<Range<usize>>,
}

impl<Key> Part<Key> {
    /// Whether all of `range` could be read.
    pub(crate) fn has(&self, range: &Range<usize>) -> bool {
        self.unreadable.iter().all(|bad| bad.end <= range.start || range.end <= bad.start)
    }

    /// What of it could be read, rising.
    pub(crate) fn readable(&self) -> Vec<Range<usize>> {
        let starts = once(0).chain(self.unreadable.iter().map(|bad| bad.end));
        let ends = self.unreadable.iter().map(|bad| bad.start).chain(once(self.content.len()));
        starts.zip(ends).map(|(start, end)| start..end).filter(|range| !range.is_empty()).collect()
    }
}

/// Reads everything wanted, in the order of places on each member. What can't be read is found as
/// closely as `finest` bytes, or a block of the drives.
pub(crate) async fn read<Key: Copy>(
    core: &Core,
    wanted: Vec<Wanted<Key>>,
    finest: usize,
) -> Vec<Part<Key>> {
    let pool = core.world.pool();
    let mut parts: Vec<Part<Key>> = Vec::with_capacity(wanted.len());
    let mut batch = ReadBatch::new();
    let mut torn: Vec<Wanted<Key>> = Vec::new();
    for part in wanted {
        if core.slots[part.slot].readable(part.offset, part.bytes as u64) {
            batch.add(part.slot, part.offset, pool.take(part.bytes), part);
        } else {
            torn.push(part);
        }
    }
    let results = batch.run(core).await;
    parts.extend(results.read.into_iter().map(|(part, content)| Part {
        key: part.key,
        slot: part.slot,
        content,
        unreadable: Vec::new(),
    }));
    for (part, slot, error) in results.failed {
        core.note_read_error(slot, &error).await;
        if error.kind == ErrorKind::Media {
            torn.push(part);
        } else {
            // The drive does not answer: every piece would take as long, and none can be rewritten.
            let content = pool.take_zeroed(part.bytes);
            let unreadable = once(0..part.bytes).collect();
            parts.push(Part { key: part.key, slot, content, unreadable });
        }
    }
    for part in torn {
        parts.push(in_pieces(core, part, finest).await);
    }
    parts
}

/// Reads what can be read.
async fn in_pieces<Key: Copy>(core: &Core, wanted: Wanted<Key>, finest: usize) -> Part<Key> {
    let Wanted { key, slot, offset, bytes } = wanted;
    let pool = core.world.pool();
    let mut content = pool.take_zeroed(bytes);
    let mut unreadable: Vec<Range<usize>> = once(0..bytes).collect();
    let finest = finest.max(core.facts.block_bytes as usize);
    for piece_bytes in PIECES_BYTES.into_iter().filter(|&size| size > finest).chain(once(finest)) {
        let pieces = unreadable.drain(..).flat_map(|range| {
            let starts = range.clone().step_by(piece_bytes);
            starts.map(move |start| start..(start + piece_bytes).min(range.end))
        });
        let mut batch = ReadBatch::new();
        let mut failed: Vec<Range<usize>> = Vec::new();
        for piece in pieces {
            let at = offset + piece.start as u64;
            if core.slots[slot].readable(at, piece.len() as u64) {
                batch.add(slot, at, pool.take(piece.len()), piece);
            } else {
                failed.push(piece);
            }
        }
        let results = batch.run(core).await;
        for (piece, read) in results.read {
            content[piece].copy_from_slice(&read);
        }
        failed.extend(results.failed.into_iter().map(|(piece, ..)| piece));
        unreadable = joined(failed);
    }
    Part { key, slot, content, unreadable }
}

/// Ranges in order, neighbours as one.
fn joined(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, last| {
        let follows = next.start == last.end;
        if follows {
            last.end = next.end;
        }
        follows
    });
    ranges
}
