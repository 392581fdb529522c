//! Sweeps: the loads and sizes at which a workload is repeated, as values,
//! and the ratings that were published for such a row of results.
//!
//! Left out: running them.

use thiserror::Error;

/// A named row of queue depths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DepthLadder {
    /// The name in plans.
    pub name: &'static str,
    /// Who used it.
    pub source: &'static str,
    /// Queue depths, ascending.
    pub depths: &'static [u32],
}

/// The ladders in use, the lab's own first.
pub const DEPTH_LADDERS: &[DepthLadder] = &[
    DepthLadder {
        name: "lab",
        source: "the default here: all others are part of it",
        depths: &[1, 2, 4, 8, 16, 32, 64, 128, 256],
    },
    DepthLadder {
        name: "storagereview",
        source: "StorageReview 2001: file server, workstation, database",
        depths: &[1, 4, 16, 64, 256],
    },
    DepthLadder {
        name: "xbit-workstation",
        source: "X-bit labs and F-Center: workstation",
        depths: &[1, 2, 4, 8, 16, 32],
    },
    DepthLadder {
        name: "xbit-server",
        source: "X-bit labs and F-Center: file, web and database server",
        depths: &[1, 2, 4, 8, 16, 32, 64, 128, 256],
    },
    DepthLadder { name: "tweakers", source: "Tweakers", depths: &[1, 2, 4, 8, 16, 32, 64] },
    DepthLadder {
        name: "iometer",
        source: "Iometer's default cycling: 1 to 32, exponential, base 2",
        depths: &[1, 2, 4, 8, 16, 32],
    },
];

/// The ladder of that name.
pub fn find_depth_ladder(name: &str) -> Option<&'static DepthLadder> {
    DEPTH_LADDERS.iter().find(|ladder| ladder.name == name)
}

/// First and last request size of the lab's sweep over sizes: 512 B to 32 MiB,
/// as wide as the widest published chart.
pub const LAB_BLOCK_SIZES: (u64, u64) = (512, 32 << 20);

/// First and last request size in the method of F-Center: 512 B to 1 MiB.
pub const F_CENTER_BLOCK_SIZES: (u64, u64) = (512, 1 << 20);

/// Queue depth of both methods' sweeps over sequential sizes.
pub const BLOCK_SIZE_SWEEP_DEPTH: u32 = 4;

/// Why there is no such row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SweepError {
    /// An end that is not a power of two.
    #[error("{value} is not a power of two")]
    NotPowerOfTwo {
        /// The end given.
        value: u64,
    },
    /// The first is above the last.
    #[error("a sweep from {from} to {to} has no steps")]
    Backwards {
        /// First value.
        from: u64,
        /// Last value.
        to: u64,
    },
}

/// The powers of two from `from` to `to`, both included.
pub fn powers_of_two(from: u64, to: u64) -> Result<Vec<u64>, SweepError> {
    if let Some(value) = [from, to].into_iter().find(|value| !value.is_power_of_two()) {
        return Err(SweepError::NotPowerOfTwo { value });
    }
    if from > to {
        return Err(SweepError::Backwards { from, to });
    }
    Ok((from.ilog2()..=to.ilog2()).map(|exponent| 1 << exponent).collect())
}

/// One result of a ladder: queue depth and requests per second.
pub type DepthResult = (u32, f64);

/// X-bit labs' workstation rating: the sum of requests per second divided by
/// depth, over depths 1, 2, 4, 8, 16 and 32. `None` if one of them is missing.
pub fn xbit_workstation_rating(results: &[DepthResult]) -> Option<f64> {
    [1, 2, 4, 8, 16, 32]
        .into_iter()
        .map(|depth| at_depth(results, depth).map(|rate| rate / f64::from(depth)))
        .sum()
}

/// X-bit labs' file and web server rating: the mean over all loads. `None` if
/// there are none.
pub fn xbit_server_rating(results: &[DepthResult]) -> Option<f64> {
    let sum: f64 = results.iter().map(|&(_, rate)| rate).sum();
    (!results.is_empty()).then(|| sum / results.len() as f64)
}

/// The mean over depths 16, 64 and 256 of each result divided by that of a
/// reference drive: the form of StorageReview's index. `None` if one is
/// missing or the reference is 0.
pub fn storagereview_index(results: &[DepthResult], reference: &[DepthResult]) -> Option<f64> {
    let sum: f64 = [16, 64, 256]
        .into_iter()
        .map(|depth| {
            let base = at_depth(reference, depth).filter(|&rate| rate > 0.0)?;
            Some(at_depth(results, depth)? / base)
        })
        .sum::<Option<f64>>()?;
    Some(sum / 3.0)
}

fn at_depth(results: &[DepthResult], depth: u32) -> Option<f64> {
    results.iter().find(|&&(at, _)| at == depth).map(|&(_, rate)| rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_two_include_both_ends() {
        assert_eq!(powers_of_two(512, 4096), Ok(vec![512, 1024, 2048, 4096]));
        assert_eq!(powers_of_two(1, 1), Ok(vec![1]));
        let (from, to) = LAB_BLOCK_SIZES;
        assert_eq!(powers_of_two(from, to).map(|sizes| sizes.len()), Ok(17));
        let (from, to) = F_CENTER_BLOCK_SIZES;
        assert_eq!(powers_of_two(from, to).map(|sizes| sizes.len()), Ok(12));
        assert_eq!(powers_of_two(1, 1 << 63).map(|sizes| sizes.len()), Ok(64));
        assert_eq!(powers_of_two(0, 8), Err(SweepError::NotPowerOfTwo { value: 0 }));
        assert_eq!(powers_of_two(1, 12), Err(SweepError::NotPowerOfTwo { value: 12 }));
        assert_eq!(powers_of_two(8, 4), Err(SweepError::Backwards { from: 8, to: 4 }));
    }

    #[test]
    fn the_labs_ladder_holds_all_others() {
        let lab = find_depth_ladder("lab").unwrap();
        for ladder in DEPTH_LADDERS {
            assert!(ladder.depths.is_sorted());
            assert!(ladder.depths.iter().all(|depth| lab.depths.contains(depth)));
        }
        assert_eq!(find_depth_ladder("none"), None);
    }

    #[test]
    fn ratings_by_hand() {
        let results: Vec<DepthResult> =
            [1, 2, 4, 8, 16, 32, 64, 256].map(|depth| (depth, f64::from(depth) * 10.0)).to_vec();
        assert_eq!(xbit_workstation_rating(&results), Some(60.0));
        assert_eq!(xbit_workstation_rating(&results[1..]), None);
        assert_eq!(xbit_server_rating(&[(1, 10.0), (2, 20.0)]), Some(15.0));
        assert_eq!(xbit_server_rating(&[]), None);
        let halves: Vec<_> = results.iter().map(|&(depth, rate)| (depth, rate / 2.0)).collect();
        assert_eq!(storagereview_index(&results, &halves), Some(2.0));
        assert_eq!(storagereview_index(&results, &[]), None);
    }
}
