//! Pages of checksums in memory: read when they are needed, written when they have to be.
//!
//! Bounded: beyond [`PAGES_MAX`] those not used for longest go, after they were written if they
//! changed; only pages that an operation under way uses stay above that.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use drive::{Drive, DriveError, Durability};
use format::own::SumsArea;
use format::own::checksums::{
    NO_SUM, Owner, PAGE_BYTES, SUMS_PER_PAGE, Sums, build_page, parse_page,
};
use smallvec::SmallVec;
use world::{Pool, ReadBufs, Semaphore, WriteBufs};

use crate::lock::{Mode, RangeLocks};

/// Pages of a member kept in memory: 4 MiB, the checksums of 4 GiB of its data.
pub(super) const PAGES_MAX: usize = 1024;

/// Pages that leave the memory at once, so that finding the oldest is paid for once for many.
const LEAVE_AT_ONCE: usize = 64;

/// Pages written by one request at most.
const RUN_PAGES_MAX: usize = 64;

/// A page in memory.
pub(super) struct Page {
    number: u64,
    sums: RefCell<Box<Sums>>,
    changed: Cell<bool>,
    used: Cell<u64>,
}

/// The pages of a range of blocks, in order.
pub(super) struct Held {
    first: u64,
    pages: SmallVec<[Rc<Page>; 2]>,
}

impl Held {
    fn page(&self, block: u64) -> (&Page, usize) {
        let per_page = SUMS_PER_PAGE as u64;
        let page = &self.pages[(block / per_page - self.first) as usize];
        (page, (block % per_page) as usize)
    }

    /// The checksum of a block in the range, [`NO_SUM`] where none is known.
    pub(super) fn sum(&self, block: u64) -> u32 {
        let (page, index) = self.page(block);
        page.sums.borrow()[index]
    }

    /// Changes the checksum of a block in the range.
    pub(super) fn set(&self, block: u64, sum: u32) {
        let (page, index) = self.page(block);
        page.sums.borrow_mut()[index] = sum;
        page.changed.set(true);
    }
}

/// The pages of one member.
pub(super) struct Pages {
    drive: Rc<dyn Drive>,
    pool: Pool,
    area: SumsArea,
    owner: Owner,
    epoch: u64,
    loaded: RefCell<BTreeMap<u64, Rc<Page>>>,
    clock: Cell<u64>,
    /// Page numbers that are being read: nobody gets an older state of a page than another.
    loading: RangeLocks,
    writing: Rc<Semaphore>,
}

impl Pages {
    pub(super) fn new(
        drive: Rc<dyn Drive>,
        pool: Pool,
        area: SumsArea,
        owner: Owner,
        epoch: u64,
    ) -> Pages {
        Pages {
            drive,
            pool,
            area,
            owner,
            epoch,
            loaded: RefCell::default(),
            clock: Cell::new(0),
            loading: RangeLocks::default(),
            writing: Rc::new(Semaphore::new(1)),
        }
    }

    /// The numbers of the pages that blocks have their checksums in.
    pub(super) fn numbers(blocks: &Range<u64>) -> Range<u64> {
        let per_page = SUMS_PER_PAGE as u64;
        blocks.start / per_page..blocks.end.div_ceil(per_page)
    }

    fn loaded(&self, number: u64) -> Option<Rc<Page>> {
        let page = self.loaded.borrow().get(&number).map(Rc::clone)?;
        self.clock.set(self.clock.get() + 1);
        page.used.set(self.clock.get());
        Some(page)
    }

    /// The pages of these blocks, if all are in memory.
    pub(super) fn held(&self, blocks: &Range<u64>) -> Option<Held> {
        let numbers = Self::numbers(blocks);
        let first = numbers.start;
        let pages = numbers.map(|number| self.loaded(number)).collect::<Option<_>>()?;
        Some(Held { first, pages })
    }

    /// The pages of these blocks. One that can't be read, or is damaged, holds nothing.
    pub(super) async fn load(&self, blocks: &Range<u64>) -> Held {
        let numbers = Self::numbers(blocks);
        let mut held = Held { first: numbers.start, pages: SmallVec::new() };
        for number in numbers {
            held.pages.push(match self.loaded(number) {
                Some(page) => page,
                None => self.read(number).await,
            });
        }
        self.trim().await;
        held
    }

    async fn read(&self, number: u64) -> Rc<Page> {
        let _loading = self.loading.lock(number..number + 1, Mode::Exclusive).await;
        if let Some(page) = self.loaded(number) {
            return page;
        }
        let buffers = ReadBufs::from_iter([self.pool.take(PAGE_BYTES)]);
        let done = self.drive.read(self.area.page_offset(number), buffers).await;
        let bytes = done.buffers.first().filter(|_| done.result.is_ok());
        let sums = bytes.and_then(|bytes| parse_page(bytes, &self.owner, self.epoch, number).ok());
        self.clock.set(self.clock.get() + 1);
        let page = Rc::new(Page {
            number,
            sums: RefCell::new(Box::new(sums.unwrap_or([NO_SUM; SUMS_PER_PAGE]))),
            changed: Cell::new(false),
            used: Cell::new(self.clock.get()),
        });
        self.loaded.borrow_mut().insert(number, Rc::clone(&page));
        page
    }

    /// Lets go of what was not used for longest, until there is room. A member that can't be
    /// written keeps its changed pages: it is failed by whoever settles it next.
    async fn trim(&self) {
        while self.loaded.borrow().len() > PAGES_MAX {
            let mut idle: Vec<Rc<Page>> = self.loaded.borrow().values().map(Rc::clone).collect();
            // Once here and once in the list.
            idle.retain(|page| Rc::strong_count(page) == 2);
            if idle.is_empty() {
                return;
            }
            idle.sort_by_key(|page| page.used.get());
            idle.truncate(LEAVE_AT_ONCE);
            if self.write(idle.clone()).await.is_err() {
                return;
            }
            let numbers: Vec<u64> = idle.iter().map(|page| page.number).collect();
            drop(idle);
            let mut loaded = self.loaded.borrow_mut();
            for number in numbers {
                let leaves = loaded
                    .get(&number)
                    .is_some_and(|page| !page.changed.get() && Rc::strong_count(page) == 1);
                if leaves {
                    loaded.remove(&number);
                }
            }
        }
    }

    /// Writes every page that changed.
    pub(super) async fn write_changed(&self) -> Result<(), DriveError> {
        let changed: Vec<Rc<Page>> = {
            let loaded = self.loaded.borrow();
            loaded.values().filter(|page| page.changed.get()).map(Rc::clone).collect()
        };
        self.write(changed).await
    }

    async fn write(&self, mut pages: Vec<Rc<Page>>) -> Result<(), DriveError> {
        let _turn = self.writing.acquire(1).await;
        pages.retain(|page| page.changed.get());
        pages.sort_by_key(|page| page.number);
        let follows = |a: &Rc<Page>, b: &Rc<Page>| a.number + 1 == b.number;
        for run in pages.chunk_by(follows).flat_map(|run| run.chunks(RUN_PAGES_MAX)) {
            let mut buffer = self.pool.take(run.len() * PAGE_BYTES);
            for (page, bytes) in run.iter().zip(buffer.chunks_exact_mut(PAGE_BYTES)) {
                // What changes from here on has to be written again.
                page.changed.set(false);
                let sums = page.sums.borrow();
                build_page(bytes, &self.owner, self.epoch, page.number, &sums);
            }
            let buffers = WriteBufs::from_iter([buffer.freeze()]);
            let at = self.area.page_offset(run[0].number);
            if let Err(error) = self.drive.write(at, buffers, Durability::Cached).await {
                run.iter().for_each(|page| page.changed.set(true));
                return Err(error);
            }
        }
        Ok(())
    }
}
