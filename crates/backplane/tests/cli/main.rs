//! The binary as people and scripts use it: words in, words, files and exit status out.

#![allow(clippy::unwrap_used, reason = "a test ends with the first surprise")]

mod arrays;
mod bad_input;
mod bench;
mod cases;
mod common;
mod control;
mod corpus;
mod help;
mod kill;
mod lab;
mod members;
mod scrub;
mod serve;
