//! Products by a constant, in the two forms that registers full of bytes can use.
//!
//! Both are built by the compiler from the field's multiplication.

use crate::field::multiply;

/// `NIBBLE_PRODUCTS[c]`: c times 0x00 … 0x0f, then c times 0x00, 0x10 … 0xf0.
///
/// c times a byte is the XOR of two entries, one for each half of the byte; a byte shuffle
/// looks up 16 or more of them at once.
pub(super) static NIBBLE_PRODUCTS: [[u8; 32]; 256] = {
    let mut products = [[0; 32]; 256];
    let mut c = 0;
    while c < 256 {
        let mut nibble = 0;
        while nibble < 16 {
            products[c][nibble] = multiply(c as u8, nibble as u8);
            products[c][16 + nibble] = multiply(c as u8, (nibble as u8) << 4);
            nibble += 1;
        }
        c += 1;
    }
    products
};

/// `BIT_MATRICES[c]`: multiplication by c as an 8 x 8 bit matrix, as GFNI's affine
/// instruction reads it: byte 7 - i of the matrix selects the input bits whose parity is
/// output bit i.
///
/// GFNI's own multiplication can't serve: it is fixed to the polynomial 0x11b.
pub(super) static BIT_MATRICES: [u64; 256] = {
    let mut matrices = [0; 256];
    let mut c = 0;
    while c < 256 {
        let mut column = 0;
        while column < 8 {
            let product = multiply(c as u8, 1 << column);
            let mut bit = 0;
            while bit < 8 {
                if product >> bit & 1 == 1 {
                    matrices[c] |= 1 << (8 * (7 - bit) + column);
                }
                bit += 1;
            }
            column += 1;
        }
        c += 1;
    }
    matrices
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_hold_products() {
        for c in 0..=255u8 {
            for byte in 0..=255u8 {
                let nibbles = &NIBBLE_PRODUCTS[usize::from(c)];
                let looked_up =
                    nibbles[usize::from(byte & 15)] ^ nibbles[16 + usize::from(byte >> 4)];
                assert_eq!(looked_up, multiply(c, byte));

                let matrix = BIT_MATRICES[usize::from(c)].to_be_bytes();
                let transformed = (0..8)
                    .fold(0, |bits, i| bits | ((matrix[i] & byte).count_ones() as u8 & 1) << i);
                assert_eq!(transformed, multiply(c, byte));
            }
        }
    }
}
