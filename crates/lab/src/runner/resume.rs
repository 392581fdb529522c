//! An interrupted run, found and checked before it is gone on with.

use std::path::{Path, PathBuf};

use super::{LabError, RUNS};
use crate::model::{Cell, NoteKind, Run};
use crate::store::{self, Store, StoreError};

/// Opens the run in `directory`, or else the newest one of the same plan, to go on with it. `head`
/// is the run as it would begin now. Cells that were interrupted are forgotten: they are measured
/// again.
///
/// # Errors
/// When there is none, or it was run under other conditions.
pub(super) fn open(
    directory: Option<&Path>,
    head: &Run,
) -> Result<(PathBuf, Store, Run), LabError> {
    let directory = match directory {
        Some(directory) => directory.to_owned(),
        None => newest(head)?,
    };
    let store = match Store::resume(&directory) {
        Err(StoreError::NoRun(place)) => return Err(LabError::NothingToResume { place }),
        store => store?,
    };
    let mut run = store.load()?;
    if run.finished_unix_s.is_some() || run.plan_text != head.plan_text {
        return Err(LabError::NothingToResume { place: directory });
    }
    if let Some(what) = difference(&run, head) {
        return Err(LabError::OtherConditions { directory, what });
    }
    run.cells.retain(is_whole);
    Ok((directory, store, run))
}

/// Whether a cell was measured to its end.
fn is_whole(cell: &Cell) -> bool {
    let unmeasured = |kind| matches!(kind, NoteKind::Interrupted | NoteKind::NotMeasured);
    !cell.notes.iter().any(|note| unmeasured(note.kind))
}

fn newest(head: &Run) -> Result<PathBuf, LabError> {
    let place = PathBuf::from(RUNS);
    let nothing = || LabError::NothingToResume { place: place.clone() };
    let listed = store::list(&place).map_err(|_| nothing())?;
    let open = listed.into_iter().filter_map(|listed| {
        let summary = listed.summary.ok().filter(|summary| summary.finished_unix_s.is_none())?;
        Some((summary.started_unix_s, listed.directory))
    });
    let mut open: Vec<_> = open.collect();
    open.sort();
    let same = |directory: &PathBuf| {
        store::load(directory).is_ok_and(|run| run.plan_text == head.plan_text)
    };
    open.into_iter().rev().map(|(_, directory)| directory).find(same).ok_or_else(nothing)
}

/// What keeps figures of two sittings from being compared.
fn difference(then: &Run, now: &Run) -> Option<&'static str> {
    let (then, now) = (&then.conditions, &now.conditions);
    if then.host != now.host {
        Some("host")
    } else if then.kernel != now.kernel {
        Some("kernel")
    } else if then.version != now.version {
        Some("version of backplane")
    } else if (&then.cpu, then.cpu_count) != (&now.cpu, now.cpu_count) {
        Some("processor")
    } else {
        None
    }
}
