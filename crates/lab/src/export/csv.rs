//! CSV: a header and a line for each cell, as RFC 4180 has it but with plain line feeds.
//!
//! A figure that is not known is an empty field, never 0. Units are in the names of the columns.

use crate::analysis::notes_of;
use crate::model::{Cell, DirectionFigures, Latency, Run};

/// Columns of a direction, behind `read_` and `write_`.
const DIRECTION: [&str; 11] = [
    "ios", "bytes", "errors", "mean_ns", "min_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns",
    "p9999_ns", "max_ns",
];
/// Columns before the directions.
const BEFORE: [&str; 12] = [
    "run",
    "subject",
    "test",
    "workload",
    "block_bytes",
    "queue_depth_asked",
    "queue_depth_reached",
    "measured_ns",
    "ramp_ns",
    "working_set_bytes",
    "bytes_per_second",
    "ios_per_second",
];
/// Columns after them.
const AFTER: [&str; 7] = [
    "drive_read_ios",
    "drive_read_bytes",
    "drive_write_ios",
    "drive_write_bytes",
    "cpu_ns_per_io",
    "valid",
    "notes",
];

/// The whole run.
pub fn csv(run: &Run) -> String {
    let mut header: Vec<String> = BEFORE.map(str::to_owned).into();
    for direction in ["read", "write"] {
        header.extend(DIRECTION.map(|name| format!("{direction}_{name}")));
    }
    header.extend(AFTER.map(str::to_owned));
    let mut text = line(&header);
    for cell in &run.cells {
        text.push_str(&line(&fields(run, cell)));
    }
    text
}

fn fields(run: &Run, cell: &Cell) -> Vec<String> {
    let test = &run.tests[cell.test];
    let traffic = cell.drive_traffic;
    let notes: Vec<String> = notes_of(run, cell)
        .into_iter()
        .map(|(kind, text)| format!("{}: {text}", kind.name()))
        .collect();
    let mut fields = vec![
        run.id.clone(),
        run.subjects[cell.subject].name.clone(),
        test.name.clone(),
        test.workload.clone(),
        known(cell.block_bytes),
        cell.queue_depth_asked.to_string(),
        known(cell.queue_depth_reached),
        cell.measured_ns.to_string(),
        cell.ramp_ns.to_string(),
        cell.working_set_bytes.to_string(),
        known(cell.bytes_per_second()),
        known(cell.ios_per_second()),
    ];
    fields.extend(direction(&cell.reads));
    fields.extend(direction(&cell.writes));
    fields.extend([
        known(traffic.map(|it| it.read_ios)),
        known(traffic.map(|it| it.read_bytes)),
        known(traffic.map(|it| it.write_ios)),
        known(traffic.map(|it| it.write_bytes)),
        known(cell.cpu_ns_per_io()),
        cell.is_valid().to_string(),
        notes.join("; "),
    ]);
    fields
}

fn direction(figures: &DirectionFigures) -> [String; 11] {
    let latency = figures.latency.as_ref();
    let at = |pick: fn(&Latency) -> u64| known(latency.map(pick));
    [
        figures.ios.to_string(),
        figures.bytes.to_string(),
        figures.errors.to_string(),
        known(latency.map(|it| it.mean_ns)),
        at(|it| it.min_ns),
        at(|it| it.p50_ns),
        at(|it| it.p90_ns),
        at(|it| it.p99_ns),
        at(|it| it.p999_ns),
        at(|it| it.p9999_ns),
        at(|it| it.max_ns),
    ]
}

fn known<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// One line. Fields that need it are quoted; one that a spreadsheet would take for a formula gets
/// an apostrophe before it, as names come from plans of others.
fn line(fields: &[String]) -> String {
    let fields: Vec<String> = fields
        .iter()
        .map(|field| {
            let formula = field.starts_with(['=', '+', '-', '@']) && field.parse::<f64>().is_err();
            let field = if formula { format!("'{field}") } else { field.clone() };
            if field.contains(['"', ',', '\n', '\r']) {
                format!("\"{}\"", field.replace('"', "\"\""))
            } else {
                field
            }
        })
        .collect();
    format!("{}\n", fields.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up;

    #[test]
    fn every_line_has_every_column_and_blanks_stay_blank() {
        let mut run = made_up::run();
        run.cells[0].drive_traffic = None;
        run.cells[0].cpu_ns = None;
        let text = csv(&run);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 1 + run.cells.len());
        let columns: Vec<usize> = lines.iter().map(|line| line.split(',').count()).collect();
        assert!(columns.iter().all(|count| *count == 12 + 22 + 7), "{columns:?}");
        // Only reads: the latencies of writes are blank, not zero.
        assert!(lines[1].contains(",0,0,0,,,,,,,,,,,,,,true,"), "{}", lines[1]);
    }

    #[test]
    fn fields_are_quoted_where_needed() {
        let fields = ["a,b", "say \"x\"", "=1+1", "-1.5", "plain"].map(str::to_owned);
        assert_eq!(line(&fields), "\"a,b\",\"say \"\"x\"\"\",'=1+1,-1.5,plain\n");
    }
}
