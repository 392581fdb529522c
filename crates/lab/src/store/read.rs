//! Reading a run back.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::{Connection, OptionalExtension, Row};
use serde::de::DeserializeOwned;

use super::{RunSummary, StoreError};
use crate::model::{
    Cell, DirectionFigures, DriveTraffic, Latency, Note, NoteKind, Run, Sample, Series,
};

/// A connection with the name of its file for errors.
struct Reader<'a> {
    connection: &'a Connection,
    path: &'a Path,
}

/// The whole run.
pub(super) fn run(connection: &Connection, path: &Path) -> Result<Run, StoreError> {
    let reader = Reader { connection, path };
    let (summary, plan_text, conditions) = reader.head()?;
    let mut run = Run {
        id: summary.id,
        title: summary.title,
        plan_text,
        conditions: reader.json(&conditions, "the conditions")?,
        subjects: reader.records("SELECT record FROM subject ORDER BY position", "a subject")?,
        tests: reader.records("SELECT record FROM test ORDER BY position", "a test")?,
        cells_planned: summary.cells_planned,
        cells: reader.cells()?,
        finished_unix_s: summary.finished_unix_s,
    };
    let known = |cell: &Cell| cell.subject < run.subjects.len() && cell.test < run.tests.len();
    if !run.cells.iter().all(known) {
        return Err(reader.damaged("a cell of no subject or test"));
    }
    // Descriptions may name drives by index; the report relies on them.
    let drives = run.conditions.drives.len();
    for subject in &mut run.subjects {
        subject.drives.retain(|drive| *drive < drives);
    }
    Ok(run)
}

/// The head of a run.
pub(super) fn summary(connection: &Connection, path: &Path) -> Result<RunSummary, StoreError> {
    Ok(Reader { connection, path }.head()?.0)
}

impl Reader<'_> {
    fn sqlite(&self, source: rusqlite::Error) -> StoreError {
        StoreError::Sqlite { path: self.path.to_owned(), source }
    }

    fn damaged(&self, what: &'static str) -> StoreError {
        StoreError::Damaged { path: self.path.to_owned(), what }
    }

    fn json<T: DeserializeOwned>(&self, text: &str, what: &'static str) -> Result<T, StoreError> {
        serde_json::from_str(text).map_err(|_| self.damaged(what))
    }

    /// Summary, plan text and conditions as JSON.
    fn head(&self) -> Result<(RunSummary, String, String), StoreError> {
        let query = "SELECT id, title, started_unix_s, finished_unix_s, cells_planned,
                         (SELECT count(*) FROM cell), plan_text, conditions FROM run";
        let row = self
            .connection
            .query_row(query, [], |row| {
                let summary = RunSummary {
                    id: row.get(0)?,
                    title: row.get(1)?,
                    started_unix_s: unsigned(row, 2)?,
                    finished_unix_s: maybe_unsigned(row, 3)?,
                    cells_planned: unsigned(row, 4)? as usize,
                    cells_measured: unsigned(row, 5)? as usize,
                };
                Ok((summary, row.get(6)?, row.get(7)?))
            })
            .optional()
            .map_err(|source| self.sqlite(source))?;
        row.ok_or_else(|| self.damaged("the head of the run is missing"))
    }

    fn records<T: DeserializeOwned>(
        &self,
        query: &str,
        what: &'static str,
    ) -> Result<Vec<T>, StoreError> {
        let texts: Vec<String> = self.rows(query, |row| row.get(0))?;
        texts.iter().map(|text| self.json(text, what)).collect()
    }

    fn rows<T>(
        &self,
        query: &str,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        let rows = || {
            let mut statement = self.connection.prepare(query)?;
            statement.query_map([], read)?.collect::<rusqlite::Result<Vec<T>>>()
        };
        rows().map_err(|source| self.sqlite(source))
    }

    fn cells(&self) -> Result<Vec<Cell>, StoreError> {
        let mut cells: BTreeMap<i64, Cell> = self
            .rows(
                "SELECT id, subject, test, block_bytes, queue_depth_asked, queue_depth_reached,
                     measured_ns, ramp_ns, working_set_bytes, interval_ns, intervals,
                     drive_read_ios, drive_read_bytes, drive_write_ios, drive_write_bytes,
                     cpu_ns
                 FROM cell",
                |row| Ok((row.get(0)?, cell(row)?)),
            )?
            .into_iter()
            .collect();
        let directions = self.rows(
            "SELECT cell, direction, ios, bytes, errors, mean_ns, min_ns, p50_ns, p90_ns, p99_ns,
                 p999_ns, p9999_ns, max_ns, histogram
             FROM direction",
            |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, direction(row)?)),
        )?;
        for (id, name, figures) in directions {
            let cell = cells.get_mut(&id).ok_or_else(|| self.damaged("figures of no cell"))?;
            match name.as_str() {
                "read" => cell.reads = figures,
                _ => cell.writes = figures,
            }
        }
        let samples =
            self.rows("SELECT cell, interval, ios, bytes, latency_ns_mean FROM sample", |row| {
                let sample = Sample {
                    ios: unsigned(row, 2)?,
                    bytes: unsigned(row, 3)?,
                    latency_ns_mean: row.get(4)?,
                };
                Ok((row.get::<_, i64>(0)?, unsigned(row, 1)? as usize, sample))
            })?;
        for (id, interval, sample) in samples {
            let slot = cells.get_mut(&id).and_then(|cell| cell.series.samples.get_mut(interval));
            *slot.ok_or_else(|| self.damaged("a sample of no interval"))? = Some(sample);
        }
        let notes = self
            .rows("SELECT cell, kind, text FROM note ORDER BY cell, position", |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, row.get(2)?))
            })?;
        for (id, kind, text) in notes {
            let kind = NoteKind::from_name(&kind).ok_or_else(|| self.damaged("a note's kind"))?;
            let cell = cells.get_mut(&id).ok_or_else(|| self.damaged("a note of no cell"))?;
            cell.notes.push(Note { kind, text });
        }
        Ok(cells.into_values().collect())
    }
}

/// Most intervals of a series: a day in steps of ten milliseconds would be less. A damaged
/// count must not ask for all memory.
const INTERVALS_MOST: u64 = 10_000_000;

fn cell(row: &Row<'_>) -> rusqlite::Result<Cell> {
    let intervals = unsigned(row, 10)?;
    if intervals > INTERVALS_MOST {
        return Err(rusqlite::Error::IntegralValueOutOfRange(10, intervals as i64));
    }
    let drive_traffic = match maybe_unsigned(row, 11)? {
        Some(read_ios) => Some(DriveTraffic {
            read_ios,
            read_bytes: unsigned(row, 12)?,
            write_ios: unsigned(row, 13)?,
            write_bytes: unsigned(row, 14)?,
        }),
        None => None,
    };
    Ok(Cell {
        subject: unsigned(row, 1)? as usize,
        test: unsigned(row, 2)? as usize,
        block_bytes: maybe_unsigned(row, 3)?,
        queue_depth_asked: row.get(4)?,
        queue_depth_reached: row.get(5)?,
        measured_ns: unsigned(row, 6)?,
        ramp_ns: unsigned(row, 7)?,
        working_set_bytes: unsigned(row, 8)?,
        reads: DirectionFigures::default(),
        writes: DirectionFigures::default(),
        series: Series { interval_ns: unsigned(row, 9)?, samples: vec![None; intervals as usize] },
        drive_traffic,
        cpu_ns: maybe_unsigned(row, 15)?,
        notes: Vec::new(),
    })
}

fn direction(row: &Row<'_>) -> rusqlite::Result<DirectionFigures> {
    let latency = match row.get::<_, Option<f64>>(5)? {
        Some(mean_ns) => Some(Latency {
            mean_ns,
            min_ns: unsigned(row, 6)?,
            p50_ns: unsigned(row, 7)?,
            p90_ns: unsigned(row, 8)?,
            p99_ns: unsigned(row, 9)?,
            p999_ns: unsigned(row, 10)?,
            p9999_ns: unsigned(row, 11)?,
            max_ns: unsigned(row, 12)?,
            histogram: row.get::<_, Option<Vec<u8>>>(13)?.unwrap_or_default(),
        }),
        None => None,
    };
    Ok(DirectionFigures {
        ios: unsigned(row, 2)?,
        bytes: unsigned(row, 3)?,
        errors: unsigned(row, 4)?,
        latency,
    })
}

fn unsigned(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let value: i64 = row.get(column)?;
    u64::try_from(value).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, value))
}

fn maybe_unsigned(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<u64>> {
    match row.get::<_, Option<i64>>(column)? {
        Some(_) => unsigned(row, column).map(Some),
        None => Ok(None),
    }
}
