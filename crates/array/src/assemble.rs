//! Opening an array from members that were found and judged.
//!
//! Read-only, nothing is written, ever: where a log has to be replayed first, that happens on
//! overlays in memory. Read-write, it is replayed onto the members and then made empty.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use drive::{Drive, DriveError, Facts};
use format::md::journal::JOURNAL_BLOCK_BYTES;
use format::md::{
    ArrayState, Assembly, ConsistencyPlace, DevFlags, Features, MemberView, Refusal, Resync,
    SECTOR_BYTES, Uuid, Verdict, Version,
};
use format::own::scrub_offsets;
use geometry::{Geometry, GeometryError, Shape};
use world::{Gate, World};

use crate::array::Array;
use crate::bad_blocks::BadBlocks;
use crate::bitmap::{Bitmap, BitmapTrouble, Source};
use crate::checksums;
use crate::core::Core;
use crate::examine::{Scan, level_of};
use crate::job::Jobs;
use crate::journal::Journal;
use crate::lock::RangeLocks;
use crate::log::{self, Log, Replayed};
use crate::metadata::{Metadata, Spare};
use crate::mutant::{self, Mutant};
use crate::ppl::Ppl;
use crate::replay::{self, Pending};
use crate::returning;
use crate::scrub::{self, ScrubPost};
use crate::slot::{Member, Replacement, Slot, SlotState};
use crate::stripe::Gather;
use crate::unsynced::Unsynced;

const BLOCK_SECTORS: u64 = JOURNAL_BLOCK_BYTES as u64 / SECTOR_BYTES;

/// How to open an array.
#[derive(Debug, Clone, Copy)]
pub struct OpenMode {
    /// Nothing may be written.
    pub read_only: bool,
    /// Start although it is degraded and was not shut down; what was being written then may read
    /// as something that never was.
    pub force_dirty: bool,
    /// Seconds since 1970 now, for the superblocks' update time.
    pub now_seconds: u64,
}

/// Why an array can't be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AssembleError {
    /// Too few members that are current.
    #[error("too few current members: slots {missing:?} are missing")]
    Incomplete {
        /// Slots nobody holds.
        missing: Vec<u16>,
        /// Stale members that would complete it.
        forced: Vec<usize>,
    },
    /// Members went on apart.
    #[error(
        "its members went on in {sides} separate sides, each with writes the other lacks\n\
         hint: open one side alone, by giving only its drives"
    )]
    SplitBrain {
        /// How many.
        sides: usize,
    },
    /// A reshape is under way.
    #[error(
        "a reshape is under way, stopped at byte {position_bytes} of the array\n\
         hint: let md finish it: reading an array in two shapes is not supported yet"
    )]
    Reshaping {
        /// Where.
        position_bytes: u64,
    },
    /// The metadata forbids it.
    #[error("{0}")]
    Refused(Refusal),
    /// The shape makes no sense.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// A member's log or list can't be read.
    #[error(transparent)]
    Drive(#[from] DriveError),
    /// The bad-block log of a member that the array can't do without can't be read or makes no
    /// sense: nobody knows which of its data is good.
    #[error("the bad-block log can't be relied on")]
    BadBlocks(#[source] DriveError),
    /// The log's area could not hold what has to be logged at once.
    #[error(
        "the {log} has {bytes} bytes and needs {needed}\n\
         hint: open it read-only, or let md take the log out first"
    )]
    LogTooSmall {
        /// Which log.
        log: &'static str,
        /// What there is.
        bytes: u64,
        /// What is needed.
        needed: u64,
    },
    /// The engine could not keep the set's bitmap up to date.
    #[error("{0}\nhint: open it read-only, or let md take the bitmap out first")]
    Bitmap(#[from] BitmapTrouble),
    /// Superblocks of this version are only read.
    #[error("superblocks of version {0} are only read\nhint: open it read-only")]
    VersionNotWritten(Version),
    /// A drive is write-protected or was opened read-only.
    #[error("{0} can't be written\nhint: open the array read-only")]
    DriveReadOnly(Rc<str>),
}

impl Scan {
    /// Opens the array of `assembly`.
    ///
    /// # Errors
    /// [`AssembleError`]: what stands in the way; nothing was written then.
    pub async fn open(
        &self,
        world: &World,
        assembly: &Assembly,
        mode: OpenMode,
    ) -> Result<Array, AssembleError> {
        let view = &self.candidates[assembly.reference].view;
        startable(assembly, mode)?;
        if !mode.read_only {
            writable(view)?;
        }
        let geometry = self.geometry(assembly, view)?;
        let redundant = view.layout.level.is_redundant();
        let mut members = Vec::new();
        let mut unreliable = Vec::new();
        for (slot, &candidate) in assembly.slots.iter().enumerate() {
            let Some(candidate) = candidate else {
                members.push(None);
                continue;
            };
            let (member, mut state, log) = self.member(world, assembly, candidate, mode).await?;
            if let Err(error) = log {
                state = SlotState::Faulty;
                unreliable.push((slot, error));
            }
            members.push(Some((member, state)));
        }
        if let Some((_, error)) = unreliable.first() {
            without_unreliable(&geometry, &members, view, mode, error)?;
        }
        let journal = self.journal(assembly);
        if !mode.read_only {
            self.log_has_room(assembly, journal)?;
        }
        let pending = Pending::of(self, assembly, &geometry);
        if pending.is_some() && mode.read_only {
            replay::overlay(&mut members);
        }
        let scrub = self.scrub_post(world, assembly, view.set_uuid, mode).await;
        let degraded = !assembly.is_whole();
        let known = redundant && !mutant::planted(Mutant::ResyncNever);
        let synced_to = |replayed, degraded| match known {
            true => log::synced_to(view.resync, replayed, degraded),
            false => u64::MAX,
        };
        // Until its log is replayed an array is what its superblocks say.
        let found_synced_to = synced_to(Replayed::Nothing, degraded);
        let bitmap = self.bitmap(world, assembly, &geometry, found_synced_to, mode).await?;
        let restless = bitmap.as_ref().and_then(|bitmap| bitmap.restless(&geometry));
        let checksums =
            checksums::attach(world, self, assembly, &mut members, restless, mode).await;
        let facts = facts_of(view, &geometry, &members, mode.read_only);
        let mirrored = geometry.copies() > 1;
        let slots = members.into_iter().map(|member| match member {
            Some((member, state)) => Slot::new(Some(member), state, mirrored),
            None => Slot::new(None, SlotState::Missing, mirrored),
        });
        let log = if mode.read_only { Log::None } else { self.log(assembly, journal) };
        let metadata = self.metadata(world, assembly, mode);
        for (slot, error) in unreliable {
            metadata.note_failure(slot, error);
        }
        let core = Core {
            this: Weak::new(),
            world: world.clone(),
            facts,
            slots: slots.collect(),
            metadata,
            bitmap,
            checksums,
            geometry,
            locks: RangeLocks::default(),
            gather: Gather::default(),
            log,
            writes_in_flight: Gate::default(),
            writes_started: Cell::new(0),
            cleaner: Cell::new(false),
            stopping: Cell::new(false),
            jobs: Jobs::default(),
            mending: Gate::default(),
            policy: RefCell::default(),
            pool: RefCell::default(),
            scrub,
            set_uuid: view.set_uuid,
            reads_due: Rc::default(),
            writes_due: Rc::default(),
            unsynced: Unsynced::default(),
            synced_to: Cell::new(found_synced_to),
            synced_durably_to: Cell::new(found_synced_to),
        };
        if let Some(bitmap) = &core.bitmap {
            bitmap.held_by(&core);
        }
        self.replacements(world, assembly, mode, &core).await?;
        self.returning(world, assembly, mode, &core).await?;
        let array = Array::held(core);
        if let Some(pending) = pending {
            let core = &array.0;
            let replayed = replay::replay(core, self, assembly, pending).await?;
            if let (Replayed::Journal { position, sequence }, Some(journal)) =
                (replayed, core.log.journal())
            {
                journal.go_on(position, sequence);
            }
            let synced_to = synced_to(replayed, core.missing().contains(&true));
            core.synced_to.set(synced_to);
            core.synced_durably_to.set(synced_to);
        }
        array.begin_log().await?;
        array.resume_jobs();
        Ok(array)
    }

    /// The candidate that carries the journal.
    fn journal(&self, assembly: &Assembly) -> Option<usize> {
        let mut verdicts = assembly.verdicts.iter();
        verdicts.find(|(_, verdict)| *verdict == Verdict::Journal).map(|&(journal, _)| journal)
    }

    /// Whether the set's log can hold what this engine logs at once.
    fn log_has_room(
        &self,
        assembly: &Assembly,
        journal: Option<usize>,
    ) -> Result<(), AssembleError> {
        let view = |candidate: usize| &self.candidates[candidate].view;
        let logs: Vec<(&'static str, u64, u64)> =
            match (view(assembly.reference).consistency, journal) {
                (ConsistencyPlace::Journal, Some(journal)) => {
                    let needed = Journal::ring_sectors_min(assembly.slots.len()) * SECTOR_BYTES;
                    vec![("journal", view(journal).data_bytes, needed)]
                }
                _ => {
                    let areas = assembly.slots.iter().flatten();
                    let areas = areas.filter_map(|&slot| match view(slot).consistency {
                        ConsistencyPlace::Ppl { range, .. } => Some(range.length),
                        _ => None,
                    });
                    let log = "partial parity log";
                    areas.map(|bytes| (log, bytes, Ppl::AREA_BYTES_MIN)).collect()
                }
            };
        match logs.into_iter().find(|(_, bytes, needed)| bytes < needed) {
            Some((log, bytes, needed)) => Err(AssembleError::LogTooSmall { log, bytes, needed }),
            None => Ok(()),
        }
    }

    /// The log the array keeps from here on.
    fn log(&self, assembly: &Assembly, journal: Option<usize>) -> Log {
        let view = &self.candidates[assembly.reference].view;
        match (view.consistency, journal) {
            (ConsistencyPlace::Ppl { multiple, .. }, _) => {
                let in_sync = view.resync != Resync::From(0);
                Log::Ppl(Ppl::new(view.set_uuid, multiple, assembly.slots.len(), in_sync))
            }
            (ConsistencyPlace::Journal, Some(journal)) => {
                let found = &self.candidates[journal];
                let drive = Rc::clone(&self.drives[found.drive]);
                let sectors = found.view.data_bytes / JOURNAL_BLOCK_BYTES as u64 * BLOCK_SECTORS;
                let ring = (found.view.layout.data_offset_bytes, sectors);
                // The tail stays where it is until everything behind it has been replayed.
                let tail = found.view.journal_tail_bytes.unwrap_or(0) / SECTOR_BYTES;
                Log::Journal(Journal::new(view.set_uuid, drive, ring, tail))
            }
            _ => Log::None,
        }
    }

    /// Puts the drives that are to replace members beside those. One that is only read stays out:
    /// nothing is read from a replacement.
    async fn replacements(
        &self,
        world: &World,
        assembly: &Assembly,
        mode: OpenMode,
        core: &Core,
    ) -> Result<(), AssembleError> {
        for &(candidate, verdict) in &assembly.verdicts {
            let Verdict::Replacement { slot, to_bytes } = verdict else { continue };
            let slot = usize::from(slot);
            if mode.read_only || core.slots[slot].replacement().is_some() {
                continue;
            }
            let (mut member, _, log) = self.member(world, assembly, candidate, mode).await?;
            if let Some(superblock) = &self.superblocks[candidate] {
                checksums::attach_returning(core, &mut member, superblock, None).await;
            }
            let upto_bytes = match log {
                Ok(()) => {
                    let upto_bytes = to_bytes.unwrap_or_else(|| core.geometry.used_bytes(slot));
                    upto_bytes.min(trusted_to(core))
                }
                // What it lacks is not known: it is filled anew.
                Err(_) => 0,
            };
            core.slots[slot].set_replacement(Some(Replacement::new(member, upto_bytes)));
            core.metadata.seat_replacement(slot, self.superblocks[candidate].clone());
        }
        Ok(())
    }

    /// Takes back members that left, where the bitmap says all that they lack.
    async fn returning(
        &self,
        world: &World,
        assembly: &Assembly,
        mode: OpenMode,
        core: &Core,
    ) -> Result<(), AssembleError> {
        if mode.read_only {
            return Ok(());
        }
        for (slot, candidate) in assembly.slots.iter().enumerate() {
            let view = candidate.map(|candidate| &self.candidates[candidate].view);
            let by_bitmap = |view: &MemberView| view.features.contains(Features::RECOVERY_BITMAP);
            let recovering = matches!(core.slots[slot].state(), SlotState::Recovering { .. });
            if recovering && view.is_some_and(by_bitmap) {
                core.slots[slot].set_came_back();
            }
        }
        for &(candidate, verdict) in &assembly.verdicts {
            let left = matches!(verdict, Verdict::Stale { .. } | Verdict::Ejected { .. });
            let Some(superblock) = self.superblocks[candidate].clone().filter(|_| left) else {
                continue;
            };
            let reference = &self.candidates[assembly.reference].view;
            let Ok(slot) = returning::may_return(core, &self.candidates[candidate].view, reference)
            else {
                continue;
            };
            // One whose bad-block log can't be relied on stays out.
            if let (member, _, Ok(())) = self.member(world, assembly, candidate, mode).await? {
                returning::take_back(core, slot, member, superblock).await;
            }
        }
        Ok(())
    }

    fn geometry(&self, assembly: &Assembly, view: &MemberView) -> Result<Geometry, AssembleError> {
        let Some(level) = level_of(view.layout.level) else {
            return Err(AssembleError::Refused(Refusal::UnsupportedLevel(view.layout.level)));
        };
        let used = |candidate: &Option<usize>| match (view.used_bytes, candidate) {
            (0, Some(candidate)) => self.candidates[*candidate].view.data_bytes,
            (used, _) => used,
        };
        let shape = Shape {
            level,
            layout: view.layout.layout,
            chunk_bytes: view.layout.chunk_bytes,
            member_bytes: assembly.slots.iter().map(used).collect(),
        };
        Ok(Geometry::new(&shape)?)
    }

    async fn member(
        &self,
        world: &World,
        assembly: &Assembly,
        candidate: usize,
        mode: OpenMode,
    ) -> Result<(Member, SlotState, Result<(), DriveError>), AssembleError> {
        let found = &self.candidates[candidate];
        let drive = Rc::clone(&self.drives[found.drive]);
        if !mode.read_only && drive.facts().read_only {
            return Err(AssembleError::DriveReadOnly(drive.facts().name.clone()));
        }
        let data_offset = found.view.layout.data_offset_bytes;
        let state = match assembly.verdict(candidate) {
            Some(Verdict::InSync { .. }) => SlotState::InSync,
            Some(Verdict::Recovering { to_bytes, .. }) => {
                // What was being written is in the log of the member it was to replace.
                let unlogged = found.view.replacement
                    && matches!(found.view.consistency, ConsistencyPlace::Ppl { .. })
                    && found.view.resync != Resync::Clean;
                SlotState::Recovering { upto_bytes: if unlogged { 0 } else { to_bytes } }
            }
            _ => SlotState::Faulty,
        };
        let (bad, log) = match bad_blocks(world, drive.as_ref(), &found.view).await {
            Ok(bad) => (bad, Ok(())),
            Err(error) => (BadBlocks::none(found.view.bad_blocks), Err(error)),
        };
        let write_mostly = found.view.devflags.contains(DevFlags::WRITE_MOSTLY);
        Ok((Member { drive, data_offset, bad, write_mostly, sums: None }, state, log))
    }

    /// The set's bitmap, from the members that have all of it. A set that is only read does without
    /// one that makes no sense.
    async fn bitmap(
        &self,
        world: &World,
        assembly: &Assembly,
        geometry: &Geometry,
        synced_to: u64,
        mode: OpenMode,
    ) -> Result<Option<Bitmap>, AssembleError> {
        let view = &self.candidates[assembly.reference].view;
        if !matches!(view.consistency, ConsistencyPlace::Bitmap { .. }) {
            return Ok(None);
        }
        let source = |candidate: &usize| {
            let found = &self.candidates[*candidate];
            let ConsistencyPlace::Bitmap { start } = found.view.consistency else { return None };
            let in_sync = matches!(assembly.verdict(*candidate), Some(Verdict::InSync { .. }));
            in_sync.then(|| Source { drive: Rc::clone(&self.drives[found.drive]), start })
        };
        let sources: Vec<Source> = assembly.slots.iter().flatten().filter_map(source).collect();
        let pool = world.pool();
        let bitmap = Bitmap::open(pool, &sources, geometry, view.events, synced_to).await;
        if mode.read_only {
            return Ok(bitmap.ok());
        }
        let bitmap = bitmap?;
        Ok(Some(bitmap))
    }

    /// What the members remember of the last scrub.
    async fn scrub_post(
        &self,
        world: &World,
        assembly: &Assembly,
        set_uuid: Uuid,
        mode: OpenMode,
    ) -> ScrubPost {
        let room = |candidate: &Option<usize>| {
            self.superblocks[(*candidate)?].as_ref().and_then(scrub_offsets)
        };
        let rooms: Vec<Option<[u64; 2]>> = assembly.slots.iter().map(room).collect();
        let members = assembly.slots.iter().zip(&rooms).filter_map(|(candidate, room)| {
            let drive = self.drives[self.candidates[(*candidate)?].drive].as_ref();
            Some((drive, (*room)?))
        });
        let record = scrub::load(world, set_uuid, members).await;
        ScrubPost::new(record, rooms, !mode.read_only)
    }

    fn metadata(&self, world: &World, assembly: &Assembly, mode: OpenMode) -> Metadata {
        if mode.read_only {
            return Metadata::read_only(assembly.slots.len());
        }
        let superblock = |candidate: usize| self.superblocks[candidate].clone();
        let superblocks =
            assembly.slots.iter().map(|candidate| candidate.and_then(superblock)).collect();
        let spares = assembly.verdicts.iter().filter(|(_, verdict)| *verdict == Verdict::Spare);
        let spares = spares.filter_map(|&(candidate, _)| {
            let drive = Rc::clone(&self.drives[self.candidates[candidate].drive]);
            Some(Spare { drive, superblock: superblock(candidate)? })
        });
        let journal = self.journal(assembly).and_then(|journal| {
            let drive = Rc::clone(&self.drives[self.candidates[journal].drive]);
            Some(Spare { drive, superblock: superblock(journal)? })
        });
        let epoch_seconds = mode.now_seconds.saturating_sub(world.now_ns() / 1_000_000_000);
        Metadata::new(superblocks, spares.collect(), journal, epoch_seconds, true)
    }
}

/// How far a replacement is like its member, if it got that far: what was being written at a
/// sudden end may have come to one of them only.
fn trusted_to(core: &Core) -> u64 {
    let agrees_to = match &core.bitmap {
        Some(bitmap) => bitmap.next_needed(0).map_or(u64::MAX, |needed| needed.start),
        None => core.synced_to.get(),
    };
    match core.geometry {
        // There it is counted in bytes of the array, which lie all over a member.
        Geometry::Raid10(_) if agrees_to != u64::MAX => 0,
        _ => agrees_to,
    }
}

/// Whether the array may start without the members whose bad-block log can't be relied on.
fn without_unreliable(
    geometry: &Geometry,
    members: &[Option<(Member, SlotState)>],
    view: &MemberView,
    mode: OpenMode,
    error: &DriveError,
) -> Result<(), AssembleError> {
    let in_sync =
        |member: &Option<(Member, SlotState)>| matches!(member, Some((_, SlotState::InSync)));
    let missing: Vec<bool> = members.iter().map(|member| !in_sync(member)).collect();
    if !geometry.survives(&missing) {
        return Err(AssembleError::BadBlocks(error.clone()));
    }
    let dirty = matches!(view.resync, Resync::From(_)) && matches!(geometry, Geometry::Parity(_));
    if dirty && !mode.read_only && !mode.force_dirty {
        return Err(AssembleError::Refused(Refusal::DirtyDegraded));
    }
    Ok(())
}

/// A member's bad-block log.
///
/// # Errors
/// It can't be read, or makes no sense.
pub(crate) async fn bad_blocks(
    world: &World,
    drive: &dyn Drive,
    view: &MemberView,
) -> Result<BadBlocks, DriveError> {
    match view.bad_blocks.filter(|place| place.in_use) {
        None => Ok(BadBlocks::none(view.bad_blocks)),
        Some(in_use) => BadBlocks::read(world, drive, in_use).await,
    }
}

fn startable(assembly: &Assembly, mode: OpenMode) -> Result<(), AssembleError> {
    match &assembly.state {
        ArrayState::Startable => Ok(()),
        ArrayState::Reshaping { position_bytes } => {
            Err(AssembleError::Reshaping { position_bytes: *position_bytes })
        }
        ArrayState::Incomplete { forced } => {
            let (missing, forced) = (assembly.missing(), forced.clone());
            Err(AssembleError::Incomplete { missing, forced })
        }
        ArrayState::SplitBrain { sides } => Err(AssembleError::SplitBrain { sides: sides.len() }),
        ArrayState::Refused(Refusal::DirtyDegraded) if mode.read_only || mode.force_dirty => Ok(()),
        ArrayState::Refused(refusal) => Err(AssembleError::Refused(*refusal)),
    }
}

/// Whether this engine writes superblocks of the set's version.
fn writable(view: &MemberView) -> Result<(), AssembleError> {
    if view.version == Version::V0_90 {
        return Err(AssembleError::VersionNotWritten(view.version));
    }
    Ok(())
}

/// The array's own facts, from its shape and its members'.
fn facts_of(
    view: &MemberView,
    geometry: &Geometry,
    members: &[Option<(Member, SlotState)>],
    read_only: bool,
) -> Facts {
    let facts = || members.iter().flatten().map(|(member, _)| member.drive.facts());
    let block_bytes = facts().map(|facts| facts.block_bytes).max().unwrap_or(512);
    let block_bytes = match view.consistency {
        // The journal keeps whole blocks.
        ConsistencyPlace::Journal => block_bytes.max(JOURNAL_BLOCK_BYTES as u32),
        _ => block_bytes,
    };
    let size_bytes = geometry.array_bytes();
    let any_turns = facts().any(|facts| facts.rotational == Some(true));
    let all_known = facts().all(|facts| facts.rotational.is_some());
    Facts {
        name: Rc::from(view.name.as_str()),
        size_bytes: size_bytes - size_bytes % u64::from(block_bytes),
        block_bytes,
        preferred_bytes: geometry.stripe_bytes(),
        read_only,
        rotational: (any_turns || all_known).then_some(any_turns),
        direct: facts().all(|facts| facts.direct),
    }
}
