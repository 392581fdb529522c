//! Range locks: who may touch which stripes (or, for mirrors, which bytes) right now.
//!
//! Shared holders may overlap each other, an exclusive one overlaps nobody. Requests are granted in
//! the order of arrival as far as they overlap, so nobody is starved and a task that holds one
//! range while it waits for nothing else can't be part of a deadlock: each request of the engine
//! takes exactly one range.
//!
//! A plain list: what is in flight is bounded by the queue depth, and comparing a few dozen ranges
//! costs less than keeping a tree.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// How a range is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Shared,
    Exclusive,
}

struct Claim {
    range: Range<u64>,
    mode: Mode,
    granted: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Claim {
    fn conflicts(&self, other: &Claim) -> bool {
        let overlap = self.range.start < other.range.end && other.range.start < self.range.end;
        overlap && (self.mode == Mode::Exclusive || other.mode == Mode::Exclusive)
    }
}

/// The ranges held and waited for. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct RangeLocks(Rc<Table>);

#[derive(Default)]
struct Table {
    held: RefCell<Vec<Rc<Claim>>>,
    waiting: RefCell<VecDeque<Rc<Claim>>>,
}

impl RangeLocks {
    /// Waits until `range` is free for `mode`; it is held until the lock is dropped.
    pub(crate) fn lock(&self, range: Range<u64>, mode: Mode) -> Acquire {
        let granted = Cell::new(false);
        let claim = Rc::new(Claim { range, mode, granted, waker: RefCell::new(None) });
        Acquire { locks: self.clone(), claim: Some(claim), queued: false }
    }

    fn admit(&self, claim: &Rc<Claim>) -> bool {
        let held = self.0.held.borrow();
        let waiting = self.0.waiting.borrow();
        // An earlier waiter it overlaps goes first; later ones stand behind it in the queue.
        let earlier = waiting.iter().take_while(|other| !Rc::ptr_eq(other, claim));
        !held.iter().chain(earlier).any(|other| other.conflicts(claim))
    }

    fn hold(&self, claim: Rc<Claim>) {
        claim.granted.set(true);
        self.0.held.borrow_mut().push(claim);
    }

    fn release(&self, claim: &Rc<Claim>) {
        self.0.held.borrow_mut().retain(|other| !Rc::ptr_eq(other, claim));
        self.grant_waiting();
    }

    fn grant_waiting(&self) {
        let mut index = 0;
        loop {
            let claim = self.0.waiting.borrow().get(index).cloned();
            let Some(claim) = claim else { break };
            if self.admit(&claim) {
                self.0.waiting.borrow_mut().remove(index);
                let waker = claim.waker.borrow_mut().take();
                self.hold(claim);
                if let Some(waker) = waker {
                    waker.wake();
                }
            } else {
                index += 1;
            }
        }
    }
}

/// Waits for a range.
pub(crate) struct Acquire {
    locks: RangeLocks,
    claim: Option<Rc<Claim>>,
    queued: bool,
}

impl Future for Acquire {
    type Output = Lock;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Lock> {
        let claim = self.claim.clone().expect("polled after it was ready");
        if !self.queued && self.locks.admit(&claim) {
            self.locks.hold(Rc::clone(&claim));
        }
        if claim.granted.get() {
            self.claim = None;
            return Poll::Ready(Lock { locks: self.locks.clone(), claim });
        }
        *claim.waker.borrow_mut() = Some(context.waker().clone());
        if !self.queued {
            self.queued = true;
            self.locks.0.waiting.borrow_mut().push_back(claim);
        }
        Poll::Pending
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        let Some(claim) = self.claim.take() else { return };
        if claim.granted.get() {
            self.locks.release(&claim);
        } else if self.queued {
            self.locks.0.waiting.borrow_mut().retain(|other| !Rc::ptr_eq(other, &claim));
            self.locks.grant_waiting();
        }
    }
}

/// A held range; dropping it lets the next in.
pub(crate) struct Lock {
    locks: RangeLocks,
    claim: Rc<Claim>,
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.locks.release(&self.claim);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use world::World;

    use super::*;

    #[test]
    fn overlapping_claims_are_served_in_order() {
        let world = World::virtual_time(1);
        let locks = RangeLocks::default();
        let limit = Duration::from_millis(1);
        world.block_on(async {
            let first = locks.lock(0..10, Mode::Exclusive).await;
            let _far = locks.lock(20..30, Mode::Exclusive).await;
            let mut wide = Box::pin(locks.lock(5..25, Mode::Exclusive));
            assert!(world.within(limit, "wide", &mut wide).await.is_err());
            // Free by itself, but it overlaps a waiter that came first.
            let mut late = Box::pin(locks.lock(12..15, Mode::Shared));
            assert!(world.within(limit, "late", &mut late).await.is_err());
            // A waiter that gives up lets those behind it in.
            drop(wide);
            let late = late.await;
            let beside = locks.lock(14..16, Mode::Shared).await;
            drop((first, late, beside));
            drop(locks.lock(0..20, Mode::Exclusive).await);
        });
        assert!(locks.0.waiting.borrow().is_empty());
    }
}
