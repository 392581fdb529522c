//! The command line: words in, the other rooms at work, words out.
//!
//! | file | what |
//! | --- | --- |
//! | `cli` | every command, its flags and help |
//! | `error`, `output` | what standard error and standard output show |
//! | `values` | sizes, durations and levels as people write them |
//! | `look` | drives and folders named on the command line, opened to look at them |
//! | `scene` | which arrays those drives form, nested ones included |
//! | `guard` | what would be lost, and whether it was named |
//! | `control` | the socket by which administrators reach an array in service |
//! | `session` | the one world of a process |
//! | `arrays`, `drives`, `bench`, `labs`, `generate` | a folder or file for each noun |
//!
//! Left out on purpose: whatever another room knows. Commands ask it and show what it says.

mod arrays;
mod bench;
mod cli;
mod control;
mod drives;
mod error;
mod generate;
mod guard;
mod labs;
mod look;
mod output;
mod scene;
mod session;
mod values;

use std::process;

use clap::Parser;

use cli::Cli;
use output::Outcome;

fn main() {
    let outcome = match Cli::parse().run() {
        Ok(outcome) => outcome,
        Err(error) => {
            error::show(error.as_ref());
            process::exit(2);
        }
    };
    process::exit(match outcome {
        Outcome::Well => 0,
        Outcome::NotWell => 1,
    });
}
