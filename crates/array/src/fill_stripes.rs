//! What belongs on members of parity stripes, worked out from the others.

use std::collections::BTreeSet;
use std::ops::Range;

use geometry::{Parity, Role, StripeMap};
use world::BufMut;

use crate::batch::ReadBatch;
use crate::core::Core;
use crate::job::Watch;
use crate::job_status::Loss;
use crate::rebuild::{Fill, Filled, PIECE_BYTES, Stuck};
use crate::stripe::{compute, recover_columns};

/// The stripes in a range of the members.
pub(crate) fn range(parity: &Parity, range: &Range<u64>) -> Range<u64> {
    let chunk = parity.chunk_bytes();
    range.start / chunk..range.end / chunk
}

/// The content of a window for the members to be filled, and what can't be had any more.
pub(crate) async fn window(
    core: &Core,
    parity: &Parity,
    fill: &Fill,
    targets: &[usize],
    bytes: &Range<u64>,
    watch: &mut Watch<'_>,
) -> Filled {
    let chunk = parity.chunk_bytes();
    let mut window = Stripes { core, parity, fill, targets, watch, filled: Filled::default() };
    let whole = Part { start: 0, len: chunk as usize };
    for (stripe, _) in window.work_out(range(parity, bytes).collect(), whole).await {
        for start in (0..chunk).step_by(PIECE_BYTES as usize) {
            let bytes = PIECE_BYTES.min(chunk - start);
            let piece = Part { start: start as usize, len: bytes as usize };
            for (_, lost) in window.work_out(vec![stripe], piece).await {
                let map = parity.stripe(stripe);
                let offset = map.member_offset() + start;
                let stuck = targets.iter().map(|&slot| Stuck { slot, offset, bytes });
                window.filled.stuck.extend(stuck);
                // Without the members that are filled: who is left can't make up for these.
                let columns = (0..map.data_members()).filter(|&c| lost.contains(&map.data(c)));
                let losses = columns.map(|column| {
                    let in_stripe = column as u64 * chunk + start;
                    Loss { array_offset: stripe * parity.stripe_bytes() + in_stripe, bytes }
                });
                window.filled.losses.extend(losses);
            }
        }
    }
    window.filled
}

/// A range within each chunk.
#[derive(Clone, Copy)]
struct Part {
    start: usize,
    len: usize,
}

/// What a stripe's content for the targets is made from; else the slots whose data is lost.
fn sources(
    map: &StripeMap,
    targets: &[usize],
    own_serves: bool,
    there: impl Fn(usize) -> bool,
) -> Result<Vec<usize>, Vec<usize>> {
    if own_serves && targets.iter().all(|&slot| there(slot)) {
        return Ok(targets.to_vec());
    }
    let there = |slot: usize| there(slot) && !targets.contains(&slot);
    let columns = (0..map.data_members()).map(|column| map.data(column));
    let (mut sources, lost): (Vec<usize>, Vec<usize>) = columns.partition(|&slot| there(slot));
    let parities = std::iter::once(map.p()).chain(map.q()).filter(|&slot| there(slot));
    let before = sources.len();
    sources.extend(parities.take(lost.len()));
    if sources.len() - before == lost.len() { Ok(sources) } else { Err(lost) }
}

/// A window being worked out.
struct Stripes<'a, 'w> {
    core: &'a Core,
    parity: &'a Parity,
    fill: &'a Fill,
    targets: &'a [usize],
    watch: &'a mut Watch<'w>,
    filled: Filled,
}

impl Stripes<'_, '_> {
    /// Works out a part of stripes; gives those in which that can't be done, with the slots whose
    /// data is lost.
    async fn work_out(&mut self, mut stripes: Vec<u64>, part: Part) -> Vec<(u64, Vec<usize>)> {
        let Stripes { core, parity, fill, targets, .. } = *self;
        let mut unreadable: BTreeSet<(u64, usize)> = BTreeSet::new();
        let mut stuck = Vec::new();
        while !stripes.is_empty() {
            let mut reads = ReadBatch::new();
            let mut taken = Vec::new();
            for &stripe in &stripes {
                let map = parity.stripe(stripe);
                let offset = map.member_offset() + part.start as u64;
                let there = |slot: usize| {
                    core.slots[slot].readable(offset, part.len as u64)
                        && !unreadable.contains(&(stripe, slot))
                };
                match sources(&map, targets, fill.own_serves(), there) {
                    Err(lost) => stuck.push((stripe, lost)),
                    Ok(sources) => {
                        taken.push(stripe);
                        for slot in sources {
                            let buffer = core.world.pool().take(part.len);
                            reads.add(slot, offset, buffer, (stripe, slot));
                        }
                    }
                }
            }
            let mut results = reads.run(core).await;
            self.watch.read();
            let again: BTreeSet<u64> =
                results.failed.iter().map(|((stripe, _), ..)| *stripe).collect();
            for ((stripe, slot), _, error) in results.failed {
                core.note_read_error(slot, &error).await;
                let offset = parity.stripe(stripe).member_offset() + part.start as u64;
                self.filled.note_unread(slot, offset, part.len as u64, &error);
                unreadable.insert((stripe, slot));
            }
            results.read.sort_unstable_by_key(|((stripe, _), _)| *stripe);
            let mut read = results.read.into_iter().peekable();
            for stripe in taken {
                let mut buffers = Vec::new();
                while let Some(((_, slot), buffer)) = read.next_if(|((of, _), _)| *of == stripe) {
                    buffers.push((slot, buffer));
                }
                if !again.contains(&stripe) {
                    finish(core, &parity.stripe(stripe), targets, part, buffers, &mut self.filled);
                }
            }
            self.watch.computed();
            stripes = again.into_iter().collect();
        }
        stuck
    }
}

/// Computes the targets' content of one stripe from what was read of it.
fn finish(
    core: &Core,
    map: &StripeMap,
    targets: &[usize],
    part: Part,
    read: Vec<(usize, BufMut)>,
    filled: &mut Filled,
) {
    let offset = map.member_offset() + part.start as u64;
    if read.iter().all(|(slot, _)| targets.contains(slot)) {
        let content = read.into_iter().map(|(slot, buffer)| (slot, offset, buffer.freeze()));
        filled.filling.extend(content);
        return;
    }
    let take = || core.world.pool().take(part.len);
    let mut columns: Vec<Option<BufMut>> =
        std::iter::repeat_with(|| None).take(map.data_members()).collect();
    let (mut p, mut q) = (None, None);
    for (slot, buffer) in read {
        match map.role(slot) {
            Role::Data(column) => columns[column] = Some(buffer),
            Role::P => p = Some(buffer),
            Role::Q => q = Some(buffer),
        }
    }
    let lost: Vec<usize> = (0..columns.len()).filter(|&column| columns[column].is_none()).collect();
    for &column in &lost {
        columns[column] = Some(take());
    }
    if !lost.is_empty() {
        recover_columns(map, &mut columns, p.as_deref_mut(), q.as_deref_mut(), &lost);
    }
    let wanted = |slot: usize| targets.contains(&slot).then(take);
    let (mut p, mut q) = (wanted(map.p()), map.q().and_then(wanted));
    if p.is_some() || q.is_some() {
        let data: Vec<&[u8]> = columns.iter().flatten().map(|buffer| &buffer[..]).collect();
        compute(map, &data, p.as_deref_mut(), q.as_deref_mut());
    }
    for &slot in targets {
        let content = match map.role(slot) {
            Role::Data(column) => columns[column].take(),
            Role::P => p.take(),
            Role::Q => q.take(),
        };
        filled.filling.extend(content.map(|buffer| (slot, offset, buffer.freeze())));
    }
}
