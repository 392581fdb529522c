//! How long the arm takes over a number of cylinders.
//!
//! Three published forms, all in nanoseconds over a distance in cylinders:
//!
//! - a table of measured points with straight lines between them;
//! - the curve of Lee (1993) through the three values a datasheet states,
//!   `a sqrt(d - 1) + b (d - 1) + c`;
//! - the form of Ruemmler and Wilkes (1994): a root below a boundary and a line above it, with the
//!   first distances given one by one, as the curve is rough there.
//!
//! Square roots are exact to the last bit everywhere (IEEE 754), so that results can be repeated.

/// Seek time over distance.
#[derive(Debug, Clone, PartialEq)]
pub enum SeekCurve {
    /// The same for every distance.
    Constant(u64),
    /// Measured points, distance in cylinders and time, by distance; at least two.
    Table(Vec<(u32, u64)>),
    /// `root sqrt(d - 1) + line (d - 1) + one`.
    Root {
        /// Nanoseconds per root of a cylinder.
        root_ns: f64,
        /// Nanoseconds per cylinder.
        line_ns: f64,
        /// One cylinder.
        one_ns: f64,
    },
    /// A root below `boundary`, a line from there.
    TwoParts {
        /// Times of the first distances, from one cylinder.
        first_ns: Vec<u64>,
        /// Cylinders where the line begins.
        boundary: u32,
        /// Constant and factor of the root.
        root_ns: (f64, f64),
        /// Constant and factor of the line.
        line_ns: (f64, f64),
    },
}

/// Why a curve can't be drawn through three points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "no seek curve goes through these three times\n\
     hint: the average lies between a third and two thirds on the way from one cylinder to all"
)]
pub struct NoCurve;

impl SeekCurve {
    /// The curve through the times of one cylinder, of the average over all pairs of cylinders,
    /// and of all `cylinders` (Lee and Katz 1993). The mean of the root of the distance over
    /// uniform pairs is 8/15 of the root of the stroke, and of the distance a third of it.
    ///
    /// # Errors
    /// When the curve would fall somewhere.
    pub fn through(one: u64, average: u64, full: u64, cylinders: u32) -> Result<Self, NoCurve> {
        let (one_ns, average, full) = (one as f64, average as f64, full as f64);
        let stroke = f64::from(cylinders.saturating_sub(1).max(1));
        let root_ns = (-10.0 * one_ns + 15.0 * average - 5.0 * full) / (3.0 * stroke.sqrt());
        let line_ns = (7.0 * one_ns - 15.0 * average + 8.0 * full) / (3.0 * stroke);
        // The slope is smallest at the far end when the root bends the curve down.
        let far_slope = root_ns / (2.0 * stroke.sqrt()) + line_ns;
        if root_ns < 0.0 || far_slope < 0.0 {
            return Err(NoCurve);
        }
        Ok(SeekCurve::Root { root_ns, line_ns, one_ns })
    }

    /// Nanoseconds over `distance` cylinders; none over no distance.
    #[must_use]
    pub fn ns(&self, distance: u32) -> u64 {
        if distance == 0 {
            return 0;
        }
        let far = f64::from(distance);
        match self {
            SeekCurve::Constant(ns) => *ns,
            SeekCurve::Table(points) => interpolate(points, distance),
            SeekCurve::Root { root_ns, line_ns, one_ns } => {
                (root_ns * (far - 1.0).sqrt() + line_ns * (far - 1.0) + one_ns).round() as u64
            }
            SeekCurve::TwoParts { first_ns, boundary, root_ns, line_ns } => {
                if let Some(ns) = first_ns.get(distance as usize - 1) {
                    *ns
                } else if distance < *boundary {
                    (root_ns.0 + root_ns.1 * far.sqrt()).round() as u64
                } else {
                    (line_ns.0 + line_ns.1 * far).round() as u64
                }
            }
        }
    }

    /// The mean over all pairs of `cylinders`, each as likely as any other, the same cylinder twice
    /// left out: what datasheets call the average seek.
    #[must_use]
    pub fn average_ns(&self, cylinders: u32) -> f64 {
        let count = f64::from(cylinders);
        // A thousand distances are enough for a smooth curve; short ones are taken one by one.
        let step = (cylinders / 1000).max(1);
        let (mut sum, mut weight) = (0.0, 0.0);
        let mut distance = 1;
        while distance < cylinders {
            let pairs = (count - f64::from(distance)) * f64::from(step);
            sum += pairs * self.ns(distance) as f64;
            weight += pairs;
            distance += step;
        }
        sum / weight
    }
}

/// On a straight line between the points around it, and on the last such line beyond the end.
fn interpolate(points: &[(u32, u64)], distance: u32) -> u64 {
    let above = points.partition_point(|point| point.0 < distance).clamp(1, points.len() - 1);
    let ((left, left_ns), (right, right_ns)) = (points[above - 1], points[above]);
    let along = i128::from(distance) - i128::from(left);
    let rise = i128::from(right_ns) - i128::from(left_ns);
    (i128::from(left_ns) + along * rise / i128::from(right - left)).max(0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_of_a_datasheet_meets_its_three_values() {
        let curve = SeekCurve::through(600_000, 5_200_000, 10_200_000, 30_000).expect("it rises");
        assert_eq!(curve.ns(0), 0);
        assert_eq!(curve.ns(1), 600_000);
        assert!(curve.ns(29_999).abs_diff(10_200_000) < 1_000);
        assert!((curve.average_ns(30_000) - 5_200_000.0).abs() < 20_000.0);
    }

    #[test]
    fn a_curve_that_would_fall_is_refused() {
        assert_eq!(SeekCurve::through(1_000, 2_000, 20_000, 1000), Err(NoCurve));
        assert_eq!(SeekCurve::through(1_000, 19_000, 20_000, 1000), Err(NoCurve));
    }

    #[test]
    fn a_table_is_read_between_and_beyond_its_points() {
        let table = SeekCurve::Table(vec![(1, 1_000), (10, 1_900), (12, 1_800), (20, 2_600)]);
        for (distance, ns) in [(1, 1_000), (4, 1_300), (10, 1_900), (11, 1_850), (30, 3_600)] {
            assert_eq!(table.ns(distance), ns, "{distance} cylinders");
        }
    }

    #[test]
    fn the_two_parts_of_ruemmler_and_wilkes() {
        // HP 97560: 3.24 + 0.400 sqrt d below 383 cylinders, then 8.00 + 0.008 d (in ms).
        let curve = SeekCurve::TwoParts {
            first_ns: vec![2_500_000],
            boundary: 383,
            root_ns: (3_240_000.0, 400_000.0),
            line_ns: (8_000_000.0, 8_000.0),
        };
        assert_eq!(curve.ns(1), 2_500_000);
        assert_eq!(curve.ns(100), 7_240_000);
        assert_eq!(curve.ns(1_000), 16_000_000);
    }
}
