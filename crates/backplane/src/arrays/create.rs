//! `backplane array create`: the plan first, then what would be lost, then the array.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use array::{Array, Scan};
use clap::Args;
use drive::{Drive, Durability, FileDrive, Identity, OpenOptions, Roots, Zeroing, list_devices};
use world::World;

use crate::arrays::plan::{Members, Plan, Request};
use crate::error::Failure;
use crate::guard::{self, Contents};
use crate::output::{self, Outcome};
use crate::scene::LOOK_LIMIT;
use crate::session;
use crate::values::{self, AskedConsistency, AskedLevel, date};

/// The word that stands in the place of a drive.
const MISSING: &str = "missing";

/// What is zeroed where something was found: the largest structure a magic stands in.
const WIPE_BYTES: u64 = 4096;

/// Flags of `array create`.
#[derive(Debug, Args)]
#[command(after_help = "\
--yes-destroy names what may be lost, each thing once: the name or UUID of the array that a drive
belongs to, the label or id of a file system or volume, or the drive's path or serial number. At a
terminal, what is not named is asked for. A drive that is in use is never overwritten.")]
pub struct Arguments {
    /// Name of the new array, up to 32 bytes
    name: String,
    /// The drives in slot order; `missing` stands in the place of one
    #[arg(required = true, value_name = "DRIVE")]
    drives: Vec<PathBuf>,
    /// linear (jbod, span), raid0, raid1, raid3, raid4, raid5, raid6, raid10, raid50 or raid60
    #[arg(long)]
    level: AskedLevel,
    /// Bytes of a stripe on one member [default: 512K]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    chunk: Option<u64>,
    /// How parity or copies are laid out, such as left-symmetric or near=2
    #[arg(long)]
    layout: Option<String>,
    /// A drive that waits for a failure; may be repeated
    #[arg(long = "spare", value_name = "DRIVE")]
    spares: Vec<PathBuf>,
    /// Bytes of each member to use [default: what the smallest has, less a small reserve]
    #[arg(long, value_parser = values::size)]
    size: Option<u64>,
    /// Arrays below a raid50 or raid60 [default: 2]
    #[arg(long, value_name = "COUNT")]
    spans: Option<usize>,
    /// Record of writes in flight: none, resync, bitmap, ppl or journal=DRIVE [default: bitmap
    /// where more than 1G of each drive is used and the level has redundancy]
    #[arg(long)]
    consistency: Option<AskedConsistency>,
    /// Keep a checksum of every 4 KiB: content that silently changes is found and mended
    #[arg(long)]
    checksums: bool,
    /// Parity or copies agree already: no resync
    #[arg(long)]
    assume_clean: bool,
    /// Only say what would be made and lost
    #[arg(long)]
    dry_run: bool,
    /// What may be lost; may be repeated
    #[arg(long, value_name = "NAME")]
    yes_destroy: Vec<String>,
}

/// Why no array is made of these drives.
#[derive(Debug, thiserror::Error)]
pub enum CreateRefused {
    /// One drive by two names, or by one.
    #[error("{} and {} are the same drive\n\
         hint: each member needs a drive of its own", .first.display(), .second.display())]
    SameDrive {
        /// One name.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// A drive and a part of it.
    #[error("{} is a part of {}\n\
         hint: use the whole drive or its partitions", .part.display(), .whole.display())]
    PartOf {
        /// The partition.
        part: PathBuf,
        /// The drive.
        whole: PathBuf,
    },
    /// The drives are an array.
    #[error(
        "these drives are already an array - start it?\n\
         {name} ({uuid}), {level} of {members} members, last used {used}\n\
         hint: `backplane array serve {drives} --nbd unix:PATH` starts it, in \
         whatever order the drives are given\n\
         hint: to destroy it and make a new one, add --yes-destroy {name}"
    )]
    AlreadyArray {
        /// Its name.
        name: String,
        /// Its UUID.
        uuid: String,
        /// Its level.
        level: String,
        /// Its slots.
        members: u32,
        /// When it was last written.
        used: String,
        /// The drives as they were given.
        drives: String,
    },
    /// Somebody changed a drive between the plan and the writing.
    #[error("{} has changed since it was looked at\n\
         hint: somebody else writes to it; look again", .path.display())]
    Changed {
        /// The drive.
        path: PathBuf,
    },
}

impl Arguments {
    /// Carries it out.
    pub fn run(self) -> Result<Outcome, Failure> {
        session::look(async |world| self.create(world).await)
    }

    async fn create(&self, world: &World) -> Result<Outcome, Failure> {
        let looked =
            self.members(|path| Ok(Rc::new(FileDrive::open(world, path, OpenOptions::LOOK)?)))?;
        let paths = looked.paths();
        let contents = self.look(world, &looked).await?;
        let plan = self.request().plan(&looked.bare())?;
        output::write(&plan.words(&looked.bare()))?;
        for loss in contents.iter().flat_map(Contents::losses) {
            output::write(&format!("will be lost: {loss}\n"))?;
        }
        if self.dry_run {
            return Ok(Outcome::Well);
        }
        self.refuse_existing(world, &looked).await?;
        guard::confirm(
            &format!("what is on the drives of {:?}", self.name),
            &contents,
            &self.yes_destroy,
        )?;
        drop(looked);

        let alone = self.members(|path| guard::open_alone(world, path))?;
        for (drive, before) in alone.all().zip(&contents) {
            let now = guard::contents(world, &before.path, drive.1.as_ref()).await?;
            if !now.is_as(before) {
                return Err(CreateRefused::Changed { path: before.path.clone() }.into());
            }
        }
        for (drive, before) in alone.all().zip(&contents) {
            wipe(drive.1.as_ref(), before).await?;
        }
        let plan = self.request().plan(&alone.bare())?;
        let arrays = make(world, plan).await?;
        for array in arrays.iter().rev() {
            array.stop().await?;
        }
        let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
        output::write(&format!(
            "created {}\nserve it: backplane array serve {} --nbd unix:PATH\n",
            self.name,
            paths.join(" ")
        ))?;
        Ok(Outcome::Well)
    }

    fn request(&self) -> Request {
        Request {
            name: self.name.clone(),
            level: self.level,
            layout: self.layout.clone(),
            chunk_bytes: self.chunk,
            size_bytes: self.size,
            spans: self.spans,
            consistency: self.consistency.clone(),
            checksums: self.checksums,
            assume_clean: self.assume_clean,
        }
    }

    /// Every drive that is named, opened by `open`.
    fn members(
        &self,
        open: impl Fn(&Path) -> Result<Rc<FileDrive>, Failure>,
    ) -> Result<Opened, Failure> {
        let slots = self.drives.iter().map(|path| {
            let missing = path.as_os_str() == MISSING;
            if missing { Ok(None) } else { Ok(Some((path.clone(), open(path)?))) }
        });
        let slots = slots.collect::<Result<_, Failure>>()?;
        let named = |path: &PathBuf| Ok((path.clone(), open(path)?));
        let spares = self.spares.iter().map(named).collect::<Result<_, Failure>>()?;
        let journal = match &self.consistency {
            Some(AskedConsistency::Journal(path)) => Some(named(path)?),
            _ => None,
        };
        Ok(Opened { slots, spares, journal })
    }

    /// Each drive once, free, and what is on it.
    async fn look(&self, world: &World, looked: &Opened) -> Result<Vec<Contents>, Failure> {
        let mut seen: BTreeMap<Identity, PathBuf> = BTreeMap::new();
        for (path, drive) in looked.all() {
            if let Some(first) = seen.insert(drive.identity(), path.clone()) {
                return Err(CreateRefused::SameDrive { first, second: path.clone() }.into());
            }
        }
        refuse_parts(&seen)?;
        let mut contents = Vec::new();
        for (path, drive) in looked.all() {
            guard::refuse_used(path)?;
            contents.push(guard::contents(world, path, drive.as_ref()).await?);
        }
        Ok(contents)
    }

    /// Members of one array that somebody wants to make anew: most likely it is to be started.
    async fn refuse_existing(&self, world: &World, looked: &Opened) -> Result<(), Failure> {
        if !self.yes_destroy.is_empty() {
            return Ok(());
        }
        let drives: Vec<Rc<dyn Drive>> =
            looked.all().map(|(_, drive)| Rc::clone(drive) as Rc<dyn Drive>).collect();
        let count = drives.len();
        let scan = Scan::within(world, LOOK_LIMIT, drives).await;
        let whole = scan.assemblies.iter().find(|assembly| assembly.verdicts.len() == count);
        let Some(assembly) = whole.filter(|_| scan.candidates.len() == count) else {
            return Ok(());
        };
        let view = &scan.candidates[assembly.reference].view;
        let drives: Vec<_> = looked.paths().iter().map(|path| path.display().to_string()).collect();
        let uuid = view.set_uuid.to_string();
        Err(CreateRefused::AlreadyArray {
            name: if view.name.is_empty() { uuid.clone() } else { view.name.clone() },
            uuid,
            level: view.layout.level.to_string(),
            members: view.layout.raid_disks,
            used: date(view.updated.seconds()),
            drives: drives.join(" "),
        }
        .into())
    }
}

/// Drives with their paths.
struct Opened {
    slots: Vec<Option<(PathBuf, Rc<FileDrive>)>>,
    spares: Vec<(PathBuf, Rc<FileDrive>)>,
    journal: Option<(PathBuf, Rc<FileDrive>)>,
}

impl Opened {
    fn all(&self) -> impl Iterator<Item = &(PathBuf, Rc<FileDrive>)> {
        self.slots.iter().flatten().chain(&self.spares).chain(&self.journal)
    }

    fn paths(&self) -> Vec<PathBuf> {
        self.all().map(|(path, _)| path.clone()).collect()
    }

    fn bare(&self) -> Members {
        let bare = |(path, drive): &(PathBuf, Rc<FileDrive>)| {
            (path.clone(), Rc::clone(drive) as Rc<dyn Drive>)
        };
        Members {
            slots: self.slots.iter().map(|slot| slot.as_ref().map(bare)).collect(),
            spares: self.spares.iter().map(bare).collect(),
            journal: self.journal.as_ref().map(bare),
        }
    }
}

/// A drive and its own partition share bytes.
fn refuse_parts(seen: &BTreeMap<Identity, PathBuf>) -> Result<(), Failure> {
    let path = |number| seen.get(&Identity::Device { number });
    if !seen.keys().any(|identity| matches!(identity, Identity::Device { .. })) {
        return Ok(());
    }
    for device in list_devices(&Roots::default())? {
        let Some(whole) = path(device.number) else { continue };
        if let Some(part) = device.partitions.iter().find_map(|part| path(part.number)) {
            return Err(CreateRefused::PartOf { part: part.clone(), whole: whole.clone() }.into());
        }
    }
    Ok(())
}

/// Zeroes the places by which the old content is known, so that it does not come back as a ghost.
async fn wipe(drive: &dyn Drive, contents: &Contents) -> Result<(), Failure> {
    let facts = drive.facts();
    let block = u64::from(facts.block_bytes);
    let examined = &contents.examined;
    let places = contents.findings.iter().map(|finding| finding.offset_bytes);
    let places = places
        .chain(examined.found.iter().map(|found| found.view.super_offset_bytes))
        .chain(examined.damaged.iter().map(|damaged| damaged.offset));
    for place in places {
        let start = place / block * block;
        let end = (place + WIPE_BYTES).next_multiple_of(block).min(facts.size_bytes);
        if start < end {
            let (zeroing, durability) = (Zeroing::KeepAllocated, Durability::Durable);
            drive.write_zeroes(start, end - start, zeroing, durability).await?;
        }
    }
    Ok(())
}

/// Makes the arrays, the inner ones first.
async fn make(world: &World, plan: Plan) -> Result<Vec<Array>, Failure> {
    let mut arrays = Vec::new();
    for part in &plan.parts {
        arrays.push(part.new.create(world).await?);
    }
    if let Some(mut outer) = plan.outer {
        outer.new.slots =
            arrays.iter().map(|array| Some(Rc::new(array.clone()) as Rc<dyn Drive>)).collect();
        arrays.push(outer.new.create(world).await?);
    }
    Ok(arrays)
}
