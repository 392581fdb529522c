//! Arrays made, found, shown and read out.

use crate::common::{Bench, digest};

/// Every level, from files to the scan.
#[test]
fn every_level_is_made_and_found() {
    let levels = [
        ("linear", 2, "linear"),
        ("jbod", 2, "linear"),
        ("raid0", 3, "raid0"),
        ("raid1", 2, "raid1"),
        ("raid3", 3, "raid4"),
        ("raid4", 3, "raid4"),
        ("raid5", 3, "raid5"),
        ("raid6", 4, "raid6"),
        ("raid10", 3, "raid10"),
    ];
    for (level, drives, found) in levels {
        let bench = Bench::new();
        let names = bench.drives(drives);
        let made = bench.line(&format!("array create data --level {level} {names}")).well();
        assert!(made.text().contains("created data\n"), "{made:#?}");
        let scan = bench.line("array scan . --json").well().json();
        let array = &scan["arrays"][0];
        assert_eq!((&scan["schema"], &array["level"]), (&1.into(), &found.into()), "{level}");
        assert_eq!(array["title"], "data");
        let members = array["members"].as_array().unwrap();
        assert_eq!(members.len(), drives, "{level}");
        let chunk = if level == "raid3" { 4096 } else { 524_288 };
        if !["linear", "jbod", "raid1"].contains(&level) {
            assert_eq!(array["chunk_bytes"], chunk, "{level}");
        }
    }
}

#[test]
fn what_is_known_about_an_array_is_shown() {
    let bench = Bench::new();
    bench.drives(3);
    bench.line("array create data --level raid5 d0 d1 d2 --chunk 64K --assume-clean").well();
    let shown = bench.line("array show d0 d1 d2").well().text();
    for words in ["data: healthy, raid5 of 3", "left-symmetric", "64 KiB (65536 bytes)", "agrees"] {
        assert!(shown.contains(words), "no {words:?} in {shown}");
    }
    let shown = bench.line("array show d0 d1").text();
    assert!(shown.contains("data: degraded") && shown.contains("no member for slot 2"), "{shown}");
    let shown = bench.line("array show d0 d1 --json");
    assert_eq!((shown.status, &shown.json()["array"]["health"]), (1, &"degraded".into()));
    let alone = bench.line("array show d0 --json").json()["array"].clone();
    assert_eq!((&alone["state"], &alone["health"]), (&"incomplete".into(), &"failed".into()));
}

/// The record of writes in flight, and the engine's one word for how an array is.
#[test]
fn the_record_of_writes_in_flight_is_shown() {
    let bench = Bench::new();
    let table = [
        ("bitmap", "bitmap       64 MiB a bit, 0 of 1 dirty"),
        ("ppl", "log          1 MiB"),
        ("journal=d3", "journal      d3"),
        ("resync", "resync: all of it"),
    ];
    for (policy, words) in table {
        let names = "d0 d1 d2 d3";
        bench.line(&format!("drive create {names} --size 16M")).well();
        let create = "array create data --level raid5 --assume-clean d0 d1 d2";
        bench.line(&format!("{create} --consistency {policy}")).well();
        let shown = bench.line("array show d0 d1 d2 d3").well().text();
        assert!(shown.contains(words), "{policy}: {shown}");
        let array = bench.line("array show . --json").well().json()["array"].clone();
        assert_eq!(array["health"], "healthy", "{policy}");
        assert_eq!(array["bitmap"]["chunks"].is_u64(), policy == "bitmap");
        assert_eq!(array["partial_parity_log"]["member_bytes"].is_u64(), policy == "ppl");
        assert_eq!(array["journal"]["drive"].is_string(), policy.starts_with("journal"));
        names.split(' ').for_each(|name| std::fs::remove_file(bench.path(name)).unwrap());
    }
}

/// A nested array is found through its parts, and is no better than they are.
#[test]
fn nested_arrays_are_made_found_and_read() {
    let bench = Bench::new();
    let names = bench.drives(6);
    let create =
        format!("array create big --level raid50 --spans 2 --chunk 4K --assume-clean {names}");
    bench.line(&create).well();
    let scan = bench.line("array scan . --json").well().json();
    let titles: Vec<_> = scan["arrays"].as_array().unwrap().iter().map(|a| &a["title"]).collect();
    assert_eq!(titles, ["big", "big-1", "big-2"]);
    assert_eq!(scan["arrays"][0]["chunk_bytes"], 8192, "a full stripe of a span");
    let whole = bench.line("array extract . --to -").well();
    let degraded = bench.line("array extract d0 d2 d4 d5 --to -");
    assert_eq!((degraded.status, digest(&degraded.stdout)), (1, digest(&whole.stdout)));
    let scan = bench.line("array scan d0 d2 d4 d5 --json");
    assert_eq!((scan.status, &scan.json()["arrays"][0]["state"]), (1, &"degraded".into()));
}

#[test]
fn the_content_is_copied_sparse_and_never_over_something() {
    use std::os::unix::fs::MetadataExt;
    let bench = Bench::new();
    bench.drives(2);
    bench.line("array create data --level raid1 d0 d1 --assume-clean").well();
    // Data starts behind 1 MiB.
    for drive in ["d0", "d1"] {
        bench.poke(drive, (1 << 20) + 100, b"hello");
    }
    bench.line("array extract d0 d1 --to out").well();
    assert_eq!(bench.peek("out", 100, 5), b"hello");
    let status = std::fs::metadata(bench.path("out")).unwrap();
    assert_eq!(status.len(), 7 << 20);
    assert!(status.blocks() * 512 < 1 << 20, "holes stay holes");
    bench.line("array extract d0 d1 --to out").refused("out exists and is not empty");
    bench.line("array extract d0 d1 --to out --force").well();
    bench.line("array extract d0 d1 --to .").refused("is not a regular file");
    std::fs::File::create(bench.path("empty")).unwrap();
    bench.line("array extract d0 --to empty");
    assert_eq!(bench.peek("empty", 100, 5), b"hello");
}

#[test]
fn one_of_several_arrays_is_chosen_by_name_or_uuid() {
    let bench = Bench::new();
    bench.drives(4);
    bench.line("array create one --level raid1 d0 d1 --assume-clean").well();
    bench.line("array create two --level raid1 d2 d3 --assume-clean").well();
    bench.line("array extract . --to out").refused("these drives hold 2 arrays");
    bench.line("array extract . --to out --array three").refused("no array is called \"three\"");
    bench.line("array extract . --to out --array two").well();
    let shown = bench.line("array show . --array one --json").well().json();
    let uuid = shown["array"]["uuid"].as_str().unwrap().replace(':', "").to_uppercase();
    bench.run(&["array", "show", ".", "--array", &uuid]).well();
}

#[test]
fn a_dry_run_writes_nothing() {
    let bench = Bench::new();
    bench.drives(3);
    let before = bench.snapshot();
    let plan = bench.line("array create data --level raid5 d0 d1 d2 --dry-run").well();
    assert!(plan.text().starts_with("data: raid5 of 3, left-symmetric, chunk 512 KiB, size "));
    assert!(plan.text().contains("write hole"), "{plan:#?}");
    assert_eq!(bench.snapshot(), before);
}

#[test]
fn a_missing_member_leaves_its_slot_open() {
    let bench = Bench::new();
    bench.drives(2);
    bench.line("array create data --level raid5 d0 missing d1").well();
    let scan = bench.line("array scan . --json");
    assert_eq!(scan.status, 1);
    assert_eq!(scan.json()["arrays"][0]["missing_slots"], serde_json::json!([1]));
}

/// Looking never writes.
#[test]
fn looking_changes_no_byte() {
    let bench = Bench::new();
    bench.drives(4);
    bench.line("array create data --level raid5 d0 d1 d2 --spare d3").well();
    let before = bench.snapshot();
    for line in
        ["array scan .", "array show d0 d1 d2", "drive examine d0 d3", "array extract . --to -"]
    {
        bench.line(line).well();
    }
    assert_eq!(bench.snapshot(), before);
}
