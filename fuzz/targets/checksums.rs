//! Header and pages of the checksums; their own checksums are made right so that fields are
//! reached.
#![no_main]

use format::md::Uuid;
use format::own::checksums::{Bond, Header, Owner, Standing, parse_page};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: (u64, u64, &[u8])| {
    let (epoch, number, tail) = data;
    let owner = Owner { set_uuid: Uuid([1; 16]), device_uuid: Uuid([2; 16]) };
    let _ = Header::parse(tail);
    let _ = parse_page(tail, &owner, epoch, number);
    let mut bytes = vec![0; 4096];
    let count = tail.len().min(4096 - 16);
    bytes[16..16 + count].copy_from_slice(&tail[..count]);
    bytes[..8].copy_from_slice(b"BPLNsums");
    bytes[8] = 1;
    bytes[12..16].fill(0);
    let sum = crc32c(&bytes);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    let header = Header::parse(&bytes).expect("magic, version and checksum are right");
    let bond = Bond { events: epoch, superblock_crc: number as u32 };
    let _ = Standing::judge([Some(header), None], &header.owner, bond);
    assert_eq!(Header::parse(&header.build()), Ok(header));
});

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg())
        })
    })
}
