//! What checksums cost: requests that reach the members for each request of a client, and a loop
//! of reads or writes whose instructions can be counted.
//!
//! Without arguments it prints one JSON line per case. `LEVEL plain|checksums read|write COUNT`
//! does COUNT requests of 4 KiB over and over in cached pages: what a run with twice the count
//! takes more, by an instruction counter, is their price.

use std::rc::Rc;

use array::{Array, Consistency, NewArray, OpenMode, Scan};
use drive::{Counting, Counts, Drive, Durability, MemoryDrive};
use geometry::Level;
use world::{ReadBufs, SplitMix64, World, WriteBufs};

const MEMBER_BYTES: u64 = 192 << 20;
const SMALL: u64 = 4096;
const LARGE: u64 = 1 << 20;
const REQUESTS: u64 = 512;

struct Bench {
    drives: Vec<Rc<Counting>>,
    array: Array,
}

impl Bench {
    async fn new(world: &World, level: Level, checksums: bool, bytes: u64) -> Bench {
        let members = if level == Level::Raid1 { 2 } else { 5 };
        let drive = |index| {
            let memory = MemoryDrive::new(&format!("memory {index}"), bytes, 4096);
            Rc::new(Counting::new(Rc::new(memory)))
        };
        let drives: Vec<_> = (0..members).map(drive).collect();
        let slots = drives.iter().map(|drive| Some(Rc::clone(drive) as Rc<dyn Drive>));
        let request = NewArray {
            name: "cost".to_owned(),
            level,
            layout: None,
            chunk_bytes: (level != Level::Raid1).then_some(64 << 10),
            slots: slots.collect(),
            spares: Vec::new(),
            size_bytes: None,
            consistency: Consistency::Resync,
            checksums,
            assume_clean: true,
            uuid: [7; 16],
            now_seconds: 1,
        };
        let array = request.create(world).await.expect("memory drives make an array");
        array.background_done().await;
        Bench { drives, array }
    }

    /// The same array without anything of it in memory.
    async fn reopened(self, world: &World) -> Bench {
        self.array.stop().await.expect("memory does not fail");
        let drives = self.drives.iter().map(|drive| Rc::clone(drive) as Rc<dyn Drive>).collect();
        let scan = Scan::of(world.pool(), drives).await;
        let mode = OpenMode { read_only: false, force_dirty: false, now_seconds: 1 };
        let array = scan.open(world, &scan.assemblies[0], mode).await.expect("it was stopped");
        Bench { array, ..self }
    }

    fn take(&self) -> Counts {
        let add = |sum: Counts, counts: Counts| Counts {
            reads: sum.reads + counts.reads,
            read_bytes: sum.read_bytes + counts.read_bytes,
            writes: sum.writes + counts.writes,
            write_bytes: sum.write_bytes + counts.write_bytes,
            flushes: sum.flushes + counts.flushes,
            ..sum
        };
        self.drives.iter().map(|drive| drive.take()).fold(Counts::default(), add)
    }

    async fn request(&self, world: &World, write: bool, offset: u64, bytes: u64) {
        let buffer = world.pool().take(bytes as usize);
        if write {
            let buffers = WriteBufs::from_iter([buffer.freeze()]);
            let write = self.array.write(offset, buffers, Durability::Cached);
            write.await.expect("memory does not fail");
        } else {
            let done = self.array.read(offset, ReadBufs::from_iter([buffer])).await;
            done.result.expect("memory does not fail");
        }
    }
}

async fn case(world: &World, level: Level, checksums: bool, write: bool, random: bool) {
    let bench = Bench::new(world, level, checksums, MEMBER_BYTES).await.reopened(world).await;
    let bytes = if random { SMALL } else { LARGE };
    let size = bench.array.facts().size_bytes;
    let count = if random { REQUESTS } else { size / LARGE };
    let mut numbers = SplitMix64::new(1);
    bench.take();
    for number in 0..count {
        let at = if random { numbers.below(size / bytes) } else { number };
        bench.request(world, write, at * bytes, bytes).await;
    }
    // What is due until the array is at rest belongs to the price.
    bench.array.stop().await.expect("memory does not fail");
    let counts = bench.take();
    let per = |value: u64| value as f64 / count as f64;
    println!(
        "{{\"level\":\"{level}\",\"checksums\":{checksums},\"write\":{write},\"bytes\":{bytes},\
         \"requests\":{count},\"member_reads\":{:.3},\"member_writes\":{:.3},\
         \"member_read_bytes\":{:.0},\"member_write_bytes\":{:.0}}}",
        per(counts.reads),
        per(counts.writes),
        per(counts.read_bytes),
        per(counts.write_bytes),
    );
}

fn main() {
    let world = World::virtual_time(0);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    world.block_on(async {
        if let [level, kind, operation, count] = &arguments[..] {
            let level = level.parse().expect("a level");
            let bench = Bench::new(&world, level, kind == "checksums", 8 << 20).await;
            let write = operation == "write";
            for number in 0..count.parse().expect("a number") {
                bench.request(&world, write, number % 256 * SMALL, SMALL).await;
            }
            return;
        }
        for level in [Level::Raid1, Level::Raid5] {
            for write in [false, true] {
                for random in [false, true] {
                    for checksums in [false, true] {
                        case(&world, level, checksums, write, random).await;
                    }
                }
            }
        }
    });
    world.end();
}
