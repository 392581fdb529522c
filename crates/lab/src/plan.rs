//! The plan: what is measured, on what.
//!
//! One TOML file names subjects (drives, arrays of drives, or anything that
//! can be opened as a target) and tests. [`Plan::parse`] checks all that can be
//! known without touching a drive; what it returns has no impossible values.
//! [`Plan::cells`] is the run in order: every test on every subject.
//!
//! ```toml
//! title = "Two levels"
//! seed = 1                               # every draw of the run comes from it
//! scratch = "scratch"                    # where file drives are made
//! data = "random"                        # what writes write: or "zeros", or { compresses_to = 40 } percent
//!
//! [defaults]
//! time = "10s"                           # measured time of a cell
//! ramp = "2s"                            # before it, not counted
//! working_set = "1G"                     # bytes of the subject that are touched
//! drives = { count = 4, size = "1G" }    # or ["/dev/sdb", "/dev/sdc"]
//!
//! [[subjects]]
//! name = "One drive"
//! level = "single"                       # the first drive, alone
//!
//! [[subjects]]
//! name = "RAID 5"
//! level = "raid5"
//! chunk = "64K"
//!
//! [[subjects]]
//! name = "The old NAS"
//! target = "nbd://nas.example/export"    # or a path
//!
//! [[tests]]
//! name = "Sequential read"
//! workload = "sequential-read"           # a name of the catalogue, or { lines = [{ size = "8K" }] }
//! block_sizes = ["4K", "64K", "1M"]      # or { from = "4K", to = "1M", factor = 4 }
//! queue_depths = [4]                     # or { from = 1, to = 256, factor = 2 }
//! ```
//!
//! Left out: whether the drives exist, are free, or are large enough. The runner
//! asks the rooms that know.

mod check;
mod error;
mod reader;

use workload::{AccessSpec, DataPattern, SpecError};

pub use error::{ImpossibleSweep, PlanError, PlanErrorKind};

/// Name of a workload that the plan itself spells out.
pub const INLINE: &str = "inline";

/// A checked plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Headline of the report.
    pub title: String,
    /// Seed of every draw in the run.
    pub seed: u64,
    /// Directory where file drives are made, as written: relative to the current directory.
    pub scratch: String,
    /// What is written to the drives: one that compresses answers differently to each.
    pub data: DataPattern,
    /// What is measured, in the order of the report.
    pub subjects: Vec<Subject>,
    /// What it is measured with.
    pub tests: Vec<Test>,
    /// The file as it was read, kept for the report.
    pub text: String,
}

/// One thing to be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Its name in the report; no two are the same.
    pub name: String,
    /// What it is made of.
    pub storage: Storage,
    /// What the others are compared with; at most one of a plan.
    pub baseline: bool,
}

/// What a subject is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Storage {
    /// One drive, as it is.
    Drive(DriveSource),
    /// An array the lab creates from drives: destroys what is on them.
    Array {
        /// Its members, in order.
        members: Vec<DriveSource>,
        /// Level, layout and chunk.
        shape: ArrayShape,
    },
    /// A path or an `nbd://` or `nbd+unix://` URI, opened as it is.
    Target(String),
}

/// Where a drive comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriveSource {
    /// A file that the lab makes in the scratch directory. Subjects with the
    /// same index and size use the same file, one after the other.
    Scratch {
        /// Number of the file, from 0.
        index: u32,
        /// Its size in bytes.
        size_bytes: u64,
    },
    /// A block device or a file that exists.
    Path(String),
}

/// The shape of an array, in the geometry's terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayShape {
    /// Level.
    pub level: geometry::Level,
    /// md's number of the layout; the level's usual one where the plan names none.
    pub layout: u32,
    /// Bytes of a stripe on one member; the usual size if absent.
    pub chunk_bytes: Option<u64>,
}

/// One test: a workload at one or more block sizes and queue depths.
#[derive(Clone, Debug, PartialEq)]
pub struct Test {
    /// Its name in the report; no two are the same.
    pub name: String,
    /// Name of the workload in the catalogue; [`INLINE`] if the plan spells it out.
    pub workload: String,
    /// What is asked of the subject, with the workload's own request sizes.
    pub spec: AccessSpec,
    /// Request sizes in bytes that replace the workload's own, ascending. Empty: as they are.
    pub block_sizes: Vec<u64>,
    /// Outstanding I/Os, ascending.
    pub queue_depths: Vec<u32>,
    /// Measured time of one cell in nanoseconds.
    pub time_ns: u64,
    /// Time before it that is not counted, in nanoseconds.
    pub ramp_ns: u64,
    /// Bytes of the subject that are touched; the whole subject if absent.
    pub working_set_bytes: Option<u64>,
}

/// One measurement of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedCell {
    /// Index into [`Plan::subjects`].
    pub subject: usize,
    /// Index into [`Plan::tests`].
    pub test: usize,
    /// Block size in bytes, where the test names one.
    pub block_bytes: Option<u64>,
    /// Outstanding I/Os asked for.
    pub queue_depth: u32,
}

impl Plan {
    /// Reads and checks a plan. `file` is the name that errors show.
    ///
    /// # Errors
    ///
    /// The first fault, with its place and, where one is known, a hint.
    pub fn parse(file: &str, text: &str) -> Result<Self, Box<PlanError>> {
        check::plan(file, text)
    }

    /// Every cell in the order it is measured: subject by subject, so that each is built once.
    pub fn cells(&self) -> Vec<PlannedCell> {
        let mut cells = Vec::new();
        for subject in 0..self.subjects.len() {
            for (index, test) in self.tests.iter().enumerate() {
                for block_bytes in test.blocks() {
                    for queue_depth in test.queue_depths.iter().copied() {
                        cells.push(PlannedCell { subject, test: index, block_bytes, queue_depth });
                    }
                }
            }
        }
        cells
    }

    /// Time all cells take with their ramps, in nanoseconds. Preparing the drives comes on top.
    pub fn measuring_ns(&self) -> u64 {
        let one_subject: u64 = self.tests.iter().map(Test::measuring_ns).sum();
        one_subject.saturating_mul(self.subjects.len() as u64)
    }

    /// Every path and URI that existed before the run and would be written to, without repeats.
    /// Nothing is written to them before the user has named them as lost.
    pub fn written_paths(&self) -> Vec<&str> {
        let writes = self.tests.iter().any(|test| test.spec.has_writes());
        let mut paths = std::collections::BTreeSet::new();
        for subject in &self.subjects {
            match &subject.storage {
                Storage::Drive(DriveSource::Path(path)) | Storage::Target(path) if writes => {
                    paths.insert(path.as_str());
                }
                Storage::Drive(_) | Storage::Target(_) => {}
                // Creating the array writes, whatever the tests do.
                Storage::Array { members, .. } => {
                    for member in members {
                        if let DriveSource::Path(path) = member {
                            paths.insert(path);
                        }
                    }
                }
            }
        }
        paths.into_iter().collect()
    }
}

impl Test {
    /// The block sizes to measure at: the workload's own sizes are one point without a size.
    pub fn blocks(&self) -> Vec<Option<u64>> {
        match self.block_sizes.as_slice() {
            [] => vec![None],
            sizes => sizes.iter().copied().map(Some).collect(),
        }
    }

    /// The requests of one point: the workload's own, or with the point's block size.
    ///
    /// # Errors
    ///
    /// None for the points of a checked plan.
    pub fn spec_at(&self, block_bytes: Option<u64>) -> Result<AccessSpec, SpecError> {
        match block_bytes {
            // Sizes of a plan are far below 32 bits; a larger one is refused as too large.
            Some(bytes) => self.spec.with_request_bytes(u32::try_from(bytes).unwrap_or(u32::MAX)),
            None => Ok(self.spec.clone()),
        }
    }

    /// Time of all its cells on one subject, ramps included, in nanoseconds.
    pub fn measuring_ns(&self) -> u64 {
        let cells = (self.blocks().len() * self.queue_depths.len()) as u64;
        cells.saturating_mul(self.time_ns.saturating_add(self.ramp_ns))
    }

    /// Length of one interval of the time series: a second, or a tenth of a shorter measurement,
    /// so that every cell has enough of them to judge its spread.
    pub fn interval_ns(&self) -> u64 {
        (self.time_ns / 10).clamp(1, crate::units::NS_PER_SECOND)
    }
}

#[cfg(test)]
mod tests;
