//! A drive as one run of the array's process knows it: after the power was cut, what that process
//! still wanted to do never happens, even when the drive has power again.

use std::cell::Cell;
use std::rc::Rc;

use drive::{
    Discarded, Drive, DriveError, Durability, ErrorKind, Facts, Io, Operation, ReadDone, Zeroing,
};
use world::{ReadBufs, WriteBufs, total_bytes};

/// A drive until it is pulled.
pub struct Plug {
    inner: Rc<dyn Drive>,
    in_use: Cell<bool>,
}

impl Plug {
    /// Plugs a drive in.
    pub fn new(inner: Rc<dyn Drive>) -> Rc<Plug> {
        Rc::new(Plug { inner, in_use: Cell::new(true) })
    }

    /// From here on nothing reaches the drive.
    pub fn pull(&self) {
        self.in_use.set(false);
    }

    fn pulled(&self, operation: Operation, offset: u64, bytes: u64) -> Option<DriveError> {
        let drive = self.facts().name.clone();
        let error =
            DriveError { kind: ErrorKind::Gone, operation, offset, bytes, drive, source: None };
        (!self.in_use.get()).then_some(error)
    }
}

impl Drive for Plug {
    fn facts(&self) -> &Facts {
        self.inner.facts()
    }

    fn read(&self, offset: u64, buffers: ReadBufs) -> Io<ReadDone> {
        match self.pulled(Operation::Read, offset, total_bytes(&buffers)) {
            Some(error) => Io::ready(ReadDone { buffers, result: Err(error) }),
            None => self.inner.read(offset, buffers),
        }
    }

    fn write(
        &self,
        offset: u64,
        buffers: WriteBufs,
        durability: Durability,
    ) -> Io<Result<(), DriveError>> {
        match self.pulled(Operation::Write, offset, total_bytes(&buffers)) {
            Some(error) => Io::ready(Err(error)),
            None => self.inner.write(offset, buffers, durability),
        }
    }

    fn flush(&self) -> Io<Result<(), DriveError>> {
        match self.pulled(Operation::Flush, 0, 0) {
            Some(error) => Io::ready(Err(error)),
            None => self.inner.flush(),
        }
    }

    fn discard(&self, offset: u64, bytes: u64) -> Io<Result<Discarded, DriveError>> {
        match self.pulled(Operation::Discard, offset, bytes) {
            Some(error) => Io::ready(Err(error)),
            None => self.inner.discard(offset, bytes),
        }
    }

    fn write_zeroes(
        &self,
        offset: u64,
        bytes: u64,
        zeroing: Zeroing,
        durability: Durability,
    ) -> Io<Result<(), DriveError>> {
        match self.pulled(Operation::WriteZeroes, offset, bytes) {
            Some(error) => Io::ready(Err(error)),
            None => self.inner.write_zeroes(offset, bytes, zeroing, durability),
        }
    }
}
