//! Writing the partial parity log of RAID 5.
//!
//! Before a stripe's data and parity are overwritten, the member that holds its parity logs the
//! XOR of the chunks that are *not* written. Whatever of the stripe then reaches the members before
//! a sudden end, parity can be computed anew as that XOR the chunks that were being written, so no
//! other chunk of the stripe is ever computed wrong.
//!
//! Each member has a log of its own, and a log is replayed by its newest header alone. So the next
//! one is written when every stripe of the last is durable; what waits meanwhile goes out as one.
//!
//! An entry says "the first chunk, and so many after it", so a write to chunks that don't follow
//! one another takes several rounds. A chunk whose member is missing gets a round of its own:
//! parity is then all that is written, and the chunk stays old or new, not a mix with its
//! neighbours. The price: a full-stripe write to a degraded array takes up to three rounds.
//!
//! Before the first resync is done nothing is logged: parity is not right yet, and a log would
//! make it look so.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};

use drive::{DriveError, Durability, Zeroing};
use format::md::{
    ByteRange, PPL_ENTRIES_MAX, PPL_HEADER_BYTES, PplLog, PplWrite, SECTOR_BYTES, Uuid,
};
use geometry::{Parity, StripeMap};
use world::{Buf, Gate, Permit, Semaphore, WriteBufs};

use crate::bands::{Band, runs};
use crate::core::Core;
use crate::log::{Answer, Finished, Held, Waiting};
use crate::slot::Member;

/// Partial parity in one log at most: md's own limit.
const PARITY_BYTES_MAX: usize = 128 << 10;

/// One entry of a log to be written.
struct Entry {
    data_sector: u64,
    data_bytes: u32,
    partial: Buf,
}

/// The log on one member.
#[derive(Default)]
struct MemberLog {
    /// The member whose log area is ready; another one in its place has to be made ready first.
    ready: RefCell<Weak<Member>>,
    /// Where in the area the next log goes.
    next: Cell<u64>,
    generation: Cell<u64>,
    queue: RefCell<VecDeque<Rc<Waiting<Vec<Entry>>>>>,
    /// A task writes what is queued.
    working: Cell<bool>,
    /// Held while stripes of a log are not durable, and while another member takes the slot.
    turn: Turn,
    /// Stripes of the last log that are not durable yet.
    live: Rc<Gate>,
}

/// One at a time.
struct Turn(Rc<Semaphore>);

impl Default for Turn {
    fn default() -> Self {
        Turn(Rc::new(Semaphore::new(1)))
    }
}

/// The logs of all members.
pub(crate) struct Ppl {
    set_uuid: Uuid,
    /// Several logs one behind the other, or only one in each area.
    ring: bool,
    /// Parity is right, and every write under way is logged.
    logging: Cell<bool>,
    /// Writes under way that began before.
    unlogged: Rc<Gate>,
    logs: Vec<MemberLog>,
}

impl Ppl {
    /// For an array of which the superblocks say how far it is in sync (`logging`), or that it
    /// never was: then it logs from the end of the first resync on.
    pub(crate) fn new(set_uuid: Uuid, ring: bool, slots: usize, logging: bool) -> Self {
        let logs = std::iter::repeat_with(MemberLog::default).take(slots).collect();
        let (logging, unlogged) = (Cell::new(logging), Rc::default());
        Ppl { set_uuid, ring, logging, unlogged, logs }
    }

    /// Bytes a log area needs.
    pub(crate) const AREA_BYTES_MIN: u64 = (PPL_HEADER_BYTES + PARITY_BYTES_MAX) as u64;

    /// Begins a write. One log entry makes the whole array look in sync but for what is logged, so
    /// the first waits for writes that are not.
    pub(crate) async fn begin(&self, core: &Core) -> Option<Held> {
        if self.logging.get() {
            return None;
        }
        if core.synced_durably_to.get() != u64::MAX {
            return Some(Held::new(&self.unlogged));
        }
        self.unlogged.drained().await;
        self.logging.set(true);
        None
    }

    /// Whether a stripe's writes are logged: all that write parity are, also those for which a
    /// replay can do nothing (the chunk's member is missing). One that was not would leave an older
    /// entry the newest, and its replay would take the write back.
    pub(crate) fn wants(&self, core: &Core, map: &StripeMap) -> bool {
        self.logging.get() && core.slots[map.p()].writable()
    }

    /// Cuts bands into such that an entry can describe; see the head of this file.
    pub(crate) fn rounds(
        &self,
        core: &Core,
        parity: &Parity,
        bands: Vec<(u64, Band)>,
    ) -> Vec<Vec<(u64, Band)>> {
        let mut rounds: Vec<Vec<(u64, Band)>> = Vec::new();
        for (stripe, band) in bands {
            let map = parity.stripe(stripe);
            let offset = map.member_offset() + band.start as u64;
            let bytes = band.len as u64;
            let apart = |column: usize| !core.slots[map.data(column)].readable(offset, bytes);
            for (round, run) in runs(&band, apart).into_iter().enumerate() {
                if rounds.len() <= round {
                    rounds.push(Vec::new());
                }
                let full = run.written.len() == map.data_members();
                let rows_max = if full { usize::MAX } else { PARITY_BYTES_MAX };
                rounds[round].extend(run.cut(rows_max).into_iter().map(|part| (stripe, part)));
            }
        }
        rounds
    }

    /// What is logged and written at once: bands of the same parity member.
    pub(crate) fn units(&self, finished: Vec<Finished>) -> Vec<Vec<Finished>> {
        let mut open: BTreeMap<Option<usize>, (usize, Vec<Finished>)> = BTreeMap::new();
        let mut units = Vec::new();
        for part in finished {
            let slot = part.partial.as_ref().map(|_| part.map.p());
            let bytes = part.partial.as_ref().map_or(0, |partial| partial.len());
            let (sum, unit) = open.entry(slot).or_default();
            let full = *sum + bytes > PARITY_BYTES_MAX || unit.len() == PPL_ENTRIES_MAX;
            if slot.is_some() && full {
                units.push(std::mem::take(unit));
                *sum = 0;
            }
            *sum += bytes;
            unit.push(part);
        }
        units.extend(open.into_values().map(|(_, unit)| unit));
        units
    }

    /// Waits until the unit is logged, where it has to be.
    pub(crate) async fn append(&self, core: &Core, parity: &Parity, unit: &[Finished]) -> Answer {
        let entries: Vec<Entry> = unit
            .iter()
            .filter_map(|part| {
                let partial = part.partial.clone()?;
                let (first, _) = part.band.written.first()?;
                let data_bytes = part.band.written.len() * part.band.len;
                Some(Entry {
                    data_sector: part.array_offset(parity, *first) / SECTOR_BYTES,
                    data_bytes: u32::try_from(data_bytes).expect("a stripe is below 4 GiB"),
                    partial,
                })
            })
            .collect();
        let (Some(part), false) = (unit.first(), entries.is_empty()) else { return Ok(None) };
        let slot = part.map.p();
        let log = &self.logs[slot];
        let waiting = Waiting::new(entries);
        log.queue.borrow_mut().push_back(Rc::clone(&waiting));
        if !log.working.replace(true) {
            let Some(core) = core.this.upgrade() else { return Ok(None) };
            self.work(core, slot);
        }
        waiting.answered().await
    }

    /// Waits until nothing is under way that is in the log of a slot, and keeps it so until what
    /// this gives is dropped: another member can take the slot without the log.
    pub(crate) async fn still(&self, slot: usize) -> Permit {
        self.logs[slot].turn.0.acquire(1).await
    }

    /// Starts the task that writes a member's logs until none is waited for.
    fn work(&self, core: Rc<Core>, slot: usize) {
        let world = core.world.clone();
        world.spawn(async move {
            let crate::log::Log::Ppl(ppl) = &core.log else { return };
            let log = &ppl.logs[slot];
            loop {
                let _turn = log.turn.0.acquire(1).await;
                let batch = log.take();
                if batch.is_empty() {
                    log.working.set(false);
                    return;
                }
                let logged = match ppl.write(&core, slot, &batch).await {
                    Ok(logged) => Ok(logged),
                    // Without its parity member a stripe has nothing that a log could save.
                    Err(error) => core.fail_members(vec![(slot, error)]).await.map(|()| false),
                };
                for waiting in &batch {
                    waiting.answer(match &logged {
                        Ok(logged) => Ok(logged.then(|| Held::new(&log.live))),
                        Err(error) => Err(error.clone()),
                    });
                }
                drop(batch);
                log.live.drained().await;
            }
        });
    }

    /// Writes one log; false when its member is not there any more.
    async fn write(
        &self,
        core: &Core,
        slot: usize,
        batch: &[Rc<Waiting<Vec<Entry>>>],
    ) -> Result<bool, DriveError> {
        let log = &self.logs[slot];
        let member = core.slots[slot].member().filter(|_| core.slots[slot].writable());
        let (Some(member), Some(area)) = (member, core.metadata.ppl_area(slot)) else {
            return Ok(false);
        };
        if log.ready.borrow().as_ptr() != Rc::as_ptr(&member) {
            self.reset(core, slot).await?;
        }
        let entries = || batch.iter().flat_map(|waiting| &waiting.what);
        let writes: Vec<PplWrite<'_>> = entries()
            .map(|entry| PplWrite {
                data_sector: entry.data_sector,
                data_bytes: entry.data_bytes,
                parity_slot: slot as u32,
                partial_parity: &entry.partial,
            })
            .collect();
        log.generation.set(log.generation.get() + 1);
        let header = PplLog::build(self.set_uuid, log.generation.get(), &writes);
        let mut buffers = WriteBufs::from_iter([core.world.pool().copy_of(&header)]);
        buffers.extend(entries().map(|entry| entry.partial.clone()).filter(|p| !p.is_empty()));
        let bytes = world::total_bytes(&buffers);
        if area.length - log.next.get() < bytes {
            log.next.set(0);
        }
        let place = area.start + log.next.get();
        if self.ring {
            log.next.set(log.next.get() + bytes);
        }
        core.change(slot, member.drive.write(place, buffers, Durability::Durable)).await?;
        Ok(true)
    }

    /// Makes every member's log empty: what it held has been replayed, or is not needed.
    ///
    /// # Errors
    /// As [`Core::fail_members`].
    pub(crate) async fn reset_all(&self, core: &Core) -> Result<(), DriveError> {
        for (slot, state) in core.slots.iter().enumerate() {
            if state.writable()
                && let Err(error) = self.reset(core, slot).await
            {
                core.fail_members(vec![(slot, error)]).await?;
            }
        }
        Ok(())
    }

    /// Makes a member's log empty. What lies further on in the area goes too: generations begin
    /// anew, and an old one must not look newer.
    async fn reset(&self, core: &Core, slot: usize) -> Result<(), DriveError> {
        let log = &self.logs[slot];
        let (Some(member), Some(area)) = (core.slots[slot].member(), core.metadata.ppl_area(slot))
        else {
            return Ok(());
        };
        let ByteRange { start, length } = area;
        let zeroing = Zeroing::MayUnmap;
        let zeroed = member.drive.write_zeroes(start, length, zeroing, Durability::Durable);
        core.change(slot, zeroed).await?;
        let header = core.world.pool().copy_of(&PplLog::build_empty(self.set_uuid));
        let buffers = WriteBufs::from_iter([header]);
        core.change(slot, member.drive.write(start, buffers, Durability::Durable)).await?;
        log.generation.set(0);
        log.next.set(0);
        *log.ready.borrow_mut() = Rc::downgrade(&member);
        Ok(())
    }
}

impl MemberLog {
    /// What goes into the next log: as much of what waits, in its order, as fits.
    fn take(&self) -> Vec<Rc<Waiting<Vec<Entry>>>> {
        let mut queue = self.queue.borrow_mut();
        let (mut count, mut bytes) = (0, 0);
        let mut batch = Vec::new();
        while let Some(next) = queue.front() {
            count += next.what.len();
            bytes += next.what.iter().map(|entry| entry.partial.len()).sum::<usize>();
            if !batch.is_empty() && (count > PPL_ENTRIES_MAX || bytes > PARITY_BYTES_MAX) {
                break;
            }
            batch.extend(queue.pop_front());
        }
        batch
    }
}
