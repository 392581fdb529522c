//! Members that hang or are slow: nobody waits for long, and what comes late does not matter.

use std::time::Duration;

use array::{Consistency, Health, Policy, Scan, SlotState};
use drive::{Drive, Durability, Effect, ErrorKind, Fault, Operation};
use world::{ReadBufs, SplitMix64, World, WriteBufs};

use crate::bench::{Bench, RAID1, RAID5, in_virtual_time};
use crate::common::{Kind, kinds, random_bytes, range};

const SECOND: Duration = Duration::from_secs(1);

/// What `act` takes in virtual time.
async fn timed<T>(world: &World, act: impl Future<Output = T>) -> (T, Duration) {
    let start = world.now_ns();
    let output = act.await;
    (output, Duration::from_nanos(world.now_ns() - start))
}

fn redundant() -> impl Iterator<Item = (usize, Kind)> {
    kinds().into_iter().filter(|kind| kind.losses > 0).enumerate()
}

/// Reads go on without a drive that hangs, after one wait; it is back when it answers again.
#[test]
fn reads_do_not_wait_for_a_drive_that_hangs() {
    for (index, kind) in redundant() {
        in_virtual_time(index as u64, async |world| {
            let bench = Bench::new(&world, kind, 70 + index as u64).await;
            let (geometry, bytes) = (bench.array.geometry(), bench.array.facts().size_bytes);
            if !geometry.runs(0, bytes).any(|run| run.first.member == 0) {
                // It holds parity only: nobody reads it while all is well.
                return;
            }
            bench.controls[0].add(Fault::new(Effect::Hang).on(Operation::Read));
            let (_, all) = timed(&world, bench.twin.check_all()).await;
            assert!(all < SECOND, "{kind:?}: {all:?}");
            assert_eq!(bench.array.status().health, Health::Healthy, "{kind:?}");
            assert!(bench.array.status().slots[0].late, "{kind:?}");
            bench.controls[0].clear();
            world.sleep(3 * SECOND).await;
            assert!(!bench.array.status().slots[0].late, "{kind:?}: it is not asked again");
            bench.twin.check_all().await;
        });
    }
}

/// Writes, flushes and durable writes fail a drive that hangs, and the others say so before the
/// client hears of it. What it stores later does not matter.
#[test]
fn writes_fail_a_drive_that_hangs() {
    for (index, kind) in redundant() {
        for what in 0..4 {
            in_virtual_time(index as u64, async |world| {
                let bench = Bench::new(&world, kind, 80 + index as u64).await;
                world.sleep(10 * SECOND).await;
                bench.controls[0].add(Fault::new(Effect::Hang));
                let act = async {
                    for chunk in 0..kind.members as u64 {
                        let at = chunk * u64::from(kind.chunk_bytes);
                        match what {
                            0 => bench.twin.write(at, &[9; 1024], &[]).await,
                            1 => bench.twin.zero(at, 64 << 10).await,
                            2 => bench.array.flush().await.unwrap(),
                            _ => {
                                bench.twin.flat.borrow_mut()[..512].fill(8);
                                let data = WriteBufs::from_iter([world.pool().copy_of(&[8; 512])]);
                                bench.array.write(0, data, Durability::Durable).await.unwrap();
                            }
                        }
                    }
                };
                let ((), took) = timed(&world, act).await;
                assert!(took <= SECOND, "{kind:?} {what}: {took:?}");
                bench.twin.check_all().await;
                let status = bench.array.status();
                assert_eq!(status.slots[0].state, SlotState::Faulty, "{kind:?} {what}");
                assert_eq!(status.failures[0].error.kind, ErrorKind::TimedOut);
                bench.controls[0].clear();
                world.sleep(SECOND).await;
                bench.twin.check_all().await;
                let scan = Scan::of(world.pool(), bench.drives.clone()).await;
                let events: Vec<u64> = scan.candidates.iter().map(|c| c.view.events).collect();
                assert!(events[0] + 2 <= events[1], "{kind:?} {what}: {events:?}");
            });
        }
    }
}

/// Looking at drives ends, whatever hangs; the one that does is named, the others are judged.
#[test]
fn a_look_at_drives_does_not_wait_for_one_that_hangs() {
    in_virtual_time(36, async |world| {
        let bench = Bench::new(&world, RAID5, 36).await;
        bench.array.stop().await.unwrap();
        bench.controls[2].add(Fault::new(Effect::Hang).on(Operation::Read));
        let look = Scan::within(&world, SECOND, bench.drives.clone());
        let (scan, took) = timed(&world, look).await;
        assert_eq!(took, SECOND);
        let error = &scan.examined[2].unreadable[0];
        assert_eq!((error.kind, &*error.drive), (ErrorKind::TimedOut, "drive 2"));
        assert_eq!(scan.assemblies[0].missing(), [2]);
    });
}

/// Setting a bit of the bitmap is a write to every member, too.
#[test]
fn a_bitmap_does_not_wait_for_a_drive_that_hangs() {
    for kind in [RAID1, RAID5] {
        in_virtual_time(35, async |world| {
            let bench =
                Bench::with(&world, kind, 35, Consistency::Bitmap { chunk_bytes: None }).await;
            world.sleep(60 * SECOND).await;
            bench.controls[0].add(Fault::new(Effect::Hang));
            let (_, took) = timed(&world, bench.twin.write(4096, &[5; 512], &[])).await;
            assert!(took <= SECOND, "{kind:?}: {took:?}");
            assert_eq!(bench.array.status().slots[0].state, SlotState::Faulty, "{kind:?}");
            bench.twin.check_all().await;
        });
    }
}

/// A drive that hangs two minutes on one sector, as desktop drives do: it is answered from
/// redundancy, the drive is kept, and the sector is written anew when it has answered.
#[test]
fn c29_a_drive_that_hangs_on_one_sector_is_kept() {
    for kind in [RAID1, RAID5] {
        in_virtual_time(29, async |world| {
            let bench = Bench::new(&world, kind, 29).await;
            let start = bench.data_offset + 2048;
            bench.spoil(0, 2048, 512);
            let hang = Fault::new(Effect::Delay(120 * SECOND)).on(Operation::Read).times(1);
            bench.controls[0].add(hang.within(start..start + 512));
            let (_, took) = timed(&world, bench.twin.check(0, 8192)).await;
            assert!(took < SECOND, "{took:?}");
            let (_, took) = timed(&world, bench.twin.check(0, 8192)).await;
            assert!(took < SECOND / 10, "{took:?}: it is waited for again");
            world.sleep(125 * SECOND).await;
            bench.array.background_done().await;
            assert_eq!(bench.array.status().health, Health::Healthy);
            assert!(bench.readable(0, 2048, 512).await, "it was not written anew");
            bench.twin.check_all().await;
        });
    }
}

/// All drives wake up at once: nobody is failed, everything is answered in the end.
#[test]
fn when_all_are_slow_nobody_is_failed() {
    for (index, kind) in redundant() {
        in_virtual_time(index as u64, async |world| {
            let bench = Bench::new(&world, kind, 90 + index as u64).await;
            for control in &bench.controls {
                control.add(Fault::new(Effect::Delay(8 * SECOND)).times(20));
            }
            bench.twin.write(0, &[1; 4096], &[]).await;
            bench.twin.check(0, 64 << 10).await;
            bench.array.flush().await.unwrap();
            assert_eq!(bench.array.status().health, Health::Healthy, "{kind:?}");
            bench.twin.check_all().await;
        });
    }
}

/// A member that is slow every time is asked no more, until it is well.
#[test]
fn a_slow_member_is_asked_last() {
    for kind in [RAID1, RAID5] {
        in_virtual_time(31, async |world| {
            let bench = Bench::new(&world, kind, 31).await;
            bench.controls[0].add(Fault::new(Effect::Delay(SECOND / 5)).on(Operation::Read));
            for _ in 0..20 {
                bench.twin.check(0, 4096).await;
            }
            let (_, took) = timed(&world, bench.twin.check(0, 4096)).await;
            assert!(took < SECOND / 10, "{kind:?}: {took:?}");
            assert_eq!(bench.array.status().health, Health::Healthy);
        });
    }
}

/// One array without redundancy waits as long as it is told to.
#[test]
fn what_only_one_member_has_is_waited_for() {
    in_virtual_time(33, async |world| {
        let bench = Bench::new(&world, RAID1, 33).await;
        bench.array.fail_member(1).await.unwrap();
        bench.controls[0].add(Fault::new(Effect::Delay(30 * SECOND)).times(2));
        bench.twin.check(0, 4096).await;
        bench.array.set_policy(Policy { patience: 5 * SECOND, ..Policy::default() });
        bench.controls[0].clear();
        bench.controls[0].add(Fault::new(Effect::Hang));
        let buffers = ReadBufs::from_iter([world.pool().take(512)]);
        let (done, took) = timed(&world, bench.array.read(0, buffers)).await;
        assert!(done.result.is_err() && took < 30 * SECOND, "{took:?}");
    });
}

/// Random histories while one member hangs and comes back, again and again.
#[test]
fn histories_with_hanging_drives_lose_nothing() {
    for (index, kind) in redundant() {
        let seed = 700 + index as u64;
        in_virtual_time(seed, async |world| {
            let bench = Bench::new(&world, kind, seed).await;
            let mut random = SplitMix64::new(seed);
            let size = bench.twin.flat.borrow().len() as u64;
            let slot = random.below(kind.members as u64) as usize;
            for _ in 0..3 {
                let hang = Fault::new(Effect::Hang).one_in(1 + random.below(3));
                let reads_only = random.chance(2, 3);
                let hang = if reads_only { hang.on(Operation::Read) } else { hang };
                bench.controls[slot].add(hang);
                for _ in 0..12 {
                    let (at, bytes) = range(&mut random, size);
                    if random.chance(1, 2) {
                        bench.twin.check(at, bytes as usize).await;
                    } else {
                        let content = random_bytes(&mut random, bytes as usize);
                        let write = bench.twin.write(at, &content, &[]);
                        let ((), took) = timed(&world, write).await;
                        assert!(took <= SECOND, "{kind:?}: {took:?}");
                    }
                }
                bench.controls[slot].clear();
                world.sleep(2 * SECOND).await;
                bench.twin.check_all().await;
            }
        });
    }
}
