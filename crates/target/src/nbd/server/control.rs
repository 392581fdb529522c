//! What others hold of a connection: to watch its progress, to stop it, to close it.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use rustix::net::Shutdown;
use world::{FixedFile, Notify, World, race};

use super::events::{Closed, Wait};
use crate::nbd::closing::Phase;

/// The watch looks this often within a limit, so a stall is seen at most a quarter late.
const LOOKS_PER_LIMIT: u32 = 4;

/// One connection, seen from outside.
pub(super) struct Control {
    /// `None` once the connection has ended.
    socket: RefCell<Option<FixedFile>>,
    waker: RefCell<Option<Waker>>,
    /// Why it was closed from outside, or by its sender.
    reason: RefCell<Option<Closed>>,
    ended: Notify,
    /// What the receiving side waits for from the peer.
    pub(super) receiving: Cell<Option<Phase>>,
    /// Counts receives that brought something.
    pub(super) received: Cell<u64>,
    /// The sending side waits for the peer.
    pub(super) sending: Cell<bool>,
    /// Counts sends that ended.
    pub(super) sent: Cell<u64>,
}

impl Control {
    pub(super) fn new(socket: FixedFile) -> Self {
        Control {
            socket: RefCell::new(Some(socket)),
            waker: RefCell::new(None),
            reason: RefCell::new(None),
            ended: Notify::default(),
            receiving: Cell::new(None),
            received: Cell::new(0),
            sending: Cell::new(false),
            sent: Cell::new(0),
        }
    }

    /// Remembers the task of the connection.
    pub(super) fn served_by(&self, waker: &Waker) {
        let mut kept = self.waker.borrow_mut();
        match &mut *kept {
            Some(kept) => kept.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }

    /// The server stops: a negotiation ends at once, and a connection that has chosen its export
    /// looks around and ends when it is idle.
    pub(super) fn stop(&self) {
        match &*self.waker.borrow() {
            Some(waker) => waker.wake_by_ref(),
            None => self.close(Some(Closed::Stopped)),
        }
    }

    /// Ends both directions: what waits for the peer ends with them. The first reason counts.
    pub(super) fn close(&self, reason: Option<Closed>) {
        let mut kept = self.reason.borrow_mut();
        if kept.is_none() {
            *kept = reason;
        }
        if let Some(socket) = &*self.socket.borrow() {
            // Fails only when the peer is gone already.
            let _ = rustix::net::shutdown(socket, Shutdown::Both);
        }
    }

    /// Waiting for a request, and nothing of one has come.
    pub(super) fn between_requests(&self) -> bool {
        self.receiving.get() == Some(Phase::RequestHeader { received: 0 })
    }

    /// Closes for good; returns the reason if there was one.
    pub(super) fn end(&self) -> Option<Closed> {
        self.close(None);
        *self.socket.borrow_mut() = None;
        self.ended.notify_all();
        self.reason.take()
    }

    fn stalled(&self) -> [Option<(u64, Wait)>; 2] {
        let receiving = self.receiving.get().filter(|_| !self.between_requests());
        [
            receiving.map(|phase| (self.received.get(), Wait::Bytes(phase))),
            self.sending.get().then(|| (self.sent.get(), Wait::Replies)),
        ]
    }
}

/// Closes a connection whose peer leaves it waiting for `limit`.
pub(super) async fn watch(world: World, control: Rc<Control>, limit: Duration) {
    let mut looks = [(None, 0); 2];
    while control.socket.borrow().is_some() {
        let pause = world.sleep(limit / LOOKS_PER_LIMIT);
        if race(control.ended.wait(), pause).await.is_ok() {
            return;
        }
        for (now, (last, same)) in control.stalled().into_iter().zip(&mut looks) {
            *same = if now.is_some() && now == *last { *same + 1 } else { 0 };
            *last = now;
            if let (Some((_, waited_for)), LOOKS_PER_LIMIT) = (now, *same) {
                control.close(Some(Closed::Stalled { waited_for, limit }));
                return;
            }
        }
    }
}

/// Whether an error of a socket only says that the peer is gone.
pub(super) fn peer_gone(error: &io::Error) -> bool {
    type Kind = io::ErrorKind;
    matches!(error.kind(), Kind::BrokenPipe | Kind::ConnectionReset | Kind::ConnectionAborted)
}
