//! Power cuts at every redundant level with every consistency policy, both ways: what one side
//! left amid writes the other recovers. What was flushed is there, what was in flight is old or
//! new, and afterwards all redundancy agrees. Where a log closes the write hole that holds also
//! when a member goes with the power.

use std::fmt::Write;
use std::time::Duration;

use array::ScrubState;
use drive::Drive;

use crate::guest::Bench;
use crate::rack::{Case, Expected, Policy, Rack, cases};
use crate::sets::{READ_ONLY, READ_WRITE, Set, drives, images, open, read_all, real_world};

/// Seeds for each case; a bench holds the images of one.
const SEEDS: u64 = 2;

/// Parts of the array that are written at once, every second of them when the power goes.
const LANES: usize = 24;

/// Made, filled, written and flushed, written, and cut off amid more. Gives what it may read as,
/// and how many writes were in flight.
fn cut_off(bench: &Bench, name: &str, case: Case, seed: u64) -> (Expected, usize) {
    let mut rack = Rack::new(name, case, &case.image_bytes(), seed);
    let world = rack.world.clone();
    let (expected, in_flight) = world.block_on(async {
        let (array, mut expected) = rack.create_filled().await;
        rack.caches_on();
        let flushed = rack.write_some(&array, &mut expected, LANES, false).await;
        assert!(flushed.iter().all(Result::is_ok), "{}", rack.what());
        array.flush().await.unwrap();
        expected.settle();
        let cached = rack.write_some(&array, &mut expected, LANES, false).await;
        assert!(cached.iter().all(Result::is_ok), "{}", rack.what());
        let writes = rack.write_some(&array, &mut expected, LANES, true);
        world.sleep(Duration::from_nanos(rack.random.below(1_500_000))).await;
        rack.cut().await;
        let in_flight = writes.await.iter().filter(|result| result.is_err()).count();
        (expected, in_flight)
    });
    rack.dump(bench);
    (expected, in_flight)
}

/// The member that goes with the power, if the case can bear it.
fn lost(case: Case, seed: u64, index: usize) -> Option<usize> {
    case.logged().then_some((seed as usize + index) % case.shape.members)
}

/// The guest's words to attach a set's images but one.
fn attach_but(images: &[String], lost: usize) -> String {
    let left = images.iter().enumerate().filter(|(slot, _)| *slot != lost);
    let left: Vec<&str> = left.map(|(_, image)| image.as_str()).collect();
    format!("attach {}", left.join(" "))
}

/// The guest's words to recover a set, check it and read it. An array starts auto-read-only, and a
/// check that it is asked for then would take the place of its resync.
fn recover(images: &[String], name: &str) -> String {
    format!(
        "attach {}
         mdadm --assemble $md $devices
         mdadm --readwrite $md
         idle
         say {name} repaired $(cat $sys/mismatch_cnt)
         say {name} resync_from $(cat $sys/resync_start)
         check {name}
         dd if=$md of=/run/images/{name}-read bs=1M
         mdadm --stop $md
         detach",
        images.join(" ")
    )
}

#[test]
fn md_recovers_every_level_and_policy_that_the_engine_left() {
    let mut in_flight_sum = 0;
    for seed in 0..SEEDS {
        let Some(bench) = Bench::new("md_recovers_every_level_and_policy_that_the_engine_left")
        else {
            return;
        };
        let mut script = String::new();
        let mut all = Vec::new();
        for (index, case) in cases().into_iter().enumerate() {
            let name = format!("set{index}");
            let (expected, in_flight) = cut_off(&bench, &name, case, seed * 100 + index as u64);
            in_flight_sum += in_flight;
            let images = images(&name, case.image_bytes().len());
            if let Some(lost) = lost(case, seed, index) {
                for image in &images {
                    let copy = bench.path(&format!("{image}-copy"));
                    std::fs::copy(bench.path(image), copy).unwrap();
                }
                let copies: Vec<String> =
                    images.iter().map(|image| format!("{image}-copy")).collect();
                writeln!(
                    script,
                    "{}
                     mdadm --assemble $md --run $devices
                     say {name} degraded $(cat $sys/degraded)
                     dd if=$md of=/run/images/{name}-degraded bs=1M
                     mdadm --stop $md
                     detach",
                    attach_but(&copies, lost)
                )
                .unwrap();
            }
            writeln!(script, "{}", recover(&images, &name)).unwrap();
            all.push((name, case, expected, lost(case, seed, index)));
        }
        let report = bench.run(&script);
        let mut repaired = 0;
        for (name, case, expected, lost) in all {
            let what = format!("{name}, seed {seed}: {case:?}");
            if lost.is_some() {
                assert_eq!(report.get(&name, "degraded"), "1", "{what}");
                let read = std::fs::read(bench.path(&format!("{name}-degraded"))).unwrap();
                let what = format!("{what}, read by md without {lost:?}");
                expected.settled_only().check(&what, &read);
            }
            assert_eq!(report.get(&name, "mismatches"), "0", "{what}");
            assert_eq!(report.get(&name, "resync_from"), "none", "{what}");
            repaired += report.get(&name, "repaired").parse::<u64>().unwrap();
            let read = std::fs::read(bench.path(&format!("{name}-read"))).unwrap();
            expected.check(&what, &read);
        }
        assert!(repaired > 0, "no power cut left anything to resync");
    }
    assert!(in_flight_sum > 0, "nothing was in flight at any power cut");
}

/// The engine recovers a set, and finds nothing wrong with it. Gives what it reads.
fn recover_in_engine(bench: &Bench, images: &[String], expected: &Expected, what: &str) -> Vec<u8> {
    let world = real_world();
    let drives = drives(&world, bench, images);
    let content = world.block_on(async {
        let array = open(&world, &drives, READ_WRITE).await;
        array.background_done().await;
        assert_eq!(array.status().synced_to_bytes, None, "{what}");
        let content = read_all(&world, &array).await;
        array.start_check().unwrap();
        array.background_done().await;
        let scrub = array.status().scrub.unwrap();
        assert_eq!(scrub.state, ScrubState::Done, "{what}");
        assert_eq!((scrub.counts.findings, scrub.counts.skipped_bytes), (0, 0), "{what}");
        array.stop().await.unwrap();
        content
    });
    world.end();
    expected.check(what, &content);
    content
}

#[test]
fn the_engine_recovers_every_level_and_policy_that_md_left() {
    let mut unlike = 0;
    for seed in 0..SEEDS {
        let Some(bench) = Bench::new("the_engine_recovers_every_level_and_policy_that_md_left")
        else {
            return;
        };
        let (mut before, mut after) = (String::new(), String::new());
        let mut all = Vec::new();
        for (index, case) in cases().into_iter().enumerate() {
            let name = format!("set{index}");
            let mut rack = Rack::new(&name, case, &case.image_bytes(), seed * 100 + index as u64);
            let world = rack.world.clone();
            let content = world.block_on(async {
                let (array, expected) = rack.create_filled().await;
                array.stop().await.unwrap();
                expected.new
            });
            let (images, random) = (rack.images(), rack.random.clone());
            rack.dump(&bench);
            let mut set = Set { name: name.clone(), shape: case.shape, content, random };
            let flushed = set.pieces(&bench, &format!("{name}-flushed"));
            let mut expected = Expected::of(set.content.clone());
            let in_flight = set.pieces(&bench, &format!("{name}-in-flight"));
            expected.new.clone_from(&set.content);
            let this = format!("md=/dev/md{index}\nsys=/sys/block/md{index}/md");
            // Left alone md would mark the array clean.
            writeln!(
                before,
                "{this}
                 attach {}
                 mdadm --assemble $md $devices
                 echo 600 > $sys/safe_mode_delay
                 {flushed}
                 sync $md",
                images.join(" ")
            )
            .unwrap();
            writeln!(after, "{this}\n({in_flight}) &").unwrap();
            if (index as u64 + seed).is_multiple_of(2) {
                writeln!(after, "sync /run/images/{name}-0").unwrap();
            }
            all.push((name, case, expected, images));
        }
        // All of them are being written when the power goes.
        bench.run_until_power_cut(&format!("{before}\n{after}\nsleep 0.{seed}5"));
        let mut script = String::new();
        let mut contents = Vec::new();
        for (index, (name, case, expected, images)) in all.iter().enumerate() {
            let what = format!("{name}, seed {seed}: {case:?}");
            if let Some(lost) = lost(*case, seed, index) {
                let mut left = images.clone();
                left.remove(lost);
                let world = real_world();
                let drives = drives(&world, &bench, &left);
                let content = world.block_on(async {
                    let array = open(&world, &drives, READ_ONLY).await;
                    read_all(&world, &array).await
                });
                world.end();
                let what = format!("{what}, read by the engine without {lost}");
                expected.settled_only().check(&what, &content);
            }
            let content = recover_in_engine(&bench, images, expected, &what);
            unlike += usize::from(content != expected.new);
            contents.push(content);
            writeln!(script, "{}", recover(images, name)).unwrap();
        }
        let report = bench.run(&script);
        for ((name, case, ..), content) in all.iter().zip(contents) {
            let what = format!("{name}, seed {seed}: {case:?}");
            assert_eq!(report.get(name, "repaired"), "0", "md resynced it again: {what}");
            assert_eq!(report.get(name, "mismatches"), "0", "{what}");
            let read = std::fs::read(bench.path(&format!("{name}-read"))).unwrap();
            assert!(read == content, "it reads otherwise through md: {what}");
        }
    }
    assert!(unlike > 0, "every write was done before the power went");
}

/// What the tables of the tests rely on: no level and no policy is left out.
#[test]
fn every_policy_has_its_turn() {
    let all = cases();
    let with = |policy| all.iter().filter(|case| case.policy == policy).count();
    let policies = [Policy::Resync, Policy::Bitmap, Policy::Ppl, Policy::Journal];
    assert_eq!(policies.map(with), [8, 8, 1, 3]);
}
