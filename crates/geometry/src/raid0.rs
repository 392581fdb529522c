//! RAID 0: striping, with md's zones for unequal members.
//!
//! Members are rounded down to a chunk. Zone 0 stripes over all members as far as the
//! smallest reaches; each further zone stripes over those that reach further, in slot
//! order, as far as the next smallest does. A later zone is narrower, so slower: that is
//! the price of using every chunk.
//!
//! Two orders of the members inside a zone exist. Up to Linux 3.13 ("original") the member
//! is the chunk's number *in the array* modulo the zone's members; since 3.14 ("alternate")
//! the chunk's number *in the zone*. They differ only after zone 0, by a rotation that is
//! fixed for a zone; it is kept as [`Zone::rotation`]. Reading one as the other scrambles
//! data, so an unknown layout is refused when there is more than one zone.
//!
//! md sizes the array by clearing the bits of the chunk less one sector in each member's sectors,
//! which is rounding only for powers of two; with other chunks its array ends before its zones do.
//! The end is md's here too: what stands behind it would be out of reach there.

use crate::chunk::{Chunk, SECTOR_BYTES};
use crate::{BYTES_MAX, GeometryError, Home, Level, Place, Shape};

/// Layout number of a superblock that does not say.
const LAYOUT_UNKNOWN: u32 = 0;
/// Layout number of the order before Linux 3.14.
const LAYOUT_ORIGINAL: u32 = 1;
/// Layout number of the order since Linux 3.14.
const LAYOUT_ALTERNATE: u32 = 2;

/// A part of the array striped over the same members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Array offset of its first byte.
    pub array_start: u64,
    /// Array offset after its last byte.
    pub array_end: u64,
    /// Offset at which it starts on each of its members.
    pub member_start: u64,
    /// Offset at which it ends on each of its members.
    pub member_end: u64,
    /// Slots of its members, rising.
    pub members: Vec<usize>,
    /// Index in `members` of the zone's first chunk: 0 except in layout "original".
    pub rotation: u64,
}

/// A checked RAID 0 array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raid0 {
    chunk: Chunk,
    members: usize,
    zones: Vec<Zone>,
    array_bytes: u64,
}

impl Raid0 {
    /// Checks `shape` and lays out the zones.
    pub fn new(shape: &Shape) -> Result<Raid0, GeometryError> {
        let level = Level::Raid0;
        GeometryError::check_members(level, shape.member_bytes.len())?;
        let chunk = Chunk::sectors(level, shape.chunk_bytes)?;
        if shape.layout > LAYOUT_ALTERNATE {
            return Err(GeometryError::Layout { level, layout: shape.layout });
        }
        GeometryError::smallest_member(&shape.member_bytes, chunk.bytes())?;
        let zones = lay_out(shape, chunk)?;
        if zones.len() > 1 && shape.layout == LAYOUT_UNKNOWN {
            return Err(GeometryError::ZoneLayoutUnknown);
        }
        let masked = |&bytes: &u64| {
            let sectors = chunk.count(bytes) * chunk.bytes() / SECTOR_BYTES;
            (sectors & !(chunk.bytes() / SECTOR_BYTES - 1)) * SECTOR_BYTES
        };
        let array_bytes = shape.member_bytes.iter().map(masked).sum();
        Ok(Raid0 { chunk, members: shape.member_bytes.len(), zones, array_bytes })
    }

    /// The zones in the array's order; never empty, one if the members are equal. With a chunk that
    /// is no power of two the last ones may reach behind the array's end.
    pub fn zones(&self) -> &[Zone] {
        &self.zones
    }

    /// Size of the array in bytes.
    pub fn array_bytes(&self) -> u64 {
        self.array_bytes
    }

    /// Number of members.
    pub fn members(&self) -> usize {
        self.members
    }

    /// Chunk in bytes.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk.bytes()
    }

    /// Bytes of `member` that the array uses.
    pub fn used_bytes(&self, member: usize) -> u64 {
        assert!(member < self.members, "no member {member}");
        let used = self.zones.partition_point(|zone| zone.members.binary_search(&member).is_ok());
        self.zones[used - 1].member_end
    }

    /// Where an array offset lives, and how many bytes follow in its chunk.
    #[inline]
    pub(crate) fn locate(&self, offset: u64) -> (Place, u64) {
        let zone = &self.zones[self.zones.partition_point(|zone| zone.array_end <= offset)];
        let (chunk, within) = self.chunk.split(offset - zone.array_start);
        let width = zone.members.len() as u64;
        let (row, column) = (chunk / width, chunk % width);
        let turned = column + zone.rotation;
        let index = if turned < width { turned } else { turned - width };
        let place = Place {
            member: zone.members[index as usize],
            offset: zone.member_start + row * self.chunk.bytes() + within,
        };
        (place, self.chunk.bytes() - within)
    }

    pub(crate) fn home(&self, member: usize, offset: u64) -> Option<Home> {
        let zone = self.zones.get(self.zones.partition_point(|zone| zone.member_end <= offset))?;
        let index = zone.members.binary_search(&member).ok()? as u64;
        let width = zone.members.len() as u64;
        let column = (index + width - zone.rotation) % width;
        let (row, within) = self.chunk.split(offset - zone.member_start);
        let array_offset = zone.array_start + (row * width + column) * self.chunk.bytes() + within;
        (array_offset < self.array_bytes).then_some(Home::Data { array_offset, copy: 0 })
    }
}

/// The zones of `shape`, whose members all hold a chunk at least.
fn lay_out(shape: &Shape, chunk: Chunk) -> Result<Vec<Zone>, GeometryError> {
    let round = |bytes: u64| bytes - chunk.split(bytes).1;
    let mut zones: Vec<Zone> = Vec::new();
    let mut member_start = 0;
    let mut array_start = 0u64;
    loop {
        let reaching = |(slot, &bytes)| (round(bytes) > member_start).then_some(slot);
        let members: Vec<usize> =
            shape.member_bytes.iter().enumerate().filter_map(reaching).collect();
        let Some(member_end) = members.iter().map(|&slot| round(shape.member_bytes[slot])).min()
        else {
            return Ok(zones);
        };
        let width = members.len() as u64;
        let array_end = (member_end - member_start)
            .checked_mul(width)
            .and_then(|bytes| bytes.checked_add(array_start))
            .filter(|end| *end <= BYTES_MAX)
            .ok_or(GeometryError::TooLarge)?;
        let rotation = match shape.layout {
            LAYOUT_ORIGINAL => chunk.count(array_start) % width,
            _ => 0,
        };
        zones.push(Zone { array_start, array_end, member_start, member_end, members, rotation });
        member_start = member_end;
        array_start = array_end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Members of 1, 3 and 2 chunks, each with a tail: the array's chunks as (member, row).
    fn chunks(layout: u32) -> Vec<(usize, u64)> {
        let array = Raid0::new(&Shape {
            level: Level::Raid0,
            layout,
            chunk_bytes: 4096,
            member_bytes: vec![4096 + 100, 3 * 4096 + 200, 2 * 4096 + 4095],
        })
        .unwrap();
        (0..array.array_bytes() / 4096)
            .map(|chunk| array.locate(chunk * 4096).0)
            .map(|place| (place.member, place.offset / 4096))
            .collect()
    }

    /// md's own size of such an array, as its kernel reports it.
    #[test]
    fn odd_chunks_end_where_md_ends() {
        let shape = |chunk_kib: u64, sectors: u64| Shape {
            level: Level::Raid0,
            layout: 0,
            chunk_bytes: chunk_kib << 10,
            member_bytes: vec![sectors * 512; 2],
        };
        let array = Raid0::new(&shape(96, 1024)).unwrap();
        assert_eq!(array.array_bytes(), 851_968);
        assert_eq!(array.home(1, 479 << 10), None);
        assert_eq!(Raid0::new(&shape(64, 1024 + 127)).unwrap().array_bytes(), 1 << 20);
    }

    #[test]
    fn zones_in_both_orders() {
        // Zone 1 starts with array chunk 3: 3 mod 2 is its second member.
        let original = [(0, 0), (1, 0), (2, 0), (2, 1), (1, 1), (1, 2)];
        let alternate = [(0, 0), (1, 0), (2, 0), (1, 1), (2, 1), (1, 2)];
        assert_eq!(chunks(LAYOUT_ORIGINAL), original);
        assert_eq!(chunks(LAYOUT_ALTERNATE), alternate);
    }
}
