//! Sets of images on the host: made, opened and compared through the engine.

use std::rc::Rc;

use array::{Array, Consistency, NewArray, OpenMode, Scan};
use drive::{Access, Direct, Drive, Durability, FileDrive, OpenOptions, Zeroing, create_file};
use world::{ReadBufs, RingConfig, SplitMix64, World, WriteBufs, join_all};

use crate::guest::Bench;
use crate::shapes::Shape;

/// Requests at once.
const LANES: usize = 4;

/// One request of the first filling.
const FILL_BYTES: usize = 192 << 10;

/// When the superblocks say they were written.
pub const NOW_SECONDS: u64 = 1_700_000_000;

pub const READ_ONLY: OpenMode =
    OpenMode { read_only: true, force_dirty: false, now_seconds: NOW_SECONDS };
pub const READ_WRITE: OpenMode = OpenMode { read_only: false, ..READ_ONLY };

/// An array on images, and what it must hold.
pub struct Set {
    pub name: String,
    pub shape: Shape,
    pub content: Vec<u8>,
    pub random: SplitMix64,
}

/// A world in which files are drives.
pub fn real_world() -> World {
    World::real(RingConfig { entries: 64, arena_bytes: 4 << 20 }).unwrap()
}

/// The names of a set's images.
pub fn images(name: &str, members: usize) -> Vec<String> {
    (0..members).map(|slot| format!("{name}-{slot}")).collect()
}

/// Images as drives. They get no direct I/O, so that their blocks are md's sectors, and no lock:
/// what another test's thread starts holds a copy of it for a moment.
pub fn drives(world: &World, bench: &Bench, images: &[String]) -> Vec<Rc<dyn Drive>> {
    let options = OpenOptions { access: Access::ReadWrite, direct: Direct::Off, exclusive: false };
    let open = |image: &String| -> Rc<dyn Drive> {
        Rc::new(FileDrive::open(world, &bench.path(image), options).unwrap())
    };
    images.iter().map(open).collect()
}

/// Opens the one array on these images.
pub async fn open(world: &World, drives: &[Rc<dyn Drive>], mode: OpenMode) -> Array {
    let scan = Scan::of(world.pool(), drives.to_vec()).await;
    assert_eq!(scan.assemblies.len(), 1);
    scan.open(world, &scan.assemblies[0], mode).await.unwrap_or_else(|error| panic!("{error}"))
}

/// A request for an array of this shape, of drives that hold something else.
pub fn request(shape: &Shape, name: &str, slots: Vec<Option<Rc<dyn Drive>>>) -> NewArray {
    let mut uuid = *b"................";
    for (byte, letter) in uuid.iter_mut().zip(name.bytes()) {
        *byte = letter;
    }
    NewArray {
        name: name.to_owned(),
        level: shape.level,
        layout: shape.layout,
        chunk_bytes: (shape.chunk_kib > 0).then_some(shape.chunk_kib << 10),
        slots,
        spares: Vec::new(),
        size_bytes: None,
        consistency: Consistency::Resync,
        checksums: false,
        assume_clean: false,
        uuid,
        now_seconds: NOW_SECONDS,
    }
}

pub fn random_bytes(random: &mut SplitMix64, bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    for word in content.chunks_mut(8) {
        word.copy_from_slice(&random.next_u64().to_le_bytes()[..word.len()]);
    }
    content
}

/// Images full of what an earlier owner left.
pub fn used_images(bench: &Bench, images: &[String], sizes: &[u64], random: &mut SplitMix64) {
    for (image, &bytes) in images.iter().zip(sizes) {
        create_file(&bench.path(image), bytes).unwrap();
        std::fs::write(bench.path(image), random_bytes(random, bytes as usize)).unwrap();
    }
}

impl Set {
    /// Makes the array, fills it while it still resyncs, and stops it.
    pub fn create(bench: &Bench, name: &str, shape: Shape, seed: u64) -> Set {
        let mut random = SplitMix64::new(seed);
        let images = images(name, shape.members);
        used_images(bench, &images, &shape.image_bytes(), &mut random);
        let world = real_world();
        let drives = drives(&world, bench, &images);
        let slots = drives.into_iter().map(Some).collect();
        let content = world.block_on(async {
            let array = request(&shape, name, slots).create(&world).await;
            let array = array.unwrap_or_else(|error| panic!("{shape:?}: {error}"));
            let content = random_bytes(&mut random, array.facts().size_bytes as usize);
            fill(&world, &array, &content).await;
            array.background_done().await;
            array.stop().await.unwrap();
            content
        });
        world.end();
        Set { name: name.to_owned(), shape, content, random }
    }

    pub fn images(&self) -> Vec<String> {
        images(&self.name, self.shape.members)
    }

    /// Small writes at random places, some at once, and some zeroes.
    pub async fn scribble(&mut self, world: &World, array: &Array) {
        for _ in 0..20 {
            self.scribble_once(world, array, LANES as u64).await;
        }
    }

    /// Some small writes at once, each in a part of the array of its own: what requests that
    /// overlap leave behind is not defined.
    pub async fn scribble_once(&mut self, world: &World, array: &Array, lanes: u64) {
        let mut writes = Vec::new();
        let lane_blocks = self.content.len() as u64 / 512 / lanes;
        for lane in 0..lanes {
            let longest = if self.random.below(8) == 0 { 300 } else { 20 };
            let length = 1 + self.random.below(longest.min(lane_blocks));
            let start = lane * lane_blocks + self.random.below(lane_blocks - length + 1);
            let (offset, bytes) = (start as usize * 512, length as usize * 512);
            let zero = self.random.below(6) == 0;
            let new = if zero { vec![0; bytes] } else { random_bytes(&mut self.random, bytes) };
            self.content[offset..][..bytes].copy_from_slice(&new);
            writes.push(async move {
                let offset = offset as u64;
                if zero {
                    let zeroing = Zeroing::MayUnmap;
                    let durability = Durability::Cached;
                    return array.write_zeroes(offset, bytes as u64, zeroing, durability).await;
                }
                let buffers = WriteBufs::from_iter([world.pool().copy_of(&new)]);
                array.write(offset, buffers, Durability::Cached).await
            });
        }
        for result in join_all(writes).await {
            result.unwrap();
        }
    }

    /// Reads the array through the engine, from the images without `lost`, and compares.
    pub fn reads_without(&self, bench: &Bench, lost: &[usize]) {
        let world = real_world();
        let images = self.images().into_iter().enumerate();
        let left: Vec<String> =
            images.filter(|(slot, _)| !lost.contains(slot)).map(|(_, image)| image).collect();
        let drives = drives(&world, bench, &left);
        let content = world.block_on(async {
            let array = open(&world, &drives, READ_ONLY).await;
            read_all(&world, &array).await
        });
        world.end();
        self.compare(&format!("read by the engine without {lost:?}"), &content);
    }

    /// Ends the test at the first byte that differs.
    pub fn compare(&self, what: &str, content: &[u8]) {
        let (name, shape) = (&self.name, &self.shape);
        assert_eq!(content.len(), self.content.len(), "{name} {what}: {shape:?}");
        let first = content.iter().zip(&self.content).position(|(is, should)| is != should);
        assert_eq!(first, None, "first wrong byte of {name}, {what}: {shape:?}");
    }

    /// Draws pieces for the guest to write from a file of new content, and takes them into what
    /// the array must hold. Gives the guest's words for them.
    pub fn pieces(&mut self, bench: &Bench, file: &str) -> String {
        let new = random_bytes(&mut self.random, self.content.len());
        std::fs::write(bench.path(file), &new).unwrap();
        let mut words = Vec::new();
        // Odd small ones, pages, and such that contain whole stripes.
        for (block, most) in [(1536, 40), (512, 20), (4096, 60), (256 << 10, 6)] {
            let blocks = self.content.len() as u64 / block;
            let count = (1 + self.random.below(most)).min(blocks);
            let first = self.random.below(blocks - count + 1);
            let range = (first * block) as usize..((first + count) * block) as usize;
            self.content[range.clone()].copy_from_slice(&new[range]);
            words.push(format!("{block} {first} {count}"));
        }
        format!("scatter {file} {}", words.join(" "))
    }
}

/// Writes all of the content, some requests at a time.
pub async fn fill(world: &World, array: &dyn Drive, content: &[u8]) {
    let requests: Vec<_> = content.chunks(FILL_BYTES).enumerate().collect();
    for requests in requests.chunks(LANES) {
        let writes = requests.iter().map(|(index, part)| {
            let buffers = WriteBufs::from_iter([world.pool().copy_of(part)]);
            array.write((index * FILL_BYTES) as u64, buffers, Durability::Cached)
        });
        for result in join_all(writes).await {
            result.unwrap();
        }
    }
}

/// All of a drive's content.
pub async fn read_all(world: &World, array: &dyn Drive) -> Vec<u8> {
    let mut content = Vec::new();
    let size = array.facts().size_bytes as usize;
    while content.len() < size {
        let bytes = (size - content.len()).min(1 << 20);
        let buffers = ReadBufs::from_iter([world.pool().take(bytes)]);
        let done = array.read(content.len() as u64, buffers).await;
        done.result.unwrap_or_else(|error| panic!("{error}"));
        content.extend_from_slice(&done.buffers[0]);
    }
    content
}

/// All ways to lose between none and `most` of `count` members; with many members only some of
/// those with several.
pub fn losses(count: usize, most: usize) -> Vec<Vec<usize>> {
    let bearable = |set: &u32| {
        let lost = set.count_ones() as usize;
        lost <= most && (lost < 2 || count <= 5 || set.is_multiple_of(3))
    };
    let sets = (0u32..1 << count).filter(bearable);
    sets.map(|set| (0..count).filter(|index| set & (1 << index) != 0).collect()).collect()
}
