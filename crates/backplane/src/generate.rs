//! Completions and manual pages, made from the commands themselves when they are asked for.

use std::fs;
use std::io;
use std::path::PathBuf;

use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::error::Failure;
use crate::output::{self, Outcome};

/// Flags of `completions`.
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    /// Writes them to standard output.
    pub fn run(self) -> Result<Outcome, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "backplane", &mut script);
        output::write(&String::from_utf8_lossy(&script))?;
        Ok(Outcome::Well)
    }
}

/// Flags of `man`.
#[derive(Debug, Args)]
pub struct Man {
    /// The folder; it is made if need be
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl Man {
    /// Writes one page for each command: `backplane-array-scan.1` and so on.
    pub fn run(self) -> Result<Outcome, Failure> {
        fs::create_dir_all(&self.folder)?;
        let mut command = Cli::command();
        command.build();
        self.pages(&command, "backplane")?;
        Ok(Outcome::Well)
    }

    fn pages(&self, command: &Command, name: &str) -> io::Result<()> {
        let mut page = Vec::new();
        clap_mangen::Man::new(command.clone()).render(&mut page)?;
        fs::write(self.folder.join(format!("{name}.1")), page)?;
        let inner = command.get_subcommands().filter(|sub| !sub.is_hide_set());
        for sub in inner.filter(|sub| sub.get_name() != "help") {
            self.pages(sub, &format!("{name}-{}", sub.get_name()))?;
        }
        Ok(())
    }
}
