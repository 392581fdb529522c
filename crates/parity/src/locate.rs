//! Finding the one wrong member of a RAID 6 stripe.
//!
//! Let Pd and Qd be the stored P and Q XOR those computed from the data. If data member k is
//! wrong by E, then Pd = E and Qd = g^k E at each byte, so k is the difference of their
//! logarithms. If P or Q itself is wrong, only its own difference isn't zero.
//!
//! One byte may mislead: two wrong members look like a third at some places. Hence all bytes of
//! the range that is judged have to name the same one, and that one has to exist. Judge the unit in
//! which drives fail, a sector: a longer range blames nobody where two sectors of two members are
//! wrong, and each could be mended. What can't be told at all is a damage of several members that
//! looks like one of another; of wholly wrong sectors that doesn't happen by accident.
//!
//! Source: H. P. Anvin, "The mathematics of RAID-6", section 4.

use crate::field::{self, DATA_MAX};

/// Which member of a stripe contradicts the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Located {
    /// None: data, P and Q agree.
    Clean,
    /// P alone.
    P,
    /// Q alone.
    Q,
    /// The data with this exponent.
    Data(usize),
    /// More than one member, and nobody can say which.
    Unknown,
}

/// Finds the wrong member from the differences of P and Q over a range, best one sector.
///
/// `p_difference` and `q_difference`: stored XOR computed P and Q; `holds_data`: whether an
/// exponent, below [`DATA_MAX`], is a data member's and not a hole.
///
/// # Panics
/// If the lengths differ.
pub fn locate(
    p_difference: &[u8],
    q_difference: &[u8],
    holds_data: impl Fn(usize) -> bool,
) -> Located {
    assert_eq!(p_difference.len(), q_difference.len(), "P and Q have the same length");
    let mut located = Located::Clean;
    for (&p, &q) in p_difference.iter().zip(q_difference) {
        let here = match (field::logarithm(p), field::logarithm(q)) {
            (None, None) => continue,
            (Some(_), None) => Located::P,
            (None, Some(_)) => Located::Q,
            (Some(p), Some(q)) => {
                Located::Data((DATA_MAX + usize::from(q) - usize::from(p)) % DATA_MAX)
            }
        };
        if located != Located::Clean && located != here {
            return Located::Unknown;
        }
        located = here;
    }
    match located {
        Located::Data(exponent) if !holds_data(exponent) => Located::Unknown,
        _ => located,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Kernel;

    /// The differences after `spoil` has changed P (index 0), Q (1) or data (2 and on).
    fn differences(data_count: usize, spoil: impl Fn(&mut [Vec<u8>])) -> (Vec<u8>, Vec<u8>) {
        let mut blocks: Vec<Vec<u8>> =
            (0..data_count + 2).map(|k| vec![(k * 31) as u8; 70]).collect();
        let computed = |blocks: &[Vec<u8>]| {
            let (mut p, mut q) = (vec![0; 70], vec![0; 70]);
            let data: Vec<Option<&[u8]>> = blocks[2..].iter().map(|b| Some(&b[..])).collect();
            Kernel::best().pq(&mut p, &mut q, &data);
            (p, q)
        };
        (blocks[0], blocks[1]) = computed(&blocks);
        spoil(&mut blocks);
        let (mut p, mut q) = computed(&blocks);
        crate::xor_into(&mut p, &blocks[0]);
        crate::xor_into(&mut q, &blocks[1]);
        (p, q)
    }

    fn located(data_count: usize, spoil: impl Fn(&mut [Vec<u8>])) -> Located {
        let (p, q) = differences(data_count, spoil);
        locate(&p, &q, |exponent| exponent < data_count)
    }

    /// The definition: whose being wrong alone explains every byte? Several can't, since an error
    /// that two explain would be zero.
    fn explained(p: &[u8], q: &[u8], holds_data: impl Fn(usize) -> bool) -> Located {
        let bytes = || p.iter().zip(q);
        if bytes().all(|(&p, &q)| p == 0 && q == 0) {
            return Located::Clean;
        }
        let mut explanations = Vec::new();
        if bytes().all(|(_, &q)| q == 0) {
            explanations.push(Located::P);
        }
        if bytes().all(|(&p, _)| p == 0) {
            explanations.push(Located::Q);
        }
        for exponent in (0..DATA_MAX).filter(|&exponent| holds_data(exponent)) {
            if bytes().all(|(&p, &q)| field::multiply(field::power(exponent), p) == q) {
                explanations.push(Located::Data(exponent));
            }
        }
        assert!(explanations.len() <= 1, "{explanations:?}");
        explanations.first().copied().unwrap_or(Located::Unknown)
    }

    #[test]
    fn one_wrong_member_is_found() {
        assert_eq!(located(8, |_| ()), Located::Clean);
        assert_eq!(located(8, |blocks| blocks[0][69] ^= 1), Located::P);
        assert_eq!(located(8, |blocks| blocks[1][3] ^= 0x80), Located::Q);
        for data_count in [1, 2, 8, 255] {
            for exponent in 0..data_count {
                let found = located(data_count, |blocks| {
                    blocks[2 + exponent][7] ^= 0x11;
                    blocks[2 + exponent][41] ^= 0xff;
                });
                assert_eq!(found, Located::Data(exponent));
            }
        }
    }

    /// Every pair of differences of one byte, with every member there, with few, and with holes.
    #[test]
    fn every_byte_is_explained_as_the_definition_says() {
        let members: [fn(usize) -> bool; 3] = [|_| true, |k| k < 6, |k| k % 3 != 1 && k < 40];
        for holds_data in members {
            for p in 0..=255 {
                for q in 0..=255 {
                    let found = locate(&[p], &[q], holds_data);
                    assert_eq!(found, explained(&[p], &[q], holds_data), "{p:#x} {q:#x}");
                }
            }
        }
    }

    /// Two members wrong by any errors at one byte can look like a third; two whole sectors don't.
    #[test]
    fn two_wrong_members_are_unknown() {
        for (first, second) in (0..10).flat_map(|a| (0..a).map(move |b| (a, b))) {
            let found = located(8, |blocks| {
                for (at, byte) in blocks[first].iter_mut().enumerate() {
                    *byte ^= (at * at + 1) as u8 | 1;
                }
                for (at, byte) in blocks[second].iter_mut().enumerate() {
                    *byte ^= (at * 7) as u8 | 2;
                }
            });
            assert_eq!(found, Located::Unknown, "{first} and {second}");
            let found = located(8, |blocks| {
                blocks[first][7] ^= 1;
                blocks[second][8] ^= 1;
            });
            assert_eq!(found, Located::Unknown, "{first} and {second}");
        }
    }

    #[test]
    fn a_member_that_does_not_exist_is_not_blamed() {
        // P and Q spoilt at the same byte: looks like member log(8) - log(1) = 3.
        let spoil = |blocks: &mut [Vec<u8>]| {
            blocks[0][7] ^= 1;
            blocks[1][7] ^= 8;
        };
        assert_eq!(located(4, spoil), Located::Data(3));
        assert_eq!(located(3, spoil), Located::Unknown);
        let (p, q) = differences(4, spoil);
        assert_eq!(locate(&p, &q, |exponent| exponent != 3), Located::Unknown, "a hole");
    }

    proptest! {
        #[test]
        fn any_differences_are_explained_as_the_definition_says(
            exponent in 0..DATA_MAX,
            errors in prop::collection::vec((prop::bool::ANY, any::<u8>(), any::<u8>()), 1..40),
            width in 1..=DATA_MAX,
        ) {
            // Mostly one member's error, so that not everything is unknown.
            let stray = errors.len() > 30;
            let p: Vec<u8> = errors.iter().map(|&(_, p, _)| p).collect();
            let of_one = |p: u8| field::multiply(field::power(exponent), p);
            let q: Vec<u8> = errors
                .iter()
                .map(|&(odd, p, q)| if odd && stray { q } else { of_one(p) })
                .collect();
            let holds_data = |exponent| exponent < width;
            prop_assert_eq!(locate(&p, &q, holds_data), explained(&p, &q, holds_data));
        }
    }
}
