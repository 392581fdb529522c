//! What each fault does, and what a power cut leaves.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::rc::Rc;
use std::time::Duration;

use drive::{
    Counting, Drive, DriveError, Durability, Effect, ErrorKind, Fault, FaultControl, Faulty,
    MemoryDrive, Operation, Zeroing,
};
use world::{ReadBufs, World, WriteBufs, join_all};

const BLOCK: u64 = 512;

/// A faulty drive of 64 KiB in virtual time.
struct Bench {
    world: World,
    drive: Faulty,
    control: FaultControl,
}

impl Bench {
    fn new(seed: u64) -> Bench {
        let world = World::virtual_time(seed);
        let memory = MemoryDrive::new("memory", 64 << 10, BLOCK as u32);
        let drive = Faulty::new(&world, Rc::new(memory), seed);
        let control = drive.control();
        Bench { world, drive, control }
    }

    async fn write(&self, offset: u64, bytes: u64, value: u8) -> Result<(), DriveError> {
        self.write_as(offset, bytes, value, Durability::Cached).await
    }

    async fn write_as(
        &self,
        offset: u64,
        bytes: u64,
        value: u8,
        durability: Durability,
    ) -> Result<(), DriveError> {
        let content = self.world.pool().copy_of(&vec![value; bytes as usize]);
        self.drive.write(offset, WriteBufs::from_iter([content]), durability).await
    }

    async fn read(&self, offset: u64, bytes: u64) -> Result<Vec<u8>, DriveError> {
        let buffer = self.world.pool().take(bytes as usize);
        let done = self.drive.read(offset, ReadBufs::from_iter([buffer])).await;
        done.result.map(|()| done.buffers[0].to_vec())
    }

    /// The first byte of each block of the drive.
    async fn picture(&self) -> Vec<u8> {
        let bytes = self.read(0, 64 << 10).await.unwrap();
        bytes.chunks(BLOCK as usize).map(|block| block[0]).collect()
    }
}

fn kind<T>(result: Result<T, DriveError>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind)
}

#[test]
fn scripted_errors_and_spoilt_blocks() {
    let bench = Bench::new(1);
    bench.world.block_on(async {
        let media = Effect::Fail(ErrorKind::Media);
        bench.control.add(Fault::new(media).on(Operation::Read).within(4096..4097).times(1));
        assert_eq!(kind(bench.read(3584, 512).await), None);
        let error = bench.read(3584, 1024).await.unwrap_err();
        assert_eq!(error.to_string(), "read of 1024 bytes at 3584 on memory: medium error");
        assert_eq!(kind(bench.read(3584, 1024).await), None, "it was for one read");

        bench.control.spoil(1024, 1024);
        assert_eq!(kind(bench.read(0, 2048).await), Some(ErrorKind::Media));
        bench.write(1024, 512, 7).await.unwrap();
        assert_eq!(kind(bench.read(1024, 512).await), None, "rewritten");
        assert_eq!(kind(bench.read(1536, 512).await), Some(ErrorKind::Media));
        let cached = Durability::Cached;
        bench.drive.write_zeroes(1536, 512, Zeroing::MayUnmap, cached).await.unwrap();
        assert_eq!(kind(bench.read(0, 2048).await), None);

        let gone = bench.control.add(Fault::new(Effect::Fail(ErrorKind::Gone)));
        assert_eq!(kind(bench.drive.flush().await), Some(ErrorKind::Gone));
        assert_eq!(kind(bench.write(0, 512, 1).await), Some(ErrorKind::Gone));
        bench.control.remove(gone);
        assert_eq!(kind(bench.write(0, 512, 1).await), None);
        assert_eq!(bench.control.injected(), 3);
    });
}

#[test]
fn writes_that_go_wrong_silently() {
    let bench = Bench::new(2);
    bench.world.block_on(async {
        bench.write(0, 64 << 10, 1).await.unwrap();
        let on_write = |effect| Fault::new(effect).on(Operation::Write).times(1);

        bench.control.add(on_write(Effect::Lost));
        bench.write(0, 1024, 2).await.unwrap();
        assert!(bench.picture().await.iter().all(|&block| block == 1), "never stored");

        bench.control.add(on_write(Effect::Torn { acknowledged: false }));
        assert_eq!(kind(bench.write(0, 8 * BLOCK, 3).await), Some(ErrorKind::Media));
        let picture = bench.picture().await;
        let stored = picture.iter().take_while(|&&block| block == 3).count();
        assert!(stored < 8 && picture[stored..].iter().all(|&block| block == 1), "{picture:?}");

        bench.write(0, 64 << 10, 1).await.unwrap();
        bench.control.add(on_write(Effect::Misdirect));
        bench.write(0, 512, 4).await.unwrap();
        let picture = bench.picture().await;
        assert_eq!(picture.iter().filter(|&&block| block == 4).count(), 1);

        bench.control.add(on_write(Effect::Rot).within(1000..1001));
        bench.write(512, 1024, 0).await.unwrap();
        let stored = bench.read(512, 1024).await.unwrap();
        assert_eq!(stored.iter().position(|&byte| byte == 1), Some(488), "in the byte named");
        assert_eq!(bench.read(512, 1024).await.unwrap(), stored, "it stays");
        bench.control.add(Fault::new(Effect::Rot).on(Operation::Read).times(1));
        assert_ne!(bench.read(512, 1024).await.unwrap(), stored);
        assert_eq!(bench.read(512, 1024).await.unwrap(), stored, "only what was returned");
        bench.control.rot(600).await.unwrap();
        assert_eq!(bench.read(600, 0).await.unwrap_err().kind, ErrorKind::Misaligned);
        assert_eq!(bench.read(512, 512).await.unwrap()[88], 0x10);
    });
}

#[test]
fn slow_and_hung_operations() {
    let bench = Bench::new(3);
    let limit = Duration::from_secs(30);
    bench.world.block_on(async {
        let slow = Fault::new(Effect::Delay(Duration::from_millis(20)));
        bench.control.add(slow.on(Operation::Write));
        bench.write(0, 512, 1).await.unwrap();
        assert_eq!(bench.world.now_ns(), 20_000_000);
        bench.control.clear();

        bench.control.add(Fault::new(Effect::Hang).on(Operation::Write).times(1));
        let write = bench.write(0, 512, 2);
        assert!(bench.world.within(limit, "the write", write).await.is_err());
        assert_eq!(bench.read(0, 512).await.unwrap()[0], 1);
        bench.control.release();
        bench.world.sleep(Duration::from_millis(1)).await;
        assert_eq!(bench.read(0, 512).await.unwrap()[0], 2, "it arrives though nobody waits");
    });
}

/// Writes three generations: the first flushed, two not; then cuts the power.
fn after_a_cut(seed: u64) -> Vec<u8> {
    let bench = Bench::new(5);
    bench.world.block_on(async {
        bench.control.set_volatile_cache(true);
        bench.write(0, 64 << 10, 1).await.unwrap();
        bench.drive.flush().await.unwrap();
        bench.write(0, 32 << 10, 2).await.unwrap();
        bench.write(0, 16 << 10, 3).await.unwrap();
        bench.write_as(0, 4 << 10, 4, Durability::Durable).await.unwrap();
        assert_eq!(bench.control.unflushed_blocks(), 56);
        let picture = bench.picture().await;
        assert_eq!((picture[0], picture[8], picture[32], picture[64]), (4, 3, 2, 1));
        bench.control.power_cut(seed).await.unwrap();
        assert_eq!(kind(bench.read(0, 512).await), Some(ErrorKind::Gone));
        bench.control.power_on();
        let picture = bench.picture().await;
        assert_eq!(bench.control.unflushed_blocks(), 0);
        picture
    })
}

#[test]
fn a_power_cut_keeps_what_was_flushed_and_chooses_among_the_rest() {
    let picture = after_a_cut(1);
    assert!(picture[..8].iter().all(|&block| block == 4), "durable: {picture:?}");
    assert!(picture[64..].iter().all(|&block| block == 1), "flushed: {picture:?}");
    for version in [1, 2, 3] {
        assert!(picture[8..32].contains(&version), "any may be left: {picture:?}");
    }
    assert!(picture[32..64].contains(&1) && picture[32..64].contains(&2));
    assert_eq!(picture, after_a_cut(1));
    assert!((2..6).any(|seed| after_a_cut(seed) != picture));
}

#[test]
fn writes_on_their_way_are_torn_and_end_with_the_power() {
    let bench = Bench::new(6);
    bench.world.block_on(async {
        bench.write(0, 64 << 10, 1).await.unwrap();
        let delay = Effect::Delay(Duration::from_millis(10));
        bench.control.add(Fault::new(delay).on(Operation::Write));
        bench.control.add(Fault::new(Effect::Hang).on(Operation::Flush));
        let cut = async {
            bench.world.sleep(Duration::from_millis(5)).await;
            bench.control.power_cut(9).await.unwrap();
            bench.control.power_on();
        };
        let begun = [(0, 2), (32 << 10, 3)];
        let writes = begun.map(|(offset, value)| {
            let bench = &bench;
            async move { kind(bench.write(offset, 16 << 10, value).await) }
        });
        let flush = bench.drive.flush();
        let both = async { (join_all(writes).await, kind(flush.await)) };
        let mut both = Box::pin(both);
        let raced = world::race(&mut both, cut).await;
        assert!(raced.is_err(), "the writes are still on their way");
        let (writes, flush) = both.await;
        assert_eq!(writes.as_slice(), [Some(ErrorKind::Gone); 2]);
        assert_eq!(flush, Some(ErrorKind::Gone));
        bench.world.sleep(Duration::from_secs(1)).await;
        let picture = bench.picture().await;
        for (start, value) in [(0, 2), (64, 3)] {
            let part = &picture[start..start + 32];
            assert!(part.contains(&1) && part.contains(&value), "torn: {picture:?}");
        }
        assert!(picture[32..64].iter().all(|&block| block == 1));
    });
}

#[test]
fn counts_say_what_reached_the_drive() {
    let world = World::virtual_time(0);
    let counting = Counting::new(Rc::new(MemoryDrive::new("memory", 1 << 20, 512)));
    world.block_on(async {
        let buffers = WriteBufs::from_iter([world.pool().take_zeroed(1024).freeze()]);
        counting.write(0, buffers, Durability::Durable).await.unwrap();
        let _ = counting.read(0, ReadBufs::from_iter([world.pool().take(512)])).await;
        counting.flush().await.unwrap();
        counting.discard(0, 4096).await.unwrap();
    });
    let counts = counting.take();
    assert_eq!((counts.writes, counts.write_bytes, counts.durable), (1, 1024, 1));
    assert_eq!((counts.reads, counts.read_bytes, counts.flushes), (1, 512, 1));
    assert_eq!((counts.discards, counts.discard_bytes, counts.zeroes), (1, 4096, 0));
    assert_eq!(counting.counts(), drive::Counts::default());
}
