//! Power cuts: an array that was cut off while it was written is dirty to the other side, which
//! resyncs it; afterwards copies and parity are right, and every block is the old or the new one.

use std::fmt::Write;
use std::rc::Rc;

use array::{AssembleError, OpenMode, Scan};
use drive::{Drive, Durability, Faulty, MemoryDrive};
use format::md::{Refusal, Resync};
use geometry::Level;
use world::{World, WriteBufs};

use crate::attach;
use crate::examine::examine;
use crate::guest::Bench;
use crate::sets::{
    READ_WRITE, Set, drives, fill, images, open, random_bytes, read_all, real_world, request,
};
use crate::shapes::{PLAIN, RAID5, RAID6, RAID10, Shape, chosen};

/// One of each way to keep data twice, or parity.
fn shapes() -> Vec<Shape> {
    let plain = PLAIN.iter().filter(|shape| shape.losses > 0);
    let raid10 = [0, 4, 9].map(|index| &RAID10[index]);
    let raid5 = [0, 4, 5].map(|index| &RAID5[index]);
    let raid6 = [2, 8].map(|index| &RAID6[index]);
    let all: Vec<Shape> = plain.chain(raid10).chain(raid5).chain(raid6).copied().collect();
    chosen(&all)
}

fn has_parity(shape: &Shape) -> bool {
    matches!(shape.level, Level::Raid4 | Level::Raid5 | Level::Raid6)
}

/// Every block is as it was before the last writes or after them.
pub fn old_or_new(set: &Set, old: &[u8], content: &[u8]) {
    assert_eq!(content.len(), old.len(), "{:?}", set.shape);
    let blocks = content.chunks(512).zip(old.chunks(512)).zip(set.content.chunks(512));
    for (index, ((is, old), new)) in blocks.enumerate() {
        assert!(is == old || is == new, "block {index} of {}: {:?}", set.name, set.shape);
    }
}

/// An array of the engine's on drives with caches, cut off after writes that no flush followed.
/// Gives it as it should read with those writes, and as it read before them.
fn cut_off(bench: &Bench, name: &str, shape: Shape, failed: Option<usize>) -> (Set, Vec<u8>) {
    let world = World::virtual_time(7);
    let mut random = world::SplitMix64::new(name.len() as u64);
    let memory: Vec<Rc<MemoryDrive>> = images(name, shape.members)
        .iter()
        .zip(shape.image_bytes())
        .map(|(image, bytes)| Rc::new(MemoryDrive::new(image, bytes, 512)))
        .collect();
    let drive = |(memory, seed): (&Rc<MemoryDrive>, u64)| {
        Rc::new(Faulty::new(&world, Rc::clone(memory) as Rc<dyn Drive>, seed))
    };
    let faulty: Vec<Rc<Faulty>> = memory.iter().zip(1..).map(drive).collect();
    let (set, old) = world.block_on(async {
        for memory in &memory {
            let used = random_bytes(&mut random, memory.facts().size_bytes as usize);
            let buffers = WriteBufs::from_iter([world.pool().copy_of(&used)]);
            memory.write(0, buffers, Durability::Cached).await.unwrap();
        }
        let slots = faulty.iter().map(|drive| Some(Rc::clone(drive) as Rc<dyn Drive>)).collect();
        let array = request(&shape, name, slots).create(&world).await.unwrap();
        let content = random_bytes(&mut random, array.facts().size_bytes as usize);
        let mut set = Set { name: name.to_owned(), shape, content, random: random.clone() };
        fill(&world, &array, &set.content).await;
        array.background_done().await;
        if let Some(slot) = failed {
            array.fail_member(slot).await.unwrap();
        }
        array.flush().await.unwrap();
        let old = set.content.clone();
        for drive in &faulty {
            drive.control().set_volatile_cache(true);
        }
        set.scribble_once(&world, &array, 40).await;
        for (drive, seed) in faulty.iter().zip(100..) {
            drive.control().power_cut(seed).await.unwrap();
        }
        for (memory, image) in memory.iter().zip(set.images()) {
            let content = read_all(&world, memory.as_ref()).await;
            std::fs::write(bench.path(&image), content).unwrap();
        }
        (set, old)
    });
    world.end();
    (set, old)
}

#[test]
fn md_resyncs_what_the_engine_left_dirty() {
    let Some(bench) = Bench::new("md_resyncs_what_the_engine_left_dirty") else { return };
    let mut script = String::new();
    let mut all = Vec::new();
    for (index, shape) in shapes().into_iter().enumerate() {
        let (set, old) = cut_off(&bench, &format!("set{index}"), shape, None);
        for image in set.images() {
            assert_eq!(examine(&bench.path(&image)).get("State"), "active", "{shape:?}");
        }
        let name = &set.name;
        writeln!(
            script,
            "{}
             mdadm --assemble $md --readonly $devices
             say {name} resync_from $(cat $sys/resync_start)
             mdadm --readwrite $md
             idle
             say {name} repaired $(cat $sys/mismatch_cnt)
             check {name}
             dd if=$md of=/run/images/{name}-read bs=1M
             mdadm --stop $md
             detach",
            attach(name, shape.members)
        )
        .unwrap();
        all.push((set, old));
    }
    let report = bench.run(&script);
    for (set, old) in all {
        let (name, shape) = (&set.name, &set.shape);
        assert_eq!(report.get(name, "resync_from"), "0", "{shape:?}");
        // A resync of copies does not count what it changes.
        let repaired = report.get(name, "repaired") != "0" || !has_parity(shape);
        assert!(repaired, "the power cut left parity right: {shape:?}");
        assert_eq!(report.get(name, "mismatches"), "0", "{shape:?}");
        let read = std::fs::read(bench.path(&format!("{name}-read"))).unwrap();
        old_or_new(&set, &old, &read);
        for image in set.images() {
            assert_eq!(examine(&bench.path(&image)).get("State"), "clean", "{shape:?}");
        }
    }
}

#[test]
fn the_engine_resyncs_what_md_left_dirty() {
    let Some(bench) = Bench::new("the_engine_resyncs_what_md_left_dirty") else { return };
    let create = |(index, shape)| Set::create(&bench, &format!("set{index}"), shape, index as u64);
    let mut all: Vec<Set> = shapes().into_iter().enumerate().map(create).collect();
    let mut before = String::new();
    let mut after = String::new();
    let mut old = Vec::new();
    for (index, set) in all.iter_mut().enumerate() {
        let name = set.name.clone();
        let safe = set.pieces(&bench, &format!("{name}-safe"));
        old.push(set.content.clone());
        let unsafe_ = set.pieces(&bench, &format!("{name}-unsafe"));
        let this = format!("md=/dev/md{index}\nsys=/sys/block/md{index}/md");
        // Left alone md would mark the array clean, and its members with it.
        writeln!(
            before,
            "{this}
             {}
             mdadm --assemble $md $devices
             echo 600 > $sys/safe_mode_delay
             {safe}",
            attach(&name, set.shape.members)
        )
        .unwrap();
        writeln!(after, "{this}\n{unsafe_}\nsync /run/images/{name}-0").unwrap();
    }
    bench.run_until_power_cut(&format!("{before}\nsync\n{after}"));
    let mut script = String::new();
    for (set, old) in all.iter_mut().zip(&old) {
        for image in set.images() {
            assert_eq!(examine(&bench.path(&image)).get("State"), "active", "{:?}", set.shape);
        }
        resync(&bench, set, old);
        let name = &set.name;
        writeln!(
            script,
            "{}
             mdadm --assemble $md --readonly $devices
             dd if=$md of=/run/images/{name}-read bs=1M
             mdadm --readwrite $md
             check {name}
             mdadm --stop $md
             detach",
            attach(name, set.shape.members)
        )
        .unwrap();
    }
    let report = bench.run(&script);
    for set in &all {
        assert_eq!(report.get(&set.name, "mismatches"), "0", "{:?}", set.shape);
        let read = std::fs::read(bench.path(&format!("{}-read", set.name))).unwrap();
        set.compare("read by md after the engine's resync", &read);
        for image in set.images() {
            assert_eq!(examine(&bench.path(&image)).get("State"), "clean", "{:?}", set.shape);
        }
    }
}

/// The engine makes a dirty array agree with itself; what it reads then is what the array holds.
fn resync(bench: &Bench, set: &mut Set, old: &[u8]) {
    let world = real_world();
    let drives = drives(&world, bench, &set.images());
    let content = world.block_on(async {
        let scan = Scan::of(world.pool(), drives).await;
        let view = &scan.candidates[scan.assemblies[0].reference].view;
        assert_eq!(view.resync, Resync::From(0), "{:?}", set.shape);
        let array = scan.open(&world, &scan.assemblies[0], READ_WRITE).await.unwrap();
        array.background_done().await;
        assert_eq!(array.status().synced_to_bytes, None);
        let content = read_all(&world, &array).await;
        array.stop().await.unwrap();
        content
    });
    world.end();
    old_or_new(set, old, &content);
    set.content = content;
}

/// Nobody starts a dirty array without a member unasked: what was being written may be lost on it.
#[test]
fn dirty_and_degraded_is_refused_until_forced() {
    let Some(bench) = Bench::new("dirty_and_degraded_is_refused_until_forced") else { return };
    let mut script = String::new();
    let mut all = Vec::new();
    for (index, shape) in [RAID5[4], RAID5[0]].into_iter().enumerate() {
        let (set, old) = cut_off(&bench, &format!("set{index}"), shape, Some(1));
        let world = real_world();
        let opened = world.block_on(async {
            let drives = drives(&world, &bench, &set.images());
            let scan = Scan::of(world.pool(), drives.clone()).await;
            let result = scan.open(&world, &scan.assemblies[0], READ_WRITE).await;
            let forced = OpenMode { force_dirty: true, ..crate::READ_ONLY };
            open(&world, &drives, forced).await;
            result.map(|_| ())
        });
        world.end();
        let refused = AssembleError::Refused(Refusal::DirtyDegraded);
        assert_eq!(opened.unwrap_err().to_string(), refused.to_string());
        // md would take back a member that is only one event behind.
        let events = |slot: usize| examine(&bench.path(&set.images()[slot])).number("Events");
        assert!(events(1) + 2 <= events(0), "{shape:?}");
        let name = &set.name;
        writeln!(
            script,
            "{}
             if mdadm --assemble $md --run $devices; then
                 say {name} started by itself
             else
                 say {name} started no
             fi
             mdadm --stop $md || say {name} stopped already
             mdadm --assemble $md --run --force $devices
             dd if=$md of=/run/images/{name}-read bs=1M
             mdadm --stop $md
             detach",
            attach(name, shape.members)
        )
        .unwrap();
        all.push((set, old));
    }
    let report = bench.run(&script);
    for (set, old) in all {
        assert_eq!(report.get(&set.name, "started"), "no", "{:?}", set.shape);
        let read = std::fs::read(bench.path(&format!("{}-read", set.name))).unwrap();
        assert_eq!(read.len(), old.len());
    }
}
