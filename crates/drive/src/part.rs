//! A window of another drive as a drive: the data area of a member, a partition.
//!
//! It costs one addition per request. Errors name the drive below and the place there, since that
//! is where somebody has to look.

use std::rc::Rc;

use world::{ReadBufs, WriteBufs, total_bytes};

use crate::api::{Discarded, Drive, Durability, Facts, Io, ReadDone, Zeroing, check_range};
use crate::error::{DriveError, Operation};

/// The bytes from `start` on of a drive.
pub struct Slice {
    base: Rc<dyn Drive>,
    start: u64,
    facts: Facts,
}

impl Slice {
    /// The window of `bytes` from `start` on.
    ///
    /// # Errors
    /// When the window lies outside `base`, or does not start and end with a block.
    pub fn new(base: Rc<dyn Drive>, start: u64, bytes: u64) -> Result<Slice, DriveError> {
        check_range(base.facts(), Operation::Read, start, bytes)?;
        let facts = Facts { size_bytes: bytes, ..base.facts().clone() };
        Ok(Slice { base, start, facts })
    }

    /// The place on the drive below.
    fn place(&self, operation: Operation, offset: u64, bytes: u64) -> Result<u64, DriveError> {
        match check_range(&self.facts, operation, offset, bytes) {
            Ok(()) => Ok(self.start + offset),
            Err(error) => Err(DriveError { offset: self.start.saturating_add(offset), ..error }),
        }
    }
}

impl Drive for Slice {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn read(&self, offset: u64, buffers: ReadBufs) -> Io<ReadDone> {
        match self.place(Operation::Read, offset, total_bytes(&buffers)) {
            Ok(place) => self.base.read(place, buffers),
            Err(error) => Io::ready(ReadDone { buffers, result: Err(error) }),
        }
    }

    fn write(
        &self,
        offset: u64,
        buffers: WriteBufs,
        durability: Durability,
    ) -> Io<Result<(), DriveError>> {
        match self.place(Operation::Write, offset, total_bytes(&buffers)) {
            Ok(place) => self.base.write(place, buffers, durability),
            Err(error) => Io::ready(Err(error)),
        }
    }

    fn flush(&self) -> Io<Result<(), DriveError>> {
        self.base.flush()
    }

    fn discard(&self, offset: u64, bytes: u64) -> Io<Result<Discarded, DriveError>> {
        match self.place(Operation::Discard, offset, bytes) {
            Ok(place) => self.base.discard(place, bytes),
            Err(error) => Io::ready(Err(error)),
        }
    }

    fn write_zeroes(
        &self,
        offset: u64,
        bytes: u64,
        zeroing: Zeroing,
        durability: Durability,
    ) -> Io<Result<(), DriveError>> {
        match self.place(Operation::WriteZeroes, offset, bytes) {
            Ok(place) => self.base.write_zeroes(place, bytes, zeroing, durability),
            Err(error) => Io::ready(Err(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::memory::MemoryDrive;

    #[test]
    fn a_window_lies_within_its_drive_and_errors_say_where() {
        let base: Rc<dyn Drive> = Rc::new(MemoryDrive::new("sda", 1 << 20, 512));
        let kind = |start, bytes| Slice::new(base.clone(), start, bytes).err().map(|e| e.kind);
        assert_eq!(kind(1 << 20, 512), Some(ErrorKind::OutOfRange));
        assert_eq!(kind(u64::MAX - 511, 512), Some(ErrorKind::OutOfRange));
        assert_eq!(kind(100, 512), Some(ErrorKind::Misaligned));
        let window = Slice::new(base, 4096, 8192).ok().unwrap();
        let Io::Ready(Some(Err(error))) = window.discard(8192, 512) else { panic!("refused") };
        assert_eq!(
            (error.kind, error.offset, &*error.drive),
            (ErrorKind::OutOfRange, 12288, "sda")
        );
    }
}
