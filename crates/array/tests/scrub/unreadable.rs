//! Sectors that can't be read: computed from redundancy, rewritten, listed; or listed as lost.

use array::{FindingKind, JobEnd, Outcome};
use geometry::Level;

use crate::bed::{Bed, DATA_OFFSET, SECTOR, kind, places};

#[test]
fn unreadable_sectors_are_rewritten_from_redundancy() {
    let kinds = [
        kind(Level::Raid1, 2, 0),
        kind(Level::Raid1, 3, 0),
        kind(Level::Raid10, 4, 8),
        kind(Level::Raid4, 4, 8),
        kind(Level::Raid5, 4, 64),
        kind(Level::Raid6, 5, 64),
    ];
    for kind in kinds {
        let bed = Bed::new(kind, 4);
        let right = bed.images();
        let position = bed.position(1, 20480).unwrap();
        bed.faults[1].spoil(DATA_OFFSET + 20480, SECTOR);
        let check = bed.check();
        // The piece that drives write whole.
        assert_eq!(places(&check.findings), [(position, 4096, Some(1))], "{kind:?}");
        let found = &check.findings[0];
        assert_eq!((found.kind, found.outcome), (FindingKind::Unreadable, Outcome::Mended));
        assert_eq!((check.counts.unreadable_bytes, check.counts.rewritten_bytes), (4096, 4096));
        assert_eq!(check.counts.mismatched_bytes, 0);
        assert!(bed.images() == right, "{kind:?}");
        assert_eq!(bed.check().findings, [], "{kind:?}");
    }
}

#[test]
fn what_nothing_is_known_of_is_listed_and_the_rest_goes_on() {
    let bed = Bed::new(kind(Level::Raid5, 4, 16), 4);
    for slot in [0, 2] {
        bed.faults[slot].spoil(DATA_OFFSET + 16384, SECTOR);
    }
    bed.faults[3].spoil(DATA_OFFSET + 65536, SECTOR);
    let check = bed.check();
    let kinds: Vec<FindingKind> = check.findings.iter().map(|found| found.kind).collect();
    assert_eq!(kinds, [FindingKind::Lost, FindingKind::Unreadable]);
    assert_eq!(places(&check.findings), [(16384, 4096, None), (65536, 4096, Some(3))]);
    assert_eq!((check.counts.lost_bytes, check.counts.rewritten_bytes), (4096, 4096));
    assert_eq!(check.counts.compared_bytes + check.counts.skipped_bytes, bed.end());
    let job = bed.array.status().last_job.unwrap();
    assert_eq!(job.end, Some(JobEnd::DoneWithLoss));
    assert!(job.lost_bytes > 0);
}

/// A RAID 6 stripe with an unreadable sector and a wrong one has too little left to know: writing
/// what P says could make a good array wrong.
#[test]
fn an_unreadable_sector_beside_a_wrong_one_is_left_alone() {
    let bed = Bed::new(kind(Level::Raid6, 5, 4), 6);
    bed.alter(3, 8192, 0x77);
    bed.faults[0].spoil(DATA_OFFSET + 8192, SECTOR);
    let repair = bed.repair(false);
    let kinds: Vec<_> = repair.findings.iter().map(|found| (found.kind, found.slot)).collect();
    assert!(kinds.contains(&(FindingKind::Mismatch, None)), "{kinds:?}");
    assert!(repair.findings.iter().any(|found| found.outcome == Outcome::Left));
    assert_eq!(repair.counts.undecided_bytes, SECTOR);
}
