//! The md superblock version 0.90: parse only.
//!
//! 4096 bytes of 32-bit words in the byte order of the machine that made it, in the last 64 to
//! 128 KiB of the member, for at most 27 members. New sets never get it (it has no data offset,
//! no member identity and cannot tell a whole drive from its last partition), old ones are read.
//!
//! | word | field |
//! |---|---|
//! | 0 | magic `a92b4efc` |
//! | 1, 2, 3 | major 0, minor 90 (91 while reshaping), patch |
//! | 5, 13, 14, 15 | set uuid |
//! | 6 | creation time |
//! | 7 | level (signed) |
//! | 8 | KiB used per member |
//! | 9, 10 | disks known, raid disks |
//! | 32 | update time |
//! | 33 | state: bit 0 clean, bit 8 bitmap present |
//! | 38 | checksum |
//! | 39, 40 | events, low word first (high first on big-endian) |
//! | 41, 42 | events at the resync checkpoint, likewise |
//! | 43 | resync checkpoint, sectors |
//! | 44, 45 | reshape position, sectors, 64 bits in host order |
//! | 46 to 49 | new level, raid disks gained, new layout, new chunk bytes |
//! | 64, 65 | layout, chunk bytes |
//! | 128 + 32 i | descriptor i: number, major, minor, slot, state |
//! | 992 | descriptor of this member |

use super::member::{ConsistencyPlace, Layout, MemberView, ReshapeView, Resync};
use super::types::{DevFlags, Features, Level, Role, Timestamp, Uuid, Version};
use super::{MAGIC, SECTOR_BYTES};
use crate::bytes::array;

/// Size of the structure.
pub const SUPERBLOCK090_BYTES: usize = 4096;

/// The structure starts a whole number of these from the member's start.
const RESERVED_BYTES: u64 = 64 << 10;

/// Descriptors that fit.
const DISKS: usize = 27;

const CHECKSUM_WORD: usize = 38;
const OWN_DESCRIPTOR_WORD: usize = 992;

const STATE_CLEAN: u32 = 1;
const STATE_BITMAP: u32 = 1 << 8;

const DISK_FAULTY: u32 = 1;
const DISK_ACTIVE: u32 = 1 << 1;
const DISK_SYNC: u32 = 1 << 2;
const DISK_WRITE_MOSTLY: u32 = 1 << 9;
const DISK_FAILFAST: u32 = 1 << 10;

/// Where a 0.90 superblock lies on a member of `device_bytes`; `None` if it is too small.
pub fn place090(device_bytes: u64) -> Option<u64> {
    (device_bytes / RESERVED_BYTES * RESERVED_BYTES).checked_sub(RESERVED_BYTES)
}

/// Why bytes are not a 0.90 superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Superblock090Error {
    /// Fewer bytes than the structure has.
    #[error("superblock 0.90 needs {SUPERBLOCK090_BYTES} bytes and has {given}")]
    TooShort {
        /// Bytes given.
        given: usize,
    },
    /// No superblock here, in either byte order.
    #[error("no md magic: found {found:#010x}")]
    BadMagic {
        /// The first word, read as little-endian.
        found: u32,
    },
    /// Another version under the same magic.
    #[error("md version {major}.{minor} is not 0.90")]
    BadVersion {
        /// Major version stored.
        major: u32,
        /// Minor version stored.
        minor: u32,
    },
    /// The structure was damaged, or torn while being written.
    #[error("superblock checksum is {stored:#010x}, computed {computed:#010x}")]
    BadChecksum {
        /// In the superblock.
        stored: u32,
        /// Over its bytes.
        computed: u32,
    },
    /// The set uses more of each member than lies before this superblock.
    #[error("the set uses {used_bytes} bytes of each member, this one offers {data_bytes}")]
    DataTooSmall {
        /// Used on each member.
        used_bytes: u64,
        /// Bytes before the superblock.
        data_bytes: u64,
    },
}

/// Parses the [`SUPERBLOCK090_BYTES`] read at `offset_bytes`.
///
/// # Errors
/// [`Superblock090Error`] says exactly what is wrong.
pub fn parse090(bytes: &[u8], offset_bytes: u64) -> Result<MemberView, Superblock090Error> {
    let words = Words::new(bytes)?;
    let (major, minor) = (words.at(1), words.at(2));
    if major != 0 || !(90..=91).contains(&minor) {
        return Err(Superblock090Error::BadVersion { major, minor });
    }
    let (stored, computed) = (words.at(CHECKSUM_WORD), words.checksum());
    if stored != computed {
        return Err(Superblock090Error::BadChecksum { stored, computed });
    }
    let view = view(&words, offset_bytes);
    if view.used_bytes > view.data_bytes {
        let (used_bytes, data_bytes) = (view.used_bytes, view.data_bytes);
        return Err(Superblock090Error::DataTooSmall { used_bytes, data_bytes });
    }
    Ok(view)
}

fn view(words: &Words, offset_bytes: u64) -> MemberView {
    let reshaping = words.at(2) == 91;
    let raid_disks = words.at(10);
    let gained = if reshaping { words.at(47) as i32 } else { 0 };
    let layout = Layout {
        level: Level::from_code(words.at(7) as i32),
        layout: words.at(64),
        chunk_bytes: words.at(65).into(),
        raid_disks: (i64::from(raid_disks) - i64::from(gained)).clamp(0, u32::MAX.into()) as u32,
        data_offset_bytes: 0,
    };
    let state = words.at(33);
    let own_state = words.at(OWN_DESCRIPTOR_WORD + 4);
    let dev_number = words.at(OWN_DESCRIPTOR_WORD);
    let roles: Vec<Role> = (0..DISKS).map(|disk| words.role(128 + 32 * disk)).collect();
    let flag = |bit, flag: DevFlags| if own_state & bit != 0 { flag.0 } else { 0 };
    MemberView {
        version: Version::V0_90,
        super_offset_bytes: offset_bytes,
        set_uuid: words.uuid(),
        name: String::new(),
        device_uuid: None,
        layout,
        // md keeps the size also where the level does not use it.
        used_bytes: if layout.level.is_redundant() { u64::from(words.at(8)) << 10 } else { 0 },
        data_bytes: offset_bytes,
        dev_number,
        role: roles.get(dev_number as usize).copied().unwrap_or(Role::Spare),
        roles,
        events: words.u64_at(39),
        resync: if state & STATE_CLEAN != 0 {
            Resync::Clean
        } else if words.u64_at(41) == words.u64_at(39) {
            Resync::From(u64::from(words.at(43)) * SECTOR_BYTES)
        } else {
            Resync::From(0)
        },
        recovered_to_bytes: None,
        replacement: false,
        reshape: reshaping.then(|| ReshapeView {
            position_bytes: words.u64_at(44).saturating_mul(SECTOR_BYTES),
            backwards: gained < 0,
            old: layout,
            new: Layout {
                level: Level::from_code(words.at(46) as i32),
                layout: words.at(48),
                chunk_bytes: words.at(49).into(),
                raid_disks,
                data_offset_bytes: 0,
            },
        }),
        consistency: if state & STATE_BITMAP != 0 {
            // 0.90 has no field for it: the bitmap follows the superblock.
            ConsistencyPlace::Bitmap { start: offset_bytes + SUPERBLOCK090_BYTES as u64 }
        } else {
            ConsistencyPlace::Resync
        },
        journal_tail_bytes: None,
        bad_blocks: None,
        devflags: DevFlags(
            flag(DISK_WRITE_MOSTLY, DevFlags::WRITE_MOSTLY)
                | flag(DISK_FAILFAST, DevFlags::FAILFAST),
        ),
        features: Features::default(),
        created: Timestamp::new(words.at(6).into(), 0),
        updated: Timestamp::new(words.at(32).into(), 0),
    }
}

/// The structure as words of whichever byte order the magic shows.
struct Words<'a> {
    bytes: &'a [u8],
    big_endian: bool,
}

impl<'a> Words<'a> {
    fn new(bytes: &'a [u8]) -> Result<Self, Superblock090Error> {
        let given = bytes.len();
        let bytes =
            bytes.get(..SUPERBLOCK090_BYTES).ok_or(Superblock090Error::TooShort { given })?;
        let found = u32::from_le_bytes(array(bytes, 0));
        match found {
            MAGIC => Ok(Self { bytes, big_endian: false }),
            _ if found.swap_bytes() == MAGIC => Ok(Self { bytes, big_endian: true }),
            _ => Err(Superblock090Error::BadMagic { found }),
        }
    }

    fn at(&self, word: usize) -> u32 {
        let bytes = array(self.bytes, 4 * word);
        if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    fn u64_at(&self, word: usize) -> u64 {
        let (low, high) = if self.big_endian { (word + 1, word) } else { (word, word + 1) };
        u64::from(self.at(high)) << 32 | u64::from(self.at(low))
    }

    /// Shown as the numbers md prints, so the words' high bytes come first.
    fn uuid(&self) -> Uuid {
        let mut uuid = [0; 16];
        for (index, word) in [5, 13, 14, 15].into_iter().enumerate() {
            uuid[4 * index..4 * index + 4].copy_from_slice(&self.at(word).to_be_bytes());
        }
        Uuid(uuid)
    }

    fn role(&self, descriptor: usize) -> Role {
        let state = self.at(descriptor + 4);
        let in_sync = DISK_ACTIVE | DISK_SYNC;
        match u16::try_from(self.at(descriptor + 3)) {
            _ if state & DISK_FAULTY != 0 => Role::Faulty,
            Ok(slot) if state & in_sync == in_sync && slot <= Role::SLOT_MAX => Role::Slot(slot),
            _ => Role::Spare,
        }
    }

    /// All words but the checksum itself, summed in 64 bits and folded.
    fn checksum(&self) -> u32 {
        let words = SUPERBLOCK090_BYTES / 4;
        let sum: u64 = (0..words).map(|word| u64::from(self.at(word))).sum();
        let sum = sum - u64::from(self.at(CHECKSUM_WORD));
        (sum as u32).wrapping_add((sum >> 32) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Member 1 of a 3-disk raid5, in either byte order.
    fn sample(big_endian: bool) -> Vec<u8> {
        let mut words = [0_u32; SUPERBLOCK090_BYTES / 4];
        for (word, value) in [(0, MAGIC), (2, 90), (5, 0x0011_2233), (13, 1), (7, 5), (8, 64)] {
            words[word] = value;
        }
        let (low, high) = if big_endian { (40, 39) } else { (39, 40) };
        (words[low], words[high]) = (7, 1);
        (words[10], words[33], words[64], words[65]) = (3, 1, 2, 65536);
        for (disk, state) in [6, 6, 1].into_iter().enumerate() {
            words[128 + 32 * disk + 3] = disk as u32;
            words[128 + 32 * disk + 4] = state;
        }
        (words[992], words[995], words[996]) = (1, 1, 6);
        let sum: u64 = words.iter().map(|&word| u64::from(word)).sum();
        words[38] = (sum as u32).wrapping_add((sum >> 32) as u32);
        let order = |word: u32| if big_endian { word.to_be_bytes() } else { word.to_le_bytes() };
        words.into_iter().flat_map(order).collect()
    }

    #[test]
    fn both_byte_orders_say_the_same() {
        let little = parse090(&sample(false), 131_072).expect("valid");
        assert_eq!(parse090(&sample(true), 131_072), Ok(little.clone()));
        assert_eq!(little.events, (1 << 32) + 7);
        assert_eq!(little.role, Role::Slot(1));
        assert_eq!(little.roles[2], Role::Faulty);
        assert_eq!(little.set_uuid.to_string(), "00112233:00000001:00000000:00000000");
        assert_eq!((little.used_bytes, little.data_bytes), (65536, 131_072));
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let good = sample(false);
        assert_eq!(parse090(&good[1..], 0), Err(Superblock090Error::TooShort { given: 4095 }));
        assert_eq!(parse090(&[0; 4096], 0), Err(Superblock090Error::BadMagic { found: 0 }));
        let mut other = good.clone();
        other[4] = 1;
        assert_eq!(
            parse090(&other, 0),
            Err(Superblock090Error::BadVersion { major: 1, minor: 90 })
        );
        let mut torn = good.clone();
        torn[4000] ^= 1;
        assert!(matches!(parse090(&torn, 0), Err(Superblock090Error::BadChecksum { .. })));
        assert_eq!(
            parse090(&good, 0),
            Err(Superblock090Error::DataTooSmall { used_bytes: 65536, data_bytes: 0 })
        );
    }

    #[test]
    fn the_place_is_64_kib_aligned() {
        assert_eq!(place090(1000), None);
        assert_eq!(place090(65536), Some(0));
        assert_eq!(place090((1 << 20) + 5), Some((1 << 20) - 65536));
    }
}
