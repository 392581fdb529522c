//! Writing where there is no parity: one copy, or several of the same bytes.
//!
//! Where there are several, writes to the same bytes go one after the other, so that all copies
//! end with the same content.

use std::rc::Rc;

use drive::{DriveError, Durability, Io, Operation, Zeroing};
use world::{WriteBufs, total_bytes};

use crate::bad_blocks;
use crate::batch::WriteBatch;
use crate::core::Core;
use crate::lock::{Lock, Mode};
use crate::mutant::{self, Mutant};
use crate::split::WriteCutter;

/// Zeroing goes in steps of this many bytes: the list of its ranges stays short, and writers that
/// wait for a part of it don't wait for the whole.
pub(crate) const ZERO_STEP_BYTES: u64 = 64 << 20;

/// Holds the bytes against other writers, where there are copies that could come to differ.
async fn guard(core: &Core, offset: u64, bytes: u64) -> Option<Lock> {
    if core.geometry.copies() == 1 || mutant::planted(Mutant::CopiesUnguarded) {
        return None;
    }
    Some(core.locks.lock(offset..offset + bytes, Mode::Exclusive).await)
}

/// Stores `buffers` where there is only one copy: nothing can come to differ, so nothing has to be
/// kept together, and the common case, one run, goes straight to its member.
pub(crate) fn write_once(
    core: &Rc<Core>,
    offset: u64,
    buffers: WriteBufs,
    durability: Durability,
) -> Io<Result<(), DriveError>> {
    let bytes = total_bytes(&buffers);
    let first = core.geometry.runs(offset, bytes).next().expect("a range that is not empty");
    let slot = &core.slots[first.first.member];
    if first.bytes == bytes && slot.writable() {
        return slot.write(first.first.offset, buffers, durability);
    }
    let core = Rc::clone(core);
    Io::later(async move { write(&core, offset, buffers, durability).await })
}

/// Stores `buffers` from `offset` on, on every copy.
pub(crate) async fn write(
    core: &Core,
    offset: u64,
    buffers: WriteBufs,
    durability: Durability,
) -> Result<(), DriveError> {
    let bytes = total_bytes(&buffers);
    let _guard = guard(core, offset, bytes).await;
    let mut cutter = WriteCutter::new(&buffers);
    let mut writes = WriteBatch::default();
    for run in core.geometry.runs(offset, bytes) {
        let data = cutter.take(run.bytes as usize);
        let mut stored = false;
        let left_out = usize::from(mutant::planted(Mutant::CopyLeftOut));
        for copy in 0..(core.geometry.copies() - left_out).max(1) {
            let place = core.geometry.copy(&run, copy);
            if !core.slots[place.member].writable() {
                continue;
            }
            stored = true;
            let mut at = place.offset;
            for buffer in &data {
                writes.add(place.member, at, buffer.clone());
                at += buffer.len() as u64;
            }
        }
        if !stored {
            return Err(core.lost(Operation::Write, run.array_offset, run.bytes));
        }
    }
    writes.run(core, durability).await
}

/// Makes the bytes zero on every copy.
pub(crate) async fn write_zeroes(
    core: &Core,
    offset: u64,
    bytes: u64,
    zeroing: Zeroing,
    durability: Durability,
) -> Result<(), DriveError> {
    let end = offset + bytes;
    let mut at = offset;
    while at < end {
        let step = ZERO_STEP_BYTES.min(end - at);
        let _guard = guard(core, at, step).await;
        let mut ranges: Vec<(usize, u64, u64)> = Vec::new();
        for run in core.geometry.runs(at, step) {
            let places = (0..core.geometry.copies()).map(|copy| core.geometry.copy(&run, copy));
            let before = ranges.len();
            let there = places.filter(|place| core.slots[place.member].writable());
            ranges.extend(there.map(|place| (place.member, place.offset, run.bytes)));
            if ranges.len() == before {
                return Err(core.lost(Operation::WriteZeroes, run.array_offset, run.bytes));
            }
        }
        zero_members(core, ranges, zeroing, durability).await?;
        at += step;
    }
    Ok(())
}

/// Makes ranges of members zero, neighbours together.
pub(crate) async fn zero_members(
    core: &Core,
    mut ranges: Vec<(usize, u64, u64)>,
    zeroing: Zeroing,
    durability: Durability,
) -> Result<(), DriveError> {
    ranges.retain(|&(slot, _, _)| core.slots[slot].writable());
    ranges.sort_unstable();
    let left_out = usize::from(mutant::planted(Mutant::ZeroesLeaveOneOut) && ranges.len() > 1);
    ranges.truncate(ranges.len() - left_out);
    ranges.dedup_by(|next, last| {
        let joins = next.0 == last.0 && last.1 + last.2 == next.1;
        if joins {
            last.2 += next.2;
        }
        joins
    });
    let zeroings = ranges.iter().map(|&(slot, offset, bytes)| {
        (slot, core.slots[slot].write_zeroes(offset, bytes, zeroing, durability))
    });
    let failed = core.settle(Operation::WriteZeroes, zeroings.collect()).await;
    core.fail_members(failed).await?;
    bad_blocks::written(core, &ranges).await;
    Ok(())
}
