//! A scrub goes on where it was, what it found stays known, and a stopped one stays stopped.

use std::rc::Rc;
use std::time::Duration;

use array::{Health, JobKind, OpenMode, Scan, ScrubState};
use drive::{Drive, Effect, ErrorKind, Fault, Faulty, MemoryDrive, Operation};
use geometry::Level;
use world::World;

use crate::bed::{Bed, create, kind, places};
use crate::rated::Rated;

const MIB: u64 = 1 << 20;
const MODE: OpenMode =
    OpenMode { read_only: false, force_dirty: false, now_seconds: 1_800_000_000 };

#[test]
fn findings_survive_a_restart() {
    for kind in [kind(Level::Raid6, 5, 4), kind(Level::Raid1, 2, 0), kind(Level::Raid10, 4, 4)] {
        let mut bed = Bed::new(kind, 8);
        bed.alter(1, 12288, 0x33);
        let check = bed.check();
        bed.world.block_on(bed.array.stop()).unwrap();
        bed.reopen();
        assert_eq!(bed.array.status().scrub, Some(check), "{kind:?}");
        assert_eq!(places(&bed.array.status().scrub.unwrap().findings).len(), 1);
    }
}

#[test]
fn a_check_goes_on_where_the_array_was_stopped() {
    let world = World::virtual_time(3);
    let drive = |index| Rated::new(&world, &format!("drive {index}"), 64 * MIB, 100 * MIB);
    let drives: Vec<Rc<dyn Drive>> = (0..4).map(|index| drive(index) as Rc<dyn Drive>).collect();
    world.block_on(async {
        let array = create(&world, kind(Level::Raid5, 4, 64), &drives, true).await;
        array.start_check().unwrap();
        world.sleep(Duration::from_millis(300)).await;
        array.stop().await.unwrap();
        let before = array.status().scrub.unwrap();
        assert_eq!(before.state, ScrubState::Running);
        assert!((10 * MIB..50 * MIB).contains(&before.position_bytes), "{before:?}");
        assert_eq!(before.counts.compared_bytes, before.position_bytes);

        let scan = Scan::of(world.pool(), drives.clone()).await;
        let array = scan.open(&world, &scan.assemblies[0], MODE).await.unwrap();
        assert_eq!(array.status().scrub.unwrap().position_bytes, before.position_bytes);
        array.background_done().await;
        let after = array.status().scrub.unwrap();
        assert_eq!(after.state, ScrubState::Done);
        assert_eq!(after.counts.compared_bytes, after.end_bytes, "each byte once");
        assert_eq!(after.started_seconds, before.started_seconds);
    });
}

/// What makes redundancy whole comes first: a check makes way for a rebuild that becomes due, and
/// goes on from its position. Its windows before that are not compared again.
#[test]
fn a_check_makes_way_for_a_rebuild_and_goes_on() {
    let world = World::virtual_time(3);
    let drive = |index| Rated::new(&world, &format!("drive {index}"), 64 * MIB, 100 * MIB);
    let drives: Vec<Rc<dyn Drive>> = (0..5).map(|index| drive(index) as Rc<dyn Drive>).collect();
    world.block_on(async {
        let array = create(&world, kind(Level::Raid5, 4, 64), &drives[..4], true).await;
        array.add_member(Rc::clone(&drives[4])).await.unwrap();
        array.start_check().unwrap();
        let mut seen: Vec<(JobKind, u64, u64)> = Vec::new();
        for tick in 0..60 {
            world.sleep(Duration::from_millis(50)).await;
            if tick == 5 {
                array.fail_member(1).await.unwrap();
            }
            let Some(job) = array.status().job else { break };
            match seen.last_mut().filter(|(kind, ..)| *kind == job.kind) {
                Some((_, _, to)) => *to = job.position_bytes,
                None => seen.push((job.kind, job.position_bytes, job.position_bytes)),
            }
        }
        array.background_done().await;
        let kinds: Vec<JobKind> = seen.iter().map(|(kind, ..)| *kind).collect();
        assert_eq!(kinds, [JobKind::Check, JobKind::Rebuild, JobKind::Check], "{seen:?}");
        let before = seen[0].2;
        assert!(before > 10 * MIB && seen[2].1 >= before, "{seen:?}");
        let check = array.status().scrub.unwrap();
        assert_eq!(check.state, ScrubState::Done);
        let counts = check.counts;
        assert_eq!(counts.compared_bytes + counts.skipped_bytes, check.end_bytes, "each byte once");
        assert_eq!(array.status().health, Health::Healthy);
    });
}

/// A rebuild that fails does not keep a check from its end.
#[test]
fn a_check_goes_on_beside_a_spare_that_can_not_be_filled() {
    let world = World::virtual_time(4);
    let drive = |index| Rated::new(&world, &format!("drive {index}"), 16 * MIB, 100 * MIB);
    let drives: Vec<Rc<dyn Drive>> = (0..4).map(|index| drive(index) as Rc<dyn Drive>).collect();
    world.block_on(async {
        let array = create(&world, kind(Level::Raid6, 4, 64), &drives, true).await;
        let spare = Faulty::new(&world, drive(4), 4);
        let control = spare.control();
        array.add_member(Rc::new(spare)).await.unwrap();
        let data = Fault::new(Effect::Fail(ErrorKind::Media)).on(Operation::Write);
        control.add(data.within(2 * MIB..u64::MAX));
        array.start_check().unwrap();
        world.sleep(Duration::from_millis(50)).await;
        array.fail_member(1).await.unwrap();
        array.background_done().await;
        let status = array.status();
        assert_eq!(status.scrub.unwrap().state, ScrubState::Done);
        assert_eq!(status.health, Health::Degraded);
    });
}

#[test]
fn a_stopped_check_stays_stopped() {
    let world = World::virtual_time(3);
    let drive = |index| Rated::new(&world, &format!("drive {index}"), 64 * MIB, 100 * MIB);
    let drives: Vec<Rc<dyn Drive>> = (0..3).map(|index| drive(index) as Rc<dyn Drive>).collect();
    world.block_on(async {
        let array = create(&world, kind(Level::Raid1, 3, 0), &drives, true).await;
        array.start_check().unwrap();
        world.sleep(Duration::from_millis(200)).await;
        assert!(array.stop_scrub());
        array.background_done().await;
        let stopped = array.status().scrub.unwrap();
        assert_eq!(stopped.state, ScrubState::Stopped);
        assert!(stopped.position_bytes > 0 && stopped.position_bytes < stopped.end_bytes);
        array.stop().await.unwrap();
        let scan = Scan::of(world.pool(), drives.clone()).await;
        let array = scan.open(&world, &scan.assemblies[0], MODE).await.unwrap();
        array.background_done().await;
        assert_eq!(array.status().scrub, Some(stopped));
    });
}

/// A set that is only looked at can be checked, and nothing is written to it.
#[test]
fn a_check_of_a_read_only_array_writes_nothing() {
    let bed = Bed::new(kind(Level::Raid6, 5, 4), 8);
    bed.world.block_on(bed.array.stop()).unwrap();
    bed.alter(2, 4096, 1);
    let whole = |drive: &Rc<MemoryDrive>| crate::bed::read(&bed.world, drive.as_ref());
    let before: Vec<Vec<u8>> = bed.memory.iter().map(whole).collect();
    let mode = OpenMode { read_only: true, ..MODE };
    bed.world.block_on(async {
        let scan = Scan::of(bed.world.pool(), bed.drives.clone()).await;
        let array = scan.open(&bed.world, &scan.assemblies[0], mode).await.unwrap();
        assert_eq!(array.start_repair(false), Err(array::ScrubRefused::ReadOnly));
        array.start_check().unwrap();
        array.background_done().await;
        assert_eq!(places(&array.status().scrub.unwrap().findings), [(4096, 512, Some(2))]);
    });
    assert!(bed.memory.iter().map(whole).collect::<Vec<_>>() == before);
}
