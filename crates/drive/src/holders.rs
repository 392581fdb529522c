//! Which processes keep a drive to themselves, as far as this user may know.
//!
//! The kernel's table of locks gives numbers of processes and files; the list of a process's open
//! files, with the locks of each, says the same for files on any file system. A block device that
//! is opened exclusively shows nothing of it, so there whoever may write is named.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use crate::list::{Roots, Use, User};

/// The bits of `flags` in fdinfo that say whether it may be written.
const WRITES: u32 = libc::O_WRONLY as u32 | libc::O_RDWR as u32;

/// The other processes that keep `path` locked (a file) or may write to it (a block device); none
/// where nothing is known.
#[must_use]
pub fn holders(path: &Path, roots: &Roots) -> Vec<Use> {
    let Some(wanted) = identity(path) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in fs::read_dir(&roots.proc).into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if pid != std::process::id() && holds(&entry.path(), wanted) {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            let by = User::Process { pid, name: name.trim().to_owned() };
            found.push(Use { name: path.to_string_lossy().into_owned(), by });
        }
    }
    found.sort();
    found
}

/// What a path leads to: a device's number, or a file's.
type Identity = (bool, u64, u64);

fn identity(path: &Path) -> Option<Identity> {
    let status = fs::metadata(path).ok()?;
    Some(if status.file_type().is_block_device() {
        (true, status.rdev(), 0)
    } else {
        (false, status.dev(), status.ino())
    })
}

fn holds(process: &Path, wanted: Identity) -> bool {
    let files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let mut same = files.filter(|file| identity(&file.path()) == Some(wanted));
    same.any(|file| {
        let about = process.join("fdinfo").join(file.file_name());
        let about = fs::read_to_string(about).unwrap_or_default();
        if wanted.0 { may_write(&about) } else { is_locked(&about) }
    })
}

/// Whether a file's fdinfo lists a lock of the kind that drives are kept with.
fn is_locked(fdinfo: &str) -> bool {
    fdinfo.lines().any(|line| line.starts_with("lock:") && line.contains(" FLOCK "))
}

fn may_write(fdinfo: &str) -> bool {
    let flags = fdinfo.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & WRITES != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_about_open_files() {
        let locked = "pos:\t0\nflags:\t0100002\nmnt_id:\t29\nino:\t7\n\
                      lock:\t1: FLOCK  ADVISORY  WRITE 4242 00:1d:7 0 EOF\n";
        assert!(is_locked(locked) && may_write(locked));
        let plain = "pos:\t0\nflags:\t0100000\nmnt_id:\t29\nino:\t7\n";
        assert!(!is_locked(plain) && !may_write(plain));
        assert!(!is_locked("lock:\t1: POSIX  ADVISORY  WRITE 1 00:1d:7 0 EOF\n"));
        assert!(may_write("flags:\t02100001\n") && !may_write("flags:\tx\n"));
    }

    /// A made-up process, beside one that has the file open without a lock.
    #[test]
    fn the_process_with_the_lock_is_named() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("disk");
        fs::write(&file, "x").unwrap();
        for (pid, about) in [("41", "flags:\t02\n"), ("42", "lock:\t1: FLOCK  ADVISORY  WRITE\n")] {
            let process = root.path().join("proc").join(pid);
            fs::create_dir_all(process.join("fd")).unwrap();
            fs::create_dir_all(process.join("fdinfo")).unwrap();
            fs::write(process.join("comm"), "backplane\n").unwrap();
            fs::write(process.join("fdinfo/3"), about).unwrap();
            std::os::unix::fs::symlink(&file, process.join("fd/3")).unwrap();
        }
        let roots = Roots { proc: root.path().join("proc"), ..Roots::default() };
        let found = holders(&file, &roots);
        assert_eq!(found.len(), 1);
        assert!(found[0].to_string().ends_with("disk is held by process 42 (backplane)"));
    }
}
