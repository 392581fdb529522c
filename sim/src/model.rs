//! What may and what must be read: the judge of a history.
//!
//! Every write has a version, and a sector's content follows from its version and its address, so
//! a read tells which version it met. For each sector the model keeps the contents a read may
//! return now, and those that may be left after a power cut, both in the order they were written:
//!
//! - a write that begins may be met from then on;
//! - one that was acknowledged must be met from then on;
//! - what was acknowledged before a flush began must survive once that flush has ended, and so
//!   must a durable write once it is acknowledged;
//! - after a power cut any content may be met that was not certain to be overwritten; the one that
//!   is met first stays, as long as the copy it was met on does;
//! - where the promise ends (the write hole), anything may be met until it is overwritten, and
//!   again: what is met first stays.
//!
//! Of several writes to a sector that are under way at once any may win, but no older one.

use std::ops::Range;

/// The unit in which a power cut tears.
pub const SECTOR_BYTES: usize = 512;

/// What a sector holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// What the write of this version stored; 0 is zeroes.
    Version(u32),
    /// Nothing that was ever written there; a hash of it.
    Foreign(u64),
    /// Nobody knows: all is allowed.
    Anything,
}

const ZEROES: Content = Content::Version(0);

/// A write or zeroing: when it began, and what it stores. Several may store the same, so only the
/// number tells one from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    number: u32,
    /// What a read will meet.
    content: Content,
}

impl Change {
    /// The version it stores; 0 for zeroes.
    pub fn version(self) -> u32 {
        match self.content {
            Content::Version(version) => version,
            Content::Foreign(_) | Content::Anything => 0,
        }
    }
}

#[derive(Clone)]
struct Sector {
    /// What a read may return.
    current: Vec<Change>,
    /// What may be left after a power cut.
    lasting: Vec<Change>,
    acknowledged: Change,
    /// What other copies may hold, until a resync has made them agree.
    others: Vec<Change>,
    /// Changes under way, the number of the first of them, and whether there were several at once:
    /// then any of them may be met when all have ended.
    under_way: u32,
    first_under_way: u32,
    crowded: bool,
    /// The number of the last zeroing that began: zeroes name no version.
    zeroed: u32,
}

/// The array's content as far as it is certain.
pub struct Model {
    sectors: Vec<Sector>,
    changes: u32,
    /// The last change before the copies could come to differ.
    differ_since: u32,
    /// How often a copy was lost.
    copies_lost: u32,
}

/// What a flush will have made certain: for each sector the change acknowledged before it began.
pub struct FlushMark {
    numbers: Vec<u32>,
    differ_since: u32,
    copies_lost: u32,
}

/// What a read that others write beneath may meet besides what is there when it ends.
pub struct ReadMark {
    changes: u32,
    current: Vec<Vec<Change>>,
}

/// A sector that holds what it must not.
#[derive(Debug)]
pub struct Wrong {
    /// Its number.
    pub sector: u64,
    /// What was read.
    pub found: Content,
    /// What may be there.
    pub allowed: Vec<Content>,
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Wrong { sector, found, allowed } = self;
        match found {
            Content::Version(version) => write!(f, "sector {sector} holds version {version}")?,
            _ => write!(f, "sector {sector} holds what was never written there")?,
        }
        write!(f, ", allowed are {allowed:?}")
    }
}

impl Sector {
    fn end(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
        self.crowded &= self.under_way > 0;
    }
}

impl Model {
    /// For `sectors` sectors that hold zero; or, `foreign`, whatever was on the drives.
    pub fn new(sectors: u64, foreign: bool) -> Model {
        let content = if foreign { Content::Anything } else { ZEROES };
        let start = Change { number: 0, content };
        let others = if foreign { vec![start] } else { Vec::new() };
        let (current, lasting) = (vec![start], vec![start]);
        let blank = Sector {
            current,
            lasting,
            acknowledged: start,
            others,
            under_way: 0,
            first_under_way: 0,
            crowded: false,
            zeroed: 0,
        };
        Model {
            sectors: vec![blank; sectors as usize],
            changes: 0,
            differ_since: 0,
            copies_lost: 0,
        }
    }

    fn part(&mut self, range: Range<u64>) -> &mut [Sector] {
        &mut self.sectors[range.start as usize..range.end as usize]
    }

    /// A write of these sectors begins.
    pub fn begin_write(&mut self, range: Range<u64>) -> Change {
        self.begin(range, Content::Version(self.changes + 1))
    }

    /// Zeroing these sectors begins. A discard is the same, and is never acknowledged: the old
    /// content may stay.
    pub fn begin_zero(&mut self, range: Range<u64>) -> Change {
        self.begin(range, ZEROES)
    }

    fn begin(&mut self, range: Range<u64>, content: Content) -> Change {
        self.changes += 1;
        let change = Change { number: self.changes, content };
        for sector in self.part(range) {
            sector.current.push(change);
            sector.lasting.push(change);
            if content == ZEROES {
                sector.zeroed = change.number;
            }
            sector.under_way += 1;
            match sector.under_way {
                1 => sector.first_under_way = change.number,
                _ => sector.crowded = true,
            }
        }
        change
    }

    /// The change was acknowledged.
    pub fn acknowledge(&mut self, range: Range<u64>, change: Change, durable: bool) {
        // Heard only after a cut: what it was worth went with the power.
        if change.number <= self.differ_since && !durable {
            return;
        }
        for sector in self.part(range) {
            if sector.crowded {
                let first = sector.first_under_way;
                sector.current.retain(|change| change.number >= first);
                sector.acknowledged = sector.current[0];
                if durable {
                    sector.lasting.retain(|change| change.number >= first);
                }
            } else {
                sector.current = vec![change];
                sector.acknowledged = change;
                if durable {
                    sector.lasting = vec![change];
                }
            }
            if durable {
                sector.others.clear();
            }
            sector.end();
        }
    }

    /// The change has ended without a promise: it failed, or was a discard.
    pub fn end(&mut self, range: Range<u64>) {
        self.part(range).iter_mut().for_each(Sector::end);
    }

    /// The array has ended, and all that was under way with it.
    pub fn end_all(&mut self) {
        for sector in &mut self.sectors {
            (sector.under_way, sector.crowded) = (0, false);
        }
    }

    /// A flush begins.
    pub fn begin_flush(&self) -> FlushMark {
        let numbers = self.sectors.iter().map(|sector| sector.acknowledged.number).collect();
        let (differ_since, copies_lost) = (self.differ_since, self.copies_lost);
        FlushMark { numbers, differ_since, copies_lost }
    }

    /// The flush has succeeded.
    pub fn end_flush(&mut self, mark: &FlushMark) {
        for (sector, &number) in self.sectors.iter_mut().zip(&mark.numbers) {
            if mark.copies_lost != self.copies_lost && !sector.others.is_empty() {
                // Another copy answers by now than the one that was known then.
                continue;
            }
            if let Some(at) = sector.lasting.iter().position(|lasting| lasting.number == number) {
                sector.lasting.drain(..at);
            }
            if mark.differ_since != self.differ_since {
                // Heard only after a cut, which it still limits.
                sector.current.clone_from(&sector.lasting);
                sector.acknowledged = sector.lasting[0];
            }
        }
    }

    /// Whether a power cut now could leave one of several contents.
    pub fn in_flight(&self, sector: u64) -> bool {
        self.sectors[sector as usize].lasting.len() > 1
    }

    /// The power is gone.
    pub fn power_cut(&mut self) {
        self.differ_since = self.changes;
        for sector in &mut self.sectors {
            if sector.lasting.len() > 1 {
                sector.others.extend_from_slice(&sector.lasting);
            }
            sector.current.clone_from(&sector.lasting);
            // Which of them it is, the next flush makes certain.
            sector.acknowledged = sector.lasting[0];
        }
    }

    /// All copies hold the same again.
    pub fn copies_agree(&mut self) {
        self.sectors.iter_mut().for_each(|sector| sector.others.clear());
    }

    /// A copy is lost before all are the same: others answer from now on.
    pub fn copy_lost(&mut self) {
        self.copies_lost += 1;
        for sector in &mut self.sectors {
            if sector.others.is_empty() {
                continue;
            }
            sector.lasting.splice(0..0, sector.others.iter().copied());
            // What was written since then is on all copies.
            if sector.acknowledged.number <= self.differ_since {
                sector.current.splice(0..0, sector.others.iter().copied());
                sector.acknowledged = sector.others[0];
            }
        }
    }

    /// The promise ends for this sector: it may hold anything until it is overwritten.
    pub fn forget(&mut self, sector: u64) {
        self.changes += 1;
        let anything = Change { number: self.changes, content: Content::Anything };
        let sector = &mut self.sectors[sector as usize];
        sector.current.push(anything);
        sector.lasting.push(anything);
        sector.acknowledged = anything;
    }

    /// A read begins of sectors that others may write meanwhile.
    pub fn begin_read(&self, range: Range<u64>) -> ReadMark {
        let sectors = &self.sectors[range.start as usize..range.end as usize];
        let current = sectors.iter().map(|sector| sector.current.clone()).collect();
        ReadMark { changes: self.changes, current }
    }

    /// Judges what a read met that began at `mark`: also what was there at any time since.
    ///
    /// # Errors
    /// As [`Model::judge`].
    pub fn judge_shared(
        &mut self,
        first: u64,
        content: &[u8],
        mark: &ReadMark,
    ) -> Result<(), Wrong> {
        let sectors = content.chunks_exact(SECTOR_BYTES).zip(&mark.current);
        for (number, (bytes, before)) in (first..).zip(sectors) {
            let found = content_of(number, bytes);
            let began = |content| before.iter().any(|change| change.content == content);
            let met = match found {
                ZEROES => self.sectors[number as usize].zeroed,
                Content::Version(version) => version,
                Content::Foreign(_) | Content::Anything => 0,
            };
            let meanwhile = met > mark.changes;
            if !began(found) && !began(Content::Anything) && !meanwhile {
                self.judge(number, bytes, false)?;
            }
        }
        Ok(())
    }

    /// Judges what was read from `first` on. With `settles`, nothing is under way there: what was
    /// met stays.
    ///
    /// # Errors
    /// The first sector that holds what it must not.
    pub fn judge(&mut self, first: u64, content: &[u8], settles: bool) -> Result<(), Wrong> {
        let differ_since = self.differ_since;
        for (number, bytes) in (first..).zip(content.chunks_exact(SECTOR_BYTES)) {
            let found = content_of(number, bytes);
            let sector = &mut self.sectors[number as usize];
            // The newest of several with the same content: the others are then past.
            let met = |content: Content| {
                sector.current.iter().rfind(|change| change.content == content).copied()
            };
            let Some(met) = met(found).or_else(|| met(Content::Anything)) else {
                let allowed = sector.current.iter().map(|change| change.content).collect();
                return Err(Wrong { sector: number, found, allowed });
            };
            if settles && (sector.current.len() > 1 || met.content == Content::Anything) {
                let met = Change { content: found, ..met };
                sector.current = vec![met];
                sector.acknowledged = met;
                let before = |change: &Change| change.number <= differ_since;
                // Of what the last cut left open this is it; what came since may yet be lost.
                if before(&met) {
                    sector.lasting.retain(|change| !before(change));
                    sector.lasting.insert(0, met);
                } else if let Some(same) =
                    sector.lasting.iter_mut().find(|change| change.number == met.number)
                {
                    *same = met;
                }
            }
        }
        Ok(())
    }
}

/// Fills sectors from `first` on with the content of a version.
pub fn fill(first: u64, version: u32, content: &mut [u8]) {
    for (number, sector) in (first..).zip(content.chunks_exact_mut(SECTOR_BYTES)) {
        for (index, word) in sector.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&word_of(number, version, index).to_le_bytes());
        }
    }
}

fn word_of(sector: u64, version: u32, index: usize) -> u64 {
    if version == 0 {
        return 0;
    }
    let tag = (u64::from(version) << 32) | sector;
    // The first word names the version; the others differ, so that a mix of two is noticed.
    if index == 0 { tag } else { tag.wrapping_mul(0x9e37_79b9_7f4a_7c15 + 2 * index as u64) }
}

fn content_of(sector: u64, bytes: &[u8]) -> Content {
    let word = |index: usize| {
        let bytes = bytes[index * 8..][..8].try_into().expect("eight bytes");
        u64::from_le_bytes(bytes)
    };
    let version = (word(0) >> 32) as u32;
    if (0..SECTOR_BYTES / 8).all(|index| word(index) == word_of(sector, version, index)) {
        return Content::Version(version);
    }
    // FNV-1a over words: enough to tell whether content that nobody knows stays the same.
    let mix = |hash: u64, index| (hash ^ word(index)).wrapping_mul(0x0100_0000_01b3);
    Content::Foreign((0..SECTOR_BYTES / 8).fold(0xcbf2_9ce4_8422_2325, mix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(first: u64, version: u32) -> Vec<u8> {
        let mut bytes = vec![0; SECTOR_BYTES];
        fill(first, version, &mut bytes);
        bytes
    }

    #[test]
    fn only_what_was_flushed_is_certain_after_a_cut() {
        let mut model = Model::new(4, false);
        let first = model.begin_write(1..2);
        assert!(
            model.judge(1, &content(1, first.version()), false).is_ok(),
            "under way: may be met"
        );
        assert!(model.judge(1, &content(1, 0), false).is_ok());
        model.acknowledge(1..2, first, false);
        assert!(model.judge(1, &content(1, 0), false).is_err(), "acknowledged: must be met");
        let mark = model.begin_flush();
        let second = model.begin_write(1..2);
        model.acknowledge(1..2, second, false);
        model.end_flush(&mark);
        model.power_cut();
        assert!(model.judge(1, &content(1, 0), false).is_err(), "flushed away");
        assert!(model.judge(1, &content(1, second.version()), false).is_ok());
        assert!(model.judge(1, &content(1, first.version()), true).is_ok());
        assert!(
            model.judge(1, &content(1, second.version()), true).is_err(),
            "the first one met stays"
        );
        assert!(
            model.judge(2, &content(1, first.version()), false).is_err(),
            "another place's content"
        );
    }

    #[test]
    fn what_nobody_knows_stays_once_it_was_met() {
        let mut model = Model::new(2, true);
        let (one, other) = ([7; SECTOR_BYTES], [8; SECTOR_BYTES]);
        assert!(model.judge(0, &one, false).is_ok() && model.judge(0, &other, true).is_ok());
        assert!(model.judge(0, &one, false).is_err(), "the one met first stays");
        model.copy_lost();
        assert!(model.judge(0, &one, true).is_ok(), "another copy answers");
        let write = model.begin_write(0..1);
        model.acknowledge(0..1, write, true);
        model.copy_lost();
        assert!(model.judge(0, &one, false).is_err(), "all copies have it");
        model.forget(0);
        assert!(model.judge(0, &one, true).is_ok(), "the promise has ended");
        assert!(model.judge(0, &content(0, write.version()), false).is_err());
    }

    #[test]
    fn a_read_may_meet_zeroes_that_came_and_went_meanwhile() {
        let mut model = Model::new(1, false);
        let before = model.begin_write(0..1);
        model.acknowledge(0..1, before, false);
        let mark = model.begin_read(0..1);
        assert!(model.judge_shared(0, &content(0, 0), &mark).is_err(), "not yet");
        let zeroing = model.begin_zero(0..1);
        model.acknowledge(0..1, zeroing, false);
        let after = model.begin_write(0..1);
        model.acknowledge(0..1, after, false);
        assert!(model.judge_shared(0, &content(0, 0), &mark).is_ok());
        let late = model.begin_read(0..1);
        assert!(model.judge_shared(0, &content(0, 0), &late).is_err(), "long gone");
    }
}
