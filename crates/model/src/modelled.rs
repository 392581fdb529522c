//! A modelled drive: its machine decides when an operation ends, memory keeps the bytes.
//!
//! An operation goes to the machine when it is asked for, so that dropping it does not undo it. One
//! task sleeps until the machine's next event and hands out completions; it exists only while
//! something is under way.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::task::{Poll, Waker};

use drive::{
    Discarded, Drive, DriveError, Durability, ErrorKind, Facts, Io, MemoryDrive, Operation,
    ReadDone, Zeroing, check_range,
};
use world::{Notify, ReadBufs, World, WriteBufs, race, total_bytes};

use crate::command::{Command, Timing};
use crate::split::Split;
use crate::{disk, ssd};

/// Sector that hosts of SSDs address.
const BLOCK_BYTES: u32 = 512;

/// Who waits for a command.
#[derive(Default)]
struct Waiting {
    over: Cell<bool>,
    failed: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

struct Inner<M> {
    world: World,
    machine: RefCell<M>,
    waiting: RefCell<BTreeMap<u64, Rc<Waiting>>>,
    tags: Cell<u64>,
    pumping: Cell<bool>,
    earlier: Notify,
    spent: RefCell<(u64, Split)>,
}

/// A modelled drive in a world of virtual time. It reads as zeroes at first.
pub struct Modelled<M> {
    facts: Facts,
    content: Rc<MemoryDrive>,
    inner: Rc<Inner<M>>,
}

/// A modelled SSD.
pub type SsdDrive = Modelled<ssd::machine::Machine>;

/// A modelled hard disk.
pub type DiskDrive = Modelled<disk::machine::Machine>;

impl SsdDrive {
    /// A drive in `state`, which decides how its flash is used; `seed` decides where that content
    /// lies.
    #[must_use]
    pub fn new(
        world: &World,
        parameters: ssd::parameters::Parameters,
        state: ssd::translation::State,
        seed: u64,
    ) -> Self {
        let name = parameters.name.clone();
        let content = MemoryDrive::new(&name, parameters.capacity_bytes, BLOCK_BYTES);
        let preferred_bytes = u64::from(parameters.page_bytes);
        let machine = ssd::machine::Machine::new(parameters, state, seed);
        Self::assemble(world, content, preferred_bytes, machine)
    }

    /// What translation did so far.
    #[must_use]
    pub fn counters(&self) -> ssd::translation::Counters {
        self.inner.machine.borrow().counters()
    }
}

impl DiskDrive {
    /// A disk whose platter begins to turn with the world.
    #[must_use]
    pub fn new(world: &World, parameters: disk::parameters::Parameters) -> Self {
        let bytes = parameters.blocks * u64::from(parameters.block_bytes);
        let content = MemoryDrive::new(&parameters.name, bytes, parameters.block_bytes);
        let preferred_bytes = content.facts().preferred_bytes;
        Self::assemble(world, content, preferred_bytes, disk::machine::Machine::new(parameters))
    }

    /// Blocks that the range touches can't be read until they are written.
    pub fn spoil(&self, offset: u64, bytes: u64) {
        let block = u64::from(self.facts.block_bytes);
        let first = offset / block;
        let end = (offset + bytes).div_ceil(block).min(self.facts.size_bytes / block);
        self.inner.machine.borrow_mut().spoil(first, end.saturating_sub(first));
    }
}

impl<M: Timing + 'static> Modelled<M> {
    fn assemble(world: &World, content: MemoryDrive, preferred_bytes: u64, machine: M) -> Self {
        Modelled {
            facts: Facts { preferred_bytes, ..content.facts().clone() },
            content: Rc::new(content),
            inner: Rc::new(Inner {
                world: world.clone(),
                machine: RefCell::new(machine),
                waiting: RefCell::default(),
                tags: Cell::new(0),
                pumping: Cell::new(false),
                earlier: Notify::default(),
                spent: RefCell::default(),
            }),
        }
    }

    /// Commands that ended, and the sum of their times by stage.
    #[must_use]
    pub fn spent(&self) -> (u64, Split) {
        *self.inner.spent.borrow()
    }

    fn check(&self, operation: Operation, offset: u64, bytes: u64) -> Result<(), DriveError> {
        check_range(&self.facts, operation, offset, bytes)
    }

    /// Ends when the command does, and tells whether it failed.
    fn start(&self, command: Command) -> impl Future<Output = bool> + 'static {
        let waiting = Inner::start(&self.inner, command);
        std::future::poll_fn(move |context| {
            if waiting.over.get() {
                return Poll::Ready(waiting.failed.get());
            }
            *waiting.waker.borrow_mut() = Some(context.waker().clone());
            Poll::Pending
        })
    }
}

impl<M: Timing + 'static> Inner<M> {
    fn start(this: &Rc<Self>, command: Command) -> Rc<Waiting> {
        let tag = this.tags.get();
        this.tags.set(tag + 1);
        let waiting = Rc::new(Waiting::default());
        this.waiting.borrow_mut().insert(tag, Rc::clone(&waiting));
        this.machine.borrow_mut().submit(this.world.now_ns(), tag, command);
        if this.pumping.replace(true) {
            this.earlier.notify_all();
        } else {
            drop(this.world.spawn(Inner::pump(Rc::clone(this))));
        }
        waiting
    }

    async fn pump(self: Rc<Self>) {
        loop {
            let next_ns = self.machine.borrow().next_ns();
            let Some(next_ns) = next_ns else { break };
            let sleep = self.world.sleep_until_ns(next_ns);
            // Whichever comes first: events that came before the next one are due earlier.
            let _ = race(sleep, self.earlier.wait()).await;
            let mut machine = self.machine.borrow_mut();
            machine.advance(self.world.now_ns());
            while let Some(completion) = machine.completion() {
                let (commands, sum) = &mut *self.spent.borrow_mut();
                *commands += 1;
                sum.merge(&completion.split);
                if let Some(waiting) = self.waiting.borrow_mut().remove(&completion.tag) {
                    waiting.over.set(true);
                    waiting.failed.set(completion.failed);
                    if let Some(waker) = waiting.waker.take() {
                        waker.wake();
                    }
                }
            }
        }
        self.pumping.set(false);
    }
}

impl<M: Timing + 'static> Drive for Modelled<M> {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn read(&self, offset: u64, buffers: ReadBufs) -> Io<ReadDone> {
        let bytes = total_bytes(&buffers);
        if let Err(error) = self.check(Operation::Read, offset, bytes) {
            return Io::ready(ReadDone { buffers, result: Err(error) });
        }
        let over = self.start(Command::Read { offset, bytes });
        let content = Rc::clone(&self.content);
        let drive = self.facts.name.clone();
        Io::later(async move {
            if over.await {
                let (kind, operation) = (ErrorKind::Media, Operation::Read);
                let error = DriveError { kind, operation, offset, bytes, drive, source: None };
                return ReadDone { buffers, result: Err(error) };
            }
            content.read(offset, buffers).await
        })
    }

    fn write(
        &self,
        offset: u64,
        buffers: WriteBufs,
        durability: Durability,
    ) -> Io<Result<(), DriveError>> {
        let bytes = total_bytes(&buffers);
        if let Err(error) = self.check(Operation::Write, offset, bytes) {
            return Io::ready(Err(error));
        }
        let durable = durability == Durability::Durable;
        let over = self.start(Command::Write { offset, bytes, durable });
        let stored = self.content.write(offset, buffers, durability);
        Io::later(async move {
            over.await;
            stored.await
        })
    }

    fn flush(&self) -> Io<Result<(), DriveError>> {
        let over = self.start(Command::Flush);
        Io::later(async move {
            over.await;
            Ok(())
        })
    }

    fn discard(&self, offset: u64, bytes: u64) -> Io<Result<Discarded, DriveError>> {
        if let Err(error) = self.check(Operation::Discard, offset, bytes) {
            return Io::ready(Err(error));
        }
        let over = self.start(Command::Trim { offset, bytes });
        let cleared = self.content.discard(offset, bytes);
        Io::later(async move {
            over.await;
            cleared.await
        })
    }

    fn write_zeroes(
        &self,
        offset: u64,
        bytes: u64,
        zeroing: Zeroing,
        durability: Durability,
    ) -> Io<Result<(), DriveError>> {
        if let Err(error) = self.check(Operation::WriteZeroes, offset, bytes) {
            return Io::ready(Err(error));
        }
        let durable = durability == Durability::Durable;
        // Zeroes that have to stay allocated are written like other data.
        let command = match zeroing {
            Zeroing::MayUnmap if !durable => Command::Trim { offset, bytes },
            _ => Command::Write { offset, bytes, durable },
        };
        let over = self.start(command);
        let cleared = self.content.write_zeroes(offset, bytes, zeroing, durability);
        Io::later(async move {
            over.await;
            cleared.await
        })
    }
}
