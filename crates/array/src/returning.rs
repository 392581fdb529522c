//! Members that left and come back: what they missed is all they get.

use std::rc::Rc;

use drive::{Drive, ErrorKind};
use format::md::{MemberView, ReaddRefusal, SECTOR_BYTES, Superblock, readd};

use crate::array::Array;
use crate::assemble::bad_blocks;
use crate::checksums;
use crate::core::Core;
use crate::due;
use crate::examine::examine;
use crate::members::{MemberError, changeable, error_of};
use crate::slot::{Member, SlotState};

/// A member that came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Returned {
    /// Its slot.
    pub slot: usize,
    /// Chunks of the bitmap that it may lack.
    pub dirty_chunks: u64,
    /// Chunks of the bitmap, in all.
    pub chunks: u64,
}

impl Array {
    /// Takes a member back that left, and fills in what it missed. Nothing else of what it holds
    /// is touched.
    ///
    /// # Errors
    /// [`MemberError::NotReturning`] and [`MemberError::Stranger`] when it would have to be filled
    /// from its start: [`Array::add_member`] does that.
    pub async fn readd_member(&self, drive: Rc<dyn Drive>) -> Result<Returned, MemberError> {
        let core = &self.0;
        changeable(core)?;
        let name = drive.facts().name.clone();
        let examined = examine(core.world.pool(), drive.as_ref()).await;
        let reference = core.metadata.template().ok_or(MemberError::ReadOnly)?;
        let ours = |superblock: &&Superblock| superblock.set_uuid == reference.set_uuid;
        let found = examined.found.iter().filter(|found| found.implausible.is_none());
        let superblock = found.filter_map(|found| found.superblock.as_ref()).find(ours);
        let superblock = superblock.ok_or_else(|| MemberError::Stranger(name.clone()))?.clone();
        let view = MemberView::from(&superblock);
        let slot = may_return(core, &view, &MemberView::from(&reference))
            .map_err(|reason| MemberError::NotReturning { drive: name, reason })?;
        let bad = bad_blocks(&core.world, drive.as_ref(), &view).await;
        let bad = bad.map_err(|_| error_of(&drive, ErrorKind::Media))?;
        let data_offset = superblock.data_offset_sectors * SECTOR_BYTES;
        let member = Member { drive, data_offset, bad, write_mostly: false, sums: None };
        take_back(core, slot, member, superblock).await;
        core.commit().await?;
        let (dirty_chunks, chunks) = core.bitmap.as_ref().map_or((0, 0), |bitmap| {
            let status = bitmap.status();
            (status.dirty_chunks, status.chunks)
        });
        due::wake(core);
        Ok(Returned { slot, dirty_chunks, chunks })
    }
}

/// The slot a member that left may come back to.
pub(crate) fn may_return(
    core: &Core,
    view: &MemberView,
    reference: &MemberView,
) -> Result<usize, ReaddRefusal> {
    let header = core.bitmap.as_ref().map(|bitmap| bitmap.header());
    let empty = |slot: u16| {
        let state = core.slots[usize::from(slot)].state();
        matches!(state, SlotState::Missing | SlotState::Faulty)
    };
    readd(view, reference, header.as_ref(), &empty).map(usize::from)
}

/// Puts a member that left back into its slot: the next event says so.
pub(crate) async fn take_back(
    core: &Core,
    slot: usize,
    mut member: Member,
    mut superblock: Superblock,
) {
    // What the bits say now is filled; what they say later too, and has its checksums by then.
    let restless = core.bitmap.as_ref().and_then(|bitmap| bitmap.restless(&core.geometry));
    let restless = restless.as_ref().map(|of_slots| &of_slots[slot][..]);
    checksums::attach_returning(core, &mut member, &superblock, restless).await;
    if core.metadata.number_given(superblock.dev_number)
        && let Some(number) = core.metadata.free_number()
    {
        // Somebody who came meanwhile has its number.
        superblock.dev_number = number;
    }
    core.slots[slot].put(Rc::new(member), 0);
    core.slots[slot].set_came_back();
    let events = core.metadata.events();
    core.metadata.seat(slot, Some(Superblock { events, ..superblock }));
}
