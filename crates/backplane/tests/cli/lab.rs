//! Plans, runs and reports.

use std::fs;

use crate::common::Bench;

const PLAN: &str = r#"
title = "Small"
scratch = "scratch"

[defaults]
time = "20ms"
ramp = "1ms"
working_set = "1M"
drives = { count = 2, size = "16M" }

[[subjects]]
name = "One drive"
level = "single"

[[subjects]]
name = "RAID 1"
level = "raid1"

[[tests]]
name = "Random read"
workload = "random-read"
queue_depths = [1]
"#;

#[test]
fn a_plan_is_measured_reported_listed_and_reported_again() {
    let bench = Bench::new();
    fs::write(bench.path("plan.toml"), PLAN).unwrap();
    let ran = bench.line("lab run plan.toml --out runs/first").well();
    assert!(ran.text().contains("Random read") && ran.text().contains("RAID 1"), "{ran:?}");
    assert!(ran.text().ends_with("report: runs/first/report.html\n"), "{ran:?}");
    let page = fs::read_to_string(bench.path("runs/first/report.html")).unwrap();
    assert!(page.contains("<title>Small"));
    assert!(bench.line("lab list").well().text().contains("Small"));
    bench.line("lab report runs/first --out again").well();
    assert_eq!(fs::read_to_string(bench.path("again/report.html")).unwrap(), page);
    let json = bench.line("lab report runs/first --json").well().json();
    assert!(json["schema"].is_number());
    bench.line("lab run plan.toml --out runs/first").refused("already holds a run");
    // It has ended: there is nothing to go on with.
    for words in ["--resume", "--resume --out runs/first", "--resume --out nowhere"] {
        let line = format!("lab run plan.toml {words}");
        bench.line(&line).refused("no interrupted run of this plan in ");
    }
    let left = fs::read_dir(bench.path("scratch")).into_iter().flatten().count();
    assert_eq!(left, 0, "the drives are removed");
}

/// Unknown keys, wrong types, impossible sweeps: each points at its place.
#[test]
fn bad_plans_point_at_their_place() {
    let bench = Bench::new();
    let changes = [
        ("queue_depths", "queue_deepths", "plan.toml:22:1: "),
        ("[1]", "\"many\"", "plan.toml:22:16: "),
        ("[1]", "{ from = 8, to = 1 }", "plan.toml:22:"),
        ("raid1\"", "raid7\"", "plan.toml:17:9: "),
    ];
    for (from, to, place) in changes {
        fs::write(bench.path("plan.toml"), PLAN.replace(from, to)).unwrap();
        let ran = bench.line("lab run plan.toml");
        assert_eq!(ran.status, 2, "{ran:?}");
        assert!(ran.stderr.starts_with(&format!("error: {place}")), "{to}: {ran:?}");
        assert!(ran.stderr.contains(to.trim_matches('"')) && ran.stderr.contains("^"), "{ran:?}");
        assert!(!bench.path("runs").exists());
    }
    bench.line("lab run nowhere.toml").refused("nowhere.toml can't be read");
}

/// Drives that a plan names are written to only when that is allowed, and what they hold is named.
#[test]
fn drives_of_a_plan_are_guarded() {
    let bench = Bench::new();
    bench.drives(2);
    bench.line("array create old --level raid1 d0 d1").well();
    let drives = r#"["d0", "d1"]"#;
    let plan = PLAN.replace("{ count = 2, size = \"16M\" }", drives);
    fs::write(bench.path("plan.toml"), plan).unwrap();
    let before = bench.snapshot();
    bench.line("lab run plan.toml").refused("this plan writes to d0, d1");
    let error = bench.line("lab run plan.toml --allow-write").refused("would be destroyed").stderr;
    assert!(error.contains("--yes-destroy old"), "{error}");
    assert_eq!(bench.snapshot(), before);
    bench.line("lab run plan.toml --allow-write --yes-destroy old").well();
}

#[test]
fn workloads_are_listed() {
    let bench = Bench::new();
    assert!(bench.line("lab workloads").well().text().contains("file-server"));
    let json = bench.line("lab workloads --json").well().json();
    assert_eq!(json["schema"], 1);
    assert!(json["workloads"].as_array().unwrap().len() > 10);
    assert_eq!(bench.line("lab list").well().text(), "no runs in runs\n");
    bench.line("lab report nowhere").refused("no run in nowhere");
}
