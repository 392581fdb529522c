//! One connection: negotiation, then receiving, carrying out and sending side by side.
//!
//! All three run in one task. Receiving decodes whatever one receive brought and starts each
//! request; what a drive answers at once is in the outbox before the task looks up. Then the
//! operations that were woken are polled, and last the sender, which finds all that became ready
//! meanwhile and sends it together. So a request to a fast drive costs a receive and a send, and
//! fewer when several come at once. While a whole send waits in the outbox nothing more is started:
//! a fast drive would only fill memory, and push out of the cache what is to be sent.
//!
//! A connection ends when nothing more is received, and what was started is finished: operations
//! are never dropped half-way, whether or not anybody waits for their answer.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use drive::{Drive, Io};
use smallvec::smallvec;
use world::{Buf, FixedFile, Inbox, Ring};

use super::Shared;
use super::command::{Answer, begin};
use super::control::{Control, peer_gone, watch};
use super::events::{Closed, ServerEvent, Wait};
use super::limits::{Admitted, Room, admit};
use super::operations::Operations;
use super::outbox::{Batch, Outbox};
use crate::nbd::reply::Ticket;
use crate::nbd::session::{Event, Session};
use crate::nbd::transmission::{Command, Terms};

/// From here on, the missing part of a payload is received straight into its buffer. Less than
/// this is cheaper to copy than to receive by itself: more requests come with it.
const DIRECT_BYTES_MIN: usize = 32 << 10;

/// Bytes of a payload received at a time, so that progress can be seen.
const RECEIVE_BYTES_MAX: usize = 1 << 20;

/// Serves one client to its end.
pub(super) async fn run(shared: Rc<Shared>, ring: Ring, socket: FixedFile, number: u64) -> Closed {
    let control = Rc::new(Control::new(socket.clone()));
    shared.live.borrow_mut().insert(number, Rc::clone(&control));
    let link = Link { shared: &shared, ring: &ring, socket: &socket, control: &control };
    let mut inbox = Inbox::new(shared.world.pool());
    let limit = shared.limits.negotiation;
    let negotiated = shared.world.within(limit, "negotiation", link.negotiate(&mut inbox)).await;
    let reason = match negotiated {
        Ok(Ok((session, terms))) => {
            let export = &shared.exports.as_slice()[terms.export].name;
            shared.events.note(&ServerEvent::Chosen { connection: number, export });
            let stall = shared.limits.stall;
            shared.world.spawn(watch(shared.world.clone(), Rc::clone(&control), stall));
            link.serve(number, session, inbox, terms).await
        }
        Ok(Err(reason)) => reason,
        Err(_) => {
            let phase = control.receiving.get();
            Closed::Stalled { waited_for: phase.map_or(Wait::Replies, Wait::Bytes), limit }
        }
    };
    shared.live.borrow_mut().remove(&number);
    control.end().unwrap_or(reason)
}

/// What both halves of a connection use.
#[derive(Clone, Copy)]
struct Link<'a> {
    shared: &'a Shared,
    ring: &'a Ring,
    socket: &'a FixedFile,
    control: &'a Control,
}

impl Link<'_> {
    async fn negotiate(self, inbox: &mut Inbox) -> Result<(Session, Terms), Closed> {
        let mut output = Vec::new();
        let mut session = Session::new(self.shared.exports.clone(), &mut output);
        self.say(&session, &mut output).await?;
        loop {
            let (consumed, event) = session.receive(inbox.bytes(), &mut output);
            inbox.consume(consumed);
            let sent = self.say(&session, &mut output).await;
            match event {
                // The last words: whether they arrive changes nothing.
                Event::Close(reason) => return Err(Closed::Protocol(reason)),
                Event::Ready(terms) => return sent.map(|()| (session, terms)),
                Event::Reply => sent?,
                Event::NeedMore => {
                    sent?;
                    self.fill(&session, inbox).await?;
                }
                Event::Request { .. } | Event::Answer { .. } => {
                    unreachable!("requests follow the negotiation")
                }
            }
        }
    }

    /// Sends what the session has to say.
    async fn say(self, session: &Session, output: &mut Vec<u8>) -> Result<(), Closed> {
        if !output.is_empty() {
            let message = self.shared.world.pool().copy_of(output);
            output.clear();
            let sent = self.ring.send(self.socket, smallvec![message]).await;
            sent.map_err(|error| self.failed(session, error))?;
        }
        Ok(())
    }

    /// Receives more, or says why there is no more.
    async fn fill(self, session: &Session, inbox: &mut Inbox) -> Result<(), Closed> {
        self.control.receiving.set(Some(session.phase()));
        let result = inbox.fill(self.ring, self.socket).await;
        self.received(session, result).map(|_| ())
    }

    fn received(self, session: &Session, result: io::Result<usize>) -> Result<usize, Closed> {
        self.control.receiving.set(None);
        match result {
            Ok(0) if self.shared.stopping.get() => Err(Closed::Stopped),
            Ok(0) => Err(Closed::Peer(session.phase())),
            Ok(bytes) => {
                self.control.received.set(self.control.received.get() + 1);
                Ok(bytes)
            }
            Err(error) => Err(self.failed(session, error)),
        }
    }

    fn failed(self, session: &Session, error: io::Error) -> Closed {
        if peer_gone(&error) { Closed::Peer(session.phase()) } else { Closed::Socket(error) }
    }

    async fn serve(self, number: u64, session: Session, inbox: Inbox, terms: Terms) -> Closed {
        let drive = Rc::clone(&self.shared.drives[terms.export]);
        let limits = &self.shared.limits;
        let transmission = Transmission {
            link: self,
            number,
            drive: &drive,
            operations: Operations::new(),
            outbox: Outbox::new(),
            room: Room::new(limits.connection_requests_max, limits.connection_bytes_max),
        };
        let mut receiving = pin!(transmission.receive(session, inbox));
        let mut sending = pin!(transmission.send());
        let mut reason = None;
        std::future::poll_fn(|context| {
            self.control.served_by(context.waker());
            let mut started;
            loop {
                if reason.is_none()
                    && let Poll::Ready(ended) = receiving.as_mut().poll(context)
                {
                    reason = Some(ended);
                }
                transmission.operations.poll(context, |(answer, admitted)| {
                    transmission.answer(answer, admitted);
                });
                started = transmission.operations.len();
                if reason.is_some() && started == 0 {
                    transmission.outbox.closed.set(true);
                }
                let was_full = transmission.outbox.full();
                if sending.as_mut().poll(context).is_ready() {
                    return Poll::Ready(());
                }
                // The receiving side may have waited for what the sending side has just taken.
                if !was_full || transmission.outbox.full() {
                    break;
                }
            }
            let quiet = started == 0 && transmission.outbox.idle();
            if self.shared.stopping.get() && quiet && self.control.between_requests() {
                self.control.close(Some(Closed::Stopped));
            }
            Poll::Pending
        })
        .await;
        reason.expect("sending ends after receiving")
    }
}

/// A connection whose export is known.
struct Transmission<'a> {
    link: Link<'a>,
    number: u64,
    drive: &'a Rc<dyn Drive>,
    operations: Operations<'a, (Answer, Admitted)>,
    outbox: Outbox,
    room: Room,
}

impl<'a> Transmission<'a> {
    /// Takes requests and starts them, until the end.
    async fn receive(&self, session: Session, inbox: Inbox) -> Closed {
        let Err(reason) = self.requests(session, inbox).await;
        reason
    }

    async fn requests(&self, mut session: Session, mut inbox: Inbox) -> Result<Infallible, Closed> {
        let mut output = Vec::new();
        loop {
            if self.link.shared.stopping.get() {
                session.shut_down();
            }
            let (consumed, event) = session.receive(inbox.bytes(), &mut output);
            inbox.consume(consumed);
            match event {
                Event::NeedMore => self.link.fill(&session, &mut inbox).await?,
                Event::Request { ticket, command } => {
                    self.outbox.room().await;
                    let admitted = self.admit(bytes_moved(&command)).await;
                    let payload = match command {
                        Command::Write { length, .. } => {
                            Some(self.payload(&mut session, &mut inbox, length as usize).await?)
                        }
                        _ => None,
                    };
                    self.start(ticket, command, payload, admitted);
                }
                Event::Answer { head, .. } => {
                    let admitted = self.admit(0).await;
                    self.outbox.push(head, None, admitted);
                }
                Event::Close(reason) => return Err(Closed::Protocol(reason)),
                Event::Reply | Event::Ready(_) => unreachable!("the negotiation is over"),
            }
        }
    }

    async fn admit(&self, bytes: usize) -> Admitted {
        admit(&self.room, &self.link.shared.room, bytes).await
    }

    /// Takes the payload of a write: what has come already is copied, a long rest is received in
    /// place.
    async fn payload(
        &self,
        session: &mut Session,
        inbox: &mut Inbox,
        length: usize,
    ) -> Result<Buf, Closed> {
        let Link { ring, socket, control, shared } = self.link;
        let mut buffer = shared.world.pool().take(length);
        let mut filled = 0;
        let mut direct = false;
        loop {
            let moved = inbox.move_to(&mut buffer[filled..]);
            session.payload_received(moved as u32);
            filled += moved;
            let missing = length - filled;
            if missing == 0 {
                inbox.keep_short(direct);
                return Ok(buffer.freeze());
            }
            if missing < DIRECT_BYTES_MIN && !direct {
                self.link.fill(session, inbox).await?;
                continue;
            }
            direct = true;
            control.receiving.set(Some(session.phase()));
            let mut part = buffer.split_off(filled);
            let rest = part.split_off(missing.min(RECEIVE_BYTES_MAX));
            let (part, result) = ring.receive(socket, part, true).await;
            for part in [part, rest] {
                buffer.unsplit(part).expect("they were split off here");
            }
            let bytes = self.link.received(session, result)?;
            session.payload_received(bytes as u32);
            filled += bytes;
        }
    }

    fn start(&self, ticket: Ticket, command: Command, payload: Option<Buf>, admitted: Admitted) {
        match begin(self.drive, self.link.shared.world.pool(), ticket, command, payload) {
            Io::Ready(answer) => {
                self.answer(answer.expect("it was not awaited yet"), admitted);
            }
            Io::Later(answer) => {
                self.operations.add(Box::pin(async move { (answer.await, admitted) }));
            }
        }
    }

    fn answer(&self, answer: Answer, admitted: Admitted) {
        if let Some(error) = &answer.error {
            let event = ServerEvent::DriveFailed { connection: self.number, error };
            self.link.shared.events.note(&event);
        }
        self.outbox.push(answer.head, answer.data, admitted);
    }

    /// Sends replies as they become ready, until the outbox is closed.
    async fn send(&self) {
        let Link { ring, socket, control, shared } = self.link;
        let mut batch = Batch::default();
        while self.outbox.filled().await {
            let bytes = self.outbox.take(shared.world.pool(), &mut batch);
            let buffers = std::mem::take(&mut batch.buffers);
            self.outbox.sending.set(true);
            control.sending.set(true);
            let result = ring.send(socket, buffers).await;
            self.outbox.sending.set(false);
            control.sending.set(false);
            control.sent.set(control.sent.get() + 1);
            batch.sent();
            let reason = match result {
                Ok(sent) if sent == bytes => continue,
                Err(error) if !peer_gone(&error) => Some(Closed::Socket(error)),
                _ => None,
            };
            control.close(reason);
            self.outbox.give_up();
        }
    }
}

/// Bytes of memory a request needs.
fn bytes_moved(command: &Command) -> usize {
    match *command {
        Command::Read { length, .. } | Command::Write { length, .. } => length as usize,
        Command::Flush
        | Command::Trim { .. }
        | Command::Cache { .. }
        | Command::WriteZeroes { .. }
        | Command::BlockStatus { .. } => 0,
    }
}
