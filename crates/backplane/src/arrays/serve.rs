//! `backplane array serve`: arrays to clients over NBD, until interrupted.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use array::{Array, OpenMode};
use clap::Args;
use drive::{Drive, FileDrive, OpenOptions};
use target::control::{self, ControlError, ControlServer};
use target::nbd::Export;
use target::nbd::server::{Address, Events, Limits, ListenError, Server, ServerEvent, offer};
use world::World;

use crate::arrays::extract::readable;
use crate::arrays::job::Job;
use crate::control::place;
use crate::control::serving::{Door, Serving};
use crate::error::{self, Failure};
use crate::guard;
use crate::look::Look;
use crate::output::{self, Outcome};
use crate::scene::{Found, Scene, now_seconds};
use crate::session::{self, Ended};
use crate::values::exact_size;

/// How often the progress of background work is shown at a terminal.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// Flags of `array serve`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The drives of the arrays, and folders that hold them
    #[arg(required = true, value_name = "DRIVE|DIR")]
    drives: Vec<PathBuf>,
    /// Where to listen: unix:PATH, tcp:PORT (this machine only) or tcp:HOST:PORT
    #[arg(long, value_name = "ADDRESS")]
    nbd: Address,
    /// Only this array; may be repeated
    #[arg(long = "array", value_name = "NAME")]
    arrays: Vec<String>,
    /// The control socket, by which the other `array` commands reach what is served [default: one
    /// for each array, NAME.sock in /run/backplane for root or in $XDG_RUNTIME_DIR/backplane]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Nothing is written, not even that the array was opened
    #[arg(long)]
    read_only: bool,
    /// Start a degraded array that was not shut down: what was being written then may be lost
    #[arg(long)]
    force: bool,
}

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Degraded, and not shut down.
    #[error(
        "{array} is degraded and was not shut down: what was being written then may be wrong on \
         the missing member\n\
             hint: look at it with --read-only first; --force starts it all the same"
    )]
    DirtyDegraded {
        /// The array.
        array: String,
    },
    /// No array on the drives.
    #[error(
        "no array was found on these drives\nhint: `backplane drive examine` shows what is on each"
    )]
    Nothing,
}

impl Arguments {
    /// Carries it out.
    pub fn run(self) -> Result<Outcome, Failure> {
        session::run(async |world| self.serve(world).await)
    }

    async fn serve(&self, world: &World) -> Result<Ended, Failure> {
        let interrupted = session::interruption(world)?;
        let needed = self.look(world).await?;
        let held = self.open(world, &needed)?;
        let scene = Rc::new(self.assemble(world, &held).await);
        let chosen = self.chosen(&scene)?;
        let mut exports: Vec<(Export, Rc<dyn Drive>)> = Vec::new();
        let mut arrays = Vec::new();
        let mut names = BTreeSet::new();
        for found in &chosen {
            let array = readable(found)?;
            let mut name = found.title();
            if !names.insert(name.clone()) {
                name = found.uuid().to_string();
            }
            exports.push((offer(&name, array.facts()), Rc::new(array.clone())));
            arrays.push((name, array.clone()));
        }
        let server = Server::new(world, exports, Limits::default(), Rc::new(Log))?;
        let address = server.listen(&self.nbd)?;
        let serving = Serving::new(world, Rc::clone(&scene), held, server.clone());
        let doors = Rc::new(Door(Rc::clone(&serving)));
        let control = ControlServer::new(world, control::Limits::default(), doors)?;
        let sockets = self.listen(&control, &scene)?;
        for ((name, array), found) in arrays.iter().zip(&chosen) {
            announce(name, array, found, &address)?;
        }
        for socket in sockets {
            output::write(&format!("control: {}\n", socket.display()))?;
        }
        let stopper = Rc::clone(&serving);
        world.spawn(async move {
            interrupted.await;
            error::tell("stopping: waiting for what is under way");
            stopper.stop();
        });
        if io::stderr().is_terminal() {
            world.spawn(show_progress(world.clone(), arrays.clone()));
        }
        let served = server.serve().await.map_err(Failure::from);
        let ended = scene.stop().await.and(served);
        serving.ended(ended.as_ref().map_err(ToString::to_string).copied());
        control.stop().await;
        ended?;
        let all = scene.found();
        let mut open = all.iter().filter_map(|found| found.array().ok());
        let well = open.all(|array| array.status().health.is_fine());
        Ok(Ended::from(Outcome::of(well)))
    }

    /// Opens the control sockets: the one that was asked for, or one for each array where others
    /// look for it.
    fn listen(&self, control: &ControlServer, scene: &Scene) -> Result<Vec<PathBuf>, Failure> {
        if let Some(path) = &self.control {
            control.listen(path)?;
            return Ok(vec![path.clone()]);
        }
        let mut sockets = Vec::new();
        for found in scene.outer().iter().filter(|found| found.array().is_ok()) {
            match listen_for(control, found) {
                Ok(path) => sockets.push(path),
                // It is served all the same.
                Err(error) => {
                    let (title, fact) = (found.title(), error.to_string());
                    let fact = fact.lines().next().unwrap_or_default();
                    error::warn(&format!("{title} has no control socket: {fact}"));
                }
            }
        }
        Ok(sockets)
    }

    /// The paths of all drives that the arrays to be served stand on. Nothing is held open.
    async fn look(&self, world: &World) -> Result<Vec<PathBuf>, Failure> {
        let mut look = Look::at(world, &self.drives).await?;
        let scene = look.scene(world).await;
        for problem in &look.problems {
            error::warn(problem.to_string().lines().next().unwrap_or_default());
        }
        look.refuse_containers(&scene)?;
        let chosen = self.chosen(&scene)?;
        if !self.read_only && !self.force {
            let mut concerned = chosen.clone();
            concerned.extend(scene.found().into_iter().filter(Found::is_inner));
            let dirty = concerned.into_iter().find(|found| found.state() == "dirty-degraded");
            if let Some(found) = dirty {
                return Err(ServeError::DirtyDegraded { array: found.title() }.into());
            }
        }
        if self.arrays.is_empty() {
            for found in scene.outer().iter().filter(|found| found.array().is_err()) {
                let (title, state) = (found.title(), found.state());
                error::warn(&format!("{title} is {state}: {}", found.reasons().join("; ")));
            }
        }
        Ok(scene.drives_below(&chosen))
    }

    /// Opens the drives, alone unless they are only read.
    fn open(&self, world: &World, paths: &[PathBuf]) -> Result<Vec<Rc<FileDrive>>, Failure> {
        let open = |path: &PathBuf| {
            if self.read_only {
                let options = OpenOptions { exclusive: true, ..OpenOptions::LOOK };
                guard::open(world, path, options).map(Rc::new)
            } else {
                guard::open_alone(world, path)
            }
        };
        paths.iter().map(open).collect()
    }

    /// The arrays on the drives.
    async fn assemble(&self, world: &World, drives: &[Rc<FileDrive>]) -> Scene {
        let drives = drives.iter().map(|drive| Rc::clone(drive) as Rc<dyn Drive>).collect();
        let mode = OpenMode {
            read_only: self.read_only,
            force_dirty: self.force || self.read_only,
            now_seconds: now_seconds(),
        };
        Scene::of(world, drives, mode).await
    }

    /// The arrays that are named; else all that open and that nothing stands on.
    fn chosen<'a>(&self, scene: &'a Scene) -> Result<Vec<Found<'a>>, Failure> {
        if !self.arrays.is_empty() {
            let chosen = self.arrays.iter().map(|name| {
                let found = scene.choose(Some(name))?;
                readable(&found)?;
                Ok(found)
            });
            return chosen.collect();
        }
        let outer = scene.outer();
        let all = scene.found();
        let first = outer.first().or(all.first()).ok_or(ServeError::Nothing)?;
        let open: Vec<_> = outer.iter().copied().filter(|found| found.array().is_ok()).collect();
        if open.is_empty() {
            readable(first)?;
        }
        Ok(open)
    }
}

/// Listens for one array: by its name, or by its UUID where that is no name for a file or another
/// array of that name is served.
fn listen_for(control: &ControlServer, found: &Found<'_>) -> Result<PathBuf, Failure> {
    let folder = place::folder();
    place::prepare(&folder)?;
    let by_uuid = folder.join(format!("{}.sock", found.uuid()));
    if let Some(path) = place::named(&folder, &found.title()) {
        match control.listen(&path) {
            Err(ControlError::Listen(ListenError::InUse { .. })) => {}
            listening => return Ok(listening.map(|()| path)?),
        }
    }
    control.listen(&by_uuid)?;
    Ok(by_uuid)
}

/// Says what is served, and how to get at it.
fn announce(
    name: &str,
    array: &Array,
    found: &Found<'_>,
    address: &Address,
) -> Result<(), Failure> {
    let facts = array.facts();
    let access = if facts.read_only { "read-only" } else { "read-write" };
    let health = found.state();
    output::write(&format!(
        "{name}: {health}, {} of {}, {}, {access}\n  {}\n",
        found.view().layout.level,
        found.view().layout.raid_disks,
        exact_size(facts.size_bytes),
        uri(name, address)
    ))?;
    if !found.is_well() {
        error::warn(&format!("{name} is {health}: {}", found.reasons().join("; ")));
    }
    let attach = match address {
        Address::Unix(path) => format!("nbd-client -unix {} -N {name} /dev/nbd0", path.display()),
        Address::Tcp { host, port } => format!("nbd-client {host} {port} -N {name} /dev/nbd0"),
    };
    output::write(&format!("  attach: {attach}\n"))
}

/// The export as NBD's URI.
fn uri(name: &str, address: &Address) -> String {
    match address {
        Address::Unix(path) => {
            format!("nbd+unix:///{}?socket={}", escaped(name), escaped(&path.to_string_lossy()))
        }
        Address::Tcp { .. } => {
            let place = address.to_string();
            format!("nbd://{}/{}", place.trim_start_matches("tcp:"), escaped(name))
        }
    }
}

/// Text as a part of a URI.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/:".contains(&byte) {
            escaped.push(byte as char);
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

/// Shows how far background work has come, in one line that is written over.
async fn show_progress(world: World, arrays: Vec<(String, Array)>) {
    let mut shown = false;
    loop {
        world.sleep(PROGRESS_EVERY).await;
        let working = arrays.iter().filter_map(|(name, array)| {
            Some(format!("{name}: {}", Job::from(&array.status().job?).words()))
        });
        let line = working.collect::<Vec<_>>().join("; ");
        if line.is_empty() && !shown {
            return;
        }
        shown = !line.is_empty();
        // Progress that can't be shown is no reason to stop.
        let _ = write!(io::stderr(), "\r\x1b[K{line}").and_then(|()| io::stderr().flush());
    }
}

/// Tells the terminal or log what happens.
struct Log;

impl Events for Log {
    fn note(&self, event: &ServerEvent<'_>) {
        if !matches!(event, ServerEvent::Listening { .. }) {
            error::tell(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_escape_what_they_must() {
        let unix = Address::Unix("/run/a b".into());
        assert_eq!(uri("da ta", &unix), "nbd+unix:///da%20ta?socket=/run/a%20b");
        let tcp = Address::Tcp { host: "::1".into(), port: 10809 };
        assert_eq!(uri("data", &tcp), "nbd://[::1]:10809/data");
    }
}
