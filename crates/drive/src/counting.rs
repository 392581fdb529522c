//! Counts what reaches a drive, so that a test can say how many drive operations an engine needed
//! and a report how many bytes went to the drives.

use std::cell::Cell;
use std::rc::Rc;

use world::{ReadBufs, WriteBufs, total_bytes};

use crate::api::{Discarded, Drive, Durability, Facts, Io, ReadDone, Zeroing};
use crate::error::DriveError;

/// Operations begun, and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Counts {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub write_bytes: u64,
    /// Writes and zeroes among the above and below that had to be durable.
    pub durable: u64,
    pub flushes: u64,
    pub discards: u64,
    pub discard_bytes: u64,
    pub zeroes: u64,
    pub zero_bytes: u64,
}

/// A drive that counts; it changes nothing.
pub struct Counting {
    inner: Rc<dyn Drive>,
    counts: Cell<Counts>,
}

impl Counting {
    /// Counts from zero.
    #[must_use]
    pub fn new(inner: Rc<dyn Drive>) -> Counting {
        Counting { inner, counts: Cell::default() }
    }

    /// What was counted since the last [`Counting::take`].
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts.get()
    }

    /// What was counted, and begins anew.
    pub fn take(&self) -> Counts {
        self.counts.take()
    }

    fn count(&self, durability: Durability, add: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts.get();
        counts.durable += u64::from(durability == Durability::Durable);
        add(&mut counts);
        self.counts.set(counts);
    }
}

impl Drive for Counting {
    fn facts(&self) -> &Facts {
        self.inner.facts()
    }

    fn read(&self, offset: u64, buffers: ReadBufs) -> Io<ReadDone> {
        self.count(Durability::Cached, |counts| {
            counts.reads += 1;
            counts.read_bytes += total_bytes(&buffers);
        });
        self.inner.read(offset, buffers)
    }

    fn write(
        &self,
        offset: u64,
        buffers: WriteBufs,
        durability: Durability,
    ) -> Io<Result<(), DriveError>> {
        self.count(durability, |counts| {
            counts.writes += 1;
            counts.write_bytes += total_bytes(&buffers);
        });
        self.inner.write(offset, buffers, durability)
    }

    fn flush(&self) -> Io<Result<(), DriveError>> {
        self.count(Durability::Cached, |counts| counts.flushes += 1);
        self.inner.flush()
    }

    fn discard(&self, offset: u64, bytes: u64) -> Io<Result<Discarded, DriveError>> {
        self.count(Durability::Cached, |counts| {
            counts.discards += 1;
            counts.discard_bytes += bytes;
        });
        self.inner.discard(offset, bytes)
    }

    fn write_zeroes(
        &self,
        offset: u64,
        bytes: u64,
        zeroing: Zeroing,
        durability: Durability,
    ) -> Io<Result<(), DriveError>> {
        self.count(durability, |counts| {
            counts.zeroes += 1;
            counts.zero_bytes += bytes;
        });
        self.inner.write_zeroes(offset, bytes, zeroing, durability)
    }
}
