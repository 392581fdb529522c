//! What members remember of a scrub: read when the array is opened, written while it goes on.
//!
//! Every member gets the same, since any may be missing the next time; the newest that is sound
//! counts. It is never needed to read data, so a member that can't be read or written here is not
//! failed for it, and one without room just has none.

use std::time::Duration;

use drive::{Drive, Durability};
use format::md::Uuid;
use format::own::scrub::{SCRUB_BLOCK_BYTES, ScrubRecord};
use world::{World, WriteBufs, join_all};

use crate::core::Core;
use crate::examine::read_bytes;

/// A member that does not answer for so long remembers nothing.
const READ_LIMIT: Duration = Duration::from_secs(10);

/// The newest record on these drives, each with the places of its two slots.
pub(crate) async fn load(
    world: &World,
    set_uuid: Uuid,
    members: impl IntoIterator<Item = (&dyn Drive, [u64; 2])>,
) -> Option<ScrubRecord> {
    let reads = members.into_iter().map(|(drive, [first, second])| async move {
        let both = (second - first) as usize + SCRUB_BLOCK_BYTES;
        let read = read_bytes(world.pool(), drive, first, both);
        let read = world.within(READ_LIMIT, "a member's record of scrubs", read).await;
        let Ok(Ok(bytes)) = read else { return [None, None] };
        [0, (second - first) as usize].map(|at| ScrubRecord::parse(&bytes[at..]).ok())
    });
    let found = join_all(reads).await.into_iter().flatten().flatten();
    found.filter(|record| record.set_uuid == set_uuid).max_by_key(|record| record.sequence)
}

/// Writes the record as it stands to every member that is in service.
pub(crate) async fn store(core: &Core) {
    if !core.metadata.writable() {
        return;
    }
    let record = {
        let mut record = core.scrub.record.borrow_mut();
        let Some(record) = record.as_mut() else { return };
        record.sequence += 1;
        record.written_seconds = core.metadata.now_seconds(core);
        record.clone()
    };
    let bytes = record.build();
    let writes = core.slots.iter().zip(&core.scrub.rooms).filter_map(|(slot, room)| {
        let member = slot.member().filter(|_| slot.writable())?;
        let place = room.as_ref()?[record.slot() as usize];
        let buffers = WriteBufs::from_iter([core.world.pool().copy_of(&bytes)]);
        Some(async move { member.drive.write(place, buffers, Durability::Durable).await })
    });
    // Whoever could not write it has nothing, or the one before; the next real write tells more.
    let _ = join_all(writes).await;
}
