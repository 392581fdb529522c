//! An open array, which is itself a drive.

use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use drive::{
    Discarded, Drive, DriveError, Durability, Facts, Io, Operation, ReadDone, Zeroing, check_range,
};
use format::own::scrub::ScrubKind;
use geometry::{Geometry, Place};
use world::{BufMut, ReadBufs, WriteBufs, total_bytes};

use crate::copies;
use crate::core::Core;
use crate::due;
use crate::job::Jobs;
use crate::learn;
use crate::lock::Mode;
use crate::log::Log;
use crate::mismatch::{self, Candidate, Mismatch};
use crate::mutant::{self, Mutant};
use crate::pace::JobPolicy;
use crate::policy::Policy;
use crate::read;
use crate::scrub::{self, ScrubRefused};
use crate::status::Status;
use crate::stripe;

/// Without a write for this long, the members are marked clean again, so that a later power cut
/// costs no resync. md's own delay is 0.2 s; members that are disks would wake up for it each time.
const CLEAN_AFTER: Duration = Duration::from_secs(5);

/// What one member holds of a run of the array: see [`Array::copies_raw`].
#[derive(Debug)]
pub struct RawCopy {
    /// The member's slot.
    pub slot: usize,
    /// Where the run starts, in bytes of the array.
    pub array_offset: u64,
    /// Its length.
    pub bytes: u64,
    /// The bytes, or why they can't be read.
    pub content: Result<BufMut, DriveError>,
}

/// An open array. Clones are the same array; it belongs to one world.
#[derive(Clone)]
pub struct Array(pub(crate) Rc<Core>);

impl Array {
    /// An array that does no background work until it is told to go on.
    pub(crate) fn held(core: Core) -> Self {
        core.jobs.held.set(true);
        Array(Rc::new_cyclic(|this| Core { this: this.clone(), ..core }))
    }

    /// After a replay: the members' superblocks say what it has mended, and the log is empty.
    pub(crate) async fn begin_log(&self) -> Result<(), DriveError> {
        let core = &self.0;
        match &core.log {
            Log::None => Ok(()),
            Log::Ppl(ppl) => {
                // In this order: an array in use whose log is empty has to be resynced.
                core.commit().await?;
                ppl.reset_all(core).await
            }
            Log::Journal(journal) => {
                journal.begin(core).await?;
                core.commit().await
            }
        }
    }

    /// Waits until the background work has ended: done, or stopped by what is in the status.
    pub async fn background_done(&self) {
        self.0.jobs.busy.drained().await;
        self.0.mending.drained().await;
        self.0.checksums.learning.drained().await;
    }

    /// Stops background work at its next window and keeps it from starting by itself; what is done
    /// stays done.
    pub async fn hold_jobs(&self) {
        self.0.jobs.held.set(true);
        self.0.jobs.stop();
        self.background_done().await;
    }

    /// Lets background work go on where it was stopped.
    pub fn resume_jobs(&self) {
        self.0.jobs.held.set(false);
        due::wake(&self.0);
        learn::start(&self.0);
    }

    /// What background work may take from clients from now on.
    pub fn set_job_policy(&self, policy: JobPolicy) {
        self.0.jobs.set_policy(policy);
    }

    /// Starts to compare all copies, or data and parity, from the start of the array; nothing is
    /// changed but sectors that can't be read, which are rewritten where redundancy knows what
    /// they hold. What is found is in the status; it goes on where it was after a restart.
    ///
    /// # Errors
    /// [`ScrubRefused`]: why there is none.
    pub fn start_check(&self) -> Result<(), ScrubRefused> {
        self.start_scrub(ScrubKind::Check)
    }

    /// As [`Array::start_check`], and mends what is known to be wrong. Where nobody can know, the
    /// data is believed if `trust_data` says so (of copies the first one), as md does; else
    /// nothing is changed there.
    ///
    /// # Errors
    /// [`ScrubRefused`]: why there is none.
    pub fn start_repair(&self, trust_data: bool) -> Result<(), ScrubRefused> {
        self.start_scrub(match trust_data {
            false => ScrubKind::Repair,
            true => ScrubKind::RepairTrustingData,
        })
    }

    fn start_scrub(&self, kind: ScrubKind) -> Result<(), ScrubRefused> {
        scrub::ask(&self.0, kind)?;
        due::wake(&self.0);
        Ok(())
    }

    /// Ends a check or repair for good at its next window; what was found stays known. Gives
    /// whether there was one.
    pub fn stop_scrub(&self) -> bool {
        self.0.scrub.cancel()
    }

    /// Every content that a mismatch of [`Status::scrub`] leaves to choose from: what each member
    /// holds now, and what the others say it should hold.
    pub async fn candidates(&self, mismatch: &Mismatch) -> Vec<Candidate> {
        mismatch::candidates(&self.0, mismatch).await
    }

    /// The array's state, whole.
    #[must_use]
    pub fn status(&self) -> Status {
        Status::of(&self.0)
    }

    /// What to expect of members, from now on.
    pub fn set_policy(&self, policy: Policy) {
        *self.0.policy.borrow_mut() = policy;
    }

    /// Where its bytes live.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.0.geometry
    }

    /// What each member holds of a range of the array as it is, one try each, nothing worked out:
    /// for saving what is left where copies differ or can't be read. One entry for each copy of
    /// each run of the range; parity levels have one copy of the data.
    ///
    /// # Panics
    /// If the range passes the end of the array.
    pub async fn copies_raw(&self, offset: u64, bytes: u64) -> Vec<RawCopy> {
        let core = &self.0;
        let mut copies = Vec::new();
        for run in core.geometry.runs(offset, bytes) {
            for copy in 0..core.geometry.copies() {
                let Place { member: slot, offset } = core.geometry.copy(&run, copy);
                if core.slots[slot].member().is_none() {
                    continue;
                }
                let buffers = ReadBufs::from_iter([core.world.pool().take(run.bytes as usize)]);
                let mut done = core.read(slot, offset, buffers, true).await;
                let content = done.buffers.pop().expect("one buffer was given");
                let content = done.result.map(|()| content);
                let (array_offset, bytes) = (run.array_offset, run.bytes);
                copies.push(RawCopy { slot, array_offset, bytes, content });
            }
        }
        copies
    }

    /// Ends the array's service: waits for writes under way, flushes the members, and marks them
    /// clean.
    ///
    /// # Errors
    /// When a member that the array can't do without fails on the way: what was acknowledged
    /// before an earlier flush is safe, what came after may not be.
    pub async fn stop(&self) -> Result<(), DriveError> {
        self.0.stopping.set(true);
        self.background_done().await;
        self.0.writes_in_flight.drained().await;
        if !self.0.metadata.writable() {
            return Ok(());
        }
        if !mutant::planted(Mutant::StopWithoutFlush) {
            self.flush().await?;
        }
        self.0.settle_sums().await?;
        if let Some(bitmap) = &self.0.bitmap {
            bitmap.finish(&self.0).await?;
        }
        if let Some(journal) = self.0.log.journal() {
            // The next start has little to replay then.
            journal.reclaim(&self.0).await?;
        }
        let mut ended = self.0.metadata.mark_clean(&self.0).await;
        if ended.is_ok() {
            ended = self.0.persist_sums().await;
        }
        self.0.metadata.seal();
        ended
    }

    /// Fails a member, as an administrator would: from here on it is not used, and the others'
    /// superblocks say so.
    ///
    /// # Errors
    /// When the array can't do without it.
    pub async fn fail_member(&self, slot: usize) -> Result<(), DriveError> {
        let error = DriveError {
            kind: drive::ErrorKind::Gone,
            operation: Operation::Write,
            offset: 0,
            bytes: 0,
            drive: self.0.slots[slot].member().map_or_else(
                || self.0.facts.name.clone(),
                |member| member.drive.facts().name.clone(),
            ),
            source: None,
        };
        self.0.fail_members(vec![(slot, error)]).await
    }

    /// Runs a change of these bytes as a task, so that a client that goes away can't stop it
    /// half-way.
    fn change<F>(
        &self,
        bytes: Range<u64>,
        act: impl FnOnce(Rc<Core>) -> F,
    ) -> Io<Result<(), DriveError>>
    where
        F: Future<Output = Result<(), DriveError>> + 'static,
    {
        let core = Rc::clone(&self.0);
        let extent = core.extent(bytes);
        let work = act(Rc::clone(&core));
        let keep = self.clone();
        core.writes_in_flight.enter();
        let task = self.0.world.spawn(async move {
            let result = async {
                core.metadata.mark_dirty(&core).await?;
                core.intended(&extent, work).await
            };
            let result = result.await;
            core.writes_in_flight.leave();
            if core.writes_in_flight.inside() == 0 {
                keep.clean_later();
            }
            result
        });
        Jobs::watch(&self.0, Io::later(task))
    }

    /// Starts the wait after which the members are marked clean, unless one is running.
    fn clean_later(&self) {
        let core = &self.0;
        if !core.metadata.dirty() || core.cleaner.get() {
            return;
        }
        core.cleaner.set(true);
        let array = self.clone();
        core.world.spawn(async move {
            let core = &array.0;
            loop {
                let seen = core.writes_started.get();
                core.world.sleep(CLEAN_AFTER).await;
                if core.stopping.get() {
                    // The stop itself marks them clean; what comes after it is nobody's any more.
                    core.cleaner.set(false);
                    return;
                }
                let quiet = || {
                    let idle = core.writes_in_flight.inside() == 0;
                    idle && core.writes_started.get() == seen
                        || mutant::planted(Mutant::CleanWithWrites)
                };
                if quiet() {
                    if mutant::planted(Mutant::CleanWithoutFlush) {
                        break;
                    }
                    if array.flush().await.is_err() || core.settle_sums().await.is_err() {
                        // Nothing can be called clean; the next write starts another wait.
                        core.cleaner.set(false);
                        return;
                    }
                    if quiet() {
                        break;
                    }
                }
                core.writes_in_flight.drained().await;
            }
            core.cleaner.set(false);
            if core.stopping.get() {
                return;
            }
            // What fails here is found again, and reported, by the next write.
            let _ = core.metadata.mark_clean(core).await;
        });
    }

    fn check(&self, operation: Operation, offset: u64, bytes: u64) -> Result<(), DriveError> {
        let changes = !matches!(operation, Operation::Read | Operation::Flush);
        if changes && self.0.stopping.get() {
            return Err(self.0.stopped(operation, offset, bytes));
        }
        if changes && self.0.log.failure().is_some() {
            return Err(self.0.without_log(operation, offset, bytes));
        }
        check_range(&self.0.facts, operation, offset, bytes)
    }
}

impl Drive for Array {
    fn facts(&self) -> &Facts {
        &self.0.facts
    }

    fn read(&self, offset: u64, buffers: ReadBufs) -> Io<ReadDone> {
        match self.check(Operation::Read, offset, total_bytes(&buffers)) {
            Ok(()) => Jobs::watch(&self.0, read::read(&self.0, offset, buffers)),
            Err(error) => Io::ready(ReadDone { buffers, result: Err(error) }),
        }
    }

    fn write(
        &self,
        offset: u64,
        buffers: WriteBufs,
        durability: Durability,
    ) -> Io<Result<(), DriveError>> {
        let bytes = total_bytes(&buffers);
        let dropped = mutant::planted(Mutant::DurableDropped);
        let durability = if dropped { Durability::Cached } else { durability };
        match self.check(Operation::Write, offset, bytes) {
            Err(error) => return Io::ready(Err(error)),
            Ok(()) if bytes == 0 => return Io::ready(Ok(())),
            Ok(()) => {}
        }
        if !self.0.redundant() {
            return copies::write_once(&self.0, offset, buffers, durability);
        }
        self.0.writes_started.set(self.0.writes_started.get() + 1);
        self.change(offset..offset + bytes, move |core| async move {
            match &core.geometry {
                Geometry::Parity(parity) => {
                    stripe::write(&core, parity, offset, buffers, durability).await
                }
                _ => copies::write(&core, offset, buffers, durability).await,
            }
        })
    }

    fn flush(&self) -> Io<Result<(), DriveError>> {
        // A task, so that the verdict on a member is reached even if nobody waits for it any more.
        let core = Rc::clone(&self.0);
        Io::later(self.0.world.spawn(async move { core.flush_members().await }))
    }

    fn discard(&self, offset: u64, bytes: u64) -> Io<Result<Discarded, DriveError>> {
        if let Err(error) = self.check(Operation::Discard, offset, bytes) {
            return Io::ready(Err(error));
        }
        if !self.0.log.is_none() {
            // It would have to be logged as the zeroes it may leave: more work than it saves.
            return Io::ready(Ok(Discarded::Unspecified));
        }
        // Copies and parity must agree afterwards, and only zeroes are the same everywhere; what
        // does not cover whole stripes is left as it is.
        let step = self.0.geometry.stripe_bytes();
        let start = offset.next_multiple_of(step);
        let end = (offset + bytes) / step * step;
        if start >= end {
            return Io::ready(Ok(Discarded::Unspecified));
        }
        let zero = self.write_zeroes(start, end - start, Zeroing::MayUnmap, Durability::Cached);
        Io::later(async move { zero.await.map(|()| Discarded::Unspecified) })
    }

    fn write_zeroes(
        &self,
        offset: u64,
        bytes: u64,
        zeroing: Zeroing,
        durability: Durability,
    ) -> Io<Result<(), DriveError>> {
        match self.check(Operation::WriteZeroes, offset, bytes) {
            Err(error) => return Io::ready(Err(error)),
            Ok(()) if bytes == 0 => return Io::ready(Ok(())),
            Ok(()) => {}
        }
        self.0.writes_started.set(self.0.writes_started.get() + 1);
        self.change(offset..offset + bytes, move |core| async move {
            match &core.geometry {
                Geometry::Parity(_) => {
                    zero_stripes(&core, offset, bytes, zeroing, durability).await
                }
                _ => copies::write_zeroes(&core, offset, bytes, zeroing, durability).await,
            }
        })
    }
}

/// Zeroes on a parity level: whole stripes become zero on every member, since the parity of zeroes
/// is zero; the ends are written, and everything is where it has to be logged.
async fn zero_stripes(
    core: &Core,
    offset: u64,
    bytes: u64,
    zeroing: Zeroing,
    durability: Durability,
) -> Result<(), DriveError> {
    let Geometry::Parity(parity) = &core.geometry else { unreachable!("called for parity levels") };
    let stripe_bytes = parity.stripe_bytes();
    let stripes_at_once = (copies::ZERO_STEP_BYTES / parity.chunk_bytes()).max(1);
    let end = offset + bytes;
    let mut at = offset;
    while at < end {
        let aligned = at.is_multiple_of(stripe_bytes) && core.log.is_none();
        let whole = if aligned { (end - at) / stripe_bytes } else { 0 };
        if whole == 0 {
            let part = (stripe_bytes - at % stripe_bytes).min(end - at);
            let zeroes = core.world.pool().take_zeroed(part as usize).freeze();
            let buffers = WriteBufs::from_iter([zeroes]);
            stripe::write(core, parity, at, buffers, durability).await?;
            at += part;
            continue;
        }
        let first = at / stripe_bytes;
        let stripes = whole.min(stripes_at_once);
        let locked = mutant::unless_unlocked(Mutant::ZeroStripesUnlocked, first..first + stripes);
        let _lock = core.locks.lock(locked, Mode::Exclusive).await;
        let start = first * parity.chunk_bytes();
        let len = stripes * parity.chunk_bytes();
        let ranges = (0..core.slots.len()).map(|slot| (slot, start, len)).collect();
        copies::zero_members(core, ranges, zeroing, durability).await?;
        at += stripes * stripe_bytes;
    }
    Ok(())
}
