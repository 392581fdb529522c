//! From TOML to a checked [`Plan`].
//!
//! Every key is read once, with its limits: here those of the whole plan, in
//! [`subject`] and [`test`] those of their tables. A limit says why it is there;
//! most keep a slip of the pen from becoming a run of a year.

mod subject;
mod test;

use std::collections::BTreeSet;

use toml::de::DeTable;
use workload::DataPattern;

use super::Plan;
use super::error::{PlanError, PlanErrorKind, Source};
use super::reader::{Table, Value};
use crate::units::NS_PER_SECOND;

/// Least block: the logical sector of every drive that matters.
const BLOCK_BYTES_LEAST: u64 = 512;
/// Largest size anywhere: a power of two that signed 64-bit offsets reach past.
const BYTES_MOST: u64 = 1 << 62;
/// Shortest measurement: shorter ones hold no interval that is worth its name.
const TIME_NS_LEAST: u64 = 10_000_000;
/// Longest measurement of one cell.
const TIME_NS_MOST: u64 = 24 * 3600 * NS_PER_SECOND;
/// Most cells of a plan: a day at one second each.
const CELLS_MOST: u64 = 100_000;

/// Measured time where the plan says nothing.
const TIME_NS_DEFAULT: u64 = 10 * NS_PER_SECOND;
/// Ramp where the plan says nothing.
const RAMP_NS_DEFAULT: u64 = 2 * NS_PER_SECOND;

/// What tests and subjects fall back to.
struct Defaults<'a> {
    time_ns: u64,
    ramp_ns: u64,
    working_set_bytes: Option<u64>,
    drives: Option<Value<'a>>,
}

/// Reads and checks a whole plan.
pub(super) fn plan(file: &str, text: &str) -> Result<Plan, Box<PlanError>> {
    let source = Source { file, text };
    let document = DeTable::parse(text).map_err(|error| {
        let kind = PlanErrorKind::Syntax(error.message().replace('\n', ", "));
        source.error(error.span().unwrap_or(0..0), kind, None)
    })?;
    let top = Table::top(
        source,
        &document,
        &["title", "seed", "scratch", "data", "defaults", "subjects", "tests"],
    )?;

    let title = top.require("title", "add title = \"…\" at the top")?.text()?.to_owned();
    // TOML integers end at the largest signed one.
    let seed = top.get("seed").map_or(Ok(1), |value| value.integer(0, i64::MAX as u64))?;
    let scratch = top.get("scratch").map_or(Ok("scratch"), |value| value.text())?.to_owned();
    let data = match top.get("data") {
        Some(value) => data(&value, seed)?,
        None => DataPattern::Random { seed },
    };
    let defaults = defaults(&top)?;

    let mut subjects = Vec::new();
    let mut names = BTreeSet::new();
    let list = top.require("subjects", "add a [[subjects]] with a name and its drives")?;
    for value in list.list("a list of tables: [[subjects]]")? {
        subjects.push(subject::read(&value, &defaults, &mut names)?);
    }
    subject::settle_baseline(&mut subjects, &list)?;

    let mut tests = Vec::new();
    let mut names = BTreeSet::new();
    let list = top.require("tests", "add a [[tests]] with a name and a workload")?;
    for value in list.list("a list of tables: [[tests]]")? {
        tests.push(test::read(&value, &defaults, &mut names)?);
    }

    let points: u64 =
        tests.iter().map(|test| (test.blocks().len() * test.queue_depths.len()) as u64).sum();
    let cells = points.saturating_mul(subjects.len() as u64);
    if cells > CELLS_MOST {
        return Err(list.error(
            PlanErrorKind::TooManyCells { cells, most: CELLS_MOST },
            Some("use fewer block sizes or queue depths, or split the plan".to_owned()),
        ));
    }
    Ok(Plan { title, seed, scratch, data, subjects, tests, text: text.to_owned() })
}

/// What writes write.
fn data(value: &Value<'_>, seed: u64) -> Result<DataPattern, Box<PlanError>> {
    if !value.is_table() {
        return Ok(match value.name_of("data pattern", &["random", "zeros"])? {
            "zeros" => DataPattern::Zeros,
            _ => DataPattern::Random { seed },
        });
    }
    let expected = "\"random\", \"zeros\" or { compresses_to = 40 }";
    let table = value.table("data", expected, &["compresses_to"])?;
    let percent = table.require("compresses_to", "give the percentage")?;
    DataPattern::compressible(seed, percent.integer(1, 100)? as u8)
        .map_err(|error| percent.error(error.into(), None))
}

fn defaults<'a>(top: &Table<'a>) -> Result<Defaults<'a>, Box<PlanError>> {
    let mut defaults = Defaults {
        time_ns: TIME_NS_DEFAULT,
        ramp_ns: RAMP_NS_DEFAULT,
        working_set_bytes: None,
        drives: None,
    };
    let Some(value) = top.get("defaults") else { return Ok(defaults) };
    let table = value.table(
        "[defaults]",
        "a table: [defaults]",
        &["time", "ramp", "working_set", "drives"],
    )?;
    timing(&table, &mut defaults.time_ns, &mut defaults.ramp_ns)?;
    defaults.working_set_bytes = working_set(&table)?;
    defaults.drives = table.get("drives");
    // Checked here too, so that a fault shows even if every subject has drives of its own.
    defaults.drives.as_ref().map(subject::drives).transpose()?;
    Ok(defaults)
}

/// `time` and `ramp` where the table has them.
fn timing(table: &Table<'_>, time_ns: &mut u64, ramp_ns: &mut u64) -> Result<(), Box<PlanError>> {
    if let Some(value) = table.get("time") {
        *time_ns = value.duration_ns(TIME_NS_LEAST, TIME_NS_MOST)?;
    }
    if let Some(value) = table.get("ramp") {
        *ramp_ns = value.duration_ns(0, TIME_NS_MOST)?;
    }
    Ok(())
}

fn working_set(table: &Table<'_>) -> Result<Option<u64>, Box<PlanError>> {
    table.get("working_set").map(|value| value.size(BLOCK_BYTES_LEAST, BYTES_MOST)).transpose()
}

/// A name that no one else has.
fn unique_name(
    table: &Table<'_>,
    what: &'static str,
    names: &mut BTreeSet<String>,
) -> Result<String, Box<PlanError>> {
    let value = table.require("name", "every subject and test has a name for the report")?;
    let name = value.text()?.to_owned();
    if !names.insert(name.clone()) {
        return Err(value.error(PlanErrorKind::Twice { what, name }, None));
    }
    Ok(name)
}
