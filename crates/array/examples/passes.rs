//! How fast background passes go over memory drives, beside what the same drives give when they
//! are simply read, all of them, in one process on one core, and beside the parity kernel alone.
//!
//! Prints one JSON line per case: the rate of the pass in bytes of each member per second, that of
//! reading, that of the kernel over as much data, and the limiter the pass named. They take turns,
//! and the best of several rounds counts, since other work on the machine only ever adds.

use std::rc::Rc;
use std::time::Instant;

use array::{Array, Consistency, JobEnd, NewArray};
use drive::{Drive, MemoryDrive};
use geometry::Level;
use world::{ReadBufs, RingConfig, World, join_all};

const ROUNDS: usize = 5;
const MEMBER_BYTES: u64 = 64 << 20;
const MEMBERS: usize = 6;
const READ_BYTES: u64 = 1 << 20;
const CHUNK_BYTES: usize = 64 << 10;

fn drives(count: usize) -> Vec<Rc<dyn Drive>> {
    let drive = |index| Rc::new(MemoryDrive::new(&format!("memory {index}"), MEMBER_BYTES, 4096));
    (0..count).map(|index| drive(index) as Rc<dyn Drive>).collect()
}

fn create(world: &World, level: Level, drives: &[Rc<dyn Drive>], clean: bool) -> Array {
    let request = NewArray {
        name: "passes".to_owned(),
        level,
        layout: None,
        chunk_bytes: Some(CHUNK_BYTES as u32),
        slots: drives.iter().cloned().map(Some).collect(),
        spares: Vec::new(),
        size_bytes: None,
        consistency: Consistency::Resync,
        checksums: false,
        assume_clean: clean,
        uuid: [7; 16],
        now_seconds: 0,
    };
    world.block_on(request.create(world)).expect("memory drives make an array")
}

/// Memory that was never written costs nothing to read, and more to write.
fn fill(world: &World, drives: &[Rc<dyn Drive>]) {
    let piece: Vec<u8> = (0..READ_BYTES).map(|at| ((at * 31) >> 3) as u8).collect();
    let piece = world.pool().copy_of(&piece);
    for drive in drives {
        for at in (0..MEMBER_BYTES).step_by(READ_BYTES as usize) {
            let buffers = [piece.clone()].into_iter().collect();
            let write = drive.write(at, buffers, drive::Durability::Cached);
            world.block_on(write).expect("memory does not fail");
        }
    }
}

/// Seconds for reading all of every drive.
fn read_all(world: &World, drives: &[Rc<dyn Drive>]) -> f64 {
    let start = Instant::now();
    world.block_on(async {
        for at in (0..MEMBER_BYTES).step_by(READ_BYTES as usize) {
            let reads = drives.iter().map(|drive| async move {
                let buffer = world.pool().take(READ_BYTES as usize);
                drive.read(at, ReadBufs::from_iter([buffer])).await.result
            });
            for result in join_all(reads).await {
                result.expect("memory does not fail");
            }
        }
    });
    start.elapsed().as_secs_f64()
}

/// Seconds in which the parity kernel goes over as much data as the level's data members have.
fn compute_all(level: Level, data: &[Vec<u8>]) -> f64 {
    let count = if level == Level::Raid6 { MEMBERS - 2 } else { MEMBERS - 1 };
    let (mut p, mut q) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    let start = Instant::now();
    for at in (0..MEMBER_BYTES as usize).step_by(CHUNK_BYTES) {
        let chunks = data[..count].iter().map(|member| &member[at..at + CHUNK_BYTES]);
        if level == Level::Raid6 {
            parity::pq(&mut p, &mut q, &chunks.map(Some).collect::<Vec<_>>());
        } else {
            parity::xor(&mut p, &chunks.collect::<Vec<_>>());
        }
        std::hint::black_box((&p, &q));
    }
    start.elapsed().as_secs_f64()
}

/// Starts the case's job on fresh members and gives its seconds, and what it named as its limiter.
fn pass(world: &World, level: Level, case: &str, drives: &[Rc<dyn Drive>]) -> (f64, &'static str) {
    let (members, spare) = drives.split_at(MEMBERS);
    let array = create(world, level, members, case == "rebuild");
    if case == "check" {
        world.block_on(array.background_done());
    }
    if case == "rebuild" {
        world.block_on(array.fail_member(1)).expect("one member can be spared");
    }
    let start = Instant::now();
    match case {
        "rebuild" => {
            let add = array.add_member(Rc::clone(&spare[0]));
            world.block_on(add).expect("the spare is as large");
        }
        "check" => array.start_check().expect("nothing else is due"),
        _ => {}
    }
    world.block_on(array.background_done());
    let seconds = start.elapsed().as_secs_f64();
    let job = array.status().last_job.expect("a job has run");
    assert_eq!(job.end, Some(JobEnd::Done));
    world.block_on(array.stop()).expect("memory does not fail");
    (seconds, job.limiter.word())
}

fn main() {
    let data: Vec<Vec<u8>> = (0..MEMBERS).map(|of| vec![of as u8; MEMBER_BYTES as usize]).collect();
    for level in [Level::Raid5, Level::Raid6] {
        for case in ["resync", "rebuild", "check"] {
            let (mut best, mut reading, mut kernel) = (f64::MAX, f64::MAX, f64::MAX);
            let mut limiter = "";
            for _ in 0..ROUNDS {
                let world = World::real(RingConfig::default()).expect("a ring");
                let drives = drives(MEMBERS + 1);
                fill(&world, &drives);
                reading = reading.min(read_all(&world, &drives[..MEMBERS]));
                kernel = kernel.min(compute_all(level, &data));
                let (seconds, named) = pass(&world, level, case, &drives);
                if seconds < best {
                    (best, limiter) = (seconds, named);
                }
                world.end();
            }
            let rate = |seconds: f64| MEMBER_BYTES as f64 / seconds;
            println!(
                "{{\"case\":\"{level:?} {case}\",\"member_bytes_per_second\":{:.0},\
                 \"read_bytes_per_second\":{:.0},\"kernel_bytes_per_second\":{:.0},\
                 \"limiter\":\"{limiter}\"}}",
                rate(best),
                rate(reading),
                rate(kernel)
            );
        }
    }
}
