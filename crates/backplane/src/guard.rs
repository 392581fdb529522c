//! What would be lost by writing to a drive, and whether it was named.
//!
//! Somebody who uses a drive is never overridden. What merely lies on it may be destroyed by
//! whoever names it: each thing once, by the name or UUID of the array, the label or id of the
//! file system or volume, or the drive's path or serial number.

use std::collections::BTreeSet;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use array::{Examined, examine, read_bytes};
use drive::{
    Drive, DriveError, FileDrive, NbdDrive, OpenError, OpenOptions, Roots, holders, in_use,
};
use format::probe::{Finding, HEAD_BYTES, Kind, TAIL_BYTES, probe};
use nbd::Uri;
use world::World;

use crate::arrays::state::Inventory;
use crate::error::{self, Failure};
use crate::values;

/// What lies on a drive.
pub struct Contents {
    /// The drive as it was named.
    pub path: PathBuf,
    /// Its serial number, where it has one.
    pub serial: Option<String>,
    /// Everything that somebody might miss, by its place.
    pub findings: Vec<Finding>,
    /// The md superblocks among it.
    pub examined: Examined,
}

/// One thing on a drive that somebody might miss.
struct Thing {
    /// What it is called, if anything.
    names: Vec<String>,
    /// What is lost with it, in words.
    loss: String,
}

/// Why a drive is not written to.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// Somebody uses it.
    #[error(
        "{} is in use\n{}\nhint: end that first; nothing overrides it",
        .path.display(), .uses.join("\n")
    )]
    InUse {
        /// The drive.
        path: PathBuf,
        /// By whom.
        uses: Vec<String>,
    },
    /// It holds something, and nobody said it may go.
    #[error(
        "{what} would be destroyed\n{}\nhint: if it may go, name each thing that is lost: {}",
        .losses.join("\n"), .flags.join(" ")
    )]
    NotNamed {
        /// What for.
        what: String,
        /// What is lost, drive by drive.
        losses: Vec<String>,
        /// The flags that name it.
        flags: Vec<String>,
    },
    /// Something else was typed.
    #[error("{typed:?} is not {expected:?}: nothing was written")]
    OtherTyped {
        /// What was typed.
        typed: String,
        /// What was asked for.
        expected: String,
    },
    /// A name that names nothing that would be lost: perhaps the wrong drive.
    #[error(
        "--yes-destroy {name:?} names nothing that would be lost\n\
         hint: look at `backplane drive examine` again, then leave it out"
    )]
    NothingLost {
        /// As given.
        name: String,
    },
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=+@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Opens a file, a block device or an NBD export to look at it.
pub fn look(world: &World, name: &str) -> Result<Rc<dyn Drive>, Failure> {
    if Uri::is_meant_by(name) {
        return Ok(Rc::new(NbdDrive::open(world, name)?));
    }
    Ok(Rc::new(FileDrive::open(world, Path::new(name), OpenOptions::LOOK)?))
}

/// Looks at both ends of a drive.
pub async fn contents(
    world: &World,
    path: &Path,
    drive: &dyn Drive,
) -> Result<Contents, DriveError> {
    let size = drive.facts().size_bytes;
    let head_bytes = size.min(HEAD_BYTES as u64);
    let tail_bytes = size.min(TAIL_BYTES as u64);
    let head = read_bytes(world.pool(), drive, 0, head_bytes as usize).await?;
    let tail = read_bytes(world.pool(), drive, size - tail_bytes, tail_bytes as usize).await?;
    Ok(Contents {
        path: path.to_owned(),
        serial: serial(path),
        findings: probe(&head, &tail, size),
        examined: examine(world.pool(), drive).await,
    })
}

/// The serial number of the block device at `path`, or of the drive it is a partition of.
pub fn serial(path: &Path) -> Option<String> {
    Inventory::read().serial(&path.to_string_lossy()).map(str::to_owned)
}

/// Refuses a drive that somebody uses, and says who. Who else uses an NBD export, only its server
/// knows.
pub fn refuse_used(path: &Path) -> Result<(), Failure> {
    if path.to_str().is_some_and(Uri::is_meant_by) {
        return Ok(());
    }
    let uses = in_use(path, &Roots::default())?;
    if uses.is_empty() {
        return Ok(());
    }
    let uses = uses.iter().map(ToString::to_string).collect();
    Err(GuardError::InUse { path: path.to_owned(), uses }.into())
}

/// Opens a drive to change it: nobody uses it, and nobody will from now on.
pub fn open_alone(world: &World, path: &Path) -> Result<Rc<FileDrive>, Failure> {
    let drive = open(world, path, OpenOptions::USE)?;
    refuse_used(path)?;
    Ok(Rc::new(drive))
}

/// Opens a drive that nobody else may change meanwhile; where somebody has it, says who.
pub fn open(world: &World, path: &Path, options: OpenOptions) -> Result<FileDrive, Failure> {
    match FileDrive::open(world, path, options) {
        Err(error @ OpenError::Busy { .. }) => {
            // Who it is says more than that it is somebody.
            refuse_used(path)?;
            let uses: Vec<_> =
                holders(path, &Roots::default()).iter().map(ToString::to_string).collect();
            if uses.is_empty() {
                return Err(error.into());
            }
            Err(GuardError::InUse { path: path.to_owned(), uses }.into())
        }
        opened => Ok(opened?),
    }
}

impl Contents {
    /// What names the whole drive.
    fn own_names(&self) -> Vec<String> {
        self.serial.iter().cloned().chain([self.path.display().to_string()]).collect()
    }

    /// Everything that is lost with the drive, each with its own names.
    fn things(&self) -> Vec<Thing> {
        let serial =
            self.serial.as_ref().map_or(String::new(), |serial| format!(" (serial {serial})"));
        let at = format!("{}{serial}", self.path.display());
        let mut things = Vec::new();
        for found in &self.examined.found {
            let view = &found.view;
            let (level, disks) = (view.layout.level, view.layout.raid_disks);
            let names = array_names(&view.name, &view.set_uuid.to_string());
            let called = names.join(", ");
            let used = values::date(view.updated.seconds());
            let loss = format!(
                "{at}: member of the {level} array {called} of {disks} members, last used {used}"
            );
            things.push(Thing { names, loss });
        }
        for finding in &self.findings {
            if finding.kind != Kind::Md || self.examined.found.is_empty() {
                let names = finding.label.iter().chain(&finding.id).cloned();
                let names = names.filter(|name| !name.is_empty()).collect();
                things.push(Thing { names, loss: format!("{at}: {finding}") });
            }
        }
        things
    }

    /// What is lost and was not named: by a name of its own, or with the whole drive.
    fn unnamed(&self, named: &[String]) -> Vec<Thing> {
        let is_named = |names: &[String]| names.iter().any(|name| named.contains(name));
        if is_named(&self.own_names()) {
            return Vec::new();
        }
        self.things().into_iter().filter(|thing| !is_named(&thing.names)).collect()
    }

    /// The names to ask for: of each thing, or of the drive where a thing has no name.
    fn names_to_type(&self, things: &[Thing]) -> Vec<String> {
        let names: Option<Vec<_>> =
            things.iter().map(|thing| thing.names.first().cloned()).collect();
        names.unwrap_or_else(|| self.own_names().into_iter().take(1).collect())
    }

    /// What is lost, in words.
    pub fn losses(&self) -> Vec<String> {
        self.things().into_iter().map(|thing| thing.loss).collect()
    }

    /// Whether the same lies on the drive as when it was looked at before.
    pub fn is_as(&self, before: &Contents) -> bool {
        let places = |contents: &Contents| {
            let damaged = contents.examined.damaged.iter();
            damaged.map(|damaged| (damaged.offset, damaged.version)).collect::<Vec<_>>()
        };
        let views = |contents: &Contents| {
            let found = contents.examined.found.iter();
            found.map(|found| found.view.clone()).collect::<Vec<_>>()
        };
        self.findings == before.findings
            && views(self) == views(before)
            && places(self) == places(before)
    }

    /// Nothing is known to lie here.
    pub fn is_empty(&self) -> bool {
        self.findings.is_empty() && self.examined.found.is_empty()
    }
}

/// An array's name with and without its host, where it has one, and its UUID.
fn array_names(name: &str, uuid: &str) -> Vec<String> {
    let mut names = Vec::new();
    if let Some((_, short)) = name.rsplit_once(':') {
        names.push(short.to_owned());
    }
    names.push(name.to_owned());
    names.push(uuid.to_owned());
    names.retain(|name| !name.is_empty());
    names
}

/// What is lost and was not named: the names that are missing, and the losses in words.
fn unnamed(
    contents: &[Contents],
    named: &[String],
) -> Result<(BTreeSet<String>, Vec<String>), GuardError> {
    let names_something = |name: &String| {
        contents.iter().filter(|contents| !contents.is_empty()).any(|contents| {
            contents.own_names().contains(name)
                || contents.things().iter().any(|thing| thing.names.contains(name))
        })
    };
    if let Some(name) = named.iter().find(|name| !names_something(name)) {
        return Err(GuardError::NothingLost { name: name.clone() });
    }
    let mut names = BTreeSet::new();
    let mut losses = Vec::new();
    for contents in contents {
        let things = contents.unnamed(named);
        names.extend(contents.names_to_type(&things));
        losses.extend(things.into_iter().map(|thing| thing.loss));
    }
    Ok((names, losses))
}

fn refusal(what: &str, names: &BTreeSet<String>, losses: Vec<String>) -> GuardError {
    let flags = names.iter().map(|name| format!("--yes-destroy {}", quoted(name))).collect();
    GuardError::NotNamed { what: what.to_owned(), losses, flags }
}

/// Refuses to destroy what was not named. Nobody is asked: whoever wants it is elsewhere.
pub fn refuse_unnamed(
    what: &str,
    contents: &[Contents],
    named: &[String],
) -> Result<(), GuardError> {
    let (names, losses) = unnamed(contents, named)?;
    if losses.is_empty() { Ok(()) } else { Err(refusal(what, &names, losses)) }
}

/// Whether everything that `what` destroys was named. At a terminal, asks for the names that are
/// missing.
pub fn confirm(what: &str, contents: &[Contents], named: &[String]) -> Result<(), Failure> {
    let (names, losses) = unnamed(contents, named)?;
    if losses.is_empty() {
        return Ok(());
    }
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(refusal(what, &names, losses).into());
    }
    for loss in losses {
        error::tell(format_args!("will be lost: {loss}"));
    }
    for expected in names {
        anstream::eprint!("type {expected} to destroy it: ");
        io::stderr().flush()?;
        let mut typed = String::new();
        io::stdin().lock().read_line(&mut typed)?;
        let typed = typed.trim().to_owned();
        if typed != expected {
            return Err(GuardError::OtherTyped { typed, expected }.into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_a_shell() {
        assert_eq!(quoted("/dev/sda1"), "/dev/sda1");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn an_array_is_named_with_and_without_its_host() {
        assert_eq!(array_names("host:data", "u"), ["data", "host:data", "u"]);
        assert_eq!(array_names("", "u"), ["u"]);
    }
}
