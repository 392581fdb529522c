//! Mending: what a member could not read is recovered from redundancy and written there anew, or
//! listed as bad.
//!
//! A drive that can't read a sector replaces it when it is written. So the recovered content is
//! written to its place, past the drive's cache, and read back; where that does not work the range
//! goes to the member's bad-block log, and from there on is answered from redundancy alone.
//!
//! [`mend`] is for whoever holds the lock of the range already: a scrub, a rebuild, a client's
//! write. A read takes [`later`]: the client has its answer, and the range is locked and mended by
//! a task. Content is recovered under the lock that every writer of these bytes needs, so what is
//! written can't be older than what a client has stored meanwhile.

use std::ops::Range;
use std::rc::Rc;

use drive::{DriveError, Durability, ErrorKind, Operation};
use geometry::{Geometry, Home};
use world::{Buf, BufMut, ReadBufs, WriteBufs};

use crate::bad_blocks;
use crate::core::Core;
use crate::lock::Mode;
use crate::slot::SlotState;
use crate::stripe::{self, Unreadable};

/// Tasks that mend at the same time. What comes on top is left: the next read of it, or a scrub,
/// finds it again.
const TASKS_MAX: usize = 16;

/// Bytes of a member mended under one lock.
const WINDOW_BYTES: u64 = 1 << 20;

/// Bad sectors that lie as close as this count as one error, as md counts them.
const PAGE_BYTES: u64 = 4096;

const HOUR_NS: u64 = 3_600_000_000_000;

/// Counts a member's read errors; what is counted halves every hour.
#[derive(Debug, Default)]
pub(crate) struct ErrorBudget {
    count: u32,
    hour: u64,
}

impl ErrorBudget {
    /// One more, at `now_ns`; gives the count.
    pub(crate) fn charge(&mut self, now_ns: u64) -> u32 {
        let hour = now_ns / HOUR_NS;
        let halvings = u32::try_from(hour - self.hour).unwrap_or(u32::MAX);
        self.count = self.count.checked_shr(halvings).unwrap_or(0) + 1;
        self.hour = hour;
        self.count
    }
}

/// What became of a range, in bytes; what could be read all along is not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Mended {
    /// Written anew, and read back.
    pub(crate) rewritten_bytes: u64,
    /// In the bad-block log: redundancy has the content.
    pub(crate) listed_bytes: u64,
    /// Nothing has the content any more; left as it is.
    pub(crate) lost_bytes: u64,
}

/// What becomes of what nothing has the content of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lost {
    Left,
    /// It goes to the bad-block log: the loss is known after a restart too.
    Listed,
}

/// Mends what can't be read of a range of a member's data area. The caller holds the lock of all
/// that the range belongs to, exclusively: its stripes, or for copies its array bytes. What the log
/// lists is tried again. A member that is out, or does not hold the range yet, is left alone.
///
/// Finding what can't be read takes some reads for each bad sector, so it is for the error path.
/// A member for which this happens too often is failed.
pub(crate) async fn mend(core: &Core, slot: usize, offset: u64, bytes: u64) -> Mended {
    work(core, slot, offset, bytes, Lost::Left).await
}

/// As [`mend`], and lists what is lost: for who has given up on it.
pub(crate) async fn mend_or_list(core: &Core, slot: usize, offset: u64, bytes: u64) -> Mended {
    work(core, slot, offset, bytes, Lost::Listed).await
}

async fn work(core: &Core, slot: usize, offset: u64, bytes: u64, lost: Lost) -> Mended {
    let mut mended = Mended::default();
    let block = u64::from(core.facts.block_bytes);
    let mut written = Vec::new();
    let mut bad_page = None;
    let mut parts = vec![(offset, bytes)];
    while let Some((offset, bytes)) = parts.pop() {
        let Some(member) = core.slots[slot].member().filter(|_| holds(core, slot, offset, bytes))
        else {
            break;
        };
        let listed = member.bad.overlaps(member.data_offset + offset, bytes);
        let mut error = None;
        if !listed {
            match read(core, slot, offset, bytes).await {
                Ok(_) => continue,
                Err(error) if error.kind != ErrorKind::Media => break,
                Err(media) => error = Some(media),
            }
        }
        let unit = unit_of(core, slot, offset, bytes).map_or(bytes, |unit| unit.bytes);
        if unit < bytes || bytes > block {
            let first = if unit < bytes { unit } else { (bytes / block).div_ceil(2) * block };
            parts.push((offset + first, bytes - first));
            parts.push((offset, first));
            continue;
        }
        if let Some(error) = error.filter(|_| bad_page != Some(offset / PAGE_BYTES)) {
            bad_page = Some(offset / PAGE_BYTES);
            let count = core.slots[slot].errors.borrow_mut().charge(core.world.now_ns());
            if count > core.policy.borrow().read_errors_max {
                // One that the array needs stays, and is mended all the same.
                let _ = core.fail_members(vec![(slot, error)]).await;
            }
        }
        let Some(content) = recovered(core, slot, offset, bytes).await else {
            mended.lost_bytes += bytes;
            if lost == Lost::Listed {
                member.bad.add(member.data_offset + offset, bytes);
            }
            continue;
        };
        if rewrite(core, slot, offset, content.freeze()).await {
            mended.rewritten_bytes += bytes;
            written.push((slot, offset, bytes));
        } else {
            mended.listed_bytes += bytes;
            member.bad.add(member.data_offset + offset, bytes);
        }
    }
    if mended.listed_bytes > 0 || (lost == Lost::Listed && mended.lost_bytes > 0) {
        bad_blocks::record(core, slot).await;
    }
    bad_blocks::written(core, &written).await;
    mended
}

/// Mends a range in the background after `error` on reading it, if that is for mending. It
/// counts as background work of the array.
pub(crate) fn later(core: &Core, slot: usize, offset: u64, bytes: u64, error: &DriveError) {
    let useful = error.kind == ErrorKind::Media && core.redundant() && core.metadata.writable();
    if !useful || core.stopping.get() || core.mending.inside() >= TASKS_MAX {
        return;
    }
    let Some(core) = core.this.upgrade() else { return };
    core.mending.enter();
    core.world.clone().spawn(async move {
        mend_locked(&core, slot, offset, bytes).await;
        core.mending.leave();
    });
}

/// Locks and mends a range, part by part.
async fn mend_locked(core: &Rc<Core>, slot: usize, offset: u64, bytes: u64) {
    let end = offset + bytes;
    let mut at = offset;
    while at < end && !core.stopping.get() {
        let Some(unit) = unit_of(core, slot, at, end - at) else { return };
        let _lock = core.locks.lock(unit.lock, Mode::Exclusive).await;
        if !is_guess(core, at..at + unit.bytes) {
            mend(core, slot, at, unit.bytes).await;
        }
        at += unit.bytes;
    }
}

/// Whether what parity gives for a range of a member's chunk may be of another time than the data.
/// Where that is to be resynced yet, the resync does what can be done.
fn is_guess(core: &Core, range: Range<u64>) -> bool {
    let Geometry::Parity(parity) = &core.geometry else { return false };
    core.unsynced.has(range.start / parity.chunk_bytes()) || !core.agrees(range)
}

/// A part of a member's range that one lock covers.
struct Unit {
    lock: Range<u64>,
    bytes: u64,
}

/// The first unit of a range; `None` where the array keeps nothing.
fn unit_of(core: &Core, slot: usize, offset: u64, bytes: u64) -> Option<Unit> {
    if let Geometry::Parity(parity) = &core.geometry {
        let (stripe, within) = (offset / parity.chunk_bytes(), offset % parity.chunk_bytes());
        let bytes = bytes.min(parity.chunk_bytes() - within);
        return (stripe < parity.stripes()).then_some(Unit { lock: stripe..stripe + 1, bytes });
    }
    let Home::Data { array_offset, .. } = core.geometry.home(slot, offset)? else { return None };
    let left = core.geometry.array_bytes() - array_offset;
    let run = core.geometry.runs(array_offset, bytes.min(WINDOW_BYTES).min(left)).next()?;
    Some(Unit { lock: array_offset..array_offset + run.bytes, bytes: run.bytes })
}

/// Whether the member should hold the range.
fn holds(core: &Core, slot: usize, offset: u64, bytes: u64) -> bool {
    match core.slots[slot].state() {
        SlotState::InSync => true,
        SlotState::Recovering { upto_bytes } => offset + bytes <= upto_bytes,
        SlotState::Missing | SlotState::Faulty => false,
    }
}

async fn read(core: &Core, slot: usize, offset: u64, bytes: u64) -> Result<BufMut, DriveError> {
    let buffers = ReadBufs::from_iter([core.world.pool().take(bytes as usize)]);
    let mut done = core.read(slot, offset, buffers, false).await;
    done.result?;
    Ok(done.buffers.pop().expect("one buffer was given"))
}

/// What the member should hold in a part of one unit, from the other members.
async fn recovered(core: &Core, slot: usize, offset: u64, bytes: u64) -> Option<BufMut> {
    if let Geometry::Parity(parity) = &core.geometry {
        let map = parity.stripe(offset / parity.chunk_bytes());
        let within = (offset % parity.chunk_bytes()) as usize;
        let mut unreadable = Unreadable::default();
        unreadable.add(slot, offset, bytes);
        let bytes = bytes as usize;
        return stripe::content(core, map, slot, within, bytes, &mut unreadable).await.ok();
    }
    let Home::Data { array_offset, .. } = core.geometry.home(slot, offset)? else { return None };
    let run = core.geometry.runs(array_offset, bytes).next().filter(|run| run.bytes == bytes)?;
    for copy in 0..core.geometry.copies() {
        let place = core.geometry.copy(&run, copy);
        if place.member == slot || !core.slots[place.member].readable(place.offset, bytes) {
            continue;
        }
        if let Ok(content) = read(core, place.member, place.offset, bytes).await {
            return Some(content);
        }
    }
    None
}

/// Whether the content was stored and reads back.
async fn rewrite(core: &Core, slot: usize, offset: u64, content: Buf) -> bool {
    let buffers = WriteBufs::from_iter([content.clone()]);
    // Durable, so that what is read back comes from the medium as far as a drive lets one know.
    let write = core.slots[slot].write(offset, buffers, Durability::Durable);
    if !core.settle(Operation::Write, vec![(slot, write)]).await.is_empty() {
        return false;
    }
    let back = read(core, slot, offset, content.len() as u64).await;
    back.is_ok_and(|back| back[..] == content[..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_halves_every_hour() {
        let mut budget = ErrorBudget::default();
        let counts: Vec<u32> =
            (0..20).map(|second| budget.charge(second * 1_000_000_000)).collect();
        assert_eq!(counts.last(), Some(&20));
        assert_eq!(budget.charge(HOUR_NS), 11);
        assert_eq!(budget.charge(3 * HOUR_NS), 3);
        assert_eq!(budget.charge(99 * HOUR_NS), 1);
    }
}
