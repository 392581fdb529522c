//! Partition tables: MBR and both copies of GPT.

use super::text::guid;
use super::{Ends, Finding, Kind, SECTOR};
use crate::bytes::u32_le;
use crate::checksum::crc32;

const ENTRIES_OFFSET: usize = 446;
const ENTRY_BYTES: usize = 16;

pub(super) fn find(ends: &Ends<'_>, findings: &mut Vec<Finding>) {
    if ends.at(0, SECTOR).is_some_and(is_mbr) {
        findings.push(Finding::new(Kind::Mbr, 0));
    }
    // The second sector, for either sector size; the copy is in the last.
    for sector in [512, 4096] {
        findings.extend(gpt(ends, sector, Kind::Gpt));
        if let Some(last) = (ends.device_bytes / sector).checked_sub(1) {
            findings.extend(gpt(ends, last * sector, Kind::GptBackup));
        }
    }
}

/// The mark alone is also that of FAT and NTFS boot sectors: the entries must make sense and one
/// must be used.
fn is_mbr(sector: &[u8]) -> bool {
    let entries = || sector[ENTRIES_OFFSET..510].chunks_exact(ENTRY_BYTES);
    let used = |entry: &[u8]| entry[4] != 0 && u32_le(entry, 12) != 0;
    sector[510..] == [0x55, 0xaa]
        && entries().all(|entry| matches!(entry[0], 0 | 0x80))
        && entries().any(used)
}

fn gpt(ends: &Ends<'_>, offset: u64, kind: Kind) -> Option<Finding> {
    let sector = ends.at(offset, SECTOR)?;
    if !sector.starts_with(b"EFI PART") {
        return None;
    }
    let finding = Finding::new(kind, offset).with_id(guid(&sector[56..72]));
    let length = u32_le(sector, 12) as usize;
    let intact = (92..=SECTOR).contains(&length)
        && crc32(&[&sector[..16], &[0; 4], &sector[20..length]]) == u32_le(sector, 16);
    Some(Finding { intact, ..finding })
}

#[cfg(test)]
mod tests {
    use super::super::probe;
    use super::*;
    use crate::bytes::put;

    #[test]
    fn an_mbr_needs_a_used_entry() {
        let mut head = vec![0; 4096];
        head[510..512].copy_from_slice(&[0x55, 0xaa]);
        assert_eq!(probe(&head, &[], 1 << 30), []);
        head[446 + 4] = 0x83;
        head[446 + 12] = 1;
        assert_eq!(probe(&head, &[], 1 << 30), [Finding::new(Kind::Mbr, 0)]);
        head[446] = 7;
        assert_eq!(probe(&head, &[], 1 << 30), []);
    }

    #[test]
    fn both_copies_of_a_gpt_are_found() {
        let mut header = vec![0; 512];
        header[..8].copy_from_slice(b"EFI PART");
        header[12] = 92;
        header[56] = 9;
        let sum = crc32(&[&header[..92]]);
        put(&mut header, 16, &sum.to_le_bytes());
        let head = [vec![0; 512], header.clone()].concat();
        header[60] = 1;
        let findings = probe(&head, &header, 1 << 30);
        let seen: Vec<_> = findings.iter().map(|f| (f.kind, f.offset_bytes, f.intact)).collect();
        assert_eq!(seen, [(Kind::Gpt, 512, true), (Kind::GptBackup, (1 << 30) - 512, false)]);
        assert_eq!(findings[0].id.as_deref(), Some("00000009-0000-0000-0000-000000000000"));
    }
}
