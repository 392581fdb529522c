//! Making a sparse file to serve as a drive.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Why a file was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// Something by this name exists; it was not touched.
    #[error("{} exists already\nhint: choose another name, or remove it first", .path.display())]
    Exists {
        /// As given.
        path: PathBuf,
    },
    /// A drive of no or an odd size.
    #[error(
        "{bytes} bytes are not a size for a drive\nhint: give a multiple of {BLOCK_BYTES} \
             bytes, above zero"
    )]
    Size {
        /// As given.
        bytes: u64,
    },
    /// The file system refused.
    #[error("making {} of {bytes} bytes failed: {source}\nhint: look at the folder's permissions, \
             its free space, and the largest file its file system allows", .path.display())]
    System {
        /// As given.
        path: PathBuf,
        /// As given.
        bytes: u64,
        /// The operating system's error.
        source: io::Error,
    },
}

/// Sizes are whole blocks of the largest common kind, so that direct I/O can reach every byte.
const BLOCK_BYTES: u64 = 4096;

/// Makes a sparse file of `bytes` that reads as zero, and makes its existence durable. A file that
/// could not be given its size is removed again.
///
/// # Errors
/// See [`CreateError`]; an existing file is never touched.
pub fn create_file(path: &Path, bytes: u64) -> Result<(), CreateError> {
    if bytes == 0 || !bytes.is_multiple_of(BLOCK_BYTES) {
        return Err(CreateError::Size { bytes });
    }
    let failed = |source| CreateError::System { path: path.to_owned(), bytes, source };
    let file = File::create_new(path).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => CreateError::Exists { path: path.to_owned() },
        _ => failed(error),
    })?;
    let sized = file.set_len(bytes).and_then(|()| file.sync_all());
    if let Err(error) = sized {
        // The reason is worth more than a second failure.
        let _ = fs::remove_file(path);
        return Err(failed(error));
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = File::open(parent.unwrap_or(Path::new("."))).map_err(failed)?;
    directory.sync_all().map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_file_is_sparse_and_never_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("drive");
        create_file(&path, 1 << 30).unwrap();
        let status = fs::metadata(&path).unwrap();
        assert_eq!(status.len(), 1 << 30);
        assert!(status.blocks() * 512 < 1 << 20, "sparse");
        assert!(matches!(create_file(&path, 4096), Err(CreateError::Exists { .. })));
        assert_eq!(fs::metadata(&path).unwrap().len(), 1 << 30);
    }

    #[test]
    fn odd_sizes_and_impossible_ones_leave_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("drive");
        for bytes in [0, 1, 4097] {
            assert!(matches!(create_file(&path, bytes), Err(CreateError::Size { .. })));
        }
        let error = create_file(&path, u64::MAX - 4095).unwrap_err();
        assert!(matches!(error, CreateError::System { .. }), "{error}");
        assert!(!path.exists());
        let missing = directory.path().join("no/such/folder");
        assert!(matches!(create_file(&missing, 4096), Err(CreateError::System { .. })));
    }
}
