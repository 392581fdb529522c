//! Plants each of the engine's known faults in turn: histories have to catch every one.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use array::mutant::Mutant;

use crate::history::{self, Options};

/// A planted fault that a history met.
struct Catch {
    seed: u64,
    how: String,
}

/// Runs at most `limit` histories with each fault, on all cores, and says which were caught.
pub fn run_all(limit: u64, rounds: u64) -> ExitCode {
    let start = Instant::now();
    let next = AtomicUsize::new(0);
    let catches: Vec<Mutex<Option<Catch>>> = Mutant::ALL.iter().map(|_| Mutex::default()).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let index = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(&mutant) = Mutant::ALL.get(index)
                {
                    let caught = catch(mutant, limit, rounds);
                    *catches[index].lock().expect("nobody panics with it") = caught;
                }
            });
        }
    });
    let catches = catches.into_iter().map(|caught| caught.into_inner().expect("as above"));
    let mut missed = 0;
    for (mutant, caught) in Mutant::ALL.iter().zip(catches) {
        let (name, law) = (mutant.name(), mutant.law());
        match caught {
            Some(Catch { seed, how }) => {
                println!("{name:24} caught by seed {seed}: {law}");
                println!("{:24} {how}", "");
            }
            None => {
                missed += 1;
                println!("{name:24} NOT CAUGHT in {limit} histories: {law}");
            }
        }
    }
    let (all, seconds) = (Mutant::ALL.len(), start.elapsed().as_secs_f64());
    println!("{} of {all} planted faults caught, in {seconds:.0} s", all - missed);
    println!("replay one: cargo xtask simulate --mutant NAME --seed SEED");
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn catch(mutant: Mutant, limit: u64, rounds: u64) -> Option<Catch> {
    let options = Options { rounds, mutant: Some(mutant), ..Options::default() };
    (1..=limit).find_map(|seed| {
        let trouble = history::run(seed, &options).trouble?;
        Some(Catch { seed, how: trouble.to_string() })
    })
}
