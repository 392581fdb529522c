//! RAID 10: striped copies on any number of members.
//!
//! The layout number is near | far << 8 | offset << 16 | far sets << 17. Number the chunk
//! slots row by row: slot v is row v / n of member v mod n. Array chunk c takes the `near`
//! slots from c x near on: its near copies. Each of those has far - 1 further copies, each
//! `near` members on (wrapping inside the far set) and one stride down. The stride is the
//! far-th part of a member ("far"), or one chunk, with rows spread by `far` ("offset").
//!
//! Far sets bound the wrap, so that two lost members are less often two copies of one
//! chunk: 0 one set of all members, 1 a first attempt (n / far members each, which can
//! put two copies on one member), 2 sets of far x near members. When the members don't
//! divide, the rest joins the last set.
//!
//! md's formula puts two chunks in one place where near copies wrap to the next row in an
//! offset layout, or where near copies straddle the start of a larger last set. Such
//! arrays never held their data; they are refused.
//!
//! Copy k of a run is near copy k / far, far copy k mod far: md's own order.

use crate::chunk::Chunk;
use crate::{BYTES_MAX, GeometryError, Home, Level, Place, Run, Shape};

/// Bit of the layout number for "offset" in place of "far".
const LAYOUT_OFFSET: u32 = 1 << 16;
/// Position of the far set mode in the layout number.
const LAYOUT_SETS_SHIFT: u32 = 17;

/// A checked RAID 10 array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raid10 {
    chunk: Chunk,
    members: u32,
    near: u32,
    far: u32,
    offset: bool,
    /// Members of a far set, except perhaps the last.
    set: u32,
    /// First member of the last far set.
    last_set: u32,
    /// Rows of first copies: member chunks / far.
    rows: u64,
    /// Distance of far copies, in bytes.
    stride_bytes: u64,
    /// Chunks of the array.
    chunks: u64,
}

impl Raid10 {
    /// Checks `shape`; the smallest member sets the size.
    pub fn new(shape: &Shape) -> Result<Raid10, GeometryError> {
        let level = Level::Raid10;
        let layout = shape.layout;
        GeometryError::check_members(level, shape.member_bytes.len())?;
        let chunk = Chunk::power_of_two(level, shape.chunk_bytes)?;
        let members = shape.member_bytes.len() as u32;
        let (near, far) = (layout & 0xff, layout >> 8 & 0xff);
        let offset = layout & LAYOUT_OFFSET != 0;
        if near == 0 || far == 0 || layout >> LAYOUT_SETS_SHIFT > 2 {
            return Err(GeometryError::Layout { level, layout });
        }
        if near * far < 2 {
            return Err(GeometryError::NoCopies { layout });
        }
        if near * far > members {
            return Err(GeometryError::TooManyCopies {
                layout,
                copies: (near * far) as usize,
                members: members as usize,
            });
        }
        let set = match layout >> LAYOUT_SETS_SHIFT {
            0 => members,
            1 => members / far,
            _ => near * far,
        };
        let last_set = (members / set - 1) * set;
        let rows_collide = offset && far > 1 && !members.is_multiple_of(near);
        let sets_collide = far > 1 && near > 1 && last_set > 0 && !members.is_multiple_of(set);
        if rows_collide || sets_collide {
            return Err(GeometryError::Overlap { layout, members: members as usize });
        }
        let need = chunk.bytes() * u64::from(far);
        let member_bytes = GeometryError::smallest_member(&shape.member_bytes, need)?;
        let rows = chunk.count(member_bytes) / u64::from(far);
        let chunks = u128::from(rows) * u128::from(members) / u128::from(near);
        if member_bytes > BYTES_MAX || chunks * u128::from(chunk.bytes()) > u128::from(BYTES_MAX) {
            return Err(GeometryError::TooLarge);
        }
        Ok(Raid10 {
            chunk,
            members,
            near,
            far,
            offset,
            set,
            last_set,
            rows,
            stride_bytes: chunk.bytes() * if offset { 1 } else { rows },
            chunks: chunks as u64,
        })
    }

    /// Size of the array in bytes.
    pub fn array_bytes(&self) -> u64 {
        self.chunks * self.chunk.bytes()
    }

    /// Number of members.
    pub fn members(&self) -> usize {
        self.members as usize
    }

    /// Copies of each chunk: near times far.
    pub fn copies(&self) -> usize {
        (self.near * self.far) as usize
    }

    /// Chunk in bytes.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk.bytes()
    }

    /// Bytes of each member that the array uses.
    pub fn used_bytes(&self) -> u64 {
        self.rows * u64::from(self.far) * self.chunk.bytes()
    }

    /// Data of one full stripe: a row of all members, or as many rows as it takes for the
    /// near copies to come out even.
    pub fn stripe_bytes(&self) -> u64 {
        let chunks = if self.members.is_multiple_of(self.near) {
            self.members / self.near
        } else {
            self.members
        };
        u64::from(chunks) * self.chunk.bytes()
    }

    /// Whether each chunk keeps a copy when `missing` members are gone. Exact: looks at
    /// every set of copies the array has.
    pub fn survives(&self, missing: &[bool]) -> bool {
        // The first members of the chunks repeat after `members` chunks at the latest.
        let sets = self.chunks.min(u64::from(self.members));
        (0..sets).all(|chunk| {
            let (first, _) = self.locate(chunk * self.chunk.bytes());
            (0..self.copies()).any(|copy| !missing[self.copy_of(first, copy).member])
        })
    }

    /// Where an array offset lives first, and how many bytes follow in its chunk.
    #[inline]
    pub(crate) fn locate(&self, offset: u64) -> (Place, u64) {
        let (chunk, within) = self.chunk.split(offset);
        let slot = chunk * u64::from(self.near);
        let (row, member) = self.row_and_member(slot);
        let row = if self.offset { row * u64::from(self.far) } else { row };
        let place = Place { member, offset: row * self.chunk.bytes() + within };
        (place, self.chunk.bytes() - within)
    }

    /// Where copy `copy` of `run` lives.
    #[inline]
    pub(crate) fn copy(&self, run: &Run, copy: usize) -> Place {
        self.copy_of(run.first, copy)
    }

    #[inline]
    fn copy_of(&self, first: Place, copy: usize) -> Place {
        let (near_copy, far_copy) = (copy as u32 / self.far, copy as u32 % self.far);
        let mut member = first.member as u32 + near_copy;
        let mut offset = first.offset;
        if member >= self.members {
            member -= self.members;
            offset += self.chunk.bytes();
        }
        let (base, size) = self.far_set(member);
        Place {
            member: (base + (member - base + far_copy * self.near) % size) as usize,
            offset: offset + u64::from(far_copy) * self.stride_bytes,
        }
    }

    pub(crate) fn home(&self, member: usize, offset: u64) -> Option<Home> {
        let (row, within) = self.chunk.split(offset);
        let far = u64::from(self.far);
        let (row, far_copy) =
            if self.offset { (row / far, row % far) } else { (row % self.rows, row / self.rows) };
        if far_copy >= far {
            return None;
        }
        let (base, size) = self.far_set(member as u32);
        let back = far_copy as u32 * self.near % size;
        let origin = base + (member as u32 - base + size - back) % size;
        let slot = row * u64::from(self.members) + u64::from(origin);
        let (chunk, near_copy) = (slot / u64::from(self.near), slot % u64::from(self.near));
        (chunk < self.chunks).then(|| Home::Data {
            array_offset: chunk * self.chunk.bytes() + within,
            copy: (near_copy * far + far_copy) as usize,
        })
    }

    #[inline]
    fn row_and_member(&self, slot: u64) -> (u64, usize) {
        let members = u64::from(self.members);
        (slot / members, (slot % members) as usize)
    }

    /// First member and size of the far set that `member` is in.
    #[inline]
    fn far_set(&self, member: u32) -> (u32, u32) {
        if member >= self.last_set {
            (self.last_set, self.members - self.last_set)
        } else {
            (member / self.set * self.set, self.set)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raid10(layout: u32, members: usize, chunks: u64) -> Raid10 {
        Raid10::new(&Shape {
            level: Level::Raid10,
            layout,
            chunk_bytes: 4096,
            member_bytes: vec![chunks * 4096; members],
        })
        .unwrap()
    }

    /// Member and row.
    type Spot = (usize, u64);

    /// Copies of a chunk.
    fn rows(array: &Raid10, chunk: u64) -> Vec<Spot> {
        let (first, _) = array.locate(chunk * 4096);
        (0..array.copies())
            .map(|copy| array.copy_of(first, copy))
            .map(|place| (place.member, place.offset / 4096))
            .collect()
    }

    #[test]
    fn golden_placement() {
        let near2 = raid10(0x102, 5, 16);
        let far2 = raid10(0x201, 4, 16);
        let offset2 = raid10(0x10201, 4, 16);
        let table: &[(&Raid10, u64, [Spot; 2])] = &[
            (&near2, 0, [(0, 0), (1, 0)]),
            (&near2, 1, [(2, 0), (3, 0)]),
            (&near2, 2, [(4, 0), (0, 1)]),
            (&near2, 3, [(1, 1), (2, 1)]),
            (&near2, 4, [(3, 1), (4, 1)]),
            (&far2, 0, [(0, 0), (1, 8)]),
            (&far2, 1, [(1, 0), (2, 8)]),
            (&far2, 3, [(3, 0), (0, 8)]),
            (&far2, 4, [(0, 1), (1, 9)]),
            (&offset2, 0, [(0, 0), (1, 1)]),
            (&offset2, 3, [(3, 0), (0, 1)]),
            (&offset2, 4, [(0, 2), (1, 3)]),
        ];
        for (array, chunk, expected) in table {
            assert_eq!(rows(array, *chunk), expected, "chunk {chunk} of {array:?}");
        }
        let chunks = [&near2, &far2, &offset2].map(|array| array.array_bytes() / 4096);
        assert_eq!(chunks, [40, 32, 32]);
    }

    /// Losing members 1 and 2 of four: near copies pair 0-1 and 2-3; far copies pair all
    /// neighbours, unless far sets keep them in pairs too.
    #[test]
    fn which_pairs_may_go() {
        let missing = [false, true, true, false];
        for (layout, survives) in [(0x102, true), (0x201, false), (0x40201, true)] {
            assert_eq!(raid10(layout, 4, 16).survives(&missing), survives, "{layout:#x}");
        }
        // The flawed far sets of three members keep both copies on one.
        assert!(!raid10(0x20201, 3, 16).survives(&[true, false, false]));
    }
}
