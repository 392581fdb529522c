//! Members that take too long: reads are answered without them, writes fail them.
//!
//! A read over its deadline is given up by whoever waits for it and ends by itself as a task, which
//! keeps its buffers; the member is *late* from then on. Late members are asked last: what they
//! hold comes from redundancy at once, without a wait. They are asked again every second, and are
//! late no more once they answer in time. So a drive that hangs costs one wait, not one a request.
//!
//! A write (or flush) over its deadline fails the member, since what it will hold is not known; the
//! others' superblocks say so before the client hears that its write is done. What arrives on the
//! member later does not matter any more: it is out, and stale by its superblock.
//!
//! When more members are late than the array can spare, it is not they who are slow: all disks
//! spin up, the machine was busy. Then there is nothing to answer from, nobody is failed and the
//! wait goes on, up to [`Policy::patience`].
//!
//! The same goes for reads of stripes that are not resynced: there parity says nothing yet.
//!
//! Downside: a drive that pauses by nature for longer than the deadline, alone, is failed by a
//! write to it; for such drives the deadlines have to be longer.
//!
//! [`Policy::patience`]: crate::Policy::patience

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use drive::{Drive, DriveError, ErrorKind, Io, Operation, ReadDone};
use geometry::Geometry;
use smallvec::SmallVec;
use world::{ReadBufs, World, race, total_bytes};

use crate::core::Core;
use crate::mend;
use crate::slot::{Member, Slot, SlotState};
use crate::split::lengths;

/// Reads of one member that were given up and have not ended; with more it stays late even if it
/// answers other reads.
const GIVEN_UP_MAX: u32 = 16;

/// How often a late member is asked whether it answers again.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// Reads in a row that took more than half the deadline before their member counts as late.
const SLOW_READS: u32 = 3;

/// A write or flush under way, and the slot of its member.
pub(crate) type Change = (usize, Io<Result<(), DriveError>>);

/// How a member has answered of late.
#[derive(Default)]
pub(crate) struct Lateness {
    late: Cell<bool>,
    given_up: Cell<u32>,
    slow_reads: Cell<u32>,
}

impl Lateness {
    pub(crate) fn late(&self) -> bool {
        self.late.get()
    }
}

struct Entry {
    due_ns: u64,
    rung: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// Deadlines of what is under way, oldest first. One sleeper serves them all, so that an operation
/// that ends in time, as nearly all do, costs no timer.
#[derive(Default)]
pub(crate) struct Alarms {
    queue: RefCell<VecDeque<Rc<Entry>>>,
    served: Cell<bool>,
}

impl Alarms {
    /// An alarm that rings `limit` from now, or somewhat later where limits were shortened.
    pub(crate) fn arm(self: &Rc<Self>, world: &World, limit: Duration) -> Alarm {
        let due_ns = world.now_ns().saturating_add(limit.as_nanos() as u64);
        let entry = Rc::new(Entry { due_ns, rung: Cell::new(false), waker: RefCell::default() });
        self.forget_ended();
        self.queue.borrow_mut().push_back(Rc::clone(&entry));
        if !self.served.replace(true) {
            let (alarms, clock) = (Rc::clone(self), world.clone());
            world.spawn(async move { alarms.serve(&clock).await });
        }
        Alarm(entry)
    }

    /// Drops those at the front that nobody waits for.
    fn forget_ended(&self) {
        let mut queue = self.queue.borrow_mut();
        while queue.front().is_some_and(|entry| Rc::strong_count(entry) == 1) {
            queue.pop_front();
        }
    }

    async fn serve(&self, world: &World) {
        loop {
            self.forget_ended();
            let next = self.queue.borrow().front().map(|entry| entry.due_ns);
            let Some(due_ns) = next else { break };
            world.sleep_until_ns(due_ns).await;
            let now_ns = world.now_ns();
            let mut queue = self.queue.borrow_mut();
            while queue.front().is_some_and(|entry| entry.due_ns <= now_ns) {
                let Some(entry) = queue.pop_front() else { break };
                entry.rung.set(true);
                if let Some(waker) = entry.waker.borrow_mut().take() {
                    waker.wake();
                }
            }
        }
        self.served.set(false);
    }
}

/// Ends when it rings.
pub(crate) struct Alarm(Rc<Entry>);

impl Future for Alarm {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.0.rung.get() {
            return Poll::Ready(());
        }
        *self.0.waker.borrow_mut() = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Core {
    /// Whether the array has all its data without the members that are late, and these ones.
    fn spares(&self, slots: &[usize]) -> bool {
        let mut missing = self.missing();
        for (slot, missing) in missing.iter_mut().enumerate() {
            *missing |= self.slots[slot].lateness.late() || slots.contains(&slot);
        }
        self.geometry.survives(&missing)
    }

    /// Whether reads should ask somebody else, if there is somebody.
    pub(crate) fn any_late(&self) -> bool {
        self.slots.iter().any(|slot| slot.lateness.late())
    }

    /// Whether redundancy knows what members hold in a range of their data areas. Before parity is
    /// resynced it knows nothing: what a late member holds has to be waited for, since what would
    /// be computed in its place is something else.
    pub(crate) fn known_elsewhere(&self, range: Range<u64>) -> bool {
        !matches!(self.geometry, Geometry::Parity(_)) || self.agrees(range)
    }

    /// Reads from a member's data area. Unless `patient`, a read over its deadline ends as
    /// `TimedOut` where the array can do without the member; its buffers are new ones then.
    pub(crate) fn read(
        &self,
        slot: usize,
        offset: u64,
        buffers: ReadBufs,
        patient: bool,
    ) -> Io<ReadDone> {
        let bytes = total_bytes(&buffers);
        let lens = lengths(&buffers);
        let patient = patient || !self.known_elsewhere(offset..offset + bytes);
        let read = match self.slots[slot].read(offset, buffers) {
            Io::Later(read) if self.redundant() => read,
            read => return read,
        };
        let Some(core) = self.this.upgrade() else { return Io::Later(read) };
        let policy = *self.policy.borrow();
        let begun_ns = self.world.now_ns();
        let tenant = self.slots[slot].tenant();
        let mut alarm = self.reads_due.arm(&self.world, policy.read_deadline);
        let mut read = read;
        Io::later(async move {
            loop {
                match race(&mut read, alarm).await {
                    Ok(ReadDone { buffers, result: Err(_) })
                        if core.slots[slot].has_left(&tenant) =>
                    {
                        let error = core.timed_out(slot, Operation::Read, offset, bytes);
                        return ReadDone { buffers, result: Err(error) };
                    }
                    Ok(done) => {
                        core.note_pace(slot, begun_ns, policy.read_deadline);
                        return done;
                    }
                    Err(()) => {
                        let waited = Duration::from_nanos(core.world.now_ns() - begun_ns);
                        if waited >= policy.patience || (!patient && core.spares(&[slot])) {
                            break;
                        }
                        alarm = core.reads_due.arm(&core.world, policy.read_deadline);
                    }
                }
            }
            core.give_up(slot, offset, bytes, read);
            let error = core.timed_out(slot, Operation::Read, offset, bytes);
            let buffers = lens.iter().map(|&len| core.world.pool().take(len)).collect();
            ReadDone { buffers, result: Err(error) }
        })
    }

    /// The error for what a slot's member has not done in time.
    pub(crate) fn timed_out(
        &self,
        slot: usize,
        operation: Operation,
        offset: u64,
        bytes: u64,
    ) -> DriveError {
        let drive = self.slots[slot].member().map(|member| member.drive.facts().name.clone());
        let drive = drive.unwrap_or_else(|| self.facts.name.clone());
        let kind = ErrorKind::TimedOut;
        DriveError { kind, operation, offset, bytes, drive, source: None }
    }

    /// A read has ended in time: not every time just so, or the member counts as late.
    fn note_pace(&self, slot: usize, begun_ns: u64, deadline: Duration) {
        let lateness = &self.slots[slot].lateness;
        let took = Duration::from_nanos(self.world.now_ns() - begun_ns);
        let slow = if took > deadline / 2 { lateness.slow_reads.get() + 1 } else { 0 };
        lateness.slow_reads.set(slow);
        if slow >= SLOW_READS && self.spares(&[slot]) {
            self.mark_late(slot);
        }
    }

    /// Lets a read end by itself.
    fn give_up(
        &self,
        slot: usize,
        offset: u64,
        bytes: u64,
        read: Pin<Box<dyn Future<Output = ReadDone>>>,
    ) {
        self.mark_late(slot);
        let Some(core) = self.this.upgrade() else { return };
        let tenant = self.slots[slot].tenant();
        let lateness = &self.slots[slot].lateness;
        lateness.given_up.set(lateness.given_up.get() + 1);
        self.world.spawn(async move {
            let done = read.await;
            let given_up = &core.slots[slot].lateness.given_up;
            given_up.set(given_up.get() - 1);
            if core.slots[slot].has_left(&tenant) {
                return;
            }
            if let Err(error) = done.result {
                // The drive has said at last what is wrong.
                core.note_read_error(slot, &error).await;
                mend::later(&core, slot, offset, bytes, &error);
            }
        });
    }

    /// The member is asked last from now on, until it answers a probe in time.
    fn mark_late(&self, slot: usize) {
        let Some(core) = self.this.upgrade() else { return };
        if self.slots[slot].lateness.late.replace(true) {
            return;
        }
        self.world.spawn(async move {
            let block = core.facts.block_bytes as usize;
            loop {
                core.world.sleep(PROBE_EVERY).await;
                let lateness = &core.slots[slot].lateness;
                let out =
                    matches!(core.slots[slot].state(), SlotState::Missing | SlotState::Faulty);
                if core.stopping.get() || out {
                    // Whoever takes the slot next begins anew.
                    lateness.late.set(false);
                    return;
                }
                let asked_ns = core.world.now_ns();
                let buffers = ReadBufs::from_iter([core.world.pool().take(block)]);
                // Never more than one of these is under way, however long it takes.
                core.slots[slot].read(0, buffers).await;
                let took = Duration::from_nanos(core.world.now_ns() - asked_ns);
                let in_time = took <= core.policy.borrow().read_deadline / 2;
                if in_time && lateness.given_up.get() < GIVEN_UP_MAX {
                    lateness.slow_reads.set(0);
                    lateness.late.set(false);
                    return;
                }
            }
        });
    }

    /// Waits for a change on a drive that is to become a member, as long as on one that is.
    ///
    /// # Errors
    /// The drive's own, or that it took too long.
    pub(crate) async fn settle_other(
        &self,
        member: &Member,
        change: Io<Result<(), DriveError>>,
    ) -> Result<(), DriveError> {
        let limit = self.policy.borrow().write_deadline;
        self.within(limit, member.drive.as_ref(), Operation::Write, change).await
    }

    /// Waits for an operation on a drive that is no member: as long as for a member the array
    /// can't do without.
    ///
    /// # Errors
    /// The drive's own, or that it took too long.
    pub(crate) async fn patiently(
        &self,
        drive: &dyn Drive,
        operation: Operation,
        act: impl Future<Output = Result<(), DriveError>>,
    ) -> Result<(), DriveError> {
        let limit = self.policy.borrow().patience;
        self.within(limit, drive, operation, act).await
    }

    /// Waits for an operation on a drive for `limit` at most.
    ///
    /// # Errors
    /// The drive's own, or that it took too long.
    pub(crate) async fn within<T>(
        &self,
        limit: Duration,
        drive: &dyn Drive,
        operation: Operation,
        act: impl Future<Output = Result<T, DriveError>>,
    ) -> Result<T, DriveError> {
        let drive = drive.facts().name.clone();
        let ended = self.world.within(limit, "a drive", act).await;
        ended.unwrap_or(Err(DriveError {
            kind: ErrorKind::TimedOut,
            operation,
            offset: 0,
            bytes: 0,
            drive,
            source: None,
        }))
    }

    /// Waits for changes on members (writes, flushes) and gives those that failed. One over its
    /// deadline has failed when the array can do without all members that are over it; it is left
    /// to end by itself. What failed on a member that has left meanwhile is not given.
    pub(crate) async fn settle(
        &self,
        operation: Operation,
        changes: Vec<Change>,
    ) -> Vec<(usize, DriveError)> {
        let tenants: SmallVec<[_; 16]> = self.slots.iter().map(Slot::tenant).collect();
        let mut failed = self.settled(operation, changes).await;
        failed.retain(|(slot, _)| !self.slots[*slot].has_left(&tenants[*slot]));
        failed
    }

    async fn settled(
        &self,
        operation: Operation,
        changes: Vec<Change>,
    ) -> Vec<(usize, DriveError)> {
        let mut failed = Vec::new();
        let mut pending = changes;
        let mut last = None;
        let policy = *self.policy.borrow();
        let limit = match operation {
            Operation::Flush => policy.flush_deadline,
            _ => policy.write_deadline,
        };
        let begun_ns = self.world.now_ns();
        loop {
            let mut alarm: Option<Alarm> = None;
            let all = std::future::poll_fn(|context| {
                if poll_all(&mut pending, &mut failed, &mut last, context) {
                    return Poll::Ready(true);
                }
                let alarm = alarm.get_or_insert_with(|| self.writes_due.arm(&self.world, limit));
                Pin::new(alarm).poll(context).map(|()| false)
            });
            if all.await {
                if let Some(slot) = last {
                    self.slots[slot].note_answered_last();
                }
                return failed;
            }
            let waited = Duration::from_nanos(self.world.now_ns() - begun_ns);
            let late: Vec<usize> = pending.iter().map(|(slot, _)| *slot).collect();
            let spared = self.redundant() && self.spares(&late);
            if spared || waited >= policy.patience {
                break;
            }
        }
        for (slot, change) in pending {
            failed.push((slot, self.timed_out(slot, operation, 0, 0)));
            // It owns what it needs. The member is out, so there are no more of these than were
            // under way when it stopped answering.
            self.world.spawn(change);
        }
        failed
    }
}

/// Takes out what has ended, with its error if it failed; whether that was all.
fn poll_all(
    pending: &mut Vec<Change>,
    failed: &mut Vec<(usize, DriveError)>,
    last: &mut Option<usize>,
    context: &mut Context<'_>,
) -> bool {
    pending.retain_mut(|(slot, change)| match Pin::new(change).poll(context) {
        Poll::Ready(result) => {
            *last = Some(*slot);
            failed.extend(result.err().map(|error| (*slot, error)));
            false
        }
        Poll::Pending => true,
    });
    pending.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alarms_ring_in_time_and_leave_nothing_behind() {
        let world = World::virtual_time(1);
        let alarms = Rc::new(Alarms::default());
        let limit = Duration::from_millis(500);
        world.block_on(async {
            for _ in 0..1000 {
                let alarm = alarms.arm(&world, limit);
                let work = world.sleep(Duration::from_millis(1));
                assert!(race(work, alarm).await.is_ok());
            }
            assert!(alarms.queue.borrow().len() <= 1);
            let before = world.now_ns();
            alarms.arm(&world, limit).await;
            assert_eq!(world.now_ns() - before, 500_000_000);
        });
        assert!(alarms.queue.borrow().is_empty());
    }
}
