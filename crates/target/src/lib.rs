//! Ways out of an array: NBD.
//!
//! [`nbd`] is the protocol without sockets, and [`nbd::server`] serves drives with it.

pub mod nbd;
