//! The crate against metadata from real programs, and against arbitrary bytes.

mod arbitrary;
mod assemble;
mod common;
mod mdadm;
mod real_md;
