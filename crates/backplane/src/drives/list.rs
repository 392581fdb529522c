//! `backplane drive list`: the block devices of this machine.

use clap::Args;
use drive::{BlockDevice, Roots, Use, list_devices};
use lab::units;
use serde_json::{Value, json};

use crate::error::Failure;
use crate::output::{self, Outcome, columns, row};

/// Flags of `drive list`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Loop devices and RAM disks too
    #[arg(long)]
    all: bool,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// Carries it out.
    pub fn run(self) -> Result<Outcome, Failure> {
        let mut devices = list_devices(&Roots::default())?;
        devices.retain(|device| self.all || !is_made_up(device));
        if self.json {
            let devices: Vec<Value> = devices.iter().map(device_json).collect();
            output::write_json(json!({ "drives": devices }))?;
        } else {
            output::write(&table(&devices))?;
        }
        Ok(Outcome::Well)
    }
}

/// Loop devices and RAM disks that nobody uses are only names.
fn is_made_up(device: &BlockDevice) -> bool {
    let made_up = ["loop", "ram", "zram"].iter().any(|prefix| device.name.starts_with(prefix));
    made_up && device.all_uses().is_empty()
}

fn table(devices: &[BlockDevice]) -> String {
    if devices.is_empty() {
        return "no block devices\n".to_owned();
    }
    let mut rows = vec![row(["drive", "size", "kind", "model", "serial", "wwn", "use"])];
    for device in devices {
        let text = |fact: &Option<String>| fact.clone().unwrap_or_else(|| "-".to_owned());
        let uses = words(&device.all_uses());
        rows.push(vec![
            device.path.display().to_string(),
            units::size(device.size_bytes),
            kind(device),
            text(&device.model),
            text(&device.serial),
            text(&device.wwn),
            uses,
        ]);
    }
    columns(0, &rows)
}

fn kind(device: &BlockDevice) -> String {
    let medium = match device.rotational {
        Some(true) => "disk",
        Some(false) => "solid",
        None => "-",
    };
    match &device.transport {
        Some(transport) => format!("{transport} {medium}"),
        None => medium.to_owned(),
    }
}

fn words(uses: &[Use]) -> String {
    if uses.is_empty() {
        return "free".to_owned();
    }
    uses.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn device_json(device: &BlockDevice) -> Value {
    let uses = |uses: &[Use]| uses.iter().map(ToString::to_string).collect::<Vec<_>>();
    let partitions = device.partitions.iter().map(|partition| {
        json!({
            "path": partition.path,
            "start_bytes": partition.start_bytes,
            "size_bytes": partition.size_bytes,
            "uses": uses(&partition.uses),
        })
    });
    json!({
        "name": device.name,
        "path": device.path,
        "size_bytes": device.size_bytes,
        "model": device.model,
        "serial": device.serial,
        "wwn": device.wwn,
        "transport": device.transport.as_ref().map(ToString::to_string),
        "rotational": device.rotational,
        "removable": device.removable,
        "read_only": device.read_only,
        "logical_block_bytes": device.logical_block_bytes,
        "physical_block_bytes": device.physical_block_bytes,
        "uses": uses(&device.uses),
        "partitions": partitions.collect::<Vec<_>>(),
        // Nobody asks the drives yet, and unknown is never shown as healthy.
        "health": "unknown",
    })
}
