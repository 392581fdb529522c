//! Any drive, with faults: what an engine must survive, made on demand and repeatable.
//!
//! [`Faulty`] wraps a drive. Its [`FaultControl`] scripts what goes wrong (errors, delays, hangs,
//! torn, lost and misdirected writes, bit rot), spoils blocks, gives the drive a volatile cache,
//! and cuts its power. Choices come from seeds alone, so a run that failed fails again.
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
mod state;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use world::{Gate, Notify, ReadBufs, Semaphore, SplitMix64, World, WriteBufs, total_bytes};

use crate::api::{Discarded, Drive, Durability, Facts, Io, ReadDone, Zeroing};
use crate::error::{DriveError, Operation};
use cache::Cache;
use plan::Plan;
pub use plan::{Effect, Fault, FaultId};
use state::{State, flat};

/// A drive with faults.
pub struct Faulty {
    state: Rc<State>,
}

/// Switches a [`Faulty`] drive's faults while it runs; clones control the same drive.
#[derive(Clone)]
pub struct FaultControl {
    state: Rc<State>,
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

    /// Whether some block of the range can't be read.
    #[must_use]
    pub fn spoilt(&self, offset: u64, bytes: u64) -> bool {
        self.state.spoilt.borrow().range(self.state.blocks(offset, bytes)).next().is_some()
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

impl Faulty {
    /// Runs `act` as a task, so that it goes on even if nobody waits for it any more.
    fn task<T: 'static>(&self, act: impl Future<Output = T> + 'static) -> Io<T> {
        let task = self.state.world.spawn(act);
        Io::later(task)
    }
}

impl Drive for Faulty {
    fn facts(&self) -> &Facts {
        self.state.inner.facts()
    }

    fn read(&self, offset: u64, buffers: ReadBufs) -> Io<ReadDone> {
        let bytes = total_bytes(&buffers);
        let checked = self.state.check(Operation::Read, offset, bytes);
        if checked.is_err() || bytes == 0 {
            return Io::ready(ReadDone { buffers, result: checked });
        }
        let state = Rc::clone(&self.state);
        Io::later(async move { state.read(offset, buffers).await })
    }

    fn write(
        &self,
        offset: u64,
        buffers: WriteBufs,
        durability: Durability,
    ) -> Io<Result<(), DriveError>> {
        let bytes = total_bytes(&buffers);
        let checked = self.state.check(Operation::Write, offset, bytes);
        if checked.is_err() || bytes == 0 {
            return Io::ready(checked);
        }
        let state = Rc::clone(&self.state);
        self.task(async move { state.write(offset, buffers, durability).await })
    }

    fn flush(&self) -> Io<Result<(), DriveError>> {
        let state = Rc::clone(&self.state);
        self.task(async move { state.flush().await })
    }

    fn discard(&self, offset: u64, bytes: u64) -> Io<Result<Discarded, DriveError>> {
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
    ) -> Io<Result<(), DriveError>> {
        let checked = self.state.check(Operation::WriteZeroes, offset, bytes);
        if checked.is_err() || bytes == 0 {
            return Io::ready(checked);
        }
        let state = Rc::clone(&self.state);
        self.task(async move { state.write_zeroes(offset, bytes, zeroing, durability).await })
    }
}
