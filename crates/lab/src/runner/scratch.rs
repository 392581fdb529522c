//! The scratch folder: where a run makes its file drives, and how they go again.
//!
//! Each run has a folder of its own in it and removes that at its end, whatever the end is. A
//! process that is killed can't; so the folder holds a lock that ends with the process, and the
//! next run removes folders whose lock is free.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// What the folders of runs begin with.
const PREFIX: &str = "backplane-lab-";
/// The locked file in each.
const LOCK: &str = "in-use";

/// The folder of one run; dropping it removes all it holds.
#[derive(Debug)]
pub(super) struct Scratch {
    folder: PathBuf,
    /// Folders that were made on the way there, the outermost first.
    made: Vec<PathBuf>,
    _lock: File,
}

impl Scratch {
    /// Makes the folder of this process in `parent`, and clears away what killed runs left there.
    ///
    /// # Errors
    ///
    /// What the system said.
    pub fn new(parent: &Path) -> io::Result<Self> {
        let made = missing(parent);
        fs::create_dir_all(parent)?;
        sweep(parent);
        let folder = parent.join(format!("{PREFIX}{}", std::process::id()));
        // Within a process two runs in one folder would be one too many.
        fs::create_dir(&folder)?;
        let lock = File::create_new(folder.join(LOCK)).and_then(|lock| {
            lock.try_lock()?;
            Ok(lock)
        });
        match lock {
            Ok(lock) => Ok(Self { folder, made, _lock: lock }),
            Err(error) => {
                remove(&folder, &made);
                Err(error)
            }
        }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(&self.folder, &self.made);
    }
}

/// There is nobody left to tell when this fails; the next run tries again.
fn remove(folder: &Path, made: &[PathBuf]) {
    let _ = fs::remove_dir_all(folder);
    for folder in made.iter().rev() {
        // Whoever put something in there in the meantime keeps it.
        let _ = fs::remove_dir(folder);
    }
}

/// The folders on the way to `path` that do not exist, the outermost first.
fn missing(path: &Path) -> Vec<PathBuf> {
    let mut missing: Vec<PathBuf> = path
        .ancestors()
        .take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists())
        .map(Path::to_owned)
        .collect();
    missing.reverse();
    missing
}

/// Removes the folders of runs whose process is gone.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        // One without a lock file is being made just now.
        let Some(lock) = ours.then(|| File::open(entry.path().join(LOCK)).ok()).flatten() else {
            continue;
        };
        if lock.try_lock().is_ok() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_folder_leaves_nothing_behind() {
        let root = tempfile::tempdir().unwrap();
        let parent = root.path().join("a/b");
        let scratch = Scratch::new(&parent).unwrap();
        fs::write(scratch.folder().join("drive"), b"x").unwrap();
        // A second run of the same process would share the folder.
        assert!(Scratch::new(&parent).is_err());
        assert!(scratch.folder().join("drive").exists(), "the first one is untouched");
        drop(scratch);
        assert!(!root.path().join("a").exists());
    }

    #[test]
    fn folders_of_others_stay_and_those_of_the_dead_go() {
        let root = tempfile::tempdir().unwrap();
        let dead = root.path().join(format!("{PREFIX}1"));
        let alive = root.path().join(format!("{PREFIX}2"));
        let strange = root.path().join("strange");
        for folder in [&dead, &alive, &strange] {
            fs::create_dir(folder).unwrap();
            File::create(folder.join(LOCK)).unwrap();
        }
        let lock = File::open(alive.join(LOCK)).unwrap();
        lock.lock().unwrap();
        drop(Scratch::new(root.path()).unwrap());
        assert!(!dead.exists() && alive.exists() && strange.exists());
        assert!(root.path().exists(), "it was there before");
    }
}
