//! Drives that answer late, or with errors.

use std::rc::Rc;

use drive::{
    Discarded, Drive, DriveError, Durability, ErrorKind, Facts, Io, MemoryDrive, Operation,
    ReadDone, Zeroing,
};
use world::{Notify, ReadBufs, World, WriteBufs};

/// Reads of this byte wait until something is written to [`RELEASE_OFFSET`].
pub const HELD_OFFSET: u64 = 0x1000;
pub const RELEASE_OFFSET: u64 = 0x2000;

/// A drive in memory that never answers at once, and holds some reads back.
pub struct LateDrive(Rc<Late>);

struct Late {
    inner: MemoryDrive,
    world: World,
    release: Notify,
}

impl LateDrive {
    pub fn serve(world: &World, size_bytes: u64) -> Rc<dyn Drive> {
        let inner = MemoryDrive::new("late", size_bytes, 1);
        let late = Late { inner, world: world.clone(), release: Notify::default() };
        Rc::new(LateDrive(Rc::new(late)))
    }
}

impl Drive for LateDrive {
    fn facts(&self) -> &Facts {
        self.0.inner.facts()
    }

    fn read(&self, offset: u64, buffers: ReadBufs) -> Io<ReadDone> {
        let late = Rc::clone(&self.0);
        Io::later(async move {
            if offset == HELD_OFFSET {
                late.release.wait().await;
            }
            late.world.yield_now().await;
            late.inner.read(offset, buffers).await
        })
    }

    fn write(
        &self,
        offset: u64,
        buffers: WriteBufs,
        durability: Durability,
    ) -> Io<Result<(), DriveError>> {
        let late = Rc::clone(&self.0);
        Io::later(async move {
            late.world.yield_now().await;
            if offset == RELEASE_OFFSET {
                late.release.notify_all();
            }
            late.inner.write(offset, buffers, durability).await
        })
    }

    fn flush(&self) -> Io<Result<(), DriveError>> {
        let late = Rc::clone(&self.0);
        Io::later(async move {
            late.world.yield_now().await;
            late.inner.flush().await
        })
    }

    fn discard(&self, offset: u64, bytes: u64) -> Io<Result<Discarded, DriveError>> {
        self.0.inner.discard(offset, bytes)
    }

    fn write_zeroes(
        &self,
        offset: u64,
        bytes: u64,
        zeroing: Zeroing,
        durability: Durability,
    ) -> Io<Result<(), DriveError>> {
        self.0.inner.write_zeroes(offset, bytes, zeroing, durability)
    }
}

/// A drive in memory that can neither discard nor zero, and fails where a request's offset says
/// so: megabyte 1 fails with the first kind, megabyte 2 with the second, and so on.
pub struct FailingDrive {
    inner: MemoryDrive,
}

/// The kinds, from megabyte 1 on.
pub const FAILURES: [ErrorKind; 5] = [
    ErrorKind::Media,
    ErrorKind::Full,
    ErrorKind::ReadOnly,
    ErrorKind::Misaligned,
    ErrorKind::TimedOut,
];

impl FailingDrive {
    pub fn serve(size_bytes: u64) -> Rc<dyn Drive> {
        Rc::new(FailingDrive { inner: MemoryDrive::new("failing", size_bytes, 1) })
    }

    fn check(&self, operation: Operation, offset: u64) -> Result<(), DriveError> {
        let unsupported = matches!(operation, Operation::Discard | Operation::WriteZeroes);
        let index = (offset >> 20) as usize;
        let failure = index.checked_sub(1).and_then(|index| FAILURES.get(index).copied());
        match failure.or(unsupported.then_some(ErrorKind::Unsupported)) {
            None => Ok(()),
            Some(kind) => {
                let drive = Rc::clone(&self.inner.facts().name);
                Err(DriveError { kind, operation, offset, bytes: 0, drive, source: None })
            }
        }
    }
}

impl Drive for FailingDrive {
    fn facts(&self) -> &Facts {
        self.inner.facts()
    }

    fn read(&self, offset: u64, buffers: ReadBufs) -> Io<ReadDone> {
        match self.check(Operation::Read, offset) {
            Ok(()) => self.inner.read(offset, buffers),
            Err(error) => Io::ready(ReadDone { buffers, result: Err(error) }),
        }
    }

    fn write(
        &self,
        offset: u64,
        buffers: WriteBufs,
        durability: Durability,
    ) -> Io<Result<(), DriveError>> {
        match self.check(Operation::Write, offset) {
            Ok(()) => self.inner.write(offset, buffers, durability),
            Err(error) => Io::ready(Err(error)),
        }
    }

    fn flush(&self) -> Io<Result<(), DriveError>> {
        Io::ready(Ok(()))
    }

    fn discard(&self, offset: u64, _bytes: u64) -> Io<Result<Discarded, DriveError>> {
        Io::ready(self.check(Operation::Discard, offset).map(|()| Discarded::Unspecified))
    }

    fn write_zeroes(
        &self,
        offset: u64,
        _bytes: u64,
        _zeroing: Zeroing,
        _durability: Durability,
    ) -> Io<Result<(), DriveError>> {
        Io::ready(self.check(Operation::WriteZeroes, offset))
    }
}
