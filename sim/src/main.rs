//! Random histories of the unchanged array engine in virtual time, from seeds.
//!
//! `model` judges what is read, `bed` has the drives with their faults and the array, `history`
//! plays one history, `kinds` lists the arrays, `plug` is a
//! drive as one run of the array's process knows it. The same seed gives the same log, byte for
//! byte.

mod bed;
mod history;
mod kinds;
mod model;
mod plug;

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
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
    /// How many histories
    #[arg(long, default_value_t = 1000)]
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
}

impl Arguments {
    /// The shape for a seed, when a level was asked for.
    fn kind(&self, seed: u64) -> Option<usize> {
        let level = self.level?;
        let fitting: Vec<usize> =
            (0..KINDS.len()).filter(|&index| KINDS[index].level == level).collect();
        fitting.get(seed as usize % fitting.len().max(1)).copied()
    }

    fn play(&self, seed: u64) -> Outcome {
        history::run(seed, Options { kind: self.kind(seed), rounds: self.rounds })
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(seed) = arguments.seed {
        let outcome = arguments.play(seed);
        outcome.log.iter().for_each(|line| println!("{line}"));
        return report(&arguments, seed, &outcome);
    }
    many(&arguments)
}

fn report(arguments: &Arguments, seed: u64, outcome: &Outcome) -> ExitCode {
    let Some(trouble) = &outcome.trouble else { return ExitCode::SUCCESS };
    println!("seed {seed}, {:?}: {trouble}", outcome.kind);
    let level = arguments.level.map_or(String::new(), |level| format!(" --level {level}"));
    // The shortest history of this seed that still fails is the one to look at.
    let shorter = (1..arguments.rounds).find(|&rounds| {
        let options = Options { kind: arguments.kind(seed), rounds };
        history::run(seed, options).trouble.is_some()
    });
    let rounds = shorter.unwrap_or(arguments.rounds);
    println!("replay: cargo xtask simulate --seed {seed} --rounds {rounds}{level}");
    ExitCode::FAILURE
}

fn many(arguments: &Arguments) -> ExitCode {
    let start = Instant::now();
    let limit = arguments.minutes.map(|minutes| Duration::from_secs(60 * minutes));
    let end = if limit.is_some() { u64::MAX } else { arguments.first + arguments.runs };
    let (next, played) = (AtomicU64::new(arguments.first), AtomicU64::new(0));
    let failed = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while limit.is_none_or(|limit| start.elapsed() < limit) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end || failed.load(Ordering::Relaxed) > 0 {
                        break;
                    }
                    let outcome = arguments.play(seed);
                    played.fetch_add(1, Ordering::Relaxed);
                    if report(arguments, seed, &outcome) == ExitCode::FAILURE {
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let (played, seconds) = (played.into_inner(), start.elapsed().as_secs_f64());
    println!("{played} histories, {:.0} a second", played as f64 / seconds);
    if failed.into_inner() > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_log() {
        for seed in 1..6 {
            let options = Options { kind: None, rounds: 6 };
            let (first, second) = (history::run(seed, options), history::run(seed, options));
            assert!(first.log == second.log && !first.log.is_empty(), "seed {seed}");
        }
    }

    #[test]
    fn histories_hold() {
        for seed in 1..400 {
            let outcome = history::run(seed, Options { kind: None, rounds: 6 });
            if let Some(trouble) = outcome.trouble {
                panic!("seed {seed}, {:?}: {trouble}", outcome.kind);
            }
        }
    }
}
