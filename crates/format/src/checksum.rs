//! The CRCs of on-disk metadata.
//!
//! md's logs use CRC-32C, the partial parity log with the usual final inversion, the journal
//! without it and seeded with the set's uuid.

use crc_fast::{CrcAlgorithm, Digest};

/// CRC-32C over the parts one after the other, with the final inversion.
pub(crate) fn crc32c(parts: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    for part in parts {
        digest.update(part);
    }
    // A 32-bit CRC in a 64-bit answer.
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        let digits: [&[u8]; 2] = [b"1234", b"56789"];
        assert_eq!(crc32c(&digits), 0xe306_9283);
        let uuid: [u8; 16] = core::array::from_fn(|index| index as u8);
        assert_eq!(crc32c(&[&uuid]), 0xd9c9_08eb);
    }
}
