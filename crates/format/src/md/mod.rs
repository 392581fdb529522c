//! Linux md metadata.
//!
//! A member of an md set carries a *superblock* that says which set it belongs to, how the set is
//! laid out, which slot the member holds and how current it is. The superblock points to further
//! areas on the same member: write-intent bitmap, bad-block log, partial parity log.
//!
//! All places on a member are byte offsets from its start in this crate's views; the raw
//! [`Superblock`] keeps md's own unit (sectors of 512 bytes), marked in the field names.

mod assemble;
mod badblocks;
mod bitmap;
mod create;
mod create_request;
pub mod journal;
mod member;
mod ppl;
mod readd;
mod superblock090;
mod superblock1;
mod types;
mod validate;
mod verdict;

pub use assemble::decide;
pub use badblocks::{BadBlocksError, build_bad_blocks, parse_bad_blocks};
pub use bitmap::{BITMAP_HEADER_BYTES, BitmapError, BitmapForm, BitmapHeader, BitmapState};
pub use create::{BITMAP_CHUNK_BYTES, initial_writes, plan_create};
pub use create_request::{Consistency, CreateError, CreateRequest, NewMember};
pub use member::{
    BadBlockPlace, ByteRange, ConsistencyPlace, Layout, MemberView, ReshapeView, Resync,
};
pub use ppl::{PPL_ENTRIES_MAX, PPL_HEADER_BYTES, PplEntry, PplError, PplLog, PplWrite};
pub use readd::{ReaddRefusal, readd};
pub use superblock1::{
    Place, RESYNC_CLEAN, ROLES_MAX, ReshapeFields, SUPERBLOCK_BYTES, Superblock, SuperblockError,
    places,
};
pub use superblock090::{SUPERBLOCK090_BYTES, Superblock090Error, parse090, place090};
pub use types::{DevFlags, Features, Level, Role, Timestamp, Uuid, Version};
pub use validate::Implausible;
pub use verdict::{ArrayState, Assembly, Candidate, Refusal, Side, Verdict};

/// The unit of every offset and size in md's superblock.
pub const SECTOR_BYTES: u64 = 512;

/// The first word of every md superblock, 0.90 and 1.x alike.
pub const MAGIC: u32 = 0xa92b_4efc;
