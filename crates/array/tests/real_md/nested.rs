//! Arrays of arrays: the engine's raid0 over its raid1, raid5 and raid6 is md's too, in both
//! layers.

use std::fmt::Write;
use std::rc::Rc;

use drive::Drive;
use geometry::Level;
use world::{SplitMix64, World};

use crate::attach;
use crate::guest::Bench;
use crate::sets::{
    READ_ONLY, READ_WRITE, Set, drives, fill, images, open, random_bytes, read_all, real_world,
    request, used_images,
};
use crate::shapes::{PLAIN, RAID5, RAID6, Shape};

/// Legs of each outer array.
const LEGS: usize = 2;

/// Stripes over the legs in chunks that are no multiple of the legs' own.
const OUTER: Shape = Shape {
    level: Level::Raid0,
    layout: None,
    layout_word: "",
    chunk_kib: 96,
    members: LEGS,
    losses: 0,
};

fn leg_name(name: &str, leg: usize) -> String {
    format!("{name}-leg{leg}")
}

fn create(bench: &Bench, name: &str, inner: Shape) -> Set {
    let mut random = SplitMix64::new(3);
    let world = real_world();
    let content = world.block_on(async {
        let mut legs = Vec::new();
        for leg in 0..LEGS {
            let leg = leg_name(name, leg);
            let images = images(&leg, inner.members);
            used_images(bench, &images, &inner.image_bytes(), &mut random);
            let slots = drives(&world, bench, &images).into_iter().map(Some).collect();
            // The identity is made of the name's first letters.
            let mut request = request(&inner, &leg, slots);
            request.uuid.reverse();
            legs.push(request.create(&world).await.unwrap());
        }
        let slots = legs.iter().map(|leg| Some(Rc::new(leg.clone()) as Rc<dyn Drive>)).collect();
        let outer = request(&OUTER, name, slots).create(&world).await.unwrap();
        let content = random_bytes(&mut random, outer.facts().size_bytes as usize);
        fill(&world, &outer, &content).await;
        outer.stop().await.unwrap();
        for leg in &legs {
            leg.background_done().await;
            leg.stop().await.unwrap();
        }
        content
    });
    world.end();
    Set { name: name.to_owned(), shape: OUTER, content, random }
}

/// Opens both layers without one member of each leg, in another slot each, and compares.
fn read_without_members(bench: &Bench, set: &Set, inner: Shape) {
    let world: World = real_world();
    world.block_on(async {
        let mut legs: Vec<Rc<dyn Drive>> = Vec::new();
        for leg in 0..LEGS {
            let mut images = images(&leg_name(&set.name, leg), inner.members);
            images.remove(leg);
            legs.push(Rc::new(open(&world, &drives(&world, bench, &images), READ_ONLY).await));
        }
        let outer = open(&world, &legs, READ_ONLY).await;
        set.compare("written by md, read without members", &read_all(&world, &outer).await);
    });
    world.end();
}

/// Opens both layers, writes, and stops them.
fn write(bench: &Bench, set: &mut Set, inner: Shape) {
    let world: World = real_world();
    world.block_on(async {
        let mut legs = Vec::new();
        for leg in 0..LEGS {
            let images = images(&leg_name(&set.name, leg), inner.members);
            legs.push(open(&world, &drives(&world, bench, &images), READ_WRITE).await);
        }
        let drives: Vec<_> = legs.iter().map(|leg| Rc::new(leg.clone()) as Rc<dyn Drive>).collect();
        let outer = open(&world, &drives, READ_WRITE).await;
        set.compare("written by md", &read_all(&world, &outer).await);
        set.scribble(&world, &outer).await;
        outer.stop().await.unwrap();
        for leg in legs {
            leg.stop().await.unwrap();
        }
    });
    world.end();
}

/// The guest's words that start both layers.
fn assemble(set: &Set, inner: Shape) -> String {
    let mut words = String::from("all=\n");
    for leg in 0..LEGS {
        writeln!(
            words,
            "{}
             mdadm --assemble /dev/md{} $devices
             all=\"$all $devices\"",
            attach(&leg_name(&set.name, leg), inner.members),
            leg + 1
        )
        .unwrap();
    }
    words + "mdadm --assemble $md --readonly /dev/md1 /dev/md2\n"
}

#[test]
fn both_layers_are_mds_too() {
    let Some(bench) = Bench::new("both_layers_are_mds_too") else { return };
    let inners = [PLAIN[6], RAID5[4], RAID6[15]];
    let mut all: Vec<Set> = (0..)
        .zip(inners)
        .map(|(index, inner): (usize, Shape)| create(&bench, &format!("{index}-nested"), inner))
        .collect();
    let end = "mdadm --stop $md\nmdadm --stop /dev/md1\nmdadm --stop /dev/md2\n\
               devices=$all\ndetach\n";
    let mut script = String::new();
    let mut written = Vec::new();
    for (set, inner) in all.iter_mut().zip(inners) {
        written.push(set.content.clone());
        let name = set.name.clone();
        let pieces = set.pieces(&bench, &format!("{name}-new"));
        script += &assemble(set, inner);
        writeln!(
            script,
            "dd if=$md of=/run/images/{name}-read bs=1M
             mdadm --readwrite $md
             {pieces}"
        )
        .unwrap();
        script += end;
    }
    bench.run(&script);
    let mut script = String::new();
    for ((set, inner), written) in all.iter_mut().zip(inners).zip(written) {
        let newest = std::mem::replace(&mut set.content, written);
        let read = std::fs::read(bench.path(&format!("{}-read", set.name))).unwrap();
        set.compare("read by md", &read);
        set.content = newest;
        read_without_members(&bench, set, inner);
        write(&bench, set, inner);
        script += &assemble(set, inner);
        writeln!(script, "dd if=$md of=/run/images/{}-again bs=1M", set.name).unwrap();
        for leg in 1..=LEGS {
            writeln!(script, "sys=/sys/block/md{leg}/md\ncheck {}-{leg}", set.name).unwrap();
        }
        script += "sys=/sys/block/md0/md\n";
        script += end;
    }
    let report = bench.run(&script);
    for set in &all {
        let read = std::fs::read(bench.path(&format!("{}-again", set.name))).unwrap();
        set.compare("read by md again", &read);
        for leg in 1..=LEGS {
            assert_eq!(report.get(&format!("{}-{leg}", set.name), "mismatches"), "0");
        }
    }
}
