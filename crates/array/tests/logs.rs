//! The logs that close the write hole: partial parity and journal, cut off, replayed, filled and
//! failed, and what they cost.

#![allow(clippy::unwrap_used, reason = "a test ends with the first surprise")]

use std::rc::Rc;
use std::time::Duration;

use array::{Array, Consistency, NewArray, OpenMode, Scan, SlotState};
use drive::{
    Counting, Drive, DriveError, Durability, Effect, ErrorKind, Fault, Faulty, MemoryDrive,
    Operation,
};
use geometry::Level;
use world::{ReadBufs, SplitMix64, World, WriteBufs, join_all};

const MODE: OpenMode =
    OpenMode { read_only: false, force_dirty: false, now_seconds: 1_700_000_000 };
const READ_ONLY: OpenMode = OpenMode { read_only: true, ..MODE };
const DRIVE_BYTES: u64 = 4 << 20;
const USED_BYTES: u64 = 32 << 10;
const BLOCK: usize = 4096;

fn memory(index: usize, bytes: u64) -> Rc<dyn Drive> {
    Rc::new(MemoryDrive::new(&format!("d{index}"), bytes, 512))
}

/// Drives whose faults are at hand, and the same as an array takes them.
fn faulty_drives(world: &World, count: usize, seed: u64) -> (Vec<Rc<Faulty>>, Vec<Rc<dyn Drive>>) {
    let faulty: Vec<Rc<Faulty>> = (0..count)
        .map(|index| Rc::new(Faulty::new(world, memory(index, DRIVE_BYTES), seed)))
        .collect();
    let drives = faulty.iter().map(|drive| Rc::clone(drive) as Rc<dyn Drive>).collect();
    (faulty, drives)
}

async fn create(
    world: &World,
    level: Level,
    slots: &[Rc<dyn Drive>],
    consistency: Consistency,
) -> Array {
    let request = NewArray {
        name: "logged".to_owned(),
        level,
        layout: None,
        chunk_bytes: Some(8192),
        slots: slots.iter().cloned().map(Some).collect(),
        spares: Vec::new(),
        size_bytes: Some(USED_BYTES),
        consistency,
        checksums: false,
        assume_clean: true,
        uuid: *b"logged arrays do",
        now_seconds: 1_700_000_000,
    };
    request.create(world).await.unwrap_or_else(|error| panic!("{error:?}"))
}

async fn open(world: &World, drives: &[Rc<dyn Drive>], mode: OpenMode) -> Array {
    let scan = Scan::of(world.pool(), drives.to_vec()).await;
    assert_eq!(scan.assemblies.len(), 1);
    let array = scan.open(world, &scan.assemblies[0], mode).await;
    array.unwrap_or_else(|error| panic!("{error}"))
}

async fn write(
    world: &World,
    drive: &dyn Drive,
    at: usize,
    bytes: &[u8],
) -> Result<(), drive::DriveError> {
    let buffers = WriteBufs::from_iter([world.pool().copy_of(bytes)]);
    drive.write(at as u64, buffers, Durability::Cached).await
}

/// Begins to write, after a delay.
fn write_later(
    world: &World,
    array: &Array,
    delay: Duration,
    at: usize,
    bytes: Vec<u8>,
) -> impl Future<Output = Result<(), DriveError>> + use<> {
    let (clock, array) = (world.clone(), array.clone());
    world.spawn(async move {
        clock.sleep(delay).await;
        write(&clock, &array, at, &bytes).await
    })
}

async fn power_cut(faulty: &[Rc<Faulty>], seed: u64) {
    for drive in faulty {
        drive.control().power_cut(seed).await.unwrap();
    }
}

/// The power comes back when nothing of the array before is under way any more.
async fn power_on(world: &World, faulty: &[Rc<Faulty>]) {
    world.sleep(Duration::from_secs(20)).await;
    faulty.iter().for_each(|drive| drive.control().power_on());
}

/// Data and parity agree everywhere.
async fn assert_agrees(array: &Array) {
    array.background_done().await;
    array.start_check().unwrap();
    array.background_done().await;
    let scrub = array.status().scrub.unwrap();
    assert!(scrub.counts.compared_bytes > 0);
    assert_eq!(scrub.counts.mismatched_bytes, 0, "{:?}", scrub.findings);
}

async fn read_all(world: &World, drive: &dyn Drive) -> Vec<u8> {
    let bytes = drive.facts().size_bytes as usize;
    let done = drive.read(0, ReadBufs::from_iter([world.pool().take(bytes)])).await;
    done.result.unwrap();
    done.buffers[0].to_vec()
}

fn random_bytes(random: &mut SplitMix64, bytes: usize) -> Vec<u8> {
    (0..bytes / 8).flat_map(|_| random.next_u64().to_le_bytes()).collect()
}

/// Blocks that differ, of those that nobody was writing.
fn wrong(content: &[u8], known: &[u8], in_flight: &[bool]) -> usize {
    let blocks = content.chunks(BLOCK).zip(known.chunks(BLOCK)).zip(in_flight);
    blocks.filter(|((is, known), in_flight)| !**in_flight && is != known).count()
}

/// A RAID 5 of four that the power went from, and what nobody was writing then.
struct Cut {
    faulty: Vec<Rc<Faulty>>,
    /// The members, and the drive with the journal if there is one.
    drives: Vec<Rc<dyn Drive>>,
    known: Vec<u8>,
    in_flight: Vec<bool>,
}

/// The policies a cut is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Log {
    None,
    Ppl,
    Journal,
}

/// Writes to an array, and takes the power away amid further writes.
async fn cut(world: &World, seed: u64, log: Log, random: &mut SplitMix64) -> Cut {
    let count = if log == Log::Journal { 5 } else { 4 };
    let (faulty, drives) = faulty_drives(world, count, seed + 1);
    let consistency = match log {
        Log::None => Consistency::Resync,
        Log::Ppl => Consistency::Ppl,
        Log::Journal => Consistency::Journal(Rc::clone(&drives[4])),
    };
    let array = create(world, Level::Raid5, &drives[..4], consistency).await;
    let known = random_bytes(random, array.facts().size_bytes as usize);
    write(world, &array, 0, &known).await.unwrap();
    array.flush().await.unwrap();
    for drive in &faulty {
        drive.control().set_volatile_cache(true);
        for odds in [1, 2, 3] {
            let delay = Duration::from_nanos(1000 + random.below(200_000));
            drive.control().add(Fault::new(Effect::Delay(delay)).one_in(odds));
        }
    }
    let blocks = known.len() / BLOCK;
    let mut in_flight = vec![false; blocks];
    let mut writes = Vec::new();
    for _ in 0..1 + random.below(6) {
        let first = random.below(blocks as u64) as usize;
        let count = 1 + random.below(4.min((blocks - first) as u64)) as usize;
        let range = first..first + count;
        if in_flight[range.clone()].contains(&true) {
            continue;
        }
        in_flight[range].fill(true);
        let new = random_bytes(random, count * BLOCK);
        let buffers = WriteBufs::from_iter([world.pool().copy_of(&new)]);
        writes.push(array.write((first * BLOCK) as u64, buffers, Durability::Cached));
    }
    let writes = world.spawn(join_all(writes));
    world.sleep(Duration::from_nanos(random.below(3_000_000))).await;
    for drive in &faulty {
        drive.control().power_cut(random.next_u64()).await.unwrap();
    }
    writes.await;
    // The array before is over when the power comes back: it must not write any more.
    drop(array);
    power_on(world, &faulty).await;
    Cut { faulty, drives, known, in_flight }
}

/// Cuts amid writes of known blocks; gives how many blocks that nobody was writing are
/// read wrong when a member is lost with the cut, and when one is lost after a restart.
fn cut_and_drop(seed: u64, log: Log) -> usize {
    let world = World::virtual_time(seed);
    let mut random = SplitMix64::new(seed);
    let found = world.block_on(async {
        let Cut { drives, known, in_flight, .. } = cut(&world, seed, log, &mut random).await;
        let blocks = in_flight.len();
        let without = |lost: usize| -> Vec<Rc<dyn Drive>> {
            let left = drives.iter().enumerate().filter(|(slot, _)| *slot != lost);
            left.map(|(_, drive)| Rc::clone(drive)).collect()
        };
        let mut found = 0;
        let lost = random.below(4) as usize;
        let at_once = open(&world, &without(lost), READ_ONLY).await;
        found += wrong(&read_all(&world, &at_once).await, &known, &in_flight);
        let whole = open(&world, &drives, MODE).await;
        assert_eq!(wrong(&read_all(&world, &whole).await, &known, &in_flight), 0, "seed {seed}");
        let recovered = whole.status().synced_to_bytes.is_none();
        if recovered {
            let settled = read_all(&world, &whole).await;
            whole.stop().await.unwrap();
            for lost in 0..4 {
                let later = open(&world, &without(lost), READ_ONLY).await;
                found += wrong(&read_all(&world, &later).await, &settled, &vec![false; blocks]);
            }
        }
        found
    });
    world.end();
    found
}

#[test]
fn b02_what_nobody_was_writing_survives_a_cut_and_the_loss_of_a_member() {
    for seed in 0..1000 {
        assert_eq!(cut_and_drop(seed, Log::Ppl), 0, "seed {seed}");
    }
    // Without a log the same cuts do harm: the test can tell.
    let harmed = (0..100).filter(|&seed| cut_and_drop(seed, Log::None) > 0);
    assert!(harmed.count() > 10);
}

/// What a member does while its array's log is replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Erring {
    /// Bad sectors wherever it has data.
    CannotRead,
    Writes,
    Flushes,
    Hangs,
}

/// Found by histories: one bad sector, or one member that could not be written, kept an array with
/// a log shut.
#[test]
fn a_log_is_replayed_without_a_member_that_errs() {
    use Erring::{CannotRead, Flushes, Hangs, Writes};
    for seed in 0..40 {
        for log in [Log::Ppl, Log::Journal] {
            for erring in [CannotRead, Writes, Flushes, Hangs] {
                replay_beside(seed, log, erring);
            }
        }
    }
}

fn replay_beside(seed: u64, log: Log, erring: Erring) {
    let world = World::virtual_time(seed);
    let mut random = SplitMix64::new(seed);
    world.block_on(async {
        let what = format!("seed {seed}, {log:?}, {erring:?}");
        let Cut { faulty, drives, known, in_flight } = cut(&world, seed, log, &mut random).await;
        let slot = random.below(4) as usize;
        let scan = Scan::of(world.pool(), drives.clone()).await;
        let control = faulty[slot].control();
        let fail = |operation| Fault::new(Effect::Fail(ErrorKind::Media)).on(operation);
        let fault = match erring {
            Erring::CannotRead => {
                let offset = scan.candidates[0].view.layout.data_offset_bytes;
                control.spoil(offset, USED_BYTES);
                None
            }
            Erring::Writes => Some(fail(Operation::Write)),
            Erring::Flushes => Some(fail(Operation::Flush)),
            Erring::Hangs => Some(Fault::new(Effect::Hang)),
        };
        let fault = fault.map(|fault| control.add(fault));
        let started_ns = world.now_ns();
        let array = scan.open(&world, &scan.assemblies[0], MODE).await;
        let array = array.unwrap_or_else(|error| panic!("{what}: {error}"));
        let took_ns = world.now_ns() - started_ns;
        assert!(took_ns < 30_000_000_000, "{what}: {took_ns} ns");
        let content = read_all(&world, &array).await;
        assert_eq!(wrong(&content, &known, &in_flight), 0, "{what}");
        let state = array.status().slots[slot].state;
        assert!(erring == Erring::CannotRead || state != SlotState::InSync, "{what}: {state:?}");
        array.stop().await.unwrap();
        if let Some(fault) = fault {
            control.remove(fault);
            control.release();
        }
        // It stays out, since the others' superblocks say so.
        let again = open(&world, &drives, MODE).await;
        assert_eq!(read_all(&world, &again).await, content, "{what}");
        let state = again.status().slots[slot].state;
        assert!(erring == Erring::CannotRead || state != SlotState::InSync, "{what}: {state:?}");
    });
    world.end();
}

/// A chunk on a missing member is written into parity alone; an older entry of its stripe,
/// replayed, would take that back.
#[test]
fn a_replay_takes_no_later_write_back() {
    let world = World::virtual_time(9);
    world.block_on(async {
        let drives: Vec<Rc<dyn Drive>> = (0..4).map(|index| memory(index, DRIVE_BYTES)).collect();
        let array = create(&world, Level::Raid5, &drives, Consistency::Ppl).await;
        // Left-symmetric: the first stripe has its chunks on members 0, 1 and 2.
        array.fail_member(1).await.unwrap();
        write(&world, &array, 0, &[1; BLOCK]).await.unwrap();
        write(&world, &array, 8192, &[2; BLOCK]).await.unwrap();
        array.flush().await.unwrap();
        // No stop: the array is found as a power cut leaves it.
        let left = [0, 2, 3].map(|slot| Rc::clone(&drives[slot]));
        let again = open(&world, &left, MODE).await;
        let content = read_all(&world, &again).await;
        assert!(content[..BLOCK] == [1; BLOCK] && content[8192..8192 + BLOCK] == [2; BLOCK]);
    });
    world.end();
}

/// A journal so small that it wraps again and again, cut off and replayed in between.
#[test]
fn a_journal_that_wraps_keeps_every_write() {
    let levels = [(Level::Raid4, 3), (Level::Raid5, 4), (Level::Raid6, 5)];
    for ((level, members), seed) in levels.into_iter().zip(1..) {
        let world = World::virtual_time(seed);
        let mut random = SplitMix64::new(seed);
        world.block_on(async {
            let faulty: Vec<Rc<Faulty>> = (0..=members)
                .map(|index| {
                    let bytes =
                        if index == members { (1 << 20) + (512 << 10) } else { DRIVE_BYTES };
                    Rc::new(Faulty::new(&world, memory(index, bytes), seed))
                })
                .collect();
            let drives: Vec<Rc<dyn Drive>> =
                faulty.iter().map(|drive| Rc::clone(drive) as Rc<dyn Drive>).collect();
            let journal = Consistency::Journal(Rc::clone(&drives[members]));
            let mut array = create(&world, level, &drives[..members], journal).await;
            assert_eq!(array.facts().block_bytes, 4096);
            let mut known = vec![0; array.facts().size_bytes as usize];
            for drive in &faulty {
                drive.control().set_volatile_cache(true);
            }
            for round in 0..8 {
                for _ in 0..40 {
                    let blocks = known.len() / BLOCK;
                    let first = random.below(blocks as u64) as usize;
                    let count = 1 + random.below((blocks - first).min(8) as u64) as usize;
                    let range = first * BLOCK..(first + count) * BLOCK;
                    known[range.clone()].copy_from_slice(&random_bytes(&mut random, range.len()));
                    write(&world, &array, range.start, &known[range]).await.unwrap();
                }
                // Acknowledged is in the journal: it survives without a flush, here even degraded.
                if round == 5 {
                    array.fail_member(0).await.unwrap();
                }
                for drive in &faulty {
                    drive.control().power_cut(random.next_u64()).await.unwrap();
                    drive.control().power_on();
                }
                let from = usize::from(round >= 5);
                let array_now = open(&world, &drives[from..], MODE).await;
                assert!(read_all(&world, &array_now).await == known, "{level} round {round}");
                array = array_now;
            }
        });
        world.end();
    }
}

/// md's rule: without its journal an array is only read.
#[test]
fn a_failed_journal_ends_writes_and_says_so() {
    let world = World::virtual_time(3);
    world.block_on(async {
        let slots: Vec<Rc<dyn Drive>> = (0..3).map(|index| memory(index, DRIVE_BYTES)).collect();
        let journal = Rc::new(Faulty::new(&world, memory(3, DRIVE_BYTES), 1));
        let consistency = Consistency::Journal(Rc::clone(&journal) as Rc<dyn Drive>);
        let array = create(&world, Level::Raid5, &slots, consistency).await;
        write(&world, &array, 0, &[1; BLOCK]).await.unwrap();
        let fault = Fault::new(Effect::Fail(ErrorKind::Media)).on(Operation::Write);
        journal.control().add(fault);
        write(&world, &array, 0, &[2; BLOCK]).await.unwrap_err();
        world.sleep(Duration::from_secs(1)).await;
        let status = array.status();
        assert!(status.read_only && status.journal_failure.is_some());
        assert_eq!(
            write(&world, &array, 0, &[3; BLOCK]).await.unwrap_err().kind,
            ErrorKind::ReadOnly
        );
        assert!(read_all(&world, &array).await[..BLOCK] == [1; BLOCK]);
        array.stop().await.unwrap();
        // The members' superblocks say that the journal is gone, so nobody writes without it.
        let scan = Scan::of(world.pool(), slots.clone()).await;
        assert!(scan.open(&world, &scan.assemblies[0], MODE).await.is_err());
    });
    world.end();
}

/// Drive operations of one write of a block, and of one of a whole stripe: RAID 5 of four.
#[test]
fn what_a_write_costs() {
    let policies = ["resync", "ppl", "journal"];
    // Reads, writes and written KiB of the members, then of the journal.
    let small = [[2, 2, 8, 0, 0], [2, 3, 16, 0, 0], [2, 2, 8, 1, 12]];
    let stripe = [[0, 4, 32, 0, 0], [0, 5, 36, 0, 0], [0, 4, 32, 1, 36]];
    for ((policy, small), stripe) in policies.into_iter().zip(small).zip(stripe) {
        let world = World::virtual_time(1);
        world.block_on(async {
            let counting: Vec<Rc<Counting>> =
                (0..5).map(|index| Rc::new(Counting::new(memory(index, DRIVE_BYTES)))).collect();
            let drives: Vec<Rc<dyn Drive>> =
                counting.iter().map(|drive| Rc::clone(drive) as Rc<dyn Drive>).collect();
            let consistency = match policy {
                "ppl" => Consistency::Ppl,
                "journal" => Consistency::Journal(Rc::clone(&drives[4])),
                _ => Consistency::Resync,
            };
            let array = create(&world, Level::Raid5, &drives[..4], consistency).await;
            write(&world, &array, 0, &[1; BLOCK]).await.unwrap();
            let costs = async |bytes: usize| {
                counting.iter().for_each(|drive| {
                    drive.take();
                });
                write(&world, &array, 0, &vec![2; bytes]).await.unwrap();
                let counts: Vec<_> = counting.iter().map(|drive| drive.take()).collect();
                let sum = |of: fn(&drive::Counts) -> u64| counts[..4].iter().map(of).sum::<u64>();
                let (reads, writes) = (sum(|c| c.reads), sum(|c| c.writes));
                let kib = sum(|c| c.write_bytes) >> 10;
                [reads, writes, kib, counts[4].writes, counts[4].write_bytes >> 10]
            };
            assert_eq!(costs(BLOCK).await, small, "{policy}, a block");
            assert_eq!(costs(3 * 8192).await, stripe, "{policy}, a stripe");
        });
        world.end();
    }
}

/// A block that comes in several buffers, as from a client of smaller ones, is logged as one.
#[test]
fn a_block_in_several_buffers_is_logged_whole() {
    for policy in ["ppl", "journal"] {
        let world = World::virtual_time(11);
        world.block_on(async {
            let mut drives: Vec<Rc<dyn Drive>> =
                (0..4).map(|index| memory(index, DRIVE_BYTES)).collect();
            let journal = policy == "journal";
            let consistency = match journal {
                true => Consistency::Journal(Rc::clone(&drives[3])),
                false => Consistency::Ppl,
            };
            let array = create(&world, Level::Raid5, &drives[..3], consistency).await;
            let mut known = vec![0; array.facts().size_bytes as usize];
            for (at, lengths) in [(0, [100, 3996]), (8192, [512, 3584]), (4096, [4095, 1])] {
                let bytes = [at as u8 + 1; BLOCK];
                known[at..at + BLOCK].copy_from_slice(&bytes);
                let buffers = lengths.map(|len| world.pool().copy_of(&bytes[..len]));
                let buffers = WriteBufs::from_iter(buffers);
                array.write(at as u64, buffers, Durability::Cached).await.unwrap();
            }
            assert!(read_all(&world, &array).await == known, "{policy}");
            // Without a stop: what the log has is played back, and parity agrees with data.
            drop(array);
            drives.remove(0);
            drives.truncate(if journal { 3 } else { 2 });
            let degraded = open(&world, &drives, READ_ONLY).await;
            assert!(read_all(&world, &degraded).await == known, "{policy}, one member lost");
        });
    }
}

/// Found by a history: the journal kept zeroes for the parity of a missing member, and a replay
/// put them onto the member that had been filled since.
#[test]
fn a_replay_gives_a_member_filled_since_its_parity() {
    let world = World::virtual_time(12);
    world.block_on(async {
        let drives: Vec<Rc<dyn Drive>> = (0..8).map(|index| memory(index, DRIVE_BYTES)).collect();
        let consistency = Consistency::Journal(Rc::clone(&drives[7]));
        let array = create(&world, Level::Raid6, &drives[..6], consistency).await;
        let mut known = vec![0; array.facts().size_bytes as usize];
        // Left-symmetric: Q of the first stripe is on member 0. A single block of four columns is
        // the cheapest to write into what is left of parity.
        array.fail_member(0).await.unwrap();
        known[..BLOCK].fill(1);
        write(&world, &array, 0, &known[..BLOCK]).await.unwrap();
        array.add_member(Rc::clone(&drives[6])).await.unwrap();
        array.background_done().await;
        assert_eq!(array.status().slots[0].state, SlotState::InSync);
        array.stop().await.unwrap();
        // Two columns missing: both parities are needed.
        let left = [3, 4, 5, 6, 7].map(|index| Rc::clone(&drives[index]));
        let again = open(&world, &left, MODE).await;
        assert!(read_all(&world, &again).await == known);
    });
    world.end();
}

/// Found by a history: a write whose parity member had just failed was not logged, and reached the
/// others before their superblocks said so.
#[test]
fn a_write_without_a_log_waits_until_its_parity_member_is_known_to_have_failed() {
    let world = World::virtual_time(13);
    world.block_on(async {
        let (faulty, drives) = faulty_drives(&world, 3, 13);
        let array = create(&world, Level::Raid5, &drives, Consistency::Ppl).await;
        // Left-symmetric of three: parity of the first and the fourth stripe is on member 2.
        let stripes = [0, 3 * 16384];
        write(&world, &array, stripes[0], &[1; BLOCK]).await.unwrap();
        let fails = Fault::new(Effect::Fail(ErrorKind::Media)).on(Operation::Write).times(1);
        faulty[2].control().add(fails);
        for drive in &faulty[..2] {
            let superblock = Fault::new(Effect::Delay(Duration::from_millis(1))).within(0..8192);
            drive.control().add(superblock);
        }
        let writes = [(0, stripes[0]), (300, stripes[1])].map(|(micros, at)| {
            write_later(&world, &array, Duration::from_micros(micros), at, vec![2; BLOCK])
        });
        world.sleep(Duration::from_micros(600)).await;
        power_cut(&faulty, 13).await;
        assert!(join_all(writes).await.iter().all(Result::is_err), "cut before it was recorded");
        drop(array);
        power_on(&world, &faulty).await;
        let again = open(&world, &drives, MODE).await;
        assert!(again.status().slots.iter().all(|slot| slot.state == SlotState::InSync));
        assert_agrees(&again).await;
    });
    world.end();
}

/// Found by a history: a drive took the slot it was filled for while a write was under way that
/// was in the log of the member before it.
#[test]
fn a_drive_takes_a_slot_when_nothing_is_under_way_that_the_log_there_has() {
    let world = World::virtual_time(14);
    world.block_on(async {
        let (faulty, drives) = faulty_drives(&world, 4, 14);
        let array = create(&world, Level::Raid5, &drives[..3], Consistency::Ppl).await;
        // Of the first two stripes; an entry in a log says that the array was in sync.
        write(&world, &array, 0, &[1; BLOCK]).await.unwrap();
        write(&world, &array, 16384, &[1; BLOCK]).await.unwrap();
        // The drive is filled, and what it got is being flushed.
        let flush = Fault::new(Effect::Delay(Duration::from_millis(100))).on(Operation::Flush);
        faulty[0].control().add(flush);
        array.replace_member(2, Rc::clone(&drives[3])).await.unwrap();
        world.sleep(Duration::from_millis(10)).await;
        assert!(array.status().slots[2].replacement.is_some());
        // Left-symmetric of three: parity of the first stripe is on member 2, its data on 0 and 1.
        let data = Fault::new(Effect::Delay(Duration::from_millis(300))).on(Operation::Write);
        faulty[0].control().add(data.within(1 << 20..DRIVE_BYTES));
        let task = write_later(&world, &array, Duration::ZERO, 0, vec![2; BLOCK]);
        world.sleep(Duration::from_millis(200)).await;
        power_cut(&faulty, 14).await;
        assert!(task.await.is_err());
        drop(array);
        faulty.iter().for_each(|drive| drive.control().clear());
        power_on(&world, &faulty).await;
        let again = open(&world, &drives, MODE).await;
        assert_eq!(again.status().synced_to_bytes, None);
        again.background_done().await;
        assert!(again.status().slots.iter().all(|slot| slot.state == SlotState::InSync));
        assert_agrees(&again).await;
    });
    world.end();
}

/// Found by a history: a parity member came while a write read what another stripe of it needed;
/// the write logged there what it had not read.
#[test]
fn a_write_that_had_no_parity_member_logs_nothing_on_one_that_came_since() {
    let world = World::virtual_time(15);
    world.block_on(async {
        let (faulty, drives) = faulty_drives(&world, 4, 15);
        let array = create(&world, Level::Raid5, &drives[..3], Consistency::Ppl).await;
        // Left-symmetric of three: parity of the third stripe is on member 0, of the fourth on 2.
        let (third, fourth) = (2 * 16384, 3 * 16384);
        write(&world, &array, third, &[1; 8192]).await.unwrap();
        write(&world, &array, fourth, &[1; BLOCK]).await.unwrap();
        array.fail_member(0).await.unwrap();
        let slow = Fault::new(Effect::Delay(Duration::from_millis(10))).on(Operation::Read);
        let slows: Vec<_> = faulty.iter().map(|of| of.control().add(slow.clone())).collect();
        let crossing = vec![2; 8192 + BLOCK];
        let task = write_later(&world, &array, Duration::ZERO, fourth - 8192, crossing);
        world.sleep(Duration::from_millis(5)).await;
        array.add_member(Rc::clone(&drives[3])).await.unwrap();
        task.await.unwrap();
        array.background_done().await;
        array.flush().await.unwrap();
        for (drive, slow) in faulty.iter().zip(slows) {
            drive.control().remove(slow);
        }
        power_cut(&faulty, 15).await;
        drop(array);
        power_on(&world, &faulty).await;
        let again = open(&world, &drives, MODE).await;
        assert_agrees(&again).await;
    });
    world.end();
}
