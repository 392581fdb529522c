//! Areas of our own on members of md sets: what md can't express, in room that md leaves free.
//!
//! They lie right before the data area, so that md's own areas (superblock, bitmap, bad-block log,
//! partial parity log), which md and mdadm place from the superblock on, never reach them in a set
//! that was made with room. Counted from the data area's first byte backwards:
//!
//! | blocks of 4 KiB | what |
//! | --- | --- |
//! | 1, 2 | header of the checksums, two slots ([`checksums`]) |
//! | 3, 4 | what the last scrub found, two slots ([`scrub`]) |
//! | 5 … | pages of checksums, the first one lowest |
//!
//! Nothing here is needed to read the data: each area carries the identity of its set and member
//! and a checksum of itself, and one that is damaged, or another member's, counts as absent.

pub mod checksums;
mod room;
pub mod scrub;

pub use room::{AREA_BLOCK_BYTES, SumsArea, free_before_data, scrub_offsets, sums_room_bytes};
