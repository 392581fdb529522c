//! `backplane drive …`.

mod create;
mod examine;
mod list;

use clap::Subcommand;

use crate::error::Failure;
use crate::output::Outcome;

/// What can be done with drives.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Block devices: identity, size, use
    List(list::Arguments),
    /// Make a sparse file to serve as a drive
    Create(create::Arguments),
    /// Every metadata copy on drives, of every known format; never writes
    Examine(examine::Arguments),
}

impl Verb {
    /// Carries it out.
    pub fn run(self) -> Result<Outcome, Failure> {
        match self {
            Verb::List(arguments) => arguments.run(),
            Verb::Create(arguments) => arguments.run(),
            Verb::Examine(arguments) => arguments.run(),
        }
    }
}
