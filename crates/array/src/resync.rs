//! Making copies and parity agree, in the background: after create, and after a sudden end.
//!
//! It goes over the array in windows, each locked against writers while it is brought in order:
//! parity is computed from the data, further copies are written from the first readable one. What
//! has been done is kept in the superblocks from time to time, so that it goes on there after a
//! restart. Between windows it steps back as long as clients are writing.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use drive::{DriveError, Durability};
use geometry::{Geometry, Parity, Place, Role, StripeMap};
use world::{BufMut, ReadBufs, join_all};

use crate::batch::{ReadBatch, WriteBatch};
use crate::core::Core;
use crate::lock::Mode;
use crate::stripe::{compute, recover_columns};

/// Bytes of each member (of the array, for copies) worked on under one lock: large enough to
/// stream, small enough that a writer that waits for it is not held up noticeably.
const WINDOW_BYTES: u64 = 1 << 20;

/// How often the position goes to the superblocks.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(10);

/// How long it steps back for clients that are writing.
const STEP_BACK: Duration = Duration::from_millis(20);

/// Runs until everything agrees or the array stops. Where nothing readable is left to compare, it
/// goes on behind that, and counts it.
///
/// # Errors
/// The write or flush error of a member that the array can't do without; what was done before
/// stays done.
pub(crate) async fn run(core: Rc<Core>) -> Result<(), DriveError> {
    let end = match &core.geometry {
        Geometry::Parity(parity) => parity.stripes() * parity.chunk_bytes(),
        geometry => geometry.array_bytes(),
    };
    let mut checkpoint_ns = core.world.now_ns();
    loop {
        let start = core.synced_to.get();
        if start >= end {
            break;
        }
        if core.stopping.get() {
            return Ok(());
        }
        let done = match &core.geometry {
            Geometry::Parity(parity) => parity_window(&core, parity, start).await?,
            _ => copies_window(&core, start, end).await?,
        };
        core.synced_to.set(done);
        if core.world.now_ns() - checkpoint_ns >= CHECKPOINT_EVERY.as_nanos() as u64 {
            checkpoint_ns = core.world.now_ns();
            make_durable(&core).await?;
            core.commit().await?;
        }
        match core.writes_in_flight.inside() {
            0 => core.world.yield_now().await,
            _ => core.world.sleep(STEP_BACK).await,
        }
    }
    make_durable(&core).await?;
    core.synced_to.set(u64::MAX);
    core.synced_durably_to.set(u64::MAX);
    core.commit().await
}

/// What was made to agree is durable before the superblocks say so.
async fn make_durable(core: &Core) -> Result<(), DriveError> {
    let synced_to = core.synced_to.get();
    core.flush_members().await?;
    core.synced_durably_to.set(synced_to);
    Ok(())
}

/// What a buffer of the window is: the stripe, and the member's role in it.
type Part = (u64, Role);

/// Computes the parity of the stripes from member offset `start` on; gives where it got to.
async fn parity_window(core: &Core, parity: &Parity, start: u64) -> Result<u64, DriveError> {
    let chunk = parity.chunk_bytes();
    let first = start / chunk;
    let last = (first + (WINDOW_BYTES / chunk).max(1)).min(parity.stripes());
    let _lock = core.locks.lock(first..last, Mode::Exclusive).await;
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
        let results = reads.run(&core.slots).await;
        if results.failed.is_empty() {
            break results.read;
        }
        for ((stripe, _), slot, error) in results.failed {
            core.note_read_error(slot, &error).await;
            unreadable.insert((stripe, slot));
        }
    };
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
    core.fail_members(writes.run(&core.slots, Durability::Cached).await).await?;
    Ok(last * chunk)
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

/// Writes the further copies of the array's bytes from `start` on; gives where it got to.
async fn copies_window(core: &Core, start: u64, end: u64) -> Result<u64, DriveError> {
    let end = end.min(start + WINDOW_BYTES);
    let _lock = core.locks.lock(start..end, Mode::Exclusive).await;
    let reads = core.geometry.runs(start, end - start).map(|run| async move {
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
            let done = core.slots[source.member].read(source.offset, buffers).await;
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
    for (targets, mut buffers) in join_all(reads).await.into_iter().flatten() {
        let data = buffers.pop().expect("one buffer was given").freeze();
        for place in targets {
            writes.add(place.member, place.offset, data.clone());
        }
    }
    core.fail_members(writes.run(&core.slots, Durability::Cached).await).await?;
    Ok(end)
}
