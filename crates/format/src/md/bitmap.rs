//! The write-intent bitmap: which parts of the set may have been written when it went down.
//!
//! A header of 256 bytes, then one bit per chunk, lowest bit first, 1 = dirty:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | magic `6d746962` |
//! | 4 | 4 | version: 3 host order, 4 little-endian, 5 clustered, 6 lockless |
//! | 8 | 16 | set uuid |
//! | 24 | 8 | events |
//! | 32 | 8 | events when bits were last cleared |
//! | 40 | 8 | sectors covered: of a member, on raid10 of the array |
//! | 48 | 4 | state |
//! | 52 | 4 | chunk bytes |
//! | 56 | 4 | daemon sleep seconds |
//! | 60 | 4 | write behind |
//! | 64 | 4 | sectors reserved |
//! | 68 | 4 | nodes |
//! | 72 | 64 | cluster name |
//!
//! Version 6 has a header of 1024 bytes and one byte per chunk instead: a state. This module
//! reads both; only the bit form is built, for new sets.

use super::SECTOR_BYTES;
use super::member::ByteRange;
use super::types::Uuid;
use crate::bytes::{array, put, u32_le, u64_le};

/// `bitm` as a little-endian word.
const BITMAP_MAGIC: u32 = 0x6d74_6962;

/// What to read to learn how long the bitmap is.
pub const BITMAP_HEADER_BYTES: usize = 256;

/// In the lockless form the states start here.
const LOCKLESS_HEADER_BYTES: u64 = 1024;

/// md refuses smaller chunks.
const CHUNK_BYTES_MIN: u32 = 512;

/// Why a bitmap cannot be used; everything must then be taken as dirty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BitmapError {
    /// Fewer bytes than needed.
    #[error("bitmap needs {needed} bytes and has {given}")]
    TooShort {
        /// Bytes needed.
        needed: u64,
        /// Bytes given.
        given: u64,
    },
    /// No bitmap here.
    #[error("no bitmap magic: found {found:#010x}")]
    BadMagic {
        /// The first word.
        found: u32,
    },
    /// A version this crate cannot read.
    #[error("bitmap version {found} is not supported")]
    BadVersion {
        /// The version stored.
        found: u32,
    },
    /// The chunk is no power of two or too small.
    #[error("bitmap chunk of {chunk_bytes} bytes")]
    BadChunk {
        /// The chunk stored.
        chunk_bytes: u32,
    },
    /// More covered than byte offsets can say.
    #[error("bitmap covers {sectors} sectors")]
    TooLarge {
        /// The size stored.
        sectors: u64,
    },
}

/// How one chunk's state is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitmapForm {
    /// One bit per chunk.
    Bits {
        /// The version stored: 3, 4 or 5.
        version: u32,
    },
    /// One byte per chunk.
    Lockless,
}

impl BitmapForm {
    /// The version that says so.
    pub fn version(self) -> u32 {
        match self {
            Self::Bits { version } => version,
            Self::Lockless => 6,
        }
    }
}

/// The state flags of a bitmap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BitmapState(pub u32);

impl BitmapState {
    /// The bits are out of date.
    pub fn is_stale(self) -> bool {
        self.0 & 1 << 1 != 0
    }

    /// Writing the bitmap failed.
    pub fn had_write_error(self) -> bool {
        self.0 & 1 << 2 != 0
    }
}

/// The header of a bitmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitmapHeader {
    /// Bits or bytes.
    pub form: BitmapForm,
    /// The set it belongs to.
    pub set_uuid: Uuid,
    /// Events of the set when it was written.
    pub events: u64,
    /// Events of the set when bits were last cleared: a member that left at or after this point
    /// needs only the dirty chunks.
    pub events_cleared: u64,
    /// Sectors covered.
    pub sync_sectors: u64,
    /// State flags.
    pub state: BitmapState,
    /// Bytes one bit stands for; a power of two.
    pub chunk_bytes: u32,
    /// Seconds between clearings.
    pub daemon_sleep_seconds: u32,
    /// Writes in flight allowed to write-mostly members.
    pub write_behind: u32,
    /// Room on the member, if known.
    pub sectors_reserved: u32,
    /// Nodes of a cluster.
    pub nodes: u32,
}

impl BitmapHeader {
    /// Parses the first [`BITMAP_HEADER_BYTES`] of a bitmap.
    ///
    /// # Errors
    /// [`BitmapError`] says what is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, BitmapError> {
        if bytes.len() < BITMAP_HEADER_BYTES {
            let (needed, given) = (BITMAP_HEADER_BYTES as u64, bytes.len() as u64);
            return Err(BitmapError::TooShort { needed, given });
        }
        let found = u32_le(bytes, 0);
        if found != BITMAP_MAGIC {
            return Err(BitmapError::BadMagic { found });
        }
        let form = match u32_le(bytes, 4) {
            version @ 3..=5 => BitmapForm::Bits { version },
            6 => BitmapForm::Lockless,
            found => return Err(BitmapError::BadVersion { found }),
        };
        let chunk_bytes = u32_le(bytes, 52);
        if chunk_bytes < CHUNK_BYTES_MIN || !chunk_bytes.is_power_of_two() {
            return Err(BitmapError::BadChunk { chunk_bytes });
        }
        let sync_sectors = u64_le(bytes, 40);
        if sync_sectors > u64::MAX / SECTOR_BYTES {
            return Err(BitmapError::TooLarge { sectors: sync_sectors });
        }
        Ok(Self {
            form,
            set_uuid: Uuid(array(bytes, 8)),
            events: u64_le(bytes, 24),
            events_cleared: u64_le(bytes, 32),
            sync_sectors,
            state: BitmapState(u32_le(bytes, 48)),
            chunk_bytes,
            daemon_sleep_seconds: u32_le(bytes, 56),
            write_behind: u32_le(bytes, 60),
            sectors_reserved: u32_le(bytes, 64),
            nodes: u32_le(bytes, 68),
        })
    }

    /// A bitmap for a new set, every chunk dirty, ready to be written.
    ///
    /// # Panics
    /// For the lockless form, which is read only, and for a chunk that is no power of two.
    pub fn build(&self) -> Vec<u8> {
        let mut bytes = vec![0xff; self.area_bytes() as usize];
        bytes[..BITMAP_HEADER_BYTES].copy_from_slice(&self.build_header());
        bytes
    }

    /// The header alone.
    ///
    /// # Panics
    /// As [`Self::build`].
    pub fn build_header(&self) -> [u8; BITMAP_HEADER_BYTES] {
        let BitmapForm::Bits { version } = self.form else {
            panic!("the lockless bitmap is read only");
        };
        assert!(self.chunk_bytes.is_power_of_two(), "chunk of {} bytes", self.chunk_bytes);
        let mut bytes = [0; BITMAP_HEADER_BYTES];
        put(&mut bytes, 0, &BITMAP_MAGIC.to_le_bytes());
        put(&mut bytes, 4, &version.to_le_bytes());
        put(&mut bytes, 8, &self.set_uuid.0);
        put(&mut bytes, 24, &self.events.to_le_bytes());
        put(&mut bytes, 32, &self.events_cleared.to_le_bytes());
        put(&mut bytes, 40, &self.sync_sectors.to_le_bytes());
        put(&mut bytes, 48, &self.state.0.to_le_bytes());
        put(&mut bytes, 52, &self.chunk_bytes.to_le_bytes());
        put(&mut bytes, 56, &self.daemon_sleep_seconds.to_le_bytes());
        put(&mut bytes, 60, &self.write_behind.to_le_bytes());
        put(&mut bytes, 64, &self.sectors_reserved.to_le_bytes());
        put(&mut bytes, 68, &self.nodes.to_le_bytes());
        bytes
    }

    /// Number of chunks.
    pub fn chunks(&self) -> u64 {
        (self.sync_sectors * SECTOR_BYTES).div_ceil(self.chunk_bytes.into())
    }

    /// Bytes of header and states: what to read for [`dirty`](Self::dirty). Compare it with the
    /// room on the member before reading: a damaged header may ask for anything.
    pub fn area_bytes(&self) -> u64 {
        match self.form {
            BitmapForm::Bits { .. } => BITMAP_HEADER_BYTES as u64 + self.chunks().div_ceil(8),
            BitmapForm::Lockless => LOCKLESS_HEADER_BYTES + self.chunks(),
        }
    }

    /// True if the bits may be believed for a set whose newest superblock has `superblock_events`:
    /// the bitmap is written before the superblocks, so whoever kept it up to date left at least
    /// that count in it; and neither is it marked stale nor did writing it fail. If false,
    /// everything is dirty.
    pub fn is_current(&self, superblock_events: u64) -> bool {
        let is_sound = !self.state.is_stale() && !self.state.had_write_error();
        self.events >= superblock_events && is_sound
    }

    /// The dirty parts, neighbours joined, in bytes of what the bitmap covers. `area` is the whole
    /// bitmap from its header on, [`area_bytes`](Self::area_bytes) long.
    ///
    /// # Errors
    /// [`BitmapError::TooShort`] if `area` is shorter.
    pub fn dirty<'a>(
        &self,
        area: &'a [u8],
    ) -> Result<impl Iterator<Item = ByteRange> + 'a, BitmapError> {
        let (needed, given) = (self.area_bytes(), area.len() as u64);
        if given < needed {
            return Err(BitmapError::TooShort { needed, given });
        }
        let form = self.form;
        let is_dirty = move |chunk: u64| match form {
            BitmapForm::Bits { .. } => {
                area[BITMAP_HEADER_BYTES + (chunk / 8) as usize] >> (chunk % 8) & 1 != 0
            }
            // Dirty, need-sync, syncing and their unwritten forms; unwritten and clean are not,
            // and a state this crate does not know is.
            BitmapForm::Lockless => {
                !matches!(area[(LOCKLESS_HEADER_BYTES + chunk) as usize], 0 | 1 | 7)
            }
        };
        let (chunks, chunk_bytes) = (self.chunks(), u64::from(self.chunk_bytes));
        let end = self.sync_sectors * SECTOR_BYTES;
        let mut next = 0;
        Ok(core::iter::from_fn(move || {
            let first = (next..chunks).find(|&chunk| is_dirty(chunk))?;
            next = (first..chunks).find(|&chunk| !is_dirty(chunk)).unwrap_or(chunks);
            let start = first * chunk_bytes;
            let stop = next.checked_mul(chunk_bytes).map_or(end, |stop| stop.min(end));
            Some(ByteRange { start, length: stop - start })
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(form: BitmapForm) -> BitmapHeader {
        BitmapHeader {
            form,
            set_uuid: Uuid([7; 16]),
            events: 10,
            events_cleared: 9,
            sync_sectors: 100,
            state: BitmapState(0),
            chunk_bytes: 4096,
            daemon_sleep_seconds: 5,
            write_behind: 0,
            sectors_reserved: 0,
            nodes: 0,
        }
    }

    #[test]
    fn a_new_bitmap_is_dirty_everywhere() {
        let header = header(BitmapForm::Bits { version: 4 });
        let bytes = header.build();
        assert_eq!(bytes.len(), 258);
        assert_eq!(BitmapHeader::parse(&bytes), Ok(header));
        let dirty: Vec<_> = header.dirty(&bytes).expect("whole").collect();
        assert_eq!(dirty, [ByteRange { start: 0, length: 51_200 }]);
    }

    #[test]
    fn neighbouring_bits_make_one_range() {
        let header = header(BitmapForm::Bits { version: 4 });
        let mut bytes = header.build();
        bytes[256..].copy_from_slice(&[0b1000_0110, 0b0001_0001]);
        let dirty: Vec<_> = header.dirty(&bytes).expect("whole").collect();
        let range =
            |first: u64, chunks: u64| ByteRange { start: first * 4096, length: chunks * 4096 };
        // The last chunk is cut off at the end of what is covered.
        let last = ByteRange { start: 12 * 4096, length: 2048 };
        assert_eq!(dirty, [range(1, 2), range(7, 2), last]);
    }

    #[test]
    fn lockless_states() {
        let header = header(BitmapForm::Lockless);
        let mut area = vec![0; 1024 + 13];
        area[1024..].copy_from_slice(&[0, 1, 2, 3, 4, 5, 6, 7, 200, 0, 0, 0, 0]);
        let dirty: Vec<_> = header.dirty(&area).expect("whole").collect();
        let range =
            |first: u64, chunks: u64| ByteRange { start: first * 4096, length: chunks * 4096 };
        assert_eq!(dirty, [range(2, 5), range(8, 1)]);
    }

    #[test]
    fn only_current_bits_are_believed() {
        let mut header = header(BitmapForm::Bits { version: 4 });
        let believed = |header: &BitmapHeader| {
            [9, 10, 11, 12].map(|superblock_events| header.is_current(superblock_events))
        };
        assert_eq!(believed(&header), [true, true, false, false]);
        header.state = BitmapState(2);
        assert_eq!(believed(&header), [false; 4]);
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let good = header(BitmapForm::Bits { version: 4 }).build();
        let changed = |offset: usize, value: u32| {
            let mut bytes = good.clone();
            put(&mut bytes, offset, &value.to_le_bytes());
            BitmapHeader::parse(&bytes).expect_err("must be refused")
        };
        assert_eq!(changed(0, 1), BitmapError::BadMagic { found: 1 });
        assert_eq!(changed(4, 7), BitmapError::BadVersion { found: 7 });
        assert_eq!(changed(52, 3 << 10), BitmapError::BadChunk { chunk_bytes: 3072 });
        assert!(matches!(changed(44, u32::MAX), BitmapError::TooLarge { .. }));
        let header = header(BitmapForm::Bits { version: 4 });
        let short = header.dirty(&good[..257]).map(|_| ()).expect_err("short");
        assert_eq!(short, BitmapError::TooShort { needed: 258, given: 257 });
    }
}
