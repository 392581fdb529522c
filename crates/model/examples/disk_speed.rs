//! Requests per second of one core through the timing of a detailed hard disk.
//!
//! `cargo run --release -p model --example disk_speed [hardware/FILE.toml]`

use std::time::Instant;

use model::command::{Command, Timing};
use model::disk::description::Description;
use model::disk::machine::Machine;
use world::SplitMix64;

const REQUESTS: u64 = 1_000_000;

fn main() {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../hardware/hitachi-e7k1000-1tb.toml");
    let path = std::env::args().nth(1).unwrap_or_else(|| beside.into());
    let text = std::fs::read_to_string(&path).expect("a description");
    let disk = Description::parse(&text).expect("of a hard disk");
    let parameters = disk.parameters().expect("that can be");
    println!("{}", parameters.name);
    for (what, random, writes) in [
        ("random reads", true, 0),
        ("random reads and writes, 2:1", true, 3),
        ("sequential reads", false, 0),
    ] {
        for depth in [1, 4, 32] {
            let mut machine = Machine::new(parameters.clone());
            let mut numbers = SplitMix64::new(1);
            let spans = parameters.blocks / 8;
            let (mut submitted, mut over, mut now_ns) = (0, 0, 0);
            let began = Instant::now();
            while over < REQUESTS {
                while submitted < REQUESTS && submitted - over < depth {
                    let span = if random { numbers.below(spans) } else { submitted % spans };
                    let (offset, bytes) = (span * 4096, 4096);
                    let command = if writes > 0 && submitted % writes == 0 {
                        Command::Write { offset, bytes, durable: false }
                    } else {
                        Command::Read { offset, bytes }
                    };
                    machine.submit(now_ns, submitted, command);
                    submitted += 1;
                }
                now_ns = machine.next_ns().expect("requests are under way");
                machine.advance(now_ns);
                while machine.completion().is_some() {
                    over += 1;
                }
            }
            let rate = REQUESTS as f64 / began.elapsed().as_secs_f64();
            let modelled = REQUESTS as f64 / (now_ns as f64 / 1e9);
            println!("{what}, depth {depth}: {rate:.0} requests/s, modelled {modelled:.0}");
        }
    }
}
