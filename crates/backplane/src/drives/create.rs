//! `backplane drive create`: a file to serve as a drive.

use std::path::PathBuf;

use clap::Args;

use crate::error::Failure;
use crate::output::{self, Outcome};
use crate::values;

/// Flags of `drive create`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The files to make; none of them may exist
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Size of each
    #[arg(long, value_parser = values::size)]
    size: u64,
}

impl Arguments {
    /// Carries it out.
    pub fn run(self) -> Result<Outcome, Failure> {
        for file in &self.files {
            drive::create_file(file, self.size)?;
            output::write(&format!("{}: {}\n", file.display(), values::exact_size(self.size)))?;
        }
        Ok(Outcome::Well)
    }
}
