//! The kernels: one implementation of all operations for each family of processors.
//!
//! A [`Kernel`] is a table of functions. Which of them this processor can run is found out once;
//! [`Kernel::best`] is the fastest of them, and the functions at the crate's root use it. Tests
//! and benches list them all and use each.
//!
//! The passes are written once ([`pass`]) over a trait for registers ([`vector`]); the macro
//! below compiles them for each register type, with its instructions enabled.
//!
//! This module and its children are the crate's only `unsafe` code.
#![allow(unsafe_code)]

use std::fmt;
use std::sync::OnceLock;

use crate::field::DATA_MAX;

mod pass;
mod scalar;
#[cfg(target_arch = "x86_64")]
mod tables;
#[cfg(test)]
mod tests;
mod vector;
#[cfg(target_arch = "x86_64")]
mod x86;

/// Data by exponent; `None` is a hole.
type Data<'a> = [Option<&'a [u8]>];

/// What a kernel can do; [`Kernel`]'s methods of the same names say what each means.
///
/// To be called only where the processor has the kernel's instructions and all slices have the
/// same length.
#[expect(clippy::type_complexity, reason = "a name for each signature would hide more")]
struct Operations {
    xor: unsafe fn(&mut [u8], &[&[u8]]),
    xor_into: unsafe fn(&mut [u8], &[u8]),
    multiply_into: unsafe fn(&mut [u8], &[u8], u8),
    pq: unsafe fn(&mut [u8], &mut [u8], &Data<'_>),
    q: unsafe fn(&mut [u8], &Data<'_>),
    two_data: unsafe fn([&mut [u8]; 2], &[u8], &[u8], &Data<'_>, [u8; 2]),
    data_from_q: unsafe fn(&mut [u8], Option<&mut [u8]>, &[u8], &Data<'_>, u8),
}

/// One implementation of XOR, P+Q and recovery, which this processor can run.
///
/// All kernels give the same bytes; they differ in speed only. Slices may have any length,
/// 0 included, and need no alignment.
pub struct Kernel {
    name: &'static str,
    /// Whether this processor can run it.
    supported: fn() -> bool,
    operations: &'static Operations,
}

/// Compiles the passes for one vector type.
///
/// `$count` vectors are worked on at once: enough to hide the latency of the arithmetic, few
/// enough for the sums of P and Q, the data and some constants to stay in registers, of which
/// AVX-512 has 32 and the older ones 16. The counts are the fastest by trial.
macro_rules! operations {
    ($module:ident, $vector:ty, $count:literal $(, $features:literal)?) => {
        mod $module {
            use super::{Data, Operations, pass};

            pub(super) static OPERATIONS: Operations =
                Operations { xor, xor_into, multiply_into, pq, q, two_data, data_from_q };

            /// Runs a pass.
            ///
            /// # Safety
            /// The processor has the instructions; all slices are `length` bytes long.
            $(#[target_feature(enable = $features)])?
            unsafe fn run(length: usize, pass: impl pass::Pass) {
                // SAFETY: as the caller's.
                unsafe { pass::run::<$vector, $count>(length, pass) }
            }

            unsafe fn xor(destination: &mut [u8], sources: &[&[u8]]) {
                let length = destination.len();
                let destination = destination.as_mut_ptr();
                // SAFETY: as the caller's.
                unsafe { run(length, pass::Xor { destination, sources }) }
            }

            unsafe fn xor_into(destination: &mut [u8], source: &[u8]) {
                let length = destination.len();
                let destination = destination.as_mut_ptr();
                // SAFETY: as the caller's.
                unsafe { run(length, pass::XorInto { destination, source: source.as_ptr() }) }
            }

            unsafe fn multiply_into(destination: &mut [u8], source: &[u8], constant: u8) {
                let length = destination.len();
                let destination = destination.as_mut_ptr();
                let source = source.as_ptr();
                // SAFETY: as the caller's.
                unsafe { run(length, pass::MultiplyInto { destination, source, constant }) }
            }

            unsafe fn pq(p: &mut [u8], q: &mut [u8], data: &Data<'_>) {
                let length = p.len();
                let (p, q) = (p.as_mut_ptr(), q.as_mut_ptr());
                // SAFETY: as the caller's.
                unsafe { run(length, pass::PAndQ { p, q, data }) }
            }

            unsafe fn q(q: &mut [u8], data: &Data<'_>) {
                let length = q.len();
                // SAFETY: as the caller's.
                unsafe { run(length, pass::Q { q: q.as_mut_ptr(), data }) }
            }

            unsafe fn two_data(
                [first, second]: [&mut [u8]; 2],
                p: &[u8],
                q: &[u8],
                data: &Data<'_>,
                constants: [u8; 2],
            ) {
                let length = first.len();
                let (first, second) = (first.as_mut_ptr(), second.as_mut_ptr());
                let (p, q) = (p.as_ptr(), q.as_ptr());
                // SAFETY: as the caller's.
                unsafe { run(length, pass::TwoData { first, second, p, q, data, constants }) }
            }

            unsafe fn data_from_q(
                lost: &mut [u8],
                p: Option<&mut [u8]>,
                q: &[u8],
                data: &Data<'_>,
                constant: u8,
            ) {
                let length = lost.len();
                let lost = lost.as_mut_ptr();
                let p = p.map_or(std::ptr::null_mut(), |p| p.as_mut_ptr());
                let q = q.as_ptr();
                // SAFETY: as the caller's.
                unsafe { run(length, pass::DataFromQ { lost, p, q, data, constant }) }
            }
        }
    };
}

operations!(word, u64, 4);
#[cfg(target_arch = "x86_64")]
operations!(ssse3, crate::kernel::x86::Ssse3, 4, "ssse3");
#[cfg(target_arch = "x86_64")]
operations!(avx2, crate::kernel::x86::Avx2, 3, "avx2");
#[cfg(target_arch = "x86_64")]
operations!(avx512, crate::kernel::x86::Avx512, 4, "avx512f,avx512bw");
#[cfg(target_arch = "x86_64")]
operations!(gfni_avx2, crate::kernel::x86::GfniAvx2, 3, "gfni,avx2");
#[cfg(target_arch = "x86_64")]
operations!(gfni_avx512, crate::kernel::x86::GfniAvx512, 4, "gfni,avx512f,avx512bw");

/// All kernels this build has, the fastest first.
static KERNELS: &[Kernel] = &[
    #[cfg(target_arch = "x86_64")]
    Kernel {
        name: "gfni-avx512",
        supported: || {
            is_x86_feature_detected!("gfni")
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
        },
        operations: &gfni_avx512::OPERATIONS,
    },
    #[cfg(target_arch = "x86_64")]
    Kernel {
        name: "avx512",
        supported: || is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw"),
        operations: &avx512::OPERATIONS,
    },
    #[cfg(target_arch = "x86_64")]
    Kernel {
        name: "gfni-avx2",
        supported: || is_x86_feature_detected!("gfni") && is_x86_feature_detected!("avx2"),
        operations: &gfni_avx2::OPERATIONS,
    },
    #[cfg(target_arch = "x86_64")]
    Kernel {
        name: "avx2",
        supported: || is_x86_feature_detected!("avx2"),
        operations: &avx2::OPERATIONS,
    },
    #[cfg(target_arch = "x86_64")]
    Kernel {
        name: "ssse3",
        supported: || is_x86_feature_detected!("ssse3"),
        operations: &ssse3::OPERATIONS,
    },
    Kernel { name: "word", supported: || true, operations: &word::OPERATIONS },
    Kernel { name: "scalar", supported: || true, operations: &scalar::OPERATIONS },
];

impl Kernel {
    /// The kernels this processor can run, the fastest first.
    ///
    /// The last two are always there: `word`, plain code on eight bytes at once, and `scalar`,
    /// the byte by byte reference.
    pub fn all_supported() -> &'static [&'static Kernel] {
        static SUPPORTED: OnceLock<Vec<&'static Kernel>> = OnceLock::new();
        SUPPORTED.get_or_init(|| KERNELS.iter().filter(|kernel| (kernel.supported)()).collect())
    }

    /// The fastest kernel this processor can run.
    pub fn best() -> &'static Kernel {
        Self::all_supported()[0]
    }

    /// What the kernel is called, after the instructions it uses.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Sets `destination` to the XOR of all `sources`, P of RAID 5 and 6; to zeroes if there
    /// are none.
    ///
    /// # Panics
    /// If a source has another length than `destination`.
    pub fn xor(&self, destination: &mut [u8], sources: &[&[u8]]) {
        for source in sources {
            assert_same_length(destination, source);
        }
        // SAFETY: a kernel is reached through `all_supported` only; the lengths are equal.
        unsafe { (self.operations.xor)(destination, sources) }
    }

    /// XORs `source` into `destination`.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn xor_into(&self, destination: &mut [u8], source: &[u8]) {
        assert_same_length(destination, source);
        // SAFETY: a kernel is reached through `all_supported` only; the lengths are equal.
        unsafe { (self.operations.xor_into)(destination, source) }
    }

    /// XORs `constant` times `source` into `destination`.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn multiply_into(&self, destination: &mut [u8], source: &[u8], constant: u8) {
        assert_same_length(destination, source);
        // SAFETY: a kernel is reached through `all_supported` only; the lengths are equal.
        unsafe { (self.operations.multiply_into)(destination, source, constant) }
    }

    /// Sets `p` to the XOR of `data` and `q` to the sum of g^k times `data[k]`, RAID 6's
    /// redundancy. `None` is a hole in the sequence of exponents and counts as zeroes.
    ///
    /// # Panics
    /// If lengths differ, or there are more than [`DATA_MAX`] places.
    pub fn pq(&self, p: &mut [u8], q: &mut [u8], data: &Data<'_>) {
        assert_same_length(p, q);
        assert_data(p, data);
        // SAFETY: a kernel is reached through `all_supported` only; the lengths are equal.
        unsafe { (self.operations.pq)(p, q, data) }
    }

    /// Sets `q` as [`Kernel::pq`] does, without P.
    ///
    /// # Panics
    /// If lengths differ, or there are more than [`DATA_MAX`] places.
    pub fn q(&self, q: &mut [u8], data: &Data<'_>) {
        assert_data(q, data);
        // SAFETY: a kernel is reached through `all_supported` only; the lengths are equal.
        unsafe { (self.operations.q)(q, data) }
    }

    /// Computes two lost data members in one pass; `factors` are what the differences of P and
    /// of Q are multiplied by to give the second of them.
    pub(crate) fn two_data(
        &self,
        lost: [&mut [u8]; 2],
        p: &[u8],
        q: &[u8],
        data: &Data<'_>,
        factors: [u8; 2],
    ) {
        assert_same_length(lost[0], lost[1]);
        assert_same_length(lost[0], p);
        assert_same_length(lost[0], q);
        assert_data(p, data);
        // SAFETY: a kernel is reached through `all_supported` only; the lengths are equal.
        unsafe { (self.operations.two_data)(lost, p, q, data, factors) }
    }

    /// Computes a lost data member, and P if wanted, from Q in one pass; `factor` is what the
    /// difference of Q is multiplied by to give the data.
    pub(crate) fn data_from_q(
        &self,
        lost: &mut [u8],
        p: Option<&mut [u8]>,
        q: &[u8],
        data: &Data<'_>,
        factor: u8,
    ) {
        assert_same_length(lost, q);
        if let Some(p) = &p {
            assert_same_length(lost, p);
        }
        assert_data(q, data);
        // SAFETY: a kernel is reached through `all_supported` only; the lengths are equal.
        unsafe { (self.operations.data_from_q)(lost, p, q, data, factor) }
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Kernel({})", self.name)
    }
}

/// The kernels read and write without further checks, so this one stays in release builds.
fn assert_same_length(a: &[u8], b: &[u8]) {
    assert_eq!(a.len(), b.len(), "blocks of one stripe have the same length");
}

fn assert_data(parity: &[u8], data: &Data<'_>) {
    assert!(data.len() <= DATA_MAX, "Q can't tell more than {DATA_MAX} data members apart");
    for member in data.iter().flatten() {
        assert_same_length(parity, member);
    }
}
