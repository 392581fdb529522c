//! The conformance body on the drives of this crate.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::path::Path;

use drive::{Direct, FileDrive, MemoryDrive, OpenOptions, conformance, create_file};
use world::{RingConfig, World};

fn real_world() -> World {
    World::real(RingConfig { entries: 64, arena_bytes: 8 << 20 }).unwrap()
}

/// Runs the body on a new file in `directory`; gives whether direct I/O was in force.
fn on_file(directory: &Path, direct: Direct) -> bool {
    let folder = tempfile::tempdir_in(directory).unwrap();
    let path = folder.path().join("drive");
    create_file(&path, 8 << 20).unwrap();
    let world = real_world();
    let drive = FileDrive::open(&world, &path, OpenOptions { direct, ..OpenOptions::USE }).unwrap();
    conformance::run(&world, &drive, 1);
    drop(drive);
    FileDrive::open(&world, &path, OpenOptions::USE).expect("free again once it is dropped");
    FileDrive::open(&world, &path, OpenOptions { direct, ..OpenOptions::LOOK }).unwrap();
    let again = FileDrive::open(&world, &path, OpenOptions { direct, ..OpenOptions::USE }).unwrap();
    drive::Drive::facts(&again).direct
}

#[test]
fn memory_in_both_worlds() {
    for block in [1, 512, 4096] {
        conformance::run(&real_world(), &MemoryDrive::new("memory", 4 << 20, block), 2);
        let world = World::virtual_time(7);
        conformance::run(&world, &MemoryDrive::new("memory", 16 * u64::from(block), block), 3);
    }
}

#[test]
fn a_file_through_the_cache() {
    assert!(!on_file(Path::new(env!("CARGO_TARGET_TMPDIR")), Direct::Off));
}

#[test]
fn a_file_past_the_cache() {
    if !on_file(Path::new(env!("CARGO_TARGET_TMPDIR")), Direct::Prefer) {
        println!("skipped: a file past the cache (the file system lacks direct I/O)");
    }
}

#[test]
fn a_file_in_memory_never_claims_to_be_direct() {
    let shared_memory = Path::new("/dev/shm");
    let tmpfs = std::fs::read_to_string("/proc/self/mounts")
        .is_ok_and(|mounts| mounts.lines().any(|mount| mount.starts_with("tmpfs /dev/shm tmpfs")));
    if !tmpfs {
        println!("skipped: a file in memory (no tmpfs at /dev/shm)");
        return;
    }
    assert!(!on_file(shared_memory, Direct::Prefer));
    let file = tempfile::NamedTempFile::new_in(shared_memory).unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let options = OpenOptions { direct: Direct::Require, ..OpenOptions::USE };
    let error = FileDrive::open(&real_world(), file.path(), options).err().unwrap();
    assert!(error.to_string().contains("direct I/O"), "{error}");
}
