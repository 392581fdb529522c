//! Where control sockets lie, and whose they are.
//!
//! Each served array has a socket by its name in a folder that belongs to the user who serves:
//! `$BACKPLANE_RUNTIME_DIR`; else `/run/backplane` for root, and `backplane` in
//! `$XDG_RUNTIME_DIR` or, without that, `backplane-UID` in `/tmp` for others. Nobody else may write
//! to it, since whoever could would answer in the place of the array.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Names longer than this leave no room for their folder in the address of a Unix socket.
const NAME_BYTES_MAX: usize = 40;

/// Why a folder or socket is not used.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// Somebody else could answer in the array's place.
    #[error(
        "{} belongs to user {owner}{}\n\
         hint: name a socket of your own with --control, or a folder with BACKPLANE_RUNTIME_DIR",
        .path.display(), if *.shared { " and others may write to it" } else { "" }
    )]
    Foreign {
        /// The folder or socket.
        path: PathBuf,
        /// Its user.
        owner: u32,
        /// Whether others may write to it.
        shared: bool,
    },
    /// Not a folder, or none to be had.
    #[error("the folder {} for control sockets can't be used: {source}", .path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Not a socket.
    #[error(
        "{} is no socket\nhint: `array serve` says where its control socket is", .path.display()
    )]
    NotASocket {
        /// As given.
        path: PathBuf,
    },
    /// No such socket.
    #[error(
        "no control socket at {}: {source}\nhint: is the array served, by this user?",
        .path.display()
    )]
    Missing {
        /// As given.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// The folder of this user's control sockets.
pub fn folder() -> PathBuf {
    let from = |name: &str| std::env::var_os(name).filter(|path| !path.is_empty());
    let uid = rustix::process::geteuid();
    if let Some(folder) = from("BACKPLANE_RUNTIME_DIR") {
        folder.into()
    } else if uid.is_root() {
        "/run/backplane".into()
    } else if let Some(folder) = from("XDG_RUNTIME_DIR") {
        Path::new(&folder).join("backplane")
    } else {
        format!("/tmp/backplane-{}", uid.as_raw()).into()
    }
}

/// Makes the folder where it is missing, and checks that it is this user's alone.
pub fn prepare(folder: &Path) -> Result<(), PlaceError> {
    let failed = |source| PlaceError::Folder { path: folder.to_owned(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
    own(folder)
}

/// Whether a folder is there and this user's alone.
pub fn own(folder: &Path) -> Result<(), PlaceError> {
    let failed = |source| PlaceError::Folder { path: folder.to_owned(), source };
    let status = fs::symlink_metadata(folder).map_err(failed)?;
    if !status.is_dir() {
        return Err(failed(io::ErrorKind::NotADirectory.into()));
    }
    let shared = status.mode() & 0o022 != 0;
    if status.uid() != rustix::process::geteuid().as_raw() || shared {
        return Err(PlaceError::Foreign { path: folder.to_owned(), owner: status.uid(), shared });
    }
    Ok(())
}

/// Whether `path` is a socket of this user or of root.
pub fn is_trusted(path: &Path) -> Result<(), PlaceError> {
    let missing = |source| PlaceError::Missing { path: path.to_owned(), source };
    let status = fs::metadata(path).map_err(missing)?;
    if !status.file_type().is_socket() {
        return Err(PlaceError::NotASocket { path: path.to_owned() });
    }
    let owner = status.uid();
    if owner != rustix::process::geteuid().as_raw() && owner != 0 {
        return Err(PlaceError::Foreign { path: path.to_owned(), owner, shared: false });
    }
    Ok(())
}

/// The socket of the array called `name`, if that can be a file's name.
pub fn named(folder: &Path, name: &str) -> Option<PathBuf> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:+@".contains(c);
    let fits = !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(plain);
    (fits && !name.starts_with('.')).then(|| folder.join(format!("{name}.sock")))
}

/// All sockets in the folder, by name.
pub fn all(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut sockets: Vec<PathBuf> = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()))
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "sock"))
        .collect();
    sockets.sort();
    sockets
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_no_sockets() {
        let folder = Path::new("/run/backplane");
        assert_eq!(named(folder, "data"), Some("/run/backplane/data.sock".into()));
        for name in ["", ".", "..", "../x", "a/b", "a b", "ä", &"x".repeat(41)] {
            assert_eq!(named(folder, name), None, "{name:?}");
        }
    }

    #[test]
    fn a_folder_that_others_write_to_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/backplane");
        prepare(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o722)).unwrap();
        assert!(matches!(prepare(&path), Err(PlaceError::Foreign { shared: true, .. })));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(own(&link).is_err(), "a link leads to wherever somebody else wants");
    }

    #[test]
    fn only_sockets_are_asked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file.sock");
        assert!(matches!(is_trusted(&path), Err(PlaceError::Missing { .. })));
        fs::write(&path, "").unwrap();
        assert!(matches!(is_trusted(&path), Err(PlaceError::NotASocket { .. })));
        assert!(all(folder.path()).is_empty());
    }
}
