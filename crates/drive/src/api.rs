//! The trait, its facts and its futures.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use world::{ReadBufs, WriteBufs};

use crate::error::{DriveError, ErrorKind, Operation};

/// What is known about a drive without doing I/O on it.
#[derive(Debug, Clone)]
pub struct Facts {
    /// How messages name it: a path, or a model's or array's name.
    pub name: Rc<str>,
    /// Its size in bytes, a multiple of `block_bytes`.
    pub size_bytes: u64,
    /// Offsets and lengths are multiples of this many bytes.
    pub block_bytes: u32,
    /// The size a request does best with, in bytes: a full stripe of an array, the physical
    /// sector of a disk.
    pub preferred_bytes: u64,
    /// Nothing can be written.
    pub read_only: bool,
    /// Whether it turns; `None` where nobody knows.
    pub rotational: Option<bool>,
    /// Whether I/O reaches the drive past the host's page cache.
    pub direct: bool,
}

/// When a write counts as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Once the drive has it, perhaps in a cache that a flush empties.
    Cached,
    /// Once it survives a power cut (FUA).
    Durable,
}

/// How zeroes may be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zeroing {
    /// The drive may release the space, as long as it reads as zero.
    MayUnmap,
    /// The space stays allocated.
    KeepAllocated,
}

/// What a discarded range reads as afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discarded {
    /// Zero.
    Zeroes,
    /// The drive does not say (or did nothing).
    Unspecified,
}

/// A finished read: the buffers come back, filled if the result says so.
#[derive(Debug)]
pub struct ReadDone {
    /// The buffers that were given; their content is undefined after an error.
    pub buffers: ReadBufs,
    /// How the read went.
    pub result: Result<(), DriveError>,
}

/// An operation under way; it may have ended already. It owns all it needs, the drive's state
/// included, so the drive may be let go of before it ends.
pub enum Io<T> {
    /// Ended at once; `None` once it was awaited.
    Ready(Option<T>),
    /// Ends later.
    Later(Pin<Box<dyn Future<Output = T>>>),
}

impl<T> Io<T> {
    /// An operation that has ended.
    pub fn ready(output: T) -> Self {
        Io::Ready(Some(output))
    }

    /// An operation that runs as `future`.
    pub fn later(future: impl Future<Output = T> + 'static) -> Self {
        Io::Later(Box::pin(future))
    }
}

impl<T: Unpin> Future for Io<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match self.get_mut() {
            Io::Ready(output) => Poll::Ready(output.take().expect("polled after it was ready")),
            Io::Later(future) => future.as_mut().poll(context),
        }
    }
}

/// Addressable bytes. Operations may be under way at the same time; their order is only given by
/// awaiting one before starting the other. Dropping an operation does not undo it.
pub trait Drive {
    /// What is known about the drive.
    fn facts(&self) -> &Facts;

    /// Fills `buffers`, in order, from `offset` on.
    fn read(&self, offset: u64, buffers: ReadBufs) -> Io<ReadDone>;

    /// Stores `buffers`, in order, from `offset` on. After an error any part may be stored, and
    /// each block holds its old or its new content.
    fn write(
        &self,
        offset: u64,
        buffers: WriteBufs,
        durability: Durability,
    ) -> Io<Result<(), DriveError>>;

    /// Makes every write that has completed survive a power cut.
    fn flush(&self) -> Io<Result<(), DriveError>>;

    /// Tells the drive that the bytes are not needed any more.
    fn discard(&self, offset: u64, bytes: u64) -> Io<Result<Discarded, DriveError>>;

    /// Makes the bytes read as zero.
    fn write_zeroes(
        &self,
        offset: u64,
        bytes: u64,
        zeroing: Zeroing,
        durability: Durability,
    ) -> Io<Result<(), DriveError>>;
}

/// Whether a drive with `facts` can take the operation at all: range and alignment for all of
/// them, and write access for all but reads and flushes.
///
/// # Errors
/// `OutOfRange`, `Misaligned` or `ReadOnly`, in this order.
pub fn check_range(
    facts: &Facts,
    operation: Operation,
    offset: u64,
    bytes: u64,
) -> Result<(), DriveError> {
    let writes = !matches!(operation, Operation::Read | Operation::Flush);
    let block = u64::from(facts.block_bytes);
    let kind = if offset.checked_add(bytes).is_none_or(|end| end > facts.size_bytes) {
        ErrorKind::OutOfRange
    } else if !(offset.is_multiple_of(block) && bytes.is_multiple_of(block)) {
        ErrorKind::Misaligned
    } else if writes && facts.read_only {
        ErrorKind::ReadOnly
    } else {
        return Ok(());
    };
    Err(DriveError { kind, operation, offset, bytes, drive: facts.name.clone(), source: None })
}
