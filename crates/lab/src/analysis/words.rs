//! Phrases for figures, so that report, table and summary say the same thing alike.

use crate::model::{Metric, Point, Run, TestRecord};
use crate::units;

/// A rate with its unit: `2.91 GB/s`, `186 000 IOPS`.
pub fn rate(metric: Metric, value: f64) -> String {
    match metric {
        Metric::Bytes => units::rate(value),
        Metric::Ios => format!("{} IOPS", units::count(value)),
    }
}

/// What tells a point from the others of its test: `1 MiB`, `depth 32`, or nothing.
pub fn point(test: &TestRecord, point: Point) -> Option<String> {
    let block = point.block_bytes.filter(|_| test.block_sizes.len() > 1).map(units::size);
    let depth = (test.queue_depths.len() > 1).then(|| format!("depth {}", point.queue_depth));
    match (block, depth) {
        (Some(block), Some(depth)) => Some(format!("{block}, {depth}")),
        (block, depth) => block.or(depth),
    }
}

/// The same with a preposition, for the middle of a sentence: ` at 1 MiB`, or nothing.
pub fn at_point(test: &TestRecord, at: Point) -> String {
    point(test, at).map_or_else(String::new, |words| format!(" at {words}"))
}

/// A name within a sentence: `One drive` becomes `one drive`, `RAID 5` stays.
pub fn inside(name: &str) -> String {
    let mut letters = name.chars();
    match (letters.next(), letters.clone().next()) {
        (Some(first), Some(second)) if first.is_uppercase() && second.is_lowercase() => {
            first.to_lowercase().chain(letters).collect()
        }
        _ => name.to_owned(),
    }
}

/// A factor against a named one: `3.8 times one drive`, `as fast as one drive`.
pub fn against(factor: f64, name: &str) -> String {
    // "1.0 times" and "0.97 times" would pretend to know a difference.
    if (0.95..1.05).contains(&factor) {
        format!("as fast as {name}")
    } else {
        format!("{} times {name}", short_factor(factor))
    }
}

/// A factor with two digits: `3.8`, `12`, `0.92`.
pub fn short_factor(factor: f64) -> String {
    match factor {
        _ if !factor.is_finite() => "∞".to_owned(),
        _ if factor >= 10.0 => format!("{factor:.0}"),
        _ if factor >= 0.95 => format!("{factor:.1}"),
        _ => format!("{factor:.2}"),
    }
}

/// A share as whole percent, with one decimal below ten.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent.abs() < 9.95 {
        format!("{} %", units::trimmed(percent, 1))
    } else {
        format!("{percent:.0} %")
    }
}

/// Names in a row: `a`, `a and b`, `a, b and c`.
pub fn list(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

/// What the baseline is called within a sentence.
pub fn baseline(run: &Run) -> Option<String> {
    run.baseline().map(|subject| inside(&run.subjects[subject].name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phrases() {
        assert_eq!(rate(Metric::Ios, 186_432.0), "186\u{202f}000 IOPS");
        assert_eq!(inside("One drive"), "one drive");
        assert_eq!(inside("RAID 5"), "RAID 5");
        assert_eq!(inside(""), "");
        assert_eq!(inside("É"), "É");
        assert_eq!(against(3.84, "it"), "3.8 times it");
        assert_eq!(against(0.92, "it"), "0.92 times it");
        assert_eq!(against(12.3, "it"), "12 times it");
        assert_eq!(against(0.98, "it"), "as fast as it");
        assert_eq!(percent(0.256), "26 %");
        assert_eq!(percent(0.034), "3.4 %");
        assert_eq!(percent(-0.24), "-24 %");
        assert_eq!(list(&["a".into(), "b".into(), "c".into()]), "a, b and c");
    }
}
