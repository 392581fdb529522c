//! Requests and their replies on one connection, any number at a time.
//!
//! A request goes to the outbox; one sender at a time takes all that is there and sends it at
//! once. One receiver reads replies as they come, in any order, straight into the buffers of the
//! request they answer. The server may keep a request's buffers busy after its caller has gone
//! away, so they stay here until the reply or the end of the connection.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use nbd::wire::{CommandCode, CommandFlags, ErrorCode, RequestHeader, SimpleReplyHeader};
use rustix::net::{SendFlags, Shutdown, send, shutdown};
use slab::Slab;
use world::{BufMut, FixedFile, Inbox, ReadBufs, Ring, World, WriteBufs};

/// How long a request may wait for its reply before the server counts as gone: as long as Linux
/// gives a disk.
const REPLY_LIMIT: Duration = Duration::from_secs(30);
/// How often that is looked at.
const WATCH_EVERY: Duration = Duration::from_secs(5);
/// From here on, what is missing of a buffer is received straight into it. Less is cheaper to copy
/// than to receive by itself.
const DIRECT_BYTES_MIN: usize = 32 << 10;
/// Buffers of one send: the kernel takes 1024.
const SEND_BUFFERS_MAX: usize = 512;

/// A request without its data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) command: CommandCode,
    pub(super) flags: CommandFlags,
    pub(super) offset: u64,
    pub(super) length: u32,
}

/// A request on its way, or its reply.
struct Pending {
    /// Of a read: filled by the reply. Empty while the receiver fills them.
    buffers: ReadBufs,
    since_ns: u64,
    waker: Option<Waker>,
    state: State,
}

#[derive(Clone)]
enum State {
    Waiting,
    /// The caller has gone away.
    Abandoned,
    Done(Result<(), Rc<io::Error>>),
}

/// One connection in its transmission phase.
pub(super) struct Link {
    world: World,
    ring: Ring,
    socket: FixedFile,
    pending: RefCell<Slab<Pending>>,
    outbox: RefCell<WriteBufs>,
    sending: Cell<bool>,
    /// Why nothing goes any more.
    broken: RefCell<Option<Rc<io::Error>>>,
}

impl Link {
    /// Begins to receive.
    pub(super) fn start(world: &World, ring: &Ring, socket: FixedFile) -> Rc<Link> {
        let link = Rc::new(Link {
            world: world.clone(),
            ring: ring.clone(),
            socket,
            pending: RefCell::default(),
            outbox: RefCell::default(),
            sending: Cell::new(false),
            broken: RefCell::default(),
        });
        let receiver = Rc::clone(&link);
        world.spawn(async move {
            let error = receiver.receive_all().await;
            receiver.fail(error);
        });
        world.spawn(watch(world.clone(), Rc::downgrade(&link)));
        link
    }

    /// Says goodbye; what is under way fails.
    pub(super) fn end(&self) {
        let goodbye = RequestHeader {
            flags: CommandFlags::EMPTY,
            command: CommandCode::Disconnect.code(),
            cookie: 0,
            offset: 0,
            length: 0,
        };
        if self.broken.borrow().is_none() && !self.sending.get() {
            // Only politeness: the server learns as much from the closed connection.
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let _ = send(&self.socket, &goodbye.encode(), flags);
        }
        self.fail(io::Error::other("the drive was closed"));
    }

    /// Reads into `buffers`, which come back.
    pub(super) async fn read(
        self: &Rc<Self>,
        request: Request,
        buffers: ReadBufs,
    ) -> (ReadBufs, Result<(), Rc<io::Error>>) {
        self.submit(request, WriteBufs::new(), buffers).await
    }

    /// Carries out a command that gives nothing back.
    pub(super) async fn send(
        self: &Rc<Self>,
        request: Request,
        data: WriteBufs,
    ) -> Result<(), Rc<io::Error>> {
        self.submit(request, data, ReadBufs::new()).await.1
    }

    fn submit(self: &Rc<Self>, request: Request, data: WriteBufs, buffers: ReadBufs) -> Reply {
        let state = match &*self.broken.borrow() {
            Some(error) => State::Done(Err(Rc::clone(error))),
            None => State::Waiting,
        };
        let waits = matches!(state, State::Waiting);
        let since_ns = self.world.now_ns();
        let pending = Pending { buffers, since_ns, waker: None, state };
        let key = self.pending.borrow_mut().insert(pending);
        if waits {
            let Request { command, flags, offset, length } = request;
            let (command, cookie) = (command.code(), key as u64);
            let header = RequestHeader { flags, command, cookie, offset, length };
            let mut outbox = self.outbox.borrow_mut();
            outbox.push(self.world.pool().copy_of(&header.encode()));
            outbox.extend(data);
            if !self.sending.replace(true) {
                self.world.spawn(Rc::clone(self).send_all());
            }
        }
        Reply { link: Rc::clone(self), key: Some(key) }
    }

    async fn send_all(self: Rc<Self>) {
        loop {
            let mut batch = std::mem::take(&mut *self.outbox.borrow_mut());
            if batch.is_empty() {
                break;
            }
            let later: WriteBufs = batch.drain(SEND_BUFFERS_MAX.min(batch.len())..).collect();
            if !later.is_empty() {
                self.outbox.borrow_mut().insert_many(0, later);
            }
            if let Err(error) = self.ring.send(&self.socket, batch).await {
                self.fail(error);
                break;
            }
        }
        self.sending.set(false);
    }

    /// Receives replies until that ends, and says why.
    async fn receive_all(&self) -> io::Error {
        let mut inbox = Inbox::new(self.world.pool());
        loop {
            if let Err(error) = self.receive_reply(&mut inbox).await {
                return error;
            }
        }
    }

    async fn receive_reply(&self, inbox: &mut Inbox) -> io::Result<()> {
        let head = loop {
            match inbox.bytes().first_chunk() {
                Some(head) => break *head,
                None => self.fill(inbox).await?,
            }
        };
        inbox.consume(SimpleReplyHeader::BYTES);
        let broken = |what| io::Error::other(what);
        let reply = SimpleReplyHeader::decode(&head)
            .ok_or_else(|| broken("the server sent something that is no reply"))?;
        let key = usize::try_from(reply.cookie).ok().filter(|&key| self.waits(key));
        let key = key.ok_or_else(|| broken("the server answered what was not asked"))?;
        let result = match reply.error {
            0 => Ok(()),
            code => Err(Rc::new(io::Error::from_raw_os_error(errno(code)))),
        };
        if result.is_ok() {
            let mut buffers = std::mem::take(&mut self.pending.borrow_mut()[key].buffers);
            let mut received = Ok(());
            for buffer in &mut buffers {
                received = self.receive_into(inbox, buffer).await;
                if received.is_err() {
                    break;
                }
            }
            // Also after an error: whoever waits gets its buffers back.
            if let Some(pending) = self.pending.borrow_mut().get_mut(key) {
                pending.buffers = buffers;
            }
            received?;
        }
        self.finish(key, result);
        Ok(())
    }

    async fn receive_into(&self, inbox: &mut Inbox, buffer: &mut BufMut) -> io::Result<()> {
        let mut done = inbox.move_to(buffer);
        while done < buffer.len() {
            if buffer.len() - done < DIRECT_BYTES_MIN {
                inbox.keep_short(false);
                self.fill(inbox).await?;
                done += inbox.move_to(&mut buffer[done..]);
                continue;
            }
            let rest = buffer.split_off(done);
            let wanted = rest.len();
            let (rest, result) = self.ring.receive(&self.socket, rest, true).await;
            buffer.unsplit(rest).expect("it was split off here");
            if result? < wanted {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            inbox.keep_short(true);
            done = buffer.len();
        }
        Ok(())
    }

    async fn fill(&self, inbox: &mut Inbox) -> io::Result<()> {
        match inbox.fill(&self.ring, &self.socket).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    fn waits(&self, key: usize) -> bool {
        let pending = self.pending.borrow();
        pending.get(key).is_some_and(|pending| !matches!(pending.state, State::Done(_)))
    }

    fn finish(&self, key: usize, result: Result<(), Rc<io::Error>>) {
        let mut all = self.pending.borrow_mut();
        let Some(pending) = all.get_mut(key) else { return };
        if matches!(pending.state, State::Abandoned) {
            all.remove(key);
            return;
        }
        pending.state = State::Done(result);
        let waker = pending.waker.take();
        drop(all);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ends the connection: everything under way fails with `error`, and all that follows.
    fn fail(&self, error: io::Error) {
        if self.broken.borrow().is_some() {
            return;
        }
        let error = Rc::new(error);
        *self.broken.borrow_mut() = Some(Rc::clone(&error));
        let _ = shutdown(&self.socket, Shutdown::Both);
        self.outbox.borrow_mut().clear();
        let open: Vec<usize> = self.pending.borrow().iter().map(|(key, _)| key).collect();
        for key in open.into_iter().filter(|&key| self.waits(key)) {
            self.finish(key, Err(Rc::clone(&error)));
        }
    }
}

/// Ends a connection whose server does not answer.
async fn watch(world: World, link: Weak<Link>) {
    loop {
        world.sleep(WATCH_EVERY).await;
        let Some(link) = link.upgrade() else { return };
        if link.broken.borrow().is_some() {
            return;
        }
        let limit_ns = REPLY_LIMIT.as_nanos() as u64;
        let late = |pending: &Pending| {
            !matches!(pending.state, State::Done(_))
                && world.now_ns().saturating_sub(pending.since_ns) > limit_ns
        };
        let any_late = link.pending.borrow().iter().any(|(_, pending)| late(pending));
        if any_late {
            let what = format!("waited {REPLY_LIMIT:?} for an NBD reply");
            link.fail(io::Error::new(io::ErrorKind::TimedOut, what));
            return;
        }
    }
}

/// Linux's number for an error of a reply.
fn errno(code: u32) -> i32 {
    match ErrorCode::from_code(code) {
        Some(ErrorCode::NotPermitted) => libc::EPERM,
        Some(ErrorCode::OutOfMemory) => libc::ENOMEM,
        Some(ErrorCode::Invalid) => libc::EINVAL,
        Some(ErrorCode::NoSpace) => libc::ENOSPC,
        Some(ErrorCode::Overflow) => libc::EOVERFLOW,
        Some(ErrorCode::NotSupported) => libc::EOPNOTSUPP,
        Some(ErrorCode::Shutdown) => libc::ESHUTDOWN,
        Some(ErrorCode::InputOutput) | None => libc::EIO,
    }
}

/// The reply to a request: gives its buffers back, and how it went.
struct Reply {
    link: Rc<Link>,
    key: Option<usize>,
}

impl Future for Reply {
    type Output = (ReadBufs, Result<(), Rc<io::Error>>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let key = self.key.expect("polled after it was ready");
        let mut all = self.link.pending.borrow_mut();
        if !matches!(all[key].state, State::Done(_)) {
            all[key].waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        let pending = all.remove(key);
        drop(all);
        self.key = None;
        let State::Done(result) = pending.state else { unreachable!("looked at above") };
        Poll::Ready((pending.buffers, result))
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        let Some(key) = self.key else { return };
        let mut all = self.link.pending.borrow_mut();
        match all[key].state {
            State::Done(_) => drop(all.remove(key)),
            _ => all[key].state = State::Abandoned,
        }
    }
}
