//! How sure a figure is: intervals of a cell's time series, resampled.
//!
//! The percentile bootstrap, with a seed of its own, so that the same run always
//! gives the same interval. Resampled are whole intervals of the series, a stall
//! (an interval in which nothing completed) counting as zero.

use workload::Random;
use workload::stats::{bootstrap_interval, mean};

use super::LEAD_LEAST;
use crate::model::{Cell, Metric};

/// How much of the resampled figures an interval holds.
pub const CONFIDENCE: f64 = 0.95;
/// Resamples: enough for ends that are steady to a percent of their distance.
const RESAMPLES: u32 = 1000;
/// Fewest intervals of a series that say anything about its spread.
pub const INTERVALS_LEAST: usize = 5;
/// Seed of the resampling. Any number will do; it has to be the same each time.
const SEED: u64 = 0x5eed;

/// A rate and where it likely lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The rate over the whole measured time.
    pub value: f64,
    /// Lower and upper end of its interval; absent if the series is too short.
    pub interval: Option<(f64, f64)>,
}

/// How far one cell is ahead of another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lead {
    /// The faster rate divided by the slower one.
    pub times: f64,
    /// The interval it likely lies in; absent if a series is too short.
    pub interval: Option<(f64, f64)>,
}

impl Lead {
    /// Whether the lead is larger than the spread, and than what runs differ by anyway.
    pub fn is_real(&self) -> bool {
        self.times >= 1.0 + LEAD_LEAST && self.interval.is_some_and(|(low, _)| low > 1.0)
    }

    /// Whether there was enough to judge by.
    pub fn is_judged(&self) -> bool {
        self.interval.is_some()
    }
}

/// The rate of a cell; absent if nothing was measured.
pub fn estimate(cell: &Cell, metric: Metric) -> Option<Estimate> {
    let value = cell.rate(metric)?;
    let rates = cell.series.rates(metric);
    let interval = (rates.len() >= INTERVALS_LEAST)
        .then(|| bootstrap_interval(&rates, mean, CONFIDENCE, RESAMPLES, SEED))
        .flatten()
        // The series leaves out a last piece of an interval; the figure itself is inside.
        .map(|interval| (interval.low.min(value), interval.high.max(value)));
    Some(Estimate { value, interval })
}

/// How far `first` is ahead of `second`.
pub fn lead(first: &Cell, second: &Cell, metric: Metric) -> Lead {
    let rate = |cell: &Cell| cell.rate(metric).unwrap_or(0.0);
    let times = ratio(rate(first), rate(second));
    let (first, second) = (first.series.rates(metric), second.series.rates(metric));
    Lead { times, interval: ratio_interval(&first, &second) }
}

/// Interval of the ratio of two means, each set resampled on its own.
fn ratio_interval(first: &[f64], second: &[f64]) -> Option<(f64, f64)> {
    if first.len().min(second.len()) < INTERVALS_LEAST {
        return None;
    }
    let mut random = Random::new(SEED, 1);
    let mut ratios: Vec<f64> = (0..RESAMPLES)
        .map(|_| ratio(resampled_mean(first, &mut random), resampled_mean(second, &mut random)))
        .collect();
    ratios.sort_unstable_by(f64::total_cmp);
    let tail = (1.0 - CONFIDENCE) / 2.0;
    let last = ratios.len() - 1;
    let at = |share: f64| ratios[(share * last as f64).round() as usize];
    Some((at(tail), at(1.0 - tail)))
}

fn resampled_mean(values: &[f64], random: &mut Random) -> f64 {
    let sum: f64 = values.iter().map(|_| values[random.below(values.len() as u64) as usize]).sum();
    sum / values.len() as f64
}

/// Nothing against nothing is level; something against nothing is ahead without limit.
fn ratio(first: f64, second: f64) -> f64 {
    match (first > 0.0, second > 0.0) {
        (_, true) => first / second,
        (true, false) => f64::INFINITY,
        (false, false) => 1.0,
    }
}

/// How much the rate moved over the measured time: the rise of a straight line through the
/// series as a share of its mean, negative if it fell. Absent if the series is too short.
pub fn drift(cell: &Cell, metric: Metric) -> Option<f64> {
    let rates = cell.series.rates(metric);
    let mean_rate = mean(&rates).filter(|mean| *mean > 0.0)?;
    if rates.len() < INTERVALS_LEAST {
        return None;
    }
    let middle = (rates.len() - 1) as f64 / 2.0;
    let (mut above, mut below) = (0.0, 0.0);
    for (index, rate) in rates.iter().enumerate() {
        let distance = index as f64 - middle;
        above += distance * (rate - mean_rate);
        below += distance * distance;
    }
    Some(above / below * (rates.len() - 1) as f64 / mean_rate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up;
    use crate::model::Sample;

    fn cell(rates: &[u64]) -> Cell {
        let mut cell = made_up::run().cells.swap_remove(0);
        cell.series.interval_ns = 1_000_000_000;
        cell.series.samples = rates
            .iter()
            .map(|&ios| Some(Sample { ios, bytes: ios * 4096, latency_ns_mean: 1.0 }))
            .collect();
        cell.reads.ios = rates.iter().sum();
        cell.measured_ns = rates.len() as u64 * 1_000_000_000;
        cell
    }

    #[test]
    fn an_interval_holds_its_figure_and_needs_a_series() {
        let estimate = estimate(&cell(&[90, 110, 95, 105, 100, 100]), Metric::Ios).unwrap();
        let (low, high) = estimate.interval.unwrap();
        assert_eq!(estimate.value, 100.0);
        assert!(low > 90.0 && low < 100.0 && high > 100.0 && high < 110.0, "{low} {high}");
        let short = super::estimate(&cell(&[90, 110, 95, 105]), Metric::Ios).unwrap();
        assert_eq!((short.value, short.interval), (100.0, None));
    }

    #[test]
    fn a_lead_is_real_if_it_exceeds_spread_and_threshold() {
        let steady = cell(&[100; 10]);
        let table = [
            // far ahead, without spread
            (vec![150; 10], true),
            // ahead of the spread, but by less than runs differ
            (vec![102; 10], false),
            // ahead on average, within the spread
            (vec![20, 200, 30, 190, 110, 20, 210, 40, 180, 100], false),
        ];
        for (rates, real) in table {
            assert_eq!(lead(&cell(&rates), &steady, Metric::Ios).is_real(), real, "{rates:?}");
        }
        let short = lead(&cell(&[200; 3]), &steady, Metric::Ios);
        assert!(!short.is_real() && !short.is_judged());
        // A stalled rival is not a division by zero.
        let stalled = lead(&steady, &cell(&[0; 10]), Metric::Ios);
        assert!(stalled.is_real() && stalled.times.is_infinite());
    }

    #[test]
    fn drift_is_the_rise_of_the_line() {
        let rising = cell(&[80, 90, 100, 110, 120]);
        assert!((drift(&rising, Metric::Ios).unwrap() - 0.4).abs() < 1e-9);
        assert_eq!(drift(&cell(&[5; 10]), Metric::Ios), Some(0.0));
        assert_eq!(drift(&cell(&[5; 3]), Metric::Ios), None);
        assert_eq!(drift(&cell(&[0; 9]), Metric::Ios), None);
    }
}
