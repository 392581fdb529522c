//! Checks and repairs of a served array, and what they say.

use std::process::Child;

use crate::common::Bench;
use crate::serve::wait_for_start;

/// An array of drives with zeroes on it, in which `rot` has changed a byte at the start of the
/// data of `d1`.
fn rotten(bench: &Bench, level: &str, members: usize) -> Child {
    let names = bench.drives(members);
    bench.line(&format!("array create data --level {level} {names} --assume-clean")).well();
    let examined = bench.line("drive examine d1 --json").well().json();
    let start = examined["drives"][0]["superblocks"][0]["data_offset_bytes"].as_u64().unwrap();
    bench.poke("d1", start + 100, &[0xee]);
    let mut server = bench.spawn("array serve . --nbd unix:socket");
    wait_for_start(&mut server);
    server
}

fn stop(bench: &Bench, mut server: Child) {
    bench.line("array stop data");
    server.wait().unwrap();
}

/// Where the first finding of the last check lies, and how much it is.
fn left_finding(bench: &Bench) -> (u64, u64) {
    let shown = bench.line("array show data --json").json();
    let finding = &shown["array"]["scrub"]["findings"][0];
    (finding["array_offset"].as_u64().unwrap(), finding["bytes"].as_u64().unwrap())
}

#[test]
fn before_the_first_check_nothing_is_claimed() {
    let bench = Bench::new();
    bench.drives(2);
    bench.line("array create data --level raid1 d0 d1 --assume-clean").well();
    let shown = bench.line("array show d0 d1").well().text();
    assert!(shown.contains("no check has run"), "{shown}");
    let shown = bench.line("array show d0 d1 --json").well().json();
    assert!(shown["array"]["scrub"].is_null());
}

#[test]
fn a_raid6_repair_finds_the_wrong_member_and_mends_only_that() {
    let bench = Bench::new();
    let server = rotten(&bench, "raid6 --chunk 4K", 4);
    let others = ["d0", "d2", "d3"].map(|name| bench.peek(name, 2 << 20, 4 << 20));
    let checked = bench.line("array check data");
    assert_eq!(checked.status, 1, "{checked:?}");
    assert!(checked.text().contains("slot:1 is wrong, left as it is"), "{checked:?}");
    let repaired = bench.line("array repair data");
    assert!(repaired.text().contains("slot:1 is wrong, mended"), "{repaired:?}");
    let checked = bench.line("array check data").well();
    assert!(checked.text().contains("no mismatch in "), "{checked:?}");
    stop(&bench, server);
    assert_eq!(["d0", "d2", "d3"].map(|name| bench.peek(name, 2 << 20, 4 << 20)), others);
    // It survives the end of the service.
    let shown = bench.line("array show . --json").well().json();
    assert_eq!(shown["array"]["scrub"]["mismatched_bytes"], 0);
}

#[test]
fn c25_where_nobody_can_know_nothing_is_changed_unless_told() {
    let bench = Bench::new();
    let server = rotten(&bench, "raid5 --chunk 4K", 3);
    assert_eq!(bench.line("array check data").status, 1);
    let left = bench.line("array repair data");
    assert_eq!(left.status, 1, "{left:?}");
    assert!(left.text().contains("one of slot:"), "{left:?}");
    assert!(left.text().contains("left as it is"), "{left:?}");
    // C25: which parts of the array those are, for tools that know what lies there.
    let finding = left_finding(&bench);
    assert_eq!(bench.line("array show data --map map").status, 1);
    let map = std::fs::read_to_string(bench.path("map")).unwrap();
    let place = format!("{:#x} {:#x} -\n", finding.0, finding.1);
    assert!(map.contains(&place), "no {place} in {map}");
    bench.line("array show data --map map").refused("map is not written");
    assert_eq!(bench.line("array repair data --save kept").status, 2, "only with --trust-data");
    let told = bench.line("array repair data --trust-data --save kept").well();
    assert!(told.text().contains("made to agree as told"), "{told:?}");
    let kept = std::fs::read_dir(bench.path("kept")).unwrap().count();
    assert!(kept >= 3, "both contents of each member: {kept} files");
    bench.line("array repair data --trust-data --save kept").well();
    bench.line("array check data").well();
    bench.line("array check data --cancel").refused("no check or repair of data is under way");
    stop(&bench, server);
}
