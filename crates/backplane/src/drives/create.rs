//! `backplane drive create`: a file to serve as a drive.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use drive::CreateError;

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
        for (index, file) in self.files.iter().enumerate() {
            self.check(index, file)?;
        }
        for file in &self.files {
            drive::create_file(file, self.size)?;
            output::write(&format!("{}: {}\n", file.display(), values::exact_size(self.size)))?;
        }
        Ok(Outcome::Well)
    }

    /// Refuses a name that is taken or has no folder, before anything is made.
    fn check(&self, index: usize, file: &Path) -> Result<(), CreateError> {
        if fs::symlink_metadata(file).is_ok() || self.files[..index].iter().any(|f| f == file) {
            return Err(CreateError::Exists { path: file.to_owned() });
        }
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = fs::metadata(folder.unwrap_or(Path::new(".")));
        folder.map(drop).map_err(|source| CreateError::System {
            path: file.to_owned(),
            bytes: self.size,
            source,
        })
    }
}
