//! The timing of SSDs beside the laws it has to follow.

use std::collections::BTreeMap;

use model::command::{Command, Completion, Timing};
use model::split::Stage;
use model::ssd::amplification::first_in_first_out;
use model::ssd::hybrid::Shape;
use model::ssd::machine::Machine;
use model::ssd::parameters::{Mapping, Parameters, SlcCache, Striping};
use model::ssd::translation::State;
use model::ssd::victims::Cleaning;
use world::SplitMix64;

const PAGE: u64 = 4096;

/// A small drive in which only what a test sets can be a bottleneck.
fn small() -> Parameters {
    Parameters {
        name: "small".into(),
        capacity_bytes: 256 << 20,
        unit_bytes: 4096,
        channels: 4,
        dies: 16,
        planes: 1,
        page_bytes: 4096,
        pages_per_block: 32,
        striping: Striping::ChannelFirst,
        read_ns: vec![50_000],
        program_ns: 600_000,
        erase_ns: 3_000_000,
        channel_bytes_per_s: 400_000_000,
        link_bytes_per_s: 4_000_000_000,
        duplex: true,
        queue_depth: 4096,
        read_command_ns: 1_000,
        write_command_ns: 1_000,
        command_latency_ns: 1_000,
        write_path_bytes_per_s: 4_000_000_000,
        buffer_bytes: 1 << 20,
        acknowledge_ns: 5_000,
        power_loss_protection: false,
        flush_ns: 100_000,
        slc_cache: None,
        mapping: Mapping::Page { spare_permille: 250, cleaning: Cleaning::Greedy },
    }
}

/// Keeps `depth` commands outstanding until `count` are over; the commands come from `next`.
fn run(
    machine: &mut Machine,
    depth: u64,
    count: u64,
    mut next: impl FnMut() -> Command,
) -> Vec<Completion> {
    let mut now = machine.next_ns().unwrap_or(0);
    let (mut tag, mut found) = (0, Vec::new());
    let mut begun = BTreeMap::new();
    while (found.len() as u64) < count {
        while tag < count && (begun.len() as u64) < depth {
            begun.insert(tag, now);
            machine.submit(now, tag, next());
            tag += 1;
        }
        now = machine.next_ns().expect("commands are under way");
        machine.advance(now);
        while let Some(completion) = machine.completion() {
            let since = begun.remove(&completion.tag).expect("each ends once");
            assert_eq!(completion.split.total_ns(), completion.at_ns - since, "its parts add up");
            found.push(completion);
        }
    }
    found
}

/// Completions per second over the second half, without the end, when no more commands come.
fn rate(found: &[Completion]) -> f64 {
    let half = &found[found.len() / 2..found.len() * 9 / 10];
    let ns = half[half.len() - 1].at_ns - half[0].at_ns;
    (half.len() - 1) as f64 * 1e9 / ns as f64
}

fn random(
    machine: &Machine,
    seed: u64,
    command: fn(u64) -> Command,
) -> impl FnMut() -> Command + use<> {
    let pages = machine.parameters().capacity_bytes / PAGE;
    let mut random = SplitMix64::new(seed);
    move || command(random.below(pages) * PAGE)
}

fn read(offset: u64) -> Command {
    Command::Read { offset, bytes: PAGE }
}

fn write(offset: u64) -> Command {
    Command::Write { offset, bytes: PAGE, durable: false }
}

fn assert_within(percent: f64, found: f64, expected: f64, what: &str) {
    let off = (found / expected - 1.0) * 100.0;
    println!("{what}: {found:.1}, expected {expected:.1}, off by {off:+.2} %");
    assert!(off.abs() <= percent, "{what}: {found} is {off:+.2} % off {expected}");
}

#[test]
fn a_read_takes_the_sum_of_its_stages() {
    let mut machine = Machine::new(small(), State::Preconditioned, 1);
    let found = run(&mut machine, 1, 10, || read(40_960));
    let channel = 10_240;
    let link = 1_024;
    for completion in &found {
        assert_eq!(completion.split.served_ns(Stage::Die), 50_000);
        assert_eq!(completion.split.served_ns(Stage::Channel), channel);
        assert_eq!(completion.split.total_ns(), 1_000 + 50_000 + channel + link);
    }
}

#[test]
fn reads_grow_with_queue_depth_until_dies_or_channels_are_busy() {
    let latency = 1_000.0 + 50_000.0 + 10_240.0 + 1_024.0;
    let die = 50_000.0 + 10_240.0;
    for depth in [1, 2, 4, 8, 16, 64, 256] {
        let mut machine = Machine::new(small(), State::Preconditioned, 1);
        let next = random(&machine, 3, read);
        let found = rate(&run(&mut machine, depth, 40_000, next));
        let dies = 16.0;
        let most = [depth as f64 / latency, dies / die, 4.0 / 10_240.0, 1.0 / 1_000.0];
        let bound = most.into_iter().fold(f64::MAX, f64::min) * 1e9;
        println!("depth {depth}: {found:.0} of at most {bound:.0}");
        assert!(found <= bound * 1.005, "depth {depth}: {found} above {bound}");
        // A closed network of equal servers does at least as well as with exponential service.
        let q = depth as f64;
        let low = dies / die * q / (q + dies - 1.0) * 1e9 * (die / latency);
        assert!(found >= low * 0.97, "depth {depth}: {found} below {low}");
    }
}

#[test]
fn each_bottleneck_is_met() {
    type Set = fn(&mut Parameters);
    let cases: [(&str, Set, f64); 4] = [
        ("dies", |_| {}, 16e9 / 60_240.0),
        ("channels", |p| p.channel_bytes_per_s = 40_960_000, 4e9 / 100_000.0),
        ("controller", |p| p.read_command_ns = 20_000, 50_000.0),
        ("link", |p| p.link_bytes_per_s = 40_960_000, 10_000.0),
    ];
    for (what, set, expected) in cases {
        let mut parameters = small();
        set(&mut parameters);
        let mut machine = Machine::new(parameters, State::Preconditioned, 1);
        let next = random(&machine, 3, read);
        assert_within(3.0, rate(&run(&mut machine, 2048, 40_000, next)), expected, what);
    }
}

/// Random writes per second of the small drive at a write amplification.
fn law(p: &Parameters, amplification: f64) -> f64 {
    let transfer = PAGE as f64 * 1e9 / p.channel_bytes_per_s as f64;
    let cost = amplification * (p.program_ns as f64 + transfer)
        + (amplification - 1.0) * (p.read_ns[0] as f64 + transfer)
        + amplification * p.erase_ns as f64 / f64::from(p.pages_per_block);
    f64::from(p.dies * p.planes) * 1e9 / cost
}

#[test]
fn a_fresh_drive_writes_at_the_rate_of_its_dies() {
    let mut parameters = small();
    parameters.erase_ns = 0;
    let expected = law(&parameters, 1.0);
    let mut machine = Machine::new(parameters, State::Fresh, 1);
    let next = random(&machine, 3, write);
    assert_within(3.0, rate(&run(&mut machine, 64, 20_000, next)), expected, "fresh");
    assert_eq!(machine.counters().moved_units, 0);
}

#[test]
fn primed_steady_is_simulated_steady_and_follows_the_law() {
    let measure = |state, settle: u64| {
        let mut machine =
            Machine::new(Parameters { capacity_bytes: 128 << 20, ..small() }, state, 1);
        let pages = machine.parameters().capacity_bytes / PAGE;
        let next = random(&machine, 3, write);
        run(&mut machine, 64, pages * settle / 4, next);
        let before = machine.counters();
        let next = random(&machine, 4, write);
        let iops = rate(&run(&mut machine, 64, pages * 2, next));
        let after = machine.counters();
        let moved = (after.moved_units - before.moved_units) as f64;
        (1.0 + moved / (after.host_units - before.host_units) as f64, iops)
    };
    let primed = measure(State::Steady, 1);
    let simulated = measure(State::Fresh, 40);
    assert_within(3.0, primed.0, simulated.0, "write amplification");
    assert_within(3.0, primed.1, simulated.1, "writes per second");
    assert_within(5.0, primed.1, law(&small(), primed.0), "writes per second by the law");
    assert_within(5.0, primed.0, first_in_first_out(1.25), "write amplification by the law");
}

/// A preconditioned drive writes like a fresh one until its spare blocks are used up, and then
/// worse than a steady one for a while: no block has lost many units yet.
#[test]
fn the_three_states_differ() {
    let rate_in = |state, count| {
        let mut machine = Machine::new(small(), state, 1);
        let next = random(&machine, 3, write);
        rate(&run(&mut machine, 64, count, next))
    };
    let fresh = rate_in(State::Fresh, 32_000);
    let steady = rate_in(State::Steady, 32_000);
    let early = rate_in(State::Preconditioned, 12_000);
    let late = rate_in(State::Preconditioned, 32_000);
    println!("fresh {fresh:.0}, steady {steady:.0}, preconditioned {early:.0}, then {late:.0}");
    assert!(fresh > 3.0 * steady);
    assert!((early / fresh - 1.0).abs() < 0.02);
    assert!(late < 0.95 * steady);
}

#[test]
fn a_flush_waits_for_programs_unless_capacitors_keep_the_buffer() {
    let flush_after_write = |power_loss_protection| {
        let mut machine =
            Machine::new(Parameters { power_loss_protection, ..small() }, State::Fresh, 1);
        let mut commands = [write(0), Command::Flush].into_iter();
        run(&mut machine, 1, 2, || commands.next().expect("two"))[1].split.total_ns()
    };
    assert_eq!(flush_after_write(true), 1_000);
    // The program began when the write was in the buffer, an acknowledgement earlier.
    let transfers = 1_024 + 10_240;
    assert_eq!(flush_after_write(false), transfers + 600_000 - 5_000 + 100_000);
}

#[test]
fn the_slc_cache_is_fast_until_it_is_full_and_again_after_a_rest() {
    let slc = SlcCache {
        bytes: 32 << 20,
        program_ns: 100_000,
        fold_bytes_per_s: 64 << 20,
        idle_ns: 1_000_000,
    };
    let mut machine = Machine::new(Parameters { slc_cache: Some(slc), ..small() }, State::Fresh, 1);
    let mut next = random(&machine, 3, write);
    let fast = rate(&run(&mut machine, 64, 6_000, &mut next));
    run(&mut machine, 64, 4_000, &mut next);
    let slow = rate(&run(&mut machine, 64, 6_000, &mut next));
    println!("in the cache {fast:.0}, past it {slow:.0}");
    assert!(fast > 4.0 * slow);
}

#[test]
fn a_first_generation_controller_stutters_on_random_writes_only() {
    let mut parameters = small();
    parameters.capacity_bytes = 8 << 30;
    parameters.queue_depth = 1;
    parameters.buffer_bytes = 16 << 10;
    parameters.mapping = Mapping::Hybrid(Shape { units: 1024, logs: 4 });
    let longest = |found: &[Completion]| {
        found.iter().map(|completion| completion.split.total_ns()).max().expect("some")
    };
    let mut machine = Machine::new(parameters.clone(), State::Steady, 1);
    let next = random(&machine, 3, write);
    let scattered = run(&mut machine, 1, 400, next);
    let mut machine = Machine::new(parameters.clone(), State::Steady, 1);
    let mut at = 0;
    let in_order = run(&mut machine, 1, 4_000, || {
        at += PAGE;
        write(at - PAGE)
    });
    // Within as many units as there are logs random writes need no merge either, for a while.
    let mut machine = Machine::new(parameters, State::Steady, 1);
    let mut within = SplitMix64::new(5);
    let inside = run(&mut machine, 1, 400, || write(within.below(4 * 1024) * PAGE));
    let merge = 1024.0 / 16.0 * (50_000.0 + 10_240.0 + 600_000.0 + 10_240.0) + 6_000_000.0;
    assert_within(10.0, 1e9 / rate(&scattered), merge, "ns of a random write");
    assert!(rate(&inside) > 20.0 * rate(&scattered));
    assert!(longest(&in_order) < longest(&scattered) / 5);
}

#[test]
fn trimmed_space_helps_cleaning() {
    let amplification = |trimmed: u64| {
        let mut machine = Machine::new(small(), State::Steady, 1);
        let capacity = machine.parameters().capacity_bytes;
        let kept = capacity - trimmed;
        machine.submit(0, 0, Command::Trim { offset: kept, bytes: trimmed });
        machine.advance(1_000_000);
        machine.completion().expect("a trim ends");
        let mut random = SplitMix64::new(3);
        run(&mut machine, 64, 60_000, || write(random.below(kept / PAGE) * PAGE));
        let before = machine.counters();
        run(&mut machine, 64, 60_000, || write(random.below(kept / PAGE) * PAGE));
        let after = machine.counters();
        1.0 + (after.moved_units - before.moved_units) as f64 / 60_000.0
    };
    // Physical over what is kept: 1.25 becomes 2.5.
    assert_within(5.0, amplification(0), first_in_first_out(1.25), "nothing trimmed");
    assert_within(5.0, amplification(128 << 20), first_in_first_out(2.5), "half of it trimmed");
}
