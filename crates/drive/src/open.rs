//! Opening a file or block device as a drive: what it is, whether it is free, and whether direct
//! I/O is really in force.
//!
//! Direct I/O is asked for and then verified: the kernel says which alignment it needs
//! (`STATX_DIOALIGN`), or, where it does not say, a read that direct I/O must refuse is tried. A
//! file system that takes `O_DIRECT` and caches all the same (tmpfs) is then known for what it is.
//! A network file system that is direct at any alignment looks the same; it counts as cached,
//! because only what was shown is claimed;
//! so does, on a kernel that does not say (before Linux 6.1), a file that is one hole.
//!
//! Left out: refusing a drive that holds data somebody needs. That is the caller's question, with
//! [`crate::in_use`] and the metadata on the drive.

use std::fs::{File, Metadata, TryLockError};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{AtFlags, OFlags, StatxFlags};
use world::Pool;

use crate::api::Facts;
use crate::sysfs;

/// The block of a file without direct I/O: the sector that on-disk formats count in.
const FILE_BLOCK_BYTES: u32 = 512;
/// What direct I/O needs where it can't be found out: the largest common physical sector.
const SAFE_BLOCK_BYTES: u32 = 4096;
/// Alignments that are tried, from the smallest sector to the largest page.
const TRIED_BLOCKS: [u32; 8] = [512, 1024, 2048, 4096, 8192, 16384, 32768, 65536];

/// Whether a drive may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Access {
    ReadOnly,
    ReadWrite,
}

/// Whether I/O goes past the host's page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direct {
    /// It must; else the drive is not opened.
    Require,
    /// It does where it can; [`Facts::direct`] says whether.
    Prefer,
    /// It does not.
    Off,
}

/// How a drive is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenOptions {
    /// Whether it may be written.
    pub access: Access,
    /// Whether I/O goes past the page cache.
    pub direct: Direct,
    /// Whether to refuse a drive that is in use, and to keep others out. A block device is opened
    /// with `O_EXCL`, which mounts, swap, md and other exclusive users respect; a file is locked
    /// with flock, shared for reading and exclusive for writing, which only those respect who lock
    /// too.
    pub exclusive: bool,
}

impl OpenOptions {
    /// To look at a drive, whoever else uses it.
    pub const LOOK: Self =
        OpenOptions { access: Access::ReadOnly, direct: Direct::Prefer, exclusive: false };
    /// To serve or change a drive, alone.
    pub const USE: Self =
        OpenOptions { access: Access::ReadWrite, direct: Direct::Prefer, exclusive: true };
}

/// Which drive it is, whatever name it was opened by: a symbolic link, a hard link and a by-id
/// path give the same. A loop device counts as the file behind it (when that file can still be
/// found by its path, in this mount namespace). A partition differs from its device and two
/// partitions differ from each other; overlaps of that kind are not seen here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Identity {
    /// A regular file.
    File {
        /// The device its file system is on.
        device: u64,
        /// Its number there.
        inode: u64,
    },
    /// A block device.
    Device {
        /// Major and minor number, as the kernel combines them.
        number: u64,
    },
}

/// Why a drive could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is nothing by this name.
    #[error("{} does not exist\nhint: `backplane drive list` shows the drives of this machine; \
             `backplane drive create` makes a file to serve as one", .path.display())]
    NotFound {
        /// As given.
        path: PathBuf,
    },
    /// Somebody else holds it.
    #[error("{} is in use\nhint: unmount it, stop the array or swap on it, or end the other \
             program that has it open (`backplane drive list` shows by whom)", .path.display())]
    Busy {
        /// As given.
        path: PathBuf,
    },
    /// Not something with addressable bytes.
    #[error("{} is {what}, not a drive\nhint: name a regular file or a block device", .path.display())]
    NotADrive {
        /// As given.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// The operating system forbids it to this user.
    #[error("no permission to open {}\nhint: run as root, or as a user who may open it (group \
             `disk` for block devices)", .path.display())]
    Permission {
        /// As given.
        path: PathBuf,
    },
    /// Asked to write what can't be written.
    #[error("{} is write-protected\nhint: open it read-only, or lift the protection (a read-only \
             mount, `blockdev --setrw`, a switch on the medium)", .path.display())]
    WriteProtected {
        /// As given.
        path: PathBuf,
    },
    /// A card reader or optical drive without a medium.
    #[error("{} has no medium\nhint: insert one", .path.display())]
    NoMedium {
        /// As given.
        path: PathBuf,
    },
    /// Not even one block.
    #[error("{} is empty: {bytes} bytes are less than one block of {block_bytes}\nhint: \
             `backplane drive create` makes a file of a given size", .path.display())]
    Empty {
        /// As given.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// The smallest drive.
        block_bytes: u32,
    },
    /// Direct I/O was required and is not to be had.
    #[error("{} can't do direct I/O\nhint: its file system keeps everything in memory or caches \
             all the same; use another one, or allow cached I/O", .path.display())]
    NoDirectIo {
        /// As given.
        path: PathBuf,
    },
    /// Virtual time has no files.
    #[error("{} can't be opened in virtual time\nhint: use a memory drive or a model", .path.display())]
    NoRing {
        /// As given.
        path: PathBuf,
    },
    /// Anything else the operating system said.
    #[error("{doing} {} failed: {source}", .path.display())]
    System {
        /// As given.
        path: PathBuf,
        /// What was attempted.
        doing: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
}

/// What direct I/O asks of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Alignment {
    /// Addresses of buffers are multiples of this.
    pub memory_bytes: u32,
    /// Offsets, and lengths of buffers, are multiples of this.
    pub offset_bytes: u32,
}

/// An open drive and what is known about it.
pub(crate) struct Opened {
    pub file: File,
    pub facts: Facts,
    /// `None` where buffers may lie anywhere.
    pub alignment: Option<Alignment>,
    pub identity: Identity,
}

/// Opens `path`; facts about devices are looked up below `sysfs_root`.
pub(crate) fn open(
    path: &Path,
    options: OpenOptions,
    pool: &Pool,
    sysfs_root: &Path,
) -> Result<Opened, OpenError> {
    let system = |doing, source| OpenError::System { path: path.to_owned(), doing, source };
    // Opening a pipe waits and opening a tape moves it, so look before opening.
    let before = std::fs::metadata(path).map_err(|error| refusal(path, options, error))?;
    kind_of(path, &before)?;
    let file = open_file(path, options).map_err(|error| refusal(path, options, error))?;
    let status = file.metadata().map_err(|error| system("looking at", error))?;
    kind_of(path, &status)?;
    let device = status.file_type().is_block_device();
    if options.exclusive && !device {
        lock(&file, path, options.access)?;
    }

    let (logical, physical, bytes) = if device {
        let logical = rustix::fs::ioctl_blksszget(&file);
        let physical = rustix::fs::ioctl_blkpbszget(&file);
        let logical = logical.map_err(|error| system("asking for the block of", error.into()))?;
        let bytes = (&file).seek(SeekFrom::End(0));
        let bytes = bytes.map_err(|error| system("asking for the size of", error))?;
        (logical, physical.unwrap_or(logical), bytes)
    } else {
        (FILE_BLOCK_BYTES, status.blksize().try_into().unwrap_or(SAFE_BLOCK_BYTES), status.len())
    };
    let alignment = if bytes == 0 { None } else { direct_in_force(&file, pool) };
    if alignment.is_none() && options.direct == Direct::Require && bytes > 0 {
        return Err(OpenError::NoDirectIo { path: path.to_owned() });
    }
    if alignment.is_none() {
        let flags = rustix::fs::fcntl_getfl(&file);
        flags
            .and_then(|flags| rustix::fs::fcntl_setfl(&file, flags - OFlags::DIRECT))
            .map_err(|error| system("changing the mode of", error.into()))?;
    }
    let block_bytes = alignment.map_or(logical, |alignment| logical.max(alignment.offset_bytes));
    let size_bytes = bytes - bytes % u64::from(block_bytes);
    if size_bytes == 0 {
        return Err(OpenError::Empty { path: path.to_owned(), bytes, block_bytes });
    }

    let number = if device { status.rdev() } else { status.dev() };
    let whole = sysfs::whole_device(sysfs_root, number);
    let rotational = whole.as_deref().and_then(|whole| sysfs::flag(whole, "queue/rotational"));
    // A loop device hands direct I/O to a file that it may itself read and write through the cache.
    let cached_below =
        device && whole.as_deref().and_then(|whole| sysfs::flag(whole, "loop/dio")) == Some(false);
    let facts = Facts {
        name: Rc::from(path.to_string_lossy()),
        size_bytes,
        block_bytes,
        preferred_bytes: u64::from(physical.max(block_bytes)),
        read_only: options.access == Access::ReadOnly,
        rotational,
        direct: alignment.is_some() && !cached_below,
    };
    let identity = identity_of(&status, whole.as_deref());
    Ok(Opened { file, facts, alignment, identity })
}

/// Refuses what has no addressable bytes.
fn kind_of(path: &Path, status: &Metadata) -> Result<(), OpenError> {
    let kind = status.file_type();
    let what = if kind.is_file() || kind.is_block_device() {
        return Ok(());
    } else if kind.is_dir() {
        "a directory"
    } else if kind.is_char_device() {
        "a character device"
    } else if kind.is_fifo() {
        "a pipe"
    } else {
        "a socket"
    };
    Err(OpenError::NotADrive { path: path.to_owned(), what })
}

fn open_file(path: &Path, options: OpenOptions) -> io::Result<File> {
    let mut open = File::options();
    open.read(true).write(options.access == Access::ReadWrite);
    // Without O_CREAT, O_EXCL means something for block devices only.
    let flags = if options.exclusive { libc::O_EXCL } else { 0 };
    if options.direct == Direct::Off {
        return open.custom_flags(flags).open(path);
    }
    match open.custom_flags(flags | libc::O_DIRECT).open(path) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            open.custom_flags(flags).open(path)
        }
        opened => opened,
    }
}

/// What an error of opening means.
fn refusal(path: &Path, options: OpenOptions, source: io::Error) -> OpenError {
    let path = path.to_owned();
    let writes = options.access == Access::ReadWrite;
    match source.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR) => OpenError::NotFound { path },
        Some(libc::EBUSY | libc::ETXTBSY) => OpenError::Busy { path },
        Some(libc::EROFS) => OpenError::WriteProtected { path },
        // A protected block device refuses writers with the same error as a missing permission.
        Some(libc::EACCES | libc::EPERM) if writes && File::open(&path).is_ok() => {
            OpenError::WriteProtected { path }
        }
        Some(libc::EACCES | libc::EPERM) => OpenError::Permission { path },
        Some(libc::ENOMEDIUM) => OpenError::NoMedium { path },
        _ => OpenError::System { path, doing: "opening", source },
    }
}

fn lock(file: &File, path: &Path, access: Access) -> Result<(), OpenError> {
    let locked = match access {
        Access::ReadOnly => file.try_lock_shared(),
        Access::ReadWrite => file.try_lock(),
    };
    locked.map_err(|error| match error {
        TryLockError::WouldBlock => OpenError::Busy { path: path.to_owned() },
        TryLockError::Error(source) => {
            OpenError::System { path: path.to_owned(), doing: "locking", source }
        }
    })
}

/// The alignment that direct I/O needs on this open file; `None` where it is not in force.
fn direct_in_force(file: &File, pool: &Pool) -> Option<Alignment> {
    if !rustix::fs::fcntl_getfl(file).is_ok_and(|flags| flags.contains(OFlags::DIRECT)) {
        return None;
    }
    let status = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    if let Ok(status) = status
        && status.stx_mask & StatxFlags::DIOALIGN.bits() != 0
    {
        let alignment = Alignment {
            memory_bytes: status.stx_dio_mem_align,
            offset_bytes: status.stx_dio_offset_align,
        };
        return (alignment.memory_bytes > 0 && alignment.offset_bytes > 0).then_some(alignment);
    }
    alignment_by_trial(file, pool)
}

/// Finds the alignment out: direct I/O refuses to read a part of a sector, a cache does not. A hole
/// is read without any I/O, so a file without data shows nothing. Addresses are not tried (what
/// one extent's device takes another's may not); they are kept as strict as offsets.
fn alignment_by_trial(file: &File, pool: &Pool) -> Option<Alignment> {
    let refused = |error: &io::Error| error.raw_os_error() == Some(libc::EINVAL);
    let data = rustix::fs::seek(file, rustix::fs::SeekFrom::Data(0)).ok()?;
    if file.read_at(&mut pool.take(FILE_BLOCK_BYTES as usize - 1), data).is_ok() {
        return None;
    }
    let block = TRIED_BLOCKS.into_iter().find(|&block| {
        let mut buffer = pool.take(block as usize);
        !file.read_at(&mut buffer, data).is_err_and(|error| refused(&error))
    });
    let offset_bytes = block.unwrap_or(SAFE_BLOCK_BYTES);
    Some(Alignment { memory_bytes: offset_bytes.min(SAFE_BLOCK_BYTES), offset_bytes })
}

fn identity_of(status: &Metadata, whole: Option<&Path>) -> Identity {
    if !status.file_type().is_block_device() {
        return Identity::File { device: status.dev(), inode: status.ino() };
    }
    // Only a whole loop device without an offset is the same drive as its file.
    let backing = whole.filter(|whole| sysfs::number(whole, "loop/offset") == Some(0));
    let backing = backing.and_then(|whole| {
        let own = sysfs::attribute(whole, "dev")?;
        (own == sysfs::number_text(status.rdev())).then_some(())?;
        std::fs::metadata(sysfs::attribute(whole, "loop/backing_file")?).ok()
    });
    match backing {
        Some(file) if file.is_file() => Identity::File { device: file.dev(), inode: file.ino() },
        Some(device) if device.file_type().is_block_device() => {
            Identity::Device { number: device.rdev() }
        }
        _ => Identity::Device { number: status.rdev() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trial_agrees_with_what_the_kernel_says() {
        let file = tempfile::NamedTempFile::new_in(".").unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        file.as_file().write_at(&[1; 65536], 0).unwrap();
        file.as_file().sync_all().unwrap();
        let Ok(direct) = open_file(file.path(), OpenOptions::LOOK) else { panic!("opened") };
        let pool = Pool::new(0);
        let Some(told) = direct_in_force(&direct, &pool) else {
            println!("skipped: no direct I/O in the working directory");
            return;
        };
        let tried = alignment_by_trial(&direct, &pool).unwrap();
        assert_eq!(tried.offset_bytes, told.offset_bytes);
        assert!(tried.memory_bytes >= told.memory_bytes);
        let cached = File::open(file.path()).unwrap();
        assert_eq!(
            (direct_in_force(&cached, &pool), alignment_by_trial(&cached, &pool)),
            (None, None)
        );
    }

    #[test]
    fn every_refusal_says_what_and_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        let pool = Pool::new(0);
        let try_open = |path: &Path, options| open(path, options, &pool, Path::new(sysfs::ROOT));
        let refused = |path: &Path, options| {
            let error = try_open(path, options).err().expect("refused");
            assert!(error.to_string().contains("\nhint: "), "{error}");
            error
        };
        let missing = directory.path().join("missing");
        assert!(matches!(refused(&missing, OpenOptions::USE), OpenError::NotFound { .. }));
        let error = refused(directory.path(), OpenOptions::LOOK);
        assert!(matches!(error, OpenError::NotADrive { what: "a directory", .. }));
        let error = refused(Path::new("/dev/null"), OpenOptions::USE);
        assert!(matches!(error, OpenError::NotADrive { what: "a character device", .. }));
        let path = directory.path().join("drive");
        File::create(&path).unwrap().set_len(511).unwrap();
        assert!(matches!(refused(&path, OpenOptions::USE), OpenError::Empty { bytes: 511, .. }));
    }

    #[test]
    fn a_writer_keeps_others_out_until_it_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("drive");
        File::create(&path).unwrap().set_len(1 << 20).unwrap();
        let pool = Pool::new(0);
        let try_open = |options| open(&path, options, &pool, Path::new(sysfs::ROOT));
        let reader = OpenOptions { access: Access::ReadOnly, ..OpenOptions::USE };
        let writer = try_open(OpenOptions::USE).ok().unwrap();
        assert!(matches!(try_open(OpenOptions::USE).err(), Some(OpenError::Busy { .. })));
        assert!(matches!(try_open(reader).err(), Some(OpenError::Busy { .. })));
        assert!(try_open(OpenOptions::LOOK).is_ok(), "looking is always possible");
        drop(writer);
        let _first = try_open(reader).ok().unwrap();
        let _second = try_open(reader).ok().unwrap();
        assert!(matches!(try_open(OpenOptions::USE).err(), Some(OpenError::Busy { .. })));
    }

    #[test]
    fn one_drive_by_two_names_is_one_drive() {
        let directory = tempfile::tempdir().unwrap();
        let [path, hard, soft] = ["a", "b", "c"].map(|name| directory.path().join(name));
        File::create(&path).unwrap().set_len(4096).unwrap();
        std::fs::hard_link(&path, &hard).unwrap();
        std::os::unix::fs::symlink(&path, &soft).unwrap();
        let pool = Pool::new(0);
        let identity = |path: &Path| {
            let opened = open(path, OpenOptions::LOOK, &pool, Path::new(sysfs::ROOT));
            opened.ok().unwrap().identity
        };
        assert_eq!(identity(&path), identity(&hard));
        assert_eq!(identity(&path), identity(&soft));
    }
}
