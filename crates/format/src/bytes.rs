//! Fixed-width integers at fixed offsets: what every on-disk table here is made of.
//!
//! The readers index without checks of their own: a parser first checks the length of the whole
//! structure, once, and then reads its fields. Reading past that is a programmer's error.

/// Copies `N` bytes from `offset`.
pub(crate) fn array<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[offset..offset + N]);
    out
}

/// Little-endian `u16` at `offset`.
pub(crate) fn u16_le(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes(array(bytes, offset))
}

/// Little-endian `u32` at `offset`.
pub(crate) fn u32_le(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(array(bytes, offset))
}

/// Little-endian `i32` at `offset`.
pub(crate) fn i32_le(bytes: &[u8], offset: usize) -> i32 {
    i32::from_le_bytes(array(bytes, offset))
}

/// Little-endian `u64` at `offset`.
pub(crate) fn u64_le(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(array(bytes, offset))
}

/// Writes `value` at `offset`.
pub(crate) fn put(bytes: &mut [u8], offset: usize, value: &[u8]) {
    bytes[offset..offset + value.len()].copy_from_slice(value);
}
