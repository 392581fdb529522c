//! Every command with its flags; the help texts are these comments.

use clap::{Parser, Subcommand};

use crate::error::Failure;
use crate::output::Outcome;
use crate::{arrays, bench, drives, generate, labs};

const EXIT_STATUS: &str = "\
Exit status: 0 done; 1 done, and what was asked about is not well; 2 not done.
Sizes are bytes, or powers of 1024: 64K, 1M, 10G, 2T. Durations: 500ms, 10s, 2m.";

/// Builds disk arrays from drives, serves them, and measures them
#[derive(Debug, Parser)]
#[command(name = "backplane", version, after_help = EXIT_STATUS, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    noun: Noun,
}

#[derive(Debug, Subcommand)]
enum Noun {
    /// Drives: block devices, and files that serve as drives
    #[command(subcommand)]
    Drive(drives::Verb),
    /// Arrays: made from drives, found on them, served and read out
    #[command(subcommand)]
    Array(arrays::Verb),
    /// Measure one target
    Bench(bench::Arguments),
    /// Plans, runs and reports
    #[command(subcommand)]
    Lab(labs::Verb),
    /// Write the completions of a shell to standard output
    #[command(hide = true)]
    Completions(generate::Completions),
    /// Write the manual pages into a folder
    #[command(hide = true)]
    Man(generate::Man),
}

impl Cli {
    /// Carries the command out.
    pub fn run(self) -> Result<Outcome, Failure> {
        match self.noun {
            Noun::Drive(verb) => verb.run(),
            Noun::Array(verb) => verb.run(),
            Noun::Bench(arguments) => arguments.run(),
            Noun::Lab(verb) => verb.run(),
            Noun::Completions(arguments) => arguments.run(),
            Noun::Man(arguments) => arguments.run(),
        }
    }
}
