//! A scrub's window on mirrors: all copies of the same bytes are compared.

use std::collections::BTreeSet;
use std::ops::Range;

use drive::DriveError;
use format::own::scrub::{Finding, FindingKind, Outcome};
use geometry::{Geometry, Place, Run};

use super::found::Found;
use super::judge::{Vote, vote};
use super::rewrite::{Rewrite, became, rewrite};
use super::{FINEST_BYTES, Scrub, begin};
use crate::around::{Part, Wanted, read};
use crate::core::Core;
use crate::job::{Watch, Window};
use crate::job_status::Loss;

/// What mismatches are counted in where there are no chunks: the page of most file systems.
const MIRROR_UNIT_BYTES: u64 = 4 << 10;

/// A copy: which run of the window, and which copy of it.
type Key = (usize, usize);

/// What the copies of a sector that could be read say.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Judged {
    Compared(Vote),
    /// There is one, and nothing to compare it with.
    Alone,
    /// There is none.
    Lost,
}

/// A sector that needs more than counting.
struct Doubt {
    /// In the array.
    offset: u64,
    judged: Judged,
    /// Slots whose content is not the majority's.
    wrong: Vec<usize>,
    unreadable: Vec<usize>,
    /// What to write, of the window's list.
    rewrites: Range<usize>,
}

/// What was found in a window before anything is written.
#[derive(Default)]
struct Examined {
    doubts: Vec<Doubt>,
    rewrites: Vec<Rewrite>,
}

/// Does a range of the array's bytes.
pub(crate) async fn window(
    scrub: &Scrub,
    core: &Core,
    range: Range<u64>,
) -> Result<(Found, Window), DriveError> {
    let turn = scrub.turn(&range).await;
    let _lock = core.locks.lock(range.clone(), scrub.lock_mode(core)).await;
    let mut watch = Watch::new(core);
    let mut found = Found::default();
    if !core.agrees(range.clone()) {
        // It is still to be made to agree.
        found.counts.skipped_bytes = range.end - range.start;
        return Ok((found, watch.written()));
    }
    let runs: Vec<Run> = core.geometry.runs(range.start, range.end - range.start).collect();
    let mut wanted: Vec<Wanted<Key>> = Vec::new();
    for (index, run) in runs.iter().enumerate() {
        let there: Vec<(usize, Place)> = (0..core.geometry.copies())
            .map(|copy| (copy, core.geometry.copy(run, copy)))
            .filter(|(_, place)| core.slots[place.member].holds(place.offset, run.bytes))
            .collect();
        if there.len() < 2 {
            // Nothing is left to compare with.
            found.counts.skipped_bytes += run.bytes;
            continue;
        }
        wanted.extend(there.into_iter().map(|(copy, place)| Wanted {
            key: (index, copy),
            slot: place.member,
            offset: place.offset,
            bytes: run.bytes as usize,
        }));
    }
    let mut parts = begin(read(core, wanted, FINEST_BYTES), turn).await;
    watch.read();
    parts.sort_unstable_by_key(|part| part.key);
    let mut examined = Examined::default();
    for copies in parts.chunk_by(|a, b| a.key.0 == b.key.0) {
        let run = &runs[copies[0].key.0];
        examine(scrub, core, run, copies, &mut found, &mut examined);
    }
    drop(parts);
    watch.computed();
    let mended = rewrite(core, &range, &examined.rewrites).await?;
    conclude(scrub, core, &examined, &mended, &mut found);
    let lost = examined.doubts.iter().filter(|doubt| doubt.judged == Judged::Lost);
    let sector = u64::from(core.facts.block_bytes);
    let losses = lost.map(|doubt| Loss { array_offset: doubt.offset, bytes: sector }).collect();
    let mut window = watch.written();
    window.losses = losses;
    Ok((found, window))
}

fn examine(
    scrub: &Scrub,
    core: &Core,
    run: &Run,
    copies: &[Part<Key>],
    found: &mut Found,
    examined: &mut Examined,
) {
    let (first, others) = (&copies[0], &copies[1..]);
    let whole = 0..run.bytes as usize;
    let all_there = copies.iter().all(|copy| copy.has(&whole));
    if all_there && others.iter().all(|other| other.content[..] == first.content[..]) {
        found.counts.compared_bytes += run.bytes;
        return;
    }
    let sector_bytes = core.facts.block_bytes as usize;
    for start in whole.step_by(sector_bytes) {
        let range = start..start + sector_bytes;
        sector(scrub, core, run, copies, range, found, examined);
    }
}

/// Compares one sector of copies that differ somewhere, or are not all there.
fn sector(
    scrub: &Scrub,
    core: &Core,
    run: &Run,
    copies: &[Part<Key>],
    range: Range<usize>,
    found: &mut Found,
    examined: &mut Examined,
) {
    let bytes = range.len() as u64;
    let (there, absent): (Vec<&Part<Key>>, Vec<&Part<Key>>) =
        copies.iter().partition(|copy| copy.has(&range));
    let contents: Vec<&[u8]> = there.iter().map(|copy| &copy.content[range.clone()]).collect();
    let judged = match contents.len() {
        0 => Judged::Lost,
        1 => Judged::Alone,
        _ => Judged::Compared(vote(&contents)),
    };
    match judged {
        Judged::Compared(_) => found.counts.compared_bytes += bytes,
        Judged::Alone | Judged::Lost => found.counts.skipped_bytes += bytes,
    }
    if judged == Judged::Compared(Vote::Agree) && absent.is_empty() {
        return;
    }
    // Whose content the others get.
    let right = match judged {
        Judged::Compared(Vote::Majority(index)) => Some(index),
        Judged::Compared(Vote::Tie) => scrub.trusts_data().then_some(0),
        Judged::Compared(Vote::Agree) | Judged::Alone => Some(0),
        Judged::Lost => None,
    };
    let differs = |index: usize| right.is_some_and(|right| contents[index] != contents[right]);
    let wrong: Vec<&Part<Key>> =
        (0..there.len()).filter(|&index| differs(index)).map(|index| there[index]).collect();
    let first = examined.rewrites.len();
    if let Some(right) = right {
        let wrong = wrong.iter().filter(|_| scrub.repairs());
        let absent = absent.iter().filter(|_| scrub.may_write(core));
        for copy in wrong.chain(absent) {
            let place = core.geometry.copy(run, copy.key.1);
            if core.slots[place.member].writable() {
                let offset = place.offset + range.start as u64;
                let content = core.world.pool().copy_of(contents[right]);
                let unreadable = !copy.has(&range);
                let slot = place.member;
                examined.rewrites.push(Rewrite { slot, offset, content, unreadable });
            }
        }
    }
    let slots = |copies: &[&Part<Key>]| copies.iter().map(|copy| copy.slot).collect();
    examined.doubts.push(Doubt {
        offset: run.array_offset + range.start as u64,
        judged,
        wrong: slots(&wrong),
        unreadable: slots(&absent),
        rewrites: first..examined.rewrites.len(),
    });
}

/// Counts and lists what was found, now that it is known what became of it.
fn conclude(scrub: &Scrub, core: &Core, examined: &Examined, mended: &[bool], found: &mut Found) {
    let bytes = u64::from(core.facts.block_bytes);
    let (border, unit) = match &core.geometry {
        Geometry::Raid10(raid10) => (raid10.chunk_bytes(), raid10.chunk_bytes()),
        _ => (super::WINDOW_BYTES, MIRROR_UNIT_BYTES),
    };
    let mut units: BTreeSet<u64> = BTreeSet::new();
    for doubt in &examined.doubts {
        let of = |kind, slot| {
            became(&examined.rewrites, mended, doubt.rewrites.clone(), slot).unwrap_or(kind)
        };
        let mut left = false;
        let mut add = |kind, slot: Option<usize>, outcome| {
            let slot = slot.map(|slot| slot as u16);
            left |=
                kind == FindingKind::Mismatch && matches!(outcome, Outcome::Left | Outcome::Failed);
            found.add(Finding { position: doubt.offset, bytes, kind, slot, outcome }, border);
        };
        match doubt.judged {
            Judged::Compared(Vote::Majority(_)) => {
                for &slot in &doubt.wrong {
                    add(FindingKind::Mismatch, Some(slot), of(Outcome::Mended, Some(slot)));
                }
            }
            Judged::Compared(Vote::Tie) => {
                let as_told = scrub.trusts_data();
                let outcome = if as_told { of(Outcome::AsTold, None) } else { Outcome::Left };
                add(FindingKind::Mismatch, None, outcome);
            }
            Judged::Lost => add(FindingKind::Lost, None, Outcome::Left),
            Judged::Compared(Vote::Agree) | Judged::Alone => {}
        }
        if doubt.judged != Judged::Lost {
            for &slot in &doubt.unreadable {
                add(FindingKind::Unreadable, Some(slot), of(Outcome::Mended, Some(slot)));
            }
        }
        if let Judged::Compared(vote @ (Vote::Majority(_) | Vote::Tie)) = doubt.judged {
            units.insert(doubt.offset / unit);
            found.counts.mismatched_bytes += bytes;
            found.counts.unmended_bytes += if left { bytes } else { 0 };
            found.counts.undecided_bytes += if vote == Vote::Tie { bytes } else { 0 };
        }
    }
    found.counts.mismatched_stripes += units.len() as u64;
}
