//! Making and updating redundancy, with the fastest kernel.
//!
//! All functions panic if the slices differ in length: that is the caller's mistake, never the
//! content of a drive.

use crate::field;
use crate::kernel::Kernel;

/// Sets `destination` to the XOR of all `sources`: P of RAID 5 and 6. Zeroes if there are none.
///
/// # Panics
/// If a source has another length than `destination`.
pub fn xor(destination: &mut [u8], sources: &[&[u8]]) {
    Kernel::best().xor(destination, sources);
}

/// XORs `source` into `destination`.
///
/// # Panics
/// If the lengths differ.
pub fn xor_into(destination: &mut [u8], source: &[u8]) {
    Kernel::best().xor_into(destination, source);
}

/// Sets `p` and `q` to RAID 6's redundancy of `data`, whose index is the exponent of g in Q.
/// `None` is a hole and counts as zeroes.
///
/// # Panics
/// If lengths differ, or there are more than [`field::DATA_MAX`] places.
pub fn pq(p: &mut [u8], q: &mut [u8], data: &[Option<&[u8]>]) {
    Kernel::best().pq(p, q, data);
}

/// Sets `q` as [`pq`] does, without P.
///
/// # Panics
/// If lengths differ, or there are more than [`field::DATA_MAX`] places.
pub fn q(q: &mut [u8], data: &[Option<&[u8]>]) {
    Kernel::best().q(q, data);
}

/// Brings `p` up to date after a data block has changed by `delta`, its old XOR its new content.
///
/// # Panics
/// If the lengths differ.
pub fn update_p(p: &mut [u8], delta: &[u8]) {
    Kernel::best().xor_into(p, delta);
}

/// Brings `q` up to date after the data block of `exponent` has changed by `delta`, its old XOR
/// its new content.
///
/// # Panics
/// If the lengths differ, or `exponent` isn't below [`field::DATA_MAX`].
pub fn update_q(q: &mut [u8], delta: &[u8], exponent: usize) {
    assert!(exponent < field::DATA_MAX, "exponents end at {}", field::DATA_MAX - 1);
    Kernel::best().multiply_into(q, delta, field::power(exponent));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P and Q of single bytes, by exponent.
    fn pq_of_bytes(bytes: &[u8]) -> (u8, u8) {
        let data: Vec<Option<&[u8]>> = bytes.chunks(1).map(Some).collect();
        let (mut p, mut q_with_p, mut q_alone) = ([0], [0], [0]);
        pq(&mut p, &mut q_with_p, &data);
        q(&mut q_alone, &data);
        assert_eq!(q_with_p, q_alone);
        (p[0], q_with_p[0])
    }

    #[test]
    fn known_vectors() {
        assert_eq!(pq_of_bytes(&[1, 2, 3, 4]), (0x04, 0x29));
        assert_eq!(pq_of_bytes(&[0x80, 0x53, 0xff, 0xa5, 0x01, 0x7e]), (0xf6, 0xd7));
        assert_eq!(pq_of_bytes(&[]), (0, 0));
        assert_eq!(pq_of_bytes(&[0x5a]), (0x5a, 0x5a));
    }

    #[test]
    fn a_hole_shifts_the_exponents_behind_it() {
        let (mut p, mut q) = ([0], [0]);
        pq(&mut p, &mut q, &[None, Some(&[1]), None, Some(&[1]), None]);
        assert_eq!((p, q), ([0], [0b1010]));
    }

    #[test]
    fn updates_equal_a_new_computation() {
        let blocks: Vec<Vec<u8>> =
            (0..9u8).map(|k| (0..100u8).map(|i| i.wrapping_mul(k ^ 0x35)).collect()).collect();
        let mut data: Vec<Option<&[u8]>> = blocks[..8].iter().map(|b| Some(&b[..])).collect();
        let (mut p_old, mut q_old) = (vec![0; 100], vec![0; 100]);
        pq(&mut p_old, &mut q_old, &data);
        for exponent in 0..8 {
            let mut delta = vec![0; 100];
            xor(&mut delta, &[&blocks[exponent], &blocks[8]]);
            let (mut p_updated, mut q_updated) = (p_old.clone(), q_old.clone());
            update_p(&mut p_updated, &delta);
            update_q(&mut q_updated, &delta, exponent);

            let old = data[exponent].replace(&blocks[8]);
            let (mut p_new, mut q_new) = (vec![0; 100], vec![0; 100]);
            pq(&mut p_new, &mut q_new, &data);
            data[exponent] = old;
            assert_eq!((p_updated, q_updated), (p_new, q_new), "exponent {exponent}");
        }
    }

    #[test]
    #[should_panic(expected = "exponents end at 254")]
    fn an_exponent_that_would_wrap_is_refused() {
        update_q(&mut [0], &[0], 255);
    }
}
