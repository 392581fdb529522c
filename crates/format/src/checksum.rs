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

/// CRC-32 as zip uses it ("123456789" gives `cbf43926`).
pub(crate) fn crc32(parts: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32IsoHdlc);
    for part in parts {
        digest.update(part);
    }
    digest.finalize() as u32
}

/// The same polynomial started at zero and not inverted ("123456789" gives `2dfd2d88`), which
/// one family of DDF writers uses.
pub(crate) fn crc32_raw(parts: &[&[u8]]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32IsoHdlc, 0);
    for part in parts {
        digest.update(part);
    }
    !(digest.finalize() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        let digits: [&[u8]; 2] = [b"1234", b"56789"];
        assert_eq!(crc32c(&digits), 0xe306_9283);
        assert_eq!(crc32(&digits), 0xcbf4_3926);
        assert_eq!(crc32_raw(&digits), 0x2dfd_2d88);
        let uuid: [u8; 16] = core::array::from_fn(|index| index as u8);
        assert_eq!(crc32c(&[&uuid]), 0xd9c9_08eb);
    }
}
