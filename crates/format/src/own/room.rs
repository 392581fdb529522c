//! Where our own areas lie on a member.

use std::ops::Range;

use super::checksums::{BLOCK_BYTES, SUMS_PER_PAGE};
use crate::md::{SECTOR_BYTES, SUPERBLOCK_BYTES, Superblock, Version};

/// Every area starts and ends with a block of this size: the largest that drives write whole.
pub const AREA_BLOCK_BYTES: u64 = 4096;

/// Blocks right before the data area that are not pages of checksums.
const FIXED_BLOCKS: u64 = 4;

/// What a set with checksums keeps free before its data, for members that contribute
/// `covered_bytes` each: 1/1016 of it and a little.
#[must_use]
pub fn sums_room_bytes(covered_bytes: u64) -> u64 {
    (pages(covered_bytes) + FIXED_BLOCKS) * AREA_BLOCK_BYTES
}

fn pages(covered_bytes: u64) -> u64 {
    covered_bytes.div_ceil(BLOCK_BYTES).div_ceil(SUMS_PER_PAGE as u64)
}

/// The bytes of a member between md's own areas and its data: room that md leaves free. `None`
/// where the superblock lies behind the data, since there is nothing before it then.
#[must_use]
pub fn free_before_data(superblock: &Superblock) -> Option<Range<u64>> {
    let at = superblock.place.offset_bytes;
    let data = superblock.data_offset_sectors.checked_mul(SECTOR_BYTES)?;
    if superblock.place.version == Version::V1_0 || at >= data {
        return None;
    }
    let mut end = at + SUPERBLOCK_BYTES as u64;
    let mut reserve = |offset_sectors: i64, sectors: u64| {
        let start = at.saturating_add_signed(offset_sectors.saturating_mul(SECTOR_BYTES as i64));
        end = end.max(start.saturating_add(sectors.saturating_mul(SECTOR_BYTES)));
    };
    let log = superblock.bad_block_log_offset_sectors;
    if log != 0 {
        reserve(log.into(), superblock.bad_block_log_sectors.into());
    }
    if let Some((offset, sectors)) = superblock.ppl() {
        reserve(offset.into(), sectors.into());
    }
    if let Some(offset) = superblock.bitmap_offset_sectors() {
        // How long it is stands in the bitmap itself. It ends before the bad-block log where there
        // is one; where there is none, nobody made this set with room for us.
        if log <= offset {
            return None;
        }
        reserve(offset.into(), 1);
    }
    (end <= data).then_some(end..data)
}

/// Where the two slots of what a scrub found lie on a member; `None` where md's areas leave too
/// little room.
#[must_use]
pub fn scrub_offsets(superblock: &Superblock) -> Option<[u64; 2]> {
    let free = free_before_data(superblock)?;
    let room = FIXED_BLOCKS * AREA_BLOCK_BYTES;
    let fits = free.end - free.start >= room && free.end.is_multiple_of(AREA_BLOCK_BYTES);
    let first = free.end.checked_sub(room)?;
    fits.then_some([first, first + AREA_BLOCK_BYTES])
}

/// The checksum area of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SumsArea {
    /// First byte of the data area on the member.
    pub data_offset_bytes: u64,
    /// Bytes of the data area that have checksums: what the array uses of it.
    pub covered_bytes: u64,
}

impl SumsArea {
    /// The area of a member that contributes `covered_bytes`; `None` where md's areas leave too
    /// little room, or data and blocks don't lie on each other's borders.
    #[must_use]
    pub fn of(superblock: &Superblock, covered_bytes: u64) -> Option<SumsArea> {
        let free = free_before_data(superblock)?;
        let area = SumsArea { data_offset_bytes: free.end, covered_bytes };
        let aligned =
            free.end.is_multiple_of(BLOCK_BYTES) && covered_bytes.is_multiple_of(BLOCK_BYTES);
        let fits = free.end - free.start >= sums_room_bytes(covered_bytes);
        (covered_bytes > 0 && aligned && fits).then_some(area)
    }

    /// Pages it has.
    #[must_use]
    pub fn pages(&self) -> u64 {
        pages(self.covered_bytes)
    }

    /// Where a page lies on the member.
    #[must_use]
    pub fn page_offset(&self, page: u64) -> u64 {
        self.data_offset_bytes - (FIXED_BLOCKS + self.pages() - page) * AREA_BLOCK_BYTES
    }

    /// Where a slot of the header lies on the member: slot 0 or 1.
    #[must_use]
    pub fn header_offset(&self, slot: u64) -> u64 {
        self.data_offset_bytes - (2 - slot) * AREA_BLOCK_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_follow_each_other_up_to_the_data() {
        let area = SumsArea { data_offset_bytes: 1 << 20, covered_bytes: 2 * 1016 * 4096 + 4096 };
        assert_eq!(area.pages(), 3);
        assert_eq!(sums_room_bytes(area.covered_bytes), 7 * 4096);
        assert_eq!(area.page_offset(0), (1 << 20) - 7 * 4096);
        assert_eq!(area.page_offset(2), (1 << 20) - 5 * 4096);
        assert_eq!([0, 1].map(|slot| area.header_offset(slot)), [1_040_384, 1_044_480]);
    }
}
