//! Descriptions of SSDs: `hardware/*.toml` with `kind = "ssd"`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::hybrid::Shape;
use super::parameters::{Mapping, Parameters, SlcCache, Striping};
use super::victims::Cleaning;
use crate::description::{DescriptionError, Value, us_as_ns};

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Ssd,
}

/// A description as it stands in its file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    name: String,
    #[serde(rename = "kind")]
    _kind: Kind,
    capacity_bytes: Value<u64>,
    channels: Value<u32>,
    dies: Value<u32>,
    planes: Value<u32>,
    page_bytes: Value<u32>,
    pages_per_block: Value<u32>,
    striping: Option<Value<Striping>>,
    read_us: Value<Vec<f64>>,
    program_us: Value<f64>,
    erase_us: Value<f64>,
    channel_mb_s: Value<u64>,
    link_mb_s: Value<u64>,
    duplex: Value<bool>,
    queue_depth: Value<u32>,
    read_command_us: Value<f64>,
    write_command_us: Value<f64>,
    command_latency_us: Value<f64>,
    write_path_mb_s: Value<u64>,
    buffer_kib: Value<u64>,
    acknowledge_us: Value<f64>,
    power_loss_protection: Value<bool>,
    flush_us: Value<f64>,
    spare_percent: Option<Value<f64>>,
    cleaning: Option<Value<Cleaning>>,
    slc_cache_gb: Option<Value<f64>>,
    slc_program_us: Option<Value<f64>>,
    slc_fold_mb_s: Option<Value<u64>>,
    slc_idle_ms: Option<Value<u64>>,
    mapped_unit_kib: Option<Value<u32>>,
    mapped_logs: Option<Value<u32>>,
    /// What is stated about the drive's speed.
    #[serde(default)]
    pub rated: BTreeMap<String, Value<f64>>,
}

/// Bytes the map of every described drive knows.
const UNIT_BYTES: u32 = 4096;

impl Description {
    /// Reads a description.
    ///
    /// # Errors
    /// When it is not one.
    pub fn parse(text: &str) -> Result<Self, DescriptionError> {
        Ok(toml::from_str(text)?)
    }

    /// The drive it describes.
    ///
    /// # Errors
    /// When a value makes no drive, or the mapping is not stated.
    pub fn parameters(&self) -> Result<Parameters, DescriptionError> {
        let fail = |what| DescriptionError::Value { name: self.name.clone(), what };
        let positive = [
            u64::from(self.channels.v),
            u64::from(self.planes.v),
            u64::from(self.pages_per_block.v),
            u64::from(self.queue_depth.v),
            self.channel_mb_s.v,
            self.link_mb_s.v,
            self.write_path_mb_s.v,
            self.read_us.v.len() as u64,
        ];
        if positive.contains(&0) {
            return Err(fail("a count or rate is zero\nhint: leave out what the drive has not"));
        }
        if self.dies.v == 0 || !self.dies.v.is_multiple_of(self.channels.v) {
            return Err(fail("dies are no multiple of channels\nhint: count dies of all channels"));
        }
        if self.page_bytes.v == 0 || !self.page_bytes.v.is_multiple_of(UNIT_BYTES) {
            return Err(fail("page_bytes is no multiple of 4096"));
        }
        if self.capacity_bytes.v / u64::from(UNIT_BYTES) >= u64::from(u32::MAX) {
            return Err(fail("capacity_bytes is above 16 TiB, which the map can't number"));
        }
        let mapping = match (&self.mapped_unit_kib, &self.mapped_logs, &self.spare_percent) {
            (Some(unit), Some(logs), None) if unit.v >= 4 && logs.v > 0 => {
                Mapping::Hybrid(Shape { units: unit.v / 4, logs: logs.v })
            }
            (None, None, Some(spare)) if spare.v > 0.0 => Mapping::Page {
                spare_permille: (spare.v * 10.0).round() as u32,
                cleaning: self.cleaning.as_ref().map_or(Cleaning::Greedy, |cleaning| cleaning.v),
            },
            _ => return Err(fail("hint: state spare_percent, or mapped_unit_kib and mapped_logs")),
        };
        let slc = (&self.slc_cache_gb, &self.slc_program_us, &self.slc_fold_mb_s);
        let slc_cache = match (slc, &self.slc_idle_ms) {
            ((Some(size), Some(program), Some(fold)), Some(idle)) => Some(SlcCache {
                bytes: (size.v * 1e9) as u64,
                program_ns: us_as_ns(program.v),
                fold_bytes_per_s: fold.v * 1_000_000,
                idle_ns: idle.v * 1_000_000,
            }),
            ((None, None, None), None) => None,
            _ => return Err(fail("an SLC cache has four values\nhint: state all slc_ values")),
        };
        Ok(Parameters {
            name: self.name.clone(),
            capacity_bytes: self.capacity_bytes.v,
            unit_bytes: UNIT_BYTES,
            channels: self.channels.v,
            dies: self.dies.v,
            planes: self.planes.v,
            page_bytes: self.page_bytes.v,
            pages_per_block: self.pages_per_block.v,
            striping: self.striping.as_ref().map_or(Striping::default(), |order| order.v),
            read_ns: self.read_us.v.iter().map(|&us| us_as_ns(us)).collect(),
            program_ns: us_as_ns(self.program_us.v),
            erase_ns: us_as_ns(self.erase_us.v),
            channel_bytes_per_s: self.channel_mb_s.v * 1_000_000,
            link_bytes_per_s: self.link_mb_s.v * 1_000_000,
            duplex: self.duplex.v,
            queue_depth: self.queue_depth.v,
            read_command_ns: us_as_ns(self.read_command_us.v),
            write_command_ns: us_as_ns(self.write_command_us.v),
            command_latency_ns: us_as_ns(self.command_latency_us.v),
            write_path_bytes_per_s: self.write_path_mb_s.v * 1_000_000,
            buffer_bytes: self.buffer_kib.v << 10,
            acknowledge_ns: us_as_ns(self.acknowledge_us.v),
            power_loss_protection: self.power_loss_protection.v,
            flush_ns: us_as_ns(self.flush_us.v),
            slc_cache,
            mapping,
        })
    }
}
