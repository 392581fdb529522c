//! What a hard disk is made of, as numbers.
//!
//! Times are in nanoseconds, blocks are sectors. Where a pair stands for "after", the first is for
//! a command after a read, the second for one after a write: many disks need different times.

use super::mechanics::Mechanics;

/// A hard disk.
#[derive(Debug, Clone)]
pub struct Parameters {
    /// How it is named.
    pub name: String,
    /// What the host can address.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Arm, platter and layout.
    pub mechanics: Mechanics,
    /// Processor.
    pub overheads: Overheads,
    /// Time of a block on the link, to and from the host; none where the files leave it open.
    pub link_block_ns: [u64; 2],
    /// Buffer and read-ahead.
    pub buffer: Buffer,
    /// Writes.
    pub writes: Writes,
    /// A part of the surface that takes small writes first.
    pub media: Option<MediaCache>,
    /// The arm leaves for the next command while the data of a read are still on the link.
    pub preseek: bool,
    /// In which order commands are served.
    pub schedule: Schedule,
    /// Commands the disk takes at a time.
    pub queue_depth: u32,
    /// How long it tries to read a block that it can't read.
    pub recovery_ns: u64,
}

/// Times of the disk's processor and of its talk with the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overheads {
    /// A read that finds its first block in the buffer: after a read, after a write.
    pub read_hit_ns: [u64; 2],
    /// A read that has to go to the platter.
    pub read_miss_ns: [u64; 2],
    /// A write.
    pub write_ns: [u64; 2],
    /// At the end of a read, of a write.
    pub complete_ns: [u64; 2],
    /// Before data go over the link.
    pub prepare_ns: u64,
    /// Coming back to the link: the first time, and after an extra disconnection.
    pub reselect_ns: [u64; 2],
    /// Leaving the link before a read: after a read, after a write.
    pub read_leave_ns: [u64; 2],
    /// Leaving it before the platter has what was written.
    pub write_leave_ns: u64,
    /// Writes that follow a write elsewhere leave the link once more, before their data.
    pub extra: Option<ExtraLeave>,
    /// The arm never takes less before a write elsewhere.
    pub write_seek_min_ns: u64,
}

/// Leaving the link between a write's command and its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtraLeave {
    /// The command.
    pub command_ns: u64,
    /// Leaving.
    pub leave_ns: u64,
    /// Until it comes back.
    pub away_ns: u64,
    /// Leaving again after the data.
    pub leave_again_ns: u64,
    /// From the command to the arm's start.
    pub seek_ns: u64,
}

/// How far the disk reads ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadAhead {
    /// Not at all.
    Off,
    /// To the end of the track.
    Track,
    /// To the end of the cylinder.
    Cylinder,
    /// A number of blocks behind the request.
    Blocks(u64),
    /// To the end of the track, and over the next one too once a segment has crossed a track.
    TrackThenNext,
}

/// Buffer for reads, in segments.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Buffer {
    /// Segments.
    pub segments: u32,
    /// Blocks of one.
    pub segment_blocks: u64,
    /// One of the segments is for writes alone.
    pub write_segment: bool,
    /// Reads find what was written.
    pub hits_on_writes: bool,
    /// So do reads whose first block is the one that is just being read ahead.
    pub almost_hits: bool,
    /// Reading on behind a request.
    pub ahead: ReadAhead,
    /// Also when the request was in the buffer.
    pub ahead_on_hit: bool,
    /// What passes before the requested blocks is kept.
    pub free_blocks: bool,
    /// Reading ahead stops within a block for the next command.
    pub stops_in_block: bool,
    /// A write into a segment ends its reading ahead.
    pub write_stops_ahead: bool,
    /// Part of a read that is in the buffer before the disk comes to the link.
    pub watermark: f64,
    /// Reads that are in the buffer go past commands that wait for the platter.
    pub hits_pass: bool,
}

/// When a write is over for the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writes {
    /// Once it is on the platter.
    OnPlatter,
    /// Once it is in the buffer, for one command at a time; `appends` also while the platter is
    /// busy with the blocks right before it.
    InBuffer {
        /// Also with other commands waiting.
        appends: bool,
    },
    /// Once it is in the write cache.
    InCache(WriteCache),
}

/// Acknowledged writes wait here for the platter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteCache {
    /// Room.
    pub blocks: u64,
    /// How many runs of blocks the disk keeps apart.
    pub runs: u32,
    /// Above this they are written before reads.
    pub high_blocks: u64,
    /// How long the disk waits for reads before it writes.
    pub idle_ns: u64,
}

/// A part of the surface, behind the last block the host knows, that takes writes in the order they
/// come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MediaCache {
    /// Room.
    pub blocks: u64,
    /// Blocks of a shingled band, which is written as a whole; none where tracks don't overlap.
    pub band_blocks: Option<u64>,
    /// How many writes go there at a time.
    pub batch: u32,
    /// How long the disk is idle before it cleans up.
    pub idle_ns: u64,
}

impl MediaCache {
    /// More than what goes there at a time.
    #[must_use]
    pub fn batch_blocks_max(&self) -> u64 {
        (self.blocks / 8).min(8192)
    }
}

/// Order of commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schedule {
    /// First come, first served.
    FirstCome,
    /// Shortest seek time first.
    ShortestSeek,
    /// In the order of block numbers, up and down the disk.
    Elevator,
    /// Shortest seek and rotation first.
    ShortestPositioning {
        /// How old a command may get before it goes first.
        age_max_ns: u64,
        /// How many of the queue the disk looks at.
        window: u32,
    },
}
