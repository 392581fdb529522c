//! Random histories against a flat byte array, at every level and layout, healthy and with every
//! number of losses the level survives, with operations overlapping in virtual time.
//!
//! `BACKPLANE_OPERATIONS` sets how many operations each array gets (default 400);
//! `BACKPLANE_LEVEL` names the one level to test.

#![allow(clippy::unwrap_used, reason = "a test ends with the first surprise")]

mod common;

use std::rc::Rc;

use array::Array;
use common::{Kind, Twin, create, drives, kinds, random_bytes, range};
use geometry::{Geometry, Level};
use world::{ReadBufs, SplitMix64, World, WriteBufs, join_all};

fn operations() -> u64 {
    std::env::var("BACKPLANE_OPERATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(400)
}

/// The arrays to test, with their places in the list of all.
fn chosen() -> impl Iterator<Item = (usize, Kind)> {
    let level = std::env::var("BACKPLANE_LEVEL").ok().map(|name| name.parse().unwrap());
    let wanted = move |kind: &Kind| level.is_none_or(|level: Level| kind.level == level);
    kinds().into_iter().enumerate().filter(move |(_, kind)| wanted(kind))
}

/// `count` operations, eight at a time on separate parts of the array.
async fn history(twin: &Rc<Twin>, random: &mut SplitMix64, count: u64) {
    const LANES: u64 = 8;
    let size = twin.flat.borrow().len() as u64;
    for _ in 0..count / (LANES - 1) {
        // Lanes are not chunk-aligned, so neighbours meet in the same stripes.
        let lane_bytes = size / LANES / 512 * 512;
        let shift = random.below(lane_bytes / 512) * 512;
        let lanes = (0..LANES - 1).map(|lane| {
            let mut random = SplitMix64::new(random.next_u64());
            let base = shift + lane * lane_bytes;
            let twin = Rc::clone(twin);
            async move {
                let (start, bytes) = range(&mut random, lane_bytes);
                let offset = base + start;
                match random.below(10) {
                    0..5 => {
                        let content = random_bytes(&mut random, bytes as usize);
                        let cut = random.below(bytes / 512 + 1) as usize * 512;
                        twin.write(offset, &content, &[cut]).await;
                    }
                    5 => twin.zero(offset, bytes).await,
                    _ => twin.check(offset, bytes as usize).await,
                }
            }
        });
        join_all(lanes.collect::<Vec<_>>()).await;
    }
}

/// Parity computed anew from the data agrees with what the members hold.
async fn parity_agrees(world: &World, array: &Array, drives: &[Rc<dyn drive::Drive>]) {
    let Geometry::Parity(parity) = array.geometry() else { return };
    let chunk = parity.chunk_bytes() as usize;
    let data_offset = data_offset(world, drives).await;
    for stripe in 0..parity.stripes() {
        let map = parity.stripe(stripe);
        let mut chunks = Vec::new();
        for drive in drives {
            let buffers = ReadBufs::from_iter([world.pool().take(chunk)]);
            let mut done = drive.read(data_offset + map.member_offset(), buffers).await;
            done.result.unwrap();
            chunks.push(done.buffers.pop().unwrap());
        }
        let mut p = vec![0; chunk];
        let mut q = vec![0; chunk];
        let mut by_exponent = vec![None; map.exponents()];
        for column in 0..map.data_members() {
            by_exponent[map.exponent(column)] = Some(&chunks[map.data(column)][..]);
        }
        parity::pq(&mut p, &mut q, &by_exponent);
        assert!(p == chunks[map.p()][..], "P of stripe {stripe}");
        if let Some(slot) = map.q() {
            assert!(q == chunks[slot][..], "Q of stripe {stripe}");
        }
    }
}

async fn data_offset(world: &World, drives: &[Rc<dyn drive::Drive>]) -> u64 {
    let examined = array::examine(world.pool(), drives[0].as_ref()).await;
    examined.found[0].view.layout.data_offset_bytes
}

/// Fills the drives with what an earlier owner left.
async fn scribble(world: &World, drives: &[Rc<dyn drive::Drive>], random: &mut SplitMix64) {
    for drive in drives {
        let bytes = random_bytes(random, drive.facts().size_bytes as usize);
        let buffers = WriteBufs::from_iter([world.pool().copy_of(&bytes)]);
        drive.write(0, buffers, drive::Durability::Cached).await.unwrap();
    }
}

fn run(kind: Kind, seed: u64, losses: usize, clean: bool) {
    let world = World::virtual_time(seed);
    let drives = drives(&world, kind, seed);
    world.block_on(async {
        let mut random = SplitMix64::new(seed);
        if !clean {
            scribble(&world, &drives, &mut random).await;
        }
        let array = create(&world, kind, &drives, clean).await;
        let twin = Rc::new(Twin::new(&world, Rc::new(array.clone())));
        if !clean {
            twin.adopt().await;
        }
        history(&twin, &mut random, operations() / 2).await;
        if !clean {
            array.background_done().await;
            assert_eq!(array.status().synced_to_bytes, None, "{kind:?}");
        }
        if losses == 0 {
            parity_agrees(&world, &array, &drives).await;
        }
        let mut slots: Vec<usize> = (0..kind.members).collect();
        for _ in 0..losses {
            let slot = slots.swap_remove(random.below(slots.len() as u64) as usize);
            // In the middle of things, not between them.
            let (failing, during) = (array.fail_member(slot), history(&twin, &mut random, 40));
            let mut failing = std::pin::pin!(failing);
            let mut during = std::pin::pin!(during);
            let first = world::race(&mut failing, &mut during).await;
            match first {
                Ok(result) => {
                    result.unwrap();
                    during.await;
                }
                Err(()) => failing.await.unwrap(),
            }
        }
        history(&twin, &mut random, operations() / 2).await;
        twin.check_all().await;
        array.stop().await.unwrap();
        assert_eq!(array.status().failures.len(), losses);
    });
    world.end();
}

#[test]
fn healthy_arrays_hold_what_was_written() {
    for (index, kind) in chosen() {
        eprintln!("{kind:?}");
        run(kind, 100 + index as u64, 0, true);
    }
}

#[test]
fn arrays_hold_what_was_written_while_they_resync() {
    for (index, kind) in chosen().filter(|(_, kind)| kind.losses > 0) {
        eprintln!("{kind:?}");
        run(kind, 200 + index as u64, 0, false);
    }
}

#[test]
fn arrays_hold_what_was_written_with_every_loss_they_survive() {
    for (index, kind) in chosen() {
        for losses in 1..=kind.losses {
            for round in 0..3 {
                eprintln!("{kind:?} without {losses}");
                run(kind, 300 + 10 * index as u64 + round, losses, true);
            }
        }
    }
}
