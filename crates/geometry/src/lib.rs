//! Where each byte of an array lives: level, chunk, member, offset, parity role.
//!
//! A [`Shape`] says what an array is made of, in md's own numbers. [`Geometry::new`]
//! checks it once; after that every question has an answer by arithmetic:
//!
//! - [`Geometry::runs`] cuts a range of the array into pieces that are contiguous on a
//!   member, and [`Geometry::copy`] says where the other copies of a piece are;
//! - [`Parity::stripe`] gives the [`StripeMap`] of one stripe: which member holds which
//!   data chunk, P and Q, and which power of the generator each chunk has in Q;
//! - [`Geometry::home`] is the inverse: what lives at an offset of a member;
//! - [`Geometry::survives`] says whether every byte can still be had without some members;
//! - [`usable`] compares the levels for drives of unequal size.
//!
//! Placement is bit for bit that of the Linux md driver, so that either can take over the
//! other's drives. Offsets on members count from the start of the data area. Where that
//! area starts, and what stands before it, belongs to `format`; reading, writing and
//! computing parity belong to `array` and `parity`. Nothing here does I/O or holds data,
//! and nothing allocates once a geometry exists.

mod chunk;
mod error;
mod geometry;
mod layout;
mod level;
mod linear;
mod parity;
mod place;
mod raid0;
mod raid1;
mod raid10;
mod shape;
mod stripe;
mod usable;

pub use error::GeometryError;
pub use geometry::{Geometry, Runs};
pub use layout::{LayoutError, default_layout, layout_name, parse_layout};
pub use level::{Level, LevelError};
pub use linear::Linear;
pub use parity::Parity;
pub use place::{Home, Place, Run};
pub use raid0::{Raid0, Zone};
pub use raid1::Raid1;
pub use raid10::Raid10;
pub use shape::{BLOCK_BYTES, BYTES_MAX, CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, MEMBERS_MAX, Shape};
pub use stripe::{Role, StripeMap};
pub use usable::{Capacity, Choice, DriveUse, Unused, UsableError, Width, usable};
