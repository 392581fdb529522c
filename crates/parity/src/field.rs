//! The field GF(2^8) in which Q is computed.
//!
//! A byte is a polynomial over GF(2); addition is XOR, multiplication is taken modulo
//! x^8 + x^4 + x^3 + x^2 + 1. The generator is the polynomial x, the byte 2: its powers
//! g^0 … g^254 are all non-zero bytes, each once. That is why Q can tell 255 data members
//! apart and no more.
//!
//! Source: H. P. Anvin, "The mathematics of RAID-6". The tables are built by
//! the compiler. Multiplication of whole slices lives in the kernels, not here.

/// The field's polynomial, x^8 + x^4 + x^3 + x^2 + 1, the one Linux md, DDF and ISA-L use.
pub const POLYNOMIAL: u16 = 0x11d;

/// What doubling adds when the top bit falls out: [`POLYNOMIAL`] without its x^8.
pub(crate) const REDUCTION: u8 = (POLYNOMIAL & 0xff) as u8;

/// Number of distinct powers of the generator, and so of data members a Q can cover.
pub const DATA_MAX: usize = 255;

/// `POWERS[k]` = g^k, twice over, so that the sum of two logarithms needs no modulo.
const POWERS: [u8; 2 * DATA_MAX] = {
    let mut powers = [0; 2 * DATA_MAX];
    let mut value = 1;
    let mut k = 0;
    while k < powers.len() {
        powers[k] = value;
        value = double(value);
        k += 1;
    }
    powers
};

/// `LOGARITHMS[g^k]` = k. The entry of 0, which has no logarithm, is never read.
const LOGARITHMS: [u8; 256] = {
    let mut logarithms = [0; 256];
    let mut k = 0;
    while k < DATA_MAX {
        logarithms[POWERS[k] as usize] = k as u8;
        k += 1;
    }
    logarithms
};

/// 2 times `a`.
pub const fn double(a: u8) -> u8 {
    (a << 1) ^ if a & 0x80 != 0 { REDUCTION } else { 0 }
}

/// The product of `a` and `b`.
pub const fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    POWERS[LOGARITHMS[a as usize] as usize + LOGARITHMS[b as usize] as usize]
}

/// g to the power of `exponent`; the powers repeat after 255.
pub const fn power(exponent: usize) -> u8 {
    POWERS[exponent % DATA_MAX]
}

/// The exponent k, 0 to 254, with g^k = `a`; none for 0.
pub const fn logarithm(a: u8) -> Option<u8> {
    if a == 0 { None } else { Some(LOGARITHMS[a as usize]) }
}

/// The byte whose product with `a` is 1; none for 0.
pub const fn inverse(a: u8) -> Option<u8> {
    match logarithm(a) {
        None => None,
        Some(k) => Some(power(DATA_MAX - k as usize)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Long multiplication, bit by bit, from the definition.
    fn multiply_by_definition(a: u8, b: u8) -> u8 {
        let mut product = 0u16;
        for bit in 0..8 {
            if b >> bit & 1 == 1 {
                product ^= u16::from(a) << bit;
            }
        }
        for bit in (8..16).rev() {
            if product >> bit & 1 == 1 {
                product ^= POLYNOMIAL << (bit - 8);
            }
        }
        product as u8
    }

    #[test]
    fn multiplication_follows_the_definition_and_commutes() {
        for a in 0..=255u8 {
            for b in 0..=255u8 {
                assert_eq!(multiply(a, b), multiply_by_definition(a, b), "{a} * {b}");
                assert_eq!(multiply(a, b), multiply(b, a));
            }
            assert_eq!(multiply(a, 1), a);
            assert_eq!(multiply(a, 2), double(a));
        }
    }

    #[test]
    fn multiplication_associates_and_distributes() {
        for a in 0..=255u8 {
            for b in 0..=255u8 {
                for c in [0, 1, 2, 3, 0x1d, 0x53, 0x80, 0x8e, 0xca, 0xff] {
                    assert_eq!(multiply(multiply(a, b), c), multiply(a, multiply(b, c)));
                    assert_eq!(multiply(a ^ b, c), multiply(a, c) ^ multiply(b, c));
                }
            }
        }
    }

    #[test]
    fn powers_are_the_known_ones_and_all_distinct() {
        let known = [1, 2, 4, 8, 0x10, 0x20, 0x40, 0x80, 0x1d, 0x3a];
        for (exponent, value) in known.into_iter().enumerate() {
            assert_eq!(power(exponent), value);
        }
        let distinct: std::collections::BTreeSet<u8> = (0..DATA_MAX).map(power).collect();
        assert_eq!(distinct.len(), DATA_MAX);
        assert_eq!(power(DATA_MAX), 1);
        assert_eq!(power(usize::MAX), power(usize::MAX % DATA_MAX));
    }

    #[test]
    fn logarithm_and_inverse_undo_their_functions() {
        assert_eq!(logarithm(0), None);
        assert_eq!(inverse(0), None);
        assert_eq!(inverse(2), Some(0x8e));
        for a in 1..=255u8 {
            assert_eq!(power(logarithm(a).unwrap().into()), a);
            assert_eq!(multiply(a, inverse(a).unwrap()), 1);
        }
    }
}
