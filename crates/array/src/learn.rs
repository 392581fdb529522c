//! Giving checksums to data that has none: of a new array, after a sudden end, after somebody else
//! wrote to the members.
//!
//! It goes over the array in windows, each locked against writers. Only what agrees with its
//! redundancy gets a checksum: where copies differ, or parity does not fit, nobody knows which
//! member is right, and a checksum would make a wrong one right for ever. Where redundancy is
//! missing, the data is taken as it is, as it is for every other purpose.

use std::rc::Rc;
use std::time::Duration;

use drive::DriveError;
use format::own::checksums::BLOCK_BYTES;
use geometry::{Geometry, Parity};
use world::{BufMut, ReadBufs, join_all};

use crate::core::Core;
use crate::job::WINDOW_BYTES;
use crate::lock::Mode;
use crate::slot::SlotState;
use crate::stripe::compute;

/// How long it steps back for clients that are writing.
const STEP_BACK: Duration = Duration::from_millis(20);

/// Gives what has no checksum one, in the background and once redundancy agrees. To be called
/// whenever there may be such.
pub(crate) fn start(core: &Rc<Core>) {
    if !core.metadata.writable() || core.stopping.get() || core.sums_complete() {
        return;
    }
    let checksums = &core.checksums;
    checksums.asked.set(checksums.asked.get() + 1);
    if checksums.learning.inside() > 0 {
        return;
    }
    checksums.learning.enter();
    let owner = Rc::clone(core);
    core.world.spawn(async move {
        let checksums = &owner.checksums;
        let mut seen = 0;
        // Somebody who was filled meanwhile needs a pass of its own.
        while seen != checksums.asked.get() {
            seen = checksums.asked.get();
            owner.jobs.busy.drained().await;
            if owner.synced_to.get() == u64::MAX {
                // As with a resync: what fails here is met again by the next write.
                let _ = run(&owner).await;
            }
        }
        checksums.learning.leave();
    });
}

/// Runs until all data has checksums, as far as it agrees, or the array stops.
///
/// # Errors
/// That of a member that can't be written and that the array can't do without.
async fn run(core: &Core) -> Result<(), DriveError> {
    let end = core.sync_bytes();
    // Who is still being filled has data that no checksum was given to before.
    let whole = core.sums().filter(|(slot, _)| core.slots[*slot].state() == SlotState::InSync);
    let members: Vec<_> = whole.map(|(_, sums)| (sums.losses(), sums)).collect();
    let mut left = 0;
    let mut at = 0;
    while at < end {
        if core.stopping.get() || core.jobs.held.get() {
            return Ok(());
        }
        core.checksums.learnt_to.set(at);
        let (next, lacking) = match &core.geometry {
            Geometry::Parity(parity) => parity_window(core, parity, at).await,
            _ => copies_window(core, at, end).await,
        };
        left += lacking;
        at = next;
        match core.writes_in_flight.inside() {
            0 => core.world.yield_now().await,
            _ => core.world.sleep(STEP_BACK).await,
        }
    }
    core.checksums.unlearnt_blocks.set(left);
    if left == 0 {
        for (before, sums) in members {
            // What was lost behind the window's back is still without.
            sums.set_complete(sums.losses() == before);
        }
    }
    core.persist_sums().await
}

/// Reads a range of a slot's data area, checksums aside. `Ok(None)` where nobody holds it.
async fn read(core: &Core, slot: usize, offset: u64, bytes: u64) -> Result<Option<BufMut>, ()> {
    let state = &core.slots[slot];
    let Some(member) = state.member() else { return Ok(None) };
    if !matches!(state.state(), SlotState::InSync) {
        return Ok(None);
    }
    let buffers = ReadBufs::from_iter([core.world.pool().take(bytes as usize)]);
    let read = member.bare_drive().read(member.data_offset + offset, buffers);
    let mut done = read.await;
    match done.result {
        Ok(()) => Ok(done.buffers.pop()),
        Err(_) => Err(()),
    }
}

/// Blocks of a member's range that have no checksum.
async fn lacking(core: &Core, places: &[(usize, u64)], bytes: u64) -> bool {
    for &(slot, offset) in places {
        let member = core.slots[slot].member().filter(|_| core.slots[slot].writable());
        let Some(sums) = member.and_then(|member| member.sums.clone()) else { continue };
        if sums.lacks(offset, bytes).await {
            return true;
        }
    }
    false
}

/// Gives the members at `places` their checksums, where `agrees`; gives how many blocks are left.
async fn learn(
    core: &Core,
    places: &[(usize, u64)],
    contents: &[Result<Option<BufMut>, ()>],
    agrees: &[bool],
) -> u64 {
    // A member that can't be read now may hold what contradicts the others.
    let unreadable = contents.iter().any(Result::is_err);
    let mut left = 0;
    for (&(slot, offset), content) in places.iter().zip(contents) {
        let member = core.slots[slot].member();
        let Some(sums) = member.and_then(|member| member.sums.clone()) else { continue };
        match content {
            Ok(Some(content)) => {
                left += sums.learn(offset, content, |block| !unreadable && agrees[block]).await;
            }
            Ok(None) => {}
            Err(()) => left += 1,
        }
    }
    left
}

async fn parity_window(core: &Core, parity: &Parity, start: u64) -> (u64, u64) {
    let chunk = parity.chunk_bytes();
    let first = start / chunk;
    let last = (first + (WINDOW_BYTES / chunk).max(1)).min(parity.stripes());
    let _lock = core.locks.lock(first..last, Mode::Exclusive).await;
    let bytes = (last - first) * chunk;
    let places: Vec<(usize, u64)> = (0..core.slots.len()).map(|slot| (slot, start)).collect();
    if !lacking(core, &places, bytes).await {
        return (last * chunk, 0);
    }
    let reads = (0..core.slots.len()).map(|slot| read(core, slot, start, bytes));
    let contents: Vec<_> = join_all(reads).await.into_iter().collect();
    let mut agrees = vec![true; (bytes / BLOCK_BYTES) as usize];
    let whole: Option<Vec<&BufMut>> =
        contents.iter().map(|content| content.as_ref().ok()?.as_ref()).collect();
    if let Some(members) = whole {
        for stripe in first..last {
            let map = parity.stripe(stripe);
            let at = ((stripe - first) * chunk) as usize;
            let part = |slot: usize| &members[slot][at..at + chunk as usize];
            let data: Vec<&[u8]> =
                (0..map.data_members()).map(|column| part(map.data(column))).collect();
            let mut p = core.world.pool().take(chunk as usize);
            let mut q = map.q().map(|_| core.world.pool().take(chunk as usize));
            compute(&map, &data, Some(&mut p), q.as_deref_mut());
            let parities = [(map.p(), Some(p)), (map.q().unwrap_or(map.p()), q)];
            for (slot, computed) in parities {
                let Some(computed) = computed else { continue };
                compare(&mut agrees[at / BLOCK_BYTES as usize..], part(slot), &computed);
            }
        }
    }
    (last * chunk, learn(core, &places, &contents, &agrees).await)
}

async fn copies_window(core: &Core, start: u64, end: u64) -> (u64, u64) {
    let end = end.min(start + WINDOW_BYTES);
    let _lock = core.locks.lock(start..end, Mode::Exclusive).await;
    let mut left = 0;
    for run in core.geometry.runs(start, end - start) {
        let copies = (0..core.geometry.copies()).map(|copy| core.geometry.copy(&run, copy));
        let places: Vec<(usize, u64)> = copies.map(|place| (place.member, place.offset)).collect();
        if !lacking(core, &places, run.bytes).await {
            continue;
        }
        let reads = places.iter().map(|&(slot, offset)| read(core, slot, offset, run.bytes));
        let contents: Vec<_> = join_all(reads).await.into_iter().collect();
        let mut agrees = vec![true; (run.bytes / BLOCK_BYTES) as usize];
        let mut copies = contents.iter().flatten().flatten();
        if let Some(first) = copies.next() {
            copies.for_each(|other| compare(&mut agrees, first, other));
        }
        left += learn(core, &places, &contents, &agrees).await;
    }
    (end, left)
}

/// Clears `agrees` of each block in which the two differ.
fn compare(agrees: &mut [bool], one: &[u8], other: &[u8]) {
    let blocks = one.chunks(BLOCK_BYTES as usize).zip(other.chunks(BLOCK_BYTES as usize));
    for (agrees, (one, other)) in agrees.iter_mut().zip(blocks) {
        *agrees &= one == other;
    }
}
