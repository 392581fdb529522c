//! What is written is read back, whatever happens in between.

use super::*;
use crate::made_up;
use crate::model::{Note, NoteKind};

#[test]
fn a_run_returns_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let mut run = made_up::run();
    // Every kind of blank, and notes.
    run.cells[0].series.samples[3] = None;
    run.cells[1].drive_traffic = None;
    run.cells[1].cpu_ns = None;
    run.cells[1].queue_depth_reached = None;
    run.cells[2].notes = NoteKind::ALL.map(|kind| Note { kind, text: kind.name().into() }).into();
    Store::create(directory.path(), &run).unwrap();
    assert!(load(directory.path()).unwrap() == run);
}

#[test]
fn an_interrupted_run_keeps_what_it_measured_and_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let whole = made_up::run();
    let mut head = whole.clone();
    head.cells.clear();
    head.finished_unix_s = None;
    let mut store = Store::create(directory.path(), &head).unwrap();
    for cell in &whole.cells[..3] {
        store.record(cell).unwrap();
    }
    // Read while it is written, as a report of a running run does.
    assert_eq!(load(directory.path()).unwrap().cells.len(), 3);
    // The process dies: what is on the disk then is what a copy finds now.
    let left = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, left.path().join(path.file_name().unwrap())).unwrap();
    }
    drop(store);
    let directory = left;
    let found = load(directory.path()).unwrap();
    assert_eq!(found.cells, whole.cells[..3]);
    assert_eq!((found.finished_unix_s, found.is_complete()), (None, false));
    let line = summary(directory.path()).unwrap();
    assert_eq!((line.cells_measured, line.cells_planned), (3, whole.cells.len()));

    let mut store = Store::resume(directory.path()).unwrap();
    // A cell measured again takes the place of the old one.
    for cell in &whole.cells[2..] {
        store.record(cell).unwrap();
    }
    store.finish(whole.finished_unix_s.unwrap()).unwrap();
    assert!(store.load().unwrap() == whole);
    drop(store);
    assert!(load(directory.path()).unwrap() == whole);
}

#[test]
fn a_finished_run_is_one_file() {
    let directory = tempfile::tempdir().unwrap();
    Store::create(directory.path(), &made_up::run()).unwrap();
    let names: Vec<_> = std::fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, [FILE_NAME]);
}

#[test]
fn runs_are_listed_by_name_and_broken_ones_say_why() {
    let parent = tempfile::tempdir().unwrap();
    let mut run = made_up::run();
    run.cells.truncate(1);
    Store::create(&parent.path().join("b"), &run).unwrap();
    Store::create(&parent.path().join("a"), &run).unwrap();
    std::fs::create_dir(parent.path().join("empty")).unwrap();
    std::fs::create_dir(parent.path().join("c")).unwrap();
    std::fs::write(parent.path().join("c").join(FILE_NAME), b"no database at all, only text")
        .unwrap();
    let runs = list(parent.path()).unwrap();
    let names: Vec<_> = runs.iter().map(|run| run.directory.file_name().unwrap()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(runs[0].summary.as_ref().unwrap().id, run.id);
    assert!(matches!(runs[2].summary, Err(StoreError::Sqlite { .. })));
}

#[test]
fn wrong_places_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    assert!(matches!(load(path), Err(StoreError::NoRun(_))));
    assert!(matches!(Store::resume(path), Err(StoreError::NoRun(_))));
    assert!(matches!(list(&path.join("missing")), Err(StoreError::Directory { .. })));

    let mut run = made_up::run();
    run.cells.truncate(1);
    Store::create(path, &run).unwrap();
    assert!(matches!(Store::create(path, &run), Err(StoreError::Occupied(_))));

    // A cell of no subject is not stored, and nothing of it stays behind.
    let mut store = Store::resume(path).unwrap();
    let mut stray = run.cells[0].clone();
    stray.subject = 99;
    assert!(matches!(store.record(&stray), Err(StoreError::Sqlite { .. })));
    assert!(store.load().unwrap() == run);

    store.connection.pragma_update(None, "user_version", VERSION + 1).unwrap();
    drop(store);
    assert!(matches!(load(path), Err(StoreError::Version { found, .. }) if found == VERSION + 1));
    assert!(matches!(Store::resume(path), Err(StoreError::Version { .. })));
}

#[test]
fn damage_is_found_and_named() {
    let damages = [
        ("DELETE FROM run", "the head of the run is missing"),
        ("UPDATE run SET conditions = '{}'", "the conditions"),
        ("UPDATE subject SET record = 'x'", "a subject"),
        ("UPDATE test SET record = '[]'", "a test"),
        ("DELETE FROM test WHERE position = 5", "a cell of no subject or test"),
        ("UPDATE cell SET intervals = 0", "a sample of no interval"),
        ("DELETE FROM cell WHERE id = 1", "figures of no cell"),
        ("INSERT INTO note VALUES (1, 0, 'mood', 'x')", "a note's kind"),
    ];
    let mut run = made_up::run();
    run.cells.truncate(16);
    run.cells.drain(..15);
    for (statement, expected) in damages {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::create(directory.path(), &run).unwrap();
        store.connection.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
        store.connection.execute(statement, []).unwrap();
        match store.load() {
            Err(StoreError::Damaged { what, .. }) => assert_eq!(what, expected, "{statement}"),
            other => panic!("{statement}: {other:?}"),
        }
    }
}
