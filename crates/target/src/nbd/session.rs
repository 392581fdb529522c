//! One connection from greeting to goodbye, without a socket.
//!
//! The shell keeps a receive buffer and loops:
//!
//! ```text
//! receive bytes into the buffer
//! loop { (consumed, event) = session.receive(buffer, output); drop consumed bytes
//!     NeedMore    send output, receive again
//!     Reply       send output
//!     Ready       send output; the export is known
//!     Request     start it; for a write, take its payload first (see below)
//!     Answer      send the head
//!     Close       send output, finish what is in flight, close }
//! at end of file: log session.peer_closed()
//! ```
//!
//! The payload of a write is not passed through: after a `Request` with
//! [`Command::Write`] the shell takes `length` bytes, first from its buffer and
//! then from the socket straight into their destination, and reports them with
//! [`Session::payload_received`]. The payload of a refused write is thrown
//! away by the session, without being kept, and only then comes the refusal:
//! clients exist (libnbd) that hang up on a reply to a request they are still
//! sending.

use super::closing::{CloseReason, Phase};
use super::export::Exports;
use super::handshake::{Handshake, HandshakeEvent};
use super::reply::{Head, Ticket};
use super::transmission::{Command, Decoded, Refusal, Terms, Verdict, decode, judge};
use super::wire::RequestHeader;

/// What a call of [`Session::receive`] came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// Nothing more to be had from the input; bring more behind what was not
    /// consumed.
    NeedMore,
    /// An option was answered: send the output, then call again.
    Reply,
    /// Negotiation is over: send the output, then requests follow.
    Ready(Terms),
    /// Carry out the command, then answer its ticket.
    Request {
        /// To be answered.
        ticket: Ticket,
        /// To be carried out.
        command: Command,
    },
    /// Send this reply; nothing is to be carried out.
    Answer {
        /// The whole reply.
        head: Head,
        /// Why, if the request was refused; `None` if its range was empty.
        refusal: Option<Refusal>,
    },
    /// Send the output, finish what is in flight, then close.
    Close(CloseReason),
}

#[derive(Debug)]
enum Stage {
    Handshake(Handshake),
    Transmission {
        terms: Terms,
        /// Bytes of a header seen and not consumed yet.
        partial: usize,
        /// Bytes of a write's payload still to come.
        payload: Payload,
    },
    Closed,
}

#[derive(Debug)]
enum Payload {
    /// No payload is due.
    None,
    /// The shell takes these bytes.
    Shell(u32),
    /// These bytes are thrown away; then the write is refused.
    Drain(Refused),
}

/// A refused write whose payload is still coming.
#[derive(Debug)]
struct Refused {
    left: u32,
    ticket: Ticket,
    refusal: Refusal,
}

/// One connection.
#[derive(Debug)]
pub struct Session {
    stage: Stage,
    shutdown: bool,
}

impl Session {
    /// Starts a session and puts the greeting into `output`.
    pub fn new(exports: Exports, output: &mut Vec<u8>) -> Self {
        let handshake = Handshake::new(exports, output);
        Self { stage: Stage::Handshake(handshake), shutdown: false }
    }

    /// From now on each option and request is answered "about to stop". What
    /// is in flight is the shell's to finish.
    pub fn shut_down(&mut self) {
        self.shutdown = true;
        if let Stage::Handshake(handshake) = &mut self.stage {
            handshake.shut_down();
        }
    }

    /// Where the session is.
    pub fn phase(&self) -> Phase {
        match &self.stage {
            Stage::Handshake(handshake) => handshake.phase(),
            Stage::Transmission { partial, payload: Payload::None, .. } => {
                Phase::RequestHeader { received: *partial }
            }
            Stage::Transmission {
                payload: Payload::Shell(missing) | Payload::Drain(Refused { left: missing, .. }),
                ..
            } => Phase::WritePayload { missing: *missing },
            Stage::Closed => Phase::Closed,
        }
    }

    /// The line for the log when the peer is gone.
    pub fn peer_closed(&self) -> String {
        format!("peer closed during {}", self.phase())
    }

    /// Takes bytes from the front of `input`. Returns how many were consumed,
    /// and what came of them. What was not consumed has to be the front of the
    /// next input.
    ///
    /// Panics if the shell still owes the payload of a write.
    pub fn receive(&mut self, input: &[u8], output: &mut Vec<u8>) -> (usize, Event) {
        match &mut self.stage {
            Stage::Handshake(handshake) => {
                let (consumed, event) = handshake.receive(input, output);
                (consumed, self.negotiated(event))
            }
            Stage::Transmission { .. } => self.request(input),
            Stage::Closed => (input.len(), Event::NeedMore),
        }
    }

    /// The shell took `bytes` of the payload of the last [`Command::Write`].
    ///
    /// Panics if they are more than is due.
    pub fn payload_received(&mut self, bytes: u32) {
        let Stage::Transmission { payload: payload @ Payload::Shell(_), .. } = &mut self.stage
        else {
            assert_eq!(bytes, 0, "no payload is due");
            return;
        };
        if let Payload::Shell(left) = *payload {
            assert!(bytes <= left, "payload of {bytes} bytes where {left} are due");
            *payload = if bytes == left { Payload::None } else { Payload::Shell(left - bytes) };
        }
    }

    fn negotiated(&mut self, event: HandshakeEvent) -> Event {
        match event {
            HandshakeEvent::NeedMore => Event::NeedMore,
            HandshakeEvent::Reply => Event::Reply,
            HandshakeEvent::Ready(terms) => {
                self.stage = Stage::Transmission { terms, partial: 0, payload: Payload::None };
                Event::Ready(terms)
            }
            HandshakeEvent::Close(reason) => self.close(reason),
        }
    }

    fn close(&mut self, reason: CloseReason) -> Event {
        self.stage = Stage::Closed;
        Event::Close(reason)
    }

    fn request(&mut self, input: &[u8]) -> (usize, Event) {
        let Stage::Transmission { terms, partial, payload } = &mut self.stage else {
            return (0, Event::NeedMore);
        };
        match std::mem::replace(payload, Payload::None) {
            Payload::None => {}
            Payload::Shell(left) => panic!("the shell still owes {left} bytes of a write"),
            Payload::Drain(refused) => return refused.drain(payload, input),
        }
        *partial = 0;
        let (header, payload_bytes) = match decode(input) {
            Decoded::NeedMore(_) => {
                *partial = input.len();
                return (0, Event::NeedMore);
            }
            Decoded::Fatal(reason) => return (0, self.close(reason)),
            Decoded::Request { header, payload_bytes } => (header, payload_bytes),
        };
        let ticket = Ticket::new(&header, terms.structured_replies);
        let refusal = match judge(&header, terms) {
            Verdict::Disconnect => {
                return (RequestHeader::BYTES, self.close(CloseReason::Disconnected));
            }
            _ if self.shutdown => Refusal::Shutdown,
            Verdict::Refuse(refusal) => refusal,
            Verdict::Nothing => {
                let event = Event::Answer { head: ticket.done(), refusal: None };
                return (RequestHeader::BYTES, event);
            }
            Verdict::Serve(command) => {
                if payload_bytes > 0 {
                    *payload = Payload::Shell(payload_bytes);
                }
                return (RequestHeader::BYTES, Event::Request { ticket, command });
            }
        };
        let refused = Refused { left: payload_bytes, ticket, refusal };
        let (drained, event) = refused.drain(payload, &input[RequestHeader::BYTES..]);
        (RequestHeader::BYTES + drained, event)
    }
}

impl Refused {
    /// Throws away payload, and answers at its end.
    fn drain(mut self, payload: &mut Payload, input: &[u8]) -> (usize, Event) {
        let drained = self.left.min(u32::try_from(input.len()).unwrap_or(u32::MAX));
        self.left -= drained;
        let event = if self.left == 0 {
            let refusal = self.refusal;
            Event::Answer { head: self.ticket.refuse(refusal), refusal: Some(refusal) }
        } else {
            *payload = Payload::Drain(self);
            Event::NeedMore
        };
        (drained as usize, event)
    }
}
