//! Finding the one wrong member of a RAID 6 stripe.
//!
//! Let Pd and Qd be the stored P and Q XOR those computed from the data. If data member k is
//! wrong by E, then Pd = E and Qd = g^k E at each byte, so k is the difference of their
//! logarithms. If P or Q itself is wrong, only its own difference isn't zero.
//!
//! One byte may mislead: two wrong members look like a third at some places. Hence all bytes of
//! a chunk have to name the same one. What can't be told at all is a damage of two or more
//! members that was made to look like another one's; accidents don't do that over a chunk.

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
    /// The data with this exponent. May be a hole's, which then means [`Located::Unknown`]:
    /// the holes are known to the caller only.
    Data(usize),
    /// More than one member, and nobody can say which.
    Unknown,
}

/// Finds the wrong member from the differences of P and Q over a chunk.
///
/// `p_difference` and `q_difference`: stored XOR computed P and Q; `data_count`: number of places
/// for data, holes included.
///
/// # Panics
/// If the lengths differ.
pub fn locate(p_difference: &[u8], q_difference: &[u8], data_count: usize) -> Located {
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
        Located::Data(exponent) if exponent >= data_count => Located::Unknown,
        _ => located,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kernel;

    /// The differences after `spoil` has changed P (index 0), Q (1) or data (2 and on).
    fn located(data_count: usize, spoil: impl Fn(&mut [Vec<u8>])) -> Located {
        let mut blocks: Vec<Vec<u8>> =
            (0..data_count + 2).map(|k| vec![(k * 31) as u8; 70]).collect();
        let difference = |blocks: &[Vec<u8>]| {
            let (mut p, mut q) = (vec![0; 70], vec![0; 70]);
            let data: Vec<Option<&[u8]>> = blocks[2..].iter().map(|b| Some(&b[..])).collect();
            Kernel::best().pq(&mut p, &mut q, &data);
            (p, q)
        };
        let (p, q) = difference(&blocks);
        (blocks[0], blocks[1]) = (p, q);
        spoil(&mut blocks);
        let (mut p, mut q) = difference(&blocks);
        crate::xor_into(&mut p, &blocks[0]);
        crate::xor_into(&mut q, &blocks[1]);
        locate(&p, &q, data_count)
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

    #[test]
    fn two_wrong_members_are_unknown() {
        let found = located(8, |blocks| {
            blocks[2][7] ^= 1;
            blocks[3][8] ^= 1;
        });
        assert_eq!(found, Located::Unknown);
        let found = located(8, |blocks| {
            blocks[0][7] ^= 1;
            blocks[1][8] ^= 1;
        });
        assert_eq!(found, Located::Unknown);
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
    }
}
