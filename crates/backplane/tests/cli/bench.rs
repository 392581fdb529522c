//! Benchmarks: what is shown, not how fast it is.

use crate::common::Bench;

#[test]
fn a_folder_gets_a_file_that_goes_again() {
    let bench = Bench::new();
    let before = bench.snapshot();
    let line = "bench . --size 8M --time 20ms --ramp 0s --workload random-write --workload \
                database --queue-depth 1,4 --json";
    let shown = bench.line(line).well().json();
    let results = shown["results"].as_array().unwrap();
    let points: Vec<_> = results
        .iter()
        .map(|r| (r["workload"].as_str().unwrap(), r["queue_depth_asked"].as_u64().unwrap()))
        .collect();
    assert_eq!(
        points,
        [("random-write", 1), ("random-write", 4), ("database", 1), ("database", 4)]
    );
    // How many it were is the machine's affair; that they are counted is ours.
    assert!(results.iter().all(|result| result["writes"]["requests"].is_u64()), "{shown:#}");
    assert!(shown["direct_io"].is_boolean());
    assert_eq!(bench.snapshot(), before, "its file is removed");
}

#[test]
fn a_table_has_a_row_for_each_point_and_holes_are_named() {
    let bench = Bench::new();
    bench.drives(1);
    let ran = bench.line("bench d0 --time 20ms --ramp 0s --block-size 4K,64K").well();
    let text = ran.text();
    assert!(text.contains("workload") && text.contains("CPU/IO"), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("random-read")).count(), 2, "{text}");
    assert!(ran.stderr.contains("100 % of d0 were never written"), "{}", ran.stderr);
}

#[test]
fn targets_and_words_that_can_not_be_measured() {
    let bench = Bench::new();
    bench.drives(1);
    bench.line("bench model:hd").refused("model targets are not supported yet");
    bench.line("bench nbd://host:0/x").refused("is no port");
    bench.line("bench nbd+unix:///x").refused("names its socket");
    bench.line("bench nbd+unix:///x?socket=/nowhere").refused("/nowhere can't be reached");
    bench.line("bench model:disk").refused("model targets are not supported yet");
    bench.line("bench nowhere").refused("nowhere does not exist");
    bench.line("bench d0 --block-size 100").refused("100 bytes are no size for a request");
    let unknown = bench.line("bench d0 --workload nas");
    assert!(unknown.status == 2 && unknown.stderr.contains("file-server"), "{unknown:?}");
    let depth = bench.line("bench d0 --queue-depth 0");
    assert_eq!(depth.status, 2);
}
