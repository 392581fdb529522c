//! The members' superblocks while the array is open: who is in, how new, clean or not.
//!
//! Every change of state is a new event: the count goes up, and all remaining members get the
//! new superblock before whoever caused the change goes on. What several callers want at the same
//! time goes out as one event.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use drive::{Drive, DriveError, Durability, Io, Operation};
use format::md::{
    ByteRange, Features, RESYNC_CLEAN, ROLES_MAX, Role, SECTOR_BYTES, Superblock, Timestamp,
};
use format::own::checksums::SUPERBLOCK_MARK;
use world::{Pool, Semaphore, WriteBufs};

use crate::bitmap::Bitmap;
use crate::core::Core;
use crate::log::Log;
use crate::mutant::{self, Mutant};
use crate::slot::{Member, Replacement, Slot, SlotState};

/// Events that make a member stale for certain: md, and whoever follows its rule, takes one that
/// is a single event behind for current, since a sudden end can come between two superblocks.
const EVENTS_TO_STALE: u8 = 2;

/// The drive and superblock of a member without a slot.
#[derive(Clone)]
pub(crate) struct Spare {
    pub(crate) drive: Rc<dyn Drive>,
    pub(crate) superblock: Superblock,
}

/// A member that left the array, and why.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Its slot.
    pub slot: usize,
    /// What it did.
    pub error: DriveError,
}

/// Superblocks, and what is known of their state on the members.
pub(crate) struct Metadata {
    /// Per slot; `None` for an array that is only read, and where nobody is there.
    superblocks: RefCell<Vec<Option<Superblock>>>,
    /// ... of the drive that is to replace its member.
    replacements: RefCell<Vec<Option<Superblock>>>,
    spares: RefCell<Vec<Spare>>,
    /// The drive with the set's journal.
    journal: Option<Spare>,
    writable: Cell<bool>,
    events: Cell<u64>,
    /// How many events are still due until the members that left are stale. They are written one
    /// after the other: with a step of two, a sudden end between two superblocks would make those
    /// stale that stayed.
    events_due: Cell<u8>,
    /// The newest superblock as found, while some members have not got its event yet, and the
    /// slots of these.
    catch_up: RefCell<Option<(Superblock, Vec<usize>)>>,
    /// The last event is not yet on a member that stays: there is no further one before it is.
    event_incomplete: Cell<bool>,
    /// A member has left, and not all others' superblocks say so.
    unrecorded: Cell<bool>,
    /// Seconds since 1970 when the world's clock stood at zero.
    epoch_seconds: u64,
    /// Writes may be under way whose copies and parity don't agree yet.
    dirty: Cell<bool>,
    /// ... and the members' superblocks say so.
    dirty_recorded: Cell<bool>,
    turn: Rc<Semaphore>,
    wanted: Cell<u64>,
    recorded: Cell<u64>,
    failures: RefCell<Vec<Failure>>,
    read_errors: RefCell<Vec<u64>>,
}

impl Metadata {
    /// For an array whose superblocks stay as they are.
    pub(crate) fn read_only(slots: usize) -> Self {
        Self::new(vec![None; slots], Vec::new(), None, 0, false)
    }

    /// For an array that is written: the superblocks as found, per slot, of the spares and of the
    /// journal.
    pub(crate) fn new(
        superblocks: Vec<Option<Superblock>>,
        spares: Vec<Spare>,
        journal: Option<Spare>,
        epoch_seconds: u64,
        writable: bool,
    ) -> Self {
        let newest = superblocks.iter().flatten().max_by_key(|superblock| superblock.events);
        let events = newest.map_or(0, |superblock| superblock.events);
        let lags = |superblock: &Superblock| superblock.events < events;
        let behind: Vec<usize> = (0..superblocks.len())
            .filter(|&slot| superblocks[slot].as_ref().is_some_and(lags))
            .collect();
        let catch_up = newest.filter(|_| !behind.is_empty()).cloned();
        let catch_up = catch_up.map(|newest| (newest, behind));
        // Who is not here now may have the newest event too.
        let somebody_left = superblocks.iter().any(Option::is_none);
        Metadata {
            read_errors: RefCell::new(vec![0; superblocks.len()]),
            replacements: RefCell::new(vec![None; superblocks.len()]),
            superblocks: RefCell::new(superblocks),
            spares: RefCell::new(spares),
            journal,
            writable: Cell::new(writable),
            events: Cell::new(events),
            events_due: Cell::new(if somebody_left { EVENTS_TO_STALE } else { 0 }),
            catch_up: RefCell::new(catch_up),
            event_incomplete: Cell::new(false),
            unrecorded: Cell::new(false),
            epoch_seconds,
            dirty: Cell::new(false),
            dirty_recorded: Cell::new(false),
            turn: Rc::new(Semaphore::new(1)),
            wanted: Cell::new(0),
            recorded: Cell::new(0),
            failures: RefCell::default(),
        }
    }

    pub(crate) fn note_failure(&self, slot: usize, error: DriveError) {
        self.failures.borrow_mut().push(Failure { slot, error });
        let one = mutant::planted(Mutant::FailureOneEvent);
        self.events_due.set(if one { 1 } else { EVENTS_TO_STALE });
        self.unrecorded.set(self.writable());
    }

    /// Whether a member has left without all others' superblocks saying so.
    pub(crate) fn unrecorded(&self) -> bool {
        self.unrecorded.get()
    }

    pub(crate) fn count_read_error(&self, slot: usize) {
        self.read_errors.borrow_mut()[slot] += 1;
    }

    pub(crate) fn failures(&self) -> Vec<Failure> {
        self.failures.borrow().clone()
    }

    pub(crate) fn read_errors(&self) -> Vec<u64> {
        self.read_errors.borrow().clone()
    }

    pub(crate) fn events(&self) -> u64 {
        self.events.get()
    }

    /// Where the write-intent bitmap of a slot's member starts on its drive.
    pub(crate) fn bitmap_start(&self, slot: usize) -> Option<u64> {
        let superblocks = self.superblocks.borrow();
        let superblock = superblocks[slot].as_ref()?;
        let offset_bytes = i64::from(superblock.bitmap_offset_sectors()?) * SECTOR_BYTES as i64;
        superblock.place.offset_bytes.checked_add_signed(offset_bytes)
    }

    pub(crate) fn spare_count(&self) -> usize {
        self.spares.borrow().len()
    }

    /// The spares, to choose from and to change. What changes is on the members after the next
    /// event.
    pub(crate) fn spares(&self) -> &RefCell<Vec<Spare>> {
        &self.spares
    }

    /// A superblock of the array as it is, for a new member's to be made from.
    pub(crate) fn template(&self) -> Option<Superblock> {
        self.superblocks.borrow().iter().flatten().next().cloned()
    }

    /// Calls `each` with the superblocks of all that are in the set.
    fn for_all(&self, each: impl FnMut(&Superblock)) {
        let superblocks = self.superblocks.borrow();
        let replacements = self.replacements.borrow();
        let spares = self.spares.borrow();
        let others = spares.iter().chain(&self.journal).map(|other| &other.superblock);
        superblocks.iter().chain(replacements.iter()).flatten().chain(others).for_each(each);
    }

    /// Whether somebody in the set has this device number.
    pub(crate) fn number_given(&self, number: u32) -> bool {
        let mut given = false;
        self.for_all(|superblock| given |= superblock.dev_number == number);
        given
    }

    /// A device number that nobody has: one above all that are in use, as long as there is one,
    /// since a member that left may come back.
    pub(crate) fn free_number(&self) -> Option<u32> {
        let limit = ROLES_MAX as u32;
        let mut used = BTreeSet::new();
        self.for_all(|superblock| {
            let roles = superblock.roles.iter().enumerate();
            let given = roles.filter(|(_, role)| matches!(role, Role::Slot(_) | Role::Journal));
            used.extend(given.map(|(number, _)| number as u32).chain([superblock.dev_number]));
        });
        let fresh = used.last().map_or(0, |number| number + 1);
        let reused = || (0..limit).find(|number| !used.contains(number));
        Some(fresh).filter(|&number| number < limit).or_else(reused)
    }

    /// The slot's member is another from now on (or nobody): its superblock, and those that were
    /// in it before are stale once this is recorded.
    pub(crate) fn seat(&self, slot: usize, superblock: Option<Superblock>) {
        self.superblocks.borrow_mut()[slot] = superblock;
        if let Some((_, behind)) = &mut *self.catch_up.borrow_mut() {
            // The event it would get may speak of the slot's member, not of what this one lacks.
            behind.retain(|&of| of != slot);
        }
        self.events_due.set(EVENTS_TO_STALE);
        // Who was there before must not look current without what is written from here on.
        self.unrecorded.set(self.writable());
    }

    /// The drive that is to replace the slot's member is another from now on, or nobody.
    pub(crate) fn seat_replacement(&self, slot: usize, superblock: Option<Superblock>) {
        self.replacements.borrow_mut()[slot] = superblock;
    }

    /// The drive that is to replace the slot's member takes the slot.
    pub(crate) fn promote(&self, slot: usize) {
        let superblock = self.replacements.borrow_mut()[slot].take();
        self.seat(slot, superblock);
    }

    pub(crate) fn writable(&self) -> bool {
        self.writable.get()
    }

    /// From here on the superblocks stay as they are: the array has ended, and the members may be
    /// another one's by now.
    pub(crate) fn seal(&self) {
        self.writable.set(false);
    }

    pub(crate) fn dirty(&self) -> bool {
        self.dirty.get()
    }

    /// Before a write: the members say that a resync is needed, should this end suddenly.
    pub(crate) async fn mark_dirty(&self, core: &Core) -> Result<(), DriveError> {
        let skipped = mutant::planted(Mutant::DirtyNotMarked);
        if self.dirty_recorded.get() || !core.redundant() || skipped {
            return Ok(());
        }
        self.dirty.set(true);
        self.dirty_recorded.set(mutant::planted(Mutant::DirtyAcknowledgedEarly));
        core.commit().await?;
        self.dirty_recorded.set(true);
        Ok(())
    }

    /// After a flush of all members, with no write under way: nothing to resync any more.
    pub(crate) async fn mark_clean(&self, core: &Core) -> Result<(), DriveError> {
        // Another caller's mark may still be on its way to the members.
        let recorded = self.recorded.get() == self.wanted.get();
        if !self.dirty.get() && core.synced_to.get() == u64::MAX && recorded {
            return Ok(());
        }
        let spoiled = |bitmap: &Bitmap| bitmap.next_needed(0).is_some();
        if core.synced_to.get() == u64::MAX && core.bitmap.as_ref().is_some_and(spoiled) {
            // A write has failed on a member the array can't do without: the next start looks.
            return Ok(());
        }
        self.dirty.set(false);
        self.dirty_recorded.set(false);
        core.commit().await
    }

    /// Puts the present state on all members as a new event, or as many as make those that left
    /// stale. A member that can't be written is failed, and the others get that too.
    ///
    /// # Errors
    /// When a member can't be written that the array can't do without.
    pub(crate) async fn commit(&self, core: &Core) -> Result<(), DriveError> {
        if !self.writable() {
            return Ok(());
        }
        let mine = self.wanted.get() + 1;
        self.wanted.set(mine);
        let _turn = self.turn.acquire(1).await;
        while self.recorded.get() < mine {
            let covers = self.wanted.get();
            // A member that leaves while this event is written may still get it.
            let due = self.events_due.take().saturating_sub(1);
            let failed = self.write_all(core).await;
            for (slot, error) in failed {
                if core.needs(slot) {
                    self.events_due.set(self.events_due.get().max(due + 1));
                    return Err(error);
                }
                core.drop_member(slot, error);
            }
            self.events_due.set(self.events_due.get().max(due));
            if self.events_due.get() == 0 {
                self.recorded.set(covers);
                self.unrecorded.set(false);
            }
        }
        Ok(())
    }

    /// Gives members that missed the last event that event, before there is another: one that is
    /// two behind would count as stale, although it holds everything.
    async fn catch_up(&self, core: &Core) -> Vec<(usize, DriveError)> {
        let skipped = mutant::planted(Mutant::CatchUpSkipped);
        let newest = self.catch_up.borrow().clone().filter(|_| !skipped);
        let Some((newest, behind)) = newest else { return Vec::new() };
        let superblocks = self.superblocks.borrow().clone();
        let writes = behind.into_iter().filter_map(|slot| {
            let superblock = superblocks[slot].clone()?;
            let caught_up = Superblock {
                events: newest.events,
                resync_offset_sectors: newest.resync_offset_sectors,
                roles: newest.roles.clone(),
                updated: newest.updated,
                ..superblock
            };
            let member = core.slots[slot].member().filter(|_| core.slots[slot].writable())?;
            Some((slot, self.store(core, &member, caught_up)))
        });
        let failed = core.settle(Operation::Write, writes.collect()).await;
        if failed.is_empty() {
            *self.catch_up.borrow_mut() = None;
        }
        failed
    }

    async fn write_all(&self, core: &Core) -> Vec<(usize, DriveError)> {
        let behind = self.catch_up(core).await;
        if !behind.is_empty() {
            return behind;
        }
        if !self.event_incomplete.replace(true) {
            self.events.set(self.events.get() + 1);
        }
        if let Some(bitmap) = &core.bitmap {
            // A bitmap that is older than a superblock is not believed.
            let failed = bitmap.stamp(core, self.events.get()).await;
            if !failed.is_empty() {
                return failed;
            }
        }
        self.refresh(core);
        let superblocks = self.superblocks.borrow().clone();
        // Taken now: one that takes its slot while the members are written would miss this event,
        // and be two behind for as long as the next one is under way.
        let replacing = self.replacing(core);
        let last = core.slots.iter().rposition(Slot::writable);
        let left_out = last.filter(|_| mutant::planted(Mutant::CommitLeavesOneOut));
        let writes = superblocks.into_iter().enumerate().filter_map(|(slot, superblock)| {
            let superblock = superblock.filter(|_| left_out != Some(slot))?;
            if !core.slots[slot].writable() {
                return None;
            }
            let member = core.slots[slot].member()?;
            Some((slot, self.store(core, &member, superblock)))
        });
        let failed = core.settle(Operation::Write, writes.collect()).await;
        self.write_others(core, replacing).await;
        if let Some(journal) = &self.journal
            && core.log.failure().is_none()
            && let Err(error) = self.write_journal(core, journal).await
            && let Some(log) = core.log.journal()
        {
            log.fail(core, error);
        }
        self.event_incomplete.set(failed.iter().any(|(slot, _)| core.needs(*slot)));
        failed
    }

    /// The drives that are to replace members, with their superblocks as they are to be now.
    fn replacing(&self, core: &Core) -> Vec<(Rc<Replacement>, Superblock)> {
        let superblocks = self.replacements.borrow();
        let slots = core.slots.iter().zip(superblocks.iter());
        slots
            .filter_map(|(slot, superblock)| Some((slot.replacement()?, superblock.clone()?)))
            .collect()
    }

    /// Writes the superblocks of those that nothing is read from yet.
    async fn write_others(&self, core: &Core, replacing: Vec<(Rc<Replacement>, Superblock)>) {
        for (replacement, superblock) in replacing {
            let write = self.store(core, &replacement.member, superblock);
            replacement.note(core.settle_other(&replacement.member, write).await);
        }
        let roles = self.roles(core);
        let spares: Vec<_> = self.spares.borrow().iter().map(Spare::clone).collect();
        for Spare { drive, mut superblock } in spares {
            self.update(core, &mut superblock, &roles);
            // A spare holds no data yet: one that can't be written is found out when it is used.
            let limit = core.policy.borrow().write_deadline;
            let write = store(core, drive.as_ref(), &superblock);
            let _ = core.world.within(limit, "a spare's superblock", write).await;
        }
    }

    async fn write_journal(&self, core: &Core, journal: &Spare) -> Result<(), DriveError> {
        let mut superblock = journal.superblock.clone();
        self.update(core, &mut superblock, &self.roles(core));
        if let Some(log) = core.log.journal() {
            superblock.recovery_offset_or_journal_tail = log.tail_sector();
        }
        let drive = journal.drive.as_ref();
        core.patiently(drive, Operation::Write, store(core, drive, &superblock)).await
    }

    /// Records a new tail of the journal, which is no event.
    ///
    /// # Errors
    /// The journal's; it is failed then.
    pub(crate) async fn store_journal(&self, core: &Core) -> Result<(), DriveError> {
        let (Some(journal), Some(log)) = (&self.journal, core.log.journal()) else { return Ok(()) };
        let _turn = self.turn.acquire(1).await;
        let result = self.write_journal(core, journal).await;
        if let Err(error) = &result {
            log.fail(core, error.clone());
        }
        result
    }

    /// The journal has left: the next event says so.
    pub(crate) fn note_journal_failure(&self) {
        self.events_due.set(EVENTS_TO_STALE);
    }

    /// Where the partial parity log of a slot's member lies.
    pub(crate) fn ppl_area(&self, slot: usize) -> Option<ByteRange> {
        let superblocks = self.superblocks.borrow();
        superblocks[slot].as_ref()?.ppl_area()
    }

    /// Writes a member's superblock, and before it the header that its checksums hang by.
    fn store(
        &self,
        core: &Core,
        member: &Member,
        superblock: Superblock,
    ) -> Io<Result<(), DriveError>> {
        let Some(sums) = member.sums.clone() else {
            return store(core, member.drive.as_ref(), &superblock);
        };
        let (pool, drive) = (core.world.pool().clone(), Rc::clone(&member.drive));
        let dirty = self.dirty.get();
        Io::later(async move {
            sums.bind(&superblock, dirty).await?;
            write(&pool, drive.as_ref(), &superblock).await
        })
    }

    /// Brings every slot's superblock up to the present state.
    fn refresh(&self, core: &Core) {
        let roles = self.roles(core);
        let mut superblocks = self.superblocks.borrow_mut();
        for (slot, superblock) in superblocks.iter_mut().enumerate() {
            let Some(superblock) = superblock else { continue };
            self.update(core, superblock, &roles);
            let recovering = matches!(core.slots[slot].state(), SlotState::Recovering { .. });
            set_recovered(superblock, recovering.then(|| core.slots[slot].durable_bytes()));
            if recovering && core.slots[slot].came_back() {
                superblock.features = superblock.features.with(Features::RECOVERY_BITMAP);
            }
            let member = core.slots[slot].member();
            if !recovering && member.as_ref().is_some_and(|member| member.sums.is_some()) {
                superblock.recovery_offset_or_journal_tail = SUPERBLOCK_MARK;
            }
            set_lists(superblock, member.is_some_and(|member| member.bad.logged()));
            superblock.features = superblock.features.without(Features::REPLACEMENT);
        }
        let mut replacements = self.replacements.borrow_mut();
        for (slot, superblock) in replacements.iter_mut().enumerate() {
            let (Some(superblock), Some(replacement)) =
                (superblock, core.slots[slot].replacement())
            else {
                continue;
            };
            self.update(core, superblock, &roles);
            let durable_bytes = replacement.durable_bytes.get();
            let lacks = durable_bytes < core.geometry.used_bytes(slot);
            set_recovered(superblock, lacks.then_some(durable_bytes));
            set_lists(superblock, replacement.member.bad.logged());
            superblock.features = superblock.features.with(Features::REPLACEMENT);
        }
    }

    /// The role table: as md writes it, a device number nobody vouches for is faulty.
    fn roles(&self, core: &Core) -> Vec<Role> {
        let superblocks = self.superblocks.borrow();
        let replacements = self.replacements.borrow();
        let spares = self.spares.borrow();
        let mut width = 0;
        self.for_all(|superblock| {
            width = width.max(superblock.roles.len()).max(superblock.dev_number as usize + 1);
        });
        let mut roles = vec![Role::Faulty; width];
        for (slot, superblock) in superblocks.iter().enumerate() {
            let Some(superblock) = superblock else { continue };
            if core.slots[slot].writable() || mutant::planted(Mutant::FailureLeftInRoles) {
                roles[superblock.dev_number as usize] = Role::Slot(slot as u16);
            }
        }
        for (slot, superblock) in replacements.iter().enumerate() {
            let Some(superblock) = superblock else { continue };
            if core.slots[slot].replacement().is_some() {
                roles[superblock.dev_number as usize] = Role::Slot(slot as u16);
            }
        }
        for spare in spares.iter() {
            roles[spare.superblock.dev_number as usize] = Role::Spare;
        }
        if let Some(journal) = self.journal.as_ref().filter(|_| core.log.failure().is_none()) {
            roles[journal.superblock.dev_number as usize] = Role::Journal;
        }
        roles
    }

    /// Seconds since 1970 now; since the world began for an array that is only read.
    pub(crate) fn now_seconds(&self, core: &Core) -> u64 {
        self.epoch_seconds + core.world.now_ns() / 1_000_000_000
    }

    fn update(&self, core: &Core, superblock: &mut Superblock, roles: &[Role]) {
        superblock.events = self.events.get();
        superblock.roles = roles.to_vec();
        let seconds = self.now_seconds(core);
        // No microseconds, although there is a field for them: md takes all 64 bits for seconds.
        superblock.updated = Timestamp::new(seconds, 0);
        if core.redundant() {
            // What a log has is replayed; only what never was in sync has to be resynced.
            superblock.resync_offset_sectors = match (&core.log, core.synced_durably_to.get()) {
                (Log::None, _) | (Log::Ppl(_), u64::MAX) if self.dirty.get() => 0,
                (_, u64::MAX) => RESYNC_CLEAN,
                (_, bytes) => bytes / SECTOR_BYTES,
            };
        }
    }
}

/// Says how far a member's content goes; `None`: everywhere.
fn set_recovered(superblock: &mut Superblock, upto_bytes: Option<u64>) {
    let features = superblock.features.without(Features::RECOVERY_BITMAP);
    superblock.features = match upto_bytes {
        Some(_) => features.with(Features::RECOVERY_OFFSET),
        None => features.without(Features::RECOVERY_OFFSET),
    };
    superblock.recovery_offset_or_journal_tail = upto_bytes.unwrap_or(0) / SECTOR_BYTES;
}

/// Says whether a member's bad-block log is in use.
fn set_lists(superblock: &mut Superblock, lists: bool) {
    superblock.features = match lists {
        true => superblock.features.with(Features::BAD_BLOCKS),
        false => superblock.features.without(Features::BAD_BLOCKS),
    };
}

/// Writes a superblock to its place, durably.
pub(crate) fn store(
    core: &Core,
    drive: &dyn Drive,
    superblock: &Superblock,
) -> Io<Result<(), DriveError>> {
    write(core.world.pool(), drive, superblock)
}

fn write(pool: &Pool, drive: &dyn Drive, superblock: &Superblock) -> Io<Result<(), DriveError>> {
    let buffer = pool.copy_of(&superblock.build());
    let place = superblock.place.offset_bytes;
    let cached = mutant::planted(Mutant::CommitCached);
    let durability = if cached { Durability::Cached } else { Durability::Durable };
    drive.write(place, WriteBufs::from_iter([buffer]), durability)
}
