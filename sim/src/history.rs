//! One history: the plan of a seed, played, and how it ended.
//!
//! It runs in rounds. In a round several clients read and write at once, each in sectors of its
//! own that alternate with the others' and meet them in the same stripes; meanwhile the
//! administrator and fate act. Faults stay within what the level and its policy promise (see
//! `promise`): an act that would go beyond is left out, since then everything may be lost and
//! nothing could be judged.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::time::Duration;

use drive::{Effect, ErrorKind, Operation};
use world::{SplitMix64, World, join_all};

use crate::bed::{Bed, Log, Meanwhile, Service, Trouble};
use crate::kinds::{KINDS, Kind};
use crate::plan::{Act, Atom, Op, Plan, Round, Timed};

/// Of so many histories one begins on drives with foreign content, and resyncs.
const FOREIGN_ONE_IN: u64 = 4;

/// What a history runs on and how long.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Only this shape, by its place in [`KINDS`]; otherwise the seed picks.
    pub kind: Option<usize>,
    /// Rounds.
    pub rounds: u64,
    /// Only the acts of these numbers.
    pub keep: Option<BTreeSet<u32>>,
    /// Whether to write down what happens.
    pub logs: bool,
    /// A fault to plant in the engine.
    #[cfg(feature = "mutants")]
    pub mutant: Option<array::mutant::Mutant>,
}

/// How a history ended.
#[derive(Debug)]
pub struct Outcome {
    /// What it ran on.
    pub kind: Kind,
    /// What happened, with the time of each thing; also where it ended in the middle.
    pub log: Log,
    /// What went wrong, if anything did.
    pub trouble: Option<Trouble>,
    /// Numbers of the acts it had.
    pub numbers: Vec<u32>,
}

/// Runs the history of `seed`.
pub fn run(seed: u64, options: &Options) -> Outcome {
    #[cfg(feature = "mutants")]
    array::mutant::set(options.mutant);
    let mut random = SplitMix64::new(seed);
    let kind = random.below(KINDS.len() as u64) as usize;
    let kind = KINDS[options.kind.unwrap_or(kind)];
    let mut outcome = Outcome { kind, log: Rc::default(), trouble: None, numbers: Vec::new() };
    let played = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let world = World::virtual_time(seed);
        let trouble = world.block_on(history(&world, seed, options, random, &mut outcome)).err();
        world.end();
        trouble
    }));
    outcome.trouble = played.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Some(Trouble::Panicked(text.unwrap_or("without a word").to_owned()))
    });
    outcome
}

async fn history(
    world: &World,
    seed: u64,
    options: &Options,
    mut random: SplitMix64,
    outcome: &mut Outcome,
) -> Result<(), Trouble> {
    // A log is of use only once data and parity agree: those begin in sync.
    let foreign = random.chance(1, FOREIGN_ONE_IN) && !outcome.kind.policy.logs();
    let bed = Bed::new(world, outcome.kind, foreign, options.logs, &mut random).await?;
    let bed = Rc::new(bed);
    let (sectors, member_sectors) = (bed.sectors(), bed.member_sectors());
    let (kind, rounds, keep) = (outcome.kind, options.rounds, options.keep.as_ref());
    let plan = Plan::new(seed, kind, sectors, member_sectors, rounds, keep);
    outcome.numbers = plan.numbers();
    if let Some(log) = &bed.log {
        outcome.log = Rc::clone(log);
    }
    play(&bed, seed, &plan).await
}

async fn play(bed: &Rc<Bed>, seed: u64, plan: &Plan) -> Result<(), Trouble> {
    for round in &plan.rounds {
        play_round(bed, seed, round).await?;
    }
    bed.verify().await?;
    bed.stop().await?;
    bed.start().await?;
    bed.verify().await
}

async fn play_round(bed: &Rc<Bed>, seed: u64, round: &Round) -> Result<(), Trouble> {
    let meanwhile = match (round.shared, round.acts.is_empty()) {
        (true, _) => Meanwhile::Written,
        (false, false) => Meanwhile::Acts,
        (false, true) => Meanwhile::Calm,
    };
    let clients = round.clients.iter().map(|operations| client(bed, operations, meanwhile));
    let (clients, fate) = join_both(join_all(clients), fate(bed, seed, &round.acts)).await;
    fate?;
    clients.into_iter().collect::<Result<(), Trouble>>()?;
    if bed.service.get() != Service::Running {
        bed.start().await?;
        for again in &round.cuts_again {
            bed.world.sleep(again.what).await;
            if bed.any_silent() {
                break;
            }
            bed.power_cut(&mut chance(seed, again.number)).await?;
            bed.start().await?;
        }
        if round.settles {
            bed.read_all().await?;
        }
    }
    bed.refresh();
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

/// The choices of one act: its own, so that leaving out another changes nothing here.
fn chance(seed: u64, number: u32) -> SplitMix64 {
    SplitMix64::new(seed ^ (u64::from(number) + 1) << 32)
}

/// A client's operations, one after the other. One may fail only when the array has ended.
async fn client(bed: &Bed, operations: &[Atom<Op>], meanwhile: Meanwhile) -> Result<(), Trouble> {
    for operation in operations {
        let well = match operation.what {
            Op::Write { first, count, durable } => bed.write(first, count, durable).await?,
            Op::Zero { first, count, durable } => bed.zero(first, count, durable).await?,
            Op::Discard { first, count } => bed.discard(first, count).await?,
            Op::Read { first, count } => bed.read(first, count, meanwhile).await?,
            Op::Flush => bed.flush().await?,
            Op::Wait(time) => {
                bed.world.sleep(time).await;
                true
            }
            Op::Linger { first, count } => linger(bed, first, count).await?,
        };
        if bed.service.get() != Service::Running {
            return Ok(());
        }
        if !well {
            return Err(Trouble::Failed(format!("{:?} failed", operation.what)));
        }
    }
    Ok(())
}

/// Writes every two seconds, for longer than two of the bitmap's ticks.
async fn linger(bed: &Bed, first: u64, count: u64) -> Result<bool, Trouble> {
    for _ in 0..6 {
        if bed.service.get() != Service::Running || !bed.write(first, count, false).await? {
            return Ok(false);
        }
        bed.world.sleep(Duration::from_secs(2)).await;
    }
    Ok(true)
}

async fn fate(bed: &Bed, seed: u64, acts: &[Atom<Timed>]) -> Result<(), Trouble> {
    let start = bed.world.now_ns();
    for act in acts {
        let Timed { at, act: what } = act.what;
        bed.world.sleep_until_ns(start + at.as_nanos() as u64).await;
        happen(bed, what, &mut chance(seed, act.number)).await?;
    }
    Ok(())
}

/// Does one act, unless it is out of place or beyond the promise.
async fn happen(bed: &Bed, act: Act, random: &mut SplitMix64) -> Result<(), Trouble> {
    bed.refresh();
    let running = bed.service.get() == Service::Running;
    let may_lose = |slot: usize| running && !bed.is_gone(slot) && bed.may_lose(slot);
    let exchanges = running && bed.kind.redundant();
    match act {
        // After a cut checksums are not believed: what has changed silently would be.
        Act::Cut if running && !bed.any_silent() => bed.power_cut(random).await?,
        Act::Stop if running => bed.stop().await?,
        Act::Fail(slot) if may_lose(slot) => bed.fail(slot).await?,
        Act::Vanish(slot) if may_lose(slot) => bed.spoil_member(slot, ErrorKind::Gone, None, false),
        Act::WritesErr(slot) if may_lose(slot) => {
            bed.spoil_member(slot, ErrorKind::Media, Some(Operation::Write), false);
        }
        Act::WriteErrs(slot) if may_lose(slot) => {
            bed.spoil_member(slot, ErrorKind::Media, Some(Operation::Write), true);
        }
        Act::FlushErrs(slot) if may_lose(slot) => {
            bed.spoil_member(slot, ErrorKind::Media, Some(Operation::Flush), true);
        }
        Act::Latent { slot, sector, count } if may_lose(slot) => bed.latent(slot, sector, count),
        Act::Rot { slot, sector, count } if may_lose(slot) && bed.notices() => {
            bed.rot(slot, sector, count).await?;
        }
        Act::LosesWrite(slot) if may_lose(slot) && bed.notices() => {
            bed.mishandles(slot, Effect::Lost);
        }
        Act::Misdirects(slot) if may_lose(slot) && bed.notices() => {
            bed.mishandles(slot, Effect::Misdirect);
        }
        Act::Slow(slot, by) => bed.slow(slot, by),
        // Where nobody can be spared, everything waits for it.
        Act::Hang(slot, time) if may_lose(slot) || running && !bed.kind.redundant() => {
            bed.hang(slot, time);
        }
        Act::Mend(slot) => bed.mend(slot),
        Act::Add if exchanges => bed.add().await?,
        Act::Readd if exchanges => bed.readd().await?,
        Act::Remove(slot) if exchanges && (bed.seats[slot].out.get() || may_lose(slot)) => {
            bed.remove(slot).await?;
        }
        Act::Replace(slot) if exchanges => bed.replace(slot).await?,
        Act::Scrub { repair } if exchanges => bed.scrub(repair),
        Act::Hold if running => bed.hold().await?,
        Act::Resume if running => bed.resume(),
        _ => {}
    }
    Ok(())
}
