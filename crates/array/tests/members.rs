//! Members that fail, come, go and are replaced, in virtual time.

#![allow(clippy::unwrap_used, reason = "a test ends with the first surprise")]

#[expect(dead_code, reason = "shared with tests that need more of it")]
mod common;

use std::rc::Rc;
use std::time::Duration;

use array::{
    Array, Consistency, Health, JobEnd, JobKind, JobPolicy, Loss, MemberError, NewArray, OpenMode,
    Scan, SlotState, SparePool,
};
use common::{Jittery, Kind, MEMBER_BYTES, Twin, drives, kinds, random_bytes, range};
use drive::{Drive, Durability, Effect, ErrorKind, Fault, FaultControl, Faulty, Operation};
use geometry::Level;
use world::{SplitMix64, World, WriteBufs};

const MODE: OpenMode =
    OpenMode { read_only: false, force_dirty: false, now_seconds: 1_700_000_000 };

async fn create(
    world: &World,
    kind: Kind,
    members: &[Rc<dyn Drive>],
    spares: &[Rc<dyn Drive>],
    clean: bool,
) -> Array {
    let request = NewArray {
        name: "test".to_owned(),
        level: kind.level,
        layout: Some(kind.layout),
        chunk_bytes: (kind.chunk_bytes > 0).then_some(kind.chunk_bytes),
        slots: members.iter().cloned().map(Some).collect(),
        spares: spares.to_vec(),
        size_bytes: None,
        checksums: false,
        assume_clean: clean,
        consistency: Consistency::Resync,
        uuid: *b"0123456789abcdef",
        now_seconds: 1_700_000_000,
    };
    request.create(world).await.unwrap_or_else(|error| panic!("{kind:?}: {error:?}"))
}

fn spare(world: &World, name: &str) -> Rc<dyn Drive> {
    Jittery::new(world, name, MEMBER_BYTES * 2, 77)
}

fn redundant() -> impl Iterator<Item = Kind> {
    kinds().into_iter().filter(|kind| kind.losses > 0)
}

fn raid(level: Level, members: usize) -> Kind {
    let layout = if level == Level::Raid1 { 0 } else { 2 };
    let chunk_bytes = if level == Level::Raid1 { 0 } else { 16 << 10 };
    Kind { level, layout, members, chunk_bytes, losses: if level == Level::Raid6 { 2 } else { 1 } }
}

/// Drives with switchboards.
fn faulty(world: &World, count: usize, name: &str) -> (Vec<Rc<dyn Drive>>, Vec<FaultControl>) {
    let make = |index: usize| {
        let inner = Jittery::new(world, &format!("{name} {index}"), MEMBER_BYTES * 2, index as u64);
        let drive = Faulty::new(world, inner, index as u64);
        let control = drive.control();
        (Rc::new(drive) as Rc<dyn Drive>, control)
    };
    (0..count).map(make).unzip()
}

async fn fill(twin: &Twin, random: &mut SplitMix64) {
    let size = twin.flat.borrow().len();
    for at in (0..size).step_by(64 << 10) {
        let bytes = (size - at).min(64 << 10);
        twin.write(at as u64, &random_bytes(random, bytes), &[]).await;
    }
}

/// Every loss the level survives leaves the content: all redundancy is right.
async fn check_with_losses(world: &World, drives: &[Rc<dyn Drive>], twin: &Twin, kind: Kind) {
    for lost in 0..drives.len() {
        let left = drives.iter().enumerate().filter(|&(index, _)| {
            index != lost && (kind.losses < 2 || index != (lost + 1) % drives.len())
        });
        let scan = Scan::of(world.pool(), left.map(|(_, drive)| Rc::clone(drive)).collect()).await;
        let mode = OpenMode { read_only: true, ..MODE };
        let array = scan.open(world, &scan.assemblies[0], mode).await.unwrap();
        let twin = Twin { drive: Rc::new(array), pool: twin.pool.clone(), flat: twin.flat.clone() };
        twin.check_all().await;
    }
}

/// So slow that there is time to do something else.
fn slowly() -> JobPolicy {
    JobPolicy { ceiling_bytes_per_second: Some(64 << 20), ..JobPolicy::default() }
}

fn slots(array: &Array) -> Vec<SlotState> {
    array.status().slots.iter().map(|slot| slot.state).collect()
}

#[test]
fn a_spare_takes_the_place_of_a_failed_member_at_every_level() {
    for (seed, kind) in redundant().enumerate() {
        let world = World::virtual_time(seed as u64);
        let members = drives(&world, kind, seed as u64);
        let spares = [spare(&world, "spare")];
        world.block_on(async {
            let mut random = SplitMix64::new(seed as u64);
            let array = create(&world, kind, &members, &spares, true).await;
            let twin = Twin::new(&world, Rc::new(array.clone()));
            twin.adopt().await;
            fill(&twin, &mut random).await;
            let lost = seed % kind.members;
            array.fail_member(lost).await.unwrap();
            // B08, B09: clients write at odd places all the while.
            for _ in 0..60 {
                let (offset, bytes) = range(&mut random, twin.flat.borrow().len() as u64);
                twin.write(offset, &random_bytes(&mut random, bytes as usize), &[]).await;
                let (offset, bytes) = range(&mut random, twin.flat.borrow().len() as u64);
                twin.check(offset, bytes as usize).await;
            }
            array.background_done().await;
            let status = array.status();
            let job = status.last_job.unwrap();
            assert_eq!((job.kind, job.slot), (JobKind::Rebuild, Some(lost)));
            assert_eq!(job.end, Some(JobEnd::Done), "{kind:?}");
            assert_eq!((status.health, status.spares), (Health::Healthy, 0), "{kind:?}");
            array.stop().await.unwrap();
            let mut drives = members.clone();
            drives[lost] = Rc::clone(&spares[0]);
            check_with_losses(&world, &drives, &twin, kind).await;
            // The failed one is not taken back.
            let scan = Scan::of(world.pool(), [members, spares.to_vec()].concat()).await;
            assert!(scan.assemblies[0].is_whole(), "{kind:?}");
        });
        world.end();
    }
}

#[test]
fn a_member_is_replaced_while_it_serves_at_every_level() {
    for (seed, kind) in redundant().enumerate() {
        let world = World::virtual_time(seed as u64);
        let members = drives(&world, kind, seed as u64);
        let new = spare(&world, "new");
        world.block_on(async {
            let mut random = SplitMix64::new(seed as u64);
            let array = create(&world, kind, &members, &[], true).await;
            let twin = Twin::new(&world, Rc::new(array.clone()));
            twin.adopt().await;
            fill(&twin, &mut random).await;
            let out = seed % kind.members;
            array.replace_member(out, Rc::clone(&new)).await.unwrap();
            let status = array.status();
            assert_eq!(status.slots[out].replacement.as_deref(), Some("new"));
            assert_eq!(status.slots[out].state, SlotState::InSync, "it still serves");
            for _ in 0..60 {
                let (offset, bytes) = range(&mut random, twin.flat.borrow().len() as u64);
                twin.write(offset, &random_bytes(&mut random, bytes as usize), &[]).await;
            }
            array.background_done().await;
            let status = array.status();
            assert_eq!(status.last_job.unwrap().end, Some(JobEnd::Done), "{kind:?}");
            assert_eq!(status.slots[out].drive.as_deref(), Some("new"));
            assert_eq!(status.health, Health::Healthy, "{kind:?}");
            array.stop().await.unwrap();
            let mut drives = members.clone();
            drives[out] = Rc::clone(&new);
            check_with_losses(&world, &drives, &twin, kind).await;
            let scan = Scan::of(world.pool(), [members, vec![new]].concat()).await;
            assert!(scan.assemblies[0].is_whole(), "{kind:?}");
        });
        world.end();
    }
}

/// Waits until the job has come some way, then ends the array without a word.
async fn interrupt(world: &World, array: &Array) -> u64 {
    loop {
        world.sleep(Duration::from_micros(50)).await;
        if let Some(job) = array.status().job.filter(|job| job.position_bytes > 0) {
            array.stop().await.unwrap();
            return job.position_bytes;
        }
    }
}

#[test]
fn a_rebuild_and_a_replace_go_on_where_they_were_after_a_restart() {
    for replace in [false, true] {
        let kind = raid(Level::Raid5, 4);
        let world = World::virtual_time(3);
        let big =
            |name: &str, seed| -> Rc<dyn Drive> { Jittery::new(&world, name, 16 << 20, seed) };
        let members: Vec<_> = (0..4).map(|index| big(&format!("drive {index}"), index)).collect();
        let new = big("new", 9);
        world.block_on(async {
            let mut random = SplitMix64::new(3);
            let array = create(&world, kind, &members, &[], true).await;
            let twin = Twin::new(&world, Rc::new(array.clone()));
            fill(&twin, &mut random).await;
            if replace {
                array.replace_member(1, Rc::clone(&new)).await.unwrap();
            } else {
                array.fail_member(1).await.unwrap();
                array.add_member(Rc::clone(&new)).await.unwrap();
            }
            let position = interrupt(&world, &array).await;
            let all = [members.clone(), vec![Rc::clone(&new)]].concat();
            let scan = Scan::of(world.pool(), all.clone()).await;
            let array = scan.open(&world, &scan.assemblies[0], MODE).await.unwrap();
            let job = array.status();
            world.sleep(Duration::from_nanos(1)).await;
            let job = job.job.or(array.status().job).unwrap();
            assert!(
                job.position_bytes >= position && job.position_bytes < job.end_bytes,
                "{job:?}"
            );
            array.background_done().await;
            assert_eq!(array.status().health, Health::Healthy);
            array.stop().await.unwrap();
            let mut drives = members.clone();
            drives[1] = new;
            check_with_losses(&world, &drives, &twin, kind).await;
        });
        world.end();
    }
}

/// C17: a spare is engaged for errors, for a drive that vanishes, and for one missing at start.
#[test]
fn c17_a_spare_is_engaged_whatever_happened_to_the_member() {
    for case in 0..3 {
        let kind = raid(Level::Raid5, 4);
        let world = World::virtual_time(case);
        let (members, controls) = faulty(&world, 4, "drive");
        let spares = [spare(&world, "spare")];
        world.block_on(async {
            let mut array = create(&world, kind, &members, &spares, true).await;
            let kind_of_error = if case == 0 { ErrorKind::Media } else { ErrorKind::Gone };
            let buffers = || WriteBufs::from_iter([world.pool().copy_of(&[7; 64 << 10])]);
            if case == 2 {
                array.stop().await.unwrap();
                let left = [members[..2].to_vec(), members[3..].to_vec(), spares.to_vec()].concat();
                let scan = Scan::of(world.pool(), left).await;
                array = scan.open(&world, &scan.assemblies[0], MODE).await.unwrap();
            } else {
                controls[2].add(Fault::new(Effect::Fail(kind_of_error)));
                array.write(0, buffers(), Durability::Cached).await.unwrap();
            }
            array.background_done().await;
            let status = array.status();
            assert_eq!(status.slots[2].drive.as_deref(), Some("spare"), "case {case}");
            assert_eq!(status.health, Health::Healthy, "case {case}");
        });
        world.end();
    }
}

/// C14: three bad stripes don't end a replace; they are listed, and the rest is done in one pass.
#[test]
fn c14_bad_stripes_are_listed_and_end_no_job() {
    let kind = raid(Level::Raid5, 4);
    let world = World::virtual_time(14);
    let (members, controls) = faulty(&world, 4, "drive");
    let new = spare(&world, "new");
    world.block_on(async {
        let mut random = SplitMix64::new(14);
        let array = create(&world, kind, &members, &[], true).await;
        let twin = Twin::new(&world, Rc::new(array.clone()));
        twin.adopt().await;
        fill(&twin, &mut random).await;
        array.flush().await.unwrap();
        let scan = Scan::of(world.pool(), members.clone()).await;
        let data_offset = scan.candidates[0].view.layout.data_offset_bytes;
        // Data of slot 1 in stripes where it holds some, and the same place of its neighbour.
        let chunk = u64::from(kind.chunk_bytes);
        let array_offset = |stripe: u64| {
            let geometry = array.geometry();
            (0..3 * chunk).step_by(512).map(|at| stripe * 3 * chunk + at).find(|&at| {
                let run = geometry.runs(at, 512).next().unwrap();
                run.first.member == 1 && run.first.offset == stripe * chunk
            })
        };
        let stripes: Vec<u64> = (0..20).filter(|&stripe| array_offset(stripe).is_some()).collect();
        let bad = [stripes[0], stripes[3], stripes[7]];
        for stripe in bad {
            for control in [&controls[1], &controls[2]] {
                control.spoil(data_offset + stripe * chunk, 512);
            }
        }
        array.replace_member(1, Rc::clone(&new)).await.unwrap();
        array.background_done().await;
        let status = array.status();
        let job = status.last_job.unwrap();
        assert_eq!(job.end, Some(JobEnd::DoneWithLoss));
        let expected: Vec<u64> = bad.iter().map(|&stripe| array_offset(stripe).unwrap()).collect();
        for offset in &expected {
            assert!(job.losses.contains(&Loss { array_offset: *offset, bytes: 4096 }), "{job:?}");
        }
        assert_eq!(status.health, Health::LostStripes);
        assert_eq!(slots(&array), [SlotState::InSync; 4]);
        // What is lost is an error, never old or made-up content.
        let buffers = [world.pool().take(512)].into_iter().collect();
        assert!(array.read(expected[0], buffers).await.result.is_err());
        twin.check(expected[0] + 4096, 4096).await;
        // Nor is it after a restart, whose log says so.
        array.stop().await.unwrap();
        let drives = [vec![members[0].clone(), new], members[2..].to_vec()].concat();
        let scan = Scan::of(world.pool(), drives).await;
        let array = scan.open(&world, &scan.assemblies[0], MODE).await.unwrap();
        assert_eq!(array.status().health, Health::LostStripes);
        let buffers = [world.pool().take(512)].into_iter().collect();
        assert!(array.read(expected[0], buffers).await.result.is_err());
        // Until all of it was written anew.
        let stripe = vec![9; 3 * chunk as usize];
        for stripe_index in bad {
            assert_eq!(array.status().health, Health::LostStripes);
            let buffers = WriteBufs::from_iter([world.pool().copy_of(&stripe)]);
            let start = stripe_index * 3 * chunk;
            array.write(start, buffers, Durability::Cached).await.unwrap();
        }
        assert_eq!(array.status().health, Health::Healthy);
    });
    world.end();
}

/// B16: a member that errs while it is filled is out, its job ends failed, and clients don't
/// notice.
#[test]
fn b16_a_member_that_fails_while_it_is_filled_is_retired() {
    let kind = raid(Level::Raid1, 2);
    let world = World::virtual_time(16);
    let big = |name: &str, seed| Jittery::new(&world, name, 16 << 20, seed);
    let members: Vec<Rc<dyn Drive>> = vec![big("drive 0", 0), big("drive 1", 1)];
    let spare = Faulty::new(&world, big("spare", 2), 2);
    let control = spare.control();
    world.block_on(async {
        let array = create(&world, kind, &members, &[], true).await;
        array.fail_member(1).await.unwrap();
        array.set_job_policy(slowly());
        array.add_member(Rc::new(spare)).await.unwrap();
        world.sleep(Duration::from_millis(1)).await;
        assert_eq!(array.status().job.unwrap().kind, JobKind::Rebuild);
        control.add(Fault::new(Effect::Fail(ErrorKind::Media)).on(Operation::Write));
        let buffers = WriteBufs::from_iter([world.pool().copy_of(&[7; 4096])]);
        array.write(0, buffers, Durability::Cached).await.unwrap();
        array.background_done().await;
        let status = array.status();
        assert_eq!(slots(&array), [SlotState::InSync, SlotState::Faulty]);
        assert_eq!(status.health, Health::Degraded);
        assert_eq!(status.failures.iter().filter(|failure| failure.slot == 1).count(), 2);
        assert!(matches!(status.last_job.unwrap().end, Some(JobEnd::Failed { .. })));
    });
    world.end();
}

/// C21: a target that stops answering is failed in time, the next spare is taken, stop works. C19:
/// one rebuild for each finding, in a whole day.
#[test]
fn c21_c19_a_target_that_hangs_is_failed_once_and_the_next_spare_taken() {
    let kind = raid(Level::Raid5, 4);
    let world = World::virtual_time(21);
    let members = drives(&world, kind, 21);
    let (spares, controls) = faulty(&world, 2, "spare");
    world.block_on(async {
        let array = create(&world, kind, &members, &spares, true).await;
        let data = Fault::new(Effect::Hang).on(Operation::Write).within(512 << 10..u64::MAX);
        controls[0].add(data);
        array.fail_member(0).await.unwrap();
        let limit = Duration::from_secs(60);
        world.within(limit, "the rebuild", array.background_done()).await.unwrap();
        let status = array.status();
        assert_eq!(status.slots[0].drive.as_deref(), Some("spare 1"));
        assert_eq!(status.health, Health::Healthy);
        let late = status.failures.iter().find(|failure| failure.error.kind == ErrorKind::TimedOut);
        assert_eq!(late.unwrap().slot, 0);
        let (failures, events) = (status.failures.len(), status.events);
        world.sleep(Duration::from_secs(24 * 3600)).await;
        assert_eq!(array.status().failures.len(), failures);
        assert!(array.status().events <= events + 2, "nothing goes on in a loop");
        world.within(limit, "the stop", array.stop()).await.unwrap().unwrap();
    });
    world.end();
}

/// C22: administrators and clients during rebuilds: each act is done or refused with a reason.
#[test]
fn c22_random_acts_during_rebuilds_are_done_or_refused() {
    let mut done = 0;
    for seed in 0..10 {
        let kind = raid(if seed % 2 == 0 { Level::Raid5 } else { Level::Raid6 }, 5);
        let world = World::virtual_time(seed);
        let members = drives(&world, kind, seed);
        world.block_on(async {
            let mut random = SplitMix64::new(seed);
            let array = create(&world, kind, &members, &[], true).await;
            let twin = Twin::new(&world, Rc::new(array.clone()));
            twin.adopt().await;
            fill(&twin, &mut random).await;
            for act in 0..100 {
                let slot = random.below(5) as usize;
                let new = spare(&world, &format!("new {act}"));
                let result = match random.below(5) {
                    0 => array.fail_member(slot).await.map_err(|error| error.to_string()),
                    1 => array.remove_member(slot).await.map_err(|error| error.to_string()),
                    2 => array.replace_member(slot, new).await.map_err(|error| error.to_string()),
                    3 => array.add_member(new).await.map_err(|error| error.to_string()),
                    _ => {
                        array.hold_jobs().await;
                        array.resume_jobs();
                        Ok(())
                    }
                };
                done += usize::from(result.is_ok());
                let (offset, bytes) = range(&mut random, twin.flat.borrow().len() as u64);
                twin.write(offset, &random_bytes(&mut random, bytes as usize), &[]).await;
                let (offset, bytes) = range(&mut random, twin.flat.borrow().len() as u64);
                twin.check(offset, bytes as usize).await;
                world.sleep(Duration::from_micros(random.below(3000))).await;
            }
            array.background_done().await;
            twin.check_all().await;
            assert_ne!(array.status().health, Health::Failed);
        });
        world.end();
    }
    assert!(done > 300, "{done} of 1000 acts were done");
}

/// B03: a member that fails during the first sync takes nothing along that was written since.
#[test]
fn b03_a_failure_during_the_first_sync_loses_nothing_that_was_written() {
    let kind = raid(Level::Raid5, 4);
    let world = World::virtual_time(33);
    let members: Vec<Rc<dyn Drive>> = (0..4)
        .map(|index| Jittery::new(&world, &format!("drive {index}"), 16 << 20, index) as _)
        .collect();
    world.block_on(async {
        let mut random = SplitMix64::new(33);
        let array = create(&world, kind, &members, &[], false).await;
        array.set_job_policy(slowly());
        let twin = Twin::new(&world, Rc::new(array.clone()));
        for _ in 0..200 {
            let (offset, bytes) = range(&mut random, twin.flat.borrow().len() as u64);
            twin.write(offset, &random_bytes(&mut random, bytes as usize), &[]).await;
        }
        assert_eq!(array.status().health, Health::Resyncing);
        array.fail_member(2).await.unwrap();
        array.add_member(Jittery::new(&world, "new", 16 << 20, 5)).await.unwrap();
        array.background_done().await;
        assert_eq!(array.status().health, Health::Healthy);
        twin.check_all().await;
        array.stop().await.unwrap();
    });
    world.end();
}

/// I01: a drive that is a little too small is refused with what it lacks.
#[test]
fn i01_a_drive_that_is_too_small_is_refused_with_what_it_lacks() {
    let kind = raid(Level::Raid1, 2);
    let world = World::virtual_time(1);
    let members = drives(&world, kind, 1);
    world.block_on(async {
        let array = create(&world, kind, &members, &[], true).await;
        let small = Jittery::new(&world, "small", MEMBER_BYTES * 2 - 344 * 512, 1);
        let error = array.add_member(small).await.unwrap_err();
        assert!(matches!(error, MemberError::TooSmall { .. }));
        let text = error.to_string();
        assert!(text.starts_with("small is 344 sectors too small"), "{text}");
    });
    world.end();
}

#[test]
fn what_would_lose_data_is_refused() {
    let kind = raid(Level::Raid5, 4);
    let world = World::virtual_time(1);
    let members = drives(&world, kind, 1);
    world.block_on(async {
        let array = create(&world, kind, &members, &[], true).await;
        array.remove_member(3).await.unwrap();
        assert!(matches!(array.remove_member(1).await, Err(MemberError::Needed(1))));
        assert!(matches!(array.remove_member(3).await, Err(MemberError::Empty(3))));
        let there = Rc::clone(&members[0]);
        assert!(matches!(array.add_member(there).await, Err(MemberError::Present(_))));
        // One that was taken out comes back as a new one.
        array.add_member(Rc::clone(&members[3])).await.unwrap();
        array.background_done().await;
        assert_eq!(array.status().health, Health::Healthy);
    });
    world.end();
}

#[test]
fn arrays_share_spares_and_the_first_that_needs_one_takes_what_fits() {
    let kind = raid(Level::Raid1, 2);
    let world = World::virtual_time(8);
    let (first, second) = (drives(&world, kind, 1), drives(&world, kind, 2));
    world.block_on(async {
        let pool = SparePool::default();
        let arrays = [
            create(&world, kind, &first, &[], true).await,
            create(&world, kind, &second, &[], true).await,
        ];
        arrays.iter().for_each(|array| array.share_spares(&pool));
        pool.add(Jittery::new(&world, "small", MEMBER_BYTES, 1));
        pool.add(spare(&world, "shared"));
        arrays[1].fail_member(0).await.unwrap();
        arrays[1].background_done().await;
        assert_eq!(arrays[1].status().slots[0].drive.as_deref(), Some("shared"));
        arrays[0].fail_member(1).await.unwrap();
        arrays[0].background_done().await;
        assert_eq!(arrays[0].status().health, Health::Degraded);
        assert_eq!(pool.names(), ["small"]);
        pool.add(spare(&world, "late"));
        arrays[0].background_done().await;
        assert_eq!(arrays[0].status().health, Health::Healthy);
    });
    world.end();
}
