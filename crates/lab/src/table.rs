//! The run as a plain text table for a terminal: one row for each point, one column for each
//! subject.
//!
//! No colours and no line drawing: it can be piped, pasted into mail and read aloud. The
//! fastest of a row has a star, a figure that does not count stands in brackets.

use crate::analysis::{Analysis, PointAnalysis, TestAnalysis, words};
use crate::model::{Cell, Metric, Run};
use crate::units;

/// The table with its legend and a line feed at the end.
pub fn render(run: &Run, analysis: &Analysis) -> String {
    let mut rows = vec![header(run)];
    for test in &analysis.tests {
        rows.extend(test.points.iter().map(|point| row(run, test, point)));
    }
    let mut text = aligned(&rows);
    text.push_str(
        "* fastest, or level with it within noise   (…) does not count   - not measured   \
         1 MB/s = 10^6 bytes/s\n",
    );
    text
}

fn header(run: &Run) -> Vec<String> {
    // Names stand over the figures, not over the stars behind them.
    let names = run.subjects.iter().map(|subject| format!("{}  ", subject.name));
    [String::new(), "unit".to_owned()].into_iter().chain(names).collect()
}

fn row(run: &Run, test: &TestAnalysis, point: &PointAnalysis) -> Vec<String> {
    let record = &run.tests[test.test];
    let name = match words::point(record, point.point) {
        Some(at) => format!("{}, {at}", record.name),
        None => record.name.clone(),
    };
    let unit = match test.metric {
        Metric::Bytes => "MB/s",
        Metric::Ios => "IOPS",
    };
    let figures = (0..run.subjects.len()).map(|subject| {
        let Some(cell) = run.cell(subject, test.test, point.point) else {
            return "-  ".to_owned();
        };
        let Some(figure) = figure(cell, test.metric) else { return "(-) ".to_owned() };
        match (cell.is_valid(), point.leads(subject)) {
            (false, _) => format!("({figure}) "),
            (true, true) => format!("{figure} *"),
            // The place of the star stays free, so that figures stand below each other.
            (true, false) => format!("{figure}  "),
        }
    });
    [name, unit.to_owned()].into_iter().chain(figures).collect()
}

/// A rate without its unit: MB/s with a fraction below 100, IOPS whole.
pub fn figure(cell: &Cell, metric: Metric) -> Option<String> {
    let rate = cell.rate(metric)?;
    Some(match metric {
        Metric::Bytes if rate < 99.95e6 => format!("{:.1}", rate / 1e6),
        Metric::Bytes => units::exact((rate / 1e6).round() as u64),
        Metric::Ios => units::exact(rate.round() as u64),
    })
}

/// Columns of equal width: the first two left, the figures right.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|field| field.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, field) in row.iter().enumerate() {
            let width = widths[column];
            if column < 2 {
                line.push_str(&format!("{field:<width$}  "));
            } else {
                line.push_str(&format!("{field:>width$}  "));
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::analyse;
    use crate::made_up;
    use crate::model::{Note, NoteKind};

    #[test]
    fn a_table_is_aligned_and_marks_what_does_not_count() {
        let mut run = made_up::run();
        run.cells[1].notes.push(Note { kind: NoteKind::Errors, text: "2 errors".into() });
        run.cells.remove(3);
        let text = render(&run, &analyse(&run));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 1 + 16 + 1);
        assert!(lines[0].contains("One drive") && lines[0].ends_with("RAID 6"), "{text}");
        assert!(lines[2].starts_with("Sequential read, 16 KiB       MB/s"), "{text}");
        assert!(lines[2].contains("(357)") && !lines[3].contains('('), "{text}");
        assert!(lines[4].contains(" -  "), "{text}");
        assert!(lines[5].contains("2616 *"), "{text}");
        // Figures of a column end where its name ends.
        let end = lines[0].find("RAID 0").unwrap() + "RAID 0".len();
        assert_eq!(lines[5].find("2616").unwrap() + 4, end, "{text}");
        assert!(text.lines().all(|line| line.trim_end() == line));
    }
}
