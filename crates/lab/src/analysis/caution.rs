//! What to know before believing the figures.
//!
//! Some of it the runner noted, some of it the figures show by themselves: a
//! queue that was not as deep as asked, a rate that still moved.

use std::collections::BTreeMap;

use super::{spread, words};
use crate::model::{Cell, NoteKind, Run};
use crate::units;

/// Below this share of the asked depth the reached one is told.
const DEPTH_SHARE_LEAST: f64 = 0.9;
/// A rate that moved by more than this share is not steady: the bound that SNIA's performance
/// test specification sets for the slope over its measurement window.
const DRIFT_MOST: f64 = 0.1;
/// Above this share of the processors, what else ran before the run may have gone on in it.
const LOAD_SHARE_MOST: f64 = 0.5;
/// Most cells that one caution names.
const NAMES_MOST: usize = 4;

/// Every caution, what concerns the whole run first, then kind by kind.
pub(super) fn all(run: &Run) -> Vec<String> {
    let mut cautions = of_run(run);
    let mut by_kind: BTreeMap<NoteKind, Vec<String>> = BTreeMap::new();
    for cell in &run.cells {
        for (kind, text) in of_cell(run, cell) {
            let place = place(run, cell);
            by_kind.entry(kind).or_default().push(format!("{place} ({text})"));
        }
    }
    for (kind, places) in by_kind {
        let rest = places.len().saturating_sub(NAMES_MOST);
        let mut named: Vec<String> = places.into_iter().take(NAMES_MOST).collect();
        if rest > 0 {
            named.push(format!("{rest} more, marked in the tables"));
        }
        cautions.push(format!("{}: {}.", heading(kind), words::list(&named)));
    }
    cautions
}

/// Notes of a cell: the runner's, and those its figures call for.
pub fn of_cell(run: &Run, cell: &Cell) -> Vec<(NoteKind, String)> {
    let mut notes: Vec<(NoteKind, String)> =
        cell.notes.iter().map(|note| (note.kind, note.text.clone())).collect();
    let has = |kind| cell.notes.iter().any(|note| note.kind == kind);
    let errors = cell.reads.errors + cell.writes.errors;
    if errors > 0 && !has(NoteKind::Errors) {
        notes.push((NoteKind::Errors, format!("{} I/Os ended in errors", units::exact(errors))));
    }
    if !cell.is_valid() {
        // Why it does not count says enough.
        return notes;
    }
    let asked = f64::from(cell.queue_depth_asked);
    if let Some(reached) = cell.queue_depth_reached
        && reached < DEPTH_SHARE_LEAST * asked
        && !has(NoteKind::DepthNotReached)
    {
        let text =
            format!("asked {}, reached {}", cell.queue_depth_asked, units::significant(reached));
        notes.push((NoteKind::DepthNotReached, text));
    }
    let metric = run.tests[cell.test].metric();
    if let Some(drift) = spread::drift(cell, metric)
        && drift.abs() > DRIFT_MOST
        && !has(NoteKind::NotSteady)
    {
        let direction = if drift > 0.0 { "rose" } else { "fell" };
        let text = format!("{direction} by {}", words::percent(drift.abs()));
        notes.push((NoteKind::NotSteady, text));
    }
    notes
}

fn of_run(run: &Run) -> Vec<String> {
    let mut cautions = Vec::new();
    if !run.is_complete() {
        cautions.push(format!(
            "The run is not complete: {} of {} cells were measured.",
            run.cells.len(),
            run.cells_planned
        ));
    }
    let cached: Vec<String> = run
        .conditions
        .drives
        .iter()
        .filter(|drive| drive.direct_io == Some(false))
        .map(|drive| drive.path.clone())
        .collect();
    if !cached.is_empty() {
        cautions.push(format!(
            "Direct I/O is not real on {}: the figures are those of the page cache.",
            words::list(&cached)
        ));
    }
    cautions.extend(shared_disk(run));
    let count = run.conditions.cpu_count;
    if let Some(load) = run.conditions.load_average
        && load > LOAD_SHARE_MOST * f64::from(count)
    {
        cautions.push(format!(
            "The machine was busy when the run began: {} tasks ran or waited for {count} processors.",
            units::trimmed(load, 1)
        ));
    }
    if run.conditions.data_entropy_bits < 8.0 {
        cautions.push(format!(
            "The data written holds {} bits a byte: drives that compress are faster with it than with real data.",
            units::trimmed(run.conditions.data_entropy_bits, 2)
        ));
    }
    cautions
}

/// Files on one file system are no separate drives, whatever the array makes of them.
fn shared_disk(run: &Run) -> Option<String> {
    let kinds = run.conditions.drives.iter().map(|drive| drive.kind.as_str());
    let mut files: Vec<&str> = kinds.filter(|kind| kind.starts_with("file on ")).collect();
    files.sort_unstable();
    let shared = files.windows(2).find(|pair| pair[0] == pair[1])?[0];
    Some(format!(
        "Several drives are each a {shared}, and so share one disk: the figures show what a level costs, \
         not what separate drives would gain."
    ))
}

/// Where a cell stands, in words.
fn place(run: &Run, cell: &Cell) -> String {
    let test = &run.tests[cell.test];
    let at = words::at_point(test, cell.point());
    format!("{}, {}{at}", run.subjects[cell.subject].name, test.name)
}

fn heading(kind: NoteKind) -> &'static str {
    match kind {
        NoteKind::NotMeasured => "Not measured",
        NoteKind::Errors => "Not counted because of errors",
        NoteKind::Interrupted => "Not counted because cut short",
        NoteKind::CacheMeasured => "Not counted because a cache was measured",
        NoteKind::DepthNotReached => "The queue was not as deep as asked",
        NoteKind::NotSteady => "The rate still changed while it was measured",
        NoteKind::Unwritten => "Parts that were never written may have been read",
        NoteKind::Remark => "Remarks",
    }
}
