//! Replaying logs of writes that were in flight, while an array is opened: onto the members, or,
//! of one that is only read, onto overlays in memory that lie over them.
//!
//! It runs in the array before that serves anybody, so members that err are dealt with as ever:
//! one that can't be written is failed, and the others' superblocks say so while the log still has
//! everything; what can't be read is read around. See `replay_ppl` and `replay_journal`.

use std::rc::Rc;
use std::time::Duration;

use drive::{Drive, DriveError, Operation, Overlay};
use format::md::{Assembly, ConsistencyPlace, Resync, Verdict};
use geometry::Geometry;
use world::BufMut;

use crate::assemble::AssembleError;
use crate::core::Core;
use crate::examine::{Scan, read_bytes};
use crate::log::Replayed;
use crate::slot::{Member, SlotState};
use crate::{replay_journal, replay_ppl};

/// A replay holds at most this much per member in memory; logs that are still needed are far
/// smaller than their areas.
const REPLAY_BYTES_MAX: u64 = 1 << 30;

/// A log that has to be replayed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Pending {
    /// The members' partial parity logs.
    Ppl,
    /// The journal on the drive of this candidate.
    Journal(usize),
}

impl Pending {
    /// The log of a set that needs it now.
    pub(crate) fn of(scan: &Scan, assembly: &Assembly, geometry: &Geometry) -> Option<Pending> {
        if !matches!(geometry, Geometry::Parity(_)) {
            return None;
        }
        let view = &scan.candidates[assembly.reference].view;
        match view.consistency {
            ConsistencyPlace::Ppl { .. } => (view.resync != Resync::Clean).then_some(Pending::Ppl),
            ConsistencyPlace::Journal => {
                let mut verdicts = assembly.verdicts.iter();
                let journal = verdicts.find(|(_, verdict)| *verdict == Verdict::Journal)?;
                Some(Pending::Journal(journal.0))
            }
            _ => None,
        }
    }
}

/// Puts overlays over members whose drives must stay as they are.
pub(crate) fn overlay(members: &mut [Option<(Member, SlotState)>]) {
    for (member, _) in members.iter_mut().flatten() {
        member.drive = Rc::new(Overlay::new(Rc::clone(&member.drive), REPLAY_BYTES_MAX));
    }
}

/// Replays a log; what it had is durable on the members then.
///
/// # Errors
/// A drive's, when the journal can't be read, or a member can't be written that the array can't do
/// without.
pub(crate) async fn replay(
    core: &Core,
    scan: &Scan,
    assembly: &Assembly,
    pending: Pending,
) -> Result<Replayed, AssembleError> {
    let Geometry::Parity(parity) = &core.geometry else { return Ok(Replayed::Nothing) };
    let replayed = match pending {
        Pending::Ppl => replay_ppl::replay(core, scan, assembly, parity).await?,
        Pending::Journal(journal) => replay_journal::replay(core, scan, journal, parity).await?,
    };
    if core.metadata.writable() {
        core.flush_members().await?;
    }
    Ok(replayed)
}

/// Reads a part of a log, for `limit` at most.
///
/// # Errors
/// The drive's, or that it took too long.
pub(crate) async fn read_log(
    core: &Core,
    drive: &dyn Drive,
    offset: u64,
    bytes: usize,
    limit: Duration,
) -> Result<BufMut, DriveError> {
    let read = read_bytes(core.world.pool(), drive, offset, bytes);
    core.within(limit, drive, Operation::Read, read).await
}
