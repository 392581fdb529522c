//! What the kernels compute with: a few bytes at once.
//!
//! A [`Vector`] is a register full of field elements. The passes in [`super::pass`] are written
//! once over this trait and compiled once for each register type; here are the two types every
//! processor has, [`super::x86`] holds the others.
//!
//! All methods must be inlined into a function that enables the type's instructions, hence
//! `inline(always)`: otherwise they are right but slow.

use crate::field::{self, REDUCTION};

/// A register of [`Vector::BYTES`] bytes, each an element of the field.
///
/// A value of the type, or of its factor, is the proof that the processor has the
/// instructions the type needs. Hence making one is unsafe and using it is not.
pub(super) trait Vector: Copy {
    /// Bytes in one register.
    const BYTES: usize;

    /// A constant to multiply by, in the form the multiplication wants.
    type Factor: Copy;

    /// All bytes 0.
    ///
    /// # Safety
    /// The processor has the instructions of this type.
    unsafe fn zero() -> Self;

    /// Reads [`Vector::BYTES`] bytes; no alignment needed.
    ///
    /// # Safety
    /// The processor has the instructions of this type, and the bytes may be read.
    unsafe fn load(from: *const u8) -> Self;

    /// Writes [`Vector::BYTES`] bytes; no alignment needed.
    ///
    /// # Safety
    /// The bytes may be written.
    unsafe fn store(self, to: *mut u8);

    /// Prepares to multiply by `constant`.
    ///
    /// # Safety
    /// The processor has the instructions of this type.
    unsafe fn factor(constant: u8) -> Self::Factor;

    /// The sum, which is the difference too.
    fn xor(self, other: Self) -> Self;

    /// The sum of three.
    #[inline(always)]
    fn xor3(self, second: Self, third: Self) -> Self {
        self.xor(second).xor(third)
    }

    /// Every byte times 2.
    fn double(self) -> Self;

    /// Two steps of Horner's rule: 4 times self, plus 2 times `high`, plus `low`.
    #[inline(always)]
    fn horner2(self, high: Self, low: Self) -> Self {
        self.double().xor(high).double().xor(low)
    }

    /// Every byte times the factor's constant.
    fn multiply(self, factor: Self::Factor) -> Self;
}

/// One byte, for what is left at the end of a slice.
impl Vector for u8 {
    const BYTES: usize = 1;
    type Factor = u8;

    #[inline(always)]
    unsafe fn zero() -> Self {
        0
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller vouches for this byte.
        unsafe { from.read() }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller vouches for this byte.
        unsafe { to.write(self) }
    }

    #[inline(always)]
    unsafe fn factor(constant: u8) -> u8 {
        constant
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        self ^ other
    }

    #[inline(always)]
    fn double(self) -> Self {
        field::double(self)
    }

    #[inline(always)]
    fn multiply(self, factor: u8) -> Self {
        field::multiply(self, factor)
    }
}

/// The same byte in all eight places of a word.
const fn splat(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// Eight bytes in one general register, for processors without a kernel of their own.
impl Vector for u64 {
    const BYTES: usize = 8;
    type Factor = u8;

    #[inline(always)]
    unsafe fn zero() -> Self {
        0
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller vouches for these bytes; no alignment is assumed.
        unsafe { from.cast::<u64>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller vouches for these bytes; no alignment is assumed.
        unsafe { to.cast::<u64>().write_unaligned(self) }
    }

    #[inline(always)]
    unsafe fn factor(constant: u8) -> u8 {
        constant
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        self ^ other
    }

    #[inline(always)]
    fn double(self) -> Self {
        let top_bits = self >> 7 & splat(1);
        // Each top bit becomes a byte of 0 or REDUCTION: the products of eight bytes that are
        // 0 or 1 with a byte can't carry into each other.
        (self << 1 & splat(0xfe)) ^ (top_bits * u64::from(REDUCTION))
    }

    #[inline(always)]
    fn multiply(self, factor: u8) -> Self {
        let mut product = 0;
        let mut doubled = self;
        for bit in 0..8 {
            if factor >> bit & 1 == 1 {
                product ^= doubled;
            }
            doubled = doubled.double();
        }
        product
    }
}
