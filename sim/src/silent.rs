//! What drives do wrong without an error: rot, writes that are lost, writes that go elsewhere; and
//! how it is found.
//!
//! Only checksums notice such things at once, and only while they are believed. Where they are, a
//! drive that had such a fault counts as lost to the promise until everything has been compared.

use array::ChecksumStatus;
use drive::{Effect, Fault, Operation};

use crate::bed::{Bed, SECTOR, Trouble, failed};
use crate::members::Member;

impl Member {
    fn turns_silent(&self) {
        self.silent.set(true);
        self.was_silent.set(true);
    }
}

impl Bed {
    /// Nothing is called wrong on a drive that never changed anything silently: no checksum is
    /// believed that is not of what the drive was last given.
    pub fn no_false_alarm(&self) -> Result<(), Trouble> {
        for slot in self.array().status().slots {
            let drive = slot.drive.as_deref().and_then(|name| self.named(name));
            if slot.wrong_blocks > 0 && drive.is_some_and(|at| !self.members[at].was_silent.get()) {
                let (wrong, name) = (slot.wrong_blocks, slot.drive.unwrap_or_default());
                return Err(Trouble::Failed(format!("{wrong} blocks of {name} are called wrong")));
            }
        }
        Ok(())
    }

    /// Whether the array would notice content that changes silently now.
    pub fn notices(&self) -> bool {
        self.array().status().checksums == Some(ChecksumStatus::Valid)
    }

    /// Whether a drive may hold something else than what it was given.
    pub fn any_silent(&self) -> bool {
        self.members.iter().any(|member| member.silent.get())
    }

    /// A bit of each of these sectors flips.
    pub async fn rot(&self, slot: usize, sector: u64, count: u64) -> Result<(), Trouble> {
        self.note(|| format!("{slot} rots in {sector}..{} of its data", sector + count));
        let member = self.member(slot);
        member.turns_silent();
        for sector in sector..sector + count {
            // Not always the same byte, and never one that is not there.
            let byte = sector * 37 % SECTOR;
            let rotten = member.control.rot(self.data_offset + sector * SECTOR + byte).await;
            rotten.map_err(|error| failed("rotting", error))?;
        }
        Ok(())
    }

    /// A drive's next write of data has this effect.
    pub fn mishandles(&self, slot: usize, effect: Effect) {
        self.note(|| format!("the next write of data on {slot}: {effect:?}"));
        let member = self.member(slot);
        member.turns_silent();
        let data = self.data_offset..self.data_offset + self.member_sectors() * SECTOR;
        let fault = Fault::new(effect).on(Operation::Write).within(data).times(1);
        member.faults.borrow_mut().push((member.control.add(fault), false));
    }

    /// Compares everything, after which nothing that has changed silently is left.
    pub async fn scour(&self) -> Result<(), Trouble> {
        if !self.any_silent() {
            return Ok(());
        }
        for member in self.members.iter().filter(|member| member.silent.get()) {
            // What makes it slow goes too.
            member.faults.borrow_mut().retain(|&(fault, loses)| {
                if !loses {
                    member.control.remove(fault);
                }
                loses
            });
        }
        let array = self.array();
        self.note(|| "everything is compared".to_owned());
        array.start_check().map_err(|error| failed("the check", error))?;
        self.limited("the check", array.background_done()).await?;
        if !self.flush().await? {
            return Err(Trouble::Failed("the flush after the check failed".to_owned()));
        }
        // One on which too much was found has left its slot, and keeps what it holds.
        self.refresh();
        for slot in (0..self.seats.len()).filter(|&slot| !self.seats[slot].out.get()) {
            self.member(slot).silent.set(false);
        }
        Ok(())
    }
}
