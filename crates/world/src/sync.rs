//! Waiting for each other within one thread: a counter of permits, a signal, and a gate.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Wakes whoever waits. A wait begun before [`Notify::notify_all`] ends with it; nothing is
/// remembered for later waits.
#[derive(Default)]
pub struct Notify {
    round: Cell<u64>,
    waiters: RefCell<Vec<Waker>>,
}

impl Notify {
    /// Ends every wait that has begun.
    pub fn notify_all(&self) {
        self.round.set(self.round.get() + 1);
        for waker in self.waiters.take() {
            waker.wake();
        }
    }

    /// Waits for the next [`Notify::notify_all`], counted from this call.
    pub fn wait(&self) -> impl Future<Output = ()> + '_ {
        let round = self.round.get();
        std::future::poll_fn(move |context| {
            if self.round.get() != round {
                return Poll::Ready(());
            }
            let mut waiters = self.waiters.borrow_mut();
            if !waiters.iter().any(|waiter| waiter.will_wake(context.waker())) {
                waiters.push(context.waker().clone());
            }
            Poll::Pending
        })
    }
}

struct Waiting {
    amount: usize,
    granted: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// Permits handed out in the order they were asked for, so that a large request can't be starved
/// by small ones.
pub struct Semaphore {
    free: Cell<usize>,
    queue: RefCell<VecDeque<Rc<Waiting>>>,
}

impl Semaphore {
    /// A semaphore with `permits` to hand out.
    #[must_use]
    pub fn new(permits: usize) -> Self {
        Semaphore { free: Cell::new(permits), queue: RefCell::default() }
    }

    /// Waits for `amount` permits; they return when the [`Permit`] is dropped.
    pub fn acquire(self: &Rc<Self>, amount: usize) -> impl Future<Output = Permit> + use<> {
        Acquire { semaphore: Rc::clone(self), amount, waiting: None }
    }

    /// `amount` permits now, if they are free and nobody waits for some.
    pub fn try_acquire(self: &Rc<Self>, amount: usize) -> Option<Permit> {
        let left = self.free.get().checked_sub(amount)?;
        if !self.queue.borrow().is_empty() {
            return None;
        }
        self.free.set(left);
        Some(Permit { semaphore: Rc::clone(self), amount })
    }

    fn grant(&self) {
        let mut queue = self.queue.borrow_mut();
        while let Some(first) = queue.front() {
            if first.amount > self.free.get() {
                break;
            }
            self.free.set(self.free.get() - first.amount);
            first.granted.set(true);
            if let Some(waker) = first.waker.borrow_mut().take() {
                waker.wake();
            }
            queue.pop_front();
        }
    }
}

struct Acquire {
    semaphore: Rc<Semaphore>,
    amount: usize,
    waiting: Option<Rc<Waiting>>,
}

impl Future for Acquire {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Permit> {
        if self.waiting.is_none() {
            let waiting = Rc::new(Waiting {
                amount: self.amount,
                granted: Cell::new(false),
                waker: RefCell::new(None),
            });
            self.semaphore.queue.borrow_mut().push_back(Rc::clone(&waiting));
            self.waiting = Some(waiting);
            self.semaphore.grant();
        }
        let waiting = self.waiting.as_ref().expect("queued above");
        if waiting.granted.get() {
            self.waiting = None;
            let semaphore = Rc::clone(&self.semaphore);
            return Poll::Ready(Permit { semaphore, amount: self.amount });
        }
        *waiting.waker.borrow_mut() = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        let Some(waiting) = self.waiting.take() else { return };
        if waiting.granted.get() {
            self.semaphore.free.set(self.semaphore.free.get() + self.amount);
        } else {
            let mut queue = self.semaphore.queue.borrow_mut();
            queue.retain(|other| !Rc::ptr_eq(other, &waiting));
        }
        self.semaphore.grant();
    }
}

/// Permits held; they return on drop.
pub struct Permit {
    semaphore: Rc<Semaphore>,
    amount: usize,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.semaphore.free.set(self.semaphore.free.get() + self.amount);
        self.semaphore.grant();
    }
}

/// A count of what is in progress that somebody can wait to reach zero.
#[derive(Default)]
pub struct Gate {
    inside: Cell<usize>,
    empty: Notify,
}

impl Gate {
    /// One more in progress.
    pub fn enter(&self) {
        self.inside.set(self.inside.get() + 1);
    }

    /// One less in progress.
    pub fn leave(&self) {
        let inside = self.inside.get().checked_sub(1).expect("leaves are paired with enters");
        self.inside.set(inside);
        if inside == 0 {
            self.empty.notify_all();
        }
    }

    /// How many are in progress.
    #[must_use]
    pub fn inside(&self) -> usize {
        self.inside.get()
    }

    /// Waits until nothing is in progress.
    pub async fn drained(&self) {
        while self.inside.get() > 0 {
            self.empty.wait().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::World;

    #[test]
    fn permits_go_out_in_order_and_come_back() {
        let world = World::virtual_time(9);
        let semaphore = Rc::new(Semaphore::new(3));
        let order = Rc::new(RefCell::new(Vec::new()));
        world.block_on(async {
            let held = semaphore.acquire(3).await;
            let mut large = Box::pin(semaphore.acquire(3));
            let mut small = Box::pin(semaphore.acquire(1));
            assert!(semaphore.try_acquire(1).is_none(), "nothing is left");
            let limit = Duration::from_millis(1);
            assert!(world.within(limit, "large", &mut large).await.is_err());
            assert!(world.within(limit, "small", &mut small).await.is_err());
            drop(held);
            order.borrow_mut().push("large");
            let permit = large.await;
            assert!(world.within(limit, "small", &mut small).await.is_err(), "nothing is left");
            drop(permit);
            drop(small.await);
            // A wait given up while granted returns its permits.
            drop(semaphore.acquire(3));
            drop(semaphore.try_acquire(3).unwrap());
            drop(semaphore.acquire(3).await);
        });
    }

    #[test]
    fn a_gate_waits_for_the_last_to_leave() {
        let world = World::virtual_time(0);
        let gate = Rc::new(Gate::default());
        for ms in [1, 5, 3] {
            gate.enter();
            let (clock, gate) = (world.clone(), Rc::clone(&gate));
            world.spawn(async move {
                clock.sleep(Duration::from_millis(ms)).await;
                gate.leave();
            });
        }
        world.block_on(gate.drained());
        assert_eq!((world.now_ns(), gate.inside()), (5_000_000, 0));
    }
}
