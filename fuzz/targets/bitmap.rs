//! The write-intent bitmap.
#![no_main]

use format::md::BitmapHeader;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = bytes.to_vec();
    if bytes.len() >= 256 {
        bytes[..4].copy_from_slice(b"bitm");
    }
    let Ok(header) = BitmapHeader::parse(&bytes) else { return };
    let Ok(dirty) = header.dirty(&bytes) else { return };
    let covered = u128::from(header.sync_sectors) * 512;
    let mut end = 0;
    for range in dirty {
        assert!(range.length > 0 && (range.start >= end || end == 0));
        end = range.start + range.length;
        assert!(u128::from(end) <= covered);
    }
});
