//! Power cuts with a write-intent bitmap: the other side resyncs what the bits say and nothing
//! else, and afterwards redundancy is right and every block is the old or the new one.

use std::fmt::Write;
use std::rc::Rc;

use array::{Consistency, NewArray, Scan};
use drive::{Drive, Durability, Faulty, MemoryDrive};
use format::md::{BITMAP_HEADER_BYTES, BitmapHeader, ConsistencyPlace};
use world::{SplitMix64, World, WriteBufs};

use crate::attach;
use crate::dirty::old_or_new;
use crate::guest::Bench;
use crate::sets::{
    READ_WRITE, Set, drives, fill, images, open, random_bytes, read_all, real_world, request,
};
use crate::shapes::{PLAIN, RAID5, RAID6, RAID10, Shape};

/// A bit stands for this much of each member, on raid10 of the array.
const BITMAP_CHUNK: u32 = 64 << 10;

fn shapes() -> [Shape; 4] {
    [PLAIN[6], RAID10[9], RAID5[4], RAID6[2]]
}

/// Gives the bitmaps of a stopped set chunks of [`BITMAP_CHUNK`], all of them dirty.
pub async fn shorten_bitmap_chunks(world: &World, drives: &[Rc<dyn Drive>]) {
    let scan = Scan::of(world.pool(), drives.to_vec()).await;
    for candidate in &scan.candidates {
        let ConsistencyPlace::Bitmap { start } = candidate.view.consistency else { panic!() };
        let drive = drives[candidate.drive].as_ref();
        let bytes = array::read_bytes(world.pool(), drive, start, BITMAP_HEADER_BYTES).await;
        let header = BitmapHeader::parse(&bytes.unwrap()).unwrap();
        let mut area = BitmapHeader { chunk_bytes: BITMAP_CHUNK, ..header }.build();
        area.resize(4096, 0xff);
        let buffers = WriteBufs::from_iter([world.pool().copy_of(&area)]);
        drive.write(start, buffers, Durability::Durable).await.unwrap();
    }
}

/// A new set with a small bitmap chunk, filled, in sync and stopped; all bits are clear.
async fn create(world: &World, shape: Shape, name: &str, drives: &[Rc<dyn Drive>]) -> Set {
    let mut random = SplitMix64::new(name.len() as u64);
    let slots = drives.iter().cloned().map(Some).collect();
    let plain = request(&shape, name, slots);
    let request = NewArray { consistency: Consistency::Bitmap { chunk_bytes: None }, ..plain };
    request.create(world).await.unwrap().stop().await.unwrap();
    shorten_bitmap_chunks(world, drives).await;
    let array = open(world, drives, READ_WRITE).await;
    let content = random_bytes(&mut random, array.facts().size_bytes as usize);
    fill(world, &array, &content).await;
    array.background_done().await;
    array.stop().await.unwrap();
    Set { name: name.to_owned(), shape, content, random }
}

/// Some writes close to each other, so that few bits are set, none over another.
async fn write_in_a_corner(world: &World, array: &dyn Drive, set: &mut Set) {
    for index in 0..12 {
        let (offset, bytes) = (index * 12 * 512, (1 + set.random.below(12)) * 512);
        let new = random_bytes(&mut set.random, bytes as usize);
        set.content[offset as usize..][..new.len()].copy_from_slice(&new);
        let buffers = WriteBufs::from_iter([world.pool().copy_of(&new)]);
        array.write(offset, buffers, Durability::Cached).await.unwrap();
    }
}

/// Left by the engine in the middle of writes, on drives with caches.
fn cut_off(bench: &Bench, name: &str, shape: Shape) -> (Set, Vec<u8>) {
    let world = World::virtual_time(11);
    let memory: Vec<Rc<MemoryDrive>> = images(name, shape.members)
        .iter()
        .zip(shape.image_bytes())
        .map(|(image, bytes)| Rc::new(MemoryDrive::new(image, bytes, 512)))
        .collect();
    let faulty: Vec<Rc<Faulty>> = memory
        .iter()
        .zip(1..)
        .map(|(memory, seed)| Rc::new(Faulty::new(&world, Rc::clone(memory) as _, seed)))
        .collect();
    let all: Vec<Rc<dyn Drive>> = faulty.iter().map(|drive| Rc::clone(drive) as _).collect();
    let (set, old) = world.block_on(async {
        let mut set = create(&world, shape, name, &all).await;
        let old = set.content.clone();
        let array = open(&world, &all, READ_WRITE).await;
        faulty.iter().for_each(|drive| drive.control().set_volatile_cache(true));
        write_in_a_corner(&world, &array, &mut set).await;
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
fn md_resyncs_what_the_engines_bitmap_says() {
    let Some(bench) = Bench::new("md_resyncs_what_the_engines_bitmap_says") else { return };
    let mut script = String::new();
    let mut all = Vec::new();
    for (index, shape) in shapes().into_iter().enumerate() {
        let (set, old) = cut_off(&bench, &format!("set{index}"), shape);
        let name = &set.name;
        writeln!(
            script,
            "{}
             first=${{devices# }}
             first=${{first%% *}}
             say {name} bits $(mdadm --examine-bitmap $first | grep Bitmap | tr -dc '0-9 ')
             mdadm --assemble $md --readonly $devices
             say {name} resync_from $(cat $sys/resync_start)
             before=$(cat /sys/block/${{first#/dev/}}/stat)
             mdadm --readwrite $md
             idle
             after=$(cat /sys/block/${{first#/dev/}}/stat)
             set -- $before
             was=$3
             set -- $after
             say {name} sectors $(($3 - $was + $7))
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
        let bits = report.get(name, "bits");
        let dirty: u64 = bits.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert!((1..=2).contains(&dirty), "{bits}: {shape:?}");
        assert_eq!(report.get(name, "mismatches"), "0", "{shape:?}");
        // What md read and wrote on a member is not the member.
        let sectors: u64 = report.get(name, "sectors").parse().unwrap();
        assert!(sectors * 512 < shape.image_bytes()[0] / 3, "{sectors} sectors: {shape:?}");
        let read = std::fs::read(bench.path(&format!("{name}-read"))).unwrap();
        old_or_new(&set, &old, &read);
    }
}

#[test]
fn the_engine_resyncs_what_mds_bitmap_says() {
    let Some(bench) = Bench::new("the_engine_resyncs_what_mds_bitmap_says") else { return };
    let (mut before, mut after) = (String::new(), String::new());
    let mut all = Vec::new();
    for (index, shape) in shapes().into_iter().enumerate() {
        let name = format!("set{index}");
        for (image, bytes) in images(&name, shape.members).iter().zip(shape.image_bytes()) {
            drive::create_file(&bench.path(image), bytes).unwrap();
        }
        let world = real_world();
        let drives = drives(&world, &bench, &images(&name, shape.members));
        let mut set = world.block_on(create(&world, shape, &name, &drives));
        drop(drives);
        world.end();
        let old = set.content.clone();
        let new = random_bytes(&mut set.random, 32 << 10);
        std::fs::write(bench.path(&format!("{name}-new")), &new).unwrap();
        set.content[..new.len()].copy_from_slice(&new);
        writeln!(
            before,
            "md=/dev/md{index}
             sys=/sys/block/md{index}/md
             {}
             mdadm --assemble $md $devices
             echo 600 > $sys/safe_mode_delay",
            attach(&name, shape.members)
        )
        .unwrap();
        writeln!(
            after,
            "md=/dev/md{index}
             scatter {name}-new 512 0 40 4096 6 2
             sync /run/images/{name}-0"
        )
        .unwrap();
        all.push((set, old));
    }
    bench.run_until_power_cut(&format!("{before}\nsync\n{after}"));
    let mut script = String::new();
    for (set, old) in &mut all {
        let world = real_world();
        let drives = drives(&world, &bench, &set.images());
        let content = world.block_on(async {
            let array = open(&world, &drives, READ_WRITE).await;
            let bitmap = array.status().bitmap.unwrap();
            assert!((1..=2).contains(&bitmap.unsynced_chunks), "{bitmap:?}: {:?}", set.shape);
            array.background_done().await;
            let content = read_all(&world, &array).await;
            array.stop().await.unwrap();
            content
        });
        world.end();
        old_or_new(set, old, &content);
        set.content = content;
        let name = &set.name;
        writeln!(
            script,
            "{}
             mdadm --assemble $md $devices
             check {name}
             dd if=$md of=/run/images/{name}-read bs=1M
             mdadm --stop $md
             detach",
            attach(name, set.shape.members)
        )
        .unwrap();
    }
    let report = bench.run(&script);
    for (set, _) in &all {
        assert_eq!(report.get(&set.name, "mismatches"), "0", "{:?}", set.shape);
        let read = std::fs::read(bench.path(&format!("{}-read", set.name))).unwrap();
        set.compare("read by md after the engine's resync", &read);
    }
}
