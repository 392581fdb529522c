//! On-disk metadata, byte for byte: parse and build, no I/O.
//!
//! Slices go in, structs or bytes come out. Nothing here opens a drive, asks the time or draws a
//! random number: the caller reads the bytes a `places`-like function names and hands them over.
//! Every parser accepts arbitrary bytes: it answers with an exact error, never with a panic, and
//! never allocates more than a few times its input.
//!
//! - [`md`]: Linux md: superblocks 0.90 and 1.x, bitmap, bad blocks, partial parity log, journal,
//!   planning a new set and deciding which of several disagreeing superblocks to trust.
//! - [`own`]: our own areas on members, in room that md leaves free.
//! - [`probe`]: what else lives on a drive, of every format known by its mark.

mod bytes;
mod checksum;
pub mod md;
pub mod own;
pub mod probe;
