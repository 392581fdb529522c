//! What is due when: a heap of deadlines, each with the waker of its sleeper.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::executor::World;

/// One sleeper, shared between its future and the heap.
struct Sleeper {
    waker: RefCell<Option<Waker>>,
}

/// Ordered by deadline, then by the seed's tie-break, then by age.
struct Entry {
    key: (u64, u64, u64),
    sleeper: Rc<Sleeper>,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

#[derive(Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<Entry>>,
    added: u64,
}

impl Timers {
    fn add(&mut self, deadline_ns: u64, tie: u64) -> Rc<Sleeper> {
        let sleeper = Rc::new(Sleeper { waker: RefCell::new(None) });
        self.added += 1;
        let key = (deadline_ns, tie, self.added);
        self.heap.push(Reverse(Entry { key, sleeper: Rc::clone(&sleeper) }));
        sleeper
    }

    /// The earliest deadline somebody still waits for; sleepers that were dropped are forgotten.
    pub(crate) fn next_ns(&mut self) -> Option<u64> {
        while let Some(Reverse(entry)) = self.heap.peek() {
            if Rc::strong_count(&entry.sleeper) > 1 {
                return Some(entry.key.0);
            }
            self.heap.pop();
        }
        None
    }

    /// Takes one sleeper whose deadline has come.
    pub(crate) fn pop_due(&mut self, now_ns: u64) -> Option<Waker> {
        while self.next_ns().is_some_and(|deadline| deadline <= now_ns) {
            let Reverse(entry) = self.heap.pop()?;
            if let Some(waker) = entry.sleeper.waker.borrow_mut().take() {
                return Some(waker);
            }
        }
        None
    }
}

/// Completes once the world's clock has reached its deadline.
pub struct Sleep {
    world: World,
    deadline_ns: u64,
    sleeper: Option<Rc<Sleeper>>,
}

impl Sleep {
    pub(crate) fn until(world: World, deadline_ns: u64) -> Self {
        Sleep { world, deadline_ns, sleeper: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.world.now_ns() >= self.deadline_ns {
            self.sleeper = None;
            return Poll::Ready(());
        }
        if self.sleeper.is_none() {
            let tie = self.world.tie_break();
            let deadline_ns = self.deadline_ns;
            self.sleeper = Some(self.world.with_timers(|timers| timers.add(deadline_ns, tie)));
        }
        if let Some(sleeper) = &self.sleeper {
            *sleeper.waker.borrow_mut() = Some(context.waker().clone());
        }
        Poll::Pending
    }
}
