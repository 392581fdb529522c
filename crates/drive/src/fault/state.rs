//! How a faulty drive carries an operation out: wait, change, then the cache or the drive below.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use world::{Gate, Notify, ReadBufs, Semaphore, World, WriteBufs, total_bytes};

use super::cache::Cache;
use super::plan::{Effect, Plan, Verdict};
use crate::api::{Discarded, Drive, Durability, ReadDone, Zeroing, check_range};
use crate::cut::{copy_into, copy_out, shared_part};
use crate::error::{DriveError, ErrorKind, Operation};

/// Zeroes up to this size go through the volatile cache like a write; longer ones go to the drive
/// at once, which no drive promises and every drive may do.
const CACHED_ZEROES_BYTES_MAX: u64 = 1 << 20;

/// What a faulty drive and its controls share.
pub(super) struct State {
    pub world: World,
    pub inner: Rc<dyn Drive>,
    pub plan: RefCell<Plan>,
    /// Blocks (by index) that can't be read until they are rewritten.
    pub spoilt: RefCell<BTreeSet<u64>>,
    pub released: Notify,
    pub volatile: Cell<bool>,
    pub cache: RefCell<Cache>,
    pub destaging: Rc<Semaphore>,
    /// Writes that were begun and have not reached the cache or the drive below.
    pub waiting: RefCell<BTreeMap<u64, (u64, WriteBufs)>>,
    pub tickets: Cell<u64>,
    pub powered: Cell<bool>,
    /// How often the power was cut: whoever began before a cut finds the drive gone.
    pub cuts: Cell<u64>,
    pub below: Gate,
}

/// An operation under way on the drive below.
struct Below<'a>(&'a Gate);

impl<'a> Below<'a> {
    fn enter(gate: &'a Gate) -> Self {
        gate.enter();
        Below(gate)
    }
}

impl Drop for Below<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// What an operation was asked for, for its errors.
#[derive(Clone, Copy)]
struct Request {
    operation: Operation,
    offset: u64,
    bytes: u64,
    cuts: u64,
}

impl State {
    /// The blocks a range touches, by index.
    pub fn blocks(&self, offset: u64, bytes: u64) -> Range<u64> {
        let block = u64::from(self.inner.facts().block_bytes);
        offset / block..offset.saturating_add(bytes).div_ceil(block)
    }

    fn error(&self, request: Request, kind: ErrorKind) -> DriveError {
        let Request { operation, offset, bytes, .. } = request;
        let drive = self.inner.facts().name.clone();
        DriveError { kind, operation, offset, bytes, drive, source: None }
    }

    /// Fails what began before the last power cut, and all while the power is off.
    fn powered(&self, request: Request) -> Result<(), DriveError> {
        if self.powered.get() && self.cuts.get() == request.cuts {
            return Ok(());
        }
        Err(self.error(request, ErrorKind::Gone))
    }

    /// Begins an operation: what it was asked for, and what will happen to it.
    fn begin(&self, operation: Operation, offset: u64, bytes: u64) -> (Request, Verdict) {
        let verdict = self.plan.borrow_mut().judge(operation, offset, bytes);
        (Request { operation, offset, bytes, cuts: self.cuts.get() }, verdict)
    }

    /// Waits as long as the verdict says; gives the error it ends in, if it does.
    async fn pause(&self, request: Request, verdict: &Verdict) -> Result<(), DriveError> {
        self.powered(request)?;
        if !verdict.delay.is_zero() {
            self.world.sleep(verdict.delay).await;
        }
        if verdict.hangs {
            self.released.wait().await;
        }
        self.powered(request)?;
        match verdict.effect {
            Some(Effect::Fail(kind)) => Err(self.error(request, kind)),
            _ => Ok(()),
        }
    }

    /// How many of `bytes` a torn write stores: whole blocks, never all.
    fn torn_bytes(&self, bytes: u64) -> u64 {
        let block = u64::from(self.inner.facts().block_bytes);
        self.plan.borrow_mut().below((bytes / block).max(1)) * block
    }

    /// As [`crate::Drive::read`], with faults.
    pub async fn read(&self, offset: u64, buffers: ReadBufs) -> ReadDone {
        let bytes = total_bytes(&buffers);
        let (request, verdict) = self.begin(Operation::Read, offset, bytes);
        if let Err(error) = self.pause(request, &verdict).await {
            return ReadDone { buffers, result: Err(error) };
        }
        if self.spoilt.borrow().range(self.blocks(offset, bytes)).next().is_some() {
            return ReadDone { buffers, result: Err(self.error(request, ErrorKind::Media)) };
        }
        // What is kept now may reach the drive below, and leave the cache, during the read.
        let kept = self.cache.borrow().runs(Some(self.blocks(offset, bytes)), u64::MAX);
        let below = Below::enter(&self.below);
        let mut done = self.inner.read(offset, buffers).await;
        drop(below);
        for (start, content) in kept {
            copy_into(&mut done.buffers, start - offset, &content);
        }
        for (start, content) in self.cache.borrow().runs(Some(self.blocks(offset, bytes)), u64::MAX)
        {
            copy_into(&mut done.buffers, start - offset, &content);
        }
        if verdict.effect == Some(Effect::Rot) {
            let place = self.plan.borrow_mut().place_in(&verdict.range, offset, bytes);
            let mut skip = place;
            for buffer in &mut done.buffers {
                if let Some(byte) = buffer.get_mut(skip as usize) {
                    *byte ^= 1;
                    break;
                }
                skip -= buffer.len() as u64;
            }
        }
        done.result = done.result.and_then(|()| self.powered(request));
        done
    }

    /// As [`crate::Drive::write`], with faults.
    pub async fn write(
        &self,
        offset: u64,
        buffers: WriteBufs,
        durability: Durability,
    ) -> Result<(), DriveError> {
        let bytes = total_bytes(&buffers);
        let (request, verdict) = self.begin(Operation::Write, offset, bytes);
        let ticket = self.tickets.get();
        self.tickets.set(ticket + 1);
        if self.powered(request).is_ok() {
            self.waiting.borrow_mut().insert(ticket, (offset, buffers.clone()));
        }
        let paused = self.pause(request, &verdict).await;
        self.waiting.borrow_mut().remove(&ticket);
        paused?;
        match verdict.effect {
            Some(Effect::Lost) => Ok(()),
            Some(Effect::Misdirect) => {
                let block = u64::from(self.inner.facts().block_bytes);
                let first = verdict.range.start.div_ceil(block);
                let end = verdict.range.end.min(self.inner.facts().size_bytes) / block;
                let places = (end - first).saturating_sub(bytes.div_ceil(block)) + 1;
                let elsewhere = (first + self.plan.borrow_mut().below(places)) * block;
                self.store(request, elsewhere, buffers, durability).await
            }
            Some(Effect::Torn { acknowledged }) => {
                let front = shared_part(&buffers, 0, self.torn_bytes(bytes));
                self.store(request, offset, front, durability).await?;
                if acknowledged { Ok(()) } else { Err(self.error(request, ErrorKind::Media)) }
            }
            Some(Effect::Rot) => {
                let mut rotten = self.world.pool().take(bytes as usize);
                copy_out(&buffers, 0, &mut rotten);
                let place = self.plan.borrow_mut().place_in(&verdict.range, offset, bytes);
                rotten[place as usize] ^= 1;
                let rotten = WriteBufs::from_iter([rotten.freeze()]);
                self.store(request, offset, rotten, durability).await
            }
            _ => self.store(request, offset, buffers, durability).await,
        }
    }

    /// Stores in the cache or on the drive below.
    async fn store(
        &self,
        request: Request,
        offset: u64,
        buffers: WriteBufs,
        durability: Durability,
    ) -> Result<(), DriveError> {
        let blocks = self.blocks(offset, total_bytes(&buffers));
        self.spoilt.borrow_mut().retain(|block| !blocks.contains(block));
        if !self.volatile.get() && self.cache.borrow().blocks() == 0 {
            let below = Below::enter(&self.below);
            let result = self.inner.write(offset, buffers, durability).await;
            drop(below);
            return result.and_then(|()| self.powered(request));
        }
        self.cache.borrow_mut().put(offset, &flat(&buffers));
        if self.volatile.get() && durability == Durability::Cached {
            return Ok(());
        }
        self.destage(request, Some(blocks)).await
    }

    /// Brings what is in the cache (of these blocks, or all) to the drive below, durably.
    async fn destage(
        &self,
        request: Request,
        blocks: Option<Range<u64>>,
    ) -> Result<(), DriveError> {
        let alone = self.destaging.acquire(1).await;
        self.powered(request)?;
        let until = self.cache.borrow().version();
        let runs = self.cache.borrow().runs(blocks.clone(), until);
        for (offset, content) in runs {
            self.powered(request)?;
            let _below = Below::enter(&self.below);
            let buffers = WriteBufs::from_iter([self.world.pool().copy_of(&content)]);
            self.inner.write(offset, buffers, Durability::Cached).await?;
        }
        self.powered(request)?;
        let below = Below::enter(&self.below);
        self.inner.flush().await?;
        drop(below);
        self.powered(request)?;
        self.cache.borrow_mut().forget(blocks, until);
        drop(alone);
        Ok(())
    }

    /// As [`crate::Drive::flush`], with faults.
    pub async fn flush(&self) -> Result<(), DriveError> {
        let (request, verdict) = self.begin(Operation::Flush, 0, 0);
        self.pause(request, &verdict).await?;
        if verdict.effect == Some(Effect::Lost) {
            return Ok(());
        }
        self.destage(request, None).await
    }

    /// What is common to discards and zeroes: `act` on the drive below, past the cache.
    async fn direct<T>(
        &self,
        request: Request,
        bytes: u64,
        act: impl AsyncFnOnce() -> Result<T, DriveError>,
    ) -> Result<T, DriveError> {
        let alone = self.destaging.acquire(1).await;
        self.powered(request)?;
        let until = self.cache.borrow().version();
        let below = Below::enter(&self.below);
        let result = act().await;
        drop(below);
        self.powered(request)?;
        if result.is_ok() {
            let blocks = self.blocks(request.offset, bytes);
            self.spoilt.borrow_mut().retain(|block| !blocks.contains(block));
            self.cache.borrow_mut().forget(Some(blocks), until);
        }
        drop(alone);
        result
    }

    /// As [`crate::Drive::discard`], with faults.
    pub async fn discard(&self, offset: u64, bytes: u64) -> Result<Discarded, DriveError> {
        let (request, verdict) = self.begin(Operation::Discard, offset, bytes);
        self.pause(request, &verdict).await?;
        if verdict.effect == Some(Effect::Lost) {
            return Ok(Discarded::Unspecified);
        }
        self.direct(request, bytes, async || self.inner.discard(offset, bytes).await).await
    }

    /// As [`crate::Drive::write_zeroes`], with faults.
    pub async fn write_zeroes(
        &self,
        offset: u64,
        bytes: u64,
        zeroing: Zeroing,
        durability: Durability,
    ) -> Result<(), DriveError> {
        let (request, verdict) = self.begin(Operation::WriteZeroes, offset, bytes);
        self.pause(request, &verdict).await?;
        let stored = match verdict.effect {
            Some(Effect::Lost) => return Ok(()),
            Some(Effect::Torn { .. }) => self.torn_bytes(bytes),
            _ => bytes,
        };
        if self.volatile.get() && stored <= CACHED_ZEROES_BYTES_MAX {
            let zeroes = self.world.pool().take_zeroed(stored as usize).freeze();
            self.store(request, offset, WriteBufs::from_iter([zeroes]), durability).await?;
        } else {
            let zero = async || self.inner.write_zeroes(offset, stored, zeroing, durability).await;
            self.direct(request, stored, zero).await?;
        }
        match verdict.effect {
            Some(Effect::Torn { acknowledged: false }) => {
                Err(self.error(request, ErrorKind::Media))
            }
            _ => Ok(()),
        }
    }

    /// As [`check_range`].
    pub fn check(&self, operation: Operation, offset: u64, bytes: u64) -> Result<(), DriveError> {
        check_range(self.inner.facts(), operation, offset, bytes)
    }
}

/// The bytes of all buffers in one.
pub(super) fn flat(buffers: &WriteBufs) -> Vec<u8> {
    let mut content = vec![0; total_bytes(buffers) as usize];
    copy_out(buffers, 0, &mut content);
    content
}
