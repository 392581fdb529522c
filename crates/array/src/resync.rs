//! Making copies and parity agree, in the background: after create, and after a sudden end.
//!
//! Parity is computed from the data, further copies are written from the first readable one. What
//! can't be read is found to the block: the rest of its stripe is made to agree all the same. Where
//! nothing readable is left to compare, it goes on behind that, and counts it.

use std::ops::Range;

use drive::DriveError;
use geometry::{Geometry, Parity};

use crate::core::Core;
use crate::due;
use crate::job::{Pass, WINDOW_BYTES, Window};
use crate::job_status::{JobEnd, JobKind};
use crate::mutant::{self, Mutant};
use crate::{resync_copies, resync_stripes};

/// Makes everything agree that does not yet.
pub(crate) struct Resync;

impl Pass for Resync {
    fn kind(&self) -> JobKind {
        JobKind::Resync
    }

    fn slot(&self) -> Option<usize> {
        None
    }

    fn window_bytes(&self, core: &Core) -> u64 {
        match &core.geometry {
            Geometry::Parity(parity) => whole_chunks(parity, WINDOW_BYTES),
            _ => WINDOW_BYTES,
        }
    }

    fn range(&self, core: &Core) -> Range<u64> {
        let start = core.synced_to.get();
        match &core.geometry {
            Geometry::Parity(parity) => {
                let end = parity.stripes() * parity.chunk_bytes();
                (start - start % parity.chunk_bytes()).min(end)..end
            }
            geometry => start.min(geometry.array_bytes())..geometry.array_bytes(),
        }
    }

    /// Everything behind the position does, unless the bitmap knows better.
    fn next(&self, core: &Core, at: u64) -> Range<u64> {
        let Some(bitmap) = &core.bitmap else { return at..u64::MAX };
        let Some(needed) = bitmap.next_needed(at) else { return u64::MAX..u64::MAX };
        let Geometry::Parity(parity) = &core.geometry else { return needed };
        let chunk = parity.chunk_bytes();
        // `at` is the start of a stripe: what lies before a chunk's first is not worked on twice.
        needed.start / chunk * chunk..needed.end.div_ceil(chunk).saturating_mul(chunk)
    }

    fn over(&self, core: &Core) -> Option<JobEnd> {
        due::makes_way(core, JobKind::Resync).then_some(JobEnd::Stopped)
    }

    async fn window(&self, core: &Core, range: Range<u64>) -> Result<Window, DriveError> {
        match &core.geometry {
            Geometry::Parity(parity) => resync_stripes::window(core, parity, range).await,
            _ => resync_copies::window(core, range).await,
        }
    }

    fn reached(&self, core: &Core, position: u64) {
        let before = core.synced_to.get();
        core.synced_to.set(before.max(position));
        if let Some(bitmap) = core.bitmap.as_ref().filter(|_| before < position) {
            bitmap.made_to_agree(before..position);
        }
    }

    async fn record(&self, core: &Core, end: bool) -> Result<(), DriveError> {
        let synced_to = if end { u64::MAX } else { core.synced_to.get() };
        // What was made to agree is durable before the superblocks say so.
        if !mutant::planted(Mutant::ResyncNotDurable) {
            core.flush_members().await?;
        }
        core.synced_to.set(synced_to);
        core.synced_durably_to.set(synced_to);
        if let Some(bitmap) = &core.bitmap {
            bitmap.clear_later(core);
        }
        core.commit().await
    }
}

/// The most whole chunks within `bytes`, or one.
pub(crate) fn whole_chunks(parity: &Parity, bytes: u64) -> u64 {
    (bytes / parity.chunk_bytes()).max(1) * parity.chunk_bytes()
}
