//! A resync's window on levels with parity: P and Q are computed from the data.
//!
//! A block of data that can't be read is worked out from P, and Q says whether that is right: P may
//! be of another time than the data. If it is, the block is written anew. If it is not, or nobody
//! can say, the block stays unreadable and its stripe counts as not synced; Q is computed from what
//! P gives, so that the other data of that row can be recovered from it. With nothing to work it
//! out from, the parity of that row is left as it is.

use std::collections::BTreeMap;
use std::ops::Range;

use drive::{DriveError, Durability};
use geometry::{Parity, Role, StripeMap};
use world::{Buf, BufMut};

use crate::around::{self, Part, Wanted};
use crate::batch::WriteBatch;
use crate::core::Core;
use crate::job::{Watch, Window};
use crate::lock::Mode;
use crate::mend::mend;
use crate::mutant::{self, Mutant};
use crate::stripe::{compute, recover_columns};

/// A part of the chunk that a role of a stripe keeps.
type ChunkPart = Part<(u64, Role)>;

/// A stripe as it was read.
struct Stripe {
    map: StripeMap,
    /// None where its member is absent.
    columns: Vec<Option<BufMut>>,
    /// Read where a member with data is absent.
    p: Option<BufMut>,
    /// The blocks that could not be read of some of them, by where they start in their chunks.
    torn: BTreeMap<usize, Vec<Role>>,
    /// P and Q of blocks that could not be read, with where they start.
    checks: Vec<(usize, Role, ChunkPart)>,
}

/// Computes the parity of the stripes in a range of the members.
pub(crate) async fn window(
    core: &Core,
    parity: &Parity,
    range: Range<u64>,
) -> Result<Window, DriveError> {
    let chunk = parity.chunk_bytes();
    let (first, last) = (range.start / chunk, range.end / chunk);
    let locked = mutant::unless_unlocked(Mutant::ResyncUnlocked, first..last);
    let _lock = core.locks.lock(locked, Mode::Exclusive).await;
    let mut watch = Watch::new(core);
    let mut stripes = read(core, parity, first..last).await;
    read_checks(core, &mut stripes).await;
    watch.read();
    let mut writes = WriteBatch::default();
    // Blocks whose content is known for sure.
    let mut known = Vec::new();
    let left_out = (first..last).filter(|stripe| !stripes.contains_key(stripe));
    left_out.for_each(|stripe| core.unsynced.add(stripe));
    for stripe in stripes.into_values() {
        finish(core, chunk as usize, stripe, &mut writes, &mut known);
    }
    watch.computed();
    writes.run(core, Durability::Cached).await?;
    for (slot, offset) in known {
        mend(core, slot, offset, u64::from(core.facts.block_bytes)).await;
    }
    Ok(watch.written())
}

/// Reads what parity is computed from; stripes in which nothing is left to compare are left out.
async fn read(core: &Core, parity: &Parity, stripes: Range<u64>) -> BTreeMap<u64, Stripe> {
    let chunk = parity.chunk_bytes();
    let block = core.facts.block_bytes as usize;
    let parts = loop {
        let mut wanted = Vec::new();
        for stripe in stripes.clone() {
            let map = parity.stripe(stripe);
            let offset = map.member_offset();
            let there = |slot: usize| core.slots[slot].holds(offset, chunk);
            wanted.extend(sources(&map, there).into_iter().map(|role| Wanted {
                key: (stripe, role),
                slot: slot_of(&map, role),
                offset,
                bytes: chunk as usize,
            }));
        }
        let parts = around::read(core, wanted, block).await;
        // Without a member that is out since then, others have to be asked.
        let holds = |part: &Part<(u64, Role)>| {
            core.slots[part.slot].holds(parity.stripe(part.key.0).member_offset(), chunk)
        };
        if parts.iter().all(holds) {
            break parts;
        }
    };
    let mut read: BTreeMap<u64, Stripe> = BTreeMap::new();
    for part in parts {
        let (stripe, role) = part.key;
        let stripe = read.entry(stripe).or_insert_with(|| {
            let map = parity.stripe(stripe);
            let columns = std::iter::repeat_with(|| None).take(map.data_members()).collect();
            Stripe { map, columns, p: None, torn: BTreeMap::new(), checks: Vec::new() }
        });
        for start in part.unreadable.iter().flat_map(|range| range.clone().step_by(block)) {
            stripe.torn.entry(start).or_default().push(role);
        }
        match role {
            Role::Data(column) => stripe.columns[column] = Some(part.content),
            Role::P | Role::Q => stripe.p = Some(part.content),
        }
    }
    read
}

/// Reads P and Q of blocks that can be worked out from P, and checked by Q.
async fn read_checks(core: &Core, stripes: &mut BTreeMap<u64, Stripe>) {
    let block = core.facts.block_bytes as usize;
    let mut wanted: Vec<Wanted<(u64, Role, usize)>> = Vec::new();
    for (&stripe, content) in stripes.iter() {
        let Stripe { map, .. } = content;
        let offset = map.member_offset();
        for role in [Role::P, Role::Q].into_iter().filter(|_| map.q().is_some()) {
            let slot = slot_of(map, role);
            let first = wanted.len();
            for (&start, _) in content.torn.iter().filter(|(start, _)| content.alone(**start)) {
                let at = offset + start as u64;
                match wanted[first..].last_mut() {
                    Some(last) if last.offset + last.bytes as u64 == at => last.bytes += block,
                    _ => wanted.push(Wanted {
                        key: (stripe, role, start),
                        slot,
                        offset: at,
                        bytes: block,
                    }),
                }
            }
        }
    }
    wanted.retain(|wanted| core.slots[wanted.slot].holds(wanted.offset, wanted.bytes as u64));
    for part in around::read(core, wanted, block).await {
        let Part { key: (stripe, role, start), slot, content, unreadable } = part;
        let part = Part { key: (stripe, role), slot, content, unreadable };
        if let Some(stripe) = stripes.get_mut(&stripe) {
            stripe.checks.push((start, role, part));
        }
    }
}

impl Stripe {
    /// Whether the torn block is the only one of data that is not there.
    fn alone(&self, start: usize) -> bool {
        let torn = self.torn.get(&start).map_or(0, Vec::len);
        torn == 1 && self.columns.iter().all(Option::is_some)
    }

    /// P or Q of a torn block.
    fn check(&self, role: Role, block: &Range<usize>) -> Option<&[u8]> {
        self.checks.iter().filter(|(_, of, _)| *of == role).find_map(|(start, _, part)| {
            let range = block.start.checked_sub(*start)?..block.end - start;
            let there = range.end <= part.content.len() && part.has(&range);
            there.then(|| &part.content[range])
        })
    }

    /// Works out a torn block from P. Gives whether Q agrees with it, where there is a Q to ask;
    /// `None`: it can't be worked out.
    fn work_out(&mut self, block: &Range<usize>) -> Option<bool> {
        let [Role::Data(column)] = self.torn.get(&block.start)?[..] else { return None };
        if !self.alone(block.start) {
            return None;
        }
        let mut lost = self.columns[column].take()?;
        let done = self.check(Role::P, block).map(|p| {
            let others = self.columns.iter().flatten().map(|buffer| &buffer[block.clone()]);
            let sources: Vec<&[u8]> = others.chain(std::iter::once(p)).collect();
            parity::xor(&mut lost[block.clone()], &sources);
        });
        self.columns[column] = Some(lost);
        done?;
        let data: Vec<&[u8]> =
            self.columns.iter().flatten().map(|buffer| &buffer[block.clone()]).collect();
        let mut q = vec![0; block.len()];
        compute(&self.map, &data, None, Some(&mut q));
        Some(self.check(Role::Q, block) == Some(&q[..]))
    }
}

/// Computes the parity of a stripe. `known` gets the blocks to be written anew.
fn finish(
    core: &Core,
    chunk: usize,
    mut stripe: Stripe,
    writes: &mut WriteBatch,
    known: &mut Vec<(usize, u64)>,
) {
    let block = core.facts.block_bytes as usize;
    let offset = stripe.map.member_offset();
    let take = || core.world.pool().take(chunk);
    let absent = stripe.columns.iter().position(Option::is_none);
    // Rows whose parity is left, rising.
    let mut left = Vec::new();
    let mut unsynced = false;
    let torn: Vec<(usize, Role)> =
        stripe.torn.iter().filter_map(|(&start, roles)| Some((start, *roles.first()?))).collect();
    for (start, role) in torn {
        match stripe.work_out(&(start..start + block)) {
            Some(true) => known.push((slot_of(&stripe.map, role), offset + start as u64)),
            Some(false) => unsynced = true,
            None => {
                unsynced = true;
                left.push(start);
            }
        }
    }
    if unsynced {
        core.unsynced.add(offset / chunk as u64);
    }
    let Stripe { map, mut columns, mut p, .. } = stripe;
    if let Some(column) = absent {
        columns[column] = Some(take());
        recover_columns(&map, &mut columns, p.as_deref_mut(), None, &[column]);
    }
    let target = |slot: usize| core.slots[slot].writable().then(|| (slot, take()));
    // P that a column was recovered from agrees by that.
    let mut p = if absent.is_none() { target(map.p()) } else { None };
    let q_target = map.q().filter(|_| !mutant::planted(Mutant::ResyncLeavesQ));
    let mut q = q_target.and_then(target);
    let data: Vec<&[u8]> = columns.iter().flatten().map(|buffer| &buffer[..]).collect();
    compute(
        &map,
        &data,
        p.as_mut().map(|(_, buffer)| &mut buffer[..]),
        q.as_mut().map(|(_, buffer)| &mut buffer[..]),
    );
    for (slot, buffer) in [p, q].into_iter().flatten() {
        write_between(writes, slot, offset, &buffer.freeze(), &left, block);
    }
}

/// Writes a chunk, but for the blocks that start at `left`.
fn write_between(
    writes: &mut WriteBatch,
    slot: usize,
    offset: u64,
    content: &Buf,
    left: &[usize],
    block: usize,
) {
    let starts = std::iter::once(0).chain(left.iter().map(|start| start + block));
    let ends = left.iter().copied().chain(std::iter::once(content.len()));
    for (start, end) in starts.zip(ends).filter(|(start, end)| start < end) {
        writes.add(slot, offset + start as u64, content.slice(start, end - start));
    }
}

fn slot_of(map: &StripeMap, role: Role) -> usize {
    match role {
        Role::Data(column) => map.data(column),
        Role::P => map.p(),
        Role::Q => map.q().expect("only asked for where there is a Q"),
    }
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
