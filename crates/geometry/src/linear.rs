//! Linear (span, JBOD): members one after the other in slot order.
//!
//! With a chunk, each member is first rounded down to it, as md does; without, every byte
//! is used. A lost member loses its bytes and no others, but the array as a whole is lost
//! to whoever needs all of it.

use crate::chunk::Chunk;
use crate::{BYTES_MAX, GeometryError, Home, Level, Place, Shape};

/// A checked linear array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linear {
    /// Array offset at which each member ends, in slot order, rising.
    ends: Vec<u64>,
}

impl Linear {
    /// Checks `shape` and sums its members.
    pub fn new(shape: &Shape) -> Result<Linear, GeometryError> {
        GeometryError::check_members(Level::Linear, shape.member_bytes.len())?;
        let chunk = match shape.chunk_bytes {
            0 => None,
            bytes => Some(Chunk::sectors(Level::Linear, bytes)?),
        };
        let need = chunk.map_or(1, Chunk::bytes);
        let mut end = 0u64;
        let mut ends = Vec::with_capacity(shape.member_bytes.len());
        for (member, &bytes) in shape.member_bytes.iter().enumerate() {
            if bytes < need {
                return Err(GeometryError::MemberTooSmall { member, bytes, need });
            }
            let rounded = chunk.map_or(bytes, |chunk| bytes - chunk.split(bytes).1);
            end = end
                .checked_add(rounded)
                .filter(|end| *end <= BYTES_MAX)
                .ok_or(GeometryError::TooLarge)?;
            ends.push(end);
        }
        Ok(Linear { ends })
    }

    /// Size of the array in bytes.
    pub fn array_bytes(&self) -> u64 {
        self.start(self.ends.len())
    }

    /// Number of members.
    pub fn members(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of `member` that the array uses.
    pub fn used_bytes(&self, member: usize) -> u64 {
        self.ends[member] - self.start(member)
    }

    /// Where an array offset lives, and how many bytes follow on the same member.
    #[inline]
    pub(crate) fn locate(&self, offset: u64) -> (Place, u64) {
        let member = self.ends.partition_point(|end| *end <= offset);
        let place = Place { member, offset: offset - self.start(member) };
        (place, self.ends[member] - offset)
    }

    pub(crate) fn home(&self, member: usize, offset: u64) -> Option<Home> {
        (offset < self.used_bytes(member))
            .then(|| Home::Data { array_offset: self.start(member) + offset, copy: 0 })
    }

    /// Array offset at which `member` starts.
    fn start(&self, member: usize) -> u64 {
        member.checked_sub(1).map_or(0, |before| self.ends[before])
    }
}
