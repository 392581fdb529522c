//! The NBD protocol against bytes written out by hand from its document.

mod client;
mod handshake;
mod pieces;
mod requests;
