//! A scrub's window on levels with parity.
//!
//! The common case costs one computation of P and Q per stripe and one comparison; only where that
//! fails, or something is absent, is it looked at sector by sector.

use std::ops::Range;

use drive::DriveError;
use format::own::scrub::{Finding, FindingKind, Outcome};
use geometry::{Parity, Role, StripeMap};

use super::found::Found;
use super::judge::{Judged, StripeSector};
use super::rewrite::{Rewrite, became, rewrite};
use super::{FINEST_BYTES, Scrub, begin};
use crate::around::{Part, Wanted, read};
use crate::core::Core;
use crate::job::{Watch, Window};
use crate::job_status::Loss;
use crate::stripe::compute;

/// What is computed and compared at once: small enough to stay in the processor's cache with the
/// same part of all other members.
const STRIP_BYTES: usize = 16 << 10;

/// A sector, or a strip, that needs more than counting.
struct Doubt {
    /// Within the chunk.
    range: Range<usize>,
    judged: Judged,
    /// Slots that are in service and could not be read.
    unreadable: Vec<usize>,
    /// What to write, of the stripe's list.
    rewrites: Range<usize>,
}

/// What was found in a stripe before anything is written.
#[derive(Default)]
struct Examined {
    compared_bytes: u64,
    skipped_bytes: u64,
    doubts: Vec<Doubt>,
    rewrites: Vec<Rewrite>,
}

/// Does the stripes of a range of the members.
pub(crate) async fn window(
    scrub: &Scrub,
    core: &Core,
    parity: &Parity,
    range: Range<u64>,
) -> Result<(Found, Window), DriveError> {
    let chunk = parity.chunk_bytes();
    let (first, last) = (range.start / chunk, range.end / chunk);
    let turn = scrub.turn(&range).await;
    let _lock = core.locks.lock(first..last, scrub.lock_mode(core)).await;
    let mut watch = Watch::new(core);
    let mut found = Found::default();
    let there: Vec<bool> =
        core.slots.iter().map(|slot| slot.holds(range.start, range.end - range.start)).collect();
    let absent = there.iter().filter(|there| !**there).count();
    if absent >= parity.parities() || !core.agrees(range.clone()) {
        // Nothing is left to compare with, or it is still to be made to agree.
        found.counts.skipped_bytes = range.end - range.start;
        return Ok((found, watch.written()));
    }
    let mut wanted = Vec::new();
    for stripe in first..last {
        let offset = parity.stripe(stripe).member_offset();
        let members = (0..there.len()).filter(|&slot| there[slot]);
        wanted.extend(members.map(|slot| Wanted {
            key: stripe,
            slot,
            offset,
            bytes: chunk as usize,
        }));
    }
    let mut parts = begin(read(core, wanted, FINEST_BYTES), turn).await;
    watch.read();
    parts.sort_unstable_by_key(|part| (part.key, part.slot));
    let mut examiner = Examiner::new(scrub, core, parity, &there);
    let stripes: Vec<(StripeMap, Examined)> = parts
        .chunk_by(|a, b| a.key == b.key)
        .map(|parts| {
            let map = parity.stripe(parts[0].key);
            // What a resync had to leave would be made up from parity of another time.
            let examined = match core.unsynced.has(parts[0].key) && !scrub.trusts_data() {
                true => Examined { skipped_bytes: chunk, ..Examined::default() },
                false => examiner.examine(&map, parts),
            };
            (map, examined)
        })
        .collect();
    drop(parts);
    watch.computed();
    let mut losses = Vec::new();
    for (stripe, (map, examined)) in (first..last).zip(stripes) {
        let mended = rewrite(core, &range, &examined.rewrites).await?;
        conclude(scrub, &map, chunk, &examined, &mended, &mut found);
        for doubt in examined.doubts.iter().filter(|doubt| doubt.judged == Judged::Lost) {
            let lost = |slot: &usize| match map.role(*slot) {
                Role::Data(column) => Some(Loss {
                    array_offset: stripe * parity.stripe_bytes()
                        + column as u64 * chunk
                        + doubt.range.start as u64,
                    bytes: doubt.range.len() as u64,
                }),
                Role::P | Role::Q => None,
            };
            losses.extend(doubt.unreadable.iter().filter_map(lost));
        }
    }
    let mut window = watch.written();
    window.losses = losses;
    Ok((found, window))
}

/// Examines one stripe after the other with the same buffers.
struct Examiner<'a> {
    scrub: &'a Scrub,
    core: &'a Core,
    there: &'a [bool],
    chunk: usize,
    sector_bytes: usize,
    strip: StripeSector,
    sector: StripeSector,
    p: Vec<u8>,
    q: Vec<u8>,
}

impl<'a> Examiner<'a> {
    fn new(scrub: &'a Scrub, core: &'a Core, parity: &Parity, there: &'a [bool]) -> Self {
        let sector_bytes = core.facts.block_bytes as usize;
        let chunk = parity.chunk_bytes() as usize;
        let strip_bytes = STRIP_BYTES.min(chunk);
        let columns = parity.data_members();
        Examiner {
            scrub,
            core,
            there,
            chunk,
            sector_bytes,
            strip: StripeSector::new(columns, strip_bytes),
            sector: StripeSector::new(columns, sector_bytes),
            p: vec![0; strip_bytes],
            q: vec![0; strip_bytes],
        }
    }

    fn examine(&mut self, map: &StripeMap, parts: &[Part<u64>]) -> Examined {
        let mut examined = Examined::default();
        let mut by_slot: Vec<Option<&Part<u64>>> = vec![None; self.there.len()];
        for part in parts {
            by_slot[part.slot] = Some(part);
        }
        for start in (0..self.chunk).step_by(self.p.len()) {
            let range = start..(start + self.p.len()).min(self.chunk);
            let whole = parts.iter().all(|part| part.has(&range));
            if whole && parts.len() == self.there.len() && self.agrees(map, &by_slot, &range) {
                examined.compared_bytes += range.len() as u64;
                continue;
            }
            if whole && parts.len() < self.there.len() {
                match judge(&mut self.strip, map, &by_slot, &range) {
                    Judged::Agrees => {
                        examined.compared_bytes += range.len() as u64;
                        continue;
                    }
                    Judged::Uncompared => {
                        examined.skipped_bytes += range.len() as u64;
                        continue;
                    }
                    Judged::Wrong(_) | Judged::Undecided | Judged::Lost => {}
                }
            }
            for start in range.clone().step_by(self.sector_bytes) {
                self.sector(map, &by_slot, start..start + self.sector_bytes, &mut examined);
            }
        }
        examined
    }

    /// Whether P and Q of a range that is all there are what the data gives.
    fn agrees(
        &mut self,
        map: &StripeMap,
        by_slot: &[Option<&Part<u64>>],
        range: &Range<usize>,
    ) -> bool {
        let content =
            |slot: usize| by_slot[slot].map_or(&[][..], |part| &part.content[range.clone()]);
        let columns: Vec<&[u8]> =
            (0..map.data_members()).map(|column| content(map.data(column))).collect();
        let (p, q) = (&mut self.p[..range.len()], &mut self.q[..range.len()]);
        match map.q() {
            Some(slot) => {
                compute(map, &columns, Some(&mut *p), Some(&mut *q));
                content(map.p()) == p && content(slot) == q
            }
            None => {
                compute(map, &columns, Some(&mut *p), None);
                content(map.p()) == p
            }
        }
    }

    fn sector(
        &mut self,
        map: &StripeMap,
        by_slot: &[Option<&Part<u64>>],
        range: Range<usize>,
        examined: &mut Examined,
    ) {
        let core = self.core;
        let unreadable: Vec<usize> = by_slot
            .iter()
            .flatten()
            .filter(|part| !part.has(&range))
            .map(|part| part.slot)
            .collect();
        let judged = judge(&mut self.sector, map, by_slot, &range);
        let bytes = range.len() as u64;
        match judged {
            Judged::Agrees | Judged::Wrong(_) | Judged::Undecided => {
                examined.compared_bytes += bytes;
            }
            Judged::Uncompared | Judged::Lost => examined.skipped_bytes += bytes,
        }
        if judged == Judged::Agrees && unreadable.is_empty() {
            return;
        }
        let mut roles: Vec<Role> = Vec::new();
        match judged {
            Judged::Wrong(role) if self.scrub.repairs() => roles.push(role),
            Judged::Undecided if self.scrub.trusts_data() => {
                self.sector.trust_data(map);
                roles.extend([Role::P, Role::Q].iter().take(1 + usize::from(map.q().is_some())));
                roles.extend(unreadable.iter().map(|&slot| map.role(slot)));
                roles.sort_unstable_by_key(|role| slot_of(map, *role));
                roles.dedup();
            }
            Judged::Agrees | Judged::Uncompared if self.scrub.may_write(core) => {
                roles.extend(unreadable.iter().map(|&slot| map.role(slot)));
            }
            _ => {}
        }
        let first = examined.rewrites.len();
        for role in roles {
            let slot = slot_of(map, role);
            if core.slots[slot].writable() {
                let content = core.world.pool().copy_of(self.sector.content(role));
                let offset = map.member_offset() + range.start as u64;
                let unreadable = unreadable.contains(&slot);
                examined.rewrites.push(Rewrite { slot, offset, content, unreadable });
            }
        }
        let rewrites = first..examined.rewrites.len();
        examined.doubts.push(Doubt { range, judged, unreadable, rewrites });
    }
}

fn slot_of(map: &StripeMap, role: Role) -> usize {
    match role {
        Role::Data(column) => map.data(column),
        Role::P => map.p(),
        Role::Q => map.q().unwrap_or_else(|| map.p()),
    }
}

/// Judges a range of a stripe of which some may be absent.
fn judge(
    sector: &mut StripeSector,
    map: &StripeMap,
    by_slot: &[Option<&Part<u64>>],
    range: &Range<usize>,
) -> Judged {
    let mut absent = Vec::new();
    for (slot, part) in by_slot.iter().enumerate() {
        let role = map.role(slot);
        match part.filter(|part| part.has(range)) {
            Some(part) => sector.content(role).copy_from_slice(&part.content[range.clone()]),
            None => absent.push(role),
        }
    }
    sector.judge(map, &absent)
}

/// Counts and lists what was found in a stripe, now that it is known what became of it.
fn conclude(
    scrub: &Scrub,
    map: &StripeMap,
    chunk: u64,
    examined: &Examined,
    mended: &[bool],
    found: &mut Found,
) {
    found.counts.compared_bytes += examined.compared_bytes;
    found.counts.skipped_bytes += examined.skipped_bytes;
    let mut mismatched = false;
    for doubt in &examined.doubts {
        let bytes = doubt.range.len() as u64;
        let position = map.member_offset() + doubt.range.start as u64;
        let of = |kind, slot| {
            became(&examined.rewrites, mended, doubt.rewrites.clone(), slot).unwrap_or(kind)
        };
        let mut left = false;
        let mut add = |kind, slot: Option<usize>, outcome| {
            let slot = slot.map(|slot| slot as u16);
            left |=
                kind == FindingKind::Mismatch && matches!(outcome, Outcome::Left | Outcome::Failed);
            found.add(Finding { position, bytes, kind, slot, outcome }, chunk);
        };
        match doubt.judged {
            Judged::Wrong(role) => {
                let slot = Some(slot_of(map, role));
                add(FindingKind::Mismatch, slot, of(Outcome::Mended, slot));
            }
            Judged::Undecided => {
                let as_told = scrub.trusts_data();
                let outcome = if as_told { of(Outcome::AsTold, None) } else { Outcome::Left };
                add(FindingKind::Mismatch, None, outcome);
            }
            Judged::Lost => add(FindingKind::Lost, None, Outcome::Left),
            Judged::Agrees | Judged::Uncompared => {}
        }
        if doubt.judged != Judged::Lost {
            for &slot in &doubt.unreadable {
                add(FindingKind::Unreadable, Some(slot), of(Outcome::Mended, Some(slot)));
            }
        }
        if matches!(doubt.judged, Judged::Wrong(_) | Judged::Undecided) {
            mismatched = true;
            found.counts.mismatched_bytes += bytes;
            found.counts.unmended_bytes += if left { bytes } else { 0 };
            found.counts.undecided_bytes +=
                if doubt.judged == Judged::Undecided { bytes } else { 0 };
        }
    }
    found.counts.mismatched_stripes += u64::from(mismatched);
}
