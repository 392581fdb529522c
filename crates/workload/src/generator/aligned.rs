//! The lab's own rules: exact mixes, aligned offsets, undisturbed streams.
//!
//! Mixes. The requests are dealt as cards from a deck that holds one card per
//! share. A full deck has each size exactly as often as its share says, and as
//! many reads and random requests as the percentages say of the whole deck;
//! only the order is left to chance. Where a line has no whole number of reads
//! in one deck (67 % of 2 cards), it gets one more or one fewer by systematic
//! sampling: the percentages are summed up over the lines from a random
//! start, and a read falls due whenever the sum passes another 100. So the
//! whole is exact in each deck, and each line is exact in the mean.
//!
//! Places. A random request goes to any multiple of its alignment (its own
//! size unless the line says otherwise) where it fits, each as likely. A
//! sequential request continues its stream; streams take turns, do not jump
//! with the random requests, and start anew at the end of their part. Reads
//! and writes share a stream's position.
//!
//! A line's delay is due before each `burst`-th request of that line.
//!
//! Left out: the tail of the range that is shorter than a request is not touched.

use super::{GeneratorConfig, GeneratorError, first_offset};
use crate::random::Random;
use crate::request::{Direction, Request, SECTOR_BYTES, WorkingSet};
use crate::spec::{AccessSpec, SpecLine};

#[derive(Clone, Debug)]
pub(super) struct Aligned {
    random: Random,
    lines: Vec<Line>,
    deck: Vec<Card>,
    dealt: usize,
    streams: Vec<Stream>,
    turn: usize,
}

/// What there is to know of a line when a request is made.
#[derive(Clone, Debug)]
struct Line {
    spec: SpecLine,
    /// Random requests go to `first + n * step` with n below `places`.
    first: u64,
    step: u64,
    places: u64,
    /// Sequential requests start at multiples of this.
    sequential_alignment: u64,
    /// Requests until the delay is due.
    burst_left: u32,
}

#[derive(Clone, Copy, Debug)]
struct Card {
    line: u8,
    direction: Direction,
    random: bool,
}

#[derive(Clone, Debug)]
struct Stream {
    part: WorkingSet,
    next: u64,
}

impl Aligned {
    pub(super) fn new(spec: &AccessSpec, config: &GeneratorConfig) -> Result<Self, GeneratorError> {
        if config.streams == 0 {
            return Err(GeneratorError::NoStreams);
        }
        let streams = if config.streams == 1 {
            vec![Stream { part: config.working_set, next: config.working_set.start() }]
        } else {
            let granule = u64::from(spec.request_bytes_max());
            (0..config.streams)
                .map(|index| {
                    let part = config.working_set.part(index, config.streams, granule)?;
                    Ok(Stream { part, next: part.start() })
                })
                .collect::<Result<Vec<_>, GeneratorError>>()?
        };
        let lines = spec
            .lines()
            .iter()
            .enumerate()
            .map(|(index, line)| Line::new(index + 1, line, config.working_set, &streams))
            .collect::<Result<Vec<_>, _>>()?;
        let mut aligned = Self {
            random: Random::new(config.seed, u64::from(config.worker)),
            lines,
            deck: Vec::with_capacity(spec.share_total() as usize),
            dealt: 0,
            streams,
            turn: 0,
        };
        aligned.fill_deck();
        Ok(aligned)
    }

    #[inline]
    pub(super) fn next_request(&mut self) -> Request {
        if self.dealt == self.deck.len() {
            self.fill_deck();
        }
        let card = self.deck[self.dealt];
        self.dealt += 1;
        let line = &mut self.lines[usize::from(card.line)];
        let delay_ns = line.delay_due();
        let bytes = line.spec.request_bytes;
        let offset = if card.random {
            line.first + self.random.below(line.places) * line.step
        } else {
            let turn = self.turn;
            self.turn = if turn + 1 == self.streams.len() { 0 } else { turn + 1 };
            self.streams[turn].advance(u64::from(bytes), line.sequential_alignment)
        };
        Request { offset, bytes, direction: card.direction, delay_ns }
    }

    fn fill_deck(&mut self) {
        self.deck.clear();
        self.dealt = 0;
        let mut reads = Quota::new(&mut self.random);
        let mut randoms = Quota::new(&mut self.random);
        for (index, line) in self.lines.iter().enumerate() {
            let share = line.spec.share;
            let read = reads.take(share, line.spec.read_percent);
            for (direction, cards) in [(Direction::Read, read), (Direction::Write, share - read)] {
                let random = randoms.take(cards, line.spec.random_percent);
                let card = Card { line: index as u8, direction, random: true };
                self.deck.extend(std::iter::repeat_n(card, random as usize));
                let card = Card { random: false, ..card };
                self.deck.extend(std::iter::repeat_n(card, (cards - random) as usize));
            }
        }
        self.random.shuffle(&mut self.deck);
    }
}

impl Line {
    fn new(
        number: usize,
        line: &SpecLine,
        range: WorkingSet,
        streams: &[Stream],
    ) -> Result<Self, GeneratorError> {
        let alignment = line.alignment_bytes.unwrap_or(line.request_bytes);
        let first = match line.random_percent {
            // Nothing goes to random places, so none need exist.
            0 => range.start(),
            _ => first_offset(number, line, alignment, range)?,
        };
        let room = range.end().saturating_sub(first + u64::from(line.request_bytes));
        // A stream is contiguous, whatever the mix of sizes, unless the line
        // asks for an alignment.
        let sequential_alignment = line.alignment_bytes.unwrap_or(SECTOR_BYTES as u32);
        if line.random_percent < 100 {
            for stream in streams {
                first_offset(number, line, sequential_alignment, stream.part)?;
            }
        }
        Ok(Self {
            spec: *line,
            first,
            step: u64::from(alignment),
            places: room / u64::from(alignment) + 1,
            sequential_alignment: u64::from(sequential_alignment),
            burst_left: 0,
        })
    }

    #[inline]
    fn delay_due(&mut self) -> u64 {
        if self.burst_left == 0 {
            self.burst_left = self.spec.burst - 1;
            self.spec.delay_ns
        } else {
            self.burst_left -= 1;
            0
        }
    }
}

impl Stream {
    #[inline]
    fn advance(&mut self, bytes: u64, alignment: u64) -> u64 {
        let mut offset = self.next.next_multiple_of(alignment);
        if offset + bytes > self.part.end() {
            offset = self.part.start().next_multiple_of(alignment);
        }
        self.next = offset + bytes;
        offset
    }
}

/// Systematic sampling: how many of some cards are chosen, see the module.
struct Quota {
    sum: u64,
}

impl Quota {
    fn new(random: &mut Random) -> Self {
        Self { sum: random.below(100) }
    }

    fn take(&mut self, cards: u32, percent: u8) -> u32 {
        let before = self.sum / 100;
        self.sum += u64::from(cards) * u64::from(percent);
        (self.sum / 100 - before) as u32
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::catalogue::CATALOGUE;
    use crate::generator::{Generator, GeneratorMode};

    const MIB: u64 = 1 << 20;

    fn config(bytes: u64, seed: u64) -> GeneratorConfig {
        GeneratorConfig {
            mode: GeneratorMode::Aligned,
            working_set: WorkingSet::new(0, bytes, bytes).unwrap(),
            seed,
            worker: 0,
            streams: 1,
        }
    }

    fn take(generator: &mut Generator, requests: usize) -> Vec<Request> {
        (0..requests).map(|_| generator.next_request()).collect()
    }

    #[test]
    fn a_seed_gives_the_same_requests_for_ever() {
        let spec = AccessSpec::new(CATALOGUE[0].lines).unwrap();
        let mut generator = Generator::new(&spec, &config(1024 * MIB, 42)).unwrap();
        let first: Vec<_> = take(&mut generator, 8)
            .iter()
            .map(|request| (request.offset, request.bytes, request.direction.index()))
            .collect();
        assert_eq!(first, GOLDEN);
    }

    const GOLDEN: [(u64, u32, usize); 8] = [
        (368_541_696, 32_768, 0),
        (877_926_400, 1024, 0),
        (964_614_656, 512, 0),
        (414_556_160, 8192, 0),
        (505_020_416, 65_536, 0),
        (207_814_656, 65_536, 1),
        (1_016_614_912, 4096, 0),
        (461_549_568, 4096, 0),
    ];

    #[test]
    fn every_hundred_requests_of_the_catalogue_are_exact() {
        for workload in CATALOGUE {
            let spec = workload.spec().unwrap();
            let mut generator = Generator::new(&spec, &config(64 * MIB, 5)).unwrap();
            for _ in 0..20 {
                let deck = take(&mut generator, 100);
                for line in spec.lines() {
                    let same = deck.iter().filter(|request| request.bytes == line.request_bytes);
                    assert_eq!(same.count() as u32, line.share, "{}", workload.name);
                }
                let reads = deck.iter().filter(|request| request.direction == Direction::Read);
                assert_eq!(reads.count() as f64, spec.read_percent(), "{}", workload.name);
                let bytes: u64 = deck.iter().map(|request| u64::from(request.bytes)).sum();
                assert_eq!(bytes as f64 / 100.0, generator.mean_request_bytes());
            }
        }
    }

    #[test]
    fn a_line_with_broken_counts_is_exact_in_the_mean() {
        // 67 % of 2 cards is 1.34 reads: 1 or 2 in a deck, 1.34 in the mean.
        let lines = [SpecLine::new(2, 512, 67, 100), SpecLine::new(98, 1024, 67, 100)];
        let spec = AccessSpec::new(&lines).unwrap();
        let mut generator = Generator::new(&spec, &config(MIB, 11)).unwrap();
        let requests = take(&mut generator, 200_000);
        let small_reads = requests
            .iter()
            .filter(|request| request.bytes == 512 && request.direction == Direction::Read)
            .count();
        assert!((2_620..2_740).contains(&small_reads), "{small_reads}");
    }

    #[test]
    fn direction_and_randomness_are_independent() {
        let spec = AccessSpec::uniform(4096, 50, 50).unwrap();
        let mut generator = Generator::new(&spec, &config(64 * MIB, 1)).unwrap();
        let mut next = 0;
        let mut sequential = [0_u32; 2];
        for request in take(&mut generator, 1000) {
            if request.offset == next {
                sequential[request.direction.index()] += 1;
                next = request.offset + 4096;
            }
        }
        // Each deck has 25 of each kind; a random hit on the next place is rare.
        assert!(sequential.iter().all(|&count| (249..=252).contains(&count)), "{sequential:?}");
    }

    #[test]
    fn offsets_are_uniform_and_reach_both_ends() {
        let set = WorkingSet::new(3 * 512, 17 * 4096 + 512, MIB).unwrap();
        let spec = AccessSpec::uniform(4096, 100, 100).unwrap();
        let config = GeneratorConfig { working_set: set, ..config(MIB, 3) };
        let mut generator = Generator::new(&spec, &config).unwrap();
        let mut counts = std::collections::BTreeMap::new();
        for request in take(&mut generator, 32_000) {
            *counts.entry(request.offset).or_insert(0_u32) += 1;
        }
        // Bytes 1536 to 71680 hold the places 4096 to 65536: sixteen.
        assert_eq!(counts.len(), 16);
        assert_eq!(counts.keys().next(), Some(&4096));
        assert_eq!(counts.keys().last(), Some(&65_536));
        // Chi-square with 15 degrees of freedom: 37.7 at one in a thousand.
        let chi: f64 =
            counts.values().map(|&count| (f64::from(count) - 2000.0).powi(2) / 2000.0).sum();
        assert!(chi < 37.7, "{chi}");
    }

    #[test]
    fn streams_take_turns_and_wrap_in_their_parts() {
        let spec = AccessSpec::uniform(4096, 100, 0).unwrap();
        let config = GeneratorConfig { streams: 2, ..config(4 * 4096, 1) };
        let mut generator = Generator::new(&spec, &config).unwrap();
        let offsets: Vec<_> =
            take(&mut generator, 6).iter().map(|request| request.offset / 4096).collect();
        assert_eq!(offsets, [0, 2, 1, 3, 0, 2]);
    }

    #[test]
    fn a_mixed_stream_is_contiguous_unless_aligned() {
        let lines = [SpecLine::new(50, 512, 100, 0), SpecLine::new(50, 4096, 100, 0)];
        let spec = AccessSpec::new(&lines).unwrap();
        let mut generator = Generator::new(&spec, &config(64 * MIB, 1)).unwrap();
        let mut next = 0;
        for request in take(&mut generator, 300) {
            assert_eq!(request.offset, next);
            next += u64::from(request.bytes);
        }
        let lines = lines.map(|line| SpecLine { alignment_bytes: Some(4096), ..line });
        let spec = AccessSpec::new(&lines).unwrap();
        let mut generator = Generator::new(&spec, &config(64 * MIB, 1)).unwrap();
        for (index, request) in take(&mut generator, 300).iter().enumerate() {
            assert_eq!(request.offset, index as u64 * 4096);
        }
    }

    #[test]
    fn a_delay_is_due_once_per_burst() {
        let lines = [SpecLine { burst: 3, delay_ns: 7, ..SpecLine::new(100, 512, 0, 100) }];
        let spec = AccessSpec::new(&lines).unwrap();
        let mut generator = Generator::new(&spec, &config(MIB, 1)).unwrap();
        let delays: Vec<_> =
            take(&mut generator, 7).iter().map(|request| request.delay_ns).collect();
        assert_eq!(delays, [7, 0, 0, 7, 0, 0, 7]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let spec = AccessSpec::uniform(4096, 100, 100).unwrap();
        let refused = Generator::new(&spec, &config(2048, 1)).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "line 1: a request of 4096 bytes aligned to 4096 does not fit between byte 0 and byte 2048"
        );
        let none = GeneratorConfig { streams: 0, ..config(MIB, 1) };
        assert_eq!(Generator::new(&spec, &none).unwrap_err(), GeneratorError::NoStreams);
        let many = GeneratorConfig { streams: 1000, ..config(MIB, 1) };
        assert!(matches!(Generator::new(&spec, &many), Err(GeneratorError::Streams(_))));
    }

    fn any_line() -> impl Strategy<Value = SpecLine> {
        (1..40_u32, 1..64_u32, 0..=100_u8, 0..=100_u8, prop::option::of(1..32_u32)).prop_map(
            |(share, sectors, read_percent, random_percent, alignment)| SpecLine {
                alignment_bytes: alignment.map(|sectors| sectors * 512),
                ..SpecLine::new(share, sectors * 512, read_percent, random_percent)
            },
        )
    }

    proptest! {
        #[test]
        fn requests_stay_inside_and_decks_are_exact(
            lines in prop::collection::vec(any_line(), 1..8),
            start in 0..1000_u64,
            sectors in 1..2000_u64,
            streams in 1..4_u32,
            seed: u64,
        ) {
            let spec = AccessSpec::weighted(&lines).unwrap();
            let working_set = WorkingSet::new(start * 512, sectors * 512, MIB * 8).unwrap();
            let config = GeneratorConfig { working_set, streams, ..config(MIB, seed) };
            let Ok(mut generator) = Generator::new(&spec, &config) else { return Ok(()) };
            let deck = take(&mut generator, spec.share_total() as usize);
            let bytes: u64 = deck.iter().map(|request| u64::from(request.bytes)).sum();
            let mean = bytes as f64 / f64::from(spec.share_total());
            prop_assert_eq!(mean, generator.mean_request_bytes());
            let reads = deck.iter().filter(|request| request.direction == Direction::Read).count();
            let asked = spec.read_percent() * f64::from(spec.share_total()) / 100.0;
            prop_assert!((reads as f64 - asked).abs() < 1.0);
            for request in deck {
                prop_assert!(request.offset >= working_set.start());
                prop_assert!(request.offset + u64::from(request.bytes) <= working_set.end());
                prop_assert!(request.offset.is_multiple_of(512));
            }
        }
    }
}
