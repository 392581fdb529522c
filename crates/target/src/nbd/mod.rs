//! The NBD server: first its protocol without sockets, bytes in, bytes and commands out; then
//! [`server`], which brings sockets and drives to it.
//!
//! Fixed newstyle negotiation, simple and structured replies, block status
//! with `base:allocation`. The source of every number and rule is the protocol
//! document of the NBD project (`doc/proto.md`, "The NBD protocol").
//!
//! | file | what |
//! | --- | --- |
//! | `export` | what is offered, checked once |
//! | `options` | data of the options |
//! | `handshake` | negotiation as a state machine |
//! | `transmission` | finding and judging requests |
//! | `reply` | heads of replies, and the ticket that is answered once |
//! | `status` | extents of a block status reply |
//! | `session` | one connection as a whole |
//! | `closing` | words for its end |
//!
//! Nothing in these waits, reads a clock or owns a socket, so a test can feed it
//! any bytes in any pieces. Memory of a session is bounded by one option
//! ([`handshake::OPTION_DATA_BYTES_MAX`]); payloads never pass through it.

mod closing;
mod export;
pub mod handshake;
mod options;
pub mod reply;
pub mod server;
mod session;
mod status;
mod transmission;

pub use ::nbd::wire;

pub use closing::{CloseReason, Phase};
pub use export::{
    BLOCK_MIN_BYTES_MAX, BLOCK_PREFERRED_BYTES_MIN, Export, ExportError, ExportErrorKind, Exports,
    PAYLOAD_BYTES_MAX,
};
pub use handshake::{Handshake, HandshakeEvent};
pub use reply::{Head, Ticket};
pub use session::{Event, Session};
pub use status::{Allocation, BlockStatus, EXTENTS_MAX};
pub use transmission::{Command, Decoded, Refusal, Terms, Verdict, decode, judge};
