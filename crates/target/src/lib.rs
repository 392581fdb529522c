//! Ways out of an array: NBD.
