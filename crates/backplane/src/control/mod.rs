//! The control socket of a serving process: what administrators ask of an array in service.
//!
//! | file | what |
//! | --- | --- |
//! | `protocol` | requests and answers, one JSON document per line |
//! | `place` | where sockets lie, and whose they are |
//! | `client` | asking |
//! | `serving` | answering: acts on the arrays of this process |
//! | `members` | ... that concern a member |
//! | `scrub` | what a repair may overwrite, kept |
//!
//! `docs/control.md` describes the protocol for programs.

pub mod client;
pub mod members;
pub mod place;
pub mod protocol;
pub mod scrub;
pub mod serving;
