//! Making a failing history short: acts are left out as long as it still fails.
//!
//! Zeller and Hildebrandt's delta debugging ("Simplifying and isolating failure-inducing input",
//! 2002): ever smaller parts are left out, down to single acts.

use std::collections::BTreeSet;
use std::mem::discriminant;

use crate::bed::Trouble;
use crate::history::{Options, Outcome, run};

/// Histories played at most; what is left then is short enough to read.
const PLAYS_MAX: usize = 3000;

/// The shortest history found of a seed that fails with `options`, and how it ends.
pub fn shrink(seed: u64, options: &Options, trouble: &Trouble) -> (Options, Outcome) {
    let mut best = options.clone();
    let first = run(seed, options);
    let mut kept = first.numbers;
    let mut plays = 0;
    let mut fails = |numbers: &[u32]| {
        plays += 1;
        let keep: BTreeSet<u32> = numbers.iter().copied().collect();
        let shorter = Options { keep: Some(keep), ..options.clone() };
        let ended = run(seed, &shorter).trouble;
        // Another kind of trouble is another fault.
        let same = ended.is_some_and(|ended| discriminant(&ended) == discriminant(trouble));
        (same && plays < PLAYS_MAX).then_some(shorter)
    };
    let mut part = kept.len().div_ceil(2);
    while part > 0 {
        let mut at = 0;
        while at < kept.len() {
            let end = (at + part).min(kept.len());
            let without: Vec<u32> = kept[..at].iter().chain(&kept[end..]).copied().collect();
            match fails(&without) {
                Some(shorter) => (best, kept) = (shorter, without),
                None => at = end,
            }
        }
        part /= 2;
    }
    let best = Options { logs: true, ..best };
    let outcome = run(seed, &best);
    (best, outcome)
}
