//! Writing: the schema, the head of a run, its cells.

use rusqlite::{Connection, ErrorCode, Result, Transaction, params};
use serde::Serialize;

use crate::model::{Cell, DirectionFigures, Run};

/// Takes the file from version `from` to that of the last step, each step whole or not at all.
pub(super) fn migrate(connection: &mut Connection, steps: &[&str], from: u32) -> Result<()> {
    for (index, step) in steps.iter().enumerate().skip(from as usize) {
        let transaction = connection.transaction()?;
        transaction.execute_batch(step)?;
        transaction.pragma_update(None, "user_version", index as u32 + 1)?;
        transaction.commit()?;
    }
    Ok(())
}

/// Writes all of a run but its cells.
pub(super) fn head(connection: &mut Connection, run: &Run) -> Result<()> {
    let transaction = connection.transaction()?;
    transaction.execute(
        "INSERT INTO run (id, title, plan_text, conditions, cells_planned, started_unix_s)
         VALUES (?, ?, ?, ?, ?, ?)",
        params![
            run.id,
            run.title,
            run.plan_text,
            json(&run.conditions)?,
            integer(run.cells_planned as u64)?,
            integer(run.conditions.started_unix_s)?,
        ],
    )?;
    for (position, subject) in run.subjects.iter().enumerate() {
        transaction.execute(
            "INSERT INTO subject (position, name, record) VALUES (?, ?, ?)",
            params![integer(position as u64)?, subject.name, json(subject)?],
        )?;
    }
    for (position, test) in run.tests.iter().enumerate() {
        transaction.execute(
            "INSERT INTO test (position, name, record) VALUES (?, ?, ?)",
            params![integer(position as u64)?, test.name, json(test)?],
        )?;
    }
    transaction.commit()
}

/// Replaces what becomes known while a run goes on: conditions and subjects.
pub(super) fn update_head(connection: &mut Connection, run: &Run) -> Result<()> {
    let transaction = connection.transaction()?;
    transaction.execute("UPDATE run SET conditions = ?", [json(&run.conditions)?])?;
    for (position, subject) in run.subjects.iter().enumerate() {
        transaction.execute(
            "UPDATE subject SET record = ? WHERE position = ?",
            params![json(subject)?, integer(position as u64)?],
        )?;
    }
    transaction.commit()
}

/// Writes one cell with all that belongs to it, in place of one at the same point.
pub(super) fn cell(connection: &mut Connection, cell: &Cell) -> Result<()> {
    let transaction = connection.transaction()?;
    transaction.execute(
        "DELETE FROM cell WHERE subject = ? AND test = ? AND block_bytes IS ?
         AND queue_depth_asked = ?",
        params![
            integer(cell.subject as u64)?,
            integer(cell.test as u64)?,
            cell.block_bytes.map(integer).transpose()?,
            cell.queue_depth_asked,
        ],
    )?;
    let traffic = cell.drive_traffic;
    let traffic = |pick: fn(&crate::model::DriveTraffic) -> u64| {
        traffic.as_ref().map(|traffic| integer(pick(traffic))).transpose()
    };
    transaction.execute(
        "INSERT INTO cell (subject, test, block_bytes, queue_depth_asked, queue_depth_reached,
             measured_ns, ramp_ns, working_set_bytes, interval_ns, intervals,
             drive_read_ios, drive_read_bytes, drive_write_ios, drive_write_bytes,
             cpu_ns)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        params![
            integer(cell.subject as u64)?,
            integer(cell.test as u64)?,
            cell.block_bytes.map(integer).transpose()?,
            cell.queue_depth_asked,
            cell.queue_depth_reached,
            integer(cell.measured_ns)?,
            integer(cell.ramp_ns)?,
            integer(cell.working_set_bytes)?,
            integer(cell.series.interval_ns)?,
            integer(cell.series.samples.len() as u64)?,
            traffic(|traffic| traffic.read_ios)?,
            traffic(|traffic| traffic.read_bytes)?,
            traffic(|traffic| traffic.write_ios)?,
            traffic(|traffic| traffic.write_bytes)?,
            cell.cpu_ns.map(integer).transpose()?,
        ],
    )?;
    let id = transaction.last_insert_rowid();
    direction(&transaction, id, "read", &cell.reads)?;
    direction(&transaction, id, "write", &cell.writes)?;
    for (interval, sample) in cell.series.samples.iter().enumerate() {
        let Some(sample) = sample else { continue };
        transaction.execute(
            "INSERT INTO sample (cell, interval, ios, bytes, latency_ns_mean)
             VALUES (?, ?, ?, ?, ?)",
            params![
                id,
                integer(interval as u64)?,
                integer(sample.ios)?,
                integer(sample.bytes)?,
                sample.latency_ns_mean
            ],
        )?;
    }
    for (position, note) in cell.notes.iter().enumerate() {
        transaction.execute(
            "INSERT INTO note (cell, position, kind, text) VALUES (?, ?, ?, ?)",
            params![id, integer(position as u64)?, note.kind.name(), note.text],
        )?;
    }
    transaction.commit()
}

fn direction(
    transaction: &Transaction<'_>,
    cell: i64,
    name: &str,
    figures: &DirectionFigures,
) -> Result<()> {
    let latency = figures.latency.as_ref();
    let nanoseconds = |pick: fn(&crate::model::Latency) -> u64| {
        latency.map(|latency| integer(pick(latency))).transpose()
    };
    transaction.execute(
        "INSERT INTO direction (cell, direction, ios, bytes, errors, mean_ns, min_ns, p50_ns,
             p90_ns, p99_ns, p999_ns, p9999_ns, max_ns, histogram)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        params![
            cell,
            name,
            integer(figures.ios)?,
            integer(figures.bytes)?,
            integer(figures.errors)?,
            latency.map(|latency| latency.mean_ns),
            nanoseconds(|latency| latency.min_ns)?,
            nanoseconds(|latency| latency.p50_ns)?,
            nanoseconds(|latency| latency.p90_ns)?,
            nanoseconds(|latency| latency.p99_ns)?,
            nanoseconds(|latency| latency.p999_ns)?,
            nanoseconds(|latency| latency.p9999_ns)?,
            nanoseconds(|latency| latency.max_ns)?,
            latency.map(|latency| latency.histogram.as_slice()),
        ],
    )?;
    Ok(())
}

/// Marks the end and leaves one file behind.
pub(super) fn finish(connection: &Connection, unix_s: u64) -> Result<()> {
    connection.execute("UPDATE run SET finished_unix_s = ?", [integer(unix_s)?])?;
    // Leaving WAL mode folds the log into the file and removes it. While someone reads, that
    // can't be done; nothing is lost by it, the log is only another file to keep.
    match connection.execute_batch("PRAGMA journal_mode = DELETE") {
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => Ok(()),
        result => result,
    }
}

/// SQLite's integers are signed.
fn integer(value: u64) -> Result<i64> {
    i64::try_from(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}

fn json<T: Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}
