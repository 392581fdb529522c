//! The vectors of x86-64: SSSE3, AVX2, AVX-512 and the last two with GFNI.
//!
//! Doubling without GFNI adds each byte to itself and XORs the reduction into those whose top
//! bit fell out. Multiplication without GFNI looks both halves of each byte up in a table of 16
//! products by a byte shuffle. With GFNI both are one affine transformation.
//!
//! Each method is one to five intrinsics. They are `unsafe` for one reason, that the processor
//! must have the instructions, and a value of the type is the proof of that (see [`Vector`]).

use std::arch::x86_64::*;

use super::tables::{BIT_MATRICES, NIBBLE_PRODUCTS};
use super::vector::Vector;
use crate::field::REDUCTION;

/// The parts that are alike in all register types.
macro_rules! common {
    ($bytes:literal, $zero:ident, $load:ident, $store:ident) => {
        const BYTES: usize = $bytes;

        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: the caller vouches for the instructions.
            Self(unsafe { $zero() })
        }

        #[inline(always)]
        unsafe fn load(from: *const u8) -> Self {
            // SAFETY: the caller vouches for the instructions and the bytes.
            Self(unsafe { $load(from.cast()) })
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut u8) {
            // SAFETY: `self` proves the instructions, the caller vouches for the bytes.
            unsafe { $store(to.cast(), self.0) }
        }
    };
}

/// XOR of two registers, where no three can be taken at once.
macro_rules! xor_of_two {
    ($xor:ident) => {
        #[inline(always)]
        fn xor(self, other: Self) -> Self {
            // SAFETY: `self` proves the instructions.
            Self(unsafe { $xor(self.0, other.0) })
        }
    };
}

/// XOR in AVX-512, which can take three at once.
macro_rules! xor_of_three {
    () => {
        xor_of_two!(_mm512_xor_si512);

        #[inline(always)]
        fn xor3(self, second: Self, third: Self) -> Self {
            // 0x96 is the truth table of the parity of three bits.
            // SAFETY: `self` proves the instructions.
            Self(unsafe { _mm512_ternarylogic_epi64::<0x96>(self.0, second.0, third.0) })
        }
    };
}

/// Multiplication by table lookup; the factor is the two tables and the mask of a nibble.
macro_rules! multiply_by_lookup {
    ($register:ty, $tables:ident, $nibble:ident, $and:ident, $shift:ident, $lookup:ident,
     $xor:ident) => {
        type Factor = [$register; 2];

        #[inline(always)]
        unsafe fn factor(constant: u8) -> Self::Factor {
            // SAFETY: the caller vouches for the instructions.
            unsafe { $tables(&NIBBLE_PRODUCTS[usize::from(constant)]) }
        }

        #[inline(always)]
        fn multiply(self, [low, high]: Self::Factor) -> Self {
            // SAFETY: `self` proves the instructions.
            unsafe {
                let nibble = $nibble(0x0f);
                let low = $lookup(low, $and(self.0, nibble));
                let high = $lookup(high, $and($shift::<4>(self.0), nibble));
                Self($xor(low, high))
            }
        }
    };
}

/// Multiplication by affine transformation; the factor is the matrix.
macro_rules! multiply_by_matrix {
    ($register:ty, $affine:ident, $splat:ident) => {
        type Factor = $register;

        #[inline(always)]
        unsafe fn factor(constant: u8) -> Self::Factor {
            // SAFETY: the caller vouches for the instructions.
            unsafe { $splat(BIT_MATRICES[usize::from(constant)] as i64) }
        }

        #[inline(always)]
        fn multiply(self, matrix: Self::Factor) -> Self {
            // SAFETY: `self` proves the instructions.
            Self(unsafe { $affine::<0>(self.0, matrix) })
        }

        #[inline(always)]
        fn double(self) -> Self {
            // SAFETY: `self` proves the instructions.
            self.multiply(unsafe { Self::factor(2) })
        }

        #[inline(always)]
        fn horner2(self, high: Self, low: Self) -> Self {
            // The two transformations don't wait for each other.
            // SAFETY: `self` proves the instructions.
            self.multiply(unsafe { Self::factor(4) }).xor3(high.double(), low)
        }
    };
}

/// 16 bytes: SSE2, and SSSE3 for the shuffle.
#[derive(Clone, Copy)]
pub(super) struct Ssse3(__m128i);

impl Vector for Ssse3 {
    common!(16, _mm_setzero_si128, _mm_loadu_si128, _mm_storeu_si128);
    xor_of_two!(_mm_xor_si128);
    multiply_by_lookup!(
        __m128i,
        tables_128,
        _mm_set1_epi8,
        _mm_and_si128,
        _mm_srli_epi64,
        _mm_shuffle_epi8,
        _mm_xor_si128
    );

    #[inline(always)]
    fn double(self) -> Self {
        // SAFETY: `self` proves the instructions.
        unsafe {
            let top_bit_set = _mm_cmpgt_epi8(_mm_setzero_si128(), self.0);
            let reduction = _mm_and_si128(top_bit_set, _mm_set1_epi8(REDUCTION as i8));
            Self(_mm_xor_si128(_mm_add_epi8(self.0, self.0), reduction))
        }
    }
}

/// 32 bytes: AVX2.
#[derive(Clone, Copy)]
pub(super) struct Avx2(__m256i);

impl Vector for Avx2 {
    common!(32, _mm256_setzero_si256, _mm256_loadu_si256, _mm256_storeu_si256);
    xor_of_two!(_mm256_xor_si256);
    multiply_by_lookup!(
        __m256i,
        tables_256,
        _mm256_set1_epi8,
        _mm256_and_si256,
        _mm256_srli_epi64,
        _mm256_shuffle_epi8,
        _mm256_xor_si256
    );

    #[inline(always)]
    fn double(self) -> Self {
        // SAFETY: `self` proves the instructions.
        unsafe {
            let top_bit_set = _mm256_cmpgt_epi8(_mm256_setzero_si256(), self.0);
            let reduction = _mm256_and_si256(top_bit_set, _mm256_set1_epi8(REDUCTION as i8));
            Self(_mm256_xor_si256(_mm256_add_epi8(self.0, self.0), reduction))
        }
    }
}

/// 64 bytes: AVX-512F and BW.
#[derive(Clone, Copy)]
pub(super) struct Avx512(__m512i);

impl Vector for Avx512 {
    common!(64, _mm512_setzero_si512, _mm512_loadu_si512, _mm512_storeu_si512);
    xor_of_three!();
    multiply_by_lookup!(
        __m512i,
        tables_512,
        _mm512_set1_epi8,
        _mm512_and_si512,
        _mm512_srli_epi64,
        _mm512_shuffle_epi8,
        _mm512_xor_si512
    );

    #[inline(always)]
    fn double(self) -> Self {
        // There is no comparison into a vector here. But a shuffle gives 0 where the index has
        // its top bit set, and the table's entry, which is the reduction everywhere, where not:
        // the reduction XOR that is the reduction wanted.
        // SAFETY: `self` proves the instructions.
        unsafe {
            let reduction = _mm512_set1_epi8(REDUCTION as i8);
            let unwanted = _mm512_shuffle_epi8(reduction, self.0);
            let doubled = _mm512_add_epi8(self.0, self.0);
            Self(doubled).xor3(Self(reduction), Self(unwanted))
        }
    }
}

/// 32 bytes: AVX2 and GFNI.
#[derive(Clone, Copy)]
pub(super) struct GfniAvx2(__m256i);

impl Vector for GfniAvx2 {
    common!(32, _mm256_setzero_si256, _mm256_loadu_si256, _mm256_storeu_si256);
    xor_of_two!(_mm256_xor_si256);
    multiply_by_matrix!(__m256i, _mm256_gf2p8affine_epi64_epi8, _mm256_set1_epi64x);
}

/// 64 bytes: AVX-512F, BW and GFNI.
#[derive(Clone, Copy)]
pub(super) struct GfniAvx512(__m512i);

impl Vector for GfniAvx512 {
    common!(64, _mm512_setzero_si512, _mm512_loadu_si512, _mm512_storeu_si512);
    xor_of_three!();
    multiply_by_matrix!(__m512i, _mm512_gf2p8affine_epi64_epi8, _mm512_set1_epi64);
}

/// The two halves of a product table, for 128-bit registers.
///
/// # Safety
/// The processor has SSE2.
#[inline(always)]
unsafe fn tables_128(products: &[u8; 32]) -> [__m128i; 2] {
    let (low, high) = products.split_at(16);
    // SAFETY: the caller vouches for the instructions; each half has 16 bytes.
    unsafe { [_mm_loadu_si128(low.as_ptr().cast()), _mm_loadu_si128(high.as_ptr().cast())] }
}

/// The two halves of a product table, repeated over 256-bit registers.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn tables_256(products: &[u8; 32]) -> [__m256i; 2] {
    // SAFETY: the caller vouches for the instructions.
    unsafe { tables_128(products).map(|table| _mm256_broadcastsi128_si256(table)) }
}

/// The two halves of a product table, repeated over 512-bit registers.
///
/// # Safety
/// The processor has AVX-512F.
#[inline(always)]
unsafe fn tables_512(products: &[u8; 32]) -> [__m512i; 2] {
    // SAFETY: the caller vouches for the instructions.
    unsafe { tables_128(products).map(|table| _mm512_broadcast_i32x4(table)) }
}
