//! Who is in the array: spares, and members that come, go and are replaced.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use drive::{Drive, DriveError, Durability, ErrorKind, Operation, Zeroing};
use format::md::{
    BITMAP_CHUNK_BYTES, DevFlags, Features, MemberView, Place, ReaddRefusal, SECTOR_BYTES,
    Superblock, Uuid, Version, initial_writes,
};
use world::{SplitMix64, WriteBufs};

use crate::array::Array;
use crate::bad_blocks::BadBlocks;
use crate::checksums;
use crate::core::Core;
use crate::due;
use crate::job_status::JobEnd;
use crate::metadata::Spare;
use crate::slot::{Member, Replacement, SlotState};

/// Why a member can't come, go or be replaced. Nothing was written then, unless a drive failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemberError {
    /// The array is open read-only.
    #[error("the array is open read-only")]
    ReadOnly,
    /// The level keeps nothing twice: what a new member should hold is nowhere else.
    #[error("the level has no redundancy: members can't be exchanged while it is open")]
    NoRedundancy,
    /// No such slot.
    #[error("there is no slot {0}")]
    NoSlot(usize),
    /// Nobody is in the slot.
    #[error("nobody is in slot {0}")]
    Empty(usize),
    /// The slot's member is not one to be replaced.
    #[error("the member of slot {0} is being filled itself\nhint: wait until it is, or remove it")]
    Recovering(usize),
    /// It has a replacement already.
    #[error("the member of slot {0} is being replaced already")]
    Replacing(usize),
    /// The drive can't hold what a member has to.
    #[error(
        "{drive} is {} sectors too small: it has {has_bytes} bytes, a member takes {needs_bytes}\n\
         hint: the array can't shrink; take a drive of at least {needs_bytes} bytes",
        (needs_bytes - has_bytes).div_ceil(SECTOR_BYTES)
    )]
    TooSmall {
        /// The drive.
        drive: Rc<str>,
        /// Its size.
        has_bytes: u64,
        /// What is needed.
        needs_bytes: u64,
    },
    /// The drive's blocks are larger than the array's.
    #[error("{drive} has blocks of {block_bytes} bytes, larger than the array's")]
    LargeBlocks {
        /// The drive.
        drive: Rc<str>,
        /// Its block.
        block_bytes: u32,
    },
    /// The drive is in the array already.
    #[error("{0} is in the array already")]
    Present(Rc<str>),
    /// Data would be lost.
    #[error("the data of slot {0} is nowhere else: without its member it would be lost")]
    Needed(usize),
    /// No such spare.
    #[error("no spare is called {0}")]
    NoSpare(String),
    /// The drive is no member that left, or one the bitmap does not say enough about.
    #[error("{drive} can't come back: {reason}")]
    NotReturning {
        /// The drive.
        drive: Rc<str>,
        /// Why.
        reason: ReaddRefusal,
    },
    /// No superblock of the array is on the drive.
    #[error("{0} was never a member of the array")]
    Stranger(Rc<str>),
    /// All device numbers are in use.
    #[error("the superblocks have no room for another member")]
    Full,
    /// A drive failed on the way.
    #[error(transparent)]
    Drive(#[from] DriveError),
}

/// Drives that stand by for several arrays of one process: the first array that needs one and
/// finds one that is large enough gets it.
#[derive(Clone, Default)]
pub struct SparePool(Rc<Pool>);

#[derive(Default)]
struct Pool {
    drives: RefCell<Vec<Rc<dyn Drive>>>,
    arrays: RefCell<Vec<Weak<Core>>>,
}

impl SparePool {
    /// Adds a drive; an array that waits for one may take it, and what is on it, at once.
    pub fn add(&self, drive: Rc<dyn Drive>) {
        self.0.drives.borrow_mut().push(drive);
        let arrays = self.0.arrays.borrow().clone();
        arrays.iter().filter_map(Weak::upgrade).for_each(|core| due::wake(&core));
    }

    /// The drives nobody has taken.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.0.drives.borrow().iter().map(|drive| drive.facts().name.to_string()).collect()
    }

    fn position(&self, core: &Core) -> Option<usize> {
        self.0.drives.borrow().iter().position(|drive| new_superblock(core, drive).is_ok())
    }
}

impl Array {
    /// Lets the array take drives of `pool` when it needs some and has no spare of its own.
    pub fn share_spares(&self, pool: &SparePool) {
        *self.0.pool.borrow_mut() = Some(pool.clone());
        let mut arrays = pool.0.arrays.borrow_mut();
        arrays.retain(|array| array.strong_count() > 0);
        arrays.push(Rc::downgrade(&self.0));
        drop(arrays);
        due::wake(&self.0);
    }

    /// Makes `drive` a spare; where a slot is empty it takes that and is filled. What is on the
    /// drive is lost; see [`Array::readd_member`] for one that was a member.
    ///
    /// # Errors
    /// [`MemberError`].
    pub async fn add_member(&self, drive: Rc<dyn Drive>) -> Result<(), MemberError> {
        let core = &self.0;
        changeable(core)?;
        let superblock = new_superblock(core, &drive)?;
        introduce(core, &drive, &superblock).await?;
        core.metadata.spares().borrow_mut().push(Spare { drive, superblock });
        core.commit().await?;
        due::wake(core);
        Ok(())
    }

    /// Takes the member out of a slot.
    ///
    /// # Errors
    /// [`MemberError::Needed`] where data would be lost.
    pub async fn remove_member(&self, slot: usize) -> Result<(), MemberError> {
        let core = &self.0;
        changeable(core)?;
        let state = core.slots.get(slot).ok_or(MemberError::NoSlot(slot))?;
        match state.state() {
            SlotState::Missing => return Err(MemberError::Empty(slot)),
            SlotState::InSync if core.needs(slot) => return Err(MemberError::Needed(slot)),
            _ => {}
        }
        // A drive that is to replace it goes on in its place, as if it had failed.
        if !core.go_on_with_replacement(slot) {
            state.clear();
            core.metadata.seat(slot, None);
        }
        core.commit().await?;
        due::wake(core);
        Ok(())
    }

    /// Takes a spare out of the array, by its drive's name.
    ///
    /// # Errors
    /// [`MemberError::NoSpare`].
    pub async fn remove_spare(&self, name: &str) -> Result<(), MemberError> {
        let core = &self.0;
        changeable(core)?;
        let named = |spare: &Spare| &*spare.drive.facts().name == name;
        let position = core.metadata.spares().borrow().iter().position(named);
        let position = position.ok_or_else(|| MemberError::NoSpare(name.to_owned()))?;
        core.metadata.spares().borrow_mut().remove(position);
        Ok(core.commit().await?)
    }

    /// Fills `drive` to take over from the member of a slot, which goes on serving until then.
    /// What is on the drive is lost.
    ///
    /// # Errors
    /// [`MemberError`].
    pub async fn replace_member(
        &self,
        slot: usize,
        drive: Rc<dyn Drive>,
    ) -> Result<(), MemberError> {
        let core = &self.0;
        changeable(core)?;
        let state = core.slots.get(slot).ok_or(MemberError::NoSlot(slot))?;
        match state.state() {
            SlotState::Missing | SlotState::Faulty => return Err(MemberError::Empty(slot)),
            SlotState::Recovering { .. } => return Err(MemberError::Recovering(slot)),
            SlotState::InSync if state.replacement().is_some() => {
                return Err(MemberError::Replacing(slot));
            }
            SlotState::InSync => {}
        }
        // A spare of the array is the natural choice: it has its superblock already.
        let spare =
            core.metadata.spares().borrow().iter().position(|s| Rc::ptr_eq(&s.drive, &drive));
        let superblock = match spare {
            Some(index) => core.metadata.spares().borrow_mut().remove(index).superblock,
            None => {
                let superblock = new_superblock(core, &drive)?;
                introduce(core, &drive, &superblock).await?;
                superblock
            }
        };
        if state.state() == SlotState::InSync && state.replacement().is_none() {
            let member = member(core, drive, &superblock);
            state.set_replacement(Some(Replacement::new(member, 0)));
            core.metadata.seat_replacement(slot, Some(superblock));
        } else {
            // Its member has failed meanwhile: a spare takes the slot.
            core.metadata.spares().borrow_mut().push(Spare { drive, superblock });
        }
        core.commit().await?;
        due::wake(core);
        Ok(())
    }
}

pub(crate) fn changeable(core: &Core) -> Result<(), MemberError> {
    if !core.metadata.writable() || core.stopping.get() {
        return Err(MemberError::ReadOnly);
    }
    if core.redundant() { Ok(()) } else { Err(MemberError::NoRedundancy) }
}

pub(crate) fn member(core: &Core, drive: Rc<dyn Drive>, superblock: &Superblock) -> Member {
    let data_offset = superblock.data_offset_sectors * SECTOR_BYTES;
    let bad = BadBlocks::none(MemberView::from(superblock).bad_blocks);
    let mut member = Member { drive, data_offset, bad, write_mostly: false, sums: None };
    checksums::attach_new(core, &mut member, superblock);
    member
}

/// Whether a spare of the array, or of the pool it shares, could take the slot.
pub(crate) fn spare_for(core: &Core, slot: usize) -> bool {
    core.redundant()
        && (own_spare(core, slot).is_some()
            || core.pool.borrow().as_ref().is_some_and(|pool| pool.position(core).is_some()))
}

fn own_spare(core: &Core, slot: usize) -> Option<usize> {
    let needs_bytes = core.geometry.used_bytes(slot);
    let fits = |spare: &Spare| {
        let facts = spare.drive.facts();
        spare.superblock.data_size_sectors * SECTOR_BYTES >= needs_bytes
            && facts.block_bytes <= core.facts.block_bytes
            && !facts.read_only
    };
    core.metadata.spares().borrow().iter().position(fits)
}

/// Gives an empty slot to a spare.
pub(crate) async fn engage(core: &Rc<Core>, slot: usize) -> JobEnd {
    let failed = |error: &dyn std::fmt::Display| JobEnd::Failed { reason: error.to_string() };
    let pool = core.pool.borrow().clone();
    let spare = match (own_spare(core, slot), pool) {
        (Some(index), _) => core.metadata.spares().borrow_mut().remove(index),
        (None, Some(pool)) => {
            let Some(index) = pool.position(core) else { return JobEnd::Stopped };
            let drive = pool.0.drives.borrow_mut().remove(index);
            let superblock = match new_superblock(core, &drive) {
                Ok(superblock) => superblock,
                Err(error) => return failed(&error),
            };
            // A drive that can't even be written at its start is no spare: it is left out.
            if let Err(error) = introduce(core, &drive, &superblock).await {
                core.metadata.note_failure(slot, error);
                return JobEnd::Stopped;
            }
            Spare { drive, superblock }
        }
        (None, None) => return JobEnd::Stopped,
    };
    core.slots[slot].put(Rc::new(member(core, spare.drive, &spare.superblock)), 0);
    core.metadata.seat(slot, Some(spare.superblock));
    match core.commit().await {
        Ok(()) => JobEnd::Done,
        Err(error) => failed(&error),
    }
}

/// A superblock for a drive that is to come in: like the others', with an identity of its own.
fn new_superblock(core: &Core, drive: &Rc<dyn Drive>) -> Result<Superblock, MemberError> {
    let facts = drive.facts();
    let name = || facts.name.clone();
    let template = core.metadata.template().ok_or(MemberError::ReadOnly)?;
    if facts.read_only {
        return Err(error_of(drive, ErrorKind::ReadOnly).into());
    }
    if facts.block_bytes > core.facts.block_bytes {
        return Err(MemberError::LargeBlocks { drive: name(), block_bytes: facts.block_bytes });
    }
    let in_use =
        core.slots.iter().filter_map(|slot| slot.member()).map(|member| member.bare_drive());
    let mut in_use = in_use
        .chain(core.metadata.spares().borrow().iter().map(|s| s.drive.clone()).collect::<Vec<_>>());
    if in_use.any(|other| Rc::ptr_eq(&other, drive)) {
        return Err(MemberError::Present(name()));
    }
    let size_bytes = template.size_sectors * SECTOR_BYTES;
    let offset_bytes = template.data_offset_sectors * SECTOR_BYTES;
    let version = template.place.version;
    // Behind the data of version 1.0 lie its areas and the superblock, as on the template's drive.
    let behind_bytes = match version {
        Version::V1_0 => BEHIND_BYTES,
        _ => 0,
    };
    let needs_bytes = offset_bytes + size_bytes + behind_bytes;
    if facts.size_bytes < needs_bytes {
        return Err(MemberError::TooSmall {
            drive: name(),
            has_bytes: facts.size_bytes,
            needs_bytes,
        });
    }
    let place = Place::of(version, facts.size_bytes).ok_or_else(|| MemberError::TooSmall {
        drive: name(),
        has_bytes: facts.size_bytes,
        needs_bytes,
    })?;
    let dev_number = core.metadata.free_number().ok_or(MemberError::Full)?;
    let seed = template.set_uuid.0.iter().fold(core.world.now_ns(), |seed, &byte| {
        seed.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte)
    });
    let mut random = SplitMix64::new(seed ^ template.events << 32 ^ u64::from(dev_number));
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&random.next_u64().to_le_bytes());
    uuid[8..].copy_from_slice(&random.next_u64().to_le_bytes());
    let own = Features::RECOVERY_OFFSET.with(Features::REPLACEMENT).with(Features::BAD_BLOCKS);
    Ok(Superblock {
        place,
        features: template.features.without(own).without(Features::RECOVERY_BITMAP),
        data_size_sectors: match version {
            Version::V1_0 => template.size_sectors,
            _ => facts.size_bytes / SECTOR_BYTES - template.data_offset_sectors,
        },
        recovery_offset_or_journal_tail: 0,
        dev_number,
        corrected_reads: 0,
        device_uuid: Uuid(uuid),
        devflags: DevFlags::default(),
        ..template
    })
}

/// Room for bitmap, bad-block log and superblock behind the data of version 1.0.
const BEHIND_BYTES: u64 = 128 << 10;

pub(crate) fn error_of(drive: &Rc<dyn Drive>, kind: ErrorKind) -> DriveError {
    let drive = drive.facts().name.clone();
    DriveError { kind, operation: Operation::Write, offset: 0, bytes: 0, drive, source: None }
}

/// Writes what has to be around a new member's data; its superblock follows with the next event,
/// so that nobody takes it for a member before the others know it.
async fn introduce(
    core: &Core,
    drive: &Rc<dyn Drive>,
    superblock: &Superblock,
) -> Result<(), DriveError> {
    if let Some(log) = superblock.ppl_area() {
        // Of a member it was before there may be logs that look newer than what comes.
        let zeroing = Zeroing::MayUnmap;
        drive.write_zeroes(log.start, log.length, zeroing, Durability::Cached).await?;
    }
    let mut areas = initial_writes(superblock, BITMAP_CHUNK_BYTES);
    areas.pop();
    for (offset, bytes) in areas {
        let buffers = WriteBufs::from_iter([core.world.pool().copy_of(&bytes)]);
        drive.write(offset, buffers, Durability::Cached).await?;
    }
    drive.flush().await
}
