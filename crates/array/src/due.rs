//! Which background work is due: one job after the other, the most urgent first.

use std::rc::Rc;

use crate::core::Core;
use crate::job;
use crate::job_status::{JobEnd, JobKind};
use crate::learn;
use crate::members;
use crate::rebuild::Fill;
use crate::resync::Resync;
use crate::scrub;
use crate::slot::{Slot, SlotState};

/// Work that is due.
enum Due {
    /// A slot is empty and somebody could take it.
    Engage(usize),
    Fill(Fill),
    Resync,
    Scrub,
}

/// The most urgent work there is: first what makes redundancy whole.
fn due(core: &Core) -> Option<Due> {
    if core.stopping.get() || core.jobs.held.get() {
        return None;
    }
    restoring(core).or_else(|| core.scrub.due().then_some(Due::Scrub))
}

/// What makes redundancy whole, unless that has failed. As md does it, what is missing comes before
/// what may not agree.
fn restoring(core: &Core) -> Option<Due> {
    if !core.metadata.writable() || core.jobs.failed.get() {
        return None;
    }
    let slots = || core.slots.iter().enumerate();
    let empty = |state| matches!(state, SlotState::Missing | SlotState::Faulty);
    let mut empty = slots().filter(|(_, slot)| empty(slot.state())).map(|(slot, _)| slot);
    if let Some(slot) = empty.find(|&slot| members::spare_for(core, slot)) {
        return Some(Due::Engage(slot));
    }
    let recovering = |state| matches!(state, SlotState::Recovering { .. });
    let recovering: Vec<usize> =
        slots().filter(|(_, slot)| recovering(slot.state())).map(|(slot, _)| slot).collect();
    if !recovering.is_empty() {
        return Some(Due::Fill(Fill::Rebuild(recovering)));
    }
    if let Some((slot, _)) = slots().find(|(_, slot)| slot.replacement().is_some()) {
        return Some(Due::Fill(Fill::Replace(slot)));
    }
    (core.synced_to.get() != u64::MAX).then_some(Due::Resync)
}

/// How far everything is that makes redundancy whole.
#[derive(PartialEq, Eq)]
struct Progress {
    synced_to: u64,
    /// Per slot, its state, and how far its replacement is.
    slots: Vec<(SlotState, Option<u64>)>,
}

impl Progress {
    fn of(core: &Core) -> Progress {
        let upto = |slot: &Slot| Some(slot.replacement()?.upto_bytes.get());
        let slots = core.slots.iter().map(|slot| (slot.state(), upto(slot))).collect();
        Progress { synced_to: core.synced_to.get(), slots }
    }
}

/// Whether something more urgent than this waits: then a pass makes way for it.
pub(crate) fn makes_way(core: &Core, kind: JobKind) -> bool {
    if core.stopping.get() || core.jobs.held.get() {
        return false;
    }
    match restoring(core) {
        Some(Due::Engage(_)) => true,
        Some(Due::Fill(Fill::Rebuild(_))) => kind != JobKind::Rebuild,
        Some(Due::Fill(Fill::Replace(_))) => !matches!(kind, JobKind::Rebuild | JobKind::Replace),
        Some(Due::Resync) => !matches!(kind, JobKind::Rebuild | JobKind::Replace | JobKind::Resync),
        Some(Due::Scrub) | None => false,
    }
}

/// Sees to it that what is due is done: to be called whenever something may have become due. A job
/// that failed is tried again when this is called the next time.
pub(crate) fn wake(core: &Rc<Core>) {
    core.jobs.failed.set(false);
    if core.jobs.busy.inside() > 0 || due(core).is_none() {
        return;
    }
    core.jobs.busy.enter();
    let owner = Rc::clone(core);
    core.world.spawn(async move {
        while let Some(due) = due(&owner) {
            let before = Progress::of(&owner);
            let end = match due {
                Due::Engage(slot) => members::engage(&owner, slot).await,
                Due::Fill(fill) => job::run(&owner, fill).await,
                Due::Resync => job::run(&owner, Resync).await,
                // One that fails is not due any more; one that made way is again after that.
                Due::Scrub => {
                    scrub::run(&owner).await;
                    continue;
                }
            };
            // A member that failed while it was filled is no reason to leave the others alone; but
            // what has led nowhere would do so again.
            let stuck = before == Progress::of(&owner);
            owner.jobs.failed.set(matches!(end, JobEnd::Failed { .. }) && stuck);
        }
        owner.jobs.busy.leave();
        learn::start(&owner);
    });
}
