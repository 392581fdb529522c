//! What a server tells its owner while it runs.

use std::fmt;
use std::io;
use std::time::Duration;

use drive::DriveError;

use super::address::Address;
use crate::nbd::closing::{CloseReason, Phase};

/// Takes note of what happens; a log, a metric, a test.
pub trait Events {
    /// Something happened. It is called between requests and must not take long.
    fn note(&self, event: &ServerEvent<'_>);
}

/// What happened. Its words are one line for a log.
#[derive(Debug)]
#[allow(missing_docs, reason = "connection is the number of the connection, counted from 1")]
pub enum ServerEvent<'a> {
    /// The server listens.
    Listening { address: &'a Address },
    /// A client is there.
    Connected { connection: u64, peer: &'a str },
    /// A client chose an export.
    Chosen { connection: u64, export: &'a str },
    /// A drive failed a request; the client got the error.
    DriveFailed { connection: u64, error: &'a DriveError },
    /// A connection has ended, and nothing of it is left.
    Closed { connection: u64, reason: &'a Closed },
    /// A client was turned away.
    TooMany { connections: usize },
    /// A client could not be let in.
    AcceptFailed { error: &'a io::Error },
}

/// Why a connection ended.
#[derive(Debug)]
pub enum Closed {
    /// By the protocol.
    Protocol(CloseReason),
    /// The peer was gone.
    Peer(Phase),
    /// The peer made no progress.
    Stalled {
        /// What was waited for.
        waited_for: Wait,
        /// How long.
        limit: Duration,
    },
    /// The system failed the socket.
    Socket(io::Error),
    /// The server stops.
    Stopped,
}

/// What a server waits for from a peer, and not for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// More bytes of a request or option.
    Bytes(Phase),
    /// That replies are taken.
    Replies,
}

impl fmt::Display for ServerEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listening { address } => write!(f, "listening on {address}"),
            Self::Connected { connection, peer } => {
                write!(f, "connection {connection}: {peer} connected")
            }
            Self::Chosen { connection, export } => {
                write!(f, "connection {connection}: export {export:?} chosen")
            }
            Self::DriveFailed { connection, error } => {
                write!(f, "connection {connection}: {error}")
            }
            Self::Closed { connection, reason } => write!(f, "connection {connection}: {reason}"),
            Self::TooMany { connections } => {
                write!(f, "client turned away: {connections} connections is the limit")
            }
            Self::AcceptFailed { error } => write!(f, "client not let in ({error})"),
        }
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Protocol(reason) => reason.fmt(f),
            Self::Peer(phase) => write!(f, "peer closed during {phase}"),
            Self::Stalled { waited_for: Wait::Bytes(phase), limit } => {
                write!(f, "closed: no byte from the peer for {limit:?} during {phase}")
            }
            Self::Stalled { waited_for: Wait::Replies, limit } => {
                write!(f, "closed: the peer took none of its replies for {limit:?}")
            }
            Self::Socket(error) => write!(f, "closed: the connection failed ({error})"),
            Self::Stopped => f.write_str("closed: the server stops"),
        }
    }
}
