//! The runner: carries a [`Job`] out on a drive and gives what was measured.
//!
//! It knows drives and a world only, so the same code measures a real device in real time and a
//! modelled one in virtual time. Nothing is allocated per request beside what the drive does, and
//! the clock is read twice per request.
//!
//! A closed loop keeps exactly its depth outstanding. An open loop issues by its own clock and
//! counts latency from the intended start; where all requests it may have outstanding are, later
//! ones are held back, which their latency shows and [`Measured::held_back`] names.
//!
//! An error of the drive is counted and the run goes on, up to a number in a row. Whatever ends a
//! run, what was measured is kept, and outstanding requests are waited for and recorded.
//!
//! Left out: opening drives, CPU clocks, signals and output. They come in as values and closures.

mod data;
mod job;
mod slot;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use drive::{Drive, DriveError};
use thiserror::Error;
use world::{Gate, Notify, World, race};

pub use job::{BUFFER_BYTES_MAX, Job, JobError, OUTSTANDING_MAX};

use crate::arrival::Arrival;
use crate::generator::{Generator, GeneratorConfig};
use crate::meter::{Meter, Summary};
use data::WriteData;
use slot::{Counts, Run, Worker, slot};

/// Steps of the progress: what a reader can follow.
const PROGRESS_NS: u64 = 1_000_000_000;

/// Who looks on: everything is optional.
#[derive(Default)]
pub struct Observer<'a> {
    /// CPU time of the process so far in nanoseconds, user and system. Called at the start of the
    /// window and at its end, and not otherwise: the place to read other counters too.
    pub cpu_ns: Option<&'a dyn Fn() -> u64>,
    /// Called once per second of the world's clock.
    pub progress: Option<&'a mut dyn FnMut(&Progress)>,
    /// Ends the run when it completes, as after Ctrl-C.
    pub stop: Option<Pin<&'a mut dyn Future<Output = ()>>>,
}

/// How a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Time since the start in nanoseconds.
    pub elapsed_ns: u64,
    /// Whether the warm-up is over.
    pub measuring: bool,
    /// Successful requests since the start.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Failed requests since the start.
    pub errors: u64,
    /// Requests outstanding now.
    pub outstanding: u32,
}

/// Why a run ended.
#[derive(Clone, Debug, Error)]
pub enum End {
    /// The window is full.
    #[error("the time is over")]
    Time,
    /// As many requests as wanted.
    #[error("all requests are done")]
    Requests,
    /// Somebody stopped it.
    #[error("stopped")]
    Stopped,
    /// The drive does not do its work any more.
    #[error("{in_a_row} errors in a row")]
    Errors {
        /// How many.
        in_a_row: u32,
        /// The last one.
        #[source]
        last: DriveError,
    },
    /// In virtual time, a drive that takes no time: the window would never end.
    #[error("the drive takes no time")]
    ClockStands,
}

/// Arrivals of an open loop that found no request free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldBack {
    /// Requests that were issued late.
    pub issued_late: u64,
    /// The longest of their delays in nanoseconds.
    pub longest_ns: u64,
    /// Arrivals inside the window that were never issued, and are in no figure: the true
    /// latencies are longer. In the mean for random arrivals.
    pub never_issued: u64,
    /// Requests that may be outstanding, over all workers: the limit that was reached.
    pub outstanding_max: u32,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Measured {
    /// What the meter says.
    pub summary: Summary,
    /// Why the run ended.
    pub end: End,
    /// CPU time of the process inside the window in nanoseconds; `None` without a clock for it, or
    /// if the window was not reached.
    pub cpu_ns: Option<u64>,
    /// The limit of the open loop, if it was reached.
    pub held_back: Option<HeldBack>,
    /// Requests that were still outstanding when the wait for them ended: the drive hangs. They
    /// are in no other figure.
    pub unanswered: u32,
    /// The first error of the drive, warm-up included.
    pub first_error: Option<DriveError>,
}

impl HeldBack {
    fn add(&mut self, late_ns: u64) {
        self.issued_late += 1;
        self.longest_ns = self.longest_ns.max(late_ns);
    }
}

impl fmt::Display for HeldBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} requests were issued late, by up to {} ns, and {} never, because {} were \
             outstanding, the most allowed",
            self.issued_late, self.longest_ns, self.never_issued, self.outstanding_max
        )
    }
}

/// Carries out `job` on `drive`.
///
/// # Errors
/// Before anything is issued: when the job is impossible, or the drive can't take its requests.
pub async fn run(
    world: &World,
    drive: Rc<dyn Drive>,
    job: &Job,
    mut observer: Observer<'_>,
) -> Result<Measured, JobError> {
    job.check(drive.facts())?;
    let data = WriteData::new(&job.spec, job.data, world.pool());
    let start_ns = world.now_ns();
    let workers = (0..job.workers)
        .map(|index| worker(job, index, start_ns))
        .collect::<Result<Vec<_>, JobError>>()?;
    let meter = Meter::new(&job.meter_config(start_ns))?;
    let window = meter.window();
    let run = Rc::new(Run {
        world: world.clone(),
        drive,
        durability: job.durability,
        data,
        requests_max: job.requests_max.unwrap_or(u64::MAX),
        errors_in_a_row_max: job.errors_in_a_row_max,
        open_loop: job.arrival.asked_depth().is_none(),
        meter: RefCell::new(meter),
        counts: RefCell::new(Counts::default()),
        until_ns: Cell::new(window.to_ns),
        end: RefCell::new(None),
        ended: Notify::default(),
        slots: Gate::default(),
    });
    // Whoever drops this future wants its tasks to end as well.
    let _guard = EndOnDrop(&run);
    for _ in 0..job.arrival.outstanding_max() {
        for worker in &workers {
            run.slots.enter();
            world.spawn(slot(Rc::clone(&run), Rc::clone(worker)));
        }
    }
    let cpu_ns = control(&run, &mut observer, start_ns).await;
    let drained = run.slots.drained();
    let unanswered = match world.within(job.drain_limit, "outstanding requests", drained).await {
        Ok(()) => 0,
        Err(_) => run.counts.borrow().outstanding,
    };
    let summary = run.meter.borrow().summary();
    let held_back = held_back(&run, job, &workers, summary.window.to_ns);
    let first_error = run.counts.borrow_mut().first_error.take();
    let end = run.end.borrow().clone().expect("the control returns when the run has ended");
    Ok(Measured { summary, end, cpu_ns, held_back, unanswered, first_error })
}

fn worker(job: &Job, index: u32, start_ns: u64) -> Result<Rc<RefCell<Worker>>, JobError> {
    let number = job.generator.worker.wrapping_add(index);
    let config = GeneratorConfig { worker: number, ..job.generator };
    let generator = Generator::new(&job.spec, &config)?;
    let schedule = job.arrival.schedule(start_ns, config.seed, number)?;
    Ok(Rc::new(RefCell::new(Worker::new(generator, schedule))))
}

struct EndOnDrop<'a>(&'a Run);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.finish(self.0.world.now_ns(), End::Stopped);
    }
}

/// Lets the run go on until its end; calls the observer meanwhile. Gives the CPU time of the
/// window.
async fn control(run: &Run, observer: &mut Observer<'_>, start_ns: u64) -> Option<u64> {
    let window = run.meter.borrow().window();
    let mut tick_ns = start_ns.saturating_add(PROGRESS_NS);
    let mut cpu_from_ns = None;
    loop {
        let now_ns = run.world.now_ns();
        if now_ns >= window.from_ns && cpu_from_ns.is_none() {
            cpu_from_ns = observer.cpu_ns.map(|cpu| cpu());
        }
        if now_ns >= tick_ns {
            if let Some(progress) = &mut observer.progress {
                progress(&run.progress(now_ns, start_ns));
            }
            tick_ns += (now_ns - tick_ns) / PROGRESS_NS * PROGRESS_NS + PROGRESS_NS;
        }
        if now_ns >= window.to_ns {
            run.finish(window.to_ns, End::Time);
        }
        if run.end.borrow().is_some() {
            break;
        }
        let next_ns = if now_ns < window.from_ns { window.from_ns } else { window.to_ns };
        let wait = race(run.world.sleep_until_ns(next_ns.min(tick_ns)), run.ended.wait());
        let stop = std::future::poll_fn(|context| match &mut observer.stop {
            Some(stop) => stop.as_mut().poll(context),
            None => Poll::Pending,
        });
        if race(wait, stop).await.is_err() {
            run.finish(run.world.now_ns(), End::Stopped);
        }
    }
    let cpu_to_ns = observer.cpu_ns.map(|cpu| cpu());
    Some(cpu_to_ns?.saturating_sub(cpu_from_ns?))
}

impl Run {
    fn progress(&self, now_ns: u64, start_ns: u64) -> Progress {
        let counts = self.counts.borrow();
        Progress {
            elapsed_ns: now_ns - start_ns,
            measuring: now_ns > self.meter.borrow().window().from_ns,
            requests: counts.requests,
            bytes: counts.bytes,
            errors: counts.errors,
            outstanding: counts.outstanding,
        }
    }
}

fn held_back(
    run: &Run,
    job: &Job,
    workers: &[Rc<RefCell<Worker>>],
    until_ns: u64,
) -> Option<HeldBack> {
    let per_second = match job.arrival {
        Arrival::Closed { .. } => return None,
        Arrival::Fixed { per_second, .. } | Arrival::Poisson { per_second, .. } => per_second,
    };
    let left = workers.iter().map(|worker| worker.borrow_mut().arrivals_left(until_ns, per_second));
    let held_back = HeldBack {
        never_issued: left.sum(),
        outstanding_max: job.workers * job.arrival.outstanding_max(),
        ..run.counts.borrow().held_back
    };
    (held_back.issued_late + held_back.never_issued > 0).then_some(held_back)
}
