//! File systems and volumes: a magic at a fixed place near the start (ZFS and DRBD also near the
//! end).

use super::text::{label, label_utf16, uuid};
use super::{Ends, Finding, Kind};
use crate::bytes::{array, u16_le, u32_le, u64_le};

/// A format that is known by one magic.
struct Format {
    kind: Kind,
    /// Where its structure starts.
    start: u64,
    /// Bytes of the structure needed.
    length: usize,
    magic_offset: usize,
    magic: &'static [u8],
    uuid_offset: Option<usize>,
    /// Offset and length.
    label: Option<(usize, usize)>,
}

const BCACHE_MAGIC: [u8; 16] = [
    0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d, 0x81,
];
const BCACHEFS_MAGIC: [u8; 16] = [
    0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9, 0xd9, 0x6a, 0x60, 0xcf, 0x80, 0x3d, 0xf7, 0xef,
];

/// kind, start, length, magic place, magic, uuid place, label place.
const fn format(
    (kind, start, length): (Kind, u64, usize),
    (magic_offset, magic): (usize, &'static [u8]),
    uuid_offset: Option<usize>,
    label: Option<(usize, usize)>,
) -> Format {
    Format { kind, start, length, magic_offset, magic, uuid_offset, label }
}

const FORMATS: [Format; 11] = [
    format((Kind::Xfs, 0, 512), (0, b"XFSB"), Some(32), Some((108, 12))),
    format((Kind::Btrfs, 65536, 4096), (64, b"_BHRfS_M"), Some(32), Some((299, 256))),
    format((Kind::Iso9660, 32768, 2048), (1, b"CD001"), None, Some((40, 32))),
    format((Kind::Jfs, 32768, 512), (0, b"JFS1"), Some(136), Some((152, 16))),
    format((Kind::Reiserfs, 65536, 512), (52, b"ReIsEr"), Some(84), Some((100, 16))),
    format((Kind::Apfs, 0, 512), (32, b"NXSB"), Some(72), None),
    format((Kind::Bcache, 4096, 512), (24, &BCACHE_MAGIC), Some(40), Some((72, 32))),
    format((Kind::Bcachefs, 4096, 512), (24, &BCACHEFS_MAGIC), Some(56), Some((72, 32))),
    format((Kind::BlueStore, 0, 512), (0, b"bluestore block device"), None, None),
    format((Kind::Spdk, 0, 512), (0, b"SPDKRAID"), Some(24), Some((40, 64))),
    format((Kind::F2fs, 1024, 2048), (0, &[0x10, 0x20, 0xf5, 0xf2]), Some(108), None),
];

pub(super) fn find(ends: &Ends<'_>, findings: &mut Vec<Finding>) {
    for format in &FORMATS {
        findings.extend(by_magic(ends, format));
    }
    findings.extend(ext(ends));
    findings.extend(boot_sector(ends));
    findings.extend(swap(ends));
    findings.extend(lvm2(ends));
    findings.extend(luks(ends));
    zfs(ends, findings);
    findings.extend(drbd(ends));
}

fn by_magic(ends: &Ends<'_>, format: &Format) -> Option<Finding> {
    let bytes = ends.at(format.start, format.length)?;
    if !bytes[format.magic_offset..].starts_with(format.magic) {
        return None;
    }
    let id = format.uuid_offset.and_then(|offset| uuid(&bytes[offset..offset + 16]));
    let text = match format.kind {
        Kind::F2fs => label_utf16(&bytes[124..1148]),
        _ => format.label.and_then(|(offset, length)| label(&bytes[offset..offset + length])),
    };
    Some(Finding::new(format.kind, format.start).with_id(id).with_label(text))
}

fn ext(ends: &Ends<'_>) -> Option<Finding> {
    const HAS_JOURNAL: u32 = 4;
    const JOURNAL_DEVICE: u32 = 8;
    /// Extents, 64 bit, flexible groups and later: what ext3 does not have.
    const BEYOND_EXT3: u32 = !0x1f;
    let bytes = ends.at(1024, 1024)?;
    if u16_le(bytes, 56) != 0xef53 {
        return None;
    }
    // Two bytes are little: block size and state must make sense too.
    if u32_le(bytes, 24) > 6 || u32_le(bytes, 4) == 0 {
        return None;
    }
    let (compat, incompat) = (u32_le(bytes, 92), u32_le(bytes, 96));
    let kind = if incompat & JOURNAL_DEVICE != 0 {
        Kind::ExtJournal
    } else if incompat & BEYOND_EXT3 != 0 {
        Kind::Ext4
    } else if compat & HAS_JOURNAL != 0 {
        Kind::Ext3
    } else {
        Kind::Ext2
    };
    let finding = Finding::new(kind, 1024).with_id(uuid(&bytes[104..120]));
    Some(finding.with_label(label(&bytes[120..136])))
}

/// NTFS, exFAT and FAT, which all start with a boot sector.
fn boot_sector(ends: &Ends<'_>) -> Option<Finding> {
    let sector = ends.at(0, 512)?;
    if sector[510..] != [0x55, 0xaa] {
        return None;
    }
    match &sector[3..11] {
        b"NTFS    " => {
            let id = format!("{:016X}", u64_le(sector, 72));
            return Some(Finding::new(Kind::Ntfs, 0).with_id(id));
        }
        b"EXFAT   " => {
            return Some(Finding::new(Kind::ExFat, 0).with_id(fat_serial(u32_le(sector, 100))));
        }
        _ => {}
    }
    let sector_bytes = u16_le(sector, 11);
    if !matches!(sector[0], 0xe9 | 0xeb) || !matches!(sector_bytes, 512 | 1024 | 2048 | 4096) {
        return None;
    }
    let (serial, name) = match (&sector[54..57], &sector[82..87]) {
        (_, b"FAT32") => (67, 71),
        (b"FAT", _) => (39, 43),
        _ => return None,
    };
    let text = label(&sector[name..name + 11]).filter(|text| text != "NO NAME");
    let id = fat_serial(u32_le(sector, serial));
    Some(Finding::new(Kind::Fat, 0).with_id(id).with_label(text))
}

fn fat_serial(serial: u32) -> String {
    format!("{:04X}-{:04X}", serial >> 16, serial & 0xffff)
}

/// The magic ends the first page, whose size is the machine's.
fn swap(ends: &Ends<'_>) -> Option<Finding> {
    [4096, 8192, 16384, 32768, 65536].into_iter().find_map(|page: u64| {
        let magic = ends.at(page - 10, 10)?;
        if magic != b"SWAPSPACE2" && magic != b"SWAP-SPACE" {
            return None;
        }
        let header = ends.at(1024, 512)?;
        let finding = Finding::new(Kind::Swap, 0).with_id(uuid(&header[12..28]));
        Some(finding.with_label(label(&header[28..44])))
    })
}

/// The label is in one of the first four sectors.
fn lvm2(ends: &Ends<'_>) -> Option<Finding> {
    (0..4).map(|sector| sector * 512).find_map(|offset| {
        let sector = ends.at(offset, 512)?;
        if !sector.starts_with(b"LABELONE") || &sector[24..32] != b"LVM2 001" {
            return None;
        }
        let start = u32_le(sector, 20) as usize;
        let id = sector.get(start..start.saturating_add(32)).and_then(label);
        Some(Finding::new(Kind::Lvm2, offset).with_id(id))
    })
}

fn luks(ends: &Ends<'_>) -> Option<Finding> {
    let bytes = ends.at(0, 512)?;
    if !bytes.starts_with(b"LUKS\xba\xbe") {
        return None;
    }
    let (kind, name) = match u16::from_be_bytes(array(bytes, 6)) {
        1 => (Kind::Luks1, None),
        _ => (Kind::Luks2, label(&bytes[24..72])),
    };
    Some(Finding::new(kind, 0).with_id(label(&bytes[168..208])).with_label(name))
}

/// Four labels of 256 KiB, two at each end. In each, the upper half is a ring of uberblocks.
fn zfs(ends: &Ends<'_>, findings: &mut Vec<Finding>) {
    const LABEL: u64 = 256 << 10;
    const RING: u64 = 128 << 10;
    const MAGIC: u64 = 0x00ba_b10c;
    let last = ends.device_bytes / LABEL * LABEL;
    let labels = [Some(0), Some(LABEL), last.checked_sub(2 * LABEL), last.checked_sub(LABEL)];
    for start in labels.into_iter().flatten() {
        let is_uberblock = |slot: u64| {
            let word = ends.at(start + RING + slot * 1024, 8).map(|word| u64_le(word, 0));
            word == Some(MAGIC) || word == Some(MAGIC.swap_bytes())
        };
        if (0..RING / 1024).any(is_uberblock) {
            findings.push(Finding::new(Kind::Zfs, start));
        }
    }
}

/// Internal metadata: in the last whole 4 KiB.
fn drbd(ends: &Ends<'_>) -> Option<Finding> {
    let offset = (ends.device_bytes / 4096).checked_sub(1)? * 4096;
    let magic = u32::from_be_bytes(array(ends.at(offset, 64)?, 60));
    matches!(magic, 0x8374_026b..=0x8374_026d).then(|| Finding::new(Kind::Drbd, offset))
}

#[cfg(test)]
mod tests {
    use super::super::{HEAD_BYTES, TAIL_BYTES, probe};
    use super::*;

    /// A drive with `marks` on it.
    fn drive(marks: &[(usize, &[u8])]) -> Vec<Finding> {
        let mut bytes = vec![0; HEAD_BYTES + TAIL_BYTES];
        for &(offset, mark) in marks {
            bytes[offset..offset + mark.len()].copy_from_slice(mark);
        }
        let (head, tail) = bytes.split_at(HEAD_BYTES);
        probe(head, tail, bytes.len() as u64)
    }

    #[test]
    fn every_magic_is_found_where_it_belongs() {
        for format in &FORMATS {
            let offset = format.start as usize + format.magic_offset;
            let findings = drive(&[(offset, format.magic)]);
            assert_eq!(findings.len(), 1, "{}", format.kind);
            assert_eq!((findings[0].kind, findings[0].offset_bytes), (format.kind, format.start));
            assert_eq!(drive(&[(offset + 1, format.magic)]), [], "{}", format.kind);
        }
    }

    #[test]
    fn identities_and_labels() {
        let one = |marks: &[(usize, &[u8])]| {
            let mut findings = drive(marks);
            assert_eq!(findings.len(), 1);
            let finding = findings.remove(0);
            (finding.kind, finding.id.unwrap_or_default(), finding.label.unwrap_or_default())
        };
        let text = |kind, id: &str, label: &str| (kind, id.to_owned(), label.to_owned());
        let id = "01010101-0101-0101-0101-010101010101";
        let ext = [(1024 + 4, &[1][..]), (1024 + 56, &[0x53, 0xef]), (1024 + 104, &[1; 16])];
        assert_eq!(one(&ext), text(Kind::Ext2, id, ""));
        let ext4 = [&ext[..], &[(1024 + 96, &[0x40]), (1024 + 120, b"home")]].concat();
        assert_eq!(one(&ext4), text(Kind::Ext4, id, "home"));
        let ntfs = [(3, &b"NTFS    "[..]), (72, &[1]), (510, &[0x55, 0xaa])];
        assert_eq!(one(&ntfs), text(Kind::Ntfs, "0000000000000001", ""));
        let fat = [
            (0, &[0xeb][..]),
            (12, &[2]),
            (67, &[0x78, 0x56, 0x34, 0x12]),
            (71, b"STICK      FAT32"),
            (510, &[0x55, 0xaa]),
        ];
        assert_eq!(one(&fat), text(Kind::Fat, "1234-5678", "STICK      FAT32".split_at(5).0));
        let swap = [(4086, &b"SWAPSPACE2"[..]), (1024 + 12, &[1; 16])];
        assert_eq!(one(&swap), text(Kind::Swap, id, ""));
        let lvm = [(512, &b"LABELONE"[..]), (532, &[32]), (536, b"LVM2 001"), (544, b"abcdef")];
        assert_eq!(one(&lvm), text(Kind::Lvm2, "abcdef", ""));
        let luks = [(0, &b"LUKS\xba\xbe\0\x02"[..]), (24, b"vault"), (168, b"the-uuid")];
        assert_eq!(one(&luks), text(Kind::Luks2, "the-uuid", "vault"));
    }

    #[test]
    fn zfs_and_drbd_are_found_at_the_end() {
        let end = HEAD_BYTES + TAIL_BYTES;
        let magic = 0x00ba_b10c_u64.to_be_bytes();
        let findings = drive(&[(end - (128 << 10) + 2048, &magic)]);
        assert_eq!(findings, [Finding::new(Kind::Zfs, end as u64 - (256 << 10))]);
        let findings = drive(&[(end - 4096 + 60, &[0x83, 0x74, 0x02, 0x6d])]);
        assert_eq!(findings, [Finding::new(Kind::Drbd, end as u64 - 4096)]);
    }
}
