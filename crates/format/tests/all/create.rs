//! Planned sets beside those mdadm made from the same request: every byte the same.

use format::md::{
    BITMAP_CHUNK_BYTES, Consistency, CreateRequest, Features, NewMember, SUPERBLOCK_BYTES,
    Superblock, initial_writes, places, plan_create,
};

use crate::common::{CutMember, members};

/// Sets whose members kept the numbers they were created with.
const SETS: [&str; 14] = [
    "raid0-3-unequal-alternate-v12",
    "raid0-3-unequal-original-v12",
    "raid1-2-v10-bitmap",
    "raid1-2-v12-writemostly",
    "raid1-2-degraded-v12",
    "raid6-5-left-asymmetric-v12",
    "raid6-5-degraded2-v12",
    "raid6-4-c64-v10",
    "raid6-7-c16-v12",
    "raid10-3-n2-v12",
    "raid10-4-f3-v12",
    "raid10-5-o3-v12",
    "raid10-4-n2-degraded2-v12",
    "raid10-4-n2-v12",
];

fn superblock(member: &CutMember) -> Superblock {
    let parsed = places(member.device_bytes).find_map(|place| {
        Superblock::parse(&member.read(place.offset_bytes, SUPERBLOCK_BYTES), place).ok()
    });
    parsed.expect("a superblock")
}

#[test]
fn planned_superblocks_are_mdadms() {
    for set in SETS {
        let members = members(set);
        let real: Vec<Superblock> = members.iter().map(superblock).collect();
        let first = &real[0];
        let mut slots = vec![None; first.raid_disks as usize];
        for (member, superblock) in members.iter().zip(&real) {
            slots[superblock.dev_number as usize] = Some(NewMember {
                device_bytes: member.device_bytes,
                device_uuid: superblock.device_uuid,
                devflags: superblock.devflags,
            });
        }
        let has_bitmap = first.features.contains(Features::BITMAP);
        let request = CreateRequest {
            version: first.place.version,
            set_uuid: first.set_uuid,
            name: first.name(),
            level: first.level,
            layout: first.layout,
            chunk_bytes: first.chunk_sectors * 512,
            slots,
            spares: Vec::new(),
            size_bytes: None,
            consistency: if has_bitmap { Consistency::Bitmap } else { Consistency::Resync },
            checksums: false,
            assume_clean: true,
            created: first.created,
        };
        let planned = plan_create(&request).expect("was made by mdadm too");
        assert_eq!(planned.len(), real.len(), "{set}");
        for ((planned, real), member) in planned.into_iter().zip(&real).zip(&members) {
            // What running the set changed.
            let planned = Superblock { events: real.events, updated: real.updated, ..planned };
            assert_eq!(&planned, real, "{set}");
            for (offset, bytes) in initial_writes(&planned, BITMAP_CHUNK_BYTES) {
                if offset == planned.place.offset_bytes {
                    assert_eq!(bytes, member.read(offset, SUPERBLOCK_BYTES), "{set}");
                }
            }
        }
    }
}
