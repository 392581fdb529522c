//! What belongs on members that hold copies, read from the others.

use std::ops::Range;

use geometry::{Geometry, Home, Place};

use crate::batch::ReadBatch;
use crate::core::Core;
use crate::job_status::Loss;
use crate::rebuild::{Fill, Filled, PIECE_BYTES, Stuck};

/// A range of a member to be filled that is contiguous in the array.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    slot: usize,
    offset: u64,
    bytes: u64,
    array_offset: u64,
    /// Copies of it that were tried in vain.
    tried: usize,
}

impl Piece {
    /// Its bytes of the array.
    pub(crate) fn array(&self) -> Range<u64> {
        self.array_offset..self.array_offset + self.bytes
    }
}

/// What a range of the members' data areas holds, in pieces.
pub(crate) fn pieces(core: &Core, targets: &[usize], range: &Range<u64>) -> Vec<Piece> {
    let unit = match &core.geometry {
        Geometry::Raid10(raid10) => raid10.chunk_bytes(),
        _ => u64::MAX,
    };
    let mut pieces = Vec::new();
    for &slot in targets {
        let mut at = range.start;
        while at < range.end {
            let bytes = (unit - at % unit).min(range.end - at);
            if let Some(Home::Data { array_offset, .. }) = core.geometry.home(slot, at) {
                pieces.push(Piece { slot, offset: at, bytes, array_offset, tried: 0 });
            }
            at += bytes;
        }
    }
    pieces
}

/// The part of the array from the first to the last piece.
pub(crate) fn range(pieces: &[Piece]) -> Range<u64> {
    let start = pieces.iter().map(|piece| piece.array_offset).min().unwrap_or(0);
    let end = pieces.iter().map(|piece| piece.array_offset + piece.bytes).max().unwrap_or(start);
    start..end
}

/// The content of the pieces, and what can't be had any more.
pub(crate) async fn window(core: &Core, fill: &Fill, mut pieces: Vec<Piece>) -> Filled {
    let mut filled = Filled::default();
    while !pieces.is_empty() {
        let mut reads = ReadBatch::new();
        let mut next: Vec<Piece> = Vec::new();
        for piece in pieces {
            let places = places(core, fill, &piece);
            let untried = places.iter().enumerate().skip(piece.tried);
            let mut readable = untried
                .filter(|(_, place)| core.slots[place.member].readable(place.offset, piece.bytes));
            match readable.next() {
                Some((index, place)) => {
                    let buffer = core.world.pool().take(piece.bytes as usize);
                    let piece = Piece { tried: index + 1, ..piece };
                    reads.add(place.member, place.offset, buffer, piece);
                }
                None if piece.bytes > PIECE_BYTES => next.extend(cut(&piece)),
                None => {
                    let Piece { slot, offset, bytes, array_offset, .. } = piece;
                    filled.losses.push(Loss { array_offset, bytes });
                    filled.stuck.push(Stuck { slot, offset, bytes });
                }
            }
        }
        let results = reads.run(core).await;
        for (piece, buffer) in results.read {
            filled.filling.push((piece.slot, piece.offset, buffer.freeze()));
        }
        for (piece, slot, error) in results.failed {
            core.note_read_error(slot, &error).await;
            let tried = piece.tried.checked_sub(1).and_then(|tried| {
                let places = places(core, fill, &piece);
                places.get(tried).map(|place| place.offset)
            });
            if let Some(offset) = tried {
                filled.note_unread(slot, offset, piece.bytes, &error);
            }
            next.push(piece);
        }
        pieces = next;
    }
    filled
}

/// Where a piece can be read, the best place first: all sources are taken in the same order, so
/// that copies that don't agree yet are filled with what clients are given.
fn places(core: &Core, fill: &Fill, piece: &Piece) -> Vec<Place> {
    let Some(run) = core.geometry.runs(piece.array_offset, piece.bytes).next() else {
        return Vec::new();
    };
    let copies = (0..core.geometry.copies()).map(|copy| core.geometry.copy(&run, copy));
    let (own, others): (Vec<Place>, Vec<Place>) =
        copies.partition(|place| place.member == piece.slot && place.offset == piece.offset);
    match fill.own_serves() {
        true => own.into_iter().chain(others).collect(),
        false => others,
    }
}

/// Small pieces of one that can be read nowhere as a whole.
fn cut(piece: &Piece) -> Vec<Piece> {
    let starts = (0..piece.bytes).step_by(PIECE_BYTES as usize);
    let part = |start: u64| Piece {
        offset: piece.offset + start,
        array_offset: piece.array_offset + start,
        bytes: PIECE_BYTES.min(piece.bytes - start),
        ..Piece { tried: 0, ..*piece }
    };
    starts.map(part).collect()
}
