//! What may and what must be read: the judge of a history.
//!
//! Every write has a version, and a sector's content follows from its version and its address, so
//! a read tells which version it met. For each sector the model keeps the versions a read may
//! return now, and those that may be left after a power cut, both in the order they were written:
//!
//! - a write that begins may be met from then on;
//! - one that was acknowledged must be met from then on;
//! - what was acknowledged before a flush began must survive once that flush has ended, and so
//!   must a durable write once it is acknowledged;
//! - after a power cut any version may be met that was not certain to be overwritten; the one that
//!   is met first stays.
//!
//! No two writes to the same sector are under way at once: what they would leave is nobody's
//! promise.

use std::ops::Range;

/// The unit in which a power cut tears.
pub const SECTOR_BYTES: usize = 512;

/// The content of sectors that were never written: zero.
pub const NEVER: u32 = 0;

/// A write or zeroing: when it began, and the version it stores. Zeroing stores the version of
/// sectors that were never written, so only the number tells one from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    number: u32,
    /// What a read will meet.
    pub version: u32,
}

const START: Change = Change { number: 0, version: NEVER };

#[derive(Clone)]
struct Sector {
    /// What a read may return.
    current: Vec<Change>,
    /// What may be left after a power cut.
    lasting: Vec<Change>,
    acknowledged: Change,
}

/// The array's content as far as it is certain.
pub struct Model {
    sectors: Vec<Sector>,
    changes: u32,
}

/// What a flush will have made certain: for each sector the change acknowledged before it began.
pub struct FlushMark(Vec<Change>);

/// A sector that holds what it must not.
#[derive(Debug)]
pub struct Wrong {
    /// Its number.
    pub sector: u64,
    /// What was read: a version, or nothing the model knows.
    pub found: Option<u32>,
    /// What may be there.
    pub allowed: Vec<u32>,
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Wrong { sector, found, allowed } = self;
        match found {
            Some(version) => write!(f, "sector {sector} holds version {version}")?,
            None => write!(f, "sector {sector} holds what was never written there")?,
        }
        write!(f, ", allowed are {allowed:?}")
    }
}

impl Model {
    /// For `sectors` sectors that hold zero.
    pub fn new(sectors: u64) -> Model {
        let blank = Sector { current: vec![START], lasting: vec![START], acknowledged: START };
        Model { sectors: vec![blank; sectors as usize], changes: 0 }
    }

    /// A write of these sectors begins.
    pub fn begin_write(&mut self, range: Range<u64>) -> Change {
        self.begin(range, self.changes + 1)
    }

    /// Zeroing these sectors begins.
    pub fn begin_zero(&mut self, range: Range<u64>) -> Change {
        self.begin(range, NEVER)
    }

    fn begin(&mut self, range: Range<u64>, version: u32) -> Change {
        self.changes += 1;
        let change = Change { number: self.changes, version };
        for sector in &mut self.sectors[range.start as usize..range.end as usize] {
            sector.current.push(change);
            sector.lasting.push(change);
        }
        change
    }

    /// The change was acknowledged.
    pub fn acknowledge(&mut self, range: Range<u64>, change: Change, durable: bool) {
        for sector in &mut self.sectors[range.start as usize..range.end as usize] {
            sector.current = vec![change];
            sector.acknowledged = change;
            if durable {
                sector.lasting = vec![change];
            }
        }
    }

    /// A flush begins.
    pub fn begin_flush(&self) -> FlushMark {
        FlushMark(self.sectors.iter().map(|sector| sector.acknowledged).collect())
    }

    /// The flush has succeeded.
    pub fn end_flush(&mut self, mark: &FlushMark) {
        for (sector, change) in self.sectors.iter_mut().zip(&mark.0) {
            if let Some(at) = sector.lasting.iter().position(|lasting| lasting == change) {
                sector.lasting.drain(..at);
            }
        }
    }

    /// The power is gone.
    pub fn power_cut(&mut self) {
        for sector in &mut self.sectors {
            sector.current.clone_from(&sector.lasting);
        }
    }

    /// Judges what was read from `first` on. With `settles`, nothing is under way there: what was
    /// met stays.
    ///
    /// # Errors
    /// The first sector that holds what it must not.
    pub fn judge(&mut self, first: u64, content: &[u8], settles: bool) -> Result<(), Wrong> {
        for (number, bytes) in (first..).zip(content.chunks_exact(SECTOR_BYTES)) {
            let found = version_of(number, bytes);
            let sector = &mut self.sectors[number as usize];
            // The newest of several with the same content: the others are then past.
            let met = sector.current.iter().rfind(|change| Some(change.version) == found).copied();
            let Some(met) = met else {
                let allowed = sector.current.iter().map(|change| change.version).collect();
                return Err(Wrong { sector: number, found, allowed });
            };
            if settles && sector.current.len() > 1 {
                sector.current = vec![met];
                sector.lasting = vec![met];
                sector.acknowledged = met;
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
    if version == NEVER {
        return 0;
    }
    let tag = (u64::from(version) << 32) | sector;
    // The first word names the version; the others differ, so that a mix of two is noticed.
    if index == 0 { tag } else { tag.wrapping_mul(0x9e37_79b9_7f4a_7c15 + 2 * index as u64) }
}

fn version_of(sector: u64, bytes: &[u8]) -> Option<u32> {
    let word = |index: usize| {
        let bytes = bytes[index * 8..][..8].try_into().expect("eight bytes");
        u64::from_le_bytes(bytes)
    };
    let version = (word(0) >> 32) as u32;
    let whole = (0..SECTOR_BYTES / 8).all(|index| word(index) == word_of(sector, version, index));
    whole.then_some(version)
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
        let mut model = Model::new(4);
        let first = model.begin_write(1..2);
        assert!(model.judge(1, &content(1, first.version), false).is_ok(), "under way: may be met");
        assert!(model.judge(1, &content(1, NEVER), false).is_ok());
        model.acknowledge(1..2, first, false);
        assert!(model.judge(1, &content(1, NEVER), false).is_err(), "acknowledged: must be met");
        let mark = model.begin_flush();
        let second = model.begin_write(1..2);
        model.acknowledge(1..2, second, false);
        model.end_flush(&mark);
        model.power_cut();
        assert!(model.judge(1, &content(1, NEVER), false).is_err(), "flushed away");
        assert!(model.judge(1, &content(1, second.version), false).is_ok());
        assert!(model.judge(1, &content(1, first.version), true).is_ok());
        assert!(
            model.judge(1, &content(1, second.version), true).is_err(),
            "the first one met stays"
        );
        assert!(
            model.judge(2, &content(1, first.version), false).is_err(),
            "another place's content"
        );
    }
}
