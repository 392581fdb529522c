//! Any drive, with faults: what an engine must survive, made on demand and repeatable.
//!
//! [`Faulty`] wraps a drive. Its [`FaultControl`] scripts what goes wrong (errors, delays, hangs,
//! torn, lost and misdirected writes, bit rot), spoils blocks, gives the drive a volatile cache, and
//! cuts its power. Choices come from seeds alone, so a run that failed fails again.
//!
//! With the volatile cache a write is acknowledged while it is only kept here, apart from the drive
//! below; a flush, or the write's own durability, brings it there. At a power cut every block
//! decides by itself which of its unflushed versions arrived, if any: writes are kept, dropped,
//! reordered and torn, and only what was flushed is certain.
//!
//! Writes run as tasks of their own: one whose caller has given up still arrives some time later,
//! as on a real drive. Downsides: each write is copied, with the cache only one destages at a
//! time, and a write that has already reached a slow drive below arrives whole.

mod cache;
mod plan;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use world::{Gate, Notify, ReadBufs, Semaphore, SplitMix64, World, WriteBufs, total_bytes};

use crate::api::{Discarded, Drive, Durability, Facts, Io, ReadDone, Zeroing, check_range};
use crate::cut::{copy_into, copy_out, shared_part};
use crate::error::{DriveError, ErrorKind, Operation};
use cache::Cache;
pub use plan::{Effect, Fault, FaultId};
use plan::{Plan, Verdict};

/// Zeroes up to this size go through the volatile cache like a write; longer ones go to the drive
/// at once, which no drive promises and every drive may do.
const CACHED_ZEROES_BYTES_MAX: u64 = 1 << 20;

/// A drive with faults.
pub struct Faulty {
    state: Rc<State>,
}

/// Switches a [`Faulty`] drive's faults while it runs; clones control the same drive.
#[derive(Clone)]
pub struct FaultControl {
    state: Rc<State>,
}

struct State {
    world: World,
    inner: Rc<dyn Drive>,
    plan: RefCell<Plan>,
    /// Blocks (by index) that can't be read until they are rewritten.
    spoilt: RefCell<BTreeSet<u64>>,
    released: Notify,
    volatile: Cell<bool>,
    cache: RefCell<Cache>,
    destaging: Rc<Semaphore>,
    /// Writes that were begun and have not reached the cache or the drive below.
    waiting: RefCell<BTreeMap<u64, (u64, WriteBufs)>>,
    tickets: Cell<u64>,
    powered: Cell<bool>,
    /// How often the power was cut: whoever began before a cut finds the drive gone.
    cuts: Cell<u64>,
    below: Gate,
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

impl Faulty {
    /// Wraps `inner`; without a fault it behaves like it. `seed` decides what faults leave open.
    #[must_use]
    pub fn new(world: &World, inner: Rc<dyn Drive>, seed: u64) -> Faulty {
        let block_bytes = inner.facts().block_bytes;
        Faulty {
            state: Rc::new(State {
                world: world.clone(),
                inner,
                plan: RefCell::new(Plan::new(seed)),
                spoilt: RefCell::default(),
                released: Notify::default(),
                volatile: Cell::new(false),
                cache: RefCell::new(Cache::new(block_bytes)),
                destaging: Rc::new(Semaphore::new(1)),
                waiting: RefCell::default(),
                tickets: Cell::new(0),
                powered: Cell::new(true),
                cuts: Cell::new(0),
                below: Gate::default(),
            }),
        }
    }

    /// The switchboard.
    #[must_use]
    pub fn control(&self) -> FaultControl {
        FaultControl { state: Rc::clone(&self.state) }
    }
}

impl FaultControl {
    /// Adds a fault; it applies to operations that begin from now on.
    pub fn add(&self, fault: Fault) -> FaultId {
        self.state.plan.borrow_mut().add(fault)
    }

    /// Removes a fault; what already hangs by it needs [`FaultControl::release`].
    pub fn remove(&self, id: FaultId) {
        self.state.plan.borrow_mut().remove(id);
    }

    /// Removes every fault (not spoilt blocks) and lets go of what hangs.
    pub fn clear(&self) {
        self.state.plan.borrow_mut().clear();
        self.release();
    }

    /// Lets every operation that hangs now go on.
    pub fn release(&self) {
        self.state.released.notify_all();
    }

    /// How many operations were changed by a fault so far.
    #[must_use]
    pub fn injected(&self) -> u64 {
        self.state.plan.borrow().injected()
    }

    /// Makes the blocks that the range touches unreadable until each is rewritten.
    pub fn spoil(&self, offset: u64, bytes: u64) {
        self.state.spoilt.borrow_mut().extend(self.state.blocks(offset, bytes));
    }

    /// Flips one bit of the byte at `offset`, as it is stored, silently.
    ///
    /// # Errors
    /// Those of the drive below.
    pub async fn rot(&self, offset: u64) -> Result<(), DriveError> {
        let state = &self.state;
        let block = u64::from(state.inner.facts().block_bytes);
        let start = offset - offset % block;
        let buffers = ReadBufs::from_iter([state.world.pool().take(block as usize)]);
        let done = state.inner.read(start, buffers).await;
        done.result?;
        let mut buffers = done.buffers;
        buffers[0][(offset - start) as usize] ^= 0x10;
        let buffers = buffers.into_iter().map(world::BufMut::freeze).collect();
        state.inner.write(start, buffers, Durability::Durable).await
    }

    /// Whether writes are acknowledged from a cache that a power cut empties.
    pub fn set_volatile_cache(&self, volatile: bool) {
        self.state.volatile.set(volatile);
    }

    /// Blocks that a power cut now could change.
    #[must_use]
    pub fn unflushed_blocks(&self) -> usize {
        self.state.cache.borrow().blocks()
    }

    /// Cuts the power: everything under way ends as `Gone`, each unflushed block keeps one of its
    /// versions as `seed` decides, and writes that were on their way are torn between blocks. Until
    /// [`FaultControl::power_on`] every operation fails.
    ///
    /// # Errors
    /// Those of the drive below, while the survivors are stored.
    pub async fn power_cut(&self, seed: u64) -> Result<(), DriveError> {
        let state = &self.state;
        state.powered.set(false);
        state.cuts.set(state.cuts.get() + 1);
        state.released.notify_all();
        let under_way = state.waiting.take();
        state.below.drained().await;
        let mut random = SplitMix64::new(seed);
        let mut lasting = Cache::new(state.inner.facts().block_bytes);
        for (offset, content) in state.cache.borrow_mut().take_survivors(&mut random) {
            lasting.put(offset, &content);
        }
        for (offset, buffers) in under_way.into_values() {
            lasting.put_some(offset, &flat(&buffers), &mut random);
        }
        for (offset, content) in lasting.runs(None, u64::MAX) {
            let buffers = WriteBufs::from_iter([state.world.pool().copy_of(&content)]);
            state.inner.write(offset, buffers, Durability::Durable).await?;
        }
        state.inner.flush().await
    }

    /// Brings the drive back, with what survived.
    pub fn power_on(&self) {
        self.state.powered.set(true);
    }
}

fn flat(buffers: &WriteBufs) -> Vec<u8> {
    let mut content = vec![0; total_bytes(buffers) as usize];
    copy_out(buffers, 0, &mut content);
    content
}

impl State {
    fn blocks(&self, offset: u64, bytes: u64) -> Range<u64> {
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

    async fn read(&self, offset: u64, buffers: ReadBufs) -> ReadDone {
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

    async fn write(
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
                let places = (self.inner.facts().size_bytes - bytes) / block + 1;
                let elsewhere = self.plan.borrow_mut().below(places) * block;
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

    async fn flush(&self) -> Result<(), DriveError> {
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

    async fn discard(&self, offset: u64, bytes: u64) -> Result<Discarded, DriveError> {
        let (request, verdict) = self.begin(Operation::Discard, offset, bytes);
        self.pause(request, &verdict).await?;
        if verdict.effect == Some(Effect::Lost) {
            return Ok(Discarded::Unspecified);
        }
        self.direct(request, bytes, async || self.inner.discard(offset, bytes).await).await
    }

    async fn write_zeroes(
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

    fn check(&self, operation: Operation, offset: u64, bytes: u64) -> Result<(), DriveError> {
        check_range(self.inner.facts(), operation, offset, bytes)
    }
}

impl Faulty {
    /// Runs `act` as a task, so that it goes on even if nobody waits for it any more.
    fn task<T: 'static>(&self, act: impl Future<Output = T> + 'static) -> Io<'_, T> {
        let task = self.state.world.spawn(act);
        Io::later(task)
    }
}

impl Drive for Faulty {
    fn facts(&self) -> &Facts {
        self.state.inner.facts()
    }

    fn read(&self, offset: u64, buffers: ReadBufs) -> Io<'_, ReadDone> {
        let bytes = total_bytes(&buffers);
        let checked = self.state.check(Operation::Read, offset, bytes);
        if checked.is_err() || bytes == 0 {
            return Io::ready(ReadDone { buffers, result: checked });
        }
        Io::later(self.state.read(offset, buffers))
    }

    fn write(
        &self,
        offset: u64,
        buffers: WriteBufs,
        durability: Durability,
    ) -> Io<'_, Result<(), DriveError>> {
        let bytes = total_bytes(&buffers);
        let checked = self.state.check(Operation::Write, offset, bytes);
        if checked.is_err() || bytes == 0 {
            return Io::ready(checked);
        }
        let state = Rc::clone(&self.state);
        self.task(async move { state.write(offset, buffers, durability).await })
    }

    fn flush(&self) -> Io<'_, Result<(), DriveError>> {
        let state = Rc::clone(&self.state);
        self.task(async move { state.flush().await })
    }

    fn discard(&self, offset: u64, bytes: u64) -> Io<'_, Result<Discarded, DriveError>> {
        let checked = self.state.check(Operation::Discard, offset, bytes);
        if checked.is_err() || bytes == 0 {
            return Io::ready(checked.map(|()| Discarded::Unspecified));
        }
        let state = Rc::clone(&self.state);
        self.task(async move { state.discard(offset, bytes).await })
    }

    fn write_zeroes(
        &self,
        offset: u64,
        bytes: u64,
        zeroing: Zeroing,
        durability: Durability,
    ) -> Io<'_, Result<(), DriveError>> {
        let checked = self.state.check(Operation::WriteZeroes, offset, bytes);
        if checked.is_err() || bytes == 0 {
            return Io::ready(checked);
        }
        let state = Rc::clone(&self.state);
        self.task(async move { state.write_zeroes(offset, bytes, zeroing, durability).await })
    }
}
