//! What the write-intent bitmap has to say: which chunks may be changing, and which of them can be
//! taken back. Pure; the members are written by `bitmap`.
//!
//! A chunk here is what one bit stands for: 64 MiB in sets made here, more where the bits would not
//! fit into md's 128 KiB (so the sets below never take more, whatever the size of the array). A
//! bit's life:
//!
//! 1. set on all members before the first write to its chunk begins;
//! 2. kept while writes to the chunk go on, while a member is missing (it says what that member
//!    lacks), and while redundancy does not agree there;
//! 3. quiet when no write was there between one tick and the next;
//! 4. cleared on the members once they were flushed after that, and only if it is still quiet.
//!
//! The header's `events_cleared` is brought up to the present event before bits are cleared: a
//! member that left earlier than that can't be brought up to date by the bits any more. Source of
//! these rules: md's behaviour, and `format::md::bitmap`.

use std::collections::BTreeSet;
use std::ops::Range;

use format::md::{BITMAP_HEADER_BYTES, BitmapHeader};

use crate::bits::Bits;

/// What is written at once: header and bits come in pieces of this size, as md writes them.
pub(crate) const PAGE_BYTES: usize = 4096;

/// The state of a bitmap.
pub(crate) struct Intent {
    header: BitmapHeader,
    /// What the members are to say.
    image: Bits,
    /// What all of them say for certain.
    stored: Bits,
    /// Where redundancy may not agree.
    needed: Bits,
    /// Where a write failed: a pass that is under way may have been there before.
    spoiled: Bits,
    /// Written to since the last tick.
    recent: Bits,
    /// Chunks of the writes under way; as many as there are writes.
    busy: Vec<Range<u64>>,
    /// Pages that differ from what the members have.
    due: BTreeSet<usize>,
    /// Bytes of all pages, whole blocks of every member.
    area_bytes: usize,
    /// Every member's header is that of these bits.
    trusted: bool,
}

/// A page as it is to be written.
pub(crate) struct Page {
    index: usize,
    pub(crate) bytes: Vec<u8>,
}

impl Page {
    /// Where it lies, from the bitmap's start.
    pub(crate) fn offset(&self) -> u64 {
        (self.index * PAGE_BYTES) as u64
    }

    /// The bits in it: the first byte of the set, and where in the page.
    fn bits(&self) -> (usize, usize) {
        match self.index {
            0 => (0, BITMAP_HEADER_BYTES),
            index => (index * PAGE_BYTES - BITMAP_HEADER_BYTES, 0),
        }
    }
}

impl Intent {
    /// From what was found: `header` with `bits` that may be set on some member, `stored` on all.
    /// `None` for the bits: nobody's can be believed, so everything may have been written.
    /// Redundancy agrees below `synced_to`, in bytes of what the bitmap covers.
    pub(crate) fn new(
        header: BitmapHeader,
        found: Option<(Bits, Bits)>,
        synced_to: u64,
        block_bytes: usize,
    ) -> Self {
        let chunks = header.chunks();
        let trusted = found.is_some();
        let (image, stored) = found.unwrap_or_else(|| (Bits::all(chunks), Bits::none(chunks)));
        let mut needed = image.clone();
        needed.remove(0..(synced_to / u64::from(header.chunk_bytes)).min(chunks));
        let area_bytes = (header.area_bytes() as usize).next_multiple_of(block_bytes);
        let mut intent = Intent {
            header,
            stored,
            needed,
            spoiled: Bits::none(chunks),
            recent: Bits::none(chunks),
            busy: Vec::new(),
            due: BTreeSet::new(),
            area_bytes,
            trusted,
            image,
        };
        let mut differs = intent.image.clone();
        differs.take_out(&intent.stored);
        for run in differs.runs() {
            intent.make_due(run);
        }
        if !trusted {
            intent.all_due();
        }
        intent
    }

    pub(crate) fn header(&self) -> &BitmapHeader {
        &self.header
    }

    /// Chunks that bytes of what the bitmap covers lie in.
    fn chunks(&self, bytes: &Range<u64>) -> Range<u64> {
        let chunk = u64::from(self.header.chunk_bytes);
        let end = bytes.end.div_ceil(chunk).min(self.image.len());
        (bytes.start / chunk).min(end)..end
    }

    fn make_due(&mut self, chunks: Range<u64>) {
        let page = |chunk: u64| (BITMAP_HEADER_BYTES + chunk as usize / 8) / PAGE_BYTES;
        if !chunks.is_empty() {
            self.due.extend(page(chunks.start)..=page(chunks.end - 1));
        }
    }

    /// Some member does not have these bits: every one is to get all of them.
    pub(crate) fn distrust(&mut self) {
        self.trusted = false;
        self.all_due();
    }

    fn all_due(&mut self) {
        self.due = (0..self.area_bytes.div_ceil(PAGE_BYTES)).collect();
    }

    /// A write of these bytes begins; true if the members must be written first.
    pub(crate) fn begin(&mut self, bytes: &Range<u64>) -> bool {
        let chunks = self.chunks(bytes);
        self.recent.insert(chunks.clone());
        self.busy.push(chunks);
        !self.is_stored(bytes)
    }

    /// Whether all members have the bits of these bytes; what is missing is due from now on.
    pub(crate) fn is_stored(&mut self, bytes: &Range<u64>) -> bool {
        let chunks = self.chunks(bytes);
        if self.trusted && self.stored.every(chunks.clone()) {
            return true;
        }
        self.image.insert(chunks.clone());
        self.make_due(chunks);
        false
    }

    /// A write has ended; one that failed has left the chunks' redundancy in disorder.
    pub(crate) fn end(&mut self, bytes: &Range<u64>, failed: bool) {
        let chunks = self.chunks(bytes);
        if let Some(at) = self.busy.iter().position(|busy| *busy == chunks) {
            self.busy.swap_remove(at);
        }
        if failed {
            self.needed.insert(chunks.clone());
            self.spoiled.insert(chunks.clone());
        }
        self.recent.insert(chunks);
    }

    /// The header says from now on that it is of this event.
    pub(crate) fn stamp(&mut self, events: u64) {
        self.header.events = events;
        self.due.insert(0);
    }

    /// Before bits are cleared: the header says as of which event. True if it must be written.
    pub(crate) fn note_clearing(&mut self) -> bool {
        let changes = self.header.events_cleared != self.header.events;
        if changes {
            self.header.events_cleared = self.header.events;
            self.due.insert(0);
        }
        changes
    }

    /// The pages that are due, the header last: it must not vouch for bits that are not there.
    pub(crate) fn take_due(&mut self) -> Vec<Page> {
        let page = |index: usize| {
            let start = index * PAGE_BYTES;
            let mut bytes = vec![0; PAGE_BYTES.min(self.area_bytes - start)];
            let mut page = Page { index, bytes: Vec::new() };
            let (first, at) = page.bits();
            self.image.copy_to(first, &mut bytes[at..]);
            if index == 0 {
                bytes[..BITMAP_HEADER_BYTES].copy_from_slice(&self.header.build_header());
            }
            page.bytes = bytes;
            page
        };
        let pages = std::mem::take(&mut self.due).into_iter().rev().map(page);
        pages.collect()
    }

    /// All members have these pages.
    pub(crate) fn written(&mut self, pages: &[Page]) {
        for page in pages {
            let (first, at) = page.bits();
            self.stored.copy_from(first, &page.bytes[at..]);
            self.trusted |= page.index == 0;
        }
    }

    /// Some member may not have these pages.
    pub(crate) fn not_written(&mut self, pages: &[Page]) {
        self.due.extend(pages.iter().map(|page| page.index));
    }

    /// Whether every member's header vouches for its bits.
    pub(crate) fn trusted(&self) -> bool {
        self.trusted
    }

    /// Ends a period without a tick, and gives the chunks nothing was written to in it and that
    /// could be cleared once the members are flushed.
    pub(crate) fn tick(&mut self) -> Bits {
        let quiet = self.quiet();
        self.recent = Bits::none(self.recent.len());
        for busy in &self.busy {
            self.recent.insert(busy.clone());
        }
        quiet
    }

    fn quiet(&self) -> Bits {
        let mut quiet = self.image.clone();
        quiet.take_out(&self.recent);
        quiet.take_out(&self.needed);
        for busy in &self.busy {
            quiet.remove(busy.clone());
        }
        quiet
    }

    /// Everything that could be cleared if no write follows: for the end of the service.
    pub(crate) fn finished(&mut self) -> Bits {
        self.recent = Bits::none(self.recent.len());
        self.quiet()
    }

    /// Clears the bits of chunks that were quiet before a flush and still are.
    pub(crate) fn clear(&mut self, flushed: &Bits) {
        let mut clear = self.quiet();
        clear.keep(flushed);
        self.image.take_out(&clear);
        self.stored.take_out(&clear);
        let runs: Vec<_> = clear.runs().collect();
        for run in runs {
            self.make_due(run);
        }
    }

    /// Whether a later tick may find something to clear.
    pub(crate) fn has_clearable(&self) -> bool {
        let mut rest = self.image.clone();
        rest.take_out(&self.needed);
        rest.next(0).is_some()
    }

    /// Whether redundancy agrees in these bytes. A resync that has `passed` them has made them
    /// agree, although the rest of their chunk may not.
    pub(crate) fn agrees(&self, bytes: &Range<u64>, passed: bool) -> bool {
        let doubtful = if passed { &self.spoiled } else { &self.needed };
        !doubtful.any(self.chunks(bytes))
    }

    /// The first bytes from `from` on where redundancy may not agree.
    pub(crate) fn next_needed(&self, from: u64) -> Option<Range<u64>> {
        self.next_of(&self.needed, from)
    }

    /// The first bytes from `from` on that may have been written since bits were last cleared.
    pub(crate) fn next_dirty(&self, from: u64) -> Option<Range<u64>> {
        self.next_of(&self.image, from)
    }

    /// Whether any of these bytes may have been written since bits were last cleared.
    pub(crate) fn is_dirty(&self, bytes: &Range<u64>) -> bool {
        self.image.any(self.chunks(bytes))
    }

    fn next_of(&self, bits: &Bits, from: u64) -> Option<Range<u64>> {
        let chunk = u64::from(self.header.chunk_bytes);
        let run = bits.next_run(from / chunk)?;
        Some((run.start * chunk).max(from)..run.end.saturating_mul(chunk))
    }

    /// Everything in these bytes was made to agree; only whole chunks, and the last, count.
    pub(crate) fn made_to_agree(&mut self, bytes: Range<u64>) {
        let chunk = u64::from(self.header.chunk_bytes);
        let covered = self.header.sync_sectors * format::md::SECTOR_BYTES;
        let end = if bytes.end >= covered { self.image.len() } else { bytes.end / chunk };
        let start = bytes.start / chunk;
        if start < end {
            self.needed.remove(start..end);
            self.needed.add(&self.spoiled);
        }
    }

    /// Bits that are set, bits where redundancy may not agree, and bits at all.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        (self.image.count(), self.needed.count(), self.image.len())
    }
}

#[cfg(test)]
mod tests {
    use format::md::{BitmapForm, BitmapState, Uuid};

    use super::*;

    const CHUNK: u64 = 4096;

    /// Sixty chunks, all clean, or as found.
    fn intent(found: Option<(Bits, Bits)>, synced_to: u64) -> Intent {
        let header = BitmapHeader {
            form: BitmapForm::Bits { version: 4 },
            set_uuid: Uuid([7; 16]),
            events: 10,
            events_cleared: 9,
            sync_sectors: 60 * CHUNK / 512,
            state: BitmapState(0),
            chunk_bytes: CHUNK as u32,
            daemon_sleep_seconds: 5,
            write_behind: 0,
            sectors_reserved: 0,
            nodes: 0,
        };
        Intent::new(header, found, synced_to, 512)
    }

    fn clean() -> Intent {
        intent(Some((Bits::none(60), Bits::none(60))), u64::MAX)
    }

    fn store(intent: &mut Intent) -> usize {
        let pages = intent.take_due();
        intent.written(&pages);
        pages.len()
    }

    fn bytes(chunks: Range<u64>) -> Range<u64> {
        chunks.start * CHUNK..chunks.end * CHUNK
    }

    #[test]
    fn a_bit_is_cleared_only_after_a_quiet_time_and_a_flush_that_covers_it() {
        let mut intent = clean();
        assert!(intent.begin(&bytes(3..5)));
        assert_eq!(store(&mut intent), 1);
        assert!(intent.is_stored(&bytes(3..5)));
        assert_eq!(intent.tick().count(), 0, "under way");
        intent.end(&bytes(3..5), false);
        assert_eq!(intent.tick().count(), 0, "a moment ago");
        let quiet = intent.tick();
        assert!(quiet.runs().eq(std::iter::once(3..5)));
        // While the members are flushed, one of the two is written to again.
        assert!(!intent.begin(&(4 * CHUNK + 512..4 * CHUNK + 1024)));
        assert!(intent.note_clearing());
        store(&mut intent);
        intent.clear(&quiet);
        assert_eq!(intent.counts(), (1, 0, 60));
        assert!(!intent.is_stored(&bytes(3..4)), "has to be written before the next write");
        assert!(!intent.note_clearing(), "no event since");
    }

    #[test]
    fn what_does_not_agree_stays_dirty_until_it_does() {
        let mut image = Bits::none(60);
        image.insert(2..4);
        image.insert(59..60);
        let mut intent = intent(Some((image.clone(), image)), 0);
        assert_eq!(intent.next_needed(0), Some(bytes(2..4)));
        assert_eq!(intent.next_needed(3 * CHUNK + 9), Some(3 * CHUNK + 9..4 * CHUNK));
        assert!(!intent.agrees(&(3 * CHUNK..3 * CHUNK + 1), false));
        assert!(intent.agrees(&(3 * CHUNK..3 * CHUNK + 1), true));
        assert!(intent.agrees(&bytes(4..59), false));
        intent.tick();
        assert_eq!(intent.tick().count(), 0);
        intent.made_to_agree(2 * CHUNK..3 * CHUNK + 512);
        assert_eq!(intent.next_needed(0), Some(bytes(3..4)), "half of a chunk is not enough");
        intent.made_to_agree(3 * CHUNK + 512..4 * CHUNK);
        intent.made_to_agree(4 * CHUNK..60 * CHUNK);
        assert_eq!(intent.next_needed(0), None);
        assert_eq!(intent.finished().count(), 3);
    }

    #[test]
    fn a_failed_write_leaves_its_chunk_in_doubt() {
        let mut intent = clean();
        intent.begin(&bytes(7..8));
        store(&mut intent);
        intent.end(&bytes(7..8), true);
        intent.made_to_agree(0..60 * CHUNK);
        assert!(!intent.agrees(&bytes(7..8), true), "a pass may have been there before");
        assert_eq!(intent.finished().count(), 0);
    }

    #[test]
    fn bits_nobody_can_be_believed_about_are_all_set_and_go_out_before_the_header() {
        let mut intent = intent(None, 5 * CHUNK);
        assert_eq!(intent.counts(), (60, 55, 60));
        assert!(intent.begin(&bytes(0..1)), "the header does not vouch for the bits yet");
        let pages = intent.take_due();
        assert_eq!(pages.last().map(Page::offset), Some(0));
        intent.written(&pages);
        assert!(intent.is_stored(&bytes(0..60)));
    }
}
