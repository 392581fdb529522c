//! [`MemberView`]: what one member says about itself and its set, whichever version said it.
//!
//! The engine and the assembly rules work on this view only. Everything is in bytes; places are
//! byte offsets from the start of the member. The view is for reading: what is written back is a
//! [`Superblock`] of the version that was found.

use super::SECTOR_BYTES;
use super::superblock1::{RESYNC_CLEAN, Superblock};
use super::types::{DevFlags, Features, Level, Role, Timestamp, Uuid, Version};

/// A run of bytes on a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// First byte, from the start of the member.
    pub start: u64,
    /// Number of bytes.
    pub length: u64,
}

/// How far redundancy is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resync {
    /// Everywhere.
    Clean,
    /// Below this byte of each member (of the array for raid10); behind it copies and parity may
    /// disagree. 0 is what md writes while a set is being written to.
    From(u64),
}

/// Level, layout, chunk and width together: where bytes live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// RAID level.
    pub level: Level,
    /// md's layout number; on raid0 0 if the superblock does not say.
    pub layout: u32,
    /// Chunk; 0 where the level has none.
    pub chunk_bytes: u64,
    /// Slots.
    pub raid_disks: u32,
    /// Where data starts on this member.
    pub data_offset_bytes: u64,
}

/// A reshape under way: the set is in the new shape on one side of the position and in the old
/// on the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReshapeView {
    /// Array byte the reshape has reached.
    pub position_bytes: u64,
    /// False: below the position is new. True: at and above the position is new.
    pub backwards: bool,
    /// Before.
    pub old: Layout,
    /// After.
    pub new: Layout,
}

/// Where the record of writes in flight lies, if anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsistencyPlace {
    /// None: a dirty set needs a whole resync.
    Resync,
    /// Write-intent bitmap, starting at this byte; its header says how long it is.
    Bitmap {
        /// Where its header starts.
        start: u64,
    },
    /// Partial parity log.
    Ppl {
        /// The log area.
        range: ByteRange,
        /// The area is a ring of several logs.
        multiple: bool,
    },
    /// The set has a journal member.
    Journal,
}

/// Where the bad-block log of a member lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadBlockPlace {
    /// The log area.
    pub range: ByteRange,
    /// Power of two of the log's unit, in sectors.
    pub shift: u8,
    /// The log is in use; if false md ignores what is there.
    pub in_use: bool,
}

/// One member's view. Build one with `From<&Superblock>` after [`Superblock::validate`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberView {
    /// Which superblock said this.
    pub version: Version,
    /// Where it lies.
    pub super_offset_bytes: u64,
    /// Identity of the set.
    pub set_uuid: Uuid,
    /// Name of the set, `host:name` or empty.
    pub name: String,
    /// Identity of the member; 0.90 has none.
    pub device_uuid: Option<Uuid>,
    /// Shape of the set; during a reshape the old one.
    pub layout: Layout,
    /// Bytes of each member the set uses; 0 on raid0 and linear, which use all of
    /// [`data_bytes`](Self::data_bytes).
    pub used_bytes: u64,
    /// Bytes available for data on this member.
    pub data_bytes: u64,
    /// The number that finds this member in `roles`.
    pub dev_number: u32,
    /// What this superblock's own table says about the member.
    pub role: Role,
    /// The table: role of each device number.
    pub roles: Vec<Role>,
    /// Counts state changes of the set.
    pub events: u64,
    /// State of redundancy.
    pub resync: Resync,
    /// The member is being rebuilt and holds valid data below this data byte.
    pub recovered_to_bytes: Option<u64>,
    /// The member is being filled to replace the holder of its slot.
    pub replacement: bool,
    /// The reshape under way.
    pub reshape: Option<ReshapeView>,
    /// Where writes in flight are recorded.
    pub consistency: ConsistencyPlace,
    /// On a journal member: where in the journal (bytes of its data area) replay starts.
    pub journal_tail_bytes: Option<u64>,
    /// The bad-block log.
    pub bad_blocks: Option<BadBlockPlace>,
    /// Flags of the member.
    pub devflags: DevFlags,
    /// Feature bits; all zero for 0.90.
    pub features: Features,
    /// When the set was made.
    pub created: Timestamp,
    /// When the superblock was last written.
    pub updated: Timestamp,
}

impl From<&Superblock> for MemberView {
    /// Saturates instead of overflowing: a superblock that [`Superblock::validate`] refuses gives
    /// a view too, for showing it.
    fn from(sb: &Superblock) -> Self {
        let has = |feature| sb.features.contains(feature);
        let start = |offset_sectors: i64| {
            sb.place.offset_bytes.saturating_add_signed(offset_sectors * SECTOR_BYTES as i64)
        };
        let role = sb.role();
        let is_journal = role == Role::Journal;
        let consistency = if let Some((offset, sectors)) = sb.ppl() {
            let range = ByteRange { start: start(offset.into()), length: bytes(sectors) };
            ConsistencyPlace::Ppl { range, multiple: has(Features::MULTIPLE_PPLS) }
        } else if let Some(offset) = sb.bitmap_offset_sectors() {
            ConsistencyPlace::Bitmap { start: start(offset.into()) }
        } else if has(Features::JOURNAL) {
            ConsistencyPlace::Journal
        } else {
            ConsistencyPlace::Resync
        };
        let log_offset = sb.bad_block_log_offset_sectors;
        let position = sb.recovery_offset_or_journal_tail;
        Self {
            version: sb.place.version,
            super_offset_bytes: sb.place.offset_bytes,
            set_uuid: sb.set_uuid,
            name: sb.name(),
            device_uuid: Some(sb.device_uuid),
            layout: old_layout(sb),
            used_bytes: bytes(sb.size_sectors),
            data_bytes: bytes(sb.data_size_sectors),
            dev_number: sb.dev_number,
            role,
            roles: sb.roles.clone(),
            events: sb.events,
            resync: match sb.resync_offset_sectors {
                RESYNC_CLEAN => Resync::Clean,
                sectors => Resync::From(bytes(sectors)),
            },
            recovered_to_bytes: (has(Features::RECOVERY_OFFSET) && !is_journal)
                .then(|| bytes(position)),
            replacement: has(Features::REPLACEMENT),
            reshape: has(Features::RESHAPE).then(|| reshape_view(sb)),
            consistency,
            journal_tail_bytes: is_journal.then(|| bytes(position)),
            bad_blocks: (log_offset != 0 && sb.bad_block_log_sectors != 0).then(|| BadBlockPlace {
                range: ByteRange {
                    start: start(log_offset.into()),
                    length: bytes(sb.bad_block_log_sectors),
                },
                shift: sb.bad_block_shift,
                in_use: has(Features::BAD_BLOCKS),
            }),
            devflags: sb.devflags,
            features: sb.features,
            created: sb.created,
            updated: sb.updated,
        }
    }
}

impl MemberView {
    /// The data area this member offers.
    pub fn data(&self) -> ByteRange {
        ByteRange { start: self.layout.data_offset_bytes, length: self.data_bytes }
    }
}

fn bytes(sectors: impl Into<u64>) -> u64 {
    sectors.into().saturating_mul(SECTOR_BYTES)
}

fn old_layout(sb: &Superblock) -> Layout {
    let reshaping = sb.features.contains(Features::RESHAPE);
    let gained = if reshaping { sb.reshape.delta_disks } else { 0 };
    // Before this feature the field had no meaning on raid0, and mdadm still fills it without.
    let says_layout = sb.level != Level::Raid0 || sb.features.contains(Features::RAID0_LAYOUT);
    Layout {
        level: sb.level,
        layout: if says_layout { sb.layout } else { 0 },
        chunk_bytes: bytes(sb.chunk_sectors),
        // md stores the new number of disks while everything else is still the old.
        raid_disks: (i64::from(sb.raid_disks) - i64::from(gained)).clamp(0, u32::MAX.into()) as u32,
        data_offset_bytes: bytes(sb.data_offset_sectors),
    }
}

fn reshape_view(sb: &Superblock) -> ReshapeView {
    let old = old_layout(sb);
    let moved = if sb.features.contains(Features::NEW_OFFSET) {
        i64::from(sb.reshape.new_offset_sectors) * SECTOR_BYTES as i64
    } else {
        0
    };
    ReshapeView {
        position_bytes: bytes(sb.reshape.position_sectors),
        backwards: sb.features.contains(Features::RESHAPE_BACKWARDS),
        old,
        new: Layout {
            level: Level::from_code(sb.reshape.new_level),
            layout: sb.reshape.new_layout,
            chunk_bytes: bytes(sb.reshape.new_chunk_sectors),
            raid_disks: sb.raid_disks,
            data_offset_bytes: old.data_offset_bytes.saturating_add_signed(moved),
        },
    }
}
