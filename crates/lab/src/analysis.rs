//! What the figures of a run say: who won at what, by how much, and whether it is real.
//!
//! Pure: the same run gives the same words. Nothing here knows a level; a
//! subject is known by what it keeps (parity, copies) and by its figures.
//!
//! Whether a lead is real is judged from the intervals of the time series by a
//! bootstrap ([`spread`]). That is the spread within one run: neighbouring
//! intervals depend on each other and runs differ among themselves, so a lead
//! that passes is likely, not proven, and one below [`LEAD_LEAST`] is never
//! called a lead.

mod caution;
mod finding;
pub mod spread;
pub mod words;

use crate::model::{Cell, Metric, Point, Run};
pub use caution::of_cell as notes_of;
use spread::{Estimate, Lead};

/// A lead below this share counts as none: runs differ that much among themselves.
pub const LEAD_LEAST: f64 = 0.03;

/// What a run says.
#[derive(Clone, Debug, PartialEq)]
pub struct Analysis {
    /// The plain words on top: one finding each, the most important first.
    pub headline: Vec<String>,
    /// What to know before believing the rest: cells that don't count, conditions that are not what
    /// they seem.
    pub cautions: Vec<String>,
    /// Test by test, in the plan's order.
    pub tests: Vec<TestAnalysis>,
}

/// What one test says.
#[derive(Clone, Debug, PartialEq)]
pub struct TestAnalysis {
    /// Index into [`Run::tests`].
    pub test: usize,
    /// What its rates count.
    pub metric: Metric,
    /// Every point of the test, in its order.
    pub points: Vec<PointAnalysis>,
    /// Index of the point that stands for the test: greatest block, deepest queue.
    pub main_point: usize,
    /// Findings in plain words.
    pub sentences: Vec<String>,
}

/// How the subjects stand at one point.
#[derive(Clone, Debug, PartialEq)]
pub struct PointAnalysis {
    /// Block size and queue depth.
    pub point: Point,
    /// Subjects with valid figures, the fastest first.
    pub standings: Vec<Standing>,
    /// Whether the first is really ahead.
    pub verdict: Verdict,
}

/// One subject at one point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    /// Index into [`Run::subjects`].
    pub subject: usize,
    /// Its rate, with the interval it likely lies in.
    pub rate: Estimate,
    /// Its rate divided by the baseline's, where that is known.
    pub times_baseline: Option<f64>,
    /// How far the first of the point is ahead of this one; absent for the first itself.
    pub behind: Option<Lead>,
}

/// Whether the fastest of a point is really ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No valid figures.
    Nothing,
    /// Only one subject has valid figures.
    Alone,
    /// Ahead of all others.
    Won,
    /// This many subjects, the first included, can't be told apart.
    Tied(usize),
    /// The series are too short to judge.
    Unjudged,
}

impl TestAnalysis {
    /// The point that stands for the test.
    pub fn main(&self) -> &PointAnalysis {
        &self.points[self.main_point]
    }
}

impl PointAnalysis {
    /// The standing of a subject, if it has valid figures.
    pub fn of(&self, subject: usize) -> Option<&Standing> {
        self.standings.iter().find(|standing| standing.subject == subject)
    }

    /// Whether a subject is the fastest or can't be told from it.
    pub fn leads(&self, subject: usize) -> bool {
        let place = self.standings.iter().position(|standing| standing.subject == subject);
        match (place, self.verdict) {
            (Some(place), Verdict::Tied(count)) => place < count,
            (place, _) => place == Some(0),
        }
    }
}

/// Reads a run.
pub fn analyse(run: &Run) -> Analysis {
    let mut tests: Vec<TestAnalysis> =
        (0..run.tests.len()).filter_map(|test| test_analysis(run, test)).collect();
    for test in &mut tests {
        test.sentences = finding::of_test(run, test);
    }
    let headline = finding::headline(run, &tests);
    Analysis { headline, cautions: caution::all(run), tests }
}

/// None for a test without points, which no plan has.
fn test_analysis(run: &Run, test: usize) -> Option<TestAnalysis> {
    let record = &run.tests[test];
    let points: Vec<PointAnalysis> =
        record.points().into_iter().map(|point| standings(run, test, point)).collect();
    // Points are ordered by block, then depth: the last is the greatest and deepest.
    let main_point = points.len().checked_sub(1)?;
    let metric = record.metric();
    Some(TestAnalysis { test, metric, points, main_point, sentences: Vec::new() })
}

fn standings(run: &Run, test: usize, point: Point) -> PointAnalysis {
    let metric = run.tests[test].metric();
    let mut valid: Vec<(usize, &Cell, Estimate)> = (0..run.subjects.len())
        .filter_map(|subject| {
            let cell = run.cell(subject, test, point).filter(|cell| cell.is_valid())?;
            Some((subject, cell, spread::estimate(cell, metric)?))
        })
        .collect();
    // The subject's place in the plan decides between equals, so that the order is always the same.
    valid.sort_by(|left, right| right.2.value.total_cmp(&left.2.value).then(left.0.cmp(&right.0)));
    let baseline = run.baseline();
    let baseline_rate = valid
        .iter()
        .find(|(subject, ..)| Some(*subject) == baseline)
        .map(|(_, _, rate)| rate.value)
        .filter(|rate| *rate > 0.0);
    let mut standings: Vec<Standing> = Vec::new();
    for (place, (subject, cell, rate)) in valid.iter().enumerate() {
        let behind = (place > 0).then(|| spread::lead(valid[0].1, cell, metric));
        standings.push(Standing {
            subject: *subject,
            rate: *rate,
            times_baseline: baseline_rate.map(|baseline| rate.value / baseline),
            behind,
        });
    }
    let verdict = verdict(&standings);
    PointAnalysis { point, standings, verdict }
}

fn verdict(standings: &[Standing]) -> Verdict {
    match standings {
        [] => Verdict::Nothing,
        [_] => Verdict::Alone,
        [_, others @ ..] => {
            // Contenders come in order of rate: the tie ends at the first that is clearly behind.
            let tied = others
                .iter()
                .take_while(|standing| standing.behind.is_none_or(|lead| !lead.is_real()))
                .count();
            let judged = others[0].behind.is_some_and(|lead| lead.is_judged());
            match tied {
                0 => Verdict::Won,
                _ if !judged => Verdict::Unjudged,
                tied => Verdict::Tied(tied + 1),
            }
        }
    }
}

#[cfg(test)]
mod tests;
