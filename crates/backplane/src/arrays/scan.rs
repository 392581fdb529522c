//! `backplane array scan`: which arrays drives form, in which state, and why not.

use std::path::PathBuf;
use std::rc::Rc;

use clap::Args;
use drive::Drive;
use serde_json::{Value, json};
use world::World;

use crate::arrays::show::headline;
use crate::arrays::state::{ArrayState, Inventory};
use crate::error::Failure;
use crate::look::{Look, LookError, Looked};
use crate::output::{self, Outcome, columns, row};
use crate::scene::{Found, LOOK_LIMIT, READ_ONLY, Scene};
use crate::session::{self, Ended};

/// Flags of `array scan`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Drives, and folders whose files are looked at; all block devices if none is named
    #[arg(value_name = "DRIVE|DIR")]
    drives: Vec<PathBuf>,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// Carries it out.
    pub fn run(self) -> Result<Outcome, Failure> {
        session::look(async |world| self.scan(world).await)
    }

    async fn scan(&self, world: &World) -> Result<Ended, Failure> {
        let mut look = Look::at(world, &self.drives).await?;
        let scene = look.scene(world).await;
        let found = scene.found();
        let inventory = Inventory::read();
        let arrays: Vec<_> =
            found.iter().map(|found| ArrayState::at_rest(found, &inventory)).collect();
        let well = found.iter().all(Found::is_well)
            && look.problems.is_empty()
            && look.containers.is_empty()
            && look.drives.iter().all(|looked| troubles(looked).is_empty());
        if self.json {
            output::write_json(document(&look, &arrays))?;
        } else {
            output::write(&words(&look, &scene, &arrays))?;
        }
        Ok(Ended { outcome: Outcome::of(well), hangs: look.hangs() })
    }
}

impl Look {
    /// The arrays on these drives, opened to read them. A drive that has answered before and does
    /// not any more is a problem too.
    pub async fn scene(&mut self, world: &World) -> Scene {
        let drives = self.drives.iter().map(|looked| Rc::clone(&looked.drive) as Rc<dyn Drive>);
        let scene = Scene::of(world, drives.collect(), READ_ONLY).await;
        let silent = scene.silent().map(|name| LookError::NoAnswer {
            path: PathBuf::from(name.as_ref()),
            limit: LOOK_LIMIT,
        });
        self.problems.extend(silent);
        scene
    }
}

/// What is wrong with the metadata on one drive.
fn troubles(looked: &Looked) -> Vec<String> {
    let damaged = looked.examined.damaged.iter().map(|damaged| {
        let (version, offset) = (damaged.version, damaged.offset);
        format!("damaged md superblock {version} at byte {offset}: {}", damaged.reason)
    });
    let unreadable = looked.examined.unreadable.iter().map(ToString::to_string);
    damaged.chain(unreadable).collect()
}

fn is_bare(looked: &Looked) -> bool {
    looked.examined.found.is_empty() && troubles(looked).is_empty()
}

fn words(look: &Look, scene: &Scene, arrays: &[ArrayState]) -> String {
    let mut text = String::new();
    for array in arrays {
        text.push_str(&headline(array));
        for reason in &array.reasons {
            text.push_str(&format!("  {reason}\n"));
        }
        let members = array.members.iter();
        let rows: Vec<_> = members
            .map(|member| row([member.drive.as_deref().unwrap_or("-"), &member.verdict]))
            .collect();
        text.push_str(&columns(4, &rows));
    }
    for looked in &look.drives {
        for trouble in troubles(looked) {
            text.push_str(&format!("{}: {trouble}\n", looked.path.display()));
        }
        let contained = look.containers.iter().find(|(path, _)| *path == looked.path);
        if let Some((path, kind)) = contained {
            text.push_str(&format!("{}: {kind}, not supported yet\n", path.display()));
        } else if is_bare(looked) {
            text.push_str(&format!("{}: no md metadata\n", looked.path.display()));
        }
    }
    for problem in &look.problems {
        let fact = problem.to_string();
        text.push_str(&format!("{}\n", fact.lines().next().unwrap_or_default()));
    }
    if let Err(error) = look.refuse_containers(scene) {
        let fact = error.to_string();
        text.push_str(&format!("{}\n", fact.lines().next().unwrap_or_default()));
    } else if arrays.is_empty() {
        text.push_str("no arrays\n");
    }
    text
}

fn document(look: &Look, arrays: &[ArrayState]) -> Value {
    let drives = look.drives.iter().map(|looked| {
        json!({
            "path": looked.path,
            "superblocks": looked.examined.found.len(),
            "problems": troubles(looked),
        })
    });
    let containers =
        look.containers.iter().map(|(path, kind)| json!({ "path": path, "kind": kind }));
    json!({
        "containers": containers.collect::<Vec<_>>(),
        "arrays": arrays,
        "drives": drives.collect::<Vec<_>>(),
        "problems": look.problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}
