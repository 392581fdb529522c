//! The logs that close the write hole: what a stripe needs in its log before data and parity go
//! out, and what a replayed log says about the rest of the array.
//!
//! | log | where | before a stripe is written | room is free again |
//! | --- | --- | --- | --- |
//! | partial parity (`ppl`) | on each member | the XOR of what is not written | when the stripe is durable |
//! | journal (`journal`) | a drive of its own | data and parity | when the members were flushed |
//!
//! A write is acknowledged when its members have it, in both.

use std::cell::RefCell;
use std::rc::Rc;

use drive::{DriveError, Durability};
use format::md::Resync;
use geometry::{Parity, StripeMap};
use world::{Buf, Gate, Notify, join_all};

use crate::bands::Band;
use crate::batch::WriteBatch;
use crate::core::Core;
use crate::journal::Journal;
use crate::mutant::{self, Mutant};
use crate::ppl::Ppl;

/// The log of an open array.
pub(crate) enum Log {
    /// None: a sudden end leaves the write hole, or the level has none.
    None,
    Ppl(Ppl),
    Journal(Journal),
}

/// A band whose new content is known and not yet written.
pub(crate) struct Finished {
    pub(crate) map: StripeMap,
    pub(crate) stripe: u64,
    pub(crate) band: Band,
    pub(crate) p: Option<Buf>,
    pub(crate) q: Option<Buf>,
    /// XOR of the columns that are not written; wanted only for a partial parity log.
    pub(crate) partial: Option<Buf>,
}

impl Finished {
    /// First byte of the band in a member's data area.
    pub(crate) fn member_offset(&self) -> u64 {
        self.map.member_offset() + self.band.start as u64
    }

    /// The array byte of the band in `column`.
    pub(crate) fn array_offset(&self, parity: &Parity, column: usize) -> u64 {
        let chunk = parity.chunk_bytes();
        self.stripe * parity.stripe_bytes() + column as u64 * chunk + self.band.start as u64
    }
}

/// Room in a log that is in use until this is dropped.
pub(crate) struct Held(Rc<Gate>);

impl Held {
    pub(crate) fn new(gate: &Rc<Gate>) -> Self {
        gate.enter();
        Held(Rc::clone(gate))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// The answer to who waits for its log write; `None` in it: it needs none any more.
pub(crate) type Answer = Result<Option<Held>, DriveError>;

/// Something that waits to be logged.
pub(crate) struct Waiting<T> {
    pub(crate) what: T,
    answer: RefCell<Option<Answer>>,
    answered: Notify,
}

impl<T> Waiting<T> {
    pub(crate) fn new(what: T) -> Rc<Self> {
        Rc::new(Waiting { what, answer: RefCell::default(), answered: Notify::default() })
    }

    pub(crate) fn answer(&self, answer: Answer) {
        *self.answer.borrow_mut() = Some(answer);
        self.answered.notify_all();
    }

    pub(crate) async fn answered(&self) -> Answer {
        loop {
            if let Some(answer) = self.answer.borrow_mut().take() {
                return answer;
            }
            self.answered.wait().await;
        }
    }
}

impl Log {
    pub(crate) fn is_none(&self) -> bool {
        matches!(self, Log::None)
    }

    pub(crate) fn journal(&self) -> Option<&Journal> {
        match self {
            Log::Journal(journal) => Some(journal),
            _ => None,
        }
    }

    /// The error that ended the log, and with it the array's writes.
    pub(crate) fn failure(&self) -> Option<&DriveError> {
        self.journal().and_then(Journal::failure)
    }

    /// Begins a write; what this gives is kept until it has ended.
    pub(crate) async fn begin(&self, core: &Core) -> Option<Held> {
        match self {
            Log::Ppl(ppl) => ppl.begin(core).await,
            Log::None | Log::Journal(_) => None,
        }
    }

    /// Cuts bands as the log can keep them; what is in one round is written at once, and one round
    /// after the other.
    pub(crate) fn rounds(
        &self,
        core: &Core,
        parity: &Parity,
        bands: Vec<(u64, Band)>,
    ) -> Vec<Vec<(u64, Band)>> {
        match self {
            Log::None => vec![bands],
            Log::Ppl(ppl) => ppl.rounds(core, parity, bands),
            Log::Journal(journal) => vec![journal.cut(parity, bands)],
        }
    }
}

/// Writes data and parity, each unit after the log has what a sudden end half-way would take.
pub(crate) async fn store(
    core: &Core,
    parity: &Parity,
    finished: Vec<Finished>,
    durability: Durability,
) -> Result<(), DriveError> {
    let (units, durability) = match &core.log {
        Log::None => return write_out(core, &finished, durability).await,
        // Room in the log is free only when the stripe is durable.
        Log::Ppl(ppl) => (ppl.units(finished), Durability::Durable),
        // The journal is as durable as anybody can ask for.
        Log::Journal(journal) => (journal.units(finished), Durability::Cached),
    };
    let writes = units.into_iter().map(|unit| async move {
        let _held = match &core.log {
            Log::None => None,
            Log::Ppl(_) if mutant::planted(Mutant::PplSkipped) => None,
            Log::Journal(_) if mutant::planted(Mutant::JournalSkipped) => None,
            Log::Ppl(ppl) => {
                let held = ppl.append(core, parity, &unit).await?;
                if held.is_none() {
                    // Not logged, since its parity member has failed. Until the others say so, a
                    // sudden end would bring that back with parity of before.
                    core.fail_members(Vec::new()).await?;
                }
                held
            }
            Log::Journal(journal) => journal.append(core, parity, &unit).await?,
        };
        // Who failed is recorded while the log still has the stripe.
        write_out(core, &unit, durability).await
    });
    join_all(writes).await.into_iter().find(Result::is_err).unwrap_or(Ok(()))
}

/// Writes data and parity to the members that are there.
async fn write_out(
    core: &Core,
    finished: &[Finished],
    durability: Durability,
) -> Result<(), DriveError> {
    let mut writes = WriteBatch::default();
    for unit in finished {
        let data = unit.band.written.iter();
        let data = data.map(|(column, data)| (unit.map.data(*column), Some(data)));
        let parities = [(Some(unit.map.p()), &unit.p), (unit.map.q(), &unit.q)];
        let parities = parities.into_iter().filter_map(|(slot, p)| Some((slot?, p.as_ref())));
        for (slot, buffer) in parities.chain(data) {
            if let Some(buffer) = buffer.filter(|_| core.slots[slot].writable()) {
                writes.add(slot, unit.member_offset(), buffer.clone());
            }
        }
    }
    writes.run(core, durability).await
}

/// What replaying the logs has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replayed {
    /// The array has no log, or did not need it.
    Nothing,
    /// Partial parity logs: how many entries were whole, and how many members' logs were not.
    Ppl { entries: usize, unreadable_logs: usize },
    /// The journal: where its next block goes (sectors of its ring), and that block's number.
    Journal { position: u64, sequence: u64 },
}

/// The byte below which redundancy agrees, of a parity array that was found in `resync` and whose
/// log was replayed; everything is `u64::MAX`.
///
/// md writes 0 for an array in use and for one that never was in sync. Only in an array in sync
/// is anything logged, so an entry tells the two apart. A header that is no header is a log write
/// that was cut off, before which nothing of it was written, or damage: with all members there, a
/// resync is the safe answer; with one missing there is nothing to compare, and what is there is
/// the best there is.
pub(crate) fn synced_to(resync: Resync, replayed: Replayed, degraded: bool) -> u64 {
    match (resync, replayed) {
        (Resync::Clean, _) => u64::MAX,
        (Resync::From(0), Replayed::Ppl { .. }) if degraded => u64::MAX,
        (Resync::From(0), Replayed::Ppl { entries: 1.., unreadable_logs: 0 }) => u64::MAX,
        (Resync::From(bytes), _) => bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replayed_log_spares_the_resync() {
        let ppl = |entries, unreadable_logs| Replayed::Ppl { entries, unreadable_logs };
        let journal = Replayed::Journal { position: 8, sequence: 2 };
        let table = [
            (Resync::Clean, Replayed::Nothing, false, u64::MAX),
            (Resync::From(0), Replayed::Nothing, false, 0),
            (Resync::From(0), ppl(1, 0), false, u64::MAX),
            // Never in sync, or ended before the first write.
            (Resync::From(0), ppl(0, 0), false, 0),
            (Resync::From(0), ppl(3, 1), false, 0),
            (Resync::From(0), ppl(3, 1), true, u64::MAX),
            (Resync::From(0), ppl(0, 0), true, u64::MAX),
            // In sync so far, the rest never was.
            (Resync::From(4096), ppl(3, 0), false, 4096),
            (Resync::From(4096), ppl(3, 0), true, 4096),
            (Resync::From(4096), journal, false, 4096),
            (Resync::From(0), journal, false, 0),
        ];
        for (resync, replayed, degraded, want) in table {
            let got = synced_to(resync, replayed, degraded);
            assert_eq!(got, want, "{resync:?} {replayed:?} {degraded}");
        }
    }
}
