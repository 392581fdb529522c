//! The verdict on members that say anything about themselves.
#![no_main]

use format::md::{
    Candidate, Features, Implausible, Layout, MemberView, Place, Role, Superblock, Timestamp, Uuid,
    Verdict, Version, decide,
};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

/// Small numbers, so that members meet and contradict each other.
#[derive(Arbitrary, Debug)]
struct Claim {
    drive: u8,
    set: u8,
    device: u8,
    dev_number: u8,
    raid_disks: u8,
    level: i8,
    events: u8,
    updated: u8,
    features: u16,
    delta_disks: i8,
    implausible: bool,
    roles: Vec<u8>,
}

fn candidate(claim: &Claim) -> Candidate {
    let place = Place { version: Version::V1_1, offset_bytes: 0 };
    let roles = claim.roles.iter().take(64).map(|&role| match role {
        0..=31 => u16::from(role),
        other => 0xff00 | u16::from(other),
    });
    let codes: Vec<u8> = roles.flat_map(u16::to_le_bytes).collect();
    let mut bytes = vec![0; 256 + codes.len()];
    bytes[..8].copy_from_slice(&[0xfc, 0x4e, 0x2b, 0xa9, 1, 0, 0, 0]);
    bytes[220..224].copy_from_slice(&(codes.len() as u32 / 2).to_le_bytes());
    bytes[256..].copy_from_slice(&codes);
    let mut sum: u64 = bytes
        .chunks(4)
        .map(|word| word.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
        .sum();
    sum = (sum & 0xffff_ffff) + (sum >> 32);
    bytes[216..220].copy_from_slice(&(sum as u32).to_le_bytes());
    let mut superblock = Superblock::parse(&bytes, place).expect("made right");
    superblock.set_uuid = Uuid([claim.set % 3; 16]);
    superblock.device_uuid = Uuid([claim.device % 8; 16]);
    superblock.dev_number = u32::from(claim.dev_number % 16);
    superblock.raid_disks = u32::from(claim.raid_disks % 16);
    superblock.level = format::md::Level::from_code(i32::from(claim.level));
    superblock.events = u64::from(claim.events % 8);
    superblock.updated = Timestamp::new(u64::from(claim.updated % 4), 0);
    superblock.features = Features(claim.features.into());
    superblock.reshape.delta_disks = i32::from(claim.delta_disks);
    Candidate {
        drive: usize::from(claim.drive % 8),
        view: MemberView::from(&superblock),
        implausible: claim.implausible.then_some(Implausible::NoDisks),
    }
}

fn can_run(layout: &Layout, present: &[bool]) -> bool {
    assert_eq!(layout.raid_disks as usize, present.len());
    present.iter().filter(|present| !**present).count() <= 1
}

fuzz_target!(|claims: Vec<Claim>| {
    let all: Vec<Candidate> = claims.iter().take(24).map(candidate).collect();
    let sets = decide(&all, &can_run);
    let judged: usize = sets.iter().map(|set| set.verdicts.len()).sum();
    assert_eq!(judged, all.len());
    for set in &sets {
        for &(index, verdict) in &set.verdicts {
            if let Verdict::InSync { slot } = verdict {
                assert_eq!(set.slots[usize::from(slot)], Some(index));
                assert_eq!(all[index].view.role, Role::Slot(slot));
            }
        }
    }
});
