//! Arrays whose data has checksums, on drives that lie: what is read is what was written, or an
//! error, and never anything else.

#![allow(clippy::unwrap_used, reason = "a test ends with the first surprise")]

#[expect(dead_code, reason = "other tests use the rest")]
mod common;

use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use array::{
    Array, ChecksumStatus, Consistency, MemberError, NewArray, OpenMode, Policy, Scan, SlotState,
};
use common::{Twin, random_bytes, range};
use drive::{
    Drive, Durability, Effect, ErrorKind, Fault, FaultControl, Faulty, MemoryDrive, Operation,
    Padded,
};
use format::md::Superblock;
use geometry::Level;
use world::{ReadBufs, SplitMix64, World, WriteBufs, join_all};

const DRIVE_BYTES: u64 = 3 << 20;
const USED_BYTES: u64 = 512 << 10;
const BLOCK: u64 = 4096;
const MODE: OpenMode =
    OpenMode { read_only: false, force_dirty: false, now_seconds: 1_800_000_000 };

/// Members that lie a lot, and are kept all the same.
fn patient() -> Policy {
    Policy { read_errors_max: u32::MAX, ..Policy::default() }
}

#[derive(Debug, Clone, Copy)]
struct Shape {
    level: Level,
    layout: u32,
    members: usize,
    chunk_bytes: Option<u32>,
}

const SHAPES: [Shape; 6] = [
    Shape { level: Level::Raid1, layout: 0, members: 2, chunk_bytes: None },
    Shape { level: Level::Raid1, layout: 0, members: 3, chunk_bytes: None },
    Shape { level: Level::Raid10, layout: 0x102, members: 4, chunk_bytes: Some(8192) },
    Shape { level: Level::Raid10, layout: 0x201, members: 3, chunk_bytes: Some(4096) },
    Shape { level: Level::Raid5, layout: 2, members: 4, chunk_bytes: Some(8192) },
    Shape { level: Level::Raid6, layout: 2, members: 5, chunk_bytes: Some(16384) },
];

/// Drives with faults, and the array on them.
struct Bench {
    world: World,
    drives: Vec<Rc<dyn Drive>>,
    controls: Vec<FaultControl>,
}

impl Bench {
    fn new(world: &World, members: usize, seed: u64) -> Bench {
        let mut drives: Vec<Rc<dyn Drive>> = Vec::new();
        let mut controls = Vec::new();
        for index in 0..members {
            let memory = Rc::new(MemoryDrive::new(&format!("d{index}"), DRIVE_BYTES, 512));
            let faulty = Faulty::new(world, memory, seed + index as u64);
            controls.push(faulty.control());
            drives.push(Rc::new(faulty));
        }
        Bench { world: world.clone(), drives, controls }
    }

    async fn create(&self, shape: Shape) -> Array {
        self.create_with(shape, Consistency::Resync).await
    }

    async fn create_with(&self, shape: Shape, consistency: Consistency) -> Array {
        let request = NewArray {
            name: "sums".to_owned(),
            level: shape.level,
            layout: Some(shape.layout),
            chunk_bytes: shape.chunk_bytes,
            slots: self.drives.iter().cloned().map(Some).collect(),
            spares: Vec::new(),
            size_bytes: Some(USED_BYTES),
            consistency,
            checksums: true,
            assume_clean: true,
            uuid: *b"0123456789abcdef",
            now_seconds: MODE.now_seconds,
        };
        let array = request.create(&self.world).await.unwrap();
        array.background_done().await;
        assert_eq!(array.status().checksums, Some(ChecksumStatus::Valid), "{shape:?}");
        array.set_policy(patient());
        array
    }

    async fn open(&self) -> Array {
        self.open_on(self.drives.clone()).await
    }

    async fn open_on(&self, drives: Vec<Rc<dyn Drive>>) -> Array {
        let scan = Scan::of(self.world.pool(), drives).await;
        let array = scan.open(&self.world, &scan.assemblies[0], MODE).await.unwrap();
        array.set_policy(patient());
        array
    }

    /// The drives as one run of the array's process knows them: they can be pulled from it.
    fn plugged(&self) -> (Vec<Rc<dyn Drive>>, Vec<FaultControl>) {
        let plugs = self.drives.iter().map(|drive| {
            let plug = Faulty::new(&self.world, Rc::clone(drive), 0);
            let control = plug.control();
            (Rc::new(plug) as Rc<dyn Drive>, control)
        });
        plugs.unzip()
    }

    async fn superblock(&self, slot: usize) -> Superblock {
        let examined = array::examine(self.world.pool(), self.drives[slot].as_ref()).await;
        examined.found[0].superblock.clone().unwrap()
    }

    async fn data_offset(&self) -> u64 {
        self.superblock(0).await.data_offset_sectors * 512
    }

    async fn raw(&self, slot: usize, offset: u64, bytes: u64) -> Vec<u8> {
        let drive = self.drives[slot].as_ref();
        array::read_bytes(self.world.pool(), drive, offset, bytes as usize).await.unwrap().to_vec()
    }

    async fn store(&self, slot: usize, offset: u64, bytes: &[u8]) {
        let buffers = WriteBufs::from_iter([self.world.pool().copy_of(bytes)]);
        self.drives[slot].write(offset, buffers, Durability::Durable).await.unwrap();
    }

    /// Reads everything several times at once, so that every copy is asked.
    async fn ask_all_copies(&self, twin: &Twin) {
        for control in &self.controls {
            let slow = Effect::Delay(Duration::from_millis(1));
            control.add(Fault::new(slow).on(Operation::Read));
        }
        let all = twin.flat.borrow().len();
        for start in (0..all).step_by(BLOCK as usize) {
            let checks = (0..8).map(|_| twin.check(start as u64, BLOCK as usize));
            join_all(checks.collect::<Vec<_>>()).await;
        }
        self.controls.iter().for_each(FaultControl::clear);
    }

    /// A bit of each block flips on one of those that have it, or its parity.
    async fn rot_everywhere(&self, shape: Shape, random: &mut SplitMix64) {
        let start = self.data_offset().await;
        for (row, slot) in (0..).zip(victims(shape, random)) {
            self.controls[slot].rot(start + row * BLOCK + random.below(BLOCK)).await.unwrap();
        }
    }

    /// Writes all of an array, and then its first block for so long that bits of others are cleared
    /// while the array is never at rest.
    async fn busy(&self, twin: &Twin, random: &mut SplitMix64) {
        let bytes = twin.flat.borrow().len();
        twin.write(0, &random_bytes(random, bytes), &[]).await;
        for _ in 0..10 {
            twin.write(0, &random_bytes(random, BLOCK as usize), &[]).await;
            self.world.sleep(Duration::from_secs(2)).await;
        }
    }

    /// An array filled with random content, and its twin.
    async fn filled(&self, shape: Shape, random: &mut SplitMix64) -> (Array, Twin) {
        let array = self.create(shape).await;
        let twin = twin(&self.world, &array);
        let bytes = twin.flat.borrow().len();
        twin.write(0, &random_bytes(random, bytes), &[]).await;
        (array, twin)
    }
}

/// Requests of any alignment, as a client that was promised nothing about blocks makes them.
fn twin(world: &World, array: &Array) -> Twin {
    Twin::new(world, Rc::new(Padded::new(world, Rc::new(array.clone()))))
}

/// The same content behind another opened array.
fn again(world: &World, array: &Array, before: &Twin) -> Twin {
    let twin = twin(world, array);
    twin.flat.borrow_mut().clone_from(&before.flat.borrow());
    twin
}

fn wrong(array: &Array) -> Vec<u64> {
    array.status().slots.iter().map(|slot| slot.wrong_blocks).collect()
}

fn boxed<'a>(act: impl Future<Output = ()> + 'a) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
    Box::pin(act)
}

fn each(test: impl AsyncFn(&Bench, Shape, &mut SplitMix64)) {
    for (number, shape) in (0..).zip(SHAPES) {
        let world = World::virtual_time(number);
        let bench = Bench::new(&world, shape.members, number * 100);
        let mut random = SplitMix64::new(number);
        world.block_on(test(&bench, shape, &mut random));
        world.end();
    }
}

/// Which member may be spoilt, for each block of the data area: one of a chunk's members.
fn victims(shape: Shape, random: &mut SplitMix64) -> Vec<usize> {
    // In far layouts copies lie in other rows: there always the same member.
    let same = shape.level == Level::Raid10;
    let rows = if same { USED_BYTES } else { shape.chunk_bytes.map_or(BLOCK, u64::from) } / BLOCK;
    let any = (0..USED_BYTES / BLOCK / rows).map(|_| random.below(shape.members as u64) as usize);
    any.flat_map(|slot| vec![slot; rows as usize]).collect()
}

#[test]
fn rot_is_never_read_and_is_mended() {
    each(async |bench, shape, random| {
        let (array, twin) = bench.filled(shape, random).await;
        array.flush().await.unwrap();
        bench.rot_everywhere(shape, random).await;
        bench.ask_all_copies(&twin).await;
        array.background_done().await;
        let found = wrong(&array);
        assert!(found.iter().sum::<u64>() > 0, "{shape:?}");
        bench.ask_all_copies(&twin).await;
        assert_eq!(wrong(&array), found, "what was found has been mended: {shape:?}");
        // Small unaligned writes beside rotten content must not make it look right.
        for _ in 0..40 {
            let (offset, bytes) = range(random, array.facts().size_bytes);
            let bytes = bytes.min(8192);
            twin.write(offset, &random_bytes(random, bytes as usize), &[]).await;
        }
        twin.check_all().await;
        array.stop().await.unwrap();
        let array = bench.open().await;
        again(&bench.world, &array, &twin).check_all().await;
        array.stop().await.unwrap();
    });
}

#[test]
fn lost_and_misdirected_writes_are_found() {
    each(async |bench, shape, random| {
        let (array, twin) = bench.filled(shape, random).await;
        let start = bench.data_offset().await;
        let slot = random.below(shape.members as u64) as usize;
        for effect in [Effect::Lost, Effect::Rot] {
            let fault = Fault::new(effect).on(Operation::Write).one_in(2);
            bench.controls[slot].add(fault.within(start..start + USED_BYTES));
            for _ in 0..60 {
                let (offset, bytes) = range(random, array.facts().size_bytes);
                twin.write(offset, &random_bytes(random, bytes as usize), &[]).await;
            }
            bench.controls[slot].clear();
            bench.ask_all_copies(&twin).await;
        }
        let wrong = wrong(&array);
        assert!(wrong[slot] > 0, "{shape:?}: {wrong:?}");
        assert_eq!(wrong.iter().sum::<u64>(), wrong[slot], "only that member lied");
        array.stop().await.unwrap();
    });
}

/// Two of four copies lie behind one bridge that drops writes for a while.
#[test]
fn b07_members_behind_a_bad_bridge_are_named() {
    let world = World::virtual_time(7);
    let bench = Bench::new(&world, 4, 7);
    let shape = Shape { level: Level::Raid1, layout: 0, members: 4, chunk_bytes: None };
    world.block_on(async {
        let mut random = SplitMix64::new(7);
        let (array, twin) = bench.filled(shape, &mut random).await;
        for slot in [1, 3] {
            bench.controls[slot].add(Fault::new(Effect::Lost).on(Operation::Write));
        }
        for _ in 0..50 {
            let (offset, bytes) = range(&mut random, array.facts().size_bytes);
            twin.write(offset, &random_bytes(&mut random, bytes as usize), &[]).await;
        }
        for slot in [1, 3] {
            bench.controls[slot].clear();
        }
        bench.ask_all_copies(&twin).await;
        let wrong = wrong(&array);
        assert!(wrong[1] > 0 && wrong[3] > 0, "{wrong:?}");
        assert_eq!((wrong[0], wrong[2]), (0, 0));
        array.stop().await.unwrap();
    });
    world.end();
}

#[test]
fn b13_only_what_no_copy_has_any_more_is_an_error() {
    let world = World::virtual_time(13);
    let bench = Bench::new(&world, 2, 13);
    world.block_on(async {
        let mut random = SplitMix64::new(13);
        let (array, twin) = bench.filled(SHAPES[0], &mut random).await;
        array.flush().await.unwrap();
        let start = bench.data_offset().await;
        let bad = [0, 3, 4, 17, 40, 41, 90, 127];
        for block in bad {
            for control in &bench.controls {
                control.rot(start + block * BLOCK + random.below(BLOCK)).await.unwrap();
            }
        }
        // Blocks that one copy has are put together from both, even within one request.
        bench.controls[0].rot(start + 60 * BLOCK).await.unwrap();
        bench.controls[1].rot(start + 61 * BLOCK).await.unwrap();
        twin.check(42 * BLOCK, 40 * BLOCK as usize).await;
        for block in 0..USED_BYTES / BLOCK {
            if !bad.contains(&block) {
                twin.check(block * BLOCK, BLOCK as usize).await;
                continue;
            }
            let buffers = ReadBufs::from_iter([world.pool().take(BLOCK as usize)]);
            let error = array.read(block * BLOCK, buffers).await.result.unwrap_err();
            assert_eq!(
                (error.kind, error.offset, error.bytes),
                (ErrorKind::Lost, block * BLOCK, BLOCK)
            );
            assert_eq!(&*error.drive, "sums");
        }
        // Written anew, they are fine.
        for block in bad {
            twin.write(block * BLOCK, &random_bytes(&mut random, BLOCK as usize), &[]).await;
        }
        twin.check_all().await;
        array.stop().await.unwrap();
    });
    world.end();
}

/// A drive that can be added to the bench's array, larger than the others.
fn newcomer(world: &World, name: &str) -> (Rc<dyn Drive>, FaultControl) {
    let memory = Rc::new(MemoryDrive::new(name, DRIVE_BYTES + 8192, 512));
    let faulty = Faulty::new(world, memory, 1);
    let control = faulty.control();
    (Rc::new(faulty), control)
}

/// Members that came later keep checksums too: of what filled them, and of what is written then.
#[test]
fn members_that_come_later_are_compared_too() {
    each(async |bench, shape, random| {
        let (array, twin) = bench.filled(shape, random).await;
        let start = bench.data_offset().await;
        let in_use = array.add_member(Rc::clone(&bench.drives[0])).await.unwrap_err();
        assert!(matches!(in_use, MemberError::Present(_)), "{in_use}");
        let (spare, spare_control) = newcomer(&bench.world, "spare");
        array.fail_member(1).await.unwrap();
        array.add_member(Rc::clone(&spare)).await.unwrap();
        let (replacement, replacement_control) = newcomer(&bench.world, "replacement");
        array.background_done().await;
        assert_eq!(array.status().checksums, Some(ChecksumStatus::Valid), "{shape:?}: filled");
        array.replace_member(0, Rc::clone(&replacement)).await.unwrap();
        for _ in 0..20 {
            let (offset, bytes) = range(random, array.facts().size_bytes);
            twin.write(offset, &random_bytes(random, bytes as usize), &[]).await;
        }
        array.background_done().await;
        let status = array.status();
        assert!(status.slots.iter().all(|slot| slot.state == SlotState::InSync), "{shape:?}");
        assert_eq!(status.checksums, Some(ChecksumStatus::Valid), "{shape:?}: replaced");
        assert_eq!(wrong(&array), vec![0; shape.members], "{shape:?}");
        // Believed at the next start, with no pass over the data.
        array.stop().await.unwrap();
        let mut drives = bench.drives.clone();
        (drives[0], drives[1]) = (Rc::clone(&replacement), Rc::clone(&spare));
        let array = bench.open_on(drives).await;
        assert_eq!(array.status().checksums, Some(ChecksumStatus::Valid), "{shape:?}: reopened");
        let twin = again(&bench.world, &array, &twin);
        for (slot, control) in [(1, &spare_control), (0, &replacement_control)] {
            for row in 0..USED_BYTES / BLOCK {
                control.rot(start + row * BLOCK + random.below(BLOCK)).await.unwrap();
            }
            // All of it, parity too, is mended before the next member rots.
            array.start_check().unwrap();
            array.background_done().await;
            assert!(wrong(&array)[slot] > 0, "{shape:?}: slot {slot}");
            twin.check_all().await;
        }
        array.stop().await.unwrap();
    });
}

/// A member that left in order brings its checksums along, one that vanished in the middle of
/// writes gets new ones; either is compared then, with what it missed filled in by the bitmap.
#[test]
fn a_member_that_comes_back_is_compared_too() {
    each(async |bench, shape, random| {
        for vanishes in [false, true] {
            let array = bench.create_with(shape, Consistency::Bitmap { chunk_bytes: None }).await;
            let twin = twin(&bench.world, &array);
            let bytes = twin.flat.borrow().len();
            twin.write(0, &random_bytes(random, bytes), &[]).await;
            let start = bench.data_offset().await;
            // Bits are cleared and checksums settled, before it leaves and after.
            bench.world.sleep(Duration::from_secs(30)).await;
            if vanishes {
                bench.controls[1].add(Fault::new(Effect::Fail(ErrorKind::Gone)));
            } else {
                array.fail_member(1).await.unwrap();
            }
            for _ in 0..20 {
                let (offset, bytes) = range(random, array.facts().size_bytes);
                twin.write(offset, &random_bytes(random, bytes as usize), &[]).await;
            }
            bench.controls[1].clear();
            assert_eq!(array.status().slots[1].state, SlotState::Faulty, "{shape:?}");
            assert_eq!(array.readd_member(Rc::clone(&bench.drives[1])).await.unwrap().slot, 1);
            array.background_done().await;
            let status = array.status();
            assert_eq!(status.slots[1].state, SlotState::InSync, "{shape:?}");
            assert_eq!(status.checksums, Some(ChecksumStatus::Valid), "{shape:?}: {vanishes}");
            twin.check_all().await;
            assert_eq!(wrong(&array), vec![0; shape.members], "{shape:?}: {vanishes}");
            for row in 0..USED_BYTES / BLOCK {
                bench.controls[1].rot(start + row * BLOCK + random.below(BLOCK)).await.unwrap();
            }
            bench.ask_all_copies(&twin).await;
            array.background_done().await;
            assert!(wrong(&array)[1] > 0, "{shape:?}: {vanishes}");
            array.stop().await.unwrap();
        }
    });
}

/// Found by a history: a member left while others were being written, rotted, and came back by the
/// bitmap without any checksum, so that nobody could know who was right.
#[test]
fn a_member_that_left_amid_writes_keeps_the_checksums_of_what_was_at_rest() {
    each(async |bench, shape, random| {
        let bitmap = Consistency::Bitmap { chunk_bytes: Some(64 << 10) };
        let array = bench.create_with(shape, bitmap).await;
        let twin = twin(&bench.world, &array);
        bench.busy(&twin, random).await;
        bench.controls[1].add(Fault::new(Effect::Fail(ErrorKind::Gone)));
        twin.write(0, &random_bytes(random, 64 << 10), &[]).await;
        bench.controls[1].clear();
        assert_eq!(array.status().slots[1].state, SlotState::Faulty, "{shape:?}");
        let start = bench.data_offset().await;
        for row in 0..USED_BYTES / BLOCK {
            bench.controls[1].rot(start + row * BLOCK + random.below(BLOCK)).await.unwrap();
        }
        array.readd_member(Rc::clone(&bench.drives[1])).await.unwrap();
        array.background_done().await;
        twin.check_all().await;
        bench.ask_all_copies(&twin).await;
        array.start_check().unwrap();
        array.background_done().await;
        assert!(wrong(&array)[1] > 0, "{shape:?}");
        let scrub = array.status().scrub.unwrap();
        assert_eq!(scrub.counts.mismatched_bytes, 0, "{shape:?}: {:?}", scrub.findings);
        array.stop().await.unwrap();
    });
}

/// A drive that is to replace a member goes on as such after a restart, and then is compared.
#[test]
fn a_replacement_goes_on_with_checksums_after_a_restart() {
    each(async |bench, shape, random| {
        let (array, twin) = bench.filled(shape, random).await;
        let (other, _) = newcomer(&bench.world, "other");
        array.hold_jobs().await;
        array.replace_member(0, Rc::clone(&other)).await.unwrap();
        for _ in 0..20 {
            let (offset, bytes) = range(random, array.facts().size_bytes);
            twin.write(offset, &random_bytes(random, bytes as usize), &[]).await;
        }
        array.stop().await.unwrap();
        let mut drives = bench.drives.clone();
        drives.push(Rc::clone(&other));
        let array = bench.open_on(drives).await;
        let twin = again(&bench.world, &array, &twin);
        twin.check_all().await;
        array.background_done().await;
        let status = array.status();
        assert!(status.slots.iter().all(|slot| slot.state == SlotState::InSync), "{shape:?}");
        assert_eq!(&*status.slots[0].drive.clone().unwrap(), "other", "{shape:?}");
        assert_eq!(status.checksums, Some(ChecksumStatus::Valid), "{shape:?}");
        twin.check_all().await;
        assert_eq!(wrong(&array), vec![0; shape.members], "{shape:?}");
        array.stop().await.unwrap();
    });
}

/// A check mends what is not what its checksum says, and calls nothing else wrong.
#[test]
fn a_check_rewrites_what_has_rotted() {
    each(async |bench, shape, random| {
        let (array, twin) = bench.filled(shape, random).await;
        array.flush().await.unwrap();
        let start = bench.data_offset().await;
        let mut rotten = vec![0; shape.members];
        for (row, slot) in (0..).zip(victims(shape, random)).step_by(5) {
            bench.controls[slot].rot(start + row * BLOCK + random.below(BLOCK)).await.unwrap();
            rotten[slot] += 1;
        }
        array.start_check().unwrap();
        array.background_done().await;
        let first = wrong(&array);
        assert!(first.iter().zip(&rotten).all(|(found, laid)| found >= laid), "{shape:?}");
        array.start_check().unwrap();
        array.background_done().await;
        assert_eq!(wrong(&array), first, "all of it has been mended: {shape:?}");
        assert_eq!(array.status().checksums, Some(ChecksumStatus::Valid), "{shape:?}");
        twin.check_all().await;
        array.stop().await.unwrap();
    });
}

/// A superblock as md writes it.
fn plain(superblock: &Superblock) -> Superblock {
    Superblock { recovery_offset_or_journal_tail: 0, ..superblock.clone() }
}

/// As md leaves a set it has dirtied and made clean again: the same event count, another time.
#[test]
fn what_somebody_else_wrote_is_not_called_wrong() {
    each(async |bench, shape, random| {
        let (array, twin) = bench.filled(shape, random).await;
        array.stop().await.unwrap();
        let mut before = Vec::new();
        let start = bench.data_offset().await;
        for slot in 0..shape.members {
            let superblock = bench.superblock(slot).await;
            before.push((superblock, bench.raw(slot, 0, DRIVE_BYTES).await));
        }
        // The stand-in for md: the same engine, which does not see the checksums' header.
        for (slot, (superblock, _)) in before.iter().enumerate() {
            bench.store(slot, 4096, &plain(superblock).build()).await;
            bench.store(slot, start - 2 * BLOCK, &[0; 2 * BLOCK as usize]).await;
        }
        let other_array = bench.open().await;
        assert_eq!(other_array.status().checksums, None);
        let other = again(&bench.world, &other_array, &twin);
        for _ in 0..30 {
            let (offset, bytes) = range(random, other_array.facts().size_bytes);
            other.write(offset, &random_bytes(random, bytes as usize), &[]).await;
        }
        other_array.stop().await.unwrap();
        for (slot, (superblock, drive)) in before.iter().enumerate() {
            let headers = (start - 2 * BLOCK) as usize..start as usize;
            bench.store(slot, start - 2 * BLOCK, &drive[headers]).await;
            let updated = format::md::Timestamp::new(1_800_000_777, 0);
            let touched = Superblock { updated, ..plain(superblock) };
            bench.store(slot, 4096, &touched.build()).await;
        }
        let array = bench.open().await;
        assert!(matches!(array.status().checksums, Some(ChecksumStatus::Rebuilding { .. })));
        let twin = again(&bench.world, &array, &other);
        twin.check_all().await;
        array.background_done().await;
        assert_eq!(array.status().checksums, Some(ChecksumStatus::Valid));
        twin.check_all().await;
        assert_eq!(wrong(&array), vec![0; shape.members], "{shape:?}");
        // ... and they are worth something again.
        bench.controls[0].rot(start).await.unwrap();
        bench.controls[0].rot(start + USED_BYTES / 2).await.unwrap();
        for _ in 0..4 {
            twin.check_all().await;
        }
        array.stop().await.unwrap();
        // Had only the data changed, nobody would have been allowed to.
        let array = bench.open().await;
        assert_eq!(array.status().checksums, Some(ChecksumStatus::Valid));
        array.stop().await.unwrap();
    });
}

/// Found by a history: rot could not be written anew, which left its blocks without checksums, and
/// a read that was under way took them for good.
#[test]
fn what_is_wrong_stays_so_when_it_can_t_be_written_anew() {
    each(async |bench, shape, random| {
        let (array, twin) = bench.filled(shape, random).await;
        array.flush().await.unwrap();
        let start = bench.data_offset().await;
        let area = start..start + USED_BYTES;
        bench.rot_everywhere(shape, random).await;
        for control in &bench.controls {
            let slow = Effect::Delay(Duration::from_millis(1));
            control.add(Fault::new(slow).on(Operation::Read));
            let fails = Effect::Fail(ErrorKind::Media);
            control.add(Fault::new(fails).on(Operation::Write).within(area.clone()));
        }
        let blocks = twin.flat.borrow().len() as u64 / BLOCK;
        for block in 0..blocks.min(32) {
            let checks = (0..40).map(async |turn| {
                bench.world.sleep(Duration::from_micros(turn * 200)).await;
                twin.check(block * BLOCK, BLOCK as usize).await;
            });
            join_all(checks.collect::<Vec<_>>()).await;
        }
        bench.controls.iter().for_each(FaultControl::clear);
    });
}

/// Found by a history: a write failed on a member that had lost the one before, and a read that
/// came before the member was out got what nobody was to see any more.
#[test]
fn a_failed_write_leaves_what_was_there_or_what_was_to_be() {
    each(async |bench, shape, random| {
        let (array, twin) = bench.filled(shape, random).await;
        array.flush().await.unwrap();
        let start = bench.data_offset().await;
        bench.rot_everywhere(shape, random).await;
        bench.controls[0].add(Fault::new(Effect::Fail(ErrorKind::Gone)).on(Operation::Write));
        for control in &bench.controls {
            let slow = Effect::Delay(Duration::from_millis(1));
            control.add(Fault::new(slow).within(start..start + USED_BYTES));
            // The others' superblocks say late who is out.
            let slow = Effect::Delay(Duration::from_millis(20));
            control.add(Fault::new(slow).on(Operation::Write).within(0..16384));
        }
        let old = twin.flat.borrow().clone();
        let new = random_bytes(random, old.len());
        let block =
            |of: &[u8], block: usize| of[block * BLOCK as usize..][..BLOCK as usize].to_vec();
        let reads = (0..16 * 60).map(async |number| {
            let (at, turn) = (number / 60, number as u64 % 60);
            bench.world.sleep(Duration::from_micros(turn * 200)).await;
            let buffers = ReadBufs::from_iter([bench.world.pool().take(BLOCK as usize)]);
            let done = array.read(at as u64 * BLOCK, buffers).await;
            done.result.unwrap();
            let read = done.buffers[0].to_vec();
            assert!(read == block(&old, at) || read == block(&new, at), "{shape:?}, block {at}");
        });
        let writes = (0..16).map(async |at| {
            let content = bench.world.pool().copy_of(&block(&new, at));
            let buffers = WriteBufs::from_iter([content]);
            array.write(at as u64 * BLOCK, buffers, Durability::Cached).await.unwrap();
        });
        let all = writes.map(boxed).chain(reads.map(boxed));
        join_all(all.collect::<Vec<_>>()).await;
        assert_eq!(array.status().slots[0].state, SlotState::Faulty, "{shape:?}");
    });
}

/// What the bitmap does not call restless keeps its checksums in a cut, also when it was written
/// long after the array was last at rest.
#[test]
fn with_a_bitmap_a_cut_costs_only_the_checksums_of_what_was_being_written() {
    const FIRST: u64 = 128 << 10;
    each(async |bench, shape, random| {
        let bitmap = Consistency::Bitmap { chunk_bytes: Some(64 << 10) };
        let array = bench.create_with(shape, bitmap).await;
        array.stop().await.unwrap();
        bench.controls.iter().for_each(|control| control.set_volatile_cache(true));
        let (drives, plugs) = bench.plugged();
        let array = bench.open_on(drives).await;
        let before = twin(&bench.world, &array);
        bench.busy(&before, random).await;
        let dirty = array.status().bitmap.unwrap().dirty_chunks;
        assert_eq!(dirty, 1, "{shape:?}");
        for control in &bench.controls {
            control.power_cut(random.next_u64()).await.unwrap();
        }
        for plug in &plugs {
            plug.add(Fault::new(Effect::Fail(ErrorKind::Gone)));
        }
        bench.controls.iter().for_each(FaultControl::power_on);
        // While the power was off, everything rots that is not in the first bit's chunk.
        let start = bench.data_offset().await;
        for (row, slot) in (0..).zip(victims(shape, random)) {
            let at = row * BLOCK;
            let far_copy = at / (USED_BYTES / 2) * (USED_BYTES / 2);
            if at - far_copy >= 64 << 10 {
                bench.controls[slot].rot(start + at + random.below(BLOCK)).await.unwrap();
            }
        }
        let scan = Scan::of(bench.world.pool(), bench.drives.clone()).await;
        let array = scan.open(&bench.world, &scan.assemblies[0], MODE).await.unwrap();
        array.set_policy(patient());
        array.hold_jobs().await;
        let after = again(&bench.world, &array, &before);
        for at in (FIRST..array.facts().size_bytes).step_by(BLOCK as usize) {
            after.check(at, BLOCK as usize).await;
        }
        assert!(wrong(&array).iter().sum::<u64>() > 0, "{shape:?}");
        array.resume_jobs();
        array.background_done().await;
        assert_eq!(array.status().checksums, Some(ChecksumStatus::Valid), "{shape:?}");
        array.stop().await.unwrap();
    });
}

/// After a cut nothing is called wrong that only lost its race with the power, and afterwards
/// everything has a checksum again.
#[test]
fn a_power_cut_leaves_no_checksum_that_is_wrong() {
    each(async |bench, shape, random| {
        let (array, _) = bench.filled(shape, random).await;
        array.stop().await.unwrap();
        let (drives, mut plugs) = bench.plugged();
        let mut array = bench.open_on(drives).await;
        for round in 0..12 {
            for control in &bench.controls {
                control.set_volatile_cache(true);
            }
            let size = array.facts().size_bytes;
            let writing = async {
                for _ in 0..20 {
                    let (offset, bytes) = range(random, size);
                    let (offset, bytes) =
                        (offset / BLOCK * BLOCK, bytes.next_multiple_of(BLOCK).min(64 << 10));
                    let bytes = bytes.min(size - offset);
                    let content = random_bytes(random, bytes as usize);
                    let buffers = WriteBufs::from_iter([bench.world.pool().copy_of(&content)]);
                    let _ = array.write(offset, buffers, Durability::Cached).await;
                    match random.below(8) {
                        0 => drop(array.flush().await),
                        1 => bench.world.sleep(Duration::from_secs(6)).await,
                        _ => {}
                    }
                }
                random.next_u64()
            };
            let seed = writing.await;
            if round % 3 == 0 {
                bench.world.sleep(Duration::from_secs(20)).await;
            }
            let cuts = bench.controls.iter().map(|control| control.power_cut(seed));
            for cut in join_all(cuts.collect::<Vec<_>>()).await {
                cut.unwrap();
            }
            // What the old process still wants to do never happens.
            for plug in &plugs {
                plug.add(Fault::new(Effect::Fail(ErrorKind::Gone)));
            }
            bench.controls.iter().for_each(FaultControl::power_on);
            let drives;
            (drives, plugs) = bench.plugged();
            array = bench.open_on(drives).await;
            let whole = array.facts().size_bytes as usize;
            let read = async |array: &Array| {
                let buffers = ReadBufs::from_iter([bench.world.pool().take(whole)]);
                let done = array.read(0, buffers).await;
                done.result.unwrap();
                done.buffers[0].to_vec()
            };
            let settled = read(&array).await;
            array.background_done().await;
            assert_eq!(array.status().checksums, Some(ChecksumStatus::Valid), "round {round}");
            assert!(read(&array).await == settled, "round {round}");
            assert!(array.status().slots.iter().all(|slot| slot.state == SlotState::InSync));
            assert_eq!(wrong(&array), vec![0; shape.members], "{shape:?}, round {round}");
        }
        array.stop().await.unwrap();
    });
}
