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
//! array is resynced when it is assembled.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use drive::{DriveError, Durability, Operation};
use geometry::{Parity, StripeMap};
use smallvec::SmallVec;
use world::{Buf, BufMut, Pool, ReadBufs, WriteBufs};

use crate::bands::{Band, Piece, bands};
use crate::batch::{ReadBatch, WriteBatch};
use crate::core::Core;
use crate::lock::Mode;
use crate::plan::{Situation, Way, choose};
use crate::split::WriteCutter;

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
            let inside = leader.stripes.start <= write.stripes.start
                && write.stripes.end <= leader.stripes.end;
            let joins = inside && taken.iter().all(|other| !other.overlaps(write));
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
    let write = Rc::new(cut(parity, offset, &buffers, durability));
    core.gather.add(&write);
    let _lock = core.locks.lock(write.stripes.clone(), Mode::Exclusive).await;
    if let Some(result) = write.result.get() {
        return result.clone();
    }
    // Writes that came in the same moment have not all been polled yet: let them join.
    if core.writes_in_flight.inside() > 1 {
        core.world.yield_now().await;
    }
    let writes = core.gather.take(&write);
    let durable = writes.iter().any(|write| write.durability == Durability::Durable);
    let durability = if durable { Durability::Durable } else { Durability::Cached };
    let mut stripes: BTreeMap<u64, Vec<Piece>> = BTreeMap::new();
    for (stripe, piece) in writes.iter().flat_map(|write| &write.pieces) {
        stripes.entry(*stripe).or_default().push(piece.clone());
    }
    let result = store(core, parity, &stripes, durability).await;
    for write in writes {
        let _ = write.result.set(result.clone());
    }
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
}

impl Work {
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

    fn put(&mut self, part: Part, buffer: BufMut) {
        match part {
            Part::Column(column) => self.columns[column] = Some(buffer),
            Part::P => self.p = Some(buffer),
            Part::Q => self.q = Some(buffer),
        }
    }
}

/// Writes the pieces of stripes that are locked.
async fn store(
    core: &Core,
    parity: &Parity,
    stripes: &BTreeMap<u64, Vec<Piece>>,
    durability: Durability,
) -> Result<(), DriveError> {
    // Members that failed to read a stripe during this write: their content is recovered there.
    let mut failed_reads: BTreeMap<u64, Vec<bool>> = BTreeMap::new();
    let none = vec![false; parity.members()];
    let works = loop {
        let mut works = Vec::new();
        let mut reads = ReadBatch::new();
        for (&stripe, pieces) in stripes {
            let map = parity.stripe(stripe);
            let avoid = failed_reads.get(&stripe).unwrap_or(&none);
            let start = map.member_offset();
            let in_sync = core.agrees(start..start + parity.chunk_bytes());
            for band in bands(pieces) {
                let work = plan(core, map, band, in_sync, avoid)?;
                for part in wanted(core, &work, avoid) {
                    let (slot, offset) = work.place(part);
                    let buffer = core.world.pool().take(work.band.len);
                    reads.add(slot, offset, buffer, (stripe, works.len(), part));
                }
                works.push(work);
            }
        }
        let results = reads.run(&core.slots).await;
        if results.failed.is_empty() {
            for ((_, index, part), buffer) in results.read {
                works[index].put(part, buffer);
            }
            break works;
        }
        for ((stripe, ..), slot, error) in results.failed {
            core.note_read_error(slot, &error).await;
            failed_reads.entry(stripe).or_insert_with(|| none.clone())[slot] = true;
        }
    };
    let mut writes = WriteBatch::default();
    for work in works {
        finish(core, work, &mut writes);
    }
    let failed = writes.run(&core.slots, durability).await;
    core.fail_members(failed).await
}

/// Whether the old content of `part` can be read.
fn readable(core: &Core, map: &StripeMap, band: &Band, slot: usize, avoid: &[bool]) -> bool {
    let offset = map.member_offset() + band.start as u64;
    !avoid[slot] && core.slots[slot].readable(offset, band.len as u64)
}

/// The members of the parities, P first.
fn parity_slots(map: &StripeMap) -> SmallVec<[usize; 2]> {
    std::iter::once(map.p()).chain(map.q()).collect()
}

fn plan(
    core: &Core,
    map: StripeMap,
    band: Band,
    in_sync: bool,
    avoid: &[bool],
) -> Result<Work, DriveError> {
    let columns = map.data_members();
    let mut written: SmallVec<[bool; 32]> = SmallVec::from_elem(false, columns);
    for (column, _) in &band.written {
        written[*column] = true;
    }
    let is_readable = |slot| readable(core, &map, &band, slot, avoid);
    let column_readable: SmallVec<[bool; 32]> =
        (0..columns).map(|column| is_readable(map.data(column))).collect();
    let parities = parity_slots(&map);
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
    };
    let stores_all = |way| {
        way != Way::DataOnly
            || band.written.iter().all(|(column, _)| core.slots[map.data(*column)].writable())
    };
    let way = choose(&situation).filter(|&way| stores_all(way));
    let Some(way) = way else {
        return Err(core.lost(Operation::Write, map.member_offset(), band.len as u64));
    };
    let columns = std::iter::repeat_with(|| None).take(columns).collect();
    Ok(Work { map, band, way, columns, p: None, q: None })
}

/// What has to be read for the way chosen.
fn wanted(core: &Core, work: &Work, avoid: &[bool]) -> Vec<Part> {
    let Work { map, band, way, .. } = work;
    let is_written = |column: usize| band.written.iter().any(|(written, _)| *written == column);
    let columns = 0..map.data_members();
    let parities = [(Part::P, Some(map.p())), (Part::Q, map.q())];
    let parities = parities.into_iter().filter_map(|(part, slot)| Some((part, slot?)));
    let is_readable = |slot: usize| readable(core, map, band, slot, avoid);
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

/// Computes the new parity and queues what is to be written.
fn finish(core: &Core, mut work: Work, writes: &mut WriteBatch) {
    let len = work.band.len;
    let pool = core.world.pool();
    if work.way == Way::Recover {
        work.recover(pool);
        (work.p, work.q) = (None, None);
    }
    match work.way {
        Way::DataOnly => {}
        Way::ReadModifyWrite => {
            for (column, new) in &work.band.written {
                let delta = work.columns[*column].as_mut().expect("the old content was read");
                parity::xor_into(delta, new);
                if let Some(p) = &mut work.p {
                    parity::update_p(p, delta);
                }
                if let Some(q) = &mut work.q {
                    parity::update_q(q, delta, work.map.exponent(*column));
                }
            }
        }
        Way::ReconstructWrite | Way::Recover => {
            let writable = |slot: usize| core.slots[slot].writable();
            work.p = writable(work.map.p()).then(|| pool.take(len));
            work.q = work.map.q().filter(|&slot| writable(slot)).map(|_| pool.take(len));
            let mut new: SmallVec<[&[u8]; 32]> =
                work.columns.iter().map(|old| old.as_deref().unwrap_or_default()).collect();
            for (column, data) in &work.band.written {
                new[*column] = data;
            }
            compute(&work.map, &new, work.p.as_deref_mut(), work.q.as_deref_mut());
        }
    }
    let (p, q) = (work.p.take(), work.q.take());
    for (part, parity) in [(Part::P, p), (Part::Q, q)] {
        if let Some(parity) = parity {
            let (slot, offset) = work.place(part);
            writes.add(slot, offset, parity.freeze());
        }
    }
    for (column, data) in &work.band.written {
        let (slot, offset) = work.place(Part::Column(*column));
        if core.slots[slot].writable() {
            writes.add(slot, offset, data.clone());
        }
    }
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

/// Reads a piece of one chunk whose member can't be read, from the rest of its stripe.
pub(crate) async fn rescue(
    core: &Core,
    parity: &Parity,
    array_offset: u64,
    mut buffers: ReadBufs,
    failed_slot: Option<usize>,
) -> (ReadBufs, Result<(), DriveError>) {
    let (stripe, column, within) = parity.stripe_of(array_offset);
    let _lock = core.locks.lock(stripe..stripe + 1, Mode::Shared).await;
    let bytes = world::total_bytes(&buffers);
    let mut avoid = vec![false; parity.members()];
    if let Some(slot) = failed_slot {
        avoid[slot] = true;
    }
    let map = parity.stripe(stripe);
    match recovered(core, map, column, within as usize, bytes as usize, &mut avoid).await {
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

/// The content of a part of `column`, from whatever is left of the stripe.
async fn recovered(
    core: &Core,
    map: StripeMap,
    column: usize,
    start: usize,
    len: usize,
    avoid: &mut [bool],
) -> Result<BufMut, ()> {
    loop {
        let band = Band { start, len, written: SmallVec::new() };
        let columns = std::iter::repeat_with(|| None).take(map.data_members()).collect();
        let mut work = Work { map, band, way: Way::Recover, columns, p: None, q: None };
        if readable(core, &map, &work.band, map.data(column), avoid) {
            // Another task's write has put the chunk right in the meantime.
            work.way = Way::DataOnly;
        }
        let parts = match work.way {
            Way::Recover => wanted(core, &work, avoid),
            _ => vec![Part::Column(column)],
        };
        if work.way == Way::Recover && parts.len() < map.data_members() {
            return Err(());
        }
        let mut reads = ReadBatch::new();
        for part in parts {
            let (slot, offset) = work.place(part);
            reads.add(slot, offset, core.world.pool().take(len), part);
        }
        let results = reads.run(&core.slots).await;
        if results.failed.is_empty() {
            for (part, buffer) in results.read {
                work.put(part, buffer);
            }
            if work.way == Way::Recover {
                work.recover(core.world.pool());
            }
            return Ok(work.columns[column].take().expect("read or recovered"));
        }
        for (_, slot, error) in results.failed {
            core.note_read_error(slot, &error).await;
            avoid[slot] = true;
        }
    }
}
