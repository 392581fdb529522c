//! Drives and folders named on the command line, opened to look at them: read-only, beside
//! whoever else uses them, and never waiting for ever.
//!
//! A drive that does not answer would hold up everything, in a system call that nothing can end.
//! So each path is first tried by a thread of its own, and reads have a limit.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use array::{Examined, examine, read_bytes};
use drive::{Drive, FileDrive, Identity, OpenError, OpenOptions, Roots, list_devices};
use format::probe::{Kind, probe};
use world::{World, join_all};

use crate::error::Failure;
use crate::scene::{LOOK_LIMIT, Scene};

/// How long a path may take to open. With [`LOOK_LIMIT`] a scan ends within five seconds,
/// whatever hangs.
const OPEN_LIMIT: Duration = Duration::from_millis(1500);

/// Containers have their anchor in the last sectors; some controllers keep that of DDF anywhere in
/// the last MiB.
const ANCHOR_BYTES: u64 = 1 << 20;

/// How many paths are looked at together. It bounds threads and descriptors, not what is found:
/// a file without metadata is closed again.
const AT_ONCE: usize = 64;

/// Why a drive is left out of what was asked.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// It can't be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It hangs.
    #[error(
        "{} did not answer within {limit:?}\n\
         hint: it may be spinning up: try again; if it stays so, look at the kernel's log",
        .path.display()
    )]
    NoAnswer {
        /// The drive.
        path: PathBuf,
        /// How long was waited.
        limit: Duration,
    },
    /// A folder can't be read.
    #[error("reading the folder {} failed: {source}", .path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

/// Drives that form arrays of a kind that is not read yet.
#[derive(Debug, thiserror::Error)]
#[error(
    "these drives hold {}: not supported yet\n{}\n\
     hint: what is on them is left alone; the controller or firmware that made it can start it",
    .kinds.join(" and "), .drives.join(" ")
)]
pub struct ContainerError {
    kinds: Vec<&'static str>,
    drives: Vec<String>,
}

/// A drive that was looked at.
pub struct Looked {
    /// The name it was given or found by.
    pub path: PathBuf,
    /// The drive, opened read-only.
    pub drive: Rc<FileDrive>,
    /// The md metadata on it.
    pub examined: Examined,
}

/// A path, and whether it was named or came from a folder or the machine's list.
struct Wanted {
    path: PathBuf,
    named: bool,
}

/// Drives that were looked at.
#[derive(Default)]
pub struct Look {
    /// Those that were named, and those of folders that carry md metadata; each once, by
    /// whatever names it came.
    pub drives: Vec<Looked>,
    /// Those that could not be looked at, and why.
    pub problems: Vec<LookError>,
    /// Drives without md metadata that belong to a container of another kind, and which kind.
    pub containers: Vec<(PathBuf, &'static str)>,
    /// Paths that are there, and are neither named nor carry metadata.
    pub others: usize,
}

impl Look {
    /// Looks at drives and at what folders hold; at all block devices, if nothing is named.
    ///
    /// # Errors
    /// When what was named is not there or is no drive: the command does not mean this machine.
    pub async fn at(world: &World, names: &[PathBuf]) -> Result<Look, Failure> {
        let mut look = Look::default();
        let mut seen = BTreeSet::new();
        let wanted = if names.is_empty() { devices()? } else { expand(names)? };
        for batch in wanted.chunks(AT_ONCE) {
            look.batch(world, batch, &mut seen).await?;
        }
        Ok(look)
    }

    async fn batch(
        &mut self,
        world: &World,
        batch: &[Wanted],
        seen: &mut BTreeSet<Identity>,
    ) -> Result<(), Failure> {
        let mut opened = Vec::new();
        for (wanted, answered) in batch.iter().zip(answering(batch)) {
            let path = &wanted.path;
            let result = if answered {
                FileDrive::open(world, path, OpenOptions::LOOK).map_err(LookError::from)
            } else {
                Err(LookError::NoAnswer { path: path.clone(), limit: OPEN_LIMIT })
            };
            match result {
                Ok(drive) if seen.insert(drive.identity()) => opened.push((wanted, Rc::new(drive))),
                Ok(_) => {}
                Err(error) if wanted.named && is_mistake(&error) => return Err(error.into()),
                Err(error) if wanted.named || is_trouble(&error) => self.problems.push(error),
                Err(_) => self.others += 1,
            }
        }
        let looks = opened.into_iter().map(|(wanted, drive)| async move {
            let look = async {
                let examined = examine(world.pool(), drive.as_ref()).await;
                let bare = examined.found.is_empty();
                let kind = if bare { container(world, drive.as_ref()).await } else { None };
                (examined, kind)
            };
            let result = world.within(LOOK_LIMIT, "metadata", look).await;
            (wanted, Rc::clone(&drive), result)
        });
        for (wanted, drive, result) in join_all(looks).await {
            let path = wanted.path.clone();
            match result {
                Err(_) => self.problems.push(LookError::NoAnswer { path, limit: LOOK_LIMIT }),
                Ok((examined, kind))
                    if wanted.named || kind.is_some() || has_metadata(&examined) =>
                {
                    self.containers.extend(kind.map(|kind| (path.clone(), kind)));
                    self.drives.push(Looked { path, drive, examined });
                }
                Ok(_) => self.others += 1,
            }
        }
        Ok(())
    }

    /// Says what lies there instead, where no array was found and other containers were.
    pub fn refuse_containers(&self, scene: &Scene) -> Result<(), ContainerError> {
        if self.containers.is_empty() || !scene.found().is_empty() {
            return Ok(());
        }
        let kinds: BTreeSet<_> = self.containers.iter().map(|(_, kind)| *kind).collect();
        let drives = self.containers.iter().map(|(path, _)| path.display().to_string());
        Err(ContainerError { kinds: kinds.into_iter().collect(), drives: drives.collect() })
    }

    /// Whether a drive hangs: then the kernel may hold on to what was asked of it, and this
    /// process had better not wait for that.
    pub fn hangs(&self) -> bool {
        self.problems.iter().any(|problem| matches!(problem, LookError::NoAnswer { .. }))
    }
}

/// The container that a drive belongs to, if it is one of those that are known and not read yet.
async fn container(world: &World, drive: &FileDrive) -> Option<&'static str> {
    let size = drive.facts().size_bytes;
    let bytes = size.min(ANCHOR_BYTES);
    // A drive that can't be read there has said so when it was examined.
    let tail = read_bytes(world.pool(), drive, size - bytes, bytes as usize).await.ok()?;
    probe(&[], &tail, size).iter().find_map(|finding| match finding.kind {
        Kind::Imsm => Some("an Intel IMSM container"),
        Kind::Ddf => Some("a SNIA DDF container"),
        _ => None,
    })
}

/// Opens one drive to look at it, and looks; neither takes for ever.
///
/// # Errors
/// When it does not open or answer; the inner error is the drive's.
pub async fn within_limits<T>(
    world: &World,
    path: &Path,
    look: impl AsyncFnOnce(&FileDrive) -> T,
) -> Result<(FileDrive, T), LookError> {
    let no_answer = |limit| LookError::NoAnswer { path: path.to_owned(), limit };
    if answering(&[Wanted { path: path.to_owned(), named: true }]) != [true] {
        return Err(no_answer(OPEN_LIMIT));
    }
    let drive = FileDrive::open(world, path, OpenOptions::LOOK)?;
    let looked = world.within(LOOK_LIMIT, "metadata", look(&drive)).await;
    let looked = looked.map_err(|_| no_answer(LOOK_LIMIT))?;
    Ok((drive, looked))
}

fn has_metadata(examined: &Examined) -> bool {
    !examined.found.is_empty() || !examined.damaged.is_empty() || !examined.unreadable.is_empty()
}

/// Whether the name is wrong, rather than the drive.
fn is_mistake(error: &LookError) -> bool {
    let LookError::Open(error) = error else { return false };
    matches!(
        error,
        OpenError::NotFound { .. } | OpenError::NotADrive { .. } | OpenError::Permission { .. }
    )
}

/// Whether something that nobody named is worth a line: not an empty file, or a socket.
fn is_trouble(error: &LookError) -> bool {
    let LookError::Open(error) = error else { return true };
    !matches!(
        error,
        OpenError::NotFound { .. }
            | OpenError::NotADrive { .. }
            | OpenError::NoMedium { .. }
            | OpenError::Empty { .. }
    )
}

/// Files and block devices in folders, by name; everything else as named.
fn expand(names: &[PathBuf]) -> Result<Vec<Wanted>, LookError> {
    let mut wanted = Vec::new();
    for name in names {
        if !name.is_dir() {
            wanted.push(Wanted { path: name.clone(), named: true });
            continue;
        }
        let mut inside = Vec::new();
        let failed = |source| LookError::Folder { path: name.clone(), source };
        for entry in fs::read_dir(name).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let drive = |kind: fs::FileType| kind.is_file() || kind.is_block_device();
            if fs::metadata(&path).is_ok_and(|status| drive(status.file_type())) {
                inside.push(Wanted { path, named: false });
            }
        }
        inside.sort_by(|a, b| a.path.cmp(&b.path));
        wanted.append(&mut inside);
    }
    Ok(wanted)
}

/// All block devices and their partitions.
fn devices() -> Result<Vec<Wanted>, Failure> {
    let mut wanted = Vec::new();
    for device in list_devices(&Roots::default())? {
        let partitions = device.partitions.into_iter().map(|partition| partition.path);
        for path in [device.path].into_iter().chain(partitions) {
            wanted.push(Wanted { path, named: false });
        }
    }
    Ok(wanted)
}

/// Per path, whether opening it and reading its first sector comes to an end, good or bad.
fn answering(batch: &[Wanted]) -> Vec<bool> {
    let (send, receive) = mpsc::channel();
    for (index, wanted) in batch.iter().enumerate() {
        let (send, path) = (send.clone(), wanted.path.clone());
        thread::spawn(move || {
            try_read(&path);
            // Nobody listens any more when the limit is over.
            let _ = send.send(index);
        });
    }
    drop(send);
    let mut answered = vec![false; batch.len()];
    let mut left = OPEN_LIMIT;
    let start = std::time::Instant::now();
    while let Ok(index) = receive.recv_timeout(left) {
        answered[index] = true;
        left = OPEN_LIMIT.saturating_sub(start.elapsed());
    }
    answered
}

/// What it says comes out again when the drive is opened; here only that it says something.
fn try_read(path: &Path) {
    let Ok(status) = fs::metadata(path) else { return };
    let kind = status.file_type();
    if kind.is_file() || kind.is_block_device() {
        let file = File::open(path);
        let _ = file.and_then(|mut file| file.read(&mut [0; 512]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_give_their_files_sorted_and_nothing_below() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("b"), "x").unwrap();
        fs::write(at("a"), "x").unwrap();
        fs::create_dir(at("c")).unwrap();
        fs::write(at("c/deep"), "x").unwrap();
        let named = at("a");
        let wanted = expand(&[folder.path().to_owned(), named.clone()]).unwrap();
        let paths: Vec<_> = wanted.iter().map(|w| (w.path.clone(), w.named)).collect();
        assert_eq!(paths, [(at("a"), false), (at("b"), false), (named, true)]);
    }
}
