//! Requests to members, neighbours merged: what a stripe operation reads and writes at once.

use std::cell::Cell;

use drive::{DriveError, Durability, ErrorKind, Operation};
use smallvec::SmallVec;
use world::{Buf, BufMut, ReadBufs, WriteBufs, join_all, total_bytes};

use crate::bad_blocks;
use crate::core::Core;

/// A read of a member, for whoever knows `Key`.
struct Part<Key> {
    slot: usize,
    offset: u64,
    buffer: BufMut,
    key: Key,
}

/// Reads to be made at once.
pub(crate) struct ReadBatch<Key> {
    parts: Vec<Part<Key>>,
    /// Nobody else can be asked: members that are late are waited for.
    patient: bool,
}

/// What a batch of reads gave.
pub(crate) struct ReadResults<Key> {
    /// What could be read.
    pub(crate) read: Vec<(Key, BufMut)>,
    /// What could not, with the member and its error.
    pub(crate) failed: Vec<(Key, usize, DriveError)>,
}

/// Parts that follow each other on a member, read as one.
struct Request<Key> {
    slot: usize,
    offset: u64,
    buffers: ReadBufs,
    keys: Vec<Key>,
}

impl<Key> ReadBatch<Key> {
    pub(crate) fn new() -> Self {
        ReadBatch { parts: Vec::new(), patient: false }
    }

    /// Waits for late members, if `patient`.
    pub(crate) fn patient(self, patient: bool) -> Self {
        ReadBatch { patient, ..self }
    }

    pub(crate) fn add(&mut self, slot: usize, offset: u64, buffer: BufMut, key: Key) {
        self.parts.push(Part { slot, offset, buffer, key });
    }

    pub(crate) async fn run(mut self, core: &Core) -> ReadResults<Key> {
        let patient = self.patient;
        self.parts.sort_by_key(|part| (part.slot, part.offset));
        let mut requests: Vec<Request<Key>> = Vec::new();
        let mut end = 0;
        for Part { slot, offset, buffer, key } in self.parts {
            let bytes = buffer.len() as u64;
            match requests.last_mut() {
                Some(last) if last.slot == slot && end == offset => {
                    last.buffers.push(buffer);
                    last.keys.push(key);
                }
                _ => requests.push(Request::one(slot, offset, buffer, key)),
            }
            end = offset + bytes;
        }
        let mut results = ReadResults { read: Vec::new(), failed: Vec::new() };
        let mut apart = Vec::new();
        for (request, result) in read_all(requests, core, patient).await {
            match result {
                // One bad block must not take its neighbours along.
                Err(error) if request.keys.len() > 1 && error.kind == ErrorKind::Media => {
                    apart.extend(request.apart())
                }
                result => results.note(request, result),
            }
        }
        for (request, result) in read_all(apart, core, patient).await {
            results.note(request, result);
        }
        results
    }
}

impl<Key> Request<Key> {
    fn one(slot: usize, offset: u64, buffer: BufMut, key: Key) -> Self {
        Request { slot, offset, buffers: ReadBufs::from_iter([buffer]), keys: vec![key] }
    }

    fn apart(self) -> Vec<Request<Key>> {
        let mut offset = self.offset;
        let parts = self.keys.into_iter().zip(self.buffers);
        let requests = parts.map(|(key, buffer)| {
            let start = offset;
            offset += buffer.len() as u64;
            Request::one(self.slot, start, buffer, key)
        });
        requests.collect()
    }
}

impl<Key> ReadResults<Key> {
    fn note(&mut self, request: Request<Key>, result: Result<(), DriveError>) {
        match result {
            Ok(()) => self.read.extend(request.keys.into_iter().zip(request.buffers)),
            Err(error) => {
                let failed = request.keys.into_iter().map(|key| (key, request.slot, error.clone()));
                self.failed.extend(failed);
            }
        }
    }
}

async fn read_all<Key>(
    requests: Vec<Request<Key>>,
    core: &Core,
    patient: bool,
) -> Vec<(Request<Key>, Result<(), DriveError>)> {
    let last = Cell::new(None);
    let answered = &last;
    let reads = requests.into_iter().map(|mut request| async move {
        let buffers = std::mem::take(&mut request.buffers);
        let done = core.read(request.slot, request.offset, buffers, patient).await;
        answered.set(Some(request.slot));
        request.buffers = done.buffers;
        (request, done.result)
    });
    let results = join_all(reads).await.into_iter().collect();
    if let Some(slot) = last.get() {
        core.slots[slot].note_answered_last();
    }
    results
}

/// Writes to be made at once.
#[derive(Default)]
pub(crate) struct WriteBatch(Vec<(usize, u64, Buf)>);

impl WriteBatch {
    pub(crate) fn add(&mut self, slot: usize, offset: u64, data: Buf) {
        self.0.push((slot, offset, data));
    }

    /// Writes everything; members that fail are failed, and what could not be relied on before can
    /// be where it was written. The caller holds the locks of what is written.
    ///
    /// # Errors
    /// As [`Core::fail_members`].
    pub(crate) async fn run(
        mut self,
        core: &Core,
        durability: Durability,
    ) -> Result<(), DriveError> {
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
        let range =
            |(slot, offset, data): &(usize, u64, WriteBufs)| (*slot, *offset, total_bytes(data));
        let ranges: SmallVec<[_; 8]> = requests.iter().map(range).collect();
        let writes = requests.into_iter().map(|(slot, offset, buffers)| {
            (slot, core.slots[slot].write(offset, buffers, durability))
        });
        let failed = core.settle(Operation::Write, writes.collect()).await;
        core.fail_members(failed).await?;
        bad_blocks::written(core, &ranges).await;
        Ok(())
    }
}
