//! Media cache and shingled bands: what a drive-managed shingled disk is known for.

use std::path::Path;

use model::command::{Command, Timing};
use model::disk::description::Description;
use model::disk::machine::Machine;
use model::disk::parameters::{Parameters, Writes};
use world::SplitMix64;

/// A shingled disk with little of everything: 64 MiB media cache, bands of 16 MiB.
fn shingled() -> Parameters {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hardware/seagate-archive-8tb.toml");
    let text = std::fs::read_to_string(path).expect("a description");
    let description = Description::parse(&text).expect("of a hard disk");
    let mut parameters = description.parameters().expect("that can be");
    let media = parameters.media.as_mut().expect("it is shingled");
    media.blocks = 64 << 11;
    media.band_blocks = Some(16 << 11);
    // What the platter does is what this is about.
    parameters.writes = Writes::OnPlatter;
    parameters
}

const SECOND: u64 = 1_000_000_000;

struct Bench {
    machine: Machine,
    now_ns: u64,
    tag: u64,
}

impl Bench {
    fn new(parameters: Parameters) -> Self {
        Bench { machine: Machine::new(parameters), now_ns: 0, tag: 0 }
    }

    /// Nanoseconds of a command that comes alone.
    fn time(&mut self, command: Command) -> u64 {
        self.tag += 1;
        self.machine.advance(self.now_ns);
        self.machine.submit(self.now_ns, self.tag, command);
        loop {
            if let Some(completion) = self.machine.completion() {
                let ns = completion.at_ns - self.now_ns;
                self.now_ns = completion.at_ns;
                return ns;
            }
            let next_ns = self.machine.next_ns().expect("it ends");
            self.machine.advance(next_ns);
        }
    }

    /// MB/s of `count` writes of 64 KiB within the first 10 GB.
    fn random_writes(&mut self, count: u64, seed: u64) -> f64 {
        let mut random = SplitMix64::new(seed);
        let began_ns = self.now_ns;
        for _ in 0..count {
            let (offset, bytes) = (random.below(150_000) << 16, 1 << 16);
            self.time(Command::Write { offset, bytes, durable: false });
        }
        (count << 16) as f64 * 1e3 / (self.now_ns - began_ns) as f64
    }
}

#[test]
fn random_writes_are_fast_until_the_media_cache_is_full_and_again_after_a_rest() {
    let mut bench = Bench::new(shingled());
    let fresh = bench.random_writes(500, 1);
    bench.random_writes(1500, 2);
    let full = bench.random_writes(500, 3);
    assert!(full * 5.0 < fresh, "{fresh} MB/s fresh, {full} full");
    bench.now_ns += 3600 * SECOND;
    let rested = bench.random_writes(500, 4);
    assert!((rested / fresh - 1.0).abs() < 0.1, "{fresh} MB/s fresh, {rested} after an hour");
}

#[test]
fn in_order_it_writes_bands_at_once() {
    let mut bench = Bench::new(shingled());
    let bytes = 1 << 20;
    for index in 0..256 {
        let offset = index * bytes;
        bench.time(Command::Write { offset, bytes, durable: false });
    }
    // All of it four times over would not fit into the media cache, which has stayed empty.
    let read = bench.time(Command::Read { offset: 0, bytes: 16 << 20 });
    let mut untouched = Bench::new(shingled());
    untouched.time(Command::Read { offset: 255 << 20, bytes });
    let same = untouched.time(Command::Read { offset: 0, bytes: 16 << 20 });
    assert!(read.abs_diff(same) < 30_000_000, "{read} ns, {same} on one that was not written");
}

#[test]
fn blocks_in_the_media_cache_are_far_from_their_neighbours_until_they_go_home() {
    let mut bench = Bench::new(shingled());
    let read = Command::Read { offset: 0, bytes: 4 << 20 };
    let near = bench.time(read);
    for index in 1..21 {
        let offset = index * (190 << 10);
        bench.time(Command::Write { offset, bytes: 4096, durable: false });
    }
    // Twenty ways to the media cache and back.
    let far = bench.time(read);
    assert!(far > near + 40 * 5_000_000, "{near} ns, {far} with holes");
    bench.now_ns += 600 * SECOND;
    // Something else is in the buffer.
    for index in 0..64 {
        bench.time(Command::Read { offset: (10 + index) << 30, bytes: 4 << 20 });
    }
    let home = bench.time(read);
    assert!(home < near + 60_000_000, "{near} ns, {home} after cleaning");
}
