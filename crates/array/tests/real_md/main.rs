//! The engine against the real md driver, in both directions: what one wrote, the other assembles
//! and reads alike, healthy, degraded, and after a power cut.
//!
//! md runs in User-Mode Linux (`guest`). Each test makes its arrays on images in a temporary
//! folder, and lets the engine and md take turns on them; many arrays share a guest, since starting
//! one takes longer than what it has to do for an array. Where `linux.uml` or `mdadm` are not
//! installed, the tests say so and do nothing. `BACKPLANE_REAL_MD=all` takes every shape, which
//! takes minutes; without it every fourth has its turn.

#![allow(clippy::unwrap_used, reason = "a test ends with the first surprise")]

mod bitmap;
mod checksums;
mod cuts;
mod degraded;
mod dirty;
mod examine;
mod guest;
mod logs;
mod nested;
mod rack;
mod sets;
mod shapes;

use std::fmt::Write;

use array::{Health, Scan};
use examine::examine;
use format::md::Verdict;
use geometry::Level;
use guest::{Bench, Report};
use sets::{READ_ONLY, READ_WRITE, Set, drives, losses, open, read_all, real_world};
use shapes::Shape;

/// Arrays on one bench at a time: their images are in memory.
const SETS_PER_BENCH: usize = 9;

/// `mdadm --examine` names the set's shape and state as they are, on every image.
fn examined_as_it_is(bench: &Bench, set: &Set, failed: &[usize]) {
    let Set { shape, .. } = set;
    let world = real_world();
    let drives = drives(&world, bench, &set.images());
    let scan = world.block_on(Scan::of(world.pool(), drives));
    let mut array_state: String = "A".repeat(shape.members);
    for &slot in failed {
        array_state.replace_range(slot..=slot, ".");
    }
    for (slot, image) in set.images().iter().enumerate().filter(|(slot, _)| !failed.contains(slot))
    {
        let said = examine(&bench.path(image));
        let view = &scan.examined[slot].found[0].view;
        let expect = |key: &str, value: &str| {
            assert_eq!(said.get(key).trim_end(), value, "{key} of {image}: {shape:?}");
        };
        expect("Version", "1.2");
        expect("Raid Level", shape.level_word());
        expect("Raid Devices", &shape.members.to_string());
        expect("Layout", shape.layout_word);
        match (shape.level, shape.chunk_kib) {
            (Level::Raid1, _) => expect("Chunk Size", ""),
            (Level::Linear, 0) => expect("Rounding", "0K"),
            (Level::Linear, chunk) => expect("Rounding", &format!("{chunk}K")),
            (_, chunk) => expect("Chunk Size", &format!("{chunk}K")),
        }
        expect("State", "clean");
        expect("Device Role", &format!("Active device {slot}"));
        let state = said.get("Array State");
        assert!(state.starts_with(&format!("{array_state} ")), "{image}: {state}: {shape:?}");
        let checksum = said.get("Checksum");
        assert!(checksum.ends_with(" - correct"), "{image}: {checksum}");
        assert_eq!(said.number("Events"), view.events, "{image}");
        assert_eq!(said.number("Avail Dev Size") * 512, view.data_bytes, "{image}");
        assert_eq!(said.number("Data Offset") * 512, view.layout.data_offset_bytes, "{image}");
        if shape.losses > 0 {
            assert_eq!(said.number("Array Size") << 10, set.content.len() as u64, "{image}");
        }
        if !said.get("Used Dev Size").is_empty() {
            assert_eq!(said.number("Used Dev Size") * 512, view.used_bytes, "{image}");
        }
    }
    world.end();
}

/// The guest's words to make loop devices of a set's images.
pub fn attach(name: &str, members: usize) -> String {
    format!("attach {}", sets::images(name, members).join(" "))
}

/// md reads what the engine wrote, checks its redundancy, and writes itself.
fn first_turn(bench: &Bench, all: &mut [Set]) -> Report {
    let mut script = String::new();
    for set in all.iter_mut() {
        let name = set.name.clone();
        let pieces = set.pieces(bench, &format!("{name}-new"));
        let check = if set.shape.losses > 0 { format!("check {name}") } else { String::new() };
        let attach = attach(&name, set.shape.members);
        writeln!(
            script,
            "{attach}
             mdadm --assemble $md --readonly $devices
             dd if=$md of=/run/images/{name}-read bs=1M
             mdadm --readwrite $md
             {check}
             {pieces}
             mdadm --stop $md
             detach"
        )
        .unwrap();
    }
    bench.run(&script)
}

/// The engine and md take turns on arrays of these shapes.
fn take_turns(test: &str, shapes: &[Shape]) {
    let shapes = shapes::chosen(shapes);
    for (round, shapes) in shapes.chunks(SETS_PER_BENCH).enumerate() {
        let Some(bench) = Bench::new(test) else { return };
        let create = |(index, shape): (usize, &Shape)| {
            let seed = (round * 100 + index) as u64;
            Set::create(&bench, &format!("set{index}"), *shape, seed)
        };
        let mut all: Vec<Set> = shapes.iter().enumerate().map(create).collect();
        let mut written: Vec<Vec<u8>> = Vec::new();
        for set in &mut all {
            examined_as_it_is(&bench, set, &[]);
            written.push(set.content.clone());
        }
        let report = first_turn(&bench, &mut all);
        for (set, written) in all.iter_mut().zip(written) {
            let newest = std::mem::replace(&mut set.content, written);
            let read = std::fs::read(bench.path(&format!("{}-read", set.name))).unwrap();
            set.compare("read by md", &read);
            if set.shape.losses > 0 {
                let mismatches = report.get(&set.name, "mismatches");
                assert_eq!(mismatches, "0", "after the engine's writes: {:?}", set.shape);
            }
            set.content = newest;
            for lost in losses(set.shape.members, set.shape.losses) {
                set.reads_without(&bench, &lost);
            }
            examined_as_it_is(&bench, set, &[]);
        }
        let mut redundant: Vec<Set> = all.into_iter().filter(|set| set.shape.losses > 0).collect();
        if !redundant.is_empty() {
            lose_members(&bench, &mut redundant);
        }
    }
}

/// Members fail while the engine writes, and while md does; each then names and leaves out what
/// the other failed.
fn lose_members(bench: &Bench, all: &mut [Set]) {
    let mut script = String::new();
    let mut failed_by_engine: Vec<Set> = Vec::new();
    let mut failed = Vec::new();
    for set in all.iter_mut() {
        let members = set.shape.members;
        let first = set.random.below(members as u64) as usize;
        let lost: Vec<usize> =
            (0..set.shape.losses).map(|more| (first + 2 * more) % members).collect();
        let mut copy = Set {
            name: format!("{}-ours", set.name),
            content: set.content.clone(),
            random: set.random.clone(),
            shape: set.shape,
        };
        for (from, to) in set.images().iter().zip(copy.images()) {
            std::fs::copy(bench.path(from), bench.path(&to)).unwrap();
        }
        fail_in_engine(bench, &mut copy, &lost);
        let name = &copy.name;
        writeln!(
            script,
            "{}
             mdadm --assemble $md --run --readonly $devices
             say {name} degraded $(cat $sys/degraded)
             dd if=$md of=/run/images/{name}-read bs=1M
             mdadm --stop $md
             detach
             {}
             mdadm --assemble $md $devices",
            attach(name, members),
            attach(&set.name, members),
        )
        .unwrap();
        for slot in &lost {
            let before = set.pieces(bench, &format!("{}-before{slot}", set.name));
            let after = set.pieces(bench, &format!("{}-after{slot}", set.name));
            writeln!(script, "{before}\necho faulty > $sys/rd{slot}/state\n{after}").unwrap();
        }
        script.push_str("mdadm --stop $md\ndetach\n");
        failed_by_engine.push(copy);
        failed.push(lost);
    }
    let report = bench.run(&script);
    for ((set, copy), lost) in all.iter_mut().zip(&failed_by_engine).zip(&failed) {
        assert_eq!(report.get(&copy.name, "degraded"), lost.len().to_string(), "{:?}", copy.shape);
        let read = std::fs::read(bench.path(&format!("{}-read", copy.name))).unwrap();
        copy.compare("read by md, degraded by the engine", &read);
        examined_as_it_is(bench, copy, lost);
        examined_as_it_is(bench, set, lost);
        stale_members_are_left_out(bench, set, lost);
    }
}

/// The engine writes, loses a member in the middle of it, and writes on.
fn fail_in_engine(bench: &Bench, set: &mut Set, lost: &[usize]) {
    let world = real_world();
    let drives = drives(&world, bench, &set.images());
    world.block_on(async {
        let array = open(&world, &drives, READ_WRITE).await;
        for &slot in lost {
            let failing = {
                let array = array.clone();
                world.spawn(async move { array.fail_member(slot).await })
            };
            set.scribble(&world, &array).await;
            failing.await.unwrap();
            set.scribble(&world, &array).await;
        }
        set.compare("read by the engine, degraded", &read_all(&world, &array).await);
        array.stop().await.unwrap();
    });
    world.end();
}

/// The engine assembles what md left without the members that md failed, names them as stale, and
/// goes on.
fn stale_members_are_left_out(bench: &Bench, set: &mut Set, lost: &[usize]) {
    let world = real_world();
    let drives = drives(&world, bench, &set.images());
    world.block_on(async {
        let scan = Scan::of(world.pool(), drives.clone()).await;
        let assembly = &scan.assemblies[0];
        for &slot in lost {
            let verdict = assembly.verdict(slot).unwrap();
            let stale =
                matches!(verdict, Verdict::Stale { slot: Some(of), .. } if of == slot as u16);
            assert!(stale, "member {slot} is {verdict}: {:?}", set.shape);
            assert_eq!(assembly.slots[slot], None);
        }
        let array = scan.open(&world, assembly, READ_ONLY).await.unwrap();
        assert_eq!(array.status().health, Health::Degraded);
        set.compare("degraded by md", &read_all(&world, &array).await);
        let array = scan.open(&world, assembly, READ_WRITE).await.unwrap();
        set.scribble(&world, &array).await;
        set.compare("degraded by md, written", &read_all(&world, &array).await);
        array.stop().await.unwrap();
    });
    world.end();
}

#[test]
fn linear_raid0_and_raid1() {
    take_turns("linear_raid0_and_raid1", &shapes::PLAIN);
}

#[test]
fn raid10() {
    take_turns("raid10", &shapes::RAID10);
}

#[test]
fn raid4_and_raid5() {
    take_turns("raid4_and_raid5", &shapes::RAID5);
}

#[test]
fn raid6() {
    take_turns("raid6", &shapes::RAID6);
}
