//! Words for the end of a session, for the log.
//!
//! A session ends in one of two ways. Either the protocol ends it, and
//! [`CloseReason`] says why: the client said goodbye, or broke a rule that
//! leaves no answer. Or the peer is just gone, and [`Phase`] says where it
//! was; a peer that closes is an everyday event and not an error of the server.

use std::fmt;

use thiserror::Error;

use super::wire::{CLIENT_FLAGS_BYTES, OptionCode, OptionHeader, RequestHeader};

/// Why this side closes a session after what it still has to send.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CloseReason {
    /// `ABORT` while haggling.
    #[error("client ended the negotiation")]
    Aborted,
    /// `DISC` in transmission: requests in flight are finished first.
    #[error("client disconnected")]
    Disconnected,
    /// Flags no client may set.
    #[error("client flags {flags:#x} hold a flag that was not offered")]
    ClientFlags {
        /// The flags as sent.
        flags: u32,
    },
    /// What should have been an option has another magic number.
    #[error("no option where one was due: not an NBD client, or out of step")]
    NotAnOption,
    /// A client that does not understand replies sent an option that needs one.
    #[error("option {} from a client without fixed newstyle", option_word(*.option))]
    NotFixedNewstyle {
        /// The option as sent.
        option: u32,
    },
    /// The data of an option is too long even to be thrown away.
    #[error("option {} with {length} bytes of data", option_word(*.option))]
    OptionTooLong {
        /// The option as sent.
        option: u32,
        /// Its bytes.
        length: u32,
    },
    /// The client haggles without end.
    #[error("client sent {options} options and chose no export")]
    TooManyOptions {
        /// How many it sent.
        options: u32,
    },
    /// `EXPORT_NAME` has no reply for this.
    #[error("client asked by EXPORT_NAME for an export that is not offered: {name:?}")]
    UnknownExport {
        /// The name, bytes that are no UTF-8 replaced.
        name: String,
    },
    /// `EXPORT_NAME` while the server stops.
    #[error("client asked by EXPORT_NAME for an export while the server stops")]
    Shutdown,
    /// What should have been a request has another magic number.
    #[error("no request where one was due: client out of step")]
    NotARequest,
    /// The payload of a write is too long even to be thrown away.
    #[error("write of {length} bytes")]
    PayloadTooLong {
        /// Its bytes.
        length: u32,
    },
}

impl CloseReason {
    /// Whether the client ended the session in the way the protocol asks for.
    pub fn is_clean(&self) -> bool {
        matches!(self, Self::Aborted | Self::Disconnected)
    }
}

/// Where a session is. Its words complete "peer closed during …".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Waiting for the client flags.
    ClientFlags {
        /// Bytes of them that came.
        received: usize,
    },
    /// Waiting for an option.
    OptionHeader {
        /// Bytes of its header that came.
        received: usize,
    },
    /// Waiting for the data of an option.
    OptionData {
        /// The option as sent.
        option: u32,
        /// Bytes of data that came.
        received: u32,
        /// Bytes of data it has.
        length: u32,
    },
    /// Waiting for a request.
    RequestHeader {
        /// Bytes of its header that came.
        received: usize,
    },
    /// Waiting for the payload of a write.
    WritePayload {
        /// Bytes that did not come yet.
        missing: u32,
    },
    /// The session ended by the protocol.
    Closed,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::ClientFlags { received } => {
                write!(f, "the client flags ({received} of {CLIENT_FLAGS_BYTES} bytes came)")
            }
            Self::OptionHeader { received: 0 } => f.write_str("the negotiation, between options"),
            Self::OptionHeader { received } => {
                let bytes = OptionHeader::BYTES;
                write!(f, "the header of an option ({received} of {bytes} bytes came)")
            }
            Self::OptionData { option, received, length } => {
                let word = option_word(option);
                write!(f, "the data of option {word} ({received} of {length} bytes came)")
            }
            Self::RequestHeader { received: 0 } => f.write_str("transmission, between requests"),
            Self::RequestHeader { received } => {
                let bytes = RequestHeader::BYTES;
                write!(f, "the header of a request ({received} of {bytes} bytes came)")
            }
            Self::WritePayload { missing } => {
                write!(f, "the payload of a write ({missing} bytes missing)")
            }
            Self::Closed => f.write_str("the end of the session"),
        }
    }
}

/// The protocol's word for an option, or its number.
fn option_word(option: u32) -> String {
    OptionCode::from_code(option).map_or_else(|| option.to_string(), |known| known.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_say_where_the_peer_was() {
        let words = [
            (Phase::ClientFlags { received: 2 }, "the client flags (2 of 4 bytes came)"),
            (Phase::OptionHeader { received: 0 }, "the negotiation, between options"),
            (Phase::OptionHeader { received: 9 }, "the header of an option (9 of 16 bytes came)"),
            (
                Phase::OptionData { option: 7, received: 1, length: 8 },
                "the data of option GO (1 of 8 bytes came)",
            ),
            (
                Phase::OptionData { option: 99, received: 1, length: 8 },
                "the data of option 99 (1 of 8 bytes came)",
            ),
            (Phase::RequestHeader { received: 0 }, "transmission, between requests"),
            (
                Phase::RequestHeader { received: 27 },
                "the header of a request (27 of 28 bytes came)",
            ),
            (Phase::WritePayload { missing: 5 }, "the payload of a write (5 bytes missing)"),
            (Phase::Closed, "the end of the session"),
        ];
        for (phase, expected) in words {
            assert_eq!(phase.to_string(), expected);
        }
    }

    #[test]
    fn only_a_goodbye_is_clean() {
        assert!(CloseReason::Aborted.is_clean() && CloseReason::Disconnected.is_clean());
        let broken = CloseReason::NotFixedNewstyle { option: 3 };
        assert!(!broken.is_clean());
        assert_eq!(broken.to_string(), "option LIST from a client without fixed newstyle");
    }
}
