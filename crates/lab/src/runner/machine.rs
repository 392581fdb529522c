//! The real surroundings: file drives made in a scratch folder, and drives that were there before.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use drive::{
    Access, Direct, Drive, FileDrive, Identity, NbdDrive, OpenError, OpenOptions, Roots,
    create_file, list_devices,
};
use nbd::Uri;
use rustix::fs::SeekFrom;
use world::{RingConfig, RingError, World};

use super::conditions::{device_kind, file_kind, write_cache};
use super::scratch::Scratch;
use super::supply::{Content, Supplied, Supply, SupplyError};
use crate::model::DriveRecord;
use crate::plan::DriveSource;

/// The kernel lets go of a drive a moment after the world that used it has ended.
const RELEASE_LIMIT: Duration = Duration::from_secs(5);
const RELEASE_STEP: Duration = Duration::from_millis(5);

/// This machine's files and block devices.
pub(super) struct Machine {
    /// Where file drives are made; the folder is made with the first of them.
    parent: PathBuf,
    scratch: Option<Scratch>,
    /// File drives that exist, and whether they are written in full.
    made: BTreeMap<(u32, u64), bool>,
    /// Drives that an earlier subject had open.
    used: BTreeSet<PathBuf>,
    /// A ring that outlives those of the subjects. Linux ends a thread's helpers with its last
    /// ring; a new ring that comes at that moment can hand its first flush to one that is just
    /// ending, and then nobody does it (seen with 6.18, once in some hundred rings).
    anchor: Option<World>,
    roots: Roots,
}

impl Machine {
    /// Makes nothing yet.
    pub fn new(scratch: &str) -> Self {
        Self {
            parent: PathBuf::from(scratch),
            scratch: None,
            made: BTreeMap::new(),
            used: BTreeSet::new(),
            anchor: None,
            roots: Roots::default(),
        }
    }

    fn scratch_error(&self, source: std::io::Error) -> SupplyError {
        SupplyError::Scratch { path: self.parent.clone(), source }
    }

    /// The file of a drive of the lab's own, made if need be.
    fn scratch_file(&mut self, index: u32, size_bytes: u64) -> Result<PathBuf, SupplyError> {
        if self.scratch.is_none() {
            let scratch = Scratch::new(&self.parent).map_err(|error| self.scratch_error(error))?;
            self.scratch = Some(scratch);
        }
        let folder = self.scratch.as_ref().expect("just made").folder();
        let path = folder.join(file_name(index, size_bytes));
        if !self.made.contains_key(&(index, size_bytes)) {
            let space =
                rustix::fs::statvfs(folder).map_err(|error| self.scratch_error(error.into()))?;
            let free_bytes = space.f_bavail.saturating_mul(space.f_frsize);
            // Files that are not filled yet take hardly any room, but will.
            let promised = self.made.iter().filter(|(_, filled)| !**filled);
            let promised_bytes: u64 = promised.map(|((_, size_bytes), _)| size_bytes).sum();
            let free_bytes = free_bytes.saturating_sub(promised_bytes);
            if free_bytes < size_bytes {
                let path = self.parent.clone();
                return Err(SupplyError::NoSpace { path, needed_bytes: size_bytes, free_bytes });
            }
            create_file(&path, size_bytes)?;
            self.made.insert((index, size_bytes), false);
        }
        Ok(path)
    }

    fn open_one(
        &mut self,
        world: &World,
        source: &DriveSource,
        writes: bool,
    ) -> Result<(Supplied, Option<Identity>), SupplyError> {
        let (path, content, options) = match source {
            DriveSource::Scratch { index, size_bytes } => {
                let path = self.scratch_file(*index, *size_bytes)?;
                let written = self.made.get(&(*index, *size_bytes)) == Some(&true);
                let content = if written { Content::Written } else { Content::Unwritten };
                // In a folder of its own nobody else opens it.
                (path, content, OpenOptions { exclusive: false, ..OpenOptions::USE })
            }
            DriveSource::Path(text) if Uri::is_meant_by(text) => {
                let drive = NbdDrive::open(world, text)?;
                let mut record = self.record(source);
                record.size_bytes = drive.facts().size_bytes;
                let content = Content::Given { hole_bytes: None };
                return Ok((Supplied { drive: Rc::new(drive), record, content }, None));
            }
            DriveSource::Path(text) => {
                let path = PathBuf::from(text);
                let content = Content::Given { hole_bytes: first_hole(&path) };
                let access = if writes { Access::ReadWrite } else { Access::ReadOnly };
                let options = OpenOptions { access, direct: Direct::Prefer, exclusive: true };
                (path, content, options)
            }
        };
        let drive = self.open_file(world, &path, options)?;
        let identity = drive.identity();
        let mut record = self.record(source);
        record.path = path.display().to_string();
        record.kind = self.kind(&path);
        record.size_bytes = drive.facts().size_bytes;
        record.direct_io = Some(drive.facts().direct);
        Ok((Supplied { drive: Rc::new(drive), record, content }, Some(identity)))
    }

    fn open_file(
        &mut self,
        world: &World,
        path: &Path,
        options: OpenOptions,
    ) -> Result<FileDrive, OpenError> {
        let begin = Instant::now();
        loop {
            match FileDrive::open(world, path, options) {
                Err(OpenError::Busy { .. })
                    if self.used.contains(path) && begin.elapsed() < RELEASE_LIMIT =>
                {
                    thread::sleep(RELEASE_STEP);
                }
                Ok(drive) => {
                    self.used.insert(path.to_owned());
                    return Ok(drive);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn kind(&self, path: &Path) -> String {
        match device_number(path) {
            None => file_kind(path, &self.roots),
            Some(number) => {
                let devices = list_devices(&self.roots).unwrap_or_default();
                let device = devices.iter().find(|device| device.number == number);
                device_kind(device, number, &self.roots)
            }
        }
    }
}

impl Supply for Machine {
    fn world(&mut self) -> Result<World, RingError> {
        if self.anchor.is_none() {
            // It does nothing, so the smallest there is.
            self.anchor = Some(World::real(RingConfig { entries: 1, arena_bytes: 0 })?);
        }
        World::real(RingConfig::default())
    }

    fn record(&self, source: &DriveSource) -> DriveRecord {
        let (path, size_bytes) = match source {
            DriveSource::Scratch { index, size_bytes } => {
                (self.parent.join(file_name(*index, *size_bytes)), *size_bytes)
            }
            DriveSource::Path(path) => (PathBuf::from(path), 0),
        };
        if path.to_str().is_some_and(Uri::is_meant_by) {
            return DriveRecord {
                path: path.display().to_string(),
                kind: "NBD export".to_owned(),
                identity: None,
                size_bytes,
                // Past this host's cache; what its server does is not known.
                direct_io: None,
                write_cache: None,
            };
        }
        let number = device_number(&path);
        let devices = number.and_then(|_| list_devices(&self.roots).ok()).unwrap_or_default();
        let device = devices.into_iter().find(|device| Some(device.number) == number);
        DriveRecord {
            path: path.display().to_string(),
            kind: self.kind(&path),
            identity: device.and_then(|device| device.serial.or(device.wwn)),
            size_bytes,
            direct_io: None,
            write_cache: number.and_then(|number| write_cache(number, &self.roots)),
        }
    }

    fn open(
        &mut self,
        world: &World,
        sources: &[DriveSource],
        writes: bool,
    ) -> Result<Vec<Supplied>, SupplyError> {
        different(sources)?;
        let mut identities = BTreeMap::new();
        let mut drives = Vec::new();
        for source in sources {
            let (supplied, identity) = self.open_one(world, source, writes)?;
            let second = supplied.record.path.clone();
            let first = identity.and_then(|identity| identities.insert(identity, second.clone()));
            if let Some(first) = first {
                return Err(SupplyError::SameDrive { first, second });
            }
            drives.push(supplied);
        }
        Ok(drives)
    }

    fn filled(&mut self, source: &DriveSource) {
        if let DriveSource::Scratch { index, size_bytes } = source {
            self.made.insert((*index, *size_bytes), true);
        }
    }

    fn abandon(&mut self, source: &DriveSource) {
        let (DriveSource::Scratch { index, size_bytes }, Some(scratch)) = (source, &self.scratch)
        else {
            return;
        };
        self.made.remove(&(*index, *size_bytes));
        let path = scratch.folder().join(file_name(*index, *size_bytes));
        // Whoever has it open would keep its room otherwise. The folder goes anyway, so that it
        // matters little if this fails.
        let _ = fs::File::create(&path);
        let _ = fs::remove_file(&path);
    }
}

fn file_name(index: u32, size_bytes: u64) -> String {
    format!("drive-{index}-{}", crate::units::plan_size(size_bytes))
}

/// The number of a block device; `None` for anything else.
fn device_number(path: &Path) -> Option<u64> {
    let status = fs::metadata(path).ok()?;
    status.file_type().is_block_device().then(|| status.rdev())
}

/// Refuses one drive twice, or by two names, before it is opened: the second opening would only
/// find it in use.
fn different(sources: &[DriveSource]) -> Result<(), SupplyError> {
    let mut seen: BTreeMap<(bool, u64, u64), &String> = BTreeMap::new();
    let mut exports = BTreeSet::new();
    for source in sources {
        let DriveSource::Path(path) = source else { continue };
        if Uri::is_meant_by(path) && !exports.insert(path) {
            return Err(SupplyError::SameDrive { first: path.clone(), second: path.clone() });
        }
        let Ok(status) = fs::metadata(path) else { continue };
        let key = match status.file_type().is_block_device() {
            true => (true, status.rdev(), 0),
            false => (false, status.dev(), status.ino()),
        };
        if let Some(first) = seen.insert(key, path) {
            return Err(SupplyError::SameDrive { first: first.clone(), second: path.clone() });
        }
    }
    Ok(())
}

/// The first byte of a file that was never written; `None` where nobody knows.
fn first_hole(path: &Path) -> Option<u64> {
    // Opening a pipe would wait for its other end.
    let status = fs::metadata(path).ok().filter(|status| status.is_file())?;
    let file = fs::File::open(path).ok()?;
    let hole = rustix::fs::seek(&file, SeekFrom::Hole(0)).ok()?;
    // Every file has a hole at its end.
    (hole < status.len()).then_some(hole)
}
