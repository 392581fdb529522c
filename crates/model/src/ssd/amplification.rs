//! Write amplification of uniformly random writes, in closed form.
//!
//! Let alpha be physical over logical units. Under first-in-first-out cleaning a block is cleaned
//! after a lap of the log in which the host wrote alpha / A drives' worth of units, so a unit is
//! still valid with probability exp(-alpha / A). A block with that share of valid units costs
//! A = 1 / (1 - exp(-alpha / A)) programs per host unit; the solution is
//! A = alpha / (alpha + W(-alpha exp(-alpha))) with W the principal Lambert function (Xiang and
//! Kurkoski 2012; Desnoyers 2012). Greedy cleaning comes to the same from below as blocks grow.

/// Write amplification for `alpha` (physical / logical units, above 1).
///
/// # Panics
/// When `alpha` is not above 1: a drive without spare units can't be cleaned.
#[must_use]
pub fn first_in_first_out(alpha: f64) -> f64 {
    assert!(alpha > 1.0, "no spare units");
    // With x = alpha / A: g(x) = 1 - x / alpha - exp(-x), zero at 0 and once more in (0, alpha).
    let (mut low, mut high) = (alpha.ln(), alpha);
    for _ in 0..100 {
        let x = f64::midpoint(low, high);
        if 1.0 - x / alpha - (-x).exp() > 0.0 { low = x } else { high = x }
    }
    alpha / low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_gives_the_published_values() {
        let table = [
            (0.05, 10.672),
            (0.07, 7.817),
            (0.10, 5.678),
            (0.15, 4.016),
            (0.20, 3.188),
            (0.28, 2.481),
            (0.30, 2.364),
            (0.40, 1.957),
            (0.50, 1.716),
            (1.00, 1.255),
        ];
        for (spare, expected) in table {
            let found = first_in_first_out(1.0 + spare);
            assert!((found - expected).abs() < 0.0006, "spare {spare}: {found}, not {expected}");
        }
    }
}
