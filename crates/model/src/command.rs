//! What a host asks a modelled drive for, and what comes back.

use crate::split::Split;

/// What the host asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "a range of bytes")]
pub enum Command {
    /// Bytes to the host.
    Read { offset: u64, bytes: u64 },
    /// Bytes from the host; `durable` ones are acknowledged when they survive a power cut.
    Write { offset: u64, bytes: u64, durable: bool },
    /// Everything acknowledged survives a power cut.
    Flush,
    /// The bytes are not needed any more.
    Trim { offset: u64, bytes: u64 },
}

/// A finished command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// As given by the owner.
    pub tag: u64,
    /// When it ended.
    pub at_ns: u64,
    /// It read what can't be read.
    pub failed: bool,
    /// Where its time went; its sum is the time since it was submitted.
    pub split: Split,
}

/// The timing of a drive: commands go in at non-decreasing times, completions come out in order.
pub trait Timing {
    /// A command comes from the host.
    fn submit(&mut self, now_ns: u64, tag: u64, command: Command);
    /// When something happens next, if nothing is submitted before.
    fn next_ns(&self) -> Option<u64>;
    /// Lets everything happen that is due.
    fn advance(&mut self, now_ns: u64);
    /// A command that is over.
    fn completion(&mut self) -> Option<Completion>;
}
