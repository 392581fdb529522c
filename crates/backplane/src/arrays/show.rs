//! `backplane array show`: one array whole.

use std::path::PathBuf;

use array::SlotState;
use clap::Args;
use drive::Drive;
use format::md::Resync;
use geometry::{Geometry, layout_name};
use serde_json::{Value, json};
use world::World;

use crate::arrays::scan::headline;
use crate::error::Failure;
use crate::look::Look;
use crate::output::{self, Outcome, columns, row};
use crate::scene::Found;
use crate::session::{self, Ended};
use crate::values::{date, exact_size};

/// Flags of `array show`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The name or UUID of an array, looked for on all block devices; or its drives
    #[arg(required = true, value_name = "NAME|DRIVE|DIR")]
    names: Vec<PathBuf>,
    /// Which array, where the drives hold several
    #[arg(long, value_name = "NAME")]
    array: Option<String>,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// Carries it out.
    pub fn run(self) -> Result<Outcome, Failure> {
        session::look(async |world| self.show(world).await)
    }

    async fn show(&self, world: &World) -> Result<Ended, Failure> {
        // What exists as a path is a drive; anything else alone is a name.
        let (drives, name) = match self.names.as_slice() {
            [only] if !only.exists() && !only.to_string_lossy().contains('/') => {
                (&[][..], Some(only.to_string_lossy().into_owned()))
            }
            drives => (drives, self.array.clone()),
        };
        let look = Look::at(world, drives).await?;
        let scene = look.scene(world).await;
        look.refuse_containers(&scene)?;
        let found = scene.choose(name.as_deref())?;
        if self.json {
            output::write_json(json!({ "array": array_json(&found) }))?;
        } else {
            output::write(&words(&found))?;
        }
        Ok(Ended { outcome: Outcome::of(found.is_well()), hangs: look.hangs() })
    }
}

fn words(found: &Found<'_>) -> String {
    let view = found.view();
    let layout = view.layout;
    let mut text = headline(found);
    for reason in found.reasons() {
        text.push_str(&format!("  {reason}\n"));
    }
    let mut rows = vec![row(["metadata", &format!("md {}", view.version)])];
    if let Some(name) = layout_words(found) {
        rows.push(row(["layout", &name]));
    }
    if layout.chunk_bytes > 0 {
        rows.push(row(["chunk", &exact_size(layout.chunk_bytes)]));
    }
    if let Ok(array) = found.array() {
        rows.push(row(["size", &exact_size(array.facts().size_bytes)]));
        rows.push(row(["full stripe", &exact_size(array.geometry().stripe_bytes())]));
    }
    rows.push(row(["made", &date(view.created.seconds())]));
    rows.push(row([
        "last change",
        &format!("{}, event {}", date(view.updated.seconds()), view.events),
    ]));
    rows.push(row(["redundancy", &resync_words(found)]));
    text.push_str(&columns(2, &rows));
    if let Ok(array) = found.array()
        && let Geometry::Raid0(raid0) = array.geometry()
        && raid0.zones().len() > 1
    {
        text.push_str("  zones, narrower where smaller members end\n");
        text.push_str(&columns(4, &zone_rows(raid0)));
    }
    text.push_str("  members\n");
    text.push_str(&columns(4, &size_rows(found)));
    text
}

fn resync_words(found: &Found<'_>) -> String {
    let view = found.view();
    match view.resync {
        _ if !view.layout.level.is_redundant() => "none at this level".to_owned(),
        Resync::Clean => "agrees".to_owned(),
        Resync::From(0) => "not known to agree: it was not shut down, or is in use now".to_owned(),
        Resync::From(bytes) => format!("agrees below {}", exact_size(bytes)),
    }
}

fn layout_words(found: &Found<'_>) -> Option<String> {
    let layout = found.view().layout;
    let level = geometry::Level::try_from(layout.level.code()).ok()?;
    layout_name(level, layout.layout)
}

fn zone_rows(raid0: &geometry::Raid0) -> Vec<Vec<String>> {
    let zones = raid0.zones().iter().map(|zone| {
        let slots: Vec<String> = zone.members.iter().map(usize::to_string).collect();
        let bytes = zone.array_end - zone.array_start;
        row([
            "from byte",
            &zone.array_start.to_string(),
            &exact_size(bytes),
            "slots",
            &slots.join(" "),
        ])
    });
    zones.collect()
}

/// A verdict on each candidate.
pub fn member_rows(found: &Found<'_>) -> Vec<Vec<String>> {
    let verdicts = found.assembly().verdicts.iter();
    verdicts
        .map(|(index, verdict)| row([&found.drive_name(*index), &verdict.to_string()]))
        .collect()
}

/// The same with sizes: of the drive, what the array uses of it, what is left over.
fn size_rows(found: &Found<'_>) -> Vec<Vec<String>> {
    let scan = found.scan();
    let mut rows = vec![row(["drive", "size", "used", "unused", "verdict"])];
    for (index, verdict) in &found.assembly().verdicts {
        let candidate = &scan.candidates[*index];
        let size = scan.drives[candidate.drive].facts().size_bytes;
        let view = &candidate.view;
        let used = if view.used_bytes > 0 { view.used_bytes } else { view.data_bytes };
        let unused = view.data_bytes.saturating_sub(used);
        rows.push(row([
            &found.drive_name(*index),
            &lab::units::size(size),
            &lab::units::size(used),
            &lab::units::size(unused),
            &verdict.to_string(),
        ]));
    }
    rows
}

/// Everything about an array.
pub fn array_json(found: &Found<'_>) -> Value {
    let (view, assembly) = (found.view(), found.assembly());
    let layout = view.layout;
    let scan = found.scan();
    let members = assembly.verdicts.iter().map(|(index, verdict)| {
        let candidate = &scan.candidates[*index];
        let view = &candidate.view;
        let used = if view.used_bytes > 0 { view.used_bytes } else { view.data_bytes };
        let slot = assembly.slots.iter().position(|member| *member == Some(*index));
        json!({
            "drive": found.drive_name(*index),
            "slot": slot,
            "verdict": verdict.to_string(),
            "events": view.events,
            "updated_unix_s": view.updated.seconds(),
            "metadata": view.version.to_string(),
            "size_bytes": scan.drives[candidate.drive].facts().size_bytes,
            "used_bytes": used,
            "unused_bytes": view.data_bytes.saturating_sub(used),
        })
    });
    let array = found.array().ok();
    let bad_bytes = array.map(|array| {
        let status = array.status();
        let slots = status.slots.iter().filter(|slot| slot.state != SlotState::Missing);
        slots.map(|slot| slot.bad_bytes).sum::<u64>()
    });
    json!({
        "name": view.name,
        "title": found.title(),
        "uuid": found.uuid().to_string(),
        "state": found.state(),
        "reasons": found.reasons(),
        "level": layout.level.to_string(),
        "layout": layout_words(found),
        "chunk_bytes": layout.chunk_bytes,
        "slots": layout.raid_disks,
        "missing_slots": assembly.missing(),
        "size_bytes": array.map(|array| array.facts().size_bytes),
        "metadata": view.version.to_string(),
        "events": view.events,
        "created_unix_s": view.created.seconds(),
        "updated_unix_s": view.updated.seconds(),
        "redundancy_agrees": (layout.level.is_redundant()).then_some(view.resync == Resync::Clean),
        "bad_bytes": bad_bytes,
        "member_of_another": found.is_inner(),
        "members": members.collect::<Vec<_>>(),
    })
}
