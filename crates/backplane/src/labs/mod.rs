//! `backplane lab …`: plans, runs and reports.

mod run;

use std::fs;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use lab::LabError;
use lab::analysis::analyse;
use lab::runner::{REPORT_NAME, RUNS, write_outputs};
use lab::store::{self, ListedRun, StoreError};
use lab::{export, table};
use serde_json::{Value, json};
use workload::CATALOGUE;

use crate::error::Failure;
use crate::output::{self, Outcome, columns, row};
use crate::values::date;

/// What can be done with plans and runs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Measure everything in a plan, then write the report
    Run(run::Arguments),
    /// The report again, from the stored run
    Report(Report),
    /// The stored runs
    List(List),
    /// The workloads of the catalogue
    Workloads(Workloads),
}

impl Verb {
    /// Carries it out.
    pub fn run(self) -> Result<Outcome, Failure> {
        match self {
            Verb::Run(arguments) => arguments.run(),
            Verb::Report(arguments) => arguments.run(),
            Verb::List(arguments) => arguments.run(),
            Verb::Workloads(arguments) => arguments.run(),
        }
    }
}

/// A folder without a run.
#[derive(Debug, thiserror::Error)]
#[error("{0}\nhint: `backplane lab list` shows the stored runs")]
pub struct NotARun(StoreError);

/// Flags of `lab report`.
#[derive(Debug, Args)]
pub struct Report {
    /// The folder of the run
    run: PathBuf,
    /// Where to write the report [default: the folder of the run]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The run as one JSON document on standard output, nothing else
    #[arg(long)]
    json: bool,
}

impl Report {
    fn run(self) -> Result<Outcome, Failure> {
        let run = store::load(&self.run).map_err(NotARun)?;
        if self.json {
            let mut text = export::json(&run)?;
            text.push('\n');
            output::write(&text)?;
            return Ok(Outcome::Well);
        }
        let folder = self.out.unwrap_or(self.run);
        fs::create_dir_all(&folder)
            .map_err(|source| LabError::Write { path: folder.clone(), source })?;
        let analysis = analyse(&run);
        write_outputs(&folder, &run, &analysis)?;
        let page = folder.join(REPORT_NAME);
        let table = table::render(&run, &analysis);
        output::write(&format!("{table}\nreport: {}\n", page.display()))?;
        Ok(Outcome::Well)
    }
}

/// Flags of `lab list`.
#[derive(Debug, Args)]
pub struct List {
    /// The folder that holds the runs
    #[arg(default_value = RUNS, value_name = "DIR")]
    folder: PathBuf,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

impl List {
    fn run(self) -> Result<Outcome, Failure> {
        let runs = if self.folder.exists() { store::list(&self.folder)? } else { Vec::new() };
        let well = runs.iter().all(|run| run.summary.is_ok());
        if self.json {
            let runs: Vec<Value> = runs.iter().map(run_json).collect();
            output::write_json(json!({ "runs": runs }))?;
        } else if runs.is_empty() {
            output::write(&format!("no runs in {}\n", self.folder.display()))?;
        } else {
            let mut rows = vec![row(["run", "started", "measured", "title"])];
            rows.extend(runs.iter().map(run_row));
            output::write(&columns(0, &rows))?;
        }
        Ok(Outcome::of(well))
    }
}

fn run_row(run: &ListedRun) -> Vec<String> {
    let folder = run.directory.display().to_string();
    match &run.summary {
        Ok(summary) => {
            let mut measured = format!("{} of {}", summary.cells_measured, summary.cells_planned);
            if summary.finished_unix_s.is_none() {
                measured.push_str(", not finished");
            }
            row([&folder, &date(summary.started_unix_s), &measured, &summary.title])
        }
        Err(error) => row([&folder, "-", "-", &format!("can't be read: {error}")]),
    }
}

fn run_json(run: &ListedRun) -> Value {
    match &run.summary {
        Ok(summary) => json!({
            "directory": run.directory,
            "id": summary.id,
            "title": summary.title,
            "started_unix_s": summary.started_unix_s,
            "finished_unix_s": summary.finished_unix_s,
            "cells_planned": summary.cells_planned,
            "cells_measured": summary.cells_measured,
        }),
        Err(error) => json!({ "directory": run.directory, "error": error.to_string() }),
    }
}

/// Flags of `lab workloads`.
#[derive(Debug, Args)]
pub struct Workloads {
    /// One JSON document
    #[arg(long)]
    json: bool,
}

impl Workloads {
    fn run(self) -> Result<Outcome, Failure> {
        if self.json {
            let workloads: Vec<Value> = CATALOGUE
                .iter()
                .map(|workload| {
                    json!({
                        "name": workload.name,
                        "summary": workload.summary,
                        "source": workload.source,
                        "queue_depth": workload.queue_depth,
                    })
                })
                .collect();
            output::write_json(json!({ "workloads": workloads }))?;
            return Ok(Outcome::Well);
        }
        let mut rows = vec![row(["workload", "what", "source"])];
        rows.extend(CATALOGUE.iter().map(|w| row([w.name, w.summary, w.source])));
        output::write(&columns(0, &rows))?;
        Ok(Outcome::Well)
    }
}
