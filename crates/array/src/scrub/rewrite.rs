//! Rewriting what is wrong or can't be read, and reading it back: done is what was seen there.

use std::ops::Range;

use drive::{DriveError, Durability};
use format::own::scrub::Outcome;
use world::Buf;

use crate::batch::{ReadBatch, WriteBatch};
use crate::core::Core;
use crate::mend;

/// A part of a member, and what it should hold.
#[derive(Clone)]
pub(crate) struct Rewrite {
    pub(crate) slot: usize,
    /// In the data area.
    pub(crate) offset: u64,
    pub(crate) content: Buf,
    /// It could not be read: where it can't be written either, the member's bad-block log takes it.
    pub(crate) unreadable: bool,
}

/// Rewrites parts of what the bitmap calls `extent`; for each whether it reads back as it should.
/// The caller holds the stripes.
///
/// # Errors
/// A member failed that the array can't do without.
pub(crate) async fn rewrite(
    core: &Core,
    extent: &Range<u64>,
    rewrites: &[Rewrite],
) -> Result<Vec<bool>, DriveError> {
    match rewrites {
        [] => Ok(Vec::new()),
        rewrites => core.intended(extent, write(core, rewrites)).await,
    }
}

async fn write(core: &Core, rewrites: &[Rewrite]) -> Result<Vec<bool>, DriveError> {
    let mut writes = WriteBatch::default();
    for Rewrite { slot, offset, content, .. } in rewrites.iter().filter(|it| !it.unreadable) {
        if core.slots[*slot].writable() {
            writes.add(*slot, *offset, content.clone());
        }
    }
    writes.run(core, Durability::Cached).await?;
    for (slot, offset, bytes) in unreadable(rewrites) {
        mend::mend(core, slot, offset, bytes).await;
    }
    let mut reads = ReadBatch::new();
    for (index, Rewrite { slot, offset, content, .. }) in rewrites.iter().enumerate() {
        if core.slots[*slot].readable(*offset, content.len() as u64) {
            reads.add(*slot, *offset, core.world.pool().take(content.len()), index);
        }
    }
    let mut done = vec![false; rewrites.len()];
    for (index, read) in reads.run(core).await.read {
        done[index] = read[..] == rewrites[index].content[..];
    }
    Ok(done)
}

/// What could not be read, neighbours together.
fn unreadable(rewrites: &[Rewrite]) -> Vec<(usize, u64, u64)> {
    let unreadable = rewrites.iter().filter(|it| it.unreadable);
    let mut ranges: Vec<(usize, u64, u64)> =
        unreadable.map(|it| (it.slot, it.offset, it.content.len() as u64)).collect();
    ranges.sort_unstable();
    ranges.dedup_by(|next, last| {
        let joins = next.0 == last.0 && last.1 + last.2 == next.1;
        if joins {
            last.2 += next.2;
        }
        joins
    });
    ranges
}

/// What became of some of the rewrites, of one slot's or of all slots': `None` when there are some
/// and all read back as they should.
pub(crate) fn became(
    rewrites: &[Rewrite],
    mended: &[bool],
    which: Range<usize>,
    slot: Option<usize>,
) -> Option<Outcome> {
    let of_slot = |index: &usize| slot.is_none_or(|slot| rewrites[*index].slot == slot);
    let results: Vec<bool> = which.filter(of_slot).map(|index| mended[index]).collect();
    match results.is_empty() {
        true => Some(Outcome::Left),
        false => results.contains(&false).then_some(Outcome::Failed),
    }
}
