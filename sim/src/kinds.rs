//! The arrays that histories run on: every level, small.

use geometry::Level;

/// One shape.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// Level.
    pub level: Level,
    /// md's layout number.
    pub layout: u32,
    /// Members.
    pub members: usize,
    /// Chunk in bytes; 0 where the level has none.
    pub chunk_bytes: u32,
    /// Members that may be lost at once, whichever they are.
    pub losses: usize,
}

const fn kind(level: Level, layout: u32, members: usize, chunk_bytes: u32, losses: usize) -> Kind {
    Kind { level, layout, members, chunk_bytes, losses }
}

/// All of them. Small chunks, so that a history meets many stripes and many borders.
pub const KINDS: [Kind; 14] = [
    kind(Level::Raid0, 2, 3, 4096, 0),
    kind(Level::Linear, 0, 2, 0, 0),
    kind(Level::Raid1, 0, 2, 0, 1),
    kind(Level::Raid1, 0, 3, 0, 2),
    kind(Level::Raid10, 0x102, 4, 4096, 1),
    kind(Level::Raid10, 0x201, 4, 4096, 1),
    kind(Level::Raid10, 0x10201, 5, 8192, 1),
    kind(Level::Raid4, 0, 4, 4096, 1),
    kind(Level::Raid5, 2, 3, 4096, 1),
    kind(Level::Raid5, 2, 5, 8192, 1),
    kind(Level::Raid5, 1, 4, 16384, 1),
    kind(Level::Raid6, 2, 4, 4096, 2),
    kind(Level::Raid6, 0, 6, 8192, 2),
    kind(Level::Raid6, 10, 5, 4096, 2),
];

impl Kind {
    /// Whether redundancy is parity: then a cut while it is degraded is not survived (the write
    /// hole), and copies otherwise.
    pub fn has_parity(&self) -> bool {
        self.level.parities() > 0
    }
}
