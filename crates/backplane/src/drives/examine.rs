//! `backplane drive examine`: every metadata copy on drives.

use std::path::PathBuf;

use array::Examined;
use clap::Args;
use drive::{Drive, FileDrive};
use format::md::{MemberView, Resync};
use geometry::layout_name;
use serde_json::{Value, json};
use world::World;

use crate::error::{Failure, Parts};
use crate::guard::{self, Contents};
use crate::look::{self, LookError};
use crate::output::{self, Outcome, columns, row};
use crate::session::{self, Ended};
use crate::values::{date, exact_size};

/// Flags of `drive examine`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The drives
    #[arg(required = true, value_name = "DRIVE")]
    drives: Vec<PathBuf>,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// Carries it out.
    pub fn run(self) -> Result<Outcome, Failure> {
        session::look(async |world| self.examine(world).await)
    }

    async fn examine(&self, world: &World) -> Result<Ended, Failure> {
        let mut documents = Vec::new();
        let mut text = String::new();
        let mut well = true;
        let mut hangs = false;
        for path in &self.drives {
            let look = async |drive: &FileDrive| guard::contents(world, path, drive).await;
            let (drive, contents) = match look::within_limits(world, path, look).await {
                Ok((drive, contents)) => (drive, contents?),
                Err(problem @ LookError::NoAnswer { .. }) => {
                    (well, hangs) = (false, true);
                    let problem = Parts::of(&problem).fact;
                    documents.push(json!({ "path": path, "problem": problem }));
                    text.push_str(&format!("{problem}\n"));
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            well &= contents.examined.damaged.is_empty() && contents.examined.unreadable.is_empty();
            well &= contents.examined.found.iter().all(|found| found.implausible.is_none());
            if self.json {
                documents.push(document(&drive, &contents));
            } else {
                text.push_str(&words(&drive, &contents));
            }
        }
        if self.json {
            output::write_json(json!({ "drives": documents }))?;
        } else {
            output::write(&text)?;
        }
        Ok(Ended { outcome: Outcome::of(well), hangs })
    }
}

fn words(drive: &FileDrive, contents: &Contents) -> String {
    let facts = drive.facts();
    let mut text = format!("{}: {}\n", facts.name, exact_size(facts.size_bytes));
    if let Some(serial) = &contents.serial {
        text.push_str(&format!("  serial {serial}\n"));
    }
    let Examined { found, damaged, unreadable } = &contents.examined;
    if contents.findings.is_empty() && found.is_empty() && damaged.is_empty() {
        text.push_str("  nothing is known to lie on it\n");
    }
    for finding in &contents.findings {
        text.push_str(&format!("  {finding}\n"));
    }
    for found in found {
        let view = &found.view;
        text.push_str(&format!(
            "  md superblock {} at byte {}\n",
            view.version, view.super_offset_bytes
        ));
        text.push_str(&columns(4, &superblock_rows(view)));
        if let Some(implausible) = &found.implausible {
            text.push_str(&format!("    can't be true on this drive: {implausible}\n"));
        }
    }
    for damaged in damaged {
        let (version, offset) = (damaged.version, damaged.offset);
        text.push_str(&format!(
            "  damaged md superblock {version} at byte {offset}: {}\n",
            damaged.reason
        ));
    }
    for error in unreadable {
        text.push_str(&format!("  not read: {error}\n"));
    }
    text
}

fn layout_words(view: &MemberView) -> Option<String> {
    let level = geometry::Level::try_from(view.layout.level.code()).ok()?;
    layout_name(level, view.layout.layout)
}

fn superblock_rows(view: &MemberView) -> Vec<Vec<String>> {
    let layout = view.layout;
    let mut shape = format!("{}, {} slots", layout.level, layout.raid_disks);
    if let Some(name) = layout_words(view) {
        shape.push_str(&format!(", {name}"));
    }
    if layout.chunk_bytes > 0 {
        shape.push_str(&format!(", chunk {}", lab::units::size(layout.chunk_bytes)));
    }
    let resync = match view.resync {
        Resync::Clean => "clean".to_owned(),
        Resync::From(bytes) => format!("not known to agree from byte {bytes} on"),
    };
    let mut rows = vec![
        row(["array", &format!("{} {}", view.name, view.set_uuid)]),
        row(["shape", &shape]),
        row(["role", &view.role.to_string()]),
        row(["events", &format!("{}, {}", view.events, date(view.updated.seconds()))]),
        row(["redundancy", &resync]),
        row([
            "data",
            &format!("from byte {}, {}", layout.data_offset_bytes, exact_size(view.data_bytes)),
        ]),
    ];
    if let Some(uuid) = view.device_uuid {
        rows.push(row(["member", &uuid.to_string()]));
    }
    if let Some(reshape) = &view.reshape {
        let position = reshape.position_bytes;
        rows.push(row(["reshape", &format!("stopped at byte {position} of the array")]));
    }
    rows
}

fn document(drive: &FileDrive, contents: &Contents) -> Value {
    let facts = drive.facts();
    let findings = contents.findings.iter().map(|finding| {
        json!({
            "what": finding.kind.to_string(),
            "offset_bytes": finding.offset_bytes,
            "id": finding.id,
            "label": finding.label,
            "intact": finding.intact,
        })
    });
    let superblocks = contents.examined.found.iter().map(|found| {
        let mut document = superblock_json(&found.view);
        document["problem"] = json!(found.implausible.as_ref().map(ToString::to_string));
        document
    });
    let damaged = contents.examined.damaged.iter().map(|damaged| {
        json!({
            "version": damaged.version.to_string(),
            "offset_bytes": damaged.offset,
            "problem": damaged.reason.to_string(),
        })
    });
    let unreadable = contents.examined.unreadable.iter().map(ToString::to_string);
    json!({
        "path": contents.path,
        "serial": contents.serial,
        "size_bytes": facts.size_bytes,
        "block_bytes": facts.block_bytes,
        "findings": findings.collect::<Vec<_>>(),
        "superblocks": superblocks.collect::<Vec<_>>(),
        "damaged": damaged.collect::<Vec<_>>(),
        "unreadable": unreadable.collect::<Vec<_>>(),
    })
}

fn superblock_json(view: &MemberView) -> Value {
    let layout = view.layout;
    json!({
        "version": view.version.to_string(),
        "offset_bytes": view.super_offset_bytes,
        "array_uuid": view.set_uuid.to_string(),
        "array_name": view.name,
        "member_uuid": view.device_uuid.map(|uuid| uuid.to_string()),
        "level": layout.level.to_string(),
        "layout": layout_words(view),
        "chunk_bytes": layout.chunk_bytes,
        "slots": layout.raid_disks,
        "role": view.role.to_string(),
        "events": view.events,
        "updated_unix_s": view.updated.seconds(),
        "created_unix_s": view.created.seconds(),
        "clean": view.resync == Resync::Clean,
        "data_offset_bytes": layout.data_offset_bytes,
        "data_bytes": view.data_bytes,
        "used_bytes": view.used_bytes,
    })
}
