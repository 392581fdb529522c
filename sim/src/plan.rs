//! A history before it is played: what clients do and what happens to them, as data.
//!
//! All of it follows from the seed, and each act has a number. A shorter history is the same plan
//! with only some of the acts kept, which is how a failing one is shrunk and replayed.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use world::SplitMix64;

use crate::kinds::Kind;

/// Sectors of a client's piece: no multiple of a chunk, so that borders fall everywhere.
const PIECE_SECTORS: u64 = 11;

/// Most acts of a round come within this time, in which clients are busy.
const BUSY_NS: u64 = 3_000_000;

/// Some come about when an idle array is marked clean: five seconds after its last write.
const IDLE_NS: u64 = 5_000_000_000;

/// What a client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Write {
        first: u64,
        count: u64,
        durable: bool,
    },
    Zero {
        first: u64,
        count: u64,
        durable: bool,
    },
    Discard {
        first: u64,
        count: u64,
    },
    Read {
        first: u64,
        count: u64,
    },
    Flush,
    /// Nothing for so long.
    Wait(Duration),
    /// The same place again and again, for so long that bits of others are cleared while the array
    /// is never at rest.
    Linger {
        first: u64,
        count: u64,
    },
}

/// What happens to the array: an administrator's doing, or fate's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// The power goes, for all drives at once.
    Cut,
    /// The array is stopped in order, with whatever clients still have under way.
    Stop,
    /// An administrator fails a member.
    Fail(usize),
    /// A drive answers nothing any more.
    Vanish(usize),
    /// A drive errs on every write.
    WritesErr(usize),
    /// A drive errs on its next write, and never again.
    WriteErrs(usize),
    /// A drive errs on its next flush.
    FlushErrs(usize),
    /// A drive that vanished or erred is well again.
    Mend(usize),
    /// Sectors of a drive's data can't be read until they are rewritten.
    Latent { slot: usize, sector: u64, count: u64 },
    /// Sectors of a drive's data change, and it says nothing.
    Rot { slot: usize, sector: u64, count: u64 },
    /// A drive acknowledges its next write of data and forgets it.
    LosesWrite(usize),
    /// A drive stores its next write of data elsewhere in its data, and acknowledges it.
    Misdirects(usize),
    /// A drive takes this much longer for everything, until it is mended.
    Slow(usize, Duration),
    /// A drive answers nothing for this long.
    Hang(usize, Duration),
    /// The administrator holds background work: what is to be resynced or filled stays that way.
    Hold,
    /// ... and lets it go on.
    Resume,
    /// ... adds a drive.
    Add,
    /// ... takes a drive back that left.
    Readd,
    /// ... takes a member out.
    Remove(usize),
    /// ... has a member replaced.
    Replace(usize),
    /// ... asks for a check, or a repair.
    Scrub { repair: bool },
}

/// An act at its time in the round.
#[derive(Debug, Clone, Copy)]
pub struct Timed {
    pub at: Duration,
    pub act: Act,
}

/// Something that can be left out, with its number.
#[derive(Debug, Clone, Copy)]
pub struct Atom<T> {
    pub number: u32,
    pub what: T,
}

/// What happens at the same time.
#[derive(Debug, Clone, Default)]
pub struct Round {
    /// What each client does, one after the other.
    pub clients: Vec<Vec<Atom<Op>>>,
    /// They work on the same sectors.
    pub shared: bool,
    /// What happens meanwhile, in order.
    pub acts: Vec<Atom<Timed>>,
    /// After a sudden end: further cuts, each this long after the start before.
    pub cuts_again: Vec<Atom<Duration>>,
    /// After a sudden end: read everything before anything is written over.
    pub settles: bool,
}

/// A whole history.
#[derive(Debug, Clone)]
pub struct Plan {
    pub rounds: Vec<Round>,
    /// How many acts it has, kept or not.
    pub atoms: u32,
}

/// Numbers acts, and lets pass those that are kept.
struct Numbering<'a> {
    next: u32,
    keep: Option<&'a BTreeSet<u32>>,
}

impl Numbering<'_> {
    fn number<T>(&mut self, what: T) -> Option<Atom<T>> {
        let number = self.next;
        self.next += 1;
        self.keep.is_none_or(|keep| keep.contains(&number)).then_some(Atom { number, what })
    }
}

impl Plan {
    /// The history of `seed` on an array of `kind` with `sectors` sectors. `member_sectors` is the
    /// data of each member. With `keep` only the acts of these numbers.
    pub fn new(
        seed: u64,
        kind: Kind,
        sectors: u64,
        member_sectors: u64,
        rounds: u64,
        keep: Option<&BTreeSet<u32>>,
    ) -> Plan {
        let mut random = SplitMix64::new(seed ^ 0x5eed_91a4);
        let mut numbering = Numbering { next: 0, keep };
        // Swarm testing: some histories have only some kinds of trouble, and go deeper there.
        let taste = random.next_u64();
        // After a cut, and for what was discarded, no checksum is believed: without either, more of
        // what changes silently is met.
        let believed = kind.checksums && random.chance(2, 3);
        let mut plan = Plan { rounds: Vec::new(), atoms: 0 };
        for _ in 0..rounds {
            // As many as have a piece of their own.
            let count = 1 + random.below((sectors / kind.block_sectors() / PIECE_SECTORS).min(4));
            // Clients keep to sectors of their own, or all want the same ones.
            let shared = random.chance(1, 5);
            let operations = 1 + random.below(6);
            let clients = (0..count).map(|client| {
                let operations = (0..operations).filter_map(|_| {
                    let block = kind.block_sectors();
                    let operation = match shared {
                        true => operation(&mut random, sectors, block, 0, 1),
                        false => operation(&mut random, sectors, block, client, count),
                    };
                    let operation = match operation {
                        Op::Discard { first, count } if believed => Op::Read { first, count },
                        operation => operation,
                    };
                    numbering.number(operation)
                });
                operations.collect()
            });
            let clients = clients.collect();
            let acts = acts(&mut random, kind, member_sectors, taste).into_iter();
            let acts = acts.filter(|timed| !believed || timed.act != Act::Cut);
            let acts = acts.filter_map(|act| numbering.number(act)).collect();
            let again = if random.chance(1, 4) { 1 + random.below(3) } else { 0 };
            let cuts_again = (0..again).filter_map(|_| {
                let after = Duration::from_nanos(random.below(2_000_000));
                numbering.number(after)
            });
            let cuts_again = cuts_again.collect();
            let settles = random.chance(2, 3);
            plan.rounds.push(Round { clients, shared, acts, cuts_again, settles });
        }
        plan.atoms = numbering.next;
        plan
    }

    /// The numbers of what is kept.
    pub fn numbers(&self) -> Vec<u32> {
        let mut numbers = Vec::new();
        for round in &self.rounds {
            numbers.extend(round.clients.iter().flatten().map(|atom| atom.number));
            numbers.extend(round.acts.iter().map(|atom| atom.number));
            numbers.extend(round.cuts_again.iter().map(|atom| atom.number));
        }
        numbers.sort_unstable();
        numbers
    }
}

fn operation(random: &mut SplitMix64, sectors: u64, block: u64, client: u64, clients: u64) -> Op {
    // All in blocks, until it is an operation.
    let blocks = sectors / block;
    let mine = blocks / PIECE_SECTORS / clients;
    let piece = random.below(mine) * clients + client;
    let start = random.below(PIECE_SECTORS);
    let count = 1 + random.below(PIECE_SECTORS - start);
    let mut place = (piece * PIECE_SECTORS + start, count);
    // A client alone may take much at once.
    if clients == 1 && random.chance(1, 4) {
        let first = random.below(blocks);
        place = (first, 1 + random.below((blocks - first).min(400)));
    }
    let (first, count) = (place.0 * block, place.1 * block);
    match random.below(15) {
        14 if random.chance(1, 4) => Op::Wait(time(random)),
        14 if random.chance(1, 8) => Op::Linger { first, count },
        0..6 => Op::Write { first, count, durable: false },
        6 => Op::Write { first, count, durable: true },
        7 => Op::Zero { first, count, durable: random.chance(1, 3) },
        8 => Op::Discard { first, count },
        9 => Op::Flush,
        _ => Op::Read { first, count },
    }
}

/// When something happens: mostly while clients are busy, often when they have just begun, and
/// sometimes when an idle array is marked clean.
fn time(random: &mut SplitMix64) -> Duration {
    Duration::from_nanos(match random.below(8) {
        0 => IDLE_NS - BUSY_NS / 4 + random.below(2 * BUSY_NS),
        1 | 2 => random.below(BUSY_NS / 5),
        _ => random.below(BUSY_NS),
    })
}

fn acts(random: &mut SplitMix64, kind: Kind, member_sectors: u64, taste: u64) -> Vec<Timed> {
    let mut acts = Vec::new();
    let count = [0, 1, 1, 2, 3][random.below(5) as usize];
    for _ in 0..count {
        let slot = random.below(kind.members as u64) as usize;
        let at = time(random);
        let choice = random.below(if kind.checksums { 32 } else { 26 });
        let seconds = Duration::from_millis(random.below(4000));
        let sector = random.below(member_sectors);
        let run = 1 + random.below(12.min(member_sectors - sector));
        let soon = at + Duration::from_nanos(random.below(800_000));
        if taste >> choice & 1 == 1 && choice > 3 {
            continue;
        }
        let act = match choice {
            0..3 => Act::Cut,
            3 => Act::Stop,
            4 => Act::Fail(slot),
            5 => Act::Vanish(slot),
            6 => Act::WritesErr(slot),
            7 => Act::WriteErrs(slot),
            8 => Act::FlushErrs(slot),
            9 | 10 => Act::Latent { slot, sector, count: run },
            11 => Act::Slow(slot, Duration::from_micros(random.below(20_000))),
            12 => Act::Hang(slot, seconds),
            13 => Act::Mend(slot),
            14 => Act::Hold,
            15 => Act::Resume,
            16 | 17 => Act::Add,
            18 => Act::Readd,
            19 => Act::Remove(slot),
            20 | 21 => Act::Replace(slot),
            22 => Act::Scrub { repair: false },
            23 => Act::Scrub { repair: true },
            26 | 27 => Act::Rot { slot, sector, count: run },
            28 | 29 => Act::LosesWrite(slot),
            30 | 31 => Act::Misdirects(slot),
            _ => {
                // An error, a cut soon after, and the drive back with the power.
                acts.push(Timed { at, act: Act::WritesErr(slot) });
                acts.push(Timed { at: soon, act: Act::Cut });
                Act::Mend(slot)
            }
        };
        let at = if act == Act::Mend(slot) { soon } else { at };
        acts.push(Timed { at, act });
    }
    acts.sort_by_key(|timed| timed.at);
    acts
}

/// Numbers as a short list: `0-3,7`.
pub fn list(numbers: &[u32]) -> String {
    let mut text = String::new();
    let mut rest = numbers;
    while let Some(&first) = rest.first() {
        let row = rest.iter().zip(first..).take_while(|(a, b)| **a == *b).count();
        let comma = if text.is_empty() { "" } else { "," };
        let last = first + row as u32 - 1;
        let _ = match row {
            1 => write!(text, "{comma}{first}"),
            _ => write!(text, "{comma}{first}-{last}"),
        };
        rest = &rest[row..];
    }
    text
}

/// What [`list`] wrote; `None` where it is not such a list.
pub fn parse_list(text: &str) -> Option<BTreeSet<u32>> {
    let mut numbers = BTreeSet::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        numbers.extend(first.parse::<u32>().ok()?..=last.parse().ok()?);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::KINDS;

    #[test]
    fn lists_read_back() {
        for (numbers, text) in [(&[][..], ""), (&[4], "4"), (&[0, 1, 2, 5, 7, 8], "0-2,5,7-8")] {
            assert_eq!(list(numbers), text);
            let back: Vec<u32> = parse_list(text).expect("a list").into_iter().collect();
            assert_eq!(back, numbers);
        }
        assert_eq!(parse_list("1-x"), None);
    }

    #[test]
    fn a_part_of_a_plan_keeps_its_numbers_and_content() {
        let whole = Plan::new(7, KINDS[5], 768, 256, 6, None);
        let keep: BTreeSet<u32> = whole.numbers().into_iter().filter(|n| n % 3 == 0).collect();
        let part = Plan::new(7, KINDS[5], 768, 256, 6, Some(&keep));
        assert_eq!(part.numbers(), keep.iter().copied().collect::<Vec<_>>());
        let operations = |plan: &Plan| -> Vec<(u32, Op)> {
            let clients = plan.rounds.iter().flat_map(|round| round.clients.iter().flatten());
            clients.filter(|atom| keep.contains(&atom.number)).map(|a| (a.number, a.what)).collect()
        };
        assert_eq!(operations(&whole), operations(&part));
        assert!(!operations(&part).is_empty());
    }
}
