//! The partial parity log; its checksums are made right so that entries are reached.
#![no_main]

use format::md::{PPL_HEADER_BYTES, PplLog, Uuid};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: (u32, &[u8])| {
    let (entries, tail) = data;
    let set = Uuid([1; 16]);
    let _ = PplLog::newest(tail, set);
    let mut area = PplLog::build_empty(set);
    let count = tail.len().min(PPL_HEADER_BYTES - 536);
    area[536..536 + count].copy_from_slice(&tail[..count]);
    area[528..532].copy_from_slice(&entries.to_le_bytes());
    area[532..536].fill(0);
    let sum = crc32c(&area);
    area[532..536].copy_from_slice(&sum.to_le_bytes());
    area.extend_from_slice(tail);
    if let Ok(log) = PplLog::newest(&area, set) {
        for entry in &log.entries {
            let _ = entry.partial_parity(&area);
        }
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
