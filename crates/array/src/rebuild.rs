//! The passes that fill members: a rebuild those that took empty slots, from redundancy; a replace
//! the one that is to take over, from the member that still serves, and from redundancy where that
//! one can't be read.
//!
//! A window is read, computed and written as a whole; what is stuck is gone over again in pieces
//! of a page, so that bad blocks of several members cost no more than what they have in common.
//! What is lost even so is listed by array offset, counts as unreadable on the member that was to
//! get it, and ends nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use drive::{DriveError, Durability, ErrorKind, Operation};
use geometry::Geometry;
use world::WriteBufs;

use crate::bad_blocks::{self, Ranges};
use crate::bitmap::Bitmap;
use crate::core::Core;
use crate::due;
use crate::fill_copies;
use crate::fill_stripes;
use crate::job::{Pass, WINDOW_BYTES, Watch, Window};
use crate::job_status::{JobEnd, JobKind, Loss};
use crate::lock::Mode;
use crate::log::Log;
use crate::mend::mend_or_list;
use crate::mutant::{self, Mutant};
use crate::resync::whole_chunks;
use crate::slot::SlotState;

/// What is stuck is gone over again in pieces of this size: md's own unit of work, and the block
/// of the drives that have large ones.
pub(crate) const PIECE_BYTES: u64 = 4096;

/// A member being filled that takes longer than this to answer a write is failed.
const TARGET_ANSWERS_WITHIN: Duration = Duration::from_secs(30);

/// Who is filled.
pub(crate) enum Fill {
    /// The members of slots that are recovering.
    Rebuild(Vec<usize>),
    /// The drive that is to replace a slot's member.
    Replace(usize),
}

/// Content for the members that are filled: slot, offset in the data area, bytes.
pub(crate) type Filling = Vec<(usize, u64, world::Buf)>;

/// A range of a member's data area that could not be computed.
pub(crate) struct Stuck {
    pub(crate) slot: usize,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// What a window gave: content for the members, ranges that stay without, and what of the array is
/// lost by that.
#[derive(Default)]
pub(crate) struct Filled {
    pub(crate) filling: Filling,
    pub(crate) stuck: Vec<Stuck>,
    pub(crate) losses: Vec<Loss>,
    /// Per slot, what of the sources could not be read.
    pub(crate) unread: BTreeMap<usize, Ranges>,
}

impl Filled {
    /// Notes a part of a source's data area that could not be read.
    pub(crate) fn note_unread(&mut self, slot: usize, offset: u64, bytes: u64, error: &DriveError) {
        if error.kind == ErrorKind::Media {
            self.unread.entry(slot).or_default().add(offset, offset + bytes);
        }
    }
}

impl Fill {
    pub(crate) fn slots(&self) -> &[usize] {
        match self {
            Fill::Rebuild(slots) => slots,
            Fill::Replace(slot) => std::slice::from_ref(slot),
        }
    }

    /// Whether the slot's own member is a source.
    pub(crate) fn own_serves(&self) -> bool {
        matches!(self, Fill::Replace(_))
    }

    /// The bitmap, where it knows all that the members lack.
    fn bitmap<'a>(&self, core: &'a Core) -> Option<&'a Bitmap> {
        let back = |&slot: &usize| core.slots[slot].came_back();
        let all = matches!(self, Fill::Rebuild(slots) if slots.iter().all(back));
        core.bitmap.as_ref().filter(|_| all)
    }

    /// How far the slot's drive has come; `None` when it is not filled (any more).
    fn upto(&self, core: &Core, slot: usize) -> Option<u64> {
        match (self, core.slots[slot].state()) {
            (Fill::Rebuild(_), SlotState::Recovering { upto_bytes }) => Some(upto_bytes),
            (Fill::Replace(_), SlotState::InSync) => {
                Some(core.slots[slot].replacement()?.upto_bytes.get())
            }
            _ => None,
        }
    }

    /// Members that still need the range.
    pub(crate) fn targets(&self, core: &Core, end: u64) -> Vec<usize> {
        let needs = |&slot: &usize| self.upto(core, slot).is_some_and(|upto| upto < end);
        self.slots().iter().copied().filter(needs).collect()
    }

    /// What could not be worked out counts as unreadable on the drive that was to get it, before
    /// the position moves over it.
    async fn note_stuck(&self, core: &Core, stuck: &[Stuck]) {
        for &Stuck { slot, offset, bytes } in stuck {
            let replacement = core.slots[slot].replacement().filter(|_| self.own_serves());
            let member = replacement.map(|replacement| Rc::clone(&replacement.member));
            if let Some(member) = member.or_else(|| core.slots[slot].member()) {
                member.bad.add(member.data_offset + offset, bytes);
            }
        }
        let slots: BTreeSet<usize> = stuck.iter().map(|stuck| stuck.slot).collect();
        for slot in slots {
            match core.slots[slot].replacement().filter(|_| self.own_serves()) {
                None => bad_blocks::record(core, slot).await,
                Some(replacement) => {
                    let member = &replacement.member;
                    replacement.note(bad_blocks::record_replacement(core, member).await);
                }
            }
        }
    }

    /// What sources could not read is mended from the others, or listed where it is lost. A member
    /// that is being replaced is left: too many errors would take it away as a source.
    async fn mend_sources(&self, core: &Core, unread: BTreeMap<usize, Ranges>) {
        for (slot, ranges) in unread {
            if self.slots().contains(&slot) {
                continue;
            }
            for range in ranges.to_vec() {
                mend_or_list(core, slot, range.start, range.end - range.start).await;
            }
        }
    }

    /// Says on a replacement that it holds everything, before the outgoing member is said to be
    /// faulty: a sudden end between superblocks must leave one of them that counts.
    async fn record_whole(
        &self,
        core: &Core,
        slot: usize,
        upto: Option<u64>,
    ) -> Result<(), DriveError> {
        let (Some(upto), Some(replacement)) = (upto, core.slots[slot].replacement()) else {
            return Ok(());
        };
        replacement.durable_bytes.set(upto);
        core.commit().await?;
        // It may have failed just now.
        core.fail_members(Vec::new()).await
    }

    /// Stores what was worked out; a drive that errs or does not answer is out.
    async fn store(&self, core: &Core, filling: Filling) -> Result<(), DriveError> {
        let writes = joined(filling).into_iter().map(|(slot, offset, buffers)| async move {
            let bytes = world::total_bytes(&buffers);
            let replacement = core.slots[slot].replacement().filter(|_| self.own_serves());
            let write = match &replacement {
                Some(replacement) => {
                    let member = &replacement.member;
                    let offset = member.data_offset + offset;
                    member.drive.write(offset, buffers, Durability::Cached)
                }
                None => core.slots[slot].write(offset, buffers, Durability::Cached),
            };
            let what = "a write to the member being filled";
            let written = core.world.within(TARGET_ANSWERS_WITHIN, what, write).await;
            let result = written.unwrap_or_else(|_| {
                let kind = ErrorKind::TimedOut;
                Err(DriveError { kind, ..core.lost(Operation::Write, offset, bytes) })
            });
            match replacement {
                Some(replacement) => {
                    replacement.note(result);
                    None
                }
                None => result.err().map(|error| (slot, error)),
            }
        });
        let failed = world::join_all(writes).await.into_iter().flatten().collect();
        core.fail_members(failed).await
    }
}

/// Neighbours as one request.
fn joined(mut filling: Filling) -> Vec<(usize, u64, WriteBufs)> {
    filling.sort_by_key(|&(slot, offset, _)| (slot, offset));
    let mut requests: Vec<(usize, u64, WriteBufs)> = Vec::new();
    let mut end = 0;
    for (slot, offset, data) in filling {
        let bytes = data.len() as u64;
        match requests.last_mut() {
            Some((last, _, buffers)) if *last == slot && end == offset => buffers.push(data),
            _ => requests.push((slot, offset, WriteBufs::from_iter([data]))),
        }
        end = offset + bytes;
    }
    requests
}

impl Pass for Fill {
    fn kind(&self) -> JobKind {
        match self {
            Fill::Rebuild(_) => JobKind::Rebuild,
            Fill::Replace(_) => JobKind::Replace,
        }
    }

    fn slot(&self) -> Option<usize> {
        self.slots().first().copied()
    }

    fn window_bytes(&self, core: &Core) -> u64 {
        match &core.geometry {
            Geometry::Parity(parity) => whole_chunks(parity, WINDOW_BYTES),
            _ => WINDOW_BYTES,
        }
    }

    fn range(&self, core: &Core) -> Range<u64> {
        let slots = self.slots().iter();
        let end = slots.clone().map(|&slot| core.geometry.used_bytes(slot)).max().unwrap_or(0);
        let start = slots.filter_map(|&slot| self.upto(core, slot)).min().unwrap_or(0);
        let unit = match &core.geometry {
            Geometry::Parity(parity) => parity.chunk_bytes(),
            _ => PIECE_BYTES,
        };
        (start - start % unit).min(end)..end
    }

    /// Everything behind the position does, unless all members that are filled came back and lack
    /// only what the bitmap says.
    fn next(&self, core: &Core, at: u64) -> Range<u64> {
        let Some(bitmap) = self.bitmap(core) else { return at..u64::MAX };
        let unit = match &core.geometry {
            Geometry::Parity(parity) => parity.chunk_bytes(),
            Geometry::Raid1(_) => PIECE_BYTES,
            // The bits are about the array, the position about members: a window looks itself.
            _ => return at..u64::MAX,
        };
        let Some(dirty) = bitmap.next_dirty(at) else { return u64::MAX..u64::MAX };
        dirty.start / unit * unit..dirty.end.div_ceil(unit).saturating_mul(unit)
    }

    fn over(&self, core: &Core) -> Option<JobEnd> {
        if self.slots().iter().all(|&slot| self.upto(core, slot).is_none()) {
            let failures = core.metadata.failures();
            let ours = failures.iter().rfind(|failure| self.slots().contains(&failure.slot));
            let reason = ours.map_or_else(
                || "the member was taken out".to_owned(),
                |failure| failure.error.to_string(),
            );
            return Some(JobEnd::Failed { reason });
        }
        // Somebody who came later is filled together with the others, from where they stand.
        let newcomer = |slot: usize| {
            matches!(core.slots[slot].state(), SlotState::Recovering { .. })
                && !self.slots().contains(&slot)
        };
        let comes = (0..core.slots.len()).any(newcomer);
        (comes || due::makes_way(core, self.kind())).then_some(JobEnd::Stopped)
    }

    async fn window(&self, core: &Core, range: Range<u64>) -> Result<Window, DriveError> {
        let targets = self.targets(core, range.end);
        let mut pieces = fill_copies::pieces(core, &targets, &range);
        if let Some(bitmap) = self.bitmap(core) {
            pieces.retain(|piece| bitmap.is_dirty(&piece.array()));
        }
        let locked = match &core.geometry {
            Geometry::Parity(parity) => fill_stripes::range(parity, &range),
            _ => fill_copies::range(&pieces),
        };
        let locked = mutant::unless_unlocked(Mutant::RebuildUnlocked, locked);
        let _lock = core.locks.lock(locked, Mode::Exclusive).await;
        let mut watch = Watch::new(core);
        let filled = match &core.geometry {
            Geometry::Parity(parity) => {
                fill_stripes::window(core, parity, self, &targets, &range, &mut watch).await
            }
            _ => fill_copies::window(core, self, pieces).await,
        };
        watch.read();
        self.note_stuck(core, &filled.stuck).await;
        self.store(core, filled.filling).await?;
        self.mend_sources(core, filled.unread).await;
        Ok(Window { losses: filled.losses, ..watch.written() })
    }

    fn reached(&self, core: &Core, position: u64) {
        for &slot in self.slots() {
            if self.upto(core, slot).is_none_or(|upto| upto >= position) {
                continue;
            }
            match (self, core.slots[slot].replacement()) {
                (Fill::Replace(_), Some(replacement)) => replacement.upto_bytes.set(position),
                _ => core.slots[slot].set_state(SlotState::Recovering { upto_bytes: position }),
            }
        }
    }

    async fn record(&self, core: &Core, end: bool) -> Result<(), DriveError> {
        let upto: Vec<_> = self.slots().iter().map(|&slot| self.upto(core, slot)).collect();
        // What was written is durable before the superblocks say so.
        if !mutant::planted(Mutant::RebuildNotDurable) {
            core.store_sums().await?;
            core.flush_members().await?;
        }
        core.fail_members(Vec::new()).await?;
        // Until the others know who has the slot.
        let still = match (&core.log, self) {
            (Log::Ppl(ppl), Fill::Replace(slot)) if end => Some(ppl.still(*slot).await),
            _ => None,
        };
        if let (true, Fill::Replace(slot)) = (end, self) {
            self.record_whole(core, *slot, upto[0]).await?;
        }
        for (&slot, upto) in self.slots().iter().zip(upto) {
            let state = &core.slots[slot];
            let (Some(upto), Some(_)) = (upto, self.upto(core, slot)) else { continue };
            match (self, state.replacement()) {
                (Fill::Replace(_), Some(replacement)) => {
                    replacement.durable_bytes.set(upto);
                    if end {
                        // The outgoing member is faulty by this event, as md leaves it.
                        state.set_replacement(None);
                        state.put(replacement.member.clone(), upto);
                        state.set_state(SlotState::InSync);
                        core.promoted(slot);
                    }
                }
                _ => {
                    state.set_durable_bytes(upto);
                    if end {
                        state.set_state(SlotState::InSync);
                    }
                }
            }
        }
        if let Some(bitmap) = &core.bitmap {
            // With nobody missing any more, what the bits said is done.
            bitmap.clear_later(core);
        }
        let committed = core.commit().await;
        drop(still);
        committed
    }
}
