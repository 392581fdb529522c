//! Parity beside ISA-L: P+Q of 8+2 and XOR of 8, measured alternately in one process.
//!
//! `cargo run --release --manifest-path bench/isal/Cargo.toml`; needs x86-64 and libisal's
//! development files. Prints one JSON object per line and operation:
//!
//! - `operation`, `data_count`, `chunk_bytes`, `working_set`: what was measured. `hot` is one
//!   stripe over and over, `cold` a walk through stripes that together exceed the caches a core
//!   has for itself.
//! - `kernel`: the kernel ours used. Beside the best one is what ISA-L picks for this processor,
//!   beside the others ISA-L's code for the same older processors.
//! - `ours_bytes_per_second`, `isal_bytes_per_second`: medians over the rounds, data without
//!   redundancy.
//! - `ratio`: ours to ISA-L's median; `ratio_p10`, `ratio_p90`: of the rounds' own ratios.
//!
//! Each round measures ours and ISA-L's one directly after the other, and the order changes with
//! each round, so that the machine's other work meets both alike. Before measuring, the results
//! are compared byte by byte.

use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::time::Instant;

use parity::Kernel;

/// Takes the number of vectors, the length of each in bytes, and the vectors, 32-byte aligned.
type Generate = unsafe extern "C" fn(c_int, c_int, *mut *mut c_void) -> c_int;

// `xor_gen` writes the XOR of all but the last vector into the last, `pq_gen` P and Q of all but
// the last two into those. The others are the implementations for older processors.
#[link(name = "isal")]
unsafe extern "C" {
    fn xor_gen(vectors: c_int, length: c_int, array: *mut *mut c_void) -> c_int;
    fn xor_gen_avx(vectors: c_int, length: c_int, array: *mut *mut c_void) -> c_int;
    fn xor_gen_sse(vectors: c_int, length: c_int, array: *mut *mut c_void) -> c_int;
    fn pq_gen(vectors: c_int, length: c_int, array: *mut *mut c_void) -> c_int;
    fn pq_gen_avx2(vectors: c_int, length: c_int, array: *mut *mut c_void) -> c_int;
    fn pq_gen_sse(vectors: c_int, length: c_int, array: *mut *mut c_void) -> c_int;
}

/// An implementation of ours and the one of ISA-L for the same processors.
struct Pair {
    kernel: &'static Kernel,
    xor: Generate,
    pq: Generate,
}

/// The best of both sides, and the pairs for older processors that this one can run.
fn pairs() -> Vec<Pair> {
    let mut pairs = vec![Pair { kernel: Kernel::best(), xor: xor_gen, pq: pq_gen }];
    for kernel in Kernel::all_supported() {
        let (xor, pq): (Generate, Generate) = match kernel.name() {
            "avx2" => (xor_gen_avx, pq_gen_avx2),
            "ssse3" => (xor_gen_sse, pq_gen_sse),
            _ => continue,
        };
        pairs.push(Pair { kernel, xor, pq });
    }
    pairs
}

/// Data members; with P and Q the usual 8+2.
const DATA_COUNT: usize = 8;

/// Bytes on each member; 64 KiB is the figure that counts, the others show the trend.
const CHUNKS: [usize; 3] = [4 << 10, 64 << 10, 256 << 10];

/// Bytes of the stripes that are walked through when cold: above any core's own caches.
const COLD_BYTES: usize = 40 << 20;

/// Data worked on in one measurement, or once through the stripes if that is more: far above the
/// clock's resolution, and mostly shorter than what a busy machine's scheduler leaves in one go.
const MEASURE_BYTES: usize = 32 << 20;

/// Enough for the median not to notice the rounds in which other work interfered.
const ROUNDS: usize = 101;

/// Bytes of a page, which buffers of arrays are aligned to.
const PAGE: usize = 4096;

fn main() {
    for pair in &pairs() {
        for chunk_bytes in CHUNKS {
            for working_set in ["hot", "cold"] {
                let stripe_bytes = chunk_bytes * (DATA_COUNT + 2);
                let count =
                    if working_set == "hot" { 1 } else { COLD_BYTES.div_ceil(stripe_bytes) };
                let mut stripes = Stripes::new(count, chunk_bytes);
                for operation in [Operation::Xor, Operation::Pq] {
                    stripes.compare_results(pair, operation);
                    report(pair, working_set, operation, &mut stripes);
                }
            }
        }
    }
}

/// What is measured.
#[derive(Clone, Copy, PartialEq)]
enum Operation {
    Xor,
    Pq,
}

/// Whose code does it.
#[derive(Clone, Copy)]
enum Side {
    Ours,
    Isal,
}

/// The stripes worked on: data, P and Q one after the other.
struct Stripes {
    memory: Vec<u8>,
    start: usize,
    chunk_bytes: usize,
}

impl Stripes {
    fn new(count: usize, chunk_bytes: usize) -> Stripes {
        let mut memory = vec![0; count * chunk_bytes * (DATA_COUNT + 2) + PAGE];
        for (i, byte) in memory.iter_mut().enumerate() {
            *byte = (i.wrapping_mul(i) >> 7) as u8;
        }
        let start = memory.as_ptr().align_offset(PAGE);
        Stripes { memory, start, chunk_bytes }
    }

    fn iter(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.memory[self.start..].chunks_exact_mut(self.chunk_bytes * (DATA_COUNT + 2))
    }

    /// Does the operation on all stripes; returns the bytes of data worked on.
    fn work(&mut self, pair: &Pair, operation: Operation, side: Side) -> usize {
        let chunk_bytes = self.chunk_bytes;
        let mut bytes = 0;
        for stripe in self.iter() {
            match side {
                Side::Ours => ours(pair, operation, stripe, chunk_bytes),
                Side::Isal => isal(pair, operation, stripe, chunk_bytes),
            }
            bytes += chunk_bytes * DATA_COUNT;
        }
        bytes
    }

    /// Panics unless both sides compute the same.
    fn compare_results(&mut self, pair: &Pair, operation: Operation) {
        let chunk_bytes = self.chunk_bytes;
        let stripe = self.iter().next().expect("there is at least one stripe");
        let redundancy = DATA_COUNT * chunk_bytes..;
        ours(pair, operation, stripe, chunk_bytes);
        let expected = stripe[redundancy.clone()].to_vec();
        stripe[redundancy.clone()].fill(0xee);
        isal(pair, operation, stripe, chunk_bytes);
        let compared = if operation == Operation::Pq { 2 } else { 1 } * chunk_bytes;
        assert!(stripe[redundancy][..compared] == expected[..compared], "the sides disagree");
    }

    /// Bytes of data per second.
    fn speed(&mut self, pair: &Pair, operation: Operation, side: Side) -> f64 {
        let start = Instant::now();
        let mut bytes = 0;
        while bytes < MEASURE_BYTES {
            bytes += self.work(pair, operation, side);
        }
        bytes as f64 / start.elapsed().as_secs_f64()
    }
}

fn ours(pair: &Pair, operation: Operation, stripe: &mut [u8], chunk_bytes: usize) {
    let (data, parity) = stripe.split_at_mut(DATA_COUNT * chunk_bytes);
    let (p, q) = parity.split_at_mut(chunk_bytes);
    let data: [&[u8]; DATA_COUNT] =
        std::array::from_fn(|k| &data[k * chunk_bytes..(k + 1) * chunk_bytes]);
    match operation {
        Operation::Xor => pair.kernel.xor(p, black_box(&data)),
        Operation::Pq => pair.kernel.pq(p, q, black_box(&data.map(Some))),
    }
}

fn isal(pair: &Pair, operation: Operation, stripe: &mut [u8], chunk_bytes: usize) {
    assert_eq!(stripe.len(), (DATA_COUNT + 2) * chunk_bytes);
    let length = c_int::try_from(chunk_bytes).expect("chunks are far below 2 GiB");
    let base = stripe.as_mut_ptr();
    let mut vectors: [*mut c_void; DATA_COUNT + 2] =
        // SAFETY: the stripe holds this many chunks.
        std::array::from_fn(|k| unsafe { base.add(k * chunk_bytes) }.cast());
    let vectors = black_box(&mut vectors).as_mut_ptr();
    // SAFETY: the vectors are chunks of the stripe, page-aligned and of the given length; both
    // functions write the last vectors given only.
    let status = unsafe {
        match operation {
            Operation::Xor => (pair.xor)(DATA_COUNT as c_int + 1, length, vectors),
            Operation::Pq => (pair.pq)(DATA_COUNT as c_int + 2, length, vectors),
        }
    };
    assert_eq!(status, 0, "ISA-L refuses the operation");
}

/// Measures and prints one line.
fn report(pair: &Pair, working_set: &str, operation: Operation, stripes: &mut Stripes) {
    stripes.speed(pair, operation, Side::Ours);
    stripes.speed(pair, operation, Side::Isal);
    let (mut ours, mut isal, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let sides = [Side::Ours, Side::Isal];
        let [mut a, mut b] = [0.0; 2];
        for turn in 0..2 {
            match sides[(round + turn) % 2] {
                Side::Ours => a = stripes.speed(pair, operation, Side::Ours),
                Side::Isal => b = stripes.speed(pair, operation, Side::Isal),
            }
        }
        ours.push(a);
        isal.push(b);
        ratios.push(a / b);
    }
    let (ours, isal) = (quantile(&mut ours, 0.5), quantile(&mut isal, 0.5));
    let name = if operation == Operation::Xor { "xor" } else { "pq" };
    println!(
        concat!(
            r#"{{"operation":"{}","data_count":{},"chunk_bytes":{},"working_set":"{}","#,
            r#""kernel":"{}","rounds":{},"ours_bytes_per_second":{:.0},"#,
            r#""isal_bytes_per_second":{:.0},"ratio":{:.3},"ratio_p10":{:.3},"ratio_p90":{:.3}}}"#
        ),
        name,
        DATA_COUNT,
        stripes.chunk_bytes,
        working_set,
        pair.kernel.name(),
        ROUNDS,
        ours,
        isal,
        ours / isal,
        quantile(&mut ratios, 0.1),
        quantile(&mut ratios, 0.9),
    );
}

/// The value below which this share of the values lies.
fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * share).round() as usize]
}
