//! Checks and repairs in virtual time: what they find, what they mend, what they leave.

#![allow(clippy::unwrap_used, reason = "a test ends with the first surprise")]
#![allow(dead_code, reason = "the common parts are shared with other tests")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/rated.rs"]
mod rated;

mod bed;
mod cases;
mod clients;
mod found;
mod restarts;
mod unreadable;
