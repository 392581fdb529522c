//! `backplane array …`.

mod act;
mod create;
mod extract;
pub mod job;
mod map;
mod plan;
mod record;
mod scan;
pub mod scrub;
mod serve;
mod show;
pub mod state;

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
    /// One array whole: members, state, layout, sizes; in service or not; never writes
    Show(show::Arguments),
    /// Serve arrays to clients over NBD until interrupted
    Serve(serve::Arguments),
    /// Compare all copies, or data and parity, of a served array; changes no content
    Check(act::Check),
    /// Compare them, and mend what is known to be wrong
    Repair(act::Repair),
    /// Take a member of a served array out of use
    Fail(act::Fail),
    /// Take a member out of a served array; refused where data would be lost
    Remove(act::Remove),
    /// Give a served array a drive: a spare, or the member of an empty slot, which is filled
    Add(act::Add),
    /// Fill a drive to take over from a member of a served array, which serves until then
    Replace(act::Replace),
    /// End the service of an array, when what is under way is done
    Stop(act::Stop),
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
            Verb::Check(arguments) => arguments.run(),
            Verb::Repair(arguments) => arguments.run(),
            Verb::Fail(arguments) => arguments.run(),
            Verb::Remove(arguments) => arguments.run(),
            Verb::Add(arguments) => arguments.run(),
            Verb::Replace(arguments) => arguments.run(),
            Verb::Stop(arguments) => arguments.run(),
            Verb::Extract(arguments) => arguments.run(),
        }
    }
}
