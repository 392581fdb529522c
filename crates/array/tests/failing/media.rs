//! Media errors: answered from redundancy, mended, listed as bad; a limit to them.

use std::time::Duration;

use array::{Health, Policy, Scan, SlotState};
use drive::{Drive, Durability, ErrorKind};
use geometry::Level;
use world::{ReadBufs, SplitMix64, WriteBufs};

use crate::bench::{Bench, RAID1, RAID5, in_virtual_time};
use crate::common::{self, Kind, kinds, random_bytes, range};

/// A sector that can't be read is answered from redundancy, then written anew, on data and parity
/// members alike.
#[test]
fn what_can_not_be_read_is_written_anew() {
    for (index, kind) in kinds().into_iter().filter(|kind| kind.losses > 0).enumerate() {
        in_virtual_time(index as u64, async |world| {
            let bench = Bench::new(&world, kind, 40 + index as u64).await;
            for slot in 0..kind.members {
                // At different places of their chunks, so that no two are bad in the same stripe.
                for chunk in [slot as u64, slot as u64 + 1] {
                    bench.spoil(slot, 4096 * chunk + 512 * slot as u64, 512);
                }
            }
            bench.twin.check_all().await;
            // Parity is only read when it is needed.
            for at in 0..8 {
                let content = vec![at as u8; 512];
                bench.twin.write(at * 8192 + 1024, &content, &[]).await;
            }
            bench.array.background_done().await;
            bench.twin.check_all().await;
            bench.array.background_done().await;
            let errors: u64 = bench.array.status().slots.iter().map(|slot| slot.read_errors).sum();
            assert!(errors > 0, "{kind:?}: nothing was met");
            assert_eq!(bench.array.status().health, Health::Healthy, "{kind:?}");
            assert_eq!(bench.bad_bytes(), vec![0; kind.members]);
            // Whatever was met can be read again, and nothing is met twice.
            bench.twin.check_all().await;
            let again: u64 = bench.array.status().slots.iter().map(|slot| slot.read_errors).sum();
            assert_eq!(again, errors, "{kind:?}");
        });
    }
}

/// A sector that can be neither read nor written goes to the log, which outlasts a restart; it
/// leaves the log once a client has written it.
#[test]
fn what_can_not_be_written_is_listed_until_it_can() {
    for kind in [RAID1, RAID5] {
        in_virtual_time(5, async |world| {
            let mut bench = Bench::new(&world, kind, 6).await;
            bench.spoil(0, 1024, 512);
            bench.stuck(0, 1024, 512);
            bench.twin.check_all().await;
            bench.array.background_done().await;
            bench.twin.check_all().await;
            bench.array.background_done().await;
            assert_eq!(bench.bad_bytes()[0], 512, "{kind:?}");
            assert_eq!(bench.array.status().health, Health::UnderProtected);
            let logged = bench.array.status().slots[0].read_errors;
            bench.array.stop().await.unwrap();
            bench.reopen().await;
            assert_eq!(bench.bad_bytes()[0], 512, "{kind:?}");
            bench.twin.check_all().await;
            assert!(
                logged > 0 && bench.array.status().slots[0].read_errors == 0,
                "not asked again"
            );
            bench.controls[0].clear();
            let content = vec![0x5a; 64 << 10];
            bench.twin.write(0, &content, &[]).await;
            assert_eq!(bench.bad_bytes()[0], 0, "{kind:?}");
            bench.array.stop().await.unwrap();
            bench.reopen().await;
            assert_eq!(bench.bad_bytes()[0], 0, "{kind:?}");
            let scan = Scan::of(world.pool(), bench.drives.clone()).await;
            let in_use = |c: &format::md::Candidate| c.view.bad_blocks.unwrap().in_use;
            assert!(!scan.candidates.iter().any(in_use));
            bench.twin.check_all().await;
            assert!(bench.readable(0, 1024, 512).await);
        });
    }
}

/// A source of a rebuild that can't read a sector gets it back from the others.
#[test]
fn what_a_rebuild_can_not_read_of_a_source_is_written_anew() {
    let raid6 = Kind { level: Level::Raid6, members: 5, losses: 2, ..RAID5 };
    let mirror = Kind { members: 3, losses: 2, ..RAID1 };
    for kind in [raid6, mirror] {
        in_virtual_time(9, async |world| {
            let bench = Bench::new(&world, kind, 9).await;
            bench.array.flush().await.unwrap();
            bench.array.fail_member(1).await.unwrap();
            for slot in [0, 2] {
                bench.spoil(slot, 4096 * slot as u64 + 1024, 512);
            }
            let new = common::drives(&world, kind, 99).remove(1);
            bench.array.add_member(new).await.unwrap();
            bench.array.background_done().await;
            assert_eq!(bench.array.status().health, Health::Healthy, "{kind:?}");
            // Not all of what there is has to be read.
            let slots = bench.array.status().slots;
            let met: Vec<usize> =
                [0, 2].into_iter().filter(|&s| slots[s].read_errors > 0).collect();
            assert!(!met.is_empty(), "{kind:?}");
            for slot in met {
                let offset = 4096 * slot as u64 + 1024;
                assert!(bench.readable(slot, offset, 512).await, "{kind:?} slot {slot}");
            }
            bench.twin.check_all().await;
        });
    }
}

/// A log that can't be read: its member is not relied on, and the others are.
#[test]
fn a_member_whose_log_can_not_be_read_is_left_out() {
    for kind in [RAID1, RAID5] {
        in_virtual_time(15, async |world| {
            let mut bench = Bench::new(&world, kind, 16).await;
            bench.spoil(0, 1024, 512);
            bench.stuck(0, 1024, 512);
            bench.twin.check_all().await;
            bench.array.background_done().await;
            bench.array.stop().await.unwrap();
            bench.controls[0].clear();
            let scan = Scan::of(world.pool(), bench.drives.clone()).await;
            let log = scan.candidates[0].view.bad_blocks.unwrap().range;
            bench.controls[0].spoil(log.start, log.length);
            bench.reopen().await;
            let status = bench.array.status();
            assert_eq!(status.slots[0].state, SlotState::Faulty, "{kind:?}");
            assert_eq!(status.failures[0].error.offset, log.start);
            bench.twin.write(0, &[1; 8192], &[]).await;
            bench.array.stop().await.unwrap();
            bench.controls[0].clear();
            bench.reopen().await;
            assert_eq!(bench.array.status().slots[0].state, SlotState::Missing, "stale");
            bench.twin.check_all().await;
        });
    }
}

/// The log holds 512 entries; the member whose log is full is failed.
#[test]
fn a_member_with_a_full_log_is_failed() {
    in_virtual_time(7, async |world| {
        let bench = Bench::new(&world, RAID1, 8).await;
        bench.array.set_policy(Policy { read_errors_max: u32::MAX, ..Policy::default() });
        bench.stuck(0, 0, 1 << 20);
        for entry in 0..513 {
            assert_eq!(bench.array.status().slots[0].state, SlotState::InSync, "{entry} entries");
            bench.spoil(0, entry * 1024, 512);
            while bench.array.status().slots[0].state == SlotState::InSync
                && bench.bad_bytes()[0] <= entry * 512
            {
                bench.twin.check(entry * 1024, 512).await;
                bench.array.background_done().await;
            }
        }
        assert_eq!(bench.array.status().slots[0].state, SlotState::Faulty);
        bench.twin.check_all().await;
    });
}

/// md's rule: more than 20 errors, of which half are forgotten each hour.
#[test]
fn a_member_that_errs_too_often_is_failed() {
    in_virtual_time(9, async |world| {
        let bench = Bench::new(&world, RAID5, 10).await;
        let read = async |sector: u64| {
            // The first chunk of the array is the first of its first member.
            bench.spoil(0, sector % 16 * 512, 512);
            bench.twin.check(sector % 16 * 512, 512).await;
            bench.array.background_done().await;
        };
        for sector in 0..20 {
            read(sector).await;
        }
        world.sleep(Duration::from_secs(3600)).await;
        for sector in 0..10 {
            read(sector).await;
        }
        assert_eq!(bench.array.status().health, Health::Healthy);
        read(10).await;
        assert_eq!(bench.array.status().slots[0].state, SlotState::Faulty);
        bench.twin.check_all().await;
    });
}

/// Different sectors of both copies are bad: everything is still there.
#[test]
fn bad_sectors_at_different_places_are_no_loss() {
    for kind in [RAID1, RAID5] {
        in_virtual_time(11, async |world| {
            let bench = Bench::new(&world, kind, 12).await;
            for sector in 0..8 {
                bench.spoil((sector % 2) as usize, sector * 512, 512);
            }
            bench.twin.check_all().await;
            bench.array.background_done().await;
            for sector in 0..8 {
                bench.spoil((sector % 2) as usize, sector * 512, 512);
            }
            // Small and large, they need old content from all over their stripes.
            bench.twin.write(512, &[3; 512], &[]).await;
            bench.twin.write(8192, &[4; 2048], &[]).await;
            bench.twin.write(12288, &[5; 20 << 10], &[]).await;
            bench.array.background_done().await;
            bench.twin.check_all().await;
            assert_eq!(bench.array.status().health, Health::Healthy);
        });
    }
}

/// Both copies of 8 sectors are bad: an error that says where for these, the rest is fine.
#[test]
fn b13_only_what_is_lost_gives_an_error() {
    in_virtual_time(13, async |world| {
        let bench = Bench::new(&world, RAID1, 14).await;
        let lost = [3, 10, 11, 12, 40, 41, 100, 255];
        for sector in lost {
            bench.spoil(0, sector * 512, 512);
            bench.spoil(1, sector * 512, 512);
        }
        for sector in 0..512 {
            let buffers = ReadBufs::from_iter([world.pool().take(512)]);
            let result = bench.array.read(sector * 512, buffers).await.result;
            assert_eq!(result.is_err(), lost.contains(&sector), "sector {sector}");
        }
        let buffers = ReadBufs::from_iter([world.pool().take(64 << 10)]);
        let error = bench.array.read(4096, buffers).await.result.unwrap_err();
        assert_eq!((error.kind, error.offset, error.bytes), (ErrorKind::Lost, 10 * 512, 512));
        bench.array.background_done().await;
        assert_eq!(bench.array.status().health, Health::Healthy);
        // What each copy still holds can be had apart: one sector of each is readable after all.
        let fixed = bench.data_offset + 10 * 512;
        let content = WriteBufs::from_iter([world.pool().copy_of(&[0xc1; 512])]);
        bench.drives[1].write(fixed, content, Durability::Cached).await.unwrap();
        let copies = bench.array.copies_raw(10 * 512, 512).await;
        assert_eq!(copies.iter().map(|copy| copy.slot).collect::<Vec<_>>(), [0, 1]);
        assert!(copies[0].content.is_err());
        assert!(copies[1].content.as_ref().is_ok_and(|bytes| bytes[..] == [0xc1; 512]));
        // What a client writes is there again.
        for sector in lost {
            bench.twin.write(sector * 512, &[7; 512], &[]).await;
        }
        bench.twin.check_all().await;
    });
}

/// Random histories with latent errors on one member after the other, against a flat byte array.
#[test]
fn histories_with_latent_errors_lose_nothing() {
    for (index, kind) in kinds().into_iter().filter(|kind| kind.losses > 0).enumerate() {
        let seed = 900 + index as u64;
        in_virtual_time(seed, async |world| {
            let bench = Bench::new(&world, kind, seed).await;
            bench.array.set_policy(Policy { read_errors_max: u32::MAX, ..Policy::default() });
            let mut random = SplitMix64::new(seed);
            let size = bench.twin.flat.borrow().len() as u64;
            for _ in 0..4 {
                let slot = random.below(kind.members as u64) as usize;
                for _ in 0..8 {
                    let (start, bytes) = range(&mut random, common::MEMBER_BYTES / 2);
                    bench.spoil(slot, start, bytes);
                    if random.chance(1, 4) {
                        bench.stuck(slot, start, 512);
                    }
                    let twin = &bench.twin;
                    let (at, bytes) = range(&mut random, size / 2);
                    let write = twin.check(at, bytes as usize);
                    let (at, bytes) = range(&mut random, size / 2);
                    let content = random_bytes(&mut random, bytes as usize);
                    let read = twin.write(size / 2 + at, &content, &[]);
                    world::join_all([
                        Box::pin(write) as std::pin::Pin<Box<dyn Future<Output = ()>>>,
                        Box::pin(read),
                    ])
                    .await;
                    let (at, bytes) = range(&mut random, size);
                    twin.zero(at, bytes).await;
                    let (at, bytes) = range(&mut random, size);
                    let content = random_bytes(&mut random, bytes as usize);
                    twin.write(at, &content, &[]).await;
                    twin.check(at, bytes as usize).await;
                }
                bench.twin.check_all().await;
                bench.array.background_done().await;
                // A new drive could do no better: all of it can be written again.
                bench.controls[slot].clear();
                let flat = bench.twin.flat.borrow().clone();
                for (part, content) in flat.chunks(256 << 10).enumerate() {
                    bench.twin.write((part as u64) << 18, content, &[]).await;
                }
                if bench.array.status().slots[slot].state != SlotState::InSync {
                    break;
                }
            }
            bench.twin.check_all().await;
        });
    }
}
