//! The `[[tests]]` of a plan.

use std::collections::BTreeSet;

use workload::{AccessSpec, CATALOGUE, SpecLine};

use super::{BLOCK_BYTES_LEAST, BYTES_MOST, Defaults, timing, unique_name, working_set};
use crate::plan::error::{ImpossibleSweep, PlanError, PlanErrorKind};
use crate::plan::reader::{Table, Value};
use crate::plan::{INLINE, Test};
use crate::units::plan_size;

/// Greatest block: a buffer of it, times the queue depth, still fits into memory.
const BLOCK_BYTES_MOST: u64 = 64 << 20;
/// Greatest queue depth: the entries of one submission ring are of this order.
const QUEUE_DEPTH_MOST: u64 = 4096;

/// One test.
pub(super) fn read(
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
