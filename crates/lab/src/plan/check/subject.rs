//! The `[[subjects]]` of a plan.

use std::collections::BTreeSet;

use geometry::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, Geometry, Level, Shape};

use super::{BYTES_MOST, Defaults, unique_name};
use crate::plan::error::{PlanError, PlanErrorKind};
use crate::plan::reader::{Table, Value};
use crate::plan::{ArrayShape, DriveSource, Storage, Subject};
use crate::units::plan_size;

/// Smallest file drive: below this an array's metadata is a large part of it.
const DRIVE_BYTES_LEAST: u64 = 16 << 20;
/// Most file drives of a subject.
const DRIVES_MOST: u64 = 384;
/// The level of a drive without an array.
const SINGLE: &str = "single";
/// A level that is another one with the smallest chunk.
const RAID3: &str = "raid3";
/// Chunk and member size to check a shape with where the plan leaves them open:
/// counts and layouts don't depend on them.
const NOMINAL_CHUNK_BYTES: u64 = 64 << 10;
const NOMINAL_MEMBER_BYTES: u64 = 1 << 30;

/// One subject.
pub(super) fn read(
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

/// The drives of a subject: files to be made, or paths.
pub(super) fn drives(value: &Value<'_>) -> Result<Vec<DriveSource>, Box<PlanError>> {
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
pub(super) fn settle_baseline(
    subjects: &mut [Subject],
    list: &Value<'_>,
) -> Result<(), Box<PlanError>> {
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
