//! Replaying partial parity logs (RAID 5): parity of the stripes that were being written is
//! computed anew from the logged partial parity and the data now on the members.
//!
//! A block of that data which can't be read was being written, so nobody knows what it should
//! hold. Parity is left alone there and the block is written anew with what parity gives; like a
//! block of a member that is lost at that moment it may then hold neither old nor new. Every other
//! block of the row is kept. A member that can't be read otherwise is failed, since parity would
//! be left beside data that comes back later.
//!
//! Format: `format::md::ppl`.

use std::time::Duration;

use drive::{DriveError, Durability, ErrorKind, Operation};
use format::md::{Assembly, ConsistencyPlace, PplEntry, PplLog, SECTOR_BYTES};
use geometry::Parity;

use crate::around::{self, Wanted};
use crate::batch::WriteBatch;
use crate::core::Core;
use crate::examine::Scan;
use crate::log::Replayed;
use crate::mend::mend;
use crate::replay::read_log;
use crate::slot::SlotState;

/// As much of an entry is mended at once.
const STRIP_BYTES: u64 = 64 << 10;

/// A part of a member's data area: slot, offset and bytes.
type Place = (usize, u64, u64);

/// Replays the logs of all members.
///
/// # Errors
/// A member's that can't be written and that the array can't do without.
pub(crate) async fn replay(
    core: &Core,
    scan: &Scan,
    assembly: &Assembly,
    parity: &Parity,
) -> Result<Replayed, DriveError> {
    let (mut entries, mut unreadable_logs) = (0, 0);
    let mut torn = Vec::new();
    for (slot, candidate) in assembly.slots.iter().enumerate() {
        // One that is being filled too: what it has got so far has parity of stripes that were
        // being written.
        let Some(candidate) = candidate.filter(|_| core.slots[slot].writable()) else { continue };
        match replay_log(core, scan, candidate, slot, parity, &mut torn).await? {
            Some(count) => entries += count,
            None if core.slots[slot].state() == SlotState::InSync => unreadable_logs += 1,
            None => {}
        }
    }
    for (slot, offset, bytes) in torn {
        if core.metadata.writable() {
            mend(core, slot, offset, bytes).await;
        }
    }
    Ok(Replayed::Ppl { entries, unreadable_logs })
}

/// Replays one member's log. Gives how many entries were whole; `None` when there is no valid log.
async fn replay_log(
    core: &Core,
    scan: &Scan,
    candidate: usize,
    slot: usize,
    parity: &Parity,
    torn: &mut Vec<Place>,
) -> Result<Option<usize>, DriveError> {
    let found = &scan.candidates[candidate];
    let ConsistencyPlace::Ppl { range, .. } = found.view.consistency else { return Ok(None) };
    let drive = scan.drives[found.drive].as_ref();
    let limit = limit(core, slot);
    let area = match read_log(core, drive, range.start, range.length as usize, limit).await {
        Ok(area) => area,
        Err(error) => {
            note_unreadable(core, slot, error).await;
            return Ok(None);
        }
    };
    // A log that is not valid holds nothing to replay.
    let Ok(log) = PplLog::newest(&area, found.view.set_uuid) else { return Ok(None) };
    let mut replayed = 0;
    for entry in &log.entries {
        if u64::from(entry.partial_parity_bytes) % SECTOR_BYTES != 0 {
            continue;
        }
        let partial = match entry.partial_parity_bytes {
            0 => None,
            _ => match entry.partial_parity(&area) {
                Ok(partial) => Some(partial),
                Err(_) => continue,
            },
        };
        // Nothing is logged before an array is in sync: parity knows what a member holds that does
        // not answer. What the array says of itself is settled after the replay.
        if core.synced_to.get() == 0 {
            core.synced_to.set(u64::MAX);
        }
        replay_entry(core, parity, entry, partial, torn).await?;
        replayed += 1;
    }
    Ok(Some(replayed))
}

/// How long a member's log is waited for.
fn limit(core: &Core, slot: usize) -> Duration {
    let policy = core.policy.borrow();
    if core.needs(slot) { policy.patience } else { policy.write_deadline }
}

/// A member that can't be read for another reason than a bad sector is failed, where the array can
/// do without it.
async fn note_unreadable(core: &Core, slot: usize, error: DriveError) {
    if error.kind == ErrorKind::Media {
        core.metadata.count_read_error(slot);
    } else {
        // One that is needed stays, with what it has.
        let _ = core.fail_members(vec![(slot, error)]).await;
    }
}

/// One entry, a part of each chunk at a time: parity is the partial parity and the data of every
/// chunk the entry says was being written there.
async fn replay_entry(
    core: &Core,
    parity: &Parity,
    entry: &PplEntry,
    partial: Option<&[u8]>,
    torn: &mut Vec<Place>,
) -> Result<(), DriveError> {
    let chunk = parity.chunk_bytes();
    let block = core.facts.block_bytes as usize;
    let start = entry.data_sector.checked_mul(SECTOR_BYTES);
    let Some(start) = start.filter(|&start| start < parity.array_bytes()) else { return Ok(()) };
    let (stripe, first_column, within) = parity.stripe_of(start);
    let map = parity.stripe(stripe);
    let columns = map.data_members();
    // Each written chunk was written over the same offsets, those the partial parity covers; a
    // write of whole stripes has none, and covers all chunks.
    let strip = match partial {
        Some(partial) => partial.len() as u64,
        None => u64::from(entry.data_bytes) / columns as u64,
    };
    let written = u64::from(entry.data_bytes).div_ceil(strip.max(1)) as usize;
    let slots: Vec<usize> =
        (first_column..columns).take(written).map(|column| map.data(column)).collect();
    let strip = strip.min(chunk - within);
    let mut at = 0;
    while at < strip {
        let bytes = (strip - at).min(STRIP_BYTES) as usize;
        let offset = map.member_offset() + within + at;
        let mut sum = core.world.pool().take_zeroed(bytes);
        if let Some(partial) = partial {
            sum.copy_from_slice(&partial[at as usize..][..bytes]);
        }
        at += bytes as u64;
        let there = |&slot: &usize| core.slots[slot].holds(offset, bytes as u64);
        if !slots.iter().all(there) || !core.slots[map.p()].writable() {
            continue;
        }
        let wanted = slots.iter().map(|&slot| Wanted { key: (), slot, offset, bytes });
        let parts = around::read(core, wanted.collect(), block).await;
        // Blocks of parity that are left alone, rising.
        let mut left = vec![false; bytes.div_ceil(block)];
        for part in parts {
            parity::xor_into(&mut sum, &part.content);
            if !part.unreadable.is_empty() && core.slots[part.slot].lateness.late() {
                let error = core.timed_out(part.slot, Operation::Read, offset, bytes as u64);
                core.fail_members(vec![(part.slot, error)]).await?;
            }
            for range in part.unreadable {
                torn.push((part.slot, offset + range.start as u64, range.len() as u64));
                left[range.start / block..range.end.div_ceil(block)].fill(true);
            }
        }
        let sum = sum.freeze();
        let mut writes = WriteBatch::default();
        for (index, _) in left.iter().enumerate().filter(|(_, left)| !**left) {
            let start = index * block;
            let piece = sum.slice(start, block.min(bytes - start));
            writes.add(map.p(), offset + start as u64, piece);
        }
        // Who fails here is recorded while its log is still there.
        writes.run(core, Durability::Cached).await?;
    }
    Ok(())
}
