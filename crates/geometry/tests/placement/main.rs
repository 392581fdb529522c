//! Placement as a whole, judged by a naive model that shares no code with the crate.

mod exhaustive;
mod limits;
mod model;
mod properties;
