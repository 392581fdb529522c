//! Checks and repairs in virtual time: what they find, what they mend, what they leave.

#![allow(clippy::unwrap_used, reason = "a test ends with the first surprise")]

#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "shared with tests that need more of it")]
mod common;
#[path = "../common/rated.rs"]
mod rated;

mod bed;
mod cases;
mod clients;
mod found;
mod restarts;
mod resync;
mod unreadable;
