//! A run: what was measured, and under which conditions.
//!
//! Plain data between the runner that measures, the store that keeps, and the
//! analysis and report that read. A figure that is not known is `None`, never
//! zero; an interval without samples is `None`, never zero. Rates and
//! percentages are derived by methods, not stored, so that they can't disagree
//! with what they come from.
//!
//! The JSON form of these types is the JSON export; its `schema` number is
//! [`crate::export::SCHEMA`].

mod measured;

use serde::{Deserialize, Serialize};

pub use measured::run_id;

use crate::units::NS_PER_SECOND;

/// One run of one plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Name of the run, unique among its neighbours: date and title.
    pub id: String,
    /// Headline, from the plan.
    pub title: String,
    /// The plan as it was read.
    pub plan_text: String,
    /// All that holds for the whole run.
    pub conditions: Conditions,
    /// What was measured, in the plan's order.
    pub subjects: Vec<SubjectRecord>,
    /// What it was measured with, in the plan's order.
    pub tests: Vec<TestRecord>,
    /// How many cells the plan has: more than `cells` when the run was interrupted.
    pub cells_planned: usize,
    /// The measured cells in the order they were measured.
    pub cells: Vec<Cell>,
    /// When the last cell ended, in seconds since 1970; absent while running and after an
    /// interruption.
    pub finished_unix_s: Option<u64>,
}

/// What holds for a whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conditions {
    /// When the run began, in seconds since 1970.
    pub started_unix_s: u64,
    /// Seed of every draw.
    pub seed: u64,
    /// Name of the machine.
    pub host: String,
    /// Kernel name and release.
    pub kernel: String,
    /// Processor model.
    pub cpu: String,
    /// Processors the run could use.
    pub cpu_count: u32,
    /// Memory of the machine in bytes.
    pub memory_bytes: Option<u64>,
    /// Tasks that ran or waited in the minute before the run, on average.
    #[serde(default)]
    pub load_average: Option<f64>,
    /// Version of the program, with a commit where one is known.
    pub version: String,
    /// Every drive of the run, once.
    pub drives: Vec<DriveRecord>,
    /// What stood between the client and the drives, in words: `none: direct I/O, no cache of
    /// ours`.
    pub cache_policy: String,
    /// Bits of information per byte written: 8 for random bytes, 0 for zeros.
    pub data_entropy_bits: f64,
}

/// One drive as the run saw it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DriveRecord {
    /// Path or URI.
    pub path: String,
    /// What it is, in words: `file on ext4`, `block device, SAMSUNG MZVL2512`.
    pub kind: String,
    /// Serial or WWN, where it has one.
    pub identity: Option<String>,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Whether reads and writes go past the page cache, as checked; absent where it can't be
    /// checked.
    pub direct_io: Option<bool>,
    /// Whether the drive has a volatile write cache that is on; absent where unknown.
    pub write_cache: Option<bool>,
}

/// One subject as it was built.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SubjectRecord {
    /// Its name in the plan.
    pub name: String,
    /// What the others are compared with.
    pub baseline: bool,
    /// What it is, in words: `raid5, left-symmetric, 64 KiB chunks`, `one drive`.
    pub description: String,
    /// Indices into [`Conditions::drives`], in member order. Empty for a target of unknown make.
    pub drives: Vec<usize>,
    /// How many of its members hold parity in each stripe; 0 without parity.
    pub parity_members: u32,
    /// How many copies of each byte it keeps; 1 without mirroring.
    pub copies: u32,
    /// Bytes a client can use.
    pub capacity_bytes: Option<u64>,
}

/// One test as it was understood.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TestRecord {
    /// Its name in the plan.
    pub name: String,
    /// Name of its access specification; `inline` if the plan spells it out.
    pub workload: String,
    /// Percentage of reads over the whole specification.
    pub read_percent: f64,
    /// Percentage of random positions over the whole specification.
    pub random_percent: f64,
    /// Block sizes of the test in bytes, ascending; empty: the sizes of the workload itself.
    pub block_sizes: Vec<u64>,
    /// Outstanding I/Os asked for, ascending.
    pub queue_depths: Vec<u32>,
}

/// One measurement: a subject, a test, a block size and a queue depth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Index into [`Run::subjects`].
    pub subject: usize,
    /// Index into [`Run::tests`].
    pub test: usize,
    /// Block size in bytes, where the test names one.
    pub block_bytes: Option<u64>,
    /// Outstanding I/Os asked for.
    pub queue_depth_asked: u32,
    /// Outstanding I/Os on average over the measured time; absent if nothing was measured.
    pub queue_depth_reached: Option<f64>,
    /// Measured time in nanoseconds, ramp not included.
    pub measured_ns: u64,
    /// Ramp before it in nanoseconds, not counted.
    pub ramp_ns: u64,
    /// Bytes of the subject that were touched.
    pub working_set_bytes: u64,
    /// What the reads did.
    pub reads: DirectionFigures,
    /// What the writes did.
    pub writes: DirectionFigures,
    /// Both directions over time.
    pub series: Series,
    /// What reached the drives below the subject; absent where it can't be seen.
    pub drive_traffic: Option<DriveTraffic>,
    /// Processor time of this process over the measured time in nanoseconds, user and system;
    /// absent where it was not taken.
    pub cpu_ns: Option<u64>,
    /// What a reader has to know about the figures, as the runner saw it.
    pub notes: Vec<Note>,
}

/// Completed I/O of one direction over the measured time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DirectionFigures {
    /// I/Os completed.
    pub ios: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// I/Os that ended in an error; not among `ios`.
    pub errors: u64,
    /// Latencies; absent without completed I/O.
    pub latency: Option<Latency>,
}

/// Latencies of one direction, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Arithmetic mean.
    pub mean_ns: f64,
    /// Shortest.
    pub min_ns: u64,
    /// Half are not longer.
    pub p50_ns: u64,
    /// Nine of ten are not longer.
    pub p90_ns: u64,
    /// 99 of 100 are not longer.
    pub p99_ns: u64,
    /// 999 of 1000 are not longer.
    pub p999_ns: u64,
    /// 9999 of 10 000 are not longer.
    pub p9999_ns: u64,
    /// Longest.
    pub max_ns: u64,
    /// The whole histogram in the workload room's compact byte form.
    #[serde(with = "hex")]
    pub histogram: Vec<u8>,
}

/// Completed I/O over time, in intervals of equal length from the end of the ramp.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Length of one interval in nanoseconds.
    pub interval_ns: u64,
    /// One entry for each whole interval; `None` where nothing completed.
    pub samples: Vec<Option<Sample>>,
}

/// Completed I/O of one interval, both directions together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// I/Os completed.
    pub ios: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// Their mean latency in nanoseconds.
    pub latency_ns_mean: f64,
}

/// I/O at the drives below a subject over the measured time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DriveTraffic {
    /// Reads issued to drives.
    pub read_ios: u64,
    /// Bytes read from drives.
    pub read_bytes: u64,
    /// Writes issued to drives.
    pub write_ios: u64,
    /// Bytes written to drives.
    pub write_bytes: u64,
}

/// Something a reader has to know about a cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// What kind of thing.
    pub kind: NoteKind,
    /// The fact, in words, lower case, without a period.
    pub text: String,
}

/// Kinds of notes. The first ones make a cell's figures unusable for comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoteKind {
    /// The subject could not be built, opened or measured.
    NotMeasured,
    /// I/O ended in errors.
    Errors,
    /// The measurement was cut short.
    Interrupted,
    /// Direct I/O was asked for and is not real: a cache was measured.
    CacheMeasured,
    /// The client could not keep the queue as deep as asked.
    DepthNotReached,
    /// The rate still changed while it was measured.
    NotSteady,
    /// Parts of the working set were never written, so reads of it may cost nothing.
    Unwritten,
    /// Anything else worth knowing.
    Remark,
}

impl NoteKind {
    /// Every kind, in the order of the enum.
    pub const ALL: [Self; 8] = [
        Self::NotMeasured,
        Self::Errors,
        Self::Interrupted,
        Self::CacheMeasured,
        Self::DepthNotReached,
        Self::NotSteady,
        Self::Unwritten,
        Self::Remark,
    ];

    /// Its name in the store and in exports.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotMeasured => "not-measured",
            Self::Errors => "errors",
            Self::Interrupted => "interrupted",
            Self::CacheMeasured => "cache-measured",
            Self::DepthNotReached => "depth-not-reached",
            Self::NotSteady => "not-steady",
            Self::Unwritten => "unwritten",
            Self::Remark => "remark",
        }
    }

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether figures with this note may not be compared.
    pub fn invalidates(self) -> bool {
        matches!(self, Self::NotMeasured | Self::Errors | Self::Interrupted | Self::CacheMeasured)
    }
}

impl Run {
    /// The subject that the others are compared with.
    pub fn baseline(&self) -> Option<usize> {
        self.subjects.iter().position(|subject| subject.baseline)
    }

    /// The cell at one point of the plan, if it was measured. The latest, should there be several.
    pub fn cell(&self, subject: usize, test: usize, point: Point) -> Option<&Cell> {
        self.cells
            .iter()
            .rev()
            .find(|cell| cell.subject == subject && cell.test == test && cell.point() == point)
    }

    /// Whether every planned cell was measured.
    pub fn is_complete(&self) -> bool {
        self.finished_unix_s.is_some() && self.cells.len() >= self.cells_planned
    }
}

/// Where a cell stands within its test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// Block size in bytes, where the test names one.
    pub block_bytes: Option<u64>,
    /// Outstanding I/Os asked for.
    pub queue_depth: u32,
}

impl TestRecord {
    /// Every point of the test, by block size, then depth.
    pub fn points(&self) -> Vec<Point> {
        let blocks: Vec<Option<u64>> = match self.block_sizes.as_slice() {
            [] => vec![None],
            sizes => sizes.iter().copied().map(Some).collect(),
        };
        blocks
            .into_iter()
            .flat_map(|block_bytes| {
                self.queue_depths.iter().map(move |&queue_depth| Point { block_bytes, queue_depth })
            })
            .collect()
    }

    /// What the test is about: bytes per second where data streams, I/Os per second where it is
    /// random.
    pub fn metric(&self) -> Metric {
        if self.random_percent < 50.0 { Metric::Bytes } else { Metric::Ios }
    }
}

/// What a rate counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Bytes per second.
    Bytes,
    /// I/Os per second.
    Ios,
}

impl Cell {
    /// Where the cell stands within its test.
    pub fn point(&self) -> Point {
        Point { block_bytes: self.block_bytes, queue_depth: self.queue_depth_asked }
    }

    /// Whether its figures may be compared with others.
    pub fn is_valid(&self) -> bool {
        self.measured_ns > 0
            && self.reads.ios + self.writes.ios > 0
            && !self.notes.iter().any(|note| note.kind.invalidates())
    }

    /// Bytes per second, both directions together; absent if nothing was measured.
    pub fn bytes_per_second(&self) -> Option<f64> {
        self.per_second((self.reads.bytes + self.writes.bytes) as f64)
    }

    /// I/Os per second, both directions together; absent if nothing was measured.
    pub fn ios_per_second(&self) -> Option<f64> {
        self.per_second((self.reads.ios + self.writes.ios) as f64)
    }

    /// The rate that the metric counts.
    pub fn rate(&self, metric: Metric) -> Option<f64> {
        match metric {
            Metric::Bytes => self.bytes_per_second(),
            Metric::Ios => self.ios_per_second(),
        }
    }

    fn per_second(&self, amount: f64) -> Option<f64> {
        (self.measured_ns > 0).then(|| amount * NS_PER_SECOND as f64 / self.measured_ns as f64)
    }

    /// Processor time for one I/O in nanoseconds; absent where it is not known.
    pub fn cpu_ns_per_io(&self) -> Option<f64> {
        let ios = self.reads.ios + self.writes.ios;
        let cpu_ns = self.cpu_ns?;
        (ios > 0).then(|| cpu_ns as f64 / ios as f64)
    }

    /// Mean latency over both directions in nanoseconds; absent without completed I/O.
    pub fn latency_ns_mean(&self) -> Option<f64> {
        let parts = [&self.reads, &self.writes];
        let ios: u64 = parts.iter().map(|part| part.ios).sum();
        let total: f64 = parts
            .iter()
            .filter_map(|part| Some(part.latency.as_ref()?.mean_ns * part.ios as f64))
            .sum();
        (ios > 0).then(|| total / ios as f64)
    }
}

impl Series {
    /// Rates of the intervals in which something completed, in the metric's unit per second.
    /// An interval without samples counts as nothing done, for a mean would otherwise leave out
    /// stalls.
    pub fn rates(&self, metric: Metric) -> Vec<f64> {
        if self.interval_ns == 0 {
            return Vec::new();
        }
        let per_second = NS_PER_SECOND as f64 / self.interval_ns as f64;
        self.samples
            .iter()
            .map(|sample| match (sample, metric) {
                (Some(sample), Metric::Bytes) => sample.bytes as f64 * per_second,
                (Some(sample), Metric::Ios) => sample.ios as f64 * per_second,
                (None, _) => 0.0,
            })
            .collect()
    }
}

/// Byte strings as hexadecimal text, so that JSON stays readable by anything.
mod hex {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        serializer.serialize_str(&text)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        if !text.len().is_multiple_of(2) || !text.is_ascii() {
            return Err(D::Error::custom("not pairs of hexadecimal digits"));
        }
        (0..text.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16))
            .collect::<Result<_, _>>()
            .map_err(|_| D::Error::custom("not pairs of hexadecimal digits"))
    }
}
