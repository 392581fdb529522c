//! Requests: finding them in a buffer, and judging them.
//!
//! [`decode`] looks at the front of a receive buffer and copies nothing but
//! the 28 bytes of a header, so that the shell can receive the payload of a
//! write straight into the buffer it writes from. [`judge`] is a pure function
//! of a header and the negotiated [`Terms`]: serve it, or answer this error.
//! Whatever a client asks, as long as it stays in step, it gets a reply and
//! the connection stays usable.
//!
//! Alignment is never refused: the shell pads. Left out: limits on requests in
//! flight, which are the shell's.

use super::closing::CloseReason;
use super::export::{Export, PAYLOAD_BYTES_MAX};
use super::wire::{
    CommandCode, CommandFlags, DEFAULT_PAYLOAD_BYTES_MAX, ErrorCode, RequestHeader,
    TransmissionFlags, UNFRAGMENTED_BYTES_MIN,
};

/// What one connection negotiated; fixed for its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Index of the export in its [`Exports`](super::Exports).
    pub export: usize,
    /// Size in bytes as the client was told.
    pub size_bytes: u64,
    /// Features as the client was told.
    pub flags: TransmissionFlags,
    /// Reads are answered in chunks.
    pub structured_replies: bool,
    /// `BLOCK_STATUS` may be asked for `base:allocation`.
    pub base_allocation: bool,
    /// Longest read or write in bytes that is served.
    pub payload_bytes_max: u32,
}

impl Terms {
    /// The terms for an export. A client that asked for block sizes obeys
    /// `block_max`; another one may rely on the protocol's default.
    pub fn new(
        index: usize,
        export: &Export,
        structured_replies: bool,
        base_allocation: bool,
        block_size_asked: bool,
    ) -> Self {
        let floor =
            if block_size_asked { UNFRAGMENTED_BYTES_MIN } else { DEFAULT_PAYLOAD_BYTES_MAX };
        Self {
            export: index,
            size_bytes: export.size_bytes,
            flags: export.transmission_flags(structured_replies),
            structured_replies,
            base_allocation,
            payload_bytes_max: export.block_max.max(floor),
        }
    }
}

/// What is at the front of a receive buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// This many bytes are missing to the end of the header.
    NeedMore(usize),
    /// A whole header of [`RequestHeader::BYTES`].
    Request {
        /// The header.
        header: RequestHeader,
        /// Bytes of payload that follow it.
        payload_bytes: u32,
    },
    /// The client is out of step, or sends more than is bearable.
    Fatal(CloseReason),
}

/// Finds the request at the front of `input`.
pub fn decode(input: &[u8]) -> Decoded {
    let Some(bytes) = input.first_chunk() else {
        return Decoded::NeedMore(RequestHeader::BYTES - input.len());
    };
    let Some(header) = RequestHeader::decode(bytes) else {
        return Decoded::Fatal(CloseReason::NotARequest);
    };
    let write = header.command == CommandCode::Write.code();
    let payload_bytes = if write { header.length } else { 0 };
    if payload_bytes > PAYLOAD_BYTES_MAX {
        return Decoded::Fatal(CloseReason::PayloadTooLong { length: payload_bytes });
    }
    Decoded::Request { header, payload_bytes }
}

/// A request that is in order, for the shell to carry out.
///
/// Ranges lie within the export and are not empty; they need not be aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read; at most [`Terms::payload_bytes_max`].
    Read {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u32,
    },
    /// Write the `length` bytes that follow the header; at most
    /// [`Terms::payload_bytes_max`].
    Write {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u32,
        /// Answer only when durable.
        fua: bool,
    },
    /// Make durable what was answered.
    Flush,
    /// Discard, as far as the drives can.
    Trim {
        /// First byte.
        offset: u64,
        /// Bytes; may be far more than a payload.
        length: u32,
        /// Answer only when durable.
        fua: bool,
    },
    /// Will be read soon; a hint.
    Cache {
        /// First byte.
        offset: u64,
        /// Bytes; may be far more than a payload.
        length: u32,
    },
    /// Make the range read as zeroes.
    WriteZeroes {
        /// First byte.
        offset: u64,
        /// Bytes; may be far more than a payload.
        length: u32,
        /// Answer only when durable.
        fua: bool,
        /// Leave the range allocated.
        no_hole: bool,
        /// Answer [`ErrorCode::NotSupported`] at once, nothing changed, unless
        /// this is faster than writing.
        fast_only: bool,
    },
    /// Tell holes and data apart.
    BlockStatus {
        /// First byte.
        offset: u64,
        /// Bytes; may be far more than a payload.
        length: u32,
        /// One extent is wanted.
        one_extent: bool,
    },
}

/// What to do with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Carry it out.
    Serve(Command),
    /// It is in order and its range is empty: answer success.
    Nothing,
    /// Answer this error.
    Refuse(Refusal),
    /// The client says goodbye; there is no reply.
    Disconnect,
}

/// Why a request is answered by an error before it reaches a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The command is unknown.
    UnknownCommand,
    /// The command was not offered for this export.
    NotOffered,
    /// A flag is unknown, not offered, or not for this command.
    Flag,
    /// The export is read-only.
    ReadOnly,
    /// The range ends past the export's end.
    PastEnd,
    /// The range of a write ends past the export's end.
    WritePastEnd,
    /// More than one reply can carry.
    ReadTooLong,
    /// More than was negotiated.
    PayloadTooLong,
    /// A flush has no range.
    FlushWithRange,
    /// An empty range has no status.
    EmptyStatus,
    /// The server is about to stop.
    Shutdown,
}

impl Refusal {
    /// The error value to answer.
    pub fn code(self) -> ErrorCode {
        match self {
            Self::UnknownCommand
            | Self::NotOffered
            | Self::Flag
            | Self::PastEnd
            | Self::PayloadTooLong
            | Self::FlushWithRange
            | Self::EmptyStatus => ErrorCode::Invalid,
            Self::ReadOnly => ErrorCode::NotPermitted,
            Self::WritePastEnd => ErrorCode::NoSpace,
            Self::ReadTooLong => ErrorCode::Overflow,
            Self::Shutdown => ErrorCode::Shutdown,
        }
    }

    /// Words for the client's log, at most
    /// [`MESSAGE_BYTES_MAX`](super::reply::MESSAGE_BYTES_MAX).
    pub fn message(self) -> &'static str {
        match self {
            Self::UnknownCommand => "unknown command",
            Self::NotOffered => "the export does not offer this command",
            Self::Flag => "unknown flag, or not for this command or export",
            Self::ReadOnly => "the export is read-only",
            Self::PastEnd => "the range ends past the end of the export",
            Self::WritePastEnd => "the write ends past the end of the export",
            Self::ReadTooLong => "the read is longer than the maximum payload",
            Self::PayloadTooLong => "the request is longer than the maximum payload",
            Self::FlushWithRange => "a flush has neither offset nor length",
            Self::EmptyStatus => "an empty range has no block status",
            Self::Shutdown => "the server is about to stop",
        }
    }
}

/// Judges a request. Checked in this order: is the command known, may it
/// write, was it offered, are its flags in place, is its range within the
/// export, is its length bearable, is there anything to do.
pub fn judge(header: &RequestHeader, terms: &Terms) -> Verdict {
    let Some(code) = CommandCode::from_code(header.command) else {
        return Verdict::Refuse(Refusal::UnknownCommand);
    };
    if let Err(refusal) = check(code, header, terms) {
        return Verdict::Refuse(refusal);
    }
    let &RequestHeader { flags, offset, length, .. } = header;
    let fua = flags.contains(CommandFlags::FUA);
    Verdict::Serve(match code {
        CommandCode::Disconnect => return Verdict::Disconnect,
        CommandCode::Flush => Command::Flush,
        _ if length == 0 => return Verdict::Nothing,
        CommandCode::Read => Command::Read { offset, length },
        CommandCode::Write => Command::Write { offset, length, fua },
        CommandCode::Trim => Command::Trim { offset, length, fua },
        CommandCode::Cache => Command::Cache { offset, length },
        CommandCode::WriteZeroes => Command::WriteZeroes {
            offset,
            length,
            fua,
            no_hole: flags.contains(CommandFlags::NO_HOLE),
            fast_only: flags.contains(CommandFlags::FAST_ZERO),
        },
        CommandCode::BlockStatus => Command::BlockStatus {
            offset,
            length,
            one_extent: flags.contains(CommandFlags::REQ_ONE),
        },
    })
}

fn check(code: CommandCode, header: &RequestHeader, terms: &Terms) -> Result<(), Refusal> {
    type Code = CommandCode;
    if code == Code::Disconnect {
        // There is no reply that could refuse it.
        return Ok(());
    }
    let writes = matches!(code, Code::Write | Code::Trim | Code::WriteZeroes);
    if writes && terms.flags.contains(TransmissionFlags::READ_ONLY) {
        return Err(Refusal::ReadOnly);
    }
    if !is_offered(code, terms) {
        return Err(Refusal::NotOffered);
    }
    if header.flags.without(allowed_flags(code, terms)) != CommandFlags::EMPTY {
        return Err(Refusal::Flag);
    }
    if code == Code::Flush {
        let empty = header.offset == 0 && header.length == 0;
        return if empty { Ok(()) } else { Err(Refusal::FlushWithRange) };
    }
    let end = header.offset.checked_add(u64::from(header.length));
    if end.is_none_or(|end| end > terms.size_bytes) {
        let room = matches!(code, Code::Write | Code::WriteZeroes);
        return Err(if room { Refusal::WritePastEnd } else { Refusal::PastEnd });
    }
    let too_long = header.length > terms.payload_bytes_max;
    match code {
        Code::Read if too_long && terms.structured_replies => Err(Refusal::ReadTooLong),
        Code::Read | Code::Write if too_long => Err(Refusal::PayloadTooLong),
        Code::BlockStatus if header.length == 0 => Err(Refusal::EmptyStatus),
        _ => Ok(()),
    }
}

fn is_offered(code: CommandCode, terms: &Terms) -> bool {
    let needed = match code {
        CommandCode::Read | CommandCode::Write | CommandCode::Disconnect => return true,
        CommandCode::BlockStatus => return terms.base_allocation,
        CommandCode::Flush => TransmissionFlags::SEND_FLUSH,
        CommandCode::Trim => TransmissionFlags::SEND_TRIM,
        CommandCode::Cache => TransmissionFlags::SEND_CACHE,
        CommandCode::WriteZeroes => TransmissionFlags::SEND_WRITE_ZEROES,
    };
    terms.flags.contains(needed)
}

/// FUA goes with each command once it is offered, also where it means nothing.
fn allowed_flags(code: CommandCode, terms: &Terms) -> CommandFlags {
    let offered = |flag| terms.flags.contains(flag);
    let fua = CommandFlags::EMPTY.with_if(offered(TransmissionFlags::SEND_FUA), CommandFlags::FUA);
    match code {
        CommandCode::Read => fua.with_if(offered(TransmissionFlags::SEND_DF), CommandFlags::DF),
        CommandCode::WriteZeroes => fua
            .with(CommandFlags::NO_HOLE)
            .with_if(offered(TransmissionFlags::SEND_FAST_ZERO), CommandFlags::FAST_ZERO),
        CommandCode::BlockStatus => fua.with(CommandFlags::REQ_ONE),
        CommandCode::Write
        | CommandCode::Disconnect
        | CommandCode::Flush
        | CommandCode::Trim
        | CommandCode::Cache => fua,
    }
}
