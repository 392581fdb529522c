//! The operations of one connection that did not end at once.
//!
//! They borrow the drive, so they live inside the connection's task instead of in tasks of their
//! own. Each has its own waker: a completion polls the one it is for, not all of them.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use slab::Slab;

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Futures that are polled each by its own waker. All of it belongs to one thread; the locks are
/// there because wakers may not, and are never contended.
pub(super) struct Operations<'a, T> {
    running: RefCell<Slab<Running<'a, T>>>,
    woken: Arc<Woken>,
}

struct Running<'a, T> {
    /// `None` while it is polled.
    future: Option<Boxed<'a, T>>,
    waker: Arc<Signal>,
}

#[derive(Default)]
struct Woken {
    keys: Mutex<Vec<usize>>,
    parent: Mutex<Option<Waker>>,
}

/// The waker of one operation. A waker kept for too long wakes the next operation with its key,
/// which is harmless.
struct Signal {
    key: usize,
    queued: AtomicBool,
    woken: Arc<Woken>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        lock(&self.woken.keys).push(self.key);
        let parent = lock(&self.woken.parent).clone();
        if let Some(parent) = parent {
            parent.wake();
        }
    }
}

impl<'a, T> Operations<'a, T> {
    pub(super) fn new() -> Self {
        Operations { running: RefCell::new(Slab::new()), woken: Arc::default() }
    }

    /// Takes a future in; the next [`Operations::poll`] starts it.
    pub(super) fn add(&self, future: Boxed<'a, T>) {
        let mut running = self.running.borrow_mut();
        let entry = running.vacant_entry();
        let key = entry.key();
        let woken = Arc::clone(&self.woken);
        let waker = Arc::new(Signal { key, queued: AtomicBool::new(true), woken });
        entry.insert(Running { future: Some(future), waker });
        lock(&self.woken.keys).push(key);
    }

    pub(super) fn len(&self) -> usize {
        self.running.borrow().len()
    }

    /// Polls whoever was woken, and gives each output to `ended`. The task of `context` is woken
    /// when it has to be called again.
    pub(super) fn poll(&self, context: &mut Context<'_>, mut ended: impl FnMut(T)) {
        if self.running.borrow().is_empty() {
            return;
        }
        {
            let mut parent = lock(&self.woken.parent);
            match &mut *parent {
                Some(waker) => waker.clone_from(context.waker()),
                none => *none = Some(context.waker().clone()),
            }
        }
        let keys = std::mem::take(&mut *lock(&self.woken.keys));
        for key in keys {
            let taken = self.running.borrow_mut().get_mut(key).and_then(|running| {
                running.waker.queued.store(false, Ordering::Release);
                Some((running.future.take()?, Arc::clone(&running.waker)))
            });
            let Some((mut future, waker)) = taken else { continue };
            let waker = Waker::from(waker);
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(output) => {
                    drop(self.running.borrow_mut().remove(key));
                    ended(output);
                }
                Poll::Pending => self.running.borrow_mut()[key].future = Some(future),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use world::World;

    #[test]
    fn outputs_come_in_the_order_of_completion_and_only_the_woken_is_polled() {
        let world = World::virtual_time(5);
        let polls = RefCell::new(0);
        let operations = Operations::new();
        for ms in [30, 10, 20] {
            let sleep = world.sleep(Duration::from_millis(ms));
            let mut sleep = Box::pin(sleep);
            let polls = &polls;
            operations.add(Box::pin(std::future::poll_fn(move |context| {
                *polls.borrow_mut() += 1;
                sleep.as_mut().poll(context).map(|()| ms)
            })));
        }
        let mut order = Vec::new();
        world.block_on(std::future::poll_fn(|context| {
            operations.poll(context, |ms| order.push(ms));
            if operations.len() == 0 { Poll::Ready(()) } else { Poll::Pending }
        }));
        assert_eq!(order, [10, 20, 30]);
        assert_eq!(polls.take(), 6);
    }
}
