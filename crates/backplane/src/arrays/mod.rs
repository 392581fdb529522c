//! `backplane array …`.

mod create;
mod extract;
mod plan;
mod scan;
mod serve;
mod show;

use clap::Subcommand;

use crate::error::Failure;
use crate::output::Outcome;

/// What can be done with arrays.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Make an array from drives; says first what it will be and what is lost
    Create(create::Arguments),
    /// Which arrays drives form, in which state, and why not; never writes
    Scan(scan::Arguments),
    /// One array whole: members, state, layout, sizes; never writes
    Show(show::Arguments),
    /// Serve arrays to clients over NBD until interrupted
    Serve(serve::Arguments),
    /// Copy the whole logical content out; reads only, works degraded
    Extract(extract::Arguments),
}

impl Verb {
    /// Carries it out.
    pub fn run(self) -> Result<Outcome, Failure> {
        match self {
            Verb::Create(arguments) => arguments.run(),
            Verb::Scan(arguments) => arguments.run(),
            Verb::Show(arguments) => arguments.run(),
            Verb::Serve(arguments) => arguments.run(),
            Verb::Extract(arguments) => arguments.run(),
        }
    }
}
