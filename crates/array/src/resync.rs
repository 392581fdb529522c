//! Making copies and parity agree, in the background: after create, and after a sudden end.
//!
//! Parity is computed from the data, further copies are written from the first readable one. Where
//! nothing readable is left to compare, it goes on behind that, and counts it.

use std::collections::BTreeSet;
use std::ops::Range;

use drive::{DriveError, Durability};
use geometry::{Geometry, Parity, Place, Role, StripeMap};
use world::{BufMut, ReadBufs, join_all};

use crate::batch::{ReadBatch, WriteBatch};
use crate::core::Core;
use crate::due;
use crate::job::{Pass, WINDOW_BYTES, Watch, Window};
use crate::job_status::{JobEnd, JobKind};
use crate::lock::Mode;
use crate::stripe::{compute, recover_columns};

/// Makes everything agree that does not yet.
pub(crate) struct Resync;

impl Pass for Resync {
    fn kind(&self) -> JobKind {
        JobKind::Resync
    }

    fn slot(&self) -> Option<usize> {
        None
    }

    fn window_bytes(&self, core: &Core) -> u64 {
        match &core.geometry {
            Geometry::Parity(parity) => whole_chunks(parity, WINDOW_BYTES),
            _ => WINDOW_BYTES,
        }
    }

    fn range(&self, core: &Core) -> Range<u64> {
        let start = core.synced_to.get();
        match &core.geometry {
            Geometry::Parity(parity) => {
                let end = parity.stripes() * parity.chunk_bytes();
                (start - start % parity.chunk_bytes()).min(end)..end
            }
            geometry => start.min(geometry.array_bytes())..geometry.array_bytes(),
        }
    }

    /// Everything behind the position does, unless the bitmap knows better.
    fn next(&self, core: &Core, at: u64) -> Range<u64> {
        let Some(bitmap) = &core.bitmap else { return at..u64::MAX };
        let Some(needed) = bitmap.next_needed(at) else { return u64::MAX..u64::MAX };
        let Geometry::Parity(parity) = &core.geometry else { return needed };
        let chunk = parity.chunk_bytes();
        // `at` is the start of a stripe: what lies before a chunk's first is not worked on twice.
        needed.start / chunk * chunk..needed.end.div_ceil(chunk).saturating_mul(chunk)
    }

    fn over(&self, core: &Core) -> Option<JobEnd> {
        due::makes_way(core, JobKind::Resync).then_some(JobEnd::Stopped)
    }

    async fn window(&self, core: &Core, range: Range<u64>) -> Result<Window, DriveError> {
        match &core.geometry {
            Geometry::Parity(parity) => parity_window(core, parity, range).await,
            _ => copies_window(core, range).await,
        }
    }

    fn reached(&self, core: &Core, position: u64) {
        let before = core.synced_to.get();
        core.synced_to.set(before.max(position));
        if let Some(bitmap) = core.bitmap.as_ref().filter(|_| before < position) {
            bitmap.made_to_agree(before..position);
        }
    }

    async fn record(&self, core: &Core, end: bool) -> Result<(), DriveError> {
        let synced_to = if end { u64::MAX } else { core.synced_to.get() };
        // What was made to agree is durable before the superblocks say so.
        core.flush_members().await?;
        core.synced_to.set(synced_to);
        core.synced_durably_to.set(synced_to);
        if let Some(bitmap) = &core.bitmap {
            bitmap.clear_later(core);
        }
        core.commit().await
    }
}

/// The most whole chunks within `bytes`, or one.
pub(crate) fn whole_chunks(parity: &Parity, bytes: u64) -> u64 {
    (bytes / parity.chunk_bytes()).max(1) * parity.chunk_bytes()
}

/// What a buffer of the window is: the stripe, and the member's role in it.
type Part = (u64, Role);

/// Computes the parity of the stripes in a range of the members.
async fn parity_window(
    core: &Core,
    parity: &Parity,
    range: Range<u64>,
) -> Result<Window, DriveError> {
    let chunk = parity.chunk_bytes();
    let (first, last) = (range.start / chunk, range.end / chunk);
    let _lock = core.locks.lock(first..last, Mode::Exclusive).await;
    let mut watch = Watch::new(core);
    // Chunks that could not be read: what they held is recovered, or nothing is compared there.
    let mut unreadable: BTreeSet<(u64, usize)> = BTreeSet::new();
    let mut read = loop {
        let mut reads: ReadBatch<Part> = ReadBatch::new();
        for stripe in first..last {
            let map = parity.stripe(stripe);
            let there = |slot: usize| {
                core.slots[slot].readable(map.member_offset(), chunk)
                    && !unreadable.contains(&(stripe, slot))
            };
            for role in sources(&map, there) {
                let slot = match role {
                    Role::Data(column) => map.data(column),
                    Role::P => map.p(),
                    Role::Q => unreachable!("Q is never a source"),
                };
                let buffer = core.world.pool().take(chunk as usize);
                reads.add(slot, map.member_offset(), buffer, (stripe, role));
            }
        }
        let results = reads.run(core).await;
        if results.failed.is_empty() {
            break results.read;
        }
        for ((stripe, _), slot, error) in results.failed {
            core.note_read_error(slot, &error).await;
            unreadable.insert((stripe, slot));
        }
    };
    watch.read();
    let mut writes = WriteBatch::default();
    read.sort_unstable_by_key(|((stripe, _), _)| *stripe);
    let mut read = read.into_iter().peekable();
    for stripe in first..last {
        let map = parity.stripe(stripe);
        let mut columns: Vec<Option<BufMut>> =
            std::iter::repeat_with(|| None).take(map.data_members()).collect();
        let mut p_read = None;
        let mut any = false;
        while let Some(((_, role), buffer)) = read.next_if(|((of, _), _)| *of == stripe) {
            any = true;
            match role {
                Role::Data(column) => columns[column] = Some(buffer),
                Role::P | Role::Q => p_read = Some(buffer),
            }
        }
        if !any {
            core.unsynced_stripes.set(core.unsynced_stripes.get() + 1);
            continue;
        }
        let take = || core.world.pool().take(chunk as usize);
        let lost = columns.iter().position(Option::is_none);
        if let Some(column) = lost {
            columns[column] = Some(take());
            recover_columns(&map, &mut columns, p_read.as_deref_mut(), None, &[column]);
        }
        let target = |slot: usize| core.slots[slot].writable().then(|| (slot, take()));
        // P that a column was recovered from agrees by that.
        let mut p = if lost.is_none() { target(map.p()) } else { None };
        let mut q = map.q().and_then(target);
        let data: Vec<&[u8]> = columns.iter().flatten().map(|buffer| &buffer[..]).collect();
        compute(
            &map,
            &data,
            p.as_mut().map(|(_, buffer)| &mut buffer[..]),
            q.as_mut().map(|(_, buffer)| &mut buffer[..]),
        );
        for (slot, buffer) in [p, q].into_iter().flatten() {
            writes.add(slot, map.member_offset(), buffer.freeze());
        }
    }
    watch.computed();
    writes.run(core, Durability::Cached).await?;
    Ok(watch.written())
}

/// What a stripe's parity is computed from: all data; with one chunk gone the rest and P, which
/// leaves Q to be made to agree; nothing where no redundancy is left to compare.
fn sources(map: &StripeMap, there: impl Fn(usize) -> bool) -> Vec<Role> {
    let columns = 0..map.data_members();
    let (mut roles, lost): (Vec<Role>, Vec<Role>) =
        columns.map(Role::Data).partition(|role| match role {
            Role::Data(column) => there(map.data(*column)),
            Role::P | Role::Q => false,
        });
    match lost.len() {
        0 => roles,
        1 if map.q().is_some() && there(map.p()) => {
            roles.push(Role::P);
            roles
        }
        _ => Vec::new(),
    }
}

/// Writes the further copies of a range of the array.
async fn copies_window(core: &Core, range: Range<u64>) -> Result<Window, DriveError> {
    let _lock = core.locks.lock(range.clone(), Mode::Exclusive).await;
    let mut watch = Watch::new(core);
    let reads = core.geometry.runs(range.start, range.end - range.start).map(|run| async move {
        let places: Vec<_> =
            (0..core.geometry.copies()).map(|copy| core.geometry.copy(&run, copy)).collect();
        let writable = |place: &Place| core.slots[place.member].writable();
        if places.iter().filter(|place| writable(place)).count() < 2 {
            return None;
        }
        let mut buffers = ReadBufs::from_iter([core.world.pool().take(run.bytes as usize)]);
        for source in &places {
            if !core.slots[source.member].readable(source.offset, run.bytes) {
                continue;
            }
            let done = core.read(source.member, source.offset, buffers, false).await;
            buffers = done.buffers;
            match done.result {
                Ok(()) => {
                    let targets = places.iter().filter(|place| *place != source && writable(place));
                    return Some((targets.copied().collect::<Vec<_>>(), buffers));
                }
                Err(error) => core.note_read_error(source.member, &error).await,
            }
        }
        core.unsynced_stripes.set(core.unsynced_stripes.get() + 1);
        None
    });
    let mut writes = WriteBatch::default();
    let read = join_all(reads).await;
    watch.read();
    for (targets, mut buffers) in read.into_iter().flatten() {
        let data = buffers.pop().expect("one buffer was given").freeze();
        for place in targets {
            writes.add(place.member, place.offset, data.clone());
        }
    }
    writes.run(core, Durability::Cached).await?;
    Ok(watch.written())
}
