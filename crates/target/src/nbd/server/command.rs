//! Carrying out one command on a drive.
//!
//! What the drive answers at once is answered at once, without a task. What NBD promises and a
//! drive may lack is made up for here: a trim that the drive can't do is still a success, because
//! it is advice; zeroes are written where it can't make them.

use std::rc::Rc;

use drive::{Drive, DriveError, Durability, ErrorKind, Io, Zeroing};
use smallvec::smallvec;
use world::{Buf, Pool};

use crate::nbd::handshake::BASE_ALLOCATION_ID;
use crate::nbd::reply::{Head, Ticket};
use crate::nbd::status::BlockStatus;
use crate::nbd::transmission::Command;
use crate::nbd::wire::ErrorCode;

/// Zeroes written at a time where the drive has no command for it.
const ZEROES_BYTES: u64 = 1 << 20;

/// A reply to be sent.
pub(super) struct Answer {
    pub(super) head: Head,
    /// What follows the head.
    pub(super) data: Option<Buf>,
    /// What the drive failed with, for the log.
    pub(super) error: Option<Box<DriveError>>,
}

impl Answer {
    pub(super) fn without_data(head: Head) -> Self {
        Answer { head, data: None, error: None }
    }

    fn failed(ticket: Ticket, error: DriveError) -> Self {
        let (code, words) = told(error.kind);
        Answer { head: ticket.fail(code, words), data: None, error: Some(Box::new(error)) }
    }

    fn of(ticket: Ticket, result: Result<(), DriveError>) -> Self {
        match result {
            Ok(()) => Self::without_data(ticket.done()),
            Err(error) => Self::failed(ticket, error),
        }
    }
}

/// The protocol's error for a drive's, and words for the client's log.
fn told(kind: ErrorKind) -> (ErrorCode, &'static str) {
    match kind {
        ErrorKind::Full => (ErrorCode::NoSpace, "no space left on the drives"),
        ErrorKind::ReadOnly => (ErrorCode::NotPermitted, "the drive is read-only"),
        ErrorKind::OutOfRange => (ErrorCode::Invalid, "the range ends past the end of the drive"),
        ErrorKind::Misaligned => (ErrorCode::Invalid, "not a multiple of the drive's block"),
        ErrorKind::Unsupported => (ErrorCode::NotSupported, "the drive can't do this"),
        ErrorKind::Media => (ErrorCode::InputOutput, "medium error"),
        ErrorKind::Gone => (ErrorCode::InputOutput, "drive gone"),
        ErrorKind::TimedOut => (ErrorCode::InputOutput, "the drive did not answer in time"),
        ErrorKind::Lost => (ErrorCode::InputOutput, "written data may be lost"),
        _ => (ErrorCode::InputOutput, "the drive failed"),
    }
}

/// Starts a command; `payload` is that of a write.
pub(super) fn begin(
    drive: &Rc<dyn Drive>,
    pool: &Pool,
    ticket: Ticket,
    command: Command,
    payload: Option<Buf>,
) -> Io<Answer> {
    match command {
        Command::Read { offset, length } => {
            let reading = drive.read(offset, smallvec![pool.take(length as usize)]);
            then(reading, move |mut done| match (done.result, done.buffers.pop()) {
                (Err(error), _) => Answer::failed(ticket, error),
                (Ok(()), buffer) => {
                    let data = buffer.expect("a read gives its buffers back").freeze();
                    Answer { head: ticket.data(), data: Some(data), error: None }
                }
            })
        }
        Command::Write { offset, fua, .. } => {
            let payload = payload.expect("a write has its payload");
            let writing = drive.write(offset, smallvec![payload], durability(fua));
            then(writing, |result| Answer::of(ticket, result))
        }
        Command::Flush => then(drive.flush(), |result| Answer::of(ticket, result)),
        Command::Trim { offset, length, fua } => {
            let drive = Rc::clone(drive);
            Io::later(async move {
                Answer::of(ticket, trim(&*drive, offset, u64::from(length), fua).await)
            })
        }
        // The drive reads ahead by itself where it is of use, and the client does not need to
        // know whether it does.
        Command::Cache { .. } => Io::ready(Answer::without_data(ticket.done())),
        Command::WriteZeroes { fast_only: true, .. } => {
            // No drive tells whether it is fast at this, and a wrong promise costs the client
            // what it wanted to save.
            let head = ticket.fail(ErrorCode::NotSupported, "zeroing may be as slow as writing");
            Io::ready(Answer::without_data(head))
        }
        Command::WriteZeroes { offset, length, fua, no_hole, fast_only: false } => {
            let zeroing = if no_hole { Zeroing::KeepAllocated } else { Zeroing::MayUnmap };
            let bytes = u64::from(length);
            let (drive, pool, durability) = (Rc::clone(drive), pool.clone(), durability(fua));
            Io::later(async move {
                let zeroes = write_zeroes(&*drive, &pool, offset, bytes, zeroing, durability);
                Answer::of(ticket, zeroes.await)
            })
        }
        Command::BlockStatus { .. } => {
            // Drives do not tell holes from data, and "data" is always true enough.
            let status = BlockStatus::of(&command).expect("this command is one");
            let (extents, bytes) = status.finish();
            let head = ticket.status(BASE_ALLOCATION_ID, extents);
            Io::ready(Answer { head, data: Some(pool.copy_of(&bytes)), error: None })
        }
    }
}

fn durability(fua: bool) -> Durability {
    if fua { Durability::Durable } else { Durability::Cached }
}

/// Continues an operation, at once if it has ended.
fn then<T: Unpin + 'static, U>(io: Io<T>, next: impl FnOnce(T) -> U + 'static) -> Io<U> {
    match io {
        Io::Ready(output) => Io::ready(next(output.expect("it was not awaited yet"))),
        Io::Later(future) => Io::later(async move { next(future.await) }),
    }
}

async fn trim(drive: &dyn Drive, offset: u64, bytes: u64, fua: bool) -> Result<(), DriveError> {
    match drive.discard(offset, bytes).await {
        Err(error) if error.kind == ErrorKind::Unsupported => Ok(()),
        Err(error) => Err(error),
        Ok(_) if fua => drive.flush().await,
        Ok(_) => Ok(()),
    }
}

async fn write_zeroes(
    drive: &dyn Drive,
    pool: &Pool,
    offset: u64,
    bytes: u64,
    zeroing: Zeroing,
    durability: Durability,
) -> Result<(), DriveError> {
    match drive.write_zeroes(offset, bytes, zeroing, durability).await {
        Err(error) if error.kind == ErrorKind::Unsupported => {}
        result => return result,
    }
    let zeroes = pool.take_zeroed(ZEROES_BYTES.min(bytes) as usize).freeze();
    let mut done = 0;
    while done < bytes {
        let piece = ZEROES_BYTES.min(bytes - done);
        let buffers = smallvec![zeroes.slice(0, piece as usize)];
        drive.write(offset + done, buffers, durability).await?;
        done += piece;
    }
    Ok(())
}
