//! A modelled SSD keeps the contract of a drive, and time passes in it alone.

use drive::{Drive, Durability};
use model::modelled::SsdDrive;
use model::ssd::hybrid::Shape;
use model::ssd::parameters::{Mapping, Parameters, Striping};
use model::ssd::translation::State;
use model::ssd::victims::Cleaning;
use world::{World, WriteBufs};

fn parameters(mapping: Mapping) -> Parameters {
    Parameters {
        name: "modelled".into(),
        capacity_bytes: 64 << 20,
        unit_bytes: 4096,
        channels: 2,
        dies: 4,
        planes: 2,
        page_bytes: 8192,
        pages_per_block: 16,
        striping: Striping::ChannelFirst,
        read_ns: vec![50_000, 60_000],
        program_ns: 600_000,
        erase_ns: 3_000_000,
        channel_bytes_per_s: 200_000_000,
        link_bytes_per_s: 250_000_000,
        duplex: false,
        queue_depth: 32,
        read_command_ns: 5_000,
        write_command_ns: 10_000,
        command_latency_ns: 5_000,
        write_path_bytes_per_s: 200_000_000,
        buffer_bytes: 256 << 10,
        acknowledge_ns: 5_000,
        power_loss_protection: false,
        flush_ns: 1_000_000,
        slc_cache: None,
        mapping,
    }
}

#[test]
fn it_does_what_a_drive_must() {
    let page = Mapping::Page { spare_permille: 250, cleaning: Cleaning::Greedy };
    let hybrid = Mapping::Hybrid(Shape { units: 256, logs: 3 });
    for mapping in [page, hybrid] {
        for state in [State::Fresh, State::Preconditioned, State::Steady] {
            let world = World::virtual_time(1);
            let drive = SsdDrive::new(&world, parameters(mapping), state, 1);
            drive::conformance::run(&world, &drive, 7);
        }
    }
}

#[test]
fn the_same_seed_takes_the_same_time() {
    let run = || {
        let world = World::virtual_time(3);
        let page = Mapping::Page { spare_permille: 250, cleaning: Cleaning::Greedy };
        let drive = SsdDrive::new(&world, parameters(page), State::Steady, 1);
        drive::conformance::run(&world, &drive, 7);
        (world.now_ns(), drive.counters(), drive.spent())
    };
    assert_eq!(run(), run());
}

#[test]
fn a_durable_write_takes_as_long_as_a_program() {
    let world = World::virtual_time(1);
    let page = Mapping::Page { spare_permille: 250, cleaning: Cleaning::Greedy };
    let drive = SsdDrive::new(&world, parameters(page), State::Fresh, 1);
    let time = |durability| {
        let began = world.now_ns();
        let data = world.pool().copy_of(&[1; 4096]);
        world.block_on(drive.write(0, WriteBufs::from_iter([data]), durability)).expect("in range");
        world.now_ns() - began
    };
    let link = 16_384;
    assert_eq!(time(Durability::Cached), 5_000 + link + 5_000);
    assert!(time(Durability::Durable) >= 600_000 + 1_000_000);
}
