//! The RAID 4/5/6 write journal: what is put in it, and reading what a crashed set left there.
//!
//! A journal member's data area is a ring of blocks of 4 KiB. A meta block lists what follows it:
//! data and parity blocks, each with a checksum, or notes that stripes were flushed. The next
//! meta block lies behind them with the next sequence number; the first that is not what it
//! should be ends the log.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | magic `6433c509` |
//! | 4 | 4 | checksum, this field zero |
//! | 8 | 1 | version 1 |
//! | 12 | 4 | bytes used in this block |
//! | 16 | 8 | sequence |
//! | 24 | 8 | position: sectors from the start of the ring |
//! | 32 | | payloads |
//!
//! A data or parity payload: type (u16; 0 data, 1 parity), flags (u16), sectors (u32), location
//! (u64: array sector for data, member sector for parity), a u32 checksum per 4 KiB. A flush
//! payload: type 2, flags, bytes (u32), then that many bytes of stripe sectors (u64).
//!
//! Checksums are CRC-32C over the set uuid and then the block, without the final inversion.

use super::SECTOR_BYTES;
use super::types::Uuid;
use crate::bytes::{put, u16_le, u32_le, u64_le};
use crate::checksum::crc32c;

/// The journal's block.
pub const JOURNAL_BLOCK_BYTES: usize = 4096;

const BLOCK_SECTORS: u64 = JOURNAL_BLOCK_BYTES as u64 / SECTOR_BYTES;
const JOURNAL_MAGIC: u32 = 0x6433_c509;
const HEADER_BYTES: usize = 32;
const CHECKSUM_OFFSET: usize = 4;

/// Bytes of payload descriptions a meta block has room for.
const PAYLOADS_BYTES_MAX: usize = JOURNAL_BLOCK_BYTES - HEADER_BYTES;

/// A description: type, flags, size, location, before its checksums.
const PAYLOAD_HEADER_BYTES: usize = 16;

/// Why a block is no meta block of the log, or a payload in it is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// Fewer bytes than a block.
    #[error("journal block needs {JOURNAL_BLOCK_BYTES} bytes and has {given}")]
    TooShort {
        /// Bytes given.
        given: usize,
    },
    /// No meta block: the usual end of the log.
    #[error("no journal magic: found {found:#010x}")]
    BadMagic {
        /// The first word.
        found: u32,
    },
    /// A version this crate cannot read.
    #[error("journal version {found} is not supported")]
    BadVersion {
        /// The version stored.
        found: u8,
    },
    /// The used size is less than the header or more than a block.
    #[error("journal meta block claims {meta_bytes} bytes")]
    BadSize {
        /// The size stored.
        meta_bytes: u32,
    },
    /// Torn, damaged, or of another set.
    #[error("journal meta block checksum is {stored:#010x}, computed {computed:#010x}")]
    BadChecksum {
        /// In the block.
        stored: u32,
        /// Over its bytes.
        computed: u32,
    },
    /// A valid block of an earlier round of the ring.
    #[error("journal meta block is number {found} of position {position}, not {expected}")]
    OutOfSequence {
        /// The sequence number stored.
        found: u64,
        /// The one that was due.
        expected: u64,
        /// The position stored.
        position: u64,
    },
    /// A payload reaches behind the block's end, or is of an unknown type.
    #[error("journal payload of type {kind} at byte {offset} is broken")]
    BadPayload {
        /// The type stored.
        kind: u16,
        /// Where in the block.
        offset: usize,
    },
}

/// Data or parity that follows a meta block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalBlocks<'a> {
    /// Data: the array sector. Parity: the sector on the members (of their data areas).
    pub location_sector: u64,
    /// md's flags.
    pub flags: u16,
    /// Where the first block lies: sectors from the start of the ring, not yet wrapped.
    pub position: u64,
    checksums: &'a [u8],
}

impl JournalBlocks<'_> {
    /// Number of 4 KiB blocks.
    pub fn count(&self) -> usize {
        self.checksums.len() / 4
    }

    /// True if `block` is what was journalled as number `index`.
    pub fn check(&self, index: usize, block: &[u8], set_uuid: Uuid) -> bool {
        let stored = self.checksums.get(4 * index..4 * index + 4);
        stored.is_some_and(|stored| u32_le(stored, 0) == block_checksum(set_uuid, &[block]))
    }
}

/// What a meta block tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalPayload<'a> {
    /// Data blocks.
    Data(JournalBlocks<'a>),
    /// Parity blocks: P, on RAID 6 also Q.
    Parity(JournalBlocks<'a>),
    /// The stripes at these member sectors are on their members: forget earlier payloads.
    Flush(FlushedStripes<'a>),
}

/// The stripes of a flush payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushedStripes<'a>(&'a [u8]);

impl<'a> FlushedStripes<'a> {
    /// Member sectors of the stripes.
    pub fn sectors(self) -> impl Iterator<Item = u64> + 'a {
        self.0.chunks_exact(8).map(|sector| u64_le(sector, 0))
    }
}

/// One meta block, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaBlock<'a> {
    /// Sequence number.
    pub sequence: u64,
    /// Where it lies: sectors from the start of the ring.
    pub position: u64,
    payloads: &'a [u8],
}

impl<'a> MetaBlock<'a> {
    /// Parses a block read at `position` (sectors from the start of the ring). `sequence` is the
    /// number that is due; `None` at the journal's tail, where any number starts the log.
    ///
    /// # Errors
    /// [`JournalError`]: here the log ends.
    pub fn parse(
        block: &'a [u8],
        position: u64,
        sequence: Option<u64>,
        set_uuid: Uuid,
    ) -> Result<Self, JournalError> {
        let given = block.len();
        let block = block.get(..JOURNAL_BLOCK_BYTES).ok_or(JournalError::TooShort { given })?;
        let found = u32_le(block, 0);
        if found != JOURNAL_MAGIC {
            return Err(JournalError::BadMagic { found });
        }
        if block[8] != 1 {
            return Err(JournalError::BadVersion { found: block[8] });
        }
        let meta_bytes = u32_le(block, 12);
        let payloads = block
            .get(HEADER_BYTES..meta_bytes as usize)
            .ok_or(JournalError::BadSize { meta_bytes })?;
        let stored = u32_le(block, CHECKSUM_OFFSET);
        let parts = [&block[..CHECKSUM_OFFSET], &[0; 4], &block[CHECKSUM_OFFSET + 4..]];
        let computed = block_checksum(set_uuid, &parts);
        if stored != computed {
            return Err(JournalError::BadChecksum { stored, computed });
        }
        let (found, stored_position) = (u64_le(block, 16), u64_le(block, 24));
        let expected = sequence.unwrap_or(found);
        if found != expected || stored_position != position {
            let position = stored_position;
            return Err(JournalError::OutOfSequence { found, expected, position });
        }
        Ok(Self { sequence: found, position, payloads })
    }

    /// The payloads in order; stops after the first broken one.
    pub fn payloads(&self) -> Payloads<'a> {
        Payloads {
            left: self.payloads,
            offset: HEADER_BYTES,
            position: self.position.saturating_add(BLOCK_SECTORS),
        }
    }

    /// Where the next meta block lies in a ring of `ring_sectors` (its data area rounded down to
    /// a whole block).
    ///
    /// # Errors
    /// A broken payload: the log ends here.
    pub fn next_position(&self, ring_sectors: u64) -> Result<u64, JournalError> {
        let mut payloads = self.payloads();
        for payload in &mut payloads {
            payload?;
        }
        Ok(wrap(payloads.position, ring_sectors))
    }
}

/// A meta block being filled. What it describes follows it in the ring, in the order it was added.
#[derive(Clone, Debug, Default)]
pub struct MetaBuilder {
    payloads: Vec<u8>,
    blocks: u64,
}

impl MetaBuilder {
    /// Whether a row of `data` data blocks and `parities` parity blocks still fits: a row in two
    /// meta blocks could be cut in half, and its data then taken for that of a write-back cache.
    pub fn fits(&self, data: usize, parities: usize) -> bool {
        let data_bytes = data * (PAYLOAD_HEADER_BYTES + 4);
        let parity_bytes = PAYLOAD_HEADER_BYTES + 4 * parities;
        self.payloads.len() + data_bytes + parity_bytes <= PAYLOADS_BYTES_MAX
    }

    /// Blocks described so far, the meta block itself not counted.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Adds one data block for an array sector.
    pub fn data(&mut self, array_sector: u64, block: &[u8], set_uuid: Uuid) {
        self.payload(0, array_sector, &[block], set_uuid);
    }

    /// Adds a row's parity blocks (P, on RAID 6 then Q) for a sector of the members' data areas.
    pub fn parity(&mut self, member_sector: u64, blocks: &[&[u8]], set_uuid: Uuid) {
        self.payload(1, member_sector, blocks, set_uuid);
    }

    fn payload(&mut self, kind: u16, location: u64, blocks: &[&[u8]], set_uuid: Uuid) {
        let sectors = blocks.len() as u64 * BLOCK_SECTORS;
        self.payloads.extend(kind.to_le_bytes());
        self.payloads.extend([0; 2]);
        self.payloads.extend((sectors as u32).to_le_bytes());
        self.payloads.extend(location.to_le_bytes());
        for block in blocks {
            assert_eq!(block.len(), JOURNAL_BLOCK_BYTES, "the journal keeps whole blocks");
            self.payloads.extend(block_checksum(set_uuid, &[block]).to_le_bytes());
        }
        self.blocks += blocks.len() as u64;
    }

    /// The block, for its place in the ring (sectors from its start) and in the sequence.
    ///
    /// # Panics
    /// When more was added than fits.
    pub fn build(&self, position: u64, sequence: u64, set_uuid: Uuid) -> Vec<u8> {
        assert!(self.payloads.len() <= PAYLOADS_BYTES_MAX, "asked for with `fits`");
        let mut block = vec![0; JOURNAL_BLOCK_BYTES];
        put(&mut block, 0, &JOURNAL_MAGIC.to_le_bytes());
        block[8] = 1;
        let meta_bytes = (HEADER_BYTES + self.payloads.len()) as u32;
        put(&mut block, 12, &meta_bytes.to_le_bytes());
        put(&mut block, 16, &sequence.to_le_bytes());
        put(&mut block, 24, &position.to_le_bytes());
        put(&mut block, HEADER_BYTES, &self.payloads);
        let sum = block_checksum(set_uuid, &[&block]);
        put(&mut block, CHECKSUM_OFFSET, &sum.to_le_bytes());
        block
    }
}

/// A position in a ring of `ring_sectors`, which is behind its end by less than one round.
pub fn wrap(position: u64, ring_sectors: u64) -> u64 {
    if position >= ring_sectors { position - ring_sectors } else { position }
}

/// The payloads of one meta block.
#[derive(Clone, Debug)]
pub struct Payloads<'a> {
    left: &'a [u8],
    offset: usize,
    position: u64,
}

impl<'a> Payloads<'a> {
    /// The payloads in `bytes`, which lay behind the header of a block checked elsewhere.
    /// Positions count from 0.
    pub fn of(bytes: &'a [u8]) -> Self {
        Self { left: bytes, offset: 0, position: 0 }
    }

    /// Splits the first `length` bytes off.
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, left) = self.left.split_at_checked(length)?;
        self.left = left;
        self.offset += length;
        Some(taken)
    }

    fn blocks(&mut self) -> Option<JournalBlocks<'a>> {
        let header = self.take(16)?;
        let count = u64::from(u32_le(header, 4)) / BLOCK_SECTORS;
        let checksums = self.take(usize::try_from(count).ok()?.checked_mul(4)?)?;
        let position = self.position;
        self.position = position.checked_add(count * BLOCK_SECTORS)?;
        let (flags, location_sector) = (u16_le(header, 2), u64_le(header, 8));
        Some(JournalBlocks { location_sector, flags, position, checksums })
    }

    fn flush(&mut self) -> Option<FlushedStripes<'a>> {
        let header = self.take(8)?;
        let stripes = self.take(u32_le(header, 4) as usize)?;
        Some(FlushedStripes(stripes))
    }
}

impl<'a> Iterator for Payloads<'a> {
    type Item = Result<JournalPayload<'a>, JournalError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left.is_empty() {
            return None;
        }
        let offset = self.offset;
        let kind = self.left.get(..2).map_or(u16::MAX, |kind| u16_le(kind, 0));
        let payload = match kind {
            0 => self.blocks().map(JournalPayload::Data),
            1 => self.blocks().map(JournalPayload::Parity),
            2 => self.flush().map(JournalPayload::Flush),
            _ => None,
        };
        if payload.is_none() {
            self.left = &[];
        }
        Some(payload.ok_or(JournalError::BadPayload { kind, offset }))
    }
}

/// CRC-32C of uuid and block as a running value: the final inversion undone.
fn block_checksum(set_uuid: Uuid, parts: &[&[u8]]) -> u32 {
    let mut all: [&[u8]; 4] = [&set_uuid.0, &[], &[], &[]];
    all[1..=parts.len()].copy_from_slice(parts);
    !crc32c(&all)
}

#[cfg(test)]
mod tests {
    use super::*;
    const SET: Uuid = Uuid([9; 16]);

    /// A meta block at sector 80, number 7: one data block, one flush of two stripes.
    fn meta(data: &[u8]) -> Vec<u8> {
        let mut block = vec![0; JOURNAL_BLOCK_BYTES];
        put(&mut block, 0, &JOURNAL_MAGIC.to_le_bytes());
        block[8] = 1;
        put(&mut block, 12, &(32 + 20 + 24_u32).to_le_bytes());
        put(&mut block, 16, &7_u64.to_le_bytes());
        put(&mut block, 24, &80_u64.to_le_bytes());
        put(&mut block, 36, &8_u32.to_le_bytes());
        put(&mut block, 40, &4096_u64.to_le_bytes());
        put(&mut block, 48, &block_checksum(SET, &[data]).to_le_bytes());
        put(&mut block, 52, &2_u16.to_le_bytes());
        put(&mut block, 56, &16_u32.to_le_bytes());
        put(&mut block, 60, &128_u64.to_le_bytes());
        put(&mut block, 68, &256_u64.to_le_bytes());
        let sum = block_checksum(SET, &[&block]);
        put(&mut block, 4, &sum.to_le_bytes());
        block
    }

    #[test]
    fn payloads_come_in_order() {
        let data = [5; 4096];
        let block = meta(&data);
        let meta = MetaBlock::parse(&block, 80, None, SET).expect("valid");
        let payloads: Vec<_> = meta.payloads().collect::<Result<_, _>>().expect("whole");
        let JournalPayload::Data(blocks) = payloads[0] else { panic!("data first") };
        assert_eq!((blocks.location_sector, blocks.position, blocks.count()), (4096, 88, 1));
        assert!(blocks.check(0, &data, SET));
        assert!(!blocks.check(0, &[6; 4096], SET));
        assert!(!blocks.check(1, &data, SET));
        let JournalPayload::Flush(stripes) = payloads[1] else { panic!("flush second") };
        assert_eq!(stripes.sectors().collect::<Vec<_>>(), [128, 256]);
        assert_eq!(meta.next_position(1000), Ok(96));
        assert_eq!(meta.next_position(96), Ok(0));
    }

    #[test]
    fn what_is_built_is_parsed_again() {
        let blocks: Vec<[u8; 4096]> = (1..=4).map(|byte| [byte; 4096]).collect();
        let mut builder = MetaBuilder::default();
        builder.data(800, &blocks[0], SET);
        builder.data(1600, &blocks[1], SET);
        builder.parity(400, &[&blocks[2], &blocks[3]], SET);
        assert_eq!(builder.blocks(), 4);
        let block = builder.build(80, 7, SET);
        let meta = MetaBlock::parse(&block, 80, Some(7), SET).expect("valid");
        assert_eq!(meta.next_position(1000), Ok(120));
        let mut seen = Vec::new();
        for payload in meta.payloads() {
            let (kind, found) = match payload.expect("whole") {
                JournalPayload::Data(found) => (0, found),
                JournalPayload::Parity(found) => (1, found),
                JournalPayload::Flush(_) => panic!("none was added"),
            };
            for index in 0..found.count() {
                let position = found.position + index as u64 * BLOCK_SECTORS;
                let content = &blocks[(position as usize - 88) / 8];
                assert!(found.check(index, content, SET));
                seen.push((kind, found.location_sector, position));
            }
        }
        assert_eq!(seen, [(0, 800, 88), (0, 1600, 96), (1, 400, 104), (1, 400, 112)]);
    }

    #[test]
    fn a_meta_block_takes_what_fits() {
        let mut builder = MetaBuilder::default();
        let mut rows = 0;
        while builder.fits(3, 1) {
            (0..3).for_each(|sector| builder.data(sector, &[0; 4096], SET));
            builder.parity(0, &[&[0; 4096]], SET);
            rows += 1;
        }
        assert_eq!(rows, 4064 / 80);
        let block = builder.build(0, 1, SET);
        assert!(MetaBlock::parse(&block, 0, None, SET).is_ok());
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let good = meta(&[5; 4096]);
        let parse = |block: &[u8]| MetaBlock::parse(block, 80, Some(7), SET).map(|_| ());
        assert_eq!(parse(&good), Ok(()));
        assert_eq!(parse(&good[..9]), Err(JournalError::TooShort { given: 9 }));
        assert_eq!(parse(&[0; 4096]), Err(JournalError::BadMagic { found: 0 }));
        let changed = |offset: usize, value: u8| {
            let mut block = good.clone();
            block[offset] = value;
            parse(&block).expect_err("must be refused")
        };
        assert_eq!(changed(8, 2), JournalError::BadVersion { found: 2 });
        assert_eq!(changed(12, 3), JournalError::BadSize { meta_bytes: 3 });
        assert!(matches!(changed(100, 1), JournalError::BadChecksum { .. }));
        let other = MetaBlock::parse(&good, 80, Some(8), SET).map(|_| ());
        let expected = JournalError::OutOfSequence { found: 7, expected: 8, position: 80 };
        assert_eq!(other, Err(expected));
        assert!(MetaBlock::parse(&good, 88, Some(7), SET).is_err());
    }

    #[test]
    fn a_broken_payload_ends_the_block() {
        let mut block = meta(&[5; 4096]);
        put(&mut block, 52, &9_u16.to_le_bytes());
        put(&mut block, 4, &[0; 4]);
        let sum = block_checksum(SET, &[&block]);
        put(&mut block, 4, &sum.to_le_bytes());
        let meta = MetaBlock::parse(&block, 80, None, SET).expect("valid");
        let payloads: Vec<_> = meta.payloads().collect();
        let broken = JournalError::BadPayload { kind: 9, offset: 52 };
        assert_eq!((payloads.len(), payloads[1]), (2, Err(broken)));
        assert_eq!(meta.next_position(1000), Err(broken));
    }
}
