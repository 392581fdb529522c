//! Sets with checksums: to md they are sets like any other, and what md writes is noticed.

use std::fmt::Write;

use array::{ChecksumStatus, NewArray};
use drive::Drive;
use world::{World, WriteBufs};

use crate::attach;
use crate::examine::examine;
use crate::guest::Bench;
use crate::sets::{
    READ_WRITE, Set, drives, fill, images, open, random_bytes, read_all, real_world, request,
    used_images,
};
use crate::shapes::{PLAIN, RAID5, RAID6, RAID10, Shape};

/// Made by the engine with checksums, filled and stopped.
fn create(bench: &Bench, name: &str, shape: Shape) -> Set {
    let mut random = world::SplitMix64::new(name.len() as u64 + shape.members as u64);
    let images = images(name, shape.members);
    used_images(bench, &images, &shape.image_bytes(), &mut random);
    let world = real_world();
    let slots = drives(&world, bench, &images).into_iter().map(Some).collect();
    let content = world.block_on(async {
        let request = NewArray { checksums: true, ..request(&shape, name, slots) };
        let array = request.create(&world).await.unwrap();
        let content = random_bytes(&mut random, array.facts().size_bytes as usize);
        fill(&world, &array, &content).await;
        array.background_done().await;
        assert_eq!(array.status().checksums, Some(ChecksumStatus::Valid), "{shape:?}");
        array.stop().await.unwrap();
        content
    });
    world.end();
    Set { name: name.to_owned(), shape, content, random }
}

/// Flips a byte of the first block of a member's data.
async fn spoil(world: &World, drive: &dyn Drive) {
    let examined = array::examine(world.pool(), drive).await;
    let at = examined.found[0].view.layout.data_offset_bytes;
    let mut bytes = array::read_bytes(world.pool(), drive, at, 512).await.unwrap();
    bytes[77] ^= 1;
    let buffers = WriteBufs::from_iter([bytes.freeze()]);
    drive.write(at, buffers, drive::Durability::Durable).await.unwrap();
}

#[test]
fn md_serves_sets_with_checksums_and_what_it_writes_is_noticed() {
    let name = "md_serves_sets_with_checksums_and_what_it_writes_is_noticed";
    let Some(bench) = Bench::new(name) else { return };
    let shapes = [PLAIN[6], RAID10[4], RAID5[4], RAID6[2]];
    let mut script = String::new();
    let mut all = Vec::new();
    for (index, shape) in shapes.into_iter().enumerate() {
        let mut set = create(&bench, &format!("set{index}"), shape);
        for image in set.images() {
            let said = examine(&bench.path(&image));
            assert_eq!(said.get("State"), "clean", "{shape:?}");
            assert!(said.get("Checksum").ends_with(" - correct"), "{shape:?}");
        }
        let written = set.content.clone();
        let name = set.name.clone();
        let pieces = set.pieces(&bench, &format!("{name}-new"));
        writeln!(
            script,
            "{}
             mdadm --assemble $md --readonly $devices
             dd if=$md of=/run/images/{name}-read bs=1M
             mdadm --readwrite $md
             check {name}
             {pieces}
             mdadm --stop $md
             detach",
            attach(&name, shape.members)
        )
        .unwrap();
        all.push((set, written));
    }
    let report = bench.run(&script);
    for (mut set, written) in all {
        let (name, shape) = (set.name.clone(), set.shape);
        assert_eq!(report.get(&name, "mismatches"), "0", "{shape:?}");
        let newest = std::mem::replace(&mut set.content, written);
        let read = std::fs::read(bench.path(&format!("{name}-read"))).unwrap();
        set.compare("read by md", &read);
        set.content = newest;
        let world = real_world();
        let drives = drives(&world, &bench, &set.images());
        world.block_on(async {
            let array = open(&world, &drives, READ_WRITE).await;
            let found = array.status().checksums;
            let rebuilding = matches!(found, Some(ChecksumStatus::Rebuilding { .. }));
            assert!(rebuilding, "{shape:?}: {found:?}");
            set.compare("written by md", &read_all(&world, &array).await);
            array.background_done().await;
            let status = array.status();
            assert_eq!(status.checksums, Some(ChecksumStatus::Valid), "{shape:?}");
            assert!(status.slots.iter().all(|slot| slot.wrong_blocks == 0), "{shape:?}");
            array.stop().await.unwrap();
            // They are believed now, and rightly so.
            let first = array.geometry().runs(0, 4096).next().unwrap().first;
            assert_eq!(first.offset, 0, "{shape:?}");
            spoil(&world, drives[first.member].as_ref()).await;
            let array = open(&world, &drives, READ_WRITE).await;
            assert_eq!(array.status().checksums, Some(ChecksumStatus::Valid), "{shape:?}");
            set.compare("with a block spoilt", &read_all(&world, &array).await);
            let wrong: u64 = array.status().slots.iter().map(|slot| slot.wrong_blocks).sum();
            assert!(wrong > 0, "{shape:?}");
            array.stop().await.unwrap();
        });
        world.end();
    }
}
