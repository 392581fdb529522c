//! An array on drives in memory whose content can be altered behind its back.

use std::rc::Rc;

use array::{Array, Consistency, Mismatch, NewArray, OpenMode, Scan, ScrubState, ScrubStatus};
use drive::{Drive, Durability, FaultControl, Faulty, MemoryDrive};
use geometry::{Geometry, Home, Level};
use world::{ReadBufs, SplitMix64, World, WriteBufs};

use crate::common::{Kind, random_bytes};

pub const SECTOR: u64 = 512;

/// Where the data area of drives this small starts.
pub const DATA_OFFSET: u64 = 1 << 20;

/// The levels with redundancy, in small.
pub fn kinds() -> Vec<Kind> {
    crate::common::kinds().into_iter().filter(|kind| kind.losses > 0).collect()
}

pub fn kind(level: Level, members: usize, chunk_kib: u32) -> Kind {
    let chunk_bytes = if level == Level::Raid1 { 0 } else { chunk_kib << 10 };
    let layout = match level {
        Level::Raid10 => 0x102,
        Level::Raid1 | Level::Raid4 => 0,
        _ => 2,
    };
    Kind { level, layout, members, chunk_bytes, losses: 1 }
}

pub struct Bed {
    pub world: World,
    pub memory: Vec<Rc<MemoryDrive>>,
    pub faults: Vec<FaultControl>,
    pub drives: Vec<Rc<dyn Drive>>,
    pub array: Array,
}

impl Bed {
    /// An array of random content.
    pub fn new(kind: Kind, seed: u64) -> Bed {
        Bed::with(kind, seed, true)
    }

    /// `clean`: nothing is resynced at first.
    pub fn with(kind: Kind, seed: u64, clean: bool) -> Bed {
        let world = World::virtual_time(seed);
        let memory: Vec<Rc<MemoryDrive>> = (0..kind.members)
            .map(|index| Rc::new(MemoryDrive::new(&format!("drive {index}"), 2 << 20, 512)))
            .collect();
        let faulty: Vec<Faulty> = memory
            .iter()
            .map(|drive| Faulty::new(&world, Rc::clone(drive) as Rc<dyn Drive>, seed))
            .collect();
        let faults = faulty.iter().map(Faulty::control).collect();
        let drives: Vec<Rc<dyn Drive>> =
            faulty.into_iter().map(|drive| Rc::new(drive) as Rc<dyn Drive>).collect();
        if !clean {
            // What the drives held before.
            for (index, drive) in memory.iter().enumerate() {
                let old = random_bytes(&mut SplitMix64::new(seed + index as u64), 2 << 20);
                let buffers = WriteBufs::from_iter([world.pool().copy_of(&old)]);
                world.block_on(drive.write(0, buffers, Durability::Cached)).unwrap();
            }
        }
        let array = world.block_on(create(&world, kind, &drives, clean));
        let bed = Bed { world, memory, faults, drives, array };
        if clean {
            bed.fill(seed);
        }
        bed
    }

    pub fn fill(&self, seed: u64) {
        let size = self.array.facts().size_bytes;
        let content = random_bytes(&mut SplitMix64::new(seed), size as usize);
        let buffers = WriteBufs::from_iter([self.world.pool().copy_of(&content)]);
        self.world.block_on(self.array.write(0, buffers, Durability::Cached)).unwrap();
    }

    pub fn geometry(&self) -> &Geometry {
        self.array.geometry()
    }

    /// What the member holds in its data area.
    pub fn image(&self, slot: usize) -> Vec<u8> {
        let used = self.geometry().used_bytes(slot) as usize;
        let buffers = ReadBufs::from_iter([self.world.pool().take(used)]);
        let done = self.world.block_on(self.memory[slot].read(DATA_OFFSET, buffers));
        done.result.unwrap();
        done.buffers[0].to_vec()
    }

    pub fn images(&self) -> Vec<Vec<u8>> {
        (0..self.memory.len()).map(|slot| self.image(slot)).collect()
    }

    /// Alters a sector of a member behind the array's back; `mask` is XORed onto some bytes.
    pub fn alter(&self, slot: usize, offset: u64, mask: u8) {
        let place = DATA_OFFSET + offset / SECTOR * SECTOR;
        let buffers = ReadBufs::from_iter([self.world.pool().take(SECTOR as usize)]);
        let mut done = self.world.block_on(self.memory[slot].read(place, buffers));
        done.buffers[0].iter_mut().skip(7).step_by(5).for_each(|byte| *byte ^= mask);
        let buffers = WriteBufs::from_iter([done.buffers.pop().unwrap().freeze()]);
        self.world.block_on(self.memory[slot].write(place, buffers, Durability::Cached)).unwrap();
    }

    /// Runs what was asked for to its end.
    pub fn finish(&self) -> ScrubStatus {
        self.world.block_on(self.array.background_done());
        let status = self.array.status().scrub.unwrap();
        assert_eq!(status.state, ScrubState::Done);
        status
    }

    pub fn check(&self) -> ScrubStatus {
        self.array.start_check().unwrap();
        self.finish()
    }

    pub fn repair(&self, trust_data: bool) -> ScrubStatus {
        self.array.start_repair(trust_data).unwrap();
        self.finish()
    }

    /// Where positions of a scrub end.
    pub fn end(&self) -> u64 {
        match self.geometry() {
            Geometry::Parity(parity) => parity.used_bytes(),
            geometry => geometry.array_bytes(),
        }
    }

    /// The position of a sector of a member; `None` where the array keeps nothing.
    pub fn position(&self, slot: usize, offset: u64) -> Option<u64> {
        match (self.geometry(), self.geometry().home(slot, offset)?) {
            (Geometry::Parity(_), _) => Some(offset),
            (_, Home::Data { array_offset, .. }) => Some(array_offset),
            _ => None,
        }
    }

    /// Opens the array anew from its drives.
    pub fn reopen(&mut self) {
        let mode = OpenMode { read_only: false, force_dirty: false, now_seconds: 1_800_000_000 };
        let (world, drives) = (&self.world, self.drives.clone());
        self.array = world.block_on(async {
            let scan = Scan::of(world.pool(), drives).await;
            scan.open(world, &scan.assemblies[0], mode).await.unwrap()
        });
    }

    /// An array made anew of the same drives, of which nobody knows that their content agrees.
    pub fn make_again(&mut self, kind: Kind) {
        self.world.block_on(self.array.stop()).unwrap();
        self.array = self.world.block_on(create(&self.world, kind, &self.drives, false));
    }

    pub fn content(&self) -> Vec<u8> {
        read(&self.world, &self.array)
    }
}

pub fn read(world: &World, drive: &dyn Drive) -> Vec<u8> {
    let size = drive.facts().size_bytes as usize;
    let done = world.block_on(drive.read(0, ReadBufs::from_iter([world.pool().take(size)])));
    done.result.unwrap();
    done.buffers[0].to_vec()
}

pub async fn create(world: &World, kind: Kind, drives: &[Rc<dyn Drive>], clean: bool) -> Array {
    let request = NewArray {
        name: "test".to_owned(),
        level: kind.level,
        layout: Some(kind.layout),
        chunk_bytes: (kind.chunk_bytes > 0).then_some(kind.chunk_bytes),
        slots: drives.iter().cloned().map(Some).collect(),
        spares: Vec::new(),
        size_bytes: None,
        consistency: Consistency::Resync,
        checksums: false,
        assume_clean: clean,
        uuid: *b"0123456789abcdef",
        now_seconds: 1_700_000_000,
    };
    request.create(world).await.unwrap_or_else(|error| panic!("{kind:?}: {error:?}"))
}

/// Position, bytes and blamed slot of each finding.
pub fn places(findings: &[Mismatch]) -> Vec<(u64, u64, Option<usize>)> {
    let place = |found: &Mismatch| {
        let position = match found.stripe {
            Some(_) => found.members[0].data_offset,
            None => found.array_offset,
        };
        (position, found.bytes, found.slot)
    };
    findings.iter().map(place).collect()
}
