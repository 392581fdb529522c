//! What the engine does when a member errs: answers from redundancy, mends, lists as bad, fails.

#![allow(clippy::unwrap_used, reason = "a test ends with the first surprise")]

mod bench;
#[expect(dead_code, reason = "shared with tests that need more of it")]
#[path = "../common/mod.rs"]
mod common;
mod hanging;
mod media;
