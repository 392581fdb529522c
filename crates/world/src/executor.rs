//! Tasks, wakers and the loop that runs them, the same in both worlds.
//!
//! One thread, one queue. A woken task goes to the queue once, however often it is woken; when the
//! queue is empty the world parks: in the kernel (real) or by jumping the clock (virtual). In the
//! virtual world the seed also picks which of the woken tasks runs next, so that a run explores an
//! interleaving that another seed would not, and repeats it exactly.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::buffer::Pool;
use crate::clock::{monotonic_ns, thread_ns};
use crate::random::SplitMix64;
use crate::ring::{Alarm, Ring, RingConfig, RingError};
use crate::timer::{Sleep, Timers};

/// How many tasks run before the ring is looked at again, so that a busy task can't starve I/O.
const POLLS_PER_TURN: usize = 64;

/// The key of the future that `block_on` was given.
const MAIN: usize = usize::MAX;

type LocalFuture = Pin<Box<dyn Future<Output = ()>>>;

/// Tasks woken from elsewhere than the world that runs them: from another thread, or while it does
/// not run. The one thing another thread may touch.
struct Ready {
    queue: Mutex<VecDeque<Arc<TaskWaker>>>,
    parked: AtomicBool,
    alarm: Option<Alarm>,
}

/// The world that runs on this thread, and its woken tasks. Nearly every wake comes from the
/// thread itself, and needs no lock here.
struct Running {
    /// Whose; compared, never followed.
    ready: Cell<*const Ready>,
    queue: RefCell<VecDeque<Arc<TaskWaker>>>,
}

thread_local! {
    static RUNNING: Running = const {
        Running { ready: Cell::new(std::ptr::null()), queue: RefCell::new(VecDeque::new()) }
    };
}

/// While it lives, its world runs on this thread.
struct Run<'a> {
    ready: &'a Arc<Ready>,
    /// The world that waits meanwhile, if one ran already.
    before: (*const Ready, VecDeque<Arc<TaskWaker>>),
}

impl<'a> Run<'a> {
    fn begin(ready: &'a Arc<Ready>) -> Self {
        RUNNING.with(|running| {
            let queue = running.queue.replace(ready.take());
            let before = (running.ready.replace(Arc::as_ptr(ready)), queue);
            Run { ready, before }
        })
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        let (ready, queue) =
            std::mem::replace(&mut self.before, (std::ptr::null(), VecDeque::new()));
        RUNNING.with(|running| {
            running.ready.set(ready);
            let left = running.queue.replace(queue);
            self.ready.lock().extend(left);
        });
    }
}

impl Ready {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<TaskWaker>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> VecDeque<Arc<TaskWaker>> {
        std::mem::take(&mut *self.lock())
    }
}

struct TaskWaker {
    key: usize,
    queued: AtomicBool,
    ready: Arc<Ready>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.queue();
        }
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            Arc::clone(self).queue();
        }
    }
}

impl TaskWaker {
    fn queue(self: Arc<Self>) {
        let mut woken = Some(self);
        // Fails where the thread is about to end: then no world runs on it any more.
        let _ = RUNNING.try_with(|running| {
            let here = |woken: &mut Arc<Self>| running.ready.get() == Arc::as_ptr(&woken.ready);
            running.queue.borrow_mut().extend(woken.take_if(here));
        });
        let Some(woken) = woken else { return };
        let ready = Arc::clone(&woken.ready);
        ready.lock().push_back(woken);
        if ready.parked.load(Ordering::SeqCst)
            && let Some(alarm) = &ready.alarm
        {
            alarm.ring();
        }
    }
}

enum Slot {
    Free,
    /// Being polled: its future is on the stack of the loop.
    Running,
    Waiting(LocalFuture),
}

struct TaskSlot {
    slot: Slot,
    waker: Arc<TaskWaker>,
}

#[derive(Default)]
struct Tasks {
    slots: Vec<TaskSlot>,
    free: Vec<usize>,
}

enum Time {
    Real { start_ns: u64 },
    Virtual { now_ns: Cell<u64>, random: RefCell<SplitMix64> },
}

struct Inner {
    tasks: RefCell<Tasks>,
    timers: RefCell<Timers>,
    ready: Arc<Ready>,
    time: Time,
    ring: Option<Ring>,
    pool: Pool,
}

/// A handle to one world; clones are the same world.
#[derive(Clone)]
pub struct World(Rc<Inner>);

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.0.ring.is_some() { "real" } else { "virtual" };
        f.debug_struct("World").field("kind", &kind).field("now_ns", &self.now_ns()).finish()
    }
}

/// A wait that outlasted its limit; it names what it waited for.
#[derive(Debug, thiserror::Error, Clone, PartialEq, Eq)]
#[error("waited {limit:?} for {what}")]
pub struct TimedOut {
    /// What was waited for.
    pub what: &'static str,
    /// How long.
    pub limit: Duration,
}

impl World {
    /// The real world: io_uring and the real clock.
    ///
    /// # Errors
    /// When the kernel has no io_uring or refuses it.
    pub fn real(config: RingConfig) -> Result<World, RingError> {
        let pool = Pool::new(config.arena_bytes);
        let ring = Ring::new(config, &pool)?;
        let alarm = Some(ring.alarm());
        let time = Time::Real { start_ns: monotonic_ns() };
        Ok(Self::assemble(time, Some(ring), alarm, pool))
    }

    /// The virtual world: time jumps, and `seed` orders what is simultaneous.
    #[must_use]
    pub fn virtual_time(seed: u64) -> World {
        let random = RefCell::new(SplitMix64::new(seed));
        Self::assemble(Time::Virtual { now_ns: Cell::new(0), random }, None, None, Pool::new(0))
    }

    fn assemble(time: Time, ring: Option<Ring>, alarm: Option<Alarm>, pool: Pool) -> World {
        let ready = Arc::new(Ready {
            queue: Mutex::new(VecDeque::new()),
            parked: AtomicBool::new(false),
            alarm,
        });
        World(Rc::new(Inner {
            tasks: RefCell::new(Tasks::default()),
            timers: RefCell::new(Timers::default()),
            ready,
            time,
            ring,
            pool,
        }))
    }

    /// Nanoseconds since this world began.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        match &self.0.time {
            Time::Real { start_ns } => monotonic_ns() - start_ns,
            Time::Virtual { now_ns, .. } => now_ns.get(),
        }
    }

    /// Nanoseconds of processor time that this world's thread has had. In virtual time computing
    /// takes none.
    #[must_use]
    pub fn processor_ns(&self) -> u64 {
        match &self.0.time {
            Time::Real { .. } => thread_ns(),
            Time::Virtual { .. } => 0,
        }
    }

    /// The pool whose buffers this world's ring knows.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.0.pool
    }

    /// The ring, in the real world. For drives and targets only: whoever else asks for it would
    /// behave differently in virtual time.
    #[must_use]
    pub fn ring(&self) -> Option<&Ring> {
        self.0.ring.as_ref()
    }

    /// Completes `duration` from now.
    #[must_use]
    pub fn sleep(&self, duration: Duration) -> Sleep {
        self.sleep_until_ns(self.now_ns().saturating_add(duration.as_nanos() as u64))
    }

    /// Completes when the clock reaches `deadline_ns`.
    #[must_use]
    pub fn sleep_until_ns(&self, deadline_ns: u64) -> Sleep {
        Sleep::until(self.clone(), deadline_ns)
    }

    /// What `future` gives, unless it takes longer than `limit`; then it is dropped.
    ///
    /// # Errors
    /// [`TimedOut`] with `what`, when the limit passes first.
    pub async fn within<F: Future>(
        &self,
        limit: Duration,
        what: &'static str,
        future: F,
    ) -> Result<F::Output, TimedOut> {
        match crate::join::race(future, self.sleep(limit)).await {
            Ok(output) => Ok(output),
            Err(()) => Err(TimedOut { what, limit }),
        }
    }

    /// Lets every other woken task run first.
    pub async fn yield_now(&self) {
        let mut yielded = false;
        std::future::poll_fn(|context| {
            if yielded {
                return Poll::Ready(());
            }
            yielded = true;
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// Starts a task. It runs until it ends, whether or not anybody awaits the handle.
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Task<T> {
        let shared = Rc::new(Shared { result: RefCell::new(None), waiter: RefCell::new(None) });
        let writer = Rc::clone(&shared);
        let body = async move {
            let result = future.await;
            *writer.result.borrow_mut() = Some(result);
            if let Some(waiter) = writer.waiter.borrow_mut().take() {
                waiter.wake();
            }
        };
        let waker = self.insert(Box::pin(body));
        waker.wake();
        Task(shared)
    }

    fn insert(&self, future: LocalFuture) -> Arc<TaskWaker> {
        let mut tasks = self.0.tasks.borrow_mut();
        let key = tasks.free.pop().unwrap_or(tasks.slots.len());
        let waker = self.waker_for(key);
        let slot = TaskSlot { slot: Slot::Waiting(future), waker: Arc::clone(&waker) };
        if key == tasks.slots.len() {
            tasks.slots.push(slot);
        } else {
            tasks.slots[key] = slot;
        }
        waker
    }

    fn waker_for(&self, key: usize) -> Arc<TaskWaker> {
        let ready = Arc::clone(&self.0.ready);
        Arc::new(TaskWaker { key, queued: AtomicBool::new(false), ready })
    }

    /// Runs `future` and every spawned task until `future` ends.
    ///
    /// # Panics
    /// In virtual time, when everything waits and nothing is due: that is a wait without a
    /// time-out, which only a fault in the program can cause.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let main = self.waker_for(MAIN);
        let waker = Waker::from(Arc::clone(&main));
        let _run = Run::begin(&self.0.ready);
        main.wake();
        loop {
            for _ in 0..POLLS_PER_TURN {
                let Some(woken) = self.next_ready() else { break };
                // A wake from here on queues it again; one before has done what the poll will see.
                woken.queued.swap(false, Ordering::AcqRel);
                if woken.key == MAIN {
                    // A waker that outlived an earlier `block_on` may still be queued.
                    if let Poll::Ready(output) =
                        future.as_mut().poll(&mut Context::from_waker(&waker))
                    {
                        return output;
                    }
                } else {
                    self.poll_task(woken);
                }
            }
            self.turn();
        }
    }

    /// Ends this world: drops every task, wherever it stands, and waits until the kernel holds no
    /// buffer of theirs. Tasks usually hold a handle to their world, so without this a world with
    /// waiting tasks would keep itself alive.
    pub fn end(self) {
        self.0.end();
    }

    fn next_ready(&self) -> Option<Arc<TaskWaker>> {
        RUNNING.with(|running| {
            let mut queue = running.queue.borrow_mut();
            match &self.0.time {
                Time::Virtual { random, .. } if queue.len() > 1 => {
                    let index = random.borrow_mut().below(queue.len() as u64) as usize;
                    queue.swap_remove_back(index)
                }
                _ => queue.pop_front(),
            }
        })
    }

    fn poll_task(&self, woken: Arc<TaskWaker>) {
        let mut tasks = self.0.tasks.borrow_mut();
        let key = woken.key;
        let Some(task) = tasks.slots.get_mut(key) else { return };
        // A waker kept after its task ended must not run the slot's next tenant.
        if !Arc::ptr_eq(&task.waker, &woken) {
            return;
        }
        let Slot::Waiting(mut future) = std::mem::replace(&mut task.slot, Slot::Running) else {
            return;
        };
        drop(tasks);
        let waker = Waker::from(woken);
        let done = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        let mut tasks = self.0.tasks.borrow_mut();
        if done {
            tasks.slots[key].slot = Slot::Free;
            tasks.free.push(key);
            drop(tasks);
            drop(future);
        } else {
            tasks.slots[key].slot = Slot::Waiting(future);
        }
    }

    /// Between turns: timers that are due, and completions; waits for one if nothing is ready.
    fn turn(&self) {
        let idle = RUNNING.with(|running| {
            let mut queue = running.queue.borrow_mut();
            queue.append(&mut self.0.ready.lock());
            queue.is_empty()
        });
        match (&self.0.time, &self.0.ring) {
            (Time::Virtual { now_ns, .. }, _) => {
                if !idle {
                    return;
                }
                let next = self.0.timers.borrow_mut().next_ns();
                let next = next.expect("everything waits and nothing is due: a wait has no end");
                now_ns.set(now_ns.get().max(next));
            }
            (Time::Real { .. }, Some(ring)) => {
                let wait = idle && self.arm_timer(ring);
                self.0.ready.parked.store(true, Ordering::SeqCst);
                // A wake from another thread between the check and the store is seen here.
                ring.submit(wait && self.0.ready.lock().is_empty());
                // Before completions wake tasks: a wake from this thread needs no alarm.
                self.0.ready.parked.store(false, Ordering::SeqCst);
                ring.complete();
            }
            (Time::Real { .. }, None) => unreachable!("the real world has a ring"),
        }
        let now_ns = self.now_ns();
        loop {
            let due = self.0.timers.borrow_mut().pop_due(now_ns);
            let Some(waker) = due else { break };
            waker.wake();
        }
    }

    /// Sees to it that a wait ends with the next deadline; false if that has come already.
    fn arm_timer(&self, ring: &Ring) -> bool {
        let Some(next_ns) = self.0.timers.borrow_mut().next_ns() else { return true };
        if ring.wakes_by(next_ns) {
            return true;
        }
        let now_ns = self.now_ns();
        let later = next_ns > now_ns;
        if later {
            ring.wake_at(next_ns, now_ns);
        }
        later
    }

    pub(crate) fn with_timers<T>(&self, act: impl FnOnce(&mut Timers) -> T) -> T {
        act(&mut self.0.timers.borrow_mut())
    }

    /// Orders timers with the same deadline: by the seed in virtual time, by age in the real one.
    pub(crate) fn tie_break(&self) -> u64 {
        match &self.0.time {
            Time::Real { .. } => 0,
            Time::Virtual { random, .. } => random.borrow_mut().next_u64(),
        }
    }
}

impl Inner {
    fn end(&self) {
        // Tasks may own operations in flight; they go before the ring waits for those.
        let tasks = self.tasks.take();
        drop(tasks);
        if let Some(ring) = &self.ring {
            ring.drain();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.end();
    }
}

struct Shared<T> {
    result: RefCell<Option<T>>,
    waiter: RefCell<Option<Waker>>,
}

/// The handle of a spawned task: awaiting it gives the task's result.
pub struct Task<T>(Rc<Shared<T>>);

impl<T> Task<T> {
    /// Whether the task has ended and its result was not taken yet.
    #[must_use]
    pub fn finished(&self) -> bool {
        self.0.result.borrow().is_some()
    }
}

impl<T> Future for Task<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match self.0.result.borrow_mut().take() {
            Some(result) => Poll::Ready(result),
            None => {
                *self.0.waiter.borrow_mut() = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order_for(seed: u64) -> Vec<u32> {
        let world = World::virtual_time(seed);
        let order = Rc::new(RefCell::new(Vec::new()));
        let tasks: Vec<_> = (0..8)
            .map(|number| {
                let (clock, order) = (world.clone(), Rc::clone(&order));
                world.spawn(async move {
                    clock.sleep(Duration::from_millis(5)).await;
                    order.borrow_mut().push(number);
                })
            })
            .collect();
        world.block_on(async {
            for task in tasks {
                task.await;
            }
        });
        assert_eq!(world.now_ns(), 5_000_000);
        order.take()
    }

    #[test]
    fn the_seed_decides_the_order_of_the_simultaneous() {
        assert_eq!(order_for(1), order_for(1));
        assert!((2..20).any(|seed| order_for(seed) != order_for(1)));
    }

    #[test]
    fn virtual_time_jumps_a_year() {
        let world = World::virtual_time(0);
        let year = Duration::from_secs(365 * 86400);
        world.block_on(world.sleep(year));
        assert_eq!(world.now_ns(), year.as_nanos() as u64);
    }

    #[test]
    fn a_wait_has_a_limit_and_names_itself() {
        let world = World::virtual_time(0);
        let limit = Duration::from_secs(1);
        let error = world.block_on(world.within(limit, "a drive", std::future::pending::<()>()));
        assert_eq!(error.unwrap_err().to_string(), "waited 1s for a drive");
        assert_eq!(world.block_on(world.within(limit, "nothing", async { 7 })), Ok(7));
    }

    #[test]
    #[should_panic(expected = "nothing is due")]
    fn a_wait_without_end_is_a_fault() {
        World::virtual_time(0).block_on(std::future::pending::<()>());
    }

    #[test]
    fn another_thread_can_wake_the_real_world() {
        let world = World::real(RingConfig::default()).unwrap();
        let flag = Arc::new(AtomicBool::new(false));
        let mut started = false;
        world.block_on(std::future::poll_fn(|context| {
            if flag.load(Ordering::SeqCst) {
                return Poll::Ready(());
            }
            if !std::mem::replace(&mut started, true) {
                let (waker, flag) = (context.waker().clone(), Arc::clone(&flag));
                std::thread::spawn(move || {
                    flag.store(true, Ordering::SeqCst);
                    waker.wake();
                });
            }
            Poll::Pending
        }));
    }
}
