//! `backplane array fail|stop …`: what is done to an array in service, through its control socket.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use crate::arrays::show;
use crate::arrays::state::ArrayState;
use crate::control::client;
use crate::control::protocol::Act;
use crate::error::Failure;
use crate::output::{self, Outcome};

/// Which array, and how it is told.
#[derive(Debug, Args)]
pub struct Common {
    /// The array: its name or UUID
    #[arg(value_name = "NAME")]
    array: String,
    /// The control socket of the process that serves it; it is found by itself where that process
    /// has it in the usual place
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

/// Flags of `array fail`.
#[derive(Debug, Args)]
pub struct Fail {
    #[command(flatten)]
    common: Common,
    /// The member: its drive, its serial number, or its slot as `array show` has it (slot:1)
    #[arg(value_name = "MEMBER")]
    member: String,
}

/// Flags of `array stop`.
#[derive(Debug, Args)]
pub struct Stop {
    #[command(flatten)]
    common: Common,
    /// Also when the same process serves other arrays, which end with it
    #[arg(long)]
    all: bool,
}

impl Fail {
    /// Carries it out.
    pub fn run(self) -> Result<Outcome, Failure> {
        let member = member(&self.member);
        self.common.change(Act::Fail { array: self.common.array.clone(), member })
    }
}

impl Stop {
    /// Carries it out.
    pub fn run(self) -> Result<Outcome, Failure> {
        let Common { array, json, .. } = &self.common;
        let stopped: Value = self.common.ask(Act::Stop { array: array.clone(), all: self.all })?;
        if *json {
            output::write_json(stopped)?;
        } else {
            output::write(&format!("{array}: stopped, its members are clean\n"))?;
        }
        Ok(Outcome::Well)
    }
}

impl Common {
    fn ask<T: serde::de::DeserializeOwned>(&self, act: Act) -> Result<T, Failure> {
        client::serving(&self.array, self.control.as_deref())?.ask(act, |_| ())
    }

    /// Asks for a change, and shows how the array is after it.
    fn change(&self, act: Act) -> Result<Outcome, Failure> {
        let state: ArrayState = self.ask(act)?;
        if self.json {
            output::write_json(json!({ "array": state }))?;
        } else {
            output::write(&show::words(&state))?;
        }
        Ok(Outcome::of(state.well))
    }
}

/// A member as the serving process understands it, which works in another folder.
fn member(word: &str) -> String {
    let path = Path::new(word);
    match std::path::absolute(path) {
        Ok(absolute) if path.exists() => absolute.display().to_string(),
        _ => word.to_owned(),
    }
}
