//! What an SSD is made of, as numbers.
//!
//! Times are in nanoseconds, rates in bytes per second, sizes in bytes. Where each number comes
//! from stands in the description (`hardware/*.toml`).

use super::hybrid;
use super::translation::{Layout, Pace};
use super::victims::Cleaning;

/// In which order consecutive stripes of a block go over the dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Striping {
    /// All channels first, then the next die of each (CWDP).
    #[default]
    ChannelFirst,
    /// All dies of a channel, then the next channel.
    DieFirst,
}

/// A part of the flash that is written with one bit per cell, and emptied when the host is idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlcCache {
    /// Host bytes it takes.
    pub bytes: u64,
    /// Program time of a page there.
    pub program_ns: u64,
    /// How fast it is folded into the rest once the host is idle.
    pub fold_bytes_per_s: u64,
    /// How long the host has to be idle before that.
    pub idle_ns: u64,
}

/// How the controller finds what the host wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mapping {
    /// Each unit by itself.
    Page {
        /// Raw flash over the capacity, in thousandths above 1 (70 is 7 % spare).
        spare_permille: u32,
        /// How blocks to clean are chosen.
        cleaning: Cleaning,
    },
    /// Large units, with a few logs for what is written into them.
    Hybrid(hybrid::Shape),
}

/// An SSD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameters {
    /// How it is named.
    pub name: String,
    /// What the host can address.
    pub capacity_bytes: u64,
    /// What the map knows: 4 KiB on most drives.
    pub unit_bytes: u32,
    /// Buses to the flash.
    pub channels: u32,
    /// Dies on all of them.
    pub dies: u32,
    /// Planes of a die, programmed together.
    pub planes: u32,
    /// Page of one plane; a multiple of `unit_bytes`.
    pub page_bytes: u32,
    /// Pages of a block of one plane.
    pub pages_per_block: u32,
    /// Order of the dies.
    pub striping: Striping,
    /// Time to read a page, by type of page (one for SLC, two for MLC, three for TLC).
    pub read_ns: Vec<u64>,
    /// Time to program a page of every plane of a die.
    pub program_ns: u64,
    /// Time to erase a block of a die.
    pub erase_ns: u64,
    /// Rate of a channel.
    pub channel_bytes_per_s: u64,
    /// Rate of the host link, after its coding.
    pub link_bytes_per_s: u64,
    /// Whether the link carries both directions at the same time (PCIe).
    pub duplex: bool,
    /// Commands the drive takes at a time.
    pub queue_depth: u32,
    /// How often the controller can begin a read.
    pub read_command_ns: u64,
    /// How often it can begin a write.
    pub write_command_ns: u64,
    /// How long one command takes through the controller, which works on several.
    pub command_latency_ns: u64,
    /// Rate between buffer and channels: encoder and memory. What cleaning moves passes twice.
    pub write_path_bytes_per_s: u64,
    /// Room for writes that are not in flash yet.
    pub buffer_bytes: u64,
    /// From the last byte in the buffer to the acknowledgement.
    pub acknowledge_ns: u64,
    /// Capacitors keep the buffer alive: a flush has nothing to do.
    pub power_loss_protection: bool,
    /// Without them: time to save the map, after everything is programmed.
    pub flush_ns: u64,
    /// Pseudo-SLC cache.
    pub slc_cache: Option<SlcCache>,
    /// Translation.
    pub mapping: Mapping,
}

impl Parameters {
    /// Units programmed together into one die.
    #[must_use]
    pub fn stripe_units(&self) -> u32 {
        self.planes * (self.page_bytes / self.unit_bytes)
    }

    /// Units the host addresses.
    #[must_use]
    pub fn units(&self) -> u32 {
        let units = self.capacity_bytes.div_ceil(u64::from(self.unit_bytes));
        u32::try_from(units).expect("below 2^32 units")
    }

    /// The layout of a page-mapped translation whose blocks reach over all dies.
    #[must_use]
    pub fn layout(&self, spare_permille: u32, cleaning: Cleaning) -> Layout {
        let units_per_block = self.stripe_units() * self.dies * self.pages_per_block;
        let low_water_blocks = 2;
        // The reserve comes on top, so that the spare factor is what the description says even on
        // a small drive with large blocks.
        let raw = u64::from(self.units()) * u64::from(1000 + spare_permille) / 1000;
        let blocks = raw.div_ceil(u64::from(units_per_block)) as u32 + low_water_blocks;
        Layout {
            units: self.units(),
            blocks: blocks.max(self.units().div_ceil(units_per_block) + low_water_blocks + 1),
            units_per_block,
            low_water_blocks,
            cleaning,
            pace: Pace::Even,
        }
    }

    /// Channel a die is on.
    #[must_use]
    pub fn channel_of(&self, die: u32) -> u32 {
        match self.striping {
            Striping::ChannelFirst => die % self.channels,
            Striping::DieFirst => die * self.channels / self.dies,
        }
    }
}

/// Time that `bytes` take at a rate, rounded up.
#[must_use]
pub fn transfer_ns(bytes: u64, bytes_per_s: u64) -> u64 {
    (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(bytes_per_s)) as u64
}
