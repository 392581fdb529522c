//! A made-up run for tests: the first look's plan with figures from simple rules.
//!
//! The rules are those a reader expects of four equal drives (stripes read in
//! parallel, mirrors write everything twice, parity costs reads before
//! writes), with a spread of a few percent from a fixed sequence.

use crate::model::*;
use crate::units::NS_PER_SECOND;

/// Subjects with members, parity members and copies.
const SUBJECTS: [(&str, &str, u32, u32, u32); 6] = [
    ("One drive", "one drive", 1, 0, 1),
    ("RAID 0", "raid0, 64 KiB chunks, 4 drives", 4, 0, 1),
    ("RAID 1", "raid1, 4 drives", 4, 0, 4),
    ("RAID 10", "raid10, near=2, 64 KiB chunks, 4 drives", 4, 0, 2),
    ("RAID 5", "raid5, left-symmetric, 64 KiB chunks, 4 drives", 4, 1, 1),
    ("RAID 6", "raid6, left-symmetric, 64 KiB chunks, 4 drives", 4, 2, 1),
];

/// Tests with workload, percentage of reads, percentage of random, block sizes and depths.
type TestRow = (&'static str, &'static str, f64, f64, &'static [u64], &'static [u32]);
const SWEEP: &[u64] = &[4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
const TESTS: [TestRow; 6] = [
    ("Sequential read", "sequential-read", 100.0, 0.0, SWEEP, &[4]),
    ("Sequential write", "sequential-write", 0.0, 0.0, SWEEP, &[4]),
    ("Random 4 KiB read", "random-read", 100.0, 100.0, &[4 << 10], &[1, 32]),
    ("Random 4 KiB write", "random-write", 0.0, 100.0, &[4 << 10], &[1, 32]),
    ("File Server", "file-server", 80.0, 100.0, &[], &[16]),
    ("Database", "database", 67.0, 100.0, &[], &[16]),
];

/// A fixed sequence of numbers between -1 and 1 (a 64-bit linear congruential generator).
struct Spread(u64);

impl Spread {
    fn next(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

/// How many drives' worth of work a subject does at once: (reads, writes).
fn scale(index: usize, sequential: bool) -> (f64, f64) {
    match (index, sequential) {
        (0, _) => (1.0, 1.0),
        (1, _) => (3.8, 3.7),
        (2, true) => (1.3, 0.97),
        (2, false) => (3.7, 0.95),
        (3, true) => (2.0, 1.9),
        (3, false) => (3.6, 1.85),
        (4, true) => (3.4, 1.7),
        (4, false) => (3.7, 0.92),
        (_, true) => (3.3, 1.1),
        (_, false) => (3.65, 0.6),
    }
}

/// The whole run, finished.
pub fn run() -> Run {
    let subjects = SUBJECTS
        .iter()
        .enumerate()
        .map(|(index, (name, description, members, parity_members, copies))| SubjectRecord {
            name: (*name).into(),
            baseline: index == 0,
            description: (*description).into(),
            drives: (0..*members as usize).collect(),
            parity_members: *parity_members,
            copies: *copies,
            capacity_bytes: Some(
                (320 << 20) * u64::from((members - parity_members) / copies).max(1),
            ),
        })
        .collect();
    let tests: Vec<TestRecord> = TESTS
        .iter()
        .map(|(name, workload, read_percent, random_percent, blocks, depths)| TestRecord {
            name: (*name).into(),
            workload: (*workload).into(),
            read_percent: *read_percent,
            random_percent: *random_percent,
            block_sizes: blocks.to_vec(),
            queue_depths: depths.to_vec(),
        })
        .collect();
    let mut spread = Spread(1);
    let mut cells = Vec::new();
    for subject in 0..SUBJECTS.len() {
        for (test, record) in tests.iter().enumerate() {
            for point in record.points() {
                cells.push(cell(subject, test, record, point, &mut spread));
            }
        }
    }
    let drive = |index: usize| DriveRecord {
        path: format!("scratch/first-look/drive-{index}"),
        // Files on disks of their own: the figures are those of separate drives.
        kind: format!("file on ext4, /dev/sd{}", ['b', 'c', 'd', 'e'][index]),
        identity: None,
        size_bytes: 320 << 20,
        direct_io: Some(true),
        write_cache: None,
    };
    Run {
        id: "2026-01-02T03-04-05Z-first-look".into(),
        title: "First look: four drives, five arrays".into(),
        plan_text: include_str!("../../../plans/first-look.toml").into(),
        conditions: Conditions {
            started_unix_s: 1_767_323_045,
            seed: 1,
            host: "testbed".into(),
            kernel: "Linux 6.12.0".into(),
            cpu: "Example 9000 at 3.5 GHz".into(),
            cpu_count: 8,
            memory_bytes: Some(16 << 30),
            load_average: Some(0.12),
            version: "0.1.0".into(),
            drives: (0..4).map(drive).collect(),
            cache_policy: "none: direct I/O, no cache of ours".into(),
            data_entropy_bits: 8.0,
        },
        subjects,
        tests,
        cells_planned: cells.len(),
        cells,
        finished_unix_s: Some(1_767_323_045 + 131),
    }
}

/// A small run with all that can go wrong: names that must be escaped, a cell that was not
/// measured, one with errors, a stall, a queue that was not as deep as asked, no end.
pub fn troubled() -> Run {
    let mut run = run();
    let subjects = [0, 1, 4];
    let tests = [0, 3, 5];
    run.cells.retain(|cell| subjects.contains(&cell.subject) && tests.contains(&cell.test));
    for cell in &mut run.cells {
        cell.subject = subjects.iter().position(|subject| *subject == cell.subject).unwrap();
        cell.test = tests.iter().position(|test| *test == cell.test).unwrap();
    }
    run.subjects = subjects.map(|subject| run.subjects[subject].clone()).into();
    run.tests = tests.map(|test| run.tests[test].clone()).into();
    run.title = "Trouble & \"strife\" <script>alert(1)</script>".into();
    run.subjects[2].name = "RAID 5 <b>\u{1}".into();
    run.plan_text = "title = \"<&>\"\n".into();
    run.cells_planned = run.cells.len();
    run.finished_unix_s = None;
    run.conditions.drives[1].direct_io = Some(false);
    // Of the first drive's sequential reads one is missing and one does not count.
    run.cells.remove(2);
    let note = |kind, text: &str| Note { kind, text: text.into() };
    run.cells[2].notes.push(note(NoteKind::Errors, "3 I/Os ended in errors"));
    run.cells[2].reads.errors = 3;
    run.cells[4].queue_depth_reached = Some(11.2);
    run.cells[5].series.samples[4] = None;
    run.cells[6].notes.push(note(NoteKind::Remark, "the drive was 71 °C warm"));
    run
}

fn cell(
    subject: usize,
    test: usize,
    record: &TestRecord,
    point: Point,
    spread: &mut Spread,
) -> Cell {
    let sequential = record.random_percent == 0.0;
    let (read_scale, write_scale) = scale(subject, sequential);
    let block = point.block_bytes.unwrap_or(if test == 4 { 11_346 } else { 8192 });
    // One drive: 90 µs for a read, 25 µs for a write, 700 MB/s, at most 8 at once.
    let depth = f64::from(point.queue_depth);
    let one_drive = |overhead_s: f64| 1.0 / (overhead_s / depth.min(8.0) + block as f64 / 700e6);
    let alone = depth <= 1.0;
    let gain = |scale: f64| if alone { scale.min(1.02) } else { scale };
    let reads = record.read_percent / 100.0;
    let read_ios_s = one_drive(90e-6) * gain(read_scale);
    let write_ios_s = one_drive(25e-6) * gain(write_scale);
    let ios_s = 1.0 / (reads / read_ios_s + (1.0 - reads) / write_ios_s);

    let interval_ns = NS_PER_SECOND / 10;
    let mut samples = Vec::new();
    let mut total = 0;
    for _ in 0..10 {
        let ios = (ios_s / 10.0 * (1.0 + 0.04 * spread.next())) as u64;
        total += ios;
        samples.push(Some(Sample {
            ios,
            bytes: ios * block,
            latency_ns_mean: depth / ios_s * 1e9,
        }));
    }
    let read_ios = (total as f64 * reads) as u64;
    let figures = |ios: u64| DirectionFigures {
        ios,
        bytes: ios * block,
        errors: 0,
        latency: (ios > 0).then(|| latency(depth / ios_s * 1e9)),
    };
    let parity = SUBJECTS[subject].3 as u64;
    let copies = SUBJECTS[subject].4 as u64;
    let writes = total - read_ios;
    let small = !sequential;
    let drive_traffic = DriveTraffic {
        read_ios: read_ios + if small && parity > 0 { writes * (1 + parity) } else { 0 },
        read_bytes: block
            * (read_ios + if small && parity > 0 { writes * (1 + parity) } else { 0 }),
        write_ios: writes * if small { copies + parity } else { copies },
        write_bytes: block * writes * if small { copies + parity } else { copies },
    };
    Cell {
        subject,
        test,
        block_bytes: point.block_bytes,
        queue_depth_asked: point.queue_depth,
        queue_depth_reached: Some(depth * 0.998),
        measured_ns: NS_PER_SECOND,
        ramp_ns: NS_PER_SECOND / 4,
        working_set_bytes: 256 << 20,
        reads: figures(read_ios),
        writes: figures(writes),
        series: Series { interval_ns, samples },
        drive_traffic: Some(drive_traffic),
        cpu_ns: Some(total * 4000),
        notes: Vec::new(),
    }
}

fn latency(mean_ns: f64) -> Latency {
    let at = |factor: f64| (mean_ns * factor) as u64;
    Latency {
        mean_ns,
        min_ns: at(0.4),
        p50_ns: at(0.95),
        p90_ns: at(1.3),
        p99_ns: at(1.9),
        p999_ns: at(3.1),
        p9999_ns: at(6.0),
        max_ns: at(11.0),
        histogram: vec![1, 2, 3, 250],
    }
}
