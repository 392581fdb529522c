//! Which bytes of the array nothing holds any more, from what each member holds.
//!
//! A place is lost where more members lack it than the level can make up for. Members lack what
//! their bad-block logs list, and what they have not been filled with; so the same comes out after
//! a restart, here or where md has filled a member. Pure.

use std::collections::BTreeSet;
use std::ops::Range;

use geometry::{Geometry, Home, Parity, Role};

use crate::bad_blocks::Ranges;
use crate::core::Core;
use crate::slot::{Slot, SlotState};

/// What a slot's member holds of its data area.
#[derive(Debug, Clone, Default)]
struct Holding {
    /// It was filled below this.
    below: u64,
    /// What of that its log lists as bad: apart and rising.
    bad: Vec<Range<u64>>,
}

impl Holding {
    fn of(slot: &Slot, used_bytes: u64) -> Self {
        let below = match slot.state() {
            SlotState::InSync => used_bytes,
            SlotState::Recovering { upto_bytes } => upto_bytes.min(used_bytes),
            SlotState::Missing | SlotState::Faulty => 0,
        };
        let Some(member) = slot.member().filter(|_| below > 0) else { return Holding::default() };
        let bad = member.bad.within(member.data_offset..member.data_offset + below);
        Holding { below, bad }
    }

    fn holds(&self, range: &Range<u64>) -> bool {
        let apart = |bad: &Range<u64>| bad.end <= range.start || range.end <= bad.start;
        range.end <= self.below && self.bad.iter().all(apart)
    }

    /// Where within a range it may begin or cease to hold it, from the range's start.
    fn cuts(&self, range: &Range<u64>) -> impl Iterator<Item = u64> {
        let edges = self.bad.iter().flat_map(|bad| [bad.start, bad.end]).chain([self.below]);
        edges.filter(|at| range.contains(at)).map(|at| at - range.start)
    }
}

/// Bytes of the array that are lost, as far as the members' logs tell.
pub(crate) fn lost_bytes(core: &Core) -> u64 {
    let slots = core.slots.iter().enumerate();
    let holdings: Vec<Holding> =
        slots.map(|(slot, state)| Holding::of(state, core.geometry.used_bytes(slot))).collect();
    lost(&core.geometry, &holdings).total_bytes()
}

/// The ranges of the array that are lost beside a block that is listed as bad. Where nothing is,
/// missing members are either within what the level can do without, or the array has failed.
fn lost(geometry: &Geometry, slots: &[Holding]) -> Ranges {
    let mut lost = Ranges::default();
    match geometry {
        Geometry::Parity(parity) => lost_of_parity(parity, slots, &mut lost),
        _ => lost_of_copies(geometry, slots, &mut lost),
    }
    lost
}

fn lost_of_parity(parity: &Parity, slots: &[Holding], lost: &mut Ranges) {
    let chunk = parity.chunk_bytes();
    let bad = slots.iter().flat_map(|slot| &slot.bad);
    let stripes: BTreeSet<u64> =
        bad.flat_map(|bad| bad.start / chunk..bad.end.div_ceil(chunk)).collect();
    for stripe in stripes.into_iter().filter(|&stripe| stripe < parity.stripes()) {
        let map = parity.stripe(stripe);
        let start = map.member_offset();
        let spare = 1 + usize::from(map.q().is_some());
        for part in parts(slots.iter().map(|slot| (slot, start)), chunk) {
            let place = start + part.start..start + part.end;
            let lacks: Vec<usize> =
                (0..slots.len()).filter(|&slot| !slots[slot].holds(&place)).collect();
            if lacks.len() <= spare {
                continue;
            }
            for slot in lacks {
                let Role::Data(column) = map.role(slot) else { continue };
                let first = stripe * parity.stripe_bytes() + column as u64 * chunk;
                lost.add(first + part.start, first + part.end);
            }
        }
    }
}

fn lost_of_copies(geometry: &Geometry, slots: &[Holding], lost: &mut Ranges) {
    for (slot, holding) in slots.iter().enumerate() {
        for bad in &holding.bad {
            let mut at = bad.start;
            while at < bad.end {
                // Behind the last byte that is used.
                let Some(Home::Data { array_offset, .. }) = geometry.home(slot, at) else { break };
                let bytes = (bad.end - at).min(geometry.array_bytes() - array_offset);
                let Some(run) = geometry.runs(array_offset, bytes).next() else { break };
                let copies = (0..geometry.copies()).map(|copy| geometry.copy(&run, copy));
                let copies: Vec<(&Holding, u64)> =
                    copies.map(|place| (&slots[place.member], place.offset)).collect();
                for part in parts(copies.iter().copied(), run.bytes) {
                    let holds = |&(holding, start): &(&Holding, u64)| {
                        holding.holds(&(start + part.start..start + part.end))
                    };
                    if !copies.iter().any(holds) {
                        lost.add(array_offset + part.start, array_offset + part.end);
                    }
                }
                at += run.bytes;
            }
        }
    }
}

/// A range of `bytes`, which each of these has from another place on, cut so that each holds all
/// or nothing of a part.
fn parts<'a>(places: impl Iterator<Item = (&'a Holding, u64)>, bytes: u64) -> Vec<Range<u64>> {
    let mut cuts = BTreeSet::from([0, bytes]);
    for (holding, start) in places {
        cuts.extend(holding.cuts(&(start..start + bytes)));
    }
    let cuts: Vec<u64> = cuts.into_iter().collect();
    cuts.windows(2).map(|pair| pair[0]..pair[1]).collect()
}

#[cfg(test)]
mod tests {
    use geometry::{Level, Shape};
    use world::SplitMix64;

    use super::*;

    const SECTOR: u64 = 512;
    const MEMBER: u64 = 64 << 10;

    fn geometry(level: Level, layout: u32, members: usize) -> Geometry {
        let chunk_bytes = if level == Level::Raid1 { 0 } else { 4096 };
        Geometry::new(&Shape { level, layout, chunk_bytes, member_bytes: vec![MEMBER; members] })
            .unwrap()
    }

    /// Whether nothing gives this sector: its own member does not hold it, nor can the others make
    /// up for it.
    fn is_lost(geometry: &Geometry, slots: &[Holding], array_offset: u64) -> bool {
        let run = geometry.runs(array_offset, SECTOR).next().unwrap();
        let lacks = |slot: usize, offset: u64| !slots[slot].holds(&(offset..offset + SECTOR));
        let Geometry::Parity(parity) = geometry else {
            return (0..geometry.copies()).all(|copy| {
                let place = geometry.copy(&run, copy);
                lacks(place.member, place.offset)
            });
        };
        let count = (0..slots.len()).filter(|&slot| lacks(slot, run.first.offset)).count();
        let spare = 1 + usize::from(parity.stripe(0).q().is_some());
        lacks(run.first.member, run.first.offset) && count > spare
    }

    #[test]
    fn what_is_lost_is_what_no_sector_by_sector_look_finds() {
        let mut random = SplitMix64::new(4);
        let shapes = [
            (Level::Raid0, 2, 3),
            (Level::Raid1, 0, 2),
            (Level::Raid1, 0, 3),
            (Level::Raid10, 0x102, 4),
            (Level::Raid10, 0x102, 3),
            (Level::Raid10, 0x201, 4),
            (Level::Raid10, 0x10201, 5),
            (Level::Raid4, 0, 3),
            (Level::Raid5, 2, 4),
            (Level::Raid6, 2, 5),
        ];
        let mut found = 0;
        for round in 0..400 {
            let (level, layout, members) = shapes[round % shapes.len()];
            let geometry = geometry(level, layout, members);
            let mut slots: Vec<Holding> = Vec::new();
            for slot in 0..members {
                let used = geometry.used_bytes(slot);
                let mut bad = Ranges::default();
                for _ in 0..random.below(12) {
                    let start = random.below(used / SECTOR) * SECTOR;
                    bad.add(start, (start + (1 + random.below(12)) * SECTOR).min(used));
                }
                let below = match random.below(8) {
                    0 if level != Level::Raid0 => random.below(used / SECTOR) * SECTOR,
                    _ => used,
                };
                bad.remove(below, u64::MAX);
                slots.push(Holding { below, bad: bad.to_vec() });
            }
            // One more than the level survives is no matter of single blocks.
            let filled = |slot: usize| slots[slot].below == geometry.used_bytes(slot);
            let missing: Vec<bool> = (0..members).map(|slot| !filled(slot)).collect();
            if !geometry.survives(&missing) {
                continue;
            }
            let mut expected = Ranges::default();
            for sector in 0..geometry.array_bytes() / SECTOR {
                if is_lost(&geometry, &slots, sector * SECTOR) {
                    expected.add(sector * SECTOR, (sector + 1) * SECTOR);
                }
            }
            assert_eq!(lost(&geometry, &slots), expected, "{level:?} {layout:#x}: {slots:?}");
            found += u32::from(expected.total_bytes() > 0);
        }
        assert!(found > 100, "{found}");
    }
}
