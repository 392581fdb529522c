//! What `array create` is going to make: one array, or for nested levels one of each span and
//! RAID 0 over them. Nothing is read or written here.

use std::io::Read;
use std::path::PathBuf;
use std::rc::Rc;

use array::{CHUNK_BYTES_DEFAULT, Consistency, CreateError, CreatePlan, NewArray};
use drive::{Drive, MemoryDrive};
use format::md;
use geometry::{CHUNK_BYTES_MAX, LayoutError, Level, layout_name, parse_layout};
use lab::units;

use crate::output::{columns, row};
use crate::scene::now_seconds;
use crate::values::{AskedConsistency, AskedLevel, exact_size};

/// Drives of one maker and type differ by some thousand sectors: a thousandth of each member is
/// left unused, so that a replacement a little smaller fits.
const RESERVE_PART: u64 = 1000;

/// On large drives a gibibyte covers what they differ by.
const RESERVE_BYTES_MAX: u64 = 1 << 30;

/// Members smaller than this are files and test drives, made to the byte.
const RESERVE_FROM_BYTES: u64 = 1 << 30;

/// RAID 3's chunk: the smallest there is.
const RAID3_CHUNK_BYTES: u32 = 4096;

/// What was asked for, with the drives to make it from.
pub struct Request {
    /// Name.
    pub name: String,
    /// Level.
    pub level: AskedLevel,
    /// Layout by name.
    pub layout: Option<String>,
    /// Chunk in bytes.
    pub chunk_bytes: Option<u64>,
    /// Bytes of each member to use.
    pub size_bytes: Option<u64>,
    /// Spans of a nested level.
    pub spans: Option<usize>,
    /// Record of writes in flight; `None`: the level's default.
    pub consistency: Option<AskedConsistency>,
    /// Keep checksums of the data.
    pub checksums: bool,
    /// No resync.
    pub assume_clean: bool,
}

/// What can't be made.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The engine refuses.
    #[error("{source}\nhint: {hint}")]
    Impossible {
        /// Why.
        source: CreateError,
        /// What would do.
        hint: &'static str,
    },
    /// A member has no room.
    #[error(
        "{drive} of {bytes} bytes is too small\n\
         hint: a member needs room for metadata (1 MiB at least) and one chunk, or \
             for what --size asks"
    )]
    DriveTooSmall {
        /// The drive.
        drive: String,
        /// Its size.
        bytes: u64,
    },
    /// A layout by another name.
    #[error("{source}\nhint: {hint}")]
    Layout {
        /// Why.
        source: LayoutError,
        /// What there is.
        hint: &'static str,
    },
    /// A level that has no such thing.
    #[error("{level} has no {what}\nhint: leave {flag} out")]
    Unused {
        /// The level.
        level: Level,
        /// What it has not.
        what: &'static str,
        /// The flag.
        flag: &'static str,
    },
    /// Spans that do not come out even.
    #[error(
        "{drives} drives can't be divided into {spans} spans of at least {least}\n\
         hint: give a multiple of --spans drives, at least {least} for each span"
    )]
    Spans {
        /// Drives and `missing`.
        drives: usize,
        /// Spans.
        spans: usize,
        /// The fewest members of a span.
        least: usize,
    },
    /// No name for a file, an export, a mount.
    #[error(
        "{0:?} is no name for an array\n\
         hint: give letters, digits and signs, without slashes and control characters"
    )]
    Name(String),
}

/// Members with the names they were given by.
#[derive(Clone)]
pub struct Members {
    /// The slots in order; `None` where one is missing.
    pub slots: Vec<Option<(PathBuf, Rc<dyn Drive>)>>,
    /// Spares.
    pub spares: Vec<(PathBuf, Rc<dyn Drive>)>,
    /// The journal's drive.
    pub journal: Option<(PathBuf, Rc<dyn Drive>)>,
}

impl Members {
    /// All of them, in the order in which the engine counts them.
    fn all(&self) -> impl Iterator<Item = &(PathBuf, Rc<dyn Drive>)> {
        self.slots.iter().flatten().chain(&self.spares).chain(&self.journal)
    }
}

/// One array to be made.
pub struct Part {
    /// The request to the engine.
    pub new: NewArray,
    /// What it comes to.
    pub plan: CreatePlan,
    /// Left free on each member on purpose.
    pub reserve_bytes: u64,
}

/// All arrays to be made.
pub struct Plan {
    /// The arrays on the drives: one, or one for each span.
    pub parts: Vec<Part>,
    /// RAID 0 over the spans.
    pub outer: Option<Part>,
}

impl Request {
    /// Works out what will be made of `members`.
    pub fn plan(&self, members: &Members) -> Result<Plan, PlanError> {
        if self.name.is_empty() || self.name.chars().any(|c| c == '/' || c.is_control()) {
            return Err(PlanError::Name(self.name.clone()));
        }
        let (level, spans) = match self.level {
            AskedLevel::Plain { level, .. } => {
                return Ok(Plan {
                    parts: vec![self.part(level, &self.name, members)?],
                    outer: None,
                });
            }
            AskedLevel::Nested(level) => (level, self.spans.unwrap_or(2)),
        };
        let drives = members.slots.len();
        let least = level.parities() + 2;
        if spans < 2 || !drives.is_multiple_of(spans) || drives / spans < least {
            return Err(PlanError::Spans { drives, spans, least });
        }
        if !members.spares.is_empty() {
            return Err(PlanError::Unused { level: Level::Raid0, what: "spares", flag: "--spare" });
        }
        if members.journal.is_some() {
            let (what, flag) = ("journal of its own in each span", "--consistency journal");
            return Err(PlanError::Unused { level: Level::Raid0, what, flag });
        }
        let parts = members.slots.chunks(drives / spans).zip(1..).map(|(slots, number)| {
            let members = Members { slots: slots.to_vec(), spares: Vec::new(), journal: None };
            self.part(level, &format!("{}-{number}", self.name), &members)
        });
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        let outer = self.outer(level, &parts)?;
        Ok(Plan { parts, outer: Some(outer) })
    }

    fn part(&self, level: Level, name: &str, members: &Members) -> Result<Part, PlanError> {
        let chunk_bytes = self.chunk(level)?;
        let layout = self.layout.as_deref().map(|name| parse_layout(level, name)).transpose();
        let layout = layout.map_err(|source| PlanError::Layout { source, hint: layouts(level) })?;
        let bare = |member: &(PathBuf, Rc<dyn Drive>)| Rc::clone(&member.1);
        let mut new = NewArray {
            name: name.to_owned(),
            level,
            layout,
            chunk_bytes,
            slots: members.slots.iter().map(|slot| slot.as_ref().map(bare)).collect(),
            spares: members.spares.iter().map(bare).collect(),
            size_bytes: self.size_bytes,
            consistency: self.consistency(members),
            checksums: self.checksums,
            assume_clean: self.assume_clean,
            uuid: random_uuid(),
            now_seconds: now_seconds(),
        };
        let mut plan = new.plan().map_err(|error| refused(error, members))?;
        let redundant = !matches!(level, Level::Linear | Level::Raid0);
        let mut reserve_bytes = 0;
        if redundant && self.size_bytes.is_none() && plan.used_bytes >= RESERVE_FROM_BYTES {
            let available = plan.used_bytes;
            let reserve = (available / RESERVE_PART).min(RESERVE_BYTES_MAX);
            new.size_bytes = Some(available - reserve);
            plan = new.plan().map_err(|error| refused(error, members))?;
            reserve_bytes = available - plan.used_bytes;
        }
        if self.consistency.is_none() {
            new.consistency = Consistency::default_for(level, plan.used_bytes);
            plan = new.plan().map_err(|error| refused(error, members))?;
        }
        Ok(Part { new, plan, reserve_bytes })
    }

    /// What was asked for; the default depends on the size, which has to be known first.
    fn consistency(&self, members: &Members) -> Consistency {
        match (&self.consistency, &members.journal) {
            (Some(AskedConsistency::Bitmap), _) => Consistency::Bitmap { chunk_bytes: None },
            (Some(AskedConsistency::Ppl), _) => Consistency::Ppl,
            (Some(AskedConsistency::Journal(_)), Some((_, drive))) => {
                Consistency::Journal(Rc::clone(drive))
            }
            _ => Consistency::Resync,
        }
    }

    fn chunk(&self, level: Level) -> Result<Option<u32>, PlanError> {
        let smallest = matches!(self.level, AskedLevel::Plain { smallest_chunk: true, .. });
        match self.chunk_bytes {
            Some(_) if level == Level::Raid1 => {
                Err(PlanError::Unused { level, what: "chunk", flag: "--chunk" })
            }
            None => Ok(smallest.then_some(RAID3_CHUNK_BYTES)),
            // Too large for the metadata is too large for the level as well.
            Some(bytes) => Ok(Some(u32::try_from(bytes).unwrap_or(u32::MAX))),
        }
    }

    /// RAID 0 whose chunk is a full stripe of a span, so that large writes cover whole stripes.
    fn outer(&self, level: Level, parts: &[Part]) -> Result<Part, PlanError> {
        let inner_chunk = u64::from(self.chunk(level)?.unwrap_or(CHUNK_BYTES_DEFAULT));
        let data_members = parts[0].new.slots.len() - level.parities();
        let stripe = inner_chunk * data_members as u64;
        let chunk = if stripe <= CHUNK_BYTES_MAX { stripe } else { u64::from(CHUNK_BYTES_DEFAULT) };
        let stand_ins = parts.iter().map(|part| {
            let bytes = part.plan.array_bytes - part.plan.array_bytes % 4096;
            let drive: Rc<dyn Drive> = Rc::new(MemoryDrive::new(&part.new.name, bytes, 512));
            Some((PathBuf::from(&part.new.name), drive))
        });
        let members = Members { slots: stand_ins.collect(), spares: Vec::new(), journal: None };
        let request = Request {
            name: self.name.clone(),
            level: AskedLevel::Plain { level: Level::Raid0, smallest_chunk: false },
            layout: None,
            chunk_bytes: Some(chunk),
            size_bytes: None,
            spans: None,
            consistency: None,
            checksums: false,
            assume_clean: self.assume_clean,
        };
        request.part(Level::Raid0, &self.name, &members)
    }
}

/// What of the engine's refusal can be put better here: which drive, and what would do.
fn refused(source: CreateError, members: &Members) -> PlanError {
    let hint = match &source {
        CreateError::Plan(md::CreateError::MemberTooSmall { index, device_bytes }) => {
            let drive = members.all().map(|(path, _)| path.display().to_string()).nth(*index);
            let (drive, bytes) = (drive.unwrap_or_else(|| "a member".to_owned()), *device_bytes);
            return PlanError::DriveTooSmall { drive, bytes };
        }
        CreateError::Plan(md::CreateError::TooFewSlots { .. }) => {
            "name more drives; `missing` stands in the place of one that comes later"
        }
        CreateError::Plan(md::CreateError::TooManyMissing { .. }) => {
            "give more of the drives: the level can't do without so many"
        }
        CreateError::Plan(md::CreateError::Chunk { .. }) | CreateError::Geometry(_) => {
            "a chunk is a power of two from 4K to 16M (raid0: any multiple of 512 bytes)"
        }
        CreateError::Plan(md::CreateError::SizeTooLarge { .. }) => {
            "give a smaller --size, or leave it out to use what the smallest drive has"
        }
        CreateError::Plan(md::CreateError::NameTooLong { .. }) => "give a shorter name",
        CreateError::Plan(md::CreateError::Spares(_)) => "leave --spare out",
        CreateError::Plan(md::CreateError::Consistency { .. }) => {
            "redundant levels have resync and bitmap, raid5 also ppl, levels with parity a journal"
        }
        _ => "`backplane array create --help` says what can be asked for",
    };
    PlanError::Impossible { source, hint }
}

fn layouts(level: Level) -> &'static str {
    match level {
        Level::Raid0 => "raid0 with unequal members has original and alternate",
        Level::Raid10 => "raid10 has near=N, far=N and offset=N, short n2, f2, o2",
        Level::Raid5 => {
            "raid5 has left-symmetric, left-asymmetric, right-symmetric, right-asymmetric, \
             parity-first and parity-last"
        }
        Level::Raid6 => {
            "raid6 has raid5's layouts, each also with -6 behind, and ddf-zero-restart, \
             ddf-N-restart and ddf-N-continue"
        }
        Level::Linear | Level::Raid1 | Level::Raid4 => "leave --layout out",
    }
}

/// Sixteen random bytes from the kernel.
fn random_uuid() -> [u8; 16] {
    let mut uuid = [0; 16];
    let filled =
        std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut uuid));
    filled.expect("every Linux has /dev/urandom");
    uuid
}

impl Plan {
    /// The plan in words: every array, its members, and what of them is not used, and why.
    pub fn words(&self, members: &Members) -> String {
        let mut text = String::new();
        if let Some(outer) = &self.outer {
            text.push_str(&headline(outer));
        }
        let mut slots = members.slots.iter();
        for part in &self.parts {
            text.push_str(&headline(part));
            let mine: Vec<_> = slots.by_ref().take(part.new.slots.len()).collect();
            text.push_str(&columns(2, &part.rows(&mine, members)));
        }
        let first = &self.parts[0];
        if first.reserve_bytes > 0 {
            text.push_str(&format!(
                "note: {} of each member stay unused, so that a replacement a little smaller fits \
                 (--size overrides)\n",
                exact_size(first.reserve_bytes)
            ));
        }
        if first.new.consistency.leaves_write_hole(first.new.level) {
            text.push_str(
                "note: write hole: without a journal or partial parity log, a crash together \
                 with the loss of a member can lose what was being written\n",
            );
        }
        if first.new.assume_clean {
            text.push_str(
                "note: redundancy is taken to agree already, as with drives that are all zero\n",
            );
        }
        text
    }
}

fn headline(part: &Part) -> String {
    let (level, name) = (part.new.level, &part.new.name);
    let mut text = format!("{name}: {level} of {}", part.new.slots.len());
    let layout = part.new.layout.unwrap_or_else(|| geometry::default_layout(level));
    if level != Level::Raid0
        && let Some(layout) = layout_name(level, layout)
    {
        text.push_str(&format!(", {layout}"));
    }
    if !matches!(level, Level::Raid1 | Level::Linear) {
        let chunk = part.new.chunk_bytes.unwrap_or(CHUNK_BYTES_DEFAULT);
        text.push_str(&format!(", chunk {}", units::size(chunk.into())));
    }
    text.push_str(&format!(", size {}", exact_size(part.plan.array_bytes)));
    match &part.new.consistency {
        Consistency::None => text.push('\n'),
        consistency => text.push_str(&format!(", consistency {consistency}\n")),
    }
    text
}

impl Part {
    fn rows(
        &self,
        slots: &[&Option<(PathBuf, Rc<dyn Drive>)>],
        members: &Members,
    ) -> Vec<Vec<String>> {
        let size = |drive: &Rc<dyn Drive>| drive.facts().size_bytes;
        let present = slots.iter().filter_map(|slot| slot.as_ref());
        let smallest = present.min_by_key(|(_, drive)| size(drive));
        let mut rows = vec![row(["slot", "drive", "size", "unused"])];
        for (slot, member) in slots.iter().enumerate() {
            let Some((path, drive)) = member else {
                rows.push(row([&slot.to_string(), "missing", "-", "-"]));
                continue;
            };
            let unused = match smallest {
                Some((smallest, least))
                    if self.plan.used_bytes > 0 && size(drive) > size(least) =>
                {
                    let bytes = size(drive) - size(least);
                    format!("{}: the smallest is {}", exact_size(bytes), smallest.display())
                }
                _ => "-".to_owned(),
            };
            let path = path.display().to_string();
            rows.push(row([&slot.to_string(), &path, &units::size(size(drive)), &unused]));
        }
        let spares = members.spares.iter().map(|spare| ("spare", spare));
        let journal = members.journal.iter().map(|journal| ("journal", journal));
        for (role, (path, drive)) in spares.chain(journal) {
            let path = path.display().to_string();
            rows.push(row([role, &path, &units::size(size(drive)), "-"]));
        }
        rows
    }
}
