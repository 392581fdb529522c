//! One stripe of a parity array: who holds what, by arithmetic alone.
//!
//! Two numberings of the data chunks matter, and they are not the same:
//!
//! - the *data index*, in which the array's bytes run: [`StripeMap::data`];
//! - the *exponent*: Q = sum of g^exponent x chunk: [`StripeMap::exponent`]. md walks the
//!   members from the one after Q (from 0 if Q is last), passing over P, and counts the
//!   data it meets. For symmetric layouts that equals the data index; for asymmetric ones
//!   and those with Q last it does not. DDF takes the member's own number, so P and Q
//!   leave holes in the sequence, which count as zero data.

/// What a member holds in a stripe.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// The data chunk with this index.
    Data(usize),
    /// The parity P: XOR of the data.
    P,
    /// The parity Q: XOR of g^exponent x data.
    Q,
}

/// The order in which data chunks stand on members.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum DataOrder {
    /// By member number, passing over P and Q.
    Rising,
    /// From `first` on, wrapping after `ring` members; P and Q are what is left over.
    Ring { first: u16, ring: u16 },
}

/// Which member holds what in one stripe.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct StripeMap {
    member_offset: u64,
    members: u16,
    p: u16,
    q: Option<u16>,
    order: DataOrder,
    physical_exponents: bool,
}

impl StripeMap {
    pub(crate) fn new(
        member_offset: u64,
        members: u16,
        p: u16,
        q: Option<u16>,
        order: DataOrder,
        physical_exponents: bool,
    ) -> StripeMap {
        StripeMap { member_offset, members, p, q, order, physical_exponents }
    }

    /// Offset of the stripe's chunk in the data area of every member, in bytes.
    #[inline]
    pub fn member_offset(&self) -> u64 {
        self.member_offset
    }

    /// Number of members.
    #[inline]
    pub fn members(&self) -> usize {
        usize::from(self.members)
    }

    /// Number of data chunks.
    #[inline]
    pub fn data_members(&self) -> usize {
        self.members() - 1 - usize::from(self.q.is_some())
    }

    /// The member that holds data chunk `index`.
    #[inline]
    pub fn data(&self, index: usize) -> usize {
        debug_assert!(index < self.data_members(), "no data chunk {index}");
        match self.order {
            DataOrder::Rising => {
                let (low, high) = self.parity_members();
                let member = index + usize::from(index >= low);
                member + usize::from(member >= high)
            }
            DataOrder::Ring { first, ring } => {
                let member = usize::from(first) + index;
                let ring = usize::from(ring);
                if member < ring { member } else { member - ring }
            }
        }
    }

    /// The member that holds P.
    #[inline]
    pub fn p(&self) -> usize {
        usize::from(self.p)
    }

    /// The member that holds Q, if the level has one.
    #[inline]
    pub fn q(&self) -> Option<usize> {
        self.q.map(usize::from)
    }

    /// What `member` holds.
    #[inline]
    pub fn role(&self, member: usize) -> Role {
        debug_assert!(member < self.members(), "no member {member}");
        if member == self.p() {
            return Role::P;
        }
        if Some(member) == self.q() {
            return Role::Q;
        }
        Role::Data(match self.order {
            DataOrder::Rising => {
                let (low, high) = self.parity_members();
                member - usize::from(member > low) - usize::from(member > high)
            }
            DataOrder::Ring { first, ring } => {
                distance(usize::from(first), member, usize::from(ring))
            }
        })
    }

    /// The power of the generator that data chunk `index` has in Q.
    ///
    /// Without Q there are no exponents, and the data index is returned.
    #[inline]
    pub fn exponent(&self, index: usize) -> usize {
        let Some(q) = self.q() else { return index };
        let member = self.data(index);
        if self.physical_exponents {
            return member;
        }
        let members = self.members();
        let start = if q + 1 == members { 0 } else { q + 1 };
        let steps = distance(start, member, members);
        // Q itself is the last step of the walk, so only P can have been passed.
        steps - usize::from(distance(start, self.p(), members) < steps)
    }

    /// The highest exponent plus one: the length of the sequence Q is computed over, with
    /// the holes that DDF's layouts leave.
    #[inline]
    pub fn exponents(&self) -> usize {
        if !self.physical_exponents {
            return self.data_members();
        }
        // The highest member that holds data: P and Q may be the last one or two.
        let (low, high) = self.parity_members();
        let members = self.members();
        if high + 1 < members {
            members
        } else if low + 2 < members {
            members - 1
        } else {
            members - 2
        }
    }

    /// P's and Q's members, rising. Without Q the second is beyond all members.
    #[inline]
    fn parity_members(&self) -> (usize, usize) {
        let p = self.p();
        let q = self.q().unwrap_or(usize::MAX);
        (p.min(q), p.max(q))
    }
}

/// Steps from `from` forward to `to` on a ring.
#[inline]
fn distance(from: usize, to: usize, ring: usize) -> usize {
    if to >= from { to - from } else { to + ring - from }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Level, Parity, Shape};

    /// Five members, one stripe a group: md's placement, confirmed against mdadm's own
    /// restripe code (layouts 16 to 19: RAID 5's over one member less).
    const GOLDEN: &[(Level, u32, &str)] = &[
        (Level::Raid4, 0, "0 1 2 3 P | 0 1 2 3 P | 0 1 2 3 P | 0 1 2 3 P | 0 1 2 3 P"),
        (Level::Raid5, 0, "0 1 2 3 P | 0 1 2 P 3 | 0 1 P 2 3 | 0 P 1 2 3 | P 0 1 2 3"),
        (Level::Raid5, 1, "P 0 1 2 3 | 0 P 1 2 3 | 0 1 P 2 3 | 0 1 2 P 3 | 0 1 2 3 P"),
        (Level::Raid5, 2, "0 1 2 3 P | 1 2 3 P 0 | 2 3 P 0 1 | 3 P 0 1 2 | P 0 1 2 3"),
        (Level::Raid5, 3, "P 0 1 2 3 | 3 P 0 1 2 | 2 3 P 0 1 | 1 2 3 P 0 | 0 1 2 3 P"),
        (Level::Raid5, 4, "P 0 1 2 3 | P 0 1 2 3 | P 0 1 2 3 | P 0 1 2 3 | P 0 1 2 3"),
        (Level::Raid5, 5, "0 1 2 3 P | 0 1 2 3 P | 0 1 2 3 P | 0 1 2 3 P | 0 1 2 3 P"),
        (Level::Raid6, 0, "Q 0 1 2 P | 0 1 2 P Q | 0 1 P Q 2 | 0 P Q 1 2 | P Q 0 1 2"),
        (Level::Raid6, 1, "P Q 0 1 2 | 0 P Q 1 2 | 0 1 P Q 2 | 0 1 2 P Q | Q 0 1 2 P"),
        (Level::Raid6, 2, "Q 0 1 2 P | 0 1 2 P Q | 1 2 P Q 0 | 2 P Q 0 1 | P Q 0 1 2"),
        (Level::Raid6, 3, "P Q 0 1 2 | 2 P Q 0 1 | 1 2 P Q 0 | 0 1 2 P Q | Q 0 1 2 P"),
        (Level::Raid6, 4, "P Q 0 1 2 | P Q 0 1 2 | P Q 0 1 2 | P Q 0 1 2 | P Q 0 1 2"),
        (Level::Raid6, 5, "0 1 2 P Q | 0 1 2 P Q | 0 1 2 P Q | 0 1 2 P Q | 0 1 2 P Q"),
        (Level::Raid6, 8, "P Q 0 1 2 | 0 P Q 1 2 | 0 1 P Q 2 | 0 1 2 P Q | Q 0 1 2 P"),
        (Level::Raid6, 9, "0 1 2 P Q | 0 1 P Q 2 | 0 P Q 1 2 | P Q 0 1 2 | Q 0 1 2 P"),
        (Level::Raid6, 10, "0 1 2 Q P | 1 2 Q P 0 | 2 Q P 0 1 | Q P 0 1 2 | P 0 1 2 Q"),
        (Level::Raid6, 16, "0 1 2 P Q | 0 1 P 2 Q | 0 P 1 2 Q | P 0 1 2 Q | 0 1 2 P Q"),
        (Level::Raid6, 17, "P 0 1 2 Q | 0 P 1 2 Q | 0 1 P 2 Q | 0 1 2 P Q | P 0 1 2 Q"),
        (Level::Raid6, 18, "0 1 2 P Q | 1 2 P 0 Q | 2 P 0 1 Q | P 0 1 2 Q | 0 1 2 P Q"),
        (Level::Raid6, 19, "P 0 1 2 Q | 2 P 0 1 Q | 1 2 P 0 Q | 0 1 2 P Q | P 0 1 2 Q"),
        (Level::Raid6, 20, "P 0 1 2 Q | P 0 1 2 Q | P 0 1 2 Q | P 0 1 2 Q | P 0 1 2 Q"),
    ];

    fn parity(level: Level, layout: u32, members: usize) -> Parity {
        Parity::new(&Shape {
            level,
            layout,
            chunk_bytes: 4096,
            member_bytes: vec![4096 * 40; members],
        })
        .unwrap()
    }

    fn picture(map: &StripeMap) -> String {
        let cell = |member| match map.role(member) {
            Role::Data(index) => index.to_string(),
            Role::P => "P".to_owned(),
            Role::Q => "Q".to_owned(),
        };
        let cells: Vec<String> = (0..map.members()).map(cell).collect();
        cells.join(" ")
    }

    #[test]
    fn golden_placement() {
        for &(level, layout, golden) in GOLDEN {
            let array = parity(level, layout, 5);
            for (index, group) in golden.split(" | ").enumerate() {
                let map = array.stripe(index as u64);
                assert_eq!(picture(&map), group, "{level} layout {layout} stripe {index}");
                assert_eq!(map.member_offset(), index as u64 * 4096);
            }
        }
    }

    /// Exponents of data 0, 1, 2 in the stripes where they are easy to get wrong.
    #[test]
    fn exponents_follow_the_members_after_q() {
        let table: &[(u32, u64, [usize; 3], usize)] = &[
            // 0 1 P Q 2: the walk starts at member 4.
            (0, 2, [1, 2, 0], 3),
            // 0 P Q 1 2: starts at member 3.
            (0, 3, [2, 0, 1], 3),
            // 1 2 P Q 0: symmetric, so the data index.
            (2, 2, [0, 1, 2], 3),
            // 2 P 0 1 Q: Q last, so by member, P passed without a hole.
            (18, 2, [1, 2, 0], 3),
            (16, 2, [0, 1, 2], 3),
            // DDF: the member itself. 0 1 P Q 2, 0 1 2 P Q, P Q 0 1 2, P 0 1 2 Q.
            (8, 2, [0, 1, 4], 5),
            (8, 3, [0, 1, 2], 3),
            (9, 3, [2, 3, 4], 5),
            (10, 4, [1, 2, 3], 4),
        ];
        for (layout, index, exponents, count) in table {
            let map = parity(Level::Raid6, *layout, 5).stripe(*index);
            let got = [0, 1, 2].map(|data| map.exponent(data));
            assert_eq!(got, *exponents, "layout {layout} stripe {index}");
            assert_eq!(map.exponents(), *count, "layout {layout} stripe {index}");
        }
    }
}
