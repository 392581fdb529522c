//! Scales: where a value stands on an axis, and where its ticks are.

use crate::units;

/// A linear axis from zero, with ticks at 1, 2 or 5 times a power of ten.
#[derive(Clone, Debug, PartialEq)]
pub struct Linear {
    /// Value at the far end: a tick, at least the greatest value.
    pub end: f64,
    /// Ticks from zero to the end.
    pub ticks: Vec<f64>,
}

impl Linear {
    /// An axis that holds `most`, with about `wanted` ticks above zero.
    pub fn new(most: f64, wanted: usize) -> Self {
        let most = if most.is_finite() && most > 0.0 { most } else { 1.0 };
        let rough = most / wanted.max(1) as f64;
        let magnitude = 10f64.powf(rough.log10().floor());
        // The first of 1, 2, 5 and 10 times the magnitude that needs no more ticks than wanted.
        let step = [1.0, 2.0, 5.0, 10.0]
            .map(|factor| factor * magnitude)
            .into_iter()
            .find(|step| *step >= rough * 0.999)
            .unwrap_or(10.0 * magnitude);
        let count = (most / step - 1e-9).ceil().max(1.0) as usize;
        let ticks: Vec<f64> = (0..=count).map(|index| index as f64 * step).collect();
        Self { end: count as f64 * step, ticks }
    }

    /// Share of the axis, 0 to 1, at which a value stands.
    pub fn share(&self, value: f64) -> f64 {
        (value / self.end).clamp(0.0, 1.0)
    }
}

/// A logarithmic axis of base 2.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Log2 {
    first: f64,
    last: f64,
}

impl Log2 {
    /// An axis from the first to the last of some values above zero.
    pub fn new(first: u64, last: u64) -> Self {
        Self { first: (first.max(1) as f64).log2(), last: (last.max(1) as f64).log2() }
    }

    /// Share of the axis, 0 to 1, at which a value stands; the middle if there is only one.
    pub fn share(&self, value: u64) -> f64 {
        let span = self.last - self.first;
        if span <= 0.0 { 0.5 } else { ((value.max(1) as f64).log2() - self.first) / span }
    }
}

/// Every how many-th of `count` labels fits if each needs `label` of `room`.
pub fn label_step(count: usize, label: f64, room: f64) -> usize {
    let fitting = (room / label).floor().max(1.0) as usize;
    count.div_ceil(fitting + 1).max(1)
}

/// A unit for an axis: what a value is divided by, and what it is called.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    /// Values are divided by this.
    pub divisor: f64,
    /// Name for the axis.
    pub name: &'static str,
}

impl Unit {
    /// A tick's label.
    pub fn label(&self, value: f64) -> String {
        units::trimmed(value / self.divisor, 3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_one_two_or_five() {
        let table: [(f64, usize, &[f64]); 6] = [
            (10.0, 5, &[0.0, 2.0, 4.0, 6.0, 8.0, 10.0]),
            (2600.0, 5, &[0.0, 1000.0, 2000.0, 3000.0]),
            (0.7, 4, &[0.0, 0.2, 0.4, 0.6000000000000001, 0.8]),
            (1.0, 2, &[0.0, 0.5, 1.0]),
            (0.0, 5, &[0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]),
            (f64::NAN, 1, &[0.0, 1.0]),
        ];
        for (most, wanted, expected) in table {
            let axis = Linear::new(most, wanted);
            assert_eq!(axis.ticks, expected, "{most} in {wanted}");
            assert_eq!(axis.share(axis.end), 1.0);
        }
    }

    #[test]
    fn powers_of_two_stand_at_equal_distances() {
        let axis = Log2::new(4096, 1 << 20);
        let shares: Vec<f64> = [12, 14, 16, 18, 20].map(|power| axis.share(1 << power)).into();
        assert_eq!(shares, [0.0, 0.25, 0.5, 0.75, 1.0]);
        assert_eq!(Log2::new(4096, 4096).share(4096), 0.5);
    }

    #[test]
    fn labels_are_left_out_before_they_touch() {
        assert_eq!(label_step(5, 50.0, 300.0), 1);
        assert_eq!(label_step(12, 50.0, 300.0), 2);
        assert_eq!(label_step(17, 50.0, 300.0), 3);
        assert_eq!(label_step(1, 50.0, 300.0), 1);
    }
}
