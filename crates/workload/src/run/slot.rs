//! The loop of one outstanding request, and what all of them share.
//!
//! A run has one task per request that may be outstanding. Each plans a request, waits for its
//! start, issues it, records it and begins again, so the depth is kept without anybody counting.
//! In an open loop the tasks take the arrivals in their order: those that wait for a start are the
//! free ones, and an arrival whose start has passed when it is taken found none free.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use drive::{Drive, DriveError, Durability};
use world::{Gate, Notify, ReadBufs, World};

use crate::arrival::Schedule;
use crate::generator::Generator;
use crate::meter::{Completion, Meter};
use crate::request::{Direction, Request};
use crate::run::data::WriteData;
use crate::run::{End, HeldBack};

/// A task looks up at least this often to see that its run was ended.
const NAP_NS: u64 = 100_000_000;

/// Requests in a row after which a task lets the others run: a drive that answers at once would
/// keep them waiting for ever.
const BURST: u64 = 64;

/// Bursts without a tick of the clock after which a run is given up: a million requests at one
/// instant happen in virtual time only, on a drive that takes none.
const BURSTS_WITHOUT_TICK_MAX: u32 = 16_384;

/// One worker: a row of requests and the times at which they start.
pub(super) struct Worker {
    generator: Generator,
    schedule: Schedule,
    /// A delay holds back the whole worker until then.
    paused_until_ns: u64,
}

struct Planned {
    request: Request,
    start_ns: u64,
}

impl Worker {
    pub(super) fn new(generator: Generator, schedule: Schedule) -> Self {
        Self { generator, schedule, paused_until_ns: 0 }
    }

    /// The next request, for a task that has been free since `free_ns`; `first` if it has not
    /// issued anything yet.
    #[inline]
    fn plan(&mut self, free_ns: u64, first: bool) -> Planned {
        let request = self.generator.next_request();
        let start_ns = match &mut self.schedule {
            Schedule::Open(open) => open.next_intended_ns(),
            Schedule::Closed { think_ns, .. } => {
                let think_ns = if first { 0 } else { *think_ns };
                let ready_ns = free_ns.saturating_add(think_ns).max(self.paused_until_ns);
                let start_ns = ready_ns.saturating_add(request.delay_ns);
                if request.delay_ns > 0 {
                    self.paused_until_ns = start_ns;
                }
                start_ns
            }
        };
        Planned { request, start_ns }
    }

    /// How many arrivals before `until_ns` nobody has taken; in the mean for random arrivals.
    pub(super) fn arrivals_left(&mut self, until_ns: u64, per_second: u64) -> u64 {
        let Schedule::Open(open) = &mut self.schedule else { return 0 };
        let Some(left_ns) = until_ns.checked_sub(open.next_intended_ns().saturating_add(1)) else {
            return 0;
        };
        let more = u128::from(left_ns) * u128::from(per_second) / 1_000_000_000;
        u64::try_from(more).unwrap_or(u64::MAX).saturating_add(1)
    }
}

/// What is added up beside the meter, for the progress and the end.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) outstanding: u32,
    pub(super) requests: u64,
    pub(super) bytes: u64,
    pub(super) errors: u64,
    pub(super) errors_in_a_row: u32,
    pub(super) requests_in_window: u64,
    pub(super) bursts_without_tick: u32,
    pub(super) burst_ns: u64,
    pub(super) held_back: HeldBack,
    pub(super) first_error: Option<DriveError>,
}

/// What the tasks of a run share.
pub(super) struct Run {
    pub(super) world: World,
    pub(super) drive: Rc<dyn Drive>,
    pub(super) durability: Durability,
    pub(super) data: WriteData,
    pub(super) requests_max: u64,
    pub(super) errors_in_a_row_max: u32,
    pub(super) open_loop: bool,
    pub(super) meter: RefCell<Meter>,
    pub(super) counts: RefCell<Counts>,
    /// Nothing is issued from then on; 0 once the run has ended.
    pub(super) until_ns: Cell<u64>,
    pub(super) end: RefCell<Option<End>>,
    /// Tells the control that the run has ended by itself.
    pub(super) ended: Notify,
    pub(super) slots: Gate,
}

impl Run {
    /// Ends the run at `now_ns`, unless it has ended; the window keeps what it has.
    pub(super) fn finish(&self, now_ns: u64, end: End) {
        if self.end.borrow().is_some() {
            return;
        }
        *self.end.borrow_mut() = Some(end);
        self.meter.borrow_mut().end_at(now_ns);
        self.until_ns.set(0);
        self.ended.notify_all();
    }

    /// Waits for the start and gives the time then; none if the run ends before.
    async fn wait_until(&self, start_ns: u64) -> Option<u64> {
        loop {
            let now_ns = self.world.now_ns();
            if start_ns >= self.until_ns.get() {
                return None;
            }
            if now_ns >= start_ns {
                return Some(now_ns);
            }
            self.world.sleep_until_ns(start_ns.min(now_ns.saturating_add(NAP_NS))).await;
        }
    }

    /// Runs one request, which starts at `now_ns`, and gives the time of its completion.
    async fn issue(
        &self,
        request: Request,
        intended_ns: u64,
        now_ns: u64,
        buffers: &mut ReadBufs,
    ) -> u64 {
        let Request { offset, bytes, direction, .. } = request;
        let length = bytes as usize;
        let data = match direction {
            Direction::Read => {
                if !matches!(buffers.as_slice(), [only] if only.len() == length) {
                    buffers.clear();
                    buffers.push(self.world.pool().take(length));
                }
                None
            }
            Direction::Write => Some(self.data.next(length)),
        };
        // A read follows the last reading of the clock within nanoseconds, and another reading
        // would cost more than those. What is written had to be made first.
        let issued_ns = if data.is_none() { now_ns } else { self.world.now_ns() };
        self.note_issue(issued_ns);
        let result = match data {
            None => {
                // Awaited where it is: moving it costs more than most of this loop's steps.
                let mut read = self.drive.read(offset, std::mem::take(buffers));
                let done = (&mut read).await;
                *buffers = done.buffers;
                done.result
            }
            Some(data) => {
                let mut write = self.drive.write(offset, data, self.durability);
                (&mut write).await
            }
        };
        let completed_ns = self.world.now_ns();
        // In a closed loop a request is meant to start when it does.
        let intended_ns = if self.open_loop { intended_ns } else { issued_ns };
        let ok = result.is_ok();
        self.record(
            &Completion { intended_ns, issued_ns, completed_ns, bytes, direction, ok },
            result.err(),
        );
        completed_ns
    }

    #[inline]
    fn note_issue(&self, issued_ns: u64) {
        let mut counts = self.counts.borrow_mut();
        counts.outstanding += 1;
        self.meter.borrow_mut().note_issue(issued_ns, counts.outstanding);
    }

    #[inline]
    fn record(&self, completion: &Completion, error: Option<DriveError>) {
        let mut meter = self.meter.borrow_mut();
        meter.record(completion);
        let in_window = meter.window().contains(completion.completed_ns);
        drop(meter);
        let mut counts = self.counts.borrow_mut();
        counts.outstanding -= 1;
        let Some(error) = error else {
            counts.requests += 1;
            counts.bytes += u64::from(completion.bytes);
            counts.errors_in_a_row = 0;
            counts.requests_in_window += u64::from(in_window);
            if counts.requests_in_window == self.requests_max && in_window {
                drop(counts);
                // This request still belongs to the window.
                self.finish(completion.completed_ns.saturating_add(1), End::Requests);
            }
            return;
        };
        counts.errors += 1;
        counts.errors_in_a_row += 1;
        let in_a_row = counts.errors_in_a_row;
        counts.first_error.get_or_insert_with(|| error.clone());
        drop(counts);
        if in_a_row >= self.errors_in_a_row_max {
            self.finish(completion.completed_ns, End::Errors { in_a_row, last: error });
        }
    }

    /// Whether the clock has stood still for too long; to be asked once a burst.
    fn clock_stands(&self, now_ns: u64) -> bool {
        let mut counts = self.counts.borrow_mut();
        let stands = counts.burst_ns == now_ns;
        counts.burst_ns = now_ns;
        counts.bursts_without_tick = if stands { counts.bursts_without_tick + 1 } else { 0 };
        counts.bursts_without_tick > BURSTS_WITHOUT_TICK_MAX
    }
}

/// Keeps one request outstanding until the run ends.
pub(super) async fn slot(run: Rc<Run>, worker: Rc<RefCell<Worker>>) {
    let mut buffers = ReadBufs::new();
    let mut now_ns = run.world.now_ns();
    let mut issued = 0_u64;
    while now_ns < run.until_ns.get() {
        let planned = worker.borrow_mut().plan(now_ns, issued == 0);
        if planned.start_ns > now_ns {
            let Some(started_ns) = run.wait_until(planned.start_ns).await else { break };
            now_ns = started_ns;
        } else if run.open_loop && issued > 0 {
            run.counts.borrow_mut().held_back.add(now_ns - planned.start_ns);
        }
        now_ns = run.issue(planned.request, planned.start_ns, now_ns, &mut buffers).await;
        issued += 1;
        if issued.is_multiple_of(BURST) {
            if run.clock_stands(now_ns) {
                run.finish(now_ns, End::ClockStands);
            }
            run.world.yield_now().await;
            now_ns = run.world.now_ns();
        }
    }
    run.slots.leave();
}
