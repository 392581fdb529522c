//! What lives on a drive, from any two ends.
#![no_main]

use format::probe::probe;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: (u64, usize, &[u8])| {
    let (device_bytes, split, bytes) = data;
    let (head, tail) = bytes.split_at(split % (bytes.len() + 1));
    for finding in probe(head, tail, device_bytes) {
        assert!(finding.offset_bytes < device_bytes);
        let _ = finding.to_string();
    }
});
