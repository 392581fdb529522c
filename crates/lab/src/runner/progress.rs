//! How far a run is: one line that is rewritten on a terminal, a line for each cell elsewhere.
//!
//! The time left comes from the plan's own times, corrected by what the cells so far really took.

use std::io::Write;

use crate::analysis::words;
use crate::model::{Point, Run};
use crate::plan::PlannedCell;
use crate::units::{self, NS_PER_SECOND};

/// Rate at which filling is expected to go until some of it was seen: a slow disk's.
const FILL_BYTES_PER_SECOND: f64 = 150e6;
/// A line that is rewritten must not wrap: the narrowest terminal there is.
const LINE_LETTERS_MOST: usize = 79;

/// What is shown of a run while it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// One line that is rewritten: for a terminal.
    Line,
    /// A line for each cell: for a file or a pipe.
    Lines,
    /// Nothing.
    Nothing,
}

/// Estimates the time left.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct TimeLeft {
    /// What the plan says the cells left take.
    pub planned_ns: u64,
    /// What the plan said the cells done take.
    pub planned_done_ns: u64,
    /// What they took.
    pub took_ns: u64,
    /// Bytes that are still to be filled.
    pub fill_bytes: u64,
    /// Bytes that were filled.
    pub filled_bytes: u64,
    /// Time that took.
    pub filled_ns: u64,
}

impl TimeLeft {
    /// Nanoseconds from now to the end.
    pub fn estimate_ns(&self) -> u64 {
        let factor = match self.planned_done_ns {
            0 => 1.0,
            // Never faster than planned: cells that failed at once say nothing about the others.
            planned => (self.took_ns as f64 / planned as f64).max(1.0),
        };
        let rate = match (self.filled_bytes, self.filled_ns) {
            (0, _) | (_, 0) => FILL_BYTES_PER_SECOND,
            (bytes, ns) => bytes as f64 * NS_PER_SECOND as f64 / ns as f64,
        };
        let filling_ns = self.fill_bytes as f64 / rate * NS_PER_SECOND as f64;
        (self.planned_ns as f64 * factor + filling_ns) as u64
    }
}

/// Tells a person how far the run is. Whether that can be written is no concern of the run.
pub(super) struct Reporter {
    show: Show,
    out: Box<dyn Write>,
    pub time: TimeLeft,
}

impl Reporter {
    pub fn new(show: Show, out: Box<dyn Write>) -> Self {
        Self { show, out, time: TimeLeft::default() }
    }

    /// Something that takes a while; `done` and `total` in bytes.
    pub fn filling(&mut self, name: &str, done: u64, total: u64) {
        if self.show == Show::Line {
            let (done, total) = (units::size(done), units::size(total));
            self.rewrite(&format!("filling {name} once: {done} of {total}"));
        }
    }

    /// A drive or subject was filled.
    pub fn filled(&mut self, name: &str, bytes: u64) {
        if self.show == Show::Lines {
            self.line(&format!("filled {name} once: {}", units::size(bytes)));
        }
    }

    /// A cell is being measured; `so_far` is its present rate.
    pub fn measuring(&mut self, run: &Run, cell: &PlannedCell, so_far: Option<f64>) {
        if self.show == Show::Line {
            let metric = run.tests[cell.test].metric();
            let figure = so_far.map(|rate| format!(": {}", words::rate(metric, rate)));
            let point = Point { block_bytes: cell.block_bytes, queue_depth: cell.queue_depth };
            let place = place(run, cell.subject, cell.test, point, run.cells.len() + 1);
            self.rewrite(&format!("{place}{}", figure.unwrap_or_default()));
        }
    }

    /// The cell that was just added to the run.
    pub fn measured(&mut self, run: &Run) {
        let Some(cell) = run.cells.last() else { return };
        let metric = run.tests[cell.test].metric();
        let why = cell.notes.iter().find(|note| note.kind.invalidates());
        let figure = match (cell.rate(metric), why) {
            (Some(rate), None) => words::rate(metric, rate),
            // As in the table: in brackets if it does not count.
            (Some(rate), Some(_)) => format!("({})", words::rate(metric, rate)),
            (None, Some(_)) => "not measured".to_owned(),
            (None, None) => "nothing completed".to_owned(),
        };
        let place = place(run, cell.subject, cell.test, cell.point(), run.cells.len());
        let text = format!("{place}: {figure}");
        match self.show {
            Show::Line => self.rewrite(&text),
            Show::Lines => self.line(&text),
            Show::Nothing => {}
        }
    }

    /// Something to know, kept on the screen.
    pub fn remark(&mut self, text: &str) {
        match self.show {
            Show::Line => {
                let _ = write!(self.out, "\r\x1b[K");
                self.line(text);
            }
            Show::Lines => self.line(text),
            Show::Nothing => {}
        }
    }

    /// Nothing more comes.
    pub fn end(&mut self) {
        if self.show == Show::Line {
            let _ = write!(self.out, "\r\x1b[K").and_then(|()| self.out.flush());
        }
    }

    fn rewrite(&mut self, text: &str) {
        let left = format!(", {} left", rounded(self.time.estimate_ns()));
        let room = LINE_LETTERS_MOST.saturating_sub(left.chars().count());
        let text: String = text.chars().take(room).collect();
        let _ = write!(self.out, "\r\x1b[K{text}{left}").and_then(|()| self.out.flush());
    }

    fn line(&mut self, text: &str) {
        let _ = writeln!(self.out, "{text}").and_then(|()| self.out.flush());
    }
}

/// `[ 7/96] RAID 5, Sequential read, 64 KiB`.
fn place(run: &Run, subject: usize, test: usize, point: Point, number: usize) -> String {
    let total = run.cells_planned;
    let width = total.to_string().len();
    let test = &run.tests[test];
    let at = words::point(test, point).map_or_else(String::new, |at| format!(", {at}"));
    format!("[{number:>width$}/{total}] {}, {}{at}", run.subjects[subject].name, test.name)
}

/// A time that nobody takes for exact: whole seconds.
fn rounded(ns: u64) -> String {
    units::duration(ns.div_ceil(NS_PER_SECOND).saturating_mul(NS_PER_SECOND))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = NS_PER_SECOND;

    #[test]
    fn the_time_left_learns_from_what_was_measured() {
        let mut time = TimeLeft { planned_ns: 10 * SECOND, ..TimeLeft::default() };
        assert_eq!(time.estimate_ns(), 10 * SECOND);
        time.fill_bytes = 300_000_000;
        assert_eq!(time.estimate_ns(), 12 * SECOND);
        (time.filled_bytes, time.filled_ns) = (300_000_000, SECOND);
        assert_eq!(time.estimate_ns(), 11 * SECOND);
        (time.planned_done_ns, time.took_ns) = (2 * SECOND, 3 * SECOND);
        assert_eq!(time.estimate_ns(), 16 * SECOND);
        time.took_ns = SECOND / 10;
        assert_eq!(time.estimate_ns(), 11 * SECOND);
    }
}
