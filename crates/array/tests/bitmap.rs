//! The write-intent bitmap: on the members before the data is, cleared when nothing is under way,
//! and what a resync after a power cut is limited to.

#![allow(clippy::unwrap_used, reason = "a test ends with the first surprise")]

#[path = "common/cut.rs"]
mod cut;

use std::time::Duration;

use array::Array;
use drive::Drive;
use geometry::{Geometry, Level};
use world::{SplitMix64, World};

use cut::{Rack, read, write};

/// A bit stands for this much.
const BITMAP_CHUNK: u64 = 64 << 10;

/// The bits of what was written last are cleared after two ticks of five seconds.
const TWO_TICKS: Duration = Duration::from_secs(11);

const SHAPES: [(Level, u32, usize); 6] = [
    (Level::Raid1, 0, 2),
    (Level::Raid1, 0, 3),
    (Level::Raid10, 0x102, 4),
    (Level::Raid10, 0x10201, 5),
    (Level::Raid5, 2, 4),
    (Level::Raid6, 2, 5),
];

/// Redundancy on the drives themselves.
async fn assert_agrees(rack: &Rack, array: &Array) {
    let start = rack.view(rack.drives[0].as_ref()).await.layout.data_offset_bytes;
    let get = async |slot: usize, offset: u64, bytes: u64| {
        read(&rack.world, rack.drives[slot].as_ref(), start + offset, bytes as usize).await
    };
    if let Geometry::Parity(parity) = array.geometry() {
        for number in 0..parity.stripes() {
            let map = parity.stripe(number);
            let mut sum = vec![0; parity.chunk_bytes() as usize];
            for column in 0..map.data_members() {
                let data = get(map.data(column), map.member_offset(), parity.chunk_bytes()).await;
                parity::xor_into(&mut sum, &data);
            }
            let p = get(map.p(), map.member_offset(), parity.chunk_bytes()).await;
            assert!(p == sum, "parity of stripe {number}");
        }
        return;
    }
    let geometry = array.geometry();
    for run in geometry.runs(0, geometry.array_bytes()) {
        let first = geometry.copy(&run, 0);
        let first = get(first.member, first.offset, run.bytes).await;
        for copy in 1..geometry.copies() {
            let place = geometry.copy(&run, copy);
            let other = get(place.member, place.offset, run.bytes).await;
            assert!(first == other, "copy {copy} of byte {}", run.array_offset);
        }
    }
}

/// A long-lived array writes at a few places when the power goes: the resync reads and writes about
/// that much and not the array, and afterwards redundancy agrees everywhere.
#[test]
fn after_a_cut_only_what_was_in_flight_is_resynced() {
    for (seed, (level, layout, members)) in (1..).zip(SHAPES) {
        let world = World::virtual_time(seed);
        world.block_on(async {
            let rack = Rack::new(&world, members, 24 << 20);
            rack.create(level, layout, 16 << 10, BITMAP_CHUNK as u32).await;
            let array = rack.open().await;
            let size = array.facts().size_bytes;
            let mut random = SplitMix64::new(seed);
            for _ in 0..40 {
                write(&world, &array, random.below(size / 4096 - 16) * 4096, &[1; 65536]).await;
            }
            array.flush().await.unwrap();
            world.sleep(TWO_TICKS).await;
            assert_eq!(array.status().bitmap.unwrap().dirty_chunks, 0, "{level}: all is quiet");
            assert_eq!(rack.dirty_bytes(rack.drives[1].as_ref()).await, 0);

            let places = [0, size / 2, size - 8192];
            for place in places {
                write(&world, &array, place, &[2; 8192]).await;
            }
            rack.power_cut(seed).await;
            let array = rack.open().await;
            let status = array.status();
            let dirty = status.bitmap.unwrap().unsynced_chunks;
            assert!((3..=6).contains(&dirty), "{level}: {dirty} chunks");
            rack.counted();
            array.background_done().await;
            let counts = rack.counted();
            let bound = dirty * BITMAP_CHUNK * members as u64;
            assert!(counts.read_bytes > 0 && counts.read_bytes <= bound, "{level} {counts:?}");
            assert!(counts.write_bytes <= bound + (64 << 10), "{level} {counts:?}");
            assert_eq!(array.status().synced_to_bytes, None);
            assert_agrees(&rack, &array).await;
            world.sleep(TWO_TICKS).await;
            assert_eq!(array.status().bitmap.unwrap().dirty_chunks, 0);
            array.stop().await.unwrap();
        });
        world.end();
    }
}

/// What a bitmap costs, in writes to members beyond those of the data: nothing while a chunk stays
/// in use, one page on each member for all chunks that become dirty at the same moment.
#[test]
fn a_bit_that_is_set_costs_nothing() {
    let world = World::virtual_time(9);
    world.block_on(async {
        let rack = Rack::new(&world, 2, 65 << 20);
        rack.create(Level::Raid1, 0, 0, 1 << 20).await;
        let array = rack.open().await;
        write(&world, &array, 0, &[1; 4096]).await;
        world.sleep(TWO_TICKS).await;
        rack.counted();
        let pages = |array: &Array| array.status().bitmap.unwrap().page_writes;

        // From one end to the other: a page for each chunk, of 256 client writes each, on each of
        // the two members, and one for the event that marks the array as in use.
        let (before, writes) = (pages(&array), 32 * 256);
        for index in 0..writes {
            write(&world, &array, index * 4096, &[2; 4096]).await;
        }
        assert_eq!(pages(&array) - before, 2 * (32 + 1));
        let counts = rack.counted();
        assert_eq!(counts.writes, 2 * writes + 2 * (32 + 1) + 2, "data, bitmap, superblocks");

        // Anywhere in what is dirty already: nothing.
        let (before, mut random) = (pages(&array), SplitMix64::new(1));
        for _ in 0..1000 {
            write(&world, &array, random.below(32 * 256) * 4096, &[3; 4096]).await;
        }
        assert_eq!(pages(&array) - before, 0);
        assert_eq!(rack.counted().writes, 2000);

        // 32 at once, each in a chunk that is clean: who comes first goes alone, with the event
        // that marks the array as in use and then with its bit; the others go together behind.
        array.flush().await.unwrap();
        world.sleep(TWO_TICKS).await;
        let before = pages(&array);
        let at_once = (0..32).map(|index| write(&world, &array, index << 20, &[4; 4096]));
        world::join_all(at_once).await;
        let spent = pages(&array) - before;
        assert!(spent <= 2 * 5, "{spent} pages");
        array.stop().await.unwrap();
    });
    world.end();
}

/// While a member is missing the bits stay, since they say what it lacks; they are cleared when
/// nothing is missing.
#[test]
fn bits_stay_while_a_member_is_missing() {
    let world = World::virtual_time(3);
    world.block_on(async {
        let rack = Rack::new(&world, 3, 24 << 20);
        rack.create(Level::Raid1, 0, 0, BITMAP_CHUNK as u32).await;
        let array = rack.open().await;
        write(&world, &array, 0, &[1; 4096]).await;
        world.sleep(TWO_TICKS).await;
        let cleared = array.status().bitmap.unwrap().events_cleared;
        array.fail_member(2).await.unwrap();
        write(&world, &array, 1 << 20, &[2; 4096]).await;
        world.sleep(TWO_TICKS).await;
        let status = array.status().bitmap.unwrap();
        assert_eq!((status.dirty_chunks, status.events_cleared), (1, cleared));
        array.stop().await.unwrap();
        assert_eq!(rack.dirty_bytes(rack.drives[0].as_ref()).await, BITMAP_CHUNK);
        let view = rack.view(rack.drives[2].as_ref()).await;
        assert!(view.events >= cleared, "the member that left can come back by the bits");
    });
    world.end();
}

/// A bitmap that somebody left behind while the set went on is not believed: all is resynced.
#[test]
fn a_bitmap_older_than_the_superblocks_is_not_believed() {
    let world = World::virtual_time(4);
    world.block_on(async {
        let rack = Rack::new(&world, 2, 24 << 20);
        rack.create(Level::Raid1, 0, 0, BITMAP_CHUNK as u32).await;
        let array = rack.open().await;
        write(&world, &array, 0, &[1; 4096]).await;
        rack.power_cut(1).await;
        for drive in &rack.drives {
            let (start, header) = rack.bitmap(drive.as_ref()).await;
            let events = rack.view(drive.as_ref()).await.events - 1;
            let mut area = format::md::BitmapHeader { events, ..header }.build();
            area[format::md::BITMAP_HEADER_BYTES..].fill(0);
            area.resize(4096, 0);
            let buffers = world::WriteBufs::from_iter([world.pool().copy_of(&area)]);
            drive.write(start, buffers, drive::Durability::Durable).await.unwrap();
        }
        let array = rack.open().await;
        let status = array.status().bitmap.unwrap();
        assert_eq!(status.unsynced_chunks, status.chunks);
        array.background_done().await;
        assert_agrees(&rack, &array).await;
        array.stop().await.unwrap();
    });
    world.end();
}

/// A member fails, the others go on, and it comes back: only what was written meanwhile goes to it.
#[test]
fn a_member_that_comes_back_gets_only_what_it_missed() {
    for (seed, (level, layout, members)) in (1..).zip(SHAPES) {
        let world = World::virtual_time(seed);
        world.block_on(async {
            let rack = Rack::new(&world, members, 24 << 20);
            rack.create(level, layout, 16 << 10, BITMAP_CHUNK as u32).await;
            let array = rack.open().await;
            let size = array.facts().size_bytes;
            for place in [0, size / 2] {
                write(&world, &array, place, &[1; 65536]).await;
            }
            array.flush().await.unwrap();
            world.sleep(TWO_TICKS).await;
            array.fail_member(1).await.unwrap();
            for place in [8192, size / 3 / 4096 * 4096, size - 65536] {
                write(&world, &array, place, &[2; 65536]).await;
            }
            let status = array.status().bitmap.unwrap();
            let missed = status.dirty_chunks * BITMAP_CHUNK;
            // While it is served, or at the next start.
            let array = if seed % 2 == 0 {
                rack.drives[1].take();
                let drive = rack.dynamic().swap_remove(1);
                assert_eq!(array.readd_member(drive).await.unwrap().slot, 1);
                array
            } else {
                array.stop().await.unwrap();
                rack.drives[1].take();
                rack.open().await
            };
            array.background_done().await;
            assert_eq!(array.status().slots[1].state, array::SlotState::InSync, "{level}");
            let written = rack.drives[1].counts().write_bytes;
            assert!(written >= 65536 && written <= missed + (256 << 10), "{level} {written}");
            assert_agrees(&rack, &array).await;
            world.sleep(TWO_TICKS).await;
            assert_eq!(array.status().bitmap.unwrap().dirty_chunks, 0, "{level}");
            array.stop().await.unwrap();
        });
        world.end();
    }
}

/// The power goes while a member that came back is filled: it goes on by the bitmap.
#[test]
fn a_return_that_was_cut_off_goes_on_by_the_bitmap() {
    let world = World::virtual_time(5);
    world.block_on(async {
        let rack = Rack::new(&world, 2, 24 << 20);
        rack.create(Level::Raid1, 0, 0, BITMAP_CHUNK as u32).await;
        let array = rack.open().await;
        write(&world, &array, 0, &[1; 4096]).await;
        world.sleep(TWO_TICKS).await;
        array.fail_member(0).await.unwrap();
        for index in 0..64 {
            write(&world, &array, index * (256 << 10), &[2; 4096]).await;
        }
        array.hold_jobs().await;
        array.readd_member(rack.dynamic().swap_remove(0)).await.unwrap();
        write(&world, &array, 4096, &[3; 4096]).await;
        array.flush().await.unwrap();
        rack.power_cut(3).await;
        let array = rack.open().await;
        rack.drives[0].take();
        array.background_done().await;
        assert_eq!(array.status().slots[0].state, array::SlotState::InSync);
        let written = rack.drives[0].counts().write_bytes;
        assert!(written <= 64 * BITMAP_CHUNK + (256 << 10), "{written}");
        assert_agrees(&rack, &array).await;
        assert_eq!(read(&world, &array, 4096, 4096).await, [3; 4096]);
        array.stop().await.unwrap();
    });
    world.end();
}

/// Bits were cleared after somebody else had taken the slot: who left before must be filled whole.
#[test]
fn a_member_that_left_too_early_is_refused_with_the_reason() {
    let world = World::virtual_time(6);
    world.block_on(async {
        let rack = Rack::new(&world, 3, 24 << 20);
        let two = rack.drives[..2].to_vec();
        let pair = Rack { drives: two, controls: Vec::new(), world: world.clone() };
        pair.create(Level::Raid1, 0, 0, BITMAP_CHUNK as u32).await;
        let array = pair.open().await;
        array.fail_member(1).await.unwrap();
        write(&world, &array, 0, &[1; 4096]).await;
        array.add_member(rack.dynamic().swap_remove(2)).await.unwrap();
        array.background_done().await;
        write(&world, &array, 0, &[2; 4096]).await;
        world.sleep(TWO_TICKS).await;
        array.fail_member(1).await.unwrap();
        let refused = array.readd_member(pair.dynamic().swap_remove(1)).await.err().unwrap();
        assert!(refused.to_string().contains("it left at event"), "{refused}");
        array.stop().await.unwrap();
    });
    world.end();
}

/// Found by a history: who came meanwhile had been given the number of the one that had left, and
/// both were in the set with it.
#[test]
fn a_member_that_comes_back_has_a_number_of_its_own() {
    let world = World::virtual_time(7);
    world.block_on(async {
        let rack = Rack::new(&world, 4, 24 << 20);
        let members = rack.drives[..3].to_vec();
        let first = Rack { drives: members, controls: Vec::new(), world: world.clone() };
        first.create(Level::Raid5, 2, 65536, BITMAP_CHUNK as u32).await;
        let array = first.open().await;
        write(&world, &array, 0, &[1; 4096]).await;
        array.hold_jobs().await;
        array.remove_member(2).await.unwrap();
        write(&world, &array, 0, &[2; 4096]).await;
        // The last number is free now, and given to the newcomer.
        array.add_member(rack.dynamic().swap_remove(3)).await.unwrap();
        array.readd_member(rack.dynamic().swap_remove(2)).await.unwrap();
        array.resume_jobs();
        array.background_done().await;
        assert_eq!(array.status().slots[2].state, array::SlotState::InSync);
        array.stop().await.unwrap();
        let array = rack.open().await;
        assert!(array.status().slots.iter().all(|slot| slot.state == array::SlotState::InSync));
        assert_eq!(array.status().slots[2].drive.as_deref(), Some("d2"));
        array.stop().await.unwrap();
    });
    world.end();
}
