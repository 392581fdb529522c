//! Checksums of the array as a whole: found and put to use when it is opened, settled with it, and
//! what they are worth.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use drive::{Drive, DriveError, Operation};
use format::md::{Assembly, SECTOR_BYTES, Superblock};
use format::own::SumsArea;
use format::own::checksums::{Bond, Header, PAGE_BYTES, Standing};
use world::{Gate, World, join_all};

use crate::assemble::OpenMode;
use crate::checked::{Checked, MemberSums, Start, owner};
use crate::core::Core;
use crate::examine::{Scan, read_bytes};
use crate::mutant::{self, Mutant};
use crate::slot::{Member, Slot, SlotState};

/// What the checksums of an array's data are worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChecksumStatus {
    /// Every block on every member has one.
    Valid,
    /// They are being made; what has one already is compared.
    Rebuilding {
        /// Bytes done, of each member (copies: of the array).
        done_bytes: u64,
        /// Of how many.
        total_bytes: u64,
    },
    /// Some blocks have none: where redundancy does not agree, or a write failed.
    Incomplete {
        /// Blocks of 4 KiB that the last pass left without.
        blocks: u64,
    },
    /// They can't be believed, and nothing may be written to change that.
    NotBelieved,
}

/// What an open array knows of its checksums.
#[derive(Default)]
pub(crate) struct Checksums {
    /// The set keeps checksums.
    kept: bool,
    /// Counts what may have left something to give a checksum to.
    pub(crate) asked: Cell<u64>,
    /// A pass that gives what has none one is waiting or under way.
    pub(crate) learning: Gate,
    /// How far it came.
    pub(crate) learnt_to: Cell<u64>,
    /// Blocks the last pass left without.
    pub(crate) unlearnt_blocks: Cell<u64>,
}

/// A member's header is waited for as long; one that can't be read tells nothing.
const READ_LIMIT: Duration = Duration::from_secs(5);

/// What the headers on a member say.
async fn standing(
    world: &World,
    drive: &dyn Drive,
    superblock: &Superblock,
    area: SumsArea,
) -> Standing {
    let slot = async |slot| {
        let read = read_bytes(world.pool(), drive, area.header_offset(slot), PAGE_BYTES);
        let bytes = world.within(READ_LIMIT, "a header of checksums", read).await.ok()?.ok()?;
        Header::parse(&bytes).ok()
    };
    let slots = [slot(0).await, slot(1).await];
    let standing = Standing::judge(slots, &owner(superblock), Bond::to(superblock));
    match standing {
        // Somebody has changed the set's shape since.
        Standing::Valid(header) | Standing::Unsettled(header)
            if header.data_offset_bytes != area.data_offset_bytes
                || header.covered_bytes != area.covered_bytes =>
        {
            Standing::Stale(header)
        }
        standing => standing,
    }
}

/// Puts members that keep checksums, or should, behind a drive that compares. Writes nothing.
///
/// `restless` is, per slot, where writes may have been under way when the array went down; without
/// it that may be anywhere.
pub(crate) async fn attach(
    world: &World,
    scan: &Scan,
    assembly: &Assembly,
    members: &mut [Option<(Member, SlotState)>],
    restless: Option<Vec<Vec<Range<u64>>>>,
    mode: OpenMode,
) -> Checksums {
    let view = &scan.candidates[assembly.reference].view;
    let used_bytes = view.used_bytes;
    let mut found = Vec::new();
    for (slot, member) in members.iter().enumerate() {
        let Some((member, _)) = member else { continue };
        let superblock = assembly.slots[slot].and_then(|at| scan.superblocks[at].as_ref());
        let Some(superblock) = superblock else { continue };
        let Some(area) = SumsArea::of(superblock, used_bytes) else { continue };
        let standing = standing(world, member.drive.as_ref(), superblock, area).await;
        found.push((slot, superblock, area, standing));
    }
    let kept = found.iter().any(|(.., standing)| *standing != Standing::Absent);
    for (slot, superblock, area, standing) in found.into_iter().filter(|_| kept) {
        let Some((member, state)) = &mut members[slot] else { continue };
        let drive = Rc::clone(&member.drive);
        let sums = |start| MemberSums::new(world, Rc::clone(&drive), superblock, area, start);
        let whole = *state == SlotState::InSync && !mode.read_only;
        let restless = restless.as_ref().filter(|_| whole).map(|of_slots| &of_slots[slot][..]);
        let believed = believed(world, &standing, restless, sums).await;
        let anew = || (!mode.read_only).then(|| sums(Start::anew(&standing, mode.now_seconds)));
        if let Some(sums) = believed.or_else(anew) {
            put_behind(member, sums);
        }
    }
    Checksums { kept, ..Checksums::default() }
}

/// What the headers on a member leave to be believed: all that is settled, else all but what was
/// restless, where that is known and not too much.
async fn believed(
    world: &World,
    standing: &Standing,
    restless: Option<&[Range<u64>]>,
    sums: impl Fn(Start) -> MemberSums,
) -> Option<MemberSums> {
    if let Some(start) = Start::settled(standing) {
        return Some(sums(start));
    }
    let (restless, sums) = (restless?, sums(Start::unsettled(standing)?));
    if mutant::planted(Mutant::RestlessSumsKept) {
        return Some(sums);
    }
    let forgotten = world.within(READ_LIMIT, "pages of checksums", sums.forget(restless)).await;
    forgotten.unwrap_or(false).then_some(sums)
}

fn put_behind(member: &mut Member, sums: MemberSums) {
    let sums = Rc::new(sums);
    member.drive = Rc::new(Checked(Rc::clone(&sums)));
    member.sums = Some(sums);
}

/// As [`attach`], for a drive that is to replace a member of a set that keeps checksums, or comes
/// back to it: what its own headers say of `superblock`, the one that is on it, decides. `restless`
/// is where it may lack what was written.
pub(crate) async fn attach_returning(
    core: &Core,
    member: &mut Member,
    superblock: &Superblock,
    restless: Option<&[Range<u64>]>,
) {
    let area = SumsArea::of(superblock, superblock.size_sectors * SECTOR_BYTES);
    let Some(area) = area.filter(|_| core.checksums.kept) else { return };
    let standing = standing(&core.world, member.drive.as_ref(), superblock, area).await;
    let drive = Rc::clone(&member.drive);
    let sums = |start| MemberSums::new(&core.world, Rc::clone(&drive), superblock, area, start);
    let believed = believed(&core.world, &standing, restless, sums).await;
    let anew = || sums(Start::anew(&standing, core.metadata.now_seconds(core)));
    put_behind(member, believed.unwrap_or_else(anew));
}

/// Puts a member that is new in the set behind a drive that compares, where the set keeps
/// checksums: it has none yet, whatever lies in its area.
pub(crate) fn attach_new(core: &Core, member: &mut Member, superblock: &Superblock) {
    let area = SumsArea::of(superblock, superblock.size_sectors * SECTOR_BYTES);
    let Some(area) = area.filter(|_| core.checksums.kept) else { return };
    let start = Start::anew(&Standing::Absent, core.metadata.now_seconds(core));
    let drive = Rc::clone(&member.drive);
    put_behind(member, MemberSums::new(&core.world, drive, superblock, area, start));
}

/// The first header of a new member, for its slot on the drive: it has no checksums yet.
pub(crate) fn first_header(
    superblock: &Superblock,
    area: SumsArea,
    now_seconds: u64,
) -> (u64, Vec<u8>) {
    let header = Header {
        owner: owner(superblock),
        sequence: 1,
        epoch: now_seconds,
        bond: Bond::to(superblock),
        settled: true,
        complete: false,
        data_offset_bytes: area.data_offset_bytes,
        covered_bytes: area.covered_bytes,
    };
    (area.header_offset(header.slot()), header.build())
}

impl Core {
    /// The checksums of members that are in use, with their slots.
    pub(crate) fn sums(&self) -> impl Iterator<Item = (usize, Rc<MemberSums>)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let member = slot.member().filter(|_| slot.writable())?;
            Some((index, member.sums.clone()?))
        })
    }

    /// Whether nothing is left to give a checksum to.
    pub(crate) fn sums_complete(&self) -> bool {
        let complete = |slot: &Slot| {
            let sums = slot.member().and_then(|member| member.sums.clone());
            sums.is_some_and(|sums| sums.complete())
        };
        !self.checksums.kept || self.slots.iter().filter(|slot| slot.writable()).all(complete)
    }

    /// Writes the checksums that changed, those of replacements too: durable with the members' next
    /// flush.
    ///
    /// # Errors
    /// As [`Core::fail_members`].
    pub(crate) async fn store_sums(&self) -> Result<(), DriveError> {
        // One that takes its slot meanwhile would be found in neither list later.
        let replacements = self.replacements();
        let store = async |sums: Rc<MemberSums>| sums.store().await;
        let mut failed = self.each_sums(Operation::Write, store).await;
        let store = async |member: &Member| match &member.sums {
            Some(sums) => {
                self.patiently(sums.drive().as_ref(), Operation::Write, sums.store()).await
            }
            None => Ok(()),
        };
        failed.extend(self.each_of(replacements, store).await);
        self.fail_members(failed).await
    }

    /// Makes the checksums durable, as far as no write is under way; for what is about to be
    /// called clean.
    ///
    /// # Errors
    /// As [`Core::fail_members`].
    pub(crate) async fn settle_sums(&self) -> Result<(), DriveError> {
        let settle = async |sums: Rc<MemberSums>| sums.settle().await;
        self.fail_members(self.each_sums(Operation::Flush, settle).await).await
    }

    /// Settles, and says so on the members.
    ///
    /// # Errors
    /// As [`Core::fail_members`].
    pub(crate) async fn persist_sums(&self) -> Result<(), DriveError> {
        let persist = async |sums: Rc<MemberSums>| sums.persist().await;
        self.fail_members(self.each_sums(Operation::Flush, persist).await).await
    }

    /// Does something to the checksums of each member; gives those on which it failed, or took too
    /// long.
    async fn each_sums(
        &self,
        operation: Operation,
        act: impl AsyncFn(Rc<MemberSums>) -> Result<(), DriveError>,
    ) -> Vec<(usize, DriveError)> {
        let acts = self.sums().map(async |(slot, sums)| {
            let (drive, tenant) = (Rc::clone(sums.drive()), self.slots[slot].tenant());
            let acted = self.patiently(drive.as_ref(), operation, act(sums)).await;
            let failed = acted.err().filter(|_| !self.slots[slot].has_left(&tenant));
            Some((slot, failed?))
        });
        join_all(acts.collect::<Vec<_>>()).await.into_iter().flatten().collect()
    }

    /// What the checksums are worth now.
    pub(crate) fn checksum_status(&self) -> Option<ChecksumStatus> {
        if !self.checksums.kept {
            return None;
        }
        Some(if self.checksums.learning.inside() > 0 {
            let (done_bytes, total_bytes) = (self.checksums.learnt_to.get(), self.sync_bytes());
            ChecksumStatus::Rebuilding { done_bytes, total_bytes }
        } else if self.sums().next().is_none() {
            ChecksumStatus::NotBelieved
        } else if self.sums_complete() {
            ChecksumStatus::Valid
        } else {
            ChecksumStatus::Incomplete { blocks: self.checksums.unlearnt_blocks.get() }
        })
    }
}
