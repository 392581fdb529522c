//! A slot of the array and the member in it: what may be read from it and written to it.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use drive::{Drive, DriveError, Durability, ErrorKind, Io, Operation, ReadDone, Zeroing};
use world::{ReadBufs, WriteBufs};

use crate::bad_blocks::BadBlocks;
use crate::checked::MemberSums;
use crate::deadline::Lateness;
use crate::mend::ErrorBudget;
use crate::mutant::{self, Mutant};

/// What a slot's member is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotState {
    /// Nobody is there.
    Missing,
    /// Holds everything.
    InSync,
    /// Holds what was written since it came, and everything below this offset of its data area.
    Recovering {
        /// Bytes from the start of the data area.
        upto_bytes: u64,
    },
    /// Failed; neither read nor written any more.
    Faulty,
}

/// A drive in a slot.
pub(crate) struct Member {
    /// The whole drive, metadata included.
    pub(crate) drive: Rc<dyn Drive>,
    /// Where the data area starts on it, in bytes.
    pub(crate) data_offset: u64,
    /// What its bad-block log lists.
    pub(crate) bad: BadBlocks,
    /// Read only when nobody else has the data.
    pub(crate) write_mostly: bool,
    /// The checksums of its data; `drive` then compares what it reads with them.
    pub(crate) sums: Option<Rc<MemberSums>>,
}

impl Member {
    /// The drive as it was given, with nothing before it that compares.
    pub(crate) fn bare_drive(&self) -> Rc<dyn Drive> {
        Rc::clone(self.sums.as_ref().map_or(&self.drive, |sums| sums.drive()))
    }
}

/// A drive that is to take over from the member of a slot, which goes on serving: it gets every
/// write, and nothing is read from it.
pub(crate) struct Replacement {
    pub(crate) member: Rc<Member>,
    /// It holds everything below this offset of its data area.
    pub(crate) upto_bytes: Cell<u64>,
    /// How much of that survives a power cut.
    pub(crate) durable_bytes: Cell<u64>,
    /// A write to it failed: it must not be relied on any more.
    failed: RefCell<Option<DriveError>>,
}

impl Replacement {
    pub(crate) fn new(member: Member, upto_bytes: u64) -> Self {
        Replacement {
            member: Rc::new(member),
            upto_bytes: Cell::new(upto_bytes),
            durable_bytes: Cell::new(upto_bytes),
            failed: RefCell::default(),
        }
    }

    pub(crate) fn note(&self, result: Result<(), DriveError>) {
        if let Err(error) = result {
            self.failed.borrow_mut().get_or_insert(error);
        }
    }
}

/// A place in the array: the member in it, and what that is good for.
pub(crate) struct Slot {
    member: RefCell<Option<Rc<Member>>>,
    state: Cell<SlotState>,
    replacement: RefCell<Option<Rc<Replacement>>>,
    /// How much of a recovering member's content survives a power cut.
    durable_bytes: Cell<u64>,
    /// A recovering member lacks only what the bitmap says.
    came_back: Cell<bool>,
    /// Only counted where there are copies to choose from.
    mirrored: bool,
    reads_in_flight: Rc<Cell<u32>>,
    /// Where the last read ended: the next one there is sequential.
    read_end: Cell<u64>,
    /// How many times a batch of requests waited for this member in the end.
    answered_last: Cell<u64>,
    /// Its read errors of late.
    pub(crate) errors: RefCell<ErrorBudget>,
    /// Whether it answers in time.
    pub(crate) lateness: Lateness,
}

impl Slot {
    pub(crate) fn new(member: Option<Member>, state: SlotState, mirrored: bool) -> Self {
        let state = if member.is_some() { state } else { SlotState::Missing };
        Slot {
            member: RefCell::new(member.map(Rc::new)),
            state: Cell::new(state),
            replacement: RefCell::default(),
            durable_bytes: Cell::new(match state {
                SlotState::Recovering { upto_bytes } => upto_bytes,
                _ => 0,
            }),
            came_back: Cell::new(false),
            mirrored,
            reads_in_flight: Rc::default(),
            read_end: Cell::new(u64::MAX),
            answered_last: Cell::new(0),
            errors: RefCell::default(),
            lateness: Lateness::default(),
        }
    }

    /// How often a batch of requests waited for this member in the end: the slowest leads.
    pub(crate) fn answered_last(&self) -> u64 {
        self.answered_last.get()
    }

    pub(crate) fn note_answered_last(&self) {
        self.answered_last.set(self.answered_last.get() + 1);
    }

    pub(crate) fn member(&self) -> Option<Rc<Member>> {
        self.member.borrow().clone()
    }

    fn with_member<T>(&self, ask: impl FnOnce(&Member) -> T) -> Option<T> {
        self.member.borrow().as_deref().map(ask)
    }

    /// Who has the slot now, for [`Slot::has_left`].
    pub(crate) fn tenant(&self) -> Weak<Member> {
        self.member.borrow().as_ref().map(Rc::downgrade).unwrap_or_default()
    }

    /// Whether somebody else has the slot by now: what went wrong on the one before is nothing to
    /// hold against the successor.
    pub(crate) fn has_left(&self, tenant: &Weak<Member>) -> bool {
        self.with_member(|member| !std::ptr::eq(tenant.as_ptr(), member)).unwrap_or(false)
    }

    pub(crate) fn state(&self) -> SlotState {
        self.state.get()
    }

    pub(crate) fn set_state(&self, state: SlotState) {
        self.state.set(state);
    }

    /// Puts a member in that holds what is below `upto_bytes`.
    pub(crate) fn put(&self, member: Rc<Member>, upto_bytes: u64) {
        *self.member.borrow_mut() = Some(member);
        self.state.set(SlotState::Recovering { upto_bytes });
        self.durable_bytes.set(upto_bytes);
        self.came_back.set(false);
    }

    /// Whether a recovering member was in the slot before, and lacks only what the bitmap says.
    pub(crate) fn came_back(&self) -> bool {
        self.came_back.get()
    }

    pub(crate) fn set_came_back(&self) {
        self.came_back.set(true);
    }

    /// Nobody is in the slot any more.
    pub(crate) fn clear(&self) {
        *self.member.borrow_mut() = None;
        self.state.set(SlotState::Missing);
    }

    /// How far a recovering member's content survives a power cut: what its superblock may say.
    pub(crate) fn durable_bytes(&self) -> u64 {
        self.durable_bytes.get()
    }

    pub(crate) fn set_durable_bytes(&self, bytes: u64) {
        self.durable_bytes.set(bytes);
    }

    pub(crate) fn replacement(&self) -> Option<Rc<Replacement>> {
        self.replacement.borrow().clone()
    }

    pub(crate) fn set_replacement(&self, replacement: Option<Replacement>) {
        *self.replacement.borrow_mut() = replacement.map(Rc::new);
    }

    /// Takes out a replacement that has failed, and gives what it did.
    pub(crate) fn take_failed_replacement(&self) -> Option<DriveError> {
        let error = self.replacement()?.failed.take()?;
        *self.replacement.borrow_mut() = None;
        Some(error)
    }

    /// Whether the range holds the array's data.
    pub(crate) fn readable(&self, offset: u64, bytes: u64) -> bool {
        let good = |member: &Member| !member.bad.overlaps(member.data_offset + offset, bytes);
        self.holds(offset, bytes) && self.with_member(good).unwrap_or(false)
    }

    /// Whether a member is there that holds the range, unless it can't be read.
    pub(crate) fn holds(&self, offset: u64, bytes: u64) -> bool {
        let valid = match self.state.get() {
            SlotState::InSync => true,
            SlotState::Recovering { upto_bytes } => offset + bytes <= upto_bytes,
            SlotState::Faulty => mutant::planted(Mutant::FailedStillRead),
            SlotState::Missing => false,
        };
        valid && self.member.borrow().is_some()
    }

    /// Whether writes go to the member.
    pub(crate) fn writable(&self) -> bool {
        matches!(self.state.get(), SlotState::InSync | SlotState::Recovering { .. })
    }

    /// How unwelcome a read at `offset` is: lower is better. Members that others should be tried
    /// before, and such as don't answer in time, come last, then a sequential reader keeps its
    /// member, then the idlest one wins.
    pub(crate) fn read_cost(&self, offset: u64) -> (bool, bool, u32) {
        let write_mostly = self.with_member(|member| member.write_mostly).unwrap_or(false);
        let jump = u32::from(self.read_end.get() != offset);
        (self.lateness.late(), write_mostly, self.reads_in_flight.get() * 2 + jump)
    }

    /// Reads from the data area.
    pub(crate) fn read(&self, offset: u64, buffers: ReadBufs) -> Io<ReadDone> {
        self.read_end.set(offset + world::total_bytes(&buffers));
        let Some(member) = self.member() else {
            let error = gone(Operation::Read, offset, world::total_bytes(&buffers));
            return Io::ready(ReadDone { buffers, result: Err(error) });
        };
        let read = member.drive.read(member.data_offset + offset, buffers);
        match read {
            Io::Later(read) if self.mirrored => {
                let counted = Counted::new(&self.reads_in_flight);
                Io::later(async move {
                    let _counted = counted;
                    read.await
                })
            }
            read => read,
        }
    }

    /// Writes to the data area.
    pub(crate) fn write(
        &self,
        offset: u64,
        buffers: WriteBufs,
        durability: Durability,
    ) -> Io<Result<(), DriveError>> {
        let Some(member) = self.member() else {
            return Io::ready(Err(gone(Operation::Write, offset, world::total_bytes(&buffers))));
        };
        let skipped = mutant::planted(Mutant::ReplacementNotWritten);
        let Some(replacement) = self.replacement().filter(|_| !skipped) else {
            return member.drive.write(member.data_offset + offset, buffers, durability);
        };
        let write = |member: &Member| {
            member.drive.write(member.data_offset + offset, buffers.clone(), durability)
        };
        both(write(&member), write(&replacement.member), replacement)
    }

    /// Makes a range of the data area zero.
    pub(crate) fn write_zeroes(
        &self,
        offset: u64,
        bytes: u64,
        zeroing: Zeroing,
        durability: Durability,
    ) -> Io<Result<(), DriveError>> {
        let zero = |member: &Member| {
            member.drive.write_zeroes(member.data_offset + offset, bytes, zeroing, durability)
        };
        let Some(member) = self.member() else {
            return Io::ready(Err(gone(Operation::WriteZeroes, offset, bytes)));
        };
        let own = zero(&member);
        match self.replacement() {
            None => own,
            Some(replacement) => both(own, zero(&replacement.member), replacement),
        }
    }
}

/// The error for a member that was taken out since somebody decided to ask it.
fn gone(operation: Operation, offset: u64, bytes: u64) -> DriveError {
    let drive = Rc::from("a member that was taken out");
    DriveError { kind: ErrorKind::Gone, operation, offset, bytes, drive, source: None }
}

/// A change of a member and of its replacement, whose error is only noted.
fn both(
    own: Io<Result<(), DriveError>>,
    copy: Io<Result<(), DriveError>>,
    replacement: Rc<Replacement>,
) -> Io<Result<(), DriveError>> {
    Io::later(async move {
        let mut results = world::join_all([own, copy]).await.into_iter();
        let own = results.next().expect("one result for each change");
        results.for_each(|result| replacement.note(result));
        own
    })
}

/// Counts down when the operation ends, or is dropped.
struct Counted(Rc<Cell<u32>>);

impl Counted {
    fn new(count: &Rc<Cell<u32>>) -> Self {
        count.set(count.get() + 1);
        Counted(Rc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
