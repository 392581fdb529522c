//! What every drive must do, as one test body for all of them: memory, files, devices, wrappers,
//! models and arrays. It is public so that each room runs it on the drives it makes.
//!
//! A drive that passes keeps the contract of [`Drive`] as far as one client can see: ranges and
//! alignment are checked, what was written is read back however it was cut into buffers,
//! neighbours stay untouched, operations under way together do not mix. What a power cut leaves is
//! not asked here.
//!
//! The body panics at the first deviation and names the seed, like the tests that call it.

use world::{BufMut, Pool, ReadBufs, SplitMix64, World, WriteBufs, join_all};

use crate::api::{Discarded, Drive, Durability, Zeroing};
use crate::error::{DriveError, ErrorKind};

/// Bytes at the start of the drive that are used, at most: more than any internal piece has, and
/// little enough for a test of a second.
const AREA_BYTES_MAX: u64 = 2 << 20;
/// Steps of the random history.
const STEPS: u32 = 250;
/// The longest request of the random history, in bytes.
const STEP_BYTES_MAX: u64 = 192 << 10;
/// Crumbs are cut so that there are at least this many: more than one system call takes.
const CRUMBS: u64 = 1500;
/// Requests under way together.
const TOGETHER: u64 = 48;

/// Runs the whole body on a writable drive of at least 16 blocks, in the given world; what the
/// drive held is lost. `seed` decides contents, cuts and the history.
///
/// # Panics
/// When the drive does not do what a drive must.
pub fn run(world: &World, drive: &dyn Drive, seed: u64) {
    let facts = drive.facts();
    let block = u64::from(facts.block_bytes);
    assert!(facts.size_bytes.is_multiple_of(block) && facts.size_bytes >= 16 * block, "{facts:?}");
    assert!(!facts.read_only && facts.preferred_bytes > 0, "{facts:?}");
    let area = AREA_BYTES_MAX.min(facts.size_bytes);
    let random = SplitMix64::new(seed);
    let body = Body { drive, pool: world.pool(), block, area: area - area % block, seed, random };
    world.block_on(body.all());
}

struct Body<'a> {
    drive: &'a dyn Drive,
    pool: &'a Pool,
    block: u64,
    area: u64,
    seed: u64,
    random: SplitMix64,
}

/// How a request's bytes are cut into buffers.
#[derive(Debug, Clone, Copy)]
enum Cut {
    One,
    /// One buffer that starts at an odd address.
    Odd,
    /// Buffers of whole blocks.
    Blocks,
    /// Buffers of any length, some of them empty.
    Pieces,
    /// More buffers than one system call takes, where there are bytes enough.
    Crumbs,
}

const CUTS: [Cut; 5] = [Cut::One, Cut::Odd, Cut::Blocks, Cut::Pieces, Cut::Crumbs];

impl Body<'_> {
    async fn all(mut self) {
        self.refusals().await;
        self.nothing_at_all().await;
        self.sizes_and_cuts().await;
        self.end_of_drive().await;
        self.many_together().await;
        self.discard_and_zeroes().await;
        self.history().await;
    }

    fn bytes(&mut self, bytes: u64) -> Vec<u8> {
        let mut content = vec![0; bytes as usize];
        for part in content.chunks_mut(8) {
            part.copy_from_slice(&self.random.next_u64().to_le_bytes()[..part.len()]);
        }
        content
    }

    fn buffers(&mut self, bytes: u64, cut: Cut) -> ReadBufs {
        let mut rest = self.pool.take(bytes as usize);
        let longest = match cut {
            Cut::One => return ReadBufs::from_iter([rest]),
            Cut::Odd => {
                let mut longer = self.pool.take(bytes as usize + 1);
                let _first = longer.split_to(1);
                return ReadBufs::from_iter([longer]);
            }
            Cut::Blocks => (4096 / self.block).max(1) * self.block,
            Cut::Pieces => 10_000,
            Cut::Crumbs => (bytes / CRUMBS).max(8),
        };
        let mut parts = Vec::new();
        while !rest.is_empty() {
            let length = match cut {
                Cut::Blocks => longest,
                _ => self.random.below(longest + 1),
            };
            parts.push(rest.split_to((length as usize).min(rest.len())));
        }
        ReadBufs::from_vec(parts)
    }

    async fn try_read(&self, offset: u64, bytes: u64) -> Result<Vec<u8>, DriveError> {
        let buffers = ReadBufs::from_iter([self.pool.take(bytes as usize)]);
        let done = self.drive.read(offset, buffers).await;
        assert_eq!(done.buffers.len(), 1, "buffers come back, seed {}", self.seed);
        done.result.map(|()| done.buffers[0].to_vec())
    }

    async fn try_write(&self, offset: u64, bytes: u64) -> Result<(), DriveError> {
        let buffers = WriteBufs::from_iter([self.pool.take_zeroed(bytes as usize).freeze()]);
        self.drive.write(offset, buffers, Durability::Cached).await
    }

    async fn store(&mut self, offset: u64, content: &[u8], cut: Cut, durability: Durability) {
        let mut buffers = self.buffers(content.len() as u64, cut);
        let mut done = 0;
        for buffer in &mut buffers {
            let length = buffer.len();
            buffer.copy_from_slice(&content[done..done + length]);
            done += length;
        }
        let buffers: WriteBufs = buffers.into_iter().map(BufMut::freeze).collect();
        let result = self.drive.write(offset, buffers, durability).await;
        result.unwrap_or_else(|error| panic!("{error}, cut {cut:?}, seed {}", self.seed));
    }

    async fn expect(&mut self, offset: u64, content: &[u8], cut: Cut, when: &str) {
        let buffers = self.buffers(content.len() as u64, cut);
        let lengths: Vec<usize> = buffers.iter().map(|buffer| buffer.len()).collect();
        let done = self.drive.read(offset, buffers).await;
        let place = format!("{when}, offset {offset}, cut {cut:?}, seed {}", self.seed);
        done.result.unwrap_or_else(|error| panic!("{error}: {place}"));
        let again: Vec<usize> = done.buffers.iter().map(|buffer| buffer.len()).collect();
        assert_eq!(again, lengths, "the same buffers come back: {place}");
        let mut start = 0;
        for got in &done.buffers {
            let wanted = &content[start..start + got.len()];
            if got[..] != *wanted {
                let at = got.iter().zip(wanted).take_while(|(got, wanted)| got == wanted).count();
                let (byte, place_in) = (got[at], start + at);
                panic!("byte {place_in} is {byte:#x}, not {:#x}: {place}", wanted[at]);
            }
            start += got.len();
        }
    }

    /// Every operation refuses what lies outside or across blocks, and changes nothing.
    async fn refusals(&mut self) {
        let size = self.drive.facts().size_bytes;
        let block = self.block;
        let mut wrong = vec![
            (size, block, ErrorKind::OutOfRange),
            (size - block, 2 * block, ErrorKind::OutOfRange),
            (u64::MAX - u64::MAX % block, block, ErrorKind::OutOfRange),
        ];
        if block > 1 {
            wrong.push((1, block, ErrorKind::Misaligned));
            wrong.push((0, block - 1, ErrorKind::Misaligned));
        }
        let kept = self.bytes(2 * block);
        self.store(0, &kept, Cut::One, Durability::Cached).await;
        for (offset, bytes, kind) in wrong {
            let zeroing = Zeroing::MayUnmap;
            let zeroes = self.drive.write_zeroes(offset, bytes, zeroing, Durability::Cached);
            let results = [
                self.try_read(offset, bytes).await.map(|_| ()),
                self.try_write(offset, bytes).await,
                zeroes.await,
                self.drive.discard(offset, bytes).await.map(|_| ()),
            ];
            for result in results {
                let got = result.map_err(|error| error.kind);
                assert_eq!(got, Err(kind), "{bytes} bytes at {offset}, seed {}", self.seed);
            }
        }
        self.expect(0, &kept, Cut::One, "after refusals").await;
    }

    /// Requests for no bytes are fine, also at the very end.
    async fn nothing_at_all(&mut self) {
        for offset in [0, self.drive.facts().size_bytes] {
            let done = self.drive.read(offset, ReadBufs::new()).await;
            assert!(done.buffers.is_empty() && done.result.is_ok());
            let cached = Durability::Cached;
            let wrote = self.drive.write(offset, WriteBufs::new(), Durability::Durable).await;
            wrote.expect("writing nothing");
            let zeroed = self.drive.write_zeroes(offset, 0, Zeroing::KeepAllocated, cached).await;
            zeroed.expect("zeroing nothing");
            self.drive.discard(offset, 0).await.expect("discarding nothing");
        }
        self.drive.flush().await.expect("flushing nothing");
    }

    /// What was written is read, whatever its size and however it is cut; neighbours stay.
    async fn sizes_and_cuts(&mut self) {
        let area = self.area;
        let mut model = self.bytes(area);
        self.store(0, &model, Cut::One, Durability::Cached).await;
        let blocks = area / self.block;
        let wanted =
            [1, 2, 3, 8, 17, 4096, 65_536, 131_072 + self.block, 1 << 20, (1 << 20) + 4096];
        for (index, bytes) in wanted.into_iter().enumerate() {
            let count = bytes.div_ceil(self.block).min(blocks - 2);
            for cut in CUTS {
                let start = (1 + self.random.below(blocks - count)) * self.block;
                let content = self.bytes(count * self.block);
                let durable = index % 3 == 1;
                let durability = if durable { Durability::Durable } else { Durability::Cached };
                self.store(start, &content, cut, durability).await;
                model[start as usize..][..content.len()].copy_from_slice(&content);
                let other = CUTS[self.random.below(CUTS.len() as u64) as usize];
                let before = start - self.block;
                let end = (start + (count + 1) * self.block).min(area);
                let around = model[before as usize..end as usize].to_vec();
                self.expect(before, &around, other, "after a write").await;
            }
        }
        self.drive.flush().await.expect("a flush");
        self.expect(0, &model, Cut::One, "after a flush").await;
    }

    /// The last block is as good as any.
    async fn end_of_drive(&mut self) {
        let size = self.drive.facts().size_bytes;
        for count in [1, 3] {
            let content = self.bytes(count * self.block);
            let start = size - count * self.block;
            self.store(start, &content, Cut::One, Durability::Durable).await;
            self.expect(start, &content, Cut::Odd, "at the end").await;
        }
    }

    /// Neighbouring writes under way together all arrive, and so do reads.
    async fn many_together(&mut self) {
        let count = TOGETHER.min(self.area / self.block);
        let each = (self.area / count / self.block).min(3) * self.block;
        let model = self.bytes(count * each);
        let (drive, pool) = (self.drive, self.pool);
        let mut order: Vec<u64> = (0..count).collect();
        for index in (1..order.len()).rev() {
            order.swap(index, self.random.below(index as u64 + 1) as usize);
        }
        let writes = order.iter().map(|&index| {
            let content = &model[(index * each) as usize..][..each as usize];
            let buffers = WriteBufs::from_iter([pool.copy_of(content)]);
            drive.write(index * each, buffers, Durability::Cached)
        });
        for result in join_all(writes).await {
            result.unwrap_or_else(|error| panic!("{error}, seed {}", self.seed));
        }
        let reads = order.iter().map(|&index| {
            drive.read(index * each, ReadBufs::from_iter([pool.take(each as usize)]))
        });
        for (done, &index) in join_all(reads).await.into_iter().zip(&order) {
            done.result.unwrap_or_else(|error| panic!("{error}, seed {}", self.seed));
            let wanted = &model[(index * each) as usize..][..each as usize];
            assert!(done.buffers[0][..] == *wanted, "part {index} of {count}, seed {}", self.seed);
        }
    }

    /// Zeroes are zeroes both ways, discards say what they leave, and neighbours stay.
    async fn discard_and_zeroes(&mut self) {
        let area = self.area;
        let mut model = self.bytes(area);
        self.store(0, &model, Cut::One, Durability::Cached).await;
        let blocks = area / self.block;
        for round in 0..12u32 {
            let count = 1 + self.random.below((blocks - 2).min(600));
            let start = (1 + self.random.below(blocks - count - 1)) * self.block;
            let bytes = count * self.block;
            let range = start as usize..(start + bytes) as usize;
            if round % 4 == 3 {
                if self.drive.discard(start, bytes).await.expect("a discard") == Discarded::Zeroes {
                    model[range].fill(0);
                } else {
                    let content = self.bytes(bytes);
                    self.store(start, &content, Cut::One, Durability::Cached).await;
                    model[range].copy_from_slice(&content);
                }
            } else {
                let keep = round % 2 == 0;
                let zeroing = if keep { Zeroing::KeepAllocated } else { Zeroing::MayUnmap };
                let durable = round % 4 == 0;
                let durability = if durable { Durability::Durable } else { Durability::Cached };
                let zeroed = self.drive.write_zeroes(start, bytes, zeroing, durability).await;
                zeroed.expect("zeroes");
                model[range].fill(0);
            }
            self.expect(0, &model, Cut::One, "after discards and zeroes").await;
        }
    }

    /// A random history, compared with a flat array of bytes.
    async fn history(&mut self) {
        let blocks = self.area / self.block;
        let longest = (STEP_BYTES_MAX / self.block).clamp(1, blocks);
        let mut model = self.bytes(self.area);
        self.store(0, &model, Cut::One, Durability::Cached).await;
        for step in 0..STEPS {
            let count = 1 + self.random.below(longest);
            let start = self.random.below(blocks - count + 1) * self.block;
            let bytes = count * self.block;
            let range = start as usize..(start + bytes) as usize;
            let cut = CUTS[self.random.below(4) as usize];
            match self.random.below(10) {
                0..=3 => {
                    let content = self.bytes(bytes);
                    self.store(start, &content, cut, Durability::Cached).await;
                    model[range].copy_from_slice(&content);
                }
                4 => {
                    let zeroing = Zeroing::MayUnmap;
                    let zeroed = self.drive.write_zeroes(start, bytes, zeroing, Durability::Cached);
                    zeroed.await.expect("zeroes");
                    model[range].fill(0);
                }
                5 => match self.drive.discard(start, bytes).await.expect("a discard") {
                    Discarded::Zeroes => model[range].fill(0),
                    Discarded::Unspecified => {
                        self.store(start, &model[range], cut, Durability::Cached).await;
                    }
                },
                6 => self.drive.flush().await.expect("a flush"),
                _ => {
                    let wanted = model[range].to_vec();
                    self.expect(start, &wanted, cut, &format!("step {step}")).await;
                }
            }
        }
        self.expect(0, &model, Cut::One, "after the history").await;
    }
}
