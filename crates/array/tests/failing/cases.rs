//! Cases from public reports about power cuts and repairs, named after their rows.

use std::rc::Rc;
use std::time::Duration;

use array::{Array, Consistency, Health, JobPolicy, OpenMode, Scan, SlotState};
use drive::{Drive, Durability, Effect, Fault, Faulty, MemoryDrive};
use geometry::{Geometry, Level};
use world::{ReadBufs, SplitMix64, World, WriteBufs};

use crate::bench::{RAID1, RAID5, in_virtual_time};
use crate::common::{Jittery, Kind, Twin, create_with, random_bytes};

const MODE: OpenMode =
    OpenMode { read_only: false, force_dirty: false, now_seconds: 1_800_000_000 };
const BLOCK: usize = 4096;
const SECTOR: usize = 512;

/// What a client knows of each block of an array: every content it may have.
struct Known(Vec<Vec<Vec<u8>>>);

impl Known {
    /// Each sector holds one of the contents it may have.
    fn assert_holds(&self, content: &[u8], what: &str) {
        for (index, (block, versions)) in content.chunks(BLOCK).zip(&self.0).enumerate() {
            for (at, sector) in (0..).step_by(SECTOR).zip(block.chunks(SECTOR)) {
                let held = versions.iter().any(|version| &version[at..at + SECTOR] == sector);
                assert!(held, "{what}: block {index}, byte {at}");
            }
        }
    }

    /// Writes and flushes until somebody stops it; notes what may be there before it can be.
    async fn work(&mut self, world: &World, array: &Array, random: &mut SplitMix64) {
        loop {
            let mut written = Vec::new();
            for _ in 0..1 + random.below(6) {
                let block = random.below(self.0.len() as u64) as usize;
                let content = random_bytes(random, BLOCK);
                self.0[block].push(content.clone());
                written.push(block);
                let buffers = WriteBufs::from_iter([world.pool().copy_of(&content)]);
                let offset = (block * BLOCK) as u64;
                array.write(offset, buffers, Durability::Cached).await.unwrap();
            }
            array.flush().await.unwrap();
            for block in written {
                let last = self.0[block].pop();
                self.0[block] = last.into_iter().collect();
            }
        }
    }
}

async fn read_all(world: &World, drive: &dyn Drive) -> Vec<u8> {
    let bytes = drive.facts().size_bytes as usize;
    let done = drive.read(0, ReadBufs::from_iter([world.pool().take(bytes)])).await;
    done.result.unwrap();
    done.buffers[0].to_vec()
}

async fn open(world: &World, drives: &[Rc<dyn Drive>]) -> Array {
    let scan = Scan::of(world.pool(), drives.to_vec()).await;
    assert_eq!(scan.assemblies.len(), 1);
    let array = scan.open(world, &scan.assemblies[0], MODE).await;
    array.unwrap_or_else(|error| panic!("{error}"))
}

/// Power cuts in a row, also while the array recovers from the one before: it always starts, only
/// what was not flushed is in doubt, and the recovery comes to the same however often it begins.
#[test]
fn b06_cuts_in_a_row_lose_only_what_was_not_flushed() {
    let kind = Kind { level: Level::Raid6, members: 5, losses: 2, ..RAID5 };
    for seed in 0..200 {
        in_virtual_time(seed, async |world| {
            let mut random = SplitMix64::new(seed);
            let faulty: Vec<Rc<Faulty>> = (0..kind.members)
                .map(|index| {
                    let memory = MemoryDrive::new(&format!("d{index}"), 1200 << 10, 512);
                    Rc::new(Faulty::new(&world, Rc::new(memory), seed + index as u64))
                })
                .collect();
            let drives: Vec<Rc<dyn Drive>> =
                faulty.iter().map(|drive| Rc::clone(drive) as Rc<dyn Drive>).collect();
            let policy = [Consistency::Resync, Consistency::Bitmap][(seed % 2) as usize].clone();
            let array = create_with(&world, kind, &drives, true, policy).await;
            let start = read_all(&world, &array).await;
            let mut known = Known(start.chunks(BLOCK).map(|block| vec![block.to_vec()]).collect());
            array.stop().await.unwrap();
            for drive in &faulty {
                drive.control().set_volatile_cache(true);
                for odds in [1, 2, 3] {
                    let delay = Duration::from_nanos(1000 + random.below(200_000));
                    drive.control().add(Fault::new(Effect::Delay(delay)).one_in(odds));
                }
            }
            for longest_us in [20_000, 4000, 12_000] {
                let until = Duration::from_micros(random.below(longest_us));
                let work = async {
                    let array = open(&world, &drives).await;
                    known.work(&world, &array, &mut random).await;
                };
                assert!(world.within(until, "the power", work).await.is_err());
                for drive in &faulty {
                    drive.control().power_cut(random.next_u64()).await.unwrap();
                }
                // What was under way ends before the power is back.
                world.sleep(Duration::from_secs(20)).await;
                faulty.iter().for_each(|drive| drive.control().power_on());
            }
            let array = open(&world, &drives).await;
            let content = read_all(&world, &array).await;
            known.assert_holds(&content, &format!("seed {seed}"));
            array.background_done().await;
            array.start_check().unwrap();
            array.background_done().await;
            let status = array.status();
            assert_eq!(status.scrub.unwrap().counts.mismatched_bytes, 0, "seed {seed}");
            assert_eq!(status.health, Health::Healthy, "seed {seed}");
            array.stop().await.unwrap();
            let again = read_all(&world, &open(&world, &drives).await).await;
            assert!(again == content, "seed {seed}");
        });
    }
}

/// Found by histories: before the resync a member can't read a block, beside which a client writes,
/// and the member of what was written is lost. What parity gives for the bad block must not stand
/// in for the good ones.
#[test]
fn a_write_beside_a_bad_block_before_the_resync_survives_the_loss_of_its_member() {
    let kind = Kind { level: Level::Raid6, members: 5, losses: 2, ..RAID5 };
    in_virtual_time(38, async |world| {
        let mut random = SplitMix64::new(38);
        let faulty: Vec<Rc<Faulty>> = (0..kind.members as u64)
            .map(|index| {
                let drive = Jittery::new(&world, &format!("drive {index}"), 16 << 20, index);
                Rc::new(Faulty::new(&world, drive, index))
            })
            .collect();
        let drives: Vec<Rc<dyn Drive>> =
            faulty.iter().map(|drive| Rc::clone(drive) as Rc<dyn Drive>).collect();
        // What the drives held before agrees with nothing.
        let place: u64 = 12 << 20;
        for drive in &drives {
            let old = random_bytes(&mut random, 1 << 20);
            let buffers = WriteBufs::from_iter([world.pool().copy_of(&old)]);
            drive.write(place, buffers, Durability::Cached).await.unwrap();
        }
        let array = create_with(&world, kind, &drives, false, Consistency::Resync).await;
        array.hold_jobs().await;
        let Geometry::Parity(parity) = array.geometry() else { panic!("RAID 6 has parity") };
        let examined = array::examine(world.pool(), drives[0].as_ref()).await;
        let start = examined.found[0].view.layout.data_offset_bytes;
        let chunk = parity.chunk_bytes();
        let stripe = (place - start) / chunk + 1;
        assert!(array.status().synced_to_bytes.unwrap() < stripe * chunk, "not resynced yet");
        let map = parity.stripe(stripe);
        faulty[map.data(0)].control().spoil(start + map.member_offset() + 512, 512);
        let new = random_bytes(&mut random, 4096);
        let offset = stripe * parity.stripe_bytes() + chunk;
        let buffers = WriteBufs::from_iter([world.pool().copy_of(&new)]);
        array.write(offset, buffers, Durability::Cached).await.unwrap();
        array.fail_member(map.data(1)).await.unwrap();
        for _ in 0..2 {
            let buffers = ReadBufs::from_iter([world.pool().take(4096)]);
            let done = array.read(offset, buffers).await;
            done.result.unwrap();
            assert!(done.buffers[0][..] == new[..]);
            array.resume_jobs();
            array.background_done().await;
        }
    });
}

/// Writes to where a mirror's third member is being filled, which is killed half-way and filled
/// again: all copies are the same, and what the client has written.
#[test]
fn b08_writes_over_a_repair_are_on_every_copy() {
    let kind = Kind { members: 3, losses: 2, ..RAID1 };
    for seed in 0..20 {
        in_virtual_time(seed, async |world| {
            let mut random = SplitMix64::new(seed);
            let drive = |index: u64| -> Rc<dyn Drive> {
                Jittery::new(&world, &format!("drive {index}"), 8 << 20, seed + index)
            };
            let mut drives: Vec<Rc<dyn Drive>> = (0..3).map(drive).collect();
            let array = create_with(&world, kind, &drives, true, Consistency::Resync).await;
            let twin = Twin::new(&world, Rc::new(array.clone()));
            // Slow enough for many writes while it goes on.
            array.set_job_policy(JobPolicy {
                ceiling_bytes_per_second: Some(64 << 20),
                ..JobPolicy::default()
            });
            for index in 3..5 {
                array.fail_member(2).await.unwrap();
                drives[2] = drive(index);
                array.add_member(Rc::clone(&drives[2])).await.unwrap();
                let mut writes = 0;
                while let Some(job) = wait_for_job(&world, &array).await {
                    // Around the edge of what is filled.
                    let near = job.saturating_sub(8192) + random.below(32) * 512;
                    let bytes = 512 * (1 + random.below(7));
                    let at = near.min(twin.flat.borrow().len() as u64 - bytes);
                    twin.write(at, &random_bytes(&mut random, bytes as usize), &[]).await;
                    writes += 1;
                    if index == 3 && job > 4 << 20 {
                        break;
                    }
                }
                assert!(writes > 20, "seed {seed}: {writes} writes");
            }
            array.background_done().await;
            let states = array.status().slots;
            assert!(states.iter().all(|slot| slot.state == SlotState::InSync), "seed {seed}");
            let examined = array::examine(world.pool(), drives[0].as_ref()).await;
            let start = examined.found[0].view.layout.data_offset_bytes;
            let flat = twin.flat.borrow().clone();
            for drive in &drives {
                let buffers = ReadBufs::from_iter([world.pool().take(flat.len())]);
                let done = drive.read(start, buffers).await;
                assert!(done.buffers[0][..] == flat[..], "seed {seed}: {}", drive.facts().name);
            }
        });
    }
}

/// Where the job under way is; waits for it to begin. `None`: nothing is left to fill.
async fn wait_for_job(world: &World, array: &Array) -> Option<u64> {
    loop {
        let status = array.status();
        match status.job {
            Some(job) => return Some(job.position_bytes),
            None if status.slots[2].state == SlotState::InSync => return None,
            None => world.sleep(Duration::from_micros(100)).await,
        }
    }
}
