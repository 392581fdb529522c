//! The crate against metadata from real programs, and against arbitrary bytes.

mod arbitrary;
mod assemble;
mod common;
mod create;
mod mdadm;
mod probe;
mod real_md;
