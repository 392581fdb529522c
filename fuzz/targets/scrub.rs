//! What members remember of a scrub; its checksum is made right so that fields are reached.
#![no_main]

use format::own::scrub::{FINDINGS_MAX, SCRUB_BLOCK_BYTES, ScrubRecord};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = ScrubRecord::parse(data);
    let mut bytes = vec![0; SCRUB_BLOCK_BYTES];
    let count = data.len().min(SCRUB_BLOCK_BYTES - 16);
    bytes[16..16 + count].copy_from_slice(&data[..count]);
    bytes[..8].copy_from_slice(b"BPLNscrb");
    bytes[8] = 1;
    let sum = crc32c(&bytes);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    if let Ok(record) = ScrubRecord::parse(&bytes) {
        assert!(record.findings.len() <= FINDINGS_MAX);
        assert_eq!(ScrubRecord::parse(&record.build()), Ok(record));
    }
});

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg())
        })
    })
}
