//! What happens to members: what fate does to their drives, and what an administrator does.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use array::Scan;
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
    /// The array does not have it in sync.
    pub out: Cell<bool>,
    /// ... and had not when it was last assembled.
    pub out_at_start: Cell<bool>,
}

impl Member {
    pub fn new(world: &World, beneath: Rc<MemoryDrive>, random: &mut SplitMix64) -> Member {
        let below = Rc::clone(&beneath) as Rc<dyn Drive>;
        let faulty = Faulty::new(world, below, random.next_u64());
        let control = faulty.control();
        let drive = Rc::new(faulty);
        let (faulty, out, out_at_start) = (Cell::new(false), Cell::new(false), Cell::new(false));
        let faults = Rc::default();
        Member { drive, beneath, control, faults, faulty, out, out_at_start }
    }
}

impl Bed {
    /// An administrator fails a member.
    pub async fn fail(&self, slot: usize) -> Result<(), Trouble> {
        self.members[slot].out.set(true);
        self.lost();
        let array = self.array();
        let result = self.limited("failing a member", array.fail_member(slot)).await?;
        self.note(|| format!("fail {slot}: {}", outcome(&result)));
        match result {
            Err(_) if self.service.get() == Service::Running => Err(failed("fail", "refused")),
            Ok(()) => self.stale_for_all(slot).await,
            Err(_) => Ok(()),
        }
    }

    /// Whoever assembles the drives, by event counts or by the role table, finds that the member
    /// has left.
    async fn stale_for_all(&self, slot: usize) -> Result<(), Trouble> {
        let drives = self.members.iter().map(|member| Rc::clone(&member.beneath) as Rc<dyn Drive>);
        let scan = Scan::of(self.world.pool(), drives.collect()).await;
        let views = || scan.candidates.iter().map(|found| &found.view);
        let failed = scan.candidates.iter().find(|found| found.drive == slot);
        let newest = views().max_by_key(|view| view.events);
        let (Some(failed), Some(newest)) = (failed, newest) else { return Ok(()) };
        let (is, was) = (newest.events, failed.view.events);
        if is < was + EVENTS_TO_STALE {
            let what = format!("member {slot} has failed at event {was}, and the newest is {is}");
            return Err(Trouble::Failed(what));
        }
        let role = newest.roles.get(failed.view.dev_number as usize);
        if matches!(role, Some(Role::Slot(_))) {
            let what = format!("member {slot} has failed, and still has a role");
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
        let member = &self.members[slot];
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
        let member = &self.members[slot];
        let fault = member.control.add(Fault::new(Effect::Delay(by)).one_in(2));
        member.faults.borrow_mut().push((fault, false));
    }

    /// A member answers nothing for a while: the array may fail it for that where it can.
    pub fn hang(&self, slot: usize, time: Duration) {
        self.note(|| format!("{slot} hangs for {time:?}"));
        let member = &self.members[slot];
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

    /// A member is well again. Whether the array has met the fault is seen at the next start.
    pub fn mend(&self, slot: usize) {
        self.note(|| format!("{slot} is well again"));
        let member = &self.members[slot];
        for (fault, _) in member.faults.take() {
            member.control.remove(fault);
        }
    }

    /// Sectors of a member can't be read until they are rewritten.
    pub fn latent(&self, slot: usize, sector: u64, count: u64) {
        self.note(|| format!("{slot} can't read {sector}..{} of its data", sector + count));
        let offset = self.data_offset + sector * SECTOR;
        self.members[slot].control.spoil(offset, count * SECTOR);
        self.lost();
    }
}
