//! What every part of the engine shares: the members, the locks, the record of failures.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::{Rc, Weak};

use drive::{DriveError, ErrorKind, Facts, Io, Operation};
use format::md::Uuid;
use geometry::Geometry;
use world::{Gate, World, join_all};

use crate::bitmap::Bitmap;
use crate::checksums::Checksums;
use crate::deadline::Alarms;
use crate::due;
use crate::job::Jobs;
use crate::lock::RangeLocks;
use crate::log::Log;
use crate::members::SparePool;
use crate::metadata::Metadata;
use crate::mutant::{self, Mutant};
use crate::policy::Policy;
use crate::scrub::ScrubPost;
use crate::slot::{Member, Replacement, Slot, SlotState};
use crate::stripe::Gather;
use crate::unsynced::Unsynced;

/// The state of an open array.
pub(crate) struct Core {
    /// For what has to go on even when its caller goes away.
    pub(crate) this: Weak<Core>,
    pub(crate) world: World,
    pub(crate) facts: Facts,
    pub(crate) set_uuid: Uuid,
    pub(crate) geometry: Geometry,
    pub(crate) slots: Vec<Slot>,
    /// Stripes for parity levels, array bytes for the others.
    pub(crate) locks: RangeLocks,
    pub(crate) gather: Gather,
    /// What closes the write hole.
    pub(crate) log: Log,
    pub(crate) metadata: Metadata,
    /// The set's write-intent bitmap.
    pub(crate) bitmap: Option<Bitmap>,
    pub(crate) writes_in_flight: Gate,
    /// Counts writes, so that a quiet time can be told from a busy one.
    pub(crate) writes_started: Cell<u64>,
    /// A task waits for a quiet time.
    pub(crate) cleaner: Cell<bool>,
    /// Redundancy agrees below this: bytes of each member's data area, for levels with copies in
    /// several places on a member bytes of the array.
    pub(crate) synced_to: Cell<u64>,
    /// How much of that survives a power cut: what the superblocks may say.
    pub(crate) synced_durably_to: Cell<u64>,
    /// Stripes (or runs of copies) a resync had to leave as they are: nothing was left to compare.
    pub(crate) unsynced: Unsynced,
    /// What the members keep checksums of.
    pub(crate) checksums: Checksums,
    /// Background work.
    pub(crate) jobs: Jobs,
    /// Spares of all arrays, where there are such.
    pub(crate) pool: RefCell<Option<SparePool>>,
    /// The scrub asked for or under way, or else the last.
    pub(crate) scrub: ScrubPost,
    /// The array is being stopped: nothing new begins.
    pub(crate) stopping: Cell<bool>,
    /// Tasks that mend what could not be read.
    pub(crate) mending: Gate,
    /// What to expect of members.
    pub(crate) policy: RefCell<Policy>,
    /// Deadlines of reads under way.
    pub(crate) reads_due: Rc<Alarms>,
    /// Deadlines of writes and flushes under way.
    pub(crate) writes_due: Rc<Alarms>,
}

impl Core {
    /// Whether redundancy agrees in a range: of each member's data area, for levels with copies in
    /// several places on a member of the array.
    pub(crate) fn agrees(&self, range: Range<u64>) -> bool {
        let passed = range.end <= self.synced_to.get();
        self.bitmap.as_ref().map_or(passed, |bitmap| bitmap.agrees(&range, passed))
    }

    /// The range in which [`Core::agrees`] and the bitmap count, for bytes of the array.
    pub(crate) fn extent(&self, array: Range<u64>) -> Range<u64> {
        let Geometry::Parity(parity) = &self.geometry else { return array };
        let (first, last) = (array.start, array.end.max(1) - 1);
        let stripe = |offset| parity.stripe_of(offset).0;
        stripe(first) * parity.chunk_bytes()..(stripe(last) + 1) * parity.chunk_bytes()
    }

    /// What there is to make agree: bytes of each member's data area, for copies of the array.
    pub(crate) fn sync_bytes(&self) -> u64 {
        match &self.geometry {
            Geometry::Parity(parity) => parity.stripes() * parity.chunk_bytes(),
            geometry => geometry.array_bytes(),
        }
    }

    /// Whether the level keeps anything twice, or as parity.
    pub(crate) fn redundant(&self) -> bool {
        self.geometry.copies() > 1 || matches!(self.geometry, Geometry::Parity(_))
    }

    /// The error for data that no member has any more.
    pub(crate) fn lost(&self, operation: Operation, offset: u64, bytes: u64) -> DriveError {
        let drive = self.facts.name.clone();
        DriveError { kind: ErrorKind::Lost, operation, offset, bytes, drive, source: None }
    }

    /// Slots whose member can't be relied on alone, as geometry wants them.
    pub(crate) fn missing(&self) -> Vec<bool> {
        self.slots.iter().map(|slot| slot.state() != SlotState::InSync).collect()
    }

    /// Whether data would be lost without this slot's member.
    pub(crate) fn needs(&self, slot: usize) -> bool {
        let mut missing = self.missing();
        missing[slot] = true;
        !self.geometry.survives(&missing)
    }

    /// Fails members that erred on a write or flush (one may be listed several times): from here on
    /// they are neither read nor written, and the others' superblocks say so before this returns,
    /// so that a member that lacks an acknowledged write is never trusted again.
    ///
    /// # Errors
    /// The member's own error, when the array can't do without it: then it stays, since failing
    /// it would lose what it still has.
    pub(crate) async fn fail_members(
        &self,
        failed: Vec<(usize, DriveError)>,
    ) -> Result<(), DriveError> {
        let mut result = Ok(());
        for (slot, error) in failed {
            if mutant::planted(Mutant::WriteErrorIgnored) && error.kind == ErrorKind::Media {
                continue;
            }
            match self.slots[slot].state() {
                SlotState::Faulty | SlotState::Missing => {}
                SlotState::InSync if self.needs(slot) => result = result.and(Err(error)),
                _ => self.drop_member(slot, error),
            }
        }
        for (slot, state) in self.slots.iter().enumerate() {
            if let Some(error) = state.take_failed_replacement() {
                self.metadata.seat_replacement(slot, None);
                self.metadata.note_failure(slot, error);
            }
        }
        // Also what another caller has failed: whoever relied on a member's absence must not be
        // told "done" before the others' superblocks know of it.
        if self.metadata.unrecorded() && !mutant::planted(Mutant::FailureNotRecorded) {
            self.commit().await?;
        }
        result
    }

    /// Takes a member out of use. Its replacement, if there is one, takes the slot with what it has
    /// got so far. To be recorded by the caller.
    pub(crate) fn drop_member(&self, slot: usize, error: DriveError) {
        let state = &self.slots[slot];
        state.set_state(SlotState::Faulty);
        self.metadata.note_failure(slot, error);
        self.go_on_with_replacement(slot);
        if let Some(core) = self.this.upgrade() {
            due::wake(&core);
        }
    }

    /// The drive that is to replace a slot's member takes the slot with what it has got so far, if
    /// there is one; tells whether. To be recorded by the caller.
    pub(crate) fn go_on_with_replacement(&self, slot: usize) -> bool {
        let state = &self.slots[slot];
        let Some(replacement) = state.replacement() else { return false };
        let (upto_bytes, durable_bytes) = match self.log {
            // What is being written now is in the log of the member that leaves.
            Log::Ppl(_) => (0, 0),
            _ => (replacement.upto_bytes.get(), replacement.durable_bytes.get()),
        };
        state.set_replacement(None);
        state.put(Rc::clone(&replacement.member), upto_bytes);
        state.set_durable_bytes(durable_bytes);
        self.promoted(slot);
        true
    }

    /// Records the present state on the members, as a task: a caller that goes away must not leave
    /// it half-recorded.
    pub(crate) async fn commit(&self) -> Result<(), DriveError> {
        let Some(core) = self.this.upgrade() else { return Ok(()) };
        self.world.spawn(async move { core.metadata.commit(&core).await }).await
    }

    /// Waits for one change on a slot's member.
    ///
    /// # Errors
    /// The member's: it must be failed then.
    pub(crate) async fn change(
        &self,
        slot: usize,
        change: Io<Result<(), DriveError>>,
    ) -> Result<(), DriveError> {
        let mut failed = self.settle(Operation::Write, vec![(slot, change)]).await;
        failed.pop().map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Makes everything on one member durable.
    ///
    /// # Errors
    /// The member's: it must be failed then.
    pub(crate) async fn flush_slot(&self, slot: usize) -> Result<(), DriveError> {
        let Some(member) = self.slots[slot].member() else { return Ok(()) };
        let mut failed = self.settle(Operation::Flush, vec![(slot, member.drive.flush())]).await;
        failed.pop().map_or(Ok(()), |(_, error)| Err(error))
    }

    /// The slot's replacement is its member now. To be recorded by the caller.
    pub(crate) fn promoted(&self, slot: usize) {
        self.metadata.promote(slot);
    }

    /// Makes everything on every member durable; one that can't is failed.
    ///
    /// # Errors
    /// As [`Core::fail_members`].
    pub(crate) async fn flush_members(&self) -> Result<(), DriveError> {
        if mutant::planted(Mutant::FlushNothing) {
            return Ok(());
        }
        let last = self.slots.iter().rposition(Slot::writable);
        let left_out = last.filter(|_| mutant::planted(Mutant::FlushLeftOut));
        let flushes = self.slots.iter().enumerate().filter_map(|(slot, state)| {
            let member = state.member().filter(|_| state.writable() && left_out != Some(slot))?;
            Some((slot, member.drive.flush()))
        });
        // One that takes its slot meanwhile would be found in neither list later.
        let mut replacements = self.replacements();
        if mutant::planted(Mutant::ReplacementNotFlushed) {
            replacements.clear();
        }
        let mut failed = self.settle(Operation::Flush, flushes.collect()).await;
        let flush = async |member: &Member| self.settle_other(member, member.drive.flush()).await;
        failed.extend(self.each_of(replacements, flush).await);
        if mutant::planted(Mutant::FlushErrorIgnored) {
            return Ok(());
        }
        self.fail_members(failed).await
    }

    /// The drives that are to replace members, with the slots of those.
    pub(crate) fn replacements(&self) -> Vec<(usize, Rc<Replacement>)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(slot, of)| Some((slot, of.replacement()?))).collect()
    }

    /// Does something to replacements, and notes on those for which it failed that they have. Gives
    /// those that have taken their slots since, with what failed.
    pub(crate) async fn each_of(
        &self,
        replacements: Vec<(usize, Rc<Replacement>)>,
        act: impl AsyncFn(&Member) -> Result<(), DriveError>,
    ) -> Vec<(usize, DriveError)> {
        let acts = replacements.into_iter().map(async |(slot, replacement)| {
            let result = act(&replacement.member).await;
            let member = self.slots[slot].member();
            let took_over = member.is_some_and(|member| Rc::ptr_eq(&member, &replacement.member));
            match result {
                Err(error) if took_over => Some((slot, error)),
                result => {
                    replacement.note(result);
                    None
                }
            }
        });
        join_all(acts.collect::<Vec<_>>()).await.into_iter().flatten().collect()
    }

    /// Does a change of these bytes of [`Core::extent`], of which the bitmap tells as long as it is
    /// under way.
    ///
    /// # Errors
    /// The change's own; when a member can't be written that the array can't do without.
    pub(crate) async fn intended<T>(
        &self,
        extent: &Range<u64>,
        change: impl Future<Output = Result<T, DriveError>>,
    ) -> Result<T, DriveError> {
        let Some(bitmap) = &self.bitmap else { return change.await };
        if !mutant::planted(Mutant::BitmapNotSet) {
            bitmap.begin(self, extent).await?;
        }
        let result = change.await;
        bitmap.end(self, extent, result.is_err());
        result
    }

    /// The error for what comes after the array was stopped.
    pub(crate) fn stopped(&self, operation: Operation, offset: u64, bytes: u64) -> DriveError {
        DriveError { kind: ErrorKind::Gone, ..self.lost(operation, offset, bytes) }
    }

    /// The error for writes after the journal has failed.
    pub(crate) fn without_log(&self, operation: Operation, offset: u64, bytes: u64) -> DriveError {
        DriveError { kind: ErrorKind::ReadOnly, ..self.lost(operation, offset, bytes) }
    }

    /// A read error leaves the member in the array, since its other data is still good; unless it
    /// does not answer at all any more. Errors that are mended are counted there.
    pub(crate) async fn note_read_error(&self, slot: usize, error: &DriveError) {
        self.metadata.count_read_error(slot);
        if error.kind == ErrorKind::Gone && self.redundant() {
            // The client's read is answered either way; what matters here is the record.
            let _ = self.fail_members(vec![(slot, error.clone())]).await;
        }
    }
}
