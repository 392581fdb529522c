//! The reference: each operation byte by byte, straight from its definition.
//!
//! It is the judge of all other kernels in the tests, and shares nothing with them but the
//! field. Slow, and meant to be.

use super::{Data, Operations};
use crate::field::{multiply, power};

/// The reference's operations.
pub(super) static OPERATIONS: Operations =
    Operations { xor, xor_into, multiply_into, pq, q, two_data, data_from_q };

fn xor(destination: &mut [u8], sources: &[&[u8]]) {
    for (at, byte) in destination.iter_mut().enumerate() {
        *byte = sources.iter().fold(0, |sum, source| sum ^ source[at]);
    }
}

fn xor_into(destination: &mut [u8], source: &[u8]) {
    for (byte, source) in destination.iter_mut().zip(source) {
        *byte ^= source;
    }
}

fn multiply_into(destination: &mut [u8], source: &[u8], constant: u8) {
    for (byte, source) in destination.iter_mut().zip(source) {
        *byte ^= multiply(constant, *source);
    }
}

/// P and Q of the bytes at `at`.
fn p_and_q(data: &Data<'_>, at: usize) -> (u8, u8) {
    data.iter().enumerate().fold((0, 0), |(p, q), (exponent, member)| {
        let byte = member.map_or(0, |bytes| bytes[at]);
        (p ^ byte, q ^ multiply(power(exponent), byte))
    })
}

fn pq(p: &mut [u8], q: &mut [u8], data: &Data<'_>) {
    for at in 0..p.len() {
        (p[at], q[at]) = p_and_q(data, at);
    }
}

fn q(q: &mut [u8], data: &Data<'_>) {
    for (at, byte) in q.iter_mut().enumerate() {
        (_, *byte) = p_and_q(data, at);
    }
}

fn two_data(
    [first, second]: [&mut [u8]; 2],
    p: &[u8],
    q: &[u8],
    data: &Data<'_>,
    [p_factor, q_factor]: [u8; 2],
) {
    for at in 0..first.len() {
        let (p_rest, q_rest) = p_and_q(data, at);
        let (p_difference, q_difference) = (p[at] ^ p_rest, q[at] ^ q_rest);
        second[at] = multiply(p_factor, p_difference) ^ multiply(q_factor, q_difference);
        first[at] = p_difference ^ second[at];
    }
}

fn data_from_q(lost: &mut [u8], mut p: Option<&mut [u8]>, q: &[u8], data: &Data<'_>, factor: u8) {
    for at in 0..lost.len() {
        let (p_rest, q_rest) = p_and_q(data, at);
        lost[at] = multiply(factor, q[at] ^ q_rest);
        if let Some(p) = &mut p {
            p[at] = p_rest ^ lost[at];
        }
    }
}
