//! `backplane array extract`: the whole logical content of an array into a file.
//!
//! Reading goes on while what was read is written: a few requests are always under way, and
//! their results are taken in order. Pieces that are zero stay holes in a file.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use array::{Array, AssembleError, Health};
use clap::Args;
use drive::{Drive, DriveError};
use format::md::ArrayState;
use format::md::Refusal;
use world::{BufMut, ReadBufs, Task, World};

use crate::error::{self, Failure};
use crate::look::Look;
use crate::output::Outcome;
use crate::scene::Found;
use crate::session::{self, Ended};
use crate::values::exact_size;

/// One request: long enough to stream from disks.
const PIECE_BYTES: u64 = 1 << 20;

/// Requests under way.
const AHEAD: usize = 8;

/// Holes are made of whole blocks of the common file systems.
const HOLE_BYTES: usize = 4096;

/// Flags of `array extract`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The drives of the array, and folders that hold them
    #[arg(required = true, value_name = "DRIVE|DIR")]
    drives: Vec<PathBuf>,
    /// Where to: a file that does not exist or is empty, or - for standard output
    #[arg(long, value_name = "FILE|-")]
    to: PathBuf,
    /// Which array, where the drives hold several: its name or UUID
    #[arg(long, value_name = "NAME")]
    array: Option<String>,
    /// Overwrite FILE
    #[arg(long)]
    force: bool,
}

/// Why nothing, or not everything, was copied.
#[derive(Debug, thiserror::Error)]
pub enum ExtractError {
    /// It holds something.
    #[error("{} exists and is not empty\n\
         hint: choose another name, or overwrite it with --force", .path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Not a file.
    #[error("{} is not a regular file\n\
         hint: give a file, or - to write into a pipe", .path.display())]
    NotAFile {
        /// As given.
        path: PathBuf,
    },
    /// The output fails, most likely for want of space.
    #[error("writing {} failed at byte {at}: {source}\n\
         hint: {bytes} bytes are needed where the array has data; the partial file was removed",
        .path.display()
    )]
    Output {
        /// The file.
        path: PathBuf,
        /// How far it came.
        at: u64,
        /// Bytes of the array.
        bytes: u64,
        /// The operating system's error.
        source: io::Error,
    },
    /// Whoever reads standard output has gone.
    #[error("writing standard output failed at byte {at}: {source}")]
    Pipe {
        /// How far it came.
        at: u64,
        /// The operating system's error.
        source: io::Error,
    },
    /// Not to be read.
    #[error("array {array} can't be opened\n{}", .reasons.join("\n"))]
    NotReadable {
        /// The array.
        array: String,
        /// What is wrong, side by side for a split brain.
        reasons: Vec<String>,
        /// What the engine says.
        source: OpenFailure,
    },
    /// Data that no member has any more.
    #[error(
        "{array} can't be read at byte {at}\n\
         hint: the partial file was removed; `backplane array scan` says which members \
             would help"
    )]
    Read {
        /// The array.
        array: String,
        /// How far it came.
        at: u64,
        /// What failed.
        source: DriveError,
    },
}

/// The engine's reason in words of its own.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct OpenFailure(String);

impl OpenFailure {
    fn new(error: &AssembleError) -> Self {
        let hint = match error {
            AssembleError::Incomplete { .. } => {
                "\nhint: name the drives of the missing members too; a missing array member may \
                 itself be an array that did not start"
            }
            _ => "",
        };
        OpenFailure(format!("{error}{hint}"))
    }
}

impl Arguments {
    /// Carries it out.
    pub fn run(self) -> Result<Outcome, Failure> {
        session::run(async |world| self.extract(world).await)
    }

    async fn extract(&self, world: &World) -> Result<Ended, Failure> {
        let look = Look::at(world, &self.drives).await?;
        for problem in &look.problems {
            error::warn(problem.to_string().lines().next().unwrap_or_default());
        }
        let scene = look.scene(world).await;
        let found = scene.choose(self.array.as_deref())?;
        let array = readable(&found)?;
        let mut output = Output::open(&self.to, self.force)?;
        let bytes = array.facts().size_bytes;
        let title = found.title();
        if let Err(failure) = copy(world, &title, array, &mut output).await {
            output.remove();
            return Err(failure.into());
        }
        let state = found.state();
        let well = array.status().health != Health::Degraded && found.is_well();
        if !well {
            error::warn(&format!("{title} is {state}: {}", found.reasons().join("; ")));
        }
        anstream::eprintln!("{title}: {} copied", exact_size(bytes));
        Ok(Ended { outcome: Outcome::of(well), hangs: look.hangs() })
    }
}

/// The open array, or everything that is known about why it can't be read.
pub fn readable<'a>(found: &Found<'a>) -> Result<&'a Array, ExtractError> {
    let array = found.array().map_err(|error| ExtractError::NotReadable {
        array: found.title(),
        reasons: found.reasons(),
        source: OpenFailure::new(error),
    })?;
    if found.assembly().state == ArrayState::Refused(Refusal::DirtyDegraded) {
        error::warn(
            "it was not shut down: what was being written then may read as something that never \
             was",
        );
    }
    Ok(array)
}

/// Copies everything in order.
async fn copy(
    world: &World,
    title: &str,
    array: &Array,
    output: &mut Output,
) -> Result<(), ExtractError> {
    let bytes = array.facts().size_bytes;
    let mut asked = 0;
    let mut at = 0;
    let mut under_way: VecDeque<Task<Result<BufMut, DriveError>>> = VecDeque::new();
    while at < bytes {
        while asked < bytes && under_way.len() < AHEAD {
            let length = PIECE_BYTES.min(bytes - asked);
            under_way.push_back(world.spawn(piece(world.clone(), array.clone(), asked, length)));
            asked += length;
        }
        let next = under_way.pop_front().expect("pieces are asked for until the end");
        let piece = next.await.map_err(|source| ExtractError::Read {
            array: title.to_owned(),
            at,
            source,
        })?;
        output.write(&piece).map_err(|source| output.failed(at, bytes, source))?;
        at += piece.len() as u64;
    }
    output.finish(bytes).map_err(|source| output.failed(at, bytes, source))
}

async fn piece(world: World, array: Array, offset: u64, length: u64) -> Result<BufMut, DriveError> {
    let buffer = world.pool().take(length as usize);
    let mut done = array.read(offset, ReadBufs::from_iter([buffer])).await;
    done.result?;
    Ok(done.buffers.pop().expect("one buffer was given"))
}

/// Where the content goes.
struct Output {
    path: PathBuf,
    /// `None`: standard output.
    file: Option<File>,
}

impl Output {
    fn open(path: &Path, force: bool) -> Result<Output, Failure> {
        if path.as_os_str() == "-" {
            return Ok(Output { path: "standard output".into(), file: None });
        }
        if let Ok(status) = fs::metadata(path) {
            if !status.is_file() {
                return Err(ExtractError::NotAFile { path: path.to_owned() }.into());
            }
            if status.len() > 0 && !force {
                return Err(ExtractError::Exists { path: path.to_owned() }.into());
            }
        }
        let file = File::create(path).map_err(|source| ExtractError::Output {
            path: path.to_owned(),
            at: 0,
            bytes: 0,
            source,
        })?;
        Ok(Output { path: path.to_owned(), file: Some(file) })
    }

    fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        let Some(file) = &mut self.file else { return io::stdout().lock().write_all(piece) };
        for block in piece.chunks(HOLE_BYTES) {
            if block.iter().all(|&byte| byte == 0) {
                file.seek(SeekFrom::Current(block.len() as i64))?;
            } else {
                file.write_all(block)?;
            }
        }
        Ok(())
    }

    fn finish(&mut self, bytes: u64) -> io::Result<()> {
        match &mut self.file {
            Some(file) => file.set_len(bytes).and_then(|()| file.sync_all()),
            None => io::stdout().lock().flush(),
        }
    }

    fn failed(&self, at: u64, bytes: u64, source: io::Error) -> ExtractError {
        if self.file.is_none() {
            return ExtractError::Pipe { at, source };
        }
        ExtractError::Output { path: self.path.clone(), at, bytes, source }
    }

    /// Half a copy would look like a whole one.
    fn remove(&self) {
        if self.file.is_some() {
            // The reason of the failure is worth more than a second one.
            let _ = fs::remove_file(&self.path);
        }
    }
}
