//! Statistics over repeated runs: centre, spread and how sure one may be.
//!
//! Results of runs are few and have outliers, hence the median and the median
//! absolute deviation beside mean and standard deviation, and the bootstrap
//! for the interval: it assumes no distribution, and its seed is an input, so
//! that a report says the same twice.
//!
//! All functions answer `None` where there is no answer: no values, too few,
//! or one that is not finite. Left out: tests of difference between two sets.

use crate::random::Random;

/// Arithmetic mean.
pub fn mean(values: &[f64]) -> Option<f64> {
    let sum: f64 = finite(values)?.iter().sum();
    Some(sum / values.len() as f64)
}

/// Standard deviation of a sample (n - 1 in the divisor); at least two values.
pub fn standard_deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1).then(|| (squares / (values.len() - 1) as f64).sqrt())
}

/// The middle value, or the mean of the two in the middle.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// Median of the distances to the median. Times 1.4826 it estimates the
/// standard deviation of a normal distribution.
pub fn median_absolute_deviation(values: &[f64]) -> Option<f64> {
    let median = median(values)?;
    let distances: Vec<f64> = values.iter().map(|value| (value - median).abs()).collect();
    quantile(&distances, 0.5)
}

/// The value below which a `fraction` (0 to 1) of the values lie, linear
/// between neighbours (R's type 7).
pub fn quantile(values: &[f64], fraction: f64) -> Option<f64> {
    let mut sorted = finite(values)?.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    quantile_of_sorted(&sorted, fraction)
}

/// An interval in which a figure lies with the given confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConfidenceInterval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// The percentile bootstrap (B. Efron, 1979): `statistic` of `resamples` sets
/// drawn from `values` with replacement; the interval holds the middle
/// `confidence` (between 0 and 1) of them.
///
/// `None` also if `statistic` is `None` for a set, or without resamples. With
/// fewer than about five values the interval is too narrow to mean much.
pub fn bootstrap_interval(
    values: &[f64],
    statistic: impl Fn(&[f64]) -> Option<f64>,
    confidence: f64,
    resamples: u32,
    seed: u64,
) -> Option<ConfidenceInterval> {
    finite(values)?;
    if !(0.0..1.0).contains(&confidence) {
        return None;
    }
    let mut random = Random::new(seed, 0);
    let mut resample = vec![0.0; values.len()];
    let mut figures = Vec::new();
    for _ in 0..resamples {
        for value in &mut resample {
            *value = values[random.below(values.len() as u64) as usize];
        }
        figures.push(statistic(&resample)?);
    }
    finite(&figures)?;
    figures.sort_unstable_by(f64::total_cmp);
    let tail = (1.0 - confidence) / 2.0;
    Some(ConfidenceInterval {
        low: quantile_of_sorted(&figures, tail)?,
        high: quantile_of_sorted(&figures, 1.0 - tail)?,
    })
}

fn finite(values: &[f64]) -> Option<&[f64]> {
    (!values.is_empty() && values.iter().all(|value| value.is_finite())).then_some(values)
}

fn quantile_of_sorted(sorted: &[f64], fraction: f64) -> Option<f64> {
    if !(0.0..=1.0).contains(&fraction) {
        return None;
    }
    let last = sorted.len().checked_sub(1)?;
    let position = fraction * last as f64;
    let lower = (position.floor() as usize).min(last);
    let upper = (lower + 1).min(last);
    let share = position - lower as f64;
    // Not lower + share * (upper - lower), which overflows for huge values.
    Some(sorted[lower] * (1.0 - share) + sorted[upper] * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_by_hand() {
        let values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        assert_eq!(mean(&values), Some(5.0));
        assert_eq!(median(&values), Some(4.5));
        assert_eq!(standard_deviation(&values), Some((32.0_f64 / 7.0).sqrt()));
        assert_eq!(median_absolute_deviation(&values), Some(0.5));
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(quantile(&[0.0, 10.0], 0.25), Some(2.5));
        assert_eq!(quantile(&[1.0, 2.0, 3.0], 1.0), Some(3.0));
    }

    #[test]
    fn no_answer_where_there_is_none() {
        assert_eq!(mean(&[]), None);
        assert_eq!(median(&[]), None);
        assert_eq!(standard_deviation(&[1.0]), None);
        assert_eq!(mean(&[1.0, f64::NAN]), None);
        assert_eq!(median(&[1.0, f64::INFINITY]), None);
        assert_eq!(quantile(&[1.0], 1.5), None);
        assert_eq!(bootstrap_interval(&[1.0], mean, 1.0, 10, 0), None);
        assert_eq!(bootstrap_interval(&[1.0], mean, 0.95, 0, 0), None);
        assert_eq!(bootstrap_interval(&[], mean, 0.95, 10, 0), None);
    }

    #[test]
    fn the_bootstrap_agrees_with_theory_and_repeats() {
        // 400 values, even over 0 to 1: the mean's standard error is
        // sqrt(1/12)/20 = 0.01443, the interval 1.96 times that each way.
        let values: Vec<f64> = (0..400).map(|step| (f64::from(step) + 0.5) / 400.0).collect();
        let interval = bootstrap_interval(&values, mean, 0.95, 4000, 1).unwrap();
        assert!((interval.low - (0.5 - 0.0283)).abs() < 0.003, "{interval:?}");
        assert!((interval.high - (0.5 + 0.0283)).abs() < 0.003, "{interval:?}");
        assert_eq!(bootstrap_interval(&values, mean, 0.95, 4000, 1), Some(interval));
        assert_ne!(bootstrap_interval(&values, mean, 0.95, 4000, 2), Some(interval));
    }

    #[test]
    fn equal_values_leave_no_doubt() {
        let interval = bootstrap_interval(&[7.0; 5], median, 0.95, 100, 3);
        assert_eq!(interval, Some(ConfidenceInterval { low: 7.0, high: 7.0 }));
    }
}
