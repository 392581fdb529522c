//! Power cuts of arrays with a log: what one side's log holds, the other replays.

use std::fmt::Write;
use std::rc::Rc;
use std::time::Duration;

use array::{Consistency, NewArray};
use drive::{Drive, Durability, Effect, Fault, Faulty, MemoryDrive};
use world::{World, WriteBufs, join_all};

use crate::attach;
use crate::examine::examine;
use crate::guest::Bench;
use crate::sets::{
    READ_WRITE, Set, drives, fill, images, open, random_bytes, read_all, real_world, request,
};
use crate::shapes::{RAID5, RAID6, Shape};

/// Arrays with a partial parity log, and with a journal on a further image.
const LOGGED: [(Shape, bool); 4] =
    [(RAID5[4], false), (RAID5[8], false), (RAID5[4], true), (RAID6[2], true)];

/// Blocks of an array with a journal.
const BLOCK: usize = 4096;

fn logged(shape: &Shape, name: &str, drives: Vec<Rc<dyn Drive>>, journal: bool) -> NewArray {
    let mut slots = drives;
    let consistency = match slots.pop_if(|_| journal) {
        Some(drive) => Consistency::Journal(drive),
        None => Consistency::Ppl,
    };
    NewArray { consistency, ..request(shape, name, slots.into_iter().map(Some).collect()) }
}

/// The sizes of the members' images, and of the journal's.
fn sizes(shape: &Shape, journal: bool) -> Vec<u64> {
    let mut sizes = shape.image_bytes();
    sizes.extend(journal.then_some(8 << 20));
    sizes
}

fn old_or_new(name: &str, old: &[u8], new: &[u8], content: &[u8]) {
    assert_eq!(content.len(), old.len(), "{name}");
    let blocks = content.chunks(512).zip(old.chunks(512)).zip(new.chunks(512));
    let wrong = blocks.enumerate().find(|(_, ((is, old), new))| is != old && is != new);
    assert_eq!(wrong.map(|(block, _)| block), None, "{name} holds what was never written");
}

/// Makes an array and cuts its power while it is written. Gives its old and its new content.
fn cut_off(bench: &Bench, name: &str, shape: &Shape, journal: bool) -> (Vec<u8>, Vec<u8>) {
    let world = World::virtual_time(11);
    let mut random = world::SplitMix64::new(name.len() as u64);
    let sizes = sizes(shape, journal);
    let names = images(name, sizes.len());
    let drive = |(image, &bytes): (&String, &u64)| Rc::new(MemoryDrive::new(image, bytes, 512));
    let memory: Vec<Rc<MemoryDrive>> = names.iter().zip(&sizes).map(drive).collect();
    let faulty = memory.iter().map(|m| Faulty::new(&world, Rc::clone(m) as Rc<dyn Drive>, 5));
    let faulty: Vec<Rc<Faulty>> = faulty.map(Rc::new).collect();
    let contents = world.block_on(async {
        let all = faulty.iter().map(|drive| Rc::clone(drive) as Rc<dyn Drive>).collect();
        let array = logged(shape, name, all, journal).create(&world).await.unwrap();
        let old = random_bytes(&mut random, array.facts().size_bytes as usize);
        fill(&world, &array, &old).await;
        array.background_done().await;
        array.flush().await.unwrap();
        for drive in &faulty {
            drive.control().set_volatile_cache(true);
            let delay = Duration::from_micros(100 + random.below(100));
            drive.control().add(Fault::new(Effect::Delay(delay)));
        }
        let mut new = old.clone();
        let mut writes = Vec::new();
        let lane = new.len() / 24 / BLOCK;
        for index in 0..24 {
            let blocks = 1 + random.below(lane.min(30) as u64) as usize;
            let start = (index * lane + random.below((lane - blocks + 1) as u64) as usize) * BLOCK;
            let bytes = random_bytes(&mut random, blocks * BLOCK);
            new[start..][..bytes.len()].copy_from_slice(&bytes);
            let buffers = WriteBufs::from_iter([world.pool().copy_of(&bytes)]);
            writes.push(array.write(start as u64, buffers, Durability::Cached));
        }
        let writes = world.spawn(join_all(writes));
        // Superblocks, reads and logs take up to 600 µs one after the other, then data goes out.
        world.sleep(Duration::from_micros(620)).await;
        for (drive, seed) in faulty.iter().zip(100..) {
            drive.control().power_cut(seed).await.unwrap();
        }
        let written = writes.await.iter().filter(|result| result.is_ok()).count();
        assert!(written < 24, "{name}: nothing was in flight");
        for (memory, image) in memory.iter().zip(&names) {
            let content = read_all(&world, memory.as_ref()).await;
            std::fs::write(bench.path(image), content).unwrap();
        }
        (old, new)
    });
    world.end();
    contents
}

#[test]
fn md_recovers_from_the_engines_logs() {
    let Some(bench) = Bench::new("md_recovers_from_the_engines_logs") else { return };
    let mut script = String::new();
    let mut all = Vec::new();
    for (index, (shape, journal)) in LOGGED.into_iter().enumerate() {
        let name = format!("set{index}");
        let contents = cut_off(&bench, &name, &shape, journal);
        let members = sizes(&shape, journal).len();
        let said = examine(&bench.path(&images(&name, members)[members - 1]));
        if journal {
            assert_eq!(said.get("Device Role"), "Journal");
        } else {
            assert!(said.get("PPL").starts_with("2048 sectors at offset 8 sectors"));
        }
        writeln!(
            script,
            "{}
             mdadm --assemble $md $devices
             idle
             check {name}
             dd if=$md of=/run/images/{name}-read bs=1M
             mdadm --stop $md
             detach",
            attach(&name, members)
        )
        .unwrap();
        all.push((name, contents));
    }
    let report = bench.run(&script);
    for (name, (old, new)) in all {
        assert_eq!(report.get(&name, "mismatches"), "0", "{name}");
        old_or_new(&name, &old, &new, &std::fs::read(bench.path(&format!("{name}-read"))).unwrap());
    }
}

#[test]
fn the_engine_recovers_from_mds_logs() {
    let Some(bench) = Bench::new("the_engine_recovers_from_mds_logs") else { return };
    let (mut before, mut after, mut all) = (String::new(), String::new(), Vec::new());
    for (index, (shape, journal)) in LOGGED.into_iter().enumerate() {
        let name = format!("set{index}");
        let sizes = sizes(&shape, journal);
        let names = images(&name, sizes.len());
        let mut random = world::SplitMix64::new(index as u64);
        crate::sets::used_images(&bench, &names, &sizes, &mut random);
        let world = real_world();
        let all_drives = drives(&world, &bench, &names);
        let content = world.block_on(async {
            let array = logged(&shape, &name, all_drives, journal).create(&world).await.unwrap();
            let content = random_bytes(&mut random, array.facts().size_bytes as usize);
            fill(&world, &array, &content).await;
            array.background_done().await;
            array.stop().await.unwrap();
            content
        });
        world.end();
        let mut set = Set { name: name.clone(), shape, content, random };
        let old = set.content.clone();
        let writes = set.pieces(&bench, &format!("{name}-new"));
        let this = format!("md=/dev/md{index}\nsys=/sys/block/md{index}/md");
        writeln!(
            before,
            "{this}
             {}
             mdadm --assemble $md $devices
             echo 600 > $sys/safe_mode_delay",
            attach(&name, names.len())
        )
        .unwrap();
        writeln!(after, "{this}\n{writes}\nsync /run/images/{name}-0").unwrap();
        all.push((set, old, names));
    }
    bench.run_until_power_cut(&format!("{before}\nsync\n{after}"));
    let mut script = String::new();
    let mut read = Vec::new();
    for (set, old, names) in &all {
        let world = real_world();
        let drives = drives(&world, &bench, names);
        let content = world.block_on(async {
            let array = open(&world, &drives, READ_WRITE).await;
            array.background_done().await;
            let content = read_all(&world, &array).await;
            array.stop().await.unwrap();
            content
        });
        world.end();
        old_or_new(&set.name, old, &set.content, &content);
        writeln!(
            script,
            "{}
             mdadm --assemble $md $devices
             check {name}
             dd if=$md of=/run/images/{name}-read bs=1M
             mdadm --stop $md
             detach",
            attach(&set.name, names.len()),
            name = set.name
        )
        .unwrap();
        read.push(content);
    }
    let report = bench.run(&script);
    for ((set, ..), content) in all.iter().zip(read) {
        assert_eq!(report.get(&set.name, "mismatches"), "0", "{}", set.name);
        let md = std::fs::read(bench.path(&format!("{}-read", set.name))).unwrap();
        assert!(md == content, "{} reads otherwise through md", set.name);
    }
}
