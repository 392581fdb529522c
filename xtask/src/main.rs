//! The project's own tasks: `cargo xtask test`, `compare`, `simulate`, `torture`, `fuzz` and
//! `demo`.
//!
//! | file | what |
//! | --- | --- |
//! | `test` | everything a change has to pass, with one summary |
//! | `tools` | the programs of others that tests and comparisons use, and where to get them |
//! | `compare` | speed side by side with the peers, as ratios |
//! | `fuzz` | the fuzz targets, for a while |
//! | `demo` | an array made, served, broken and read back |
//! | `torture` | kill -9 of serving processes, again and again |
//! | `run` | starting programs |

mod compare;
mod demo;
mod fuzz;
mod run;
mod test;
mod tools;
mod torture;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The project's own tasks")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Format, lints and every test; installs what they need where it may
    Test {
        /// Only tests whose name contains this
        filter: Option<String>,
        /// Leave out format and lints
        #[arg(long)]
        tests_only: bool,
    },
    /// Speed side by side with the peers, as ratios
    Compare {
        /// Which comparisons; all without a name
        names: Vec<compare::Name>,
        /// Seconds each measurement takes
        #[arg(long, default_value_t = 4)]
        seconds: u64,
    },
    /// Run the fuzz targets
    Fuzz {
        /// Which targets; all without a name
        targets: Vec<String>,
        /// Seconds for each target
        #[arg(long, default_value_t = 60)]
        seconds: u64,
    },
    /// Random histories of the array engine in virtual time, with faults, from seeds
    #[command(disable_help_flag = true)]
    Simulate {
        /// What the simulator takes: see `cargo xtask simulate --help`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Kill serving processes under writes; whatever was acknowledged has to be there afterwards
    Torture {
        /// How often, for each level
        #[arg(long, default_value_t = 200)]
        times: usize,
        /// Only this level: raid1, raid10, raid5 or raid6
        #[arg(long)]
        level: Option<String>,
        /// Repeats the draws of a run that printed it
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Make an array of files, serve it, lose a drive, read everything back
    Demo,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().task {
        Task::Test { filter, tests_only } => test::run(filter.as_deref(), tests_only),
        Task::Compare { names, seconds } => compare::run(&names, seconds),
        Task::Fuzz { targets, seconds } => fuzz::run(&targets, seconds),
        Task::Simulate { arguments } => {
            let mut run = run::cargo();
            run.args(["run", "--quiet", "--release", "--package", "sim"]);
            // What plants faults in the engine is no part of it otherwise.
            if arguments.iter().any(|argument| argument.starts_with("--mutant")) {
                run.args(["--features", "mutants"]);
            }
            run::succeed(run.arg("--").args(arguments))
        }
        Task::Torture { times, level, seed } => torture::run(times, level.as_deref(), seed),
        Task::Demo => demo::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
