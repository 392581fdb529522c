//! Replies on their way to the peer: whatever is ready goes out in one send.
//!
//! The heads of a batch are gathered in one buffer; data goes out from where the drive put it.
//! A batch is bounded, so that each send that ends is progress that can be seen.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::task::Poll;

use smallvec::SmallVec;
use world::{Buf, Pool, WriteBufs};

use super::limits::Admitted;
use crate::nbd::reply::Head;

/// Bytes of data in one send: even a slow line moves them well within a stall limit, and what the
/// drive has just put there is still in the processor's cache when it is sent.
const SEND_BYTES_MAX: usize = 256 << 10;
/// Bytes of heads in one send, one slot of the pool: some 150 replies, each with two buffers at
/// most, which is well below the 1024 that the kernel takes at once.
const HEADS_BYTES_MAX: usize = 4096;

/// A reply that waits.
struct Waiting {
    /// `None` once it was sent, and a rest of the data was not.
    head: Option<Head>,
    data: Option<Buf>,
    admitted: Admitted,
}

/// The replies of one connection.
pub(super) struct Outbox {
    waiting: RefCell<VecDeque<Waiting>>,
    /// Bytes of data that wait.
    waiting_bytes: Cell<usize>,
    /// A send is under way.
    pub(super) sending: Cell<bool>,
    /// Nothing comes any more.
    pub(super) closed: Cell<bool>,
    /// Nobody reads any more: replies are dropped.
    pub(super) broken: Cell<bool>,
}

/// What goes out in one send.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) buffers: WriteBufs,
    /// Released once it is sent.
    admitted: Vec<Admitted>,
    parts: Vec<(Range<usize>, Option<Buf>)>,
}

impl Batch {
    /// Releases what its requests held.
    pub(super) fn sent(&mut self) {
        self.admitted.clear();
    }
}

impl Outbox {
    pub(super) fn new() -> Self {
        Outbox {
            waiting: RefCell::default(),
            waiting_bytes: Cell::new(0),
            sending: Cell::new(false),
            closed: Cell::new(false),
            broken: Cell::new(false),
        }
    }

    /// Adds a reply.
    pub(super) fn push(&self, head: Head, data: Option<Buf>, admitted: Admitted) {
        if !self.broken.get() {
            let bytes = data.as_ref().map_or(0, |data| data.len());
            self.waiting_bytes.set(self.waiting_bytes.get() + bytes);
            self.waiting.borrow_mut().push_back(Waiting { head: Some(head), data, admitted });
        }
    }

    /// Drops every reply, from now on.
    pub(super) fn give_up(&self) {
        self.broken.set(true);
        self.waiting.borrow_mut().clear();
        self.waiting_bytes.set(0);
    }

    /// Nothing waits and nothing is under way.
    pub(super) fn idle(&self) -> bool {
        !self.sending.get() && self.waiting.borrow().is_empty()
    }

    /// Whether a whole send is waiting: more had better not be started before some of it has gone.
    pub(super) fn full(&self) -> bool {
        self.waiting_bytes.get() >= SEND_BYTES_MAX
    }

    /// Waits until it is not full. It registers no waker, as [`Outbox::filled`].
    pub(super) fn room(&self) -> impl Future<Output = ()> + '_ {
        std::future::poll_fn(|_| if self.full() { Poll::Pending } else { Poll::Ready(()) })
    }

    /// Waits for a reply (`true`) or the end. It registers no waker: whoever pushes is polled by
    /// the task that polls this, and before it.
    pub(super) fn filled(&self) -> impl Future<Output = bool> + '_ {
        std::future::poll_fn(|_| {
            let filled = !self.waiting.borrow().is_empty();
            if filled || self.closed.get() { Poll::Ready(filled) } else { Poll::Pending }
        })
    }

    /// Takes replies into `batch`, in order; returns the bytes.
    pub(super) fn take(&self, pool: &Pool, batch: &mut Batch) -> usize {
        let mut waiting = self.waiting.borrow_mut();
        let mut heads = pool.take(HEADS_BYTES_MAX);
        let (mut heads_end, mut data_bytes) = (0, 0);
        while let Some(mut reply) = waiting.pop_front() {
            let head = reply.head.as_ref().map_or(&[][..], Head::as_bytes);
            if heads_end + head.len() > HEADS_BYTES_MAX || data_bytes == SEND_BYTES_MAX {
                waiting.push_front(reply);
                break;
            }
            let head = heads_end..heads_end + head.len();
            if let Some(bytes) = reply.head.take() {
                heads[head.clone()].copy_from_slice(bytes.as_bytes());
            }
            heads_end = head.end;
            let room = SEND_BYTES_MAX - data_bytes;
            match reply.data.take() {
                Some(data) if data.len() > room => {
                    batch.parts.push((head, Some(data.slice(0, room))));
                    reply.data = Some(data.slice(room, data.len() - room));
                    waiting.push_front(reply);
                    data_bytes = SEND_BYTES_MAX;
                    break;
                }
                data => {
                    data_bytes += data.as_ref().map_or(0, |data| data.len());
                    batch.parts.push((head, data));
                    batch.admitted.push(reply.admitted);
                }
            }
        }
        self.waiting_bytes.set(self.waiting_bytes.get() - data_bytes);
        batch.buffers = arrange(&heads.freeze(), &mut batch.parts);
        heads_end + data_bytes
    }
}

/// The buffers in their order; heads without data between them are one buffer.
fn arrange(heads: &Buf, parts: &mut Vec<(Range<usize>, Option<Buf>)>) -> WriteBufs {
    let mut buffers: WriteBufs = SmallVec::new();
    let mut open = 0..0;
    for (head, data) in parts.drain(..) {
        open.end = head.end;
        if let Some(data) = data {
            if !open.is_empty() {
                buffers.push(heads.slice(open.start, open.len()));
            }
            open.start = open.end;
            buffers.push(data);
        }
    }
    if !open.is_empty() {
        buffers.push(heads.slice(open.start, open.len()));
    }
    buffers
}
