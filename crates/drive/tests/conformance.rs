//! The conformance body on the drives of this crate.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use drive::{
    Counting, Direct, Drive, Effect, Fault, Faulty, FileDrive, Identity, MemoryDrive, OpenError,
    OpenOptions, Overlay, Padded, Slice, conformance, create_file,
};
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
    again.facts().direct
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

/// A loop device over a file; it goes with this.
struct LoopDevice(PathBuf);

impl LoopDevice {
    /// `None` where this user or machine can't have one.
    fn over(file: &Path, block_bytes: u32) -> Option<LoopDevice> {
        let block = block_bytes.to_string();
        let attach = Command::new("losetup")
            .args(["--find", "--show", "--direct-io=on", "--sector-size", &block])
            .arg(file)
            .output();
        let output = attach.ok().filter(|output| output.status.success())?;
        Some(LoopDevice(PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let detached = Command::new("losetup").arg("--detach").arg(&self.0).status();
        assert!(std::thread::panicking() || detached.is_ok_and(|status| status.success()));
    }
}

#[test]
fn a_block_device() {
    for block in [512, 4096] {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = folder.path().join("drive");
        create_file(&path, 8 << 20).unwrap();
        let Some(device) = LoopDevice::over(&path, block) else {
            println!("skipped: a block device of {block} byte blocks (no loop device to be had)");
            continue;
        };
        let world = real_world();
        let drive = FileDrive::open(&world, &device.0, OpenOptions::USE).unwrap();
        assert_eq!((drive.facts().block_bytes, drive.facts().size_bytes), (block, 8 << 20));
        let again = FileDrive::open(&world, &device.0, OpenOptions::USE).err();
        assert!(matches!(again, Some(OpenError::Busy { .. })), "{again:?}");
        let file = FileDrive::open(&world, &path, OpenOptions::LOOK).unwrap();
        assert!(matches!(file.identity(), Identity::File { .. }));
        assert_eq!(drive.identity(), file.identity(), "the device and its file are one drive");
        conformance::run(&world, &drive, 4);
        drop(drive);
        FileDrive::open(&world, &device.0, OpenOptions::USE).expect("free again once dropped");
    }
}

fn memory(block: u32) -> Rc<dyn Drive> {
    Rc::new(MemoryDrive::new("memory", 6 << 20, block))
}

#[test]
fn windows_overlays_and_padding_in_both_worlds() {
    for (world, seed) in [(real_world(), 5), (World::virtual_time(8), 6)] {
        let window = Slice::new(memory(512), 1 << 20, (4 << 20) + 512).unwrap();
        conformance::run(&world, &window, seed);
        conformance::run(&world, &Overlay::new(memory(4096), 32 << 20), seed);
        conformance::run(&world, &Padded::new(&world, memory(4096)), seed);
        conformance::run(&world, &Padded::new(&world, memory(1)), seed);
    }
}

#[test]
fn a_drive_with_faults_but_none_that_lose_anything() {
    for (world, seed) in [(real_world(), 10), (World::virtual_time(11), 12)] {
        conformance::run(&world, &Faulty::new(&world, memory(512), seed), seed);
        let cached = Faulty::new(&world, memory(4096), seed);
        cached.control().set_volatile_cache(true);
        conformance::run(&world, &cached, seed);
    }
    // Delays that differ let operations overtake each other; padding must not lose neighbours.
    for seed in 0..4 {
        let world = World::virtual_time(seed);
        let slow = Faulty::new(&world, memory(4096), seed);
        for (one_in, micros) in [(2, 10), (3, 25), (5, 400)] {
            let delay = Effect::Delay(Duration::from_micros(micros));
            slow.control().add(Fault::new(delay).one_in(one_in));
        }
        slow.control().set_volatile_cache(seed % 2 == 1);
        let counting = Counting::new(Rc::new(slow));
        conformance::run(&world, &Padded::new(&world, Rc::new(counting)), seed);
    }
}

#[test]
fn the_whole_stack_on_a_file() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("drive");
    create_file(&path, 8 << 20).unwrap();
    let world = real_world();
    let file = FileDrive::open(&world, &path, OpenOptions::USE).unwrap();
    let window = Slice::new(Rc::new(file), 1 << 20, 6 << 20).unwrap();
    let overlay = Overlay::new(Rc::new(window), 32 << 20);
    conformance::run(&world, &Padded::new(&world, Rc::new(overlay)), 9);
}
