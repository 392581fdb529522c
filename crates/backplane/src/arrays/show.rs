//! `backplane array show`: one array whole.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use world::World;

use crate::arrays::job::Progress;
use crate::arrays::map::map_file;
use crate::arrays::record::{Bitmap, Journal, PartialParityLog};
use crate::arrays::scrub::Scrub;
use crate::arrays::state::{ArrayState, Inventory, Member};
use crate::control::client::{self, Client};
use crate::control::protocol::{Act, JobProgress};
use crate::error::Failure;
use crate::look::Look;
use crate::output::{self, Outcome, columns, row};
use crate::session::{self, Ended};
use crate::values::{date, exact_size};

/// Flags of `array show`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The name or UUID of an array that is served, or looked for on all block devices; or its
    /// drives
    #[arg(required = true, value_name = "NAME|DRIVE|DIR")]
    names: Vec<PathBuf>,
    /// Which array, where the drives hold several
    #[arg(long, value_name = "NAME")]
    array: Option<String>,
    /// The control socket of the process that serves it
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Show how background work on a served array goes on, and end with it
    #[arg(long, conflicts_with = "json")]
    follow: bool,
    /// Also write a new file that says which parts of the array the last check left wrong: a map
    /// file as ddrescue and tools for file systems read it
    #[arg(long, value_name = "FILE")]
    map: Option<PathBuf>,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

/// Why there is no map file.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// The array's size is not known.
    #[error("{array} can't be opened: nothing is known of its parts\nhint: `array show` says why")]
    Closed {
        /// The array.
        array: String,
    },
    /// The file.
    #[error("{} is not written: {source}\nhint: name a new file", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl Arguments {
    /// Carries it out.
    pub fn run(self) -> Result<Outcome, Failure> {
        // What exists as a path is a drive; anything else alone is a name.
        let name = match self.names.as_slice() {
            [only] if !only.exists() && !only.to_string_lossy().contains('/') => {
                Some(only.to_string_lossy().into_owned())
            }
            _ => None,
        };
        if let Some(name) = &name
            && let Some(server) = self.server(name)?
        {
            return self.tell(&self.served(server, name)?);
        }
        session::look(async |world| self.look(world, name.as_deref()).await)
    }

    fn server(&self, name: &str) -> Result<Option<Client>, Failure> {
        match &self.control {
            Some(socket) => Client::connect(socket).map(Some),
            None => client::find(name),
        }
    }

    async fn look(&self, world: &World, name: Option<&str>) -> Result<Ended, Failure> {
        let drives = if name.is_some() { &[][..] } else { &self.names };
        let mut look = Look::at(world, drives).await?;
        let scene = look.scene(world).await;
        look.refuse_containers(&scene)?;
        let found = scene.choose(name.or(self.array.as_deref()))?;
        let state = match self.server(&found.uuid().to_string())? {
            // Who serves it knows more than its members say.
            Some(server) => self.served(server, &found.uuid().to_string())?,
            None => ArrayState::at_rest(&found, &Inventory::read()),
        };
        let outcome = self.tell(&state)?;
        Ok(Ended { outcome, hangs: look.hangs() })
    }

    /// What the process that serves it says.
    fn served(&self, mut server: Client, name: &str) -> Result<ArrayState, Failure> {
        let array = name.to_owned();
        if self.follow {
            follow(&mut server, Act::Follow { array })
        } else {
            server.ask(Act::Show { array }, |_| ())
        }
    }

    fn tell(&self, state: &ArrayState) -> Result<Outcome, Failure> {
        if let Some(path) = &self.map {
            let closed = || MapError::Closed { array: state.title.clone() };
            let size = state.size_bytes.ok_or_else(closed)?;
            let map = map_file(&state.title, size, state.scrub.as_ref());
            let file = File::create_new(path);
            let written = file.and_then(|mut file| file.write_all(map.as_bytes()));
            written.map_err(|source| MapError::File { path: path.clone(), source })?;
        }
        if self.json {
            output::write_json(json!({ "array": state }))?;
        } else {
            output::write(&words(state))?;
        }
        Ok(Outcome::of(state.well))
    }
}

/// Asks for something that takes a while, and shows how the array's job goes on.
pub fn follow(server: &mut Client, act: Act) -> Result<ArrayState, Failure> {
    let mut progress = Progress::default();
    let state = server.ask(act, |value| {
        // What can't be read is no progress of a job: a sign of life.
        if let Ok(shown) = serde_json::from_value::<JobProgress>(value.clone()) {
            progress.show(&shown.title, &shown.job);
        }
    });
    progress.end();
    state
}

/// An array in a line.
pub fn headline(state: &ArrayState) -> String {
    let ArrayState { title, state: word, level, slots, uuid, .. } = state;
    let size =
        state.size_bytes.map_or(String::new(), |size| format!(", {}", lab::units::size(size)));
    format!("{title}: {word}, {level} of {slots}{size}, {uuid}\n")
}

/// An array whole.
pub fn words(state: &ArrayState) -> String {
    let mut text = headline(state);
    for reason in &state.reasons {
        text.push_str(&format!("  {reason}\n"));
    }
    let mut rows = Vec::new();
    if let Some(served) = &state.served {
        let access = if served.read_only { "read-only" } else { "read-write" };
        rows.push(row(["served", &format!("{access}, by process {}", served.pid)]));
    }
    rows.push(row(["metadata", &format!("md {}", state.metadata)]));
    if let Some(name) = &state.layout {
        rows.push(row(["layout", name]));
    }
    if state.chunk_bytes > 0 {
        rows.push(row(["chunk", &exact_size(state.chunk_bytes)]));
    }
    if let Some(size) = state.size_bytes {
        rows.push(row(["size", &exact_size(size)]));
    }
    if let Some(stripe) = state.stripe_bytes {
        rows.push(row(["full stripe", &exact_size(stripe)]));
    }
    rows.push(row(["made", &date(state.created_unix_s)]));
    let change = format!("{}, event {}", date(state.updated_unix_s), state.events);
    rows.push(row(["last change", &change]));
    rows.push(row(["redundancy", &redundancy_words(state)]));
    if state.redundancy_agrees.is_some() {
        rows.push(row(["consistency", consistency_words(&state.consistency)]));
    }
    let records = [
        ("bitmap", state.bitmap.as_ref().map(Bitmap::words)),
        ("log", state.partial_parity_log.as_ref().map(PartialParityLog::words)),
        ("journal", state.journal.as_ref().map(Journal::words)),
    ];
    let records = records.into_iter().filter_map(|(word, words)| Some(row([word, &words?])));
    rows.extend(records);
    rows.push(row(["silent rot", silent_words(state)]));
    if let Some(spares) = state.spares.filter(|&spares| spares > 0) {
        rows.push(row(["spares", &spares.to_string()]));
    }
    if let Some(words) = &state.checksums {
        rows.push(row(["checksums", words]));
    }
    for (word, job) in [("job", &state.job), ("last job", &state.last_job)] {
        if let Some(job) = job {
            rows.push(row([word, &job.words()]));
            rows.extend(job.losses_words().iter().map(|lost| row(["", lost])));
        }
    }
    if state.redundancy_agrees.is_some() {
        let lines = state.scrub.as_ref().map(Scrub::words);
        let lines = lines.unwrap_or_else(|| vec!["no check has run".to_owned()]);
        let word = |at: usize| if at == 0 { "check" } else { "" };
        rows.extend(lines.iter().enumerate().map(|(at, line)| row([word(at), line])));
    }
    text.push_str(&columns(2, &rows));
    if state.zones.len() > 1 {
        text.push_str("  zones, narrower where smaller members end\n");
        text.push_str(&columns(4, &zone_rows(state)));
    }
    text.push_str("  members\n");
    text.push_str(&columns(4, &member_rows(&state.members)));
    text
}

fn redundancy_words(state: &ArrayState) -> String {
    match (state.redundancy_agrees, state.redundancy_agrees_to_bytes) {
        (None, _) => "none at this level".to_owned(),
        (Some(true), _) => "agrees".to_owned(),
        (Some(false), Some(bytes)) if bytes > 0 => format!("agrees below {}", exact_size(bytes)),
        (Some(false), _) if state.served.is_some() => "is being made to agree".to_owned(),
        (Some(false), _) => "not known to agree: it was not shut down, or is in use now".to_owned(),
    }
}

fn consistency_words(policy: &str) -> &str {
    match policy {
        "resync" => "resync: all of it, after a sudden end",
        "bitmap" => "bitmap: a resync of what was being written, after a sudden end",
        "ppl" => "ppl: partial parity of what is being written",
        "journal" => "journal: what is being written goes there first",
        other => other,
    }
}

/// What becomes of content that a member changes or loses without an error.
fn silent_words(state: &ArrayState) -> &str {
    match &*state.silent_changes {
        "answered" => "noticed by checksums when read, answered and mended from redundancy",
        "undetectable" => "undetectable: what a drive gives is believed",
        "undecidable" => {
            "undetectable when read; a check finds it, and nobody can know which member is wrong"
        }
        "mendable" => {
            "undetectable when read; a check finds it, a repair mends one wrong member in a place"
        }
        other => other,
    }
}

fn zone_rows(state: &ArrayState) -> Vec<Vec<String>> {
    let zones = state.zones.iter().map(|zone| {
        let slots: Vec<String> = zone.slots.iter().map(usize::to_string).collect();
        row([
            "from byte",
            &zone.start_bytes.to_string(),
            &exact_size(zone.size_bytes),
            "slots",
            &slots.join(" "),
        ])
    });
    zones.collect()
}

/// Which drive is in which slot and what it is good for: enough to pull the right one.
fn member_rows(members: &[Member]) -> Vec<Vec<String>> {
    let known = |of: fn(&Member) -> bool| members.iter().any(of);
    let (models, serials) = (known(|m| m.model.is_some()), known(|m| m.serial.is_some()));
    let mut head = row(["slot", "drive", "size", "used", "unused"]);
    head.extend(models.then(|| "model".to_owned()));
    head.extend(serials.then(|| "serial".to_owned()));
    head.push("state".to_owned());
    let mut rows = vec![head];
    for member in members {
        let size = |bytes: Option<u64>| bytes.map_or("-".to_owned(), lab::units::size);
        let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let mut cells = vec![
            member.slot.map_or("-".to_owned(), |slot| format!("slot:{slot}")),
            text(&member.drive),
            size(member.size_bytes),
            size(member.used_bytes),
            size(member.unused_bytes),
        ];
        cells.extend(models.then(|| text(&member.model)));
        cells.extend(serials.then(|| text(&member.serial)));
        let errors = member.read_errors.filter(|&errors| errors > 0);
        let errors = errors.map_or(String::new(), |errors| format!(", {errors} read errors"));
        let replaced = member.replacement.as_ref();
        let replaced = replaced.map_or(String::new(), |by| format!(", being replaced by {by}"));
        cells.push(format!("{}{errors}{replaced}", member.verdict));
        rows.push(cells);
    }
    rows
}
