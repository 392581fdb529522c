//! No parser panics, whatever bytes it is given: random ones, and real ones with changes.

use format::md::journal::{MetaBlock, Payloads};
use format::md::{
    BitmapHeader, MemberView, Place, PplLog, Superblock, Uuid, Version, parse_bad_blocks, parse090,
};
use proptest::prelude::*;

use crate::common::members;

const SET: Uuid = Uuid([1; 16]);

/// Gives the bytes to every parser and uses what comes out.
fn parse_all(bytes: &[u8]) {
    for version in [Version::V1_0, Version::V1_1, Version::V1_2] {
        let Some(place) = Place::of(version, 1 << 30) else { continue };
        if let Ok(superblock) = Superblock::parse(bytes, place) {
            let _ = superblock.validate(1 << 30);
            let _ = MemberView::from(&superblock);
            assert_eq!(Superblock::parse(&superblock.build(), place), Ok(superblock));
        }
    }
    let _ = parse090(bytes, 1 << 20);
    if let Ok(header) = BitmapHeader::parse(bytes)
        && let Ok(dirty) = header.dirty(bytes)
    {
        let _ = dirty.count();
    }
    let _ = parse_bad_blocks(bytes, bytes.first().copied().unwrap_or(0));
    if let Ok(log) = PplLog::newest(bytes, SET) {
        let _ = log.entries.iter().filter(|entry| entry.partial_parity(bytes).is_ok()).count();
    }
    if let Ok(meta) = MetaBlock::parse(bytes, 0, None, SET) {
        let _ = meta.payloads().collect::<Vec<_>>();
        let _ = meta.next_position(1 << 20);
    }
    // Payloads are only reached behind a right checksum: go there directly.
    let _ = Payloads::of(bytes).count();
}

/// Real metadata: a superblock, a bitmap, a log.
fn real() -> Vec<Vec<u8>> {
    let v11 = &members("raid5-4-c64-v11-bitmap")[0];
    let v090 = &members("linear-3-unequal-v090")[0];
    vec![
        v11.read(0, 4096),
        v11.read(4096, 4096),
        v090.read(v090.device_bytes - 65536, 4096),
        members("raid5-4-ppl-dirty-v12")[0].read(8192, 65536),
    ]
}

/// Mends the checksum of a version 1 superblock, so that changed fields are looked at.
fn mend(bytes: &mut [u8]) {
    let roles = u32::from_le_bytes(bytes[220..224].try_into().expect("four bytes"));
    let length = 256 + 2 * roles.min(1920) as usize;
    bytes[216..220].fill(0);
    let mut words = bytes[..length].to_vec();
    words.resize(length.next_multiple_of(4), 0);
    let word = |word: &[u8]| u64::from(u32::from_le_bytes(word.try_into().expect("four bytes")));
    let sum: u64 = words.chunks_exact(4).map(word).sum();
    let folded = (sum as u32).wrapping_add((sum >> 32) as u32);
    bytes[216..220].copy_from_slice(&folded.to_le_bytes());
}

proptest! {
    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..5000)) {
        parse_all(&bytes);
    }

    #[test]
    fn changed_bytes(which in 0..4_usize, changes in prop::collection::vec((0..4096_usize, any::<u8>()), 1..8)) {
        let mut bytes = real().swap_remove(which);
        for (offset, value) in changes {
            bytes[offset] = value;
        }
        parse_all(&bytes);
    }

    #[test]
    fn changed_superblocks_with_a_right_checksum(
        changes in prop::collection::vec((8..300_usize, any::<u8>()), 1..20),
        device_bytes in any::<u64>(),
    ) {
        let mut bytes = real().swap_remove(0);
        for (offset, value) in changes {
            bytes[offset] = value;
        }
        mend(&mut bytes);
        let place = Place { version: Version::V1_1, offset_bytes: 0 };
        if let Ok(superblock) = Superblock::parse(&bytes, place) {
            let _ = superblock.validate(device_bytes);
            let _ = MemberView::from(&superblock);
            // Behind the role table nothing is kept.
            let kept = 256 + 2 * superblock.roles.len();
            prop_assert_eq!(&superblock.build()[..kept], &bytes[..kept]);
        }
        parse_all(&bytes);
    }
}
