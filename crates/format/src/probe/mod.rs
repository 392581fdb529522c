//! What lives on a drive already: partition tables, file systems, volumes, RAID metadata.
//!
//! Before a drive becomes a member, and when a set is looked for, everything that somebody might
//! miss has to be named. A finding is a magic in its place, with a checksum where the magic alone
//! is weak; it does not say that what it names is whole. Several may be true at once: formats
//! share a drive's ends, and old metadata survives below new.
//!
//! The caller reads the first [`HEAD_BYTES`] and the last [`TAIL_BYTES`]; with the last
//! [`TAIL_BYTES_EXTENDED`] a DDF anchor is also found where some controllers keep it. Less is
//! allowed: what lies outside is not found.
//!
//! Left out: SiS metadata, whose two-byte mark is found on any drive; anything that needs more
//! than the two ends.

mod head;
mod partition;
mod raid;
mod text;

use core::fmt;

/// Bytes from the start: up to the end of the first ZFS label.
pub const HEAD_BYTES: usize = 256 << 10;

/// Bytes before the end: the farthest vendor metadata lies 3087 sectors before it.
pub const TAIL_BYTES: usize = 2 << 20;

/// Bytes before the end in which a displaced DDF anchor may lie.
pub const TAIL_BYTES_EXTENDED: usize = 32 << 20;

pub(crate) const SECTOR: usize = 512;

/// What sort of thing a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// A table that divides the drive.
    PartitionTable,
    /// Files.
    FileSystem,
    /// A layer below file systems: volumes, encryption, caches, swap.
    Volume,
    /// RAID metadata.
    Raid,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident, $class:ident, $text:literal;)*) => {
        /// Everything that can be found.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind {
            $($(#[$doc])* $kind,)*
        }

        impl Kind {
            /// What sort of thing it is.
            pub fn class(self) -> Class {
                match self {
                    $(Self::$kind => Class::$class,)*
                }
            }
        }

        impl fmt::Display for Kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$kind => $text,)*
                })
            }
        }
    };
}

kinds! {
    /// DOS partition table.
    Mbr, PartitionTable, "MBR partition table";
    /// GUID partition table, first copy.
    Gpt, PartitionTable, "GPT partition table";
    /// GUID partition table, copy at the end.
    GptBackup, PartitionTable, "GPT partition table (backup)";
    /// ext2.
    Ext2, FileSystem, "ext2";
    /// ext3.
    Ext3, FileSystem, "ext3";
    /// ext4.
    Ext4, FileSystem, "ext4";
    /// Journal device of an ext file system.
    ExtJournal, FileSystem, "ext journal";
    /// XFS.
    Xfs, FileSystem, "xfs";
    /// Btrfs.
    Btrfs, FileSystem, "btrfs";
    /// NTFS.
    Ntfs, FileSystem, "ntfs";
    /// FAT12, FAT16, FAT32.
    Fat, FileSystem, "fat";
    /// exFAT.
    ExFat, FileSystem, "exfat";
    /// F2FS.
    F2fs, FileSystem, "f2fs";
    /// ISO 9660.
    Iso9660, FileSystem, "iso9660";
    /// JFS.
    Jfs, FileSystem, "jfs";
    /// ReiserFS.
    Reiserfs, FileSystem, "reiserfs";
    /// APFS container.
    Apfs, FileSystem, "apfs";
    /// Bcachefs.
    Bcachefs, FileSystem, "bcachefs";
    /// ZFS member.
    Zfs, FileSystem, "zfs member";
    /// Ceph BlueStore.
    BlueStore, FileSystem, "ceph bluestore";
    /// Swap area.
    Swap, Volume, "swap";
    /// LVM2 physical volume.
    Lvm2, Volume, "LVM2 physical volume";
    /// LUKS version 1.
    Luks1, Volume, "LUKS1";
    /// LUKS version 2.
    Luks2, Volume, "LUKS2";
    /// bcache, cache or backing device.
    Bcache, Volume, "bcache";
    /// DRBD metadata.
    Drbd, Volume, "DRBD";
    /// Linux md, any version.
    Md, Raid, "Linux md member";
    /// Intel Matrix or Rapid Storage.
    Imsm, Raid, "Intel IMSM member";
    /// SNIA DDF.
    Ddf, Raid, "SNIA DDF member";
    /// SPDK RAID bdev.
    Spdk, Raid, "SPDK raid member";
    /// HighPoint 37x.
    Highpoint37x, Raid, "HighPoint 37x member";
    /// HighPoint 45x.
    Highpoint45x, Raid, "HighPoint 45x member";
    /// Nvidia MediaShield.
    Nvidia, Raid, "Nvidia raid member";
    /// Promise FastTrak.
    Promise, Raid, "Promise raid member";
    /// Silicon Image Medley.
    SiliconImage, Raid, "Silicon Image raid member";
    /// VIA.
    Via, Raid, "VIA raid member";
    /// JMicron.
    Jmicron, Raid, "JMicron raid member";
    /// LSI MegaRAID on motherboards.
    Lsi, Raid, "LSI raid member";
    /// Adaptec HostRAID.
    Adaptec, Raid, "Adaptec raid member";
    /// Integrated Technology Express.
    Ite, Raid, "ITE raid member";
    /// Intel before IMSM.
    IntelOld, Raid, "old Intel raid member";
}

/// One thing found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it is.
    pub kind: Kind,
    /// Where its magic's structure starts, in bytes from the start of the drive.
    pub offset_bytes: u64,
    /// Its identity in its own customary spelling, where it has one.
    pub id: Option<String>,
    /// Its label, where it has one.
    pub label: Option<String>,
    /// False if it has a checksum and that is wrong: torn, damaged, or overwritten in part.
    pub intact: bool,
}

impl Finding {
    fn new(kind: Kind, offset_bytes: u64) -> Self {
        Self { kind, offset_bytes, id: None, label: None, intact: true }
    }

    fn with_id(self, id: impl Into<Option<String>>) -> Self {
        Self { id: id.into(), ..self }
    }

    fn with_label(self, label: Option<String>) -> Self {
        Self { label, ..self }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.kind, self.offset_bytes)?;
        if let Some(label) = &self.label {
            write!(f, ", label {label:?}")?;
        }
        if let Some(id) = &self.id {
            write!(f, ", id {id}")?;
        }
        if !self.intact {
            f.write_str(", damaged")?;
        }
        Ok(())
    }
}

/// Finds what is on a drive of `device_bytes` whose first bytes are `head` and last bytes are
/// `tail`, in the order of their places.
pub fn probe(head: &[u8], tail: &[u8], device_bytes: u64) -> Vec<Finding> {
    let ends = Ends { head, tail, device_bytes };
    let mut findings = Vec::new();
    partition::find(&ends, &mut findings);
    head::find(&ends, &mut findings);
    raid::find(&ends, &mut findings);
    findings.sort_by_key(|finding| (finding.offset_bytes, finding.kind));
    findings.dedup();
    findings
}

/// The two ends of a drive.
struct Ends<'a> {
    head: &'a [u8],
    tail: &'a [u8],
    device_bytes: u64,
}

impl Ends<'_> {
    /// `length` bytes at `offset` from the start, if they were read.
    fn at(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let end = offset.checked_add(length as u64)?;
        if end > self.device_bytes {
            return None;
        }
        let within = |bytes: &'_ [u8], start: u64| -> Option<core::ops::Range<usize>> {
            let from = usize::try_from(offset.checked_sub(start)?).ok()?;
            let range = from..from.checked_add(length)?;
            (range.end <= bytes.len()).then_some(range)
        };
        let tail_start = self.device_bytes.saturating_sub(self.tail.len() as u64);
        if let Some(range) = within(self.head, 0) {
            return Some(&self.head[range]);
        }
        within(self.tail, tail_start).map(|range| &self.tail[range])
    }

    /// The sector that lies `sectors` before the end, and its place.
    fn before_end(&self, sectors: u64) -> Option<(u64, &[u8])> {
        let whole = self.device_bytes / SECTOR as u64;
        let offset = whole.checked_sub(sectors)? * SECTOR as u64;
        Some((offset, self.at(offset, SECTOR)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_are_reached_and_nothing_between() {
        let (head, tail) = ([1; 1024], [2; 1024]);
        let ends = Ends { head: &head, tail: &tail, device_bytes: 10_240 };
        assert_eq!(ends.at(0, 1024), Some(&[1; 1024][..]));
        assert_eq!(ends.at(10_240 - 512, 512), Some(&[2; 512][..]));
        assert_eq!(ends.at(1000, 100), None);
        assert_eq!(ends.at(10_000, 512), None);
        assert_eq!(ends.at(u64::MAX, 512), None);
        assert_eq!(ends.before_end(1), Some((9728, &[2; 512][..])));
        assert_eq!(ends.before_end(100), None);
    }

    #[test]
    fn an_empty_drive_has_nothing() {
        let (head, tail) = (vec![0; HEAD_BYTES], vec![0; TAIL_BYTES]);
        assert_eq!(probe(&head, &tail, 1 << 40), []);
        assert_eq!(probe(&[], &[], 0), []);
        assert_eq!(probe(&head, &tail, 100), []);
    }

    #[test]
    fn a_finding_reads_as_a_sentence() {
        let finding = Finding {
            intact: false,
            ..Finding::new(Kind::Ext4, 1024)
                .with_id("1234".to_owned())
                .with_label(Some("home".to_owned()))
        };
        assert_eq!(finding.to_string(), "ext4 at byte 1024, label \"home\", id 1234, damaged");
    }
}
