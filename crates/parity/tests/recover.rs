//! Every loss of one and two blocks, for every width up to 24, with every kernel.

use parity::{Blocks, Kernel, RecoverError, Role, field, recover};
use proptest::prelude::*;

/// A whole stripe that owns its blocks.
#[derive(Clone, Debug, PartialEq)]
struct Stripe {
    data: Vec<Option<Vec<u8>>>,
    p: Option<Vec<u8>>,
    q: Option<Vec<u8>>,
}

impl Stripe {
    /// A stripe with right P and Q.
    fn new(data: Vec<Option<Vec<u8>>>, length: usize) -> Stripe {
        let (mut p, mut q) = (vec![0; length], vec![0; length]);
        let views: Vec<Option<&[u8]>> = data.iter().map(Option::as_deref).collect();
        parity::pq(&mut p, &mut q, &views);
        Stripe { data, p: Some(p), q: Some(q) }
    }

    /// A stripe of `places` places with holes where `hole` says so.
    fn with_holes(places: usize, length: usize, hole: impl Fn(usize) -> bool) -> Stripe {
        let block =
            |k: usize| (0..length).map(move |i| (i * i + 7 * i * k + 13 * k * k) as u8 ^ 0x5a);
        let data = (0..places).map(|k| (!hole(k)).then(|| block(k).collect())).collect();
        Stripe::new(data, length)
    }

    fn blocks(&mut self) -> Blocks<'_> {
        Blocks {
            data: self.data.iter_mut().map(Option::as_deref_mut).collect(),
            p: self.p.as_deref_mut(),
            q: self.q.as_deref_mut(),
        }
    }

    fn roles(&self) -> Vec<Role> {
        let data = (0..self.data.len()).filter(|&k| self.data[k].is_some()).map(Role::Data);
        let p = self.p.iter().map(|_| Role::P);
        let q = self.q.iter().map(|_| Role::Q);
        data.chain(p).chain(q).collect()
    }

    /// Overwrites blocks.
    fn lose(&mut self, lost: &[Role]) {
        let mut blocks = self.blocks();
        for role in lost {
            let block = match *role {
                Role::Data(k) => blocks.data[k].as_deref_mut(),
                Role::P => blocks.p.as_deref_mut(),
                Role::Q => blocks.q.as_deref_mut(),
            };
            block.expect("only blocks that are there get lost").fill(0xee);
        }
    }

    /// Loses and recovers.
    fn assert_recovers(&self, kernel: &Kernel, lost: &[Role]) {
        let mut damaged = self.clone();
        damaged.lose(lost);
        assert_eq!(kernel.recover(&mut damaged.blocks(), lost), Ok(()), "{lost:?}");
        let width = self.data.len();
        assert!(damaged == *self, "{kernel:?} recovers {lost:?} of {width} places wrongly");
    }
}

/// All single blocks and all ordered pairs.
fn losses(roles: &[Role]) -> Vec<Vec<Role>> {
    let pairs = roles.iter().flat_map(|&a| roles.iter().map(move |&b| vec![a, b]));
    let pairs = pairs.filter(|pair| pair[0] != pair[1]);
    roles.iter().map(|&role| vec![role]).chain(pairs).collect()
}

#[test]
fn every_loss_of_two_is_recovered_at_every_width() {
    for places in 1..=24 {
        let stripe = Stripe::with_holes(places, 83, |_| false);
        for lost in losses(&stripe.roles()) {
            stripe.assert_recovers(Kernel::best(), &lost);
        }
    }
}

#[test]
fn every_loss_of_two_is_recovered_with_holes() {
    for places in 3..=24 {
        for p_place in 0..places {
            let q_place = (p_place + 1) % places;
            let stripe = Stripe::with_holes(places, 9, |k| k == p_place || k == q_place);
            for lost in losses(&stripe.roles()) {
                stripe.assert_recovers(Kernel::best(), &lost);
            }
        }
    }
}

#[test]
fn every_kernel_recovers() {
    for places in [1, 2, 7, 24] {
        let stripe = Stripe::with_holes(places, 600, |k| k == 4);
        for kernel in Kernel::all_supported() {
            for lost in losses(&stripe.roles()) {
                stripe.assert_recovers(kernel, &lost);
            }
        }
    }
}

#[test]
fn the_widest_stripe_recovers() {
    let stripe = Stripe::with_holes(field::DATA_MAX, 20, |_| false);
    for lost in [[0, 1], [0, 254], [253, 254], [17, 200]] {
        stripe.assert_recovers(Kernel::best(), &lost.map(Role::Data));
    }
}

#[test]
fn raid5_recovers_any_one() {
    let mut stripe = Stripe::with_holes(7, 100, |_| false);
    stripe.q = None;
    for role in stripe.roles() {
        stripe.assert_recovers(Kernel::best(), &[role]);
    }
    stripe.assert_recovers(Kernel::best(), &[]);
    let error = recover(&mut stripe.blocks(), &[Role::Data(0), Role::Data(1)]);
    assert_eq!(error, Err(RecoverError::TooLittleParity { lost_data: 2, parity: 1 }));
}

#[test]
fn parity_that_is_not_needed_may_be_left_out() {
    let whole = Stripe::with_holes(6, 100, |_| false);
    let mut without_p = whole.clone();
    without_p.p = None;
    for role in without_p.roles() {
        without_p.assert_recovers(Kernel::best(), &[role]);
    }
    let mut without_q = whole;
    without_q.q = None;
    without_q.assert_recovers(Kernel::best(), &[Role::P]);
}

#[test]
fn empty_blocks_recover() {
    Stripe::with_holes(5, 0, |_| false).assert_recovers(Kernel::best(), &[Role::Data(1), Role::P]);
}

#[test]
fn the_impossible_is_refused_and_changes_nothing() {
    use RecoverError::*;
    use Role::*;
    let whole = Stripe::with_holes(5, 100, |k| k == 3);
    let without = |p: bool, q: bool| {
        let mut stripe = whole.clone();
        stripe.p = stripe.p.filter(|_| !p);
        stripe.q = stripe.q.filter(|_| !q);
        stripe
    };
    let mut short = whole.clone();
    short.data[2] = Some(vec![0; 99]);
    let wide = Stripe { data: vec![None; 256], p: None, q: None };
    let table: [(Stripe, &[Role], RecoverError); 11] = [
        (whole.clone(), &[Data(0), Data(1), P], TooMany { lost: 3 }),
        (whole.clone(), &[Data(1), Data(1)], Repeated(Data(1))),
        (whole.clone(), &[Data(3)], Absent(Data(3))),
        (whole.clone(), &[Data(5)], Absent(Data(5))),
        (without(true, false), &[P], Absent(P)),
        (without(false, true), &[Data(0), Q], Absent(Q)),
        (without(false, true), &[Data(0), P], TooLittleParity { lost_data: 1, parity: 0 }),
        (without(true, true), &[Data(0)], TooLittleParity { lost_data: 1, parity: 0 }),
        (without(true, false), &[Data(0), Data(1)], TooLittleParity { lost_data: 2, parity: 1 }),
        (short, &[Data(0)], Length { role: Data(2), length: 99, expected: 100 }),
        (wide, &[], TooWide { places: 256 }),
    ];
    for (mut stripe, lost, expected) in table {
        let before = stripe.clone();
        assert_eq!(recover(&mut stripe.blocks(), lost), Err(expected), "{lost:?}");
        assert_eq!(stripe, before);
        assert!(!expected.to_string().ends_with('.'));
    }
}

proptest! {
    #[test]
    fn random_stripes_recover(
        places in prop::collection::vec(any::<bool>(), 1..40),
        length in 0usize..700,
        seed in any::<u64>(),
        picks in any::<[prop::sample::Index; 2]>(),
    ) {
        let mut state = seed | 1;
        let mut byte = || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (state >> 56) as u8
        };
        let data = places
            .iter()
            .map(|&used| used.then(|| (0..length).map(|_| byte()).collect()))
            .collect();
        let stripe = Stripe::new(data, length);
        let roles = stripe.roles();
        let mut lost = picks.map(|pick| *pick.get(&roles)).to_vec();
        lost.dedup();
        for kernel in Kernel::all_supported() {
            stripe.assert_recovers(kernel, &lost);
        }
    }
}
