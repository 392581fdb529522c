//! Ways out of an array: NBD.
//!
//! [`nbd`] is the protocol, without sockets.

pub mod nbd;
