//! The passes over memory, each written once for all vectors.
//!
//! A pass computes its outputs at one place from its inputs at that place; [`run`] takes it
//! from the front to the end, in blocks of several vectors, then single vectors, then bytes.
//! Each byte of the inputs is read once and each byte of the outputs written once: several
//! times 64 KiB don't stay in the first cache, so a second look at them would cost most.
//!
//! Prefetch instructions and stores around the caches are left out on purpose: the first made
//! everything that fits into a cache slower and gained nothing beyond, and redundancy is written
//! to a drive next, for which it had better be in the cache.
//!
//! Q is evaluated by Horner's rule from the highest exponent down, two data members at a time:
//! Q = 4 Q + 2 D(k+1) + D(k). A hole is a member of zeroes.

use super::vector::Vector;

/// One walk over slices of the same length.
pub(super) trait Pass {
    /// The constants the pass multiplies by; zeroes where it needs none.
    fn constants(&self) -> [u8; 2] {
        [0; 2]
    }

    /// Does the work for the `N` vectors that start at byte `at`.
    ///
    /// # Safety
    /// The processor has the instructions of `V`; `at + N * V::BYTES` is within the slices of
    /// the pass, and all of them have the same length.
    unsafe fn block<V: Vector, const N: usize>(&self, factors: &[V::Factor; 2], at: usize);
}

/// Runs `pass` over slices of `length` bytes, `N` vectors of type `V` at a time.
///
/// # Safety
/// The processor has the instructions of `V`; all slices of the pass are `length` bytes long.
#[inline(always)]
pub(super) unsafe fn run<V: Vector, const N: usize>(length: usize, pass: impl Pass) {
    let mut at = 0;
    // SAFETY: the caller vouches for the instructions and the length; each loop checks that
    // its block ends within the length. A byte needs no special instructions.
    unsafe {
        let factors = pass.constants().map(|constant| V::factor(constant));
        while length - at >= N * V::BYTES {
            pass.block::<V, N>(&factors, at);
            at += N * V::BYTES;
        }
        while length - at >= V::BYTES {
            pass.block::<V, 1>(&factors, at);
            at += V::BYTES;
        }
        let factors = pass.constants();
        while at < length {
            pass.block::<u8, 1>(&factors, at);
            at += 1;
        }
    }
}

/// Reads `N` vectors at byte `at` of `from`.
///
/// # Safety
/// As [`Pass::block`].
#[inline(always)]
unsafe fn load<V: Vector, const N: usize>(from: *const u8, at: usize) -> [V; N] {
    // SAFETY: the caller vouches for the instructions.
    let mut vectors = [unsafe { V::zero() }; N];
    for (i, vector) in vectors.iter_mut().enumerate() {
        // SAFETY: the caller vouches for instructions and bounds.
        *vector = unsafe { V::load(from.add(at + i * V::BYTES)) };
    }
    vectors
}

/// Writes `N` vectors at byte `at` of `to`.
///
/// # Safety
/// As [`Pass::block`], and `to` may be written.
#[inline(always)]
unsafe fn store<V: Vector, const N: usize>(vectors: [V; N], to: *mut u8, at: usize) {
    for (i, vector) in vectors.into_iter().enumerate() {
        // SAFETY: the caller vouches for the bounds.
        unsafe { vector.store(to.add(at + i * V::BYTES)) }
    }
}

/// Applies `combine` to the vectors of two arrays, place by place.
#[inline(always)]
fn zip<V: Vector, const N: usize>(mut a: [V; N], b: [V; N], combine: impl Fn(V, V) -> V) -> [V; N] {
    for i in 0..N {
        a[i] = combine(a[i], b[i]);
    }
    a
}

/// Applies `combine` to the vectors of three arrays, place by place.
#[inline(always)]
fn zip3<V: Vector, const N: usize>(
    mut a: [V; N],
    b: [V; N],
    c: [V; N],
    combine: impl Fn(V, V, V) -> V,
) -> [V; N] {
    for i in 0..N {
        a[i] = combine(a[i], b[i], c[i]);
    }
    a
}

/// `destination` = XOR of `sources`.
pub(super) struct Xor<'a> {
    pub destination: *mut u8,
    pub sources: &'a [&'a [u8]],
}

impl Pass for Xor<'_> {
    #[inline(always)]
    unsafe fn block<V: Vector, const N: usize>(&self, _: &[V::Factor; 2], at: usize) {
        // SAFETY: the caller vouches for instructions and bounds.
        unsafe {
            let source = |bytes: &[u8]| load::<V, N>(bytes.as_ptr(), at);
            let (pairs, last) = self.sources.as_chunks::<2>();
            let (mut sum, pairs) = match (last, pairs) {
                ([last, ..], _) => (source(last), pairs),
                ([], [rest @ .., [a, b]]) => (zip(source(a), source(b), V::xor), rest),
                ([], []) => ([V::zero(); N], pairs),
            };
            for [a, b] in pairs {
                sum = zip3(sum, source(a), source(b), V::xor3);
            }
            store(sum, self.destination, at);
        }
    }
}

/// `destination` ^= `source`.
pub(super) struct XorInto {
    pub destination: *mut u8,
    pub source: *const u8,
}

impl Pass for XorInto {
    #[inline(always)]
    unsafe fn block<V: Vector, const N: usize>(&self, _: &[V::Factor; 2], at: usize) {
        // SAFETY: the caller vouches for instructions and bounds.
        unsafe {
            let old = load::<V, N>(self.destination, at);
            let sum = zip(old, load::<V, N>(self.source, at), V::xor);
            store(sum, self.destination, at);
        }
    }
}

/// `destination` ^= `constant` times `source`.
pub(super) struct MultiplyInto {
    pub destination: *mut u8,
    pub source: *const u8,
    pub constant: u8,
}

impl Pass for MultiplyInto {
    #[inline(always)]
    fn constants(&self) -> [u8; 2] {
        [self.constant, 0]
    }

    #[inline(always)]
    unsafe fn block<V: Vector, const N: usize>(&self, factors: &[V::Factor; 2], at: usize) {
        // SAFETY: the caller vouches for instructions and bounds.
        unsafe {
            let old = load::<V, N>(self.destination, at);
            let sum = zip(old, load::<V, N>(self.source, at), |old, source| {
                old.xor(source.multiply(factors[0]))
            });
            store(sum, self.destination, at);
        }
    }
}

/// P and Q of `data` at byte `at`.
///
/// The sums start with the top member or pair, not with zeroes, which saves most of a step; 8
/// members take four.
///
/// # Safety
/// As [`Pass::block`].
#[inline(always)]
unsafe fn p_and_q<V: Vector, const N: usize>(
    data: &[Option<&[u8]>],
    at: usize,
) -> ([V; N], [V; N]) {
    // SAFETY: the caller vouches for instructions and bounds.
    let member = |member: &Option<&[u8]>| unsafe {
        match member {
            Some(bytes) => load::<V, N>(bytes.as_ptr(), at),
            None => [V::zero(); N],
        }
    };
    let (pairs, top) = data.as_chunks::<2>();
    let (mut p, mut q, pairs) = match (top, pairs) {
        ([top, ..], _) => {
            let top = member(top);
            (top, top, pairs)
        }
        ([], [rest @ .., [low, high]]) => {
            let (low, high) = (member(low), member(high));
            (zip(high, low, V::xor), zip(high, low, |high, low| high.double().xor(low)), rest)
        }
        // SAFETY: the caller vouches for the instructions.
        ([], []) => unsafe { ([V::zero(); N], [V::zero(); N], pairs) },
    };
    for [low, high] in pairs.iter().rev() {
        let (low, high) = (member(low), member(high));
        p = zip3(p, high, low, V::xor3);
        q = zip3(q, high, low, V::horner2);
    }
    (p, q)
}

/// `p` and `q` of `data`.
pub(super) struct PAndQ<'a> {
    pub p: *mut u8,
    pub q: *mut u8,
    pub data: &'a [Option<&'a [u8]>],
}

impl Pass for PAndQ<'_> {
    #[inline(always)]
    unsafe fn block<V: Vector, const N: usize>(&self, _: &[V::Factor; 2], at: usize) {
        // SAFETY: the caller vouches for instructions and bounds.
        unsafe {
            let (p, q) = p_and_q::<V, N>(self.data, at);
            store(p, self.p, at);
            store(q, self.q, at);
        }
    }
}

/// `q` of `data`, without P.
pub(super) struct Q<'a> {
    pub q: *mut u8,
    pub data: &'a [Option<&'a [u8]>],
}

impl Pass for Q<'_> {
    #[inline(always)]
    unsafe fn block<V: Vector, const N: usize>(&self, _: &[V::Factor; 2], at: usize) {
        // SAFETY: the caller vouches for instructions and bounds.
        unsafe {
            let (_, q) = p_and_q::<V, N>(self.data, at);
            store(q, self.q, at);
        }
    }
}

/// Two lost data members from P, Q and the rest; the algebra is in [`crate::recover`].
pub(super) struct TwoData<'a> {
    pub first: *mut u8,
    pub second: *mut u8,
    pub p: *const u8,
    pub q: *const u8,
    /// The data members with holes in the lost places.
    pub data: &'a [Option<&'a [u8]>],
    /// What the differences of P and of Q are multiplied by to give `second`.
    pub constants: [u8; 2],
}

impl Pass for TwoData<'_> {
    #[inline(always)]
    fn constants(&self) -> [u8; 2] {
        self.constants
    }

    #[inline(always)]
    unsafe fn block<V: Vector, const N: usize>(&self, factors: &[V::Factor; 2], at: usize) {
        // SAFETY: the caller vouches for instructions and bounds.
        unsafe {
            let (p, q) = p_and_q::<V, N>(self.data, at);
            let p = zip(p, load::<V, N>(self.p, at), V::xor);
            let q = zip(q, load::<V, N>(self.q, at), V::xor);
            let second = zip(p, q, |p, q| p.multiply(factors[0]).xor(q.multiply(factors[1])));
            store(zip(p, second, V::xor), self.first, at);
            store(second, self.second, at);
        }
    }
}

/// One lost data member from Q and the rest, and P if that is lost too.
pub(super) struct DataFromQ<'a> {
    pub lost: *mut u8,
    /// Where P goes; null if it isn't wanted.
    pub p: *mut u8,
    pub q: *const u8,
    /// The data members with a hole in the lost place.
    pub data: &'a [Option<&'a [u8]>],
    /// What the difference of Q is multiplied by to give the data.
    pub constant: u8,
}

impl Pass for DataFromQ<'_> {
    #[inline(always)]
    fn constants(&self) -> [u8; 2] {
        [self.constant, 0]
    }

    #[inline(always)]
    unsafe fn block<V: Vector, const N: usize>(&self, factors: &[V::Factor; 2], at: usize) {
        // SAFETY: the caller vouches for instructions and bounds; P is checked.
        unsafe {
            let (p, q) = p_and_q::<V, N>(self.data, at);
            let lost = zip(q, load::<V, N>(self.q, at), |a, b| a.xor(b).multiply(factors[0]));
            store(lost, self.lost, at);
            if !self.p.is_null() {
                store(zip(p, lost, V::xor), self.p, at);
            }
        }
    }
}
