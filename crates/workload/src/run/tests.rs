//! Runs in virtual time on a drive that sleeps.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use drive::{
    Discarded, Drive, DriveError, Durability, ErrorKind, Facts, Io, MemoryDrive, Operation,
    ReadDone, Zeroing,
};
use world::{ReadBufs, World, WriteBufs};

use super::*;
use crate::entropy::DataPattern;
use crate::generator::{GeneratorConfig, GeneratorMode};
use crate::request::{Direction, WorkingSet};
use crate::spec::{AccessSpec, SpecLine};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

/// A drive that answers after a fixed time, except during a pause, whose requests it answers at
/// its end; some requests fail.
struct Sleeping {
    facts: Facts,
    world: World,
    latency_ns: u64,
    pause_ns: std::ops::Range<u64>,
    fails: fn(u64) -> bool,
    asked: RefCell<Vec<(u64, Direction, u64)>>,
    written: RefCell<Vec<u8>>,
    outstanding_max: Rc<Cell<(u32, u32)>>,
}

impl Sleeping {
    fn new(world: &World, latency_ns: u64) -> Self {
        let facts = MemoryDrive::new("sleeping", 1 << 20, 512).facts().clone();
        Self {
            facts,
            world: world.clone(),
            latency_ns,
            pause_ns: 0..0,
            fails: |_| false,
            asked: RefCell::default(),
            written: RefCell::default(),
            outstanding_max: Rc::default(),
        }
    }

    fn answer(
        &self,
        offset: u64,
        operation: Operation,
    ) -> impl Future<Output = Result<(), DriveError>> + use<> {
        let now_ns = self.world.now_ns();
        let direction = match operation {
            Operation::Read => Direction::Read,
            _ => Direction::Write,
        };
        let number = self.asked.borrow().len() as u64;
        self.asked.borrow_mut().push((now_ns, direction, offset));
        let outstanding_max = Rc::clone(&self.outstanding_max);
        let (outstanding, most) = outstanding_max.get();
        outstanding_max.set((outstanding + 1, most.max(outstanding + 1)));
        let mut done_ns = now_ns + self.latency_ns;
        if self.pause_ns.contains(&done_ns) {
            done_ns = self.pause_ns.end;
        }
        let (world, drive) = (self.world.clone(), self.facts.name.clone());
        let fails = (self.fails)(number);
        async move {
            world.sleep_until_ns(done_ns).await;
            let (outstanding, most) = outstanding_max.get();
            outstanding_max.set((outstanding - 1, most));
            if !fails {
                return Ok(());
            }
            let kind = ErrorKind::Media;
            Err(DriveError { kind, operation, offset, bytes: 4096, drive, source: None })
        }
    }
}

impl Drive for Sleeping {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn read(&self, offset: u64, buffers: ReadBufs) -> Io<ReadDone> {
        let answer = self.answer(offset, Operation::Read);
        Io::later(async move { ReadDone { buffers, result: answer.await } })
    }

    fn write(
        &self,
        offset: u64,
        buffers: WriteBufs,
        _durability: Durability,
    ) -> Io<Result<(), DriveError>> {
        self.written.borrow_mut().extend_from_slice(&buffers[0][..8]);
        Io::later(self.answer(offset, Operation::Write))
    }

    fn flush(&self) -> Io<Result<(), DriveError>> {
        Io::ready(Ok(()))
    }

    fn discard(&self, _offset: u64, _bytes: u64) -> Io<Result<Discarded, DriveError>> {
        Io::ready(Ok(Discarded::Unspecified))
    }

    fn write_zeroes(
        &self,
        _offset: u64,
        _bytes: u64,
        _zeroing: Zeroing,
        _durability: Durability,
    ) -> Io<Result<(), DriveError>> {
        Io::ready(Ok(()))
    }
}

fn job(arrival: Arrival) -> Job {
    Job {
        spec: AccessSpec::uniform(4096, 100, 100).unwrap(),
        generator: GeneratorConfig {
            mode: GeneratorMode::Aligned,
            working_set: WorkingSet::whole(1 << 20).unwrap(),
            seed: 5,
            worker: 0,
            streams: 1,
        },
        workers: 1,
        arrival,
        data: DataPattern::Random { seed: 5 },
        durability: Durability::Cached,
        ramp: Duration::from_secs(1),
        time: Duration::from_secs(2),
        interval: Duration::from_secs(1),
        requests_max: None,
        errors_in_a_row_max: 10,
        drain_limit: Duration::from_secs(30),
    }
}

fn closed(queue_depth: u32) -> Job {
    job(Arrival::Closed { queue_depth, think_ns: 0 })
}

fn measure(world: &World, drive: Sleeping, job: &Job) -> (Measured, Rc<Sleeping>) {
    let drive = Rc::new(drive);
    let run = run(world, Rc::<Sleeping>::clone(&drive), job, Observer::default());
    (world.block_on(run).unwrap(), drive)
}

#[test]
fn a_closed_loop_keeps_its_depth_and_leaves_the_ramp_out() {
    for (depth, workers) in [(1, 1), (32, 1), (8, 4)] {
        let world = World::virtual_time(1);
        let job = Job { workers, ..closed(depth) };
        let (measured, drive) = measure(&world, Sleeping::new(&world, MS), &job);
        let summary = measured.summary;
        let all = depth * workers;
        assert_eq!(summary.reads.requests_per_second, Some(f64::from(all) * 1000.0));
        assert_eq!(summary.reached_depth, Some(f64::from(all)));
        assert_eq!((summary.asked_depth, summary.depth_max), (Some(all), Some(all)));
        assert_eq!(drive.outstanding_max.get(), (0, all));
        // Answers at 1 ms to 999 ms belong to the ramp, those at 3 s are drained.
        assert_eq!(summary.warmup_requests, 999 * u64::from(all));
        assert_eq!(summary.drained.requests, u64::from(all));
        assert_eq!(summary.reads.from_issue.max_ns(), Some(MS));
        assert_eq!((summary.disordered, measured.unanswered), (0, 0));
        assert!(matches!(measured.end, End::Time) && measured.held_back.is_none());
        assert_eq!(world.now_ns(), 3 * SECOND);
    }
}

#[test]
fn the_seed_decides_every_request() {
    let asked = |seed, world_seed| {
        let world = World::virtual_time(world_seed);
        let mut job = closed(4);
        job.generator.seed = seed;
        job.spec = AccessSpec::uniform(4096, 67, 100).unwrap();
        let (measured, drive) = measure(&world, Sleeping::new(&world, MS), &job);
        (measured.summary, drive.asked.take())
    };
    assert_eq!(asked(1, 1), asked(1, 1));
    assert_ne!(asked(1, 1).1, asked(2, 1).1);
    // Another interleaving of the same requests.
    assert_eq!(asked(1, 1).1, asked(1, 2).1);
}

#[test]
fn an_open_loop_shows_a_pause_in_every_request_it_held_up() {
    let world = World::virtual_time(3);
    let arrival = Arrival::Fixed { per_second: 1000, outstanding_max: 8 };
    let mut drive = Sleeping::new(&world, MS / 10);
    drive.pause_ns = 2 * SECOND..2 * SECOND + 100 * MS;
    let (measured, drive) = measure(&world, drive, &job(arrival));
    let summary = &measured.summary;
    assert_eq!(drive.outstanding_max.get().1, 8);
    assert_eq!((summary.asked_depth, summary.reads.requests), (None, 2000));
    let max_ns = summary.reads.from_intended.max_ns().unwrap();
    assert_eq!(max_ns, 100 * MS);
    // One request a millisecond waits for what is left of the pause: a tenth of them over 90 ms.
    let slow = |from_ns| {
        let buckets = summary.reads.from_intended.buckets();
        buckets.filter(|bucket| bucket.lower_ns >= from_ns).map(|bucket| bucket.count).sum::<u64>()
    };
    assert!((49..=52).contains(&slow(50 * MS)), "{}", slow(50 * MS));
    assert!((9..=12).contains(&slow(90 * MS)), "{}", slow(90 * MS));
    let held_back = measured.held_back.unwrap();
    assert!((90..=95).contains(&held_back.issued_late), "{held_back}");
    assert_eq!((held_back.never_issued, held_back.outstanding_max), (0, 8));
    assert_eq!(
        held_back.to_string(),
        format!(
            "{} requests were issued late, by up to {} ns, and 0 never, because 8 were \
             outstanding, the most allowed",
            held_back.issued_late, held_back.longest_ns
        )
    );
}

#[test]
fn arrivals_that_were_never_issued_are_counted() {
    let world = World::virtual_time(3);
    let arrival = Arrival::Fixed { per_second: 1000, outstanding_max: 2 };
    let mut drive = Sleeping::new(&world, MS / 10);
    // The drive hangs for the last second and longer.
    drive.pause_ns = 2 * SECOND..4 * SECOND;
    let (measured, _) = measure(&world, drive, &job(arrival));
    assert_eq!(measured.summary.reads.requests, 1000);
    assert_eq!(measured.summary.drained.requests, 2);
    assert_eq!(measured.summary.drained.latency_max_ns, 2 * SECOND);
    assert_eq!(measured.held_back.unwrap().never_issued, 998);
    // At a rate the drive can keep nothing is held back.
    let easy = job(Arrival::Poisson { per_second: 100, outstanding_max: 64 });
    let (measured, _) = measure(&world, Sleeping::new(&world, MS), &easy);
    assert_eq!(measured.held_back, None);
}

#[test]
fn a_drive_that_hangs_is_not_waited_for_without_end() {
    let world = World::virtual_time(3);
    let mut drive = Sleeping::new(&world, MS);
    drive.pause_ns = 2 * SECOND..1000 * SECOND;
    let (measured, _) = measure(&world, drive, &closed(3));
    assert_eq!((measured.unanswered, world.now_ns()), (3, 33 * SECOND));
}

#[test]
fn a_run_can_be_stopped_and_keeps_what_it_has() {
    let world = World::virtual_time(7);
    let drive = Rc::new(Sleeping::new(&world, MS));
    let mut job = closed(2);
    job.spec = AccessSpec::weighted(&[SpecLine {
        burst: 2500,
        delay_ns: 60 * SECOND + MS / 2,
        ..SpecLine::new(1, 4096, 100, 100)
    }])
    .unwrap();
    job.time = Duration::from_secs(300);
    let mut seen = Vec::new();
    let mut progress = |progress: &Progress| seen.push(*progress);
    let cpu = Cell::new(0);
    let cpu_ns = || cpu.replace(cpu.get() + 17);
    let mut stop = std::pin::pin!(world.sleep(Duration::from_millis(62_500)));
    let observer = Observer {
        cpu_ns: Some(&cpu_ns),
        progress: Some(&mut progress),
        stop: Some(stop.as_mut()),
    };
    let measured = world.block_on(run(&world, drive.clone(), &job, observer)).unwrap();
    assert!(matches!(measured.end, End::Stopped));
    assert_eq!(measured.cpu_ns, Some(17));
    // 60 s of delay, then 2500 requests, two at a time.
    assert_eq!(measured.summary.reads.requests, 2500);
    assert_eq!(measured.summary.window.to_ns, 62_500 * MS);
    assert_eq!(seen.len(), 62);
    assert_eq!(
        seen[60],
        Progress {
            elapsed_ns: 61 * SECOND,
            measuring: true,
            requests: 1998,
            bytes: 1998 * 4096,
            errors: 0,
            outstanding: 2
        }
    );
    assert_eq!(Rc::strong_count(&drive), 1, "no task is left");
}

#[test]
fn think_time_and_delays_hold_requests_apart() {
    let world = World::virtual_time(7);
    let thinking = job(Arrival::Closed { queue_depth: 2, think_ns: 3 * MS });
    let (measured, _) = measure(&world, Sleeping::new(&world, MS), &thinking);
    assert_eq!(measured.summary.reads.requests_per_second, Some(500.0));
    assert_eq!(measured.summary.reached_depth, Some(0.5));
    assert_eq!(measured.summary.reads.from_intended.max_ns(), Some(MS));
    // A delay holds up the whole worker: 10 ms and two requests, whatever the depth.
    let mut delayed = closed(8);
    delayed.spec = AccessSpec::weighted(&[SpecLine {
        burst: 2,
        delay_ns: 10 * MS,
        ..SpecLine::new(1, 4096, 100, 100)
    }])
    .unwrap();
    let (measured, drive) = measure(&world, Sleeping::new(&world, MS), &delayed);
    assert_eq!(measured.summary.reads.requests_per_second, Some(200.0));
    assert_eq!(drive.outstanding_max.get().1, 2);
}

#[test]
fn errors_are_counted_and_too_many_in_a_row_end_the_run() {
    let world = World::virtual_time(7);
    let mut drive = Sleeping::new(&world, MS);
    drive.fails = |number| number % 10 == 3;
    let (measured, _) = measure(&world, drive, &closed(1));
    assert!(matches!(measured.end, End::Time));
    assert_eq!((measured.summary.reads.requests, measured.summary.reads.errors), (1800, 200));
    assert_eq!(measured.first_error.unwrap().kind, ErrorKind::Media);

    let mut drive = Sleeping::new(&world, MS);
    drive.fails = |number| number >= 1500;
    let (measured, drive) = measure(&world, drive, &closed(1));
    assert_eq!(measured.end.to_string(), "10 errors in a row");
    assert!(std::error::Error::source(&measured.end).is_some());
    assert_eq!(drive.asked.borrow().len(), 1510);
    let summary = measured.summary;
    assert_eq!((summary.reads.requests, summary.window.length_ns()), (501, 510 * MS));
}

#[test]
fn a_number_of_requests_ends_the_window() {
    let world = World::virtual_time(7);
    let job = Job { requests_max: Some(700), ramp: Duration::ZERO, ..closed(1) };
    let (measured, _) = measure(&world, Sleeping::new(&world, MS), &job);
    assert!(matches!(measured.end, End::Requests));
    assert_eq!(measured.summary.reads.requests, 700);
    assert_eq!(measured.summary.window.to_ns, 700 * MS + 1);
}

#[test]
fn a_drive_that_takes_no_time_does_not_hang_virtual_time() {
    let world = World::virtual_time(7);
    let drive = Rc::new(MemoryDrive::new("memory", 1 << 20, 512));
    let limited = Job { requests_max: Some(1000), ramp: Duration::ZERO, ..closed(4) };
    let measured = run(&world, drive.clone(), &limited, Observer::default());
    assert!(matches!(world.block_on(measured).unwrap().end, End::Requests));
    let endless = closed(4);
    let measured = run(&world, drive, &endless, Observer::default());
    assert!(matches!(world.block_on(measured).unwrap().end, End::ClockStands));
}

#[test]
fn writes_carry_the_pattern() {
    let world = World::virtual_time(7);
    let mut job = closed(2);
    job.spec =
        AccessSpec::weighted(&[SpecLine::new(50, 4096, 50, 100), SpecLine::new(50, 16384, 50, 0)])
            .unwrap();
    job.data = DataPattern::RepeatingByte(0xa7);
    let (measured, drive) = measure(&world, Sleeping::new(&world, MS), &job);
    let (reads, writes) = (measured.summary.reads.requests, measured.summary.writes.requests);
    assert!(reads + writes == 4000 && reads.abs_diff(writes) <= 4, "{reads} {writes}");
    assert!(drive.written.borrow().iter().all(|&byte| byte == 0xa7));
}

#[test]
fn a_run_that_is_dropped_ends_its_tasks() {
    let world = World::virtual_time(7);
    let drive = Rc::new(Sleeping::new(&world, MS));
    let (job, limit) = (closed(4), Duration::from_millis(10));
    let run = run(&world, drive.clone(), &job, Observer::default());
    assert!(world.block_on(world.within(limit, "the run", run)).is_err());
    world.block_on(world.sleep(limit));
    assert_eq!(Rc::strong_count(&drive), 1);
}

#[test]
fn impossible_jobs_are_refused_before_the_first_request() {
    let world = World::virtual_time(7);
    let drive: Rc<dyn Drive> = Rc::new(MemoryDrive::new("memory", 1 << 20, 4096));
    let refused = |job: &Job| {
        let run = run(&world, Rc::clone(&drive), job, Observer::default());
        world.block_on(run).unwrap_err().to_string()
    };
    assert_eq!(refused(&Job { workers: 0, ..closed(1) }), "a run needs at least 1 worker");
    assert_eq!(refused(&closed(70_000)), "70000 outstanding requests exceed 65536");
    assert_eq!(refused(&closed(0)), "the arrivals are impossible");
    assert_eq!(refused(&Job { time: Duration::ZERO, ..closed(1) }), "the run can't be measured");
    let spec = AccessSpec::uniform(512, 100, 100).unwrap();
    assert_eq!(
        refused(&Job { spec, ..closed(1) }),
        "a request of 512 bytes is no multiple of the 4096-byte block of memory"
    );
    let spec = AccessSpec::uniform(1 << 30, 100, 100).unwrap();
    assert_eq!(
        refused(&Job { spec, ..closed(5) }),
        "buffers of 5368709120 bytes exceed 4294967296 bytes"
    );
    let mut iometer = closed(1);
    iometer.generator.mode = GeneratorMode::Iometer;
    assert_eq!(
        refused(&iometer),
        "an alignment of 512 bytes is no multiple of the 4096-byte block of memory"
    );
    let mut beyond = closed(1);
    beyond.generator.working_set = WorkingSet::whole(2 << 20).unwrap();
    assert_eq!(
        refused(&beyond),
        "the working set ends at 2097152, behind the 1048576 bytes of memory"
    );
}
