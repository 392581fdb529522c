//! The store: one SQLite file in the directory of a run.
//!
//! Each cell is committed as it ends, so an interrupted run keeps what it
//! measured. Raw latency histograms are kept, so that every percentile can be
//! asked for later. The schema is documented in `docs/store.md`; its version is
//! SQLite's `user_version`.
//!
//! While a run is written the file uses a write-ahead log. When it ends the log
//! is folded in, so that a finished run is one file that can be read from
//! anywhere, a read-only medium included.

mod read;
mod write;

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use crate::model::{Cell, Run};

/// Name of the file in the directory of a run.
pub const FILE_NAME: &str = "run.sqlite";

/// Steps from an empty file to the present schema. Step n leads to `user_version` n + 1;
/// a step that was published is never changed.
const MIGRATIONS: [&str; 1] = [include_str!("store/schema.sql")];

/// Version of the present schema.
pub const VERSION: u32 = MIGRATIONS.len() as u32;

/// A run's file, open for writing.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    path: PathBuf,
}

/// A run in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSummary {
    /// Name of the run.
    pub id: String,
    /// Headline.
    pub title: String,
    /// When it began, in seconds since 1970.
    pub started_unix_s: u64,
    /// When it ended; absent while running and after an interruption.
    pub finished_unix_s: Option<u64>,
    /// Cells of the plan.
    pub cells_planned: usize,
    /// Cells that were measured.
    pub cells_measured: usize,
}

/// One run of a list.
#[derive(Debug)]
pub struct ListedRun {
    /// Where it is.
    pub directory: PathBuf,
    /// Its head, or why it can't be read.
    pub summary: Result<RunSummary, StoreError>,
}

/// Why a store can't be written or read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The directory has no run in it.
    #[error("no run in {}", .0.display())]
    NoRun(PathBuf),
    /// The directory already has a run in it.
    #[error("{} already holds a run", .0.display())]
    Occupied(PathBuf),
    /// Written by another version than this one.
    #[error("{} has schema version {found}, this program reads {VERSION}", .path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// A directory can't be made or read.
    #[error("cannot use {}", .path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// SQLite could not do it: a full disk, a damaged file.
    #[error("cannot use {}", .path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// Content that no version of this program writes.
    #[error("{} is damaged: {what}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Which part.
        what: &'static str,
    },
}

impl Store {
    /// Makes the directory, if need be, and a file with the run's head. Cells of `run` are written
    /// too.
    ///
    /// # Errors
    ///
    /// A directory that holds a run already, or can't be written to.
    pub fn create(directory: &Path, run: &Run) -> Result<Self, StoreError> {
        std::fs::create_dir_all(directory)
            .map_err(|source| StoreError::Directory { path: directory.to_owned(), source })?;
        let path = directory.join(FILE_NAME);
        if path.exists() {
            return Err(StoreError::Occupied(directory.to_owned()));
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let mut store = Self::open_file(path, flags)?;
        store.set_up()?;
        store.write_head(run)?;
        for cell in &run.cells {
            store.record(cell)?;
        }
        if let Some(unix_s) = run.finished_unix_s {
            store.finish(unix_s)?;
        }
        Ok(store)
    }

    /// Opens an interrupted run to go on with it. A schema of an earlier version is brought up to
    /// date.
    ///
    /// # Errors
    ///
    /// No run, one of a later version, or a file that can't be written to.
    pub fn resume(directory: &Path) -> Result<Self, StoreError> {
        let path = existing(directory)?;
        let mut store = Self::open_file(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        store.set_up()?;
        Ok(store)
    }

    /// Brings conditions and subjects up to what is known by now. Their number stays.
    ///
    /// # Errors
    ///
    /// A full disk.
    pub fn update_head(&mut self, run: &Run) -> Result<(), StoreError> {
        let written = write::update_head(&mut self.connection, run);
        written.map_err(|source| self.sqlite(source))
    }

    /// Writes one cell, for good. A cell at the same point is replaced.
    ///
    /// # Errors
    ///
    /// A full disk, or a subject or test that the run does not have.
    pub fn record(&mut self, cell: &Cell) -> Result<(), StoreError> {
        let written = write::cell(&mut self.connection, cell);
        written.map_err(|source| self.sqlite(source))
    }

    /// Marks the run as finished and folds the log into the file.
    ///
    /// # Errors
    ///
    /// A full disk.
    pub fn finish(&mut self, unix_s: u64) -> Result<(), StoreError> {
        write::finish(&self.connection, unix_s).map_err(|source| self.sqlite(source))
    }

    /// The whole run as it is stored.
    ///
    /// # Errors
    ///
    /// A damaged file.
    pub fn load(&self) -> Result<Run, StoreError> {
        read::run(&self.connection, &self.path)
    }

    fn open_file(path: PathBuf, flags: OpenFlags) -> Result<Self, StoreError> {
        let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        match Connection::open_with_flags(&path, flags) {
            Ok(connection) => Ok(Self { connection, path }),
            Err(source) => Err(StoreError::Sqlite { path, source }),
        }
    }

    /// Settings of a writer, and the present schema.
    fn set_up(&mut self) -> Result<(), StoreError> {
        // FULL: a cell is on the disk when `record` returns, whatever happens next.
        let settings =
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;";
        self.connection.execute_batch(settings).map_err(|source| self.sqlite(source))?;
        let found = self.version()?;
        if found > VERSION {
            return Err(StoreError::Version { path: self.path.clone(), found });
        }
        write::migrate(&mut self.connection, &MIGRATIONS, found)
            .map_err(|source| self.sqlite(source))
    }

    fn write_head(&mut self, run: &Run) -> Result<(), StoreError> {
        write::head(&mut self.connection, run).map_err(|source| self.sqlite(source))
    }

    fn version(&self) -> Result<u32, StoreError> {
        self.connection
            .query_row("PRAGMA user_version", [], |row| row.get(0))
            .map_err(|source| self.sqlite(source))
    }

    fn sqlite(&self, source: rusqlite::Error) -> StoreError {
        StoreError::Sqlite { path: self.path.clone(), source }
    }
}

/// Reads the run in a directory; nothing is written.
///
/// # Errors
///
/// No run, another version, or a damaged file.
pub fn load(directory: &Path) -> Result<Run, StoreError> {
    open_read_only(directory)?.load()
}

/// Reads the head of the run in a directory; nothing is written.
///
/// # Errors
///
/// No run, another version, or a damaged file.
pub fn summary(directory: &Path) -> Result<RunSummary, StoreError> {
    let store = open_read_only(directory)?;
    read::summary(&store.connection, &store.path)
}

/// Every directory below `parent` that holds a run, by name.
///
/// # Errors
///
/// A directory that can't be read.
pub fn list(parent: &Path) -> Result<Vec<ListedRun>, StoreError> {
    let failed = |source| StoreError::Directory { path: parent.to_owned(), source };
    let mut directories = Vec::new();
    for entry in std::fs::read_dir(parent).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.join(FILE_NAME).is_file() {
            directories.push(path);
        }
    }
    directories.sort();
    let listed = |directory: PathBuf| ListedRun { summary: summary(&directory), directory };
    Ok(directories.into_iter().map(listed).collect())
}

fn existing(directory: &Path) -> Result<PathBuf, StoreError> {
    let path = directory.join(FILE_NAME);
    if path.is_file() { Ok(path) } else { Err(StoreError::NoRun(directory.to_owned())) }
}

fn open_read_only(directory: &Path) -> Result<Store, StoreError> {
    let store = Store::open_file(existing(directory)?, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let found = store.version()?;
    if found != VERSION {
        return Err(StoreError::Version { path: store.path, found });
    }
    Ok(store)
}

#[cfg(test)]
mod tests;
