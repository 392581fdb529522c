//! RAID 4, 5 and 6: which member holds which part of a stripe.
//!
//! A stripe is one chunk of every member at the same offset: the data chunks, P, and for
//! RAID 6 Q. The layout says how P moves from stripe to stripe, where Q stands beside it,
//! and where the data starts. All of md's layouts are made of these three choices, so they
//! are taken apart once, here, and [`StripeMap`] only computes.
//!
//! Layouts 16 to 19 are RAID 5's 0 to 3 over all members but the last, which holds Q: what
//! a RAID 5 becomes on its way to RAID 6. 8 to 10 are those of SNIA DDF.

use crate::chunk::Chunk;
use crate::stripe::{DataOrder, StripeMap};
use crate::{BYTES_MAX, GeometryError, Home, Level, Place, Role, Shape};

/// Most powers of the generator that are distinct in GF(2^8): 255, so exponents 0 to 254.
const EXPONENTS_MAX: usize = 255;

/// Where P stands in stripe s, on a ring of r members.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Rotation {
    /// r - 1 - (s mod r).
    Left,
    /// r - 1 - ((s + 1) mod r).
    LeftOneAhead,
    /// s mod r.
    Right,
    /// Always this member.
    Fixed(u16),
}

/// Where Q stands.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum QPlace {
    /// There is none.
    None,
    /// On the member after P, wrapping.
    AfterP,
    /// On the member before P, wrapping.
    BeforeP,
    /// Always on the last member.
    Last,
}

/// Where the data chunks of a stripe start.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum DataStart {
    /// At the first member, skipping P and Q: asymmetric.
    First,
    /// On the member after P, wrapping on the ring: symmetric.
    AfterP,
    /// On the member after Q, wrapping on the ring: symmetric.
    AfterQ,
}

/// A checked RAID 4, 5 or 6 array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parity {
    level: Level,
    chunk: Chunk,
    stripes: u64,
    members: u16,
    data_members: u16,
    /// Members that P (and symmetric data) rotate over.
    ring: u16,
    rotation: Rotation,
    q_place: QPlace,
    data_start: DataStart,
    /// Q's exponents are physical member numbers, as DDF has it.
    physical_exponents: bool,
}

impl Parity {
    /// Checks `shape`, whose level must be RAID 4, 5 or 6; the smallest member sets the size.
    pub fn new(shape: &Shape) -> Result<Parity, GeometryError> {
        let Shape { level, layout, .. } = *shape;
        let members = shape.member_bytes.len();
        let unknown = GeometryError::Layout { level, layout };
        if level.parities() == 0 {
            return Err(unknown);
        }
        GeometryError::check_members(level, members)?;
        let last = (members - 1) as u16;
        let (ring, rotation, q_place, data_start) = match level {
            Level::Raid6 => raid6(layout, last).ok_or(unknown)?,
            Level::Raid5 => {
                let (rotation, data_start) = raid5(layout, last).ok_or(unknown)?;
                (last + 1, rotation, QPlace::None, data_start)
            }
            _ => {
                let rotation = Rotation::Fixed(last);
                (last + 1, rotation, QPlace::None, DataStart::First)
            }
        };
        let physical_exponents = level == Level::Raid6 && (8..=10).contains(&layout);
        let data_members = members - level.parities();
        if level == Level::Raid6 {
            let holes = if physical_exponents { 0 } else { 2 };
            let max = EXPONENTS_MAX + holes;
            if members > max {
                return Err(GeometryError::TooManyMembers { level, max, members });
            }
        }
        let chunk = Chunk::power_of_two(level, shape.chunk_bytes)?;
        let member_bytes = GeometryError::smallest_member(&shape.member_bytes, chunk.bytes())?;
        let stripes = chunk.count(member_bytes);
        let array_bytes = (stripes * chunk.bytes()).checked_mul(data_members as u64);
        if member_bytes > BYTES_MAX || array_bytes.is_none_or(|bytes| bytes > BYTES_MAX) {
            return Err(GeometryError::TooLarge);
        }
        Ok(Parity {
            level,
            chunk,
            stripes,
            members: members as u16,
            data_members: data_members as u16,
            ring,
            rotation,
            q_place,
            data_start,
            physical_exponents,
        })
    }

    /// RAID 4, 5 or 6.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Size of the array in bytes.
    pub fn array_bytes(&self) -> u64 {
        self.stripes * self.stripe_bytes()
    }

    /// Number of members.
    pub fn members(&self) -> usize {
        usize::from(self.members)
    }

    /// Data chunks in a stripe.
    pub fn data_members(&self) -> usize {
        usize::from(self.data_members)
    }

    /// Parity chunks in a stripe: 1 or 2. As many members may be missing.
    pub fn parities(&self) -> usize {
        self.level.parities()
    }

    /// Chunk in bytes: the part of a stripe on one member.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk.bytes()
    }

    /// Data of one full stripe in bytes.
    pub fn stripe_bytes(&self) -> u64 {
        u64::from(self.data_members) * self.chunk.bytes()
    }

    /// Number of stripes.
    pub fn stripes(&self) -> u64 {
        self.stripes
    }

    /// Bytes of each member that the array uses.
    pub fn used_bytes(&self) -> u64 {
        self.stripes * self.chunk.bytes()
    }

    /// Stripe index, data index in the stripe, and offset in the chunk of an array offset.
    #[inline]
    pub fn stripe_of(&self, array_offset: u64) -> (u64, usize, u64) {
        let (chunk, within) = self.chunk.split(array_offset);
        let width = u64::from(self.data_members);
        (chunk / width, (chunk % width) as usize, within)
    }

    /// The map of stripe `index`.
    ///
    /// # Panics
    /// If there is no such stripe.
    #[inline]
    pub fn stripe(&self, index: u64) -> StripeMap {
        assert!(index < self.stripes, "no stripe {index}");
        let ring = self.ring;
        let turn = (index % u64::from(ring)) as u16;
        let p = match self.rotation {
            Rotation::Left => ring - 1 - turn,
            Rotation::LeftOneAhead if turn + 1 == ring => ring - 1,
            Rotation::LeftOneAhead => ring - 2 - turn,
            Rotation::Right => turn,
            Rotation::Fixed(p) => p,
        };
        let last = self.members - 1;
        let q = match self.q_place {
            QPlace::None => None,
            QPlace::AfterP => Some(if p == last { 0 } else { p + 1 }),
            QPlace::BeforeP => Some(if p == 0 { last } else { p - 1 }),
            QPlace::Last => Some(last),
        };
        let after = |member: u16| DataOrder::Ring {
            first: if member + 1 >= ring { 0 } else { member + 1 },
            ring,
        };
        let order = match self.data_start {
            DataStart::First => DataOrder::Rising,
            DataStart::AfterP => after(p),
            DataStart::AfterQ => after(q.unwrap_or(p)),
        };
        let member_offset = index * self.chunk.bytes();
        StripeMap::new(member_offset, self.members, p, q, order, self.physical_exponents)
    }

    /// Where an array offset lives, and how many bytes follow in its chunk.
    #[inline]
    pub(crate) fn locate(&self, offset: u64) -> (Place, u64) {
        let (stripe, data, within) = self.stripe_of(offset);
        let map = self.stripe(stripe);
        let place = Place { member: map.data(data), offset: map.member_offset() + within };
        (place, self.chunk.bytes() - within)
    }

    pub(crate) fn home(&self, member: usize, offset: u64) -> Option<Home> {
        let (stripe, within) = self.chunk.split(offset);
        if stripe >= self.stripes {
            return None;
        }
        Some(match self.stripe(stripe).role(member) {
            Role::P => Home::P { stripe },
            Role::Q => Home::Q { stripe },
            Role::Data(index) => Home::Data {
                array_offset: stripe * self.stripe_bytes()
                    + index as u64 * self.chunk.bytes()
                    + within,
                copy: 0,
            },
        })
    }
}

/// RAID 5's layouts on members 0 to `last`.
fn raid5(layout: u32, last: u16) -> Option<(Rotation, DataStart)> {
    Some(match layout {
        0 => (Rotation::Left, DataStart::First),
        1 => (Rotation::Right, DataStart::First),
        2 => (Rotation::Left, DataStart::AfterP),
        3 => (Rotation::Right, DataStart::AfterP),
        4 => (Rotation::Fixed(0), DataStart::First),
        5 => (Rotation::Fixed(last), DataStart::First),
        _ => return None,
    })
}

/// RAID 6's layouts on members 0 to `last`: ring, P, Q, data.
fn raid6(layout: u32, last: u16) -> Option<(u16, Rotation, QPlace, DataStart)> {
    let members = last + 1;
    Some(match layout {
        0 | 1 => {
            let (rotation, start) = raid5(layout, last)?;
            (members, rotation, QPlace::AfterP, start)
        }
        2 => (members, Rotation::Left, QPlace::AfterP, DataStart::AfterQ),
        3 => (members, Rotation::Right, QPlace::AfterP, DataStart::AfterQ),
        4 => {
            let rotation = Rotation::Fixed(0);
            (members, rotation, QPlace::AfterP, DataStart::First)
        }
        5 => {
            let rotation = Rotation::Fixed(last - 1);
            (members, rotation, QPlace::Last, DataStart::First)
        }
        8 => (members, Rotation::Right, QPlace::AfterP, DataStart::First),
        9 => {
            let rotation = Rotation::LeftOneAhead;
            (members, rotation, QPlace::AfterP, DataStart::First)
        }
        10 => (members, Rotation::Left, QPlace::BeforeP, DataStart::AfterP),
        16..=19 => {
            let (rotation, start) = raid5(layout - 16, last - 1)?;
            (last, rotation, QPlace::Last, start)
        }
        20 => {
            let rotation = Rotation::Fixed(0);
            (last, rotation, QPlace::Last, DataStart::First)
        }
        _ => return None,
    })
}
