//! The project's own tasks: test, compare, fuzz, demo.

fn main() {}
