//! `backplane array scan`: which arrays drives form, in which state, and why not.

use std::path::PathBuf;
use std::rc::Rc;

use clap::Args;
use drive::Drive;
use serde_json::{Value, json};
use world::World;

use crate::arrays::show::{array_json, member_rows};
use crate::error::Failure;
use crate::look::{Look, Looked};
use crate::output::{self, Outcome, columns};
use crate::scene::{Found, READ_ONLY, Scene};
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
        let look = Look::at(world, &self.drives).await?;
        let scene = look.scene(world).await;
        let found = scene.found();
        let well = found.iter().all(Found::is_well)
            && look.problems.is_empty()
            && look.containers.is_empty()
            && look.drives.iter().all(|looked| troubles(looked).is_empty());
        if self.json {
            output::write_json(document(&look, &found))?;
        } else {
            output::write(&words(&look, &scene, &found))?;
        }
        Ok(Ended { outcome: Outcome::of(well), hangs: look.hangs() })
    }
}

impl Look {
    /// The arrays on these drives, opened to read them.
    pub async fn scene(&self, world: &World) -> Scene {
        let drives = self.drives.iter().map(|looked| Rc::clone(&looked.drive) as Rc<dyn Drive>);
        Scene::of(world, drives.collect(), READ_ONLY).await
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

fn words(look: &Look, scene: &Scene, found: &[Found<'_>]) -> String {
    let mut text = String::new();
    for array in found {
        text.push_str(&headline(array));
        for reason in array.reasons() {
            text.push_str(&format!("  {reason}\n"));
        }
        text.push_str(&columns(4, &member_rows(array)));
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
    } else if found.is_empty() {
        text.push_str("no arrays\n");
    }
    text
}

/// An array in a line.
pub fn headline(array: &Found<'_>) -> String {
    let layout = array.view().layout;
    let size = array.array().map_or_else(
        |_| String::new(),
        |array| format!(", {}", lab::units::size(array.facts().size_bytes)),
    );
    let (level, slots) = (layout.level, layout.raid_disks);
    format!("{}: {}, {level} of {slots}{size}, {}\n", array.title(), array.state(), array.uuid())
}

fn document(look: &Look, found: &[Found<'_>]) -> Value {
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
        "arrays": found.iter().map(array_json).collect::<Vec<_>>(),
        "drives": drives.collect::<Vec<_>>(),
        "problems": look.problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}
