//! Arrays that start with members missing, a spare that md uses, and parity that is wrong.

use std::fmt::Write;

use array::{Health, Scan};
use drive::Drive;
use format::md::Verdict;
use world::SplitMix64;

use crate::attach;
use crate::examine::examine;
use crate::guest::Bench;
use crate::sets::{
    READ_ONLY, Set, drives, fill, images, random_bytes, read_all, real_world, request, used_images,
};
use crate::shapes::{PLAIN, RAID5, RAID6, RAID10, Shape};

/// Makes an array without the members in `missing`, and with a spare if asked.
fn create(bench: &Bench, name: &str, shape: Shape, missing: &[usize], spare: bool) -> Set {
    let mut random = SplitMix64::new(11);
    let images = images(name, shape.members + usize::from(spare));
    let size = shape.image_bytes()[0];
    used_images(bench, &images, &vec![size; images.len()], &mut random);
    let world = real_world();
    let mut drives: Vec<_> = drives(&world, bench, &images).into_iter().map(Some).collect();
    for &slot in missing {
        drives[slot] = None;
    }
    let spares = drives.split_off(shape.members);
    let content = world.block_on(async {
        let mut request = request(&shape, name, drives);
        request.spares = spares.into_iter().flatten().collect();
        let array = request.create(&world).await.unwrap_or_else(|error| panic!("{error}"));
        let content = random_bytes(&mut random, array.facts().size_bytes as usize);
        fill(&world, &array, &content).await;
        array.background_done().await;
        array.stop().await.unwrap();
        content
    });
    world.end();
    Set { name: name.to_owned(), shape, content, random }
}

#[test]
fn md_starts_what_was_created_with_members_missing() {
    let Some(bench) = Bench::new("md_starts_what_was_created_with_members_missing") else { return };
    let cases: [(Shape, &[usize]); 6] = [
        (PLAIN[6], &[0]),
        (RAID10[0], &[2]),
        (RAID5[0], &[3]),
        (RAID5[4], &[1]),
        (RAID6[2], &[0]),
        (RAID6[10], &[1, 4]),
    ];
    let mut script = String::new();
    let mut all = Vec::new();
    for (index, (shape, missing)) in cases.into_iter().enumerate() {
        let set = create(&bench, &format!("set{index}"), shape, missing, false);
        let mut images = set.images();
        for &slot in missing.iter().rev() {
            images.remove(slot);
        }
        let name = &set.name;
        writeln!(
            script,
            "attach {}
             mdadm --assemble $md --run --readonly $devices
             say {name} degraded $(cat $sys/degraded)
             dd if=$md of=/run/images/{name}-read bs=1M
             mdadm --stop $md
             detach",
            images.join(" ")
        )
        .unwrap();
        all.push((set, missing));
    }
    let report = bench.run(&script);
    for (set, missing) in all {
        let degraded = report.get(&set.name, "degraded");
        assert_eq!(degraded, missing.len().to_string(), "{:?}", set.shape);
        let read = std::fs::read(bench.path(&format!("{}-read", set.name))).unwrap();
        set.compare("created degraded, read by md", &read);
    }
}

/// A member fails in the engine; md rebuilds onto the engine's spare; the engine takes it over.
#[test]
fn md_rebuilds_onto_the_engines_spare() {
    let Some(bench) = Bench::new("md_rebuilds_onto_the_engines_spare") else { return };
    let mut script = String::new();
    let mut all = Vec::new();
    for (index, shape) in [PLAIN[6], RAID10[0], RAID5[4], RAID6[2]].into_iter().enumerate() {
        let mut set = create(&bench, &format!("set{index}"), shape, &[], true);
        let spare = format!("{}-{}", set.name, shape.members);
        assert_eq!(examine(&bench.path(&spare)).get("Device Role"), "spare", "{shape:?}");
        let world = real_world();
        let drives = drives(&world, &bench, &images(&set.name, shape.members + 1));
        world.block_on(async {
            let array = crate::open(&world, &drives, crate::READ_WRITE).await;
            array.fail_member(1).await.unwrap();
            set.scribble(&world, &array).await;
            array.stop().await.unwrap();
        });
        world.end();
        let name = &set.name;
        writeln!(
            script,
            "{}
             mdadm --assemble $md --run $devices
             mdadm --readwrite $md
             until [ $(cat $sys/degraded) = 0 ]; do sleep 0.05; done
             check {name}
             dd if=$md of=/run/images/{name}-read bs=1M
             mdadm --stop $md
             detach",
            attach(name, shape.members + 1)
        )
        .unwrap();
        all.push(set);
    }
    let report = bench.run(&script);
    for set in all {
        let members = set.shape.members;
        assert_eq!(report.get(&set.name, "mismatches"), "0", "{:?}", set.shape);
        let read = std::fs::read(bench.path(&format!("{}-read", set.name))).unwrap();
        set.compare("rebuilt by md", &read);
        let world = real_world();
        let drives = drives(&world, &bench, &images(&set.name, members + 1));
        world.block_on(async {
            let scan = Scan::of(world.pool(), drives).await;
            let assembly = &scan.assemblies[0];
            assert_eq!(assembly.slots[1], Some(members), "{:?}", set.shape);
            let verdict = assembly.verdict(1).unwrap();
            assert!(matches!(verdict, Verdict::Stale { .. }), "{verdict}: {:?}", set.shape);
            let array = scan.open(&world, assembly, READ_ONLY).await.unwrap();
            assert_eq!(array.status().health, Health::ReadOnly);
            set.compare("rebuilt by md, read by the engine", &read_all(&world, &array).await);
        });
        world.end();
    }
}

/// md's check, which other tests rely on, does see a wrong byte.
#[test]
fn md_counts_what_does_not_agree() {
    let Some(bench) = Bench::new("md_counts_what_does_not_agree") else { return };
    let mut script = String::new();
    let shapes = [PLAIN[6], RAID10[0], RAID5[4], RAID6[2]];
    for (index, shape) in shapes.into_iter().enumerate() {
        let set = Set::create(&bench, &format!("set{index}"), shape, 5);
        let name = &set.name;
        // Somewhere in the data of the second member.
        let path = bench.path(&format!("{name}-1"));
        let mut image = std::fs::read(&path).unwrap();
        let place = 2 << 20;
        image[place] ^= 1;
        std::fs::write(&path, image).unwrap();
        writeln!(
            script,
            "{}
             mdadm --assemble $md $devices
             check {name}
             mdadm --stop $md
             detach",
            attach(name, shape.members)
        )
        .unwrap();
    }
    let report = bench.run(&script);
    for (index, shape) in shapes.iter().enumerate() {
        assert_ne!(report.get(&format!("set{index}"), "mismatches"), "0", "{shape:?}");
    }
}
