//! The write-intent bitmap on the members: read when the array is opened, written before data,
//! cleared when nothing is under way. What it has to say is decided by `intent`.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::{Rc, Weak};
use std::time::Duration;

use drive::{Drive, DriveError, Durability, Operation};
use format::md::{BITMAP_HEADER_BYTES, BitmapError, BitmapForm, BitmapHeader};
use geometry::Geometry;
use world::{Pool, Semaphore, WriteBufs, join_all};

use crate::bad_blocks::Ranges;
use crate::bits::Bits;
use crate::core::Core;
use crate::examine::read_bytes;
use crate::intent::{Intent, Page};
use crate::mutant::{self, Mutant};
use crate::slot::{Member, SlotState};

/// The largest bitmap that is read: md keeps 128 KiB for it, and a damaged header may say anything.
const AREA_BYTES_MAX: u64 = 1 << 20;

/// Ticks are this long where the header does not say, or nothing sensible: md's default.
const TICK_SECONDS_DEFAULT: u32 = 5;
const TICK_SECONDS_MAX: u32 = 3600;

/// With more than this under set bits, nobody goes through what is not: that would keep the array
/// shut for long.
const RESTLESS_BYTES_MAX: u64 = 4 << 30;

/// The bitmap of an open array that is written.
pub(crate) struct Bitmap {
    intent: RefCell<Intent>,
    /// One writes at a time; who comes meanwhile goes out together with the next.
    turn: Rc<Semaphore>,
    /// Per slot, the member that has the bits as they were last written.
    holders: RefCell<Vec<Weak<Member>>>,
    /// A task waits for the next tick.
    ticking: Cell<bool>,
    /// Writes of one page on one member.
    page_writes: Cell<u64>,
}

/// What the status says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BitmapStatus {
    /// Bytes one bit stands for: of each member, on raid10 of the array.
    pub chunk_bytes: u64,
    /// Bits.
    pub chunks: u64,
    /// Bits that are set.
    pub dirty_chunks: u64,
    /// Bits that stand for redundancy that may not agree.
    pub unsynced_chunks: u64,
    /// Events of the set when bits were last cleared: members that left later can be brought up to
    /// date by the bits alone.
    pub events_cleared: u64,
    /// Pages written to members since the array was opened.
    pub page_writes: u64,
}

/// A member's bitmap as it is to be read.
pub(crate) struct Source {
    pub(crate) drive: Rc<dyn Drive>,
    /// Where it starts on the drive.
    pub(crate) start: u64,
}

/// A member's bitmap as it was read.
pub(crate) struct Found {
    pub(crate) header: BitmapHeader,
    bits: Option<Bits>,
}

/// Why a set's bitmap can't be kept up to date.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BitmapTrouble {
    /// No member has a header that makes sense.
    #[error("no member's write-intent bitmap can be read: {0}")]
    Unreadable(BitmapError),
    /// The form is only read.
    #[error("its write-intent bitmap is of version {0}, which is only read")]
    Form(u32),
    /// It does not cover the set.
    #[error("its write-intent bitmap covers {covered} of {needed} bytes")]
    Short {
        /// Bytes covered.
        covered: u64,
        /// Bytes of the set.
        needed: u64,
    },
    /// It does not lie on the drives' blocks.
    #[error("its write-intent bitmap does not lie on whole blocks of the drives")]
    Unaligned,
}

/// Reads a member's bitmap.
pub(crate) async fn look(
    pool: &Pool,
    source: &Source,
) -> Result<Result<Found, BitmapError>, DriveError> {
    let Source { drive, start } = source;
    let bytes = read_bytes(pool, drive.as_ref(), *start, BITMAP_HEADER_BYTES).await?;
    let header = match BitmapHeader::parse(&bytes) {
        Ok(header) => header,
        Err(error) => return Ok(Err(error)),
    };
    let fits = header.area_bytes() <= AREA_BYTES_MAX;
    let mut bits = None;
    if matches!(header.form, BitmapForm::Bits { .. }) && fits {
        let bytes = header.area_bytes() as usize;
        let area = read_bytes(pool, drive.as_ref(), *start, bytes).await?;
        let mut read = Bits::none(header.chunks());
        read.copy_from(0, &area[BITMAP_HEADER_BYTES..]);
        bits = Some(read);
    }
    Ok(Ok(Found { header, bits }))
}

/// Per slot, the member that gets the bits.
fn holders(core: &Core) -> Vec<Option<Rc<Member>>> {
    core.slots.iter().map(|slot| slot.member().filter(|_| slot.writable())).collect()
}

fn holder(member: &Option<Rc<Member>>) -> Weak<Member> {
    member.as_ref().map(Rc::downgrade).unwrap_or_default()
}

/// What the bitmap covers, in bytes.
pub(crate) fn covered_bytes(geometry: &Geometry) -> u64 {
    match geometry {
        Geometry::Parity(parity) => parity.stripes() * parity.chunk_bytes(),
        geometry => geometry.array_bytes(),
    }
}

impl Bitmap {
    /// From what the members in sync have, for a set whose newest superblock has `events`.
    ///
    /// # Errors
    /// [`BitmapTrouble`]: why it can't be kept up to date.
    pub(crate) async fn open(
        pool: &Pool,
        sources: &[Source],
        geometry: &Geometry,
        events: u64,
        synced_to: u64,
    ) -> Result<Self, BitmapTrouble> {
        let looks = join_all(sources.iter().map(|source| look(pool, source))).await;
        let mut found = Vec::new();
        let mut bad = BitmapError::BadMagic { found: 0 };
        for look in looks {
            match look {
                Ok(Ok(one)) => found.push(one),
                Ok(Err(error)) => bad = error,
                // The member will err on writes too, or the page is written anew.
                Err(_) => {}
            }
        }
        let is_current = |found: &&Found| found.header.is_current(events);
        let model = found.iter().find(is_current).or(found.first());
        let Some(mut header) = model.map(|found| found.header) else {
            return Err(BitmapTrouble::Unreadable(bad));
        };
        if !matches!(header.form, BitmapForm::Bits { .. }) || header.area_bytes() > AREA_BYTES_MAX {
            return Err(BitmapTrouble::Form(header.form.version()));
        }
        let (covered, needed) = (header.sync_sectors * 512, covered_bytes(geometry));
        if covered < needed {
            return Err(BitmapTrouble::Short { covered, needed });
        }
        let blocks = sources.iter().map(|source| u64::from(source.drive.facts().block_bytes));
        let block_bytes = blocks.max().unwrap_or(512);
        if sources.iter().any(|source| !source.start.is_multiple_of(block_bytes)) {
            return Err(BitmapTrouble::Unaligned);
        }
        let same = |found: &&Found| {
            found.header.chunk_bytes == header.chunk_bytes
                && found.header.sync_sectors == header.sync_sectors
                && found.header.form == header.form
        };
        let chunks = header.chunks();
        let current: Vec<&Bits> = found
            .iter()
            .filter(is_current)
            .filter(same)
            .filter_map(|found| found.bits.as_ref())
            .collect();
        let bits = (!current.is_empty()).then(|| {
            let (mut some, mut all) = (Bits::none(chunks), Bits::all(chunks));
            for bits in &current {
                some.add(bits);
                all.keep(bits);
            }
            (some, all)
        });
        let everyone = current.len() == sources.len();
        header.state = format::md::BitmapState(0);
        let mut intent = Intent::new(header, bits, synced_to, block_bytes as usize);
        if !everyone {
            intent.distrust();
        }
        Ok(Bitmap {
            intent: RefCell::new(intent),
            turn: Rc::new(Semaphore::new(1)),
            holders: RefCell::default(),
            ticking: Cell::new(false),
            page_writes: Cell::new(0),
        })
    }

    /// Before a write of these bytes of what the bitmap covers: the members say so. To be followed
    /// by [`Bitmap::end`], unless it fails.
    ///
    /// # Errors
    /// When a member can't be written that the array can't do without.
    pub(crate) async fn begin(&self, core: &Core, bytes: &Range<u64>) -> Result<(), DriveError> {
        if !self.intent.borrow_mut().begin(bytes) {
            return Ok(());
        }
        // What else begins at this moment goes out with it.
        if core.writes_in_flight.inside() > 1 {
            core.world.yield_now().await;
        }
        loop {
            let failed = {
                let _turn = self.turn.acquire(1).await;
                if self.intent.borrow_mut().is_stored(bytes) {
                    return Ok(());
                }
                self.write_due(core).await
            };
            if let Err(error) = core.fail_members(failed).await {
                self.intent.borrow_mut().end(bytes, false);
                return Err(error);
            }
        }
    }

    /// After the write, well or not.
    pub(crate) fn end(&self, core: &Core, bytes: &Range<u64>, failed: bool) {
        self.intent.borrow_mut().end(bytes, failed);
        self.clear_later(core);
    }

    /// The header says from now on that it is of this event; before any superblock does.
    pub(crate) async fn stamp(&self, core: &Core, events: u64) -> Vec<(usize, DriveError)> {
        let _turn = self.turn.acquire(1).await;
        self.intent.borrow_mut().stamp(events);
        self.write_due(core).await
    }

    /// Writes what is due; to be called in turn. Gives the members that could not be written.
    async fn write_due(&self, core: &Core) -> Vec<(usize, DriveError)> {
        let members = holders(core);
        if members.iter().zip(0..).any(|(member, slot)| !self.is_held(slot, member.as_ref())) {
            self.intent.borrow_mut().distrust();
        }
        let pages = self.intent.borrow_mut().take_due();
        let trusted = self.intent.borrow().trusted();
        // A header that was not to be believed comes after the bits it vouches for.
        let (bits, header) = match pages.split_last() {
            Some((header, bits)) if !trusted && header.offset() == 0 => {
                (bits, std::slice::from_ref(header))
            }
            _ => (&pages[..], &[][..]),
        };
        let mut failed = self.write_pages(core, bits).await;
        if failed.is_empty() {
            failed = self.write_pages(core, header).await;
        }
        let mut intent = self.intent.borrow_mut();
        match failed.is_empty() {
            true => {
                intent.written(&pages);
                *self.holders.borrow_mut() = members.iter().map(holder).collect();
            }
            false => intent.not_written(&pages),
        }
        failed
    }

    /// Whether a slot's member, if there is one, has the bits as they were last written.
    fn is_held(&self, slot: usize, member: Option<&Rc<Member>>) -> bool {
        let holders = self.holders.borrow();
        let holder = || holders.get(slot).and_then(Weak::upgrade);
        member.is_none_or(|member| holder().is_some_and(|holder| Rc::ptr_eq(&holder, member)))
    }

    async fn write_pages(&self, core: &Core, pages: &[Page]) -> Vec<(usize, DriveError)> {
        let buffers: Vec<_> = pages
            .iter()
            .map(|page| (page.offset(), core.world.pool().copy_of(&page.bytes)))
            .collect();
        let writable = core.slots.iter().enumerate().filter(|(_, slot)| slot.writable());
        // A member that does not answer must not hold up the write that needs the bit.
        let writes = writable.flat_map(|(index, slot)| {
            let place = slot.member().zip(core.metadata.bitmap_start(index));
            let writes = buffers.iter().filter_map(move |(offset, buffer)| {
                let (member, start) = place.clone()?;
                let (at, buffers) = (start + offset, WriteBufs::from_iter([buffer.clone()]));
                Some((index, member.drive.write(at, buffers, Durability::Durable)))
            });
            writes.collect::<Vec<_>>()
        });
        let writes: Vec<_> = writes.collect();
        self.page_writes.set(self.page_writes.get() + writes.len() as u64);
        core.settle(Operation::Write, writes).await
    }

    /// Sees to it that bits are cleared when their chunks have been quiet.
    pub(crate) fn clear_later(&self, core: &Core) {
        if self.ticking.get() || core.stopping.get() || !self.may_clear(core) {
            return;
        }
        let Some(owner) = core.this.upgrade() else { return };
        self.ticking.set(true);
        core.world.spawn(async move {
            let Some(bitmap) = &owner.bitmap else { return };
            while bitmap.may_clear(&owner) && !owner.stopping.get() {
                owner.world.sleep(bitmap.tick_length()).await;
                if owner.stopping.get() {
                    break;
                }
                let quiet = bitmap.intent.borrow_mut().tick();
                // What fails is found again, and reported, by the next write.
                if bitmap.clear(&owner, quiet).await.is_err() {
                    break;
                }
            }
            bitmap.ticking.set(false);
        });
    }

    fn tick_length(&self) -> Duration {
        let seconds = match self.intent.borrow().header().daemon_sleep_seconds {
            seconds @ 1..=TICK_SECONDS_MAX => seconds,
            _ => TICK_SECONDS_DEFAULT,
        };
        Duration::from_secs(seconds.into())
    }

    /// While a member is missing the bits say what it lacks.
    fn may_clear(&self, core: &Core) -> bool {
        let whole = core.slots.iter().all(|slot| slot.state() == SlotState::InSync);
        whole && self.intent.borrow().has_clearable()
    }

    /// At the end of the service, with no write under way: clears all that was written before.
    ///
    /// # Errors
    /// A member's that the array can't do without.
    pub(crate) async fn finish(&self, core: &Core) -> Result<(), DriveError> {
        let finished = self.intent.borrow_mut().finished();
        self.clear(core, finished).await
    }

    /// Clears the bits of chunks that are quiet, once the members are flushed.
    async fn clear(&self, core: &Core, quiet: Bits) -> Result<(), DriveError> {
        if quiet.next(0).is_none() || !self.may_clear(core) {
            return Ok(());
        }
        // Where no bit is set, checksums outlive a sudden end.
        if !mutant::planted(Mutant::BitsClearedBeforeSums) {
            core.store_sums().await?;
        }
        core.flush_members().await?;
        loop {
            let failed = {
                let _turn = self.turn.acquire(1).await;
                if !self.may_clear(core) {
                    return Ok(());
                }
                let mut failed = Vec::new();
                if self.intent.borrow_mut().note_clearing() {
                    failed = self.write_due(core).await;
                }
                if failed.is_empty() {
                    self.intent.borrow_mut().clear(&quiet);
                    failed = self.write_due(core).await;
                }
                failed
            };
            if failed.is_empty() {
                return Ok(());
            }
            core.fail_members(failed).await?;
        }
    }

    /// Whether redundancy agrees in these bytes; see [`Intent::agrees`].
    pub(crate) fn agrees(&self, bytes: &Range<u64>, passed: bool) -> bool {
        self.intent.borrow().agrees(bytes, passed)
    }

    /// The first bytes from `from` on where redundancy may not agree.
    pub(crate) fn next_needed(&self, from: u64) -> Option<Range<u64>> {
        self.intent.borrow().next_needed(from)
    }

    /// The first bytes from `from` on that members which left may lack.
    pub(crate) fn next_dirty(&self, from: u64) -> Option<Range<u64>> {
        self.intent.borrow().next_dirty(from)
    }

    /// Whether members that left may lack any of these bytes.
    pub(crate) fn is_dirty(&self, bytes: &Range<u64>) -> bool {
        self.intent.borrow().is_dirty(bytes)
    }

    /// The header as it is now.
    pub(crate) fn header(&self) -> BitmapHeader {
        *self.intent.borrow().header()
    }

    /// The members as they are have what was read; others get all of it with the next write.
    pub(crate) fn held_by(&self, core: &Core) {
        *self.holders.borrow_mut() = holders(core).iter().map(holder).collect();
    }

    /// Per slot, the ranges of its member's data area that may have been written since bits were
    /// last cleared, rising; `None` where bits can't be believed, or stand for too much.
    pub(crate) fn restless(&self, geometry: &Geometry) -> Option<Vec<Vec<Range<u64>>>> {
        let intent = self.intent.borrow();
        let covered = covered_bytes(geometry);
        let next = |from| intent.next_dirty(from).filter(|dirty| dirty.start < covered);
        let dirty = std::iter::successors(next(0), |dirty| next(dirty.end));
        let dirty: Vec<_> = dirty.map(|dirty| dirty.start..dirty.end.min(covered)).collect();
        let total: u64 = dirty.iter().map(|dirty| dirty.end - dirty.start).sum();
        if !intent.trusted() || total > RESTLESS_BYTES_MAX {
            return None;
        }
        if let Geometry::Parity(_) = geometry {
            return Some(vec![dirty; geometry.members()]);
        }
        let mut of_slots = vec![Ranges::default(); geometry.members()];
        for run in
            dirty.iter().flat_map(|dirty| geometry.runs(dirty.start, dirty.end - dirty.start))
        {
            for copy in 0..geometry.copies() {
                let place = geometry.copy(&run, copy);
                of_slots[place.member].add(place.offset, place.offset + run.bytes);
            }
        }
        Some(of_slots.iter().map(Ranges::to_vec).collect())
    }

    /// Everything in these bytes was made to agree.
    pub(crate) fn made_to_agree(&self, bytes: Range<u64>) {
        self.intent.borrow_mut().made_to_agree(bytes);
    }

    pub(crate) fn status(&self) -> BitmapStatus {
        let intent = self.intent.borrow();
        let (dirty_chunks, unsynced_chunks, chunks) = intent.counts();
        BitmapStatus {
            chunk_bytes: intent.header().chunk_bytes.into(),
            chunks,
            dirty_chunks,
            unsynced_chunks,
            events_cleared: intent.header().events_cleared,
            page_writes: self.page_writes.get(),
        }
    }
}
