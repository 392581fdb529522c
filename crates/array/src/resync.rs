//! Making copies and parity agree, in the background: after create, and after a sudden end.
//!
//! It goes over the array in windows, each locked against writers while it is brought in order:
//! parity is computed from the data, further copies are written from the first readable one. What
//! has been done is kept in the superblocks from time to time, so that it goes on there after a
//! restart. Between windows it steps back as long as clients are writing.

use std::rc::Rc;
use std::time::Duration;

use drive::{DriveError, Durability};
use geometry::{Geometry, Parity};
use world::{BufMut, ReadBufs, join_all};

use crate::batch::{ReadBatch, WriteBatch};
use crate::core::Core;
use crate::lock::Mode;
use crate::stripe::compute;

/// Bytes of each member (of the array, for copies) worked on under one lock: large enough to
/// stream, small enough that a writer that waits for it is not held up noticeably.
const WINDOW_BYTES: u64 = 1 << 20;

/// How often the position goes to the superblocks.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(10);

/// How long it steps back for clients that are writing.
const STEP_BACK: Duration = Duration::from_millis(20);

/// Runs until everything agrees, the array stops, or data it needs can't be read.
///
/// # Errors
/// The error that ended it; what was done before stays done.
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
            flush_members(&core).await?;
            core.metadata.commit(&core).await?;
        }
        match core.writes_in_flight.inside() {
            0 => core.world.yield_now().await,
            _ => core.world.sleep(STEP_BACK).await,
        }
    }
    flush_members(&core).await?;
    core.synced_to.set(u64::MAX);
    core.synced_durably_to.set(u64::MAX);
    core.metadata.commit(&core).await
}

/// What was made to agree is durable before the superblocks say so.
async fn flush_members(core: &Core) -> Result<(), DriveError> {
    let synced_to = core.synced_to.get();
    for slot in core.slots.iter().filter(|slot| slot.writable()) {
        if let Some(member) = slot.member() {
            member.drive.flush().await?;
        }
    }
    core.synced_durably_to.set(synced_to);
    Ok(())
}

/// Computes the parity of the stripes from member offset `start` on; gives where it got to.
async fn parity_window(core: &Core, parity: &Parity, start: u64) -> Result<u64, DriveError> {
    let chunk = parity.chunk_bytes();
    let first = start / chunk;
    let last = (first + (WINDOW_BYTES / chunk).max(1)).min(parity.stripes());
    let _lock = core.locks.lock(first..last, Mode::Exclusive).await;
    let columns = parity.data_members();
    let mut reads = ReadBatch::new();
    for stripe in first..last {
        let map = parity.stripe(stripe);
        for column in 0..columns {
            let slot = map.data(column);
            if !core.slots[slot].readable(map.member_offset(), chunk) {
                // With a data member gone, its content is what parity says: nothing to compare.
                return Ok(last * chunk);
            }
            let buffer = core.world.pool().take(chunk as usize);
            let index = (stripe - first) as usize * columns + column;
            reads.add(slot, map.member_offset(), buffer, index);
        }
    }
    let results = reads.run(&core.slots).await;
    if let Some((slot, error)) = results.failed.into_iter().next() {
        core.note_read_error(slot, &error).await;
        return Err(error);
    }
    let mut data: Vec<(usize, BufMut)> = results.read;
    data.sort_unstable_by_key(|(index, _)| *index);
    let mut writes = WriteBatch::default();
    for (stripe, data) in (first..last).zip(data.chunks(columns)) {
        let map = parity.stripe(stripe);
        let data: Vec<&[u8]> = data.iter().map(|(_, buffer)| &buffer[..]).collect();
        let target = |slot: usize| {
            let writable = core.slots[slot].writable();
            writable.then(|| (slot, core.world.pool().take(chunk as usize)))
        };
        let mut p = target(map.p());
        let mut q = map.q().and_then(target);
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

/// Writes the further copies of the array's bytes from `start` on; gives where it got to.
async fn copies_window(core: &Core, start: u64, end: u64) -> Result<u64, DriveError> {
    let end = end.min(start + WINDOW_BYTES);
    let _lock = core.locks.lock(start..end, Mode::Exclusive).await;
    let reads = core.geometry.runs(start, end - start).map(|run| async move {
        let places = (0..core.geometry.copies()).map(|copy| core.geometry.copy(&run, copy));
        let source =
            places.clone().find(|place| core.slots[place.member].readable(place.offset, run.bytes));
        let targets: Vec<_> = places
            .filter(|place| Some(*place) != source && core.slots[place.member].writable())
            .collect();
        let (Some(source), false) = (source, targets.is_empty()) else { return Ok(None) };
        let buffers = ReadBufs::from_iter([core.world.pool().take(run.bytes as usize)]);
        let done = core.slots[source.member].read(source.offset, buffers).await;
        match done.result {
            Ok(()) => Ok(Some((targets, done.buffers))),
            Err(error) => Err((source.member, error)),
        }
    });
    let mut writes = WriteBatch::default();
    for result in join_all(reads).await {
        match result {
            Ok(None) => {}
            Ok(Some((targets, mut buffers))) => {
                let data = buffers.pop().expect("one buffer was given").freeze();
                for place in targets {
                    writes.add(place.member, place.offset, data.clone());
                }
            }
            Err((slot, error)) => {
                core.note_read_error(slot, &error).await;
                return Err(error);
            }
        }
    }
    core.fail_members(writes.run(&core.slots, Durability::Cached).await).await?;
    Ok(end)
}
