//! Parity stripes: writing them, and reading what can't be read directly.
//!
//! A write is cut into pieces by stripe and chunk, and waits for its stripes. Whoever gets them
//! first leads: it takes along every other waiting write that lies in the same stripes, so that
//! neighbouring small writes become full-stripe writes, decides per band how to bring parity up to
//! date (`plan`), reads what that needs, computes, and writes data and parity together. It runs as
//! a task of its own: a client that goes away must not leave a stripe half-written.
//!
//! Parity is written at the same time as data, so a power cut between the two leaves the stripe
//! inconsistent (the write hole); the array is marked dirty before its first write, and a dirty
//! array is resynced when it is assembled. With a log (`log`) the stripe is made to agree from it.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use drive::{DriveError, Durability, Operation};
use geometry::{Parity, Role, StripeMap};
use smallvec::SmallVec;
use world::{Buf, BufMut, Pool, ReadBufs, WriteBufs};

use crate::bands::{Band, Piece, bands};
use crate::batch::ReadBatch;
use crate::core::Core;
use crate::lock::Mode;
use crate::log::{self, Finished, Log};
use crate::mend;
use crate::mutant::{self, Mutant};
use crate::plan::{Situation, Way, choose};
use crate::split::{WriteCutter, whole_blocks};

/// A client's write, cut by stripe, waiting for its stripes or for whoever leads them.
pub(crate) struct StripeWrite {
    stripes: Range<u64>,
    pieces: Vec<(u64, Piece)>,
    durability: Durability,
    result: OnceCell<Result<(), DriveError>>,
}

impl StripeWrite {
    fn overlaps(&self, other: &StripeWrite) -> bool {
        self.pieces.iter().any(|(stripe, piece)| {
            other.pieces.iter().any(|(other_stripe, other)| {
                stripe == other_stripe
                    && piece.column == other.column
                    && piece.start < other.start + other.data.len()
                    && other.start < piece.start + piece.data.len()
            })
        })
    }
}

/// Writes that wait, in order of arrival.
#[derive(Default)]
pub(crate) struct Gather(RefCell<Vec<Rc<StripeWrite>>>);

impl Gather {
    fn add(&self, write: &Rc<StripeWrite>) {
        self.0.borrow_mut().push(Rc::clone(write));
    }

    /// Takes `leader` and all that can be written with it: within its stripes, and not touching
    /// the same bytes twice.
    fn take(&self, leader: &Rc<StripeWrite>) -> Vec<Rc<StripeWrite>> {
        let mut taken = vec![Rc::clone(leader)];
        self.0.borrow_mut().retain(|write| {
            if Rc::ptr_eq(write, leader) {
                return false;
            }
            let inside = mutant::planted(Mutant::GatherOutside)
                || leader.stripes.start <= write.stripes.start
                    && write.stripes.end <= leader.stripes.end;
            let overlaps = taken.iter().any(|other| other.overlaps(write));
            let joins = inside && (!overlaps || mutant::planted(Mutant::GatherOverlaps));
            if joins {
                taken.push(Rc::clone(write));
            }
            !joins
        });
        taken
    }
}

/// Stores `buffers` from `offset` on, with parity.
pub(crate) async fn write(
    core: &Core,
    parity: &Parity,
    offset: u64,
    buffers: WriteBufs,
    durability: Durability,
) -> Result<(), DriveError> {
    let buffers = whole_blocks(core.world.pool(), buffers, core.facts.block_bytes as usize);
    let write = Rc::new(cut(parity, offset, &buffers, durability));
    core.gather.add(&write);
    let shared = mutant::planted(Mutant::StripeLockShared);
    let mode = if shared { Mode::Shared } else { Mode::Exclusive };
    let lock = core.locks.lock(write.stripes.clone(), mode).await;
    if let Some(result) = write.result.get() {
        return result.clone();
    }
    // Writes that came in the same moment have not all been polled yet: let them join.
    if core.writes_in_flight.inside() > 1 {
        core.world.yield_now().await;
    }
    let lock = Some(lock).filter(|_| !mutant::planted(Mutant::LockReleasedEarly));
    let writes = core.gather.take(&write);
    let counted = if mutant::planted(Mutant::DurableGatheredDropped) { 1 } else { writes.len() };
    let durable = writes.iter().take(counted).any(|write| write.durability == Durability::Durable);
    let durability = if durable { Durability::Durable } else { Durability::Cached };
    let mut stripes: BTreeMap<u64, Vec<Piece>> = BTreeMap::new();
    for (stripe, piece) in writes.iter().flat_map(|write| &write.pieces) {
        stripes.entry(*stripe).or_default().push(piece.clone());
    }
    let result = store(core, parity, &stripes, durability).await;
    for write in writes {
        let _ = write.result.set(result.clone());
    }
    drop(lock);
    result
}

fn cut(parity: &Parity, offset: u64, buffers: &[Buf], durability: Durability) -> StripeWrite {
    let chunk = parity.chunk_bytes();
    let mut pieces = Vec::new();
    let mut at = offset;
    let end = offset + world::total_bytes(buffers);
    let mut cutter = WriteCutter::new(buffers);
    while at < end {
        let (stripe, column, within) = parity.stripe_of(at);
        let bytes = (chunk - within).min(end - at);
        let mut start = within as usize;
        for data in cutter.take(bytes as usize) {
            let len = data.len();
            pieces.push((stripe, Piece { column, start, data }));
            start += len;
        }
        at += bytes;
    }
    let first = pieces.first().map_or(0, |(stripe, _)| *stripe);
    let last = pieces.last().map_or(0, |(stripe, _)| *stripe);
    StripeWrite { stripes: first..last + 1, pieces, durability, result: OnceCell::new() }
}

/// What a band's buffers are for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Column(usize),
    P,
    Q,
}

/// A band, how it is written, and the old content that takes.
struct Work {
    map: StripeMap,
    band: Band,
    way: Way,
    columns: Vec<Option<BufMut>>,
    p: Option<BufMut>,
    q: Option<BufMut>,
    /// Columns that are recovered, and whose members are being filled.
    filling: SmallVec<[usize; 2]>,
}

impl Work {
    fn new(map: StripeMap, band: Band, way: Way) -> Work {
        let columns = std::iter::repeat_with(|| None).take(map.data_members()).collect();
        Work { map, band, way, columns, p: None, q: None, filling: SmallVec::new() }
    }

    /// Recovers columns, and writes what they are taken for to those that are being filled: with
    /// two parities that don't agree yet, whoever fills them may have recovered something else.
    fn recover_filling(&mut self, pool: &Pool) {
        self.recover(pool);
        for &column in &self.filling {
            let written = &mut self.band.written;
            let Err(at) = written.binary_search_by_key(&column, |(column, _)| *column) else {
                continue;
            };
            let content = self.columns[column].as_deref().expect("all columns were recovered");
            written.insert(at, (column, pool.copy_of(content)));
        }
    }

    fn place(&self, part: Part) -> (usize, u64) {
        let slot = match part {
            Part::Column(column) => self.map.data(column),
            Part::P => self.map.p(),
            Part::Q => self.map.q().expect("only asked for where there is a Q"),
        };
        (slot, self.map.member_offset() + self.band.start as u64)
    }

    /// Fills the columns that were not read from the others and the parities that were.
    fn recover(&mut self, pool: &Pool) {
        let Work { map, band, columns, p, q, .. } = self;
        let lost: SmallVec<[usize; 2]> =
            (0..columns.len()).filter(|&column| columns[column].is_none()).collect();
        for &column in &lost {
            columns[column] = Some(pool.take(band.len));
        }
        recover_columns(map, columns, p.as_deref_mut(), q.as_deref_mut(), &lost);
    }

    /// Works out a part that was not read from what was.
    fn work_out(&mut self, pool: &Pool, part: Part) {
        if self.columns.iter().any(Option::is_none) {
            self.recover(pool);
        }
        let data: SmallVec<[&[u8]; 32]> =
            self.columns.iter().map(|column| column.as_deref().unwrap_or_default()).collect();
        match part {
            Part::Column(_) => {}
            Part::P => {
                let mut p = pool.take(self.band.len);
                compute(&self.map, &data, Some(&mut p), None);
                self.p = Some(p);
            }
            Part::Q => {
                let mut q = pool.take(self.band.len);
                compute(&self.map, &data, None, Some(&mut q));
                self.q = Some(q);
            }
        }
    }

    fn take(&mut self, part: Part) -> Option<BufMut> {
        match part {
            Part::Column(column) => self.columns[column].take(),
            Part::P => self.p.take(),
            Part::Q => self.q.take(),
        }
    }

    fn put(&mut self, part: Part, buffer: BufMut) {
        match part {
            Part::Column(column) => self.columns[column] = Some(buffer),
            Part::P => self.p = Some(buffer),
            Part::Q => self.q = Some(buffer),
        }
    }
}

/// What members failed to read while something was worked out: ranges of their data areas.
#[derive(Default)]
pub(crate) struct Unreadable {
    ranges: Vec<(usize, u64, u64)>,
    /// Members that don't answer in time are asked too, and waited for.
    patient: bool,
}

impl Unreadable {
    pub(crate) fn add(&mut self, slot: usize, offset: u64, bytes: u64) {
        self.ranges.push((slot, offset, bytes));
    }

    /// Whether a read of this range is bound to fail. A part of what failed is not: there may be
    /// one bad block in it.
    fn dooms(&self, slot: usize, offset: u64, bytes: u64) -> bool {
        let end = offset + bytes;
        let doomed = |&(of, from, len): &(usize, u64, u64)| {
            of == slot && offset <= from && from + len <= end
        };
        self.ranges.iter().any(doomed)
    }

    /// What is left to try when nothing else has worked: everything, with patience. `None` when
    /// that has been done, or would be the same.
    fn last_resort(&self, core: &Core) -> Option<Unreadable> {
        let worth_it = !self.patient && core.any_late();
        worth_it.then(|| Unreadable { ranges: Vec::new(), patient: true })
    }
}

/// Writes the pieces of stripes that are locked.
async fn store(
    core: &Core,
    parity: &Parity,
    stripes: &BTreeMap<u64, Vec<Piece>>,
    durability: Durability,
) -> Result<(), DriveError> {
    let _begun = core.log.begin(core).await;
    let of_stripe = |(&stripe, pieces): (&u64, &Vec<Piece>)| {
        bands(pieces).into_iter().map(move |band| (stripe, band)).collect::<Vec<_>>()
    };
    let all = stripes.iter().flat_map(of_stripe).collect();
    for round in core.log.rounds(core, parity, all) {
        store_bands(core, parity, &round, durability).await?;
    }
    Ok(())
}

async fn store_bands(
    core: &Core,
    parity: &Parity,
    bands: &[(u64, Band)],
    durability: Durability,
) -> Result<(), DriveError> {
    // What could not be read during this write: it is recovered.
    let mut unreadable = Unreadable::default();
    let works = loop {
        let mut works = Vec::new();
        let mut reads = ReadBatch::new().patient(unreadable.patient);
        let mut planned = Ok(());
        for (stripe, band) in bands {
            let map = parity.stripe(*stripe);
            let start = map.member_offset();
            let in_sync = core.agrees(start..start + parity.chunk_bytes())
                || mutant::planted(Mutant::ParityTrustedEarly);
            match plan_band(core, map, band.clone(), in_sync, &unreadable) {
                Ok(planned_works) => works.extend(planned_works),
                Err(error) => {
                    planned = Err(error);
                    break;
                }
            }
        }
        for (index, work) in works.iter().enumerate() {
            for part in wanted(core, work, &unreadable) {
                let (slot, offset) = work.place(part);
                reads.add(slot, offset, core.world.pool().take(work.band.len), (index, part));
            }
        }
        if let Err(error) = planned {
            unreadable = unreadable.last_resort(core).ok_or(error)?;
            continue;
        }
        let results = reads.run(core).await;
        if results.failed.is_empty() {
            for ((index, part), buffer) in results.read {
                let work: &mut Work = &mut works[index];
                work.put(part, buffer);
            }
            break works;
        }
        for ((index, part), slot, error) in results.failed {
            let (_, offset) = works[index].place(part);
            let bytes = works[index].band.len as u64;
            core.note_read_error(slot, &error).await;
            mend::later(core, slot, offset, bytes, &error);
            unreadable.add(slot, offset, bytes);
        }
    };
    let finished = works.into_iter().map(|work| finish(core, parity, work)).collect();
    log::store(core, parity, finished, durability).await
}

/// How a band is written. One that can't be as a whole is cut: bad blocks at different places of
/// several members are no loss. So is one with bad blocks where parity does not agree yet: what is
/// recovered there may not be what a member holds, and only what can't be read is taken for it.
fn plan_band(
    core: &Core,
    map: StripeMap,
    band: Band,
    in_sync: bool,
    unreadable: &Unreadable,
) -> Result<Vec<Work>, DriveError> {
    let mut works = Vec::with_capacity(1);
    let mut bands = vec![band];
    while let Some(band) = bands.pop() {
        let way = plan(core, &map, &band, in_sync, unreadable);
        if way == Some(Way::Recover)
            && !in_sync
            && torn(core, &map, &band, unreadable)
            && let Some((first, second)) = band.clone().halves(core.facts.block_bytes as usize)
        {
            bands.extend([second, first]);
            continue;
        }
        if let Some(way) = way {
            let mut work = Work::new(map, band, way);
            if way == Way::Recover && map.q().is_some() {
                work.filling = filling(core, &work);
            }
            works.push(work);
            continue;
        }
        let (start, len) = (map.member_offset() + band.start as u64, band.len as u64);
        let Some((first, second)) = band.halves(core.facts.block_bytes as usize) else {
            return Err(core.lost(Operation::Write, start, len));
        };
        bands.extend([second, first]);
    }
    Ok(works)
}

/// Whether a member that holds a column of the band can't be read there, or in a part of it.
fn torn(core: &Core, map: &StripeMap, band: &Band, unreadable: &Unreadable) -> bool {
    let (offset, bytes) = (map.member_offset() + band.start as u64, band.len as u64);
    (0..map.data_members()).map(|column| map.data(column)).any(|slot| {
        core.slots[slot].holds(offset, bytes) && !readable(core, map, band, slot, unreadable)
    })
}

/// Columns whose members take writes, and have not been filled here yet.
fn filling(core: &Core, work: &Work) -> SmallVec<[usize; 2]> {
    let unfilled = |&column: &usize| {
        let (slot, offset) = work.place(Part::Column(column));
        let slot = &core.slots[slot];
        slot.writable() && !slot.holds(offset, work.band.len as u64)
    };
    (0..work.columns.len()).filter(unfilled).collect()
}

/// Whether the old content of `part` can be read.
fn readable(
    core: &Core,
    map: &StripeMap,
    band: &Band,
    slot: usize,
    unreadable: &Unreadable,
) -> bool {
    let (offset, bytes) = (map.member_offset() + band.start as u64, band.len as u64);
    let late = core.slots[slot].lateness.late() && core.known_elsewhere(offset..offset + bytes);
    let in_time = unreadable.patient || !late;
    in_time && !unreadable.dooms(slot, offset, bytes) && core.slots[slot].readable(offset, bytes)
}

/// The members of the parities, P first.
fn parity_slots(map: &StripeMap) -> SmallVec<[usize; 2]> {
    std::iter::once(map.p()).chain(map.q()).collect()
}

/// The way to write a band, if there is one.
fn plan(
    core: &Core,
    map: &StripeMap,
    band: &Band,
    in_sync: bool,
    unreadable: &Unreadable,
) -> Option<Way> {
    let columns = map.data_members();
    let mut written: SmallVec<[bool; 32]> = SmallVec::from_elem(false, columns);
    for (column, _) in &band.written {
        written[*column] = true;
    }
    let is_readable = |slot| readable(core, map, band, slot, unreadable);
    let column_readable: SmallVec<[bool; 32]> =
        (0..columns).map(|column| is_readable(map.data(column))).collect();
    let parities = parity_slots(map);
    let parity_writable: SmallVec<[bool; 2]> =
        parities.iter().map(|&slot| core.slots[slot].writable()).collect();
    let parity_readable: SmallVec<[bool; 2]> =
        parities.iter().map(|&slot| is_readable(slot)).collect();
    let situation = Situation {
        written: &written,
        readable: &column_readable,
        parity_writable: &parity_writable,
        parity_readable: &parity_readable,
        in_sync,
        journalled: core.log.journal().is_some(),
    };
    let stores_all = |way| {
        way != Way::DataOnly
            || band.written.iter().all(|(column, _)| core.slots[map.data(*column)].writable())
    };
    choose(&situation).filter(|&way| stores_all(way))
}

/// What has to be read for the way chosen.
fn wanted(core: &Core, work: &Work, unreadable: &Unreadable) -> Vec<Part> {
    let Work { map, band, way, .. } = work;
    let is_written = |column: usize| band.written.iter().any(|(written, _)| *written == column);
    let columns = 0..map.data_members();
    let parities = [(Part::P, Some(map.p())), (Part::Q, map.q())];
    let parities = parities.into_iter().filter_map(|(part, slot)| Some((part, slot?)));
    let is_readable = |slot: usize| readable(core, map, band, slot, unreadable);
    match way {
        Way::DataOnly => Vec::new(),
        Way::ReadModifyWrite => {
            let targets = parities.filter(|&(_, slot)| core.slots[slot].writable());
            let old = band.written.iter().map(|(column, _)| Part::Column(*column));
            old.chain(targets.map(|(part, _)| part)).collect()
        }
        Way::ReconstructWrite => {
            columns.filter(|&column| !is_written(column)).map(Part::Column).collect()
        }
        Way::Recover => {
            let (there, lost): (Vec<usize>, Vec<usize>) =
                columns.partition(|&column| is_readable(map.data(column)));
            let parities = parities.filter(|&(_, slot)| is_readable(slot)).take(lost.len());
            there.into_iter().map(Part::Column).chain(parities.map(|(part, _)| part)).collect()
        }
    }
}

/// Computes the new parity, and what a partial parity log wants of the old stripe.
fn finish(core: &Core, parity: &Parity, mut work: Work) -> Finished {
    let len = work.band.len;
    let pool = core.world.pool();
    if work.way == Way::Recover {
        work.recover_filling(pool);
        (work.p, work.q) = (None, None);
    }
    let partial = match &core.log {
        // A parity member that came since the plan was made gets no parity by this write.
        Log::Ppl(ppl) if work.way != Way::DataOnly && ppl.wants(core, &work.map) => {
            Some(partial(&work, pool))
        }
        _ => None,
    };
    // A journal keeps all parities of a row, also those nobody can be given now.
    let kept = |slot: usize| core.slots[slot].writable() || core.log.journal().is_some();
    match work.way {
        Way::DataOnly => {}
        Way::ReadModifyWrite => {
            for (column, new) in &work.band.written {
                let delta = work.columns[*column].as_mut().expect("the old content was read");
                parity::xor_into(delta, new);
                if let Some(p) =
                    work.p.as_mut().filter(|_| !mutant::planted(Mutant::ParityNotUpdated))
                {
                    parity::update_p(p, delta);
                }
                if let Some(q) = work.q.as_mut().filter(|_| !mutant::planted(Mutant::QNotUpdated)) {
                    let wrong = usize::from(mutant::planted(Mutant::QWrongExponent));
                    parity::update_q(q, delta, work.map.exponent(*column) + wrong);
                }
            }
        }
        Way::ReconstructWrite | Way::Recover => {
            work.p = kept(work.map.p()).then(|| pool.take(len));
            work.q = work.map.q().filter(|&slot| kept(slot)).map(|_| pool.take(len));
            let mut new: SmallVec<[&[u8]; 32]> =
                work.columns.iter().map(|old| old.as_deref().unwrap_or_default()).collect();
            let old = work.way == Way::Recover && mutant::planted(Mutant::ParityOfOldData);
            for (column, data) in work.band.written.iter().filter(|_| !old) {
                new[*column] = data;
            }
            compute(&work.map, &new, work.p.as_deref_mut(), work.q.as_deref_mut());
        }
    }
    let Work { map, band, p, q, .. } = work;
    let stripe = map.member_offset() / parity.chunk_bytes();
    let (p, q) = (p.map(BufMut::freeze), q.map(BufMut::freeze));
    Finished { map, stripe, band, p, q, partial }
}

/// XOR of the columns that are not written, before parity is brought up to date.
fn partial(work: &Work, pool: &Pool) -> Buf {
    let Work { band, way, columns, p, .. } = work;
    let is_written = |column: usize| band.written.iter().any(|(written, _)| *written == column);
    if band.written.len() == columns.len() {
        return pool.copy_of(&[]);
    }
    let mut sum = pool.take_zeroed(band.len);
    for (column, old) in columns.iter().enumerate() {
        // Old parity without the old content of what is written, or the sum of the rest.
        let part_of_it = is_written(column) == (*way == Way::ReadModifyWrite);
        if let Some(old) = old.as_ref().filter(|_| part_of_it) {
            parity::xor_into(&mut sum, old);
        }
    }
    if let (Way::ReadModifyWrite, Some(p)) = (way, p) {
        parity::xor_into(&mut sum, p);
    }
    sum.freeze()
}

/// Parity of a whole band, given all columns by data index.
pub(crate) fn compute(
    map: &StripeMap,
    columns: &[&[u8]],
    p: Option<&mut [u8]>,
    q: Option<&mut [u8]>,
) {
    let mut by_exponent: SmallVec<[Option<&[u8]>; 32]> = SmallVec::new();
    if q.is_some() {
        by_exponent.resize(map.exponents(), None);
        for (column, data) in columns.iter().enumerate() {
            by_exponent[map.exponent(column)] = Some(data);
        }
    }
    match (p, q) {
        (Some(p), Some(q)) => parity::pq(p, q, &by_exponent),
        (Some(p), None) => parity::xor(p, columns),
        (None, Some(q)) => parity::q(q, &by_exponent),
        (None, None) => {}
    }
}

/// Fills the `lost` columns from the others and the given parities.
pub(crate) fn recover_columns(
    map: &StripeMap,
    columns: &mut [Option<BufMut>],
    p: Option<&mut [u8]>,
    q: Option<&mut [u8]>,
    lost: &[usize],
) {
    let exponents = if map.q().is_some() { map.exponents() } else { columns.len() };
    let mut data: Vec<Option<&mut [u8]>> =
        std::iter::repeat_with(|| None).take(exponents).collect();
    for (column, buffer) in columns.iter_mut().enumerate() {
        data[map.exponent(column)] = buffer.as_deref_mut();
    }
    let roles: SmallVec<[parity::Role; 2]> =
        lost.iter().map(|&column| parity::Role::Data(map.exponent(column))).collect();
    let mut blocks = parity::Blocks { data, p, q };
    parity::recover(&mut blocks, &roles).expect("as many parities were read as columns are lost");
}

/// Reads a piece of one chunk whose member can't be read, from the rest of its stripe;
/// `failed_slot` has just failed to read it.
pub(crate) async fn rescue(
    core: &Core,
    parity: &Parity,
    array_offset: u64,
    mut buffers: ReadBufs,
    failed_slot: Option<usize>,
) -> (ReadBufs, Result<(), DriveError>) {
    let (stripe, column, within) = parity.stripe_of(array_offset);
    let locked = mutant::unless_unlocked(Mutant::RescueUnlocked, stripe..stripe + 1);
    let _lock = core.locks.lock(locked, Mode::Shared).await;
    let bytes = world::total_bytes(&buffers);
    let map = parity.stripe(stripe);
    let mut unreadable = Unreadable::default();
    if let Some(slot) = failed_slot {
        unreadable.add(slot, map.member_offset() + within, bytes);
    }
    let slot = map.data(column);
    match content(core, map, slot, within as usize, bytes as usize, &mut unreadable).await {
        Ok(content) => {
            let mut rest = &content[..];
            for buffer in &mut buffers {
                let (now, later) = rest.split_at(buffer.len());
                buffer.copy_from_slice(now);
                rest = later;
            }
            (buffers, Ok(()))
        }
        Err(()) => {
            let error = core.lost(Operation::Read, array_offset, bytes);
            (buffers, Err(error))
        }
    }
}

/// What the member in `slot` holds in a part of its chunk, data or parity: read from it, or worked
/// out from whatever is left of the stripe, whose lock the caller holds. What could not be read on
/// the way is added to `unreadable`, and mended later.
pub(crate) async fn content(
    core: &Core,
    map: StripeMap,
    slot: usize,
    start: usize,
    len: usize,
    unreadable: &mut Unreadable,
) -> Result<BufMut, ()> {
    let own = match map.role(slot) {
        Role::Data(column) => Part::Column(column),
        Role::P => Part::P,
        Role::Q => Part::Q,
    };
    loop {
        let band = Band { start, len, written: SmallVec::new() };
        let mut work = Work::new(map, band, Way::Recover);
        // Another task's write may have put the chunk right in the meantime.
        let direct = readable(core, &map, &work.band, slot, unreadable);
        let parts = if direct { vec![own] } else { wanted(core, &work, unreadable) };
        if !direct && parts.len() < map.data_members() {
            *unreadable = unreadable.last_resort(core).ok_or(())?;
            continue;
        }
        let mut reads = ReadBatch::new().patient(unreadable.patient);
        for part in parts {
            let (slot, offset) = work.place(part);
            reads.add(slot, offset, core.world.pool().take(len), part);
        }
        let results = reads.run(core).await;
        if results.failed.is_empty() {
            for (part, buffer) in results.read {
                work.put(part, buffer);
            }
            if !direct {
                work.work_out(core.world.pool(), own);
            }
            return Ok(work.take(own).expect("read or worked out"));
        }
        for (part, slot, error) in results.failed {
            let (_, offset) = work.place(part);
            core.note_read_error(slot, &error).await;
            mend::later(core, slot, offset, len as u64, &error);
            unreadable.add(slot, offset, len as u64);
        }
    }
}
