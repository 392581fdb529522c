//! `backplane bench`: one target under workloads of the catalogue.
//!
//! Reading is always allowed. Writing to anything but a file made for the purpose needs
//! `--allow-write`, and what lies on the target must be named besides.

mod report;

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use clap::Args;
use drive::{Access, Drive, Durability, FileDrive, OpenOptions, Padded};
use nbd::Uri;
use rustix::time::{ClockId, clock_gettime};
use workload::{
    AccessSpec, Arrival, CATALOGUE, DataPattern, GeneratorConfig, GeneratorMode, Job, Measured,
    Observer, SpecError, WorkingSet, Workload, find_workload,
};
use world::{World, WriteBufs};

use crate::error::{self, Failure};
use crate::guard;
use crate::output::Outcome;
use crate::session;
use crate::values;

/// A file that the benchmark makes for itself: larger than most drives' caches.
const OWN_FILE_BYTES: &str = "1G";

/// One request while that file is filled.
const FILL_BYTES: usize = 1 << 20;

/// A drive that fails this often in a row does not recover.
const ERRORS_IN_A_ROW_MAX: u32 = 16;

/// Steps of the time series.
const INTERVAL: Duration = Duration::from_secs(1);

/// How long to wait for outstanding requests: longer than a disk takes to give up on a sector.
const DRAIN_LIMIT: Duration = Duration::from_secs(30);

/// Flags of `bench`.
#[derive(Debug, Args)]
#[command(after_help = "`backplane lab workloads` lists the workloads.")]
pub struct Arguments {
    /// A file, a block device, an NBD export (`nbd://HOST/EXPORT`,
    /// `nbd+unix:///EXPORT?socket=PATH`), or a folder in which a file is made and removed again
    target: String,
    /// A workload by name; may be repeated
    #[arg(
        long = "workload",
        value_name = "NAME",
        default_value = "random-read",
        value_parser = named_workload,
    )]
    workloads: Vec<&'static Workload>,
    /// Requests outstanding, each in turn [default: the workload's own, else 1]
    #[arg(
        long = "queue-depth",
        value_name = "DEPTHS",
        value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..),
    )]
    queue_depths: Vec<u32>,
    /// Request sizes that replace the workload's own, each in turn
    #[arg(
        long = "block-size",
        value_name = "SIZES",
        value_delimiter = ',',
        value_parser = values::size,
    )]
    block_sizes: Vec<u64>,
    /// How long to measure
    #[arg(long, default_value = "10s", value_parser = values::duration)]
    time: Duration,
    /// Before that, how long to warm up without counting
    #[arg(long, default_value = "2s", value_parser = values::duration)]
    ramp: Duration,
    /// Size of the file that is made in a folder
    #[arg(long, default_value = OWN_FILE_BYTES, value_parser = values::size)]
    size: u64,
    /// Where the requests go follows from this number
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The target may be written to: what is on it is lost
    #[arg(long)]
    allow_write: bool,
    /// What may be lost, as with `array create`; may be repeated
    #[arg(long, value_name = "NAME")]
    yes_destroy: Vec<String>,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

/// Why nothing is measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A kind of target that comes later.
    #[error(
        "{0} targets are not supported yet\n\
         hint: give a file, a block device, an NBD URI or a folder"
    )]
    NotYet(&'static str),
    /// Writing was not allowed.
    #[error(
        "workload {workload} writes to {target}\n\
         hint: what is on it would be lost; if that may be, add --allow-write; in a folder, a \
             file is made for the purpose"
    )]
    WriteNotAllowed {
        /// The workload.
        workload: &'static str,
        /// The target.
        target: String,
    },
    /// A request size out of range.
    #[error("{bytes} bytes are no size for a request\nhint: 512 bytes to 1G, in multiples of 512")]
    BlockSize {
        /// As given.
        bytes: u64,
        /// What the workload says.
        source: SpecError,
    },
}

/// A name of the catalogue.
fn named_workload(name: &str) -> Result<&'static Workload, String> {
    find_workload(name).ok_or_else(|| {
        let names: Vec<_> = CATALOGUE.iter().map(|workload| workload.name).collect();
        format!("expected one of {}", names.join(", "))
    })
}

/// One point of the run.
pub struct Point {
    workload: &'static Workload,
    spec: AccessSpec,
    block_bytes: Option<u64>,
    queue_depth: u32,
}

/// What is measured, and whether it is removed afterwards.
struct Target {
    drive: Rc<dyn Drive>,
    /// Part of the drive that was never written, in percent; reads of it reach no medium.
    unwritten_percent: f64,
    own: Option<OwnFile>,
}

/// A file made for the benchmark; it goes when this does.
struct OwnFile(PathBuf);

impl Drop for OwnFile {
    fn drop(&mut self) {
        // Whatever stops this, there is nothing better to do than to leave the file.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Arguments {
    /// Carries it out.
    pub fn run(self) -> Result<Outcome, Failure> {
        session::run(async |world| self.bench(world).await)
    }

    async fn bench(&self, world: &World) -> Result<Outcome, Failure> {
        if self.target.starts_with("model:") {
            return Err(BenchError::NotYet("model").into());
        }
        let points = self.points()?;
        let target = self.open(world, &points).await?;
        if target.unwritten_percent >= 1.0
            && points.iter().any(|point| point.spec.read_percent() > 0.0)
        {
            error::warn(&format!(
                "{:.0} % of {} were never written: reads of that reach no medium, and the figures \
                 are too good",
                target.unwritten_percent, self.target
            ));
        }
        if !target.drive.facts().direct {
            error::warn(&format!(
                "{} can't do direct I/O: the figures are those of the page cache",
                self.target
            ));
        }
        let mut results = Vec::new();
        for point in points {
            let measured = self.measure(world, &target, &point).await?;
            let stopped = matches!(measured.end, workload::End::Stopped);
            results.push((point, measured));
            if stopped {
                break;
            }
        }
        report::show(&self.target, target.drive.facts(), &results, self.json)?;
        let well = |measured: &Measured| measured.first_error.is_none() && measured.unanswered == 0;
        drop(target.own);
        Ok(Outcome::of(results.iter().all(|(_, measured)| well(measured))))
    }

    /// Every workload at every size and depth.
    fn points(&self) -> Result<Vec<Point>, Failure> {
        let mut points = Vec::new();
        let sizes: Vec<Option<u64>> = match self.block_sizes.as_slice() {
            [] => vec![None],
            sizes => sizes.iter().copied().map(Some).collect(),
        };
        for &workload in &self.workloads {
            let depths = match self.queue_depths.as_slice() {
                [] => vec![workload.queue_depth.unwrap_or(1)],
                depths => depths.to_vec(),
            };
            for &block_bytes in &sizes {
                let mut spec = workload.spec()?;
                if let Some(bytes) = block_bytes {
                    let size = u32::try_from(bytes).unwrap_or(u32::MAX);
                    spec = spec
                        .with_request_bytes(size)
                        .map_err(|source| BenchError::BlockSize { bytes, source })?;
                }
                for &queue_depth in &depths {
                    points.push(Point { workload, spec: spec.clone(), block_bytes, queue_depth });
                }
            }
        }
        Ok(points)
    }

    async fn open(&self, world: &World, points: &[Point]) -> Result<Target, Failure> {
        let path = Path::new(&self.target);
        if path.is_dir() {
            return self.make(world, path).await;
        }
        let writer = points.iter().find(|point| point.spec.has_writes());
        let drive = match writer {
            None => guard::look(world, &self.target)?,
            Some(point) => {
                let looked = guard::look(world, &self.target)?;
                guard::refuse_used(path)?;
                let contents = guard::contents(world, path, looked.as_ref()).await?;
                if !self.allow_write {
                    let (workload, target) = (point.workload.name, self.target.clone());
                    return Err(BenchError::WriteNotAllowed { workload, target }.into());
                }
                guard::confirm(
                    &format!("what is on {}", self.target),
                    &[contents],
                    &self.yes_destroy,
                )?;
                if Uri::is_meant_by(&self.target) {
                    looked
                } else {
                    guard::open_alone(world, path)?
                }
            }
        };
        Ok(Target {
            drive: fitting(world, drive, points),
            unwritten_percent: unwritten(path),
            own: None,
        })
    }

    /// Makes a file in a folder, full of data that does not compress.
    async fn make(&self, world: &World, folder: &Path) -> Result<Target, Failure> {
        let path = folder.join(format!("backplane-bench-{}", std::process::id()));
        drive::create_file(&path, self.size)?;
        let own = OwnFile(path.clone());
        let options = OpenOptions { access: Access::ReadWrite, ..OpenOptions::USE };
        let file = Rc::new(FileDrive::open(world, &path, options)?);
        let pattern = DataPattern::Random { seed: self.seed };
        let mut at = 0;
        while at < self.size {
            let length = (self.size - at).min(FILL_BYTES as u64);
            let mut buffer = world.pool().take(length as usize);
            pattern.fill(&mut buffer, at);
            let buffers = WriteBufs::from_iter([buffer.freeze()]);
            file.write(at, buffers, Durability::Cached).await?;
            at += length;
        }
        file.flush().await?;
        let points = self.points()?;
        Ok(Target { drive: fitting(world, file, &points), unwritten_percent: 0.0, own: Some(own) })
    }

    async fn measure(
        &self,
        world: &World,
        target: &Target,
        point: &Point,
    ) -> Result<Measured, Failure> {
        let job = Job {
            spec: point.spec.clone(),
            generator: GeneratorConfig {
                mode: GeneratorMode::Aligned,
                working_set: WorkingSet::whole(target.drive.facts().size_bytes)?,
                seed: self.seed,
                worker: 0,
                streams: 1,
            },
            workers: 1,
            arrival: Arrival::Closed { queue_depth: point.queue_depth, think_ns: 0 },
            data: DataPattern::Random { seed: self.seed },
            durability: Durability::Cached,
            ramp: self.ramp,
            time: self.time,
            interval: INTERVAL,
            requests_max: None,
            errors_in_a_row_max: ERRORS_IN_A_ROW_MAX,
            drain_limit: DRAIN_LIMIT,
        };
        let mut stop = std::pin::pin!(session::interruption(world)?);
        let observer =
            Observer { cpu_ns: Some(&cpu_ns), progress: None, stop: Some(stop.as_mut()) };
        Ok(workload::run(world, Rc::clone(&target.drive), &job, observer).await?)
    }
}

/// The drive as it is, or behind a wrapper if some requests are smaller than its block.
fn fitting(world: &World, drive: Rc<dyn Drive>, points: &[Point]) -> Rc<dyn Drive> {
    let block = drive.facts().block_bytes;
    let lines = points.iter().flat_map(|point| point.spec.lines());
    if lines.into_iter().all(|line| line.request_bytes.is_multiple_of(block)) {
        return drive;
    }
    error::warn(&format!(
        "some requests are no multiple of the drive's {block}-byte block: each costs more than it \
         moves"
    ));
    Rc::new(Padded::new(world, drive))
}

/// How much of a file was never written, in percent; 0 for what is no file.
fn unwritten(path: &Path) -> f64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(status) = std::fs::metadata(path) else { return 0.0 };
    if !status.is_file() || status.len() == 0 {
        return 0.0;
    }
    let written = status.blocks() as f64 * 512.0;
    ((1.0 - written / status.len() as f64) * 100.0).max(0.0)
}

/// CPU time of this process, its kernel workers included.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
