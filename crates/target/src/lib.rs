//! Ways out of an array: NBD for its clients, and a control socket for its administrators.
//!
//! [`nbd`] is the protocol without sockets, and [`nbd::server`] serves drives with it; [`control`]
//! takes requests to whoever serves.

pub mod control;
pub mod nbd;
