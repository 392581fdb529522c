//! Checksums of a member's data: one CRC-32C for each block of 4 KiB, in pages, and a header that
//! says whether they may be believed.
//!
//! **Header**, 4096 bytes, little-endian, in two slots that are written in turn:
//!
//! | offset | size | field |
//! | --- | --- | --- |
//! | 0 | 8 | magic `BPLNsums` |
//! | 8 | 4 | version: 1 |
//! | 12 | 4 | CRC-32C of all 4096 bytes, with this field as zero |
//! | 16 | 16 | set uuid |
//! | 32 | 16 | device uuid |
//! | 48 | 8 | sequence: counts headers written; its lowest bit names the slot |
//! | 56 | 8 | epoch: pages of another epoch hold nothing |
//! | 64 | 8 | event count of the superblock that this header belongs to |
//! | 72 | 4 | CRC-32C of that superblock, all 4096 bytes of it as written |
//! | 76 | 4 | flags: bit 0 *settled*, bit 1 *complete* |
//! | 80 | 8 | first byte of the data area on the member |
//! | 88 | 8 | bytes of the data area that have checksums |
//! | 96 | 4000 | zero |
//!
//! **Page**, 4096 bytes, little-endian:
//!
//! | offset | size | field |
//! | --- | --- | --- |
//! | 0 | 4 | magic `BPsm` |
//! | 4 | 4 | CRC-32C of set uuid, device uuid and the page from byte 8 on |
//! | 8 | 8 | epoch |
//! | 16 | 8 | number of the page |
//! | 24 | 8 | zero |
//! | 32 | 4064 | 1016 values of 4 bytes, of the blocks from 1016 × number on |
//!
//! A value of 0 means that no checksum is known; a checksum that would be 0 is kept as 1.
//!
//! A header is *settled* when everything in the pages is durable and nothing was written since.
//! It is written before the superblock it belongs to, and a write to the data waits until a header
//! without the flag is durable. The event count alone would not show that md was here: md takes an
//! event back when a set that it has dirtied becomes clean again. The checksum of the superblock
//! does, since md renews the time in it and clears the recovery offset, which carries
//! [`SUPERBLOCK_MARK`] where it is not in use.

use crate::bytes::{array, put, u32_le, u64_le};
use crate::checksum::crc32c;
use crate::md::{Superblock, Uuid};

/// What one checksum covers.
pub const BLOCK_BYTES: u64 = 4096;

/// Checksums in a page.
pub const SUMS_PER_PAGE: usize = 1016;

/// Bytes of a page, and of a header.
pub const PAGE_BYTES: usize = 4096;

/// "No checksum is known."
pub const NO_SUM: u32 = 0;

/// The recovery offset in the superblock of a member that has checksums and is not recovering: md
/// does not look at it without its feature bit, and clears it with every superblock it writes. (It
/// refuses members with anything in their padding.)
pub const SUPERBLOCK_MARK: u64 = u64::from_le_bytes(*b"BPLNsums");

const HEADER_MAGIC: [u8; 8] = *b"BPLNsums";
const PAGE_MAGIC: [u8; 4] = *b"BPsm";
const VERSION: u32 = 1;
const SETTLED: u32 = 1;
const COMPLETE: u32 = 2;
const PAGE_HEAD_BYTES: usize = PAGE_BYTES - 4 * SUMS_PER_PAGE;

/// The checksum of a block that comes in pieces.
pub struct BlockSum(crc_fast::Digest);

impl Default for BlockSum {
    fn default() -> Self {
        BlockSum(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi))
    }
}

impl BlockSum {
    /// Adds the block's next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The value for the page; never [`NO_SUM`].
    #[must_use]
    pub fn value(self) -> u32 {
        // A 32-bit CRC in a 64-bit answer.
        (self.0.finalize() as u32).max(1)
    }
}

/// The value for the page of a whole block; never [`NO_SUM`].
#[must_use]
pub fn block_sum(block: &[u8]) -> u32 {
    crc32c(&[block]).max(1)
}

/// Whose checksums they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The set.
    pub set_uuid: Uuid,
    /// The member.
    pub device_uuid: Uuid,
}

/// The superblock a header belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bond {
    /// Its event count.
    pub events: u64,
    /// The CRC-32C of its 4096 bytes.
    pub superblock_crc: u32,
}

impl Bond {
    /// To this superblock, as it is, or is about to be, on the member.
    #[must_use]
    pub fn to(superblock: &Superblock) -> Bond {
        Bond { events: superblock.events, superblock_crc: crc32c(&[&superblock.build()]) }
    }
}

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Whose it is.
    pub owner: Owner,
    /// The higher, the newer.
    pub sequence: u64,
    /// Pages of another epoch hold nothing.
    pub epoch: u64,
    /// The superblock it belongs to.
    pub bond: Bond,
    /// All pages are durable, and nothing was written since.
    pub settled: bool,
    /// Every block has a checksum.
    pub complete: bool,
    /// First byte of the data area on the member.
    pub data_offset_bytes: u64,
    /// Bytes of the data area that have checksums.
    pub covered_bytes: u64,
}

/// Why bytes are no header, or no page, of this member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChecksumsError {
    /// Fewer bytes than [`PAGE_BYTES`].
    #[error("needs {PAGE_BYTES} bytes and has {given}")]
    TooShort {
        /// Bytes given.
        given: usize,
    },
    /// Nothing of the kind is there.
    #[error("no magic")]
    BadMagic,
    /// Written by a later version of the format.
    #[error("version {found} is not known")]
    BadVersion {
        /// The version.
        found: u32,
    },
    /// Damaged, or another member's.
    #[error("checksum is {computed:#010x} and should be {stored:#010x}")]
    BadChecksum {
        /// As stored.
        stored: u32,
        /// As computed.
        computed: u32,
    },
    /// Of another epoch, or of another place.
    #[error("page {number} of epoch {epoch}")]
    Misplaced {
        /// The page it says it is.
        number: u64,
        /// The epoch it says it is of.
        epoch: u64,
    },
}

fn whole(bytes: &[u8]) -> Result<&[u8], ChecksumsError> {
    bytes.get(..PAGE_BYTES).ok_or(ChecksumsError::TooShort { given: bytes.len() })
}

impl Header {
    /// Reads a header, whoever's it is.
    ///
    /// # Errors
    /// [`ChecksumsError`]: nothing is known then.
    pub fn parse(bytes: &[u8]) -> Result<Header, ChecksumsError> {
        let bytes = whole(bytes)?;
        if bytes[..8] != HEADER_MAGIC {
            return Err(ChecksumsError::BadMagic);
        }
        let (stored, computed) = (u32_le(bytes, 12), header_crc(bytes));
        if stored != computed {
            return Err(ChecksumsError::BadChecksum { stored, computed });
        }
        let found = u32_le(bytes, 8);
        if found != VERSION {
            return Err(ChecksumsError::BadVersion { found });
        }
        let flags = u32_le(bytes, 76);
        Ok(Header {
            owner: Owner { set_uuid: Uuid(array(bytes, 16)), device_uuid: Uuid(array(bytes, 32)) },
            sequence: u64_le(bytes, 48),
            epoch: u64_le(bytes, 56),
            bond: Bond { events: u64_le(bytes, 64), superblock_crc: u32_le(bytes, 72) },
            settled: flags & SETTLED != 0,
            complete: flags & COMPLETE != 0,
            data_offset_bytes: u64_le(bytes, 80),
            covered_bytes: u64_le(bytes, 88),
        })
    }

    /// The [`PAGE_BYTES`] to write at its slot.
    #[must_use]
    pub fn build(&self) -> Vec<u8> {
        let mut bytes = vec![0; PAGE_BYTES];
        let flags =
            if self.settled { SETTLED } else { 0 } | if self.complete { COMPLETE } else { 0 };
        put(&mut bytes, 0, &HEADER_MAGIC);
        put(&mut bytes, 8, &VERSION.to_le_bytes());
        put(&mut bytes, 16, &self.owner.set_uuid.0);
        put(&mut bytes, 32, &self.owner.device_uuid.0);
        put(&mut bytes, 48, &self.sequence.to_le_bytes());
        put(&mut bytes, 56, &self.epoch.to_le_bytes());
        put(&mut bytes, 64, &self.bond.events.to_le_bytes());
        put(&mut bytes, 72, &self.bond.superblock_crc.to_le_bytes());
        put(&mut bytes, 76, &flags.to_le_bytes());
        put(&mut bytes, 80, &self.data_offset_bytes.to_le_bytes());
        put(&mut bytes, 88, &self.covered_bytes.to_le_bytes());
        let crc = header_crc(&bytes);
        put(&mut bytes, 12, &crc.to_le_bytes());
        bytes
    }

    /// The slot it is written to.
    #[must_use]
    pub fn slot(&self) -> u64 {
        self.sequence & 1
    }
}

fn header_crc(bytes: &[u8]) -> u32 {
    crc32c(&[&bytes[..12], &[0; 4], &bytes[16..]])
}

/// The values of a page.
pub type Sums = [u32; SUMS_PER_PAGE];

/// Reads the page `number` of `owner` and `epoch`.
///
/// # Errors
/// [`ChecksumsError`]: the page holds nothing then.
pub fn parse_page(
    bytes: &[u8],
    owner: &Owner,
    epoch: u64,
    number: u64,
) -> Result<Sums, ChecksumsError> {
    let bytes = whole(bytes)?;
    if bytes[..4] != PAGE_MAGIC {
        return Err(ChecksumsError::BadMagic);
    }
    let (stored, computed) = (u32_le(bytes, 4), page_crc(owner, bytes));
    if stored != computed {
        return Err(ChecksumsError::BadChecksum { stored, computed });
    }
    let (found_epoch, found) = (u64_le(bytes, 8), u64_le(bytes, 16));
    if (found_epoch, found) != (epoch, number) {
        return Err(ChecksumsError::Misplaced { number: found, epoch: found_epoch });
    }
    let mut sums = [NO_SUM; SUMS_PER_PAGE];
    for (sum, value) in sums.iter_mut().zip(bytes[PAGE_HEAD_BYTES..].chunks_exact(4)) {
        *sum = u32_le(value, 0);
    }
    Ok(sums)
}

/// Writes a page into `bytes`.
///
/// # Panics
/// If `bytes` is not of [`PAGE_BYTES`].
pub fn build_page(bytes: &mut [u8], owner: &Owner, epoch: u64, number: u64, sums: &Sums) {
    assert_eq!(bytes.len(), PAGE_BYTES, "a whole page");
    bytes[..PAGE_HEAD_BYTES].fill(0);
    put(bytes, 0, &PAGE_MAGIC);
    put(bytes, 8, &epoch.to_le_bytes());
    put(bytes, 16, &number.to_le_bytes());
    for (value, sum) in bytes[PAGE_HEAD_BYTES..].chunks_exact_mut(4).zip(sums) {
        value.copy_from_slice(&sum.to_le_bytes());
    }
    let crc = page_crc(owner, bytes);
    put(bytes, 4, &crc.to_le_bytes());
}

fn page_crc(owner: &Owner, bytes: &[u8]) -> u32 {
    crc32c(&[&owner.set_uuid.0, &owner.device_uuid.0, &bytes[8..]])
}

/// What the headers of a member say about its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has no checksums.
    Absent,
    /// They may be believed.
    Valid(Header),
    /// Writes were under way when it went down: only what a log says was at rest may be believed.
    Unsettled(Header),
    /// Somebody else has written superblocks since: nothing may be believed.
    Stale(Header),
}

impl Standing {
    /// Judges what was found in the two slots beside a superblock with this bond.
    #[must_use]
    pub fn judge(slots: [Option<Header>; 2], owner: &Owner, bond: Bond) -> Standing {
        let newest = |beside: bool| {
            let ours = slots.iter().flatten().filter(|header| header.owner == *owner);
            ours.filter(|header| !beside || header.bond == bond)
                .max_by_key(|header| header.sequence)
        };
        match (newest(true), newest(false)) {
            (Some(header), _) if header.settled => Standing::Valid(*header),
            (Some(header), _) => Standing::Unsettled(*header),
            (None, Some(header)) => Standing::Stale(*header),
            (None, None) => Standing::Absent,
        }
    }

    /// The newest header that counts, where there is one.
    #[must_use]
    pub fn header(&self) -> Option<&Header> {
        match self {
            Standing::Absent => None,
            Standing::Valid(header) | Standing::Unsettled(header) | Standing::Stale(header) => {
                Some(header)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(member: u8) -> Owner {
        Owner { set_uuid: Uuid([7; 16]), device_uuid: Uuid([member; 16]) }
    }

    fn header(sequence: u64, events: u64, settled: bool) -> Header {
        Header {
            owner: owner(1),
            sequence,
            epoch: 3,
            bond: Bond { events, superblock_crc: 0xdead_beef },
            settled,
            complete: true,
            data_offset_bytes: 1 << 20,
            covered_bytes: 1 << 30,
        }
    }

    #[test]
    fn bytes_are_as_the_tables_say() {
        let bytes = header(5, 18, true).build();
        assert_eq!(&bytes[..16], b"BPLNsums\x01\0\0\0\x17\x67\x30\xd6");
        assert_eq!(bytes[48..80], {
            let mut want = [0; 32];
            (want[0], want[8], want[16]) = (5, 3, 18);
            want[24..28].copy_from_slice(&[0xef, 0xbe, 0xad, 0xde]);
            want[28] = 3;
            want
        });
        let mut page = vec![0xaa; PAGE_BYTES];
        let mut sums = [NO_SUM; SUMS_PER_PAGE];
        (sums[0], sums[1015]) = (0x0102_0304, 0xffff_fffe);
        build_page(&mut page, &owner(1), 3, 9, &sums);
        assert_eq!(&page[..8], b"BPsm\x80\x69\xb1\xdf");
        assert_eq!(page[32..36], [4, 3, 2, 1]);
        assert_eq!(page[4092..], [0xfe, 0xff, 0xff, 0xff]);
    }

    #[test]
    fn build_and_parse_are_inverse_and_damage_is_noticed() {
        let header = header(4, 2, false);
        let bytes = header.build();
        assert_eq!(Header::parse(&bytes), Ok(header));
        let mut sums: Sums = core::array::from_fn(|index| index as u32 * 77);
        sums[5] = u32::MAX;
        let mut page = vec![0; PAGE_BYTES];
        build_page(&mut page, &owner(1), 8, 2, &sums);
        assert_eq!(parse_page(&page, &owner(1), 8, 2), Ok(sums));
        for at in (0..PAGE_BYTES).step_by(13) {
            let flipped = |bytes: &[u8]| {
                let mut bytes = bytes.to_vec();
                bytes[at] ^= 0x20;
                bytes
            };
            assert!(Header::parse(&flipped(&bytes)).is_err(), "header byte {at}");
            assert!(parse_page(&flipped(&page), &owner(1), 8, 2).is_err(), "page byte {at}");
        }
        assert_eq!(Header::parse(&bytes[..100]), Err(ChecksumsError::TooShort { given: 100 }));
        assert_eq!(Header::parse(&page), Err(ChecksumsError::BadMagic));
        let misplaced = Err(ChecksumsError::Misplaced { number: 2, epoch: 8 });
        assert_eq!(parse_page(&page, &owner(1), 8, 3), misplaced);
        assert_eq!(parse_page(&page, &owner(1), 7, 2), misplaced);
        assert!(parse_page(&page, &owner(2), 8, 2).is_err(), "another member's");
    }

    #[test]
    fn only_the_header_beside_its_superblock_is_believed() {
        let bond = |events| Bond { events, superblock_crc: 0xdead_beef };
        let (old, new) = (header(6, 10, true), header(7, 12, true));
        let under_way = header(8, 12, false);
        let table = [
            ("none", [None, None], 12, Standing::Absent),
            ("settled", [Some(old), Some(new)], 12, Standing::Valid(new)),
            ("its superblock was not written", [Some(old), Some(new)], 10, Standing::Valid(old)),
            ("writes since", [Some(under_way), Some(new)], 12, Standing::Unsettled(under_way)),
            ("md was here", [Some(old), Some(new)], 13, Standing::Stale(new)),
            ("one slot is damaged", [None, Some(new)], 12, Standing::Valid(new)),
        ];
        for (name, slots, events, want) in table {
            assert_eq!(Standing::judge(slots, &owner(1), bond(events)), want, "{name}");
        }
        let slots = [Some(old), Some(new)];
        assert_eq!(Standing::judge(slots, &owner(2), bond(12)), Standing::Absent, "another's");
        let touched = Bond { events: 12, superblock_crc: 1 };
        assert_eq!(
            Standing::judge(slots, &owner(1), touched),
            Standing::Stale(new),
            "the same event count in another superblock"
        );
    }

    #[test]
    fn a_sum_is_never_the_value_for_none() {
        assert_eq!(block_sum(&[0; 4096]), 0x98f9_4189);
        let mut pieces = BlockSum::default();
        pieces.update(&[0; 96]);
        pieces.update(&[0; 4000]);
        assert_eq!(pieces.value(), 0x98f9_4189);
        // Four bytes whose CRC-32C is zero.
        assert_eq!(block_sum(&[0xab, 0x9b, 0xe0, 0x9b]), 1);
    }
}
