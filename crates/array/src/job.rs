//! Background passes over the array: one driver for all of them.
//!
//! A [`Pass`] knows what to do with one window; the driver knows the rest: several windows are
//! under way at once, so that the next is read while the last is written and the slowest drive is
//! never without work; the position only moves over windows that are done, in order, and is kept
//! in the superblocks from time to time; clients' latency sets the pace; a pass can be stopped
//! between any two windows; what could not be done is listed and never ends it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use drive::{DriveError, Io};
use world::Gate;

use crate::core::Core;
use crate::job_status::{JobEnd, JobKind, JobStatus, Limiter, Loss, Losses};
use crate::pace::{Clients, Held, JobPolicy, PERIOD_NS, Pace};

/// Bytes of each member (of the array, for the resync of copies) worked on under one lock: large
/// enough to stream, small enough that a writer that waits for it is not held up noticeably.
pub(crate) const WINDOW_BYTES: u64 = 1 << 20;

/// Windows under way at once while clients leave the drives alone. Two keep readers and writers
/// busy at the same time, more bridge the moments in which both wait.
const WINDOWS: usize = 4;

/// How often the position goes to the superblocks.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(10);

/// The rate in the status is the mean of about this long.
const RATE_OVER_NS: u64 = 5_000_000_000;

/// What a window took, and what it could not do.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// What could not be brought in order.
    pub(crate) losses: Vec<Loss>,
    /// Time spent reading and writing.
    pub(crate) read_ns: u64,
    pub(crate) write_ns: u64,
}

/// Measures the parts of a window's work.
pub(crate) struct Watch<'a> {
    core: &'a Core,
    since_ns: u64,
    window: Window,
}

impl<'a> Watch<'a> {
    /// It is locked, and reading begins.
    pub(crate) fn new(core: &'a Core) -> Self {
        Watch { core, since_ns: core.world.now_ns(), window: Window::default() }
    }

    fn lap(&mut self) -> u64 {
        let now_ns = self.core.world.now_ns();
        now_ns - std::mem::replace(&mut self.since_ns, now_ns)
    }

    /// Everything was read.
    pub(crate) fn read(&mut self) {
        self.window.read_ns += self.lap();
    }

    /// Everything is computed.
    pub(crate) fn computed(&mut self) {
        self.lap();
    }

    /// Everything was written: the end.
    pub(crate) fn written(mut self) -> Window {
        self.window.write_ns += self.lap();
        self.window
    }
}

/// Work on the array, window by window. Positions are bytes of the pass's own measure: of each
/// member's data area, or of the array.
pub(crate) trait Pass: 'static {
    fn kind(&self) -> JobKind;

    /// The member that is filled, for passes that fill one.
    fn slot(&self) -> Option<usize>;

    /// Bytes of a window.
    fn window_bytes(&self, _core: &Core) -> u64 {
        WINDOW_BYTES
    }

    /// From where to where, at the start.
    fn range(&self, core: &Core) -> Range<u64>;

    /// The first part from `at` on that needs work; what is skipped counts as done. Its end may lie
    /// behind the range's.
    fn next(&self, core: &Core, at: u64) -> Range<u64>;

    /// Why it can't or need not go on, if so.
    fn over(&self, core: &Core) -> Option<JobEnd>;

    /// Does a window, under its lock.
    async fn window(&self, core: &Core, range: Range<u64>) -> Result<Window, DriveError>;

    /// Everything below `position` is done.
    fn reached(&self, core: &Core, position: u64);

    /// Puts what is done on the members; at the `end` of the pass, that it is all done.
    async fn record(&self, core: &Core, end: bool) -> Result<(), DriveError>;
}

/// The background work of an array.
#[derive(Default)]
pub(crate) struct Jobs {
    running: RefCell<Option<Running>>,
    last: RefCell<Option<JobStatus>>,
    policy: Cell<JobPolicy>,
    /// Someone does what is due.
    pub(crate) busy: Gate,
    /// The present pass ends at its next window.
    stop: Cell<bool>,
    /// What makes redundancy whole has failed, and waits until something changes.
    pub(crate) failed: Cell<bool>,
    /// An administrator has stopped background work: nothing starts by itself.
    pub(crate) held: Cell<bool>,
    clients: Cell<Clients>,
    lost_bytes: Cell<u64>,
}

/// A pass under way.
struct Running {
    status: JobStatus,
    losses: Losses,
    pace: Pace,
    /// When the position was where.
    marks: VecDeque<(u64, u64)>,
    adapted_ns: u64,
    work: Window,
    started_ns: u64,
    /// Processor time of this thread when it began.
    processor_before_ns: u64,
    /// How often each slot had answered last when the pass began.
    late_before: Vec<u64>,
}

impl Jobs {
    /// The pass under way, as it stands.
    pub(crate) fn status(&self, core: &Core) -> Option<JobStatus> {
        self.running.borrow().as_ref().map(|running| running.status(core))
    }

    /// The last one that ended.
    pub(crate) fn last(&self) -> Option<JobStatus> {
        self.last.borrow().clone()
    }

    /// Bytes of the array that passes found to be lost since it was opened.
    pub(crate) fn lost_bytes(&self) -> u64 {
        self.lost_bytes.get()
    }

    pub(crate) fn set_policy(&self, policy: JobPolicy) {
        self.policy.set(policy);
        if let Some(running) = self.running.borrow_mut().as_mut() {
            running.pace = Pace::new(policy);
        }
    }

    /// Ends the present pass at its next window.
    pub(crate) fn stop(&self) {
        self.stop.set(true);
    }

    /// Notes how long a client's request takes, while a pass runs that could be in its way.
    pub(crate) fn watch<T: Unpin + 'static>(core: &Rc<Core>, io: Io<T>) -> Io<T> {
        let Io::Later(operation) = io else { return io };
        if core.jobs.running.borrow().is_none() {
            return Io::Later(operation);
        }
        let core = Rc::clone(core);
        let started_ns = core.world.now_ns();
        Io::later(async move {
            let _waiting = Waiting::new(&core);
            let output = operation.await;
            let clients = core.jobs.clients.get();
            core.jobs.clients.set(Clients {
                requests: clients.requests + 1,
                waited_ns: clients.waited_ns + (core.world.now_ns() - started_ns),
                ..clients
            });
            output
        })
    }
}

/// Counts a client's request as long as it is under way, also when it is given up.
struct Waiting<'a>(&'a Core);

impl<'a> Waiting<'a> {
    fn new(core: &'a Core) -> Self {
        let clients = core.jobs.clients.get();
        core.jobs.clients.set(Clients { waiting: clients.waiting + 1, ..clients });
        Waiting(core)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let clients = self.0.jobs.clients.get();
        self.0.jobs.clients.set(Clients { waiting: clients.waiting - 1, ..clients });
    }
}

impl Running {
    fn new(core: &Core, pass: &impl Pass, range: &Range<u64>) -> Self {
        let now_ns = core.world.now_ns();
        Running {
            status: JobStatus {
                kind: pass.kind(),
                slot: pass.slot(),
                position_bytes: range.start,
                end_bytes: range.end,
                rate_bytes_per_second: 0,
                time_left: None,
                limiter: Limiter::SlowestDrive(None),
                losses: Vec::new(),
                lost_bytes: 0,
                end: None,
            },
            losses: Losses::default(),
            pace: Pace::new(core.jobs.policy.get()),
            marks: VecDeque::from([(now_ns, range.start)]),
            adapted_ns: now_ns,
            work: Window::default(),
            started_ns: now_ns,
            processor_before_ns: core.world.processor_ns(),
            late_before: core.slots.iter().map(|slot| slot.answered_last()).collect(),
        }
    }

    fn rate(&self, now_ns: u64) -> u64 {
        let Some(&(since_ns, since)) = self.marks.front() else { return 0 };
        let bytes = u128::from(self.status.position_bytes.saturating_sub(since));
        let rate = bytes * 1_000_000_000 / u128::from((now_ns - since_ns).max(1));
        u64::try_from(rate).unwrap_or(u64::MAX)
    }

    fn note(&mut self, now_ns: u64, position: u64, window: Window) {
        self.status.position_bytes = position;
        self.marks.push_back((now_ns, position));
        while self.marks.len() > 2 && now_ns - self.marks[1].0 > RATE_OVER_NS {
            self.marks.pop_front();
        }
        // A fast pass would keep thousands of them: every other one of the older says the same.
        if self.marks.len() > 256 {
            let mut keep = false;
            self.marks.retain(|_| {
                keep = !keep;
                keep
            });
        }
        self.work.read_ns += window.read_ns;
        self.work.write_ns += window.write_ns;
        for loss in window.losses {
            self.losses.add(loss);
        }
    }

    fn limiter(&self, core: &Core, now_ns: u64) -> Limiter {
        match self.pace.held() {
            Held::ByPolicy => return Limiter::Policy,
            Held::ByClients => return Limiter::Clients,
            Held::No => {}
        }
        let computed_ns = core.world.processor_ns() - self.processor_before_ns;
        if computed_ns > (now_ns - self.started_ns) / 4 * 3 {
            return Limiter::Processor;
        }
        let filled = self.status.slot.filter(|_| self.work.write_ns > self.work.read_ns);
        let late = |&slot: &usize| core.slots[slot].answered_last() - self.late_before[slot];
        let slowest = filled.or_else(|| (0..core.slots.len()).max_by_key(late));
        let member = slowest.and_then(|slot| {
            let replacement = core.slots[slot].replacement().filter(|_| filled.is_some());
            replacement.map(|r| Rc::clone(&r.member)).or_else(|| core.slots[slot].member())
        });
        Limiter::SlowestDrive(member.map(|member| member.drive.facts().name.to_string()))
    }

    fn status(&self, core: &Core) -> JobStatus {
        let now_ns = core.world.now_ns();
        let rate = self.rate(now_ns);
        let left = self.status.end_bytes.saturating_sub(self.status.position_bytes);
        let left_ms = (u128::from(left) * 1000).checked_div(u128::from(rate));
        JobStatus {
            rate_bytes_per_second: rate,
            time_left: left_ms.map(|ms| Duration::from_millis(ms as u64)),
            limiter: self.limiter(core, now_ns),
            losses: self.losses.list(),
            lost_bytes: self.losses.total_bytes(),
            ..self.status.clone()
        }
    }
}

/// Runs a pass to its end and gives how that was; it is the last job in the status then.
pub(crate) async fn run<P: Pass>(core: &Rc<Core>, pass: P) -> JobEnd {
    let pass = Rc::new(pass);
    let range = pass.range(core);
    *core.jobs.running.borrow_mut() = Some(Running::new(core, pass.as_ref(), &range));
    core.jobs.stop.set(false);
    let end = match windows(core, &pass, range).await {
        Err(error) => JobEnd::Failed { reason: error.to_string() },
        Ok(Some(end)) => end,
        Ok(None) => match pass.record(core, true).await {
            Err(error) => JobEnd::Failed { reason: error.to_string() },
            Ok(()) => {
                let running = core.jobs.running.borrow();
                let lost = running.as_ref().is_some_and(|job| job.losses.total_bytes() > 0);
                if lost { JobEnd::DoneWithLoss } else { JobEnd::Done }
            }
        },
    };
    let status = core.jobs.status(core);
    *core.jobs.running.borrow_mut() = None;
    *core.jobs.last.borrow_mut() =
        status.map(|status| JobStatus { end: Some(end.clone()), time_left: None, ..status });
    end
}

/// A window under way.
type Flying = (Range<u64>, world::Task<Result<Window, DriveError>>);

/// Goes over the range; `None` when all of it is done.
async fn windows<P: Pass>(
    core: &Rc<Core>,
    pass: &Rc<P>,
    range: Range<u64>,
) -> Result<Option<JobEnd>, DriveError> {
    let mut at = range.start;
    let mut over = None;
    let mut result = Ok(());
    let mut flying: VecDeque<Flying> = VecDeque::new();
    let mut recorded_ns = core.world.now_ns();
    loop {
        while over.is_none() && result.is_ok() && flying.len() < windows_at_once(core) {
            let part = pass.next(core, at);
            at = part.start.min(range.end);
            if at >= range.end {
                break;
            }
            let bytes = pass.window_bytes(core);
            keep_pace(core, bytes).await;
            over = match core.jobs.stop.get() || core.stopping.get() {
                true => Some(JobEnd::Stopped),
                false => pass.over(core),
            };
            if over.is_none() {
                let window = at..(at + bytes).min(part.end).min(range.end);
                at = window.end;
                let (pass, owner) = (Rc::clone(pass), Rc::clone(core));
                let part = window.clone();
                let task = async move { pass.window(&owner, part).await };
                flying.push_back((window, core.world.spawn(task)));
            }
        }
        let Some((window, task)) = flying.pop_front() else { break };
        match task.await {
            Ok(done) if result.is_ok() => {
                // What lies between two windows needed no work.
                let position = flying.front().map_or(window.end, |(next, _)| next.start);
                pass.reached(core, position);
                if let Some(running) = core.jobs.running.borrow_mut().as_mut() {
                    let lost: u64 = done.losses.iter().map(|loss| loss.bytes).sum();
                    core.jobs.lost_bytes.set(core.jobs.lost_bytes.get() + lost);
                    running.note(core.world.now_ns(), position, done);
                }
            }
            Ok(_) => {}
            Err(error) => result = result.and(Err(error)),
        }
        let now_ns = core.world.now_ns();
        if result.is_ok() && now_ns - recorded_ns >= CHECKPOINT_EVERY.as_nanos() as u64 {
            recorded_ns = now_ns;
            result = pass.record(core, false).await;
        }
        // On drives that answer at once nobody else would ever get a turn.
        core.world.yield_now().await;
    }
    result?;
    if over.is_none() {
        pass.reached(core, range.end);
        return Ok(None);
    }
    pass.record(core, false).await?;
    Ok(over)
}

/// A pass that steps back for clients leaves no queue behind on the drives.
fn windows_at_once(core: &Core) -> usize {
    let running = core.jobs.running.borrow();
    let held = running.as_ref().map_or(Held::No, |running| running.pace.held());
    if held == Held::ByClients { 1 } else { WINDOWS }
}

/// Waits until the next window may start.
async fn keep_pace(core: &Core, bytes: u64) {
    let now_ns = core.world.now_ns();
    let start_ns = {
        let mut running = core.jobs.running.borrow_mut();
        let Some(running) = running.as_mut() else { return };
        if now_ns - running.adapted_ns >= PERIOD_NS {
            running.adapted_ns = now_ns;
            let clients = core.jobs.clients.get();
            core.jobs.clients.set(Clients { waiting: clients.waiting, ..Clients::default() });
            let rate = running.rate(now_ns);
            running.pace.adapt(clients, rate);
        }
        running.pace.start(now_ns, bytes)
    };
    if start_ns > now_ns {
        core.world.sleep_until_ns(start_ns).await;
    }
}
