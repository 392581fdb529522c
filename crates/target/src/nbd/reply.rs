//! Replies: heads in fixed arrays, and the ticket that is answered once.
//!
//! A reply is a [`Head`] and, for reads and block status, data that follows
//! it. The shell sends both with one vectored write; nothing is copied.
//!
//! Each request in flight has one [`Ticket`]. The last (mostly the only) head
//! of its reply takes the ticket away, so that a request can't be answered
//! twice or with the mark of another one, and the compiler points at a ticket
//! that is dropped on the floor.
//!
//! Which form a reply has: reads and errors are structured once the client
//! negotiated that; success without data is always the shorter simple reply,
//! which the protocol allows.

use super::transmission::Refusal;
use super::wire::{
    ChunkType, CommandCode, CommandFlags, ErrorCode, REPLY_FLAG_DONE, RequestHeader,
    STRUCTURED_REPLY_MAGIC, SimpleReplyHeader,
};

/// Bytes a message for people may have; longer ones are cut. The words of this
/// crate are shorter; the bound keeps a head small.
pub const MESSAGE_BYTES_MAX: usize = 64;

/// Bytes of a simple reply's head.
pub const SIMPLE_HEAD_BYTES: usize = SimpleReplyHeader::BYTES;
/// Bytes of a chunk's head, before its payload.
pub const CHUNK_HEAD_BYTES: usize = 20;

/// The longest head: an error chunk with its offset and message.
const HEAD_BYTES_MAX: usize = CHUNK_HEAD_BYTES + 4 + 2 + MESSAGE_BYTES_MAX + 8;

/// The bytes of a reply before its data.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Head {
    bytes: [u8; HEAD_BYTES_MAX],
    length: u8,
}

impl Head {
    fn empty() -> Self {
        Self { bytes: [0; HEAD_BYTES_MAX], length: 0 }
    }

    fn simple(cookie: u64, error: u32) -> Self {
        Self::empty().put(&SimpleReplyHeader { error, cookie }.encode())
    }

    /// | bytes | field |
    /// | --- | --- |
    /// | 0..4 | [`STRUCTURED_REPLY_MAGIC`] |
    /// | 4..6 | flags |
    /// | 6..8 | type |
    /// | 8..16 | cookie |
    /// | 16..20 | length of the payload |
    fn chunk(cookie: u64, last: bool, kind: ChunkType, payload_bytes: u32) -> Self {
        let flags = if last { REPLY_FLAG_DONE } else { 0 };
        Self::empty()
            .put(&STRUCTURED_REPLY_MAGIC.to_be_bytes())
            .put(&flags.to_be_bytes())
            .put(&kind.code().to_be_bytes())
            .put(&cookie.to_be_bytes())
            .put(&payload_bytes.to_be_bytes())
    }

    fn put(mut self, field: &[u8]) -> Self {
        let start = usize::from(self.length);
        self.bytes[start..start + field.len()].copy_from_slice(field);
        self.length += field.len() as u8;
        self
    }

    /// The bytes to send.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl std::fmt::Debug for Head {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Head({:02x?})", self.as_bytes())
    }
}

/// The right and the duty to answer one request.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "each request gets a reply"]
pub struct Ticket {
    cookie: u64,
    offset: u64,
    length: u32,
    read: bool,
    structured: bool,
    whole: bool,
}

impl Ticket {
    /// The ticket of a request.
    pub(super) fn new(header: &RequestHeader, structured: bool) -> Self {
        Self {
            cookie: header.cookie,
            offset: header.offset,
            length: header.length,
            read: header.command == CommandCode::Read.code(),
            structured,
            whole: header.flags.contains(CommandFlags::DF),
        }
    }

    /// The client's mark, for logs and traces.
    pub fn cookie(&self) -> u64 {
        self.cookie
    }

    /// Whether a read may be answered by several chunks: structured replies
    /// are negotiated and the client did not forbid it.
    pub fn may_split(&self) -> bool {
        self.read && self.structured && !self.whole
    }

    /// Whether [`Ticket::hole`] may answer a read.
    pub fn may_tell_hole(&self) -> bool {
        self.read && self.structured
    }

    /// Success without data: for all commands but `READ` and `BLOCK_STATUS`,
    /// and for a read of no bytes.
    pub fn done(self) -> Head {
        assert!(!self.read || self.length == 0, "a read is answered with data");
        if self.read && self.structured {
            Head::chunk(self.cookie, true, ChunkType::None, 0)
        } else {
            Head::simple(self.cookie, 0)
        }
    }

    /// Success of a read: all bytes asked for follow the head.
    pub fn data(self) -> Head {
        assert!(self.read, "only a read is answered with data");
        match (self.structured, self.length) {
            (false, _) => Head::simple(self.cookie, 0),
            (true, 0) => self.done(),
            (true, length) => self.data_head(self.offset, length, true),
        }
    }

    /// Success of a read: all bytes asked for are zeroes, and nothing follows.
    pub fn hole(self) -> Head {
        assert!(self.may_tell_hole() && self.length > 0, "a hole needs structured replies");
        self.hole_head(self.offset, self.length, true)
    }

    /// A part of a read: `length` bytes from `offset` of the export follow.
    pub fn data_part(&self, offset: u64, length: u32) -> Head {
        self.assert_part(offset, length);
        self.data_head(offset, length, false)
    }

    /// A part of a read: `length` zeroes from `offset` of the export; nothing
    /// follows.
    pub fn hole_part(&self, offset: u64, length: u32) -> Head {
        self.assert_part(offset, length);
        self.hole_head(offset, length, false)
    }

    /// The end of a read whose parts have all been sent.
    pub fn parts_end(self) -> Head {
        assert!(self.may_split(), "parts are for reads that may be split");
        Head::chunk(self.cookie, true, ChunkType::None, 0)
    }

    /// Success of a block status: `extents` encoded extents follow, 8 bytes
    /// each (see [`BlockStatus`](super::BlockStatus)).
    pub fn status(self, context_id: u32, extents: usize) -> Head {
        assert!(self.structured && extents > 0, "a status has extents in a structured reply");
        let payload_bytes = 4 + 8 * extents as u32;
        Head::chunk(self.cookie, true, ChunkType::BlockStatus, payload_bytes)
            .put(&context_id.to_be_bytes())
    }

    /// Failure, with words for people (cut to [`MESSAGE_BYTES_MAX`]).
    pub fn fail(self, error: ErrorCode, message: &str) -> Head {
        if !self.structured {
            return Head::simple(self.cookie, error.code());
        }
        let message = cut(message);
        let payload_bytes = 4 + 2 + message.len() as u32;
        Head::chunk(self.cookie, true, ChunkType::Error, payload_bytes)
            .put(&error.code().to_be_bytes())
            .put(&(message.len() as u16).to_be_bytes())
            .put(message.as_bytes())
    }

    /// Failure at one byte of the request's range.
    pub fn fail_at(self, error: ErrorCode, message: &str, offset: u64) -> Head {
        if !self.structured {
            return Head::simple(self.cookie, error.code());
        }
        let inside = offset.checked_sub(self.offset).is_some_and(|at| at < u64::from(self.length));
        assert!(inside, "the failing offset lies within the request");
        let message = cut(message);
        let payload_bytes = 4 + 2 + message.len() as u32 + 8;
        Head::chunk(self.cookie, true, ChunkType::ErrorOffset, payload_bytes)
            .put(&error.code().to_be_bytes())
            .put(&(message.len() as u16).to_be_bytes())
            .put(message.as_bytes())
            .put(&offset.to_be_bytes())
    }

    /// Refusal before any drive was asked.
    pub fn refuse(self, refusal: Refusal) -> Head {
        self.fail(refusal.code(), refusal.message())
    }

    fn data_head(&self, offset: u64, length: u32, last: bool) -> Head {
        // A read is at most one payload long, so this can't overflow.
        Head::chunk(self.cookie, last, ChunkType::OffsetData, 8 + length).put(&offset.to_be_bytes())
    }

    fn hole_head(&self, offset: u64, length: u32, last: bool) -> Head {
        Head::chunk(self.cookie, last, ChunkType::OffsetHole, 12)
            .put(&offset.to_be_bytes())
            .put(&length.to_be_bytes())
    }

    fn assert_part(&self, offset: u64, length: u32) {
        assert!(self.may_split(), "parts are for reads that may be split");
        let start = offset.checked_sub(self.offset);
        let end = start.map(|start| start + u64::from(length));
        let inside = length > 0 && end.is_some_and(|end| end <= u64::from(self.length));
        assert!(inside, "a part lies within the request");
    }
}

/// The longest front of a message that fits and ends at a character.
fn cut(message: &str) -> &str {
    &message[..message.floor_char_boundary(MESSAGE_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(code: CommandCode, flags: CommandFlags, structured: bool) -> Ticket {
        let command = code.code();
        let header = RequestHeader {
            flags,
            command,
            cookie: 0x1122_3344_5566_7788,
            offset: 0x1000,
            length: 0x200,
        };
        Ticket::new(&header, structured)
    }

    fn read(structured: bool) -> Ticket {
        ticket(CommandCode::Read, CommandFlags::EMPTY, structured)
    }

    const COOKIE: &[u8] = b"\x11\x22\x33\x44\x55\x66\x77\x88";

    #[test]
    fn simple_replies_are_16_bytes() {
        let write = ticket(CommandCode::Write, CommandFlags::EMPTY, true);
        assert_eq!(write.done().as_bytes(), [b"\x67\x44\x66\x98\0\0\0\0", COOKIE].concat());
        assert_eq!(read(false).data().as_bytes(), [b"\x67\x44\x66\x98\0\0\0\0", COOKIE].concat());
        let error = [b"\x67\x44\x66\x98\0\0\0\x05", COOKIE].concat();
        assert_eq!(read(false).fail(ErrorCode::InputOutput, "lost").as_bytes(), error);
        let at = read(false).fail_at(ErrorCode::InputOutput, "lost", 0);
        assert_eq!(at.as_bytes(), error);
    }

    #[test]
    fn a_structured_read_is_one_chunk_or_parts_and_an_end() {
        let magic = b"\x66\x8e\x33\xef";
        let whole = [magic, &b"\0\x01\0\x01"[..], COOKIE, b"\0\0\x02\x08", b"\0\0\0\0\0\0\x10\0"];
        assert_eq!(read(true).data().as_bytes(), whole.concat());
        let hole =
            [magic, &b"\0\x01\0\x02"[..], COOKIE, b"\0\0\0\x0c", b"\0\0\0\0\0\0\x10\0\0\0\x02\0"];
        assert_eq!(read(true).hole().as_bytes(), hole.concat());

        let ticket = read(true);
        let part = [magic, &b"\0\0\0\x01"[..], COOKIE, b"\0\0\x01\x08", b"\0\0\0\0\0\0\x10\0"];
        assert_eq!(ticket.data_part(0x1000, 0x100).as_bytes(), part.concat());
        let rest =
            [magic, &b"\0\0\0\x02"[..], COOKIE, b"\0\0\0\x0c", b"\0\0\0\0\0\0\x11\0\0\0\x01\0"];
        assert_eq!(ticket.hole_part(0x1100, 0x100).as_bytes(), rest.concat());
        let end = [magic, &b"\0\x01\0\0"[..], COOKIE, b"\0\0\0\0"];
        assert_eq!(ticket.parts_end().as_bytes(), end.concat());
    }

    #[test]
    fn errors_carry_their_words_and_offset() {
        let magic = b"\x66\x8e\x33\xef";
        let error = [magic, &b"\0\x01\x80\x01"[..], COOKIE, b"\0\0\0\x0a", b"\0\0\0\x05\0\x04lost"];
        assert_eq!(read(true).fail(ErrorCode::InputOutput, "lost").as_bytes(), error.concat());
        let at = [
            magic,
            &b"\0\x01\x80\x02"[..],
            COOKIE,
            b"\0\0\0\x12",
            b"\0\0\0\x05\0\x04lost",
            b"\0\0\0\0\0\0\x11\xff",
        ];
        let head = read(true).fail_at(ErrorCode::InputOutput, "lost", 0x11ff);
        assert_eq!(head.as_bytes(), at.concat());
    }

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        let head = read(true).fail_at(ErrorCode::InputOutput, &"ä".repeat(99), 0x1000);
        assert_eq!(head.as_bytes().len(), HEAD_BYTES_MAX);
        let head = read(true).fail(ErrorCode::InputOutput, &format!("x{}", "ä".repeat(99)));
        assert_eq!(head.as_bytes().len(), CHUNK_HEAD_BYTES + 6 + 63);
    }

    #[test]
    fn a_status_names_its_context_and_length() {
        let head = ticket(CommandCode::BlockStatus, CommandFlags::EMPTY, true).status(1, 2);
        let bytes =
            [b"\x66\x8e\x33\xef", &b"\0\x01\0\x05"[..], COOKIE, b"\0\0\0\x14", b"\0\0\0\x01"];
        assert_eq!(head.as_bytes(), bytes.concat());
    }

    #[test]
    fn who_may_not_split_is_told() {
        let whole = ticket(CommandCode::Read, CommandFlags::DF, true);
        assert!(!whole.may_split() && whole.may_tell_hole());
        assert!(read(true).may_split());
        assert!(!read(false).may_split() && !read(false).may_tell_hole());
    }

    #[test]
    fn an_empty_read_is_answered_without_a_content_chunk() {
        let mut empty = read(true);
        empty.length = 0;
        let end = [b"\x66\x8e\x33\xef\0\x01\0\0", COOKIE, b"\0\0\0\0"].concat();
        assert_eq!(empty.data().as_bytes(), end);
    }

    #[test]
    #[should_panic(expected = "a part lies within the request")]
    fn a_part_outside_of_its_request_is_a_broken_invariant() {
        let ticket = read(true);
        let _ = ticket.data_part(0x1001, 0x200);
    }
}
