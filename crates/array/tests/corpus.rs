//! Arrays that a real kernel's md made read as their index says: every set, with every loss it
//! survives, and the stale and split ones with the reason per member.
//!
//! Nine sets are in `tests/corpus`. All there are, from `../shared/corpus/md` beside the checkout or
//! from the folder that `BACKPLANE_CORPUS` names, are tested instead where they can be found.

#![allow(clippy::unwrap_used, reason = "a test ends with the first surprise")]

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use array::{AssembleError, OpenMode, Scan};
use drive::{Drive, Durability, MemoryDrive};
use format::md::{Level, Verdict};
use sha2::{Digest, Sha256};
use world::{ReadBufs, World, WriteBufs};

#[derive(serde::Deserialize)]
struct Index {
    array: Vec<Entry>,
}

#[derive(serde::Deserialize)]
struct Entry {
    name: String,
    state: String,
    members: Vec<String>,
    content: Vec<Content>,
}

#[derive(serde::Deserialize)]
struct Content {
    size: u64,
    sha256: String,
}

const MODE: OpenMode = OpenMode { read_only: true, force_dirty: false, now_seconds: 0 };

fn folder() -> PathBuf {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let named = std::env::var_os("BACKPLANE_CORPUS").map(PathBuf::from);
    let all = named.unwrap_or_else(|| crate_folder.join("../../../shared/corpus/md"));
    if all.join("index.toml").exists() { all } else { crate_folder.join("tests/corpus") }
}

/// The sets this engine reads: no containers of other formats, none in two shapes at once.
fn entries(folder: &Path) -> Vec<Entry> {
    let text = std::fs::read_to_string(folder.join("index.toml")).unwrap();
    let index: Index = toml::from_str(&text).unwrap();
    let others = ["imsm-", "ddf-"];
    let ours = |entry: &Entry| {
        entry.state != "reshape" && !others.iter().any(|other| entry.name.starts_with(other))
    };
    index.array.into_iter().filter(ours).collect()
}

/// The members' images as drives, by file name.
fn unpack(world: &World, folder: &Path, entry: &Entry) -> Vec<Rc<dyn Drive>> {
    let packed = std::fs::File::open(folder.join(&entry.name).join("members.tar.zst")).unwrap();
    let mut plain = Vec::new();
    ruzstd::decoding::StreamingDecoder::new(packed).unwrap().read_to_end(&mut plain).unwrap();
    let mut images: BTreeMap<String, Rc<dyn Drive>> = BTreeMap::new();
    for file in tar::Archive::new(&plain[..]).entries().unwrap() {
        let mut file = file.unwrap();
        let path = file.path().unwrap().into_owned();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if entry.members.contains(&name) {
            images.insert(name.clone(), load(world, &name, &bytes));
        }
    }
    entry.members.iter().map(|name| Rc::clone(&images[name])).collect()
}

fn load(world: &World, name: &str, bytes: &[u8]) -> Rc<dyn Drive> {
    let drive = MemoryDrive::new(name, bytes.len() as u64, 512);
    for (index, part) in bytes.chunks(64 << 10).enumerate() {
        if part.iter().any(|&byte| byte != 0) {
            let buffers = WriteBufs::from_iter([world.pool().copy_of(part)]);
            let offset = (index << 16) as u64;
            world.block_on(drive.write(offset, buffers, Durability::Cached)).unwrap();
        }
    }
    Rc::new(drive)
}

fn digest(world: &World, drive: &dyn Drive, size: u64) -> Result<String, String> {
    let mut hash = Sha256::new();
    let mut at = 0;
    while at < size {
        let bytes = (size - at).min(1 << 20);
        let buffers = ReadBufs::from_iter([world.pool().take(bytes as usize)]);
        let done = world.block_on(drive.read(at, buffers));
        done.result.map_err(|error| error.to_string())?;
        hash.update(&done.buffers[0][..]);
        at += bytes;
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Opens the one array on these drives and reads it whole.
fn read(world: &World, drives: &[Rc<dyn Drive>], size: u64) -> Result<String, AssembleError> {
    let scan = world.block_on(Scan::of(world.pool(), drives.to_vec()));
    assert_eq!(scan.assemblies.len(), 1);
    let array = world.block_on(scan.open(world, &scan.assemblies[0], MODE))?;
    Ok(digest(world, &array, size).unwrap_or_else(|error| error))
}

/// All ways to leave out between 1 and `most` of `count`.
fn losses(count: usize, most: usize) -> Vec<Vec<usize>> {
    let sets = (1u32..1 << count).filter(|set| set.count_ones() as usize <= most);
    sets.map(|set| (0..count).filter(|index| set & (1 << index) != 0).collect()).collect()
}

fn sha_of(entry: &Entry, index: usize) -> &str {
    &entry.content[index].sha256
}

/// Two sides that went on apart are never merged; each alone reads as it went on.
#[test]
fn split_brains_are_refused_and_each_side_reads_alone() {
    let folder = folder();
    for entry in entries(&folder).iter().filter(|entry| entry.state == "split-brain") {
        let world = World::virtual_time(0);
        let drives = unpack(&world, &folder, entry);
        let size = entry.content[0].size;
        let refused = read(&world, &drives, size).unwrap_err();
        assert!(matches!(refused, AssembleError::SplitBrain { sides: 2 }), "{refused}");
        for (index, drive) in drives.iter().enumerate() {
            let hash = read(&world, std::slice::from_ref(drive), size).unwrap();
            assert_eq!(hash, sha_of(entry, index), "{} side {index}", entry.name);
        }
    }
}

/// A member that missed writes is named as stale, and its content is never used.
#[test]
fn stale_members_are_named_and_left_out() {
    let folder = folder();
    for entry in entries(&folder).iter().filter(|entry| entry.state == "stale") {
        let world = World::virtual_time(0);
        let drives = unpack(&world, &folder, entry);
        let scan = world.block_on(Scan::of(world.pool(), drives));
        let verdict = scan.assemblies[0].verdict(1).unwrap();
        assert!(matches!(verdict, Verdict::Stale { slot: Some(1), .. }), "{verdict}");
        assert_eq!(scan.assemblies[0].slots[1], None);
    }
}

#[test]
fn every_set_reads_as_recorded_with_every_loss_it_survives() {
    let folder = folder();
    let mut wrong = Vec::new();
    let mut read_sets = 0;
    for entry in entries(&folder) {
        if entry.state == "split-brain" {
            continue;
        }
        let world = World::virtual_time(0);
        let drives = unpack(&world, &folder, &entry);
        let Content { size, sha256, .. } = &entry.content[0];
        let mut expect = |drives: &[Rc<dyn Drive>], what: String| match read(&world, drives, *size)
        {
            Ok(hash) if hash == *sha256 => read_sets += 1,
            Ok(other) => wrong.push(format!("{}{what}: content is {other}", entry.name)),
            Err(error) => wrong.push(format!("{}{what}: {error}", entry.name)),
        };
        expect(&drives, String::new());
        let scan = world.block_on(Scan::of(world.pool(), drives.clone()));
        let assembly = &scan.assemblies[0];
        let view = &scan.candidates[assembly.reference].view;
        let redundancy = match view.layout.level {
            Level::Raid6 => 2,
            Level::Raid1 | Level::Raid4 | Level::Raid5 | Level::Raid10 => 1,
            _ => 0,
        };
        // What was in flight when a set was cut off is only whole with all its members.
        let cut_off = ["dirty", "recovery", "resync", "replace", "stale", "badblocks"];
        if cut_off.contains(&entry.state.as_str()) {
            continue;
        }
        let gone = assembly.slots.iter().filter(|slot| slot.is_none()).count();
        for lost in losses(drives.len(), redundancy - gone.min(redundancy)) {
            let left = |&(index, _): &(usize, &Rc<dyn Drive>)| !lost.contains(&index);
            let left: Vec<_> =
                drives.iter().enumerate().filter(left).map(|d| d.1.clone()).collect();
            let journal = |(candidate, verdict): &(usize, Verdict)| {
                *verdict == Verdict::Journal && lost.contains(&scan.candidates[*candidate].drive)
            };
            if assembly.verdicts.iter().any(journal) {
                continue;
            }
            expect(&left, format!(" without {lost:?}"));
        }
    }
    println!("{read_sets} readings");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(read_sets > 10);
}
