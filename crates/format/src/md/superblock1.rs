//! The md superblock, versions 1.0, 1.1 and 1.2: one structure in three places.
//!
//! All integers are little-endian, all offsets and sizes sectors of 512 bytes.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | magic `a92b4efc` |
//! | 4 | 4 | major version, 1 |
//! | 8 | 4 | feature map |
//! | 12 | 4 | padding, 0 |
//! | 16 | 16 | set uuid |
//! | 32 | 32 | set name, zero-padded |
//! | 64 | 8 | creation time |
//! | 72 | 4 | level (signed) |
//! | 76 | 4 | layout |
//! | 80 | 8 | sectors used per member |
//! | 88 | 4 | chunk sectors |
//! | 92 | 4 | raid disks |
//! | 96 | 4 | bitmap offset (signed), or partial parity log offset (i16) and size (u16) |
//! | 100 | 4 | reshape: new level |
//! | 104 | 8 | reshape: position in array sectors |
//! | 112 | 4 | reshape: raid disks gained (signed) |
//! | 116 | 4 | reshape: new layout |
//! | 120 | 4 | reshape: new chunk sectors |
//! | 124 | 4 | reshape: shift of the data offset (signed) |
//! | 128 | 8 | data offset |
//! | 136 | 8 | data size |
//! | 144 | 8 | where this superblock lies |
//! | 152 | 8 | recovered up to; on a journal member: journal tail |
//! | 160 | 4 | device number, index into the roles |
//! | 164 | 4 | corrected read errors |
//! | 168 | 16 | device uuid |
//! | 184 | 1 | device flags |
//! | 185 | 1 | bad-block log: shift |
//! | 186 | 2 | bad-block log: sectors |
//! | 188 | 4 | bad-block log: offset from the superblock (signed) |
//! | 192 | 8 | update time |
//! | 200 | 8 | events |
//! | 208 | 8 | resynced up to; all ones: clean |
//! | 216 | 4 | checksum |
//! | 220 | 4 | entries in the role table |
//! | 224 | 4 | logical block size (newer kernels), else 0 |
//! | 228 | 28 | padding, 0 |
//! | 256 | 2 each | roles |
//!
//! [`Superblock`] keeps every field as stored, padding included, so that parse and build round
//! trip byte for byte. Only the bytes behind the role table are not kept: neither the checksum
//! nor md covers them, and md writes zeros there. What the fields mean together is
//! [`MemberView`](super::MemberView)'s business; whether they make sense on a given drive is
//! [`Superblock::validate`]'s.

use super::member::ByteRange;
use super::types::{DevFlags, Features, Level, Role, Timestamp, Uuid, Version};
use super::{MAGIC, SECTOR_BYTES};
use crate::bytes::{array, i32_le, put, u16_le, u32_le, u64_le};

/// What md reads and writes for one superblock.
pub const SUPERBLOCK_BYTES: usize = 4096;

/// `resync_offset` of a set that needs no resync.
pub const RESYNC_CLEAN: u64 = u64::MAX;

/// Bytes before the role table.
const HEADER_BYTES: usize = 256;

/// As many roles as fit into [`SUPERBLOCK_BYTES`].
pub const ROLES_MAX: usize = (SUPERBLOCK_BYTES - HEADER_BYTES) / 2;

/// Smaller devices have no room for superblock and data: md's own limit.
const DEVICE_SECTORS_MIN: u64 = 24;

const CHECKSUM_OFFSET: usize = 216;

/// Where a superblock lies on a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The version that lies there.
    pub version: Version,
    /// Bytes from the start of the member.
    pub offset_bytes: u64,
}

impl Place {
    /// The place of `version` on a member of `device_bytes`; `None` if the member is too small,
    /// or for 0.90, which has a place and parser of its own.
    pub fn of(version: Version, device_bytes: u64) -> Option<Self> {
        let sectors = device_bytes / SECTOR_BYTES;
        if sectors < DEVICE_SECTORS_MIN {
            return None;
        }
        let offset_bytes = match version {
            Version::V0_90 => return None,
            // 8 KiB before the end, rounded down to 4 KiB.
            Version::V1_0 => ((sectors - 16) & !7) * SECTOR_BYTES,
            Version::V1_1 => 0,
            Version::V1_2 => 4096,
        };
        Some(Self { version, offset_bytes })
    }
}

/// Every place a version 1 superblock can have on a member of `device_bytes`. At each, read
/// [`SUPERBLOCK_BYTES`] and give them to [`Superblock::parse`].
pub fn places(device_bytes: u64) -> impl Iterator<Item = Place> {
    [Version::V1_2, Version::V1_1, Version::V1_0]
        .into_iter()
        .filter_map(move |version| Place::of(version, device_bytes))
}

/// Why bytes are not a version 1 superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SuperblockError {
    /// Fewer bytes than the structure needs.
    #[error("superblock needs {needed} bytes and has {given}")]
    TooShort {
        /// Bytes needed.
        needed: usize,
        /// Bytes given.
        given: usize,
    },
    /// No superblock here: the normal answer for most drives.
    #[error("no md magic: found {found:#010x}")]
    BadMagic {
        /// The first word.
        found: u32,
    },
    /// The magic is right, the version is not one this parser knows.
    #[error("md major version {found} is not supported")]
    BadVersion {
        /// The major version stored.
        found: u32,
    },
    /// The role table would not fit.
    #[error("superblock claims {max_dev} roles, at most {limit} fit")]
    TooManyRoles {
        /// The number stored.
        max_dev: u32,
        /// The limit.
        limit: usize,
    },
    /// The structure was damaged, or torn while being written.
    #[error("superblock checksum is {stored:#010x}, computed {computed:#010x}")]
    BadChecksum {
        /// In the superblock.
        stored: u32,
        /// Over its bytes.
        computed: u32,
    },
    /// A superblock that was copied or shifted: it says it lies elsewhere.
    #[error("superblock says it lies at sector {stored} but was read at sector {read_at}")]
    Displaced {
        /// In the superblock.
        stored: u64,
        /// Where the caller read it.
        read_at: u64,
    },
}

/// The reshape part of the superblock, as stored. Only meaningful with [`Features::RESHAPE`];
/// kept in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReshapeFields {
    /// Level after the reshape (md's number).
    pub new_level: i32,
    /// Array sectors already (or, going backwards, not yet) in the new shape.
    pub position_sectors: u64,
    /// New minus old number of raid disks.
    pub delta_disks: i32,
    /// Layout after the reshape.
    pub new_layout: u32,
    /// Chunk after the reshape.
    pub new_chunk_sectors: u32,
    /// Added to the data offset by the reshape, if [`Features::NEW_OFFSET`].
    pub new_offset_sectors: i32,
}

/// A version 1 superblock, every field as stored. See the module for the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Where it lies; says the minor version.
    pub place: Place,
    /// Which optional fields are in use.
    pub features: Features,
    /// Padding at 12, zero in all known superblocks.
    pub pad0: [u8; 4],
    /// Identity of the set.
    pub set_uuid: Uuid,
    /// `host:name`, zero-padded.
    pub set_name: [u8; 32],
    /// When the set was made.
    pub created: Timestamp,
    /// RAID level, before a reshape.
    pub level: Level,
    /// Level-specific layout number, before a reshape.
    pub layout: u32,
    /// Sectors used on each member; 0 on raid0 and linear.
    pub size_sectors: u64,
    /// Chunk, before a reshape; 0 where a level has none.
    pub chunk_sectors: u32,
    /// Slots of the set; during a reshape the new number.
    pub raid_disks: u32,
    /// Raw union of bitmap offset and partial parity log place; see
    /// [`bitmap_offset_sectors`](Self::bitmap_offset_sectors) and [`ppl`](Self::ppl).
    pub bitmap_or_ppl: u32,
    /// Reshape state.
    pub reshape: ReshapeFields,
    /// Where data starts on this member.
    pub data_offset_sectors: u64,
    /// Sectors available for data on this member.
    pub data_size_sectors: u64,
    /// Raw union: recovered up to this sector, or on a journal member the journal's tail.
    pub recovery_offset_or_journal_tail: u64,
    /// Index of this member in `roles`.
    pub dev_number: u32,
    /// Read errors that were mended.
    pub corrected_reads: u32,
    /// Identity of this member.
    pub device_uuid: Uuid,
    /// Flags of this member.
    pub devflags: DevFlags,
    /// Power of two of a bad-block log unit, in sectors.
    pub bad_block_shift: u8,
    /// Size of the bad-block log.
    pub bad_block_log_sectors: u16,
    /// Place of the bad-block log from the superblock; 0: none.
    pub bad_block_log_offset_sectors: i32,
    /// When the superblock was last written.
    pub updated: Timestamp,
    /// Counts changes of the set's state: the higher, the newer.
    pub events: u64,
    /// Redundancy is valid below this sector; [`RESYNC_CLEAN`]: everywhere.
    pub resync_offset_sectors: u64,
    /// Logical block size of the set, 0 if written by md before it had the field.
    pub logical_block_size: u32,
    /// Padding at 228, zero in all known superblocks.
    pub pad3: [u8; 28],
    /// The role of each device number.
    pub roles: Vec<Role>,
}

impl Superblock {
    /// Parses what was read at `place`.
    ///
    /// # Errors
    /// [`SuperblockError`] says exactly what is wrong; the checksum is checked after the counts
    /// it depends on.
    pub fn parse(bytes: &[u8], place: Place) -> Result<Self, SuperblockError> {
        let need = |needed| {
            let given = bytes.len();
            if given < needed { Err(SuperblockError::TooShort { needed, given }) } else { Ok(()) }
        };
        need(4)?;
        let found = u32_le(bytes, 0);
        if found != MAGIC {
            return Err(SuperblockError::BadMagic { found });
        }
        need(HEADER_BYTES)?;
        let found = u32_le(bytes, 4);
        if found != 1 {
            return Err(SuperblockError::BadVersion { found });
        }
        let max_dev = u32_le(bytes, 220);
        if max_dev as usize > ROLES_MAX {
            return Err(SuperblockError::TooManyRoles { max_dev, limit: ROLES_MAX });
        }
        let length = HEADER_BYTES + 2 * max_dev as usize;
        need(length)?;
        let bytes = &bytes[..length];
        let stored = u32_le(bytes, CHECKSUM_OFFSET);
        let computed = checksum(bytes);
        if stored != computed {
            return Err(SuperblockError::BadChecksum { stored, computed });
        }
        let stored = u64_le(bytes, 144);
        let read_at = place.offset_bytes / SECTOR_BYTES;
        if stored != read_at {
            return Err(SuperblockError::Displaced { stored, read_at });
        }
        Ok(Self::decode(bytes, place))
    }

    /// Reads the fields of a superblock whose length and counts were checked.
    fn decode(bytes: &[u8], place: Place) -> Self {
        Self {
            place,
            features: Features(u32_le(bytes, 8)),
            pad0: array(bytes, 12),
            set_uuid: Uuid(array(bytes, 16)),
            set_name: array(bytes, 32),
            created: Timestamp(u64_le(bytes, 64)),
            level: Level::from_code(i32_le(bytes, 72)),
            layout: u32_le(bytes, 76),
            size_sectors: u64_le(bytes, 80),
            chunk_sectors: u32_le(bytes, 88),
            raid_disks: u32_le(bytes, 92),
            bitmap_or_ppl: u32_le(bytes, 96),
            reshape: ReshapeFields {
                new_level: i32_le(bytes, 100),
                position_sectors: u64_le(bytes, 104),
                delta_disks: i32_le(bytes, 112),
                new_layout: u32_le(bytes, 116),
                new_chunk_sectors: u32_le(bytes, 120),
                new_offset_sectors: i32_le(bytes, 124),
            },
            data_offset_sectors: u64_le(bytes, 128),
            data_size_sectors: u64_le(bytes, 136),
            recovery_offset_or_journal_tail: u64_le(bytes, 152),
            dev_number: u32_le(bytes, 160),
            corrected_reads: u32_le(bytes, 164),
            device_uuid: Uuid(array(bytes, 168)),
            devflags: DevFlags(bytes[184]),
            bad_block_shift: bytes[185],
            bad_block_log_sectors: u16_le(bytes, 186),
            bad_block_log_offset_sectors: i32_le(bytes, 188),
            updated: Timestamp(u64_le(bytes, 192)),
            events: u64_le(bytes, 200),
            resync_offset_sectors: u64_le(bytes, 208),
            logical_block_size: u32_le(bytes, 224),
            pad3: array(bytes, 228),
            roles: bytes[HEADER_BYTES..]
                .chunks_exact(2)
                .map(|code| Role::from_code(u16_le(code, 0)))
                .collect(),
        }
    }

    /// The [`SUPERBLOCK_BYTES`] to write at [`Self::place`], checksum included.
    ///
    /// # Panics
    /// If there are more roles than fit, which no parsed or planned superblock has.
    pub fn build(&self) -> Vec<u8> {
        assert!(self.roles.len() <= ROLES_MAX, "{} roles do not fit", self.roles.len());
        let mut bytes = vec![0; SUPERBLOCK_BYTES];
        let b = &mut bytes[..];
        put(b, 0, &MAGIC.to_le_bytes());
        put(b, 4, &1_u32.to_le_bytes());
        put(b, 8, &self.features.0.to_le_bytes());
        put(b, 12, &self.pad0);
        put(b, 16, &self.set_uuid.0);
        put(b, 32, &self.set_name);
        put(b, 64, &self.created.0.to_le_bytes());
        put(b, 72, &self.level.code().to_le_bytes());
        put(b, 76, &self.layout.to_le_bytes());
        put(b, 80, &self.size_sectors.to_le_bytes());
        put(b, 88, &self.chunk_sectors.to_le_bytes());
        put(b, 92, &self.raid_disks.to_le_bytes());
        put(b, 96, &self.bitmap_or_ppl.to_le_bytes());
        put(b, 100, &self.reshape.new_level.to_le_bytes());
        put(b, 104, &self.reshape.position_sectors.to_le_bytes());
        put(b, 112, &self.reshape.delta_disks.to_le_bytes());
        put(b, 116, &self.reshape.new_layout.to_le_bytes());
        put(b, 120, &self.reshape.new_chunk_sectors.to_le_bytes());
        put(b, 124, &self.reshape.new_offset_sectors.to_le_bytes());
        put(b, 128, &self.data_offset_sectors.to_le_bytes());
        put(b, 136, &self.data_size_sectors.to_le_bytes());
        put(b, 144, &(self.place.offset_bytes / SECTOR_BYTES).to_le_bytes());
        put(b, 152, &self.recovery_offset_or_journal_tail.to_le_bytes());
        put(b, 160, &self.dev_number.to_le_bytes());
        put(b, 164, &self.corrected_reads.to_le_bytes());
        put(b, 168, &self.device_uuid.0);
        put(b, 184, &[self.devflags.0, self.bad_block_shift]);
        put(b, 186, &self.bad_block_log_sectors.to_le_bytes());
        put(b, 188, &self.bad_block_log_offset_sectors.to_le_bytes());
        put(b, 192, &self.updated.0.to_le_bytes());
        put(b, 200, &self.events.to_le_bytes());
        put(b, 208, &self.resync_offset_sectors.to_le_bytes());
        put(b, 220, &(self.roles.len() as u32).to_le_bytes());
        put(b, 224, &self.logical_block_size.to_le_bytes());
        put(b, 228, &self.pad3);
        for (index, role) in self.roles.iter().enumerate() {
            put(b, HEADER_BYTES + 2 * index, &role.code().to_le_bytes());
        }
        let sum = checksum(&b[..HEADER_BYTES + 2 * self.roles.len()]);
        put(b, CHECKSUM_OFFSET, &sum.to_le_bytes());
        bytes
    }

    /// What the role table says about this member; a number outside the table is a spare.
    pub fn role(&self) -> Role {
        self.roles.get(self.dev_number as usize).copied().unwrap_or(Role::Spare)
    }

    /// The set's name up to the first zero byte, with unreadable bytes replaced.
    pub fn name(&self) -> String {
        let end = self.set_name.iter().position(|&byte| byte == 0).unwrap_or(self.set_name.len());
        String::from_utf8_lossy(&self.set_name[..end]).into_owned()
    }

    /// Where the write-intent bitmap lies, in sectors from the superblock.
    pub fn bitmap_offset_sectors(&self) -> Option<i32> {
        let used = self.features.contains(Features::BITMAP) && !self.has_ppl();
        used.then_some(self.bitmap_or_ppl as i32)
    }

    /// Where the partial parity log lies: sectors from the superblock, and its sectors.
    pub fn ppl(&self) -> Option<(i16, u16)> {
        let [a, b, c, d] = self.bitmap_or_ppl.to_le_bytes();
        self.has_ppl().then(|| (i16::from_le_bytes([a, b]), u16::from_le_bytes([c, d])))
    }

    /// Where the partial parity log lies on the drive; `None` where there is none, or its place is
    /// before the drive's first byte.
    pub fn ppl_area(&self) -> Option<ByteRange> {
        let (offset, sectors) = self.ppl()?;
        let offset_bytes = i64::from(offset) * SECTOR_BYTES as i64;
        let start = self.place.offset_bytes.checked_add_signed(offset_bytes)?;
        Some(ByteRange { start, length: u64::from(sectors) * SECTOR_BYTES })
    }

    fn has_ppl(&self) -> bool {
        self.features.contains(Features::PPL) || self.features.contains(Features::MULTIPLE_PPLS)
    }
}

/// md's checksum: all words summed in 64 bits with the checksum's own field as zero, a last odd
/// half-word added, the two halves folded together. `bytes` is header and role table.
fn checksum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks_exact(4);
    let tail = words.remainder();
    let mut sum: u64 = words.map(|word| u64::from(u32_le(word, 0))).sum();
    sum -= u64::from(u32_le(bytes, CHECKSUM_OFFSET));
    if tail.len() == 2 {
        sum += u64::from(u16_le(tail, 0));
    }
    (sum as u32).wrapping_add((sum >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A 3-disk raid5 whose checksums are known from md's own program.
    fn sample(slot: u8) -> Superblock {
        let mut set_name = [0; 32];
        set_name[..6].copy_from_slice(b"host:0");
        let device_uuid = [0xa0 + slot; 16];
        Superblock {
            place: Place { version: Version::V1_2, offset_bytes: 4096 },
            features: Features::BITMAP.with(Features::BAD_BLOCKS),
            pad0: [0; 4],
            set_uuid: Uuid(core::array::from_fn(|index| index as u8)),
            set_name,
            created: Timestamp::new(1_700_000_000, 0),
            level: Level::Raid5,
            layout: 2,
            size_sectors: 2_097_152,
            chunk_sectors: 1024,
            raid_disks: 3,
            bitmap_or_ppl: 8,
            reshape: ReshapeFields::default(),
            data_offset_sectors: 264_192,
            data_size_sectors: 2_097_152,
            recovery_offset_or_journal_tail: 0,
            dev_number: slot.into(),
            corrected_reads: 0,
            device_uuid: Uuid(device_uuid),
            devflags: if slot == 1 { DevFlags::WRITE_MOSTLY } else { DevFlags::default() },
            bad_block_shift: 0,
            bad_block_log_sectors: 8,
            bad_block_log_offset_sectors: 16,
            updated: Timestamp::new(1_700_000_123, 0),
            events: 18,
            resync_offset_sectors: RESYNC_CLEAN,
            logical_block_size: 0,
            pad3: [0; 28],
            roles: vec![Role::Slot(0), Role::Slot(1), Role::Slot(2), Role::Spare],
        }
    }

    #[test]
    fn checksums_equal_mds() {
        for (slot, want) in [(0, 0x8f35_7c02), (1, 0x9339_8008), (2, 0x973d_840c)] {
            let bytes = sample(slot).build();
            assert_eq!(u32_le(&bytes, CHECKSUM_OFFSET), want, "slot {slot}");
        }
    }

    #[test]
    fn build_and_parse_are_inverse() {
        for roles in [4, 5] {
            let mut sb = sample(1);
            sb.roles.resize(roles, Role::Faulty);
            let bytes = sb.build();
            assert_eq!(bytes.len(), SUPERBLOCK_BYTES);
            assert_eq!(Superblock::parse(&bytes, sb.place), Ok(sb));
        }
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let sb = sample(0);
        let good = sb.build();
        let parse = |bytes: &[u8]| Superblock::parse(bytes, sb.place).expect_err("must be refused");
        assert_eq!(parse(&good[..2]), SuperblockError::TooShort { needed: 4, given: 2 });
        assert_eq!(parse(&good[..100]), SuperblockError::TooShort { needed: 256, given: 100 });
        assert_eq!(parse(&good[..260]), SuperblockError::TooShort { needed: 264, given: 260 });
        assert_eq!(parse(&[0; 4096]), SuperblockError::BadMagic { found: 0 });
        let changed = |offset: usize, value: u32| {
            let mut bytes = good.clone();
            put(&mut bytes, offset, &value.to_le_bytes());
            bytes
        };
        assert_eq!(parse(&changed(4, 2)), SuperblockError::BadVersion { found: 2 });
        assert_eq!(
            parse(&changed(220, 1921)),
            SuperblockError::TooManyRoles { max_dev: 1921, limit: 1920 }
        );
        assert_eq!(
            parse(&changed(200, 19)),
            SuperblockError::BadChecksum { stored: 0x8f35_7c02, computed: 0x8f35_7c03 }
        );
        let elsewhere = Place { version: Version::V1_1, offset_bytes: 0 };
        assert_eq!(
            Superblock::parse(&good, elsewhere),
            Err(SuperblockError::Displaced { stored: 8, read_at: 0 })
        );
    }

    #[test]
    fn places_follow_the_size() {
        let on = |bytes| places(bytes).map(|place| place.offset_bytes).collect::<Vec<_>>();
        assert_eq!(on(23 * 512), []);
        assert_eq!(on(24 * 512), [4096, 0, 4096]);
        assert_eq!(on(16 << 20), [4096, 0, (16 << 20) - 8192]);
        assert_eq!(on((16 << 20) + 7 * 512 + 100), [4096, 0, (16 << 20) - 8192]);
    }
}
