//! From what a plan says and a meter counts to the records of a run.

use workload::{DirectionSummary, Histogram, Summary};

use super::{DirectionFigures, Latency, Sample, Series, TestRecord};
use crate::plan::Test;

/// Most letters of a run's name that come from its title.
const TITLE_LETTERS_MOST: usize = 40;

/// A name for a run that sorts by date and can be a directory:
/// `2026-01-02T03-04-05Z-first-look`.
pub fn run_id(title: &str, started_unix_s: u64) -> String {
    let date = i64::try_from(started_unix_s)
        .ok()
        .and_then(|seconds| jiff::Timestamp::from_second(seconds).ok())
        .map_or_else(
            || started_unix_s.to_string(),
            |time| time.strftime("%Y-%m-%dT%H-%M-%SZ").to_string(),
        );
    let words: Vec<&str> = title
        .split(|letter: char| !letter.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    let mut name: String = words.join("-").to_lowercase();
    name.truncate(TITLE_LETTERS_MOST);
    format!("{date}-{}", name.trim_end_matches('-')).trim_end_matches('-').to_owned()
}

impl TestRecord {
    /// The record of a test of a plan.
    pub fn new(test: &Test) -> Self {
        Self {
            name: test.name.clone(),
            workload: test.workload.clone(),
            read_percent: test.spec.read_percent(),
            random_percent: test.spec.random_percent(),
            block_sizes: test.block_sizes.clone(),
            queue_depths: test.queue_depths.clone(),
        }
    }
}

impl DirectionFigures {
    /// What the meter counted of one direction. Latencies are those from the intended start.
    pub fn new(summary: &DirectionSummary) -> Self {
        Self {
            ios: summary.requests,
            bytes: summary.bytes,
            errors: summary.errors,
            latency: Latency::new(&summary.from_intended),
        }
    }
}

impl Latency {
    /// The figures of a histogram, and the histogram itself; `None` if it is empty.
    pub fn new(histogram: &Histogram) -> Option<Self> {
        // The upper end of the bucket: a percentile never flatters.
        let percentile = |percent| histogram.percentile(percent).map(|it| it.upper_ns);
        Some(Self {
            mean_ns: histogram.mean_ns()?,
            min_ns: histogram.min_ns()?,
            p50_ns: percentile(50.0)?,
            p90_ns: percentile(90.0)?,
            p99_ns: percentile(99.0)?,
            p999_ns: percentile(99.9)?,
            p9999_ns: percentile(99.99)?,
            max_ns: histogram.max_ns()?,
            histogram: histogram.encode(),
        })
    }
}

impl Series {
    /// The time series of a meter, both directions together. A last interval that is shorter than
    /// the others is left out: its rate would not compare.
    pub fn new(summary: &Summary) -> Self {
        let interval_ns = summary.series.first().map_or(0, |interval| interval.length_ns);
        let samples = summary
            .series
            .iter()
            .filter(|interval| interval.length_ns == interval_ns)
            .map(|interval| sum([interval.reads, interval.writes]))
            .collect();
        Self { interval_ns, samples }
    }
}

/// Both directions of an interval; `None` if nothing completed.
fn sum(directions: [Option<workload::Sample>; 2]) -> Option<Sample> {
    let parts: Vec<workload::Sample> = directions.into_iter().flatten().collect();
    let ios: u64 = parts.iter().map(|part| part.requests).sum();
    let latency: f64 = parts.iter().map(|part| part.latency_mean_ns * part.requests as f64).sum();
    (ios > 0).then(|| Sample {
        ios,
        bytes: parts.iter().map(|part| part.bytes).sum(),
        latency_ns_mean: latency / ios as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use workload::{Completion, Direction, Meter, MeterConfig};

    #[test]
    fn run_names_are_dates_and_plain_letters() {
        let table = [
            ("First look: four drives", "2026-01-02T03-04-05Z-first-look-four-drives"),
            ("../../etc/passwd", "2026-01-02T03-04-05Z-etc-passwd"),
            ("Диски", "2026-01-02T03-04-05Z"),
            ("", "2026-01-02T03-04-05Z"),
        ];
        for (title, expected) in table {
            assert_eq!(run_id(title, 1_767_323_045), expected);
        }
        assert!(run_id(&"long ".repeat(100), u64::MAX).len() < 70);
    }

    #[test]
    fn a_meter_fills_a_cell() {
        let mut meter = Meter::new(&MeterConfig {
            start_ns: 0,
            warmup_ns: 0,
            measure_ns: 350,
            interval_ns: 100,
            asked_depth: Some(1),
        })
        .unwrap();
        let mut complete = |direction, issued_ns, completed_ns, ok| {
            let completion = Completion {
                intended_ns: issued_ns,
                issued_ns,
                completed_ns,
                bytes: 4096,
                direction,
                ok,
            };
            meter.record(&completion);
        };
        complete(Direction::Read, 0, 10, true);
        complete(Direction::Write, 10, 40, true);
        complete(Direction::Read, 210, 220, true);
        complete(Direction::Read, 220, 240, false);
        let summary = meter.summary();

        let reads = DirectionFigures::new(&summary.reads);
        assert_eq!((reads.ios, reads.bytes, reads.errors), (2, 8192, 1));
        let latency = reads.latency.unwrap();
        assert_eq!((latency.mean_ns, latency.min_ns, latency.max_ns), (10.0, 10, 10));
        let histogram = Histogram::decode(&latency.histogram).unwrap();
        assert_eq!(histogram.count(), 2);
        assert_eq!(Latency::new(&Histogram::new()), None);

        // The second interval is blank, the last is half an interval and left out.
        let series = Series::new(&summary);
        let sample = |ios, latency_ns_mean| Sample { ios, bytes: ios * 4096, latency_ns_mean };
        assert_eq!(series.interval_ns, 100);
        assert_eq!(series.samples, [Some(sample(2, 20.0)), None, Some(sample(1, 10.0))]);
    }
}
