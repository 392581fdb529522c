//! Replaying a journal (RAID 4, 5, 6): its blocks go to where they belong. In write-back mode the
//! journal is the only place that has them.
//!
//! A journal that can't be read keeps the array shut: what it holds may be nowhere else.
//!
//! Format: `format::md::journal`.

use std::collections::BTreeMap;
use std::time::Duration;

use drive::{Drive, DriveError, Durability};
use format::md::journal::{JournalPayload, MetaBlock, wrap};
use format::md::{SECTOR_BYTES, Uuid};
use geometry::{Parity, StripeMap};
use world::{Buf, BufMut};

use crate::around::{self, Wanted};
use crate::batch::WriteBatch;
use crate::core::Core;
use crate::examine::Scan;
use crate::journal::SEQUENCE_JUMP;
use crate::log::Replayed;
use crate::replay::read_log;
use crate::stripe::{compute, recover_columns};

/// md journals in blocks of this size.
const BLOCK_BYTES: usize = 4096;

/// What the journal holds of one stripe's 4 KiB row, newest first come last.
#[derive(Default)]
struct Row {
    data: BTreeMap<u64, Buf>,
    parity: Vec<Buf>,
}

/// Replays the journal on the drive of a candidate.
///
/// # Errors
/// The journal's, or a member's that can't be written and that the array can't do without.
pub(crate) async fn replay(
    core: &Core,
    scan: &Scan,
    journal: usize,
    parity: &Parity,
) -> Result<Replayed, DriveError> {
    let found = &scan.candidates[journal];
    let set_uuid = found.view.set_uuid;
    let ring = Ring {
        core,
        drive: scan.drives[found.drive].as_ref(),
        limit: core.policy.borrow().patience,
        start: found.view.layout.data_offset_bytes,
        sectors: found.view.data_bytes / BLOCK_BYTES as u64 * 8,
    };
    let mut position = found.view.journal_tail_bytes.unwrap_or(0) / SECTOR_BYTES;
    let mut expected = None;
    let mut rows: BTreeMap<u64, Row> = BTreeMap::new();
    let mut walked = 0;
    while walked < ring.sectors {
        let block = ring.block(position).await?;
        // The log ends at the first block that is not the next of it.
        let Ok(meta) = MetaBlock::parse(&block, position, expected, set_uuid) else { break };
        let Ok(next) = meta.next_position(ring.sectors) else { break };
        if !take_rows(&ring, &meta, set_uuid, parity, &mut rows).await? {
            break;
        }
        expected = Some(meta.sequence + 1);
        walked += (next + ring.sectors - position - 1) % ring.sectors + 1;
        position = next;
    }
    for (member_offset, row) in rows {
        store_row(core, parity, member_offset, &row).await?;
    }
    // A journal whose first block is none is new, or begins anew; what may lie further on in it has
    // other numbers than one that follows from the time of its last superblock.
    let fresh = found.view.updated.seconds() << 20;
    let sequence = expected.unwrap_or(fresh) + SEQUENCE_JUMP;
    Ok(Replayed::Journal { position, sequence })
}

struct Ring<'a> {
    core: &'a Core,
    drive: &'a dyn Drive,
    /// A read of it may take so long.
    limit: Duration,
    start: u64,
    sectors: u64,
}

impl Ring<'_> {
    async fn block(&self, position: u64) -> Result<Buf, DriveError> {
        let offset = self.start + wrap(position, self.sectors) * SECTOR_BYTES;
        let block = read_log(self.core, self.drive, offset, BLOCK_BYTES, self.limit).await?;
        Ok(block.freeze())
    }
}

/// Adds a meta block's payloads to the rows; false when one of its blocks was torn, which makes
/// the whole meta block void.
async fn take_rows(
    ring: &Ring<'_>,
    meta: &MetaBlock<'_>,
    set_uuid: Uuid,
    parity: &Parity,
    rows: &mut BTreeMap<u64, Row>,
) -> Result<bool, DriveError> {
    let mut data = Vec::new();
    let mut parities = Vec::new();
    let mut flushed = Vec::new();
    for payload in meta.payloads() {
        let Ok(payload) = payload else { return Ok(false) };
        let blocks = match payload {
            JournalPayload::Flush(stripes) => {
                flushed.extend(stripes.sectors());
                continue;
            }
            JournalPayload::Data(blocks) | JournalPayload::Parity(blocks) => blocks,
        };
        for index in 0..blocks.count() {
            let position = blocks.position + index as u64 * (BLOCK_BYTES as u64 / SECTOR_BYTES);
            let block = ring.block(position).await?;
            if !blocks.check(index, &block, set_uuid) {
                return Ok(false);
            }
            let Some(location) = blocks.location_sector.checked_mul(SECTOR_BYTES) else {
                return Ok(false);
            };
            match payload {
                JournalPayload::Data(_) => {
                    data.push((location + (index * BLOCK_BYTES) as u64, block));
                }
                _ => parities.push((location, block)),
            }
        }
    }
    for sector in flushed {
        let Some(offset) = sector.checked_mul(SECTOR_BYTES) else { return Ok(false) };
        rows.remove(&(offset / BLOCK_BYTES as u64 * BLOCK_BYTES as u64));
    }
    for (array_offset, block) in data {
        if array_offset >= parity.array_bytes() {
            return Ok(false);
        }
        let (stripe, _, within) = parity.stripe_of(array_offset);
        let row = rows.entry(stripe * parity.chunk_bytes() + within).or_default();
        row.data.insert(array_offset, block);
        // Parity that was journalled before belongs to the content before.
        row.parity.clear();
    }
    for (member_offset, block) in parities {
        rows.entry(member_offset).or_default().parity.push(block);
    }
    Ok(true)
}

/// Stores a row on its members: the data, and parity as journalled or, where only data was
/// (write-back), computed from what is then on the members.
async fn store_row(
    core: &Core,
    parity: &Parity,
    member_offset: u64,
    row: &Row,
) -> Result<(), DriveError> {
    let stripe = member_offset / parity.chunk_bytes();
    if stripe >= parity.stripes() {
        return Ok(());
    }
    let map = parity.stripe(stripe);
    let mut writes: Vec<(usize, u64, Buf)> = Vec::new();
    for (&array_offset, block) in &row.data {
        let (_, column, within) = parity.stripe_of(array_offset);
        writes.push((map.data(column), map.member_offset() + within, block.clone()));
    }
    let targets = [Some(map.p()), map.q()].into_iter().flatten();
    if row.parity.len() >= parity.parities() {
        let newest = &row.parity[row.parity.len() - parity.parities()..];
        writes
            .extend(targets.zip(newest).map(|(slot, block)| (slot, member_offset, block.clone())));
    } else if let Some(mut columns) = old_columns(core, &map, member_offset).await {
        // Parity on the members still is that of the old data: what can't be read comes from it.
        for (&array_offset, block) in &row.data {
            let (_, column, _) = parity.stripe_of(array_offset);
            columns[column].copy_from_slice(block);
        }
        let columns: Vec<&[u8]> = columns.iter().map(|column| &column[..]).collect();
        let mut p = core.world.pool().take(BLOCK_BYTES);
        let mut q = core.world.pool().take(BLOCK_BYTES);
        let q_wanted = map.q().map(|_| &mut q[..]);
        compute(&map, &columns, Some(&mut p), q_wanted);
        let parities = [p.freeze(), q.freeze()];
        writes.extend(targets.zip(parities).map(|(slot, block)| (slot, member_offset, block)));
    }
    let mut batch = WriteBatch::default();
    for (slot, offset, block) in writes {
        if core.slots[slot].writable() {
            batch.add(slot, offset, block);
        }
    }
    // Who fails here is recorded while the journal still has the row.
    batch.run(core, Durability::Cached).await
}

/// A row's data as it is on the members, with what can't be read recovered; `None` where too much
/// is missing.
async fn old_columns(core: &Core, map: &StripeMap, member_offset: u64) -> Option<Vec<BufMut>> {
    let mut columns = Vec::new();
    for column in 0..map.data_members() {
        columns.push(read_block(core, map.data(column), member_offset).await);
    }
    let lost: Vec<usize> = (0..columns.len()).filter(|&c| columns[c].is_none()).collect();
    if !lost.is_empty() {
        let (mut p, mut q) = (read_block(core, map.p(), member_offset).await, None);
        if let Some(slot) = map.q() {
            q = read_block(core, slot, member_offset).await;
        }
        if lost.len() > usize::from(p.is_some()) + usize::from(q.is_some()) {
            return None;
        }
        for &column in &lost {
            columns[column] = Some(core.world.pool().take(BLOCK_BYTES));
        }
        recover_columns(map, &mut columns, p.as_deref_mut(), q.as_deref_mut(), &lost);
    }
    columns.into_iter().collect()
}

/// A block of a member; `None` where it can't be read.
async fn read_block(core: &Core, slot: usize, offset: u64) -> Option<BufMut> {
    if !core.slots[slot].holds(offset, BLOCK_BYTES as u64) {
        return None;
    }
    let wanted = Wanted { key: (), slot, offset, bytes: BLOCK_BYTES };
    let part = around::read(core, vec![wanted], BLOCK_BYTES).await.pop()?;
    part.unreadable.is_empty().then_some(part.content)
}
