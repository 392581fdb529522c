//! Background jobs as every command shows them: a line, or a bar at a terminal.

use std::io::{self, IsTerminal, Write};

use array::{JobEnd, JobStatus, Limiter};
use serde::{Deserialize, Serialize};

use crate::error;

/// Losses that words list one by one; JSON has as many as the engine keeps.
const LOSSES_SHOWN: usize = 10;

/// Cells of a bar.
const BAR_CELLS: usize = 24;

/// A job as it stands, or as it ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the field's own words; units are in the names")]
pub struct Job {
    pub kind: String,
    /// The slot it fills, where it fills one.
    pub slot: Option<usize>,
    /// Of each member, or of the array where copies are compared.
    pub position_bytes: u64,
    pub end_bytes: u64,
    pub rate_bytes_per_s: u64,
    /// `None` while nothing is known.
    pub time_left_s: Option<f64>,
    /// What keeps it from going faster.
    pub limiter: String,
    pub slowest_drive: Option<String>,
    /// What it could not bring in order, the ones not listed included.
    pub lost_bytes: u64,
    pub losses: Vec<Lost>,
    /// How it ended, once it has.
    pub end: Option<String>,
    pub failure: Option<String>,
}

/// A part of the array that a job could not bring in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// Where in the array.
    pub array_offset: u64,
    /// How much.
    pub bytes: u64,
}

impl From<&JobStatus> for Job {
    fn from(job: &JobStatus) -> Self {
        let losses = job.losses.iter();
        Job {
            kind: job.kind.word().to_owned(),
            slot: job.slot,
            position_bytes: job.position_bytes,
            end_bytes: job.end_bytes,
            rate_bytes_per_s: job.rate_bytes_per_second,
            time_left_s: job.time_left.map(|left| left.as_secs_f64()),
            limiter: job.limiter.word().to_owned(),
            slowest_drive: match &job.limiter {
                Limiter::SlowestDrive(drive) => drive.clone(),
                _ => None,
            },
            lost_bytes: job.lost_bytes,
            losses: losses
                .map(|loss| Lost { array_offset: loss.array_offset, bytes: loss.bytes })
                .collect(),
            end: job.end.as_ref().map(|end| end.word().to_owned()),
            failure: match &job.end {
                Some(JobEnd::Failed { reason }) => Some(reason.clone()),
                _ => None,
            },
        }
    }
}

impl Job {
    /// The share that is done, from 0 to 1.
    fn share(&self) -> f64 {
        if self.end_bytes == 0 { 1.0 } else { self.position_bytes as f64 / self.end_bytes as f64 }
    }

    /// `resync 12.5 %, 98 MiB/s, 40 s left, limited by clients`; or `resync done`.
    pub fn words(&self) -> String {
        let slot = self.slot.map_or(String::new(), |slot| format!(" of slot:{slot}"));
        let kind = format!("{}{slot}", self.kind);
        if let Some(end) = &self.end {
            let why = self.failure.as_ref().map_or(String::new(), |why| format!(": {why}"));
            let lost = match self.lost_bytes {
                0 => String::new(),
                bytes => format!(", {bytes} bytes lost"),
            };
            return format!("{kind} {end}{why}{lost}");
        }
        let percent = 100.0 * self.share();
        let rate = lab::units::size(self.rate_bytes_per_s);
        let left = self.time_left_s.map_or(String::new(), |left| format!(", {left:.0} s left"));
        let drive = self.slowest_drive.as_ref().map_or(String::new(), |name| format!(" {name}"));
        format!("{kind} {percent:.1} %, {rate}/s{left}, limited by {}{drive}", self.limiter)
    }

    /// Where what was lost lies.
    pub fn losses_words(&self) -> Vec<String> {
        let shown = self.losses.iter().take(LOSSES_SHOWN);
        let mut words: Vec<String> = shown
            .map(|lost| format!("lost: {} bytes at byte {}", lost.bytes, lost.array_offset))
            .collect();
        if self.losses.len() > LOSSES_SHOWN {
            words.push(format!("and {} more places", self.losses.len() - LOSSES_SHOWN));
        }
        words
    }

    fn bar(&self) -> String {
        let full = (self.share().clamp(0.0, 1.0) * BAR_CELLS as f64) as usize;
        format!("[{}{}]", "#".repeat(full), "-".repeat(BAR_CELLS - full))
    }
}

/// Shows a job that goes on: a bar that is written over at a terminal, else a line whenever another
/// tenth is done.
#[derive(Default)]
pub struct Progress {
    tenth: Option<(String, u32)>,
    drawn: bool,
}

impl Progress {
    /// Shows how far `job` is.
    pub fn show(&mut self, array: &str, job: &Job) {
        if io::stderr().is_terminal() {
            self.drawn = true;
            // Progress that can't be shown is no reason to stop.
            let line = format!("\r\x1b[K{array}: {} {}", job.bar(), job.words());
            let _ = io::stderr().write_all(line.as_bytes()).and_then(|()| io::stderr().flush());
            return;
        }
        let tenth = (job.kind.clone(), (10.0 * job.share()) as u32);
        if self.tenth.as_ref() != Some(&tenth) {
            error::tell(format_args!("{array}: {}", job.words()));
            self.tenth = Some(tenth);
        }
    }

    /// Leaves the line of the bar to what comes next.
    pub fn end(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _ = io::stderr().write_all(b"\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> Job {
        Job {
            kind: "rebuild".into(),
            slot: Some(2),
            position_bytes: 1 << 20,
            end_bytes: 4 << 20,
            rate_bytes_per_s: 1 << 20,
            time_left_s: Some(3.0),
            limiter: "slowest drive".into(),
            slowest_drive: Some("d1".into()),
            lost_bytes: 0,
            losses: vec![],
            end: None,
            failure: None,
        }
    }

    #[test]
    fn a_job_is_a_line_and_a_bar() {
        assert_eq!(
            job().words(),
            "rebuild of slot:2 25.0 %, 1 MiB/s, 3 s left, limited by slowest drive d1"
        );
        assert_eq!(job().bar(), "[######------------------]");
        let nothing = Job { position_bytes: 0, end_bytes: 0, ..job() };
        assert_eq!(nothing.bar(), format!("[{}]", "#".repeat(24)));
    }

    #[test]
    fn an_end_with_losses_says_where() {
        let losses = (0..12).map(|index| Lost { array_offset: index * 8192, bytes: 4096 });
        let end = Some("done with loss".into());
        let job = Job { end, lost_bytes: 12 * 4096, losses: losses.collect(), ..job() };
        assert_eq!(job.words(), "rebuild of slot:2 done with loss, 49152 bytes lost");
        let words = job.losses_words();
        assert_eq!((words.len(), &*words[1]), (11, "lost: 4096 bytes at byte 8192"));
        assert_eq!(words[10], "and 2 more places");
    }
}
