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
    /// What closes the write hole.
    pub log: Log,
}

/// A log of writes in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Log {
    /// None.
    None,
    /// A partial parity log.
    Ppl,
    /// A journal on a further drive.
    Journal,
}

const fn kind(level: Level, layout: u32, members: usize, chunk_bytes: u32, losses: usize) -> Kind {
    Kind { level, layout, members, chunk_bytes, losses, log: Log::None }
}

const fn with(log: Log, kind: Kind) -> Kind {
    Kind { log, ..kind }
}

/// All of them. Small chunks, so that a history meets many stripes and many borders.
pub const KINDS: [Kind; 20] = [
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
    with(Log::Ppl, kind(Level::Raid5, 2, 3, 4096, 1)),
    with(Log::Ppl, kind(Level::Raid5, 1, 4, 16384, 1)),
    with(Log::Ppl, kind(Level::Raid5, 2, 5, 8192, 1)),
    with(Log::Journal, kind(Level::Raid5, 2, 4, 8192, 1)),
    with(Log::Journal, kind(Level::Raid4, 0, 3, 4096, 1)),
    with(Log::Journal, kind(Level::Raid6, 2, 5, 4096, 2)),
];

impl Kind {
    /// Whether a cut while it is degraded is not survived: parity without a log has the write hole.
    pub fn has_write_hole(&self) -> bool {
        self.level.parities() > 0 && self.log == Log::None
    }

    /// Whether what is being written is old or new also when a member is lost in the same cut. A
    /// partial parity log keeps only the rest of the stripe.
    pub fn keeps_flight_whole(&self) -> bool {
        self.level.parities() == 0 || self.log == Log::Journal
    }

    /// Sectors of its block.
    pub fn block_sectors(&self) -> u64 {
        if self.log == Log::Journal { 8 } else { 1 }
    }
}
