//! A resync beside sectors that can't be read: the rest of their stripes is made to agree, and what
//! is not known is not made up.

use array::Health;
use geometry::{Geometry, Level, Parity};
use world::ReadBufs;

use crate::bed::{Bed, DATA_OFFSET, SECTOR, kind};

/// In the middle of a chunk.
const TORN: u64 = 20480 + SECTOR;

/// Beside it, in the same chunk and the same page.
const BESIDE: [u64; 3] = [4096, 20480, 24576 + SECTOR];

fn parity(bed: &Bed) -> &Parity {
    match bed.geometry() {
        Geometry::Parity(parity) => parity,
        other => panic!("{other:?}"),
    }
}

fn readable(bed: &Bed, slot: usize) -> bool {
    let buffers = ReadBufs::from_iter([bed.world.pool().take(SECTOR as usize)]);
    bed.world.block_on(bed.drives[slot].read(DATA_OFFSET + TORN, buffers)).result.is_ok()
}

/// Resyncs and gives how many stripes could not be.
fn resync(bed: &mut Bed, kind: crate::common::Kind) -> u64 {
    bed.make_again(kind);
    bed.world.block_on(bed.array.background_done());
    let status = bed.array.status();
    let healthy = status.unsynced_stripes == 0;
    let expected = if healthy { Health::Healthy } else { Health::UnderProtected };
    assert_eq!(status.health, expected, "{kind:?}");
    status.unsynced_stripes
}

/// Parity is computed from all data that can be read; only RAID 6 knows what the sector held.
#[test]
fn a_sector_that_can_not_be_read_keeps_no_others_from_agreeing() {
    for (level, members) in [(Level::Raid4, 4), (Level::Raid5, 4), (Level::Raid6, 5)] {
        let kind = kind(level, members, 64);
        let mut bed = Bed::new(kind, 21);
        let right = bed.images();
        let map = parity(&bed).stripe(0);
        let torn = map.data(1);
        for slot in std::iter::once(map.p()).chain(map.q()) {
            BESIDE.into_iter().for_each(|offset| bed.alter(slot, offset, 0x31));
        }
        bed.faults[torn].spoil(DATA_OFFSET + TORN, SECTOR);
        let unsynced = resync(&mut bed, kind);
        assert!(bed.images() == right, "{kind:?}");
        let known = level == Level::Raid6;
        assert_eq!((unsynced, readable(&bed, torn)), (u64::from(!known), known), "{kind:?}");
        assert_eq!(bed.check().counts.mismatched_bytes, 0, "{kind:?}");
    }
}

/// What P gives for a sector is not written there by whoever meets it later: a client's read, or a
/// check. Once the data is written it is known again.
#[test]
fn what_p_gives_for_an_unsynced_stripe_is_never_written() {
    let kind = kind(Level::Raid5, 4, 64);
    let mut bed = Bed::new(kind, 25);
    let map = parity(&bed).stripe(0);
    let torn = map.data(1);
    bed.alter(map.p(), TORN, 0x31);
    bed.faults[torn].spoil(DATA_OFFSET + TORN, SECTOR);
    assert_eq!(resync(&mut bed, kind), 1);
    bed.content();
    bed.world.block_on(bed.array.background_done());
    assert!(!readable(&bed, torn), "a read");
    bed.check();
    bed.repair(false);
    assert!(!readable(&bed, torn), "a check, a repair");
    // While it waits for its resync it is no better known.
    bed.make_again(kind);
    bed.world.block_on(bed.array.hold_jobs());
    bed.content();
    bed.world.block_on(bed.array.background_done());
    assert!(!readable(&bed, torn), "before the resync");
    bed.array.resume_jobs();
    bed.repair(true);
    assert!(readable(&bed, torn), "told to trust it");
}

/// P is of another time than the data, as after a power cut: what it gives for the sector is not
/// taken for what was there, and the other data of the row can be recovered even so.
#[test]
fn a_sector_that_p_and_q_do_not_agree_on_is_left_unreadable() {
    let kind = kind(Level::Raid6, 5, 64);
    for altered in 0..2 {
        let mut bed = Bed::new(kind, 22);
        let right = bed.content();
        let map = parity(&bed).stripe(0);
        let torn = map.data(1);
        let place = parity(&bed).chunk_bytes() + TORN;
        bed.alter([map.p(), map.q().unwrap()][altered], TORN, 0x31);
        bed.faults[torn].spoil(DATA_OFFSET + TORN, SECTOR);
        assert_eq!(resync(&mut bed, kind), 1);
        assert!(!readable(&bed, torn));
        bed.world.block_on(bed.array.fail_member(map.data(0))).unwrap();
        let mut content = bed.content();
        let sector = place as usize..(place + SECTOR) as usize;
        let guessed = content[sector.clone()] != right[sector.clone()];
        assert_eq!(guessed, altered == 0, "a read gets what P gives");
        content[sector.clone()].copy_from_slice(&right[sector]);
        assert!(content == right, "other data was computed wrongly");
    }
}

/// Where too much of a row can't be read nothing of it is written.
#[test]
fn a_row_without_enough_to_work_it_out_is_left() {
    let kind = kind(Level::Raid6, 5, 64);
    let mut bed = Bed::new(kind, 23);
    let map = parity(&bed).stripe(0);
    bed.alter(map.p(), BESIDE[1], 0x31);
    bed.alter(map.p(), TORN, 0x31);
    let before = bed.images();
    for column in 0..2 {
        bed.faults[map.data(column)].spoil(DATA_OFFSET + TORN, SECTOR);
    }
    assert_eq!(resync(&mut bed, kind), 1);
    let after = bed.images();
    let differs = |slot: &usize| before[*slot] != after[*slot];
    assert_eq!((0..5).filter(differs).collect::<Vec<_>>(), [map.p()]);
    let sector = TORN as usize..(TORN + SECTOR) as usize;
    assert!(before[map.p()][sector.clone()] == after[map.p()][sector]);
}

/// The first copy counts wherever it can be read; where it can't it is written from the next.
#[test]
fn a_copy_that_can_not_be_read_as_a_whole_is_still_the_first() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid1, 3), (Level::Raid10, 4)] {
        let kind = kind(level, members, 64);
        for both in [false, true] {
            let mut bed = Bed::new(kind, 24);
            let right = bed.images();
            BESIDE.into_iter().for_each(|offset| bed.alter(1, offset, 0x31));
            let spoilt = if !both {
                1
            } else if level == Level::Raid1 {
                members
            } else {
                2
            };
            for slot in 0..spoilt {
                bed.faults[slot].spoil(DATA_OFFSET + TORN, SECTOR);
            }
            assert_eq!(resync(&mut bed, kind), u64::from(both), "{kind:?}");
            assert!(bed.images() == right, "{kind:?}");
            assert_eq!(readable(&bed, 0), !both, "{kind:?}");
        }
    }
}
