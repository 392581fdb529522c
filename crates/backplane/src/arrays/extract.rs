//! `backplane array extract`: the whole logical content of an array into a file.
//!
//! Reading goes on while what was read is written: a few requests are always under way, and
//! their results are taken in order. Pieces that are zero stay holes in a file.

use std::collections::VecDeque;
use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use array::{Array, AssembleError};
use clap::Args;
use drive::{Drive, DriveError, FileDrive, Identity, OpenError, OpenOptions};
use format::md::ArrayState;
use format::md::Refusal;
use world::{BufMut, ReadBufs, Task, World};

use crate::error::{self, Failure};
use crate::guard;
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
    /// A link may lead anywhere, also to a drive.
    #[error("{} is a symbolic link, and nothing is written through one\n\
         hint: name the file itself", .path.display())]
    Link {
        /// As given.
        path: PathBuf,
    },
    /// It would overwrite what it reads.
    #[error("{} is one of the drives that are read ({})\n\
         hint: choose another name", .path.display(), .drive.display())]
    IsADrive {
        /// The file.
        path: PathBuf,
        /// The drive's name.
        drive: PathBuf,
    },
    /// Somebody else has it locked.
    #[error("{} is in use by another program\n\
         hint: end that first, or choose another name", .path.display())]
    Held {
        /// The file.
        path: PathBuf,
    },
    /// It looks like a drive, or an image of one.
    #[error("{} holds what somebody may need, and --force does not overwrite that\n{}\n\
         hint: choose another name, or remove it first", .path.display(), .losses.join("\n"))]
    Holds {
        /// The file.
        path: PathBuf,
        /// What lies on it.
        losses: Vec<String>,
    },
    /// The output can't be made.
    #[error("{} can't be opened for writing: {source}\n\
         hint: its folder has to exist and to be writable", .path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The output fails, most likely for want of space.
    #[error("writing {} failed at byte {at}: {source}\n\
         hint: {bytes} bytes are needed where the array has data; {partial}",
        .path.display()
    )]
    Output {
        /// The file.
        path: PathBuf,
        /// How far it came.
        at: u64,
        /// Bytes of the array.
        bytes: u64,
        /// What became of the copy.
        partial: Partial,
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
         hint: {partial}; `backplane array scan` says which members \
             would help"
    )]
    Read {
        /// The array.
        array: String,
        /// How far it came.
        at: u64,
        /// What became of the copy.
        partial: Partial,
        /// What failed.
        source: DriveError,
    },
}

/// What becomes of a copy that did not come to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Partial {
    /// The file was made for it: half a copy would look like a whole one.
    Removed,
    /// The file was there before.
    Left,
    /// It went down a pipe.
    Sent,
}

impl fmt::Display for Partial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Partial::Removed => "the partial file was removed",
            Partial::Left => "the file existed before, so it was left and is incomplete",
            Partial::Sent => "what was written is incomplete",
        })
    }
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
        let mut look = Look::at(world, &self.drives).await?;
        let scene = look.scene(world).await;
        for problem in &look.problems {
            error::warn(problem.to_string().lines().next().unwrap_or_default());
        }
        look.refuse_containers(&scene)?;
        let found = scene.choose(self.array.as_deref())?;
        let array = readable(&found)?;
        let mut output = Output::open(world, &self.to, self.force, &look).await?;
        let bytes = array.facts().size_bytes;
        let title = found.title();
        if let Err(failure) = copy(world, &title, array, &mut output).await {
            output.remove();
            return Err(failure.into());
        }
        let state = found.state();
        let well = !found.is_degraded_now() && found.is_well();
        if !well {
            error::warn(&format!("{title} is {state}: {}", found.reasons().join("; ")));
        }
        error::tell(format_args!("{title}: {} copied", exact_size(bytes)));
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
            partial: output.partial,
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
    /// What becomes of it on a failure.
    partial: Partial,
}

impl Output {
    /// Opens the output. What exists is opened as it is and emptied only when it is known to be
    /// nothing that somebody needs.
    async fn open(world: &World, path: &Path, force: bool, look: &Look) -> Result<Output, Failure> {
        if path.as_os_str() == "-" {
            let path = "standard output".into();
            return Ok(Output { path, file: None, partial: Partial::Sent });
        }
        let failed = |source| ExtractError::Open { path: path.to_owned(), source };
        if let Ok(status) = fs::symlink_metadata(path) {
            if status.is_symlink() {
                return Err(ExtractError::Link { path: path.to_owned() }.into());
            }
            if !status.is_file() {
                return Err(ExtractError::NotAFile { path: path.to_owned() }.into());
            }
            let file = File::options().read(true).write(true).open(path).map_err(failed)?;
            refuse_needed(world, path, &file, force, look).await?;
            file.set_len(0).map_err(failed)?;
            return Ok(Output { path: path.to_owned(), file: Some(file), partial: Partial::Left });
        }
        let file = File::create_new(path).map_err(failed)?;
        Ok(Output { path: path.to_owned(), file: Some(file), partial: Partial::Removed })
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
        ExtractError::Output { path: self.path.clone(), at, bytes, partial: self.partial, source }
    }

    /// Removes half a copy, if its file was made for it.
    fn remove(&self) {
        if self.partial == Partial::Removed {
            // The reason of the failure is worth more than a second one.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Refuses to overwrite a drive that is read, and what is held, used, or holds something that is
/// known. The file stays locked after that.
async fn refuse_needed(
    world: &World,
    path: &Path,
    file: &File,
    force: bool,
    look: &Look,
) -> Result<(), Failure> {
    let path = path.to_owned();
    let status = file.metadata()?;
    let named = fs::symlink_metadata(&path)?;
    let identity = Identity::File { device: status.dev(), inode: status.ino() };
    if (named.dev(), named.ino()) != (status.dev(), status.ino()) {
        // It was replaced, perhaps by a link, while it was opened.
        return Err(ExtractError::Link { path }.into());
    }
    if let Some(looked) = look.drives.iter().find(|looked| looked.drive.identity() == identity) {
        return Err(ExtractError::IsADrive { path, drive: looked.path.clone() }.into());
    }
    if status.len() > 0 && !force {
        return Err(ExtractError::Exists { path }.into());
    }
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(ExtractError::Held { path }.into()),
        Err(TryLockError::Error(source)) => return Err(ExtractError::Open { path, source }.into()),
    }
    guard::refuse_used(&path)?;
    let drive = match FileDrive::open(world, &path, OpenOptions::LOOK) {
        Ok(drive) => drive,
        // Less than a block holds nothing that is known.
        Err(OpenError::Empty { .. }) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let contents = guard::contents(world, &path, &drive).await?;
    if !contents.is_empty() {
        return Err(ExtractError::Holds { path, losses: contents.losses() }.into());
    }
    Ok(())
}
