//! The runner: from a plan to measured cells in the store, then the report.
//!
//! Subject by subject: its drives are opened, what would be read unwritten is written once, it is
//! built, and each test is carried out on it and stored as it ends. What can't be built or
//! measured is told in its cells, and the rest goes on. However a run ends, what it measured is
//! kept and reported, and what it made is removed.
//!
//! | file | what | sees |
//! | --- | --- | --- |
//! | `session` | a plan carried out, cell by cell | a supply of drives, a store |
//! | `subject`, `measure` | building a subject, measuring a cell | drives and a world |
//! | `supply` | where worlds and drives come from, as a trait | |
//! | `resume` | an interrupted run, found and checked | a store |
//! | `machine`, `scratch`, `conditions` | this machine's | the operating system |
//! | `progress` | how far it is | what it is told |
//!
//! A run that was interrupted can be gone on with, on the same machine and with the same version:
//! its figures are to be compared with each other.

mod conditions;
mod machine;
mod measure;
mod progress;
mod resume;
mod scratch;
mod session;
mod subject;
mod supply;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

use drive::Roots;
use rustix::time::{ClockId, clock_gettime};
use world::RingError;

pub use progress::Show;

use crate::analysis::{self, Analysis};
use crate::export::{self, ExportError};
use crate::model::{Run, run_id};
use crate::plan::{Plan, PlanError};
use crate::store::{Store, StoreError};
use crate::units::NS_PER_SECOND;
use crate::{report, table};
use conditions::Host;
use machine::Machine;
use progress::Reporter;
use session::Session;

/// Where runs are kept unless told otherwise.
pub const RUNS: &str = "runs";
/// Name of the report in a run's folder.
pub const REPORT_NAME: &str = "report.html";

/// The text of a plan, and what to call it.
#[derive(Clone, Debug)]
pub struct PlanSource {
    /// The name that errors show: a path.
    pub name: String,
    /// The whole file.
    pub text: String,
}

/// How a plan is run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The folder of the run; `None`: one named after date and title below [`RUNS`].
    pub out: Option<PathBuf>,
    /// Go on with the interrupted run in `out`, or the newest one of this plan below [`RUNS`].
    pub resume: bool,
    /// What may be lost: paths as the plan writes them, each that [`Plan::written_paths`] gives.
    pub destroy: BTreeSet<String>,
    /// Set from a signal handler, say, to end the run after what is under way.
    pub stop: Arc<AtomicBool>,
    /// What is shown meanwhile, on standard error.
    pub show: Show,
}

/// What came of a run.
#[derive(Debug)]
pub struct RunOutcome {
    /// Its folder, with the report, the store, and the exports.
    pub directory: PathBuf,
    /// The run.
    pub run: Run,
    /// What it says.
    pub analysis: Analysis,
    /// The table for a terminal.
    pub table: String,
}

/// Why a plan was not run, or what it measured could not be kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// The plan can't be read.
    #[error("{} can't be read: {source}\nhint: name a plan file, as plans/first-look.toml", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The plan makes no sense.
    #[error(transparent)]
    Plan(#[from] Box<PlanError>),
    /// What is on these drives would be lost, and nobody said it may be.
    #[error("all that is on {} would be lost\nhint: say so by naming each", .paths.join(", "))]
    NotConfirmed {
        /// The paths, as the plan writes them.
        paths: Vec<String>,
    },
    /// There is no run of this plan to go on with.
    #[error(
        "no interrupted run of this plan in {}\nhint: leave --resume out to begin one", .place.display()
    )]
    NothingToResume {
        /// Where it was looked for.
        place: PathBuf,
    },
    /// The run is another one's.
    #[error(
        "{} was run with another {what}: its figures would not compare\n\
         hint: begin a new run, without --resume", .directory.display()
    )]
    OtherConditions {
        /// The run's folder.
        directory: PathBuf,
        /// What differs.
        what: &'static str,
    },
    /// No world to run in.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// The run can't be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The run can't be exported.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// A file beside the store can't be written.
    #[error("{} can't be written: {source}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl PlanSource {
    /// Reads a plan file.
    ///
    /// # Errors
    ///
    /// A file that isn't there, or no text.
    pub fn read(path: &Path) -> Result<Self, LabError> {
        let text = fs::read_to_string(path)
            .map_err(|source| LabError::Read { path: path.to_owned(), source })?;
        Ok(Self { name: path.display().to_string(), text })
    }
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            out: None,
            resume: false,
            destroy: BTreeSet::new(),
            stop: Arc::default(),
            show: Show::Nothing,
        }
    }
}

/// Measures everything in a plan on this machine, and writes store, report and exports.
///
/// # Errors
///
/// A plan that makes no sense or was not confirmed, before anything is touched; a store that
/// can't be written. A subject that can't be had is no error: its cells say why.
pub fn run_plan(source: &PlanSource, options: &RunOptions) -> Result<RunOutcome, LabError> {
    let plan = Plan::parse(&source.name, &source.text)?;
    let unconfirmed: Vec<String> = plan
        .written_paths()
        .into_iter()
        .filter(|path| !options.destroy.contains(*path))
        .map(str::to_owned)
        .collect();
    if !unconfirmed.is_empty() {
        return Err(LabError::NotConfirmed { paths: unconfirmed });
    }
    let mut machine = Machine::new(&plan.scratch);
    let host = Host::read(&Roots::default().proc);
    let head = session::head(&plan, &machine, &host, unix_s());
    let (directory, mut store, mut run) = if options.resume {
        resume::open(options.out.as_deref(), &head)?
    } else {
        let directory = options.out.clone().unwrap_or_else(|| Path::new(RUNS).join(&head.id));
        (directory.clone(), Store::create(&directory, &head)?, head)
    };
    let mut reporter = Reporter::new(options.show, Box::new(io::stderr()));
    let done = Session {
        plan: &plan,
        supply: &mut machine,
        store: &mut store,
        run: &mut run,
        reporter: &mut reporter,
        cpu_ns: Some(&cpu_ns),
        stop: &options.stop,
        told_cached: false,
    }
    .measure();
    // Whatever comes next, the scratch files are gone.
    drop(machine);
    reporter.end();
    done?;
    if run.cells.len() == run.cells_planned {
        let finished = unix_s();
        store.finish(finished)?;
        run.finished_unix_s = Some(finished);
    }
    drop(store);
    let analysis = analysis::analyse(&run);
    write_outputs(&directory, &run, &analysis)?;
    let table = table::render(&run, &analysis);
    Ok(RunOutcome { directory, run, analysis, table })
}

/// Writes the report, the JSON document and the CSV file of a run into its folder, or another one.
///
/// # Errors
///
/// A full disk, or a folder that can't be written to.
pub fn write_outputs(folder: &Path, run: &Run, analysis: &Analysis) -> Result<(), LabError> {
    let outputs = [
        (REPORT_NAME, report::html(run, analysis)),
        ("run.json", export::json(run)?),
        ("run.csv", export::csv(run)),
    ];
    for (name, text) in outputs {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|source| LabError::Write { path, source })?;
    }
    Ok(())
}

/// Processor time of this process so far, its kernel workers included.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let [seconds, rest] = [time.tv_sec, time.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    seconds.saturating_mul(NS_PER_SECOND).saturating_add(rest)
}

/// Seconds since 1970; a clock before that counts as then.
fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
