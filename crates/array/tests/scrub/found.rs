//! Every level and layout: what was altered is found, exactly, and mended where it can be known.

use array::{Health, JobEnd, JobKind, Outcome, ScrubKind};
use geometry::Level;
use world::SplitMix64;

use crate::bed::{Bed, SECTOR, kinds, places};

/// Whether a scrub can know which member is wrong.
fn knows(bed: &Bed) -> bool {
    bed.geometry().level() == Level::Raid6 || bed.geometry().copies() >= 3
}

/// Alters one sector of one member in some places; gives positions and slots, by position.
fn alter_some(bed: &Bed, random: &mut SplitMix64) -> Vec<(u64, u64, Option<usize>)> {
    let mut altered = Vec::new();
    let mut step = 0;
    for part in 0..8 {
        let slot = random.below(bed.memory.len() as u64) as usize;
        let eighth = bed.geometry().used_bytes(slot) / 8;
        let offset = (part * eighth + random.below(eighth / SECTOR) * SECTOR) / SECTOR * SECTOR;
        let Some(position) = bed.position(slot, offset) else { continue };
        // Apart from each other, so that each is a finding of its own.
        if altered.iter().any(|&(other, ..): &(u64, _, _)| position.abs_diff(other) <= SECTOR) {
            continue;
        }
        step += 1;
        bed.alter(slot, offset, step * 17);
        altered.push((position, SECTOR, knows(bed).then_some(slot)));
    }
    altered.sort_unstable();
    altered
}

#[test]
fn every_level_checks_clean_and_finds_exactly_what_was_altered() {
    for (index, kind) in kinds().into_iter().enumerate() {
        let bed = Bed::new(kind, index as u64);
        assert_eq!(bed.array.status().scrub, None, "nobody has looked yet");
        let clean = bed.check();
        assert_eq!((clean.kind, clean.findings.len()), (ScrubKind::Check, 0), "{kind:?}");
        assert_eq!(clean.counts.compared_bytes, bed.end(), "{kind:?}");
        assert_eq!((clean.counts.skipped_bytes, clean.position_bytes), (0, bed.end()), "{kind:?}");

        let right = bed.images();
        let altered = alter_some(&bed, &mut SplitMix64::new(index as u64));
        assert!(altered.len() > 3, "{kind:?}");
        let wrong = bed.images();
        let check = bed.check();
        assert_eq!(places(&check.findings), altered, "{kind:?}");
        assert_eq!(check.counts.mismatched_bytes, altered.len() as u64 * SECTOR, "{kind:?}");
        assert_eq!(check.counts.unmended_bytes, check.counts.mismatched_bytes);
        assert!(check.counts.mismatched_stripes <= altered.len() as u64);
        assert!(check.findings.iter().all(|found| found.outcome == Outcome::Left));
        assert!(bed.images() == wrong, "{kind:?}: a check changes nothing");
        assert_eq!(bed.array.status().health, Health::UnderProtected);
        let job = bed.array.status().last_job.unwrap();
        assert_eq!((job.kind, job.end), (JobKind::Check, Some(JobEnd::Done)));

        let repair = bed.repair(false);
        assert_eq!(places(&repair.findings), altered, "{kind:?}");
        if knows(&bed) {
            assert!(bed.images() == right, "{kind:?}: only the wrong member is mended");
            assert!(repair.findings.iter().all(|found| found.outcome == Outcome::Mended));
            assert_eq!(repair.counts.mended_bytes, altered.len() as u64 * SECTOR);
        } else {
            assert!(bed.images() == wrong, "{kind:?}: where nobody can know nothing is changed");
            assert!(repair.findings.iter().all(|found| found.outcome == Outcome::Left));
            assert_eq!(repair.counts.undecided_bytes, altered.len() as u64 * SECTOR);
            let told = bed.repair(true);
            assert_eq!(places(&told.findings), altered, "{kind:?}");
            assert!(told.findings.iter().all(|found| found.outcome == Outcome::AsTold));
            assert!(bed.content() == first_copies(&bed, &wrong), "{kind:?}");
        }
        let after = bed.check();
        assert_eq!(after.findings, [], "{kind:?}");
        assert_eq!(bed.array.status().health, Health::Healthy);
    }
}

/// The array's content as data, of copies the first, has it in these images.
fn first_copies(bed: &Bed, images: &[Vec<u8>]) -> Vec<u8> {
    let size = bed.geometry().array_bytes();
    let runs = bed.geometry().runs(0, size);
    let first = |run: geometry::Run| {
        let start = run.first.offset as usize;
        images[run.first.member][start..start + run.bytes as usize].to_vec()
    };
    runs.flat_map(first).collect()
}

/// On levels with parity a repair that trusts the data changes parity alone.
#[test]
fn trusting_the_data_keeps_it() {
    for kind in kinds().into_iter().filter(|kind| matches!(kind.level, Level::Raid4 | Level::Raid5))
    {
        let bed = Bed::new(kind, 3);
        bed.alter(0, 0, 1);
        bed.alter(1, 3 << 16, 2);
        bed.alter(2, 6 << 16, 4);
        let content = bed.content();
        let told = bed.repair(true);
        assert_eq!((told.counts.mismatched_stripes, told.findings.len()), (3, 3), "{kind:?}");
        assert!(bed.content() == content, "{kind:?}");
        assert_eq!(bed.check().findings, []);
    }
}

/// Wide damage: every sector of a member's chunk, several members at different places, and two in
/// one sector, where nobody can know.
#[test]
fn raid6_mends_what_one_member_did_and_leaves_what_two_did() {
    let kind = crate::bed::kind(Level::Raid6, 6, 8);
    let bed = Bed::new(kind, 9);
    let right = bed.images();
    for sector in 0..16 {
        bed.alter(2, sector * SECTOR, 0x5a);
    }
    bed.alter(0, 8192, 1);
    bed.alter(1, 8192 + SECTOR, 2);
    let mended = bed.images();
    bed.alter(3, 32768, 0x11);
    bed.alter(4, 32768, 0x2e);
    let repair = bed.repair(false);
    let expected = [
        (0, 8192, Some(2)),
        (8192, SECTOR, Some(0)),
        (8704, SECTOR, Some(1)),
        (32768, SECTOR, None),
    ];
    assert_eq!(places(&repair.findings), expected);
    assert!(mended != right);
    let now = bed.images();
    for slot in [0, 1, 2, 5] {
        assert!(now[slot] == right[slot], "slot {slot}");
    }
    assert!(now[3] != right[3] && now[4] != right[4]);
    assert_eq!(repair.counts.mismatched_stripes, 3);
    assert_eq!((repair.counts.undecided_bytes, repair.counts.unmended_bytes), (SECTOR, SECTOR));
}

/// With a member missing a RAID 6 still sees that something is wrong, and says that nobody can
/// know what; a RAID 5 has nothing left to compare, and says so.
#[test]
fn a_degraded_array_says_what_it_could_not_compare() {
    let bed = Bed::new(crate::bed::kind(Level::Raid6, 5, 4), 2);
    bed.world.block_on(bed.array.fail_member(1)).unwrap();
    bed.alter(3, 4096, 0x41);
    let repair = bed.repair(false);
    assert_eq!(places(&repair.findings), [(4096, SECTOR, None)]);
    assert_eq!(repair.counts.compared_bytes, bed.end());

    for kind in [crate::bed::kind(Level::Raid5, 4, 4), crate::bed::kind(Level::Raid1, 2, 0)] {
        let bed = Bed::new(kind, 2);
        bed.world.block_on(bed.array.fail_member(1)).unwrap();
        bed.alter(0, 4096, 0x41);
        let check = bed.check();
        assert_eq!(check.findings, []);
        assert_eq!((check.counts.compared_bytes, check.counts.skipped_bytes), (0, bed.end()));
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    use array::ScrubRefused;
    let striped =
        crate::common::kinds().into_iter().find(|kind| kind.level == Level::Raid0).unwrap();
    let bed = Bed::new(striped, 1);
    assert_eq!(bed.array.start_check(), Err(ScrubRefused::NoRedundancy));
    let bed = Bed::new(crate::bed::kind(Level::Raid5, 3, 4), 1);
    bed.array.start_check().unwrap();
    assert_eq!(bed.array.start_repair(false), Err(ScrubRefused::UnderWay));
    bed.finish();
    assert!(!bed.array.stop_scrub());
}
