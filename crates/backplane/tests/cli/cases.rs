//! Cases from public reports, each named after its row.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use crate::common::{Bench, corpus, digest, unpack};
use crate::serve::wait_for_start;

/// Arrays of three metadata versions side by side: all are found and read.
#[test]
fn a03_versions_side_by_side_all_start() {
    let Some(corpus) = corpus() else {
        println!("skipped: a03_versions_side_by_side: needs the corpus (BACKPLANE_CORPUS)");
        return;
    };
    let bench = Bench::new();
    let sets = ["linear-3-unequal-v090", "raid5-4-c64-v11-bitmap", "raid5-3-c512-v12"];
    for (number, set) in sets.into_iter().enumerate() {
        unpack(&corpus, set, &bench.path("."), &format!("{number}-"));
    }
    let scan = bench.line("array scan . --json").well().json();
    let mut versions: Vec<_> = scan["arrays"].as_array().unwrap().iter().collect();
    versions.sort_by_key(|array| array["metadata"].to_string());
    let versions: Vec<_> = versions.iter().map(|a| (&a["metadata"], &a["state"])).collect();
    let healthy = &"healthy".into();
    let expected = ["0.90", "1.1", "1.2"].map(serde_json::Value::from);
    assert_eq!(versions, expected.iter().map(|v| (v, healthy)).collect::<Vec<_>>());
}

/// A mirror whose other half is gone is read, and is said to be degraded.
#[test]
fn a05_half_a_mirror_is_degraded_and_readable() {
    let bench = Bench::new();
    bench.drives(2);
    bench.line("array create data --level raid1 d0 d1 --assume-clean").well();
    let whole = bench.line("array extract . --to -").well();
    fs::remove_file(bench.path("d1")).unwrap();
    let half = bench.line("array extract . --to -");
    assert_eq!((half.status, digest(&half.stdout)), (1, digest(&whole.stdout)));
    assert!(half.stderr.contains("data is degraded: no member for slot 1"), "{}", half.stderr);
}

/// Create instead of assemble: refused, and says what there is.
#[test]
fn a07_create_over_a_live_array_needs_its_name() {
    let bench = Bench::new();
    bench.drives(3);
    bench.line("array create precious --level raid5 d0 d1 d2").well();
    let before = bench.snapshot();
    let error = bench.line("array create new --level raid5 d2 d1 d0").refused("precious").stderr;
    for words in ["raid5 of 3 members", "last used 20", "--yes-destroy precious"] {
        assert!(error.contains(words), "no {words:?} in {error}");
    }
    bench.line("array create new --level raid5 d2 d1 d0 --yes-destroy other").refused("other");
    assert_eq!(bench.snapshot(), before);
    bench.line("array create new --level raid5 d2 d1 d0 --yes-destroy precious").well();
    let scan = bench.line("array scan . --json").well().json();
    assert_eq!(scan["arrays"].as_array().unwrap().len(), 1, "nothing of the old one is left");
}

/// A header of a former array at the drive's end, behind a newer one.
#[test]
fn a09_a_ghost_is_listed_and_never_started() {
    let Some(corpus) = corpus() else {
        println!("skipped: a09_a_ghost: needs the corpus (BACKPLANE_CORPUS)");
        return;
    };
    let bench = Bench::new();
    unpack(&corpus, "linear-3-unequal-v090", &bench.path("."), "old-");
    let bytes = fs::metadata(bench.path("old-d0.img")).unwrap().len();
    bench.line(&format!("drive create d0 d1 --size {bytes}")).well();
    bench.line("array create data --level raid1 d0 d1 --assume-clean").well();
    let place = (bytes & !0xffff) - 0x10000;
    bench.poke("d0", place, &bench.peek("old-d0.img", place, 4096));
    let scan = bench.line("array scan d0 d1 --json").well().json();
    let arrays = scan["arrays"].as_array().unwrap();
    let states: Vec<_> = arrays.iter().map(|a| a["state"].as_str().unwrap()).collect();
    assert!(states.contains(&"healthy") && states.contains(&"ghost"), "{scan:#}");
    bench.line("array extract d0 d1 --to out").well();
}

/// Members whose header was overwritten by a blank one are no spares.
#[test]
fn a12_a_blank_header_is_no_spare() {
    let Some(corpus) = corpus() else {
        println!("skipped: a12_a_blank_header: needs the corpus (BACKPLANE_CORPUS)");
        return;
    };
    let bench = Bench::new();
    unpack(&corpus, "linear-3-unequal-v090", &bench.path("."), "");
    let bytes = fs::metadata(bench.path("d0.img")).unwrap().len();
    let place = (bytes & !0xffff) - 0x10000;
    let mut words: Vec<u32> = bench
        .peek("d0.img", place, 4096)
        .chunks_exact(4)
        .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
        .collect();
    // The set's UUID, its disks, the checksum.
    for word in [5, 13, 14, 15, 10, 38] {
        words[word] = 0;
    }
    let sum: u64 = words.iter().map(|&word| u64::from(word)).sum();
    words[38] = (sum as u32).wrapping_add((sum >> 32) as u32);
    let header: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bench.poke("d0.img", place, &header);
    let scan = bench.line("array scan d0.img --json");
    assert_eq!((scan.status, &scan.json()["arrays"][0]["state"]), (1, &"blank".into()));
    let text = bench.line("array scan d0.img").text();
    assert!(text.contains("a blanked superblock") && !text.contains("spare"), "{text}");
}

/// One member of an old array and many things that are no drives: the scan ends, names the
/// incomplete one, and the others are as they were. Exit status 1 says that it was done and that
/// something is not well.
#[test]
fn a22_scan_is_robust_among_odd_things() {
    let bench = Bench::new();
    bench.drives(4);
    bench.line("array create old --level raid0 d0 d1").well();
    bench.line("array create good --level raid1 d2 d3 --assume-clean").well();
    fs::remove_file(bench.path("d1")).unwrap();
    for number in 0..30 {
        fs::write(bench.path(&format!("file{number}")), vec![number; 5000 + usize::from(number)])
            .unwrap();
    }
    fs::write(bench.path("empty"), "").unwrap();
    fs::create_dir(bench.path("folder")).unwrap();
    symlink("nowhere", bench.path("dangling")).unwrap();
    let fifo = Command::new("mkfifo").arg(bench.path("fifo")).status().unwrap();
    assert!(fifo.success());
    let scan = bench.line("array scan . --json");
    assert_eq!(scan.status, 1, "{scan:#?}");
    let json = scan.json();
    let state = |name: &str| {
        let arrays = json["arrays"].as_array().unwrap();
        let array = arrays.iter().find(|array| array["title"] == name).unwrap();
        assert_ne!(array["uuid"], "");
        (array["level"].clone(), array["state"].clone())
    };
    assert_eq!(state("old"), ("raid0".into(), "incomplete".into()));
    assert_eq!(state("good"), ("raid1".into(), "healthy".into()));
    assert_eq!(json["problems"], serde_json::json!([]));
}

/// A write benchmark is refused on whatever holds something, allowed or not.
#[test]
fn h01_a_write_benchmark_never_destroys_unnamed_data() {
    let bench = Bench::new();
    bench.drives(2);
    let write = "bench d0 --workload random-write --time 10ms --ramp 0s";
    bench.line(write).refused("workload random-write writes to d0");
    bench.line("array create data --level raid1 d0 d1").well();
    let before = bench.snapshot();
    let error = bench.line(&format!("{write} --allow-write")).refused("would be destroyed").stderr;
    assert!(error.contains("member of the raid1 array data"), "{error}");
    assert_eq!(bench.snapshot(), before);
    bench.line(&format!("{write} --allow-write --yes-destroy data")).well();
}

/// A device with a mounted file system, and the file behind it: nothing overrides that.
#[test]
fn h01_a_mounted_device_is_never_overwritten() {
    let bench = Bench::new();
    bench.line("drive create disk other --size 64M").well();
    let Some(mounted) = Mounted::new(&bench) else {
        println!("skipped: h01_a_mounted_device: needs root, losetup and mkfs.ext4");
        return;
    };
    let device = &mounted.device;
    let used = format!("{device} is in use");
    let error = bench.line(&format!("array create a --level raid1 {device} other")).refused(&used);
    assert!(error.stderr.contains("is mounted at "), "{}", error.stderr);
    let named = format!("array create a --level raid1 {device} other --yes-destroy {device}");
    bench.line(&named).refused(&used);
    bench.line("array create a --level raid1 disk other").refused("disk is in use");
    bench
        .line(&format!("array create a --level raid1 {device} disk"))
        .refused("are the same drive");
    let write = format!("bench {device} --workload random-write --allow-write");
    bench.line(&write).refused(&used);
}

/// The file `disk` as a loop device with a mounted file system, until this is dropped.
struct Mounted {
    device: String,
    at: std::path::PathBuf,
}

impl Mounted {
    fn new(bench: &Bench) -> Option<Mounted> {
        let at = bench.path("mounted");
        fs::create_dir(&at).unwrap();
        done("mkfs.ext4", &["-q", "-F", bench.path("disk").to_str()?])?;
        let device = done("losetup", &["-f", "--show", bench.path("disk").to_str()?])?;
        let mounted = Mounted { device: device.trim().to_owned(), at };
        done("mount", &[&mounted.device, mounted.at.to_str()?])?;
        Some(mounted)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        done("umount", &[self.at.to_str().unwrap_or_default()]);
        done("losetup", &["-d", &self.device]);
    }
}

/// What a program says, if it is there and succeeds.
fn done(program: &str, words: &[&str]) -> Option<String> {
    let output = Command::new(program).args(words).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Unequal members of a RAID 0: each size, and the zones they make.
#[test]
fn h07_unequal_members_show_sizes_and_zones() {
    let bench = Bench::new();
    bench.drives(1);
    bench.line("drive create small --size 4M").well();
    bench.line("array create data --level raid0 d0 small --chunk 64K").well();
    let shown = bench.line("array show d0 small").well().text();
    for words in ["zones", "slots  0 1", "slots  0\n", "8 MiB", "4 MiB", "unused"] {
        assert!(shown.contains(words), "no {words:?} in {shown}");
    }
}

/// Making the same array again from its members, in another order.
#[test]
fn h10_create_on_members_says_already_an_array() {
    let bench = Bench::new();
    bench.drives(3);
    bench.line("array create data --level raid5 d0 d1 d2").well();
    let error = bench
        .line("array create data --level raid5 d2 d0 d1")
        .refused("already an array - start it?");
    assert!(error.stderr.contains("array serve d2 d0 d1"), "{}", error.stderr);
}

/// Missing, empty, zeroed: three different messages.
#[test]
fn h13_missing_empty_and_zeroed_drives_are_told_apart() {
    let bench = Bench::new();
    bench.drives(3);
    bench.line("array create data --level raid1 d0 d1 --assume-clean").well();
    fs::write(bench.path("empty"), "").unwrap();
    bench.line("array scan d0 gone").refused("gone does not exist");
    let text = bench.line("array scan d0 empty d2").text();
    assert!(text.contains("empty is empty"), "{text}");
    assert!(text.contains("d2: no md metadata"), "{text}");
}

/// Several members behind one faulty bridge: without checksums nobody finds out when it is read,
/// and the status says so, whatever the level.
#[test]
fn b07_silent_changes_are_called_undetectable() {
    let table = [
        ("raid0 d0 d1", "undetectable", "undetectable: what a drive gives is believed"),
        ("raid1 d0 d1", "undecidable", "nobody can know which member is wrong"),
        ("raid5 d0 d1 d2", "undecidable", "nobody can know which member is wrong"),
        ("raid6 d0 d1 d2 d3", "mendable", "undetectable when read"),
        ("raid1 d0 d1 d2", "mendable", "undetectable when read"),
    ];
    for (level, word, words) in table {
        let bench = Bench::new();
        bench.drives(4);
        bench.line(&format!("array create data --assume-clean --level {level}")).well();
        let shown = bench.line("array show .").text();
        assert!(shown.contains("undetectable") && shown.contains(words), "{level}: {shown}");
        let array = bench.line("array show . --json").json()["array"].clone();
        assert_eq!(array["silent_changes"], word, "{level}");
    }
}

/// ... with checksums it is noticed, once every block has one.
#[test]
fn b07_silent_changes_are_noticed_with_checksums() {
    let bench = Bench::new();
    bench.drives(3);
    bench.line("array create data --assume-clean --checksums --level raid5 d0 d1 d2").well();
    let mut server = bench.spawn("array serve . --nbd unix:socket");
    wait_for_start(&mut server);
    let checksums = || {
        let array = bench.line("array show data --json").json()["array"].clone();
        let (checksums, changes) = (array["checksums"].clone(), &array["silent_changes"]);
        // Both are of the array that is served, not of what the members say of it.
        assert_eq!(checksums == "valid", changes == "answered", "{checksums} {changes}");
        checksums
    };
    let mut last = checksums();
    for _ in 0..600 {
        if last == "valid" {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
        last = checksums();
    }
    assert_eq!(last, "valid");
    bench.line("array stop data").well();
    server.wait_with_output().unwrap();
    assert!(bench.line("array show .").text().contains("noticed by checksums"));
}

/// One array's metadata is torn: the other of the same process serves, and this one says what it
/// lacks.
#[test]
fn b04_a_damaged_array_keeps_no_other_from_service() {
    let bench = Bench::new();
    bench.drives(4);
    bench.line("array create one --level raid0 d0 d1").well();
    bench.line("array create two --level raid1 d2 d3 --assume-clean").well();
    bench.poke("d1", 4096 + 80, &[0x5a; 100]);
    let mut server = bench.spawn("array serve . --nbd unix:socket");
    wait_for_start(&mut server);
    bench.line("array show two").well();
    let scan = bench.line("array scan d0 d1");
    assert!(scan.text().contains("d1: damaged md superblock 1.2 at byte 4096"), "{scan:?}");
    bench.line("array stop two").well();
    let said = server.wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&said.stderr).contains("one is incomplete"), "{said:?}");
}

/// What to pull: the slot as it is printed, the path, the size; model and serial number where the
/// drive has some. Pulling another one is refused, and it comes back when it is put in again.
#[test]
fn h02_the_failed_drive_is_named_and_a_wrong_pull_is_no_end() {
    let bench = Bench::new();
    bench.drives(3);
    let create = "array create data --level raid1 d0 d1 d2 --consistency bitmap --assume-clean";
    bench.line(create).well();
    let mut server = bench.spawn("array serve d0 d1 d2 --nbd unix:socket");
    wait_for_start(&mut server);
    let failed = bench.line("array fail data d1");
    let text = failed.text();
    let row = text.lines().find(|line| line.contains("slot:1")).unwrap().to_owned();
    assert!(row.contains("d1") && row.contains("8 MiB") && row.contains("failed"), "{text}");
    let members = bench.line("array show data --json").json()["array"]["members"].clone();
    for key in ["slot", "drive", "size_bytes", "model", "serial"] {
        assert!(members[1].get(key).is_some(), "no {key} in {members}");
    }
    // The wrong one: the state says so at once, and the last one is not given away.
    let wrong = bench.line("array fail data slot:0");
    assert!(wrong.text().contains("slot 0: "), "{wrong:?}");
    bench.line("array remove data slot:2").refused("data can't do without slot 2");
    bench.line("array add data d0");
    let again = bench.line("array add data d1").well();
    assert!(again.text().contains("re-added to slot:1"), "{again:?}");
    assert!(again.text().contains("data: healthy"), "{again:?}");
    bench.line("array stop data").well();
    server.wait().unwrap();
}

/// A replacement 344 sectors smaller fits what is made by default.
#[test]
fn i01_a_slightly_smaller_spare_fits() {
    let bench = Bench::new();
    let bytes = 2_u64 << 30;
    let smaller = bytes - 344 * 512;
    bench.line(&format!("drive create d0 d1 --size {bytes}")).well();
    bench.line(&format!("drive create spare --size {}", smaller / 4096 * 4096)).well();
    let line = "array create data --level raid1 d0 d1 --spare spare --assume-clean";
    let plan = bench.line(line).well().text();
    assert!(plan.contains("so that a replacement a little smaller fits"), "{plan}");
}
