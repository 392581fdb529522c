//! Plans that are right, and every way of being wrong.

use super::*;
use crate::units::NS_PER_SECOND;

fn parse(text: &str) -> Result<Plan, Box<PlanError>> {
    Plan::parse("p.toml", text)
}

const GOOD: &str = r#"
title = "Two levels"
seed = 7
data = "zeros"

[defaults]
time = "2s"
ramp = "500ms"
working_set = "256M"
drives = { count = 4, size = "1G" }

[[subjects]]
name = "One drive"

[[subjects]]
name = "RAID 5"
level = "raid5"
chunk = "64K"
layout = "left-symmetric"

[[subjects]]
name = "Two of ours"
level = "raid1"
drives = ["/dev/sdb", "/dev/sdc"]

[[subjects]]
name = "NAS"
target = "nbd://nas.example/export"

[[tests]]
name = "Sequential read"
workload = "sequential-read"
block_sizes = { from = "4K", to = "1M", factor = 4 }
queue_depths = [4]

[[tests]]
name = "File server"
workload = "file-server"
queue_depths = [16, 1]
time = "5s"

[[tests]]
name = "Ours"
workload = { lines = [{ size = "8K", share = 60, read = 67 }, { size = "64K", share = 40, random = 0, alignment = 512 }] }
"#;

#[test]
fn a_good_plan_says_what_it_says() {
    let plan = parse(GOOD).unwrap();
    assert_eq!((plan.title.as_str(), plan.seed, plan.data), ("Two levels", 7, DataPattern::Zeros));
    assert_eq!(plan.scratch, "scratch");
    let names: Vec<_> = plan.subjects.iter().map(|subject| subject.name.as_str()).collect();
    assert_eq!(names, ["One drive", "RAID 5", "Two of ours", "NAS"]);
    // The first single drive is the baseline if no one else claims it.
    assert!(plan.subjects[0].baseline && !plan.subjects[1].baseline);
    let scratch = |index| DriveSource::Scratch { index, size_bytes: 1 << 30 };
    assert_eq!(plan.subjects[0].storage, Storage::Drive(scratch(0)));
    let Storage::Array { members, shape } = &plan.subjects[1].storage else {
        panic!("not an array")
    };
    assert_eq!(*members, (0..4).map(scratch).collect::<Vec<_>>());
    assert_eq!(shape.level, geometry::Level::Raid5);
    assert_eq!(shape.layout, 2);
    assert_eq!(shape.chunk_bytes, Some(64 << 10));
    assert_eq!(plan.subjects[3].storage, Storage::Target("nbd://nas.example/export".into()));

    assert_eq!(plan.tests[0].block_sizes, [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20]);
    assert_eq!(plan.tests[0].working_set_bytes, Some(256 << 20));
    assert_eq!(plan.tests[0].interval_ns(), 200_000_000);
    assert_eq!(plan.tests[1].queue_depths, [1, 16]);
    assert_eq!(plan.tests[1].time_ns, 5 * NS_PER_SECOND);
    assert_eq!(plan.tests[1].spec.mean_request_bytes(), 11_345.92);
    assert_eq!(plan.tests[2].workload, INLINE);
    let lines = plan.tests[2].spec.lines();
    assert_eq!((lines[0].read_percent, lines[0].random_percent), (67, 100));
    assert_eq!((lines[0].alignment_bytes, lines[1].alignment_bytes), (None, Some(512)));
    assert_eq!(plan.tests[0].spec_at(Some(65_536)).unwrap().mean_request_bytes(), 65_536.0);

    let cells = plan.cells();
    assert_eq!(cells.len(), 4 * (5 + 2 + 1));
    assert_eq!(cells[5].block_bytes, None);
    assert!(cells.windows(2).all(|pair| pair[0].subject <= pair[1].subject));
    // 5 at 2.5 s, 2 at 5.5 s, 1 at 2.5 s, on each of 4 subjects.
    assert_eq!(plan.measuring_ns(), 4 * 26 * NS_PER_SECOND);
    assert_eq!(plan.written_paths(), ["/dev/sdb", "/dev/sdc", "nbd://nas.example/export"]);
}

/// A plan whose pieces can be exchanged one at a time.
fn with(subject: &str, test: &str) -> String {
    format!("title = \"t\"\n[[subjects]]\n{subject}\n[[tests]]\n{test}\n")
}

const SUBJECT: &str = "name = \"s\"\ndrives = { count = 1, size = \"1G\" }";
const TEST: &str = "name = \"t\"\nworkload = \"random-read\"";

#[test]
fn every_fault_has_its_place_and_words() {
    let array = |rest: &str| {
        with(&format!("name = \"s\"\ndrives = {{ count = 4, size = \"1G\" }}\n{rest}"), TEST)
    };
    let test = |rest: &str| with(SUBJECT, &format!("{TEST}\n{rest}"));
    let table: Vec<(String, &str, &str)> = vec![
        // unknown keys
        (
            array("levle = \"raid5\""),
            "5:1: unknown key `levle` in [[subjects]]",
            "did you mean `level`?",
        ),
        (
            format!("titel = \"x\"\n{}", with(SUBJECT, TEST)),
            "1:1: unknown key `titel` in the plan",
            "did you mean `title`?",
        ),
        (
            test("colour = 1"),
            "8:1: unknown key `colour` in [[tests]]",
            "keys known here: name, workload, block_sizes, queue_depths, time, ramp, working_set",
        ),
        (
            with("name = \"s\"\ndrives = { count = 4, sizes = \"1G\" }", TEST),
            "4:23: unknown key `sizes` in drives",
            "did you mean `size`?",
        ),
        // wrong types
        (
            array("level = 5"),
            "5:9: `level` must be a text, not a whole number",
            "put it in quotation marks",
        ),
        (
            test("time = 10"),
            "8:8: `time` must be a duration: a text such as \"500ms\", \"10s\" or \"2m\", not a whole number",
            "a duration carries its unit",
        ),
        (
            test("queue_depths = 4"),
            "8:16: `queue_depths` must be a list or { from, to, factor }, not a whole number",
            "",
        ),
        (
            test("queue_depths = [1.5]"),
            "8:17: `queue_depths` must be a whole number, not a fraction",
            "",
        ),
        (
            test("block_sizes = [true]"),
            "8:16: `block_sizes` must be a size: bytes, or a text such as \"64K\", \"1M\" or \"10G\", not true or false",
            "",
        ),
        (
            "title = \"t\"\nsubjects = 1".into(),
            "2:12: `subjects` must be a list of tables: [[subjects]], not a whole number",
            "",
        ),
        (
            "title = \"t\"\nsubjects = [1]".into(),
            "2:13: `subjects` must be a table: [[subjects]], not a whole number",
            "",
        ),
        (array("baseline = \"yes\""), "5:12: `baseline` must be true or false, not a text", ""),
        (
            "title = \"t\"\ndata = \"noise\"".into(),
            "2:8: unknown data pattern `noise`",
            "known: random, zeros",
        ),
        (
            "title = \"t\"\ndata = { compresses_to = 0 }".into(),
            "2:26: `compresses_to` is 0, outside of 1 to 100",
            "",
        ),
        // impossible values
        (
            test("block_sizes = [\"4k\"]"),
            "8:16: `4k` is not a size: bytes, or a text such as \"64K\", \"1M\" or \"10G\"",
            "suffixes are K, M, G and T, in powers of 1024, without a space",
        ),
        (
            test("block_sizes = [1000]"),
            "8:16: `1000` is not a block size: a multiple of 512 bytes",
            "",
        ),
        (test("block_sizes = [0]"), "8:16: `block_sizes` is 0, outside of 512 to 64M", ""),
        (
            test("block_sizes = [\"128M\"]"),
            "8:16: `block_sizes` is 128M, outside of 512 to 64M",
            "",
        ),
        (
            test("block_sizes = [-4096]"),
            "8:16: `block_sizes` is not in the range of 64 bits, outside of 512 to 64M",
            "",
        ),
        (test("block_sizes = []"), "8:15: `block_sizes` is empty", ""),
        (test("queue_depths = [4, 4]"), "8:20: value `4` is there twice", ""),
        (test("queue_depths = [0]"), "8:17: `queue_depths` is 0, outside of 1 to 4096", ""),
        (test("time = \"1ms\""), "8:8: `time` is 1ms, outside of 10.0 ms to 24 h", ""),
        (
            test("time = \"10 s\""),
            "8:8: `10 s` is not a duration: a text such as \"500ms\", \"10s\" or \"2m\"",
            "units are ms, s, m and h, without a space",
        ),
        (
            test("block_sizes = [\"1M\"]\nworking_set = \"64K\""),
            "9:15: `working_set` is 64K, outside of 1M to 4194304T",
            "a working set holds at least one block",
        ),
        (array("level = \"raid7\""), "5:9: unknown level `raid7`", "did you mean `raid0`?"),
        (
            array("level = \"raid5\"\nchunk = \"48K\""),
            "6:9: `48K` is not a chunk: a power of two from 4K to 16M",
            "the next is 64K",
        ),
        (
            array("level = \"raid5\"\nchunk = \"32M\""),
            "6:9: `chunk` is 32M, outside of 4K to 16M",
            "",
        ),
        (
            array(""),
            "4:10: `drives` cannot be used here: level `single` takes one drive",
            "add a level such as \"raid0\"",
        ),
        (
            with("name = \"s\"\ndrives = [\"/dev/sdb\", \"/dev/sdb\"]", TEST),
            "4:23: drive `/dev/sdb` is there twice",
            "",
        ),
        (
            with("name = \"s\"\ndrives = { count = 0, size = \"1G\" }", TEST),
            "4:20: `count` is 0, outside of 1 to 384",
            "",
        ),
        (
            with("name = \"s\"\ndrives = { count = 4, size = \"1M\" }", TEST),
            "4:30: `size` is 1M, outside of 16M to 4194304T",
            "",
        ),
        (
            with("name = \"s\"\ntarget = \"/x\"\nlevel = \"raid5\"", TEST),
            "5:9: `level` cannot be used here: the subject is a target, opened as it is",
            "leave out either `target` or this",
        ),
        (
            with("name = \"s\"\ndrives = [\"/x\"]\nchunk = \"64K\"", TEST),
            "5:9: `chunk` cannot be used here: one drive alone has none",
            "add a level, or leave this out",
        ),
        (with("name = \" \"", TEST), "3:8: `name` is empty", ""),
        (
            with(&format!("{SUBJECT}\n[[subjects]]\n{SUBJECT}"), TEST),
            "6:8: subject `s` is there twice",
            "",
        ),
        (
            array("level = \"raid5\"\nlayout = \"diagonal\""),
            "6:10: unknown raid5 layout \"diagonal\"",
            "",
        ),
        (array("level = \"raid1\"\nlayout = \"near=2\""), "6:10: raid1 has no layouts", ""),
        (
            array("level = \"raid3\"\nchunk = \"64K\""),
            "6:9: `chunk` cannot be used here: raid3 has the smallest there is",
            "use raid4 for another chunk",
        ),
        (
            with("name = \"s\"\ndrives = [\"/a\", \"/b\", \"/c\"]\nlevel = \"raid6\"", TEST),
            "4:10: raid6 needs at least 4 members, got 3",
            "",
        ),
        // sweeps
        (
            test("block_sizes = { from = \"1M\", to = \"4K\" }"),
            "8:15: impossible sweep: it starts at 1M, above its end 4K",
            "exchange `from` and `to`",
        ),
        (
            test("queue_depths = { from = 1, to = 32, factor = 3 }"),
            "8:16: impossible sweep: from 1 in steps of 3 times it passes over 32",
            "choose a factor whose steps meet `to`, or list the values",
        ),
        (
            test("queue_depths = { from = 1, to = 32, factor = 1 }"),
            "8:46: `factor` is 1, outside of 2 to 1024",
            "",
        ),
        (test("queue_depths = { from = 1 }"), "8:16: a sweep has no `to`", "a sweep ends at `to`"),
        // workloads
        (
            with(SUBJECT, "name = \"t\"\nworkload = \"fileserver\""),
            "7:12: unknown workload `fileserver`",
            "did you mean `file-server`?",
        ),
        (
            with(SUBJECT, "name = \"t\"\nworkload = \"games\""),
            "7:12: unknown workload `games`",
            "known: file-server, web-server, database, workstation, streaming-read, streaming-write, sequential-read, sequential-write, random-read, random-write, mix-67-33, mix-33-67, access-time, access-time-write",
        ),
        (
            with(SUBJECT, "name = \"t\"\nworkload = { lines = [{ size = \"4K\", share = 60 }] }"),
            "7:22: the shares add up to 60 %, not to 100 %",
            "`share` is the percentage of all requests",
        ),
        (
            with(SUBJECT, "name = \"t\"\nworkload = { lines = [{ size = \"4K\", read = 101 }] }"),
            "7:45: `read` is 101, outside of 0 to 100",
            "",
        ),
        (
            with(SUBJECT, "name = \"t\"\nworkload = \"file-server\"\nblock_sizes = [\"4K\"]"),
            "8:15: the access specification mixes request sizes, one size can't replace them",
            "leave `block_sizes` out, or use a workload of one size",
        ),
        // missing
        ("".into(), "1:1: the plan has no `title`", "add title = \"…\" at the top"),
        (
            "title = \"t\"".into(),
            "1:1: the plan has no `subjects`",
            "add a [[subjects]] with a name and its drives",
        ),
        (
            with("name = \"s\"", TEST),
            "2:1: [[subjects]] has no `drives`",
            "give drives = { count = 4, size = \"1G\" } or a list of paths",
        ),
        (
            with(SUBJECT, "name = \"t\""),
            "5:1: [[tests]] has no `workload`",
            "give a name of the catalogue or { lines = [...] }",
        ),
        // not TOML
        (
            "title = ".into(),
            "1:9: not valid TOML: string values must be quoted, expected literal string",
            "",
        ),
        ("title = \"t\"\ntitle = \"u\"".into(), "2:1: not valid TOML: duplicate key", ""),
    ];
    for (text, expected, hint) in table {
        let error = parse(&text).expect_err(&text);
        let place = format!("{}:{}: {}", error.line, error.column, error.kind);
        assert_eq!(place, expected, "in\n{text}");
        assert_eq!(error.hint.as_deref().unwrap_or(""), hint, "in\n{text}");
        let line = text.lines().nth(error.line - 1).unwrap_or("");
        assert_eq!(error.source_line, line, "in\n{text}");
    }
}

#[test]
fn an_error_shows_its_line_and_mark() {
    let error = parse(&with("name = \"s\"\n\tlevle = \"raid5\"", TEST)).unwrap_err();
    let expected = "p.toml:4:2: unknown key `levle` in [[subjects]]\n   \
                    4 | \tlevle = \"raid5\"\n     \
                    | \t^^^^^\n\
                    hint: did you mean `level`?";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_plan_of_a_year_is_refused() {
    let sizes: Vec<String> = (1..=1000).map(|blocks| (blocks * 512).to_string()).collect();
    let depths: Vec<String> = (1..=1000).map(|depth| depth.to_string()).collect();
    let text = with(
        SUBJECT,
        &format!(
            "{TEST}\nblock_sizes = [{}]\nqueue_depths = [{}]",
            sizes.join(","),
            depths.join(",")
        ),
    );
    let error = parse(&text).unwrap_err();
    assert_eq!(error.kind.to_string(), "the plan has 1000000 cells, more than 100000");
}

#[test]
fn a_cut_or_garbled_plan_never_panics() {
    for end in (0..GOOD.len()).filter(|&end| GOOD.is_char_boundary(end)) {
        // Most are errors; those that cut between two tests are plans.
        if let Err(error) = parse(&GOOD[..end]) {
            assert!(!error.to_string().is_empty());
        }
        let garbled = format!("{}\u{0}ü=[{{{}", &GOOD[..end], &GOOD[end..]);
        assert!(parse(&garbled).is_err());
    }
}

#[test]
fn the_first_look_fits_into_three_minutes() {
    let text = include_str!("../../../../plans/first-look.toml");
    let plan = Plan::parse("plans/first-look.toml", text).unwrap();
    assert_eq!(plan.subjects.len(), 6);
    assert_eq!(plan.cells().len(), 6 * 16);
    // 40 of the 180 seconds are for making the drives and building the arrays.
    assert!(plan.measuring_ns() <= 140 * NS_PER_SECOND, "{}", plan.measuring_ns());
    assert_eq!(plan.written_paths(), Vec::<&str>::new());
}
