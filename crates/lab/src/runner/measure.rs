//! One cell, and the filling before the first: workloads on a built subject, in either world.

use std::cell::{Cell as StdCell, RefCell};
use std::error::Error;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use drive::{Drive, DriveError, Durability, ErrorKind};
use workload::{
    AccessSpec, Arrival, DataPattern, End, GeneratorConfig, GeneratorMode, Job, JobError, Measured,
    Observer, Progress, SECTOR_BYTES, WorkingSet,
};
use world::{SplitMix64, TimedOut, World, WriteBufs, race};

use super::subject::Built;
use crate::model::{Cell, DirectionFigures, DriveTraffic, Note, NoteKind, Series};
use crate::plan::{Plan, PlannedCell};
use crate::units;

/// Errors in a row that end a cell: more than a bad spot gives, few enough that a cell on a dead
/// drive with a time-out of its own ends soon.
const ERRORS_IN_A_ROW_MAX: u32 = 16;
/// How long an answer is waited for where nothing else sets an end: longer than the 30 s after
/// which Linux gives a command of a disk up.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// Requests and depth of the filling: large and deep enough for the full speed of any drive.
const FILL_BYTES: u32 = 1 << 20;
const FILL_DEPTH: u32 = 8;
/// The filling ends by its bytes; this only keeps the meter's window finite.
const FILL_TIME: Duration = Duration::from_secs(365 * 24 * 3600);
/// How often a run looks whether it was told to stop: at once, for a person.
const STOP_STEP: Duration = Duration::from_millis(50);
/// Fewest requests whose mean size says whether the mix was as specified.
const MIX_IOS_LEAST: u64 = 1000;
/// How far the mean size may be off: what is outstanding at the end is not counted, and large
/// requests are so more often.
const MIX_SHARE_MOST: f64 = 0.05;

/// Who looks on while something is measured.
pub(super) struct Watch<'a> {
    /// Processor time of this process so far, in the real world.
    pub cpu_ns: Option<&'a dyn Fn() -> u64>,
    /// Called about once a second.
    pub progress: &'a mut dyn FnMut(&Progress),
    /// Set when all is to end.
    pub stop: &'a AtomicBool,
}

/// How to go on after a cell.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// With the next cell.
    Cell,
    /// With the next subject: this one does not answer any more.
    Subject(String),
    /// Not at all.
    Stop,
}

/// Why the filling ended before its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum FillError {
    /// Somebody stopped it.
    #[error("stopped while it was filled")]
    Stopped,
    /// The drive does not answer any more.
    #[error("it could not be filled")]
    Late(#[from] TimedOut),
    /// The drive can't be filled.
    #[error("it could not be filled")]
    Drive(#[from] DriveError),
    /// It can't even be begun.
    #[error("it could not be filled")]
    Job(#[from] JobError),
}

/// Completes once `stop` is set.
async fn stopped(world: &World, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        world.sleep(STOP_STEP).await;
    }
}

/// Completes once `bytes` has stood still for as long as an answer is waited for.
async fn stalled(world: &World, bytes: &StdCell<u64>) {
    loop {
        let seen = bytes.get();
        world.sleep(ANSWER_LIMIT).await;
        if bytes.get() == seen {
            return;
        }
    }
}

/// Writes the first `bytes` of `drive` once, so that nothing reads what was never written.
pub(super) async fn fill(
    world: &World,
    drive: &Rc<dyn Drive>,
    bytes: u64,
    data: DataPattern,
    watch: Watch<'_>,
) -> Result<(), FillError> {
    let facts = drive.facts();
    let whole = bytes - bytes % u64::from(FILL_BYTES);
    if whole > 0 {
        let mut job = job(FILL_DEPTH, data);
        job.spec = AccessSpec::uniform(FILL_BYTES, 0, 0).expect("whole sectors, all written");
        job.generator.working_set =
            WorkingSet::new(0, whole, facts.size_bytes).expect("a part of the drive");
        job.time = FILL_TIME;
        job.interval = FILL_TIME;
        job.requests_max = Some(whole / u64::from(FILL_BYTES));
        job.errors_in_a_row_max = 1;
        let moved = StdCell::new(0);
        let mut progress = |progress: &Progress| {
            moved.set(progress.bytes);
            (watch.progress)(progress);
        };
        let mut end = pin!(async {
            let _ = race(stopped(world, watch.stop), stalled(world, &moved)).await;
        });
        let observer =
            Observer { cpu_ns: None, progress: Some(&mut progress), stop: Some(end.as_mut()) };
        let measured = workload::run(world, Rc::clone(drive), &job, observer).await?;
        if let Some(error) = measured.first_error {
            return Err(error.into());
        }
        if matches!(measured.end, End::Stopped) && watch.stop.load(Ordering::Relaxed) {
            return Err(FillError::Stopped);
        }
        if measured.unanswered > 0 || matches!(measured.end, End::Stopped) {
            return Err(TimedOut { what: "a write", limit: ANSWER_LIMIT }.into());
        }
    }
    let rest = (bytes - whole) - (bytes - whole) % u64::from(facts.block_bytes);
    if rest > 0 {
        let mut buffer = world.pool().take(rest as usize);
        data.fill(&mut buffer, whole);
        let buffers = WriteBufs::from_iter([buffer.freeze()]);
        let write = drive.write(whole, buffers, Durability::Cached);
        world.within(ANSWER_LIMIT, "a write", write).await??;
    }
    Ok(world.within(ANSWER_LIMIT, "a flush", drive.flush()).await??)
}

/// A job with what all jobs of a run share; the rest is for the caller to set.
fn job(queue_depth: u32, data: DataPattern) -> Job {
    Job {
        spec: AccessSpec::uniform(SECTOR_BYTES as u32, 100, 100).expect("one sector is a request"),
        generator: GeneratorConfig {
            mode: GeneratorMode::Aligned,
            working_set: WorkingSet::new(0, SECTOR_BYTES, SECTOR_BYTES).expect("one sector"),
            seed: 0,
            worker: 0,
            streams: 1,
        },
        workers: 1,
        arrival: Arrival::Closed { queue_depth, think_ns: 0 },
        data,
        durability: Durability::Cached,
        ramp: Duration::ZERO,
        time: FILL_TIME,
        interval: FILL_TIME,
        requests_max: None,
        errors_in_a_row_max: ERRORS_IN_A_ROW_MAX,
        drain_limit: ANSWER_LIMIT,
    }
}

/// What the plan's tests touch of a subject of `capacity_bytes`, and whether that is less than
/// asked.
pub(super) fn working_set(asked_bytes: Option<u64>, capacity_bytes: u64) -> (u64, bool) {
    let asked = asked_bytes.unwrap_or(capacity_bytes);
    let bytes = asked.min(capacity_bytes);
    (bytes - bytes % SECTOR_BYTES, asked > capacity_bytes)
}

/// A cell without figures, and why.
pub(super) fn not_measured(plan: &Plan, planned: &PlannedCell, why: String) -> Cell {
    let test = &plan.tests[planned.test];
    Cell {
        subject: planned.subject,
        test: planned.test,
        block_bytes: planned.block_bytes,
        queue_depth_asked: planned.queue_depth,
        queue_depth_reached: None,
        measured_ns: 0,
        ramp_ns: 0,
        working_set_bytes: test.working_set_bytes.unwrap_or(0),
        reads: DirectionFigures::default(),
        writes: DirectionFigures::default(),
        series: Series::default(),
        drive_traffic: None,
        cpu_ns: None,
        notes: vec![Note { kind: NoteKind::NotMeasured, text: why }],
    }
}

/// Measures one cell. Requests depend on the seed and the cell's place in its subject, not on the
/// subject: all subjects get the same ones.
pub(super) async fn cell(
    world: &World,
    built: &Built,
    plan: &Plan,
    planned: &PlannedCell,
    point: u64,
    watch: Watch<'_>,
) -> (Cell, Next) {
    let test = &plan.tests[planned.test];
    let capacity_bytes = built.drive.facts().size_bytes;
    let (working_set_bytes, cut) = working_set(test.working_set_bytes, capacity_bytes);
    let refused = |error: &dyn Error| (not_measured(plan, planned, in_words(error)), Next::Cell);
    let mut job = job(planned.queue_depth, plan.data);
    match test.spec_at(planned.block_bytes) {
        Ok(spec) => job.spec = spec,
        Err(error) => return refused(&error),
    }
    match WorkingSet::new(0, working_set_bytes, capacity_bytes) {
        Ok(working_set) => job.generator.working_set = working_set,
        Err(error) => return refused(&error),
    }
    job.generator.seed = SplitMix64::new(plan.seed.wrapping_add(point)).next_u64();
    job.ramp = Duration::from_nanos(test.ramp_ns);
    job.time = Duration::from_nanos(test.time_ns);
    job.interval = Duration::from_nanos(test.interval_ns());

    // The clock is read at both ends of the window, and so are the drives' counters.
    let traffic = RefCell::new(Vec::with_capacity(2));
    let clock = || {
        traffic.borrow_mut().push(built.traffic());
        watch.cpu_ns.map_or(0, |cpu_ns| cpu_ns())
    };
    let stop = pin!(stopped(world, watch.stop));
    let observer =
        Observer { cpu_ns: Some(&clock), progress: Some(watch.progress), stop: Some(stop) };
    let measured = workload::run(world, Rc::clone(&built.drive), &job, observer).await;
    let measured = match measured {
        Ok(measured) => measured,
        Err(error) => return refused(&error),
    };

    let mut cell = figures(plan, planned, &measured, working_set_bytes);
    cell.cpu_ns = measured.cpu_ns.filter(|_| watch.cpu_ns.is_some());
    if let [before, after] = traffic.borrow()[..] {
        cell.drive_traffic = Some(difference(before, after));
    }
    cell.notes.extend(built.notes.iter().cloned());
    if cut {
        let text = format!(
            "the working set is all of the subject, {}, less than the {} asked for",
            units::size(working_set_bytes),
            units::size(test.working_set_bytes.unwrap_or(0))
        );
        cell.notes.push(Note { kind: NoteKind::Remark, text });
    }
    cell.notes.extend(mix_note(&job.spec, &cell));
    if let Some(text) = built.failures() {
        cell.notes.push(Note { kind: NoteKind::Errors, text });
    }
    let next = settle(world, built, &job, &measured, &mut cell).await;
    (cell, next)
}

/// After a cell: writes that are still on their way must not slow the next one.
async fn settle(
    world: &World,
    built: &Built,
    job: &Job,
    measured: &Measured,
    cell: &mut Cell,
) -> Next {
    if measured.unanswered > 0 {
        return Next::Subject("it left an earlier test's I/O unanswered".to_owned());
    }
    if let Some(error) = measured.first_error.as_ref().filter(|it| it.kind == ErrorKind::Gone) {
        return Next::Subject(in_words(error));
    }
    if matches!(measured.end, End::Stopped) {
        return Next::Stop;
    }
    if !job.spec.has_writes() {
        return Next::Cell;
    }
    let trouble = match world.within(ANSWER_LIMIT, "a flush", built.drive.flush()).await {
        Ok(Ok(())) => return Next::Cell,
        Ok(Err(error)) => in_words(&error),
        Err(late) => in_words(&late),
    };
    cell.notes.push(Note { kind: NoteKind::Errors, text: trouble.clone() });
    Next::Subject(trouble)
}

/// The figures of a cell and what the run itself says about them.
fn figures(
    plan: &Plan,
    planned: &PlannedCell,
    measured: &Measured,
    working_set_bytes: u64,
) -> Cell {
    let summary = &measured.summary;
    Cell {
        queue_depth_reached: summary.reached_depth,
        measured_ns: summary.window.length_ns(),
        ramp_ns: plan.tests[planned.test].ramp_ns,
        working_set_bytes,
        reads: DirectionFigures::new(&summary.reads),
        writes: DirectionFigures::new(&summary.writes),
        series: Series::new(summary),
        notes: notes(measured, plan.tests[planned.test].time_ns),
        ..not_measured(plan, planned, String::new())
    }
}

fn notes(measured: &Measured, time_ns: u64) -> Vec<Note> {
    let summary = &measured.summary;
    let mut notes = Vec::new();
    let mut note = |kind, text| notes.push(Note { kind, text });
    if let End::ClockStands = measured.end {
        note(NoteKind::NotMeasured, in_words(&measured.end));
    }
    if let Some(error) = &measured.first_error {
        let errors = summary.reads.errors + summary.writes.errors;
        let text = format!("{} I/Os failed, the first: {}", units::exact(errors), in_words(error));
        note(NoteKind::Errors, text);
    }
    if measured.unanswered > 0 {
        let text = format!("{} I/Os were never answered", units::exact(measured.unanswered.into()));
        note(NoteKind::Errors, text);
    }
    if let End::Stopped = measured.end {
        let text = format!(
            "stopped after {} of {}",
            units::duration(summary.window.length_ns()),
            units::duration(time_ns)
        );
        note(NoteKind::Interrupted, text);
    }
    if summary.drained.latency_max_ns > time_ns {
        let text = format!(
            "an I/O outstanding at the end took {}",
            units::duration(summary.drained.latency_max_ns)
        );
        note(NoteKind::Remark, text);
    }
    if summary.disordered > 0 {
        let text = format!("the clock ran backwards {} times", units::exact(summary.disordered));
        note(NoteKind::Remark, text);
    }
    notes
}

/// Bytes per second are I/Os per second times the mean request: so the mean must be the specified
/// one, or the mix was not as asked.
fn mix_note(spec: &AccessSpec, cell: &Cell) -> Option<Note> {
    let ios = cell.reads.ios + cell.writes.ios;
    let mean = (cell.reads.bytes + cell.writes.bytes) as f64 / ios as f64;
    let specified = spec.mean_request_bytes();
    if ios < MIX_IOS_LEAST || (mean / specified - 1.0).abs() <= MIX_SHARE_MOST {
        return None;
    }
    let text = format!(
        "requests were {} on average, specified are {}",
        units::size(mean as u64),
        units::size(specified as u64)
    );
    Some(Note { kind: NoteKind::Remark, text })
}

fn difference(before: DriveTraffic, after: DriveTraffic) -> DriveTraffic {
    DriveTraffic {
        read_ios: after.read_ios - before.read_ios,
        read_bytes: after.read_bytes - before.read_bytes,
        write_ios: after.write_ios - before.write_ios,
        write_bytes: after.write_bytes - before.write_bytes,
    }
}

/// An error with its causes in one line.
pub(super) fn in_words(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let words = cause.to_string();
        // Some messages hold their cause already.
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        source = cause.source();
    }
    text.replace('\n', "; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_working_set_ends_with_the_subject() {
        assert_eq!(working_set(None, 1 << 20), (1 << 20, false));
        assert_eq!(working_set(Some(1 << 10), 1 << 20), (1 << 10, false));
        assert_eq!(working_set(Some(1 << 21), (1 << 20) + 100), (1 << 20, true));
        assert_eq!(working_set(Some(700), 1 << 20), (512, false));
    }

    #[test]
    fn causes_are_told_once_and_in_one_line() {
        #[derive(Debug, thiserror::Error)]
        #[error("opening failed: {0}\nhint: try again")]
        struct Outer(#[source] std::num::ParseIntError);
        #[derive(Debug, thiserror::Error)]
        #[error("no figure")]
        struct Whole(#[source] Outer);
        let cause = "x".parse::<u8>().unwrap_err();
        let error = Whole(Outer(cause));
        assert_eq!(
            in_words(&error),
            "no figure: opening failed: invalid digit found in string; hint: try again"
        );
    }
}
