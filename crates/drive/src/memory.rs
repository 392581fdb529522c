//! A drive in memory: the yardstick for what an array adds, and the medium of many tests.
//!
//! Memory is taken page by page as it is written, so a large empty drive costs nothing. Reads and
//! writes end at once; there is no cache, so everything is durable.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use world::{ReadBufs, WriteBufs, total_bytes};

use crate::api::{Discarded, Drive, Durability, Facts, Io, ReadDone, Zeroing, check_range};
use crate::error::{DriveError, Operation};

/// Bytes taken at a time: large enough that a lookup per page does not show, small enough that a
/// sparse file system stays sparse.
const PAGE_BYTES: usize = 64 << 10;

/// Pages found by one look-up in the map: 64 MiB, so that even a large drive has few entries there.
const PAGES_PER_REGION: usize = 1024;

type Page = Option<Box<[u8]>>;

/// The pages that were written; memory follows them, not the drive's size.
#[derive(Default)]
struct Pages(BTreeMap<u64, Vec<Page>>);

impl Pages {
    fn get(&self, index: u64) -> Option<&[u8]> {
        let region = self.0.get(&(index / PAGES_PER_REGION as u64))?;
        region[(index % PAGES_PER_REGION as u64) as usize].as_deref()
    }

    fn slot(&mut self, index: u64) -> &mut Page {
        let region = self.0.entry(index / PAGES_PER_REGION as u64);
        let region = region.or_insert_with(|| vec![None; PAGES_PER_REGION]);
        &mut region[(index % PAGES_PER_REGION as u64) as usize]
    }
}

/// A drive whose bytes are in this process's memory.
pub struct MemoryDrive {
    facts: Facts,
    pages: RefCell<Pages>,
}

impl MemoryDrive {
    /// An empty (all zero) drive of `size_bytes`, rounded down to `block_bytes`.
    ///
    /// # Panics
    /// When `block_bytes` is not a power of two.
    #[must_use]
    pub fn new(name: &str, size_bytes: u64, block_bytes: u32) -> Self {
        assert!(block_bytes.is_power_of_two(), "a block is a power of two");
        let size_bytes = size_bytes - size_bytes % u64::from(block_bytes);
        MemoryDrive {
            facts: Facts {
                name: Rc::from(name),
                size_bytes,
                block_bytes,
                preferred_bytes: 4096,
                read_only: false,
                rotational: Some(false),
                direct: true,
            },
            pages: RefCell::default(),
        }
    }

    /// Calls `act` with each page (by index) that the range touches, and its part of that page.
    fn each_page(offset: u64, bytes: u64, mut act: impl FnMut(u64, Range<usize>)) {
        let (mut at, end) = (offset, offset + bytes);
        while at < end {
            let start = (at % PAGE_BYTES as u64) as usize;
            let len = (PAGE_BYTES - start).min((end - at) as usize);
            act(at / PAGE_BYTES as u64, start..start + len);
            at += len as u64;
        }
    }

    fn fetch(&self, mut offset: u64, buffers: &mut ReadBufs) {
        let pages = self.pages.borrow();
        for buffer in buffers {
            let mut done = 0;
            Self::each_page(offset, buffer.len() as u64, |index, part| {
                let into = &mut buffer[done..done + part.len()];
                done += part.len();
                match pages.get(index) {
                    Some(page) => into.copy_from_slice(&page[part]),
                    None => into.fill(0),
                }
            });
            offset += buffer.len() as u64;
        }
    }

    fn store(&self, mut offset: u64, buffers: &WriteBufs) {
        let mut pages = self.pages.borrow_mut();
        for buffer in buffers {
            let mut done = 0;
            Self::each_page(offset, buffer.len() as u64, |index, part| {
                let from = &buffer[done..done + part.len()];
                done += part.len();
                match pages.slot(index) {
                    Some(page) => page[part].copy_from_slice(from),
                    // A whole page needs no zeros first.
                    page if part.len() == PAGE_BYTES => *page = Some(from.into()),
                    page => {
                        let page = page.insert(vec![0; PAGE_BYTES].into());
                        page[part].copy_from_slice(from);
                    }
                }
            });
            offset += buffer.len() as u64;
        }
    }

    fn clear(&self, offset: u64, bytes: u64) {
        let mut pages = self.pages.borrow_mut();
        Self::each_page(offset, bytes, |index, part| {
            if pages.get(index).is_none() {
                return;
            }
            let page = pages.slot(index);
            match page {
                Some(bytes) if part.len() < PAGE_BYTES => bytes[part].fill(0),
                _ => *page = None,
            }
        });
    }

    fn check(&self, operation: Operation, offset: u64, bytes: u64) -> Result<(), DriveError> {
        check_range(&self.facts, operation, offset, bytes)
    }
}

impl Drive for MemoryDrive {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn read(&self, offset: u64, mut buffers: ReadBufs) -> Io<ReadDone> {
        let result = self.check(Operation::Read, offset, total_bytes(&buffers));
        if result.is_ok() {
            self.fetch(offset, &mut buffers);
        }
        Io::ready(ReadDone { buffers, result })
    }

    fn write(
        &self,
        offset: u64,
        buffers: WriteBufs,
        _durability: Durability,
    ) -> Io<Result<(), DriveError>> {
        let result = self.check(Operation::Write, offset, total_bytes(&buffers));
        Io::ready(result.map(|()| self.store(offset, &buffers)))
    }

    fn flush(&self) -> Io<Result<(), DriveError>> {
        Io::ready(Ok(()))
    }

    fn discard(&self, offset: u64, bytes: u64) -> Io<Result<Discarded, DriveError>> {
        let result = self.check(Operation::Discard, offset, bytes);
        Io::ready(result.map(|()| {
            self.clear(offset, bytes);
            Discarded::Zeroes
        }))
    }

    fn write_zeroes(
        &self,
        offset: u64,
        bytes: u64,
        _zeroing: Zeroing,
        _durability: Durability,
    ) -> Io<Result<(), DriveError>> {
        let result = self.check(Operation::WriteZeroes, offset, bytes);
        Io::ready(result.map(|()| self.clear(offset, bytes)))
    }
}
