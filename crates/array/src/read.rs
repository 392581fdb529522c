//! Reading: straight from the members where possible, from redundancy where not.
//!
//! The common case, one run on one healthy member, passes the client's buffer on and adds nothing
//! that allocates. Everything else cuts the buffers by run, sends each member what lies together
//! on it as one request, and joins the pieces again.

use std::pin::Pin;
use std::rc::Rc;

use drive::{DriveError, Io, Operation, ReadDone};
use geometry::{Geometry, Place, Run};
use world::{BufMut, ReadBufs, join_all, total_bytes};

use crate::core::Core;
use crate::mend;
use crate::mutant::{self, Mutant};
use crate::split::{ReadCutter, lengths, rejoin};
use crate::stripe;

/// Fills `buffers` from `offset` on; the range has been checked.
pub(crate) fn read(core: &Rc<Core>, offset: u64, buffers: ReadBufs) -> Io<ReadDone> {
    let bytes = total_bytes(&buffers);
    if bytes == 0 {
        return Io::ready(ReadDone { buffers, result: Ok(()) });
    }
    let first = core.geometry.runs(offset, bytes).next().expect("a range that is not empty");
    if first.bytes < bytes {
        let core = Rc::clone(core);
        return Io::later(async move { read_runs(&core, offset, buffers).await });
    }
    let Some(place) = choose(core, &first) else {
        let core = Rc::clone(core);
        return Io::later(async move { rescue(&core, first, buffers, None).await });
    };
    match core.read(place.member, place.offset, buffers, false) {
        Io::Ready(Some(done)) if done.result.is_ok() => Io::ready(done),
        read => {
            let core = Rc::clone(core);
            Io::later(async move {
                let done = read.await;
                match &done.result {
                    Ok(()) => done,
                    Err(_) if mutant::planted(Mutant::ReadErrorPasses) => done,
                    Err(error) => {
                        core.note_read_error(place.member, error).await;
                        mend::later(&core, place.member, place.offset, bytes, error);
                        let failed = Some((place.member, error.clone()));
                        rescue(&core, first, done.buffers, failed).await
                    }
                }
            })
        }
    }
}

/// The best member to read a run from, if any has it.
fn choose(core: &Core, run: &Run) -> Option<Place> {
    let copies = core.geometry.copies();
    if copies == 1 {
        let slot = &core.slots[run.first.member];
        let range = run.first.offset..run.first.offset + run.bytes;
        let elsewhere = slot.lateness.late() && core.redundant() && core.known_elsewhere(range);
        let good = !elsewhere && slot.readable(run.first.offset, run.bytes);
        return good.then_some(run.first);
    }
    let places = (0..copies).map(|copy| core.geometry.copy(run, copy));
    let readable =
        places.filter(|place| core.slots[place.member].readable(place.offset, run.bytes));
    // Behind a resync that is not done, copies may differ: then always the first one answers, so
    // that a client sees the same content twice.
    let agrees = core.agrees(run.array_offset..run.array_offset + run.bytes);
    if !agrees && !mutant::planted(Mutant::UnsyncedAnyCopy) {
        return readable.into_iter().next();
    }
    readable.min_by_key(|place| core.slots[place.member].read_cost(place.offset))
}

/// One request to a member: runs that follow each other on it.
struct Request {
    place: Place,
    bytes: u64,
    buffers: ReadBufs,
    /// Which runs, with the number of buffers of each.
    runs: Vec<(usize, usize)>,
}

/// A run that no member can answer directly, or whose member failed.
struct LostRun {
    index: usize,
    buffers: ReadBufs,
    failed: Option<(usize, DriveError)>,
}

async fn read_runs(core: &Core, offset: u64, buffers: ReadBufs) -> ReadDone {
    let original = lengths(&buffers);
    let mut cutter = ReadCutter::new(buffers);
    let bytes = original.iter().map(|&length| length as u64).sum();
    let runs: Vec<Run> = core.geometry.runs(offset, bytes).collect();
    let mut pieces: Vec<Option<ReadBufs>> = Vec::with_capacity(runs.len());
    let mut requests: Vec<Request> = Vec::new();
    // The last request of each member, to which the next run there may be added.
    let mut open: Vec<Option<usize>> = vec![None; core.slots.len()];
    let mut lost: Vec<LostRun> = Vec::new();
    for (index, run) in runs.iter().enumerate() {
        pieces.push(None);
        let piece = cutter.take(run.bytes);
        let Some(place) = choose(core, run) else {
            lost.push(LostRun { index, buffers: piece, failed: None });
            continue;
        };
        let count = piece.len();
        let last = open[place.member].map(|at| &mut requests[at]);
        match last.filter(|last| last.place.offset + last.bytes == place.offset) {
            Some(request) => {
                request.bytes += run.bytes;
                request.buffers.extend(piece);
                request.runs.push((index, count));
            }
            None => {
                open[place.member] = Some(requests.len());
                let runs = vec![(index, count)];
                requests.push(Request { place, bytes: run.bytes, buffers: piece, runs });
            }
        }
    }
    let reads = requests.into_iter().map(|request| async move {
        let Request { place, bytes, buffers, runs } = request;
        (place, bytes, runs, core.read(place.member, place.offset, buffers, false).await)
    });
    for (Place { member, offset }, bytes, done_runs, done) in join_all(reads).await {
        if let Err(error) = &done.result {
            core.note_read_error(member, error).await;
            mend::later(core, member, offset, bytes, error);
        }
        let mut buffers = done.buffers.into_iter();
        let runs_asked = done_runs.len();
        for (index, count) in done_runs {
            let piece = buffers.by_ref().take(count).collect();
            match &done.result {
                Ok(()) => pieces[index] = Some(piece),
                Err(error) => {
                    // One bad block must not take its neighbours along: of several runs each is
                    // tried again.
                    let failed = (runs_asked == 1).then(|| (member, error.clone()));
                    lost.push(LostRun { index, buffers: piece, failed });
                }
            }
        }
    }
    let rescues = lost.into_iter().map(|LostRun { index, buffers, failed }| {
        let run = runs[index];
        async move { (index, rescue(core, run, buffers, failed).await) }
    });
    let mut result = Ok(());
    for (index, done) in join_all(rescues).await {
        result = result.and(done.result);
        pieces[index] = Some(done.buffers);
    }
    let in_order = pieces.into_iter().flat_map(|piece| piece.expect("every run was answered"));
    let in_order: Vec<BufMut> = in_order.collect();
    ReadDone { buffers: rejoin(core.world.pool(), &original, in_order), result }
}

/// Answers a run from redundancy; `failed` is the member that could not, with its error. Where no
/// member has all of it, it is cut until those parts are left that nobody has: the error names the
/// first.
fn rescue(
    core: &Core,
    run: Run,
    buffers: ReadBufs,
    failed: Option<(usize, DriveError)>,
) -> Pin<Box<dyn Future<Output = ReadDone> + '_>> {
    Box::pin(async move {
        if let Some((_, error)) = failed.as_ref().filter(|_| !core.redundant()) {
            return ReadDone { buffers, result: Err(error.clone()) };
        }
        let done = rescue_whole(core, run, buffers, failed).await;
        let block = u64::from(core.facts.block_bytes);
        let half = (run.bytes / block).div_ceil(2) * block;
        if done.result.is_ok() || half == 0 || half >= run.bytes {
            return done;
        }
        let original = lengths(&done.buffers);
        let mut cutter = ReadCutter::new(done.buffers);
        let (front, back) = (cutter.take(half), cutter.take(run.bytes - half));
        let rest = Place { offset: run.first.offset + half, ..run.first };
        let second =
            Run { array_offset: run.array_offset + half, bytes: run.bytes - half, first: rest };
        let front = rescue(core, Run { bytes: half, ..run }, front, None).await;
        let back = match front.result {
            Ok(()) => rescue(core, second, back, None).await,
            Err(error) => ReadDone { buffers: back, result: Err(error) },
        };
        let pieces = front.buffers.into_iter().chain(back.buffers);
        ReadDone { buffers: rejoin(core.world.pool(), &original, pieces), result: back.result }
    })
}

/// Answers a run from any one copy, or from the rest of its stripe.
async fn rescue_whole(
    core: &Core,
    run: Run,
    buffers: ReadBufs,
    failed: Option<(usize, DriveError)>,
) -> ReadDone {
    if let Geometry::Parity(parity) = &core.geometry {
        let slot = failed.as_ref().map(|(slot, _)| *slot);
        let (buffers, result) = stripe::rescue(core, parity, run.array_offset, buffers, slot).await;
        return ReadDone { buffers, result };
    }
    let mut buffers = buffers;
    let mut tried = failed.map(|(slot, _)| slot);
    // Members that don't answer in time are asked when nobody else has it, and waited for.
    for patient in [false, true] {
        for copy in 0..core.geometry.copies() {
            let place = core.geometry.copy(&run, copy);
            let slot = &core.slots[place.member];
            let asked = tried == Some(place.member) || slot.lateness.late() != patient;
            if asked || !slot.readable(place.offset, run.bytes) {
                continue;
            }
            let done = core.read(place.member, place.offset, buffers, patient).await;
            buffers = done.buffers;
            let Err(error) = done.result else { return ReadDone { buffers, result: Ok(()) } };
            core.note_read_error(place.member, &error).await;
            mend::later(core, place.member, place.offset, run.bytes, &error);
        }
        tried = None;
    }
    let error = core.lost(Operation::Read, run.array_offset, run.bytes);
    ReadDone { buffers, result: Err(error) }
}
