//! A member whose data has checksums: what is read is what was written, or an error.
//!
//! [`Checked`] stands between a slot and its drive. A read's blocks are compared with their
//! checksums; one that differs is read once more, with no write under way there, and is then a
//! medium error, which the engine answers and mends as it does any other: from redundancy.
//! A write changes the checksums first and then the data; both are only certain after a
//! [`settle`](MemberSums::settle), and until then the header on the member says so (`header`).
//!
//! The array is of blocks of [`BLOCK_BYTES`] while a member has checksums, so that a write never
//! has to read the rest of a block; smaller clients are served as on any drive of such blocks.
//!
//! Price: a read waits for the page of its checksums where that is not in memory, and so does a
//! write; the pages are written when the array comes to rest, before bits of the bitmap are
//! cleared, or when memory for them ends.

mod header;
mod pages;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::rc::Rc;

use drive::{
    Discarded, Drive, DriveError, Durability, ErrorKind, Facts, Io, Operation, ReadDone, Zeroing,
};
use format::md::Superblock;
use format::own::SumsArea;
use format::own::checksums::{BLOCK_BYTES, BlockSum, Bond, NO_SUM, Owner, block_sum};
use smallvec::SmallVec;
use world::{BufMut, ReadBufs, World, WriteBufs, race, total_bytes};

pub(crate) use header::Start;

use crate::lock::{Mode, RangeLocks};
use crate::mutant::{self, Mutant};
use header::HeaderKeeper;
use pages::{Held, PAGES_MAX, Pages};

/// The checksums of one member's data.
pub(crate) struct MemberSums {
    drive: Rc<dyn Drive>,
    facts: Facts,
    area: SumsArea,
    pages: Pages,
    header: HeaderKeeper,
    /// Blocks that are being written.
    claims: RangeLocks,
    /// Times that blocks were not what their checksums say.
    wrong: Cell<u64>,
    /// Blocks on which changes failed: the checksums of what they may hold.
    possible: RefCell<BTreeMap<u64, Vec<u32>>>,
    /// Times that what was known of blocks was given up.
    losses: Cell<u64>,
    zero_sum: u32,
}

impl MemberSums {
    /// Of the member on `drive`, whose superblock is on it as given.
    pub(crate) fn new(
        world: &World,
        drive: Rc<dyn Drive>,
        superblock: &Superblock,
        area: SumsArea,
        start: Start,
    ) -> MemberSums {
        let owner = owner(superblock);
        let block_bytes = drive.facts().block_bytes.max(BLOCK_BYTES as u32);
        let size_bytes = drive.facts().size_bytes;
        let size_bytes = size_bytes - size_bytes % u64::from(block_bytes);
        let facts = Facts { block_bytes, size_bytes, ..drive.facts().clone() };
        let pool = world.pool().clone();
        let bond = Bond::to(superblock);
        MemberSums {
            pages: Pages::new(Rc::clone(&drive), pool.clone(), area, owner, start.epoch()),
            header: HeaderKeeper::new(Rc::clone(&drive), pool, area, owner, bond, start),
            drive,
            facts,
            area,
            claims: RangeLocks::default(),
            wrong: Cell::new(0),
            possible: RefCell::default(),
            losses: Cell::new(0),
            zero_sum: block_sum(&[0; BLOCK_BYTES as usize]),
        }
    }

    /// The drive without its checksums.
    pub(crate) fn drive(&self) -> &Rc<dyn Drive> {
        &self.drive
    }

    /// Blocks that were not what their checksums say, since the array was opened.
    pub(crate) fn wrong_blocks(&self) -> u64 {
        self.wrong.get()
    }

    /// Whether every block was given a checksum.
    pub(crate) fn complete(&self) -> bool {
        self.header.complete.get()
    }

    /// How often checksums were given up: after a write that failed, or a discard.
    pub(crate) fn losses(&self) -> u64 {
        self.losses.get()
    }

    fn lose(&self) {
        self.losses.set(self.losses.get() + 1);
        self.set_complete(false);
    }

    /// Says whether every block has a checksum.
    pub(crate) fn set_complete(&self, complete: bool) {
        self.header.complete.set(complete);
    }

    /// Forgets what is known of ranges of the data area, which don't overlap; true if that was
    /// done. It is not where it takes more pages than are kept in memory. Writes nothing.
    pub(crate) async fn forget(&self, ranges: &[Range<u64>]) -> bool {
        let covered = self.area.covered_bytes / BLOCK_BYTES;
        let blocks = |range: &Range<u64>| {
            range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES).min(covered)
        };
        let pages = ranges.iter().map(|range| Pages::numbers(&blocks(range)));
        if pages.map(|pages| pages.end - pages.start).sum::<u64>() > PAGES_MAX as u64 {
            return false;
        }
        for blocks in ranges.iter().map(blocks) {
            let held = self.pages.load(&blocks).await;
            blocks.for_each(|block| held.set(block, NO_SUM));
        }
        true
    }

    /// Writes the checksums that changed: durable with the next flush of the member.
    ///
    /// # Errors
    /// The member can't be written.
    pub(crate) async fn store(&self) -> Result<(), DriveError> {
        if mutant::planted(Mutant::SumsNotWritten) {
            return Ok(());
        }
        self.pages.write_changed().await
    }

    /// Makes the checksums of what is durable now durable too, unless writes are under way.
    ///
    /// # Errors
    /// The member can't be written.
    pub(crate) async fn settle(&self) -> Result<(), DriveError> {
        let changes = self.header.changes();
        self.store().await?;
        self.drive.flush().await?;
        self.header.settled(changes);
        Ok(())
    }

    /// Settles, and says so on the member.
    ///
    /// # Errors
    /// The member can't be written.
    pub(crate) async fn persist(&self) -> Result<(), DriveError> {
        self.settle().await?;
        self.header.persist().await
    }

    /// Before `superblock` is written: its header. `dirty`: writes are about to come.
    ///
    /// # Errors
    /// The member can't be written.
    pub(crate) async fn bind(
        &self,
        superblock: &Superblock,
        dirty: bool,
    ) -> Result<(), DriveError> {
        self.header.bind(Bond::to(superblock), dirty).await
    }

    /// Whether blocks of the data area have no checksum; `offset` counts from its start.
    pub(crate) async fn lacks(&self, offset: u64, bytes: u64) -> bool {
        let blocks = blocks_of(offset, bytes);
        let held = self.pages.load(&blocks).await;
        blocks.into_iter().any(|block| held.sum(block) == NO_SUM)
    }

    /// Gives blocks without a checksum that of `content`, where `agrees` with the block's place in
    /// it. The caller keeps writers away. Gives how many are left without.
    pub(crate) async fn learn(
        &self,
        offset: u64,
        content: &[u8],
        agrees: impl Fn(usize) -> bool,
    ) -> u64 {
        let blocks = blocks_of(offset, content.len() as u64);
        let held = self.pages.load(&blocks).await;
        let mut left = 0;
        for (index, (block, bytes)) in
            blocks.zip(content.chunks_exact(BLOCK_BYTES as usize)).enumerate()
        {
            if held.sum(block) != NO_SUM {
                continue;
            }
            if agrees(index) {
                held.set(block, block_sum(bytes));
            } else {
                left += 1;
            }
        }
        left
    }

    /// What a request on the drive is about.
    fn aim(&self, operation: Operation, offset: u64, bytes: u64) -> Result<Aim, DriveError> {
        let SumsArea { data_offset_bytes: start, covered_bytes } = self.area;
        let end = start + covered_bytes;
        if bytes == 0 || offset.saturating_add(bytes) <= start || offset >= end {
            return Ok(Aim::Elsewhere);
        }
        let kind = if offset < start || offset + bytes > end {
            ErrorKind::OutOfRange
        } else if !(offset.is_multiple_of(BLOCK_BYTES) && bytes.is_multiple_of(BLOCK_BYTES)) {
            ErrorKind::Misaligned
        } else {
            return Ok(Aim::Data(blocks_of(offset - start, bytes)));
        };
        Err(self.error(kind, operation, offset, bytes))
    }

    fn error(&self, kind: ErrorKind, operation: Operation, offset: u64, bytes: u64) -> DriveError {
        let drive = self.facts.name.clone();
        DriveError { kind, operation, offset, bytes, drive, source: None }
    }

    /// Finishes a read whose checksums were at hand.
    fn judged(&self, held: &Held, blocks: &Range<u64>, done: &ReadDone) -> Option<u64> {
        done.result.as_ref().ok()?;
        first_wrong(held, &self.possible.borrow(), blocks.start, &done.buffers)
    }

    /// Reads blocks that were not what they should be once more, with no write under way there.
    async fn read_again(&self, held: &Held, blocks: Range<u64>, buffers: ReadBufs) -> ReadDone {
        let _claim = self.claims.lock(blocks.clone(), Mode::Exclusive).await;
        let offset = self.area.data_offset_bytes + blocks.start * BLOCK_BYTES;
        let mut done = self.drive.read(offset, buffers).await;
        if let Some(block) = self.judged(held, &blocks, &done) {
            self.wrong.set(self.wrong.get() + 1);
            let at = self.area.data_offset_bytes + block * BLOCK_BYTES;
            let error = self.error(ErrorKind::Media, Operation::Read, at, BLOCK_BYTES);
            let differs = io::Error::new(io::ErrorKind::InvalidData, "not what its checksum says");
            done.result = Err(DriveError { source: Some(Rc::new(differs)), ..error });
        }
        done
    }

    /// Changes blocks and their checksums; `sums` gives that of each.
    async fn change<T>(
        self: Rc<Self>,
        blocks: Range<u64>,
        sums: impl FnOnce(&Held),
        act: impl AsyncFnOnce(&dyn Drive) -> Result<T, DriveError>,
    ) -> Result<T, DriveError> {
        let _claim = self.claims.lock(blocks.clone(), Mode::Exclusive).await;
        let held = match self.pages.held(&blocks) {
            Some(held) => held,
            None => self.pages.load(&blocks).await,
        };
        let mut change = Change::begin(&self, &held, blocks);
        self.header.unsettled().await?;
        if !mutant::planted(Mutant::SumsNotChanged) {
            sums(&held);
        }
        let done = act(self.drive.as_ref()).await?;
        change.whole = true;
        Ok(done)
    }
}

/// What a request is about.
enum Aim {
    /// Blocks of the data.
    Data(Range<u64>),
    /// Something without checksums.
    Elsewhere,
}

/// Whose checksums a superblock's member has.
pub(crate) fn owner(superblock: &Superblock) -> Owner {
    Owner { set_uuid: superblock.set_uuid, device_uuid: superblock.device_uuid }
}

/// Blocks of the data area, all of them whole.
fn blocks_of(offset: u64, bytes: u64) -> Range<u64> {
    offset / BLOCK_BYTES..(offset + bytes) / BLOCK_BYTES
}

/// Calls `each` with the checksum of every block of `buffers`, in order.
fn each_sum<'a>(buffers: impl Iterator<Item = &'a [u8]>, mut each: impl FnMut(u32)) {
    let mut open = BlockSum::default();
    let mut filled = 0;
    for mut rest in buffers {
        while !rest.is_empty() {
            let take = rest.len().min(BLOCK_BYTES as usize - filled);
            let (now, later) = rest.split_at(take);
            rest = later;
            if take == BLOCK_BYTES as usize {
                each(block_sum(now));
                continue;
            }
            open.update(now);
            filled += take;
            if filled == BLOCK_BYTES as usize {
                each(std::mem::take(&mut open).value());
                filled = 0;
            }
        }
    }
}

/// The first block that is not what its checksum says.
fn first_wrong(
    held: &Held,
    possible: &BTreeMap<u64, Vec<u32>>,
    first: u64,
    buffers: &ReadBufs,
) -> Option<u64> {
    if mutant::planted(Mutant::SumsNotCompared) {
        return None;
    }
    let mut wrong = None;
    let mut block = first;
    each_sum(buffers.iter().map(|buffer: &BufMut| &buffer[..]), |sum| {
        let right = match held.sum(block) {
            NO_SUM => possible.get(&block).is_none_or(|sums| sums.contains(&sum)),
            known => known == sum,
        };
        if !right && wrong.is_none() {
            wrong = Some(block);
        }
        block += 1;
    });
    wrong
}

/// A change under way. Given up, or failed, its blocks hold what they held before or what they were
/// to hold; anything else is wrong, and stays so.
struct Change<'a> {
    sums: &'a MemberSums,
    held: &'a Held,
    blocks: Range<u64>,
    before: SmallVec<[u32; 16]>,
    whole: bool,
}

impl<'a> Change<'a> {
    fn begin(sums: &'a MemberSums, held: &'a Held, blocks: Range<u64>) -> Change<'a> {
        sums.header.begin();
        let before = blocks.clone().map(|block| held.sum(block)).collect();
        Change { sums, held, blocks, before, whole: false }
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let mut possible = self.sums.possible.borrow_mut();
        if self.whole {
            // Nearly always there are none.
            if !possible.is_empty() {
                possible.retain(|block, _| !self.blocks.contains(block));
            }
        } else {
            self.sums.lose();
            for (block, &before) in self.blocks.clone().zip(&self.before) {
                let new = self.held.sum(block);
                self.held.set(block, NO_SUM);
                let earlier = || vec![before].into_iter().filter(|&sum| sum != NO_SUM).collect();
                let mut sums = possible.remove(&block).unwrap_or_else(earlier);
                if new != NO_SUM && !sums.is_empty() {
                    sums.push(new);
                    possible.insert(block, sums);
                }
            }
        }
        self.sums.header.ended();
    }
}

/// A drive that compares what it reads.
pub(crate) struct Checked(pub(crate) Rc<MemberSums>);

impl Drive for Checked {
    fn facts(&self) -> &Facts {
        &self.0.facts
    }

    fn read(&self, offset: u64, buffers: ReadBufs) -> Io<ReadDone> {
        let blocks = match self.0.aim(Operation::Read, offset, total_bytes(&buffers)) {
            Ok(Aim::Data(blocks)) => blocks,
            Ok(Aim::Elsewhere) => return self.0.drive.read(offset, buffers),
            Err(error) => return Io::ready(ReadDone { buffers, result: Err(error) }),
        };
        let held = self.0.pages.held(&blocks);
        let mut read = self.0.drive.read(offset, buffers);
        if let (Io::Ready(Some(done)), Some(held)) = (&read, &held)
            && self.0.judged(held, &blocks, done).is_none()
        {
            return read;
        }
        let sums = Rc::clone(&self.0);
        Io::later(async move {
            let (held, done) = match held {
                Some(held) => (held, read.await),
                None => {
                    // Both at once: the drive does not wait for the page.
                    let mut load = std::pin::pin!(sums.pages.load(&blocks));
                    match race(&mut load, &mut read).await {
                        Ok(held) => (held, read.await),
                        Err(done) => (load.await, done),
                    }
                }
            };
            match sums.judged(&held, &blocks, &done) {
                None => done,
                Some(_) => sums.read_again(&held, blocks, done.buffers).await,
            }
        })
    }

    fn write(
        &self,
        offset: u64,
        buffers: WriteBufs,
        durability: Durability,
    ) -> Io<Result<(), DriveError>> {
        let blocks = match self.0.aim(Operation::Write, offset, total_bytes(&buffers)) {
            Ok(Aim::Data(blocks)) => blocks,
            Ok(Aim::Elsewhere) => return self.0.drive.write(offset, buffers, durability),
            Err(error) => return Io::ready(Err(error)),
        };
        let sums = Rc::clone(&self.0);
        Io::later(async move {
            let first = blocks.start;
            let content = buffers.clone();
            let set = move |held: &Held| {
                let mut block = first;
                each_sum(content.iter().map(|buffer| &buffer[..]), |sum| {
                    held.set(block, sum);
                    block += 1;
                });
            };
            let write = async |drive: &dyn Drive| drive.write(offset, buffers, durability).await;
            sums.change(blocks, set, write).await
        })
    }

    fn flush(&self) -> Io<Result<(), DriveError>> {
        self.0.drive.flush()
    }

    fn discard(&self, offset: u64, bytes: u64) -> Io<Result<Discarded, DriveError>> {
        let blocks = match self.0.aim(Operation::Discard, offset, bytes) {
            Ok(Aim::Data(blocks)) => blocks,
            Ok(Aim::Elsewhere) => return self.0.drive.discard(offset, bytes),
            Err(error) => return Io::ready(Err(error)),
        };
        let sums = Rc::clone(&self.0);
        Io::later(async move {
            let all = blocks.clone();
            // Whatever it reads as afterwards is nobody's content.
            let set = |held: &Held| all.for_each(|block| held.set(block, NO_SUM));
            let discard = async |drive: &dyn Drive| drive.discard(offset, bytes).await;
            sums.lose();
            sums.change(blocks, set, discard).await
        })
    }

    fn write_zeroes(
        &self,
        offset: u64,
        bytes: u64,
        zeroing: Zeroing,
        durability: Durability,
    ) -> Io<Result<(), DriveError>> {
        let blocks = match self.0.aim(Operation::WriteZeroes, offset, bytes) {
            Ok(Aim::Data(blocks)) => blocks,
            Ok(Aim::Elsewhere) => {
                return self.0.drive.write_zeroes(offset, bytes, zeroing, durability);
            }
            Err(error) => return Io::ready(Err(error)),
        };
        let sums = Rc::clone(&self.0);
        Io::later(async move {
            let (all, zero_sum) = (blocks.clone(), sums.zero_sum);
            let set = move |held: &Held| all.for_each(|block| held.set(block, zero_sum));
            let zero = async |drive: &dyn Drive| {
                drive.write_zeroes(offset, bytes, zeroing, durability).await
            };
            sums.change(blocks, set, zero).await
        })
    }
}
