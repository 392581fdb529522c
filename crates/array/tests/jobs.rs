//! Background jobs in virtual time: how fast, what limits them, how they are stopped.

#![allow(clippy::unwrap_used, reason = "a test ends with the first surprise")]

#[path = "common/rated.rs"]
mod rated;

use std::rc::Rc;
use std::time::Duration;

use array::{Array, Health, JobEnd, JobKind, JobPolicy, Limiter, NewArray};
use drive::{Drive, Durability};
use geometry::Level;
use rated::Rated;
use world::{World, WriteBufs};

const MIB: u64 = 1 << 20;

/// Drives of 100 MiB/s; the one at `slow` has half of that.
fn drives(world: &World, count: usize, bytes: u64, slow: usize) -> Vec<Rc<dyn Drive>> {
    let drive = |index: usize| -> Rc<dyn Drive> {
        let rate = if index == slow { 50 * MIB } else { 100 * MIB };
        Rated::new(world, &format!("drive {index}"), bytes, rate)
    };
    (0..count).map(drive).collect()
}

async fn create(world: &World, level: Level, drives: &[Rc<dyn Drive>], clean: bool) -> Array {
    let request = NewArray {
        name: "test".to_owned(),
        level,
        layout: None,
        chunk_bytes: (level != Level::Raid1).then_some(64 << 10),
        slots: drives.iter().cloned().map(Some).collect(),
        spares: Vec::new(),
        size_bytes: None,
        checksums: false,
        assume_clean: clean,
        consistency: array::Consistency::Resync,
        uuid: *b"0123456789abcdef",
        now_seconds: 1_700_000_000,
    };
    request.create(world).await.unwrap()
}

/// The slowest drive of a resync does nothing but its part: with parity, reading or writing each
/// of its bytes once.
#[test]
fn a_resync_has_the_speed_of_the_slowest_drive() {
    for (level, count) in [(Level::Raid5, 4), (Level::Raid6, 5), (Level::Raid1, 2)] {
        let world = World::virtual_time(5);
        let drives = drives(&world, count, 130 * MIB, 1);
        world.block_on(async {
            let started_ns = world.now_ns();
            let array = create(&world, level, &drives, false).await;
            world.sleep(Duration::from_secs(1)).await;
            let status = array.status();
            assert_eq!(status.health, Health::Resyncing);
            let job = status.job.unwrap();
            assert_eq!((job.kind, job.slot), (JobKind::Resync, None));
            let slowest = Limiter::SlowestDrive(Some("drive 1".to_owned()));
            assert_eq!(job.limiter, slowest, "{level:?}");
            assert!(job.time_left.unwrap() < Duration::from_secs(3), "{job:?}");
            array.background_done().await;
            let seconds = (world.now_ns() - started_ns) as f64 / 1e9;
            let last = array.status().last_job.unwrap();
            let rate = last.end_bytes as f64 / seconds / MIB as f64;
            assert!(rate >= 45.0, "{level:?}: {rate} MiB/s");
            assert_eq!(last.end, Some(JobEnd::Done));
            assert_eq!(array.status().health, Health::Healthy);
            array.stop().await.unwrap();
        });
        world.end();
    }
}

/// C12: a rebuild reads the others and writes the new member, a replace reads the outgoing one; the
/// status names what limits them.
#[test]
fn c12_a_rebuild_and_a_replace_have_the_speed_of_the_slowest_drive() {
    let levels = [(Level::Raid5, 4), (Level::Raid6, 5), (Level::Raid1, 2), (Level::Raid10, 4)];
    for (level, count) in levels {
        for replace in [false, true] {
            let world = World::virtual_time(8);
            let drives = drives(&world, count, 130 * MIB, 9);
            let new = Rated::new(&world, "new", 130 * MIB, 50 * MIB);
            world.block_on(async {
                let array = create(&world, level, &drives, true).await;
                if replace {
                    array.replace_member(1, new).await.unwrap();
                } else {
                    array.fail_member(1).await.unwrap();
                    array.add_member(new).await.unwrap();
                }
                let started_ns = world.now_ns();
                world.sleep(Duration::from_secs(1)).await;
                let job = array.status().job.unwrap();
                let slowest = Limiter::SlowestDrive(Some("new".to_owned()));
                assert_eq!((job.slot, job.limiter), (Some(1), slowest), "{level:?}");
                array.background_done().await;
                let seconds = (world.now_ns() - started_ns) as f64 / 1e9;
                let last = array.status().last_job.unwrap();
                let rate = last.end_bytes as f64 / seconds / MIB as f64;
                assert!(rate >= 45.0, "{level:?}, replace {replace}: {rate} MiB/s");
                assert_eq!(last.end, Some(JobEnd::Done));
            });
            world.end();
        }
    }
}

#[test]
fn a_resync_stops_at_a_window_and_goes_on_there() {
    let world = World::virtual_time(6);
    let drives = drives(&world, 4, 130 * MIB, 9);
    world.block_on(async {
        let array = create(&world, Level::Raid5, &drives, false).await;
        world.sleep(Duration::from_millis(500)).await;
        array.hold_jobs().await;
        let stopped = array.status();
        let last = stopped.last_job.unwrap();
        assert_eq!(last.end, Some(JobEnd::Stopped));
        assert!((40 * MIB..60 * MIB).contains(&last.position_bytes), "{last:?}");
        assert_eq!((stopped.job, stopped.health), (None, Health::Resyncing));
        array.resume_jobs();
        assert_eq!(array.status().health, Health::Resyncing);
        let started_ns = world.now_ns();
        array.background_done().await;
        let seconds = (world.now_ns() - started_ns) as f64 / 1e9;
        assert!(seconds < 0.95, "it began at the start again: {seconds} s");
        assert_eq!(array.status().health, Health::Healthy);
    });
    world.end();
}

/// B09: the latency of clients comes first, a floor stays, and the status says so.
#[test]
fn b09_a_job_makes_way_for_clients_and_says_so() {
    let world = World::virtual_time(7);
    let drives = drives(&world, 4, 130 * MIB, 9);
    world.block_on(async {
        let array = create(&world, Level::Raid5, &drives, false).await;
        let policy = JobPolicy {
            latency_goal: Duration::from_millis(25),
            floor_bytes_per_second: 2 * MIB,
            ceiling_bytes_per_second: None,
        };
        array.set_job_policy(policy);
        let mut late = 0;
        for round in 0..100 {
            let started_ns = world.now_ns();
            let buffers = WriteBufs::from_iter([world.pool().copy_of(&[7; 4096])]);
            let offset = 300 * MIB + round * (1 << 16);
            array.write(offset, buffers, Durability::Cached).await.unwrap();
            late += u64::from(round >= 30 && world.now_ns() - started_ns > 25_000_000);
            world.sleep(Duration::from_millis(10)).await;
        }
        let job = array.status().job.unwrap();
        assert_eq!(job.limiter, Limiter::Clients);
        assert!(late <= 20, "{late} of 70 writes were late");
        assert!(job.rate_bytes_per_second >= 2 * MIB, "{job:?}");
        let ceiling_bytes_per_second = Some(10 * MIB);
        array.set_job_policy(JobPolicy { ceiling_bytes_per_second, ..policy });
        world.sleep(Duration::from_secs(1)).await;
        assert_eq!(array.status().job.unwrap().limiter, Limiter::Policy);
        array.set_job_policy(policy);
        array.background_done().await;
        assert_eq!(array.status().health, Health::Healthy);
    });
    world.end();
}
