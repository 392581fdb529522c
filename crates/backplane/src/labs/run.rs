//! `backplane lab run`: everything in a plan, then the report.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use lab::model::NoteKind;
use lab::runner::REPORT_NAME;
use lab::store::StoreError;
use lab::{LabError, Plan, PlanSource, RunOptions, Show, export, run_plan};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::error::{self, Failure};
use crate::guard;
use crate::output::{self, Outcome};
use crate::session;

/// Flags of `lab run`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The plan
    #[arg(value_name = "PLAN.toml")]
    plan: PathBuf,
    /// Folder of the run, which must not hold one yet [default: one below runs, by date and title]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Go on with an interrupted run: the one in --out, or the newest one of this plan
    #[arg(long)]
    resume: bool,
    /// Drives that the plan names may be written to: what is on them is lost
    #[arg(long)]
    allow_write: bool,
    /// What may be lost, as with `array create`; may be repeated
    #[arg(long, value_name = "NAME")]
    yes_destroy: Vec<String>,
    /// The run as one JSON document on standard output
    #[arg(long)]
    json: bool,
}

/// Why the plan is not run.
#[derive(Debug, thiserror::Error)]
pub enum RunRefused {
    /// Drives of the plan would be overwritten.
    #[error(
        "this plan writes to {}\nhint: what is on them would be lost; if that may be, add \
         --allow-write",
        .paths.join(", ")
    )]
    WriteNotAllowed {
        /// As the plan writes them.
        paths: Vec<String>,
    },
    /// A folder that holds a run.
    #[error("{0}\nhint: go on with it with --resume, or give another folder with --out")]
    Occupied(LabError),
}

impl Arguments {
    /// Carries it out.
    pub fn run(self) -> Result<Outcome, Failure> {
        let source = PlanSource::read(&self.plan)?;
        let plan = Plan::parse(&source.name, &source.text)?;
        let written: Vec<String> = plan.written_paths().into_iter().map(str::to_owned).collect();
        if !written.is_empty() {
            if !self.allow_write {
                return Err(RunRefused::WriteNotAllowed { paths: written }.into());
            }
            self.confirm(&written)?;
        }
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // A second one ends the process at once, as if nobody listened.
            flag::register_conditional_default(signal, Arc::clone(&stop))?;
            flag::register(signal, Arc::clone(&stop))?;
        }
        let options = RunOptions {
            out: self.out,
            resume: self.resume,
            destroy: written.into_iter().collect(),
            stop,
            show: if io::stderr().is_terminal() { Show::Line } else { Show::Lines },
        };
        let outcome = run_plan(&source, &options).map_err(|error| match error {
            LabError::Store(StoreError::Occupied(_)) => RunRefused::Occupied(error).into(),
            error => Failure::from(error),
        })?;
        if self.json {
            output::write(&(export::json(&outcome.run)? + "\n"))?;
        } else {
            let page = outcome.directory.join(REPORT_NAME);
            output::write(&format!("{}\nreport: {}\n", outcome.table, page.display()))?;
        }
        if !outcome.run.is_complete() {
            let (cells, planned) = (outcome.run.cells.len(), outcome.run.cells_planned);
            error::warn(&format!("interrupted: {cells} of {planned} points were measured"));
        }
        let failed = |kind| matches!(kind, NoteKind::NotMeasured | NoteKind::Errors);
        let mut notes = outcome.run.cells.iter().flat_map(|cell| &cell.notes);
        Ok(Outcome::of(outcome.run.is_complete() && !notes.any(|note| failed(note.kind))))
    }

    /// Free drives, and everything on them named.
    fn confirm(&self, written: &[String]) -> Result<(), Failure> {
        session::look(async |world| {
            let mut contents = Vec::new();
            for name in written {
                let (drive, path) = (guard::look(world, name)?, Path::new(name));
                guard::refuse_used(path)?;
                contents.push(guard::contents(world, path, drive.as_ref()).await?);
            }
            guard::confirm("what is on the drives of this plan", &contents, &self.yes_destroy)?;
            Ok(Outcome::Well)
        })?;
        Ok(())
    }
}
