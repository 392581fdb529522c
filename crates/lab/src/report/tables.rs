//! The tables behind the charts, folded away until asked for.

use super::svg::escape;
use crate::analysis::{TestAnalysis, notes_of, words};
use crate::model::{Cell, DirectionFigures, Metric, Run};
use crate::table::figure;
use crate::units;

/// Columns of words.
const WORDS: [&str; 2] = ["test", "notes"];

/// A table in a fold.
fn fold(summary: &str, open: bool, table: &str) -> String {
    let open = if open { " open=\"\"" } else { "" };
    format!(
        "<details{open}><summary>{}</summary>\n<div class=\"scroll\"><table>\n{table}</table></div>\n</details>\n",
        escape(summary)
    )
}

fn header(names: &[String]) -> String {
    let cell = |name: &String| {
        // Words stand left, figures right, their headers with them.
        let class = if WORDS.contains(&name.as_str()) { " class=\"words\"" } else { "" };
        format!("<th scope=\"col\"{class}>{}</th>", escape(name))
    };
    let cells: String = names.iter().map(cell).collect();
    format!("<thead><tr>{cells}</tr></thead>\n")
}

/// Rates of a test: subjects by points, with the half width of the interval.
pub fn rates(run: &Run, test: &TestAnalysis) -> String {
    let record = &run.tests[test.test];
    let unit = match test.metric {
        Metric::Bytes => "MB/s",
        Metric::Ios => "IOPS",
    };
    let mut names = vec![unit.to_owned()];
    names.extend(test.points.iter().map(|point| {
        words::point(record, point.point)
            .unwrap_or_else(|| format!("depth {}", point.point.queue_depth))
    }));
    let mut table = header(&names);
    table.push_str("<tbody>\n");
    for subject in 0..run.subjects.len() {
        let name = escape(&run.subjects[subject].name);
        table.push_str(&format!("<tr><th scope=\"row\">{name}</th>"));
        for point in &test.points {
            let cell = run.cell(subject, test.test, point.point);
            let shown = cell.and_then(|cell| figure(cell, test.metric));
            let Some(shown) = shown else {
                table.push_str("<td class=\"none\">–</td>");
                continue;
            };
            let (class, rest) = match point.of(subject) {
                None => (" class=\"void\"", String::new()),
                Some(standing) => {
                    let half = standing.rate.interval.map(|(low, high)| {
                        words::percent(
                            (high - low) / 2.0 / standing.rate.value.max(f64::MIN_POSITIVE),
                        )
                    });
                    let half =
                        half.map_or_else(String::new, |half| format!("<small>± {half}</small>"));
                    (if point.leads(subject) { " class=\"best\"" } else { "" }, half)
                }
            };
            let star = if point.leads(subject) { " ★" } else { "" };
            table.push_str(&format!("<td{class}>{shown}{star}{rest}</td>"));
        }
        table.push_str("</tr>\n");
    }
    table.push_str("</tbody>\n");
    fold("Figures with their spread", false, &table)
}

/// Latency percentiles of a test: a row for each subject, point and direction.
pub fn latencies(run: &Run, test: &TestAnalysis) -> String {
    let record = &run.tests[test.test];
    let several = test.points.len() > 1;
    let mut names = vec!["Latency".to_owned()];
    if several {
        names.push("point".to_owned());
    }
    let percentiles = ["mean", "50 %", "90 %", "99 %", "99.9 %", "99.99 %", "longest"];
    names.push("direction".to_owned());
    names.extend(percentiles.map(str::to_owned));
    let mut table = header(&names);
    table.push_str("<tbody>\n");
    for point in &test.points {
        for subject in 0..run.subjects.len() {
            let Some(cell) = run.cell(subject, test.test, point.point) else { continue };
            for (direction, figures) in [("read", &cell.reads), ("write", &cell.writes)] {
                let Some(row) = latency_row(figures) else { continue };
                let name = escape(&run.subjects[subject].name);
                table.push_str(&format!("<tr><th scope=\"row\">{name}</th>"));
                if several {
                    let at = words::point(record, point.point).unwrap_or_default();
                    table.push_str(&format!("<td>{}</td>", escape(&at)));
                }
                let class = if cell.is_valid() { "" } else { " class=\"void\"" };
                table.push_str(&format!("<td>{direction}</td>"));
                for value in row {
                    table.push_str(&format!("<td{class}>{value}</td>"));
                }
                table.push_str("</tr>\n");
            }
        }
    }
    table.push_str("</tbody>\n");
    // A sweep has many rows; of a few points the tail is half the story.
    let open = test.points.len() <= 2 && record.random_percent > 50.0;
    fold("Latencies: so many of the I/Os took no longer", open, &table)
}

fn latency_row(figures: &DirectionFigures) -> Option<[String; 7]> {
    let latency = figures.latency.as_ref()?;
    let rare = |value: u64, one_in: u64| {
        // A percentile of fewer I/Os than it takes is only the longest again.
        if figures.ios >= one_in { units::duration(value) } else { "–".to_owned() }
    };
    Some([
        units::duration(latency.mean_ns.round() as u64),
        units::duration(latency.p50_ns),
        rare(latency.p90_ns, 10),
        rare(latency.p99_ns, 100),
        rare(latency.p999_ns, 1000),
        rare(latency.p9999_ns, 10_000),
        units::duration(latency.max_ns),
    ])
}

/// Every cell with its own conditions.
pub fn all_cells(run: &Run) -> String {
    let names = [
        "Subject",
        "test",
        "block",
        "depth asked",
        "reached",
        "measured",
        "MB/s",
        "IOPS",
        "mean latency",
        "drive reads per I/O",
        "drive writes per I/O",
        "CPU per I/O",
        "errors",
        "notes",
    ]
    .map(str::to_owned);
    let mut table = header(&names);
    table.push_str("<tbody>\n");
    for cell in &run.cells {
        table.push_str(&cell_row(run, cell));
    }
    table.push_str("</tbody>\n");
    let summary = format!("All {} cells", run.cells.len());
    format!("<section>\n<h2>Every figure</h2>\n{}</section>\n", fold(&summary, false, &table))
}

fn cell_row(run: &Run, cell: &Cell) -> String {
    let blank = || "–".to_owned();
    let ios = (cell.reads.ios + cell.writes.ios) as f64;
    let per_io = |count: Option<u64>| match count {
        Some(count) if ios > 0.0 => format!("{:.2}", count as f64 / ios),
        _ => blank(),
    };
    let notes: Vec<String> = notes_of(run, cell).into_iter().map(|(_, text)| text).collect();
    let fields = [
        cell.block_bytes.map_or_else(blank, units::size),
        cell.queue_depth_asked.to_string(),
        cell.queue_depth_reached.map_or_else(blank, |depth| format!("{depth:.1}")),
        units::duration(cell.measured_ns),
        figure(cell, Metric::Bytes).unwrap_or_else(blank),
        figure(cell, Metric::Ios).unwrap_or_else(blank),
        cell.latency_ns_mean().map_or_else(blank, |ns| units::duration(ns.round() as u64)),
        per_io(cell.drive_traffic.map(|traffic| traffic.read_ios)),
        per_io(cell.drive_traffic.map(|traffic| traffic.write_ios)),
        cell.cpu_ns_per_io().map_or_else(blank, |ns| units::duration(ns.round() as u64)),
        (cell.reads.errors + cell.writes.errors).to_string(),
    ];
    let class = if cell.is_valid() { "" } else { " class=\"void\"" };
    let fields: String =
        fields.iter().map(|field| format!("<td{class}>{}</td>", escape(field))).collect();
    format!(
        "<tr><th scope=\"row\">{}</th><td class=\"words\">{}</td>{fields}<td class=\"words\">{}</td></tr>\n",
        escape(&run.subjects[cell.subject].name),
        escape(&run.tests[cell.test].name),
        escape(&notes.join("; "))
    )
}
