//! Write amplification against the spare factor, beside the closed form and the golden table.
//!
//! The table's simulation had 524 288 units and two blocks in reserve, which count as spare; here
//! the drive is primed, written over to settle, and measured for as long as it takes to tell
//! a per cent.

use model::ssd::amplification::first_in_first_out;
use model::ssd::translation::{Layout, Pace, State, Translation};
use model::ssd::victims::Cleaning;
use world::SplitMix64;

fn layout(spare: f64, units_per_block: u32, cleaning: Cleaning) -> Layout {
    // Small blocks need fewer units for the same small reserve.
    let units = if units_per_block == 16 { 131_072 } else { 524_288 };
    let blocks = (f64::from(units) * (1.0 + spare) / f64::from(units_per_block)).round() as u32;
    let pace = Pace::AtOnce;
    Layout { units, blocks, units_per_block, low_water_blocks: 2, cleaning, pace }
}

/// Write amplification over `drive_writes`, after `settle` of them.
fn measure(layout: Layout, state: State, settle: f64, drive_writes: f64) -> f64 {
    let mut translation = Translation::new(layout, state, 1);
    let mut random = SplitMix64::new(2);
    let mut run = |share: f64| {
        let before = translation.counters();
        for _ in 0..(f64::from(layout.units) * share) as u64 {
            translation.write(random.below(u64::from(layout.units)) as u32, &mut ());
        }
        let after = translation.counters();
        let moved = (after.moved_units - before.moved_units) as f64;
        1.0 + moved / (after.host_units - before.host_units) as f64
    };
    run(settle);
    run(drive_writes)
}

fn assert_within(percent: f64, found: f64, expected: f64, what: &str) {
    let off = (found / expected - 1.0) * 100.0;
    println!("{what}: {found:.3}, expected {expected:.3}, off by {off:+.2} %");
    assert!(off.abs() <= percent, "{what}: {found} is {off:+.2} % off {expected}");
}

#[test]
fn first_in_first_out_meets_the_closed_form() {
    for spare in [0.05, 0.07, 0.10, 0.15, 0.20, 0.28, 0.30, 0.40, 0.50, 1.00] {
        let layout = layout(spare, 64, Cleaning::FirstInFirstOut);
        let found = measure(layout, State::Steady, 0.25, 0.75);
        // The closed form is for what can hold data, without the reserve.
        assert_within(1.0, found, first_in_first_out(layout.alpha()), &format!("spare {spare}"));
    }
}

fn greedy_meets_the_table(units_per_block: u32, table: [(f64, f64); 10]) {
    for (spare, expected) in table {
        let found =
            measure(layout(spare, units_per_block, Cleaning::Greedy), State::Steady, 1.0, 1.0);
        assert_within(1.0, found, expected, &format!("{units_per_block} units, spare {spare}"));
    }
}

#[test]
fn greedy_with_16_units_per_block() {
    let spares = [0.05, 0.07, 0.10, 0.15, 0.20, 0.28, 0.30, 0.40, 0.50, 1.00];
    let expected = [6.79, 5.33, 4.34, 3.29, 2.72, 2.20, 2.11, 1.78, 1.59, 1.20];
    greedy_meets_the_table(16, std::array::from_fn(|at| (spares[at], expected[at])));
}

#[test]
fn greedy_with_64_units_per_block() {
    let spares = [0.05, 0.07, 0.10, 0.15, 0.20, 0.28, 0.30, 0.40, 0.50, 1.00];
    let expected = [9.24, 7.03, 5.26, 3.81, 3.06, 2.40, 2.30, 1.91, 1.68, 1.24];
    greedy_meets_the_table(64, std::array::from_fn(|at| (spares[at], expected[at])));
}

#[test]
fn greedy_with_256_units_per_block() {
    let spares = [0.05, 0.07, 0.10, 0.15, 0.20, 0.28, 0.30, 0.40, 0.50, 1.00];
    let expected = [10.46, 7.70, 5.62, 3.99, 3.17, 2.47, 2.35, 1.95, 1.71, 1.25];
    greedy_meets_the_table(256, std::array::from_fn(|at| (spares[at], expected[at])));
}
