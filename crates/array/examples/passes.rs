//! How fast background passes go over memory drives, beside what the same drives give when they
//! are simply read, all of them, in one process on one core.
//!
//! Prints one JSON line per case: the rate of the pass in bytes of each member per second, that of
//! reading, and the limiter the pass named. The two take turns, and the best of several rounds
//! counts, since other work on the machine only ever adds.

use std::rc::Rc;
use std::time::Instant;

use array::{Array, Consistency, JobEnd, NewArray};
use drive::{Drive, MemoryDrive};
use geometry::Level;
use world::{ReadBufs, World, join_all};

const ROUNDS: usize = 3;
const MEMBER_BYTES: u64 = 64 << 20;
const MEMBERS: usize = 6;
const READ_BYTES: u64 = 1 << 20;

fn drives(count: usize) -> Vec<Rc<dyn Drive>> {
    let drive = |index| Rc::new(MemoryDrive::new(&format!("memory {index}"), MEMBER_BYTES, 4096));
    (0..count).map(|index| drive(index) as Rc<dyn Drive>).collect()
}

fn create(world: &World, level: Level, drives: &[Rc<dyn Drive>], clean: bool) -> Array {
    let request = NewArray {
        name: "passes".to_owned(),
        level,
        layout: None,
        chunk_bytes: Some(64 << 10),
        slots: drives.iter().cloned().map(Some).collect(),
        spares: Vec::new(),
        size_bytes: None,
        consistency: Consistency::Resync,
        assume_clean: clean,
        uuid: [7; 16],
        now_seconds: 0,
    };
    world.block_on(request.create(world)).expect("memory drives make an array")
}

/// Memory that was never written costs nothing to read.
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

/// Seconds for the job that runs, and what it named as its limiter.
fn pass(world: &World, array: &Array, start: Instant) -> (f64, &'static str) {
    world.block_on(array.background_done());
    let seconds = start.elapsed().as_secs_f64();
    let job = array.status().last_job.expect("a job has run");
    assert_eq!(job.end, Some(JobEnd::Done));
    (seconds, job.limiter.word())
}

fn main() {
    for level in [Level::Raid5, Level::Raid6] {
        for case in ["resync", "rebuild"] {
            let (mut best, mut reading) = (f64::MAX, f64::MAX);
            let mut limiter = "";
            for _ in 0..ROUNDS {
                let world = World::virtual_time(0);
                let drives = drives(MEMBERS + 1);
                fill(&world, &drives);
                let (members, spare) = drives.split_at(MEMBERS);
                reading = reading.min(read_all(&world, members));
                let array = create(&world, level, members, case == "rebuild");
                let start;
                if case == "rebuild" {
                    world.block_on(array.fail_member(1)).expect("one member can be spared");
                    let add = array.add_member(Rc::clone(&spare[0]));
                    start = Instant::now();
                    world.block_on(add).expect("the spare is as large");
                } else {
                    start = Instant::now();
                }
                let (seconds, named) = pass(&world, &array, start);
                if seconds < best {
                    (best, limiter) = (seconds, named);
                }
                world.end();
            }
            let rate = |seconds: f64| MEMBER_BYTES as f64 / seconds;
            println!(
                "{{\"case\":\"{level:?} {case}\",\"member_bytes_per_second\":{:.0},\
                 \"read_bytes_per_second\":{:.0},\"limiter\":\"{limiter}\"}}",
                rate(best),
                rate(reading)
            );
        }
    }
}
