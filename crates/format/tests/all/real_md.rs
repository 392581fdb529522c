//! Metadata written by a real md, cut out of its members (see `tests/data/README.md`).

use std::collections::BTreeSet;

use crate::common::{CutMember, members, sets};
use format::md::journal::{JOURNAL_BLOCK_BYTES, JournalError, JournalPayload, MetaBlock, wrap};
use format::md::{
    BITMAP_HEADER_BYTES, BitmapHeader, ConsistencyPlace, Level, MemberView, PplLog, Resync, Role,
    SUPERBLOCK_BYTES, Superblock, SuperblockError, Version, parse_bad_blocks, parse090, place090,
    places,
};

/// Every version 1 superblock on the member.
fn superblocks(member: &CutMember) -> Vec<(Superblock, Vec<u8>)> {
    places(member.device_bytes)
        .filter_map(|place| {
            let bytes = member.read(place.offset_bytes, SUPERBLOCK_BYTES);
            match Superblock::parse(&bytes, place) {
                Ok(superblock) => Some((superblock, bytes)),
                Err(SuperblockError::BadMagic { .. }) => None,
                Err(error) => panic!("{}: {error}", member.name),
            }
        })
        .collect()
}

/// The only version 1 superblock of the member, as a view.
fn view(member: &CutMember) -> MemberView {
    let found = superblocks(member);
    assert_eq!(found.len(), 1, "{}", member.name);
    MemberView::from(&found[0].0)
}

#[test]
fn every_superblock_survives_the_round_trip_and_fits_its_member() {
    let mut count = 0;
    for set in sets() {
        for member in members(&set) {
            for (superblock, bytes) in superblocks(&member) {
                assert_eq!(superblock.build(), bytes, "{set} {}", member.name);
                assert_eq!(superblock.validate(member.device_bytes), Ok(()), "{set}");
                count += 1;
            }
        }
    }
    assert!(count > 200, "only {count} superblocks found");
}

#[test]
fn a_superblock_on_a_shortened_member_is_refused() {
    let member = &members("raid5-4-c64-v11-bitmap")[0];
    let (superblock, _) = &superblocks(member)[0];
    let shortened = superblock.validate(member.device_bytes - (1 << 20));
    let message = shortened.expect_err("too short").to_string();
    assert!(message.ends_with("1048576 bytes past the end of the drive"), "{message}");
}

#[test]
fn version_0_90() {
    for (slot, member) in members("linear-3-unequal-v090").iter().enumerate() {
        let offset = place090(member.device_bytes).expect("large enough");
        let view = parse090(&member.read(offset, 4096), offset).expect("valid");
        assert_eq!(view.version, Version::V0_90);
        assert_eq!(view.set_uuid.to_string(), "bd677b65:6f510fd1:f82f8962:5ef483a1");
        assert_eq!((view.layout.level, view.layout.raid_disks), (Level::Linear, 3));
        assert_eq!(view.role, Role::Slot(slot as u16));
        assert_eq!((view.events, view.resync), (1, Resync::Clean));
        assert_eq!(view.data_bytes, offset);
    }
}

#[test]
fn a_dirty_bitmap_names_the_chunks_in_flight() {
    for set in ["raid5-4-dirty-bitmap-v12", "raid1-2-v10-bitmap", "raid5-4-c64-v11-bitmap"] {
        for member in members(set) {
            let view = view(&member);
            let ConsistencyPlace::Bitmap { start } = view.consistency else {
                panic!("{set}: no bitmap");
            };
            let header = BitmapHeader::parse(&member.read(start, BITMAP_HEADER_BYTES));
            let header = header.expect("a bitmap");
            assert_eq!(header.set_uuid, view.set_uuid);
            assert!(header.is_current(view.events), "{set}: {header:?}");
            assert_eq!(header.sync_sectors * 512, view.used_bytes);
            let area = member.read(start, header.area_bytes() as usize);
            let dirty: u64 = header.dirty(&area).expect("whole").map(|range| range.length).sum();
            let is_clean = view.resync == Resync::Clean;
            assert_eq!(dirty == 0, is_clean, "{set}: {dirty} dirty bytes");
            assert!(dirty <= view.used_bytes);
        }
    }
}

#[test]
fn bad_blocks_are_counted_from_the_start_of_the_member() {
    let member = &members("raid5-4-badblocks-v12")[2];
    let place = view(member).bad_blocks.expect("a log");
    assert!(place.in_use);
    let log = member.read(place.range.start, place.range.length as usize);
    let ranges = parse_bad_blocks(&log, place.shift).expect("valid");
    let sectors: Vec<_> =
        ranges.iter().map(|range| (range.start / 512, range.length / 512)).collect();
    // What md's own sysfs file said.
    assert_eq!(sectors, [(2112, 8), (6144, 16)]);
}

#[test]
fn partial_parity_logs() {
    for (set, newest_generation_min) in [("raid5-4-ppl-dirty-v12", 17)] {
        for member in members(set) {
            let view = view(&member);
            let ConsistencyPlace::Ppl { range, multiple: true } = view.consistency else {
                panic!("{set}: no log");
            };
            let area = member.read(range.start, range.length as usize);
            let log = PplLog::newest(&area, view.set_uuid).expect("valid");
            assert!(log.generation >= newest_generation_min, "{}", log.generation);
            assert!(!log.entries.is_empty());
            for entry in &log.entries {
                let parity = entry.partial_parity(&area).expect("checked");
                assert_eq!(parity.len(), entry.partial_parity_bytes as usize);
            }
        }
    }
}

#[test]
fn a_journal_is_read_to_its_end() {
    let member = &members("raid5-3-journal-writeback-dirty-v12")[3];
    let view = view(member);
    assert_eq!(view.role, Role::Journal);
    let data = view.data();
    let ring_sectors = data.length / 4096 * 8;
    let read = |sector: u64| member.read(data.start + sector * 512, JOURNAL_BLOCK_BYTES);
    let mut position = view.journal_tail_bytes.expect("a journal") / 512;
    let (mut sequence, mut meta_blocks) = (None, 0);
    let mut data_sectors = BTreeSet::new();
    loop {
        let block = read(position);
        let meta = match MetaBlock::parse(&block, position, sequence, view.set_uuid) {
            Ok(meta) => meta,
            Err(JournalError::BadMagic { .. }) => break,
            Err(error) => panic!("block at {position}: {error}"),
        };
        for payload in meta.payloads() {
            match payload.expect("whole") {
                JournalPayload::Data(blocks) | JournalPayload::Parity(blocks) => {
                    for index in 0..blocks.count() {
                        let at = wrap(blocks.position + 8 * index as u64, ring_sectors);
                        assert!(blocks.check(index, &read(at), view.set_uuid), "block at {at}");
                    }
                    if let JournalPayload::Data(_) = payload.expect("whole") {
                        data_sectors.insert(blocks.location_sector);
                    }
                }
                JournalPayload::Flush(stripes) => assert!(stripes.sectors().count() > 0),
            }
        }
        meta_blocks += 1;
        sequence = Some(meta.sequence + 1);
        position = meta.next_position(ring_sectors).expect("whole");
    }
    assert_eq!(meta_blocks, 59);
    assert!(data_sectors.len() >= 120, "{} blocks", data_sectors.len());
}
