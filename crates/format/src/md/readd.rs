//! Whether a member that left a set may come back with only what changed since.
//!
//! The set's write-intent bitmap keeps the bits of everything that was written while a member was
//! missing, and its `events_cleared` says since when no bit was cleared. A member that was in the
//! set at that event or later, as a full holder of its slot, differs from the set only where bits
//! are set. Everything else about it must be as it was: its slot still empty, its device number
//! nobody else's, the shape the same; and it must not have gone on by itself.

use core::fmt;

use super::bitmap::BitmapHeader;
use super::member::MemberView;
use super::types::Role;

/// Why a member that left can't come back by the bitmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReaddRefusal {
    /// The set keeps no bitmap, or one that is out of date.
    NoBitmap,
    /// It left before bits were last cleared.
    LeftTooEarly {
        /// Its events.
        events: u64,
        /// Events of the set when bits were last cleared.
        events_cleared: u64,
    },
    /// It did not hold all of a slot when it left.
    NotComplete,
    /// Its slot does not exist, or another member holds it.
    SlotTaken,
    /// Another member has its device number.
    NumberTaken,
    /// Level, layout, chunk, sizes or its data's place are others than the set's.
    OtherShape,
    /// Its superblock has none of the set's present members: it went on without them.
    WentOnAlone,
}

impl fmt::Display for ReaddRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoBitmap => f.write_str("no write-intent bitmap says what it lacks"),
            Self::LeftTooEarly { events, events_cleared } => write!(
                f,
                "it left at event {events}, and the bitmap says what changed since event \
                 {events_cleared} only"
            ),
            Self::NotComplete => f.write_str("it did not hold all of a slot when it left"),
            Self::SlotTaken => f.write_str("its slot is not empty"),
            Self::NumberTaken => f.write_str("another member has its number"),
            Self::OtherShape => f.write_str("it describes another shape of the set"),
            Self::WentOnAlone => f.write_str("it went on without the others"),
        }
    }
}

/// The slot `member` may come back to by the bits of `bitmap` (a current one of the set that
/// `reference` describes), or why not. `slot_is_free` says which slots have no member.
///
/// # Errors
/// [`ReaddRefusal`].
pub fn readd(
    member: &MemberView,
    reference: &MemberView,
    bitmap: Option<&BitmapHeader>,
    slot_is_free: &dyn Fn(u16) -> bool,
) -> Result<u16, ReaddRefusal> {
    let bitmap = bitmap.ok_or(ReaddRefusal::NoBitmap)?;
    let Role::Slot(slot) = member.role else { return Err(ReaddRefusal::NotComplete) };
    if member.recovered_to_bytes.is_some() || member.replacement {
        return Err(ReaddRefusal::NotComplete);
    }
    let shape = |view: &MemberView| {
        let layout = view.layout;
        (layout.level, layout.layout, layout.chunk_bytes, layout.raid_disks, view.used_bytes)
    };
    let reshaped = member.reshape.is_some() || reference.reshape.is_some();
    if member.set_uuid != reference.set_uuid || shape(member) != shape(reference) || reshaped {
        return Err(ReaddRefusal::OtherShape);
    }
    if u32::from(slot) >= reference.layout.raid_disks || !slot_is_free(slot) {
        return Err(ReaddRefusal::SlotTaken);
    }
    let holds = |role: &Role| matches!(role, Role::Slot(_));
    if reference.roles.get(member.dev_number as usize).is_some_and(holds) {
        return Err(ReaddRefusal::NumberTaken);
    }
    let mut both = reference.roles.iter().zip(&member.roles);
    if !both.any(|(now, then)| holds(now) && holds(then)) {
        return Err(ReaddRefusal::WentOnAlone);
    }
    let (events, events_cleared) = (member.events, bitmap.events_cleared);
    if events < events_cleared {
        return Err(ReaddRefusal::LeftTooEarly { events, events_cleared });
    }
    Ok(slot)
}

#[cfg(test)]
mod tests {
    use super::super::bitmap::{BitmapForm, BitmapState};
    use super::super::create::plan_create;
    use super::super::create_request::{Consistency, CreateRequest, NewMember};
    use super::super::types::{DevFlags, Level, Timestamp, Uuid, Version};
    use super::*;

    /// A mirror of two: the first goes on to event 20, the second left at event 12.
    fn mirror() -> [MemberView; 2] {
        let drive = |byte| {
            let device_uuid = Uuid([byte; 16]);
            let devflags = DevFlags::default();
            Some(NewMember { device_bytes: 16 << 20, device_uuid, devflags })
        };
        let request = CreateRequest {
            version: Version::V1_2,
            set_uuid: Uuid([42; 16]),
            name: "host:0".to_owned(),
            level: Level::Raid1,
            layout: 0,
            chunk_bytes: 0,
            slots: vec![drive(1), drive(2)],
            spares: Vec::new(),
            size_bytes: None,
            consistency: Consistency::Bitmap,
            checksums: false,
            assume_clean: true,
            created: Timestamp::new(1_700_000_000, 0),
        };
        let superblocks = plan_create(&request).expect("can be made");
        let mut views = [&superblocks[0], &superblocks[1]].map(MemberView::from);
        (views[0].events, views[0].roles[1]) = (20, Role::Faulty);
        views[1].events = 12;
        views
    }

    fn bitmap(events_cleared: u64) -> BitmapHeader {
        BitmapHeader {
            form: BitmapForm::Bits { version: 4 },
            set_uuid: Uuid([42; 16]),
            events: 20,
            events_cleared,
            sync_sectors: 100,
            state: BitmapState(0),
            chunk_bytes: 4096,
            daemon_sleep_seconds: 5,
            write_behind: 0,
            sectors_reserved: 0,
            nodes: 0,
        }
    }

    #[test]
    fn who_left_since_bits_were_cleared_comes_back() {
        let [reference, member] = mirror();
        let left_too_early = ReaddRefusal::LeftTooEarly { events: 12, events_cleared: 13 };
        for (events_cleared, expected) in [(11, Ok(1)), (12, Ok(1)), (13, Err(left_too_early))] {
            let verdict = readd(&member, &reference, Some(&bitmap(events_cleared)), &|_| true);
            assert_eq!(verdict, expected, "cleared at {events_cleared}");
        }
    }

    #[test]
    fn everything_else_has_to_be_as_it_was() {
        type Change<'a> = &'a dyn Fn(&mut MemberView, &mut MemberView);
        let table: [(Change<'_>, ReaddRefusal); 8] = [
            (&|member, _| member.role = Role::Spare, ReaddRefusal::NotComplete),
            (&|member, _| member.recovered_to_bytes = Some(0), ReaddRefusal::NotComplete),
            (&|member, _| member.replacement = true, ReaddRefusal::NotComplete),
            (&|member, _| member.used_bytes -= 65536, ReaddRefusal::OtherShape),
            (&|member, _| member.layout.raid_disks = 3, ReaddRefusal::OtherShape),
            (&|member, _| member.role = Role::Slot(2), ReaddRefusal::SlotTaken),
            (&|_, reference| reference.roles[1] = Role::Slot(1), ReaddRefusal::NumberTaken),
            (&|member, _| member.roles[0] = Role::Faulty, ReaddRefusal::WentOnAlone),
        ];
        for (change, expected) in table {
            let [mut reference, mut member] = mirror();
            change(&mut member, &mut reference);
            let verdict = readd(&member, &reference, Some(&bitmap(1)), &|_| true);
            assert_eq!(verdict, Err(expected));
        }
        let [reference, member] = mirror();
        let taken = readd(&member, &reference, Some(&bitmap(1)), &|_| false);
        assert_eq!(taken, Err(ReaddRefusal::SlotTaken));
        assert_eq!(readd(&member, &reference, None, &|_| true), Err(ReaddRefusal::NoBitmap));
    }
}
