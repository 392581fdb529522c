//! On-disk metadata, byte for byte: parse and build, no I/O.
