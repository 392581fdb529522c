//! What happens to members: what fate does to their drives, and what an administrator does.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use array::{MemberError, Scan, SlotState};
use drive::{
    Drive, Effect, ErrorKind, Fault, FaultControl, FaultId, Faulty, MemoryDrive, Operation,
};
use format::md::Role;
use world::{SplitMix64, World};

use crate::bed::{Bed, SECTOR, Service, Trouble, failed, outcome};

/// More than all delays of an operation together.
const DELAYS_MAX: Duration = Duration::from_secs(1);

/// md's rule: who is one event behind may still count as current.
const EVENTS_TO_STALE: u64 = 2;

/// A drive, what is beneath its faults, and its history.
pub struct Member {
    pub drive: Rc<dyn Drive>,
    pub beneath: Rc<MemoryDrive>,
    pub control: FaultControl,
    /// Faults until it is mended, and whether they make it lost.
    pub faults: Rc<RefCell<Vec<(FaultId, bool)>>>,
    /// It had a fault that loses it, and the array has not been assembled without one since.
    pub faulty: Cell<bool>,
    /// It may hold something else than what it was given, and nothing has compared all of it since.
    pub silent: Cell<bool>,
    /// It did, at some time.
    pub was_silent: Cell<bool>,
}

/// A slot of the array.
pub struct Seat {
    /// The drive in it, or the last that was.
    pub drive: Cell<usize>,
    /// The array does not have it in sync.
    pub out: Cell<bool>,
    /// ... and had not when it was last assembled.
    pub out_at_start: Cell<bool>,
}

impl Seat {
    pub fn new(drive: usize) -> Seat {
        let (out, out_at_start) = (Cell::new(false), Cell::new(false));
        Seat { drive: Cell::new(drive), out, out_at_start }
    }
}

impl Member {
    pub fn new(world: &World, beneath: Rc<MemoryDrive>, random: &mut SplitMix64) -> Member {
        let below = Rc::clone(&beneath) as Rc<dyn Drive>;
        let faulty = Faulty::new(world, below, random.next_u64());
        let control = faulty.control();
        let drive = Rc::new(faulty);
        Member {
            drive,
            beneath,
            control,
            faults: Rc::default(),
            faulty: Cell::new(false),
            silent: Cell::new(false),
            was_silent: Cell::new(false),
        }
    }
}

impl Bed {
    /// An administrator fails a member.
    pub async fn fail(&self, slot: usize) -> Result<(), Trouble> {
        self.seats[slot].out.set(true);
        self.lost();
        let drive = self.seats[slot].drive.get();
        let array = self.array();
        let result = self.limited("failing a member", array.fail_member(slot)).await?;
        self.note(|| format!("fail {slot}: {}", outcome(&result)));
        match result {
            Err(_) if self.service.get() == Service::Running => Err(failed("fail", "refused")),
            Ok(()) => self.stale_for_all(drive).await,
            Err(_) => Ok(()),
        }
    }

    /// Whoever assembles the drives, by event counts or by the role table, finds that the member
    /// has left.
    async fn stale_for_all(&self, drive: usize) -> Result<(), Trouble> {
        let drives = self.members.iter().map(|member| Rc::clone(&member.beneath) as Rc<dyn Drive>);
        let scan = Scan::of(self.world.pool(), drives.collect()).await;
        let views = || scan.candidates.iter().map(|found| &found.view);
        let failed = scan.candidates.iter().find(|found| found.drive == drive);
        let newest = views().max_by_key(|view| view.events);
        let (Some(failed), Some(newest)) = (failed, newest) else { return Ok(()) };
        let (is, was) = (newest.events, failed.view.events);
        if is < was + EVENTS_TO_STALE {
            let what = format!("drive {drive} has left at event {was}, and the newest is {is}");
            return Err(Trouble::Failed(what));
        }
        let role = newest.roles.get(failed.view.dev_number as usize);
        if matches!(role, Some(Role::Slot(_))) {
            let what = format!("drive {drive} has left, and still has a role");
            return Err(Trouble::Failed(what));
        }
        Ok(())
    }

    /// The administrator holds background work.
    pub async fn hold(&self) -> Result<(), Trouble> {
        self.note(|| "background work is held".to_owned());
        self.held.set(true);
        let array = self.array();
        self.limited("holding background work", array.hold_jobs()).await
    }

    /// ... and lets it go on.
    pub fn resume(&self) {
        self.note(|| "background work goes on".to_owned());
        self.held.set(false);
        self.array().resume_jobs();
    }

    /// A member gets a fault that loses it to the array.
    pub fn spoil_member(&self, slot: usize, kind: ErrorKind, only: Option<Operation>, once: bool) {
        let fault = Fault::new(Effect::Fail(kind));
        let fault = only.map_or(fault.clone(), |operation| fault.on(operation));
        let member = self.member(slot);
        member.faulty.set(true);
        let fault = member.control.add(if once { fault.times(1) } else { fault });
        member.faults.borrow_mut().push((fault, true));
        let what = only.map_or("operation".to_owned(), |operation| format!("{operation:?}"));
        self.note(|| format!("{slot} errs on {} {what}", if once { "one" } else { "every" }));
        self.lost();
    }

    /// A member takes this much longer for everything.
    pub fn slow(&self, slot: usize, by: Duration) {
        self.note(|| format!("{slot} is slower by {by:?}"));
        let member = self.member(slot);
        let fault = member.control.add(Fault::new(Effect::Delay(by)).one_in(2));
        member.faults.borrow_mut().push((fault, false));
    }

    /// A member answers nothing for a while: the array may fail it for that where it can.
    pub fn hang(&self, slot: usize, time: Duration) {
        self.note(|| format!("{slot} hangs for {time:?}"));
        let member = self.member(slot);
        let (control, faults) = (member.control.clone(), Rc::clone(&member.faults));
        let fault = control.add(Fault::new(Effect::Hang));
        if self.kind.redundant() {
            member.faulty.set(true);
            faults.borrow_mut().push((fault, true));
            self.lost();
        }
        let world = self.world.clone();
        self.world.spawn(async move {
            world.sleep(time).await;
            control.remove(fault);
            faults.borrow_mut().retain(|&(of, _)| of != fault);
            control.release();
            // What was still on its way to hang then.
            world.sleep(DELAYS_MAX).await;
            control.release();
        });
    }

    /// A member is well again, and so are drives that have left. Whether the array has met the
    /// fault is seen at the next start.
    pub fn mend(&self, slot: usize) {
        self.note(|| format!("{slot} is well again"));
        let absent = self.absent().map(|drive| &self.members[drive]);
        for member in absent.chain([self.member(slot)]) {
            for (fault, _) in member.faults.take() {
                member.control.remove(fault);
            }
        }
    }

    /// Sectors of a member can't be read until they are rewritten.
    pub fn latent(&self, slot: usize, sector: u64, count: u64) {
        self.note(|| format!("{slot} can't read {sector}..{} of its data", sector + count));
        let offset = self.data_offset + sector * SECTOR;
        self.member(slot).control.spoil(offset, count * SECTOR);
        self.lost();
    }

    /// The drive of this name.
    pub fn named(&self, name: &str) -> Option<usize> {
        self.members.iter().position(|member| &*member.drive.facts().name == name)
    }

    /// Drives that are in no slot and no spares.
    fn absent(&self) -> impl Iterator<Item = usize> {
        let status = self.array.borrow().as_ref().map(array::Array::status);
        let slots = status.into_iter().flat_map(|status| status.slots);
        let names = slots.flat_map(|slot| [slot.drive, slot.replacement]).flatten();
        let mut present: BTreeSet<usize> = names.filter_map(|name| self.named(&name)).collect();
        present.extend(self.spares.borrow().iter());
        (0..self.members.len()).filter(move |drive| !present.contains(drive))
    }

    /// A drive that could come in: one that is absent and well.
    fn newcomer(&self) -> Option<(usize, Rc<dyn Drive>)> {
        let well = |&drive: &usize| self.members[drive].faults.borrow().is_empty();
        let drive = self.absent().find(well)?;
        Some((drive, Rc::clone(&self.plugs.borrow()[drive]) as Rc<dyn Drive>))
    }

    /// An administrator adds a drive: a spare, or, where a slot is empty, a member.
    pub async fn add(&self) -> Result<(), Trouble> {
        let Some((drive, plug)) = self.newcomer() else { return Ok(()) };
        self.members[drive].faulty.set(false);
        self.spares.borrow_mut().insert(drive);
        let array = self.array();
        let result = self.limited("adding a drive", array.add_member(plug)).await?;
        self.note(|| format!("add drive {drive}: {}", outcome(&result)));
        self.accepted("add", result)
    }

    /// An administrator takes a member back that left; which has to be refused unless the bitmap
    /// knows what it lacks.
    pub async fn readd(&self) -> Result<(), Trouble> {
        let Some((drive, plug)) = self.newcomer() else { return Ok(()) };
        let array = self.array();
        let result = self.limited("re-adding a member", array.readd_member(plug)).await?;
        self.note(|| format!("re-add drive {drive}: {}", outcome(&result)));
        if result.is_ok() {
            self.members[drive].faulty.set(false);
        }
        Ok(())
    }

    /// An administrator takes a member out.
    pub async fn remove(&self, slot: usize) -> Result<(), Trouble> {
        if !self.seats[slot].out.replace(true) {
            self.lost();
        }
        let drive = self.seats[slot].drive.get();
        let array = self.array();
        let result = self.limited("removing a member", array.remove_member(slot)).await?;
        self.note(|| format!("remove {slot}, drive {drive}: {}", outcome(&result)));
        match result {
            Ok(()) => self.stale_for_all(drive).await,
            Err(MemberError::Empty(_)) => Ok(()),
            result => self.accepted("remove", result),
        }
    }

    /// An administrator has a member replaced.
    pub async fn replace(&self, slot: usize) -> Result<(), Trouble> {
        let Some((drive, plug)) = self.newcomer() else { return Ok(()) };
        let array = self.array();
        let result = self.limited("replacing a member", array.replace_member(slot, plug)).await?;
        self.note(|| format!("replace {slot} by drive {drive}: {}", outcome(&result)));
        match result {
            Ok(()) => {
                self.members[drive].faulty.set(false);
                // That is what it becomes where the member has failed by then.
                self.spares.borrow_mut().insert(drive);
            }
            Err(MemberError::Replacing(_) | MemberError::Empty(_) | MemberError::Recovering(_)) => {
            }
            result => self.accepted("replace", result)?,
        }
        Ok(())
    }

    /// Only an array that has lost its power may refuse.
    fn accepted(&self, what: &str, result: Result<(), MemberError>) -> Result<(), Trouble> {
        match result {
            Err(error) if self.service.get() == Service::Running => Err(failed(what, error)),
            _ => Ok(()),
        }
    }

    /// An administrator asks for a check or a repair.
    pub fn scrub(&self, repair: bool) {
        let array = self.array();
        let result = if repair { array.start_repair(false) } else { array.start_check() };
        self.note(|| format!("{}: {}", if repair { "repair" } else { "check" }, outcome(&result)));
    }

    /// What background work should have done, now that it has ended.
    pub fn jobs_have_done(&self) -> Result<(), Trouble> {
        let status = self.array().status();
        let well = self.members.iter().all(|member| member.faults.borrow().is_empty());
        for (slot, is) in status.slots.iter().enumerate().filter(|_| well) {
            let filling = matches!(is.state, SlotState::Recovering { .. });
            if filling || is.replacement.is_some() {
                return Err(Trouble::Failed(format!("slot {slot} is not filled: {:?}", is.state)));
            }
        }
        let wrong = status.scrub.map_or(0, |scrub| scrub.counts.mismatched_bytes);
        if wrong > 0 && !self.holes_stay.get() {
            return Err(Trouble::Failed(format!("a scrub found {wrong} bytes that differ")));
        }
        Ok(())
    }
}
