//! Members that are failed, removed, added and replaced at an administrator's word.

use std::path::Path;
use std::rc::Rc;

use array::{Array, FoundSuperblock, MemberError, SlotState};
use drive::{Drive, FileDrive, OpenOptions};
use format::md::ReaddRefusal;
use world::World;

use super::protocol::Added;
use super::serving::ActError;
use crate::arrays::state::{Inventory, same_drive};
use crate::error::{Failure, Parts};
use crate::guard::{self, Contents};
use crate::scene::Found;

/// How a slot is named in requests: the way it is shown.
const SLOT: &str = "slot:";

/// An array that may be changed, and what that takes.
pub struct Members<'a> {
    pub world: &'a World,
    pub found: Found<'a>,
    pub array: &'a Array,
    /// The drives that this process has open, which nobody could open again.
    pub held: &'a [Rc<FileDrive>],
}

impl Members<'_> {
    /// Takes a member out of use. One that has failed already is no error.
    pub async fn fail(&self, member: &str) -> Result<(), Failure> {
        let slot = self.slot_of(member)?;
        if self.array.status().slots[slot].state == SlotState::Faulty {
            return Ok(());
        }
        let failed = self.array.fail_member(slot).await;
        Ok(failed.map_err(|source| self.needed(slot, Some(source)))?)
    }

    /// Takes a member out of the array, or a spare.
    pub async fn remove(&self, member: &str) -> Result<(), Failure> {
        let slot = match self.slot_of(member) {
            Ok(slot) => slot,
            Err(unknown) => {
                return match self.array.remove_spare(member).await {
                    Err(MemberError::NoSpare(_)) => Err(unknown.into()),
                    removed => removed.map_err(|error| self.told(&error)),
                };
            }
        };
        match self.array.remove_member(slot).await {
            Err(MemberError::Needed(slot)) => Err(self.needed(slot, None).into()),
            removed => removed.map_err(|error| self.told(&error)),
        }
    }

    /// Takes a drive back as the member it was, if the bitmap says what it lacks; else makes it a
    /// spare, or the member of an empty slot.
    pub async fn add(
        &self,
        path: &Path,
        named: &[String],
    ) -> Result<(Rc<FileDrive>, Added), Failure> {
        let (drive, contents) = self.open(path).await?;
        let former = self.is_former_member(&contents);
        let why = if former {
            match self.array.readd_member(Rc::clone(&drive) as Rc<dyn Drive>).await {
                Ok(returned) => return Ok((drive, Added::from(returned))),
                Err(MemberError::NotReturning { reason, .. }) => {
                    // What it took in by itself is nowhere else.
                    if reason == ReaddRefusal::WentOnAlone {
                        refuse_unnamed(path, contents, named)?;
                    }
                    reason.to_string()
                }
                Err(error) => return Err(self.told(&error)),
            }
        } else {
            let ours = contents.examined.found.iter().any(|found| self.is_ours(found));
            refuse_unnamed(path, contents, named)?;
            let why = if ours { "something else lies on it too" } else { "it never was a member" };
            why.to_owned()
        };
        let slots = self.array.status().slots;
        let empty = |state| matches!(state, SlotState::Missing | SlotState::Faulty);
        let spare = !slots.iter().any(|slot| empty(slot.state));
        match self.array.add_member(Rc::clone(&drive) as Rc<dyn Drive>).await {
            Ok(()) => Ok((drive, Added::New { spare, why })),
            Err(error) if former => {
                let mut parts = self.parts(&error);
                parts.details.push(format!("it can't come back as it is: {why}"));
                Err(parts.into())
            }
            Err(error) => Err(self.told(&error)),
        }
    }

    /// Fills a drive to take over from a member, which serves until then.
    pub async fn replace(
        &self,
        member: &str,
        path: &Path,
        named: &[String],
    ) -> Result<Rc<FileDrive>, Failure> {
        let slot = self.slot_of(member)?;
        let (drive, contents) = self.open(path).await?;
        if !self.is_former_member(&contents) {
            refuse_unnamed(path, contents, named)?;
        }
        let replaced = self.array.replace_member(slot, Rc::clone(&drive) as Rc<dyn Drive>).await;
        match replaced {
            Err(MemberError::Empty(slot)) => {
                Err(ActError::NothingToReplace { array: self.found.title(), slot }.into())
            }
            Err(error) => Err(self.told(&error)),
            Ok(()) => Ok(drive),
        }
    }

    /// Opens a drive that is to become a member, which nobody uses, and looks at what is on it.
    async fn open(&self, path: &Path) -> Result<(Rc<FileDrive>, Contents), Failure> {
        let identity = FileDrive::open(self.world, path, OpenOptions::LOOK)?.identity();
        let held = self.held.iter().find(|drive| drive.identity() == identity);
        let drive = match held {
            Some(drive) => Rc::clone(drive),
            None => guard::open_alone(self.world, path)?,
        };
        let contents = guard::contents(self.world, path, drive.as_ref()).await?;
        Ok((drive, contents))
    }

    /// Whether nothing lies on a drive but what it held for this array.
    fn is_former_member(&self, contents: &Contents) -> bool {
        let found = &contents.examined.found;
        !found.is_empty()
            && found.iter().all(|found| self.is_ours(found))
            && contents.findings.iter().all(|finding| finding.kind == format::probe::Kind::Md)
    }

    fn is_ours(&self, found: &FoundSuperblock) -> bool {
        found.view.set_uuid == self.found.uuid()
    }

    fn told(&self, error: &MemberError) -> Failure {
        self.parts(error).into()
    }

    /// An error of the engine, with what to do next where it does not say.
    fn parts(&self, error: &MemberError) -> Parts {
        let mut parts = Parts::of(error);
        if parts.hints.is_empty() {
            parts.hints.push(format!("`array show {}` shows who is where", self.found.title()));
        }
        parts
    }

    fn needed(&self, slot: usize, source: Option<drive::DriveError>) -> ActError {
        let drive = self.array.status().slots[slot].drive.clone().unwrap_or_default();
        ActError::Needed { array: self.found.title(), slot, drive, source }
    }

    /// The slot of the member that is called so.
    fn slot_of(&self, member: &str) -> Result<usize, ActError> {
        let status = self.array.status();
        let drives: Vec<_> = status.slots.iter().map(|slot| slot.drive.as_deref()).collect();
        let by_number = member.strip_prefix(SLOT).and_then(|number| number.parse::<usize>().ok());
        if let Some(slot) = by_number.filter(|&slot| slot < drives.len()) {
            let array = self.found.title();
            return drives[slot].map(|_| slot).ok_or(ActError::EmptySlot { array, slot });
        }
        let inventory = Inventory::read();
        let is_meant = |drive: &str| {
            same_drive(Path::new(drive), Path::new(member))
                || inventory.serial(drive) == Some(member)
        };
        drives.iter().position(|drive| drive.is_some_and(is_meant)).ok_or_else(|| {
            let members = drives.iter().enumerate().map(|(slot, drive)| match drive {
                Some(drive) => format!("{SLOT}{slot} {drive}"),
                None => format!("{SLOT}{slot} nobody"),
            });
            ActError::NoMember {
                array: self.found.title(),
                member: member.to_owned(),
                members: members.collect(),
            }
        })
    }
}

/// Refuses to destroy what nobody has named.
fn refuse_unnamed(path: &Path, contents: Contents, named: &[String]) -> Result<(), Failure> {
    Ok(guard::refuse_unnamed(&format!("what is on {}", path.display()), &[contents], named)?)
}
