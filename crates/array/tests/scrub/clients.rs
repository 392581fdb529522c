//! Clients write while a scrub runs: what is under way is never taken for a mismatch.

use std::cell::Cell;
use std::rc::Rc;

use geometry::Level;
use world::{SplitMix64, World, join_all};

use crate::bed::{create, kind};
use crate::common::{Twin, drives, random_bytes, range};

#[test]
fn writes_under_way_are_no_mismatches() {
    let kinds = [
        kind(Level::Raid1, 3, 0),
        kind(Level::Raid10, 5, 4),
        kind(Level::Raid5, 4, 8),
        kind(Level::Raid6, 5, 4),
    ];
    for (seed, kind) in kinds.into_iter().enumerate() {
        for repair in [false, true] {
            let world = World::virtual_time(seed as u64);
            let drives = drives(&world, kind, 50);
            world.block_on(async {
                let array = create(&world, kind, &drives, true).await;
                let twin = Twin::new(&world, Rc::new(array.clone()));
                let size = twin.flat.borrow().len() as u64;
                let scrubs = Cell::new(0);
                let writing = Cell::new(true);
                let write = async {
                    for round in 0..150 {
                        let mut random = SplitMix64::new(round);
                        let (offset, bytes) = range(&mut random, size);
                        let content = random_bytes(&mut random, bytes as usize);
                        twin.write(offset, &content, &[]).await;
                    }
                    writing.set(false);
                };
                let scrub = async {
                    while writing.get() {
                        if repair {
                            array.start_repair(true).unwrap()
                        } else {
                            array.start_check().unwrap()
                        }
                        array.background_done().await;
                        let status = array.status().scrub.unwrap();
                        assert_eq!(status.findings, [], "{kind:?}");
                        assert_eq!(status.counts.compared_bytes, status.end_bytes);
                        scrubs.set(scrubs.get() + 1);
                    }
                };
                let write: std::pin::Pin<Box<dyn Future<Output = ()> + '_>> = Box::pin(write);
                join_all([write, Box::pin(scrub)]).await;
                assert!(scrubs.get() >= 3, "{kind:?}: {}", scrubs.get());
                twin.check_all().await;
            });
        }
    }
}
