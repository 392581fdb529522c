//! Writing the journal of RAID 4, 5 and 6, in write-through.
//!
//! Data and parity of a stripe's rows go to the journal first, then to the members; the client is
//! answered when the members have them. A sudden end between the two is mended by writing what is
//! in the journal again. What has reached the members stays in the journal until they were flushed:
//! then the tail in the journal's superblock moves on, and the room is used again.
//!
//! The journal is a ring of blocks of 4 KiB, and keeps rows of that size, which is why an array
//! with one has blocks of 4 KiB. One task writes it; whatever waits meanwhile goes out as one. So
//! the log has no holes, and ends where the first block is not what it should be. The tail always
//! lies at a block that was written, since that is where a replay begins.
//!
//! A journal that fails ends the array's writes, as in md: without it they would be unprotected.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use drive::{Drive, DriveError, Durability, Operation};
use format::md::journal::{JOURNAL_BLOCK_BYTES, MetaBuilder, wrap};
use format::md::{SECTOR_BYTES, Uuid};
use geometry::Parity;
use world::{Buf, Gate, WriteBufs, join_all};

use crate::bands::Band;
use crate::core::Core;
use crate::log::{Answer, Finished, Held, Log, Waiting};

const BLOCK_SECTORS: u64 = JOURNAL_BLOCK_BYTES as u64 / SECTOR_BYTES;

/// Blocks written at once at most: what a kernel takes in one request, with room to spare.
const WRITE_BLOCKS_MAX: usize = 512;

/// Blocks of one unit at most, so that several fit into one write.
const UNIT_BLOCKS_MAX: usize = 256;

/// The ring has room for this many of the largest writes, so that there is always one to reclaim.
const WRITES_IN_RING_MIN: u64 = 4;

/// Further than any block that was written behind the end of the log can be; md jumps as far.
pub(crate) const SEQUENCE_JUMP: u64 = 10_000;

/// 4 KiB of each column of a stripe.
struct Row {
    /// Array sectors and content of what is written.
    data: Vec<(u64, Buf)>,
    member_sector: u64,
    parity: Vec<Buf>,
}

/// One write to the journal that is not reclaimed.
struct Logged {
    /// Its first block, in sectors of the ring.
    position: u64,
    /// Units the members don't have yet.
    under_way: Rc<Gate>,
}

/// The journal of an open array.
pub(crate) struct Journal {
    set_uuid: Uuid,
    drive: Rc<dyn Drive>,
    /// Where the ring starts on the drive, in bytes.
    start: u64,
    ring_sectors: u64,
    /// Where the next block goes.
    head: Cell<u64>,
    sequence: Cell<u64>,
    /// Where a replay begins, as the superblock says.
    tail: Cell<u64>,
    /// ... and as it is to say next.
    next_tail: Cell<u64>,
    logged: RefCell<VecDeque<Logged>>,
    queue: RefCell<VecDeque<Rc<Waiting<Vec<Row>>>>>,
    /// A task writes what is queued.
    working: Cell<bool>,
    failure: OnceCell<DriveError>,
}

impl Journal {
    /// A ring of `ring_sectors` at byte `start` of `drive`, that a replay begins to read at `tail`.
    pub(crate) fn new(
        set_uuid: Uuid,
        drive: Rc<dyn Drive>,
        (start, ring_sectors): (u64, u64),
        tail: u64,
    ) -> Self {
        Journal {
            set_uuid,
            drive,
            start,
            ring_sectors,
            head: Cell::new(tail),
            sequence: Cell::new(0),
            tail: Cell::new(tail),
            next_tail: Cell::new(tail),
            logged: RefCell::default(),
            queue: RefCell::default(),
            working: Cell::new(false),
            failure: OnceCell::new(),
        }
    }

    /// What was in it is on the members: it goes on at `position`, with number `sequence`.
    pub(crate) fn go_on(&self, position: u64, sequence: u64) {
        self.sequence.set(sequence);
        for place in [&self.head, &self.tail, &self.next_tail] {
            place.set(position);
        }
    }

    /// Sectors a ring needs for an array of `members`: a few of the largest writes.
    pub(crate) fn ring_sectors_min(members: usize) -> u64 {
        let row = members as u64 + 1;
        WRITES_IN_RING_MIN * 2 * row * BLOCK_SECTORS
    }

    /// What ended it.
    pub(crate) fn failure(&self) -> Option<&DriveError> {
        self.failure.get()
    }

    /// Where a replay is to begin, in sectors of the ring: what the superblock is to say.
    pub(crate) fn tail_sector(&self) -> u64 {
        self.next_tail.get()
    }

    /// Blocks of one unit at most.
    fn unit_blocks(&self) -> usize {
        let ring = self.ring_sectors / BLOCK_SECTORS / WRITES_IN_RING_MIN / 2;
        UNIT_BLOCKS_MAX.min(ring as usize)
    }

    /// Cuts bands so that each fits into one unit.
    pub(crate) fn cut(&self, parity: &Parity, bands: Vec<(u64, Band)>) -> Vec<(u64, Band)> {
        let rows = (self.unit_blocks() / (parity.members() + 1)).max(1);
        let cut = |(stripe, band): (u64, Band)| {
            band.cut(rows * JOURNAL_BLOCK_BYTES).into_iter().map(move |part| (stripe, part))
        };
        bands.into_iter().flat_map(cut).collect()
    }

    /// What is journalled and written at once.
    pub(crate) fn units(&self, finished: Vec<Finished>) -> Vec<Vec<Finished>> {
        let mut units: Vec<Vec<Finished>> = Vec::new();
        let mut blocks = usize::MAX;
        for part in finished {
            let rows = part.band.len / JOURNAL_BLOCK_BYTES;
            // A meta block for each row is more than ever needed.
            let more = rows * (part.map.members() + 1);
            if blocks.saturating_add(more) > self.unit_blocks() {
                units.push(Vec::new());
                blocks = 0;
            }
            blocks += more;
            units.last_mut().expect("one was pushed").push(part);
        }
        units
    }

    /// Waits until the unit is in the journal.
    pub(crate) async fn append(&self, core: &Core, parity: &Parity, unit: &[Finished]) -> Answer {
        let waiting = Waiting::new(unit.iter().flat_map(|part| rows(parity, part)).collect());
        self.queue.borrow_mut().push_back(Rc::clone(&waiting));
        if !self.working.replace(true) {
            let Some(core) = core.this.upgrade() else { return Ok(None) };
            let world = core.world.clone();
            world.spawn(async move {
                if let Log::Journal(journal) = &core.log {
                    journal.work(&core).await;
                }
            });
        }
        waiting.answered().await
    }

    /// Writes what waits until nothing does.
    async fn work(&self, core: &Core) {
        loop {
            let batch = self.take();
            if batch.is_empty() {
                self.working.set(false);
                return;
            }
            let logged = match self.failure() {
                Some(error) => Err(error.clone()),
                None => self.write(core, &batch).await,
            };
            for waiting in batch {
                waiting.answer(match &logged {
                    Ok(under_way) => Ok(Some(Held::new(under_way))),
                    Err(error) => Err(error.clone()),
                });
            }
        }
    }

    fn take(&self) -> Vec<Rc<Waiting<Vec<Row>>>> {
        let mut queue = self.queue.borrow_mut();
        let limit = WRITE_BLOCKS_MAX.min(2 * self.unit_blocks());
        let mut blocks = 0;
        let mut batch = Vec::new();
        while let Some(next) = queue.front() {
            let rows = next.what.iter();
            blocks += rows.map(|row| row.data.len() + row.parity.len() + 1).sum::<usize>();
            if !batch.is_empty() && blocks > limit {
                break;
            }
            batch.extend(queue.pop_front());
        }
        batch
    }

    /// Writes the rows of a batch, one meta block after the other.
    async fn write(
        &self,
        core: &Core,
        batch: &[Rc<Waiting<Vec<Row>>>],
    ) -> Result<Rc<Gate>, DriveError> {
        let mut metas: Vec<(MetaBuilder, Vec<Buf>)> = Vec::new();
        for row in batch.iter().flat_map(|waiting| &waiting.what) {
            if metas.last().is_none_or(|(meta, _)| !meta.fits(row.data.len(), row.parity.len())) {
                metas.push(Default::default());
            }
            let (meta, blocks) = metas.last_mut().expect("one was pushed");
            for (sector, block) in &row.data {
                meta.data(*sector, block, self.set_uuid);
                blocks.push(block.clone());
            }
            if !row.parity.is_empty() {
                let parity: Vec<&[u8]> = row.parity.iter().map(|block| &block[..]).collect();
                meta.parity(row.member_sector, &parity, self.set_uuid);
                blocks.extend(row.parity.iter().cloned());
            }
        }
        let count: u64 = metas.iter().map(|(meta, _)| meta.blocks() + 1).sum();
        self.make_room(core, count * BLOCK_SECTORS).await?;
        let first = self.head.get();
        let (mut position, mut sequence) = (first, self.sequence.get());
        let mut blocks = Vec::new();
        for (meta, content) in metas {
            let block = meta.build(position, sequence, self.set_uuid);
            blocks.push(core.world.pool().copy_of(&block));
            blocks.extend(content);
            position = wrap(position + (meta.blocks() + 1) * BLOCK_SECTORS, self.ring_sectors);
            sequence += 1;
        }
        if let Err(error) = self.put(core, first, blocks).await {
            self.fail(core, error.clone());
            return Err(error);
        }
        let under_way = Rc::new(Gate::default());
        let logged = Logged { position: first, under_way: Rc::clone(&under_way) };
        self.logged.borrow_mut().push_back(logged);
        self.head.set(position);
        self.sequence.set(sequence);
        Ok(under_way)
    }

    /// Puts blocks into the ring, durably.
    async fn put(&self, core: &Core, position: u64, blocks: Vec<Buf>) -> Result<(), DriveError> {
        let before_end = ((self.ring_sectors - position) / BLOCK_SECTORS) as usize;
        let (now, wrapped) = blocks.split_at(before_end.min(blocks.len()));
        let parts = [(position, now), (0, wrapped)];
        let writes = parts.into_iter().filter(|(_, blocks)| !blocks.is_empty());
        let writes = writes.map(|(position, blocks)| {
            let buffers = WriteBufs::from_iter(blocks.iter().cloned());
            let offset = self.start + position * SECTOR_BYTES;
            let write = self.drive.write(offset, buffers, Durability::Durable);
            core.patiently(self.drive.as_ref(), Operation::Write, write)
        });
        join_all(writes).await.into_iter().find(Result::is_err).unwrap_or(Ok(()))
    }

    /// Waits until `sectors` are free behind the head, and one block more: a full ring would look
    /// like an empty one.
    async fn make_room(&self, core: &Core, sectors: u64) -> Result<(), DriveError> {
        loop {
            let used = (self.head.get() + self.ring_sectors - self.tail.get()) % self.ring_sectors;
            if self.ring_sectors - used >= sectors + BLOCK_SECTORS {
                return Ok(());
            }
            if !self.reclaim(core).await? {
                let oldest = self.logged.borrow().front().map(|l| Rc::clone(&l.under_way));
                let oldest = oldest.filter(|under_way| under_way.inside() > 0);
                match oldest {
                    Some(under_way) => under_way.drained().await,
                    // The oldest is done and still the newest that is: wait for the next one.
                    None => self.second_done().await,
                }
            }
        }
    }

    async fn second_done(&self) {
        let second = self.logged.borrow().get(1).map(|l| Rc::clone(&l.under_way));
        if let Some(under_way) = second {
            under_way.drained().await;
        }
    }

    /// Frees what the members have, all but the last write: a replay begins with a block that is
    /// there. False when there is nothing to free.
    ///
    /// # Errors
    /// As [`Core::fail_members`], or the journal's own.
    pub(crate) async fn reclaim(&self, core: &Core) -> Result<bool, DriveError> {
        let is_done = |logged: &&Logged| logged.under_way.inside() == 0;
        let done = self.logged.borrow().iter().take_while(is_done).count();
        if done < 2 || self.failure().is_some() {
            return Ok(false);
        }
        core.flush_members().await?;
        self.logged.borrow_mut().drain(..done - 1);
        let tail = self.logged.borrow().front().map_or(self.head.get(), |logged| logged.position);
        self.next_tail.set(tail);
        core.metadata.store_journal(core).await?;
        self.tail.set(tail);
        Ok(true)
    }

    /// Puts an empty block at the head, far ahead in the sequence: what lies behind it from before
    /// is never taken for its continuation. The next superblock makes it the tail.
    ///
    /// # Errors
    /// The drive's.
    pub(crate) async fn begin(&self, core: &Core) -> Result<(), DriveError> {
        let (position, sequence) = (self.head.get(), self.sequence.get());
        let block = MetaBuilder::default().build(position, sequence, self.set_uuid);
        self.put(core, position, vec![core.world.pool().copy_of(&block)]).await?;
        self.logged.borrow_mut().push_back(Logged { position, under_way: Rc::default() });
        self.head.set(wrap(position + BLOCK_SECTORS, self.ring_sectors));
        self.sequence.set(sequence + 1);
        Ok(())
    }

    /// Ends the journal, and with it the array's writes; what it holds is made safe without it,
    /// and the members' superblocks say that it is gone.
    pub(crate) fn fail(&self, core: &Core, error: DriveError) {
        if self.failure.set(error).is_err() {
            return;
        }
        let Some(core) = core.this.upgrade() else { return };
        let world = core.world.clone();
        world.spawn(async move {
            // Who fails here is in the status; nothing is written any more that could ask.
            let _ = core.flush_members().await;
            core.metadata.note_journal_failure();
            let _ = core.commit().await;
        });
    }
}

/// The rows of a band, each with all parities or none (`plan` sees to it).
fn rows(parity: &Parity, part: &Finished) -> Vec<Row> {
    let starts = (0..part.band.len).step_by(JOURNAL_BLOCK_BYTES);
    let row = |start: usize| {
        let block = |buffer: &Buf| buffer.slice(start, JOURNAL_BLOCK_BYTES);
        let data = part.band.written.iter().map(|(column, data)| {
            let offset = part.array_offset(parity, *column) + start as u64;
            (offset / SECTOR_BYTES, block(data))
        });
        let member_sector = (part.member_offset() + start as u64) / SECTOR_BYTES;
        let parities = part.p.iter().chain(&part.q).map(block);
        Row { data: data.collect(), member_sector, parity: parities.collect() }
    };
    starts.map(row).collect()
}
