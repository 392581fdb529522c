//! Scrubbing: all copies, or all data and parity, are read and compared.
//!
//! | file | what |
//! | --- | --- |
//! | `judge` | which member is wrong, per sector |
//! | `stripes`, `copies` | a window on levels with parity, and on mirrors |
//! | `rewrite` | rewriting, and reading back |
//! | `found` | what was found, gathered |
//! | `record` | what members remember of it |
//!
//! A check changes no content. Both a check and a repair rewrite sectors that can't be read where
//! redundancy knows what they hold. A repair mends where it is known which member is wrong; where
//! nobody can know it changes nothing, unless it was told to trust the data. What is still to be
//! made to agree by a resync is not compared: that redundancy is not there yet.

mod copies;
mod found;
mod judge;
mod record;
mod rewrite;
mod stripes;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use drive::DriveError;
use format::own::scrub::ScrubRecord;
pub use format::own::scrub::{FindingKind, Outcome, ScrubCounts, ScrubKind, ScrubState};
use geometry::Geometry;

use world::Notify;

use crate::core::Core;
use crate::due;
use crate::job::{self, Pass, WINDOW_BYTES, Window};
use crate::job_status::{JobEnd, JobKind};
use crate::lock::Mode;
use crate::resync::whole_chunks;
use found::{Found, append};
pub(crate) use record::load;

/// How closely what can't be read is found: what drives write whole.
const FINEST_BYTES: usize = 4 << 10;

/// Why no scrub was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScrubRefused {
    /// The level keeps everything once.
    #[error("the level has no redundancy to compare")]
    NoRedundancy,
    /// A repair writes.
    #[error("the array is open read-only\nhint: a check reads only")]
    ReadOnly,
    /// There is one already.
    #[error("a scrub is under way already")]
    UnderWay,
    /// The array is being stopped.
    #[error("the array is being stopped")]
    Stopping,
}

/// The scrub of an array: the one asked for or under way, or else the last.
#[derive(Default)]
pub(crate) struct ScrubPost {
    /// What is known of it; `None`: there was none.
    record: RefCell<Option<ScrubRecord>>,
    /// It is to be begun, or gone on with.
    asked: Cell<bool>,
    /// An administrator wants it to end.
    cancelled: Cell<bool>,
    /// Per slot, where its member has room for the record.
    rooms: Vec<Option<[u64; 2]>>,
}

impl ScrubPost {
    /// With what members remember: one whose array ended suddenly, or was stopped, is gone on
    /// with if it can be.
    pub(crate) fn new(
        record: Option<ScrubRecord>,
        rooms: Vec<Option<[u64; 2]>>,
        writable: bool,
    ) -> Self {
        let running = record.as_ref().is_some_and(|record| record.state == ScrubState::Running);
        ScrubPost {
            record: RefCell::new(record),
            asked: Cell::new(running && writable),
            cancelled: Cell::new(false),
            rooms,
        }
    }

    pub(crate) fn record(&self) -> Option<ScrubRecord> {
        self.record.borrow().clone()
    }

    /// Whether there is something to do.
    pub(crate) fn due(&self) -> bool {
        self.asked.get()
    }

    /// Ends a scrub for good.
    ///
    /// Gives whether there was one.
    pub(crate) fn cancel(&self) -> bool {
        let asked = self.asked.get();
        self.cancelled.set(asked);
        asked
    }
}

/// Asks for a scrub, from the start of the array.
pub(crate) fn ask(core: &Core, kind: ScrubKind) -> Result<(), ScrubRefused> {
    if !core.redundant() {
        return Err(ScrubRefused::NoRedundancy);
    }
    if kind != ScrubKind::Check && !core.metadata.writable() {
        return Err(ScrubRefused::ReadOnly);
    }
    if core.stopping.get() {
        return Err(ScrubRefused::Stopping);
    }
    if core.scrub.due() {
        return Err(ScrubRefused::UnderWay);
    }
    let now_seconds = core.metadata.now_seconds(core);
    let sequence = core.scrub.record().map_or(0, |record| record.sequence);
    *core.scrub.record.borrow_mut() = Some(ScrubRecord {
        set_uuid: core.set_uuid,
        sequence,
        kind,
        state: ScrubState::Running,
        started_seconds: now_seconds,
        written_seconds: now_seconds,
        position: 0,
        end: end_of(core),
        counts: ScrubCounts::default(),
        findings: Vec::new(),
    });
    core.scrub.asked.set(true);
    core.scrub.cancelled.set(false);
    Ok(())
}

/// Where positions end.
fn end_of(core: &Core) -> u64 {
    match &core.geometry {
        Geometry::Parity(parity) => parity.used_bytes(),
        geometry => geometry.array_bytes(),
    }
}

/// Goes on with the scrub that was asked for.
pub(crate) async fn run(core: &Rc<Core>) -> JobEnd {
    let Some(record) = core.scrub.record() else {
        core.scrub.asked.set(false);
        return JobEnd::Stopped;
    };
    let end = if core.scrub.cancelled.get() {
        JobEnd::Stopped
    } else {
        job::run(core, Scrub::new(record.kind, record.position)).await
    };
    let state = match end {
        JobEnd::Done | JobEnd::DoneWithLoss => ScrubState::Done,
        JobEnd::Failed { .. } => ScrubState::Failed,
        JobEnd::Stopped if core.scrub.cancelled.get() => ScrubState::Stopped,
        // Something more urgent, or the array's stop: it goes on later.
        JobEnd::Stopped => return end,
    };
    core.scrub.asked.set(false);
    if let Some(record) = core.scrub.record.borrow_mut().as_mut() {
        record.state = state;
    }
    record::store(core).await;
    end
}

/// The pass.
pub(crate) struct Scrub {
    kind: ScrubKind,
    start: u64,
    /// What windows behind the position have found, by where they start.
    pending: RefCell<BTreeMap<u64, Found>>,
    /// Windows before this position have begun to read: members are read in order.
    begun: Cell<u64>,
    turns: Notify,
}

/// A window's turn to begin its reads; the next one has it when this is dropped.
struct Turn<'a> {
    scrub: &'a Scrub,
    end: u64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.scrub.begun.set(self.end);
        self.scrub.turns.notify_all();
    }
}

/// Begins `reading`, and lets go of `turn` then.
async fn begin<T>(reading: impl Future<Output = T>, turn: Turn<'_>) -> T {
    let mut reading = pin!(reading);
    let begun = poll_fn(|context| Poll::Ready(reading.as_mut().poll(context))).await;
    drop(turn);
    match begun {
        Poll::Ready(output) => output,
        Poll::Pending => reading.await,
    }
}

impl Scrub {
    fn new(kind: ScrubKind, start: u64) -> Self {
        let (pending, begun, turns) = Default::default();
        Scrub { kind, start, pending, begun, turns }
    }

    /// Waits until all windows before this one have begun to read.
    async fn turn(&self, range: &Range<u64>) -> Turn<'_> {
        while self.begun.get() < range.start {
            self.turns.wait().await;
        }
        Turn { scrub: self, end: range.end }
    }

    /// Whether what is known to be wrong is mended.
    fn repairs(&self) -> bool {
        self.kind != ScrubKind::Check
    }

    /// Whether the data is believed where nobody can know.
    fn trusts_data(&self) -> bool {
        self.kind == ScrubKind::RepairTrustingData
    }

    /// Whether what can't be read may be rewritten.
    fn may_write(&self, core: &Core) -> bool {
        core.metadata.writable()
    }

    /// What only looks lets others read along.
    fn lock_mode(&self, core: &Core) -> Mode {
        if self.may_write(core) { Mode::Exclusive } else { Mode::Shared }
    }
}

impl Pass for Scrub {
    fn kind(&self) -> JobKind {
        if self.repairs() { JobKind::Repair } else { JobKind::Check }
    }

    fn slot(&self) -> Option<usize> {
        None
    }

    fn window_bytes(&self, core: &Core) -> u64 {
        match &core.geometry {
            Geometry::Parity(parity) => whole_chunks(parity, WINDOW_BYTES),
            // A whole stripe has one chunk of each member; so each one is read in order.
            Geometry::Raid10(raid10) => {
                (WINDOW_BYTES / raid10.chunk_bytes()).max(1) * raid10.stripe_bytes()
            }
            _ => WINDOW_BYTES,
        }
    }

    fn range(&self, core: &Core) -> Range<u64> {
        let unit = self.window_bytes(core);
        let end = end_of(core);
        let start = (self.start / unit * unit).min(end);
        self.begun.set(start);
        start..end
    }

    fn next(&self, _core: &Core, at: u64) -> Range<u64> {
        at..u64::MAX
    }

    fn over(&self, core: &Core) -> Option<JobEnd> {
        let over = core.scrub.cancelled.get() || due::makes_way(core, self.kind());
        over.then_some(JobEnd::Stopped)
    }

    async fn window(&self, core: &Core, range: Range<u64>) -> Result<Window, DriveError> {
        let start = range.start;
        let (found, window) = match &core.geometry {
            Geometry::Parity(parity) => stripes::window(self, core, parity, range).await?,
            _ => copies::window(self, core, range).await?,
        };
        self.pending.borrow_mut().insert(start, found);
        Ok(window)
    }

    fn reached(&self, core: &Core, position: u64) {
        let behind = self.pending.borrow_mut().split_off(&position);
        let done = self.pending.replace(behind);
        if let Some(record) = core.scrub.record.borrow_mut().as_mut() {
            for found in done.values() {
                append(record, found);
            }
            record.position = position;
        }
    }

    /// How it ends is recorded by whoever knows.
    async fn record(&self, core: &Core, end: bool) -> Result<(), DriveError> {
        if self.may_write(core) {
            // What was mended is durable before anybody is told so.
            core.flush_members().await?;
        }
        if !end {
            record::store(core).await;
        }
        Ok(())
    }
}
