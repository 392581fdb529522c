//! Which arrays some drives form. An array is itself a drive, so arrays are looked at in turn,
//! until nothing more comes of it: RAID 50 is a tier of RAID 5 below one of RAID 0.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use array::{Array, AssembleError, Health, OpenMode, Scan, SlotState, Status};
use drive::{Drive, ErrorKind};
use format::md::{ArrayState, Assembly, MemberView, Refusal, Uuid, Verdict};
use world::World;

use crate::error::Failure;

/// Deeper nests than anybody builds; a circle can't come about, but a bound costs nothing.
const TIERS_MAX: usize = 4;

/// How long the metadata of a drive may take to read.
pub const LOOK_LIMIT: Duration = Duration::from_secs(3);

/// Seconds since 1970.
pub fn now_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Reading only: whatever can be read may be.
pub const READ_ONLY: OpenMode = OpenMode { read_only: true, force_dirty: true, now_seconds: 0 };

/// Drives that were judged together, and what opened.
pub struct Tier {
    /// What is on them.
    pub scan: Scan,
    /// Per assembly the open array, or why there is none.
    pub arrays: Vec<Result<Array, AssembleError>>,
    /// Per assembly, whether it is a member of an array of the next tier.
    pub inner: Vec<bool>,
}

/// All tiers; the first one stands on the drives.
pub struct Scene {
    /// From the drives upwards.
    pub tiers: Vec<Tier>,
}

/// One array of a scene.
#[derive(Clone, Copy)]
pub struct Found<'a> {
    scene: &'a Scene,
    tier_index: usize,
    index: usize,
}

/// A name that fits no array, or none to choose from.
#[derive(Debug, thiserror::Error)]
pub enum ChooseError {
    /// Nothing on these drives.
    #[error(
        "no array was found on these drives\nhint: `backplane drive examine` shows what is on each"
    )]
    Nothing,
    /// No such array.
    #[error("no array is called {name:?}\nfound: {}\n\
         hint: give one of these names, or its UUID", .found.join(", "))]
    NoSuch {
        /// As given.
        name: String,
        /// What there is.
        found: Vec<String>,
    },
    /// Several to choose from.
    #[error("these drives hold {} arrays\nfound: {}\n\
         hint: choose one with --array NAME", .found.len(), .found.join(", "))]
    Several {
        /// What there is.
        found: Vec<String>,
    },
}

impl Scene {
    /// Judges drives, opens what opens, and goes on with that.
    pub async fn of(world: &World, drives: Vec<Rc<dyn Drive>>, mode: OpenMode) -> Scene {
        let mut tiers: Vec<Tier> = Vec::new();
        let mut drives = drives;
        while tiers.len() < TIERS_MAX && !drives.is_empty() {
            let scan = Scan::within(world, LOOK_LIMIT, std::mem::take(&mut drives)).await;
            let scan = without_echoes(scan, &tiers);
            if scan.assemblies.is_empty() && !tiers.is_empty() {
                break;
            }
            let mut arrays = Vec::new();
            for assembly in &scan.assemblies {
                let array = scan.open(world, assembly, mode).await;
                if let Ok(array) = &array {
                    drives.push(Rc::new(array.clone()));
                }
                arrays.push(array);
            }
            mark_inner(tiers.last_mut(), &scan);
            let inner = vec![false; scan.assemblies.len()];
            tiers.push(Tier { scan, arrays, inner });
        }
        Scene { tiers }
    }

    /// Drives, or arrays below others, that did not say in time what is on them.
    pub fn silent(&self) -> impl Iterator<Item = &Rc<str>> {
        let examined = self.tiers.iter().flat_map(|tier| &tier.scan.examined);
        let unreadable = examined.flat_map(|examined| &examined.unreadable);
        let late = unreadable.filter(|error| error.kind == ErrorKind::TimedOut);
        late.map(|error| &error.drive)
    }

    /// All arrays, the ones that nothing stands on first.
    pub fn found(&self) -> Vec<Found<'_>> {
        let all = (0..self.tiers.len()).rev().flat_map(|tier_index| {
            let assemblies = 0..self.tiers[tier_index].scan.assemblies.len();
            assemblies.map(move |index| Found { scene: self, tier_index, index })
        });
        let (inner, outer): (Vec<_>, Vec<_>) = all.partition(Found::is_inner);
        outer.into_iter().chain(inner).collect()
    }

    /// The arrays to be served: nothing stands on them, and they are not remains.
    pub fn outer(&self) -> Vec<Found<'_>> {
        self.found().into_iter().filter(|found| !found.is_inner() && !found.is_remains()).collect()
    }

    /// The array called `name`; the only one, if none is named.
    pub fn choose(&self, name: Option<&str>) -> Result<Found<'_>, ChooseError> {
        let outer = self.outer();
        let found = || outer.iter().map(Found::title).collect();
        match name {
            Some(name) => {
                let mut all = self.found().into_iter();
                let chosen = all.find(|array| array.is_called(name));
                chosen.ok_or_else(|| ChooseError::NoSuch { name: name.to_owned(), found: found() })
            }
            None if outer.len() > 1 => Err(ChooseError::Several { found: found() }),
            // Remains say what became of the array: more than that there is none.
            None => outer
                .first()
                .copied()
                .or_else(|| self.found().into_iter().next())
                .ok_or(ChooseError::Nothing),
        }
    }

    /// The paths of the drives that these arrays stand on, through all tiers.
    pub fn drives_below(&self, arrays: &[Found<'_>]) -> Vec<PathBuf> {
        let mut paths = BTreeSet::new();
        let mut left = arrays.to_vec();
        while let Some(array) = left.pop() {
            left.extend(array.inner());
            if array.tier_index == 0 {
                let members = array.assembly().verdicts.iter();
                paths.extend(members.map(|(index, _)| PathBuf::from(array.drive_name(*index))));
            }
        }
        paths.into_iter().collect()
    }

    /// Ends the service of all arrays, from the top.
    pub async fn stop(&self) -> Result<(), Failure> {
        let mut first = Ok(());
        for array in self.tiers.iter().rev().flat_map(|tier| tier.arrays.iter().flatten()) {
            let stopped = array.stop().await;
            if first.is_ok() {
                first = stopped;
            }
        }
        Ok(first?)
    }
}

impl Tier {
    /// The assemblies that opened, in the order in which they are drives of the next tier.
    fn opened(&self) -> impl Iterator<Item = usize> {
        (0..self.arrays.len()).filter(|&index| self.arrays[index].is_ok())
    }
}

/// A superblock at a drive's end can lie at the end of an array on that drive as well: the same
/// bytes, found twice. What was judged on the drives is not judged again on the arrays.
fn without_echoes(scan: Scan, below: &[Tier]) -> Scan {
    let judged: BTreeSet<Uuid> = below
        .iter()
        .flat_map(|tier| &tier.scan.assemblies)
        .map(|assembly| assembly.set_uuid)
        .collect();
    let is_new = |index: &usize| !judged.contains(&scan.candidates[*index].view.set_uuid);
    let kept: Vec<usize> = (0..scan.candidates.len()).filter(is_new).collect();
    if kept.len() == scan.candidates.len() { scan } else { scan.only(&kept) }
}

/// Marks the arrays of the tier below that carry a superblock judged here.
fn mark_inner(below: Option<&mut Tier>, scan: &Scan) {
    let Some(below) = below else { return };
    let opened: Vec<usize> = below.opened().collect();
    for candidate in &scan.candidates {
        below.inner[opened[candidate.drive]] = true;
    }
}

impl<'a> Found<'a> {
    fn tier(&self) -> &'a Tier {
        &self.scene.tiers[self.tier_index]
    }

    /// The drives it was found on, and all superblocks there.
    pub fn scan(&self) -> &'a Scan {
        &self.tier().scan
    }

    /// The verdicts on its members.
    pub fn assembly(&self) -> &'a Assembly {
        &self.scan().assemblies[self.index]
    }

    /// The open array, or why there is none.
    pub fn array(&self) -> Result<&'a Array, &'a AssembleError> {
        self.tier().arrays[self.index].as_ref()
    }

    /// The superblock that is trusted.
    pub fn view(&self) -> &'a MemberView {
        &self.scan().candidates[self.assembly().reference].view
    }

    /// Whether it is a member of another one.
    pub fn is_inner(&self) -> bool {
        self.tier().inner[self.index]
    }

    /// The arrays that are its members.
    fn inner(&self) -> Vec<Found<'a>> {
        let Some(below) = self.tier_index.checked_sub(1) else { return Vec::new() };
        let opened: Vec<usize> = self.scene.tiers[below].opened().collect();
        let members = self.assembly().verdicts.iter();
        let drives = members.map(|(index, _)| self.scan().candidates[*index].drive);
        drives.map(|drive| Found { tier_index: below, index: opened[drive], ..*self }).collect()
    }

    /// Nothing but ghosts, blanks and damage: no array any more.
    pub fn is_remains(&self) -> bool {
        self.assembly().state == ArrayState::Refused(Refusal::NothingUsable)
    }

    /// Its UUID.
    pub fn uuid(&self) -> Uuid {
        self.assembly().set_uuid
    }

    /// Its name without the host that made it, its UUID where it has none.
    pub fn title(&self) -> String {
        let name = &self.view().name;
        let short = name.rsplit_once(':').map_or(name.as_str(), |(_, short)| short);
        if short.is_empty() { self.uuid().to_string() } else { short.to_owned() }
    }

    /// Whether `name` means this array: its name with or without the host, or its UUID in any
    /// spelling.
    pub fn is_called(&self, name: &str) -> bool {
        self.listed().is_called(name)
    }

    /// The path or name of a candidate's drive.
    pub fn drive_name(&self, candidate: usize) -> String {
        let drive = self.scan().candidates[candidate].drive;
        self.scan().drives[drive].facts().name.to_string()
    }

    /// How it is, in one word: never better than the arrays it is made of.
    pub fn state(&self) -> &'static str {
        let own = self.own_state();
        let inner: Vec<&str> = self.inner().iter().map(Found::state).collect();
        match own {
            "healthy" | "resyncing" if inner.iter().any(|state| !is_fine(state)) => "degraded",
            "healthy" if inner.contains(&"resyncing") => "resyncing",
            own => own,
        }
    }

    /// The engine's word for it. What can't be opened has too few members that are to be relied on,
    /// or is not known well enough to be called anything better than failed.
    pub fn health(&self) -> Health {
        let word = self.state();
        let engine = Health::ALL.into_iter().find(|health| health.word() == word);
        engine.unwrap_or(match word {
            // All data is there, and a slot is empty.
            "dirty-degraded" => Health::Degraded,
            _ => Health::Failed,
        })
    }

    fn own_state(&self) -> &'static str {
        let assembly = self.assembly();
        if let Some(status) = self.live() {
            return status.health.word();
        }
        let only = |verdict: fn(&Verdict) -> bool| {
            assembly.verdicts.iter().all(|(_, given)| verdict(given))
        };
        match &assembly.state {
            ArrayState::Startable => match self.array().map(|array| array.status().health) {
                Err(_) => "refused",
                // It was opened to be looked at; that says nothing about the array.
                Ok(Health::ReadOnly) => Health::Healthy.word(),
                Ok(health) => health.word(),
            },
            ArrayState::Reshaping { .. } => "reshaping",
            ArrayState::Incomplete { .. } if self.is_odd() => "refused",
            ArrayState::Incomplete { .. } => "incomplete",
            ArrayState::SplitBrain { .. } => "split-brain",
            ArrayState::Refused(Refusal::DirtyDegraded) => "dirty-degraded",
            ArrayState::Refused(Refusal::NothingUsable)
                if only(|verdict| matches!(verdict, Verdict::Ghost { .. })) =>
            {
                "ghost"
            }
            ArrayState::Refused(Refusal::NothingUsable)
                if only(|verdict| matches!(verdict, Verdict::Blank)) =>
            {
                "blank"
            }
            ArrayState::Refused(_) => "refused",
        }
    }

    /// Nobody has to do anything: every member is there, and what does not agree yet is brought
    /// to agree as soon as it is served. Remains of former arrays don't count as ill.
    pub fn is_well(&self) -> bool {
        is_fine(self.state()) || self.state() == "ghost"
    }

    /// Whether it, or an array below it, has lost a member since it was opened.
    pub fn is_degraded_now(&self) -> bool {
        let lacks = |health| {
            matches!(
                health,
                Health::Degraded | Health::Rebuilding | Health::LostStripes | Health::Failed
            )
        };
        self.array().is_ok_and(|array| lacks(array.status().health))
            || self.inner().iter().any(Found::is_degraded_now)
    }

    /// Every member is there, and still they can't be put together.
    fn is_odd(&self) -> bool {
        let assembly = self.assembly();
        assembly.missing().is_empty()
            && matches!(&assembly.state, ArrayState::Incomplete { forced } if forced.is_empty())
    }

    /// The engine's status, where the array is open to be written: then it is the truth, and what
    /// the members said when they were found is the past.
    fn live(&self) -> Option<Status> {
        let array = self.array().ok()?;
        (!array.facts().read_only).then(|| array.status())
    }

    /// Why it is not well, beyond its state's word.
    pub fn reasons(&self) -> Vec<String> {
        let mut reasons = match self.live() {
            Some(status) => live_reasons(&status),
            None => self.reasons_at_rest(),
        };
        let ill = self.inner().into_iter().filter(|inner| inner.state() != "healthy");
        reasons.extend(ill.map(|inner| format!("{} is {}", inner.title(), inner.state())));
        if let Ok(array) = self.array() {
            for slot in array.status().slots.iter().filter(|slot| slot.bad_bytes > 0) {
                let drive = slot.drive.as_deref().unwrap_or("a member");
                let bytes = slot.bad_bytes;
                reasons.push(format!("{bytes} bytes of {drive} are listed as unreadable"));
            }
        }
        reasons
    }

    fn reasons_at_rest(&self) -> Vec<String> {
        let assembly = self.assembly();
        let mut reasons = Vec::new();
        let missing: Vec<String> = assembly.missing().iter().map(u16::to_string).collect();
        if !missing.is_empty() && !matches!(assembly.state, ArrayState::SplitBrain { .. }) {
            reasons.push(format!("no member for slot {}", missing.join(", ")));
        }
        match &assembly.state {
            ArrayState::Reshaping { position_bytes } => {
                reasons.push(format!("a reshape stopped at byte {position_bytes}"));
            }
            ArrayState::SplitBrain { sides } => {
                for (number, side) in sides.iter().enumerate() {
                    let drives: Vec<_> =
                        side.candidates.iter().map(|&index| self.drive_name(index)).collect();
                    let (events, drives) = (side.events, drives.join(" "));
                    reasons.push(format!("side {number}, {events} events: {drives}"));
                }
            }
            ArrayState::Incomplete { .. } if self.is_odd() => {
                let layout = &self.view().layout;
                let (number, chunk) = (layout.layout, layout.chunk_bytes);
                reasons.push(format!(
                    "layout {number} with a chunk of {chunk} bytes is not supported at this level"
                ));
            }
            ArrayState::Incomplete { forced } if !forced.is_empty() => {
                let drives: Vec<_> = forced.iter().map(|&index| self.drive_name(index)).collect();
                let drives = drives.join(" ");
                reasons.push(format!("would run with old content of {drives}"));
            }
            ArrayState::Refused(refusal) => reasons.push(refusal.to_string()),
            ArrayState::Startable | ArrayState::Incomplete { .. } => {}
        }
        if let (Err(error), ArrayState::Startable) = (self.array(), &assembly.state) {
            reasons.push(error.to_string().lines().next().unwrap_or_default().to_owned());
        }
        reasons
    }
}

/// What happened to the members since the array was opened, or before.
fn live_reasons(status: &Status) -> Vec<String> {
    let mut reasons = Vec::new();
    for (index, slot) in status.slots.iter().enumerate() {
        let drive = slot.drive.as_deref().unwrap_or("its member");
        let failure = status.failures.iter().rev().find(|failure| failure.slot == index);
        match slot.state {
            SlotState::Missing => reasons.push(format!("no member for slot {index}")),
            SlotState::Faulty => {
                let why = failure.map_or(String::new(), |failure| format!(": {}", failure.error));
                reasons.push(format!("slot {index}: {drive} has failed{why}"));
            }
            SlotState::InSync | SlotState::Recovering { .. } => {}
        }
    }
    reasons
}

/// States in which nobody has to do anything.
fn is_fine(state: &str) -> bool {
    matches!(state, "healthy" | "resyncing" | "checking")
}
