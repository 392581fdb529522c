//! What went wrong on a drive: a small kind to decide by, and where it happened.

use std::fmt;
use std::io;
use std::rc::Rc;

/// What callers decide by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// These bytes can't be read or written; others may be fine (EIO, ENODATA).
    Media,
    /// The drive does not answer any more (ENODEV, ENXIO, a closed connection).
    Gone,
    /// The file system under a file drive is full (ENOSPC, EDQUOT).
    Full,
    /// No answer within the deadline.
    TimedOut,
    /// The drive was opened read-only, or is write-protected.
    ReadOnly,
    /// The range lies outside the drive.
    OutOfRange,
    /// The range is not a multiple of the drive's block.
    Misaligned,
    /// The drive can't do this operation (EOPNOTSUPP).
    Unsupported,
    /// What was written may be lost: a flush failed, or redundancy is used up.
    Lost,
}

impl ErrorKind {
    /// The kind an error of the operating system stands for.
    #[must_use]
    pub fn of(error: &io::Error) -> ErrorKind {
        match error.raw_os_error() {
            Some(libc::ENODEV | libc::ENXIO | libc::ENOMEDIUM | libc::ESHUTDOWN) => ErrorKind::Gone,
            Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => ErrorKind::Full,
            Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY) => ErrorKind::Unsupported,
            Some(libc::EROFS | libc::EPERM | libc::EACCES | libc::EBADF) => ErrorKind::ReadOnly,
            Some(libc::EINVAL) => ErrorKind::Misaligned,
            Some(libc::ETIMEDOUT) => ErrorKind::TimedOut,
            _ => ErrorKind::Media,
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ErrorKind::Media => "medium error",
            ErrorKind::Gone => "drive gone",
            ErrorKind::Full => "no space left",
            ErrorKind::TimedOut => "no answer in time",
            ErrorKind::ReadOnly => "read-only",
            ErrorKind::OutOfRange => "range outside the drive",
            ErrorKind::Misaligned => "not a multiple of the drive's block",
            ErrorKind::Unsupported => "not supported by the drive",
            ErrorKind::Lost => "data lost",
        })
    }
}

/// What was asked of the drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is the method of the same name")]
pub enum Operation {
    Read,
    Write,
    Flush,
    Discard,
    WriteZeroes,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Flush => "flush",
            Operation::Discard => "discard",
            Operation::WriteZeroes => "write zeroes",
        })
    }
}

/// A failed operation: its kind, and where.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{operation} of {bytes} bytes at {offset} on {drive}: {kind}")]
pub struct DriveError {
    /// What to decide by.
    pub kind: ErrorKind,
    /// What was asked.
    pub operation: Operation,
    /// First byte asked for.
    pub offset: u64,
    /// Bytes asked for.
    pub bytes: u64,
    /// The drive's name, as in its facts.
    pub drive: Rc<str>,
    /// The operating system's error, where there is one.
    #[source]
    pub source: Option<Rc<io::Error>>,
}
