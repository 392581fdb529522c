//! Random histories of the unchanged array engine in virtual time, from seeds.
//!
//! | file | what |
//! | --- | --- |
//! | `promise` | what each level and policy promises: where the faults of a history come from |
//! | `kinds` | the arrays |
//! | `plan` | a history before it is played, as data |
//! | `history` | playing it |
//! | `bed`, `plug` | the drives with their faults, and the array on them |
//! | `members` | what happens to members, by fate and by the administrator |
//! | `silent` | what drives do wrong without an error |
//! | `model` | what may be read |
//! | `verify` | whether redundancy agrees |
//! | `shrink` | a failing history made short |
//! | `mutants` | faults planted in the engine, which all have to be caught |
//!
//! The same seed gives the same log, byte for byte.

mod bed;
mod history;
mod kinds;
mod members;
mod model;
#[cfg(feature = "mutants")]
mod mutants;
mod plan;
mod plug;
mod promise;
mod shrink;
mod silent;
mod verify;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use history::{Options, Outcome};
use kinds::KINDS;

#[derive(Parser)]
#[command(name = "cargo xtask simulate", about = "Random histories with faults, from seeds")]
struct Arguments {
    /// Play this one seed and print what happened
    #[arg(long)]
    seed: Option<u64>,
    /// With --seed: only the acts of these numbers, as in 3,7-9
    #[arg(long, value_parser = parse_keep)]
    keep: Option<BTreeSet<u32>>,
    /// How many histories; with --mutants: at most for each
    #[arg(long, default_value_t = 10_000)]
    runs: u64,
    /// As many histories as this many minutes allow
    #[arg(long)]
    minutes: Option<u64>,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// Only arrays of this level
    #[arg(long)]
    level: Option<geometry::Level>,
    /// Rounds of each history
    #[arg(long, default_value_t = 6)]
    rounds: u64,
    /// Print what each level and policy promises
    #[arg(long)]
    promises: bool,
    /// Plant each of the engine's known faults in turn; every one has to be caught
    #[cfg(feature = "mutants")]
    #[arg(long)]
    mutants: bool,
    /// Plant this fault
    #[cfg(feature = "mutants")]
    #[arg(long)]
    mutant: Option<String>,
}

fn parse_keep(text: &str) -> Result<BTreeSet<u32>, String> {
    plan::parse_list(text).ok_or_else(|| "a list of numbers like 3,7-9".to_owned())
}

impl Arguments {
    /// The shape for a seed, when a level was asked for.
    fn kind(&self, seed: u64) -> Option<usize> {
        let level = self.level?;
        let fitting: Vec<usize> =
            (0..KINDS.len()).filter(|&index| KINDS[index].level == level).collect();
        fitting.get(seed as usize % fitting.len().max(1)).copied()
    }

    fn options(&self, seed: u64) -> Options {
        Options {
            kind: self.kind(seed),
            rounds: self.rounds,
            keep: self.keep.clone(),
            logs: self.seed.is_some(),
            #[cfg(feature = "mutants")]
            mutant: self.mutant.as_deref().and_then(array::mutant::Mutant::named),
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.promises {
        println!("{}", promise::table());
        return ExitCode::SUCCESS;
    }
    // A panic is a way a history ends; it is told with its seed.
    std::panic::set_hook(Box::new(|_| {}));
    #[cfg(feature = "mutants")]
    if arguments.mutants {
        return mutants::run_all(arguments.runs, arguments.rounds);
    }
    if let Some(seed) = arguments.seed {
        let options = arguments.options(seed);
        let outcome = history::run(seed, &options);
        outcome.log.borrow().iter().for_each(|line| println!("{line}"));
        if outcome.trouble.is_some() && options.keep.is_some() {
            println!("{}", ending(seed, &outcome));
            return ExitCode::FAILURE;
        }
        return report(&arguments, seed, &outcome);
    }
    many(&arguments)
}

fn ending(seed: u64, outcome: &Outcome) -> String {
    let trouble = outcome.trouble.as_ref().map_or("well".to_owned(), ToString::to_string);
    format!("seed {seed}, {}: {trouble}", outcome.kind)
}

/// Tells of a history that failed: what went wrong, the short form, and how to play it again.
fn report(arguments: &Arguments, seed: u64, outcome: &Outcome) -> ExitCode {
    let Some(trouble) = &outcome.trouble else { return ExitCode::SUCCESS };
    println!("{}", ending(seed, outcome));
    let (options, short) = shrink::shrink(seed, &arguments.options(seed), trouble);
    println!("\nthe shortest history of this seed that still fails:");
    short.log.borrow().iter().for_each(|line| println!("{line}"));
    println!("{}", ending(seed, &short));
    let level = arguments.level.map_or(String::new(), |level| format!(" --level {level}"));
    let rounds = arguments.rounds;
    let numbers: Vec<u32> = options.keep.iter().flatten().copied().collect();
    let keep = plan::list(&numbers);
    println!("replay: cargo xtask simulate --seed {seed} --rounds {rounds}{level} --keep {keep}");
    ExitCode::FAILURE
}

fn many(arguments: &Arguments) -> ExitCode {
    let start = Instant::now();
    let limit = arguments.minutes.map(|minutes| Duration::from_secs(60 * minutes));
    let end = if limit.is_some() { u64::MAX } else { arguments.first + arguments.runs };
    let (next, played) = (AtomicU64::new(arguments.first), AtomicU64::new(0));
    let failed = AtomicBool::new(false);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while limit.is_none_or(|limit| start.elapsed() < limit) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end || failed.load(Ordering::Relaxed) {
                        break;
                    }
                    let outcome = history::run(seed, &arguments.options(seed));
                    played.fetch_add(1, Ordering::Relaxed);
                    // One is enough to look at.
                    if outcome.trouble.is_some() && !failed.swap(true, Ordering::Relaxed) {
                        report(arguments, seed, &outcome);
                    }
                }
            });
        }
    });
    let (played, seconds) = (played.into_inner(), start.elapsed().as_secs_f64());
    println!("{played} histories in {seconds:.1} s, {:.0} a second", played as f64 / seconds);
    if failed.into_inner() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_log() {
        for seed in 1..12 {
            let options = Options { rounds: 6, logs: true, ..Options::default() };
            let (first, second) = (history::run(seed, &options), history::run(seed, &options));
            assert!(first.log == second.log && !first.log.borrow().is_empty(), "seed {seed}");
        }
    }

    #[test]
    fn a_history_without_its_acts_is_empty_and_holds() {
        let none = Options { rounds: 6, keep: Some(BTreeSet::new()), ..Options::default() };
        let outcome = history::run(3, &none);
        assert!(outcome.trouble.is_none() && outcome.numbers.is_empty());
        let one = Options { keep: Some(BTreeSet::from([4])), ..none };
        assert_eq!(history::run(3, &one).numbers, [4]);
    }

    #[test]
    fn histories_hold() {
        for seed in 1..400 {
            let outcome = history::run(seed, &Options { rounds: 6, ..Options::default() });
            assert!(outcome.trouble.is_none(), "{}", ending(seed, &outcome));
        }
    }
}
