//! What the engine's tests share: drives with a will of their own, and a flat byte array to
//! compare with.

#![allow(clippy::unwrap_used, reason = "a test ends with the first surprise")]

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use array::{Array, Consistency, NewArray};
use drive::{Discarded, Drive, DriveError, Durability, Facts, Io, MemoryDrive, ReadDone, Zeroing};
use geometry::Level;
use world::{Pool, ReadBufs, SplitMix64, World, WriteBufs};

/// Takes a random time for everything, so that operations overlap in every order.
pub struct Jittery {
    inner: Rc<MemoryDrive>,
    world: World,
    random: RefCell<SplitMix64>,
}

impl Jittery {
    pub fn new(world: &World, name: &str, bytes: u64, seed: u64) -> Rc<Jittery> {
        Rc::new(Jittery {
            inner: Rc::new(MemoryDrive::new(name, bytes, 512)),
            world: world.clone(),
            random: RefCell::new(SplitMix64::new(seed)),
        })
    }

    /// The drive below, after a pause.
    fn later<T: 'static>(&self, act: impl AsyncFnOnce(Rc<MemoryDrive>) -> T + 'static) -> Io<T> {
        let ns = self.random.borrow_mut().below(100_000);
        let (world, inner) = (self.world.clone(), Rc::clone(&self.inner));
        Io::later(async move {
            world.sleep(Duration::from_nanos(ns)).await;
            act(inner).await
        })
    }
}

impl Drive for Jittery {
    fn facts(&self) -> &Facts {
        self.inner.facts()
    }

    fn read(&self, offset: u64, buffers: ReadBufs) -> Io<ReadDone> {
        self.later(async move |inner| inner.read(offset, buffers).await)
    }

    fn write(
        &self,
        offset: u64,
        buffers: WriteBufs,
        durability: Durability,
    ) -> Io<Result<(), DriveError>> {
        self.later(async move |inner| inner.write(offset, buffers, durability).await)
    }

    fn flush(&self) -> Io<Result<(), DriveError>> {
        self.later(async move |inner| inner.flush().await)
    }

    fn discard(&self, offset: u64, bytes: u64) -> Io<Result<Discarded, DriveError>> {
        self.later(async move |inner| inner.discard(offset, bytes).await)
    }

    fn write_zeroes(
        &self,
        offset: u64,
        bytes: u64,
        zeroing: Zeroing,
        durability: Durability,
    ) -> Io<Result<(), DriveError>> {
        self.later(async move |inner| inner.write_zeroes(offset, bytes, zeroing, durability).await)
    }
}

/// An array shape to test.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    pub level: Level,
    pub layout: u32,
    pub members: usize,
    pub chunk_bytes: u32,
    /// Members that may be lost at once, whichever they are.
    pub losses: usize,
}

const fn kind(level: Level, layout: u32, members: usize, chunk_kib: u32, losses: usize) -> Kind {
    Kind { level, layout, members, chunk_bytes: chunk_kib << 10, losses }
}

/// Every level and layout, in small.
pub fn kinds() -> Vec<Kind> {
    let mut kinds = vec![
        kind(Level::Linear, 0, 3, 0, 0),
        kind(Level::Raid0, 2, 3, 4, 0),
        kind(Level::Raid0, 1, 4, 16, 0),
        kind(Level::Raid1, 0, 2, 0, 1),
        kind(Level::Raid1, 0, 3, 0, 2),
        kind(Level::Raid10, 0x102, 4, 4, 1),
        kind(Level::Raid10, 0x102, 5, 8, 1),
        kind(Level::Raid10, 0x103, 5, 4, 2),
        kind(Level::Raid10, 0x201, 4, 8, 1),
        kind(Level::Raid10, 0x201, 3, 4, 1),
        kind(Level::Raid10, 0x10201, 5, 4, 1),
        kind(Level::Raid4, 0, 4, 4, 1),
    ];
    for layout in 0..6 {
        kinds.push(kind(Level::Raid5, layout, 4, 8, 1));
    }
    kinds.push(kind(Level::Raid5, 2, 3, 64, 1));
    for layout in [0, 1, 2, 3, 4, 5, 8, 9, 10, 16, 17, 18, 19, 20] {
        kinds.push(kind(Level::Raid6, layout, 5, 4, 2));
    }
    kinds.push(kind(Level::Raid6, 2, 8, 8, 2));
    kinds
}

/// Some hundred KiB of data on each member.
pub const MEMBER_BYTES: u64 = 1 << 20;

pub fn drives(world: &World, kind: Kind, seed: u64) -> Vec<Rc<dyn Drive>> {
    let drive = |index: usize| -> Rc<dyn Drive> {
        // Levels that use all of unequal members get unequal ones.
        let extra = if kind.losses == 0 { index as u64 * (100 << 10) } else { 0 };
        let bytes = MEMBER_BYTES * 2 + extra;
        Jittery::new(world, &format!("drive {index}"), bytes, seed + index as u64)
    };
    (0..kind.members).map(drive).collect()
}

pub async fn create(world: &World, kind: Kind, drives: &[Rc<dyn Drive>], clean: bool) -> Array {
    create_with(world, kind, drives, clean, Consistency::Resync).await
}

pub async fn create_with(
    world: &World,
    kind: Kind,
    drives: &[Rc<dyn Drive>],
    clean: bool,
    consistency: Consistency,
) -> Array {
    let request = NewArray {
        name: "test".to_owned(),
        level: kind.level,
        layout: Some(kind.layout),
        chunk_bytes: (kind.chunk_bytes > 0).then_some(kind.chunk_bytes),
        slots: drives.iter().cloned().map(Some).collect(),
        spares: Vec::new(),
        size_bytes: None,
        consistency,
        checksums: false,
        assume_clean: clean,
        uuid: *b"0123456789abcdef",
        now_seconds: 1_700_000_000,
    };
    request.create(world).await.unwrap_or_else(|error| panic!("{kind:?}: {error:?}"))
}

/// A flat byte array with the same content as a drive, and the operations on both.
pub struct Twin {
    pub drive: Rc<dyn Drive>,
    pub pool: Pool,
    pub flat: RefCell<Vec<u8>>,
}

impl Twin {
    /// Of a drive whose content is all zero.
    pub fn new(world: &World, drive: Rc<dyn Drive>) -> Twin {
        let flat = RefCell::new(vec![0; drive.facts().size_bytes as usize]);
        Twin { drive, pool: world.pool().clone(), flat }
    }

    /// Takes over what the drive holds already.
    pub async fn adopt(&self) {
        let bytes = self.flat.borrow().len();
        let done = self.drive.read(0, ReadBufs::from_iter([self.pool.take(bytes)])).await;
        done.result.unwrap();
        self.flat.borrow_mut().copy_from_slice(&done.buffers[0]);
    }

    pub async fn write(&self, offset: u64, content: &[u8], cuts: &[usize]) {
        self.flat.borrow_mut()[offset as usize..][..content.len()].copy_from_slice(content);
        let whole = self.pool.copy_of(content);
        let mut buffers = WriteBufs::new();
        let mut start = 0;
        for &cut in cuts.iter().filter(|&&cut| cut < content.len()).chain(&[content.len()]) {
            if cut > start {
                buffers.push(whole.slice(start, cut - start));
                start = cut;
            }
        }
        self.drive.write(offset, buffers, Durability::Cached).await.unwrap();
    }

    pub async fn zero(&self, offset: u64, bytes: u64) {
        self.flat.borrow_mut()[offset as usize..][..bytes as usize].fill(0);
        let zeroing = Zeroing::MayUnmap;
        self.drive.write_zeroes(offset, bytes, zeroing, Durability::Cached).await.unwrap();
    }

    pub async fn check(&self, offset: u64, bytes: usize) {
        let half = bytes / 2 / 512 * 512;
        let parts = [half, bytes - half];
        let buffers = parts.iter().filter(|&&part| part > 0).map(|&part| self.pool.take(part));
        let done = self.drive.read(offset, buffers.collect()).await;
        done.result.unwrap_or_else(|error| panic!("{error}"));
        let read: Vec<u8> = done.buffers.iter().flat_map(|buffer| buffer.iter().copied()).collect();
        let flat = self.flat.borrow();
        let expected = &flat[offset as usize..][..bytes];
        if let Some(at) = (0..bytes).find(|&at| read[at] != expected[at]) {
            let place = offset + at as u64;
            panic!("byte {place} is {:#x} and should be {:#x}", read[at], expected[at]);
        }
    }

    pub async fn check_all(&self) {
        let size = self.flat.borrow().len();
        for offset in (0..size).step_by(256 << 10) {
            self.check(offset as u64, (size - offset).min(256 << 10)).await;
        }
    }
}

/// A random range of whole blocks in `0..size`, mostly small.
pub fn range(random: &mut SplitMix64, size: u64) -> (u64, u64) {
    let blocks = size / 512;
    let longest = match random.below(10) {
        0 => 600,
        1..4 => 60,
        _ => 9,
    };
    let len = 1 + random.below(longest.min(blocks));
    let start = random.below(blocks - len + 1);
    (start * 512, len * 512)
}

/// Random content. A word at a time: a byte at a time would take longer than the engine's work.
pub fn random_bytes(random: &mut SplitMix64, bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    for word in content.chunks_mut(8) {
        word.copy_from_slice(&random.next_u64().to_le_bytes()[..word.len()]);
    }
    content
}
