//! Arrays whose parity does not agree with their data yet: what it gives is nothing to rely on, and
//! what was written is kept all the same. Each test was found by a history.

#![allow(clippy::unwrap_used, reason = "a test ends with the first surprise")]

use std::rc::Rc;
use std::time::Duration;

use array::{Array, Consistency, NewArray, OpenMode, Scan};
use drive::{Drive, Durability, Effect, Fault, Faulty, MemoryDrive, Operation};
use geometry::Level;
use world::{ReadBufs, SplitMix64, World, WriteBufs, join_all};

const MODE: OpenMode =
    OpenMode { read_only: false, force_dirty: false, now_seconds: 1_800_000_000 };
const MIB: u64 = 1 << 20;
const CHUNK: usize = 4096;
/// Members of the array; one drive more stands by.
const MEMBERS: usize = 5;
/// Where the data area of a member starts.
const DATA_OFFSET: u64 = MIB;

/// RAID 6 over what somebody left on the drives, with all background work held.
struct Bench {
    world: World,
    faulty: Vec<Rc<Faulty>>,
    drives: Vec<Rc<dyn Drive>>,
    array: Array,
}

impl Bench {
    /// With `data_bytes` of data on each member.
    async fn new(world: &World, data_bytes: u64, seed: u64) -> Bench {
        let mut random = SplitMix64::new(seed);
        let memory = |index| {
            let name = format!("drive {index}");
            Rc::new(MemoryDrive::new(&name, DATA_OFFSET + data_bytes, 512))
        };
        let faulty: Vec<Rc<Faulty>> =
            (0..=MEMBERS).map(|index| Rc::new(Faulty::new(world, memory(index), seed))).collect();
        let drives: Vec<Rc<dyn Drive>> =
            faulty.iter().map(|drive| Rc::clone(drive) as Rc<dyn Drive>).collect();
        for drive in &drives {
            let mut left = world.pool().take(data_bytes as usize);
            left.fill_with(|| random.next_u64() as u8);
            let buffers = WriteBufs::from_iter([left.freeze()]);
            drive.write(DATA_OFFSET, buffers, Durability::Durable).await.unwrap();
        }
        let request = NewArray {
            name: "test".to_owned(),
            level: Level::Raid6,
            layout: None,
            chunk_bytes: Some(CHUNK as u32),
            slots: drives[..MEMBERS].iter().cloned().map(Some).collect(),
            spares: Vec::new(),
            size_bytes: None,
            consistency: Consistency::Resync,
            checksums: false,
            assume_clean: false,
            uuid: *b"0123456789abcdef",
            now_seconds: MODE.now_seconds,
        };
        let array = request.create(world).await.unwrap();
        array.hold_jobs().await;
        assert_eq!(array.geometry().used_bytes(0), data_bytes);
        Bench { world: world.clone(), faulty, drives, array }
    }

    /// Writes the start of some chunks, all at once.
    async fn write(&self, chunks: impl Iterator<Item = usize>, bytes: usize) {
        let writes = chunks.map(|chunk| {
            let buffers = WriteBufs::from_iter([self.world.pool().copy_of(&content(chunk, bytes))]);
            self.array.write((chunk * CHUNK) as u64, buffers, Durability::Cached)
        });
        join_all(writes).await.into_iter().for_each(|written| written.unwrap());
    }
}

fn content(chunk: usize, bytes: usize) -> Vec<u8> {
    vec![chunk as u8 | 1; bytes]
}

/// Each sector of what was written is there.
async fn assert_written(
    world: &World,
    array: &Array,
    chunks: impl Iterator<Item = usize>,
    bytes: usize,
) {
    for chunk in chunks {
        for at in (0..bytes).step_by(512) {
            let buffers = ReadBufs::from_iter([world.pool().take(512)]);
            let done = array.read((chunk * CHUNK + at) as u64, buffers).await;
            done.result.unwrap();
            assert!(done.buffers[0][..] == content(chunk, 512)[..], "chunk {chunk}, byte {at}");
        }
    }
}

/// One chunk of each of these stripes, another one each time.
fn one_of_each(stripes: std::ops::Range<usize>) -> impl Iterator<Item = usize> {
    stripes.map(|stripe| 3 * stripe + stripe % 3)
}

fn in_virtual_time(data_bytes: u64, seed: u64, test: impl AsyncFnOnce(Bench)) {
    let world = World::virtual_time(seed);
    world.block_on(async { test(Bench::new(&world, data_bytes, seed).await).await });
    world.end();
}

/// What a member that hung would hold was computed, and a write put next to it went when the member
/// answered again.
#[test]
fn a_member_that_hangs_is_waited_for() {
    in_virtual_time(MIB, 5, async |bench| {
        let Bench { world, faulty, drives, array } = &bench;
        array.fail_member(2).await.unwrap();
        let control = faulty[4].control();
        let hang = control.add(Fault::new(Effect::Hang).on(Operation::Read));
        let clock = world.clone();
        let answers = world.spawn(async move {
            clock.sleep(Duration::from_secs(2)).await;
            control.remove(hang);
            control.release();
        });
        bench.write(one_of_each(0..60), 512).await;
        array.resume_jobs();
        array.background_done().await;
        answers.await;
        array.stop().await.unwrap();
        let scan = Scan::of(world.pool(), drives[..MEMBERS].to_vec()).await;
        let array = scan.open(world, &scan.assemblies[0], MODE).await.unwrap();
        assert_written(world, &array, one_of_each(0..60), 512).await;
    });
}

/// A spare was filled by P, a member failed, and a write took what P and Q together say of the
/// spare's chunk for its content.
#[test]
fn a_write_beside_a_chunk_just_filled_agrees_with_what_it_was_filled_with() {
    // Two windows of a rebuild.
    in_virtual_time(2 * MIB, 7, async |bench| {
        let Bench { world, faulty, drives, array } = &bench;
        array.fail_member(2).await.unwrap();
        array.add_member(Rc::clone(&drives[MEMBERS])).await.unwrap();
        // The first is done long after the second.
        let slowly = Fault::new(Effect::Delay(Duration::from_secs(2))).on(Operation::Write);
        faulty[MEMBERS].control().add(slowly.within(DATA_OFFSET..DATA_OFFSET + 4096));
        array.resume_jobs();
        world.sleep(Duration::from_millis(100)).await;
        array.fail_member(4).await.unwrap();
        let second = MIB as usize / CHUNK..2 * MIB as usize / CHUNK;
        bench.write(one_of_each(second.clone()), 512).await;
        array.background_done().await;
        assert_written(world, array, one_of_each(second), 512).await;
    });
}

/// A write beside a bad sector took what parity gives for content that could be read. The resync
/// went by what could be read, and what had been written to the missing member was lost.
#[test]
fn a_write_beside_a_bad_sector_reads_what_it_can() {
    in_virtual_time(MIB, 8, async |bench| {
        let Bench { world, faulty, array, .. } = &bench;
        array.fail_member(2).await.unwrap();
        for stripe in 0..60 {
            faulty[4].control().spoil(DATA_OFFSET + (stripe * CHUNK) as u64 + 512, 512);
        }
        bench.write(one_of_each(0..60), 2048).await;
        array.resume_jobs();
        array.background_done().await;
        assert_written(world, array, one_of_each(0..60), 2048).await;
    });
}
