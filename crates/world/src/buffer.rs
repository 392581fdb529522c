//! Buffers for I/O: aligned, pooled, and owned by whoever may touch them.
//!
//! A [`BufMut`] is the only owner of its bytes; a [`Buf`] shares bytes that nobody may change any
//! more. Both are windows into a pooled slot, and the slot goes back to its pool with the last
//! window on it. A `BufMut` splits into disjoint `BufMut`s, so one client buffer can be filled by
//! several drives at once without a copy. An operation in flight holds its buffers, so the kernel
//! never writes into memory that somebody else can see.
//!
//! Slots are carved from one arena, which the ring registers with the kernel once; what does not
//! fit any more comes from the heap and works the same, only unregistered. Memory follows the
//! load: an allocation never waits and never fails short of the machine's memory, so whoever
//! admits work bounds it at the door.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::rc::{Rc, Weak};

use smallvec::SmallVec;

/// Every slot starts at a multiple of this: the strictest alignment direct I/O asks for.
pub const SLOT_ALIGN_BYTES: usize = 4096;

/// Slots are powers of two from 4 KiB; larger requests than the last class get their own slot.
const CLASS_BYTES_MIN: usize = 4096;
const CLASS_BYTES_MAX: usize = 4 << 20;
const CLASSES: usize = (CLASS_BYTES_MAX / CLASS_BYTES_MIN).ilog2() as usize + 1;

/// Free heap slots kept for reuse, in bytes over all classes; beyond it they go back to the heap.
const HEAP_FREE_BYTES_MAX: usize = 32 << 20;

/// Buffers that one read fills, in order.
pub type ReadBufs = SmallVec<[BufMut; 2]>;
/// Buffers that one write stores, in order.
pub type WriteBufs = SmallVec<[Buf; 2]>;

/// A zeroed allocation, aligned to [`SLOT_ALIGN_BYTES`].
struct Memory {
    start: NonNull<u8>,
    layout: Layout,
}

impl Memory {
    fn new(bytes: usize) -> Self {
        let layout = Layout::from_size_align(bytes.max(SLOT_ALIGN_BYTES), SLOT_ALIGN_BYTES)
            .expect("a buffer is far smaller than the address space");
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        Memory { start, layout }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this very layout and freed only here.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// One slot: memory of its own, or a part of the arena (which it then keeps alive).
struct Slot {
    start: NonNull<u8>,
    bytes: usize,
    registered: bool,
    pool: Weak<PoolInner>,
    _memory: Rc<Memory>,
}

struct PoolInner {
    arena: Option<Rc<Memory>>,
    carved_bytes: Cell<usize>,
    registered: Cell<bool>,
    free: [RefCell<Vec<Rc<Slot>>>; CLASSES],
    heap_free_bytes: Cell<usize>,
}

/// Where buffers come from. Clones share one pool; a pool belongs to one thread.
#[derive(Clone)]
pub struct Pool(Rc<PoolInner>);

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("carved_bytes", &self.0.carved_bytes.get()).finish()
    }
}

fn class_of(bytes: usize) -> usize {
    let slot = bytes.max(CLASS_BYTES_MIN).next_power_of_two();
    (slot / CLASS_BYTES_MIN).ilog2() as usize
}

impl Pool {
    /// A pool whose arena has `arena_bytes` (0: every slot comes from the heap).
    #[must_use]
    pub fn new(arena_bytes: usize) -> Self {
        Pool(Rc::new(PoolInner {
            arena: (arena_bytes > 0).then(|| Rc::new(Memory::new(arena_bytes))),
            carved_bytes: Cell::new(0),
            registered: Cell::new(false),
            free: std::array::from_fn(|_| RefCell::new(Vec::new())),
            heap_free_bytes: Cell::new(0),
        }))
    }

    /// The arena's place and size, for registering it with the kernel.
    pub(crate) fn arena(&self) -> Option<(*mut u8, usize)> {
        self.0.arena.as_ref().map(|memory| (memory.start.as_ptr(), memory.layout.size()))
    }

    /// From now on slots carved from the arena may be named by their registration.
    pub(crate) fn set_registered(&self) {
        self.0.registered.set(true);
    }

    /// A buffer of `bytes`, aligned to [`SLOT_ALIGN_BYTES`]. Its content is whatever was there
    /// before: zero in fresh memory, an earlier operation's bytes in a reused slot.
    #[must_use]
    pub fn take(&self, bytes: usize) -> BufMut {
        let class = class_of(bytes);
        let slot = match self.0.free.get(class).and_then(|free| free.borrow_mut().pop()) {
            Some(slot) => {
                if !slot.registered {
                    self.0.heap_free_bytes.set(self.0.heap_free_bytes.get() - slot.bytes);
                }
                slot
            }
            None => Rc::new(self.carve(bytes.max(CLASS_BYTES_MIN).next_power_of_two())),
        };
        BufMut(Window { slot: Some(slot), start: 0, len: bytes })
    }

    /// A buffer of `bytes` zero bytes.
    #[must_use]
    pub fn take_zeroed(&self, bytes: usize) -> BufMut {
        let mut buffer = self.take(bytes);
        buffer.fill(0);
        buffer
    }

    /// A shared buffer with a copy of `bytes`.
    #[must_use]
    pub fn copy_of(&self, bytes: &[u8]) -> Buf {
        let mut buffer = self.take(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer.freeze()
    }

    fn carve(&self, slot_bytes: usize) -> Slot {
        let pool = Rc::downgrade(&self.0);
        let carved = self.0.carved_bytes.get();
        if let Some(arena) = &self.0.arena
            && slot_bytes <= CLASS_BYTES_MAX
            && carved + slot_bytes <= arena.layout.size()
            && self.0.registered.get()
        {
            self.0.carved_bytes.set(carved + slot_bytes);
            // SAFETY: `carved + slot_bytes` is within the arena's allocation.
            let start = unsafe { arena.start.add(carved) };
            let _memory = Rc::clone(arena);
            return Slot { start, bytes: slot_bytes, registered: true, pool, _memory };
        }
        let memory = Rc::new(Memory::new(slot_bytes));
        Slot { start: memory.start, bytes: slot_bytes, registered: false, pool, _memory: memory }
    }
}

impl PoolInner {
    fn give_back(&self, slot: Rc<Slot>) {
        let Some(free) = self.free.get(class_of(slot.bytes)) else { return };
        if !slot.registered {
            let bytes = self.heap_free_bytes.get() + slot.bytes;
            if bytes > HEAP_FREE_BYTES_MAX {
                return;
            }
            self.heap_free_bytes.set(bytes);
        }
        free.borrow_mut().push(slot);
    }
}

/// A range of a slot. The slot is only `None` while its window is being dropped.
struct Window {
    slot: Option<Rc<Slot>>,
    start: usize,
    len: usize,
}

impl Window {
    fn slot(&self) -> &Rc<Slot> {
        self.slot.as_ref().expect("a window has its slot until it is dropped")
    }

    fn pointer(&self) -> *mut u8 {
        // SAFETY: `start` is within the slot's allocation.
        unsafe { self.slot().start.add(self.start).as_ptr() }
    }

    fn part(&self, start: usize, len: usize) -> Window {
        assert!(start <= self.len && len <= self.len - start, "a part lies within its buffer");
        Window { slot: self.slot.clone(), start: self.start + start, len }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let Some(slot) = self.slot.take() else { return };
        if Rc::strong_count(&slot) == 1
            && let Some(pool) = slot.pool.upgrade()
        {
            pool.give_back(slot);
        }
    }
}

/// Bytes that only this handle may touch.
pub struct BufMut(Window);

/// Bytes that any number of handles may read and none may change.
pub struct Buf(Window);

impl BufMut {
    /// Keeps the first `at` bytes here and returns the rest.
    #[must_use]
    pub fn split_off(&mut self, at: usize) -> BufMut {
        assert!(at <= self.0.len, "a buffer is split within itself");
        let rest = self.0.part(at, self.0.len - at);
        self.0.len = at;
        BufMut(rest)
    }

    /// Keeps all but the first `at` bytes here and returns those.
    #[must_use]
    pub fn split_to(&mut self, at: usize) -> BufMut {
        let rest = self.split_off(at);
        std::mem::replace(self, rest)
    }

    /// Joins the buffer that follows this one in the same slot back on; gives `next` back where
    /// it is not that one.
    ///
    /// # Errors
    /// `next` unchanged, when it does not start where this buffer ends.
    pub fn unsplit(&mut self, next: BufMut) -> Result<(), BufMut> {
        if Rc::ptr_eq(self.0.slot(), next.0.slot()) && self.0.start + self.0.len == next.0.start {
            self.0.len += next.0.len;
            return Ok(());
        }
        Err(next)
    }

    /// Shares the bytes: from here on nobody changes them.
    #[must_use]
    pub fn freeze(self) -> Buf {
        Buf(self.0.part(0, self.0.len))
    }

    /// Whether the kernel knows this memory by its registration.
    pub(crate) fn registered(&self) -> bool {
        self.0.slot().registered
    }
}

impl Buf {
    /// The bytes from `start`, `len` of them, sharing the same memory.
    #[must_use]
    pub fn slice(&self, start: usize, len: usize) -> Buf {
        Buf(self.0.part(start, len))
    }

    /// Whether the kernel knows this memory by its registration.
    pub(crate) fn registered(&self) -> bool {
        self.0.slot().registered
    }
}

impl Clone for Buf {
    fn clone(&self) -> Self {
        self.slice(0, self.0.len)
    }
}

impl Deref for BufMut {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the window lies within its slot, which is initialised (zeroed when made) and
        // alive; no other window that can write overlaps it.
        unsafe { std::slice::from_raw_parts(self.0.pointer(), self.0.len) }
    }
}

impl DerefMut for BufMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; windows of `BufMut`s are disjoint by construction (`take` gives
        // out a whole free slot, `split_off` divides) and `&mut self` excludes this one's readers.
        unsafe { std::slice::from_raw_parts_mut(self.0.pointer(), self.0.len) }
    }
}

impl Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: as for `BufMut::deref`; a frozen range has no writing window any more.
        unsafe { std::slice::from_raw_parts(self.0.pointer(), self.0.len) }
    }
}

impl fmt::Debug for BufMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BufMut({} bytes)", self.0.len)
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({} bytes)", self.0.len)
    }
}

/// The bytes in a list of buffers.
#[must_use]
pub fn total_bytes<B: Deref<Target = [u8]>>(buffers: &[B]) -> u64 {
    buffers.iter().map(|buffer| buffer.len() as u64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_disjoint_and_join_again() {
        let pool = Pool::new(0);
        let mut whole = pool.take_zeroed(8192);
        let mut second = whole.split_off(4096);
        whole.fill(1);
        second.fill(2);
        let mut third = second.split_off(100);
        third[0] = 3;
        assert!(whole.unsplit(third).is_err_and(|third| third[0] == 3 && third.len() == 3996));
        assert_eq!((whole.len(), second.len()), (4096, 100));
        whole.unsplit(second).unwrap();
        assert_eq!((whole[4095], whole[4096], whole.len()), (1, 2, 4196));
        let first = whole.split_to(4096);
        assert!(first.iter().all(|&byte| byte == 1) && whole.iter().all(|&byte| byte == 2));
    }

    #[test]
    fn a_slot_returns_with_its_last_window() {
        let pool = Pool::new(0);
        let mut first = pool.take(5000);
        let place = first.as_ptr();
        let rest = first.split_off(1000);
        drop(first);
        assert_ne!(pool.take(5000).as_ptr(), place, "a part is still held");
        let shared = rest.freeze();
        let copy = shared.clone();
        drop(shared);
        drop(copy);
        let again: Vec<BufMut> = (0..2).map(|_| pool.take(8192)).collect();
        assert!(again.iter().any(|buffer| buffer.as_ptr() == place));
    }

    #[test]
    fn every_size_is_aligned_and_the_pool_may_go_first() {
        let pool = Pool::new(1 << 20);
        pool.set_registered();
        let sizes = [0, 1, 511, 4096, 4097, 1 << 19, 1 << 20, 5 << 20, 9 << 20];
        let buffers: Vec<BufMut> = sizes.iter().map(|&bytes| pool.take(bytes)).collect();
        drop(pool);
        for (buffer, bytes) in buffers.iter().zip(sizes) {
            assert_eq!(buffer.len(), bytes);
            assert_eq!(buffer.as_ptr() as usize % SLOT_ALIGN_BYTES, 0);
        }
        assert!(buffers[3].registered() && !buffers[8].registered());
    }
}
