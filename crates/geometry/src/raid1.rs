//! RAID 1: the same bytes at the same offset of every member.

use crate::{BYTES_MAX, GeometryError, Home, Level, Place, Shape};

/// A checked RAID 1 array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raid1 {
    members: usize,
    array_bytes: u64,
}

impl Raid1 {
    /// Checks `shape`; the smallest member sets the size.
    pub fn new(shape: &Shape) -> Result<Raid1, GeometryError> {
        let members = shape.member_bytes.len();
        GeometryError::check_members(Level::Raid1, members)?;
        let array_bytes = GeometryError::smallest_member(&shape.member_bytes, 1)?;
        if array_bytes > BYTES_MAX {
            return Err(GeometryError::TooLarge);
        }
        Ok(Raid1 { members, array_bytes })
    }

    /// Size of the array, and of what each member holds of it, in bytes.
    pub fn array_bytes(&self) -> u64 {
        self.array_bytes
    }

    /// Number of members, which is the number of copies.
    pub fn members(&self) -> usize {
        self.members
    }

    /// Where an array offset lives first, and how many bytes follow.
    #[inline]
    pub(crate) fn locate(&self, offset: u64) -> (Place, u64) {
        let place = Place { member: 0, offset };
        (place, self.array_bytes - offset)
    }

    pub(crate) fn home(&self, member: usize, offset: u64) -> Option<Home> {
        (offset < self.array_bytes).then_some(Home::Data { array_offset: offset, copy: member })
    }
}
