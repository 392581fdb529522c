//! Replaying logs of writes that were in flight. For an array that is only read, on overlays, so
//! that the members stay as they are.
//!
//! - The *partial parity log* (RAID 5): parity of the stripes that were being written is computed
//!   anew from the logged partial parity and the data now on the members.
//! - The *journal* (RAID 4, 5, 6): its blocks go to where they belong. In write-back mode the
//!   journal is the only place that has them.
//!
//! Formats: `format::md::journal` and `format::md::ppl`.

use std::collections::BTreeMap;
use std::rc::Rc;

use drive::{Drive, Durability, Overlay};
use format::md::journal::{JournalPayload, MetaBlock, wrap};
use format::md::{Assembly, ConsistencyPlace, PplLog, Resync, SECTOR_BYTES, Uuid, Verdict};
use geometry::{Geometry, Parity, StripeMap};
use world::{BufMut, World, WriteBufs};

use crate::assemble::AssembleError;
use crate::examine::{Scan, read_bytes};
use crate::journal::SEQUENCE_JUMP;
use crate::log::Replayed;
use crate::slot::{Member, SlotState};
use crate::stripe::recover_columns;

/// md journals in blocks of this size.
const BLOCK_BYTES: usize = 4096;

/// As much of an entry is mended at once.
const STRIP_BYTES: u64 = 64 << 10;

/// A replay holds at most this much per member in memory; logs that are still needed are far
/// smaller than their areas.
const REPLAY_BYTES_MAX: u64 = 1 << 30;

type Members = [Option<(Member, SlotState)>];

/// Replays whatever log the set has: onto the members, or with `read_only` onto overlays that are
/// put over them.
///
/// # Errors
/// A drive's, when a log can't be read or what it says can't be done.
pub(crate) async fn replay(
    world: &World,
    scan: &Scan,
    assembly: &Assembly,
    geometry: &Geometry,
    members: &mut Members,
    read_only: bool,
) -> Result<Replayed, AssembleError> {
    let Geometry::Parity(parity) = geometry else { return Ok(Replayed::Nothing) };
    let view = &scan.candidates[assembly.reference].view;
    let replayed = match view.consistency {
        ConsistencyPlace::Ppl { .. } if view.resync != Resync::Clean => {
            overlay(members, read_only);
            let (mut entries, mut unreadable_logs) = (0, 0);
            for slot in 0..members.len() {
                let (Some(candidate), Some((_, SlotState::InSync))) =
                    (assembly.slots[slot], &members[slot])
                else {
                    continue;
                };
                match replay_ppl(world, scan, candidate, parity, members).await? {
                    Some(count) => entries += count,
                    None => unreadable_logs += 1,
                }
            }
            Replayed::Ppl { entries, unreadable_logs }
        }
        ConsistencyPlace::Journal => {
            let is_journal = |(_, verdict): &&(usize, Verdict)| *verdict == Verdict::Journal;
            match assembly.verdicts.iter().find(is_journal) {
                Some(&(journal, _)) => {
                    overlay(members, read_only);
                    replay_journal(world, scan, journal, parity, members).await?
                }
                None => Replayed::Nothing,
            }
        }
        _ => Replayed::Nothing,
    };
    if !read_only && replayed != Replayed::Nothing {
        for (member, _) in members.iter().flatten() {
            member.drive.flush().await?;
        }
    }
    Ok(replayed)
}

fn overlay(members: &mut Members, read_only: bool) {
    for (member, _) in members.iter_mut().flatten().filter(|_| read_only) {
        member.drive = Rc::new(Overlay::new(Rc::clone(&member.drive), REPLAY_BYTES_MAX));
    }
}

/// Reads from the data area of a slot; `None` where nobody holds those bytes.
async fn read_data(
    world: &World,
    members: &Members,
    slot: usize,
    offset: u64,
    bytes: usize,
) -> Result<Option<Vec<u8>>, AssembleError> {
    let Some((member, SlotState::InSync)) = &members[slot] else { return Ok(None) };
    let at = member.data_offset + offset;
    Ok(Some(read_bytes(world.pool(), member.drive.as_ref(), at, bytes).await?.to_vec()))
}

async fn write_data(
    world: &World,
    members: &Members,
    slot: usize,
    offset: u64,
    bytes: &[u8],
) -> Result<(), AssembleError> {
    let Some((member, _)) = &members[slot] else { return Ok(()) };
    let buffers = WriteBufs::from_iter([world.pool().copy_of(bytes)]);
    member.drive.write(member.data_offset + offset, buffers, Durability::Cached).await?;
    Ok(())
}

/// Gives how many entries were whole; `None` when there is no valid log.
async fn replay_ppl(
    world: &World,
    scan: &Scan,
    candidate: usize,
    parity: &Parity,
    members: &Members,
) -> Result<Option<usize>, AssembleError> {
    let found = &scan.candidates[candidate];
    let ConsistencyPlace::Ppl { range, .. } = found.view.consistency else { return Ok(None) };
    let drive = scan.drives[found.drive].as_ref();
    let area = read_bytes(world.pool(), drive, range.start, range.length as usize).await?;
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
        replay_entry(world, parity, members, entry, partial).await?;
        replayed += 1;
    }
    Ok(Some(replayed))
}

/// One entry, a part of each chunk at a time: parity is the partial parity and the data of every
/// chunk the entry says was being written there.
async fn replay_entry(
    world: &World,
    parity: &Parity,
    members: &Members,
    entry: &format::md::PplEntry,
    partial: Option<&[u8]>,
) -> Result<(), AssembleError> {
    let chunk = parity.chunk_bytes();
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
    let strip = strip.min(chunk - within);
    let mut at = 0;
    while at < strip {
        let bytes = (strip - at).min(STRIP_BYTES) as usize;
        let offset = map.member_offset() + within + at;
        let mut sum = match partial {
            Some(partial) => partial[at as usize..][..bytes].to_vec(),
            None => vec![0; bytes],
        };
        let mut known = true;
        for column in (first_column..columns).take(written) {
            match read_data(world, members, map.data(column), offset, bytes).await? {
                Some(data) => parity::xor_into(&mut sum, &data),
                None => known = false,
            }
        }
        if known {
            write_data(world, members, map.p(), offset, &sum).await?;
        }
        at += bytes as u64;
    }
    Ok(())
}

/// What the journal holds of one stripe's 4 KiB row, newest first come last.
#[derive(Default)]
struct Row {
    data: BTreeMap<u64, Vec<u8>>,
    parity: Vec<Vec<u8>>,
}

async fn replay_journal(
    world: &World,
    scan: &Scan,
    journal: usize,
    parity: &Parity,
    members: &Members,
) -> Result<Replayed, AssembleError> {
    let found = &scan.candidates[journal];
    let drive = scan.drives[found.drive].as_ref();
    let set_uuid = found.view.set_uuid;
    let ring = Ring {
        start: found.view.layout.data_offset_bytes,
        sectors: found.view.data_bytes / BLOCK_BYTES as u64 * 8,
    };
    let mut position = found.view.journal_tail_bytes.unwrap_or(0) / SECTOR_BYTES;
    let mut expected = None;
    let mut rows: BTreeMap<u64, Row> = BTreeMap::new();
    let mut walked = 0;
    while walked < ring.sectors {
        let block = ring.block(world, drive, position).await?;
        // The log ends at the first block that is not the next of it.
        let Ok(meta) = MetaBlock::parse(&block, position, expected, set_uuid) else { break };
        let Ok(next) = meta.next_position(ring.sectors) else { break };
        if !take_rows(world, &ring, drive, &meta, set_uuid, parity, &mut rows).await? {
            break;
        }
        expected = Some(meta.sequence + 1);
        walked += (next + ring.sectors - position - 1) % ring.sectors + 1;
        position = next;
    }
    for (member_offset, row) in rows {
        store_row(world, parity, members, member_offset, &row).await?;
    }
    // A journal whose first block is none is new, or begins anew; what may lie further on in it has
    // other numbers than one that follows from the time of its last superblock.
    let fresh = found.view.updated.seconds() << 20;
    let sequence = expected.unwrap_or(fresh) + SEQUENCE_JUMP;
    Ok(Replayed::Journal { position, sequence })
}

struct Ring {
    start: u64,
    sectors: u64,
}

impl Ring {
    async fn block(
        &self,
        world: &World,
        drive: &dyn Drive,
        position: u64,
    ) -> Result<Vec<u8>, AssembleError> {
        let offset = self.start + wrap(position, self.sectors) * SECTOR_BYTES;
        Ok(read_bytes(world.pool(), drive, offset, BLOCK_BYTES).await?.to_vec())
    }
}

/// Adds a meta block's payloads to the rows; false when one of its blocks was torn, which makes
/// the whole meta block void.
async fn take_rows(
    world: &World,
    ring: &Ring,
    drive: &dyn Drive,
    meta: &MetaBlock<'_>,
    set_uuid: Uuid,
    parity: &Parity,
    rows: &mut BTreeMap<u64, Row>,
) -> Result<bool, AssembleError> {
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
            let block = ring.block(world, drive, position).await?;
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
    world: &World,
    parity: &Parity,
    members: &Members,
    member_offset: u64,
    row: &Row,
) -> Result<(), AssembleError> {
    let stripe = member_offset / parity.chunk_bytes();
    if stripe >= parity.stripes() {
        return Ok(());
    }
    let map = parity.stripe(stripe);
    let targets = [Some(map.p()), map.q()];
    if row.parity.len() >= parity.parities() {
        store_data(world, parity, members, &map, row).await?;
        let newest = &row.parity[row.parity.len() - parity.parities()..];
        for (slot, block) in targets.into_iter().flatten().zip(newest) {
            write_data(world, members, slot, member_offset, block).await?;
        }
        return Ok(());
    }
    // Parity on the members still is that of the old data: what can't be read comes from it.
    let Some(mut columns) = old_columns(world, members, &map, member_offset).await? else {
        return store_data(world, parity, members, &map, row).await;
    };
    for (&array_offset, block) in &row.data {
        let (_, column, _) = parity.stripe_of(array_offset);
        columns[column].copy_from_slice(block);
    }
    store_data(world, parity, members, &map, row).await?;
    let columns: Vec<&[u8]> = columns.iter().map(|column| &column[..]).collect();
    let mut p = vec![0; BLOCK_BYTES];
    let mut q = vec![0; BLOCK_BYTES];
    let q_wanted = map.q().map(|_| &mut q[..]);
    crate::stripe::compute(&map, &columns, Some(&mut p), q_wanted);
    write_data(world, members, map.p(), member_offset, &p).await?;
    if let Some(slot) = map.q() {
        write_data(world, members, slot, member_offset, &q).await?;
    }
    Ok(())
}

async fn store_data(
    world: &World,
    parity: &Parity,
    members: &Members,
    map: &StripeMap,
    row: &Row,
) -> Result<(), AssembleError> {
    for (&array_offset, block) in &row.data {
        let (_, column, within) = parity.stripe_of(array_offset);
        let offset = map.member_offset() + within;
        write_data(world, members, map.data(column), offset, block).await?;
    }
    Ok(())
}

/// A row's data as it is on the members, with what can't be read recovered; `None` where too much
/// is missing.
async fn old_columns(
    world: &World,
    members: &Members,
    map: &StripeMap,
    member_offset: u64,
) -> Result<Option<Vec<BufMut>>, AssembleError> {
    let read = async |slot: usize| -> Result<Option<BufMut>, AssembleError> {
        let bytes = read_data(world, members, slot, member_offset, BLOCK_BYTES).await?;
        Ok(bytes.map(|bytes| {
            let mut buffer = world.pool().take(BLOCK_BYTES);
            buffer.copy_from_slice(&bytes);
            buffer
        }))
    };
    let mut columns = Vec::new();
    for column in 0..map.data_members() {
        columns.push(read(map.data(column)).await?);
    }
    let lost: Vec<usize> = (0..columns.len()).filter(|&c| columns[c].is_none()).collect();
    if !lost.is_empty() {
        let (mut p, mut q) = (read(map.p()).await?, None);
        if let Some(slot) = map.q() {
            q = read(slot).await?;
        }
        if lost.len() > usize::from(p.is_some()) + usize::from(q.is_some()) {
            return Ok(None);
        }
        for &column in &lost {
            columns[column] = Some(world.pool().take(BLOCK_BYTES));
        }
        recover_columns(map, &mut columns, p.as_deref_mut(), q.as_deref_mut(), &lost);
    }
    Ok(columns.into_iter().collect())
}
