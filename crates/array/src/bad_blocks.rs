//! A member's bad-block log: the ranges of it that hold nothing to rely on, in md's format.
//!
//! Ranges are added before anything could rely on what is there, and leave once the range was
//! written and that is durable: an entry too many costs a read from redundancy, one too few costs
//! data. The log is one page on the member, written whole; a feature bit of the member's superblock
//! says that it is in use.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use drive::{Drive, DriveError, Durability, ErrorKind, Io, Operation};
use format::md::{
    BadBlockPlace, BadBlocksError, ByteRange, SECTOR_BYTES, build_bad_blocks, parse_bad_blocks,
};
use world::{Semaphore, World, WriteBufs};

use crate::core::Core;
use crate::examine::read_bytes;
use crate::slot::Member;

/// How long the log of a member is waited for when an array is opened.
const READ_LIMIT: Duration = Duration::from_secs(10);

/// Ranges in bytes that are apart from each other: start to end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    fn overlaps(&self, start: u64, end: u64) -> bool {
        self.0.range(..end).next_back().is_some_and(|(_, &last)| start < last)
    }

    /// Adds `start..end`; what it touches becomes one range with it.
    pub(crate) fn add(&mut self, mut start: u64, mut end: u64) {
        while let Some((&from, &to)) =
            self.0.range(..=end).next_back().filter(|(_, to)| **to >= start)
        {
            self.0.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.0.insert(start, end);
    }

    pub(crate) fn remove(&mut self, start: u64, end: u64) {
        while let Some((&from, &to)) =
            self.0.range(..end).next_back().filter(|(_, to)| **to > start)
        {
            self.0.remove(&from);
            if from < start {
                self.0.insert(from, start);
            }
            if end < to {
                self.0.insert(end, to);
            }
        }
    }

    /// In order.
    pub(crate) fn to_vec(&self) -> Vec<Range<u64>> {
        self.0.iter().map(|(&start, &end)| start..end).collect()
    }

    pub(crate) fn total_bytes(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }
}

/// What is known of a member's bad blocks, and where that is kept. Places are bytes from the start
/// of the member, metadata included.
pub(crate) struct BadBlocks {
    ranges: RefCell<Ranges>,
    place: Option<BadBlockPlace>,
    /// The log on the member has entries: its superblock must say so.
    logged: Cell<bool>,
    /// The log is written by one at a time, so that the newest is the last.
    turn: Rc<Semaphore>,
}

impl BadBlocks {
    /// None known; those to come are kept at `place`, if the member has one.
    pub(crate) fn none(place: Option<BadBlockPlace>) -> Self {
        let turn = Rc::new(Semaphore::new(1));
        BadBlocks { ranges: RefCell::default(), place, logged: Cell::new(false), turn }
    }

    /// Reads the log of a member.
    ///
    /// # Errors
    /// It can't be read, or makes no sense: the member must not be relied on.
    pub(crate) async fn read(
        world: &World,
        drive: &dyn Drive,
        place: BadBlockPlace,
    ) -> Result<Self, DriveError> {
        let ByteRange { start: offset, length: bytes } = place.range;
        let error = |kind, source| DriveError {
            kind,
            operation: Operation::Read,
            offset,
            bytes,
            drive: drive.facts().name.clone(),
            source: Some(Rc::new(source)),
        };
        let log = read_bytes(world.pool(), drive, offset, bytes as usize);
        let log = world.within(READ_LIMIT, "a member's bad-block log", log).await;
        let log = log.map_err(|late| error(ErrorKind::TimedOut, io::Error::other(late)))??;
        BadBlocks::parse(place, &log)
            .map_err(|invalid| error(ErrorKind::Media, io::Error::other(invalid)))
    }

    /// Those that the log on a member lists.
    ///
    /// # Errors
    /// The log makes no sense: the member must not be relied on.
    fn parse(place: BadBlockPlace, log: &[u8]) -> Result<Self, BadBlocksError> {
        let bad = BadBlocks::none(Some(place));
        for ByteRange { start, length } in parse_bad_blocks(log, place.shift)? {
            bad.ranges.borrow_mut().add(start, start.saturating_add(length));
        }
        bad.logged.set(true);
        Ok(bad)
    }

    pub(crate) fn overlaps(&self, start: u64, bytes: u64) -> bool {
        let ranges = self.ranges.borrow();
        !ranges.0.is_empty() && ranges.overlaps(start, start.saturating_add(bytes))
    }

    pub(crate) fn total_bytes(&self) -> u64 {
        self.ranges.borrow().total_bytes()
    }

    /// What is listed of a range, from its start on.
    pub(crate) fn within(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let ranges = self.ranges.borrow().to_vec().into_iter();
        let cut = ranges.map(|bad| bad.start.max(range.start)..bad.end.min(range.end));
        let cut = cut.filter(|bad| !bad.is_empty());
        cut.map(|bad| bad.start - range.start..bad.end - range.start).collect()
    }

    /// Whether the log on the member is in use.
    pub(crate) fn logged(&self) -> bool {
        self.logged.get()
    }

    fn unit_bytes(&self) -> u64 {
        SECTOR_BYTES << self.place.map_or(0, |place| place.shift)
    }

    /// Nothing in the range is to be relied on any more.
    pub(crate) fn add(&self, start: u64, bytes: u64) {
        let unit = self.unit_bytes();
        let end = (start + bytes).next_multiple_of(unit);
        self.ranges.borrow_mut().add(start / unit * unit, end);
    }

    /// The range holds what it should; units that it covers in part stay listed.
    fn remove(&self, start: u64, bytes: u64) {
        let unit = self.unit_bytes();
        let (start, end) = (start.next_multiple_of(unit), (start + bytes) / unit * unit);
        if start < end {
            self.ranges.borrow_mut().remove(start, end);
        }
    }

    /// The log as it has to stand on the member.
    fn build(&self, place: &BadBlockPlace) -> Result<Vec<u8>, BadBlocksError> {
        let ranges = self.ranges.borrow();
        let ranges = ranges.0.iter().map(|(&start, end)| ByteRange { start, length: end - start });
        build_bad_blocks(&ranges.collect::<Vec<_>>(), place.shift, place.range.length as usize)
    }
}

/// Writes a member's log durably, with what its superblock has to say about it.
///
/// A member without room for a log, with a full one or with one that can't be written is failed:
/// what it holds could not be told from what it does not. One that the array can't do without
/// stays, and its ranges are remembered until the array ends.
pub(crate) async fn record(core: &Core, slot: usize) {
    let Some(member) = core.slots[slot].member() else { return };
    let bad = &member.bad;
    let _turn = bad.turn.acquire(1).await;
    let stored = match write_of(core, &member) {
        Err(error) => Err(error),
        Ok(write) => {
            let mut failed = core.settle(Operation::Write, vec![(slot, write)]).await;
            failed.pop().map_or(Ok(()), |(_, error)| Err(error))
        }
    };
    match stored {
        Ok(()) => {
            let listed = bad.total_bytes() > 0;
            // The superblock names the log only once it is there. That it is empty again can wait
            // for the next event: an empty list says the same.
            if listed && !bad.logged.replace(listed) {
                let _ = core.commit().await;
            }
            bad.logged.set(listed);
        }
        Err(error) => {
            let _ = core.fail_members(vec![(slot, error)]).await;
        }
    }
}

/// Writes the log of a drive that is to replace a member. Its superblock says so with the next
/// event; nothing is read from it before.
///
/// # Errors
/// The drive has no room for it, or can't be written: it must not take over.
pub(crate) async fn record_replacement(core: &Core, member: &Member) -> Result<(), DriveError> {
    let _turn = member.bad.turn.acquire(1).await;
    core.settle_other(member, write_of(core, member)?).await?;
    member.bad.logged.set(member.bad.total_bytes() > 0);
    Ok(())
}

/// The durable write of a member's log.
fn write_of(core: &Core, member: &Member) -> Result<Io<Result<(), DriveError>>, DriveError> {
    let bad = &member.bad;
    let error = |offset, bytes, source: BadBlocksError| DriveError {
        kind: ErrorKind::Full,
        operation: Operation::Write,
        offset,
        bytes,
        drive: member.drive.facts().name.clone(),
        source: Some(Rc::new(io::Error::other(source))),
    };
    match &bad.place {
        None => Err(error(0, 0, BadBlocksError::Full { room: 0, needed: 1 })),
        Some(place) => match bad.build(place) {
            Err(full) => Err(error(place.range.start, place.range.length, full)),
            Ok(log) => {
                let buffers = WriteBufs::from_iter([core.world.pool().copy_of(&log)]);
                Ok(member.drive.write(place.range.start, buffers, Durability::Durable))
            }
        },
    }
}

/// After ranges of members' data areas were written: what of them was listed as bad is not any
/// more. The caller holds the ranges' locks; the members are flushed first, since a log that is
/// ahead of its data would give old content away after a power cut.
pub(crate) async fn written(core: &Core, ranges: &[(usize, u64, u64)]) {
    let mut slots: Vec<usize> = Vec::new();
    for &(slot, offset, bytes) in ranges {
        let Some(member) = core.slots[slot].member() else { continue };
        let listed = member.bad.overlaps(member.data_offset + offset, bytes);
        if listed && core.slots[slot].writable() && !slots.contains(&slot) {
            slots.push(slot);
        }
    }
    for slot in slots {
        let Some(member) = core.slots[slot].member() else { continue };
        if let Err(error) = core.flush_slot(slot).await {
            let _ = core.fail_members(vec![(slot, error)]).await;
            continue;
        }
        for &(_, offset, bytes) in ranges.iter().filter(|(of, ..)| *of == slot) {
            member.bad.remove(member.data_offset + offset, bytes);
        }
        record(core, slot).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_found_at_their_edges() {
        let mut bad = Ranges::default();
        for (start, bytes) in [(4096, 512), (0, 512), (8192, 4096)] {
            bad.add(start, start + bytes);
        }
        let table = [
            (0, 1, true),
            (512, 3584, false),
            (512, 3585, true),
            (4607, 1, true),
            (4608, 3584, false),
            (12287, 100, true),
            (12288, 1 << 40, false),
        ];
        for (offset, bytes, overlaps) in table {
            assert_eq!(bad.overlaps(offset, offset + bytes), overlaps, "{offset}+{bytes}");
        }
        assert_eq!(bad.total_bytes(), 5120);
    }

    #[test]
    fn ranges_are_a_set_of_sectors() {
        let mut random = world::SplitMix64::new(11);
        let mut bad = Ranges::default();
        let mut flat = [false; 64];
        for _ in 0..5000 {
            let start = random.below(64);
            let end = start + random.below(64 - start + 1).max(1).min(64 - start);
            let listed = random.chance(1, 2);
            if listed {
                bad.add(start, end);
            } else {
                bad.remove(start, end);
            }
            flat[start as usize..end as usize].fill(listed);
            let total = flat.iter().filter(|&&bad| bad).count() as u64;
            assert_eq!(bad.total_bytes(), total);
            let runs = flat.split(|bad| !bad).filter(|run| !run.is_empty()).count();
            assert_eq!(bad.0.len(), runs, "neighbours are one range");
            let (from, to) = (random.below(63), 63);
            let expected = flat[from as usize..to].contains(&true);
            assert_eq!(bad.overlaps(from, to as u64), expected);
        }
    }

    #[test]
    fn units_are_listed_whole_and_leave_whole() {
        let range = ByteRange { start: 8192, length: 4096 };
        let place = BadBlockPlace { range, shift: 3, in_use: true };
        let bad = BadBlocks::none(Some(place));
        bad.add(512, 4096);
        assert_eq!(bad.total_bytes(), 8192);
        bad.remove(0, 4096 + 512);
        assert_eq!(bad.total_bytes(), 4096, "a unit in part");
        bad.remove(4096, 4096);
        assert_eq!(bad.total_bytes(), 0);
    }
}
