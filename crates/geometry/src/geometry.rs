//! The one type the engine holds: a checked array of any level.

use std::iter::FusedIterator;

use crate::{
    BLOCK_BYTES, GeometryError, Home, Level, Linear, Parity, Place, Raid0, Raid1, Raid10, Run,
    Shape,
};

/// A checked array. Dispatch is one `match`; each level has its own file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Geometry {
    /// Members one after the other.
    Linear(Linear),
    /// Stripes without redundancy.
    Raid0(Raid0),
    /// The same bytes on each member.
    Raid1(Raid1),
    /// Striped copies.
    Raid10(Raid10),
    /// RAID 4, 5 and 6.
    Parity(Parity),
}

impl Geometry {
    /// Checks a shape.
    ///
    /// # Errors
    /// Too few or too many members, a chunk or layout the level doesn't have, a member
    /// without room, or a size beyond [`BYTES_MAX`](crate::BYTES_MAX).
    pub fn new(shape: &Shape) -> Result<Geometry, GeometryError> {
        Ok(match shape.level {
            Level::Linear => Geometry::Linear(Linear::new(shape)?),
            Level::Raid0 => Geometry::Raid0(Raid0::new(shape)?),
            Level::Raid1 => Geometry::Raid1(Raid1::new(shape)?),
            Level::Raid10 => Geometry::Raid10(Raid10::new(shape)?),
            Level::Raid4 | Level::Raid5 | Level::Raid6 => Geometry::Parity(Parity::new(shape)?),
        })
    }

    /// The level.
    pub fn level(&self) -> Level {
        match self {
            Geometry::Linear(_) => Level::Linear,
            Geometry::Raid0(_) => Level::Raid0,
            Geometry::Raid1(_) => Level::Raid1,
            Geometry::Raid10(_) => Level::Raid10,
            Geometry::Parity(parity) => parity.level(),
        }
    }

    /// Size of the array in bytes.
    pub fn array_bytes(&self) -> u64 {
        match self {
            Geometry::Linear(linear) => linear.array_bytes(),
            Geometry::Raid0(raid0) => raid0.array_bytes(),
            Geometry::Raid1(raid1) => raid1.array_bytes(),
            Geometry::Raid10(raid10) => raid10.array_bytes(),
            Geometry::Parity(parity) => parity.array_bytes(),
        }
    }

    /// Number of members.
    pub fn members(&self) -> usize {
        match self {
            Geometry::Linear(linear) => linear.members(),
            Geometry::Raid0(raid0) => raid0.members(),
            Geometry::Raid1(raid1) => raid1.members(),
            Geometry::Raid10(raid10) => raid10.members(),
            Geometry::Parity(parity) => parity.members(),
        }
    }

    /// Copies of each byte; 1 where redundancy is parity, or nothing.
    pub fn copies(&self) -> usize {
        match self {
            Geometry::Raid1(raid1) => raid1.members(),
            Geometry::Raid10(raid10) => raid10.copies(),
            Geometry::Linear(_) | Geometry::Raid0(_) | Geometry::Parity(_) => 1,
        }
    }

    /// Bytes from the start of `member`'s data area that the array uses.
    ///
    /// # Panics
    /// If there is no such member.
    pub fn used_bytes(&self, member: usize) -> u64 {
        assert!(member < self.members(), "no member {member}");
        match self {
            Geometry::Linear(linear) => linear.used_bytes(member),
            Geometry::Raid0(raid0) => raid0.used_bytes(member),
            Geometry::Raid1(raid1) => raid1.array_bytes(),
            Geometry::Raid10(raid10) => raid10.used_bytes(),
            Geometry::Parity(parity) => parity.used_bytes(),
        }
    }

    /// Whether every byte is still reachable with these members missing, one flag a slot.
    ///
    /// # Panics
    /// If `missing` has not one flag for each member.
    pub fn survives(&self, missing: &[bool]) -> bool {
        assert_eq!(missing.len(), self.members(), "one flag for each member");
        let lost = missing.iter().filter(|missing| **missing).count();
        match self {
            Geometry::Linear(_) | Geometry::Raid0(_) => lost == 0,
            Geometry::Raid1(raid1) => lost < raid1.members(),
            Geometry::Raid10(raid10) => raid10.survives(missing),
            Geometry::Parity(parity) => lost <= parity.parities(),
        }
    }

    /// Data of one full stripe in bytes: the best size and alignment of a large request.
    /// For linear and RAID 1, which have no stripes, one block.
    pub fn stripe_bytes(&self) -> u64 {
        match self {
            Geometry::Linear(_) | Geometry::Raid1(_) => BLOCK_BYTES,
            Geometry::Raid0(raid0) => raid0.members() as u64 * raid0.chunk_bytes(),
            Geometry::Raid10(raid10) => raid10.stripe_bytes(),
            Geometry::Parity(parity) => parity.stripe_bytes(),
        }
    }

    /// Cuts a range of the array into pieces that are contiguous on each copy's member, in
    /// order. Striped levels cut at every chunk; for parity levels a piece is data only.
    ///
    /// # Panics
    /// If the range passes the end of the array.
    pub fn runs(&self, offset: u64, bytes: u64) -> Runs<'_> {
        let end = offset.checked_add(bytes);
        let end = end.filter(|end| *end <= self.array_bytes());
        Runs { geometry: self, offset, end: end.expect("a range inside the array") }
    }

    /// Where copy `copy` of a run lives; copy 0 is the run's first.
    ///
    /// # Panics
    /// If there is no such copy.
    #[inline]
    pub fn copy(&self, run: &Run, copy: usize) -> Place {
        assert!(copy < self.copies(), "no copy {copy}");
        match self {
            Geometry::Linear(_) | Geometry::Raid0(_) | Geometry::Parity(_) => run.first,
            Geometry::Raid1(_) => Place { member: copy, offset: run.first.offset },
            Geometry::Raid10(raid10) => raid10.copy(run, copy),
        }
    }

    /// What lives at an offset of a member's data area; `None` in its unused tail.
    ///
    /// # Panics
    /// If there is no such member.
    pub fn home(&self, member: usize, offset: u64) -> Option<Home> {
        assert!(member < self.members(), "no member {member}");
        match self {
            Geometry::Linear(linear) => linear.home(member, offset),
            Geometry::Raid0(raid0) => raid0.home(member, offset),
            Geometry::Raid1(raid1) => raid1.home(member, offset),
            Geometry::Raid10(raid10) => raid10.home(member, offset),
            Geometry::Parity(parity) => parity.home(member, offset),
        }
    }

    /// Where an array offset lives first, and how many bytes are contiguous from there.
    #[inline]
    fn locate(&self, offset: u64) -> (Place, u64) {
        match self {
            Geometry::Linear(linear) => linear.locate(offset),
            Geometry::Raid0(raid0) => raid0.locate(offset),
            Geometry::Raid1(raid1) => raid1.locate(offset),
            Geometry::Raid10(raid10) => raid10.locate(offset),
            Geometry::Parity(parity) => parity.locate(offset),
        }
    }
}

/// The pieces of a range: see [`Geometry::runs`].
#[derive(Clone, Debug)]
pub struct Runs<'a> {
    geometry: &'a Geometry,
    offset: u64,
    end: u64,
}

impl Iterator for Runs<'_> {
    type Item = Run;

    #[inline]
    fn next(&mut self) -> Option<Run> {
        if self.offset == self.end {
            return None;
        }
        let (first, contiguous) = self.geometry.locate(self.offset);
        let run =
            Run { array_offset: self.offset, bytes: contiguous.min(self.end - self.offset), first };
        self.offset += run.bytes;
        Some(run)
    }
}

impl FusedIterator for Runs<'_> {}
