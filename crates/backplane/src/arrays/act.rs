//! `backplane array check|repair|fail|remove|add|replace|stop …`: what is done to an array in
//! service, through its control socket.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use crate::arrays::show;
use crate::arrays::state::ArrayState;
use crate::control::client::{self, Client};
use crate::control::protocol::{Act, AfterAdd};
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

/// Flags of `array check`.
#[derive(Debug, Args)]
pub struct Check {
    #[command(flatten)]
    common: Common,
    /// Return at once, instead of showing how it goes on until it has ended
    #[arg(long, conflicts_with = "cancel")]
    background: bool,
    /// End a check or repair that is under way
    #[arg(long)]
    cancel: bool,
}

/// Flags of `array repair`.
#[derive(Debug, Args)]
pub struct Repair {
    #[command(flatten)]
    common: Common,
    /// Where nobody can know what is wrong, believe the data, and of copies the first one; without
    /// it nothing is changed there
    #[arg(long)]
    trust_data: bool,
    /// First keep every content that the last check left to choose from, in new files in this
    /// folder
    #[arg(long, value_name = "DIR", requires = "trust_data")]
    save: Option<PathBuf>,
    /// Return at once, instead of showing how it goes on until it has ended
    #[arg(long)]
    background: bool,
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

/// Flags of `array remove`.
#[derive(Debug, Args)]
pub struct Remove {
    #[command(flatten)]
    common: Common,
    /// The member, as with `array fail`, or a spare by its drive
    #[arg(value_name = "MEMBER")]
    member: String,
}

/// How a job that an act begins is waited for, and what it may destroy.
#[derive(Debug, Args)]
pub struct Filling {
    /// What on the drive may be lost: the name or UUID of an array, the label or id of a file
    /// system, or the drive's path or serial number; may be repeated
    #[arg(long, value_name = "NAME")]
    yes_destroy: Vec<String>,
    /// Return at once, instead of showing how the drive is filled until that has ended
    #[arg(long)]
    background: bool,
}

/// Flags of `array add`.
#[derive(Debug, Args)]
pub struct Add {
    #[command(flatten)]
    common: Common,
    /// The drive
    #[arg(value_name = "DRIVE")]
    drive: PathBuf,
    #[command(flatten)]
    filling: Filling,
}

/// Flags of `array replace`.
#[derive(Debug, Args)]
pub struct Replace {
    #[command(flatten)]
    common: Common,
    /// The member that goes, as with `array fail`
    #[arg(value_name = "MEMBER")]
    member: String,
    /// The drive that comes
    #[arg(value_name = "DRIVE")]
    drive: PathBuf,
    #[command(flatten)]
    filling: Filling,
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

impl Check {
    /// Carries it out.
    pub fn run(self) -> Result<Outcome, Failure> {
        let array = self.common.array.clone();
        if self.cancel {
            return self.common.change(Act::Cancel { array }, true);
        }
        self.common.change(Act::Check { array }, self.background)
    }
}

impl Repair {
    /// Carries it out.
    pub fn run(self) -> Result<Outcome, Failure> {
        let array = self.common.array.clone();
        let save = self.save.as_deref().map(std::path::absolute).transpose()?;
        let trust_data = self.trust_data;
        self.common.change(Act::Repair { array, trust_data, save }, self.background)
    }
}

impl Fail {
    /// Carries it out.
    pub fn run(self) -> Result<Outcome, Failure> {
        let member = member(&self.member);
        self.common.change(Act::Fail { array: self.common.array.clone(), member }, true)
    }
}

impl Remove {
    /// Carries it out.
    pub fn run(self) -> Result<Outcome, Failure> {
        let member = member(&self.member);
        self.common.change(Act::Remove { array: self.common.array.clone(), member }, true)
    }
}

impl Add {
    /// Carries it out.
    pub fn run(self) -> Result<Outcome, Failure> {
        let array = self.common.array.clone();
        let drive = std::path::absolute(&self.drive)?;
        let Filling { yes_destroy, background } = self.filling;
        let mut server = client::serving(&array, self.common.control.as_deref())?;
        let AfterAdd { state, added } =
            server.ask(Act::Add { array, drive, yes_destroy }, |_| ())?;
        if !self.common.json {
            // At once: what it does to the drive may take hours.
            output::write(&format!("{}: {added}\n", self.drive.display()))?;
        }
        let state = self.common.after(&mut server, state, background)?;
        if self.common.json {
            output::write_json(json!({ "array": state, "added": added }))?;
        } else {
            output::write(&show::words(&state))?;
        }
        Ok(Outcome::of(state.well))
    }
}

impl Replace {
    /// Carries it out.
    pub fn run(self) -> Result<Outcome, Failure> {
        let array = self.common.array.clone();
        let member = member(&self.member);
        let drive = std::path::absolute(&self.drive)?;
        let Filling { yes_destroy, background } = self.filling;
        self.common.change(Act::Replace { array, member, drive, yes_destroy }, background)
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

    /// Asks for a change, shows how what it began goes on, and how the array is after it.
    fn change(&self, act: Act, background: bool) -> Result<Outcome, Failure> {
        let mut server = client::serving(&self.array, self.control.as_deref())?;
        let state = server.ask(act, |_| ())?;
        let state = self.after(&mut server, state, background)?;
        if self.json {
            output::write_json(json!({ "array": state }))?;
        } else {
            output::write(&show::words(&state))?;
        }
        Ok(Outcome::of(state.well))
    }

    /// The array once what was begun has ended, unless nobody wants to wait for it.
    fn after(
        &self,
        server: &mut Client,
        begun: ArrayState,
        background: bool,
    ) -> Result<ArrayState, Failure> {
        if background {
            return Ok(begun);
        }
        show::follow(server, Act::Follow { array: self.array.clone() })
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
