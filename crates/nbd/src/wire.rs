//! The words of the NBD protocol: magic numbers, typed codes and flags, and
//! the two fixed structs a client sends.
//!
//! Everything on the wire is big-endian. Names follow the protocol document
//! (`doc/proto.md` of the NBD project) without its prefixes. What this leaves
//! out: the experimental extensions (extended headers, resize), the oldstyle
//! handshake, and every decision; those are each end's own.

/// First eight bytes a server sends: `NBDMAGIC`.
pub const SERVER_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Second eight bytes of the server and the start of each option: `IHAVEOPT`.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Start of each reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Start of each request of the transmission phase.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Start of each simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Start of each chunk of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Handshake flag of the server: options get replies.
pub const SERVER_FIXED_NEWSTYLE: u16 = 1 << 0;
/// Handshake flag of the server: the 124 reserved bytes can be left out.
pub const SERVER_NO_ZEROES: u16 = 1 << 1;
/// Client flag: it understands replies to options.
pub const CLIENT_FIXED_NEWSTYLE: u32 = 1 << 0;
/// Client flag: it does not want the 124 reserved bytes.
pub const CLIENT_NO_ZEROES: u32 = 1 << 1;

/// Bytes of the client flags.
pub const CLIENT_FLAGS_BYTES: usize = 4;
/// Bytes of the reserved field after the answer to `EXPORT_NAME`.
pub const EXPORT_NAME_ZEROES: usize = 124;
/// Bytes a string may have at most (names, queries, messages).
pub const STRING_BYTES_MAX: usize = 4096;
/// Payload each server has to take from a client that did not ask for limits.
pub const DEFAULT_PAYLOAD_BYTES_MAX: u32 = 1 << 25;
/// Length of a read with the "do not fragment" flag that must be served.
pub const UNFRAGMENTED_BYTES_MIN: u32 = 65_536;

/// `base:allocation`: the extent takes no room on the drives.
pub const STATE_HOLE: u32 = 1 << 0;
/// `base:allocation`: the extent reads as zeroes.
pub const STATE_ZERO: u32 = 1 << 1;
/// Flag of a structured chunk: the last one of its reply.
pub const REPLY_FLAG_DONE: u16 = 1 << 0;

/// Declares an enum whose variants have a code on the wire, with both
/// conversions and the protocol's own word for logs.
macro_rules! wire_enum {
    ($(#[$meta:meta])* $name:ident: $repr:ty {
        $($(#[$variant_meta:meta])* $variant:ident = $code:expr, $word:literal;)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$variant_meta])* $variant,)+
        }

        impl $name {
            /// All variants, in the order of their codes.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The code on the wire.
            pub const fn code(self) -> $repr {
                match self {
                    $(Self::$variant => $code,)+
                }
            }

            /// The variant of a code, if the code is known.
            pub const fn from_code(code: $repr) -> Option<Self> {
                $(if code == $code {
                    return Some(Self::$variant);
                })+
                None
            }

            /// The protocol's word, without its prefix.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}

wire_enum! {
    /// Options a client may send while haggling.
    OptionCode: u32 {
        /// Choose an export and start; has no error reply.
        ExportName = 1, "EXPORT_NAME";
        /// End the session.
        Abort = 2, "ABORT";
        /// Name all exports.
        List = 3, "LIST";
        /// Switch to TLS.
        StartTls = 5, "STARTTLS";
        /// Ask about an export.
        Info = 6, "INFO";
        /// Ask about an export and start.
        Go = 7, "GO";
        /// Switch on structured replies.
        StructuredReply = 8, "STRUCTURED_REPLY";
        /// Name the metadata contexts of an export.
        ListMetaContext = 9, "LIST_META_CONTEXT";
        /// Select metadata contexts.
        SetMetaContext = 10, "SET_META_CONTEXT";
    }
}

/// Bit that marks an option reply as an error.
const OPTION_ERROR: u32 = 1 << 31;

wire_enum! {
    /// Types of a reply to an option.
    OptionReply: u32 {
        /// Done.
        Ack = 1, "ACK";
        /// One export of a list.
        Server = 2, "SERVER";
        /// One piece of information about an export.
        Info = 3, "INFO";
        /// One metadata context.
        MetaContext = 4, "META_CONTEXT";
        /// The server does not know the option.
        ErrorUnsupported = OPTION_ERROR + 1, "ERR_UNSUP";
        /// The server's owner forbids it.
        ErrorPolicy = OPTION_ERROR + 2, "ERR_POLICY";
        /// The option's data is malformed or out of place.
        ErrorInvalid = OPTION_ERROR + 3, "ERR_INVALID";
        /// Not on this platform.
        ErrorPlatform = OPTION_ERROR + 4, "ERR_PLATFORM";
        /// TLS first.
        ErrorTlsRequired = OPTION_ERROR + 5, "ERR_TLS_REQD";
        /// No such export.
        ErrorUnknown = OPTION_ERROR + 6, "ERR_UNKNOWN";
        /// The server is about to stop.
        ErrorShutdown = OPTION_ERROR + 7, "ERR_SHUTDOWN";
        /// The client has to ask for the block sizes.
        ErrorBlockSizeRequired = OPTION_ERROR + 8, "ERR_BLOCK_SIZE_REQD";
        /// The request or its reply is too large.
        ErrorTooBig = OPTION_ERROR + 9, "ERR_TOO_BIG";
    }
}

wire_enum! {
    /// Pieces of information that `INFO` and `GO` give.
    InfoType: u16 {
        /// Size and transmission flags; always given.
        Export = 0, "INFO_EXPORT";
        /// The canonical name.
        Name = 1, "INFO_NAME";
        /// A line for people.
        Description = 2, "INFO_DESCRIPTION";
        /// Minimum and preferred block, maximum payload.
        BlockSize = 3, "INFO_BLOCK_SIZE";
    }
}

wire_enum! {
    /// Commands of the transmission phase.
    CommandCode: u16 {
        /// Read bytes.
        Read = 0, "READ";
        /// Write the bytes that follow the header.
        Write = 1, "WRITE";
        /// End the session; has no reply.
        Disconnect = 2, "DISC";
        /// Make all answered writes durable.
        Flush = 3, "FLUSH";
        /// The bytes are not needed any more.
        Trim = 4, "TRIM";
        /// The bytes will be needed soon.
        Cache = 5, "CACHE";
        /// Write zeroes, without sending them.
        WriteZeroes = 6, "WRITE_ZEROES";
        /// Tell holes and data apart.
        BlockStatus = 7, "BLOCK_STATUS";
    }
}

wire_enum! {
    /// Types of a chunk in a structured reply.
    ChunkType: u16 {
        /// Only an end.
        None = 0, "NONE";
        /// An offset and data.
        OffsetData = 1, "OFFSET_DATA";
        /// An offset and the length of a run of zeroes.
        OffsetHole = 2, "OFFSET_HOLE";
        /// A context and its extents.
        BlockStatus = 5, "BLOCK_STATUS";
        /// The request failed.
        Error = 0x8001, "ERROR";
        /// The request failed at this offset.
        ErrorOffset = 0x8002, "ERROR_OFFSET";
    }
}

wire_enum! {
    /// Error values of a reply; no other value may be sent.
    ErrorCode: u32 {
        /// Not permitted: a write to a read-only export.
        NotPermitted = 1, "EPERM";
        /// The drives failed.
        InputOutput = 5, "EIO";
        /// No memory.
        OutOfMemory = 12, "ENOMEM";
        /// Out of range, unknown, or a flag in the wrong place.
        Invalid = 22, "EINVAL";
        /// A write past the end, or no room on the drives.
        NoSpace = 28, "ENOSPC";
        /// The length is too large for one reply.
        Overflow = 75, "EOVERFLOW";
        /// Zeroing would not be faster than writing.
        NotSupported = 95, "ENOTSUP";
        /// The server is about to stop.
        Shutdown = 108, "ESHUTDOWN";
    }
}

/// Declares a set of flags as a newtype over its wire word.
macro_rules! wire_flags {
    ($(#[$meta:meta])* $name:ident {
        $($(#[$flag_meta:meta])* $flag:ident = $bit:literal;)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name(u16);

        impl $name {
            /// No flag.
            pub const EMPTY: Self = Self(0);
            $($(#[$flag_meta])* pub const $flag: Self = Self(1 << $bit);)+

            /// The set of a wire word; bits without a name are kept.
            pub const fn from_bits(bits: u16) -> Self {
                Self(bits)
            }

            /// The wire word.
            pub const fn bits(self) -> u16 {
                self.0
            }

            /// Whether all flags of `other` are in this set.
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Both sets together.
            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// This set, and `other` too where `condition` holds.
            pub const fn with_if(self, condition: bool, other: Self) -> Self {
                if condition { self.with(other) } else { self }
            }

            /// This set without the flags of `other`.
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }
        }
    };
}

wire_flags! {
    /// What an export can do, told at the end of the handshake.
    TransmissionFlags {
        /// The word is valid; always set.
        HAS_FLAGS = 0;
        /// Writes are refused.
        READ_ONLY = 1;
        /// `FLUSH` is served.
        SEND_FLUSH = 2;
        /// The FUA flag is served.
        SEND_FUA = 3;
        /// The medium turns.
        ROTATIONAL = 4;
        /// `TRIM` is served.
        SEND_TRIM = 5;
        /// `WRITE_ZEROES` is served.
        SEND_WRITE_ZEROES = 6;
        /// The DF flag is served; only with structured replies.
        SEND_DF = 7;
        /// Several connections see one cache.
        CAN_MULTI_CONN = 8;
        /// `CACHE` is served.
        SEND_CACHE = 10;
        /// The fast-zero flag is served.
        SEND_FAST_ZERO = 11;
    }
}

wire_flags! {
    /// Flags of a request.
    CommandFlags {
        /// Answer only when the data is durable.
        FUA = 0;
        /// `WRITE_ZEROES`: leave no hole.
        NO_HOLE = 1;
        /// `READ`: one content chunk at most.
        DF = 2;
        /// `BLOCK_STATUS`: one extent only.
        REQ_ONE = 3;
        /// `WRITE_ZEROES`: fail at once if not faster than a write.
        FAST_ZERO = 4;
    }
}

/// Head of an option: 16 bytes.
///
/// | bytes | field |
/// | --- | --- |
/// | 0..8 | [`OPTION_MAGIC`] |
/// | 8..12 | option |
/// | 12..16 | length of the data that follows |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHeader {
    /// The option as sent; may be unknown.
    pub option: u32,
    /// Bytes of data after the header.
    pub length: u32,
}

impl OptionHeader {
    /// Bytes on the wire.
    pub const BYTES: usize = 16;

    /// Reads a header; `None` if the magic number is wrong.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let magic = fields.u64()?;
        let header = Self { option: fields.u32()?, length: fields.u32()? };
        (magic == OPTION_MAGIC).then_some(header)
    }

    /// The bytes a client sends.
    pub fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.option.to_be_bytes());
        bytes[12..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }
}

/// Head of a request: 28 bytes.
///
/// | bytes | field |
/// | --- | --- |
/// | 0..4 | [`REQUEST_MAGIC`] |
/// | 4..6 | command flags |
/// | 6..8 | command |
/// | 8..16 | cookie |
/// | 16..24 | offset |
/// | 24..28 | length |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// Flags as sent; bits without a name are kept.
    pub flags: CommandFlags,
    /// The command as sent; may be unknown.
    pub command: u16,
    /// The client's mark, given back in each reply (a "handle" in older texts).
    pub cookie: u64,
    /// First byte of the export.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
}

impl RequestHeader {
    /// Bytes on the wire.
    pub const BYTES: usize = 28;

    /// Reads a header; `None` if the magic number is wrong.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let magic = fields.u32()?;
        let header = Self {
            flags: CommandFlags::from_bits(fields.u16()?),
            command: fields.u16()?,
            cookie: fields.u64()?,
            offset: fields.u64()?,
            length: fields.u32()?,
        };
        (magic == REQUEST_MAGIC).then_some(header)
    }

    /// The bytes a client sends.
    pub fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.bits().to_be_bytes());
        bytes[6..8].copy_from_slice(&self.command.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }
}

/// Head of a simple reply: 16 bytes; the data of a read follows one without an error.
///
/// | bytes | field |
/// | --- | --- |
/// | 0..4 | [`SIMPLE_REPLY_MAGIC`] |
/// | 4..8 | error, 0 for none |
/// | 8..16 | cookie |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimpleReplyHeader {
    /// As sent; may be unknown.
    pub error: u32,
    /// The mark of the request.
    pub cookie: u64,
}

impl SimpleReplyHeader {
    /// Bytes on the wire.
    pub const BYTES: usize = 16;

    /// Reads a header; `None` if the magic number is wrong.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let magic = fields.u32()?;
        let header = Self { error: fields.u32()?, cookie: fields.u64()? };
        (magic == SIMPLE_REPLY_MAGIC).then_some(header)
    }

    /// The bytes a server sends.
    pub fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.error.to_be_bytes());
        bytes[8..].copy_from_slice(&self.cookie.to_be_bytes());
        bytes
    }
}

/// Reads big-endian fields off the front of a slice; `None` where it ends.
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// The next `length` bytes.
    pub fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (field, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(field)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    /// The next two bytes.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// The next four.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// The next eight.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_comes_back_as_itself() {
        for &option in OptionCode::ALL {
            assert_eq!(OptionCode::from_code(option.code()), Some(option));
        }
        for &reply in OptionReply::ALL {
            assert_eq!(OptionReply::from_code(reply.code()), Some(reply));
        }
        for &command in CommandCode::ALL {
            assert_eq!(CommandCode::from_code(command.code()), Some(command));
        }
        for &error in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_code(error.code()), Some(error));
        }
        assert_eq!(OptionCode::from_code(4), None, "the withdrawn PEEK_EXPORT");
        assert_eq!(CommandCode::from_code(8), None, "the experimental RESIZE");
        assert_eq!(OptionReply::ErrorTooBig.code(), 0x8000_0009);
    }

    #[test]
    fn a_request_header_is_28_bytes_big_endian() {
        let bytes = [
            0x25, 0x60, 0x95, 0x13, 0x00, 0x01, 0x00, 0x06, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0,
            0, 0x10, 0, 0, 0, 2, 0,
        ];
        let header = RequestHeader {
            flags: CommandFlags::FUA,
            command: 6,
            cookie: 0x0102_0304_0506_0708,
            offset: 4096,
            length: 512,
        };
        assert_eq!(RequestHeader::decode(&bytes), Some(header));
        assert_eq!(header.encode(), bytes);
        let mut wrong = bytes;
        wrong[3] = 0x14;
        assert_eq!(RequestHeader::decode(&wrong), None);
    }

    #[test]
    fn an_option_header_is_16_bytes_big_endian() {
        let bytes = *b"IHAVEOPT\0\0\0\x07\0\0\x01\0";
        let header = OptionHeader { option: 7, length: 256 };
        assert_eq!(OptionHeader::decode(&bytes), Some(header));
        assert_eq!(header.encode(), bytes);
        assert_eq!(OptionHeader::decode(b"IHAVEOPX\0\0\0\x07\0\0\x01\0"), None);
    }

    #[test]
    fn fields_end_where_the_slice_ends() {
        let mut fields = Fields(&[0, 1, 2]);
        assert_eq!(fields.u16(), Some(1));
        assert_eq!(fields.u16(), None);
        assert_eq!(fields.bytes(1), Some(&[2][..]));
        assert_eq!(fields.bytes(1), None);
    }
}
