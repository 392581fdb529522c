//! The state of an array as every command shows it: one document, in service or not.
//!
//! Whoever serves an array makes it from the engine's live status; whoever only looks makes it
//! from what the members say. Both are shown by the same words and the same JSON.

use std::fs;
use std::path::Path;

use array::{Array, ChecksumStatus, Health, SlotState, SlotStatus, Status};
use drive::{BlockDevice, Drive, Roots, list_devices};
use format::md::{ConsistencyPlace, MemberView, Resync};
use geometry::{Geometry, layout_name};
use serde::{Deserialize, Serialize};

use crate::arrays::job::Job;
use crate::arrays::record::{Bitmap, Journal, PartialParityLog};
use crate::arrays::scrub::Scrub;
use crate::scene::Found;

/// Everything about an array.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the field's own words; units are in the names")]
pub struct ArrayState {
    /// With the host that made it.
    pub name: String,
    /// As it is called in commands.
    pub title: String,
    pub uuid: String,
    /// How it is: one of the engine's words, whatever stands in the way of opening it.
    #[serde(with = "health")]
    pub health: Health,
    /// The same in one word, or what stands in the way.
    pub state: String,
    /// Whether nobody has to do anything.
    pub well: bool,
    /// Why it is not well.
    pub reasons: Vec<String>,
    pub level: String,
    pub layout: Option<String>,
    pub chunk_bytes: u64,
    pub slots: u32,
    pub missing_slots: Vec<u16>,
    /// `None` where it can't be opened.
    pub size_bytes: Option<u64>,
    pub stripe_bytes: Option<u64>,
    pub metadata: String,
    pub events: u64,
    pub created_unix_s: u64,
    pub updated_unix_s: u64,
    /// Which record of writes in flight it keeps: none, resync, bitmap, ppl or journal.
    pub consistency: String,
    /// What that record says, where it is a bitmap and the array can be opened.
    pub bitmap: Option<Bitmap>,
    pub partial_parity_log: Option<PartialParityLog>,
    pub journal: Option<Journal>,
    /// `None` at levels that keep nothing twice.
    pub redundancy_agrees: Option<bool>,
    /// Bytes below which it does, where it does in part.
    pub redundancy_agrees_to_bytes: Option<u64>,
    /// Content that a member changes or loses without an error: answered (checksums tell, and
    /// redundancy has it); else a read believes what it gets, and it is undetectable; undecidable
    /// (a check finds it, and nobody can know who is wrong); or mendable (by a repair).
    pub silent_changes: String,
    /// What the checksums of its data are worth, in words; `None` where it keeps none.
    pub checksums: Option<String>,
    /// `None` where the array can't be opened.
    pub bad_bytes: Option<u64>,
    pub member_of_another: bool,
    pub members: Vec<Member>,
    /// Drives that stand by.
    pub spares: Option<usize>,
    /// Widths that differ, where unequal members make them.
    pub zones: Vec<Zone>,
    /// The background job under way.
    pub job: Option<Job>,
    /// The one that ended last, since it is served.
    pub last_job: Option<Job>,
    /// What the last check or repair found; `None`: there was none, and nothing is known.
    pub scrub: Option<Scrub>,
    /// Who serves it; `None` where nobody is known to.
    pub served: Option<Served>,
}

/// A drive of an array.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the field's own words; units are in the names")]
pub struct Member {
    /// `None` for spares, and for what is no member any more.
    pub slot: Option<usize>,
    /// Its path; `None` where nobody is there.
    pub drive: Option<String>,
    /// What it is good for, in words.
    pub verdict: String,
    pub events: Option<u64>,
    pub updated_unix_s: Option<u64>,
    pub metadata: Option<String>,
    pub size_bytes: Option<u64>,
    pub used_bytes: Option<u64>,
    pub unused_bytes: Option<u64>,
    pub bad_bytes: Option<u64>,
    pub read_errors: Option<u64>,
    /// The drive that is filled to take over from it.
    pub replacement: Option<String>,
    /// As its maker calls it.
    pub model: Option<String>,
    /// As printed on it.
    pub serial: Option<String>,
}

/// A part of a RAID 0 over unequal members.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Zone {
    /// First byte in the array.
    pub start_bytes: u64,
    /// Its size.
    pub size_bytes: u64,
    /// Who is in it.
    pub slots: Vec<usize>,
}

/// Who serves an array.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// The process.
    pub pid: u32,
    /// Whether nothing is written.
    pub read_only: bool,
}

/// What the machine knows about its drives; read once for all members.
pub struct Inventory(Vec<BlockDevice>);

impl Inventory {
    /// Reads it. A machine that tells nothing costs only comfort.
    pub fn read() -> Self {
        Inventory(list_devices(&Roots::default()).unwrap_or_default())
    }

    fn of(&self, path: &str) -> Option<&BlockDevice> {
        let path = fs::canonicalize(path).ok()?;
        self.0.iter().find(|device| {
            device.path == path || device.partitions.iter().any(|part| part.path == path)
        })
    }

    /// The size of the drive or partition at `path`, or of the file there.
    fn size_bytes(&self, path: &str) -> Option<u64> {
        let Some(device) = self.of(path) else { return Some(fs::metadata(path).ok()?.len()) };
        let path = fs::canonicalize(path).ok()?;
        let part = device.partitions.iter().find(|part| part.path == path);
        Some(part.map_or(device.size_bytes, |part| part.size_bytes))
    }

    /// The serial number of the drive at `path`, or of that which it is a partition of.
    pub fn serial(&self, path: &str) -> Option<&str> {
        self.of(path)?.serial.as_deref()
    }
}

impl ArrayState {
    /// Of an array that nobody is known to serve.
    pub fn at_rest(found: &Found<'_>, inventory: &Inventory) -> Self {
        let members = found.assembly().verdicts.iter();
        let members = members.map(|(index, verdict)| candidate(found, *index, verdict.to_string()));
        Self::of(found, None, members.collect(), inventory, None)
    }

    /// Of an array that this process serves.
    pub fn in_service(found: &Found<'_>, status: &Status, inventory: &Inventory) -> Self {
        let slots = status.slots.iter().enumerate();
        let mut members: Vec<Member> =
            slots.map(|(slot, state)| in_slot(found, slot, state)).collect();
        let in_a_slot = |name: &str| members.iter().any(|m| m.drive.as_deref() == Some(name));
        let assembly = found.assembly();
        let others = assembly.verdicts.iter().filter(|(index, _)| {
            !assembly.slots.contains(&Some(*index)) && !in_a_slot(&found.drive_name(*index))
        });
        let others: Vec<_> =
            others.map(|(index, verdict)| candidate(found, *index, verdict.to_string())).collect();
        members.extend(others);
        let served = Served { pid: std::process::id(), read_only: status.read_only };
        let state = Self::of(found, Some(served), members, inventory, Some(status));
        // Nobody who only looks says so of the array.
        let read_only = status.health == Health::ReadOnly && state.health == Health::Healthy;
        let (health, word) = match read_only {
            true => (status.health, status.health.word().to_owned()),
            false => (state.health, state.state.clone()),
        };
        let agrees = status.synced_to_bytes.is_none();
        ArrayState {
            health,
            state: word,
            missing_slots: missing(status),
            events: status.events,
            redundancy_agrees: state.redundancy_agrees.map(|_| agrees),
            redundancy_agrees_to_bytes: status.synced_to_bytes,
            job: status.job.as_ref().map(Job::from),
            last_job: status.last_job.as_ref().map(Job::from),
            ..state
        }
    }

    fn of(
        found: &Found<'_>,
        served: Option<Served>,
        mut members: Vec<Member>,
        inventory: &Inventory,
        live: Option<&Status>,
    ) -> Self {
        for member in &mut members {
            let device = member.drive.as_deref().and_then(|path| inventory.of(path));
            if let (None, Some(path)) = (member.size_bytes, &member.drive) {
                member.size_bytes = inventory.size_bytes(path);
            }
            member.model = device.and_then(|device| device.model.clone());
            member.serial = device.and_then(|device| device.serial.clone());
        }
        let (view, assembly) = (found.view(), found.assembly());
        let layout = view.layout;
        let array = found.array().ok();
        let looked = array.map(|array| array.status());
        let status = live.or(looked.as_ref());
        let bad_bytes = status.map(|status| {
            let slots = status.slots.iter().filter(|slot| slot.state != SlotState::Missing);
            slots.map(|slot| slot.bad_bytes).sum::<u64>()
        });
        let redundant = layout.level.is_redundant();
        let checksums = status.and_then(|status| status.checksums);
        ArrayState {
            name: view.name.clone(),
            title: found.title(),
            uuid: found.uuid().to_string(),
            health: found.health(),
            state: found.state().to_owned(),
            well: found.is_well(),
            reasons: found.reasons(),
            level: layout.level.to_string(),
            layout: layout_words(found),
            chunk_bytes: layout.chunk_bytes,
            slots: layout.raid_disks,
            missing_slots: assembly.missing(),
            size_bytes: array.map(|array| array.facts().size_bytes),
            stripe_bytes: array.map(|array| array.geometry().stripe_bytes()),
            metadata: view.version.to_string(),
            events: view.events,
            created_unix_s: view.created.seconds(),
            updated_unix_s: view.updated.seconds(),
            consistency: consistency(view).to_owned(),
            bitmap: status.and_then(|status| status.bitmap.as_ref()).map(Bitmap::from),
            partial_parity_log: PartialParityLog::of(view),
            journal: Journal::of(found, status),
            redundancy_agrees: redundant.then_some(view.resync == Resync::Clean),
            redundancy_agrees_to_bytes: match view.resync {
                Resync::From(bytes) if redundant => Some(bytes),
                _ => None,
            },
            silent_changes: silent_changes(found, checksums).to_owned(),
            checksums: checksums.map(checksum_words),
            bad_bytes,
            member_of_another: found.is_inner(),
            members,
            spares: status.map(|status| status.spares),
            zones: zones(found),
            job: None,
            last_job: None,
            scrub: status.and_then(|status| status.scrub.as_ref()).map(Scrub::from),
            served,
        }
    }
}

/// The engine's word for how an array is, as text.
mod health {
    use array::Health;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(health: &Health, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(health.word())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Health, D::Error> {
        let word = String::deserialize(deserializer)?;
        let named = Health::ALL.into_iter().find(|health| health.word() == word);
        named.ok_or_else(|| D::Error::custom(format!("no state is called {word:?}")))
    }
}

/// The record of writes in flight that a superblock tells of.
fn consistency(view: &MemberView) -> &'static str {
    match view.consistency {
        ConsistencyPlace::Journal => "journal",
        ConsistencyPlace::Ppl { .. } => "ppl",
        ConsistencyPlace::Bitmap { .. } => "bitmap",
        ConsistencyPlace::Resync if view.layout.level.is_redundant() => "resync",
        ConsistencyPlace::Resync => "none",
    }
}

/// What is known, with all members there, of one that is silently wrong: by checksums that are
/// believed, else by the level.
fn silent_changes(found: &Found<'_>, checksums: Option<ChecksumStatus>) -> &'static str {
    if checksums == Some(ChecksumStatus::Valid) {
        return "answered";
    }
    let parities = |array: &Array| match array.geometry() {
        Geometry::Parity(parity) => parity.parities(),
        geometry => geometry.copies() - 1,
    };
    match (found.array().ok().map(parities), found.view().layout.level.is_redundant()) {
        (_, false) | (Some(0), _) => "undetectable",
        (Some(2..), _) => "mendable",
        // Of one that can't be opened no more is promised.
        (Some(_) | None, true) => "undecidable",
    }
}

/// The slots that nobody fills.
fn missing(status: &Status) -> Vec<u16> {
    let slots = status.slots.iter().enumerate();
    let empty = slots.filter(|(_, slot)| slot.state == SlotState::Missing);
    empty.map(|(slot, _)| slot as u16).collect()
}

/// What checksums are worth, in words.
fn checksum_words(status: ChecksumStatus) -> String {
    match status {
        ChecksumStatus::Valid => "valid".to_owned(),
        ChecksumStatus::Rebuilding { done_bytes, total_bytes } => {
            let percent = done_bytes.saturating_mul(100) / total_bytes.max(1);
            format!("rebuilding, {percent} % done")
        }
        ChecksumStatus::Incomplete { .. } => "incomplete: some blocks have none".to_owned(),
        ChecksumStatus::NotBelieved => {
            "not believed: written without them, not shut down, or in use now".to_owned()
        }
    }
}

/// What a slot's member is good for, in words.
pub fn slot_words(state: SlotState) -> String {
    match state {
        SlotState::Missing => "nobody is there".to_owned(),
        SlotState::InSync => "in sync".to_owned(),
        SlotState::Recovering { upto_bytes } => {
            format!("being filled, {} done", lab::units::size(upto_bytes))
        }
        SlotState::Faulty => "failed".to_owned(),
    }
}

/// A member as its superblock tells.
fn candidate(found: &Found<'_>, index: usize, verdict: String) -> Member {
    let scan = found.scan();
    let candidate = &scan.candidates[index];
    let view = &candidate.view;
    let used = if view.used_bytes > 0 { view.used_bytes } else { view.data_bytes };
    Member {
        slot: found.assembly().slots.iter().position(|member| *member == Some(index)),
        drive: Some(found.drive_name(index)),
        verdict,
        events: Some(view.events),
        updated_unix_s: Some(view.updated.seconds()),
        metadata: Some(view.version.to_string()),
        size_bytes: Some(scan.drives[candidate.drive].facts().size_bytes),
        used_bytes: Some(used),
        unused_bytes: Some(view.data_bytes.saturating_sub(used)),
        bad_bytes: None,
        read_errors: None,
        replacement: None,
        model: None,
        serial: None,
    }
}

/// A member as the engine has it; what its superblock said when it was found stays as it was.
fn in_slot(found: &Found<'_>, slot: usize, status: &SlotStatus) -> Member {
    let candidates = found.assembly().verdicts.iter().map(|(index, _)| *index);
    let mut named = candidates.filter(|&i| Some(&*found.drive_name(i)) == status.drive.as_deref());
    let verdict = slot_words(status.state);
    let known = named.next().map(|index| candidate(found, index, verdict.clone()));
    Member {
        slot: Some(slot),
        bad_bytes: status.drive.is_some().then_some(status.bad_bytes),
        read_errors: status.drive.is_some().then_some(status.read_errors),
        replacement: status.replacement.clone(),
        ..known.unwrap_or(Member {
            slot: None,
            drive: status.drive.clone(),
            verdict,
            events: None,
            updated_unix_s: None,
            metadata: None,
            size_bytes: None,
            used_bytes: None,
            unused_bytes: None,
            bad_bytes: None,
            read_errors: None,
            replacement: None,
            model: None,
            serial: None,
        })
    }
}

fn layout_words(found: &Found<'_>) -> Option<String> {
    let layout = found.view().layout;
    let level = geometry::Level::try_from(layout.level.code()).ok()?;
    layout_name(level, layout.layout)
}

fn zones(found: &Found<'_>) -> Vec<Zone> {
    let Ok(array) = found.array() else { return Vec::new() };
    let Geometry::Raid0(raid0) = array.geometry() else { return Vec::new() };
    let zones = raid0.zones().iter().map(|zone| Zone {
        start_bytes: zone.array_start,
        size_bytes: zone.array_end - zone.array_start,
        slots: zone.members.clone(),
    });
    zones.collect()
}

/// Whether two paths lead to the same drive.
pub fn same_drive(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let identity = |path: &Path| {
        let status = fs::metadata(path).ok()?;
        let device = status.file_type().is_block_device();
        Some(if device { (true, status.rdev(), 0) } else { (false, status.dev(), status.ino()) })
    };
    one == other || identity(one).is_some_and(|one| Some(one) == identity(other))
}
