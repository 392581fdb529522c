//! Which member is wrong: judged sector by sector, from all that its stripe or copies say.
//!
//! With two redundancies left to compare (RAID 6 with P and Q, three copies and more) the one that
//! contradicts all others is found; with one (RAID 5, two copies, RAID 6 with a member missing)
//! nobody can know which side is right; with none nothing can be compared.

use geometry::{Role, StripeMap};
use parity::Located;

/// What a sector of a stripe is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judged {
    /// Everything agrees; what was absent has been computed.
    Agrees,
    /// This one is wrong; its right content has been computed.
    Wrong(Role),
    /// Something is wrong, and nobody can know which.
    Undecided,
    /// Too much is absent to compare, but enough is there to compute what is.
    Uncompared,
    /// Too much is absent.
    Lost,
}

/// One sector of a stripe, of every member.
pub(crate) struct StripeSector {
    columns: Vec<Vec<u8>>,
    p: Vec<u8>,
    q: Vec<u8>,
    computed_p: Vec<u8>,
    computed_q: Vec<u8>,
}

impl StripeSector {
    /// Room for a sector of `bytes` on `columns` data members.
    pub(crate) fn new(columns: usize, bytes: usize) -> Self {
        let sector = || vec![0; bytes];
        let columns = std::iter::repeat_with(sector).take(columns).collect();
        let [p, q, computed_p, computed_q] = [sector(), sector(), sector(), sector()];
        StripeSector { columns, p, q, computed_p, computed_q }
    }

    /// The content of one member; before judging what was read, afterwards what is right, as far
    /// as the verdict says it is known.
    pub(crate) fn content(&mut self, role: Role) -> &mut [u8] {
        match role {
            Role::Data(column) => &mut self.columns[column],
            Role::P => &mut self.p,
            Role::Q => &mut self.q,
        }
    }

    /// Judges the sector; `absent` are the roles whose content is not known.
    pub(crate) fn judge(&mut self, map: &StripeMap, absent: &[Role]) -> Judged {
        let parities = 1 + usize::from(map.q().is_some());
        if absent.len() > parities {
            return Judged::Lost;
        }
        self.recover(map, absent);
        if absent.len() == parities {
            return Judged::Uncompared;
        }
        self.compute(map);
        let q_agrees = map.q().is_none() || self.q == self.computed_q;
        if self.p == self.computed_p && q_agrees {
            return Judged::Agrees;
        }
        if map.q().is_none() || !absent.is_empty() {
            return Judged::Undecided;
        }
        self.locate(map)
    }

    /// Takes the data for right: P and Q become what it gives.
    pub(crate) fn trust_data(&mut self, map: &StripeMap) {
        self.compute(map);
        std::mem::swap(&mut self.p, &mut self.computed_p);
        if map.q().is_some() {
            std::mem::swap(&mut self.q, &mut self.computed_q);
        }
    }

    fn recover(&mut self, map: &StripeMap, absent: &[Role]) {
        if absent.is_empty() {
            return;
        }
        let has_q = map.q().is_some();
        let places = if has_q { map.exponents() } else { self.columns.len() };
        let mut data: Vec<Option<&mut [u8]>> =
            std::iter::repeat_with(|| None).take(places).collect();
        for (column, content) in self.columns.iter_mut().enumerate() {
            data[map.exponent(column)] = Some(content);
        }
        let q = has_q.then_some(&mut self.q[..]);
        let mut blocks = parity::Blocks { data, p: Some(&mut self.p), q };
        let lost: Vec<parity::Role> = absent
            .iter()
            .map(|role| match *role {
                Role::Data(column) => parity::Role::Data(map.exponent(column)),
                Role::P => parity::Role::P,
                Role::Q => parity::Role::Q,
            })
            .collect();
        parity::recover(&mut blocks, &lost).expect("no more is absent than there are parities");
    }

    fn compute(&mut self, map: &StripeMap) {
        let columns: Vec<&[u8]> = self.columns.iter().map(|column| &column[..]).collect();
        let q = map.q().is_some().then_some(&mut self.computed_q[..]);
        crate::stripe::compute(map, &columns, Some(&mut self.computed_p), q);
    }

    /// With P and Q computed, and everything there.
    fn locate(&mut self, map: &StripeMap) -> Judged {
        let mut p_difference = self.p.clone();
        parity::xor_into(&mut p_difference, &self.computed_p);
        let mut q_difference = self.q.clone();
        parity::xor_into(&mut q_difference, &self.computed_q);
        let column_of = |exponent| (0..self.columns.len()).find(|&c| map.exponent(c) == exponent);
        let holds_data = |exponent| column_of(exponent).is_some();
        match parity::locate(&p_difference, &q_difference, holds_data) {
            Located::Clean => Judged::Agrees,
            Located::Unknown => Judged::Undecided,
            Located::P => {
                self.p.copy_from_slice(&self.computed_p);
                Judged::Wrong(Role::P)
            }
            Located::Q => {
                self.q.copy_from_slice(&self.computed_q);
                Judged::Wrong(Role::Q)
            }
            Located::Data(exponent) => match column_of(exponent) {
                None => Judged::Undecided,
                Some(column) => {
                    parity::xor_into(&mut self.columns[column], &p_difference);
                    Judged::Wrong(Role::Data(column))
                }
            },
        }
    }
}

/// What copies of the same bytes are like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Vote {
    /// All are the same.
    Agree,
    /// More than half are the same as this one; the others are wrong.
    Majority(usize),
    /// No content has more than half of the votes: nobody can know.
    Tie,
}

/// Compares the copies of a sector that could be read.
pub(crate) fn vote(copies: &[&[u8]]) -> Vote {
    let Some((first, others)) = copies.split_first() else { return Vote::Agree };
    if others.iter().all(|other| other == first) {
        return Vote::Agree;
    }
    let votes = |index: &usize| copies.iter().filter(|copy| **copy == copies[*index]).count();
    match (0..copies.len()).find(|index| votes(index) * 2 > copies.len()) {
        Some(index) => Vote::Majority(index),
        None => Vote::Tie,
    }
}

#[cfg(test)]
mod tests {
    use geometry::{Level, Parity, Shape};
    use proptest::prelude::*;

    use super::*;

    const BYTES: usize = 64;

    fn parity(level: Level, layout: u32, members: usize) -> Parity {
        let member_bytes = vec![4096 * 40; members];
        let shape = Shape { level, layout, chunk_bytes: 4096, member_bytes };
        Parity::new(&shape).unwrap_or_else(|error| panic!("{error}"))
    }

    /// All roles of a stripe.
    fn roles(map: &StripeMap) -> Vec<Role> {
        (0..map.members()).map(|member| map.role(member)).collect()
    }

    /// A sector that agrees.
    fn sound(map: &StripeMap, seed: u64) -> StripeSector {
        let mut sector = StripeSector::new(map.data_members(), BYTES);
        let mut random = world::SplitMix64::new(seed);
        for column in 0..map.data_members() {
            sector.content(Role::Data(column)).fill_with(|| random.next_u64() as u8);
        }
        sector.trust_data(map);
        sector
    }

    fn contents(sector: &mut StripeSector, map: &StripeMap) -> Vec<Vec<u8>> {
        roles(map).into_iter().map(|role| sector.content(role).to_vec()).collect()
    }

    fn spoil(sector: &mut StripeSector, role: Role, seed: u64) {
        let mut random = world::SplitMix64::new(seed);
        let at = random.below(BYTES as u64) as usize;
        sector.content(role)[at..].fill_with(|| random.next_u64() as u8 | 1);
        sector.content(role)[at] ^= 0x55;
    }

    const RAID6_LAYOUTS: [u32; 14] = [0, 1, 2, 3, 4, 5, 8, 9, 10, 16, 17, 18, 19, 20];

    /// Every layout, every stripe of a rotation, every member: found, and its content restored.
    #[test]
    fn raid6_finds_each_wrong_member_and_restores_it() {
        for layout in RAID6_LAYOUTS {
            for members in [4, 5, 8] {
                let parity = parity(Level::Raid6, layout, members);
                for stripe in 0..members as u64 {
                    let map = parity.stripe(stripe);
                    for (index, role) in roles(&map).into_iter().enumerate() {
                        let mut sector = sound(&map, stripe);
                        let right = contents(&mut sector, &map);
                        assert_eq!(sector.judge(&map, &[]), Judged::Agrees);
                        let byte = (stripe as usize * 7 + index) % BYTES;
                        sector.content(role)[byte] ^= 1 << (index % 8);
                        let judged = sector.judge(&map, &[]);
                        assert_eq!(judged, Judged::Wrong(role), "layout {layout} stripe {stripe}");
                        assert_eq!(contents(&mut sector, &map), right);
                    }
                }
            }
        }
    }

    #[test]
    fn with_one_redundancy_left_nobody_can_know() {
        let raid5 = parity(Level::Raid5, 2, 4).stripe(1);
        for role in roles(&raid5) {
            let mut sector = sound(&raid5, 1);
            spoil(&mut sector, role, 9);
            let as_read = contents(&mut sector, &raid5);
            assert_eq!(sector.judge(&raid5, &[]), Judged::Undecided);
            assert_eq!(contents(&mut sector, &raid5), as_read, "both contents are kept");
            sector.trust_data(&raid5);
            assert_eq!(sector.judge(&raid5, &[]), Judged::Agrees);
        }
        let raid6 = parity(Level::Raid6, 2, 6).stripe(3);
        for absent in roles(&raid6) {
            for wrong in roles(&raid6).into_iter().filter(|role| *role != absent) {
                let mut sector = sound(&raid6, 2);
                spoil(&mut sector, wrong, 4);
                assert_eq!(sector.judge(&raid6, &[absent]), Judged::Undecided);
            }
        }
    }

    #[test]
    fn what_is_absent_is_computed_as_long_as_there_is_redundancy() {
        for map in [parity(Level::Raid5, 0, 4).stripe(2), parity(Level::Raid6, 9, 6).stripe(4)] {
            let parities = map.members() - map.data_members();
            let all = roles(&map);
            for first in 0..all.len() {
                for second in 0..=first {
                    let mut absent = vec![all[first], all[second]];
                    absent.dedup();
                    let mut sector = sound(&map, 3);
                    let right = contents(&mut sector, &map);
                    for role in &absent {
                        sector.content(*role).fill(0xee);
                    }
                    let judged = sector.judge(&map, &absent);
                    let expected = match absent.len() {
                        lost if lost > parities => Judged::Lost,
                        lost if lost == parities => Judged::Uncompared,
                        _ => Judged::Agrees,
                    };
                    assert_eq!(judged, expected, "{absent:?}");
                    if judged != Judged::Lost {
                        assert_eq!(contents(&mut sector, &map), right, "{absent:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_majority_is_right_and_a_tie_is_nobodys() {
        let table: [(&str, Vote); 9] = [
            ("", Vote::Agree),
            ("a", Vote::Agree),
            ("aaa", Vote::Agree),
            ("ab", Vote::Tie),
            ("aba", Vote::Majority(0)),
            ("baa", Vote::Majority(1)),
            ("abc", Vote::Tie),
            ("aabb", Vote::Tie),
            ("bacaa", Vote::Majority(1)),
        ];
        for (letters, expected) in table {
            let copies: Vec<&[u8]> = letters.as_bytes().chunks(1).collect();
            assert_eq!(vote(&copies), expected, "{letters}");
        }
    }

    proptest! {
        /// Two wrong members are never taken for one that is right, and nothing is made worse.
        #[test]
        fn two_wrong_sectors_blame_nobody(
            stripe in 0u64..8,
            layout in prop::sample::select(&RAID6_LAYOUTS[..]),
            first in 0usize..8,
            step in 1usize..8,
            seed: u64,
        ) {
            let map = parity(Level::Raid6, layout, 8).stripe(stripe);
            let mut sector = sound(&map, seed);
            for (index, member) in [first, (first + step) % 8].into_iter().enumerate() {
                let mut random = world::SplitMix64::new(seed ^ index as u64);
                let content = sector.content(map.role(member));
                content.iter_mut().for_each(|byte| *byte ^= random.below(255) as u8 + 1);
            }
            let as_read = contents(&mut sector, &map);
            prop_assert_eq!(sector.judge(&map, &[]), Judged::Undecided);
            prop_assert_eq!(contents(&mut sector, &map), as_read);
        }
    }
}
