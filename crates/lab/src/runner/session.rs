//! A plan carried out: subject by subject, cell by cell, into the store.
//!
//! What it measures with are a [`Supply`]'s worlds and drives; it can't tell a machine from a
//! made-up one.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use drive::Drive;
use workload::DataPattern;
use world::World;

use super::conditions::Host;
use super::measure::{self, ANSWER_LIMIT, FillError, Next, Watch, in_words, working_set};
use super::progress::{Reporter, TimeLeft};
use super::subject::{self, Birth, Built};
use super::supply::{Content, Supplied, Supply};
use super::{LabError, run_id};
use crate::model::{Conditions, Metric, Note, NoteKind, Run, TestRecord};
use crate::plan::{DriveSource, Plan, PlannedCell, Storage};
use crate::store::Store;

/// Said once, when the first drive without direct I/O is measured.
const NOT_DIRECT: &str = "no direct I/O here: figures will be those of memory, and not count\n\
     hint: set `scratch` in the plan to a folder on a disk (tmpfs is none)";

/// Everything a plan is carried out with.
pub(super) struct Session<'a> {
    pub plan: &'a Plan,
    pub supply: &'a mut dyn Supply,
    pub store: &'a mut Store,
    pub run: &'a mut Run,
    pub reporter: &'a mut Reporter,
    pub cpu_ns: Option<&'a dyn Fn() -> u64>,
    pub stop: &'a AtomicBool,
    /// Whether somebody was told that a cache is measured.
    pub told_cached: bool,
}

/// A run before anything was measured.
pub(super) fn head(plan: &Plan, supply: &dyn Supply, host: &Host, started_unix_s: u64) -> Run {
    let sources = all_sources(plan);
    let place = |source: &DriveSource| sources.iter().position(|other| other == source);
    let subjects = plan
        .subjects
        .iter()
        .map(|subject| {
            let drives = subject::sources(subject).iter().filter_map(place).collect();
            subject::record(subject, drives)
        })
        .collect();
    let conditions = Conditions {
        started_unix_s,
        seed: plan.seed,
        host: host.name.clone(),
        kernel: host.kernel.clone(),
        cpu: host.cpu.clone(),
        cpu_count: std::thread::available_parallelism()
            .map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX)),
        memory_bytes: host.memory_bytes,
        load_average: host.load_average,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        drives: sources.iter().map(|source| supply.record(source)).collect(),
        cache_policy: cache_policy(host.virtual_machine).to_owned(),
        data_entropy_bits: entropy_bits(&plan.data),
    };
    Run {
        id: run_id(&plan.title, started_unix_s),
        title: plan.title.clone(),
        plan_text: plan.text.clone(),
        conditions,
        subjects,
        tests: plan.tests.iter().map(TestRecord::new).collect(),
        cells_planned: plan.cells().len(),
        cells: Vec::new(),
        finished_unix_s: None,
    }
}

fn cache_policy(virtual_machine: bool) -> &'static str {
    if virtual_machine {
        "none of ours, direct I/O where a drive takes it; this is a virtual machine, whose host may cache"
    } else {
        "none of ours, direct I/O where a drive takes it"
    }
}

fn entropy_bits(data: &DataPattern) -> f64 {
    f64::from(data.compresses_to_percent()) * 8.0 / 100.0
}

/// Every drive of the plan once, in its order.
fn all_sources(plan: &Plan) -> Vec<DriveSource> {
    let mut all = Vec::new();
    for source in plan.subjects.iter().flat_map(subject::sources) {
        if !all.contains(&source) {
            all.push(source);
        }
    }
    all
}

/// Why the rest of a subject is not measured.
enum Halt {
    /// This stands in its cells.
    Because(String),
    /// The run is to end.
    Stop,
    /// The run can't be kept.
    Fatal(LabError),
}

impl<E: Into<LabError>> From<E> for Halt {
    fn from(error: E) -> Self {
        Halt::Fatal(error.into())
    }
}

impl Session<'_> {
    /// Carries the plan out.
    pub fn measure(mut self) -> Result<(), LabError> {
        self.reporter.time = self.time_left();
        let cells = self.plan.cells();
        for index in 0..self.plan.subjects.len() {
            if self.stopped() {
                return Ok(());
            }
            // The point of a cell decides its draws, whichever cells were measured before.
            let points = (0..).zip(cells.iter().filter(|cell| cell.subject == index));
            let cells: Vec<(u64, &PlannedCell)> =
                points.filter(|(_, cell)| !self.is_measured(cell)).collect();
            if cells.is_empty() {
                continue;
            }
            let begun = self.run.cells.len();
            match self.subject(index, &cells) {
                Ok(()) => {}
                Err(Halt::Stop) => return Ok(()),
                Err(Halt::Fatal(error)) => return Err(error),
                Err(Halt::Because(why)) => {
                    self.reporter.remark(&format!("{}: {why}", self.plan.subjects[index].name));
                    let done = self.run.cells.len() - begun;
                    for (_, planned) in &cells[done..] {
                        let cell = measure::not_measured(self.plan, planned, why.clone());
                        self.keep(cell, planned, 0)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether an earlier sitting of this run has measured it.
    fn is_measured(&self, planned: &PlannedCell) -> bool {
        self.run.cells.iter().any(|cell| {
            (cell.subject, cell.test) == (planned.subject, planned.test)
                && cell.block_bytes == planned.block_bytes
                && cell.queue_depth_asked == planned.queue_depth
        })
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// What is ahead.
    fn time_left(&self) -> TimeLeft {
        let own = all_sources(self.plan).into_iter().map(|source| match source {
            DriveSource::Scratch { size_bytes, .. } => size_bytes,
            DriveSource::Path(_) => 0,
        });
        let measured = self.run.cells.iter().map(|cell| {
            let test = &self.plan.tests[cell.test];
            test.time_ns.saturating_add(test.ramp_ns)
        });
        TimeLeft {
            planned_ns: self.plan.measuring_ns().saturating_sub(measured.sum()),
            fill_bytes: own.sum(),
            ..TimeLeft::default()
        }
    }

    /// Whether anything is ever written to a subject.
    fn writes(&self, index: usize) -> bool {
        let tests = self.plan.tests.iter().any(|test| test.spec.has_writes());
        let subject = &self.plan.subjects[index];
        let own = |source: &DriveSource| matches!(source, DriveSource::Scratch { .. });
        tests
            || matches!(subject.storage, Storage::Array { .. })
            || subject::sources(subject).iter().any(own)
    }

    /// Builds a subject in a world of its own, measures its cells, and takes it apart.
    fn subject(&mut self, index: usize, cells: &[(u64, &PlannedCell)]) -> Result<(), Halt> {
        let world = self.supply.world()?;
        let sources = subject::sources(&self.plan.subjects[index]);
        let drives = match self.supply.open(&world, &sources, self.writes(index)) {
            Ok(drives) => drives,
            Err(error) => return Err(Halt::Because(in_words(&error))),
        };
        for (place, supplied) in self.run.subjects[index].drives.clone().into_iter().zip(&drives) {
            self.run.conditions.drives[place] = supplied.record.clone();
        }
        let result = world.block_on(self.in_world(&world, index, sources, drives, cells));
        world.end();
        result
    }

    async fn in_world(
        &mut self,
        world: &World,
        index: usize,
        sources: Vec<DriveSource>,
        drives: Vec<Supplied>,
        cells: &[(u64, &PlannedCell)],
    ) -> Result<(), Halt> {
        for (source, supplied) in sources.iter().zip(&drives) {
            if supplied.content == Content::Unwritten {
                let facts = supplied.drive.facts();
                let name = facts.name.to_string();
                let filled = self.fill(world, &supplied.drive, &name, facts.size_bytes).await;
                match filled {
                    Ok(()) => self.supply.filled(source),
                    Err(_) => self.supply.abandon(source),
                }
                filled?;
            }
        }
        let birth = Birth {
            seed: self.plan.seed.wrapping_add(index as u64),
            now_unix_s: self.run.conditions.started_unix_s,
        };
        let subject = &self.plan.subjects[index];
        let contents: Vec<Content> = drives.iter().map(|supplied| supplied.content).collect();
        let mut built = match Built::new(world, subject, drives, birth).await {
            Ok(built) => built,
            Err(error) => return Err(Halt::Because(in_words(&error))),
        };
        if !built.drive.facts().direct && !self.told_cached {
            self.told_cached = true;
            self.reporter.remark(NOT_DIRECT);
        }
        self.run.subjects[index].capacity_bytes = Some(built.drive.facts().size_bytes);
        self.store.update_head(self.run)?;
        let result = match self.prepare(world, index, &mut built, &contents).await {
            Ok(()) => self.cells(world, &built, cells).await,
            Err(halt) => Err(halt),
        };
        // What goes wrong now changes no figure.
        let trouble = match world.within(ANSWER_LIMIT, "the array to stop", built.close()).await {
            Ok(Ok(())) => return result,
            Ok(Err(error)) => in_words(&error),
            Err(late) => in_words(&late),
        };
        if result.is_ok() {
            self.reporter.remark(&format!("{}: {trouble}", subject.name));
        }
        result
    }

    /// Writes what the tests will read, where the lab may write and has not; says so where it may
    /// not.
    async fn prepare(
        &mut self,
        world: &World,
        index: usize,
        built: &mut Built,
        contents: &[Content],
    ) -> Result<(), Halt> {
        let hole = contents.iter().find_map(|content| match content {
            Content::Given { hole_bytes } => Some(*hole_bytes),
            Content::Unwritten | Content::Written => None,
        });
        // The lab's own drives are written in full already.
        let Some(hole) = hole else { return Ok(()) };
        let capacity_bytes = built.drive.facts().size_bytes;
        let asked = |asked_bytes| working_set(asked_bytes, capacity_bytes).0;
        let bytes = self.plan.tests.iter().map(|test| asked(test.working_set_bytes)).max();
        let bytes = bytes.unwrap_or(0);
        if self.writes(index) {
            let name = self.plan.subjects[index].name.clone();
            let drive = Rc::clone(&built.drive);
            return self.fill(world, &drive, &name, bytes).await;
        }
        if hole.is_some_and(|hole| hole < bytes) {
            let text = "parts of it were never written".to_owned();
            built.notes.push(Note { kind: NoteKind::Unwritten, text });
        }
        Ok(())
    }

    async fn fill(
        &mut self,
        world: &World,
        drive: &Rc<dyn Drive>,
        name: &str,
        bytes: u64,
    ) -> Result<(), Halt> {
        let begun_ns = world.now_ns();
        let (reporter, stop) = (&mut *self.reporter, self.stop);
        reporter.filling(name, 0, bytes);
        let mut progress = |progress: &workload::Progress| {
            reporter.filling(name, progress.bytes.min(bytes), bytes);
        };
        let watch = Watch { cpu_ns: None, progress: &mut progress, stop };
        let filled = measure::fill(world, drive, bytes, self.plan.data, watch).await;
        let time = &mut self.reporter.time;
        time.fill_bytes = time.fill_bytes.saturating_sub(bytes);
        time.filled_bytes += bytes;
        time.filled_ns += world.now_ns() - begun_ns;
        match filled {
            Ok(()) => {
                self.reporter.filled(name, bytes);
                Ok(())
            }
            Err(FillError::Stopped) => Err(Halt::Stop),
            Err(error) => Err(Halt::Because(in_words(&error))),
        }
    }

    async fn cells(
        &mut self,
        world: &World,
        built: &Built,
        cells: &[(u64, &PlannedCell)],
    ) -> Result<(), Halt> {
        for &(point, planned) in cells {
            if self.stopped() {
                return Err(Halt::Stop);
            }
            let begun_ns = world.now_ns();
            let (reporter, run) = (&mut *self.reporter, &*self.run);
            reporter.measuring(run, planned, None);
            let metric = run.tests[planned.test].metric();
            let mut progress = |progress: &workload::Progress| {
                reporter.measuring(run, planned, rate(progress, metric));
            };
            let watch = Watch { cpu_ns: self.cpu_ns, progress: &mut progress, stop: self.stop };
            let (cell, next) = measure::cell(world, built, self.plan, planned, point, watch).await;
            self.keep(cell, planned, world.now_ns() - begun_ns)?;
            match next {
                Next::Cell => {}
                Next::Subject(why) => return Err(Halt::Because(why)),
                Next::Stop => return Err(Halt::Stop),
            }
        }
        Ok(())
    }

    /// Stores a cell that took `took_ns` with all that belongs to it; 0 if it was not tried.
    fn keep(
        &mut self,
        cell: crate::model::Cell,
        planned: &PlannedCell,
        took_ns: u64,
    ) -> Result<(), LabError> {
        let test = &self.plan.tests[planned.test];
        let planned_ns = test.time_ns.saturating_add(test.ramp_ns);
        let time = &mut self.reporter.time;
        time.planned_ns = time.planned_ns.saturating_sub(planned_ns);
        if took_ns > 0 {
            time.planned_done_ns += planned_ns;
            time.took_ns += took_ns;
        }
        self.store.record(&cell)?;
        self.run.cells.push(cell);
        self.reporter.measured(self.run);
        Ok(())
    }
}

/// The rate since the start of a cell, its ramp included.
fn rate(progress: &workload::Progress, metric: Metric) -> Option<f64> {
    let amount = match metric {
        Metric::Bytes => progress.bytes,
        Metric::Ios => progress.requests,
    };
    let seconds = progress.elapsed_ns as f64 / crate::units::NS_PER_SECOND as f64;
    (seconds > 0.0).then(|| amount as f64 / seconds)
}
