//! Every redundant level with every consistency policy it has, on drives in virtual time whose
//! power can be cut; what they hold becomes images for md.

use std::rc::Rc;
use std::time::Duration;

use array::{Array, Consistency, NewArray};
use drive::{Drive, Durability, Effect, Fault, Faulty, MemoryDrive};
use geometry::Level;
use world::{SplitMix64, World, WriteBufs, join_all};

use crate::bitmap::shorten_bitmap_chunks;
use crate::guest::Bench;
use crate::sets::{READ_WRITE, fill, images, open, random_bytes, read_all, request};
use crate::shapes::{PLAIN, RAID5, RAID6, RAID10, Shape};

/// Bytes of the drive a journal is on.
const JOURNAL_BYTES: u64 = 8 << 20;

const SECTOR: usize = 512;

/// How an array knows after a power cut what was in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    Resync,
    Bitmap,
    Ppl,
    Journal,
}

/// An array to make.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub shape: Shape,
    pub policy: Policy,
}

/// Each redundant level, raid10 in all three ways, with each policy it has.
pub fn cases() -> Vec<Case> {
    let shapes =
        [PLAIN[6], PLAIN[7], RAID10[0], RAID10[4], RAID10[9], RAID5[0], RAID5[4], RAID6[2]];
    let policies = |shape: &Shape| -> &[Policy] {
        use Policy::{Bitmap, Journal, Ppl, Resync};
        match shape.level {
            Level::Raid5 => &[Resync, Bitmap, Ppl, Journal],
            Level::Raid4 | Level::Raid6 => &[Resync, Bitmap, Journal],
            _ => &[Resync, Bitmap],
        }
    };
    let with_each =
        |shape: Shape| policies(&shape).iter().map(move |&policy| Case { shape, policy });
    shapes.into_iter().flat_map(with_each).collect()
}

impl Case {
    /// Whether it keeps a log, which closes the write hole.
    pub fn logged(&self) -> bool {
        matches!(self.policy, Policy::Ppl | Policy::Journal)
    }

    /// Sizes of the images, the journal's last.
    pub fn image_bytes(&self) -> Vec<u64> {
        let mut sizes = self.shape.image_bytes();
        sizes.extend((self.policy == Policy::Journal).then_some(JOURNAL_BYTES));
        sizes
    }

    /// The sectors that one write covers are a multiple of this: journals keep whole blocks.
    fn block(&self) -> usize {
        if self.logged() { 4096 } else { SECTOR }
    }
}

/// What an array may read as: each sector the old or the new content, where that is known.
#[derive(Clone)]
pub struct Expected {
    pub old: Vec<u8>,
    pub new: Vec<u8>,
    /// By sector: false where any content is right.
    known: Vec<bool>,
}

impl Expected {
    /// Of an array that was filled.
    pub fn of(content: Vec<u8>) -> Expected {
        let known = vec![true; content.len() / SECTOR];
        Expected { old: content.clone(), new: content, known }
    }

    /// All writes are where they last.
    pub fn settle(&mut self) {
        self.old.clone_from(&self.new);
    }

    /// The same without what is in flight.
    pub fn settled_only(&self) -> Expected {
        let mut settled = self.clone();
        let sectors = self.old.chunks(SECTOR).zip(self.new.chunks(SECTOR));
        for (known, (old, new)) in settled.known.iter_mut().zip(sectors) {
            *known &= old == new;
        }
        settled
    }

    /// Ends the test at the first sector that is neither old nor new.
    pub fn check(&self, what: &str, content: &[u8]) {
        assert_eq!(content.len(), self.old.len(), "{what}");
        let mut old_and_new = self.old.chunks(SECTOR).zip(self.new.chunks(SECTOR));
        for (sector, (is, known)) in content.chunks(SECTOR).zip(&self.known).enumerate() {
            let (old, new) = old_and_new.next().unwrap();
            let right = !known || is == old || is == new;
            assert!(right, "sector {sector} is neither old nor new: {what}");
        }
    }
}

/// The drives of one array, each with a cache that a power cut empties.
pub struct Rack {
    pub world: World,
    pub name: String,
    pub case: Case,
    pub random: SplitMix64,
    memory: Vec<Rc<MemoryDrive>>,
    faulty: Vec<Rc<Faulty>>,
}

impl Rack {
    /// Drives full of what an earlier owner left, in virtual time.
    pub fn new(name: &str, case: Case, sizes: &[u64], seed: u64) -> Rack {
        let world = World::virtual_time(seed);
        let mut random = SplitMix64::new(seed);
        let (mut memory, mut faulty) = (Vec::new(), Vec::new());
        for (image, &bytes) in images(name, sizes.len()).iter().zip(sizes) {
            let drive = Rc::new(MemoryDrive::new(image, bytes, SECTOR as u32));
            let used = random_bytes(&mut random, bytes as usize);
            let buffers = WriteBufs::from_iter([world.pool().copy_of(&used)]);
            world.block_on(drive.write(0, buffers, Durability::Cached)).unwrap();
            let dynamic = Rc::clone(&drive) as Rc<dyn Drive>;
            faulty.push(Rc::new(Faulty::new(&world, dynamic, random.next_u64())));
            memory.push(drive);
        }
        Rack { world, name: name.to_owned(), case, random, memory, faulty }
    }

    pub fn drives(&self) -> Vec<Rc<dyn Drive>> {
        self.faulty.iter().map(|drive| Rc::clone(drive) as Rc<dyn Drive>).collect()
    }

    /// Makes the array of the first drives; those behind its members are its spares, or the last
    /// one its journal.
    pub async fn create(&self) -> Array {
        let mut drives = self.drives();
        let consistency = match self.case.policy {
            Policy::Resync => Consistency::Resync,
            Policy::Bitmap => Consistency::Bitmap { chunk_bytes: None },
            Policy::Ppl => Consistency::Ppl,
            Policy::Journal => Consistency::Journal(drives.pop().unwrap()),
        };
        let spares = drives.split_off(self.case.shape.members);
        let slots = drives.into_iter().map(Some).collect();
        let plain = request(&self.case.shape, &self.name, slots);
        let request = NewArray { consistency, spares, ..plain };
        let array = request.create(&self.world).await;
        let array = array.unwrap_or_else(|error| panic!("{}: {error}", self.what()));
        if self.case.policy != Policy::Bitmap {
            return array;
        }
        array.hold_jobs().await;
        array.stop().await.unwrap();
        shorten_bitmap_chunks(&self.world, &self.drives()).await;
        open(&self.world, &self.drives(), READ_WRITE).await
    }

    /// Makes the array, fills it while it resyncs, and waits for that.
    pub async fn create_filled(&mut self) -> (Array, Expected) {
        let array = self.create().await;
        let content = random_bytes(&mut self.random, array.facts().size_bytes as usize);
        fill(&self.world, &array, &content).await;
        array.background_done().await;
        (array, Expected::of(content))
    }

    /// Writes of random pieces, each in a part of the array of its own: of so many parts those
    /// whose number is `odd`. They are under way when this returns.
    pub fn write_some(
        &mut self,
        array: &Array,
        expected: &mut Expected,
        lanes: usize,
        odd: bool,
    ) -> impl Future<Output = Vec<Result<(), drive::DriveError>>> + 'static {
        let block = self.case.block();
        let lane_blocks = expected.new.len() / block / lanes;
        let mut writes = Vec::new();
        for lane in (usize::from(odd)..lanes).step_by(2) {
            let longest = if self.random.below(6) == 0 { 160 << 10 } else { 12 << 10 };
            let longest = lane_blocks.min(longest / block) as u64;
            let blocks = 1 + self.random.below(longest);
            let start = self.random.below(lane_blocks as u64 - blocks + 1) as usize;
            let (start, bytes) = ((lane * lane_blocks + start) * block, blocks as usize * block);
            let content = random_bytes(&mut self.random, bytes);
            expected.new[start..][..bytes].copy_from_slice(&content);
            expected.known[start / SECTOR..][..bytes / SECTOR].fill(true);
            let buffers = WriteBufs::from_iter([self.world.pool().copy_of(&content)]);
            writes.push(array.write(start as u64, buffers, Durability::Cached));
        }
        self.world.spawn(async { join_all(writes).await.into_vec() })
    }

    /// From here on a power cut takes what was not flushed, and drives take their time.
    pub fn caches_on(&mut self) {
        for drive in &self.faulty {
            let control = drive.control();
            control.set_volatile_cache(true);
            for odds in [1, 2, 3] {
                let delay = Duration::from_nanos(1000 + self.random.below(200_000));
                control.add(Fault::new(Effect::Delay(delay)).one_in(odds));
            }
        }
    }

    /// The power goes.
    pub async fn cut(&mut self) {
        for drive in &self.faulty {
            drive.control().power_cut(self.random.next_u64()).await.unwrap();
        }
    }

    /// Writes what the drives hold to images, and ends the world.
    pub fn dump(self, bench: &Bench) {
        for (memory, image) in self.memory.iter().zip(self.images()) {
            let content = self.world.block_on(read_all(&self.world, memory.as_ref()));
            std::fs::write(bench.path(&image), content).unwrap();
        }
        self.world.end();
    }

    pub fn images(&self) -> Vec<String> {
        images(&self.name, self.memory.len())
    }

    /// Words for a message.
    pub fn what(&self) -> String {
        format!("{}: {:?}", self.name, self.case)
    }
}
