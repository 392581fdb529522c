//! The header on a member: whether its checksums may be believed should this end now.
//!
//! *Settled* is only said when all pages are durable and nothing is being written; and whoever
//! writes after that first has it taken back, durably.

use std::cell::Cell;
use std::rc::Rc;

use drive::{Drive, DriveError, Durability};
use format::own::SumsArea;
use format::own::checksums::{Bond, Header, Owner, Standing};
use world::{Pool, Semaphore, WriteBufs};

use crate::mutant::{self, Mutant};

/// What the newest header on the member says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnDrive {
    /// Nothing of now: of another epoch, or there is none.
    Nothing,
    Settled,
    UnderWay,
}

/// Where the checksums of a member begin when it is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Start {
    epoch: u64,
    sequence: u64,
    complete: bool,
    believed: bool,
}

impl Start {
    /// Decides by what the headers say. What can't be believed is left behind by a new epoch, for
    /// which nothing has to be erased; `None` where that is not possible, since nothing may be
    /// written. `now_seconds` keeps epochs apart where no old one is known.
    pub(crate) fn decide(standing: &Standing, read_only: bool, now_seconds: u64) -> Option<Start> {
        match standing {
            Standing::Unsettled(header) if mutant::planted(Mutant::SumsBelievedDirty) => {
                Self::decide(&Standing::Valid(*header), read_only, now_seconds)
            }
            Standing::Valid(header) => Some(Start {
                epoch: header.epoch,
                sequence: header.sequence,
                complete: header.complete,
                believed: true,
            }),
            _ if read_only => None,
            _ => {
                let old = standing.header();
                let epoch = old.map_or(0, |header| header.epoch.saturating_add(1));
                let sequence = old.map_or(0, |header| header.sequence);
                let epoch = epoch.max(now_seconds);
                Some(Start { epoch, sequence, complete: false, believed: false })
            }
        }
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }
}

/// The header of one member.
pub(super) struct HeaderKeeper {
    drive: Rc<dyn Drive>,
    pool: Pool,
    area: SumsArea,
    owner: Owner,
    epoch: u64,
    sequence: Cell<u64>,
    bond: Cell<Bond>,
    on_drive: Cell<OnDrive>,
    turn: Rc<Semaphore>,
    /// Counts what was begun to be written.
    changes: Cell<u64>,
    under_way: Cell<u64>,
    /// The count up to which all is durable.
    settled_at: Cell<Option<u64>>,
    /// Every block has a checksum.
    pub(super) complete: Cell<bool>,
}

impl HeaderKeeper {
    pub(super) fn new(
        drive: Rc<dyn Drive>,
        pool: Pool,
        area: SumsArea,
        owner: Owner,
        bond: Bond,
        start: Start,
    ) -> HeaderKeeper {
        HeaderKeeper {
            drive,
            pool,
            area,
            owner,
            epoch: start.epoch,
            sequence: Cell::new(start.sequence),
            bond: Cell::new(bond),
            on_drive: Cell::new(if start.believed { OnDrive::Settled } else { OnDrive::Nothing }),
            turn: Rc::new(Semaphore::new(1)),
            changes: Cell::new(0),
            under_way: Cell::new(0),
            settled_at: Cell::new(start.believed.then_some(0)),
            complete: Cell::new(start.complete),
        }
    }

    /// A change begins; it counts as under way until [`HeaderKeeper::ended`]. Before it reaches
    /// the member, [`HeaderKeeper::unsettled`] must have returned.
    pub(super) fn begin(&self) {
        self.changes.set(self.changes.get() + 1);
        self.under_way.set(self.under_way.get() + 1);
    }

    /// A change has ended, or was given up.
    pub(super) fn ended(&self) {
        self.under_way.set(self.under_way.get() - 1);
    }

    /// Waits until the header on the member does not say that all is settled.
    pub(super) async fn unsettled(&self) -> Result<(), DriveError> {
        if self.on_drive.get() == OnDrive::UnderWay {
            return Ok(());
        }
        let _turn = self.turn.acquire(1).await;
        if self.on_drive.get() == OnDrive::UnderWay {
            return Ok(());
        }
        self.write(false).await
    }

    /// How many changes were begun, for [`HeaderKeeper::settled`].
    pub(super) fn changes(&self) -> u64 {
        self.changes.get()
    }

    /// Everything up to `changes` is durable, the pages too.
    pub(super) fn settled(&self, changes: u64) {
        if self.under_way.get() == 0 && self.changes.get() == changes {
            self.settled_at.set(Some(changes));
        }
    }

    fn is_settled(&self) -> bool {
        self.under_way.get() == 0 && self.settled_at.get() == Some(self.changes.get())
    }

    /// Binds the header to the superblock that is about to be written. With `dirty` writes are
    /// about to come, and it is not called settled even if it is.
    pub(super) async fn bind(&self, bond: Bond, dirty: bool) -> Result<(), DriveError> {
        let _turn = self.turn.acquire(1).await;
        self.bond.set(bond);
        self.write(!dirty && self.is_settled()).await
    }

    /// Says on the member that all is settled, if it is and the header does not say so.
    pub(super) async fn persist(&self) -> Result<(), DriveError> {
        let _turn = self.turn.acquire(1).await;
        if !self.is_settled() {
            return Ok(());
        }
        self.write(true).await
    }

    /// Writes the next header. Only with a turn.
    async fn write(&self, settled: bool) -> Result<(), DriveError> {
        let header = Header {
            owner: self.owner,
            sequence: self.sequence.get() + 1,
            epoch: self.epoch,
            bond: self.bond.get(),
            settled,
            complete: self.complete.get(),
            data_offset_bytes: self.area.data_offset_bytes,
            covered_bytes: self.area.covered_bytes,
        };
        self.sequence.set(header.sequence);
        if settled {
            // From here on it may be on the member: what begins now must take it back.
            self.on_drive.set(OnDrive::Settled);
        }
        let buffers = WriteBufs::from_iter([self.pool.copy_of(&header.build())]);
        let at = self.area.header_offset(header.slot());
        self.drive.write(at, buffers, Durability::Durable).await?;
        if !settled {
            self.on_drive.set(OnDrive::UnderWay);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use format::md::Uuid;

    use super::*;

    #[test]
    fn what_is_not_believed_gets_a_new_epoch() {
        let header = Header {
            owner: Owner { set_uuid: Uuid([1; 16]), device_uuid: Uuid([2; 16]) },
            sequence: 9,
            epoch: 100,
            bond: Bond { events: 4, superblock_crc: 5 },
            settled: true,
            complete: true,
            data_offset_bytes: 0,
            covered_bytes: 0,
        };
        let fresh =
            |epoch, sequence| Some(Start { epoch, sequence, complete: false, believed: false });
        let kept = Some(Start { epoch: 100, sequence: 9, complete: true, believed: true });
        let table = [
            (Standing::Valid(header), false, 500, kept),
            (Standing::Valid(header), true, 500, kept),
            (Standing::Unsettled(header), false, 50, fresh(101, 9)),
            (Standing::Stale(header), false, 500, fresh(500, 9)),
            (Standing::Stale(header), true, 500, None),
            (Standing::Absent, false, 500, fresh(500, 0)),
            (Standing::Absent, true, 500, None),
        ];
        for (standing, read_only, now, want) in table {
            assert_eq!(Start::decide(&standing, read_only, now), want, "{standing:?}");
        }
    }
}
