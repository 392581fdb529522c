//! Superblocks of every version: parse, judge, view, build.
#![no_main]

use format::md::{MemberView, Place, Superblock, Version, parse090};
use libfuzzer_sys::fuzz_target;

/// md's checksum, so that changed fields are not all stopped by it.
fn mend(bytes: &mut [u8]) {
    let roles = u32::from_le_bytes([bytes[220], bytes[221], bytes[222], bytes[223]]);
    let length = 256 + 2 * roles.min(1920) as usize;
    bytes[216..220].fill(0);
    let Some(covered) = bytes.get(..length) else { return };
    let word = |word: &[u8]| {
        let mut whole = [0; 4];
        whole[..word.len()].copy_from_slice(word);
        u64::from(u32::from_le_bytes(whole))
    };
    let sum: u64 = covered.chunks(4).map(word).sum();
    let folded = (sum as u32).wrapping_add((sum >> 32) as u32);
    bytes[216..220].copy_from_slice(&folded.to_le_bytes());
}

fuzz_target!(|data: (u64, &[u8])| {
    let (device_bytes, bytes) = data;
    let mut bytes = bytes.to_vec();
    let _ = parse090(&bytes, device_bytes).map(|view| view.data());
    for version in [Version::V1_0, Version::V1_1, Version::V1_2] {
        let Some(place) = Place::of(version, device_bytes) else { continue };
        if bytes.len() >= 256 {
            bytes[..8].copy_from_slice(&[0xfc, 0x4e, 0x2b, 0xa9, 1, 0, 0, 0]);
            bytes[144..152].copy_from_slice(&(place.offset_bytes / 512).to_le_bytes());
            mend(&mut bytes);
        }
        if let Ok(superblock) = Superblock::parse(&bytes, place) {
            let _ = superblock.validate(device_bytes);
            let _ = MemberView::from(&superblock).data();
            let built = superblock.build();
            let kept = 256 + 2 * superblock.roles.len();
            assert_eq!(built[..kept], bytes[..kept]);
        }
    }
});
