//! What made-up runs say, word by word.

use super::*;
use crate::made_up;
use crate::model::{Note, NoteKind, Sample};
use crate::units::NS_PER_SECOND;

/// Gives a cell a steady rate, with an alternating spread around it.
fn set_rate(cell: &mut Cell, ios_per_s: u64, spread: u64) {
    let samples = (0..10).map(|index| {
        let ios = ios_per_s / 10 + if index % 2 == 0 { spread } else { 0 } - spread / 2;
        Some(Sample { ios, bytes: ios * 4096, latency_ns_mean: 1.0 })
    });
    cell.series.samples = samples.collect();
    cell.series.interval_ns = NS_PER_SECOND / 10;
    cell.measured_ns = NS_PER_SECOND;
    let reads = cell.reads.ios > 0;
    let figures = if reads { &mut cell.reads } else { &mut cell.writes };
    figures.ios = cell.series.samples.iter().flatten().map(|sample| sample.ios).sum();
    figures.bytes = figures.ios * 4096;
}

/// Rate of a subject in IOPS and its spread.
type Rate = (u64, u64);

/// A run of one test, random 4 KiB reads at depth 1, with a rate and spread for each subject.
fn one_test(rates: &[Rate]) -> Run {
    let mut run = made_up::run();
    run.tests = vec![run.tests[2].clone()];
    run.tests[0].queue_depths = vec![1];
    run.subjects.truncate(rates.len());
    run.cells
        .retain(|cell| cell.test == 2 && cell.queue_depth_asked == 1 && cell.subject < rates.len());
    for (cell, (rate, spread)) in run.cells.iter_mut().zip(rates) {
        cell.test = 0;
        set_rate(cell, *rate, *spread);
    }
    run.cells_planned = run.cells.len();
    run
}

#[test]
fn a_whole_run_is_summed_up() {
    let analysis = analyse(&made_up::run());
    let expected = [
        "RAID 0 is fastest in 5 of 6 tests and level with the fastest in 1; it loses everything \
         with the first drive that fails.",
        "Of those that survive a lost drive the fastest is RAID 10 at Sequential write, Random 4 \
         KiB write, File Server and Database; at Sequential read and Random 4 KiB read several \
         are level.",
        "Sequential read: RAID 0 is fastest at 1 MiB with 2.62 GB/s, 3.8 times one drive; RAID 5 \
         follows, 11 % behind.",
        "Sequential write: RAID 0 is fastest at 1 MiB with 2.55 GB/s, 3.6 times one drive; RAID \
         10 follows, 48 % behind.",
        "Random 4 KiB read: RAID 0, RAID 1, RAID 5 and RAID 6 are level at depth 32, within \
         noise: about 220\u{202f}000 IOPS, 3.7 times one drive.",
        "Random 4 KiB write: RAID 0 is fastest at depth 32 with 405\u{202f}000 IOPS, 3.6 times \
         one drive; RAID 10 follows, 49 % behind.",
        "File Server: RAID 0 is fastest with 147\u{202f}000 IOPS, 3.8 times one drive; RAID 10 \
         follows, 16 % behind.",
        "Database: RAID 0 is fastest with 187\u{202f}000 IOPS, 3.8 times one drive; RAID 10 \
         follows, 23 % behind.",
        "What parity costs in Random 4 KiB write at depth 32: RAID 5 is 74 % slower than RAID 0 \
         (each write became 2 reads and 2 writes at the drives), RAID 6 83 % (3 reads and 3 \
         writes).",
    ];
    assert_eq!(analysis.headline, expected);
    assert_eq!(analysis.cautions, Vec::<String>::new());
    let sequential_read = &analysis.tests[0];
    assert_eq!(sequential_read.metric, Metric::Bytes);
    assert_eq!(sequential_read.sentences[1], "RAID 0 reached 96 % of 4 times one drive.");
}

#[test]
fn leads_are_told_from_noise() {
    let table: [(&[Rate], Verdict, &str); 6] = [
        (
            &[(1000, 2), (2000, 2)],
            Verdict::Won,
            "RAID 0 is fastest with 2000 IOPS, 2.0 times one drive; One drive follows, 50 % behind.",
        ),
        // A lead of 10 % in a spread of 100 %.
        (
            &[(10_000, 1000), (11_000, 1000)],
            Verdict::Tied(2),
            "No subject is ahead: all reached about 11\u{202f}000 IOPS, within noise.",
        ),
        // A lead of 2 % without any spread: runs differ by more.
        (
            &[(10_000, 0), (10_200, 0), (5000, 0)],
            Verdict::Tied(2),
            "One drive and RAID 0 are level, within noise: about 10\u{202f}200 IOPS.",
        ),
        (
            &[(10_000, 0), (5000, 0)],
            Verdict::Won,
            "One drive is fastest with 10\u{202f}000 IOPS; RAID 0 follows, 50 % behind.",
        ),
        (
            &[(1000, 0), (40_000, 0), (40_000, 0)],
            Verdict::Tied(2),
            "RAID 0 and RAID 1 are level, within noise: about 40\u{202f}000 IOPS, 40 times one drive.",
        ),
        (&[(1000, 0)], Verdict::Alone, "Only One drive has figures: 1000 IOPS."),
    ];
    for (rates, verdict, sentence) in table {
        let analysis = analyse(&one_test(rates));
        assert_eq!(analysis.tests[0].main().verdict, verdict, "{rates:?}");
        assert_eq!(analysis.tests[0].sentences[0], sentence, "{rates:?}");
    }
}

#[test]
fn short_series_are_not_judged() {
    let mut run = one_test(&[(1000, 0), (2000, 0)]);
    for cell in &mut run.cells {
        cell.series.samples.truncate(4);
    }
    let analysis = analyse(&run);
    assert_eq!(analysis.tests[0].main().verdict, Verdict::Unjudged);
    assert_eq!(
        analysis.tests[0].sentences[0],
        "RAID 0 reached most, 2000 IOPS, 2.0 times one drive; One drive follows, 50 % behind, but \
         the series are too short to tell whether that is noise."
    );
}

#[test]
fn what_does_not_count_is_said_and_left_out() {
    for kind in NoteKind::ALL {
        let mut run = one_test(&[(1000, 0), (9000, 0)]);
        run.cells[1].notes = vec![Note { kind, text: "why".into() }];
        let analysis = analyse(&run);
        let counted = analysis.tests[0].main().of(1).is_some();
        assert_eq!(counted, !kind.invalidates(), "{kind:?}");
        assert_eq!(analysis.cautions.len(), 1, "{kind:?}");
        assert!(
            analysis.cautions[0].ends_with(": RAID 0, Random 4 KiB read (why)."),
            "{:?}",
            analysis.cautions
        );
    }
}

#[test]
fn conditions_that_mislead_come_first() {
    let expected = [
        "The run is not complete: 23 of 24 cells were measured.",
        "Direct I/O is not real on scratch/first-look/drive-1: the figures are those of the page cache.",
        "Not counted because of errors: One drive, Sequential read at 256 KiB (3 I/Os ended in errors).",
        "The queue was not as deep as asked: One drive, Random 4 KiB write at depth 1 (asked 1, reached 0.500).",
        "Remarks: One drive, Database (the drive was 71 °C warm).",
    ];
    let mut run = made_up::troubled();
    run.cells[4].queue_depth_reached = Some(0.5);
    let analysis = analyse(&run);
    assert_eq!(analysis.cautions, expected);
}

#[test]
fn files_on_one_disk_are_told_apart_from_drives() {
    let mut run = made_up::run();
    let kind = run.conditions.drives[0].kind.clone();
    run.conditions.drives[3].kind = kind;
    assert_eq!(
        analyse(&run).cautions,
        [
            "Several drives are each a file on ext4, /dev/sdb, and so share one disk: the figures show \
          what a level costs, not what separate drives would gain."
        ]
    );
}

#[test]
fn a_busy_machine_is_told() {
    let mut run = made_up::run();
    run.conditions.load_average = Some(6.25);
    let expected =
        "The machine was busy when the run began: 6.2 tasks ran or waited for 8 processors.";
    assert_eq!(analyse(&run).cautions, [expected]);
    run.conditions.load_average = Some(4.0);
    assert!(analyse(&run).cautions.is_empty());
}

#[test]
fn a_rate_that_still_moves_is_told() {
    let mut run = one_test(&[(1000, 0), (9000, 0)]);
    for (index, sample) in run.cells[1].series.samples.iter_mut().flatten().enumerate() {
        sample.ios = 1000 - 50 * index as u64;
    }
    assert_eq!(
        analyse(&run).cautions,
        ["The rate still changed while it was measured: RAID 0, Random 4 KiB read (fell by 58 %)."]
    );
}

#[test]
fn an_empty_run_says_little_and_does_not_fail() {
    let mut run = made_up::run();
    run.cells.clear();
    let analysis = analyse(&run);
    assert_eq!(analysis.headline, Vec::<String>::new());
    assert_eq!(analysis.cautions, ["The run is not complete: 0 of 96 cells were measured."]);
    assert!(analysis.tests.iter().all(|test| test.main().verdict == Verdict::Nothing));

    // Without a baseline there is nothing to compare with.
    let mut run = one_test(&[(1000, 0), (2000, 0)]);
    run.subjects[0].baseline = false;
    assert_eq!(
        analyse(&run).tests[0].sentences,
        ["RAID 0 is fastest with 2000 IOPS; One drive follows, 50 % behind."]
    );
}
