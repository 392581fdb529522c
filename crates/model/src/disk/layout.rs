//! Where blocks lie: zones, tracks, skew, spares, and blocks that are slipped or moved.
//!
//! A zone is a band of cylinders with the same number of blocks on every track. Its blocks are
//! numbered along the tracks of a cylinder, then of the next cylinder. Each track begins some
//! blocks further round than the one before (track skew, and cylinder skew where the arm moves), so
//! that reading on does not miss the first block while the head switches.
//!
//! Positions within a zone count physical blocks. What is spared or slipped has a position and no
//! number: numbers go on behind a slipped position, while a moved one keeps its number at another
//! position.

/// Where spare blocks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sparing {
    /// `spare` tracks of each zone; slips and moves count tracks.
    Tracks,
    /// `spare` blocks of each region.
    Blocks {
        /// How far a region reaches.
        region: Region,
        /// Whether they come first in their region.
        at_front: bool,
        /// Whether a slip moves everything to the end of the zone, not just of the region.
        slip_to_end: bool,
    },
}

/// What shares spare blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Region {
    /// One track; a slip pushes the skew of the tracks behind it on.
    Track,
    /// One cylinder; a slip pushes the skew of the cylinders behind it on.
    Cylinder,
    /// A number of cylinders.
    Cylinders(u32),
    /// A zone.
    Zone,
}

/// In which order the heads of a cylinder are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadOrder {
    /// From the first to the last on every cylinder.
    Same,
    /// Back on every second cylinder of a zone.
    TurnInZone,
    /// Back on every second cylinder of the disk.
    Turn,
}

/// Cylinders with the same number of blocks on every track. Skews and offsets are in blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    /// First cylinder.
    pub first_cylinder: u32,
    /// Last cylinder.
    pub last_cylinder: u32,
    /// Blocks on a track.
    pub track_blocks: u32,
    /// How far round the zone begins.
    pub offset: u32,
    /// Positions at the zone's beginning that have no number.
    pub unused: u64,
    /// How much further round a track begins than the one before it on the cylinder.
    pub track_skew: u32,
    /// How much further round a cylinder begins than the last track before it.
    pub cylinder_skew: u32,
    /// Spare blocks of a region, or tracks of the zone.
    pub spare: u32,
    /// Positions without a number.
    pub slips: Vec<u64>,
    /// Positions whose number lies elsewhere in the zone: from, to.
    pub moved: Vec<(u64, u64)>,
}

/// Where a block lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Cylinder.
    pub cylinder: u32,
    /// Head.
    pub head: u32,
    /// Blocks on the track.
    pub track_blocks: u32,
    /// How many blocks after the mark of the turn it begins.
    pub angle_blocks: u32,
    /// How many numbers, from this one on, follow each other on this track.
    pub run: u32,
}

#[derive(Debug, Clone)]
struct Numbered {
    zone: Zone,
    first: u64,
    blocks: u64,
    /// Of each slip, how many numbers of the zone (or of its region) come before it.
    before: Vec<u64>,
}

/// Blocks of a whole disk.
#[derive(Debug, Clone)]
pub struct Layout {
    heads: u32,
    order: HeadOrder,
    sparing: Sparing,
    zones: Vec<Numbered>,
}

impl Layout {
    /// A disk of these zones, from the outside, with `heads` surfaces.
    #[must_use]
    pub fn new(heads: u32, order: HeadOrder, sparing: Sparing, zones: Vec<Zone>) -> Self {
        let mut layout = Layout { heads, order, sparing, zones: Vec::new() };
        let mut first = 0;
        for mut zone in zones {
            zone.slips.sort_unstable();
            zone.slips.dedup();
            zone.moved.sort_unstable();
            let blocks = layout.numbered(&zone);
            let slips = zone.slips.iter().enumerate();
            let before = slips.map(|(index, slip)| slip.saturating_sub(index as u64)).collect();
            layout.zones.push(Numbered { zone, first, blocks, before });
            first += blocks;
        }
        layout
    }

    /// Blocks of a region, numbered or not.
    fn region_blocks(&self, zone: &Zone, region: Region) -> u64 {
        let cylinder = u64::from(self.heads) * u64::from(zone.track_blocks);
        match region {
            Region::Track => u64::from(zone.track_blocks),
            Region::Cylinder => cylinder,
            Region::Cylinders(count) => cylinder * u64::from(count),
            Region::Zone => cylinder * u64::from(zone.last_cylinder - zone.first_cylinder + 1),
        }
    }

    /// How many numbers a zone has.
    fn numbered(&self, zone: &Zone) -> u64 {
        let all = self.region_blocks(zone, Region::Zone);
        let lost = match self.sparing {
            Sparing::Tracks => u64::from(zone.spare) * u64::from(zone.track_blocks),
            Sparing::Blocks { region, slip_to_end, .. } => {
                let regions = all / self.region_blocks(zone, region);
                let slipped = if slip_to_end { zone.slips.len() as u64 } else { 0 };
                u64::from(zone.spare) * regions + slipped
            }
        };
        all.saturating_sub(lost + zone.unused)
    }

    /// Blocks of the disk.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.zones.last().map_or(0, |zone| zone.first + zone.blocks)
    }

    /// Cylinders of the disk.
    #[must_use]
    pub fn cylinders(&self) -> u32 {
        self.zones.last().map_or(0, |zone| zone.zone.last_cylinder + 1)
    }

    /// Surfaces.
    #[must_use]
    pub fn heads(&self) -> u32 {
        self.heads
    }

    /// Zones with the number of their first block, from the outside.
    pub fn zones(&self) -> impl Iterator<Item = (u64, &Zone)> {
        self.zones.iter().map(|zone| (zone.first, &zone.zone))
    }

    /// Where block `number` lies.
    ///
    /// # Panics
    /// When the disk has no such block.
    #[must_use]
    pub fn find(&self, number: u64) -> Place {
        let index = self.zones.partition_point(|zone| zone.first <= number) - 1;
        let numbered = &self.zones[index];
        assert!(number < numbered.first + numbered.blocks, "block {number} is on the disk");
        let zone = &numbered.zone;
        let in_zone = number - numbered.first;
        let track_blocks = u64::from(zone.track_blocks);
        let (position, mut run) = match self.sparing {
            Sparing::Tracks => self.place_in_tracks(zone, in_zone),
            Sparing::Blocks { region, at_front, slip_to_end } => {
                self.place_in_blocks(numbered, in_zone, region, at_front, slip_to_end)
            }
        };
        run = run.min(numbered.blocks - in_zone);
        let (position, run) = match self.sparing {
            Sparing::Tracks => (position, run),
            Sparing::Blocks { .. } => moved(zone, position, run),
        };
        let (track, block) = (position / track_blocks, (position % track_blocks) as u32);
        self.place(numbered, track, block, run as u32)
    }

    /// Whole tracks are slipped or moved.
    fn place_in_tracks(&self, zone: &Zone, in_zone: u64) -> (u64, u64) {
        let track_blocks = u64::from(zone.track_blocks);
        let at = in_zone + zone.unused;
        let mut track = at / track_blocks;
        for &slip in &zone.slips {
            track += u64::from(slip <= track);
        }
        let found = zone.moved.binary_search_by_key(&track, |pair| pair.0);
        let track = found.map_or(track, |index| zone.moved[index].1);
        let block = at % track_blocks;
        (track * track_blocks + block, track_blocks - block)
    }

    /// Position, and how many numbers follow on the same track.
    fn place_in_blocks(
        &self,
        numbered: &Numbered,
        in_zone: u64,
        region: Region,
        at_front: bool,
        slip_to_end: bool,
    ) -> (u64, u64) {
        let zone = &numbered.zone;
        let track_blocks = u64::from(zone.track_blocks);
        let size = self.region_blocks(zone, region);
        let spare = u64::from(zone.spare);
        // Only what is in every region shifts the regions after it.
        let data = if region == Region::Zone { size } else { size - spare };
        let at = in_zone + zone.unused;
        let (index, in_region) = (at / data, at % data);
        let front = if at_front { spare } else { 0 };
        let base = index * size + front + in_region;
        let (slips, before) = if slip_to_end || region == Region::Zone {
            (&zone.slips[..], &numbered.before[..])
        } else {
            let from = zone.slips.partition_point(|&slip| slip < index * size);
            let to = zone.slips.partition_point(|&slip| slip < (index + 1) * size);
            (&zone.slips[from..to], &numbered.before[from..to])
        };
        // Slips of earlier regions are counted in `before`, but do not shift this one.
        let earlier = slips.first().map_or(0, |&slip| slip - before[0]);
        let shift = before.partition_point(|&first| first + earlier <= base);
        let position = base + shift as u64;
        let track_end = (position / track_blocks + 1) * track_blocks;
        let between = slips[shift..].partition_point(|&slip| slip < track_end) as u64;
        let on_track = (track_end - position).saturating_sub(between).max(1);
        (position, on_track.min(data - in_region))
    }

    fn place(&self, numbered: &Numbered, track: u64, block: u32, run: u32) -> Place {
        let zone = &numbered.zone;
        let heads = u64::from(self.heads);
        let (cylinder, order) = (track / heads, track % heads);
        let turned = match self.order {
            HeadOrder::Same => false,
            HeadOrder::TurnInZone => cylinder % 2 == 1,
            HeadOrder::Turn => (u64::from(zone.first_cylinder) + cylinder) % 2 == 1,
        };
        let head = if turned { heads - 1 - order } else { order };
        let switches = order + (heads - 1) * cylinder;
        let skew = switches * u64::from(zone.track_skew)
            + cylinder * u64::from(zone.cylinder_skew)
            + self.pushed(zone, track);
        let angle = u64::from(zone.offset) + skew + u64::from(block);
        Place {
            cylinder: zone.first_cylinder + cylinder as u32,
            head: head as u32,
            track_blocks: zone.track_blocks,
            angle_blocks: (angle % u64::from(zone.track_blocks)) as u32,
            run,
        }
    }

    /// Where every cylinder or track has spares, a slip before it pushes its skew on.
    fn pushed(&self, zone: &Zone, track: u64) -> u64 {
        let Sparing::Blocks { region, .. } = self.sparing else { return 0 };
        let heads = u64::from(self.heads);
        let tracks = match region {
            Region::Track => track,
            Region::Cylinder => track / heads * heads,
            _ => return 0,
        };
        let end = tracks * u64::from(zone.track_blocks);
        zone.slips.partition_point(|&slip| slip < end) as u64
    }
}

/// A moved position lies elsewhere, alone.
fn moved(zone: &Zone, position: u64, run: u64) -> (u64, u64) {
    let next = zone.moved.partition_point(|pair| pair.0 < position);
    match zone.moved.get(next) {
        Some(&(from, to)) if from == position => (to, 1),
        Some(&(from, _)) => (position, run.min(from - position)),
        None => (position, run),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone() -> Zone {
        Zone {
            first_cylinder: 0,
            last_cylinder: 3,
            track_blocks: 10,
            offset: 0,
            unused: 0,
            track_skew: 2,
            cylinder_skew: 5,
            spare: 0,
            slips: Vec::new(),
            moved: Vec::new(),
        }
    }

    const ZONE: Sparing =
        Sparing::Blocks { region: Region::Zone, at_front: false, slip_to_end: false };

    fn disk(sparing: Sparing, zone: Zone) -> Layout {
        Layout::new(2, HeadOrder::Same, sparing, vec![zone])
    }

    /// Physical positions of all numbers of a disk of one zone without skew, along the tracks.
    fn positions(layout: &Layout) -> Vec<u64> {
        let found = (0..layout.blocks()).map(|number| layout.find(number));
        found.map(|at| u64::from((at.cylinder * 2 + at.head) * 10 + at.angle_blocks)).collect()
    }

    fn flat(zone: Zone) -> Zone {
        Zone { track_skew: 0, cylinder_skew: 0, ..zone }
    }

    /// How many numbers follow on the same track, counted one by one.
    fn check_runs(layout: &Layout) {
        for number in 0..layout.blocks() {
            let at = layout.find(number);
            let same = |next: &u64| {
                let other = layout.find(*next);
                (other.cylinder, other.head) == (at.cylinder, at.head)
            };
            let run = (number..layout.blocks()).take_while(same).count() as u32;
            assert_eq!(at.run, run, "block {number}");
        }
    }

    #[test]
    fn each_track_begins_further_round() {
        let layout = disk(ZONE, zone());
        let begins: Vec<u32> = (0..5).map(|track| layout.find(track * 10).angle_blocks).collect();
        assert_eq!(begins, [0, 2, 7, 9, 4]);
        assert_eq!(
            layout.find(13),
            Place { cylinder: 0, head: 1, track_blocks: 10, angle_blocks: 5, run: 7 }
        );
    }

    #[test]
    fn heads_turn_on_every_second_cylinder() {
        let zones = vec![zone(), Zone { first_cylinder: 4, last_cylinder: 5, ..zone() }];
        let heads = |order| {
            let layout = Layout::new(2, order, ZONE, zones.clone());
            (0..12).map(|track| layout.find(track * 10).head).collect::<Vec<_>>()
        };
        assert_eq!(heads(HeadOrder::Same), [0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1]);
        assert_eq!(heads(HeadOrder::TurnInZone), [0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0]);
    }

    #[test]
    fn numbers_go_on_behind_slips() {
        let slips = vec![12, 13, 3, 79];
        let layout = disk(ZONE, flat(Zone { spare: 6, slips, ..zone() }));
        let all = positions(&layout);
        assert_eq!(layout.blocks(), 74);
        assert_eq!(all[..14], [0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 14, 15, 16]);
        assert_eq!(all[73], 76);
        check_runs(&layout);
    }

    #[test]
    fn slips_stay_in_their_region() {
        let region = Region::Cylinders(1);
        let zone = flat(Zone { spare: 2, slips: vec![5, 22, 23, 60], ..zone() });
        let sparing = Sparing::Blocks { region, at_front: false, slip_to_end: false };
        let layout = disk(sparing, zone.clone());
        let all = positions(&layout);
        assert_eq!(layout.blocks(), 72);
        assert_eq!(all[4..6], [4, 6]);
        assert_eq!(all[17..21], [18, 20, 21, 24]);
        assert_eq!(all[36], 40);
        assert_eq!(all[54], 61);
        check_runs(&disk(sparing, zone.clone()));
        let front = Sparing::Blocks { region, at_front: true, slip_to_end: false };
        assert_eq!(positions(&disk(front, flat(Zone { slips: vec![], ..zone })))[17..19], [19, 22]);
    }

    #[test]
    fn tracks_are_spared_whole() {
        let zone = flat(Zone { spare: 2, slips: vec![1], moved: vec![(3, 7)], ..zone() });
        let layout = disk(Sparing::Tracks, zone);
        let all = positions(&layout);
        assert_eq!(layout.blocks(), 60);
        assert_eq!([all[9], all[10], all[20], all[30]], [9, 20, 70, 40]);
    }

    #[test]
    fn a_moved_block_lies_alone() {
        let layout = disk(ZONE, flat(Zone { spare: 4, moved: vec![(14, 78)], ..zone() }));
        let all = positions(&layout);
        assert_eq!([all[13], all[14], all[15]], [13, 78, 15]);
        assert_eq!([layout.find(10).run, layout.find(14).run, layout.find(15).run], [4, 1, 5]);
    }

    #[test]
    fn pushed_skew_follows_slips_of_earlier_tracks() {
        let region = Region::Track;
        let sparing = Sparing::Blocks { region, at_front: false, slip_to_end: false };
        let layout = disk(sparing, Zone { spare: 1, slips: vec![4], ..zone() });
        assert_eq!(layout.find(0).angle_blocks, 0);
        assert_eq!(layout.find(9).angle_blocks, 3);
    }

    #[test]
    fn what_is_unused_has_no_number() {
        let layout = disk(ZONE, flat(Zone { unused: 12, ..zone() }));
        assert_eq!(layout.blocks(), 68);
        assert_eq!(positions(&layout)[0], 12);
        check_runs(&layout);
    }
}
