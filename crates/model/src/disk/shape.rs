//! The layout of a disk of which only a datasheet is known.
//!
//! Blocks are as close along every track, so that the blocks of a track fall in a straight line
//! from the outermost to the innermost zone; zones have the same number of cylinders. How many
//! blocks a track has follows from the rate that is sustained over many tracks, in which every
//! track costs a head switch and every cylinder a seek (Hitachi's definition of that rate). Skews
//! are what those need.

use super::layout::{HeadOrder, Layout, Region, Sparing, Zone};

/// Bytes of a block.
pub const BLOCK_BYTES: u32 = 512;

/// What a datasheet says about a disk's surface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Blocks the host addresses.
    pub blocks: u64,
    /// Surfaces.
    pub heads: u32,
    /// Zones.
    pub zones: u32,
    /// One turn.
    pub turn_ns: u64,
    /// Bytes per second sustained over the outermost and the innermost tracks.
    pub sustained: [u64; 2],
    /// From one track to the next on a cylinder.
    pub switch_ns: u64,
    /// From one cylinder to the next, for reads.
    pub read_cylinder_ns: u64,
    /// The same for writes, which the skew leaves time for. Reads need not wait for it, as they
    /// begin a track anywhere.
    pub write_cylinder_ns: u64,
}

impl Shape {
    /// Its layout, with room for all blocks.
    #[must_use]
    pub fn layout(&self) -> Layout {
        let mut first_cylinder = 0;
        let track_blocks: Vec<u32> = (0..self.zones).map(|zone| self.track_blocks(zone)).collect();
        let heads = u64::from(self.heads);
        let around = heads * track_blocks.iter().map(|blocks| u64::from(*blocks)).sum::<u64>();
        let cylinders = self.blocks.div_ceil(around).max(1) as u32;
        let zones = track_blocks.into_iter().map(|track_blocks| {
            let zone = Zone {
                first_cylinder,
                last_cylinder: first_cylinder + cylinders - 1,
                track_blocks,
                offset: 0,
                unused: 0,
                track_skew: self.skew(track_blocks, self.switch_ns),
                cylinder_skew: self.skew(track_blocks, self.write_cylinder_ns),
                spare: 0,
                slips: Vec::new(),
                moved: Vec::new(),
            };
            first_cylinder += cylinders;
            zone
        });
        let region = Region::Zone;
        let sparing = Sparing::Blocks { region, at_front: false, slip_to_end: false };
        Layout::new(self.heads, HeadOrder::TurnInZone, sparing, zones.collect())
    }

    /// Blocks that the platter turns on by in a time, rounded up.
    fn skew(&self, track_blocks: u32, ns: u64) -> u32 {
        (ns * u64::from(track_blocks)).div_ceil(self.turn_ns) as u32
    }

    fn track_blocks(&self, zone: u32) -> u32 {
        let [outer, inner] = self.sustained.map(|rate| rate as f64);
        let inward = f64::from(zone) / f64::from((self.zones - 1).max(1));
        let rate = outer + (inner - outer) * inward;
        let heads = u64::from(self.heads);
        let switches_ns = (heads - 1) * self.switch_ns + self.read_cylinder_ns;
        let cylinder_ns = heads * self.turn_ns + switches_ns;
        let track_s = cylinder_ns as f64 / heads as f64 / 1e9;
        ((rate * track_s / f64::from(BLOCK_BYTES)).round() as u32).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_has_the_capacity_and_the_rates_of_its_datasheet() {
        let shape = Shape {
            blocks: 1_953_525_168,
            heads: 6,
            zones: 30,
            turn_ns: 8_333_333,
            sustained: [120_000_000, 60_000_000],
            switch_ns: 800_000,
            read_cylinder_ns: 800_000,
            write_cylinder_ns: 1_800_000,
        };
        let layout = shape.layout();
        assert!(layout.blocks() >= shape.blocks);
        assert!(layout.blocks() < shape.blocks + shape.blocks / 1000);
        let zones: Vec<_> = layout.zones().map(|zone| zone.1.clone()).collect();
        assert_eq!(zones.len(), 30);
        for (zone, rate) in [(&zones[0], 120e6), (&zones[29], 60e6)] {
            assert_eq!(zone.cylinder_skew, (zone.track_blocks * 1800).div_ceil(8333));
            let bytes = 6 * u64::from(zone.track_blocks) * 512;
            let seconds = 6.0 * 8_333_333e-9 + 6.0 * 800_000e-9;
            let measured = bytes as f64 / seconds;
            assert!((measured / rate - 1.0).abs() < 0.005, "{measured}");
        }
    }
}
