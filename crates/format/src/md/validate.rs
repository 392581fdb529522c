//! Does a superblock make sense on the drive it was found on?
//!
//! A right checksum says that the bytes are as md wrote them, not that they fit this drive: it
//! may have been copied from a larger one, or its end may be hidden. The checks here need the
//! drive's size and nothing else; comparing members is [`super::decide`]'s
//! business.

use super::SECTOR_BYTES;
use super::superblock1::Superblock;
use super::types::{Features, Level, Version};

/// A superblock that cannot describe a usable member of this size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Implausible {
    /// A set without members.
    #[error("the set has no raid disks")]
    NoDisks,
    /// More slots than the role table has room for.
    #[error("the set has {raid_disks} slots but a role table of {roles}")]
    MoreSlotsThanRoles {
        /// Slots of the set.
        raid_disks: u32,
        /// Entries in the role table.
        roles: usize,
    },
    /// A reshape from less than one member.
    #[error("reshape adds {delta} to reach {raid_disks} slots")]
    ReshapeFromNothing {
        /// Slots of the set after the reshape.
        raid_disks: u32,
        /// Slots added.
        delta: i32,
    },
    /// A striped level without a chunk, or with one that is no whole number of pages.
    #[error("{level} with a chunk of {chunk_sectors} sectors")]
    BadChunk {
        /// The level.
        level: Level,
        /// The chunk.
        chunk_sectors: u32,
    },
    /// The data area ends behind the drive's end.
    #[error("data area ends at byte {end_bytes}, {} bytes past the end of the drive",
        end_bytes - device_bytes)]
    DataPastEnd {
        /// End of the data area.
        end_bytes: u64,
        /// Size of the drive.
        device_bytes: u64,
    },
    /// The set uses more of this member than the member offers.
    #[error("the set uses {size_sectors} sectors of each member, this one offers {data_sectors}")]
    DataTooSmall {
        /// Used on each member.
        size_sectors: u64,
        /// Offered.
        data_sectors: u64,
    },
    /// Superblock and data area lie on each other.
    #[error("superblock at sector {super_sector} lies inside the data area")]
    SuperblockInData {
        /// Where the superblock lies.
        super_sector: u64,
    },
    /// A log or bitmap lies outside the drive.
    #[error("{area} at sector {start_sector} lies outside the drive")]
    AreaOutside {
        /// Which area.
        area: &'static str,
        /// Its start, possibly negative.
        start_sector: i64,
    },
    /// An offset too large for any drive.
    #[error("{field} of {sectors} sectors overflows")]
    Overflow {
        /// Which field.
        field: &'static str,
        /// Its value.
        sectors: u64,
    },
}

impl Superblock {
    /// Checks every place and count against a drive of `device_bytes`.
    ///
    /// # Errors
    /// The first thing that cannot be true.
    pub fn validate(&self, device_bytes: u64) -> Result<(), Implausible> {
        self.validate_shape()?;
        self.validate_data(device_bytes)?;
        self.validate_areas(device_bytes)
    }

    fn validate_shape(&self) -> Result<(), Implausible> {
        let raid_disks = self.raid_disks;
        if raid_disks == 0 {
            return Err(Implausible::NoDisks);
        }
        let roles = self.roles.len();
        if raid_disks as usize > roles {
            return Err(Implausible::MoreSlotsThanRoles { raid_disks, roles });
        }
        let reshaping = self.features.contains(Features::RESHAPE);
        let delta = self.reshape.delta_disks;
        if reshaping && i64::from(raid_disks) - i64::from(delta) <= 0 {
            return Err(Implausible::ReshapeFromNothing { raid_disks, delta });
        }
        // md wants a power of two of at least a page for parity and mirrors; raid0 takes any
        // whole number of sectors.
        let chunk_sectors = self.chunk_sectors;
        let fits = match self.level {
            Level::Raid0 => chunk_sectors > 0,
            level if level.is_striped() => chunk_sectors >= 8 && chunk_sectors.is_power_of_two(),
            _ => true,
        };
        if !fits {
            return Err(Implausible::BadChunk { level: self.level, chunk_sectors });
        }
        Ok(())
    }

    fn validate_data(&self, device_bytes: u64) -> Result<(), Implausible> {
        let field = |name, sectors: u64| {
            sectors.checked_mul(SECTOR_BYTES).ok_or(Implausible::Overflow { field: name, sectors })
        };
        let start = field("data offset", self.data_offset_sectors)?;
        let size = field("data size", self.data_size_sectors)?;
        field("member size", self.size_sectors)?;
        let end_bytes = start
            .checked_add(size)
            .ok_or(Implausible::Overflow { field: "data end", sectors: self.data_size_sectors })?;
        if end_bytes > device_bytes {
            return Err(Implausible::DataPastEnd { end_bytes, device_bytes });
        }
        if self.size_sectors > self.data_size_sectors && self.role() != super::Role::Journal {
            let (size_sectors, data_sectors) = (self.size_sectors, self.data_size_sectors);
            return Err(Implausible::DataTooSmall { size_sectors, data_sectors });
        }
        let super_start = self.place.offset_bytes;
        let clear = match self.place.version {
            Version::V1_0 => end_bytes <= super_start,
            _ => super_start < start,
        };
        if !clear {
            let super_sector = super_start / SECTOR_BYTES;
            return Err(Implausible::SuperblockInData { super_sector });
        }
        Ok(())
    }

    fn validate_areas(&self, device_bytes: u64) -> Result<(), Implausible> {
        let inside = |area, offset_sectors: i64, sectors: u64| {
            let start_sector = (self.place.offset_bytes / SECTOR_BYTES) as i64 + offset_sectors;
            let end = u64::try_from(start_sector).ok().map(|start| start + sectors);
            match end {
                Some(end) if end <= device_bytes / SECTOR_BYTES => Ok(()),
                _ => Err(Implausible::AreaOutside { area, start_sector }),
            }
        };
        if let Some(offset) = self.bitmap_offset_sectors() {
            inside("write-intent bitmap", offset.into(), 1)?;
        }
        if let Some((offset, sectors)) = self.ppl() {
            inside("partial parity log", offset.into(), sectors.into())?;
        }
        if self.bad_block_log_offset_sectors != 0 {
            let sectors = self.bad_block_log_sectors.into();
            inside("bad-block log", self.bad_block_log_offset_sectors.into(), sectors)?;
        }
        Ok(())
    }
}
