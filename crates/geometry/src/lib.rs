//! Where each byte of an array lives: level, chunk, member, offset, parity role.
