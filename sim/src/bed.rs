//! The bench a history runs on: drives with faults, the array on them, and the model beside it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use array::{Array, AssembleError, NewArray, OpenMode, Scan, SlotState, Status};
use drive::{Drive, Durability, Effect, Fault, MemoryDrive, Zeroing};
use format::md::{Assembly, Refusal, Verdict};
use geometry::Geometry;
use world::{ReadBufs, SplitMix64, World, WriteBufs};

use crate::kinds::Kind;
use crate::members::{Member, Seat};
use crate::model::{Change, Model, SECTOR_BYTES, Wrong, fill};
use crate::plug::Plug;
use crate::promise::{Hole, Policy, Promise, promise};
use crate::verify;

/// [`SECTOR_BYTES`] as an offset.
pub const SECTOR: u64 = SECTOR_BYTES as u64;

/// Bytes of each member the array uses: some dozens of stripes.
const USED_BYTES: u64 = 128 << 10;

/// What lies before the data on a drive of this size.
const DATA_OFFSET_BYTES: u64 = 1 << 20;

/// Room for a log besides the data.
const LOG_BYTES: u64 = 3 << 20;

/// Drives that stand by besides the members.
const STAND_BY: usize = 2;

/// No operation may take longer than this in virtual time.
const OPERATION_LIMIT: Duration = Duration::from_secs(120);

const NOW_SECONDS: u64 = 1_700_000_000;

/// Why a history failed.
#[derive(Debug, Clone)]
pub enum Trouble {
    /// Content that must not be there.
    Content(String),
    /// An operation failed that should not have, or redundancy does not agree.
    Failed(String),
    /// The engine stopped in the middle.
    Panicked(String),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Trouble::Content(what) | Trouble::Failed(what) => f.write_str(what),
            Trouble::Panicked(what) => write!(f, "panicked: {what}"),
        }
    }
}

impl From<Wrong> for Trouble {
    fn from(wrong: Wrong) -> Trouble {
        Trouble::Content(wrong.to_string())
    }
}

pub fn failed(what: &str, error: impl std::fmt::Display) -> Trouble {
    Trouble::Failed(format!("{what}: {error}"))
}

/// What happened, a line each.
pub type Log = Rc<RefCell<Vec<String>>>;

/// Where the array is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    Running,
    /// The power is gone.
    Cut,
    Stopped,
}

/// What else happens while something is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meanwhile {
    /// Nothing: what is met stays.
    Calm,
    /// Things happen to the array, but nobody writes there.
    Acts,
    /// Others write there.
    Written,
}

/// Drives, array, model and log.
pub struct Bed {
    pub world: World,
    pub kind: Kind,
    pub promise: Promise,
    pub model: RefCell<Model>,
    /// What happened, where somebody wants to know.
    pub log: Option<Log>,
    pub service: Cell<Service>,
    /// Where the data area of each member starts.
    pub data_offset: u64,
    geometry: Geometry,
    /// All drives that are members or may become such.
    pub members: Vec<Member>,
    /// Which of them each slot has.
    pub seats: Vec<Seat>,
    /// Those that are the array's spares.
    pub spares: RefCell<BTreeSet<usize>>,
    /// The drive with the journal.
    journal: Option<Member>,
    pub plugs: RefCell<Vec<Rc<Plug>>>,
    pub array: RefCell<Option<Array>>,
    /// The array's state when it was last stopped in order.
    stopped: RefCell<Option<Status>>,
    /// Per sector of a member's data area: data and parity may disagree there.
    holes: RefCell<Vec<bool>>,
    /// A resync had to leave stripes as they are: the holes stay.
    pub holes_stay: Cell<bool>,
    /// When the power went, the log was not in use yet.
    unlogged: Cell<bool>,
    /// The administrator holds background work.
    pub held: Cell<bool>,
}

impl Bed {
    /// A new array on new drives: all zero and in sync, or, `foreign`, over what somebody left.
    pub async fn new(
        world: &World,
        kind: Kind,
        foreign: bool,
        logs: bool,
        random: &mut SplitMix64,
    ) -> Result<Bed, Trouble> {
        let mut members = Vec::new();
        // Some drives stand by where members can be exchanged.
        let count = kind.members + if kind.redundant() { STAND_BY } else { 0 };
        for index in 0..count {
            // Members of levels that use all of each are unequal.
            let extra = if kind.redundant() { 64 << 10 } else { index as u64 * 12288 };
            let log = if kind.policy.logs() { LOG_BYTES } else { 0 };
            let bytes = DATA_OFFSET_BYTES + USED_BYTES + extra + log;
            let beneath = Rc::new(MemoryDrive::new(&format!("d{index}"), bytes, 512));
            if foreign || index >= kind.members {
                scribble(world, &beneath, random).await;
            }
            members.push(Member::new(world, beneath, random));
        }
        let journal = (kind.policy == Policy::Journal).then(|| {
            let beneath = MemoryDrive::new("journal", DATA_OFFSET_BYTES + LOG_BYTES, 512);
            Member::new(world, Rc::new(beneath), random)
        });
        let drives = members.iter().chain(&journal);
        let plugs: Vec<Rc<Plug>> =
            drives.clone().map(|member| Plug::new(Rc::clone(&member.drive))).collect();
        let plugged = |plug: &Rc<Plug>| Rc::clone(plug) as Rc<dyn Drive>;
        let request = NewArray {
            name: "sim".to_owned(),
            level: kind.level,
            layout: Some(kind.layout),
            chunk_bytes: (kind.chunk_bytes > 0).then_some(kind.chunk_bytes),
            slots: plugs[..kind.members].iter().map(|plug| Some(plugged(plug))).collect(),
            spares: Vec::new(),
            size_bytes: kind.redundant().then_some(USED_BYTES),
            consistency: kind.policy.consistency(journal.is_some().then(|| plugged(&plugs[count]))),
            checksums: kind.checksums,
            assume_clean: !foreign,
            uuid: *b"simulated array.",
            now_seconds: NOW_SECONDS,
        };
        let array = request.create(world).await.map_err(|error| failed("create", error))?;
        if kind.checksums && !foreign && random.chance(3, 4) {
            // Until all has checksums.
            array.background_done().await;
        }
        // Before the first resync has begun, or never.
        let held = random.chance(1, 4);
        if held {
            array.hold_jobs().await;
        }
        for member in drives {
            member.control.set_volatile_cache(true);
            // Every operation takes some time, so that they overlap.
            for odds in [1, 2, 3] {
                let delay = Duration::from_nanos(1000 + random.below(200_000));
                member.control.add(Fault::new(Effect::Delay(delay)).one_in(odds));
            }
        }
        let examined = array::examine(world.pool(), members[0].beneath.as_ref()).await;
        let geometry = array.geometry().clone();
        let rows = (0..kind.members).map(|slot| geometry.used_bytes(slot) / SECTOR).max();
        let unsynced = foreign && kind.redundant();
        let bed = Bed {
            world: world.clone(),
            kind,
            promise: promise(kind.level, kind.policy),
            model: RefCell::new(Model::new(array.facts().size_bytes / SECTOR, foreign)),
            log: logs.then(Rc::default),
            service: Cell::new(Service::Running),
            data_offset: examined.found[0].view.layout.data_offset_bytes,
            geometry,
            seats: (0..kind.members).map(Seat::new).collect(),
            spares: RefCell::default(),
            members,
            journal,
            plugs: RefCell::new(plugs),
            array: RefCell::new(Some(array)),
            stopped: RefCell::default(),
            holes: RefCell::new(vec![unsynced; rows.unwrap_or(0) as usize]),
            holes_stay: Cell::new(false),
            unlogged: Cell::new(false),
            held: Cell::new(held),
        };
        bed.note(|| format!("{kind}, {}", if foreign { "resyncing" } else { "in sync" }));
        Ok(bed)
    }

    pub fn note(&self, what: impl FnOnce() -> String) {
        if let Some(log) = &self.log {
            log.borrow_mut().push(format!("{:>12} {}", self.world.now_ns(), what()));
        }
    }

    pub fn array(&self) -> Array {
        self.array.borrow().clone().expect("an array is open")
    }

    /// Everything that has power: the members, and the journal's drive.
    fn drives(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().chain(&self.journal)
    }

    pub fn sectors(&self) -> u64 {
        self.geometry.array_bytes() / SECTOR
    }

    /// Sectors of the smallest member's data.
    pub fn member_sectors(&self) -> u64 {
        let bytes = (0..self.kind.members).map(|slot| self.geometry.used_bytes(slot));
        bytes.min().unwrap_or(0) / SECTOR
    }

    /// The drive in a slot, or the last that was.
    pub fn member(&self, slot: usize) -> &Member {
        &self.members[self.seats[slot].drive.get()]
    }

    pub fn beneath(&self, slot: usize) -> &Rc<MemoryDrive> {
        &self.member(slot).beneath
    }

    pub fn is_gone(&self, slot: usize) -> bool {
        self.member(slot).faulty.get() || self.seats[slot].out.get()
    }

    /// Whether this part of a member's data area can't be relied on.
    pub fn impaired(&self, slot: usize, offset: u64, bytes: u64) -> bool {
        let member = self.member(slot);
        let spoilt = member.control.spoilt(self.data_offset + offset, bytes);
        self.is_gone(slot) || member.silent.get() || spoilt
    }

    pub fn in_hole(&self, row: u64) -> bool {
        self.holes.borrow()[row as usize]
    }

    /// Whether the promise still holds with this member lost as well. One with latent errors counts
    /// as a whole: a read of several chunks that meets one is answered from redundancy as a whole.
    pub fn may_lose(&self, slot: usize) -> bool {
        let lost = |of: usize| of == slot || self.impaired(of, 0, self.geometry.used_bytes(of));
        let lost: Vec<bool> = (0..self.kind.members).map(lost).collect();
        self.geometry.survives(&lost)
    }

    /// Learns from the array who is out of it, and whether redundancy agrees again.
    pub fn refresh(&self) {
        // What a process without power sees of its drives means nothing.
        if self.service.get() == Service::Cut {
            return;
        }
        let status = self.array().status();
        for (seat, slot) in self.seats.iter().zip(&status.slots) {
            if let Some(drive) = slot.drive.as_deref().and_then(|name| self.named(name)) {
                seat.drive.set(drive);
                self.spares.borrow_mut().remove(&drive);
            }
            seat.out.set(slot.state != SlotState::InSync);
        }
        if status.unsynced_stripes > 0 {
            self.holes_stay.set(true);
        }
        if status.synced_to_bytes.is_none() && !self.holes_stay.get() {
            self.close_holes();
            self.model.borrow_mut().copies_agree();
        }
    }

    /// Data and parity agree again; but where a chunk can't be read as a whole, the stripe is made
    /// to agree with what redundancy says of it, its readable sectors included.
    fn close_holes(&self) {
        let mut holes = self.holes.borrow_mut();
        let Geometry::Parity(parity) = &self.geometry else { return };
        let chunk = parity.chunk_bytes();
        for stripe in 0..parity.stripes() {
            let start = parity.stripe(stripe).member_offset();
            let rows = (start / SECTOR) as usize..((start + chunk) / SECTOR) as usize;
            if !holes[rows.clone()].contains(&true) {
                continue;
            }
            let latent = |member: &Member| member.control.spoilt(self.data_offset + start, chunk);
            if !(0..self.seats.len()).any(|slot| latent(self.member(slot))) {
                holes[rows].fill(false);
            }
        }
    }

    /// Something of a member is lost: where redundancy did not agree yet, what it held is open.
    pub fn lost(&self) {
        let Geometry::Parity(parity) = &self.geometry else {
            self.model.borrow_mut().copy_lost();
            return;
        };
        let holes = self.holes.borrow();
        if !holes.contains(&true) {
            return;
        }
        for sector in 0..self.sectors() {
            let (stripe, column, within) = parity.stripe_of(sector * SECTOR);
            let map = parity.stripe(stripe);
            let offset = map.member_offset() + within;
            let hole = holes[(offset / SECTOR) as usize];
            let slot = map.data(column);
            // What is read together with a latent error is recovered together with it.
            if hole && self.impaired(slot, 0, self.geometry.used_bytes(slot)) {
                self.model.borrow_mut().forget(sector);
            }
        }
    }

    /// What a cut now leaves between data and parity.
    fn tear(&self) {
        let Geometry::Parity(parity) = &self.geometry else { return };
        if !self.has_write_hole() {
            return;
        }
        let mut holes = self.holes.borrow_mut();
        for sector in 0..self.sectors() {
            if self.model.borrow().in_flight(sector) {
                let (stripe, _, within) = parity.stripe_of(sector * SECTOR);
                let offset = parity.stripe(stripe).member_offset() + within;
                holes[(offset / SECTOR) as usize] = true;
            }
        }
    }

    /// Whether rows that were being written may disagree after the last cut.
    fn has_write_hole(&self) -> bool {
        self.promise.hole == Hole::Rows || self.unlogged.get()
    }

    /// What was being written on members that are lost in the moment of a cut now.
    fn lost_in_flight(&self) -> Vec<u64> {
        let lost = |&slot: &usize| {
            let impaired = self.impaired(slot, 0, self.geometry.used_bytes(slot));
            impaired && !self.seats[slot].out_at_start.get()
        };
        let lost = (0..self.seats.len()).filter(lost);
        lost.flat_map(|slot| self.in_flight_on(slot)).collect()
    }

    /// What was being written on a member, where that is open when it is lost at the same time.
    fn in_flight_on(&self, slot: usize) -> Vec<u64> {
        let Geometry::Parity(parity) = &self.geometry else { return Vec::new() };
        if self.promise.hole != Hole::Flight {
            return Vec::new();
        }
        let open = |&sector: &u64| {
            let (stripe, column, _) = parity.stripe_of(sector * SECTOR);
            parity.stripe(stripe).data(column) == slot && self.model.borrow().in_flight(sector)
        };
        (0..self.sectors()).filter(open).collect()
    }

    pub async fn limited<T>(
        &self,
        what: &'static str,
        act: impl Future<Output = T>,
    ) -> Result<T, Trouble> {
        self.world.within(OPERATION_LIMIT, what, act).await.map_err(|error| failed(what, error))
    }

    /// Writes sectors; `Ok(false)` when the array said it failed.
    pub async fn write(&self, first: u64, count: u64, durable: bool) -> Result<bool, Trouble> {
        let range = first..first + count;
        let change = self.model.borrow_mut().begin_write(range.clone());
        let version = change.version();
        let mut buffer = self.world.pool().take(count as usize * SECTOR_BYTES);
        fill(first, version, &mut buffer);
        let (array, buffers) = (self.array(), WriteBufs::from_iter([buffer.freeze()]));
        let write = array.write(first * SECTOR, buffers, durability(durable));
        let result = self.limited("a write", write).await?;
        self.note(|| {
            let durable = if durable { ", durable" } else { "" };
            format!("write v{version} {range:?}{durable}: {}", outcome(&result))
        });
        self.ended(range, change, durable, result.is_ok());
        Ok(result.is_ok())
    }

    /// A change has ended.
    fn ended(&self, range: Range<u64>, change: Change, durable: bool, well: bool) {
        if !well {
            self.model.borrow_mut().end(range);
            return;
        }
        self.model.borrow_mut().acknowledge(range.clone(), change, durable);
        if self.service.get() == Service::Cut && self.kind.level.parities() > 0 {
            // Heard only after a cut, which has torn rows of it that rested on other writes.
            self.lost();
        }
        // Before it is resynced, a row's parity is computed anew by whoever writes there.
        let Geometry::Parity(parity) = &self.geometry else { return };
        let whole = (0..self.kind.members)
            .all(|slot| !self.impaired(slot, 0, self.geometry.used_bytes(slot)));
        if whole && !self.holes_stay.get() && self.service.get() == Service::Running {
            for sector in range {
                let (stripe, _, within) = parity.stripe_of(sector * SECTOR);
                let row = (parity.stripe(stripe).member_offset() + within) / SECTOR;
                self.holes.borrow_mut()[row as usize] = false;
            }
        }
    }

    /// Zeroes sectors.
    pub async fn zero(&self, first: u64, count: u64, durable: bool) -> Result<bool, Trouble> {
        let range = first..first + count;
        let change = self.model.borrow_mut().begin_zero(range.clone());
        let array = self.array();
        let (offset, bytes) = (first * SECTOR, count * SECTOR);
        let zero = array.write_zeroes(offset, bytes, Zeroing::MayUnmap, durability(durable));
        let result = self.limited("zeroing", zero).await?;
        self.note(|| format!("zero {range:?}: {}", outcome(&result)));
        self.ended(range, change, durable, result.is_ok());
        Ok(result.is_ok())
    }

    /// Discards sectors: each keeps what it holds, or becomes zero.
    pub async fn discard(&self, first: u64, count: u64) -> Result<bool, Trouble> {
        let range = first..first + count;
        self.model.borrow_mut().begin_zero(range.clone());
        let array = self.array();
        let discard = array.discard(first * SECTOR, count * SECTOR);
        let result = self.limited("a discard", discard).await?;
        self.note(|| format!("discard {range:?}: {}", outcome(&result)));
        self.model.borrow_mut().end(range);
        Ok(result.is_ok())
    }

    /// Reads sectors and judges them.
    pub async fn read(
        &self,
        first: u64,
        count: u64,
        meanwhile: Meanwhile,
    ) -> Result<bool, Trouble> {
        let mark = (meanwhile == Meanwhile::Written)
            .then(|| self.model.borrow().begin_read(first..first + count));
        let buffers = ReadBufs::from_iter([self.world.pool().take(count as usize * SECTOR_BYTES)]);
        let (array, steady) = (self.array(), !self.unsteady());
        let read = array.read(first * SECTOR, buffers);
        let done = self.limited("a read", read).await?;
        self.note(|| format!("read {first}..{}: {}", first + count, outcome(&done.result)));
        if done.result.is_err() {
            return Ok(false);
        }
        let calm = meanwhile == Meanwhile::Calm && steady;
        let settles = calm && self.service.get() == Service::Running;
        let mut model = self.model.borrow_mut();
        match mark {
            Some(mark) => model.judge_shared(first, &done.buffers[0], &mark)?,
            None => model.judge(first, &done.buffers[0], settles)?,
        }
        Ok(true)
    }

    /// Where redundancy does not agree, what is read together with a latent error may come from
    /// elsewhere than what is read without it.
    fn unsteady(&self) -> bool {
        let latent = |slot| self.impaired(slot, 0, self.geometry.used_bytes(slot));
        let differs =
            |status: Status| status.synced_to_bytes.is_some() || status.unsynced_stripes > 0;
        self.service.get() != Service::Running
            || differs(self.array().status()) && (0..self.kind.members).any(latent)
    }

    /// Flushes.
    pub async fn flush(&self) -> Result<bool, Trouble> {
        let mark = self.model.borrow().begin_flush();
        let array = self.array();
        let result = self.limited("a flush", array.flush()).await?;
        self.note(|| format!("flush: {}", outcome(&result)));
        if result.is_ok() {
            self.model.borrow_mut().end_flush(&mark);
        }
        Ok(result.is_ok())
    }

    /// The power goes: for all drives at once.
    pub async fn power_cut(&self, random: &mut SplitMix64) -> Result<(), Trouble> {
        self.note(|| "power cut".to_owned());
        self.refresh();
        self.no_false_alarm()?;
        let syncing = self.array().status().synced_to_bytes.is_some();
        self.unlogged.set(self.promise.hole == Hole::Flight && syncing);
        self.service.set(Service::Cut);
        self.plugs.borrow().iter().for_each(|plug| plug.pull());
        self.tear();
        let open = self.lost_in_flight();
        let controls = self.drives().map(|member| &member.control);
        let cuts = controls.map(|control| control.power_cut(random.next_u64()));
        for result in world::join_all(cuts.collect::<Vec<_>>()).await {
            result.map_err(|error| failed("the power cut itself", error))?;
        }
        self.model.borrow_mut().power_cut();
        open.into_iter().for_each(|sector| self.model.borrow_mut().forget(sector));
        if self.kind.level.parities() > 0 {
            self.lost();
        }
        Ok(())
    }

    /// The array ends in order.
    pub async fn stop(&self) -> Result<(), Trouble> {
        self.service.set(Service::Stopped);
        let array = self.array();
        let mark = self.model.borrow().begin_flush();
        let result = self.limited("stopping", array.stop()).await?;
        self.note(|| format!("stop: {}", outcome(&result)));
        result.map_err(|error| failed("stopping", error))?;
        self.model.borrow_mut().end_flush(&mark);
        self.refresh();
        self.no_false_alarm()?;
        *self.stopped.borrow_mut() = Some(array.status());
        Ok(())
    }

    /// The power comes back (if it was gone) and the array is assembled from all drives.
    pub async fn start(&self) -> Result<(), Trouble> {
        for member in self.drives() {
            member.control.power_on();
        }
        *self.array.borrow_mut() = None;
        self.model.borrow_mut().end_all();
        let plugs: Vec<Rc<Plug>> =
            self.drives().map(|member| Plug::new(Rc::clone(&member.drive))).collect();
        let drives = plugs.iter().map(|plug| Rc::clone(plug) as Rc<dyn Drive>).collect();
        *self.plugs.borrow_mut() = plugs;
        let scan = Scan::of(self.world.pool(), drives).await;
        let Some(assembly) = scan.assemblies.first() else {
            return Err(Trouble::Failed("no array is left on the drives".to_owned()));
        };
        for (candidate, verdict) in &assembly.verdicts {
            let found = &scan.candidates[*candidate];
            let (drive, events) = (found.drive, found.view.events);
            self.note(|| format!("drive {drive} with {events} events: {verdict}"));
        }
        if self.service.get() == Service::Cut {
            self.found_out(&scan, assembly);
        }
        self.found_spares(&scan, assembly);
        let mut mode = OpenMode { read_only: false, force_dirty: false, now_seconds: NOW_SECONDS };
        let mut opened = scan.open(&self.world, assembly, mode).await;
        let refused = AssembleError::Refused(Refusal::DirtyDegraded);
        if let Err(error) = &opened
            && error.to_string() == refused.to_string()
        {
            self.note(|| format!("start: {error}"));
            let whole = (0..self.kind.members).all(|slot| !self.is_gone(slot));
            if whole || !self.has_write_hole() {
                return Err(failed("assembling", error));
            }
            mode.force_dirty = true;
            opened = scan.open(&self.world, assembly, mode).await;
        }
        let array = opened.map_err(|error| failed("assembling", error))?;
        if self.held.get() {
            array.hold_jobs().await;
        }
        let status = array.status();
        self.note(|| {
            let slots: Vec<_> = status.slots.iter().map(|slot| slot.state).collect();
            format!("started, synced to {:?}, {slots:?}", status.synced_to_bytes)
        });
        if let Some(before) = self.stopped.take() {
            self.as_it_was(&before, &status)?;
        }
        *self.array.borrow_mut() = Some(array);
        for member in &self.members {
            // What it missed, if anything, the array has judged by now.
            member.faulty.set(member.faults.borrow().iter().any(|&(_, loses)| loses));
        }
        self.service.set(Service::Running);
        self.refresh();
        self.seats.iter().for_each(|seat| seat.out_at_start.set(seat.out.get()));
        Ok(())
    }

    /// Members that were filled when the power went, and whose superblocks don't say so yet, are
    /// out all the same.
    fn found_out(&self, scan: &Scan, assembly: &Assembly) {
        let (mut found, mut open) = (false, Vec::new());
        for (slot, seat) in self.seats.iter().enumerate() {
            let candidate = assembly.slots[slot];
            if let Some(candidate) = candidate {
                seat.drive.set(scan.candidates[candidate].drive);
            }
            let verdict = candidate.and_then(|candidate| assembly.verdict(candidate));
            let in_sync = matches!(verdict, Some(Verdict::InSync { .. }));
            if !in_sync && !self.is_gone(slot) {
                seat.out.set(true);
                found = true;
                open.extend(self.in_flight_on(slot));
            }
        }
        open.into_iter().for_each(|sector| self.model.borrow_mut().forget(sector));
        if found {
            self.lost();
        }
    }

    /// Which drives are spares.
    fn found_spares(&self, scan: &Scan, assembly: &Assembly) {
        let spares = assembly.verdicts.iter().filter(|(_, verdict)| *verdict == Verdict::Spare);
        let drives = spares.map(|&(candidate, _)| scan.candidates[candidate].drive);
        *self.spares.borrow_mut() = drives.collect();
    }

    /// After a stop in order the superblocks say what the array's state said.
    fn as_it_was(&self, before: &Status, now: &Status) -> Result<(), Trouble> {
        for (slot, (was, is)) in before.slots.iter().zip(&now.slots).enumerate() {
            let (was, is) = (was.state == SlotState::InSync, is.state == SlotState::InSync);
            if was != is && !(was && self.member(slot).faulty.get()) {
                return Err(Trouble::Failed(format!(
                    "member {slot} was {} before the stop and is {} after it",
                    if was { "in sync" } else { "out" },
                    if is { "in sync" } else { "out" },
                )));
            }
        }
        let (was, is) = (before.synced_to_bytes, now.synced_to_bytes);
        let unsynced = before.bitmap.as_ref().map_or(0, |bitmap| bitmap.unsynced_chunks);
        if was.is_none() && unsynced == 0 && is.is_some() {
            return Err(Trouble::Failed(format!("in sync before the stop, to {is:?} after it")));
        }
        Ok(())
    }

    /// All sectors can be read and hold what they may.
    pub async fn read_all(&self) -> Result<(), Trouble> {
        for first in (0..self.sectors()).step_by(256) {
            let count = (self.sectors() - first).min(256);
            if !self.read(first, count, Meanwhile::Calm).await? {
                return Err(Trouble::Failed(format!("sectors {first}+{count} can't be read")));
            }
        }
        Ok(())
    }

    /// Everything reads as it must, and all redundancy agrees.
    pub async fn verify(&self) -> Result<(), Trouble> {
        self.read_all().await?;
        let array = self.array();
        self.resume();
        self.limited("the resync", array.background_done()).await?;
        if let Some(upto) = array.status().synced_to_bytes {
            let end = array.status().last_job.and_then(|job| Some((job.kind, job.end?)));
            let slots: Vec<_> = array.status().slots.iter().map(|slot| slot.state).collect();
            return Err(Trouble::Failed(format!("resynced to {upto} only, {slots:?}, {end:?}")));
        }
        if !self.flush().await? {
            return Err(Trouble::Failed("the last flush failed".to_owned()));
        }
        self.refresh();
        self.scour().await?;
        self.no_false_alarm()?;
        self.jobs_have_done()?;
        verify::redundancy_agrees(self, &array).await
    }
}

/// Fills a drive with what an earlier owner left.
async fn scribble(world: &World, drive: &MemoryDrive, random: &mut SplitMix64) {
    let mut buffer = world.pool().take(USED_BYTES as usize);
    for word in buffer.chunks_exact_mut(8) {
        word.copy_from_slice(&random.next_u64().to_le_bytes());
    }
    let buffers = WriteBufs::from_iter([buffer.freeze()]);
    let written = drive.write(DATA_OFFSET_BYTES, buffers, Durability::Durable).await;
    assert!(written.is_ok(), "memory takes every write");
}

fn durability(durable: bool) -> Durability {
    if durable { Durability::Durable } else { Durability::Cached }
}

pub fn outcome<T, E: std::fmt::Display>(result: &Result<T, E>) -> String {
    match result {
        Ok(_) => "done".to_owned(),
        Err(error) => error.to_string(),
    }
}
