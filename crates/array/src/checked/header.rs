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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    on_drive: OnDrive,
}

impl Start {
    /// What the headers say is to be believed as it is; `None` where it is not.
    pub(crate) fn settled(standing: &Standing) -> Option<Start> {
        let header = match standing {
            Standing::Valid(header) => header,
            Standing::Unsettled(header) if mutant::planted(Mutant::SumsBelievedDirty) => header,
            _ => return None,
        };
        let Header { epoch, sequence, complete, .. } = *header;
        Some(Start { epoch, sequence, complete, on_drive: OnDrive::Settled })
    }

    /// Goes on with what was not settled, for who knows which blocks to forget. What has none is
    /// not known then: a header is not written for every block that loses its checksum.
    pub(crate) fn unsettled(standing: &Standing) -> Option<Start> {
        let Standing::Unsettled(Header { epoch, sequence, .. }) = *standing else { return None };
        Some(Start { epoch, sequence, complete: false, on_drive: OnDrive::UnderWay })
    }

    /// Leaves what can't be believed behind by a new epoch, for which nothing has to be erased.
    /// `now_seconds` keeps epochs apart where no old one is known.
    pub(crate) fn anew(standing: &Standing, now_seconds: u64) -> Start {
        let old = standing.header();
        let epoch = old.map_or(0, |header| header.epoch.saturating_add(1));
        let sequence = old.map_or(0, |header| header.sequence);
        let epoch = epoch.max(now_seconds);
        Start { epoch, sequence, complete: false, on_drive: OnDrive::Nothing }
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
            on_drive: Cell::new(start.on_drive),
            turn: Rc::new(Semaphore::new(1)),
            changes: Cell::new(0),
            under_way: Cell::new(0),
            settled_at: Cell::new((start.on_drive == OnDrive::Settled).then_some(0)),
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
    fn what_can_t_be_believed_gets_a_new_epoch() {
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
        let (valid, unsettled) = (Standing::Valid(header), Standing::Unsettled(header));
        let (stale, absent) = (Standing::Stale(header), Standing::Absent);
        let kept = |complete, on_drive| Some(Start { epoch: 100, sequence: 9, complete, on_drive });
        assert_eq!(Start::settled(&valid), kept(true, OnDrive::Settled));
        assert_eq!(Start::unsettled(&unsettled), kept(false, OnDrive::UnderWay));
        for other in [unsettled, stale, absent] {
            assert_eq!(Start::settled(&other), None, "{other:?}");
        }
        for other in [valid, stale, absent] {
            assert_eq!(Start::unsettled(&other), None, "{other:?}");
        }
        let table = [(unsettled, 50, 101, 9), (stale, 500, 500, 9), (absent, 500, 500, 0)];
        for (standing, now, epoch, sequence) in table {
            let want = Start { epoch, sequence, complete: false, on_drive: OnDrive::Nothing };
            assert_eq!(Start::anew(&standing, now), want, "{standing:?}");
        }
    }
}
