//! From TOML to a checked [`Plan`].
//!
//! Every key is read here once, with its limits. A limit says why it is there;
//! most keep a slip of the pen from becoming a run of a year.

use std::collections::BTreeSet;

use geometry::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, Geometry, Level, Shape};
use toml::de::DeTable;
use workload::{AccessSpec, CATALOGUE, DataPattern, SpecLine};

use super::error::{ImpossibleSweep, PlanError, PlanErrorKind, Source};
use super::reader::{Table, Value};
use super::{ArrayShape, DriveSource, INLINE, Plan, Storage, Subject, Test};
use crate::units::{NS_PER_SECOND, plan_size};

/// Least block: the logical sector of every drive that matters.
const BLOCK_BYTES_LEAST: u64 = 512;
/// Greatest block: a buffer of it, times the queue depth, still fits into memory.
const BLOCK_BYTES_MOST: u64 = 64 << 20;
/// Greatest queue depth: the entries of one submission ring are of this order.
const QUEUE_DEPTH_MOST: u64 = 4096;
/// Shortest measurement: shorter ones hold no interval that is worth its name.
const TIME_NS_LEAST: u64 = 10_000_000;
/// Longest measurement of one cell.
const TIME_NS_MOST: u64 = 24 * 3600 * NS_PER_SECOND;
/// Smallest file drive: below this an array's metadata is a large part of it.
const DRIVE_BYTES_LEAST: u64 = 16 << 20;
/// Largest size anywhere: a power of two that signed 64-bit offsets reach past.
const BYTES_MOST: u64 = 1 << 62;
/// Most file drives of a subject.
const DRIVES_MOST: u64 = 384;
/// Most cells of a plan: a day at one second each.
const CELLS_MOST: u64 = 100_000;

/// Measured time where the plan says nothing.
const TIME_NS_DEFAULT: u64 = 10 * NS_PER_SECOND;
/// Ramp where the plan says nothing.
const RAMP_NS_DEFAULT: u64 = 2 * NS_PER_SECOND;

/// The level of a drive without an array.
const SINGLE: &str = "single";
/// A level that is another one with the smallest chunk.
const RAID3: &str = "raid3";
/// Chunk and member size to check a shape with where the plan leaves them open:
/// counts and layouts don't depend on them.
const NOMINAL_CHUNK_BYTES: u64 = 64 << 10;
const NOMINAL_MEMBER_BYTES: u64 = 1 << 30;

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
        subjects.push(subject(&value, &defaults, &mut names)?);
    }
    settle_baseline(&mut subjects, &list)?;

    let mut tests = Vec::new();
    let mut names = BTreeSet::new();
    let list = top.require("tests", "add a [[tests]] with a name and a workload")?;
    for value in list.list("a list of tables: [[tests]]")? {
        tests.push(test(&value, &defaults, &mut names)?);
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
    defaults.drives.as_ref().map(drives).transpose()?;
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

fn subject(
    value: &Value<'_>,
    defaults: &Defaults<'_>,
    names: &mut BTreeSet<String>,
) -> Result<Subject, Box<PlanError>> {
    let table = value.table(
        "[[subjects]]",
        "a table: [[subjects]]",
        &["name", "level", "layout", "chunk", "drives", "target", "baseline"],
    )?;
    let name = unique_name(&table, "subject", names)?;
    let baseline = table.get("baseline").map_or(Ok(false), |value| value.boolean())?;
    if let Some(target) = table.get("target") {
        let reason = "the subject is a target, opened as it is";
        for key in ["drives", "level", "layout", "chunk"] {
            table.refuse(key, reason, "leave out either `target` or this")?;
        }
        let storage = Storage::Target(target.text()?.to_owned());
        return Ok(Subject { name, storage, baseline });
    }

    let level = match table.get("level") {
        Some(value) => value.text()?,
        None => SINGLE,
    };
    let inherited = table.get("drives").is_none();
    let value = match (table.get("drives"), &defaults.drives) {
        (Some(own), _) => own,
        (None, Some(shared)) => shared.clone(),
        (None, None) => table
            .require("drives", "give drives = { count = 4, size = \"1G\" } or a list of paths")?,
    };
    let mut members = drives(&value)?;
    if level != SINGLE {
        let shape = shape(&table, &value, &members)?;
        return Ok(Subject { name, storage: Storage::Array { members, shape }, baseline });
    }
    for key in ["layout", "chunk"] {
        table.refuse(key, "one drive alone has none", "add a level, or leave this out")?;
    }
    if members.len() > 1 && !inherited {
        let kind =
            PlanErrorKind::Conflict { key: "drives", reason: "level `single` takes one drive" };
        return Err(value.error(kind, Some("add a level such as \"raid0\"".to_owned())));
    }
    // Of the drives that all subjects share, a single one is the first.
    Ok(Subject { name, storage: Storage::Drive(members.swap_remove(0)), baseline })
}

/// Level, layout and chunk, checked against the number of members and, as far as the plan
/// knows them, their sizes.
fn shape(
    table: &Table<'_>,
    drives: &Value<'_>,
    members: &[DriveSource],
) -> Result<ArrayShape, Box<PlanError>> {
    let value = table.require("level", "give level = \"raid5\"")?;
    let level = level(&value)?;
    let layout = match table.get("layout") {
        Some(value) => geometry::parse_layout(level, value.text()?)
            .map_err(|error| value.error(error.into(), None))?,
        None => geometry::default_layout(level),
    };
    let chunk_bytes = if value.text()?.eq_ignore_ascii_case(RAID3) {
        table.refuse("chunk", "raid3 has the smallest there is", "use raid4 for another chunk")?;
        Some(CHUNK_BYTES_MIN)
    } else {
        table.get("chunk").map(|value| chunk(&value)).transpose()?
    };
    let member_bytes = members
        .iter()
        .map(|member| match member {
            DriveSource::Scratch { size_bytes, .. } => *size_bytes,
            DriveSource::Path(_) => NOMINAL_MEMBER_BYTES,
        })
        .collect();
    Geometry::new(&Shape {
        level,
        layout,
        chunk_bytes: chunk_bytes.unwrap_or(NOMINAL_CHUNK_BYTES),
        member_bytes,
    })
    .map_err(|error| drives.error(error.into(), None))?;
    Ok(ArrayShape { level, layout, chunk_bytes })
}

fn level(value: &Value<'_>) -> Result<Level, Box<PlanError>> {
    let name = value.text()?;
    name.parse().map_err(|_| {
        let known: Vec<String> = Level::ALL.iter().map(Level::to_string).collect();
        let known: Vec<&str> =
            [SINGLE, RAID3].into_iter().chain(known.iter().map(String::as_str)).collect();
        value.unknown_name("level", name, &known)
    })
}

/// A chunk: md's, so a power of two.
fn chunk(value: &Value<'_>) -> Result<u64, Box<PlanError>> {
    let bytes = value.size(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX)?;
    if bytes.is_power_of_two() {
        return Ok(bytes);
    }
    let kind = PlanErrorKind::BadQuantity {
        text: plan_size(bytes),
        expected: "a chunk: a power of two from 4K to 16M",
    };
    let hint = format!("the next is {}", plan_size(bytes.next_power_of_two()));
    Err(value.error(kind, Some(hint)))
}

fn drives(value: &Value<'_>) -> Result<Vec<DriveSource>, Box<PlanError>> {
    let expected = "{ count = 4, size = \"1G\" } or a list of paths";
    if value.is_list() {
        let mut paths = BTreeSet::new();
        return value
            .list(expected)?
            .iter()
            .map(|entry| {
                let path = entry.text()?.to_owned();
                if !paths.insert(path.clone()) {
                    return Err(
                        entry.error(PlanErrorKind::Twice { what: "drive", name: path }, None)
                    );
                }
                Ok(DriveSource::Path(path))
            })
            .collect();
    }
    let table = value.table("drives", expected, &["count", "size"])?;
    let count = table.require("count", "say how many: count = 4")?.integer(1, DRIVES_MOST)?;
    let size_bytes = table
        .require("size", "say how large each is: size = \"1G\"")?
        .size(DRIVE_BYTES_LEAST, BYTES_MOST)?;
    Ok((0..count as u32).map(|index| DriveSource::Scratch { index, size_bytes }).collect())
}

/// Exactly one baseline where one can be told: the one that is marked, or the first single drive.
fn settle_baseline(subjects: &mut [Subject], list: &Value<'_>) -> Result<(), Box<PlanError>> {
    let marked: Vec<usize> =
        (0..subjects.len()).filter(|&index| subjects[index].baseline).collect();
    if let [_, second, ..] = marked[..] {
        let kind = PlanErrorKind::Twice { what: "baseline", name: subjects[second].name.clone() };
        return Err(list.error(kind, Some("mark one subject only".to_owned())));
    }
    if marked.is_empty() {
        let single =
            subjects.iter_mut().find(|subject| matches!(subject.storage, Storage::Drive(_)));
        if let Some(subject) = single {
            subject.baseline = true;
        }
    }
    Ok(())
}

fn test(
    value: &Value<'_>,
    defaults: &Defaults<'_>,
    names: &mut BTreeSet<String>,
) -> Result<Test, Box<PlanError>> {
    let table = value.table(
        "[[tests]]",
        "a table: [[tests]]",
        &["name", "workload", "block_sizes", "queue_depths", "time", "ramp", "working_set"],
    )?;
    let name = unique_name(&table, "test", names)?;
    let (workload, spec) = workload(&table)?;
    let block_sizes = match table.get("block_sizes") {
        Some(value) => {
            let sizes = sweep(&value, plan_size, block)?;
            // Only a workload of one size can be swept.
            let smallest = sizes.first().map_or(BLOCK_BYTES_LEAST, |size| *size) as u32;
            spec.with_request_bytes(smallest).map_err(|error| {
                let hint = "leave `block_sizes` out, or use a workload of one size";
                value.error(error.into(), Some(hint.to_owned()))
            })?;
            sizes
        }
        None => Vec::new(),
    };
    let queue_depths = match table.get("queue_depths") {
        Some(value) => {
            sweep(&value, |depth| depth.to_string(), |value| value.integer(1, QUEUE_DEPTH_MOST))?
        }
        None => vec![1],
    };
    let (mut time_ns, mut ramp_ns) = (defaults.time_ns, defaults.ramp_ns);
    timing(&table, &mut time_ns, &mut ramp_ns)?;
    let working_set_bytes = working_set(&table)?.or(defaults.working_set_bytes);
    let largest =
        block_sizes.last().copied().unwrap_or_else(|| u64::from(spec.request_bytes_max()));
    if let Some(bytes) = working_set_bytes
        && bytes < largest
    {
        let kind = PlanErrorKind::OutOfRange {
            key: "working_set",
            value: plan_size(bytes),
            least: plan_size(largest),
            most: plan_size(BYTES_MOST),
        };
        let hint = "a working set holds at least one block".to_owned();
        return Err(table.get("working_set").as_ref().unwrap_or(value).error(kind, Some(hint)));
    }
    Ok(Test {
        name,
        workload,
        spec,
        block_sizes,
        queue_depths: queue_depths.into_iter().map(|depth| depth as u32).collect(),
        time_ns,
        ramp_ns,
        working_set_bytes,
    })
}

/// A block size: whole sectors.
fn block(value: &Value<'_>) -> Result<u64, Box<PlanError>> {
    let bytes = value.size(BLOCK_BYTES_LEAST, BLOCK_BYTES_MOST)?;
    if bytes.is_multiple_of(BLOCK_BYTES_LEAST) {
        return Ok(bytes);
    }
    let kind = PlanErrorKind::BadQuantity {
        text: plan_size(bytes),
        expected: "a block size: a multiple of 512 bytes",
    };
    Err(value.error(kind, None))
}

/// Name and requests of a workload.
fn workload(table: &Table<'_>) -> Result<(String, AccessSpec), Box<PlanError>> {
    let value = table.require("workload", "give a name of the catalogue or { lines = [...] }")?;
    if value.is_table() {
        return Ok((INLINE.to_owned(), inline(&value)?));
    }
    let name = value.text()?;
    let known = workload::find_workload(name).ok_or_else(|| {
        let names: Vec<&str> = CATALOGUE.iter().map(|workload| workload.name).collect();
        value.unknown_name("workload", name, &names)
    })?;
    let spec = known.spec().map_err(|error| value.error(error.into(), None))?;
    Ok((name.to_owned(), spec))
}

/// An access specification in the plan itself.
fn inline(value: &Value<'_>) -> Result<AccessSpec, Box<PlanError>> {
    let table = value.table("the workload", "a name or a table", &["lines"])?;
    let list =
        table.require("lines", "give lines = [{ size = \"8K\", read = 67, random = 100 }]")?;
    let expected = "a list of { size, share, read, random, alignment }";
    let mut lines = Vec::new();
    for value in list.list(expected)? {
        let line = value.table(
            "a line of the workload",
            expected,
            &["size", "share", "read", "random", "alignment"],
        )?;
        let size_bytes = block(&line.require("size", "give size = \"8K\"")?)?;
        let percent = |key, least| line.get(key).map_or(Ok(100), |value| value.integer(least, 100));
        let mut spec_line = SpecLine::new(
            percent("share", 1)? as u32,
            size_bytes as u32,
            percent("read", 0)? as u8,
            percent("random", 0)? as u8,
        );
        if let Some(value) = line.get("alignment") {
            spec_line.alignment_bytes = Some(block(&value)? as u32);
        }
        lines.push(spec_line);
    }
    AccessSpec::new(&lines).map_err(|error| {
        let hint = "`share` is the percentage of all requests".to_owned();
        list.error(error.into(), Some(hint))
    })
}

/// A list of values or `{ from, to, factor }`: ascending, without repeats.
fn sweep(
    value: &Value<'_>,
    show: impl Fn(u64) -> String,
    read: impl Fn(&Value<'_>) -> Result<u64, Box<PlanError>>,
) -> Result<Vec<u64>, Box<PlanError>> {
    if value.is_table() {
        let expected = "a list or { from, to, factor }";
        let table = value.table("a sweep", expected, &["from", "to", "factor"])?;
        let from = read(&table.require("from", "a sweep starts at `from`")?)?;
        let to = read(&table.require("to", "a sweep ends at `to`")?)?;
        // Beyond 1024 a sweep skips everything there is to see.
        let factor = table.get("factor").map_or(Ok(2), |value| value.integer(2, 1024))?;
        return walk(from, to, factor).map_err(|overshoots| {
            let (from, to) = (show(from), show(to));
            let (kind, hint) = if overshoots {
                let hint = "choose a factor whose steps meet `to`, or list the values";
                (ImpossibleSweep::Overshoots { from, to, factor }, hint)
            } else {
                (ImpossibleSweep::Backwards { from, to }, "exchange `from` and `to`")
            };
            value.error(PlanErrorKind::ImpossibleSweep(kind), Some(hint.to_owned()))
        });
    }
    let mut values = BTreeSet::new();
    for entry in value.list("a list or { from, to, factor }")? {
        let number = read(&entry)?;
        if !values.insert(number) {
            let kind = PlanErrorKind::Twice { what: "value", name: show(number) };
            return Err(entry.error(kind, None));
        }
    }
    Ok(values.into_iter().collect())
}

/// Values from `from` to `to`, both included. The error says whether `to` is passed over
/// (`true`) or lies below `from` (`false`).
fn walk(from: u64, to: u64, factor: u64) -> Result<Vec<u64>, bool> {
    if from > to {
        return Err(false);
    }
    let values: Vec<u64> = std::iter::successors(Some(from), |value| value.checked_mul(factor))
        .take_while(|value| *value <= to)
        .collect();
    if values.last() == Some(&to) { Ok(values) } else { Err(true) }
}
