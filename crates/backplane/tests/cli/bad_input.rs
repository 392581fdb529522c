//! Bad input: each a clear error with a hint, and nothing written. Every test is one row of what
//! the command line promises.

use std::fs::File;
use std::os::unix::fs::symlink;
use std::process::Command;

use format::md::{Place, SUPERBLOCK_BYTES, Superblock, Version};

use crate::common::{BACKPLANE, Bench};

/// Refused, with this fact, and not a byte changed.
#[track_caller]
fn refused(bench: &Bench, line: &str, fact: &str) -> String {
    let before = bench.snapshot();
    let ran = bench.line(line).refused(fact);
    assert!(bench.snapshot() == before, "{line} has written");
    ran.stderr
}

#[test]
fn too_few_members() {
    let bench = Bench::new();
    bench.drives(3);
    refused(&bench, "array create a --level raid5 d0", "raid5 needs at least 2 slots and has 1");
    refused(&bench, "array create a --level raid6 d0 d1 d2", "raid6 needs at least 4 slots");
    refused(&bench, "array create a --level raid5 d0 missing missing", "with 2 members missing");
    refused(&bench, "array create a --level raid50 d0 d1 d2", "can't be divided into 2 spans");
}

#[test]
fn members_of_different_size() {
    let bench = Bench::new();
    bench.drives(2);
    bench.line("drive create large --size 12M").well();
    let plan = bench.line("array create a --level raid5 d0 d1 large --assume-clean").well().text();
    assert!(plan.contains("4 MiB (4194304 bytes): the smallest is d0"), "{plan}");
}

#[test]
fn the_same_drive_twice_also_by_another_name() {
    let bench = Bench::new();
    bench.drives(2);
    symlink(bench.path("d0"), bench.path("link")).unwrap();
    std::fs::hard_link(bench.path("d0"), bench.path("hard")).unwrap();
    for other in ["d0", "./d0", "link", "hard"] {
        let line = format!("array create a --level raid5 d0 d1 {other}");
        refused(&bench, &line, &format!("d0 and {other} are the same drive"));
        let line = format!("array create a --level raid1 d0 d1 --spare {other}");
        refused(&bench, &line, "are the same drive");
    }
}

/// A table of things by their magics; what each is called comes from the format room.
fn occupied() -> Vec<(&'static str, u64, Vec<u8>)> {
    let mut mbr = vec![0; 512];
    mbr[446 + 4] = 0x83;
    mbr[446 + 8..446 + 16].copy_from_slice(&[0, 8, 0, 0, 0, 8, 0, 0]);
    mbr[510..].copy_from_slice(&[0x55, 0xaa]);
    let mut luks = b"LUKS\xba\xbe\x00\x01".to_vec();
    luks.resize(592, 0);
    let mut lvm = b"LABELONE\x01\0\0\0\0\0\0\0\0\0\0\0\x20\0\0\0LVM2 001".to_vec();
    lvm.resize(512, 0);
    let mut xfs = b"XFSB\0\0\x10\0".to_vec();
    xfs.resize(512, 0);
    vec![
        ("MBR partition table", 0, mbr),
        ("LUKS1", 0, luks),
        ("LVM2 physical volume", 512, lvm),
        ("xfs", 0, xfs),
        ("swap", 4086, b"SWAPSPACE2".to_vec()),
    ]
}

#[test]
fn a_drive_that_holds_something() {
    for (what, offset, bytes) in occupied() {
        let bench = Bench::new();
        bench.drives(2);
        bench.poke("d1", offset, &bytes);
        let error = refused(&bench, "array create a --level raid1 d0 d1", what);
        assert!(error.contains("--yes-destroy d1"), "{error}");
        refused(
            &bench,
            "array create a --level raid1 d0 d1 --yes-destroy d0",
            "names nothing that",
        );
        bench.line("array create a --level raid1 d0 d1 --yes-destroy d1").well();
        let left = bench.line("drive examine d1").text();
        assert!(!left.contains(what), "{what} is still there: {left}");
    }
}

#[test]
fn a_drive_that_holds_an_array() {
    let bench = Bench::new();
    bench.drives(3);
    bench.line("array create old --level raid1 d0 d1").well();
    let error = refused(&bench, "array create new --level raid1 d1 d2", "would be destroyed");
    assert!(error.contains("member of the raid1 array old"), "{error}");
    assert!(error.contains("--yes-destroy old"), "{error}");
    bench.line("array create new --level raid1 d1 d2 --yes-destroy old").well();
}

#[test]
fn a_drive_in_use() {
    let bench = Bench::new();
    bench.drives(2);
    let held = File::open(bench.path("d1")).unwrap();
    held.lock().unwrap();
    refused(&bench, "array create a --level raid1 d0 d1", "d1 is in use");
    held.unlock().unwrap();
    bench.line("array create a --level raid1 d0 d1").well();
    held.lock().unwrap();
    refused(&bench, "array serve d0 d1 --nbd unix:socket", "d1 is in use");
}

#[test]
fn a_size_or_chunk_out_of_range() {
    let bench = Bench::new();
    bench.drives(3);
    let create = "array create a --level raid5 d0 d1 d2";
    for chunk in ["0", "1", "2K", "6000", "48K", "32M", "8G"] {
        refused(&bench, &format!("{create} --chunk {chunk}"), "chunk");
    }
    refused(&bench, &format!("{create} --size 1T"), "is more than the");
    refused(&bench, &format!("{create} --size 0"), "");
    let words = bench.line(&format!("{create} --size 1X"));
    assert_eq!(words.status, 2);
    assert!(words.stderr.contains("a size such as 64K, 1M, 10G or 2T"), "{words:?}");
    refused(&bench, "array create a --level raid1 d0 d1 --chunk 64K", "raid1 has no chunk");
    refused(&bench, "drive create odd --size 1000", "are not a size for a drive");
    bench.line("drive create small --size 64K").well();
    refused(&bench, "array create a --level raid1 d0 small", "small of 65536 bytes is too small");
}

#[test]
fn words_that_mean_nothing() {
    let bench = Bench::new();
    bench.drives(3);
    let create = "array create a d0 d1 d2";
    let level = bench.line(&format!("{create} --level raid7"));
    assert_eq!(level.status, 2);
    assert!(level.stderr.contains("raid50 or raid60"), "{level:?}");
    refused(&bench, &format!("{create} --level raid5 --layout near=2"), "unknown raid5 layout");
    let record = "cannot keep this record of writes in flight";
    refused(&bench, &format!("{create} --level raid4 --consistency ppl"), record);
    refused(&bench, "array create a/b d0 d1 --level raid1", "is no name for an array");
    let long = "n".repeat(33);
    refused(&bench, &format!("array create {long} d0 d1 --level raid1"), "at most 32 fit");
    refused(&bench, "array scan nowhere", "nowhere does not exist");
    refused(&bench, "array create a d0 /dev/null --level raid1", "is a character device");
    refused(&bench, "array serve d0 --nbd unix:s", "no array was found on these drives");
}

/// The file shrinks under a running benchmark: it ends, and says why.
#[test]
fn a_target_that_vanishes() {
    let bench = Bench::new();
    bench.drives(1);
    let child = bench.spawn("bench d0 --time 10m --ramp 0s");
    let open = || {
        let folder = format!("/proc/{}/fd", child.id());
        let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut files = files.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        files.any(|file| file.file_name() == Some("d0".as_ref()))
    };
    while !open() {
        std::thread::yield_now();
    }
    File::options().write(true).open(bench.path("d0")).unwrap().set_len(0).unwrap();
    let output = child.wait_with_output().unwrap();
    let said =
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    assert_ne!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("d0"), "{said}");
}

/// A limit on the size of files stands in for a full disk: the same write fails.
#[test]
fn a_full_disk() {
    let bench = Bench::new();
    bench.drives(1);
    bench.line("array create a --level linear d0").well();
    bench.poke("d0", 4 << 20, &[1; 4096]);
    let line = format!("trap '' XFSZ; ulimit -f 1024; exec {BACKPLANE} array extract d0 --to out");
    let mut shell = Command::new("sh");
    shell.args(["-c", &line]).current_dir(bench.path("."));
    bench.output(shell).refused("writing out failed at byte");
    assert!(!bench.path("out").exists(), "the partial file is removed");
}

fn superblock(bench: &Bench, drive: &str) -> (Place, Superblock) {
    let place = Place { version: Version::V1_2, offset_bytes: 4096 };
    let bytes = bench.peek(drive, place.offset_bytes, SUPERBLOCK_BYTES);
    (place, Superblock::parse(&bytes, place).unwrap())
}

/// A raid1 whose first member's superblock was changed by `change`; what a scan says of it.
fn scan_after(change: impl Fn(&mut Superblock)) -> String {
    let bench = Bench::new();
    bench.drives(2);
    bench.line("array create a --level raid1 d0 d1 --assume-clean").well();
    let (place, mut superblock) = superblock(&bench, "d0");
    change(&mut superblock);
    bench.poke("d0", place.offset_bytes, &superblock.build());
    let scan = bench.line("array scan d0 d1");
    assert_eq!(scan.status, 1, "{scan:#?}");
    scan.text()
}

/// All members are there, and the array can't be opened all the same: it is not called healthy.
#[test]
fn a_layout_that_does_not_exist() {
    let bench = Bench::new();
    bench.drives(3);
    bench.line("array create a --level raid5 d0 d1 d2 --assume-clean").well();
    for drive in ["d0", "d1", "d2"] {
        let (place, mut superblock) = superblock(&bench, drive);
        superblock.layout = 77;
        bench.poke(drive, place.offset_bytes, &superblock.build());
    }
    for line in ["array scan d0 d1 d2", "array show d0 d1 d2"] {
        let ran = bench.line(line);
        assert!(ran.status == 1 && ran.text().starts_with("a: refused, raid5 of 3"), "{ran:#?}");
        assert!(ran.text().contains("77"), "no reason in {ran:#?}");
    }
}

#[test]
fn a_superblock_with_a_bad_checksum() {
    let bench = Bench::new();
    bench.drives(2);
    bench.line("array create a --level raid1 d0 d1 --assume-clean").well();
    bench.poke("d0", 4096 + 200, &[0xee]);
    let scan = bench.line("array scan d0 d1");
    assert_eq!(scan.status, 1);
    let text = scan.text();
    assert!(text.contains("d0: damaged md superblock 1.2 at byte 4096: "), "{text}");
    assert!(text.contains("checksum"), "{text}");
    assert!(text.contains("a: degraded"), "{text}");
}

#[test]
fn a_superblock_with_impossible_counts() {
    let text = scan_after(|superblock| superblock.raid_disks = 5000);
    assert!(text.contains("d0") && text.contains("5000 slots"), "{text}");
}

#[test]
fn a_superblock_with_offsets_past_the_end() {
    let text = scan_after(|superblock| superblock.data_offset_sectors = 1 << 40);
    assert!(text.contains("bytes too small for its superblock"), "{text}");
}

/// The output is never a drive that is read, whatever name it goes by, nor one that holds
/// something or that somebody holds; `--force` does not change that.
#[test]
fn extract_overwrites_no_drive() {
    let bench = Bench::new();
    bench.drives(4);
    bench.line("array create data --level raid1 d0 d1 --assume-clean").well();
    bench.line("array create other --level raid1 d2 d3 --assume-clean").well();
    std::fs::hard_link(bench.path("d0"), bench.path("hard")).unwrap();
    symlink(bench.path("d0"), bench.path("link")).unwrap();
    std::fs::write(bench.path("held"), vec![7; 8192]).unwrap();
    let held = File::open(bench.path("held")).unwrap();
    held.lock_shared().unwrap();
    let cases = [
        ("d0", "d0 is one of the drives that are read"),
        ("./d1", "./d1 is one of the drives that are read"),
        ("hard", "hard is one of the drives that are read"),
        ("link", "link is a symbolic link"),
        ("d2", "d2 holds what somebody may need"),
        ("held", "held is in use by another program"),
        ("none/out", "none/out can't be opened for writing"),
    ];
    for (to, fact) in cases {
        refused(&bench, &format!("array extract d0 d1 --to {to} --force"), fact);
    }
    refused(&bench, "array extract . --array data --to d2 --force", "d2 is one of the drives");
    drop(held);
    bench.line("array extract d0 d1 --to held --force").well();
}

/// Naming the remains of an array does not release what else lies on its drive.
#[test]
fn each_thing_on_a_drive_is_named_once() {
    let bench = Bench::new();
    bench.drives(2);
    bench.line("array create old --level raid1 d0 d1 --assume-clean").well();
    // An MBR with a partition, before the superblock at 4 KiB.
    let (_, offset, table) = occupied().swap_remove(0);
    bench.poke("d0", offset, &table);
    let create = "array create new --level raid1 d0 d1 --yes-destroy old";
    let error = refused(&bench, create, "would be destroyed");
    assert!(error.contains("partition table") && !error.contains("array old"), "{error}");
    bench.line(&format!("{create} --yes-destroy d0")).well();
}

#[test]
fn drives_are_made_all_or_none() {
    let bench = Bench::new();
    bench.drives(1);
    refused(&bench, "drive create a b d0 --size 8M", "d0 exists already");
    refused(&bench, "drive create a b a --size 8M", "a exists already");
    refused(&bench, "drive create a none/b --size 8M", "making none/b");
    let large = bench.line("drive create a --size 8388608T");
    assert!(large.status == 2 && large.stderr.contains("no file or drive is that large"));
}

/// Containers that are not read are named for what they are.
#[test]
fn other_containers_are_said_to_be_unsupported() {
    let bench = Bench::new();
    bench.drives(2);
    let end = std::fs::metadata(bench.path("d0")).unwrap().len();
    for drive in ["d0", "d1"] {
        bench.poke(drive, end - 1024, b"Intel Raid ISM Cfg Sig. 1.3.00");
    }
    for drives in ["d0 d1", "."] {
        let scan = bench.line(&format!("array scan {drives}"));
        let fact = "these drives hold an Intel IMSM container: not supported yet";
        assert!(scan.status == 1 && scan.text().contains(fact), "{scan:#?}");
        refused(&bench, &format!("array extract {drives} --to out"), fact);
    }
}

/// Standard error that can't be written to is no reason to fail otherwise.
#[test]
fn a_full_standard_error_is_no_panic() {
    let bench = Bench::new();
    let mut command = bench.command(&["array", "scan", "gone"]);
    command.stderr(File::options().write(true).open("/dev/full").unwrap());
    assert_eq!(command.status().unwrap().code(), Some(2));
}
