//! What `bench` shows: a table, or one document with everything.

use drive::Facts;
use lab::units;
use serde_json::{Value, json};
use workload::{Histogram, Measured};

use super::Point;
use crate::error::Failure;
use crate::output::{self, columns, row};
use crate::values::exact_size;

/// Percentiles of the document.
const PERCENTILES: [(&str, f64); 5] =
    [("p50_ns", 50.0), ("p90_ns", 90.0), ("p99_ns", 99.0), ("p999_ns", 99.9), ("p9999_ns", 99.99)];

/// Shows all results.
pub fn show(
    target: &str,
    facts: &Facts,
    results: &[(Point, Measured)],
    json: bool,
) -> Result<(), Failure> {
    if json {
        let results: Vec<Value> =
            results.iter().map(|(point, measured)| document(point, measured)).collect();
        return output::write_json(json!({
            "target": target,
            "size_bytes": facts.size_bytes,
            "direct_io": facts.direct,
            "results": results,
        }));
    }
    let direct = if facts.direct { "direct I/O" } else { "through the page cache" };
    output::write(&format!("{target}: {}, {direct}\n", exact_size(facts.size_bytes)))?;
    let mut rows = vec![row([
        "workload", "block", "depth", "reached", "IOPS", "MB/s", "p50", "p99", "p99.9", "max",
        "CPU/IO",
    ])];
    rows.extend(results.iter().map(|(point, measured)| words(point, measured)));
    output::write(&columns(0, &rows))?;
    output::write("1 MB/s = 10^6 bytes/s\n")?;
    for (point, measured) in results {
        let total = measured.summary.total();
        let name = point.workload.name;
        if let Some(error) = &measured.first_error {
            output::write(&format!("{name}: {} errors, the first: {error}\n", total.errors))?;
        }
        if measured.unanswered > 0 {
            output::write(&format!(
                "{name}: {} requests were never answered\n",
                measured.unanswered
            ))?;
        }
    }
    Ok(())
}

fn block(point: &Point) -> String {
    point.block_bytes.map_or_else(|| "own".to_owned(), units::plan_size)
}

fn percentile(histogram: &Histogram, percent: f64) -> Option<u64> {
    histogram.percentile(percent).map(|value| value.upper_ns)
}

fn words(point: &Point, measured: &Measured) -> Vec<String> {
    let total = measured.summary.total();
    let latency = &total.from_intended;
    let blank = || "-".to_owned();
    let time = |ns: Option<u64>| ns.map_or_else(blank, units::duration);
    vec![
        point.workload.name.to_owned(),
        block(point),
        point.queue_depth.to_string(),
        measured.summary.reached_depth.map_or_else(blank, |depth| format!("{depth:.1}")),
        total.requests_per_second.map_or_else(blank, |rate| units::exact(rate.round() as u64)),
        total.bytes_per_second.map_or_else(blank, |rate| format!("{:.1}", rate / 1e6)),
        time(percentile(latency, 50.0)),
        time(percentile(latency, 99.0)),
        time(percentile(latency, 99.9)),
        time(latency.max_ns()),
        time(cpu_per_io(measured)),
    ]
}

fn cpu_per_io(measured: &Measured) -> Option<u64> {
    measured.cpu_ns?.checked_div(measured.summary.total().requests)
}

fn direction(summary: &workload::DirectionSummary) -> Value {
    let latency = &summary.from_intended;
    let mut document = json!({
        "requests": summary.requests,
        "bytes": summary.bytes,
        "errors": summary.errors,
        "requests_per_second": summary.requests_per_second,
        "bytes_per_second": summary.bytes_per_second,
        "mean_ns": latency.mean_ns(),
        "min_ns": latency.min_ns(),
        "max_ns": latency.max_ns(),
    });
    for (name, percent) in PERCENTILES {
        document[name] = json!(percentile(latency, percent));
    }
    document
}

fn document(point: &Point, measured: &Measured) -> Value {
    let summary = &measured.summary;
    json!({
        "workload": point.workload.name,
        "block_bytes": point.block_bytes,
        "queue_depth_asked": point.queue_depth,
        "queue_depth_reached": summary.reached_depth,
        "measured_ns": summary.window.length_ns(),
        "end": measured.end.to_string(),
        "reads": direction(&summary.reads),
        "writes": direction(&summary.writes),
        "cpu_ns_per_request": cpu_per_io(measured),
        "unanswered": measured.unanswered,
        "first_error": measured.first_error.as_ref().map(ToString::to_string),
    })
}
