//! Requests of any alignment over a drive with larger blocks.
//!
//! A client that was promised nothing about blocks writes 512 bytes or 1 KiB to a drive of 4 KiB
//! blocks; the rest of those blocks has to be read first and written with it. Two clients doing
//! that in one block at a time would lose each other's bytes, so every write claims its blocks:
//! writes that fit the blocks may overlap each other as on any drive, one that has to read first
//! has its blocks to itself. Claims are served in the order they came.
//!
//! A write that reads first runs as a task of its own: a caller that gives up half-way must not
//! let go of the claim while stale neighbours are still on their way to the drive.
//!
//! Aligned reads pass untouched, aligned writes carry one small claim. Reads need no claim: the
//! bytes around a fragment are written back as they were.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use world::{BufMut, Notify, Pool, ReadBufs, World, WriteBufs, join_all, total_bytes};

use crate::api::{Discarded, Drive, Durability, Facts, Io, ReadDone, Zeroing, check_range};
use crate::error::{DriveError, Operation};

/// A write that is under way or waits for earlier ones.
struct Claim {
    ticket: u64,
    start: u64,
    end: u64,
    alone: bool,
}

/// The claims, oldest first. There are as many as writes under way, so a scan finds conflicts.
#[derive(Default)]
struct Claims {
    list: RefCell<Vec<Claim>>,
    next: Cell<u64>,
    changed: Notify,
}

impl Claims {
    fn enter(self: &Rc<Self>, start: u64, end: u64, alone: bool) -> Held {
        let ticket = self.next.get();
        self.next.set(ticket + 1);
        self.list.borrow_mut().push(Claim { ticket, start, end, alone });
        Held { claims: Rc::clone(self), ticket }
    }

    /// Whether no earlier claim stands in the way.
    fn clear(&self, ticket: u64) -> bool {
        let list = self.list.borrow();
        let own = list.iter().find(|claim| claim.ticket == ticket);
        let own = own.expect("a claim is listed until it is dropped");
        !list.iter().take_while(|claim| claim.ticket < ticket).any(|other| {
            other.start < own.end && own.start < other.end && (other.alone || own.alone)
        })
    }
}

/// A claim that ends with this.
struct Held {
    claims: Rc<Claims>,
    ticket: u64,
}

impl Held {
    async fn granted(&self) {
        while !self.claims.clear(self.ticket) {
            self.claims.changed.wait().await;
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.claims.list.borrow_mut().retain(|claim| claim.ticket != self.ticket);
        self.claims.changed.notify_all();
    }
}

/// A drive of one-byte blocks over one of larger blocks.
pub struct Padded(Rc<Padding>);

struct Padding {
    world: World,
    inner: Rc<dyn Drive>,
    claims: Rc<Claims>,
    facts: Facts,
}

impl Padded {
    /// Serves `inner` at any alignment.
    #[must_use]
    pub fn new(world: &World, inner: Rc<dyn Drive>) -> Padded {
        let facts = Facts { block_bytes: 1, ..inner.facts().clone() };
        Padded(Rc::new(Padding { world: world.clone(), inner, claims: Rc::default(), facts }))
    }
}

impl Padding {
    /// The whole blocks around a range.
    fn around(&self, offset: u64, bytes: u64) -> (u64, u64) {
        let block = u64::from(self.inner.facts().block_bytes);
        let end = offset + bytes;
        // The drive ends with a block, so the end can't lie outside.
        (offset - offset % block, end.div_ceil(block) * block)
    }

    /// The whole blocks within a range; empty (start = end) where it has none.
    fn within(&self, offset: u64, bytes: u64) -> (u64, u64) {
        let block = u64::from(self.inner.facts().block_bytes);
        let end = offset + bytes;
        let (start, end) = (offset.div_ceil(block) * block, end - end % block);
        if start < end { (start, end) } else { (offset, offset) }
    }

    fn aligned(&self, offset: u64, bytes: u64) -> bool {
        self.around(offset, bytes) == (offset, offset + bytes)
    }

    /// Reads the blocks around the range, and gives the caller's buffers back.
    async fn read_around(&self, offset: u64, buffers: ReadBufs) -> ReadDone {
        let bytes = total_bytes(&buffers);
        let count = buffers.len();
        let (start, end) = self.around(offset, bytes);
        let pool = self.world.pool();
        let head = pool.take((offset - start) as usize);
        let tail = pool.take((end - offset - bytes) as usize);
        let wide = std::iter::once(head).chain(buffers).chain(std::iter::once(tail)).collect();
        let done = self.inner.read(start, wide).await;
        let buffers = done.buffers.into_iter().skip(1).take(count).collect();
        ReadDone { buffers, result: done.result }
    }

    /// Writes blocks that are whole, once nobody reads them for a rewrite.
    async fn claimed<T>(&self, offset: u64, bytes: u64, write: impl AsyncFnOnce() -> T) -> T {
        let held = self.claims.enter(offset, offset + bytes, false);
        held.granted().await;
        let result = write().await;
        drop(held);
        result
    }

    /// Writes a range that begins or ends within a block.
    async fn rewrite(
        &self,
        offset: u64,
        buffers: WriteBufs,
        durability: Durability,
    ) -> Result<(), DriveError> {
        let (start, end) = self.around(offset, total_bytes(&buffers));
        let held = self.claims.enter(start, end, true);
        let inner = Rc::clone(&self.inner);
        let pool = self.world.pool().clone();
        let task = self.world.spawn(async move {
            held.granted().await;
            let result = rewrite(&*inner, &pool, (start, end), offset, buffers, durability).await;
            drop(held);
            result
        });
        task.await
    }

    async fn zero(
        &self,
        offset: u64,
        bytes: u64,
        zeroing: Zeroing,
        durability: Durability,
    ) -> Result<(), DriveError> {
        let (start, end) = self.within(offset, bytes);
        if start < end {
            let zero =
                async || self.inner.write_zeroes(start, end - start, zeroing, durability).await;
            self.claimed(start, end - start, zero).await?;
        }
        for (from, to) in [(offset, start), (end, offset + bytes)] {
            if from < to {
                let zeroes = self.world.pool().take_zeroed((to - from) as usize).freeze();
                self.rewrite(from, WriteBufs::from_iter([zeroes]), durability).await?;
            }
        }
        Ok(())
    }

    fn check(&self, operation: Operation, offset: u64, bytes: u64) -> Result<(), DriveError> {
        check_range(&self.facts, operation, offset, bytes)
    }
}

/// Reads the first and the last block of `start..end` where the buffers leave a part of them, and
/// writes all with what was read around it.
async fn rewrite(
    inner: &dyn Drive,
    pool: &Pool,
    (start, end): (u64, u64),
    offset: u64,
    buffers: WriteBufs,
    durability: Durability,
) -> Result<(), DriveError> {
    let block = u64::from(inner.facts().block_bytes);
    let before = offset - start;
    let after = end - offset - total_bytes(&buffers);
    let last = end - block;
    let mut places = Vec::new();
    if before > 0 {
        places.push(start);
    }
    // A last block that is also the first is read once.
    if after > 0 && (before == 0 || last != start) {
        places.push(last);
    }
    let reads = places
        .into_iter()
        .map(|place| inner.read(place, ReadBufs::from_iter([pool.take(block as usize)])));
    let mut old = Vec::new();
    for done in join_all(reads).await {
        done.result.map_err(|error| DriveError { operation: Operation::Write, ..error })?;
        old.extend(done.buffers.into_iter().map(BufMut::freeze));
    }
    let mut whole = WriteBufs::new();
    if let Some(first) = old.first().filter(|_| before > 0) {
        whole.push(first.slice(0, before as usize));
    }
    whole.extend(buffers);
    if let Some(last) = old.last().filter(|_| after > 0) {
        whole.push(last.slice((block - after) as usize, after as usize));
    }
    inner.write(start, whole, durability).await
}

impl Drive for Padded {
    fn facts(&self) -> &Facts {
        &self.0.facts
    }

    fn read(&self, offset: u64, buffers: ReadBufs) -> Io<ReadDone> {
        let bytes = total_bytes(&buffers);
        match self.0.check(Operation::Read, offset, bytes) {
            Err(error) => Io::ready(ReadDone { buffers, result: Err(error) }),
            Ok(()) if bytes == 0 => Io::ready(ReadDone { buffers, result: Ok(()) }),
            Ok(()) if self.0.aligned(offset, bytes) => self.0.inner.read(offset, buffers),
            Ok(()) => {
                let padding = Rc::clone(&self.0);
                Io::later(async move { padding.read_around(offset, buffers).await })
            }
        }
    }

    fn write(
        &self,
        offset: u64,
        buffers: WriteBufs,
        durability: Durability,
    ) -> Io<Result<(), DriveError>> {
        let bytes = total_bytes(&buffers);
        match self.0.check(Operation::Write, offset, bytes) {
            Ok(()) if bytes > 0 => {}
            checked => return Io::ready(checked),
        }
        let padding = Rc::clone(&self.0);
        if self.0.aligned(offset, bytes) {
            return Io::later(async move {
                let write = async || padding.inner.write(offset, buffers, durability).await;
                padding.claimed(offset, bytes, write).await
            });
        }
        Io::later(async move { padding.rewrite(offset, buffers, durability).await })
    }

    fn flush(&self) -> Io<Result<(), DriveError>> {
        self.0.inner.flush()
    }

    /// Fragments of blocks at the ends are left as they are, and the answer says so.
    fn discard(&self, offset: u64, bytes: u64) -> Io<Result<Discarded, DriveError>> {
        let (start, end) = match self.0.check(Operation::Discard, offset, bytes) {
            Ok(()) => self.0.within(offset, bytes),
            Err(error) => return Io::ready(Err(error)),
        };
        if start == end {
            return Io::ready(Ok(Discarded::Unspecified));
        }
        let whole = (start, end) == (offset, offset + bytes);
        let padding = Rc::clone(&self.0);
        Io::later(async move {
            let discard = async || padding.inner.discard(start, end - start).await;
            let discarded = padding.claimed(start, end - start, discard).await?;
            Ok(if whole { discarded } else { Discarded::Unspecified })
        })
    }

    fn write_zeroes(
        &self,
        offset: u64,
        bytes: u64,
        zeroing: Zeroing,
        durability: Durability,
    ) -> Io<Result<(), DriveError>> {
        match self.0.check(Operation::WriteZeroes, offset, bytes) {
            Ok(()) if bytes > 0 => {
                let padding = Rc::clone(&self.0);
                Io::later(async move { padding.zero(offset, bytes, zeroing, durability).await })
            }
            checked => Io::ready(checked),
        }
    }
}
