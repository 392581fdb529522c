//! Every level and layout, as the engine and as mdadm call it.

use geometry::Level;

/// An array to make.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub level: Level,
    /// md's number; `None`: left to the engine.
    pub layout: Option<u32>,
    /// mdadm's word for the layout, where it has one.
    pub layout_word: &'static str,
    pub chunk_kib: u32,
    pub members: usize,
    /// Any so many members may be lost at once.
    pub losses: usize,
}

impl Shape {
    /// Sizes of the members' images: as small as the chunk allows, and unequal where all of
    /// unequal members is used.
    pub fn image_bytes(&self) -> Vec<u64> {
        const KIB: u64 = 1 << 10;
        // In front of the data are one or two MiB; a member then has six chunks at the least.
        let kib = if self.chunk_kib > 256 { 5 << 10 } else { 5 << 9 };
        let unequal = self.losses == 0 && self.layout.is_some();
        let extra = |index: usize| if unequal { [0, 700, 1300][index % 3] } else { 0 };
        (0..self.members).map(|index| (kib + extra(index)) * KIB).collect()
    }

    /// mdadm's word for the level.
    pub fn level_word(&self) -> &'static str {
        match self.level {
            Level::Linear => "linear",
            Level::Raid0 => "raid0",
            Level::Raid1 => "raid1",
            Level::Raid10 => "raid10",
            Level::Raid4 => "raid4",
            Level::Raid5 => "raid5",
            Level::Raid6 => "raid6",
        }
    }
}

const fn shape(
    level: Level,
    layout: u32,
    layout_word: &'static str,
    chunk_kib: u32,
    members: usize,
    losses: usize,
) -> Shape {
    Shape { level, layout: Some(layout), layout_word, chunk_kib, members, losses }
}

/// Levels without parity.
pub const PLAIN: [Shape; 8] = [
    shape(Level::Linear, 0, "", 0, 3, 0),
    shape(Level::Linear, 0, "", 64, 3, 0),
    Shape { layout: None, ..shape(Level::Raid0, 0, "", 64, 3, 0) },
    shape(Level::Raid0, 1, "original", 16, 3, 0),
    shape(Level::Raid0, 2, "alternate", 16, 3, 0),
    shape(Level::Raid0, 2, "alternate", 512, 4, 0),
    shape(Level::Raid1, 0, "", 0, 2, 1),
    shape(Level::Raid1, 0, "", 0, 3, 2),
];

pub const RAID10: [Shape; 13] = [
    shape(Level::Raid10, 0x102, "near=2", 16, 4, 1),
    shape(Level::Raid10, 0x102, "near=2", 64, 3, 1),
    shape(Level::Raid10, 0x102, "near=2", 4, 5, 1),
    shape(Level::Raid10, 0x103, "near=3", 16, 5, 2),
    shape(Level::Raid10, 0x201, "far=2", 64, 4, 1),
    shape(Level::Raid10, 0x201, "far=2", 4, 3, 1),
    shape(Level::Raid10, 0x301, "far=3", 16, 4, 2),
    shape(Level::Raid10, 0x202, "near=2, far=2", 16, 5, 3),
    shape(Level::Raid10, 0x40201, "far=2", 16, 4, 1),
    shape(Level::Raid10, 0x10201, "offset=2", 16, 4, 1),
    shape(Level::Raid10, 0x10201, "offset=2", 64, 3, 1),
    shape(Level::Raid10, 0x10301, "offset=3", 4, 5, 2),
    shape(Level::Raid10, 0x102, "near=2", 512, 2, 1),
];

pub const RAID5: [Shape; 12] = [
    shape(Level::Raid4, 0, "", 16, 4, 1),
    shape(Level::Raid4, 0, "", 128, 3, 1),
    shape(Level::Raid5, 0, "left-asymmetric", 16, 4, 1),
    shape(Level::Raid5, 1, "right-asymmetric", 16, 4, 1),
    shape(Level::Raid5, 2, "left-symmetric", 16, 4, 1),
    shape(Level::Raid5, 3, "right-symmetric", 16, 4, 1),
    shape(Level::Raid5, 4, "parity-first", 16, 4, 1),
    shape(Level::Raid5, 5, "parity-last", 16, 4, 1),
    shape(Level::Raid5, 2, "left-symmetric", 512, 3, 1),
    shape(Level::Raid5, 2, "left-symmetric", 4, 5, 1),
    shape(Level::Raid5, 1, "right-asymmetric", 64, 8, 1),
    shape(Level::Raid5, 0, "left-asymmetric", 32, 3, 1),
];

pub const RAID6: [Shape; 17] = [
    shape(Level::Raid6, 0, "left-asymmetric", 4, 5, 2),
    shape(Level::Raid6, 1, "right-asymmetric", 16, 5, 2),
    shape(Level::Raid6, 2, "left-symmetric", 16, 5, 2),
    shape(Level::Raid6, 3, "right-symmetric", 16, 5, 2),
    shape(Level::Raid6, 4, "parity-first", 16, 5, 2),
    shape(Level::Raid6, 5, "parity-last", 16, 5, 2),
    shape(Level::Raid6, 8, "ddf-zero-restart", 16, 5, 2),
    shape(Level::Raid6, 9, "ddf-N-restart", 16, 5, 2),
    shape(Level::Raid6, 10, "ddf-N-continue", 16, 5, 2),
    shape(Level::Raid6, 16, "left-asymmetric-6", 16, 5, 2),
    shape(Level::Raid6, 17, "right-asymmetric-6", 16, 5, 2),
    shape(Level::Raid6, 18, "left-symmetric-6", 16, 5, 2),
    shape(Level::Raid6, 19, "right-symmetric-6", 4, 5, 2),
    shape(Level::Raid6, 20, "parity-first-6", 16, 5, 2),
    shape(Level::Raid6, 2, "left-symmetric", 512, 4, 2),
    shape(Level::Raid6, 2, "left-symmetric", 64, 4, 2),
    shape(Level::Raid6, 2, "left-symmetric", 32, 7, 2),
];

/// The shapes whose turn it is: all of them if asked for, else every fourth.
pub fn chosen(shapes: &[Shape]) -> Vec<Shape> {
    let all = std::env::var("BACKPLANE_REAL_MD").is_ok_and(|shapes| shapes == "all");
    let step = if all { 1 } else { 4 };
    shapes.iter().skip(step / 2).step_by(step).copied().collect()
}
