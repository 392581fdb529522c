//! Prints how fast each kernel that this processor can run is.
//!
//! `cargo run --release -p parity --example speed`. A figure is GB (10^9 bytes) of data per
//! second, redundancy not counted, best of many short rounds: the machine's other work only ever
//! makes a round slower.

use std::hint::black_box;
use std::time::{Duration, Instant};

use parity::{Blocks, Kernel, Role};

/// Members that hold data; with P and Q the usual 8+2.
const DATA_COUNT: usize = 8;

/// Bytes on each member: a common chunk, and one that doesn't fit into a second cache with the
/// others.
const CHUNKS: [usize; 2] = [64 << 10, 4 << 20];

/// Enough calls to outlast the clock's resolution by far.
const ROUND: Duration = Duration::from_millis(2);
const ROUNDS: usize = 50;

fn main() {
    println!(
        "{:<12} {:>9} {:>7} {:>7} {:>7} {:>9}",
        "kernel", "chunk", "xor", "pq", "q", "two lost"
    );
    for chunk_bytes in CHUNKS {
        for kernel in Kernel::all_supported() {
            let [xor, pq, q, two_lost] = speeds(kernel, chunk_bytes);
            let name = kernel.name();
            println!("{name:<12} {chunk_bytes:>9} {xor:>7.1} {pq:>7.1} {q:>7.1} {two_lost:>9.1}");
        }
    }
}

/// GB of data per second of XOR, P+Q, Q alone and the recovery of two data members.
fn speeds(kernel: &Kernel, chunk_bytes: usize) -> [f64; 4] {
    let mut memory = vec![0u8; chunk_bytes * (DATA_COUNT + 2) + PAGE];
    for (i, byte) in memory.iter_mut().enumerate() {
        *byte = ((i * i) >> 7) as u8;
    }
    // Page-aligned, as an array's buffers are.
    let start = memory.as_ptr().align_offset(PAGE);
    let mut chunks: Vec<&mut [u8]> = memory[start..].chunks_exact_mut(chunk_bytes).collect();
    let (data, parity) = chunks.split_at_mut(DATA_COUNT);
    let [p, q, ..] = parity else { panic!("memory for P and Q was reserved") };

    let sources: Vec<&[u8]> = data.iter().map(|chunk| &**chunk).collect();
    let xor_speed = speed(chunk_bytes, || kernel.xor(p, black_box(&sources)));
    let places: Vec<Option<&[u8]>> = sources.into_iter().map(Some).collect();
    let pq_speed = speed(chunk_bytes, || kernel.pq(p, q, black_box(&places)));
    let q_speed = speed(chunk_bytes, || kernel.q(q, black_box(&places)));

    let data = data.iter_mut().map(|chunk| Some(&mut **chunk)).collect();
    let mut blocks = Blocks { data, p: Some(p), q: Some(q) };
    let lost = [Role::Data(2), Role::Data(5)];
    let two_lost_speed = speed(chunk_bytes, || {
        kernel.recover(black_box(&mut blocks), &lost).expect("two losses can be recovered");
    });
    [xor_speed, pq_speed, q_speed, two_lost_speed]
}

/// Bytes of a page.
const PAGE: usize = 4096;

/// GB of data per second of the best round.
fn speed(chunk_bytes: usize, mut work: impl FnMut()) -> f64 {
    let best = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            let mut calls = 0;
            while start.elapsed() < ROUND {
                work();
                calls += 1;
            }
            start.elapsed().as_secs_f64() / f64::from(calls)
        })
        .fold(f64::INFINITY, f64::min);
    (chunk_bytes * DATA_COUNT) as f64 / best / 1e9
}
