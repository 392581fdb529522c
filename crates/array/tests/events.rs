//! What is known about a member that left: by md's rule its superblock is stale two events later,
//! and what it says late is not about its successor.

#![allow(clippy::unwrap_used, reason = "a test ends with the first surprise")]

use std::rc::Rc;
use std::time::Duration;

use array::{Array, Consistency, NewArray, OpenMode, Scan, SlotState};
use drive::{Drive, Durability, Effect, ErrorKind, Fault, Faulty, MemoryDrive, Operation};
use geometry::Level;
use world::{ReadBufs, World, WriteBufs, join_all};

const MODE: OpenMode =
    OpenMode { read_only: false, force_dirty: false, now_seconds: 1_800_000_000 };

fn drives(count: usize) -> Vec<Rc<dyn Drive>> {
    let drive = |index| Rc::new(MemoryDrive::new(&format!("drive {index}"), 2 << 20, 512)) as _;
    (0..count).map(drive).collect()
}

async fn create(
    world: &World,
    drives: &[Rc<dyn Drive>],
    level: Level,
    assume_clean: bool,
) -> Array {
    let request = NewArray {
        name: "test".to_owned(),
        level,
        layout: None,
        chunk_bytes: Some(4096),
        slots: drives.iter().cloned().map(Some).collect(),
        spares: Vec::new(),
        size_bytes: None,
        consistency: Consistency::Resync,
        checksums: false,
        assume_clean,
        uuid: *b"0123456789abcdef",
        now_seconds: MODE.now_seconds,
    };
    request.create(world).await.unwrap()
}

async fn write(world: &World, array: &Array) {
    let buffers = WriteBufs::from_iter([world.pool().copy_of(&[7; 4096])]);
    array.write(0, buffers, Durability::Cached).await.unwrap();
}

async fn events(world: &World, drives: &[Rc<dyn Drive>]) -> Vec<u64> {
    let scan = Scan::of(world.pool(), drives.to_vec()).await;
    scan.candidates.iter().map(|candidate| candidate.view.events).collect()
}

/// md would take back a member that is one event behind, with what it missed.
#[test]
fn a_failed_member_is_two_events_behind_before_anything_is_acknowledged() {
    let world = World::virtual_time(1);
    let drives = drives(4);
    world.block_on(async {
        let array = create(&world, &drives, Level::Raid5, true).await;
        write(&world, &array).await;
        array.fail_member(1).await.unwrap();
        let events = events(&world, &drives).await;
        assert!(events[0] >= events[1] + 2, "{events:?}");
        assert_eq!([events[2], events[3]], [events[0]; 2]);
    });
    world.end();
}

/// A member that is only absent has the newest event; it must not look current after a write.
#[test]
fn an_absent_member_is_two_events_behind_before_a_write_is_acknowledged() {
    let world = World::virtual_time(2);
    let drives = drives(4);
    world.block_on(async {
        create(&world, &drives, Level::Raid5, true).await.stop().await.unwrap();
        let scan = Scan::of(world.pool(), drives[1..].to_vec()).await;
        let array = scan.open(&world, &scan.assemblies[0], MODE).await.unwrap();
        write(&world, &array).await;
        let events = events(&world, &drives).await;
        assert!(events[1] >= events[0] + 2, "{events:?}");
    });
    world.end();
}

/// md reads the whole field as seconds, so microseconds would name a year far away.
#[test]
fn update_times_are_whole_seconds_of_the_time_given() {
    let world = World::virtual_time(3);
    let drives = drives(4);
    world.block_on(async {
        create(&world, &drives, Level::Raid5, true).await.stop().await.unwrap();
        world.sleep(Duration::from_secs(1000)).await;
        let scan = Scan::of(world.pool(), drives.clone()).await;
        let array = scan.open(&world, &scan.assemblies[0], MODE).await.unwrap();
        world.sleep(Duration::from_millis(5500)).await;
        write(&world, &array).await;
        let scan = Scan::of(world.pool(), drives.clone()).await;
        let updated = scan.candidates[0].view.updated;
        assert_eq!((updated.seconds(), updated.microseconds()), (MODE.now_seconds + 5, 0));
    });
    world.end();
}

/// Found by a history: an array that was stopped still waited for a quiet time, flushed, met a
/// member that had vanished since, and recorded that, clean, over the superblocks of the array
/// assembled meanwhile, which was being written.
#[test]
fn a_stopped_array_writes_nothing_to_members_that_are_anothers_by_now() {
    let world = World::virtual_time(4);
    let inner = drives(4);
    let faulty: Vec<Faulty> =
        inner.iter().map(|drive| Faulty::new(&world, Rc::clone(drive), 4)).collect();
    let control = faulty[2].control();
    let drives: Vec<Rc<dyn Drive>> =
        faulty.into_iter().map(|drive| Rc::new(drive) as Rc<dyn Drive>).collect();
    world.block_on(async {
        let array = create(&world, &drives, Level::Raid5, true).await;
        write(&world, &array).await;
        array.stop().await.unwrap();
        let before = events(&world, &inner).await;
        control.add(Fault::new(Effect::Fail(ErrorKind::Gone)));
        world.sleep(Duration::from_secs(20)).await;
        // A handle somebody kept is no better.
        let _ = array.flush().await;
        assert_eq!(events(&world, &inner).await, before);
    });
    world.end();
}

/// A drive that has left errs late: that is not held against the one that has its slot by now.
#[test]
fn a_late_error_is_nothing_to_hold_against_a_successor() {
    for operation in [Operation::Read, Operation::Write, Operation::Flush] {
        let world = World::virtual_time(9);
        let faulty: Vec<Rc<Faulty>> =
            drives(3).into_iter().map(|drive| Rc::new(Faulty::new(&world, drive, 9))).collect();
        let drives: Vec<Rc<dyn Drive>> =
            faulty.iter().map(|drive| Rc::clone(drive) as Rc<dyn Drive>).collect();
        world.block_on(async {
            let array = create(&world, &drives[..2], Level::Raid1, true).await;
            // Within all deadlines, and after the other is filled.
            let late = Fault::new(Effect::Delay(Duration::from_millis(250))).on(operation);
            let errs = Fault::new(Effect::Fail(ErrorKind::Gone)).on(operation);
            write(&world, &array).await;
            faulty[1].control().add(late);
            faulty[1].control().add(errs);
            let client = array.clone();
            let pool = world.pool().clone();
            let under_way = world.spawn(async move {
                let buffers = || WriteBufs::from_iter([pool.copy_of(&[8; 4096])]);
                match operation {
                    Operation::Read => {
                        // One of two that go on at once is answered by the second copy.
                        let read = || client.read(0, ReadBufs::from_iter([pool.take(4096)]));
                        join_all([read(), read()]).await.iter().all(|done| done.result.is_ok())
                    }
                    Operation::Write => {
                        client.write(0, buffers(), Durability::Cached).await.is_ok()
                    }
                    _ => client.flush().await.is_ok(),
                }
            });
            world.sleep(Duration::from_millis(10)).await;
            array.fail_member(1).await.unwrap();
            array.add_member(Rc::clone(&drives[2])).await.unwrap();
            assert!(under_way.await, "{operation:?}");
            array.background_done().await;
            let slots = array.status().slots;
            assert_eq!(slots[1].state, SlotState::InSync, "{operation:?}");
            assert_eq!(slots[1].drive.as_deref(), Some("drive 2"), "{operation:?}");
            array.stop().await.unwrap();
        });
        world.end();
    }
}

/// Found by a history: the power went when others knew already that a spare was to be filled. At
/// the next start it took the slot again, and was first told the event it had missed, by which it
/// held everything.
#[test]
fn a_spare_that_missed_the_event_of_its_slot_is_filled_before_it_counts() {
    const SUPERBLOCK: std::ops::Range<u64> = 0..8192;
    let world = World::virtual_time(6);
    let faulty: Vec<Rc<Faulty>> =
        drives(4).into_iter().map(|drive| Rc::new(Faulty::new(&world, drive, 6))).collect();
    let drives: Vec<Rc<dyn Drive>> =
        faulty.iter().map(|drive| Rc::clone(drive) as Rc<dyn Drive>).collect();
    let open = async || {
        let scan = Scan::of(world.pool(), drives.clone()).await;
        let mode = OpenMode { force_dirty: true, ..MODE };
        scan.open(&world, &scan.assemblies[0], mode).await.unwrap()
    };
    world.block_on(async {
        let array = create(&world, &drives[..3], Level::Raid5, true).await;
        write(&world, &array).await;
        array.fail_member(1).await.unwrap();
        array.add_member(Rc::clone(&drives[3])).await.unwrap();
        let hang = Fault::new(Effect::Hang).on(Operation::Write).within(SUPERBLOCK);
        let (member, spare) = (faulty[2].control(), faulty[3].control());
        let hangs = [member.add(hang.clone()), spare.add(hang.clone())];
        world.sleep(Duration::from_millis(100)).await;
        let behind = events(&world, &drives).await;
        assert_eq!(behind[2..], [behind[0] - 1; 2], "{behind:?}");
        let power_cut = async |array: Array| {
            for drive in &faulty {
                drive.control().power_cut(6).await.unwrap();
            }
            drop(array);
            world.sleep(Duration::from_secs(20)).await;
            faulty.iter().for_each(|drive| drive.control().power_on());
        };
        power_cut(array).await;
        member.remove(hangs[0]);
        spare.remove(hangs[1]);
        // The next start gets no further than the first superblock of the former spare.
        let hang = spare.add(hang.after(1));
        let array = open().await;
        world.sleep(Duration::from_millis(100)).await;
        power_cut(array).await;
        spare.remove(hang);
        let array = open().await;
        let state = array.status().slots[1].state;
        assert!(matches!(state, SlotState::Recovering { .. }), "{state:?}");
        array.background_done().await;
        assert_eq!(array.status().slots[1].state, SlotState::InSync);
        array.stop().await.unwrap();
    });
    world.end();
}
