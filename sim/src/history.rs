//! One random history: clients, an administrator and fate, from a seed.
//!
//! It runs in rounds. In a round several clients read and write at once, each in sectors of its
//! own that alternate with the others' and meet them in the same stripes; at some moment in it an
//! event may happen. Faults stay within what the level promises (see `docs/promises.md`): beyond
//! that, everything may be lost, and nothing could be judged.

use std::rc::Rc;
use std::time::Duration;

use world::{SplitMix64, World, join_all};

use crate::bed::{Bed, Trouble};
use crate::kinds::{KINDS, Kind};

/// Sectors of a client's piece: no multiple of a chunk, so that borders fall everywhere.
const PIECE_SECTORS: u64 = 11;

/// What a history runs on and how long.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Only this shape, by its place in [`KINDS`]; otherwise the seed picks.
    pub kind: Option<usize>,
    /// Rounds.
    pub rounds: u64,
}

/// How a history ended.
pub struct Outcome {
    /// What it ran on.
    pub kind: Kind,
    /// What happened, with the time of each thing.
    pub log: Vec<String>,
    /// What went wrong, if anything did.
    pub trouble: Option<Trouble>,
}

/// What happens to the array in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Nothing,
    PowerCut,
    /// Another cut soon after the restart, while it recovers.
    PowerCuts,
    Restart,
    Fail,
    Vanish,
    SpoilWrites,
    /// A member errs on writes, soon after that the power goes, and the member is back with it.
    SpoilAndCut,
}

/// Runs the history of `seed`.
pub fn run(seed: u64, options: Options) -> Outcome {
    let world = World::virtual_time(seed);
    let mut random = SplitMix64::new(seed);
    let kind = KINDS[options.kind.unwrap_or(random.below(KINDS.len() as u64) as usize)];
    let outcome = world.block_on(async {
        let bed = match Bed::new(&world, kind, &mut random).await {
            Ok(bed) => Rc::new(bed),
            Err(trouble) => return Outcome { kind, log: Vec::new(), trouble: Some(trouble) },
        };
        let mut trouble = None;
        for _ in 0..options.rounds {
            if let Err(found) = round(&bed, &mut random).await {
                trouble = Some(found);
                break;
            }
        }
        if trouble.is_none() {
            trouble = end(&bed).await.err();
        }
        let log = bed.log.take();
        Outcome { kind, log, trouble }
    });
    world.end();
    outcome
}

async fn end(bed: &Bed) -> Result<(), Trouble> {
    bed.verify().await?;
    bed.stop().await?;
    bed.start().await?;
    bed.verify().await
}

/// What may happen now, within the promise.
fn pick(bed: &Bed, random: &mut SplitMix64) -> Event {
    let lost = bed.gone.borrow().len();
    let healthy = lost == 0;
    let may_lose = lost < bed.kind.losses && bed.array().status().synced_to_bytes.is_none();
    let may_cut = healthy || !bed.kind.has_write_hole();
    match random.below(12) {
        0 | 1 if may_cut => Event::PowerCut,
        2 if may_cut => Event::PowerCuts,
        3 => Event::Restart,
        4 if may_lose => Event::Fail,
        5 if may_lose => Event::Vanish,
        6 if may_lose => Event::SpoilWrites,
        7 | 8 if may_lose && bed.kind.keeps_flight_whole() => Event::SpoilAndCut,
        _ => Event::Nothing,
    }
}

async fn round(bed: &Rc<Bed>, random: &mut SplitMix64) -> Result<(), Trouble> {
    let event = pick(bed, random);
    let clients = 1 + random.below(4);
    let operations = 1 + random.below(6);
    let work = (0..clients).map(|client| {
        let (bed, seed) = (Rc::clone(bed), random.next_u64());
        async move { client_round(&bed, client, clients, operations, seed).await }
    });
    let work: Vec<_> = work.collect();
    let mut fate = SplitMix64::new(random.next_u64());
    let event_bed = Rc::clone(bed);
    let happening = async move {
        let wait = fate.below(3_000_000);
        event_bed.world.sleep(Duration::from_nanos(wait)).await;
        happen(&event_bed, event, &mut fate).await
    };
    let (work, happening) = join_both(join_all(work), happening).await;
    let cut = matches!(event, Event::PowerCut | Event::PowerCuts | Event::SpoilAndCut);
    happening?;
    for result in work {
        let all_well = result?;
        if !all_well && !cut {
            return Err(Trouble::Failed(format!("a client's operation failed ({event:?})")));
        }
    }
    match event {
        Event::PowerCut | Event::SpoilAndCut => bed.start().await?,
        Event::PowerCuts => {
            bed.start().await?;
            let wait = random.below(2_000_000);
            bed.world.sleep(Duration::from_nanos(wait)).await;
            bed.power_cut(random).await?;
            bed.start().await?;
        }
        Event::Restart => {
            bed.stop().await?;
            bed.start().await?;
        }
        _ => {}
    }
    if cut {
        // What a cut left open is settled before it is written over.
        let sectors = bed.sectors();
        for first in (0..sectors).step_by(64) {
            if !bed.read(first, (sectors - first).min(64), true).await? {
                return Err(Trouble::Failed(format!("sector {first} can't be read after a cut")));
            }
        }
    }
    Ok(())
}

async fn join_both<A: Future, B: Future>(first: A, second: B) -> (A::Output, B::Output) {
    let mut first = std::pin::pin!(first);
    let mut second = std::pin::pin!(second);
    match world::race(&mut first, &mut second).await {
        Ok(output) => (output, second.await),
        Err(output) => (first.await, output),
    }
}

async fn happen(bed: &Bed, event: Event, fate: &mut SplitMix64) -> Result<(), Trouble> {
    let gone = bed.gone.borrow().clone();
    let here: Vec<usize> = (0..bed.kind.members).filter(|slot| !gone.contains(slot)).collect();
    let slot = here[fate.below(here.len() as u64) as usize];
    match event {
        Event::Nothing | Event::Restart => Ok(()),
        Event::PowerCut | Event::PowerCuts => bed.power_cut(fate).await,
        Event::Fail => bed.fail(slot).await,
        Event::Vanish => {
            bed.vanish(slot);
            Ok(())
        }
        Event::SpoilWrites => {
            bed.spoil_writes(slot);
            Ok(())
        }
        Event::SpoilAndCut => {
            let fault = bed.spoil_writes(slot);
            bed.world.sleep(Duration::from_nanos(fate.below(800_000))).await;
            bed.power_cut(fate).await?;
            bed.mend(slot, fault);
            Ok(())
        }
    }
}

/// A client's operations; `Ok(false)` when one failed, after which it stops.
async fn client_round(
    bed: &Bed,
    client: u64,
    clients: u64,
    operations: u64,
    seed: u64,
) -> Result<bool, Trouble> {
    let mut random = SplitMix64::new(seed);
    let block = bed.kind.block_sectors();
    let blocks = bed.sectors() / block;
    let pieces = blocks / PIECE_SECTORS;
    for _ in 0..operations {
        let mine = pieces / clients;
        let piece = random.below(mine) * clients + client;
        let start = random.below(PIECE_SECTORS);
        let count = 1 + random.below(PIECE_SECTORS - start);
        let first = piece * PIECE_SECTORS + start;
        // A client alone may take much at once.
        let (first, count) = match random.below(5) {
            0 if clients == 1 => {
                let first = random.below(blocks);
                (first, 1 + random.below(blocks - first))
            }
            _ => (first, count),
        };
        let (first, count) = (first * block, count * block);
        let well = match random.below(12) {
            0..5 => bed.write(first, count, false).await?,
            5 => bed.write(first, count, true).await?,
            6 => bed.zero(first, count).await?,
            7 => bed.flush().await?,
            _ => bed.read(first, count, false).await?,
        };
        if !well {
            return Ok(false);
        }
    }
    Ok(true)
}
