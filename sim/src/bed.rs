//! The bench a history runs on: drives with faults, the array on them, and the model beside it.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use array::{Array, Consistency, NewArray, OpenMode, Scan};
use drive::{
    Drive, Durability, Effect, Fault, FaultControl, FaultId, Faulty, MemoryDrive, Zeroing,
};
use geometry::Geometry;
use world::{ReadBufs, SplitMix64, World, WriteBufs};

use crate::kinds::{Kind, Log};
use crate::model::{Model, SECTOR_BYTES, Wrong, fill};
use crate::plug::Plug;

/// Bytes of each member the array uses: some dozens of stripes.
const USED_BYTES: u64 = 128 << 10;
/// Room for a partial parity log, too.
const DRIVE_BYTES: u64 = 4 << 20;

/// No operation may take longer than this in virtual time.
const OPERATION_LIMIT: Duration = Duration::from_secs(120);

/// Why a history failed.
#[derive(Debug)]
pub enum Trouble {
    /// Content that must not be there.
    Content(Wrong),
    /// An operation failed that should not have.
    Failed(String),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Trouble::Content(wrong) => wrong.fmt(f),
            Trouble::Failed(what) => f.write_str(what),
        }
    }
}

fn failed(what: &str, error: impl std::fmt::Display) -> Trouble {
    Trouble::Failed(format!("{what}: {error}"))
}

/// Drives, array, model and log.
pub struct Bed {
    pub world: World,
    pub kind: Kind,
    pub model: RefCell<Model>,
    pub log: RefCell<Vec<String>>,
    drives: Vec<Rc<dyn Drive>>,
    pub controls: Vec<FaultControl>,
    plugs: RefCell<Vec<Rc<Plug>>>,
    array: RefCell<Option<Array>>,
    /// Slots whose member has left for good in this history.
    pub gone: RefCell<Vec<usize>>,
}

impl Bed {
    /// A new array on new drives, all zero and in sync.
    pub async fn new(world: &World, kind: Kind, random: &mut SplitMix64) -> Result<Bed, Trouble> {
        let mut drives: Vec<Rc<dyn Drive>> = Vec::new();
        let mut controls = Vec::new();
        for index in 0..kind.members + usize::from(kind.log == Log::Journal) {
            let memory = Rc::new(MemoryDrive::new(&format!("d{index}"), DRIVE_BYTES, 512));
            let faulty = Faulty::new(world, memory, random.next_u64());
            controls.push(faulty.control());
            drives.push(Rc::new(faulty));
        }
        let plugs: Vec<Rc<Plug>> = drives.iter().cloned().map(Plug::new).collect();
        let request = NewArray {
            name: "sim".to_owned(),
            level: kind.level,
            layout: Some(kind.layout),
            chunk_bytes: (kind.chunk_bytes > 0).then_some(kind.chunk_bytes),
            slots: plugs[..kind.members]
                .iter()
                .map(|plug| Some(Rc::clone(plug) as Rc<dyn Drive>))
                .collect(),
            spares: Vec::new(),
            size_bytes: (kind.losses > 0).then_some(USED_BYTES),
            consistency: match kind.log {
                Log::None => Consistency::Resync,
                Log::Ppl => Consistency::Ppl,
                Log::Journal => Consistency::Journal(Rc::clone(&plugs[kind.members]) as _),
            },
            assume_clean: true,
            uuid: *b"simulated array.",
            now_seconds: 1_700_000_000,
        };
        let array = request.create(world).await.map_err(|error| failed("create", error))?;
        for control in &controls {
            control.set_volatile_cache(true);
            // Every operation takes some time, so that they overlap.
            for odds in [1, 2, 3] {
                let delay = Duration::from_nanos(1000 + random.below(200_000));
                control.add(Fault::new(Effect::Delay(delay)).one_in(odds));
            }
        }
        let sectors = array.facts().size_bytes / SECTOR_BYTES as u64;
        Ok(Bed {
            world: world.clone(),
            kind,
            model: RefCell::new(Model::new(sectors)),
            log: RefCell::default(),
            drives,
            controls,
            plugs: RefCell::new(plugs),
            array: RefCell::new(Some(array)),
            gone: RefCell::default(),
        })
    }

    pub fn note(&self, what: String) {
        self.log.borrow_mut().push(format!("{:>12} {what}", self.world.now_ns()));
    }

    pub fn array(&self) -> Array {
        self.array.borrow().clone().expect("an array is open")
    }

    pub fn sectors(&self) -> u64 {
        self.array().facts().size_bytes / SECTOR_BYTES as u64
    }

    async fn limited<T>(
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
        let version = change.version;
        let mut buffer = self.world.pool().take(count as usize * SECTOR_BYTES);
        fill(first, version, &mut buffer);
        let durability = if durable { Durability::Durable } else { Durability::Cached };
        let (array, buffers) = (self.array(), WriteBufs::from_iter([buffer.freeze()]));
        let write = array.write(first * SECTOR_BYTES as u64, buffers, durability);
        let result = self.limited("a write", write).await?;
        self.note(format!("write v{version} {range:?} {durability:?}: {}", outcome(&result)));
        if result.is_ok() {
            self.model.borrow_mut().acknowledge(range, change, durable);
        }
        Ok(result.is_ok())
    }

    /// Zeroes sectors.
    pub async fn zero(&self, first: u64, count: u64) -> Result<bool, Trouble> {
        let range = first..first + count;
        let change = self.model.borrow_mut().begin_zero(range.clone());
        let (offset, bytes) = (first * SECTOR_BYTES as u64, count * SECTOR_BYTES as u64);
        let array = self.array();
        let zero = array.write_zeroes(offset, bytes, Zeroing::MayUnmap, Durability::Cached);
        let result = self.limited("zeroing", zero).await?;
        self.note(format!("zero {range:?}: {}", outcome(&result)));
        if result.is_ok() {
            self.model.borrow_mut().acknowledge(range, change, false);
        }
        Ok(result.is_ok())
    }

    /// Reads sectors and judges them. With `settles` nothing is written there meanwhile.
    pub async fn read(&self, first: u64, count: u64, settles: bool) -> Result<bool, Trouble> {
        let buffers = ReadBufs::from_iter([self.world.pool().take(count as usize * SECTOR_BYTES)]);
        let array = self.array();
        let read = array.read(first * SECTOR_BYTES as u64, buffers);
        let done = self.limited("a read", read).await?;
        self.note(format!("read {first}+{count}: {}", outcome(&done.result)));
        if done.result.is_err() {
            return Ok(false);
        }
        let judged = self.model.borrow_mut().judge(first, &done.buffers[0], settles);
        judged.map_err(Trouble::Content)?;
        Ok(true)
    }

    /// Flushes.
    pub async fn flush(&self) -> Result<bool, Trouble> {
        let mark = self.model.borrow().begin_flush();
        let array = self.array();
        let result = self.limited("a flush", array.flush()).await?;
        self.note(format!("flush: {}", outcome(&result)));
        if result.is_ok() {
            self.model.borrow_mut().end_flush(&mark);
        }
        Ok(result.is_ok())
    }

    /// An administrator fails a member.
    pub async fn fail(&self, slot: usize) -> Result<(), Trouble> {
        self.gone.borrow_mut().push(slot);
        let array = self.array();
        let result = self.limited("failing a member", array.fail_member(slot)).await?;
        self.note(format!("fail {slot}: {}", outcome(&result)));
        result.map_err(|error| failed("failing a member", error))
    }

    /// A member stops answering for ever.
    pub fn vanish(&self, slot: usize) {
        self.gone.borrow_mut().push(slot);
        self.controls[slot].add(Fault::new(Effect::Fail(drive::ErrorKind::Gone)));
        self.note(format!("vanish {slot}"));
    }

    /// A member errs on writes from now on.
    pub fn spoil_writes(&self, slot: usize) -> FaultId {
        self.gone.borrow_mut().push(slot);
        let fault = Fault::new(Effect::Fail(drive::ErrorKind::Media));
        self.note(format!("writes fail on {slot}"));
        self.controls[slot].add(fault.on(drive::Operation::Write))
    }

    /// A member is well again, and present at the next start.
    pub fn mend(&self, slot: usize, fault: FaultId) {
        self.controls[slot].remove(fault);
        self.gone.borrow_mut().retain(|gone| *gone != slot);
        self.note(format!("{slot} is well again"));
    }

    /// The power goes: for all drives at once.
    pub async fn power_cut(&self, random: &mut SplitMix64) -> Result<(), Trouble> {
        self.note("power cut".to_owned());
        self.plugs.borrow().iter().for_each(|plug| plug.pull());
        let cuts = self.controls.iter().map(|control| control.power_cut(random.next_u64()));
        for result in world::join_all(cuts.collect::<Vec<_>>()).await {
            result.map_err(|error| failed("the power cut itself", error))?;
        }
        self.model.borrow_mut().power_cut();
        Ok(())
    }

    /// The array ends in order.
    pub async fn stop(&self) -> Result<(), Trouble> {
        let array = self.array();
        let mark = self.model.borrow().begin_flush();
        let result = self.limited("stopping", array.stop()).await?;
        self.note(format!("stop: {}", outcome(&result)));
        result.map_err(|error| failed("stopping", error))?;
        self.model.borrow_mut().end_flush(&mark);
        *self.array.borrow_mut() = None;
        Ok(())
    }

    /// The power comes back (if it was gone) and the array is assembled from the drives that have
    /// not left.
    pub async fn start(&self) -> Result<(), Trouble> {
        self.controls.iter().for_each(FaultControl::power_on);
        *self.array.borrow_mut() = None;
        let left = |slot: &usize| !self.gone.borrow().contains(slot);
        let drives = (0..self.drives.len()).filter(left).map(|slot| Rc::clone(&self.drives[slot]));
        let plugs: Vec<Rc<Plug>> = drives.map(Plug::new).collect();
        let drives = plugs.iter().map(|plug| Rc::clone(plug) as Rc<dyn Drive>).collect();
        *self.plugs.borrow_mut() = plugs;
        let scan = Scan::of(self.world.pool(), drives).await;
        let Some(assembly) = scan.assemblies.first() else {
            return Err(Trouble::Failed("no array is left on the drives".to_owned()));
        };
        for (candidate, verdict) in &assembly.verdicts {
            let events = scan.candidates[*candidate].view.events;
            self.note(format!("candidate {candidate} with {events} events: {verdict}"));
        }
        let mode = OpenMode { read_only: false, force_dirty: false, now_seconds: 1_700_000_000 };
        let array = scan.open(&self.world, assembly, mode).await;
        self.note(format!("start: {}", outcome(&array)));
        if let Ok(array) = &array {
            let status = array.status();
            let slots: Vec<_> = status.slots.iter().map(|slot| slot.state).collect();
            self.note(format!(
                "synced to {:?}, events {}, {slots:?}",
                status.synced_to_bytes, status.events
            ));
        }
        let array = array.map_err(|error| failed("assembling", error))?;
        // A drive that is present and was not taken is out for good.
        let mut gone = self.gone.borrow_mut();
        for (slot, status) in array.status().slots.iter().enumerate() {
            if status.state != array::SlotState::InSync && !gone.contains(&slot) {
                gone.push(slot);
            }
        }
        drop(gone);
        *self.array.borrow_mut() = Some(array);
        Ok(())
    }

    /// Everything reads as it must, and all redundancy agrees.
    pub async fn verify(&self) -> Result<(), Trouble> {
        for first in (0..self.sectors()).step_by(64) {
            let count = (self.sectors() - first).min(64);
            if !self.read(first, count, true).await? {
                return Err(Trouble::Failed(format!("sectors {first}+{count} can't be read")));
            }
        }
        let array = self.array();
        self.limited("the resync", array.background_done()).await?;
        if let Some(upto) = array.status().synced_to_bytes {
            return Err(Trouble::Failed(format!("the resync has ended at {upto}")));
        }
        self.redundancy_agrees(&array).await
    }

    async fn redundancy_agrees(&self, array: &Array) -> Result<(), Trouble> {
        let geometry = array.geometry();
        let gone = self.gone.borrow().clone();
        let Some(sample) = (0..self.kind.members).find(|slot| !gone.contains(slot)) else {
            return Ok(());
        };
        let examined = array::examine(self.world.pool(), self.drives[sample].as_ref()).await;
        let data_offset = examined.found[0].view.layout.data_offset_bytes;
        let read = async |slot: usize, offset: u64, bytes: u64| {
            let drive = self.drives[slot].as_ref();
            let at = data_offset + offset;
            array::read_bytes(self.world.pool(), drive, at, bytes as usize).await
        };
        if let Geometry::Parity(parity) = geometry {
            if !gone.is_empty() {
                return Ok(());
            }
            let chunk = parity.chunk_bytes();
            for stripe in 0..parity.stripes() {
                let map = parity.stripe(stripe);
                let mut chunks = Vec::new();
                for slot in 0..self.kind.members {
                    let bytes = read(slot, map.member_offset(), chunk).await;
                    chunks.push(bytes.map_err(|error| failed("reading a member", error))?);
                }
                let mut by_exponent = vec![None; map.exponents().max(map.data_members())];
                for column in 0..map.data_members() {
                    by_exponent[map.exponent(column)] = Some(&chunks[map.data(column)][..]);
                }
                let (mut p, mut q) = (vec![0; chunk as usize], vec![0; chunk as usize]);
                parity::pq(&mut p, &mut q, &by_exponent);
                let q_agrees = map.q().is_none_or(|slot| q == chunks[slot][..]);
                if p != chunks[map.p()][..] || !q_agrees {
                    return Err(Trouble::Failed(format!("parity of stripe {stripe} is wrong")));
                }
            }
            return Ok(());
        }
        for run in geometry.runs(0, geometry.array_bytes()) {
            let mut first: Option<world::BufMut> = None;
            for copy in 0..geometry.copies() {
                let place = geometry.copy(&run, copy);
                if gone.contains(&place.member) {
                    continue;
                }
                let bytes = read(place.member, place.offset, run.bytes).await;
                let bytes = bytes.map_err(|error| failed("reading a member", error))?;
                match &first {
                    None => first = Some(bytes),
                    Some(first) => {
                        let differs = first.iter().zip(&bytes[..]).position(|(a, b)| a != b);
                        if let Some(at) = differs {
                            let at = run.array_offset + at as u64;
                            let what = format!("copy {copy} of byte {at} differs from copy 0");
                            return Err(Trouble::Failed(what));
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

fn outcome<T, E: std::fmt::Display>(result: &Result<T, E>) -> String {
    match result {
        Ok(_) => "done".to_owned(),
        Err(error) => error.to_string(),
    }
}
