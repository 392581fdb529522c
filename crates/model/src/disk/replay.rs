//! Requests whose service times were measured on a real disk, replayed on its model.
//!
//! A line is a request: `R` or `W`, what the disk's buffer did, first block, blocks, service time
//! and time from its end to the next request, both in microseconds. One request at a time.
//!
//! The demerit figure (Ruemmler and Wilkes 1994) is the root mean square of the horizontal distance
//! between the distributions of measured and modelled service times.

use std::collections::BTreeMap;

use super::machine::Machine;
use super::parameters::Parameters;
use crate::command::{Command, Timing};

/// A measured request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    /// A write.
    pub write: bool,
    /// First block.
    pub first: u64,
    /// Blocks.
    pub blocks: u64,
    /// How long the real disk took.
    pub service_ns: u64,
    /// From its end to the next request.
    pub gap_ns: u64,
}

/// Why a list can't be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is no request\nhint: R or W, hit or miss, block, blocks, two times in us")]
pub struct NoRequest {
    /// Which.
    pub line: usize,
}

/// Reads a list.
///
/// # Errors
/// When a line is no request.
pub fn parse(text: &str) -> Result<Vec<Measured>, NoRequest> {
    let lines = text.lines().enumerate();
    lines.map(|(index, line)| request(line).ok_or(NoRequest { line: index + 1 })).collect()
}

fn request(line: &str) -> Option<Measured> {
    let mut fields = line.split_whitespace();
    let write = match fields.next()? {
        "R" => false,
        "W" => true,
        _ => return None,
    };
    let _hit = fields.next()?;
    let (first, blocks) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    let mut ns = || -> Option<u64> {
        let us: f64 = fields.next()?.parse().ok()?;
        (0.0..1e12).contains(&us).then(|| (us * 1000.0).round() as u64)
    };
    let (service_ns, gap_ns) = (ns()?, ns()?);
    (blocks > 0).then_some(Measured { write, first, blocks, service_ns, gap_ns })
}

/// Of a size that is rarer the fast ones may still have waited for the platter.
const SAME_SIZE_MIN: usize = 5;

/// Time of a block on the link, as the list shows it: where disk files leave it open, as the link
/// was the host's. Reads right behind the read before them are in the buffer, so that their times
/// grow with their size by what the link takes; of each size one of the fastest is taken, and of
/// the slopes between all pairs of sizes the middle one (Theil 1950). None if there are too few.
#[must_use]
pub fn link_block_ns(requests: &[Measured]) -> Option<u64> {
    let mut times: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for pair in requests.windows(2) {
        let behind = pair[0].first + pair[0].blocks == pair[1].first;
        if behind && !pair[0].write && !pair[1].write {
            times.entry(pair[1].blocks).or_default().push(pair[1].service_ns);
        }
    }
    times.retain(|_, times| times.len() >= SAME_SIZE_MIN);
    let mut sizes = Vec::new();
    for (blocks, mut times) in times {
        times.sort_unstable();
        sizes.push((blocks, times[times.len() / 8]));
    }
    let mut slopes = Vec::new();
    for (index, small) in sizes.iter().enumerate() {
        for large in &sizes[index + 1..] {
            slopes.push(large.1.saturating_sub(small.1) / (large.0 - small.0));
        }
    }
    slopes.sort_unstable();
    slopes.get(slopes.len() / 2).copied()
}

/// Service times of the model, in nanoseconds. A link that its parameters leave open is taken from
/// the list.
///
/// # Panics
/// When a request reaches beyond the disk.
#[must_use]
pub fn replay(mut parameters: Parameters, requests: &[Measured]) -> Vec<u64> {
    if parameters.link_block_ns == [0; 2]
        && let Some(ns) = link_block_ns(requests)
    {
        parameters.link_block_ns = [ns; 2];
    }
    let block = u64::from(parameters.block_bytes);
    let blocks = parameters.blocks;
    let mut machine = Machine::new(parameters);
    let mut now_ns = 0;
    let mut times = Vec::with_capacity(requests.len());
    for (tag, request) in requests.iter().enumerate() {
        assert!(request.first + request.blocks <= blocks, "request {tag} is on the disk");
        let (offset, bytes) = (request.first * block, request.blocks * block);
        let command = if request.write {
            Command::Write { offset, bytes, durable: false }
        } else {
            Command::Read { offset, bytes }
        };
        // What the disk does meanwhile by itself happens first.
        machine.advance(now_ns);
        machine.submit(now_ns, tag as u64, command);
        let completion = loop {
            if let Some(completion) = machine.completion() {
                break completion;
            }
            let next_ns = machine.next_ns().expect("a request ends");
            machine.advance(next_ns);
        };
        times.push(completion.at_ns - now_ns);
        now_ns = completion.at_ns + request.gap_ns;
    }
    times
}

/// Heights at which the distributions are compared.
const HEIGHTS: usize = 10_000;

/// The demerit figure of two sets of times, in their unit.
#[must_use]
pub fn demerit(one: &[u64], other: &[u64]) -> f64 {
    let sorted = |times: &[u64]| {
        let mut times = times.to_vec();
        times.sort_unstable();
        times
    };
    let (one, other) = (sorted(one), sorted(other));
    let squares = (1..=HEIGHTS).map(|height| {
        let height = height as f64 / HEIGHTS as f64;
        (at_height(&one, height) - at_height(&other, height)).powi(2)
    });
    (squares.sum::<f64>() / HEIGHTS as f64).sqrt()
}

/// The time that a share of all times does not exceed, on a line between the two around it.
fn at_height(sorted: &[u64], height: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let at = (height * sorted.len() as f64 - 1.0).clamp(0.0, last as f64);
    let (below, part) = (at.floor(), at.fract());
    let (left, right) = (sorted[below as usize], sorted[(below as usize + 1).min(last)]);
    left as f64 + part * (right as f64 - left as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read() {
        let text =
            "R Hit  1975456  4  15362.00000  56074.5\nW Doub 1194877    15     17221.0 21894\n";
        let measured = parse(text).expect("two requests");
        assert_eq!(
            measured[0],
            Measured {
                write: false,
                first: 1_975_456,
                blocks: 4,
                service_ns: 15_362_000,
                gap_ns: 56_074_500
            }
        );
        assert!(measured[1].write);
        assert_eq!(parse("R Hit 1 2 3.0 4.0\nX Hit 1 2 3 4"), Err(NoRequest { line: 2 }));
        for broken in ["R Hit 1 2 3", "R Hit 1 0 3 4", "R Hit 1 2 -3 4", "R Hit 1 2 NaN 4", ""] {
            assert!(request(broken).is_none(), "{broken}");
        }
    }

    #[test]
    fn the_demerit_is_the_distance_of_distributions() {
        let times = [5, 1, 9, 7];
        assert_eq!(demerit(&times, &[9, 7, 5, 1]), 0.0);
        assert!((demerit(&times, &[8, 4, 12, 10]) - 3.0).abs() < 1e-9);
        // A tenth of all is off by ten.
        let one = vec![100; 1000];
        let other: Vec<u64> = (0..1000).map(|index| if index < 100 { 90 } else { 100 }).collect();
        assert!((demerit(&one, &other) - 10.0_f64.powf(0.5)).abs() < 0.01);
    }

    #[test]
    fn the_link_is_what_sequential_reads_grow_by() {
        let mut requests = Vec::new();
        let mut first = 0;
        for index in 0..60 {
            let blocks = 1 + index % 12;
            // Every fifth waits for the platter.
            let late = if index % 5 == 0 { 4_000_000 } else { 0 };
            let service_ns = 300_000 + blocks * 145_500 + late;
            requests.push(Measured { write: false, first, blocks, service_ns, gap_ns: 0 });
            first += blocks;
        }
        assert_eq!(link_block_ns(&requests), Some(145_500));
        assert_eq!(link_block_ns(&requests[..4]), None);
    }
}
