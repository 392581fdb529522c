//! RAID metadata by its place and mark: md, Intel, DDF and what motherboards and small cards
//! wrote. Most of it lies in the last sectors; places are given in sectors before the end.

use super::text::label;
use super::{Ends, Finding, Kind, SECTOR};
use crate::bytes::{array, u16_le, u32_le};
use crate::checksum::{crc32, crc32_raw};
use crate::md::{MAGIC, SUPERBLOCK_BYTES, Superblock, SuperblockError, parse090, place090, places};

/// Where Promise controllers put their metadata: sectors before the end.
const PROMISE_SECTORS: [u64; 12] = [63, 255, 256, 16, 399, 591, 675, 735, 911, 974, 991, 3087];

/// A mark at a fixed place: kind, sectors before the end, offset in the sector, mark.
const MARKS: [(Kind, u64, usize, &[u8]); 8] = [
    (Kind::Highpoint45x, 11, 0, &[0xf3, 0x16, 0x78, 0x5a]),
    (Kind::Nvidia, 2, 0, b"NVIDIA  "),
    (Kind::Ite, 2, 0, b"Integrated Technology Express Inc"),
    (Kind::Lsi, 1, 0, b"$XIDE$"),
    (Kind::Lsi, 4, 0, b"$_IDE$"),
    (Kind::Lsi, 4, 0, b"$_ENQ$31"),
    (Kind::Adaptec, 1, 0, &[0x37, 0xfc, 0x4d, 0x1e]),
    (Kind::IntelOld, 1, 0, b"$GAFR\x10"),
];

pub(super) fn find(ends: &Ends<'_>, findings: &mut Vec<Finding>) {
    md(ends, findings);
    imsm(ends, findings);
    ddf(ends, findings);
    findings.extend(highpoint37x(ends));
    for (kind, sectors, offset, mark) in MARKS {
        if let Some((place, sector)) = ends.before_end(sectors)
            && sector[offset..].starts_with(mark)
        {
            findings.push(Finding::new(kind, place));
        }
    }
    for sectors in PROMISE_SECTORS {
        if let Some((place, sector)) = ends.before_end(sectors)
            && sector.starts_with(b"Promise Technology, Inc.")
        {
            findings.push(Finding::new(Kind::Promise, place));
        }
    }
    for sectors in [1, 513, 1025, 1537] {
        if let Some((place, sector)) = ends.before_end(sectors)
            && is_silicon_image(sector)
        {
            findings.push(Finding::new(Kind::SiliconImage, place));
        }
    }
    if let Some((place, sector)) = ends.before_end(1) {
        if is_via(sector) {
            findings.push(Finding::new(Kind::Via, place));
        }
        if is_jmicron(sector) {
            findings.push(Finding::new(Kind::Jmicron, place));
        }
    }
}

/// Every md superblock, also one that is damaged: the magic says that there was a set.
fn md(ends: &Ends<'_>, findings: &mut Vec<Finding>) {
    for place in places(ends.device_bytes) {
        let Some(bytes) = ends.at(place.offset_bytes, SUPERBLOCK_BYTES) else { continue };
        let finding = Finding::new(Kind::Md, place.offset_bytes);
        match Superblock::parse(bytes, place) {
            Ok(superblock) => {
                let (id, name) = (superblock.set_uuid.to_string(), superblock.name());
                findings.push(finding.with_id(id).with_label(label(name.as_bytes())));
            }
            // A 0.90 superblock may lie in the same place.
            Err(SuperblockError::BadMagic { .. } | SuperblockError::BadVersion { .. }) => {}
            Err(_) => findings.push(Finding { intact: false, ..finding }),
        }
    }
    let Some(offset) = place090(ends.device_bytes) else { return };
    let Some(bytes) = ends.at(offset, SUPERBLOCK_BYTES) else { return };
    let magic = u32_le(bytes, 0);
    if magic == MAGIC || magic == MAGIC.swap_bytes() {
        let finding = Finding::new(Kind::Md, offset);
        findings.push(match parse090(bytes, offset) {
            Ok(view) => finding.with_id(view.set_uuid.to_string()),
            Err(_) => Finding { intact: false, ..finding },
        });
    }
}

/// The anchor is in the last sector but one, for either sector size.
fn imsm(ends: &Ends<'_>, findings: &mut Vec<Finding>) {
    for sector_bytes in [512, 4096] {
        let anchor = (ends.device_bytes / sector_bytes).checked_sub(2);
        let Some(offset) = anchor.map(|sector| sector * sector_bytes) else { continue };
        let Some(sector) = ends.at(offset, SECTOR) else { continue };
        if sector.starts_with(b"Intel Raid ISM Cfg Sig. ") {
            let id = format!("{:08x}", u32_le(sector, 0x28));
            let version = label(&sector[24..32]);
            findings.push(Finding::new(Kind::Imsm, offset).with_id(id).with_label(version));
        }
    }
}

/// The anchor belongs in the last sector; some controllers keep it anywhere in the last MiB.
/// There are two practices of its checksum, both are right.
fn ddf(ends: &Ends<'_>, findings: &mut Vec<Finding>) {
    const ANCHOR: u8 = 0;
    const TYPE_OFFSET: usize = 0x70;
    let whole = ends.device_bytes / SECTOR as u64;
    let first = whole.saturating_sub((ends.tail.len() / SECTOR) as u64);
    for place in (first..whole).rev().map(|sector| sector * SECTOR as u64) {
        let Some(sector) = ends.at(place, SECTOR) else { continue };
        if sector[..4] != [0xde, 0x11, 0xde, 0x11] || sector[TYPE_OFFSET] != ANCHOR {
            continue;
        }
        let stored = u32::from_be_bytes(array(sector, 4));
        let parts = [&sector[..4], &[0xff; 4], &sector[8..]];
        let intact = stored == crc32(&parts) || stored == crc32_raw(&parts);
        let id = label(&sector[8..32]).map(|guid| guid.escape_default().to_string());
        findings.push(Finding { intact, ..Finding::new(Kind::Ddf, place).with_id(id) });
    }
}

/// The only one of its kind at the start: sector 9.
fn highpoint37x(ends: &Ends<'_>) -> Option<Finding> {
    let offset = 9 * SECTOR as u64;
    let magic = u32_le(ends.at(offset, SECTOR)?, 0x20);
    let finding = Finding::new(Kind::Highpoint37x, offset);
    match magic {
        0x5a78_16f0 => Some(finding),
        // The controller's own mark for a broken array.
        0x5a78_16fd => Some(Finding { intact: false, ..finding }),
        _ => None,
    }
}

/// The mark has 26 bits only, so the checksum has to fit too: minus the sum of what precedes it.
fn is_silicon_image(sector: &[u8]) -> bool {
    const CHECKSUM: usize = 0x13e;
    let words = sector[..CHECKSUM].chunks_exact(2).map(|word| u16_le(word, 0));
    let sum = words.fold(0_u16, u16::wrapping_add);
    u32_le(sector, 0x60) & 0x03ff_ffff == 0x0300_0000
        && sum.wrapping_add(u16_le(sector, CHECKSUM)) == 0
}

/// Two bytes that end many boot sectors, so the checksum has to fit too: the byte sum of 50.
fn is_via(sector: &[u8]) -> bool {
    const CHECKSUM: usize = 0x32;
    let sum = sector[..CHECKSUM].iter().copied().fold(0_u8, u8::wrapping_add);
    sector[..2] == [0x55, 0xaa] && sum == sector[CHECKSUM]
}

/// Two letters, so the checksum has to fit too: 64 words sum to 0 or 1.
fn is_jmicron(sector: &[u8]) -> bool {
    let words = sector[..128].chunks_exact(2).map(|word| u16_le(word, 0));
    sector.starts_with(b"JM") && words.fold(0_u16, u16::wrapping_add) <= 1
}

#[cfg(test)]
mod tests {
    use super::super::{TAIL_BYTES, probe};
    use super::*;
    use crate::bytes::put;

    /// A drive whose last bytes are `tail`, with a mark before the end.
    fn kinds(sectors: usize, sector: &[u8]) -> Vec<(Kind, bool)> {
        let mut tail = vec![0; TAIL_BYTES];
        let offset = tail.len() - sectors * SECTOR;
        put(&mut tail, offset, sector);
        probe(&[], &tail, 1 << 40).into_iter().map(|f| (f.kind, f.intact)).collect()
    }

    #[test]
    fn marks_are_found_in_their_sector_only() {
        for (kind, sectors, _, mark) in MARKS {
            assert_eq!(kinds(sectors as usize, mark), [(kind, true)]);
            assert_eq!(kinds(sectors as usize + 5, mark), []);
        }
        for sectors in PROMISE_SECTORS {
            let found = kinds(sectors as usize, b"Promise Technology, Inc.");
            assert_eq!(found, [(Kind::Promise, true)]);
        }
        assert_eq!(kinds(2, b"Intel Raid ISM Cfg Sig. 1.3.00"), [(Kind::Imsm, true)]);
        assert_eq!(kinds(16, b"Intel Raid ISM Cfg Sig. 1.3.00"), [(Kind::Imsm, true)]);
    }

    #[test]
    fn weak_marks_need_their_checksum() {
        let mut silicon = [0; SECTOR];
        put(&mut silicon, 0x60, &0x0300_0000_u32.to_le_bytes());
        assert_eq!(kinds(1, &silicon), []);
        put(&mut silicon, 0x13e, &0x0300_u16.wrapping_neg().to_le_bytes());
        assert_eq!(kinds(513, &silicon), [(Kind::SiliconImage, true)]);

        let mut via = [0; SECTOR];
        put(&mut via, 0, &[0x55, 0xaa]);
        assert_eq!(kinds(1, &via), []);
        via[0x32] = 0xff;
        assert_eq!(kinds(1, &via), [(Kind::Via, true)]);

        let mut jmicron = [0; SECTOR];
        put(&mut jmicron, 0, b"JM");
        assert_eq!(kinds(1, &jmicron), []);
        let sum = u16::from_le_bytes(*b"JM").wrapping_neg();
        put(&mut jmicron, 4, &sum.to_le_bytes());
        assert_eq!(kinds(1, &jmicron), [(Kind::Jmicron, true)]);
    }

    #[test]
    fn a_ddf_anchor_is_found_with_either_checksum_and_anywhere() {
        let mut anchor = [0; SECTOR];
        put(&mut anchor, 0, &[0xde, 0x11, 0xde, 0x11, 0xff, 0xff, 0xff, 0xff]);
        let (common, raw) = (crc32(&[&anchor]), crc32_raw(&[&anchor]));
        for (crc, intact) in [(common, true), (raw, true), (common ^ 1, false)] {
            put(&mut anchor, 4, &crc.to_be_bytes());
            assert_eq!(kinds(1, &anchor), [(Kind::Ddf, intact)]);
            assert_eq!(kinds(1000, &anchor), [(Kind::Ddf, intact)]);
        }
        // A primary header is no anchor.
        anchor[0x70] = 1;
        assert_eq!(kinds(1, &anchor), []);
    }
}
