//! Cases from reports, each named after its row.

use std::cell::RefCell;
use std::rc::Rc;

use array::{Health, Holds, Limiter, Outcome};
use drive::{Counting, Discarded, Drive, DriveError, Durability, Facts, Io, ReadDone, Zeroing};
use geometry::Level;
use world::{ReadBufs, SplitMix64, World, WriteBufs, join_all, total_bytes};

use crate::bed::{Bed, DATA_OFFSET, SECTOR, create, kind, places};
use crate::common::{Jittery, random_bytes};
use crate::rated::Rated;

const MIB: u64 = 1 << 20;

/// Notes every read, in the order they came.
struct Noting {
    inner: Rc<dyn Drive>,
    reads: RefCell<Vec<(u64, u64)>>,
}

impl Drive for Noting {
    fn facts(&self) -> &Facts {
        self.inner.facts()
    }

    fn read(&self, offset: u64, buffers: ReadBufs) -> Io<ReadDone> {
        self.reads.borrow_mut().push((offset, total_bytes(&buffers)));
        self.inner.read(offset, buffers)
    }

    fn write(&self, at: u64, buffers: WriteBufs, how: Durability) -> Io<Result<(), DriveError>> {
        self.inner.write(at, buffers, how)
    }

    fn flush(&self) -> Io<Result<(), DriveError>> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, bytes: u64) -> Io<Result<Discarded, DriveError>> {
        self.inner.discard(offset, bytes)
    }

    fn write_zeroes(
        &self,
        offset: u64,
        bytes: u64,
        zeroing: Zeroing,
        durability: Durability,
    ) -> Io<Result<(), DriveError>> {
        self.inner.write_zeroes(offset, bytes, zeroing, durability)
    }
}

/// A RAID 6 of eight drives, one slower than the others: its rate is reached, and every member is
/// read once and in order.
#[test]
fn c13_a_scrub_reads_each_member_once_in_order_at_the_slowest_drives_rate() {
    let world = World::virtual_time(13);
    let (bytes, slow) = (96 * MIB, 60 * MIB);
    let drives: Vec<Rc<Noting>> = (0..8)
        .map(|index| {
            let rate = if index == 5 { slow } else { 100 * MIB };
            let inner = Rated::new(&world, &format!("drive {index}"), bytes, rate);
            Rc::new(Noting { inner, reads: RefCell::default() })
        })
        .collect();
    let members: Vec<Rc<dyn Drive>> = drives.iter().map(|drive| Rc::clone(drive) as _).collect();
    world.block_on(async {
        let array = create(&world, kind(Level::Raid6, 8, 64), &members, true).await;
        drives.iter().for_each(|drive| drive.reads.borrow_mut().clear());
        let started_ns = world.now_ns();
        array.start_check().unwrap();
        array.background_done().await;
        let seconds = (world.now_ns() - started_ns) as f64 / 1e9;
        let used = array.geometry().used_bytes(0);
        let rate = used as f64 / seconds;
        assert!(rate >= 0.95 * slow as f64, "{} MiB/s", rate / MIB as f64);
        let limiter = array.status().last_job.unwrap().limiter;
        assert_eq!(limiter, Limiter::SlowestDrive(Some("drive 5".to_owned())));
        for drive in &drives {
            let reads = drive.reads.borrow();
            let first = reads[0].0;
            let mut end = first;
            for &(offset, bytes) in reads.iter() {
                assert_eq!(offset, end, "in order, and nothing twice");
                end += bytes;
            }
            assert_eq!(end - first, used, "everything");
        }
        println!("{:.1} of {} MiB/s", rate / MIB as f64, slow / MIB);
    });
}

/// A repair mends each finding once, and the next one finds nothing to do.
#[test]
fn c19_exactly_one_repair_per_finding() {
    let world = World::virtual_time(19);
    let counting: Vec<Rc<Counting>> = (0..5)
        .map(|index| {
            let drive = drive::MemoryDrive::new(&format!("drive {index}"), 2 << 20, 512);
            Rc::new(Counting::new(Rc::new(drive)))
        })
        .collect();
    let members: Vec<Rc<dyn Drive>> = counting.iter().map(|drive| Rc::clone(drive) as _).collect();
    world.block_on(async {
        let array = create(&world, kind(Level::Raid6, 5, 4), &members, true).await;
        let offset = array.geometry().used_bytes(0) / 2 / 4096 * 4096;
        let altered = WriteBufs::from_iter([world.pool().copy_of(&[0x99; 512])]);
        members[2].write(DATA_OFFSET + offset, altered, Durability::Cached).await.unwrap();
        // What members remember of a scrub is written durably, what is mended is not.
        let data_writes = |drive: &Rc<Counting>| {
            let counts = drive.take();
            counts.writes - counts.durable
        };
        for drive in &counting {
            drive.take();
        }
        for (round, expected) in [(1, [0, 0, 1, 0, 0]), (2, [0; 5]), (3, [0; 5])] {
            array.start_repair(false).unwrap();
            array.background_done().await;
            let found = array.status().scrub.unwrap().findings;
            assert_eq!(found.len(), usize::from(round == 1), "round {round}");
            let writes: Vec<u64> = counting.iter().map(data_writes).collect();
            assert_eq!(writes, expected, "round {round}");
        }
    });
}

/// A first resync counts nothing: there is no figure before a check has run.
#[test]
fn c24_mismatches_are_absent_until_a_check_has_run() {
    for kind in [kind(Level::Raid6, 5, 4), kind(Level::Raid1, 2, 0), kind(Level::Raid10, 4, 4)] {
        let bed = Bed::with(kind, 24, false);
        assert_eq!(bed.array.status().health, Health::Resyncing);
        assert_eq!(bed.array.status().scrub, None);
        // Asked for during the resync, it begins after it.
        bed.array.start_check().unwrap();
        assert_eq!(bed.array.status().scrub.unwrap().counts.compared_bytes, 0);
        let check = bed.finish();
        assert_eq!(check.findings, [], "{kind:?}");
        assert_eq!((check.counts.mismatched_bytes, check.counts.mismatched_stripes), (0, 0));
        assert_eq!(check.counts.compared_bytes, bed.end());
    }
    let bed = Bed::with(kind(Level::Raid6, 5, 4), 24, false);
    bed.world.block_on(bed.array.background_done());
    assert_eq!(bed.array.status().scrub, None, "a resync is no check");
}

/// Three altered sectors of a RAID 5: three places of the array, with member and offset; and of
/// each both contents can be saved.
#[test]
fn c25_findings_have_places_and_both_contents_can_be_saved() {
    let bed = Bed::new(kind(Level::Raid5, 4, 8), 25);
    let content = bed.content();
    let altered = [(0usize, 4096u64), (2, 65536), (3, 200_192)];
    let before: Vec<Vec<u8>> = altered.iter().map(|&(slot, at)| sector(&bed, slot, at)).collect();
    for (index, &(slot, offset)) in altered.iter().enumerate() {
        bed.alter(slot, offset, index as u8 + 1);
    }
    let check = bed.check();
    let expected: Vec<_> = altered.iter().map(|&(_, at)| (at, SECTOR, None)).collect();
    assert_eq!(places(&check.findings), expected);
    for ((found, &(slot, offset)), before) in check.findings.iter().zip(&altered).zip(&before) {
        assert_eq!((found.stripe, found.outcome), (Some(offset / 8192), Outcome::Left));
        for member in &found.members {
            assert_eq!(member.data_offset, offset);
            assert_eq!(member.drive_offset, Some(DATA_OFFSET + offset));
        }
        let candidates = bed.world.block_on(bed.array.candidates(found));
        assert_eq!(candidates.len(), 4);
        let wrong = candidates.iter().find(|candidate| candidate.member.slot == slot).unwrap();
        assert_eq!(wrong.read.as_deref(), Some(&sector(&bed, slot, offset)[..]), "as it is");
        assert_eq!(wrong.computed.as_deref(), Some(&before[..]), "as the others say");
        if let Holds::Data { array_offset } = wrong.member.holds {
            let start = array_offset as usize;
            assert_eq!(content[start..start + 512], before[..], "the place in the array");
        }
        assert!(candidates.iter().all(|it| it.read.is_some() && it.computed.is_some()));
    }
    // A mirror's contents are those of its copies.
    let bed = Bed::new(kind(Level::Raid1, 2, 0), 25);
    let before = sector(&bed, 1, 8192);
    bed.alter(1, 8192, 0x80);
    let found = bed.check().findings;
    let candidates = bed.world.block_on(bed.array.candidates(&found[0]));
    assert_eq!(candidates[0].read.as_deref(), Some(&before[..]));
    assert_eq!(candidates[1].read.as_deref(), Some(&sector(&bed, 1, 8192)[..]));
}

fn sector(bed: &Bed, slot: usize, offset: u64) -> Vec<u8> {
    bed.image(slot)[offset as usize..][..SECTOR as usize].to_vec()
}

/// A client alters its memory while its writes are under way: each write goes to both copies as it
/// was handed over.
#[test]
fn c26_a_client_that_alters_its_buffer_in_flight_makes_no_mismatch() {
    let world = World::virtual_time(26);
    let drives: Vec<Rc<dyn Drive>> = (0..2)
        .map(|index| Jittery::new(&world, &format!("drive {index}"), 2 << 20, index) as _)
        .collect();
    world.block_on(async {
        let array = create(&world, kind(Level::Raid1, 2, 0), &drives, true).await;
        let array = &array;
        let blocks = array.facts().size_bytes / 4096;
        let client = |seed: u64| {
            let world = world.clone();
            async move {
                let mut random = SplitMix64::new(seed);
                let mut memory = random_bytes(&mut random, 4096);
                for _ in 0..2500 {
                    let buffers = WriteBufs::from_iter([world.pool().copy_of(&memory)]);
                    let write =
                        array.write(random.below(blocks) * 4096, buffers, Durability::Cached);
                    memory.iter_mut().for_each(|byte| *byte = byte.wrapping_add(seed as u8 + 1));
                    write.await.unwrap();
                }
            }
        };
        join_all((0..8).map(client)).await;
        array.start_check().unwrap();
        array.background_done().await;
        let check = array.status().scrub.unwrap();
        assert_eq!(check.findings, []);
        assert_eq!(check.counts.compared_bytes, array.facts().size_bytes);
    });
}
