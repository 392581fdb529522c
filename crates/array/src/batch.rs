//! Requests to members, neighbours merged: what a stripe operation reads and writes at once.

use drive::{DriveError, Durability};
use world::{Buf, BufMut, ReadBufs, WriteBufs, join_all};

use crate::slot::Slot;

/// A read of a member, for whoever knows `Key`.
struct Part<Key> {
    slot: usize,
    offset: u64,
    buffer: BufMut,
    key: Key,
}

/// Reads to be made at once.
pub(crate) struct ReadBatch<Key>(Vec<Part<Key>>);

/// What a batch of reads gave.
pub(crate) struct ReadResults<Key> {
    /// What could be read.
    pub(crate) read: Vec<(Key, BufMut)>,
    /// Which members failed, and how.
    pub(crate) failed: Vec<(usize, DriveError)>,
}

impl<Key> ReadBatch<Key> {
    pub(crate) fn new() -> Self {
        ReadBatch(Vec::new())
    }

    pub(crate) fn add(&mut self, slot: usize, offset: u64, buffer: BufMut, key: Key) {
        self.0.push(Part { slot, offset, buffer, key });
    }

    pub(crate) async fn run(mut self, slots: &[Slot]) -> ReadResults<Key> {
        let mut results =
            ReadResults { read: Vec::with_capacity(self.0.len()), failed: Vec::new() };
        self.0.sort_by_key(|part| (part.slot, part.offset));
        let mut requests: Vec<(usize, u64, ReadBufs, Vec<Key>)> = Vec::new();
        let mut end = 0;
        for part in self.0 {
            let bytes = part.buffer.len() as u64;
            match requests.last_mut() {
                Some((slot, _, buffers, keys)) if *slot == part.slot && end == part.offset => {
                    buffers.push(part.buffer);
                    keys.push(part.key);
                }
                _ => {
                    let buffers = ReadBufs::from_iter([part.buffer]);
                    requests.push((part.slot, part.offset, buffers, vec![part.key]));
                }
            }
            end = part.offset + bytes;
        }
        let reads = requests.into_iter().map(|(slot, offset, buffers, keys)| async move {
            (slot, keys, slots[slot].read(offset, buffers).await)
        });
        for (slot, keys, done) in join_all(reads).await {
            match done.result {
                Ok(()) => results.read.extend(keys.into_iter().zip(done.buffers)),
                Err(error) => results.failed.push((slot, error)),
            }
        }
        results
    }
}

/// Writes to be made at once.
#[derive(Default)]
pub(crate) struct WriteBatch(Vec<(usize, u64, Buf)>);

impl WriteBatch {
    pub(crate) fn add(&mut self, slot: usize, offset: u64, data: Buf) {
        self.0.push((slot, offset, data));
    }

    /// Writes everything; gives the members that failed, each once.
    pub(crate) async fn run(
        mut self,
        slots: &[Slot],
        durability: Durability,
    ) -> Vec<(usize, DriveError)> {
        self.0.sort_by_key(|&(slot, offset, _)| (slot, offset));
        let mut requests: Vec<(usize, u64, WriteBufs)> = Vec::new();
        let mut end = 0;
        for (slot, offset, data) in self.0 {
            let bytes = data.len() as u64;
            match requests.last_mut() {
                Some((last, _, buffers)) if *last == slot && end == offset => buffers.push(data),
                _ => requests.push((slot, offset, WriteBufs::from_iter([data]))),
            }
            end = offset + bytes;
        }
        let writes = requests.into_iter().map(|(slot, offset, buffers)| async move {
            (slot, slots[slot].write(offset, buffers, durability).await)
        });
        let mut failed: Vec<(usize, DriveError)> = Vec::new();
        for (slot, result) in join_all(writes).await {
            if let Err(error) = result
                && failed.iter().all(|(other, _)| *other != slot)
            {
                failed.push((slot, error));
            }
        }
        failed
    }
}
