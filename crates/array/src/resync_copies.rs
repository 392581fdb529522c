//! A resync's window on levels that keep copies: the further ones are written from the first.

use std::ops::Range;

use drive::{DriveError, Durability};
use geometry::{Place, Run};
use world::{Buf, ReadBufs, join_all};

use crate::around::{self, Wanted};
use crate::batch::WriteBatch;
use crate::core::Core;
use crate::job::{Watch, Window};
use crate::lock::Mode;
use crate::mutant::{self, Mutant};

/// Makes the copies of a range of the array agree.
pub(crate) async fn window(core: &Core, range: Range<u64>) -> Result<Window, DriveError> {
    let locked = mutant::unless_unlocked(Mutant::ResyncUnlocked, range.clone());
    let _lock = core.locks.lock(locked, Mode::Exclusive).await;
    let mut watch = Watch::new(core);
    let runs = core.geometry.runs(range.start, range.end - range.start);
    let copied = join_all(runs.map(|run| copy(core, run))).await;
    watch.read();
    let mut writes = WriteBatch::default();
    for (slot, offset, content) in copied.into_iter().flatten() {
        writes.add(slot, offset, content);
    }
    writes.run(core, Durability::Cached).await?;
    Ok(watch.written())
}

/// What to write where, so that all copies of a run hold what the first one does. Where that can't
/// be read it is what the next one holds, as clients are given it.
async fn copy(core: &Core, run: Run) -> Vec<(usize, u64, Buf)> {
    let mut places: Vec<Place> =
        (0..core.geometry.copies()).map(|copy| core.geometry.copy(&run, copy)).collect();
    if mutant::planted(Mutant::ResyncWrongSource) {
        places.reverse();
    }
    let mut copied = Vec::new();
    if places.iter().filter(|place| core.slots[place.member].writable()).count() < 2 {
        return copied;
    }
    let targets = |source: Place| {
        let others = places.iter().copied().filter(move |place| *place != source);
        others.filter(|place| core.slots[place.member].writable())
    };
    let whole = Range { start: 0, end: run.bytes };
    let mut missing = vec![whole];
    for &source in &places {
        if missing.is_empty() || !core.slots[source.member].holds(source.offset, run.bytes) {
            continue;
        }
        if copied.is_empty() && core.slots[source.member].readable(source.offset, run.bytes) {
            // As a rule that is all there is to it.
            let buffers = ReadBufs::from_iter([core.world.pool().take(run.bytes as usize)]);
            let mut done = core.read(source.member, source.offset, buffers, false).await;
            if let (Ok(()), Some(buffer)) = (done.result, done.buffers.pop()) {
                let content = buffer.freeze();
                let places = targets(source);
                return places.map(|to| (to.member, to.offset, content.clone())).collect();
            }
        }
        let wanted = missing.drain(..).map(|rows| Wanted {
            key: rows.start,
            slot: source.member,
            offset: source.offset + rows.start,
            bytes: (rows.end - rows.start) as usize,
        });
        let wanted = wanted.collect();
        let mut parts = around::read(core, wanted, core.facts.block_bytes as usize).await;
        parts.sort_unstable_by_key(|part| part.key);
        for part in parts {
            let readable = part.readable();
            let content = part.content.freeze();
            for rows in readable {
                let start = part.key + rows.start as u64;
                copied.extend(targets(source).map(|to| {
                    (to.member, to.offset + start, content.slice(rows.start, rows.len()))
                }));
            }
            let rest = part.unreadable.iter();
            missing.extend(rest.map(|r| part.key + r.start as u64..part.key + r.end as u64));
        }
    }
    if !missing.is_empty() {
        core.unsynced.add(run.array_offset);
    }
    copied
}
