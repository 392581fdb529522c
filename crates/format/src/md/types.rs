//! The small types shared by all md metadata: identities, levels, roles, feature bits, times.

use core::fmt;

/// A 128-bit identity, shown the way md shows it: four groups of eight hex digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// True for all zero bytes, which no real set or member has.
    pub fn is_nil(self) -> bool {
        self.0 == [0; 16]
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if index > 0 && index % 4 == 0 {
                f.write_str(":")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// Which superblock format, which also says where it lies on the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// 64 to 128 KiB before the end, in the byte order of the machine that made it.
    V0_90,
    /// 8 to 12 KiB before the end.
    V1_0,
    /// At the very start.
    V1_1,
    /// 4 KiB from the start, the usual choice.
    V1_2,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V0_90 => "0.90",
            Self::V1_0 => "1.0",
            Self::V1_1 => "1.1",
            Self::V1_2 => "1.2",
        })
    }
}

/// The RAID level as md numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// -100: a container of an external format.
    Container,
    /// -5: md's fault injector.
    Faulty,
    /// -4: several paths to one drive.
    Multipath,
    /// -1: members one after the other.
    Linear,
    /// 0: striping.
    Raid0,
    /// 1: mirroring.
    Raid1,
    /// 4: parity on one member.
    Raid4,
    /// 5: rotating parity.
    Raid5,
    /// 6: rotating double parity.
    Raid6,
    /// 10: near, far and offset copies.
    Raid10,
    /// Any other number found on a drive.
    Unknown(i32),
}

impl Level {
    /// The level for md's number.
    pub fn from_code(code: i32) -> Self {
        match code {
            -100 => Self::Container,
            -5 => Self::Faulty,
            -4 => Self::Multipath,
            -1 => Self::Linear,
            0 => Self::Raid0,
            1 => Self::Raid1,
            4 => Self::Raid4,
            5 => Self::Raid5,
            6 => Self::Raid6,
            10 => Self::Raid10,
            other => Self::Unknown(other),
        }
    }

    /// md's number for the level.
    pub fn code(self) -> i32 {
        match self {
            Self::Container => -100,
            Self::Faulty => -5,
            Self::Multipath => -4,
            Self::Linear => -1,
            Self::Raid0 => 0,
            Self::Raid1 => 1,
            Self::Raid4 => 4,
            Self::Raid5 => 5,
            Self::Raid6 => 6,
            Self::Raid10 => 10,
            Self::Unknown(code) => code,
        }
    }

    /// True where the same data can be had from more than one set of members, so that the set has
    /// a resync state and may run degraded.
    pub fn is_redundant(self) -> bool {
        matches!(self, Self::Raid1 | Self::Raid4 | Self::Raid5 | Self::Raid6 | Self::Raid10)
    }

    /// True for the levels with parity members.
    pub fn has_parity(self) -> bool {
        matches!(self, Self::Raid4 | Self::Raid5 | Self::Raid6)
    }

    /// True where data is cut into chunks.
    pub fn is_striped(self) -> bool {
        self.has_parity() || matches!(self, Self::Raid0 | Self::Raid10)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Container => f.write_str("container"),
            Self::Faulty => f.write_str("faulty"),
            Self::Multipath => f.write_str("multipath"),
            Self::Linear => f.write_str("linear"),
            Self::Unknown(code) => write!(f, "unknown level {code}"),
            known => write!(f, "raid{}", known.code()),
        }
    }
}

/// What the role table says about one device number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Holds the data of this slot.
    Slot(u16),
    /// Holds no data (or: the device number is unused).
    Spare,
    /// Was failed by the set.
    Faulty,
    /// Carries the write journal.
    Journal,
    /// A code md does not define.
    Reserved(u16),
}

impl Role {
    /// The highest slot number; codes above it are special.
    pub const SLOT_MAX: u16 = 0xff00;

    /// The role for the code in the table.
    pub fn from_code(code: u16) -> Self {
        match code {
            0xffff => Self::Spare,
            0xfffe => Self::Faulty,
            0xfffd => Self::Journal,
            slot if slot <= Self::SLOT_MAX => Self::Slot(slot),
            other => Self::Reserved(other),
        }
    }

    /// The code in the table.
    pub fn code(self) -> u16 {
        match self {
            Self::Spare => 0xffff,
            Self::Faulty => 0xfffe,
            Self::Journal => 0xfffd,
            Self::Slot(code) | Self::Reserved(code) => code,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slot(slot) => write!(f, "slot {slot}"),
            Self::Spare => f.write_str("spare"),
            Self::Faulty => f.write_str("faulty"),
            Self::Journal => f.write_str("journal"),
            Self::Reserved(code) => write!(f, "reserved role {code:#06x}"),
        }
    }
}

/// The feature map of a version 1 superblock. A set bit this crate does not know means that a
/// field has another meaning than assumed here: such a member must not be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Features(pub u32);

impl Features {
    /// A write-intent bitmap is in use (together with [`Self::PPL`]: the field holds the log).
    pub const BITMAP: Self = Self(1);
    /// `recovery_offset` is valid: the member is only rebuilt up to there.
    pub const RECOVERY_OFFSET: Self = Self(2);
    /// A reshape is under way.
    pub const RESHAPE: Self = Self(4);
    /// The bad-block log has entries.
    pub const BAD_BLOCKS: Self = Self(8);
    /// This member is being filled to replace the one that holds its slot.
    pub const REPLACEMENT: Self = Self(16);
    /// The reshape runs from the end to the start.
    pub const RESHAPE_BACKWARDS: Self = Self(32);
    /// `new_offset` is valid: the reshape moves the data.
    pub const NEW_OFFSET: Self = Self(64);
    /// Recovery is guided by the bitmap.
    pub const RECOVERY_BITMAP: Self = Self(128);
    /// The bitmap is shared by a cluster.
    pub const CLUSTERED: Self = Self(256);
    /// The set has a write journal member.
    pub const JOURNAL: Self = Self(512);
    /// The set has partial parity logs.
    pub const PPL: Self = Self(1024);
    /// The partial parity log is a ring of several.
    pub const MULTIPLE_PPLS: Self = Self(2048);
    /// `layout` is valid on raid0.
    pub const RAID0_LAYOUT: Self = Self(4096);
    /// All bits above.
    pub const KNOWN: Self = Self(0x1fff);

    /// True if every bit of `other` is set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// This with the bits of `other` too.
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// This with the bits of `other` cleared.
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The bits this crate does not know.
    pub fn unknown(self) -> Self {
        Self(self.0 & !Self::KNOWN.0)
    }
}

/// Per-member flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DevFlags(pub u8);

impl DevFlags {
    /// Read from this member only if no other has the data.
    pub const WRITE_MOSTLY: Self = Self(1);
    /// Give up early on errors: others have the data.
    pub const FAILFAST: Self = Self(2);

    /// True if every bit of `other` is set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A point in time as md stores it: seconds since 1970 in the low 40 bits, microseconds in the
/// high 24.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Timestamp(pub u64);

impl Timestamp {
    const SECONDS_MASK: u64 = (1 << 40) - 1;

    /// Builds a time; seconds beyond 40 bits and microseconds beyond 24 are cut off.
    pub fn new(seconds: u64, microseconds: u32) -> Self {
        Self((seconds & Self::SECONDS_MASK) | (u64::from(microseconds) << 40))
    }

    /// Whole seconds since 1970-01-01 UTC.
    pub fn seconds(self) -> u64 {
        self.0 & Self::SECONDS_MASK
    }

    /// Microseconds within the second, as stored (a damaged field may hold more than 999 999).
    pub fn microseconds(self) -> u32 {
        (self.0 >> 40) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_survive_the_round_trip() {
        for code in 0..=u16::MAX {
            assert_eq!(Role::from_code(code).code(), code);
        }
        for code in -128..128 {
            assert_eq!(Level::from_code(code).code(), code);
        }
    }

    #[test]
    fn text_is_what_md_users_know() {
        let mut bytes = [0; 16];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = index as u8 * 17;
        }
        assert_eq!(Uuid(bytes).to_string(), "00112233:44556677:8899aabb:ccddeeff");
        assert_eq!(Level::Raid10.to_string(), "raid10");
        assert_eq!(Level::Unknown(3).to_string(), "unknown level 3");
        assert_eq!(Role::Slot(3).to_string(), "slot 3");
    }

    #[test]
    fn a_time_splits_into_seconds_and_microseconds() {
        let time = Timestamp::new(1_700_000_000, 999_999);
        assert_eq!((time.seconds(), time.microseconds()), (1_700_000_000, 999_999));
    }
}
