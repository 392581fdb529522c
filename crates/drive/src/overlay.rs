//! A drive that is only read, and writes that stay in memory on top of it.
//!
//! With it an array that must not be written can still be brought up: its journal is replayed into
//! the overlay, and the base stays as it was found, to the byte. What was written is lost with the
//! overlay, so nothing here is durable and nothing claims to be kept.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use world::{ReadBufs, WriteBufs, total_bytes};

use crate::api::{Discarded, Drive, Durability, Facts, Io, ReadDone, Zeroing, check_range};
use crate::cut::{append, copy_into, copy_out, split_front};
use crate::error::{DriveError, ErrorKind, Operation};

/// The longest extent: what an overwrite may have to copy of an older one is bounded by it.
const EXTENT_BYTES_MAX: u64 = 64 << 10;

/// What one stretch of the drive was overwritten with.
enum Content {
    Bytes(Vec<u8>),
    Zeroes(u64),
}

impl Content {
    fn len(&self) -> u64 {
        match self {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::Zeroes(bytes) => *bytes,
        }
    }

    /// Memory it takes.
    fn held(&self) -> u64 {
        match self {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::Zeroes(_) => 0,
        }
    }

    /// Keeps the first `at` bytes and returns the rest.
    fn split_off(&mut self, at: u64) -> Content {
        match self {
            Content::Bytes(bytes) => {
                let rest = bytes.split_off(at as usize);
                bytes.shrink_to_fit();
                Content::Bytes(rest)
            }
            Content::Zeroes(bytes) => {
                let rest = *bytes - at;
                *bytes = at;
                Content::Zeroes(rest)
            }
        }
    }
}

/// Reads of a base drive, with writes kept in memory.
pub struct Overlay(Rc<Layer>);

struct Layer {
    base: Rc<dyn Drive>,
    facts: Facts,
    /// By first byte; they never overlap.
    extents: RefCell<BTreeMap<u64, Content>>,
    held_bytes: Cell<u64>,
    limit_bytes: u64,
}

impl Overlay {
    /// An overlay that keeps at most `limit_bytes` of content; writes beyond it fail as `Full`.
    #[must_use]
    pub fn new(base: Rc<dyn Drive>, limit_bytes: u64) -> Overlay {
        let facts = Facts { read_only: false, ..base.facts().clone() };
        let extents = RefCell::default();
        let held_bytes = Cell::new(0);
        Overlay(Rc::new(Layer { base, facts, extents, held_bytes, limit_bytes }))
    }

    /// Bytes of content kept in memory.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.0.held_bytes.get()
    }
}

impl Layer {
    /// Forgets what was kept of the range, and cuts the extents that reach into it.
    fn clear(&self, range: Range<u64>) {
        let mut extents = self.extents.borrow_mut();
        let before = extents.range(..range.start).next_back();
        let mut touched: Vec<u64> = before.map(|(&start, _)| start).into_iter().collect();
        touched.extend(extents.range(range.clone()).map(|(&start, _)| start));
        for start in touched {
            let Some(mut content) = extents.remove(&start) else { continue };
            let end = start + content.len();
            self.held_bytes.set(self.held_bytes.get() - content.held());
            let mut keep = |start, content: Content| {
                if content.len() > 0 {
                    self.held_bytes.set(self.held_bytes.get() + content.held());
                    extents.insert(start, content);
                }
            };
            if end > range.end {
                keep(range.end, content.split_off(range.end - start));
            }
            if start < range.start {
                let _ = content.split_off(content.len().min(range.start - start));
                keep(start, content);
            }
        }
    }

    fn keep(&self, start: u64, content: Content) {
        self.held_bytes.set(self.held_bytes.get() + content.held());
        self.extents.borrow_mut().insert(start, content);
    }

    /// Keeps what is written, piece by piece.
    fn store(&self, offset: u64, buffers: &WriteBufs) -> Result<(), DriveError> {
        let bytes = total_bytes(buffers);
        self.clear(offset..offset + bytes);
        if bytes > self.limit_bytes - self.held_bytes.get().min(self.limit_bytes) {
            return Err(DriveError {
                kind: ErrorKind::Full,
                operation: Operation::Write,
                offset,
                bytes,
                drive: self.facts.name.clone(),
                source: None,
            });
        }
        let mut done = 0;
        while done < bytes {
            let mut piece = vec![0; EXTENT_BYTES_MAX.min(bytes - done) as usize];
            copy_out(buffers, done, &mut piece);
            let start = offset + done;
            done += piece.len() as u64;
            self.keep(start, Content::Bytes(piece));
        }
        Ok(())
    }

    /// The end of the stretch that begins at `at`, and its content if it is kept here.
    fn stretch(&self, at: u64, end: u64) -> (u64, bool) {
        let extents = self.extents.borrow();
        if let Some((&start, content)) = extents.range(..=at).next_back()
            && start + content.len() > at
        {
            return ((start + content.len()).min(end), true);
        }
        let next = extents.range(at..).next().map_or(end, |(&start, _)| start);
        (next.min(end), false)
    }

    /// Fills `buffers` from the extent that covers them.
    fn recall(&self, at: u64, buffers: &mut ReadBufs) {
        let extents = self.extents.borrow();
        let covering = extents.range(..=at).next_back();
        let (start, content) = covering.expect("`stretch` found the extent just now");
        match content {
            Content::Zeroes(_) => buffers.iter_mut().for_each(|buffer| buffer.fill(0)),
            Content::Bytes(bytes) => copy_into(buffers, 0, &bytes[(at - start) as usize..]),
        }
    }

    /// Reads each stretch from where it is.
    async fn read_mixed(&self, offset: u64, buffers: ReadBufs) -> ReadDone {
        let end = offset + total_bytes(&buffers);
        let (mut done, mut rest) = (ReadBufs::new(), buffers);
        let (mut at, mut joins) = (offset, false);
        let mut result = Ok(());
        while at < end && result.is_ok() {
            let (until, kept) = self.stretch(at, end);
            let (mut part, cut) = split_front(&mut rest, until - at);
            if kept {
                self.recall(at, &mut part);
            } else {
                let read = self.base.read(at, part).await;
                (part, result) = (read.buffers, read.result);
            }
            append(&mut done, part, joins);
            (at, joins) = (until, cut);
        }
        append(&mut done, rest, joins);
        ReadDone { buffers: done, result }
    }
}

impl Drive for Overlay {
    fn facts(&self) -> &Facts {
        &self.0.facts
    }

    fn read(&self, offset: u64, buffers: ReadBufs) -> Io<ReadDone> {
        let bytes = total_bytes(&buffers);
        if let Err(error) = check_range(&self.0.facts, Operation::Read, offset, bytes) {
            return Io::ready(ReadDone { buffers, result: Err(error) });
        }
        if self.0.stretch(offset, offset + bytes) == (offset + bytes, false) {
            return self.0.base.read(offset, buffers);
        }
        let layer = Rc::clone(&self.0);
        Io::later(async move { layer.read_mixed(offset, buffers).await })
    }

    fn write(
        &self,
        offset: u64,
        buffers: WriteBufs,
        _durability: Durability,
    ) -> Io<Result<(), DriveError>> {
        let checked = check_range(&self.0.facts, Operation::Write, offset, total_bytes(&buffers));
        Io::ready(checked.and_then(|()| self.0.store(offset, &buffers)))
    }

    fn flush(&self) -> Io<Result<(), DriveError>> {
        Io::ready(Ok(()))
    }

    fn discard(&self, offset: u64, bytes: u64) -> Io<Result<Discarded, DriveError>> {
        let checked = check_range(&self.0.facts, Operation::Discard, offset, bytes);
        Io::ready(checked.map(|()| {
            if bytes > 0 {
                self.0.clear(offset..offset + bytes);
                self.0.keep(offset, Content::Zeroes(bytes));
            }
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
        let checked = check_range(&self.0.facts, Operation::WriteZeroes, offset, bytes);
        Io::ready(checked.map(|()| {
            if bytes > 0 {
                self.0.clear(offset..offset + bytes);
                self.0.keep(offset, Content::Zeroes(bytes));
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use world::{Pool, World};

    use super::*;
    use crate::memory::MemoryDrive;

    #[test]
    fn the_base_stays_as_it_was_and_memory_has_a_limit() {
        let world = World::virtual_time(0);
        let pool = Pool::new(0);
        let base: Rc<dyn Drive> = Rc::new(MemoryDrive::new("base", 1 << 20, 512));
        let full = |byte, bytes: usize| WriteBufs::from_iter([pool.copy_of(&vec![byte; bytes])]);
        world.block_on(async {
            base.write(0, full(1, 8192), Durability::Cached).await.unwrap();
            let overlay = Overlay::new(Rc::clone(&base), 200_000);
            overlay.write(512, full(2, 1024), Durability::Cached).await.unwrap();
            overlay.write(4096, full(3, 150_016), Durability::Cached).await.unwrap();
            overlay.write(4096, full(4, 150_016), Durability::Durable).await.unwrap();
            assert_eq!(overlay.held_bytes(), 1024 + 150_016, "what is overwritten is let go");
            let error = overlay.write(500 * 1024, full(5, 51_200), Durability::Cached).await;
            assert_eq!(error.unwrap_err().kind, ErrorKind::Full);
            let read = overlay.read(0, ReadBufs::from_iter([pool.take(6144)])).await;
            let starts = [(0, 1), (512, 2), (1535, 2), (1536, 1), (4095, 1), (4096, 4), (6143, 4)];
            for (at, byte) in starts {
                assert_eq!(read.buffers[0][at], byte, "byte {at}");
            }
            let below = base.read(0, ReadBufs::from_iter([pool.take(8192)])).await;
            assert!(below.buffers[0].iter().all(|&byte| byte == 1));
            overlay.discard(0, 1 << 20).await.unwrap();
            assert_eq!(overlay.held_bytes(), 0);
        });
    }
}
