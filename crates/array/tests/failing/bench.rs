//! An array on drives with faults, with content, and the flat bytes beside it.

use std::rc::Rc;

use array::{Array, Consistency, OpenMode, Scan};
use drive::{Drive, Effect, ErrorKind, Fault, FaultControl, Faulty, Operation};
use geometry::Level;
use world::{ReadBufs, SplitMix64, World};

use crate::common::{Kind, Twin, create_with, drives, random_bytes};

const MODE: OpenMode =
    OpenMode { read_only: false, force_dirty: false, now_seconds: 1_800_000_000 };

pub const RAID1: Kind =
    Kind { level: Level::Raid1, layout: 0, members: 2, chunk_bytes: 0, losses: 1 };
pub const RAID5: Kind =
    Kind { level: Level::Raid5, layout: 2, members: 4, chunk_bytes: 8192, losses: 1 };

/// An array on drives with faults, with content, and the flat bytes beside it.
pub struct Bench {
    pub world: World,
    pub drives: Vec<Rc<dyn Drive>>,
    pub controls: Vec<FaultControl>,
    pub array: Array,
    pub twin: Rc<Twin>,
    pub data_offset: u64,
}

impl Bench {
    pub async fn new(world: &World, kind: Kind, seed: u64) -> Bench {
        Bench::with(world, kind, seed, Consistency::Resync).await
    }

    pub async fn with(world: &World, kind: Kind, seed: u64, consistency: Consistency) -> Bench {
        let mut controls = Vec::new();
        let faulty = drives(world, kind, seed).into_iter().map(|drive| {
            let faulty = Faulty::new(world, drive, seed);
            controls.push(faulty.control());
            Rc::new(faulty) as Rc<dyn Drive>
        });
        let drives: Vec<_> = faulty.collect();
        let array = create_with(world, kind, &drives, true, consistency).await;
        let twin = Rc::new(Twin::new(world, Rc::new(array.clone())));
        let content = random_bytes(&mut SplitMix64::new(seed), 256 << 10);
        twin.write(0, &content, &[]).await;
        let examined = array::examine(world.pool(), drives[0].as_ref()).await;
        let data_offset = examined.found[0].view.layout.data_offset_bytes;
        Bench { world: world.clone(), drives, controls, array, twin, data_offset }
    }

    pub async fn reopen(&mut self) {
        let scan = Scan::of(self.world.pool(), self.drives.clone()).await;
        self.array = scan.open(&self.world, &scan.assemblies[0], MODE).await.unwrap();
        let twin = Twin::new(&self.world, Rc::new(self.array.clone()));
        twin.adopt().await;
        assert!(*twin.flat.borrow() == *self.twin.flat.borrow(), "the content has changed");
        self.twin = Rc::new(twin);
    }

    /// Whether a range of a member's data area can be read.
    pub async fn readable(&self, slot: usize, offset: u64, bytes: usize) -> bool {
        let buffers = ReadBufs::from_iter([self.world.pool().take(bytes)]);
        self.drives[slot].read(self.data_offset + offset, buffers).await.result.is_ok()
    }

    pub fn bad_bytes(&self) -> Vec<u64> {
        self.array.status().slots.iter().map(|slot| slot.bad_bytes).collect()
    }

    pub fn spoil(&self, slot: usize, offset: u64, bytes: u64) {
        self.controls[slot].spoil(self.data_offset + offset, bytes);
    }

    /// Writes to this range of a member's data area fail.
    pub fn stuck(&self, slot: usize, offset: u64, bytes: u64) {
        let start = self.data_offset + offset;
        let fault = Fault::new(Effect::Fail(ErrorKind::Media)).within(start..start + bytes);
        self.controls[slot].add(fault.on(Operation::Write));
    }
}

pub fn in_virtual_time(seed: u64, body: impl AsyncFnOnce(World)) {
    let world = World::virtual_time(seed);
    world.block_on(body(world.clone()));
    world.end();
}
