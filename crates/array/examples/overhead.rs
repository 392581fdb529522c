//! What the engine adds to a read: 4 KiB reads through RAID 0, 5 and 6 of memory drives, beside
//! the bare memory drive, in one process and one run.
//!
//! Prints one JSON line per case: processor nanoseconds per read, and what is left after the bare
//! drive's are taken off. The cases take turns, and the lowest of several rounds counts, since
//! other work on the machine only ever adds.

use std::rc::Rc;
use std::time::Instant;

use array::{Consistency, NewArray};
use drive::{Drive, MemoryDrive};
use geometry::Level;
use world::{ReadBufs, SplitMix64, World};

const READS_PER_ROUND: u64 = 200_000;
const ROUNDS: usize = 7;
const READ_BYTES: usize = 4096;
const MEMBER_BYTES: u64 = 16 << 20;
const SPAN_BYTES: u64 = 1 << 20;

struct Case {
    name: String,
    drive: Rc<dyn Drive>,
    best_ns: f64,
}

fn array(world: &World, level: Level, members: usize) -> Rc<dyn Drive> {
    let drive = |index| -> Rc<dyn Drive> {
        Rc::new(MemoryDrive::new(&format!("memory {index}"), MEMBER_BYTES, 4096))
    };
    let request = NewArray {
        name: "overhead".to_owned(),
        level,
        layout: None,
        chunk_bytes: Some(64 << 10),
        slots: (0..members).map(|index| Some(drive(index))).collect(),
        spares: Vec::new(),
        size_bytes: None,
        consistency: Consistency::Resync,
        checksums: false,
        assume_clean: true,
        uuid: [7; 16],
        now_seconds: 0,
    };
    Rc::new(world.block_on(request.create(world)).expect("memory drives make an array"))
}

async fn round(world: &World, case: &Case, seed: u64) -> f64 {
    let mut random = SplitMix64::new(seed);
    // A span that fits the processor's cache: what counts is the engine, not the memory.
    let blocks = SPAN_BYTES / READ_BYTES as u64;
    let mut buffers = ReadBufs::from_iter([world.pool().take(READ_BYTES)]);
    let start = Instant::now();
    for _ in 0..READS_PER_ROUND {
        let offset = random.below(blocks) * READ_BYTES as u64;
        let done = case.drive.read(offset, buffers).await;
        done.result.expect("memory does not fail");
        buffers = done.buffers;
    }
    start.elapsed().as_nanos() as f64 / READS_PER_ROUND as f64
}

fn main() {
    let world = World::virtual_time(0);
    let bare: Rc<dyn Drive> = Rc::new(MemoryDrive::new("memory", MEMBER_BYTES, 4096));
    let mut cases = vec![Case { name: "bare".to_owned(), drive: bare, best_ns: f64::MAX }];
    for level in [Level::Raid0, Level::Raid5, Level::Raid6] {
        for members in [4, 24] {
            let name = format!("{level} of {members}");
            cases.push(Case { name, drive: array(&world, level, members), best_ns: f64::MAX });
        }
    }
    world.block_on(async {
        // Every page is there, as on drives that were written.
        for case in &cases {
            let bytes = 1 << 20;
            for offset in (0..case.drive.facts().size_bytes).step_by(bytes) {
                let bytes = (case.drive.facts().size_bytes - offset).min(bytes as u64) as usize;
                let data = world.pool().take(bytes).freeze();
                let buffers = world::WriteBufs::from_iter([data]);
                let durability = drive::Durability::Cached;
                case.drive.write(offset, buffers, durability).await.expect("memory does not fail");
            }
        }
        for number in 0..ROUNDS {
            for case in &mut cases {
                let ns = round(&world, case, number as u64).await;
                case.best_ns = case.best_ns.min(ns);
            }
        }
    });
    let bare_ns = cases[0].best_ns;
    for case in &cases {
        let added = case.best_ns - bare_ns;
        let Case { name, best_ns, .. } = case;
        println!(
            "{{\"case\":\"{name}\",\"ns_per_read\":{best_ns:.1},\"added_ns_per_read\":{added:.1}}}"
        );
    }
}
