//! kill -9 of serving processes under writes, as often as asked: the tests of the command line
//! called `kill`, which do the same a few times with every run of the tests.

use std::time::Instant;

use anyhow::Result;

use crate::run::{cargo, succeed};

/// Kills a process of every level `times` times. `level`: only tests whose name contains it.
pub fn run(times: usize, level: Option<&str>, seed: Option<u64>) -> Result<()> {
    let start = Instant::now();
    let mut tests = cargo();
    tests.args(["test", "--package", "backplane", "--test", "cli", "--"]);
    let filter = level.map_or("kill_9_of_".to_owned(), |level| format!("kill_9_of_{level}_"));
    tests.args([filter.as_str(), "--nocapture", "--test-threads", "1"]);
    tests.env("BACKPLANE_KILL_ROUNDS", times.to_string());
    if let Some(seed) = seed {
        tests.env("BACKPLANE_KILL_SEED", seed.to_string());
    }
    succeed(&mut tests)?;
    println!("{times} kills of each in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}
