//! Iometer's rules, to reproduce results that were measured with it.
//!
//! Read from Iometer's sources (`IOGrunt.cpp`, `IOAccess.cpp`,
//! `IOTargetDisk.cpp`), in the order in which a request is made:
//!
//! 1. The lines fill a table of 100 slots. Per burst one slot is drawn, which
//!    gives size, alignment, burst and delay.
//! 2. A draw below 100 decides read or write, another one random or not.
//! 3. A random offset is drawn by the byte over the whole range; a sequential
//!    one is the previous offset plus the previous size. There is one pointer:
//!    after a random request the sequence goes on from there.
//! 4. The offset is rounded up to the alignment, by default to the sector and
//!    not to the request.
//! 5. A request that would pass the end goes to the start of the range, itself
//!    rounded up.
//!
//! So requests cross stripe boundaries, and the first bytes of the range are a
//! little more likely than the others. Both belong to the results.
//!
//! Not reproduced: Iometer's own linear congruential generator, whose low bits
//! have short periods; and that a refused request does not move its pointer.

use super::{GeneratorConfig, GeneratorError, first_offset};
use crate::random::Random;
use crate::request::{Direction, Request, SECTOR_BYTES, WorkingSet};
use crate::spec::{AccessSpec, SpecLine};

/// Slots of the table: one per cent each.
const SLOTS: usize = 100;

#[derive(Clone, Debug)]
pub(super) struct Iometer {
    random: Random,
    range: WorkingSet,
    lines: Vec<Line>,
    slots: [u8; SLOTS],
    line: usize,
    burst_left: u32,
    previous_offset: u64,
    previous_bytes: u64,
}

#[derive(Clone, Debug)]
struct Line {
    spec: SpecLine,
    alignment: u64,
    /// Where a request goes that would pass the end.
    first: u64,
}

impl Iometer {
    pub(super) fn new(spec: &AccessSpec, config: &GeneratorConfig) -> Result<Self, GeneratorError> {
        if spec.share_total() as usize != SLOTS {
            return Err(GeneratorError::IometerShares { total: spec.share_total() });
        }
        if config.streams != 1 {
            return Err(GeneratorError::IometerStreams { streams: config.streams });
        }
        let mut slots = [0; SLOTS];
        let mut lines = Vec::with_capacity(spec.lines().len());
        let mut filled = 0;
        for (index, line) in spec.lines().iter().enumerate() {
            let alignment = line.alignment_bytes.unwrap_or(SECTOR_BYTES as u32);
            let first = first_offset(index + 1, line, alignment, config.working_set)?;
            lines.push(Line { spec: *line, alignment: u64::from(alignment), first });
            let end = filled + line.share as usize;
            slots[filled..end].fill(index as u8);
            filled = end;
        }
        Ok(Self {
            random: Random::new(config.seed, u64::from(config.worker)),
            range: config.working_set,
            lines,
            slots,
            line: 0,
            burst_left: 0,
            previous_offset: config.working_set.start(),
            previous_bytes: 0,
        })
    }

    #[inline]
    pub(super) fn next_request(&mut self) -> Request {
        let mut delay_ns = 0;
        if self.burst_left == 0 {
            let slot = self.random.below(SLOTS as u64) as usize;
            self.line = usize::from(self.slots[slot]);
            let spec = &self.lines[self.line].spec;
            self.burst_left = spec.burst;
            delay_ns = spec.delay_ns;
        }
        self.burst_left -= 1;
        let line = &self.lines[self.line];
        let bytes = u64::from(line.spec.request_bytes);
        let read = self.random.below(100) < u64::from(line.spec.read_percent);
        let wanted = if self.random.below(100) < u64::from(line.spec.random_percent) {
            self.range.start() + self.random.below(self.range.bytes())
        } else {
            self.previous_offset + self.previous_bytes
        };
        let rounded = wanted.next_multiple_of(line.alignment);
        let offset = if rounded + bytes > self.range.end() { line.first } else { rounded };
        self.previous_offset = offset;
        self.previous_bytes = bytes;
        Request {
            offset,
            bytes: line.spec.request_bytes,
            direction: if read { Direction::Read } else { Direction::Write },
            delay_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::catalogue::find_workload;
    use crate::generator::{Generator, GeneratorMode};

    const GIB: u64 = 1 << 30;

    fn config(working_set: WorkingSet, seed: u64) -> GeneratorConfig {
        GeneratorConfig { mode: GeneratorMode::Iometer, working_set, seed, worker: 0, streams: 1 }
    }

    fn generator(spec: &AccessSpec, start: u64, bytes: u64, seed: u64) -> Generator {
        let set = WorkingSet::new(start, bytes, start + bytes).unwrap();
        Generator::new(spec, &config(set, seed)).unwrap()
    }

    #[test]
    fn a_seed_gives_the_same_requests_for_ever() {
        let spec = find_workload("file-server").unwrap().spec().unwrap();
        let mut generator = generator(&spec, 0, GIB, 42);
        let first: Vec<_> = (0..8)
            .map(|_| generator.next_request())
            .map(|request| (request.offset, request.bytes, request.direction.index()))
            .collect();
        assert_eq!(first, GOLDEN);
    }

    const GOLDEN: [(u64, u32, usize); 8] = [
        (757_121_536, 16_384, 0),
        (1_039_246_336, 32_768, 0),
        (875_372_032, 4096, 0),
        (29_233_152, 4096, 0),
        (129_702_912, 4096, 0),
        (448_215_040, 16_384, 0),
        (307_438_080, 4096, 0),
        (827_591_168, 4096, 1),
    ];

    /// Units of `unit` bytes that a request touches.
    fn units(request: &Request, unit: u64) -> u64 {
        (request.offset + u64::from(request.bytes) - 1) / unit - request.offset / unit + 1
    }

    #[test]
    fn alignment_crossings_are_those_computed_for_iometer() {
        // Per unit: 16, 64, 128, 256, 1024 KiB, and pages of 4 KiB.
        const UNITS: [u64; 6] = [16 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20, 4 << 10];
        const REQUESTS: u32 = 400_000;
        let table = [
            ("file-server", [1.661, 1.165, 1.083, 1.041, 1.010, 3.645]),
            ("web-server", [1.948, 1.237, 1.118, 1.059, 1.015, 4.790]),
        ];
        for (name, published) in table {
            let spec = find_workload(name).unwrap().spec().unwrap();
            let mut generator = generator(&spec, 0, 64 * GIB, 2004);
            let mut touched = [0_u64; UNITS.len()];
            for _ in 0..REQUESTS {
                let request = generator.next_request();
                for (sum, unit) in touched.iter_mut().zip(UNITS) {
                    *sum += units(&request, unit);
                }
            }
            for ((sum, published), unit) in touched.iter().zip(published).zip(UNITS) {
                let mean = *sum as f64 / f64::from(REQUESTS);
                // Five standard errors of the widest figure at its unit.
                let tolerance = 0.001 + 0.1 * (published - 1.0) / 5.0;
                assert!((mean - published).abs() < tolerance, "{name} {unit}: {mean} {published}");
            }
        }
    }

    #[test]
    fn shares_of_requests_that_cross_a_boundary() {
        let spec = find_workload("file-server").unwrap().spec().unwrap();
        let mut generator = generator(&spec, 0, 64 * GIB, 7);
        let requests: Vec<_> = (0..200_000).map(|_| generator.next_request()).collect();
        let table = [(16, 32.6), (64, 16.5), (128, 8.3), (256, 4.1), (1024, 1.0)];
        for (unit_kib, published) in table {
            let crossing =
                requests.iter().filter(|request| units(request, unit_kib * 1024) > 1).count();
            let percent = crossing as f64 / 2000.0;
            assert!((percent - published).abs() < 0.4, "{unit_kib} KiB: {percent} %");
        }
        // A 4 KiB request is off its page seven times of eight.
        let pages: Vec<_> = requests.iter().filter(|request| request.bytes == 4096).collect();
        let off = pages.iter().filter(|request| !request.offset.is_multiple_of(4096)).count();
        let share = off as f64 / pages.len() as f64;
        assert!((share - 0.875).abs() < 0.005, "{share}");
    }

    #[test]
    fn the_mean_request_is_the_published_one() {
        let spec = find_workload("file-server").unwrap().spec().unwrap();
        let mut generator = generator(&spec, 0, GIB, 1);
        let bytes: u64 = (0..500_000).map(|_| u64::from(generator.next_request().bytes)).sum();
        let mean = bytes as f64 / 500_000.0;
        assert!((mean / generator.mean_request_bytes() - 1.0).abs() < 0.01, "{mean}");
    }

    #[test]
    fn one_pointer_serves_random_and_sequential() {
        let spec = AccessSpec::uniform(4096, 50, 30).unwrap();
        let mut generator = generator(&spec, 0, GIB, 8);
        let mut next = 0;
        let mut continued = 0_u32;
        for _ in 0..10_000 {
            let request = generator.next_request();
            continued += u32::from(request.offset == next);
            next = request.offset + 4096;
        }
        assert!((6_850..7_150).contains(&continued), "{continued}");
    }

    #[test]
    fn a_sequence_wraps_to_the_start() {
        let spec = AccessSpec::uniform(1024, 100, 0).unwrap();
        let mut generator = generator(&spec, 512, 2560, 1);
        let offsets: Vec<_> = (0..4).map(|_| generator.next_request().offset).collect();
        // The last sector is too short for a request.
        assert_eq!(offsets, [512, 1536, 512, 1536]);
    }

    #[test]
    fn a_burst_keeps_its_line_and_pays_its_delay_once() {
        let lines = [
            SpecLine { burst: 4, delay_ns: 9, ..SpecLine::new(50, 512, 50, 50) },
            SpecLine { burst: 4, delay_ns: 9, ..SpecLine::new(50, 1024, 50, 50) },
        ];
        let spec = AccessSpec::new(&lines).unwrap();
        let mut generator = generator(&spec, 0, GIB, 1);
        for _ in 0..50 {
            let burst: Vec<_> = (0..4).map(|_| generator.next_request()).collect();
            assert_eq!([9, 0, 0, 0], [0, 1, 2, 3].map(|index: usize| burst[index].delay_ns));
            assert!(burst.iter().all(|request| request.bytes == burst[0].bytes));
        }
    }

    #[test]
    fn what_iometer_can_not_do_is_refused() {
        let set = WorkingSet::new(0, GIB, GIB).unwrap();
        let spec = AccessSpec::weighted(&[SpecLine::new(3, 512, 0, 0)]).unwrap();
        let refused = Generator::new(&spec, &config(set, 0)).unwrap_err();
        assert_eq!(refused, GeneratorError::IometerShares { total: 3 });
        let spec = AccessSpec::uniform(512, 0, 0).unwrap();
        let two = GeneratorConfig { streams: 2, ..config(set, 0) };
        let refused = Generator::new(&spec, &two).unwrap_err();
        assert_eq!(refused, GeneratorError::IometerStreams { streams: 2 });
    }

    proptest! {
        #[test]
        fn requests_stay_inside_and_aligned(
            sizes in prop::collection::vec(1..64_u32, 2),
            alignment in prop::option::of(1..32_u32),
            random_percent in 0..=100_u8,
            start in 0..1000_u64,
            sectors in 1..2000_u64,
            seed: u64,
        ) {
            let line = |sectors: u32| SpecLine {
                alignment_bytes: alignment.map(|sectors| sectors * 512),
                ..SpecLine::new(50, sectors * 512, 50, random_percent)
            };
            let spec = AccessSpec::new(&[line(sizes[0]), line(sizes[1])]).unwrap();
            let set = WorkingSet::new(start * 512, sectors * 512, 1 << 30).unwrap();
            let Ok(mut generator) = Generator::new(&spec, &config(set, seed)) else {
                return Ok(());
            };
            for _ in 0..100 {
                let request = generator.next_request();
                prop_assert!(request.offset >= set.start());
                prop_assert!(request.offset + u64::from(request.bytes) <= set.end());
                let step = u64::from(alignment.unwrap_or(1)) * 512;
                prop_assert!(request.offset.is_multiple_of(step));
            }
        }
    }
}
