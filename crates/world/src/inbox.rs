//! The receive buffer of a connection.

use std::io;

use crate::buffer::{BufMut, Pool};
use crate::ring::{FixedFile, Ring};

/// Room for some 15 messages with 4 KiB, or thousands without payload: little enough to stay in
/// the processor's cache. Whoever reads leaves less than a header here.
const INBOX_BYTES: usize = 64 << 10;

/// Received after a long payload: more of those would only be copied out of the inbox again.
const SHORT_BYTES: usize = 4096;

/// Bytes that were received and not consumed.
pub struct Inbox {
    /// `None` while the kernel has it.
    buffer: Option<BufMut>,
    start: usize,
    end: usize,
    short: bool,
}

impl Inbox {
    /// An empty one.
    #[must_use]
    pub fn new(pool: &Pool) -> Self {
        Inbox { buffer: Some(pool.take(INBOX_BYTES)), start: 0, end: 0, short: false }
    }

    /// What is there.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], |buffer| &buffer[self.start..self.end])
    }

    /// Forgets the first bytes.
    ///
    /// # Panics
    /// If there are not as many.
    pub fn consume(&mut self, bytes: usize) {
        assert!(bytes <= self.end - self.start, "only what is there is consumed");
        self.start += bytes;
    }

    /// Moves as much as there is to `target`, and says how much that was.
    pub fn move_to(&mut self, target: &mut [u8]) -> usize {
        let bytes = target.len().min(self.bytes().len());
        target[..bytes].copy_from_slice(&self.bytes()[..bytes]);
        self.consume(bytes);
        bytes
    }

    /// Whether the next receive should bring little, because payloads go elsewhere.
    pub fn keep_short(&mut self, short: bool) {
        self.short = short;
    }

    /// Receives more behind what is there; 0 is the end.
    ///
    /// # Errors
    /// The kernel's, as from recv(2).
    ///
    /// # Panics
    /// If it is full: a header is shorter than that.
    pub async fn fill(&mut self, ring: &Ring, socket: &FixedFile) -> io::Result<usize> {
        let mut buffer = self.buffer.take().expect("one receive at a time");
        buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let mut free = buffer.split_off(self.end);
        assert!(!free.is_empty(), "a part of a header leaves room");
        let kept = if self.short { SHORT_BYTES.min(free.len()) } else { free.len() };
        let rest = free.split_off(kept);
        let (free, result) = ring.receive(socket, free, false).await;
        for part in [free, rest] {
            buffer.unsplit(part).expect("they were split off here");
        }
        self.buffer = Some(buffer);
        let bytes = result?;
        self.end += bytes;
        Ok(bytes)
    }
}
