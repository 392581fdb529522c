//! Which background work is due: one job after the other, the most urgent first.

use std::rc::Rc;

use crate::core::Core;
use crate::job;
use crate::job_status::JobEnd;
use crate::resync::Resync;

/// Work that is due.
enum Due {
    Resync,
}

/// The most urgent work there is.
fn due(core: &Core) -> Option<Due> {
    if core.stopping.get() || core.jobs.held.get() || !core.metadata.writable() {
        return None;
    }
    (core.synced_to.get() != u64::MAX).then_some(Due::Resync)
}

/// Sees to it that what is due is done: to be called whenever something may have become due. A job
/// that failed is tried again when this is called the next time.
pub(crate) fn wake(core: &Rc<Core>) {
    if core.jobs.busy.inside() > 0 || due(core).is_none() {
        return;
    }
    core.jobs.busy.enter();
    let owner = Rc::clone(core);
    core.world.spawn(async move {
        while let Some(due) = due(&owner) {
            let end = match due {
                Due::Resync => job::run(&owner, Resync).await,
            };
            if matches!(end, JobEnd::Failed { .. }) {
                break;
            }
        }
        owner.jobs.busy.leave();
    });
}
