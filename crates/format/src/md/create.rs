//! Planning a new set: which superblock each member gets.
//!
//! Pure: sizes, identities and times come in as values, superblocks come out. Where mdadm has a
//! choice of place (data offset, room for a bitmap, bad-block log) this makes the same one, so
//! that mdadm finds its own habits again. One thing differs on purpose: parity sets start with
//! all members in place and a resync, not with one member as a rebuilding spare.
//!
//! Left out: whether a level survives its missing members beyond one parity each (geometry knows),
//! and whether the members may be overwritten at all (the caller looks first, with
//! [`probe`](crate::probe)).

use super::bitmap::{BITMAP_HEADER_BYTES, BitmapForm, BitmapHeader, BitmapState};
use super::create_request::{Consistency, CreateError, CreateRequest, NewMember};
use super::ppl::PplLog;
use super::superblock1::{Place, RESYNC_CLEAN, ROLES_MAX, ReshapeFields, Superblock};
use super::types::{DevFlags, Features, Level, Role, Uuid, Version};
use super::{SECTOR_BYTES, SUPERBLOCK_BYTES};
use crate::own::sums_room_bytes;

/// Table entries mdadm starts with.
const ROLES_DEFAULT: usize = 128;

/// Superblock and what must stay clear of it, in sectors.
const SUPERBLOCK_SECTORS: u64 = 8;

/// md's bad-block log: 512 entries.
const BAD_BLOCK_LOG_SECTORS: u64 = 8;

/// A ring of partial parity logs: 1 MiB.
const PPL_SECTORS: u64 = 2048;

/// Data starts on a whole MiB.
const DATA_ALIGN_SECTORS: u64 = 2048;

/// Room a later reshape may use to move the data start: 128 MiB at most.
const HEADROOM_SECTORS: u64 = 128 * 2048;

/// Smallest chunk of a bitmap mdadm chooses by itself: 64 MiB.
pub const BITMAP_CHUNK_BYTES: u64 = 64 << 20;

/// Where the level has no chunk, mdadm rounds the used size as if it were 64 KiB.
const NO_CHUNK_SECTORS: u64 = 128;

/// Plans the superblocks of a new set, in the order slots (missing ones left out), spares,
/// journal. Write each with [`initial_writes`].
///
/// # Errors
/// [`CreateError`]: what is wrong with the request.
pub fn plan_create(request: &CreateRequest) -> Result<Vec<Superblock>, CreateError> {
    request.check()?;
    let members = members(request);
    let room = Room::plan(request, &members)?;
    let roles = roles(request, &members);
    let template = template(request, &room, roles);
    members
        .iter()
        .enumerate()
        .map(|(index, member)| {
            let NewMember { device_bytes, device_uuid, devflags } = member.drive;
            let too_small = CreateError::MemberTooSmall { index, device_bytes };
            let place = Place::of(request.version, device_bytes).ok_or(too_small)?;
            let data_size_sectors = room.data_sectors(device_bytes).ok_or(too_small)?;
            let is_journal = member.role == Role::Journal;
            if !is_journal && data_size_sectors < room.size_sectors {
                return Err(too_small);
            }
            let dev_number = member.dev_number;
            Ok(Superblock {
                place,
                data_size_sectors,
                dev_number,
                device_uuid,
                devflags,
                ..template.clone()
            })
        })
        .collect()
}

/// What to write on a member of a new set: byte offsets and bytes. The superblock comes last, so
/// that the set does not exist before its areas do; flush before it.
///
/// A bit of a bitmap stands for `bitmap_chunk_bytes`, a power of two ([`BITMAP_CHUNK_BYTES`] where
/// nobody chose), or for as much more as it takes for the bits to fit their room.
///
/// # Panics
/// For a superblock that was not planned by [`plan_create`].
pub fn initial_writes(superblock: &Superblock, bitmap_chunk_bytes: u64) -> Vec<(u64, Vec<u8>)> {
    let at = |offset_sectors: i64| {
        superblock.place.offset_bytes.saturating_add_signed(offset_sectors * SECTOR_BYTES as i64)
    };
    let mut writes = Vec::new();
    if let Some(offset) = superblock.bitmap_offset_sectors() {
        let mut area = bitmap_header(superblock, bitmap_chunk_bytes).build();
        // Whole blocks of any drive; the room is a multiple of that.
        area.resize(area.len().next_multiple_of(SUPERBLOCK_BYTES), 0xff);
        writes.push((at(offset.into()), area));
    }
    if let Some((offset, _)) = superblock.ppl() {
        writes.push((at(offset.into()), PplLog::build_empty(superblock.set_uuid)));
    }
    let log = superblock.bad_block_log_offset_sectors;
    if log != 0 {
        let bytes = usize::from(superblock.bad_block_log_sectors) * SECTOR_BYTES as usize;
        writes.push((at(log.into()), vec![0xff; bytes]));
    }
    writes.push((superblock.place.offset_bytes, superblock.build()));
    writes
}

/// A member with its number and role.
struct Planned {
    drive: NewMember,
    dev_number: u32,
    role: Role,
}

/// Slots keep their number as device number, missing ones leave it unused.
fn members(request: &CreateRequest) -> Vec<Planned> {
    let slots = request.slots.iter().enumerate().filter_map(|(slot, drive)| {
        let role = Role::Slot(slot as u16);
        drive.map(|drive| Planned { drive, dev_number: slot as u32, role })
    });
    let mut members: Vec<_> = slots.collect();
    let journal = match request.consistency {
        Consistency::Journal(drive) => Some((drive, Role::Journal)),
        _ => None,
    };
    let spares = request.spares.iter().map(|&drive| (drive, Role::Spare));
    for (number, (drive, role)) in (request.slots.len() as u32..).zip(spares.chain(journal)) {
        members.push(Planned { drive, dev_number: number, role });
    }
    members
}

fn roles(request: &CreateRequest, members: &[Planned]) -> Vec<Role> {
    let numbers = request.slots.len() + request.spares.len() + 1;
    let entries = numbers.next_multiple_of(ROLES_DEFAULT).min(ROLES_MAX);
    let mut roles = vec![Role::Spare; entries];
    for member in members {
        roles[member.dev_number as usize] = member.role;
    }
    roles
}

/// Places on every member, in sectors.
struct Room {
    version: Version,
    data_offset_sectors: u64,
    /// Kept free next to the superblock for bitmap or log.
    reserved_sectors: u64,
    /// Used on each member; 0 on raid0 and linear.
    size_sectors: u64,
}

impl Room {
    fn plan(request: &CreateRequest, members: &[Planned]) -> Result<Self, CreateError> {
        let data_members = || members.iter().filter(|member| member.role != Role::Journal);
        let smallest = data_members().map(|member| member.drive.device_bytes).min();
        let device_bytes = smallest.unwrap_or(0);
        let device_sectors = device_bytes / SECTOR_BYTES;
        let chunk_sectors = u64::from(request.chunk_bytes) / SECTOR_BYTES;
        let is_ppl = request.consistency == Consistency::Ppl;
        let bitmap_room = if is_ppl { PPL_SECTORS } else { bitmap_room(device_sectors) };
        // More than the data that fits beside it would need.
        let own_room = match request.checksums {
            true => sums_room_bytes(device_bytes) / SECTOR_BYTES,
            false => 0,
        };
        let mut room = Self {
            version: request.version,
            data_offset_sectors: match request.version {
                Version::V1_0 => 0,
                _ => data_offset(device_sectors, chunk_sectors, bitmap_room + own_room),
            },
            // mdadm keeps the room also for a bitmap added later, where the level can have one.
            reserved_sectors: if request.level.is_redundant() { bitmap_room } else { 0 },
            size_sectors: 0,
        };
        let index = members
            .iter()
            .position(|member| member.drive.device_bytes == device_bytes)
            .unwrap_or(0);
        let too_small = CreateError::MemberTooSmall { index, device_bytes };
        let unit = if chunk_sectors == 0 { NO_CHUNK_SECTORS } else { chunk_sectors };
        let available = room.data_sectors(device_bytes).ok_or(too_small)? / unit * unit;
        if available == 0 {
            return Err(too_small);
        }
        let size = match request.size_bytes {
            None => available,
            Some(asked_bytes) if asked_bytes / SECTOR_BYTES > available => {
                let available_bytes = available * SECTOR_BYTES;
                return Err(CreateError::SizeTooLarge { asked_bytes, available_bytes });
            }
            Some(asked_bytes) => asked_bytes / SECTOR_BYTES / unit * unit,
        };
        if size == 0 {
            return Err(too_small);
        }
        if request.level == Level::Raid10 {
            let copies = Copies::of(request.layout, request.slots.len());
            room.size_sectors = copies.used_chunks(size / unit) * unit;
        } else if request.level.is_redundant() {
            room.size_sectors = size;
        }
        if request.level.is_redundant() && room.size_sectors == 0 {
            return Err(too_small);
        }
        Ok(room)
    }

    /// Sectors for data on a member.
    fn data_sectors(&self, device_bytes: u64) -> Option<u64> {
        let sectors = device_bytes / SECTOR_BYTES;
        let data = match self.version {
            Version::V1_0 => {
                let superblock = Place::of(self.version, device_bytes)?.offset_bytes / SECTOR_BYTES;
                superblock.checked_sub(self.reserved_sectors + BAD_BLOCK_LOG_SECTORS)
            }
            _ => sectors.checked_sub(self.data_offset_sectors),
        };
        data.filter(|&data| data > 0)
    }

    /// Where the bitmap or log starts, in sectors from the superblock.
    fn reserved_offset(&self) -> i64 {
        match self.version {
            Version::V1_0 => -((self.reserved_sectors + BAD_BLOCK_LOG_SECTORS) as i64),
            _ => SUPERBLOCK_SECTORS as i64,
        }
    }

    fn bad_block_log_offset(&self) -> i64 {
        match self.version {
            Version::V1_0 => -(BAD_BLOCK_LOG_SECTORS as i64),
            _ => (SUPERBLOCK_SECTORS + self.reserved_sectors) as i64,
        }
    }
}

/// Sectors mdadm keeps for a bitmap: 4 KiB, over 8 GiB 64 KiB, from 200 GiB 128 KiB.
fn bitmap_room(device_sectors: u64) -> u64 {
    const GIB_SECTORS: u64 = 2 << 20;
    match device_sectors {
        0..128 => 0,
        sectors if sectors - 128 >= 200 * GIB_SECTORS => 256,
        sectors if sectors - 8 > 8 * GIB_SECTORS => 128,
        _ => 8,
    }
}

/// mdadm's rule: superblock and bitmap room, then headroom of about a thousandth of the member
/// (but two chunks), rounded up to a MiB.
fn data_offset(device_sectors: u64, chunk_sectors: u64, bitmap_room: u64) -> u64 {
    let mut headroom = HEADROOM_SECTORS;
    while headroom << 10 > device_sectors && (chunk_sectors == 0 || headroom > chunk_sectors * 2) {
        headroom >>= 1;
    }
    (24 + bitmap_room + headroom).next_multiple_of(DATA_ALIGN_SECTORS)
}

/// The superblock all members share; what is theirs alone is filled in later.
fn template(request: &CreateRequest, room: &Room, roles: Vec<Role>) -> Superblock {
    let mut set_name = [0; 32];
    set_name[..request.name.len()].copy_from_slice(request.name.as_bytes());
    let (features, bitmap_or_ppl) = match request.consistency {
        Consistency::Resync => (Features::default(), 0),
        Consistency::Bitmap => (Features::BITMAP, room.reserved_offset() as i32 as u32),
        Consistency::Ppl => {
            let offset = room.reserved_offset() as i16 as u16;
            (Features::MULTIPLE_PPLS, u32::from(offset) | (PPL_SECTORS as u32) << 16)
        }
        Consistency::Journal(_) => (Features::JOURNAL, 0),
    };
    let raid0_layout = request.level == Level::Raid0 && request.layout != 0;
    Superblock {
        place: Place { version: request.version, offset_bytes: 0 },
        features: features.with(Features(if raid0_layout { Features::RAID0_LAYOUT.0 } else { 0 })),
        pad0: [0; 4],
        set_uuid: request.set_uuid,
        set_name,
        created: request.created,
        level: request.level,
        layout: request.layout,
        size_sectors: room.size_sectors,
        chunk_sectors: request.chunk_bytes / SECTOR_BYTES as u32,
        raid_disks: request.slots.len() as u32,
        bitmap_or_ppl,
        reshape: ReshapeFields::default(),
        data_offset_sectors: room.data_offset_sectors,
        data_size_sectors: 0,
        recovery_offset_or_journal_tail: 0,
        dev_number: 0,
        corrected_reads: 0,
        device_uuid: Uuid::default(),
        devflags: DevFlags::default(),
        bad_block_shift: 0,
        bad_block_log_sectors: BAD_BLOCK_LOG_SECTORS as u16,
        bad_block_log_offset_sectors: room.bad_block_log_offset() as i32,
        updated: request.created,
        events: 0,
        resync_offset_sectors: if needs_resync(request) { 0 } else { RESYNC_CLEAN },
        logical_block_size: 0,
        pad3: [0; 28],
        roles,
    }
}

/// A parity set that starts with as many missing as it has parity has nothing to resync (and md
/// would refuse to start it dirty).
fn needs_resync(request: &CreateRequest) -> bool {
    let missing = request.slots.iter().filter(|slot| slot.is_none()).count();
    let no_spare_parity = match request.level {
        Level::Raid4 | Level::Raid5 => missing == 1,
        Level::Raid6 => missing == 2,
        _ => false,
    };
    request.level.is_redundant() && !no_spare_parity && !request.assume_clean
}

/// How often a raid10 layout stores each chunk.
struct Copies {
    near: u64,
    far: u64,
    slots: u64,
}

impl Copies {
    fn of(layout: u32, slots: usize) -> Self {
        let [near, far, ..] = layout.to_le_bytes();
        Self { near: near.into(), far: far.into(), slots: slots as u64 }
    }

    /// Chunks of the array on members of `chunks` each.
    fn array_chunks(&self, chunks: u64) -> u64 {
        chunks / self.far * self.slots / self.near
    }

    /// Chunks of each member that the array then uses: md cuts off what no whole set of copies
    /// fits into.
    fn used_chunks(&self, chunks: u64) -> u64 {
        (self.array_chunks(chunks) * self.near * self.far).div_ceil(self.slots)
    }
}

/// The bitmap of a new member: the smallest chunk from `chunk_bytes` up whose bits fit the room.
fn bitmap_header(superblock: &Superblock, mut chunk_bytes: u64) -> BitmapHeader {
    let member_bytes = superblock.size_sectors * SECTOR_BYTES;
    // On raid10 the bitmap covers the array.
    let covered = match superblock.level {
        Level::Raid10 => {
            let chunk_bytes = u64::from(superblock.chunk_sectors) * SECTOR_BYTES;
            let copies = Copies::of(superblock.layout, superblock.raid_disks as usize);
            copies.array_chunks(member_bytes / chunk_bytes) * chunk_bytes
        }
        _ => member_bytes,
    };
    let room_sectors = match superblock.place.version {
        Version::V1_0 => -superblock.bitmap_or_ppl.cast_signed() - BAD_BLOCK_LOG_SECTORS as i32,
        _ => superblock.bad_block_log_offset_sectors - SUPERBLOCK_SECTORS as i32,
    };
    let room_bits = (room_sectors as u64 * SECTOR_BYTES - BITMAP_HEADER_BYTES as u64) * 8;
    while covered.div_ceil(chunk_bytes) > room_bits {
        chunk_bytes *= 2;
    }
    BitmapHeader {
        form: BitmapForm::Bits { version: 4 },
        set_uuid: superblock.set_uuid,
        events: superblock.events,
        events_cleared: superblock.events,
        sync_sectors: covered / SECTOR_BYTES,
        state: BitmapState(0),
        // 2^31 bytes times at least 30 720 bits covers more than any member.
        chunk_bytes: u32::try_from(chunk_bytes).unwrap_or(1 << 31),
        daemon_sleep_seconds: 5,
        write_behind: 0,
        sectors_reserved: room_sectors as u32,
        nodes: 0,
    }
}

const _: () = assert!(SUPERBLOCK_SECTORS * SECTOR_BYTES == SUPERBLOCK_BYTES as u64);

#[cfg(test)]
mod tests {
    use super::super::types::Timestamp;
    use super::*;
    use crate::own::SumsArea;

    fn drive(index: u8, device_bytes: u64) -> NewMember {
        NewMember {
            device_bytes,
            device_uuid: Uuid([index + 1; 16]),
            devflags: DevFlags::default(),
        }
    }

    fn request(level: Level, layout: u32, chunk_bytes: u32, sizes: &[u64]) -> CreateRequest {
        CreateRequest {
            version: Version::V1_2,
            set_uuid: Uuid([42; 16]),
            name: "host:0".to_owned(),
            level,
            layout,
            chunk_bytes,
            slots: sizes.iter().enumerate().map(|(i, &s)| Some(drive(i as u8, s))).collect(),
            spares: Vec::new(),
            size_bytes: None,
            consistency: Consistency::Resync,
            checksums: false,
            assume_clean: false,
            created: Timestamp::new(1_700_000_000, 0),
        }
    }

    #[test]
    fn places_are_those_mdadm_chooses() {
        // Member size, chunk, data offset in sectors as seen with mdadm.
        for (device_bytes, chunk, want) in [
            (16 << 20, 16 << 10, 2048),
            (16 << 20, 512 << 10, 4096),
            (1 << 40, 512 << 10, 264_192),
            (4 << 40, 512 << 10, 264_192),
        ] {
            let plan = plan_create(&request(Level::Raid5, 2, chunk, &[device_bytes; 3]));
            let plan = plan.expect("can be made");
            assert_eq!(plan[0].data_offset_sectors, want, "{device_bytes} bytes, chunk {chunk}");
            assert_eq!(plan[2].role(), Role::Slot(2));
            assert_eq!(plan[0].resync_offset_sectors, 0);
            for superblock in &plan {
                assert_eq!(superblock.validate(device_bytes), Ok(()));
            }
        }
    }

    #[test]
    fn checksums_get_room_before_the_data() {
        for device_bytes in [3 << 20, 16 << 20, 20 << 30, 400 << 30, 40 << 40] {
            let journal = Consistency::Journal(drive(9, device_bytes));
            for consistency in [Consistency::Resync, Consistency::Bitmap, Consistency::Ppl, journal]
            {
                let mut request = request(Level::Raid5, 2, 65536, &[device_bytes; 3]);
                (request.checksums, request.consistency) = (true, consistency);
                let superblock = &plan_create(&request).expect("can be made")[0];
                assert_eq!(superblock.validate(device_bytes), Ok(()));
                let covered_bytes = superblock.size_sectors * 512;
                let area = SumsArea::of(superblock, covered_bytes).expect("there is room");
                for (start, bytes) in initial_writes(superblock, BITMAP_CHUNK_BYTES) {
                    assert!(start + bytes.len() as u64 <= area.page_offset(0), "{device_bytes}");
                }
                let share = area.data_offset_bytes as f64 / device_bytes as f64;
                assert!(device_bytes < 1 << 30 || share < 0.01, "{share} of {device_bytes}");
            }
        }
    }

    #[test]
    fn missing_slots_and_spares_keep_their_numbers() {
        let mut request = request(Level::Raid6, 2, 65536, &[16 << 20; 5]);
        request.slots[1] = None;
        request.slots[3] = None;
        request.spares.push(drive(9, 16 << 20));
        let plan = plan_create(&request).expect("can be made");
        let roles: Vec<_> = plan.iter().map(Superblock::role).collect();
        assert_eq!(roles, [Role::Slot(0), Role::Slot(2), Role::Slot(4), Role::Spare]);
        assert_eq!(plan[3].dev_number, 5);
        assert_eq!(plan[0].roles[1], Role::Spare);
        // Nothing to resync with both parities' worth of members missing.
        assert_eq!(plan[0].resync_offset_sectors, RESYNC_CLEAN);
    }

    #[test]
    fn areas_do_not_overlap() {
        for version in [Version::V1_0, Version::V1_1, Version::V1_2] {
            for consistency in [Consistency::Bitmap, Consistency::Ppl] {
                for device_bytes in [16 << 20, 20 << 30, 400 << 30, 40 << 40] {
                    let mut request = request(Level::Raid5, 2, 65536, &[device_bytes; 3]);
                    (request.version, request.consistency) = (version, consistency);
                    let superblock = &plan_create(&request).expect("can be made")[0];
                    assert_eq!(superblock.validate(device_bytes), Ok(()), "{version}");
                    let data = superblock.data_offset_sectors * 512;
                    let data_end = data + superblock.data_size_sectors * 512;
                    let mut areas = vec![(data, data_end)];
                    for (start, bytes) in initial_writes(superblock, BITMAP_CHUNK_BYTES) {
                        areas.push((start, start + bytes.len() as u64));
                    }
                    areas.sort_unstable();
                    for pair in areas.windows(2) {
                        assert!(pair[0].1 <= pair[1].0, "{version} {consistency:?} {areas:?}");
                    }
                    assert!(areas[areas.len() - 1].1 <= device_bytes);
                }
            }
        }
    }

    #[test]
    fn bad_requests_say_what_is_wrong() {
        let error = |change: &dyn Fn(&mut CreateRequest)| {
            let mut request = request(Level::Raid5, 2, 65536, &[16 << 20; 3]);
            change(&mut request);
            plan_create(&request).expect_err("must be refused")
        };
        let level = Level::Raid5;
        assert_eq!(error(&|r| r.version = Version::V0_90), CreateError::Version(Version::V0_90));
        assert_eq!(error(&|r| r.level = Level::Faulty), CreateError::Level(Level::Faulty));
        assert_eq!(error(&|r| r.name = "x".repeat(33)), CreateError::NameTooLong { bytes: 33 });
        assert_eq!(
            error(&|r| r.slots.truncate(1)),
            CreateError::TooFewSlots { level, needed: 2, given: 1 }
        );
        assert_eq!(
            error(&|r| r.slots[..2].fill(None)),
            CreateError::TooManyMissing { level, missing: 2 }
        );
        assert_eq!(
            error(&|r| r.chunk_bytes = 1000),
            CreateError::Chunk { level, chunk_bytes: 1000 }
        );
        assert_eq!(error(&|r| r.layout = 6), CreateError::Layout { level, layout: 6 });
        assert_eq!(
            error(&|r| r.slots[1] = Some(drive(1, 1 << 20))),
            CreateError::MemberTooSmall { index: 1, device_bytes: 1 << 20 }
        );
        assert_eq!(
            error(&|r| r.size_bytes = Some(16 << 20)),
            CreateError::SizeTooLarge { asked_bytes: 16 << 20, available_bytes: 15 << 20 }
        );
        assert_eq!(
            error(&|r| (r.checksums, r.version) = (true, Version::V1_0)),
            CreateError::Checksums { level, version: Version::V1_0 }
        );
        let unequal = request(Level::Raid0, 0, 65536, &[16 << 20, 20 << 20]);
        let refused = CreateError::Layout { level: Level::Raid0, layout: 0 };
        assert_eq!(plan_create(&unequal), Err(refused));
    }
}
