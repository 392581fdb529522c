//! A modelled hard disk keeps the contract of a drive, and time passes in it alone.

use std::rc::Rc;

use drive::{Drive, Durability, ErrorKind};
use model::disk::layout::{HeadOrder, Layout, Region, Sparing, Zone};
use model::disk::mechanics::Mechanics;
use model::disk::parameters::{
    Buffer, MediaCache, Overheads, Parameters, ReadAhead, Schedule, WriteCache, Writes,
};
use model::disk::seek::SeekCurve;
use model::modelled::DiskDrive;
use model::split::Stage;
use world::{ReadBufs, World, WriteBufs};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

fn zone(first_cylinder: u32, last_cylinder: u32, track_blocks: u32) -> Zone {
    Zone {
        first_cylinder,
        last_cylinder,
        track_blocks,
        offset: 0,
        unused: 0,
        track_skew: track_blocks / 10,
        cylinder_skew: track_blocks / 5,
        spare: 0,
        slips: Vec::new(),
        moved: Vec::new(),
    }
}

/// 64 MiB, a turn in 8 ms, a cylinder in 1 ms.
fn parameters(writes: Writes, schedule: Schedule) -> Parameters {
    let region = Region::Zone;
    let sparing = Sparing::Blocks { region, at_front: false, slip_to_end: false };
    let zones = vec![zone(0, 63, 640), zone(64, 127, 384)];
    let layout = Layout::new(2, HeadOrder::TurnInZone, sparing, zones);
    Parameters {
        name: "modelled".into(),
        blocks: layout.blocks(),
        block_bytes: 512,
        mechanics: Mechanics {
            layout: Rc::new(layout),
            seek: Rc::new(SeekCurve::Table(vec![(1, MS), (127, 12 * MS)])),
            turn_ns: 8 * MS,
            head_switch_ns: MS / 2,
            settle_ns: MS as i64 / 2,
            switch_settle_ns: MS as i64 / 2,
            any_order: [false; 2],
        },
        overheads: Overheads {
            read_hit_ns: [100 * US; 2],
            read_miss_ns: [200 * US; 2],
            write_ns: [150 * US; 2],
            ..Overheads::default()
        },
        link_block_ns: [2 * US; 2],
        buffer: Buffer {
            segments: 4,
            segment_blocks: 256,
            write_segment: false,
            hits_on_writes: true,
            almost_hits: true,
            ahead: ReadAhead::Blocks(128),
            ahead_on_hit: true,
            free_blocks: false,
            stops_in_block: false,
            write_stops_ahead: true,
            watermark: 0.0,
            hits_pass: true,
        },
        writes,
        media: None,
        preseek: true,
        schedule,
        queue_depth: 8,
        recovery_ns: 2_000 * MS,
    }
}

const CACHE: Writes =
    Writes::InCache(WriteCache { blocks: 1024, runs: 16, high_blocks: 768, idle_ns: 5 * MS });

const POSITIONING: Schedule = Schedule::ShortestPositioning { age_max_ns: 500 * MS, window: 32 };

#[test]
fn it_does_what_a_drive_must() {
    for writes in [Writes::OnPlatter, Writes::InBuffer { appends: true }, CACHE] {
        for schedule in [Schedule::FirstCome, Schedule::ShortestSeek, POSITIONING] {
            let world = World::virtual_time(1);
            let drive = DiskDrive::new(&world, parameters(writes, schedule));
            drive::conformance::run(&world, &drive, 7);
        }
    }
}

#[test]
fn so_does_one_with_a_media_cache() {
    for band_blocks in [None, Some(2048)] {
        for writes in [Writes::OnPlatter, CACHE] {
            let world = World::virtual_time(1);
            let mut parameters = parameters(writes, POSITIONING);
            // The last eighth is the media cache.
            let blocks = parameters.blocks / 8;
            parameters.blocks -= blocks;
            let idle_ns = 20 * MS;
            parameters.media = Some(MediaCache { blocks, band_blocks, batch: 4, idle_ns });
            let drive = DiskDrive::new(&world, parameters);
            drive::conformance::run(&world, &drive, 7);
        }
    }
}

#[test]
fn the_same_seed_takes_the_same_time() {
    let run = || {
        let world = World::virtual_time(3);
        let drive = DiskDrive::new(&world, parameters(CACHE, POSITIONING));
        drive::conformance::run(&world, &drive, 7);
        (world.now_ns(), drive.spent())
    };
    assert_eq!(run(), run());
}

#[test]
fn a_durable_write_waits_for_the_platter() {
    let world = World::virtual_time(1);
    let drive = DiskDrive::new(&world, parameters(CACHE, POSITIONING));
    let time = |durability| {
        let began = world.now_ns();
        let data = world.pool().copy_of(&[1; 4096]);
        world.block_on(drive.write(0, WriteBufs::from_iter([data]), durability)).expect("in range");
        world.now_ns() - began
    };
    assert_eq!(time(Durability::Cached), 150 * US + 8 * 2 * US);
    // A turn begins at zero, so that its first blocks pass again after 8 ms.
    assert_eq!(time(Durability::Durable) + 166 * US, 8 * MS + 8 * (8 * MS / 640));
}

#[test]
fn a_spoiled_block_takes_the_recovery_time_until_it_is_written() {
    let world = World::virtual_time(1);
    let drive = DiskDrive::new(&world, parameters(CACHE, POSITIONING));
    let read = |offset| {
        let began = world.now_ns();
        let buffer = world.pool().take(4096);
        let done = world.block_on(drive.read(offset, ReadBufs::from_iter([buffer])));
        (done.result.map_err(|error| error.kind), world.now_ns() - began)
    };
    drive.spoil(1 << 20, 512);
    let (result, ns) = read(1 << 20);
    assert_eq!(result, Err(ErrorKind::Media));
    assert!(ns > 2_000 * MS && ns < 2_050 * MS, "{ns}");
    // Neither the blocks around it nor reading ahead suffer.
    assert!(read((1 << 20) - 8192).1 < 50 * MS);
    assert!(read((1 << 20) - 4096).1 < 50 * MS);
    let data = world.pool().copy_of(&[1; 4096]);
    let write = drive.write(1 << 20, WriteBufs::from_iter([data]), Durability::Cached);
    world.block_on(write).expect("in range");
    let (result, ns) = read(1 << 20);
    assert!(result.is_ok() && ns < 50 * MS, "{ns}");
}

#[test]
fn the_split_of_a_read_is_its_way() {
    let world = World::virtual_time(1);
    let drive = DiskDrive::new(&world, parameters(CACHE, POSITIONING));
    let buffer = world.pool().take(4096);
    // Cylinder 64, the first of the second zone.
    let offset = 64 * 2 * 640 * 512;
    let done = world.block_on(drive.read(offset, ReadBufs::from_iter([buffer])));
    done.result.expect("in range");
    let (count, split) = drive.spent();
    let seek = MS + 63 * 11 * MS / 126;
    assert_eq!(count, 1);
    assert_eq!(split.served_ns(Stage::Command), 200 * US);
    assert_eq!(split.served_ns(Stage::Seek), seek);
    // The zone begins with the turn.
    assert_eq!(split.served_ns(Stage::Rotation), 8 * MS - (200 * US + seek) % (8 * MS));
    assert_eq!(split.served_ns(Stage::Media), (8 * 8 * MS).div_ceil(384));
    assert_eq!(split.served_ns(Stage::Link), 2 * US);
    assert_eq!(split.total_ns(), world.now_ns());
}

#[test]
fn writes_in_the_cache_go_to_the_platter_in_a_better_order() {
    let world = World::virtual_time(1);
    let time = |schedule, writes| {
        let began = world.now_ns();
        let drive = DiskDrive::new(&world, parameters(writes, schedule));
        for index in 0..200_u64 {
            let offset = index * 7919 % 16_000 * 4096;
            let data = world.pool().copy_of(&[1; 4096]);
            let write = drive.write(offset, WriteBufs::from_iter([data]), Durability::Cached);
            world.block_on(write).expect("in range");
        }
        world.block_on(drive.flush()).expect("it flushes");
        world.now_ns() - began
    };
    let on_platter = time(Schedule::FirstCome, Writes::OnPlatter);
    let in_order = time(Schedule::FirstCome, CACHE);
    let soonest = time(POSITIONING, CACHE);
    assert!(soonest * 10 < in_order * 9 && in_order * 10 < on_platter * 9, "{soonest} {in_order}");
}
