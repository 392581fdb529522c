//! The described hard disks beside what is stated about them, in `hardware/*.toml` under `[rated]`.

mod load;
mod rated;

use load::keep_busy;
use model::command::Command;
use model::disk::description::Description;
use model::disk::machine::Machine;
use model::split::{Split, Stage};
use rated::{Verdict, descriptions};
use world::SplitMix64;

/// Seconds for `count` commands, and the sum of their splits.
fn run(
    machine: &mut Machine,
    depth: u64,
    count: u64,
    next: impl FnMut() -> Command,
) -> (f64, Split) {
    let mut sum = Split::default();
    let ns = keep_busy(machine, depth, count, next, |completion| sum.merge(&completion.split));
    (ns as f64 / 1e9, sum)
}

const RANDOM: u64 = 10_000;

/// Random 4 KiB over the whole disk; `durable` writes go to the platter.
fn random(blocks: u64, write: bool, durable: bool) -> impl FnMut() -> Command {
    let mut random = SplitMix64::new(9);
    move || {
        let (offset, bytes) = (random.below(blocks / 8) * 4096, 4096);
        match write {
            true => Command::Write { offset, bytes, durable },
            false => Command::Read { offset, bytes },
        }
    }
}

/// MB/s of reading on from a byte.
fn sustained(machine: &mut Machine, from: u64) -> f64 {
    let (bytes, count) = (1 << 20, 100);
    let mut next = from;
    let read = || {
        let offset = next;
        next += bytes;
        Command::Read { offset, bytes }
    };
    let (seconds, _) = run(machine, 1, count, read);
    (count * bytes) as f64 / seconds / 1e6
}

/// What the model does where `rated` states a value.
fn measure(description: &Description, what: &str) -> f64 {
    let mut parameters = description.parameters().expect("a disk");
    if what == "seek_average_write_ms" {
        // Writes to a media cache don't seek.
        parameters.media = None;
    }
    let blocks = parameters.blocks;
    let bytes = blocks * 512;
    let machine = || Machine::new(parameters.clone());
    let mean_ms = |ns: u64| ns as f64 / RANDOM as f64 / 1e6;
    match what {
        "seek_average_read_ms" => {
            let (_, sum) = run(&mut machine(), 1, RANDOM, random(blocks, false, false));
            mean_ms(sum.served_ns(Stage::Seek))
        }
        "seek_average_write_ms" => {
            let (_, sum) = run(&mut machine(), 1, RANDOM, random(blocks, true, true));
            mean_ms(sum.served_ns(Stage::Seek))
        }
        "rotation_ms" => {
            let (_, sum) = run(&mut machine(), 1, RANDOM, random(blocks, false, false));
            mean_ms(sum.served_ns(Stage::Rotation))
        }
        "access_read_ms" => {
            let (_, sum) = run(&mut machine(), 1, RANDOM, random(blocks, false, false));
            mean_ms(sum.total_ns())
        }
        "sustained_outer_mb_s" => sustained(&mut machine(), 0),
        "sustained_inner_mb_s" => sustained(&mut machine(), bytes - (101 << 20)),
        "sustained_average_mb_s" => {
            let places = (0..20).map(|part| (bytes / 20 * part + bytes / 40) & !4095);
            let slowness = places.map(|from| 1.0 / sustained(&mut machine(), from));
            20.0 / slowness.sum::<f64>()
        }
        "random_read_iops_16" => {
            RANDOM as f64 / run(&mut machine(), 16, RANDOM, random(blocks, false, false)).0
        }
        "random_read_iops_32" => {
            RANDOM as f64 / run(&mut machine(), 32, RANDOM, random(blocks, false, false)).0
        }
        "random_write_iops_16" => {
            RANDOM as f64 / run(&mut machine(), 16, RANDOM, random(blocks, true, true)).0
        }
        "random_write_iops_cached" => {
            // Long enough for the cache to be full for most of it.
            let count = 10 * RANDOM;
            count as f64 / run(&mut machine(), 1, count, random(blocks, true, false)).0
        }
        _ => panic!("nobody knows how to measure {what}"),
    }
}

/// What the models miss: file, value, why.
const MISSED: [(&str, &str, &str); 1] = [(
    "seagate-exos-x20-20tb",
    "random_write_iops_16",
    "the media cache takes a whole number of writes each turn: five are 590, four 480",
)];

#[test]
fn rated_values_are_met_within_5_percent() {
    let mut verdict = Verdict::new(&MISSED);
    let found = descriptions("hdd");
    assert!(found.len() >= 9, "the descriptions are where they belong");
    for (file, text) in found {
        let description = Description::parse(&text).expect("it can be read");
        verdict.compare(&file, &description.rated, |what| measure(&description, what));
    }
    verdict.assert();
}
