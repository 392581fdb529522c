//! The io_uring reactor: operations that own their buffers until the kernel is done with them.
//!
//! Operations are queued when they are made and go to the kernel in batches: a full one at once,
//! the rest when the world has nothing else to do. Completions are taken in batches too. A dropped
//! operation is forgotten by its caller, but its buffers stay with the ring until the kernel has
//! let go of them.
//!
//! Buffers from the world's pool that the kernel knows (one registered arena) are named by their
//! registration, files may be registered too: both save the kernel a look-up per operation.

#![allow(unsafe_code)]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use io_uring::squeue::Entry;
use io_uring::{IoUring, opcode, types};
use slab::Slab;

use crate::buffer::{BufMut, Pool, ReadBufs, WriteBufs};

/// Registered files a ring can hold: members of several arrays and some connections.
const FIXED_FILES: u32 = 256;
/// The arena is the only registered buffer.
const ARENA_INDEX: u16 = 0;
/// Marks the completion of the alarm's read; operations use their slab key.
const ALARM_KEY: u64 = u64::MAX;
/// Marks the completion of the timer.
const TIMER_KEY: u64 = u64::MAX - 1;
/// Marks completions nobody waits for.
const IGNORED_KEY: u64 = u64::MAX - 2;
/// How long a world that ends waits for the kernel to let go of buffers before it leaks them.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);
/// Entries that go to the kernel at once: the device begins with them while others are prepared.
/// Fewer cost more system calls than that gains, more leave a fast device idle.
const BATCH_ENTRIES: usize = 4;
/// One read or write moves at most this much: the kernel itself stops a little below 2 GiB.
const OP_BYTES_MAX: usize = 1 << 30;

/// How a ring is set up.
#[derive(Debug, Clone, Copy)]
pub struct RingConfig {
    /// Submission queue entries; the completion queue has four times as many.
    pub entries: u32,
    /// Bytes of pooled buffers registered with the kernel (they stay in memory).
    pub arena_bytes: usize,
}

impl Default for RingConfig {
    fn default() -> Self {
        RingConfig { entries: 256, arena_bytes: 64 << 20 }
    }
}

/// Why there is no ring.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// The kernel lacks io_uring, or a policy forbids it.
    #[error(
        "this kernel offers no io_uring ({0})\n\
         hint: Linux 5.11 or later is needed, with kernel.io_uring_disabled = 0 and no seccomp \
         filter against it (containers often have one)"
    )]
    Unavailable(#[source] io::Error),
    /// The ring exists but something it needs does not.
    #[error("setting up io_uring failed ({0})")]
    Setup(#[source] io::Error),
}

/// Wakes a parked world from another thread.
#[derive(Clone)]
pub(crate) struct Alarm(Arc<OwnedFd>);

impl Alarm {
    pub(crate) fn ring(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: `one` is 8 readable bytes and the descriptor is open. A full counter can't
        // happen (it would take 2^64 - 1 rings), so the result carries no news.
        unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }
}

/// What an operation owns while the kernel works on it.
enum Payload {
    Nothing,
    Read(ReadBufs),
    Write(WriteBufs),
    Receive(BufMut),
    /// What completes is a new descriptor.
    Accept,
}

/// The lists of an operation over several buffers; they must not move until it is submitted.
#[derive(Default)]
struct Vectors {
    _parts: Option<Box<[libc::iovec]>>,
    _message: Option<Box<libc::msghdr>>,
}

struct InFlight {
    payload: Payload,
    _vectors: Vectors,
    _file: Rc<Registered>,
    state: State,
}

impl Drop for InFlight {
    /// A connection that was accepted after its caller had given up belongs to nobody.
    fn drop(&mut self) {
        if let (Payload::Accept, State::Done(descriptor @ 0..)) = (&self.payload, &self.state) {
            // SAFETY: the kernel made it for this operation, and nobody else has seen it.
            drop(unsafe { OwnedFd::from_raw_fd(*descriptor) });
        }
    }
}

enum State {
    Waiting(Option<Waker>),
    Done(i32),
    /// The caller is gone; the buffers wait here for the kernel.
    Abandoned,
}

struct Inner {
    uring: IoUring,
    operations: Slab<InFlight>,
    /// Entries that did not fit the submission queue, oldest first.
    backlog: VecDeque<Entry>,
    alarm: Arc<OwnedFd>,
    /// When the timer in the kernel fires, if there is one.
    timer_ns: Option<u64>,
    /// Read by the kernel when the timer's entry is submitted, so it must not move.
    timer_from_now: Box<types::Timespec>,
    files: Option<Vec<u32>>,
    /// Empty between turns; kept for its memory.
    woken: Vec<Waker>,
    _pool: Pool,
}

/// A handle to the world's ring.
#[derive(Clone)]
pub struct Ring(Rc<RefCell<Inner>>);

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_flight = self.0.borrow().operations.len();
        f.debug_struct("Ring").field("in_flight", &in_flight).finish()
    }
}

struct Registered {
    file: OwnedFd,
    slot: Option<u32>,
    ring: Ring,
}

impl Drop for Registered {
    fn drop(&mut self) {
        if let Some(slot) = self.slot
            && let Ok(mut inner) = self.ring.0.try_borrow_mut()
        {
            // The slot is only reused once the kernel has confirmed that it is empty.
            if inner.uring.submitter().register_files_update(slot, &[-1]).is_ok()
                && let Some(free) = &mut inner.files
            {
                free.push(slot);
            }
        }
    }
}

/// A file the ring operates on, registered with the kernel where there is room.
#[derive(Clone)]
pub struct FixedFile(Rc<Registered>);

impl FixedFile {
    /// The descriptor, for calls that io_uring has no operation for.
    #[must_use]
    pub fn as_raw_fd(&self) -> RawFd {
        self.0.file.as_raw_fd()
    }
}

impl AsFd for FixedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.file.as_fd()
    }
}

impl fmt::Debug for FixedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FixedFile({})", self.as_raw_fd())
    }
}

macro_rules! entry_for {
    ($file:expr, $fd:ident => $build:expr) => {
        match $file.0.slot {
            Some(slot) => {
                let $fd = types::Fixed(slot);
                $build
            }
            None => {
                let $fd = types::Fd($file.as_raw_fd());
                $build
            }
        }
    };
}

impl Ring {
    pub(crate) fn new(config: RingConfig, pool: &Pool) -> Result<Ring, RingError> {
        let uring = build(config.entries).map_err(RingError::Unavailable)?;
        // SAFETY: eventfd takes no pointers; the descriptor it returns is ours alone.
        let alarm = unsafe {
            let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            if fd < 0 {
                return Err(RingError::Setup(io::Error::last_os_error()));
            }
            OwnedFd::from_raw_fd(fd)
        };
        if let Some((start, bytes)) = pool.arena() {
            let arena = [libc::iovec { iov_base: start.cast(), iov_len: bytes }];
            // SAFETY: the arena lives as long as the pool, which `Inner` keeps alive until after
            // the ring is closed. Refused where the locked-memory limit is too small: then buffers
            // are simply passed by address.
            if unsafe { uring.submitter().register_buffers(&arena) }.is_ok() {
                pool.set_registered();
            }
        }
        let files = uring.submitter().register_files_sparse(FIXED_FILES).is_ok();
        let ring = Ring(Rc::new(RefCell::new(Inner {
            uring,
            operations: Slab::new(),
            backlog: VecDeque::new(),
            alarm: Arc::new(alarm),
            timer_ns: None,
            timer_from_now: Box::default(),
            files: files.then(|| (0..FIXED_FILES).rev().collect()),
            woken: Vec::new(),
            _pool: pool.clone(),
        })));
        ring.0.borrow_mut().arm_alarm();
        Ok(ring)
    }

    pub(crate) fn alarm(&self) -> Alarm {
        Alarm(Arc::clone(&self.0.borrow().alarm))
    }

    /// Takes a file in, and registers it with the kernel where there is room.
    #[must_use]
    pub fn adopt(&self, file: OwnedFd) -> FixedFile {
        let mut inner = self.0.borrow_mut();
        let slot = inner.files.as_mut().and_then(Vec::pop);
        let slot = slot.filter(|&slot| {
            inner.uring.submitter().register_files_update(slot, &[file.as_raw_fd()]).is_ok()
        });
        FixedFile(Rc::new(Registered { file, slot, ring: self.clone() }))
    }

    /// Reads from `offset` into `buffers`, in order, and gives them back with the count of bytes
    /// read, which may be short.
    pub fn read(
        &self,
        file: &FixedFile,
        offset: u64,
        mut buffers: ReadBufs,
    ) -> impl Future<Output = (ReadBufs, io::Result<usize>)> + use<> {
        let (entry, vectors) = if let [only] = buffers.as_mut_slice() {
            let (start, len) = (only.as_mut_ptr(), only.len().min(OP_BYTES_MAX) as u32);
            let entry = if only.registered() {
                entry_for!(file, fd => opcode::ReadFixed::new(fd, start, len, ARENA_INDEX).offset(offset).build())
            } else {
                entry_for!(file, fd => opcode::Read::new(fd, start, len).offset(offset).build())
            };
            (entry, Vectors::default())
        } else {
            let parts = parts_of(buffers.iter_mut().map(|b| (b.as_mut_ptr(), b.len())));
            let (start, count) = (parts.as_ptr(), parts.len() as u32);
            let entry =
                entry_for!(file, fd => opcode::Readv::new(fd, start, count).offset(offset).build());
            (entry, Vectors { _parts: Some(parts), _message: None })
        };
        let operation = self.start(entry, Payload::Read(buffers), vectors, file);
        async move {
            let (payload, result) = operation.await;
            let Payload::Read(buffers) = payload else {
                unreachable!("a read gets its buffers back")
            };
            (buffers, result)
        }
    }

    /// Writes `buffers`, in order, from `offset` on; the count may be short. With `durable` the
    /// data is on stable storage when it completes (RWF_DSYNC).
    pub fn write(
        &self,
        file: &FixedFile,
        offset: u64,
        buffers: WriteBufs,
        durable: bool,
    ) -> impl Future<Output = (WriteBufs, io::Result<usize>)> + use<> {
        let flags = if durable { libc::RWF_DSYNC } else { 0 };
        let (entry, vectors) = if let [only] = buffers.as_slice() {
            let (start, len) = (only.as_ptr(), only.len().min(OP_BYTES_MAX) as u32);
            let entry = if only.registered() {
                entry_for!(file, fd => opcode::WriteFixed::new(fd, start, len, ARENA_INDEX)
                    .offset(offset).rw_flags(flags).build())
            } else {
                entry_for!(file, fd => opcode::Write::new(fd, start, len)
                    .offset(offset).rw_flags(flags).build())
            };
            (entry, Vectors::default())
        } else {
            let parts = parts_of(buffers.iter().map(|b| (b.as_ptr().cast_mut(), b.len())));
            let (start, count) = (parts.as_ptr(), parts.len() as u32);
            let entry = entry_for!(file, fd => opcode::Writev::new(fd, start, count)
                .offset(offset).rw_flags(flags).build());
            (entry, Vectors { _parts: Some(parts), _message: None })
        };
        let operation = self.start(entry, Payload::Write(buffers), vectors, file);
        async move {
            let (payload, result) = operation.await;
            let Payload::Write(buffers) = payload else {
                unreachable!("a write gets its buffers back")
            };
            (buffers, result)
        }
    }

    /// Makes the file's data durable (fdatasync).
    ///
    /// # Errors
    /// The kernel's; after one, nothing is known about what was written since the last success.
    pub async fn sync(&self, file: &FixedFile) -> io::Result<()> {
        let entry = entry_for!(file, fd => opcode::Fsync::new(fd)
            .flags(types::FsyncFlags::DATASYNC).build());
        let operation = self.start(entry, Payload::Nothing, Vectors::default(), file);
        operation.await.1.map(|_| ())
    }

    /// fallocate(2) with `mode` on `bytes` from `offset` on.
    ///
    /// # Errors
    /// The kernel's: EOPNOTSUPP where the file system or device can't do it.
    pub async fn allocate(
        &self,
        file: &FixedFile,
        mode: i32,
        offset: u64,
        bytes: u64,
    ) -> io::Result<()> {
        let entry = entry_for!(file, fd => opcode::Fallocate::new(fd, bytes)
            .offset(offset).mode(mode).build());
        let operation = self.start(entry, Payload::Nothing, Vectors::default(), file);
        operation.await.1.map(|_| ())
    }

    /// Waits for a connection on a listening socket.
    ///
    /// # Errors
    /// The kernel's, as from accept4(2).
    pub async fn accept(&self, listener: &FixedFile) -> io::Result<OwnedFd> {
        let entry = entry_for!(listener, fd => opcode::Accept::new(
            fd, std::ptr::null_mut(), std::ptr::null_mut()).flags(libc::SOCK_CLOEXEC).build());
        let operation = self.start(entry, Payload::Accept, Vectors::default(), listener);
        // SAFETY: a successful accept gives a new descriptor that nobody else knows.
        operation.await.1.map(|fd| unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
    }

    /// Receives into `buffer`; 0 bytes mean the peer has closed. With `all`, it completes when the
    /// buffer is full or the peer has closed.
    pub async fn receive(
        &self,
        socket: &FixedFile,
        mut buffer: BufMut,
        all: bool,
    ) -> (BufMut, io::Result<usize>) {
        let (start, len) = (buffer.as_mut_ptr(), buffer.len().min(OP_BYTES_MAX) as u32);
        let flags = if all { libc::MSG_WAITALL } else { 0 };
        let entry =
            entry_for!(socket, fd => opcode::Recv::new(fd, start, len).flags(flags).build());
        let payload = Payload::Receive(buffer);
        let (payload, result) = self.start(entry, payload, Vectors::default(), socket).await;
        let Payload::Receive(buffer) = payload else {
            unreachable!("a receive gets its buffer back")
        };
        (buffer, result)
    }

    /// Sends `buffers` in order as one message; all of them, unless the connection fails.
    pub async fn send(&self, socket: &FixedFile, buffers: WriteBufs) -> io::Result<usize> {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let (entry, vectors) = if let [only] = buffers.as_slice() {
            let (start, len) = (only.as_ptr(), only.len().min(OP_BYTES_MAX) as u32);
            let entry =
                entry_for!(socket, fd => opcode::Send::new(fd, start, len).flags(flags).build());
            (entry, Vectors::default())
        } else {
            let mut parts = parts_of(buffers.iter().map(|b| (b.as_ptr().cast_mut(), b.len())));
            // SAFETY: msghdr is plain data for which all zeroes means "nothing given".
            let mut message: Box<libc::msghdr> = Box::new(unsafe { std::mem::zeroed() });
            message.msg_iov = parts.as_mut_ptr();
            message.msg_iovlen = parts.len() as _;
            let start = std::ptr::from_mut(message.as_mut());
            let entry = entry_for!(socket, fd => opcode::SendMsg::new(fd, start)
                .flags(flags as u32).build());
            (entry, Vectors { _parts: Some(parts), _message: Some(message) })
        };
        self.start(entry, Payload::Write(buffers), vectors, socket).await.1
    }

    /// Queues an entry, and gives the future of its completion.
    fn start(
        &self,
        entry: Entry,
        payload: Payload,
        _vectors: Vectors,
        file: &FixedFile,
    ) -> Operation {
        let _file = Rc::clone(&file.0);
        let mut inner = self.0.borrow_mut();
        let key = inner.operations.insert(InFlight {
            payload,
            _vectors,
            _file,
            state: State::Waiting(None),
        });
        inner.queue(entry.user_data(key as u64));
        Operation { ring: self.clone(), key: Some(key) }
    }

    /// Submits what is queued; waits for a completion if `wait`.
    pub(crate) fn submit(&self, wait: bool) {
        let limit = if wait { None } else { Some(Duration::ZERO) };
        self.0.borrow_mut().submit(limit);
    }

    /// Whether a wait ends at `deadline_ns` at the latest as it is.
    pub(crate) fn wakes_by(&self, deadline_ns: u64) -> bool {
        self.0.borrow().timer_ns.is_some_and(|armed_ns| armed_ns <= deadline_ns)
    }

    /// Ends a wait at `deadline_ns`, which is earlier than any so far. The timer stays in the
    /// kernel over many waits: deadlines come much more rarely than completions, and a limit given
    /// with each wait would set the processor's timer every time. It is only ever moved forward,
    /// so a deadline that was given up ends one wait for nothing.
    pub(crate) fn wake_at(&self, deadline_ns: u64, now_ns: u64) {
        let mut inner = self.0.borrow_mut();
        let armed = inner.timer_ns.replace(deadline_ns);
        let from_now = Duration::from_nanos(deadline_ns.saturating_sub(now_ns));
        *inner.timer_from_now = types::Timespec::from(from_now);
        let from_now = std::ptr::from_ref(&*inner.timer_from_now);
        let entry = if armed.is_some() {
            // Finds nothing if the timer fires just now; its completion then has it armed anew.
            opcode::TimeoutUpdate::new(TIMER_KEY, from_now).build().user_data(IGNORED_KEY)
        } else {
            opcode::Timeout::new(from_now).build().user_data(TIMER_KEY)
        };
        inner.queue(entry);
    }

    /// Takes the completions there are and wakes whoever they are for.
    pub(crate) fn complete(&self) {
        let mut inner = self.0.borrow_mut();
        let mut woken = std::mem::take(&mut inner.woken);
        let released = inner.reap(&mut woken);
        drop(inner);
        // Dropping a file of an operation takes the ring again, so only now.
        drop(released);
        for waker in woken.drain(..) {
            waker.wake();
        }
        self.0.borrow_mut().woken = woken;
    }

    /// Cancels what is in flight and waits for the kernel to let go of every buffer.
    pub(crate) fn drain(&self) {
        let mut inner = self.0.borrow_mut();
        let cancel = opcode::AsyncCancel2::new(types::CancelBuilder::any()).build();
        inner.queue(cancel.user_data(IGNORED_KEY));
        drop(inner);
        let start = Instant::now();
        // What has ended and was not awaited yet holds nothing of the kernel's.
        let under_way = |operation: &InFlight| !matches!(operation.state, State::Done(_));
        while self.0.borrow().operations.iter().any(|(_, operation)| under_way(operation)) {
            if start.elapsed() > DRAIN_LIMIT {
                // The kernel may still write into these buffers: losing them is the safe way out.
                std::mem::forget(std::mem::take(&mut self.0.borrow_mut().operations));
                return;
            }
            self.0.borrow_mut().submit(Some(Duration::from_millis(50)));
            self.complete();
        }
    }
}

impl Inner {
    fn queue(&mut self, entry: Entry) {
        if !self.backlog.is_empty() || !self.push(&entry) {
            self.backlog.push_back(entry);
        } else if self.uring.submission().len() >= BATCH_ENTRIES {
            self.enter(Some(Duration::ZERO));
        }
    }

    /// Whether the submission queue had room.
    fn push(&mut self, entry: &Entry) -> bool {
        // SAFETY: whatever memory the entry names is owned by its `InFlight` (or static), which
        // stays in `operations` until the completion has been seen.
        unsafe { self.uring.submission().push(entry) }.is_ok()
    }

    fn arm_alarm(&mut self) {
        let alarm = types::Fd(self.alarm.as_raw_fd());
        let entry = opcode::PollAdd::new(alarm, libc::POLLIN as u32).build();
        self.queue(entry.user_data(ALARM_KEY));
    }

    fn submit(&mut self, limit: Option<Duration>) {
        while let Some(entry) = self.backlog.front().cloned() {
            if self.uring.submission().is_full() {
                self.enter(Some(Duration::ZERO));
            }
            if !self.push(&entry) {
                break;
            }
            self.backlog.pop_front();
        }
        // With a backlog left over, completions must be taken first; don't wait for more.
        let limit = if self.backlog.is_empty() { limit } else { Some(Duration::ZERO) };
        self.enter(limit);
    }

    fn enter(&mut self, limit: Option<Duration>) {
        let submitter = self.uring.submitter();
        let result = match limit {
            None => submitter.submit_and_wait(1),
            Some(Duration::ZERO) => submitter.submit(),
            Some(limit) => {
                let time = types::Timespec::from(limit);
                submitter.submit_with_args(1, &types::SubmitArgs::new().timespec(&time))
            }
        };
        if let Err(error) = result {
            let expected = [libc::ETIME, libc::EINTR, libc::EAGAIN, libc::EBUSY];
            let code = error.raw_os_error().unwrap_or_default();
            assert!(expected.contains(&code), "io_uring_enter failed: {error}");
        }
    }

    /// Takes every completion there is; gives what abandoned operations owned.
    fn reap(&mut self, woken: &mut Vec<Waker>) -> Vec<InFlight> {
        let mut released = Vec::new();
        let mut alarmed = false;
        for completion in self.uring.completion() {
            match completion.user_data() {
                // A cancelled poll means that this world ends.
                ALARM_KEY => alarmed = completion.result() >= 0,
                TIMER_KEY => self.timer_ns = None,
                IGNORED_KEY => {}
                key => {
                    let key = key as usize;
                    let operation = &mut self.operations[key];
                    match std::mem::replace(&mut operation.state, State::Done(completion.result()))
                    {
                        State::Waiting(waker) => woken.extend(waker),
                        State::Abandoned => released.push(self.operations.remove(key)),
                        State::Done(_) => unreachable!("an operation completes once"),
                    }
                }
            }
        }
        if alarmed {
            let mut count = [0u8; 8];
            // SAFETY: 8 writable bytes; the descriptor does not block.
            unsafe { libc::read(self.alarm.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
            self.arm_alarm();
        }
        released
    }
}

/// One operation's completion: gives back what it owned, with the kernel's result.
struct Operation {
    ring: Ring,
    key: Option<usize>,
}

impl Future for Operation {
    type Output = (Payload, io::Result<usize>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let key = self.key.expect("polled after it was ready");
        let mut inner = self.ring.0.borrow_mut();
        let operation = &mut inner.operations[key];
        if let State::Done(result) = operation.state {
            let mut done = inner.operations.remove(key);
            drop(inner);
            self.key = None;
            let payload = std::mem::replace(&mut done.payload, Payload::Nothing);
            let result = usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
            return Poll::Ready((payload, result));
        }
        match &mut operation.state {
            State::Waiting(Some(waker)) => waker.clone_from(context.waker()),
            state => *state = State::Waiting(Some(context.waker().clone())),
        }
        Poll::Pending
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        let Some(key) = self.key else { return };
        let mut inner = self.ring.0.borrow_mut();
        if matches!(inner.operations[key].state, State::Done(_)) {
            let done = inner.operations.remove(key);
            drop(inner);
            drop(done);
        } else {
            inner.operations[key].state = State::Abandoned;
        }
    }
}

fn parts_of(buffers: impl Iterator<Item = (*mut u8, usize)>) -> Box<[libc::iovec]> {
    buffers.map(|(start, len)| libc::iovec { iov_base: start.cast(), iov_len: len }).collect()
}

fn build(entries: u32) -> io::Result<IoUring> {
    // Completions are only looked at when this thread enters the kernel anyway, so let the kernel
    // defer their work to that moment (Linux 6.1); older kernels get a plain ring.
    IoUring::builder()
        .setup_cqsize(entries * 4)
        .setup_single_issuer()
        .setup_coop_taskrun()
        .setup_taskrun_flag()
        .setup_defer_taskrun()
        .build(entries)
        .or_else(|_| IoUring::builder().setup_cqsize(entries * 4).build(entries))
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::World;

    fn scratch() -> OwnedFd {
        tempfile::tempfile().unwrap().into()
    }

    #[test]
    fn reads_give_back_what_writes_stored() {
        let world = World::real(RingConfig { entries: 4, arena_bytes: 1 << 20 }).unwrap();
        let ring = world.ring().unwrap();
        let file = ring.adopt(scratch());
        let pool = world.pool();
        world.block_on(async {
            // More operations than the submission queue has entries, of one and of two buffers.
            let writes = (0..40u64).map(|number| {
                let first = pool.copy_of(&[number as u8; 100]);
                let second = pool.copy_of(&[number as u8 + 100; 28]);
                let buffers = if number % 2 == 0 {
                    WriteBufs::from_vec(vec![first, second])
                } else {
                    WriteBufs::from_vec(vec![pool.copy_of(&[&first[..], &second[..]].concat())])
                };
                ring.write(&file, number * 128, buffers, number % 7 == 0)
            });
            for (_, result) in crate::join_all(writes).await {
                assert_eq!(result.unwrap(), 128);
            }
            ring.sync(&file).await.unwrap();
            let buffers = ReadBufs::from_vec(vec![pool.take(1000), pool.take(40 * 128)]);
            let (buffers, result) = ring.read(&file, 0, buffers).await;
            assert_eq!(result.unwrap(), 40 * 128, "short at the end of the file");
            let all = [&buffers[0][..], &buffers[1][..]].concat();
            for number in 0..40 {
                let record = &all[number * 128..][..128];
                assert!(record[..100].iter().all(|&byte| byte == number as u8));
                assert!(record[100..].iter().all(|&byte| byte == number as u8 + 100));
            }
        });
    }

    #[test]
    fn dropped_operations_keep_their_buffers_until_the_kernel_is_done() {
        let world = World::real(RingConfig::default()).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let ring = world.ring().unwrap().clone();
        let socket = ring.adopt(OwnedFd::from(ours));
        let limit = Duration::from_millis(1);
        world.block_on(async {
            let receive = ring.receive(&socket, world.pool().take(16), false);
            assert!(world.within(limit, "a message", receive).await.is_err());
        });
        assert_eq!(ring.0.borrow().operations.len(), 1);
        drop(world);
        assert_eq!(ring.0.borrow().operations.len(), 0, "the end of the world waits for it");
        drop(theirs);
    }

    #[test]
    fn a_connection_nobody_waits_for_any_more_is_closed() {
        let world = World::real(RingConfig::default()).unwrap();
        let ring = world.ring().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let listener = ring.adopt(socket.into());
        let limit = Duration::from_millis(1);
        world.block_on(async {
            let accept = ring.accept(&listener);
            assert!(world.within(limit, "a connection", accept).await.is_err());
            let ours = ring.adopt(UnixStream::connect(&path).unwrap().into());
            let (_, result) = ring.receive(&ours, world.pool().take(8), false).await;
            assert_eq!(result.unwrap(), 0, "the other end is closed");
        });
    }

    #[test]
    fn what_has_ended_unheard_holds_nothing_up() {
        let world = World::real(RingConfig::default()).unwrap();
        let ring = world.ring().unwrap().clone();
        let file = ring.adopt(scratch());
        let mut held =
            Box::pin(ring.read(&file, 0, ReadBufs::from_vec(vec![world.pool().take(8)])));
        world.block_on(ring.sync(&file)).unwrap();
        let ended = || {
            let inner = ring.0.borrow();
            inner.operations.iter().any(|(_, operation)| matches!(operation.state, State::Done(_)))
        };
        while !ended() {
            world.block_on(ring.sync(&file)).unwrap();
        }
        drop(world);
        let mut context = Context::from_waker(Waker::noop());
        assert!(held.as_mut().poll(&mut context).is_ready(), "it was given up for lost");
    }

    #[test]
    fn only_other_threads_ring_the_alarm() {
        let world = World::real(RingConfig::default()).unwrap();
        let ring = world.ring().unwrap();
        let file = ring.adopt(scratch());
        world.block_on(ring.sync(&file)).unwrap();
        let mut alarm = std::fs::File::from(ring.0.borrow().alarm.try_clone().unwrap());
        let silent = std::io::Read::read(&mut alarm, &mut [0; 8]).unwrap_err();
        assert_eq!(silent.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn the_timer_outlasts_waits_and_moves_to_an_earlier_deadline() {
        let world = World::real(RingConfig::default()).unwrap();
        let ring = world.ring().unwrap();
        let file = ring.adopt(scratch());
        let armed_ns = || ring.0.borrow().timer_ns;
        let hour_ns = world.now_ns() + 3_600_000_000_000;
        let mut hour = std::pin::pin!(world.sleep_until_ns(hour_ns));
        world.block_on(crate::race(ring.sync(&file), &mut hour)).unwrap().unwrap();
        assert_eq!(armed_ns(), Some(hour_ns));
        let millisecond = world.sleep(Duration::from_millis(1));
        assert!(world.block_on(crate::race(millisecond, hour)).is_ok());
        assert_eq!(armed_ns(), None);
    }

    #[test]
    fn messages_go_both_ways_and_an_end_is_seen() {
        let world = World::real(RingConfig::default()).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let ring = world.ring().unwrap();
        let (ours, theirs) = (ring.adopt(ours.into()), ring.adopt(theirs.into()));
        let pool = world.pool();
        world.block_on(async {
            let message = WriteBufs::from_vec(vec![pool.copy_of(b"head"), pool.copy_of(b"data")]);
            assert_eq!(ring.send(&ours, message).await.unwrap(), 8);
            let (buffer, result) = ring.receive(&theirs, pool.take(8), true).await;
            assert_eq!((result.unwrap(), &buffer[..]), (8, &b"headdata"[..]));
            drop(theirs);
            let (_, result) = ring.receive(&ours, pool.take(8), false).await;
            assert_eq!(result.unwrap(), 0);
        });
    }
}
