//! The segments of a disk's buffer: which blocks are in them, and which is used next.

use super::parameters::Buffer;

/// A run of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Segment {
    /// First block.
    pub first: u64,
    /// Behind the last block; equal to the first when it is empty.
    pub end: u64,
    /// Filled by a write.
    pub written: bool,
    /// Behind the last block that reading ahead may bring.
    pub ahead_end: u64,
    used: u64,
}

/// All segments of a disk.
#[derive(Debug, Clone)]
pub struct Segments {
    list: Vec<Segment>,
    buffer: Buffer,
    uses: u64,
}

/// What the buffer has of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// All of it, in this segment.
    Whole(usize),
    /// Its beginning.
    Part(usize),
    /// Nothing.
    Nothing,
}

impl Segments {
    /// Empty segments.
    #[must_use]
    pub fn new(buffer: Buffer) -> Self {
        Segments { list: vec![Segment::default(); buffer.segments as usize], buffer, uses: 0 }
    }

    /// A segment.
    #[must_use]
    pub fn get(&self, index: usize) -> &Segment {
        &self.list[index]
    }

    /// What is there of `blocks` blocks from `first` on. Into a segment that is `reading` the first
    /// block may be just about to come.
    #[must_use]
    pub fn find(&self, first: u64, blocks: u64, reading: Option<usize>) -> Found {
        let mut found = Found::Nothing;
        for (index, segment) in self.list.iter().enumerate() {
            let usable = !segment.written || self.buffer.hits_on_writes;
            let apart = self.buffer.write_segment && index == 0;
            let coming = self.buffer.almost_hits && reading == Some(index);
            let end = if coming { segment.end + 1 } else { segment.end };
            if !usable || apart || first < segment.first || first >= end {
                continue;
            }
            if first + blocks <= segment.end {
                return Found::Whole(index);
            }
            found = Found::Part(index);
        }
        found
    }

    /// The segment that was not used for longest, for a read or a write; empty ones first.
    #[must_use]
    pub fn oldest(&self, write: bool) -> usize {
        let apart = self.buffer.write_segment;
        if apart && write {
            return 0;
        }
        let from = usize::from(apart);
        let age = |index: &usize| {
            let segment = &self.list[*index];
            (segment.first < segment.end, segment.used)
        };
        (from..self.list.len()).min_by_key(age).expect("a disk has a segment for reads")
    }

    /// A segment begins anew, empty, at `first`.
    pub fn begin(&mut self, index: usize, first: u64, written: bool) {
        self.list[index] = Segment { first, end: first, written, ahead_end: 0, used: 0 };
        self.touch(index);
    }

    /// A segment was used.
    pub fn touch(&mut self, index: usize) {
        self.uses += 1;
        self.list[index].used = self.uses;
    }

    /// Reading ahead into a segment may go on to `end`.
    pub fn allow(&mut self, index: usize, end: u64) {
        let segment = &mut self.list[index];
        segment.ahead_end = segment.ahead_end.max(end);
    }

    /// Blocks up to `end` are in the segment; it keeps the last ones that fit.
    pub fn fill(&mut self, index: usize, end: u64) {
        let segment = &mut self.list[index];
        segment.end = segment.end.max(end);
        let size = self.buffer.segment_blocks;
        segment.first = segment.first.max(segment.end.saturating_sub(size));
    }

    /// Blocks in front of an empty segment came along.
    pub fn extend_down(&mut self, index: usize, first: u64) {
        let segment = &mut self.list[index];
        segment.first = segment.first.min(first);
    }

    /// What a write changes is no longer in other segments than `except`.
    pub fn forget(&mut self, first: u64, blocks: u64, except: Option<usize>) {
        for (index, segment) in self.list.iter_mut().enumerate() {
            if Some(index) != except && first < segment.end && segment.first < first + blocks {
                segment.end = segment.first;
            }
        }
    }

    /// Whether reading ahead brings blocks of a run into a segment, or could have.
    #[must_use]
    pub fn covers(&self, index: usize, first: u64, end: u64) -> bool {
        let segment = &self.list[index];
        segment.first < end && first < segment.ahead_end
    }

    /// Reading ahead into a segment ends at `end` at the latest, or where it is.
    pub fn stop(&mut self, index: usize, end: u64) {
        let segment = &mut self.list[index];
        segment.ahead_end = segment.ahead_end.min(end.max(segment.end));
    }

    /// A segment has nothing any more.
    pub fn empty(&mut self, index: usize) {
        self.list[index].end = self.list[index].first;
    }
}

#[cfg(test)]
mod tests {
    use super::super::parameters::ReadAhead;
    use super::*;

    fn segments() -> Segments {
        Segments::new(Buffer {
            segments: 2,
            segment_blocks: 100,
            write_segment: false,
            hits_on_writes: true,
            almost_hits: true,
            ahead: ReadAhead::Off,
            ahead_on_hit: false,
            free_blocks: false,
            stops_in_block: true,
            write_stops_ahead: true,
            watermark: 0.0,
            hits_pass: true,
        })
    }

    #[test]
    fn a_segment_keeps_the_last_blocks_that_fit() {
        let mut segments = segments();
        let index = segments.oldest(false);
        segments.begin(index, 1000, false);
        segments.fill(index, 1150);
        assert_eq!(segments.find(1050, 100, None), Found::Whole(index));
        assert_eq!(segments.find(1100, 100, None), Found::Part(index));
        assert_eq!(segments.find(1049, 1, None), Found::Nothing);
        // The next block is a hit only while it is coming in.
        assert_eq!(segments.find(1150, 1, None), Found::Nothing);
        assert_eq!(segments.find(1150, 1, Some(index)), Found::Part(index));
        assert_ne!(segments.oldest(false), index);
    }

    #[test]
    fn what_a_write_changes_is_not_read_ahead_over_it() {
        let mut segments = segments();
        segments.begin(0, 1000, false);
        segments.allow(0, 1080);
        segments.fill(0, 1020);
        assert!(segments.covers(0, 1050, 1060) && !segments.covers(0, 1080, 1090));
        // Behind what is there: reading ahead ends in front of it.
        segments.forget(1050, 10, None);
        segments.stop(0, 1050);
        segments.fill(0, 1080.min(segments.get(0).ahead_end));
        assert_eq!(segments.find(1000, 60, None), Found::Part(0));
        // Within it: nothing comes back.
        segments.forget(1010, 1, None);
        segments.stop(0, 0);
        segments.fill(0, 1080.min(segments.get(0).ahead_end));
        assert_eq!(segments.find(1010, 1, None), Found::Nothing);
        assert_eq!(segments.find(1000, 1, None), Found::Nothing);
    }
}
