//! The arrays that histories run on: every level, layout and policy, small.

use geometry::Level;

use crate::promise::Policy;

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
    /// The record of writes in flight.
    pub policy: Policy,
    /// It keeps checksums of its data.
    pub checksums: bool,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Kind { level, layout, members, chunk_bytes, policy, checksums } = self;
        write!(f, "{level} of {members}, layout {layout:#x}, chunk {chunk_bytes}, {policy:?}")?;
        f.write_str(if *checksums { ", checksums" } else { "" })
    }
}

const fn kind(level: Level, layout: u32, members: usize, chunk_bytes: u32) -> Kind {
    let policy = match level {
        Level::Linear | Level::Raid0 => Policy::None,
        _ => Policy::Resync,
    };
    Kind { level, layout, members, chunk_bytes, policy, checksums: false }
}

const fn with(policy: Policy, kind: Kind) -> Kind {
    Kind { policy, ..kind }
}

const fn checked(kind: Kind) -> Kind {
    Kind { checksums: true, ..kind }
}

/// All of them. Small chunks, so that a history meets many stripes and many borders.
pub const KINDS: [Kind; 49] = [
    kind(Level::Raid0, 2, 3, 4096),
    kind(Level::Linear, 0, 2, 0),
    kind(Level::Raid1, 0, 2, 0),
    kind(Level::Raid1, 0, 3, 0),
    // Near, far and offset copies; odd member counts; three copies.
    kind(Level::Raid10, 0x102, 4, 4096),
    kind(Level::Raid10, 0x102, 3, 4096),
    kind(Level::Raid10, 0x201, 4, 4096),
    kind(Level::Raid10, 0x201, 5, 4096),
    kind(Level::Raid10, 0x10201, 5, 8192),
    kind(Level::Raid10, 0x103, 4, 4096),
    kind(Level::Raid4, 0, 4, 4096),
    // RAID 5: asymmetric, symmetric, parity first and last.
    kind(Level::Raid5, 0, 4, 4096),
    kind(Level::Raid5, 1, 4, 16384),
    kind(Level::Raid5, 2, 3, 4096),
    kind(Level::Raid5, 2, 5, 8192),
    kind(Level::Raid5, 3, 4, 4096),
    kind(Level::Raid5, 4, 4, 4096),
    kind(Level::Raid5, 5, 6, 4096),
    // RAID 6: the same, DDF's, and the RAID 5 layouts with Q apart.
    kind(Level::Raid6, 0, 6, 8192),
    kind(Level::Raid6, 1, 5, 4096),
    kind(Level::Raid6, 2, 4, 4096),
    kind(Level::Raid6, 3, 5, 4096),
    kind(Level::Raid6, 4, 5, 4096),
    kind(Level::Raid6, 8, 5, 4096),
    kind(Level::Raid6, 9, 5, 4096),
    kind(Level::Raid6, 10, 5, 4096),
    kind(Level::Raid6, 18, 5, 4096),
    with(Policy::Bitmap, kind(Level::Raid1, 0, 2, 0)),
    with(Policy::Bitmap, kind(Level::Raid10, 0x102, 4, 4096)),
    with(Policy::Bitmap, kind(Level::Raid4, 0, 4, 4096)),
    with(Policy::Bitmap, kind(Level::Raid5, 2, 4, 4096)),
    with(Policy::Bitmap, kind(Level::Raid6, 2, 5, 4096)),
    with(Policy::Ppl, kind(Level::Raid5, 2, 3, 4096)),
    with(Policy::Ppl, kind(Level::Raid5, 1, 4, 16384)),
    with(Policy::Ppl, kind(Level::Raid5, 2, 5, 8192)),
    with(Policy::Journal, kind(Level::Raid5, 2, 4, 8192)),
    with(Policy::Journal, kind(Level::Raid4, 0, 3, 4096)),
    with(Policy::Journal, kind(Level::Raid6, 2, 5, 4096)),
    checked(kind(Level::Raid1, 0, 2, 0)),
    checked(kind(Level::Raid1, 0, 3, 0)),
    checked(kind(Level::Raid10, 0x201, 4, 4096)),
    checked(kind(Level::Raid5, 2, 4, 8192)),
    checked(kind(Level::Raid6, 2, 5, 4096)),
    checked(with(Policy::Bitmap, kind(Level::Raid10, 0x102, 3, 4096))),
    checked(with(Policy::Bitmap, kind(Level::Raid5, 2, 4, 4096))),
    checked(with(Policy::Bitmap, kind(Level::Raid6, 8, 5, 8192))),
    checked(with(Policy::Ppl, kind(Level::Raid5, 2, 4, 4096))),
    checked(with(Policy::Journal, kind(Level::Raid5, 3, 4, 8192))),
    checked(with(Policy::Journal, kind(Level::Raid6, 2, 5, 4096))),
];

impl Kind {
    /// Sectors of its block: what clients write begins and ends on one.
    pub fn block_sectors(&self) -> u64 {
        if self.policy == Policy::Journal || self.checksums { 8 } else { 1 }
    }

    /// Whether there is anything to lose a member of.
    pub fn redundant(&self) -> bool {
        self.level.parities() > 0 || matches!(self.level, Level::Raid1 | Level::Raid10)
    }
}
