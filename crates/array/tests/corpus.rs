//! Arrays that a real kernel's md made read as their index says: every set, with every loss it
//! survives, and the stale and split ones with the reason per member.
//!
//! Some sets are in `corpus/`, and tested always. The whole corpus is read from
//! `../shared/corpus/md` beside the checkout, or from the folder that `BACKPLANE_CORPUS` names.

#![allow(clippy::unwrap_used, reason = "a test ends with the first surprise")]

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use array::{Array, AssembleError, Health, JobEnd, OpenMode, Scan, ScrubState};
use drive::{Drive, Durability, MemoryDrive};
use format::md::{Level, Verdict};
use geometry::Home;
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

/// A set, and the folder that holds its images.
struct Set {
    folder: PathBuf,
    entry: Entry,
}

/// The sets this engine reads: no containers of other formats, none in two shapes at once.
fn sets(test: &str) -> Vec<Set> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus/md");
    let named = std::env::var_os("BACKPLANE_CORPUS").map(PathBuf::from);
    let whole = named.unwrap_or(beside);
    let mut folders = vec![own];
    if whole.join("index.toml").exists() {
        folders.push(whole);
    } else {
        println!("skipped: corpus::{test} beyond the repository: needs BACKPLANE_CORPUS");
    }
    let mut sets: BTreeMap<String, Set> = BTreeMap::new();
    for folder in folders {
        let text = std::fs::read_to_string(folder.join("index.toml")).unwrap();
        let index: Index = toml::from_str(&text).unwrap();
        for entry in index.array {
            let others = ["imsm-", "ddf-"].iter().any(|other| entry.name.starts_with(other));
            if entry.state != "reshape" && !others {
                let folder = folder.join(&entry.name);
                sets.entry(entry.name.clone()).or_insert(Set { folder, entry });
            }
        }
    }
    sets.into_values().collect()
}

/// The members' images as drives, by file name.
fn unpack(world: &World, Set { folder, entry }: &Set) -> Vec<Rc<dyn Drive>> {
    let packed = std::fs::File::open(folder.join("members.tar.zst")).unwrap();
    let plain = ruzstd::decoding::StreamingDecoder::new(packed).unwrap();
    let mut images: BTreeMap<String, Rc<dyn Drive>> = BTreeMap::new();
    for file in tar::Archive::new(plain).entries().unwrap() {
        let mut file = file.unwrap();
        let path = file.path().unwrap().into_owned();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if entry.members.contains(&name) {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).unwrap();
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

/// The array's content, in pieces of a MiB.
fn pieces(world: &World, drive: &dyn Drive, size: u64, mut act: impl FnMut(u64, &[u8])) {
    let mut at = 0;
    while at < size {
        let bytes = (size - at).min(1 << 20);
        let buffers = ReadBufs::from_iter([world.pool().take(bytes as usize)]);
        let done = world.block_on(drive.read(at, buffers));
        done.result.unwrap_or_else(|error| panic!("{error}"));
        act(at, &done.buffers[0]);
        at += bytes;
    }
}

/// Opens the one array on these drives.
fn open(world: &World, drives: &[Rc<dyn Drive>]) -> Result<Array, AssembleError> {
    let scan = world.block_on(Scan::of(world.pool(), drives.to_vec()));
    assert_eq!(scan.assemblies.len(), 1);
    world.block_on(scan.open(world, &scan.assemblies[0], MODE))
}

/// Opens and reads the array; its content must be as recorded.
fn read(world: &World, drives: &[Rc<dyn Drive>], name: &str, content: &Content) -> Vec<u8> {
    let array = open(world, drives).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut all = Vec::new();
    pieces(world, &array, content.size, |_, piece| all.extend_from_slice(piece));
    let hash: String = Sha256::digest(&all).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hash, content.sha256, "{name}");
    all
}

/// All ways to leave out between 1 and `most` of `count`.
fn losses(count: usize, most: usize) -> Vec<Vec<usize>> {
    let sets = (1u32..1 << count).filter(|set| set.count_ones() as usize <= most);
    sets.map(|set| (0..count).filter(|index| set & (1 << index) != 0).collect()).collect()
}

/// Two sides that went on apart are never merged; each alone reads as it went on.
#[test]
fn split_brains_are_refused_and_each_side_reads_alone() {
    for set in sets("split_brains").iter().filter(|set| set.entry.state == "split-brain") {
        let world = World::virtual_time(0);
        let drives = unpack(&world, set);
        let refused = open(&world, &drives).err().unwrap();
        assert!(matches!(refused, AssembleError::SplitBrain { sides: 2 }), "{refused}");
        for (drive, content) in drives.iter().zip(&set.entry.content) {
            read(&world, std::slice::from_ref(drive), &set.entry.name, content);
        }
    }
}

/// A member that missed writes is named as stale, and its content is never used.
#[test]
fn stale_members_are_named_and_left_out() {
    for set in sets("stale_members").iter().filter(|set| set.entry.state == "stale") {
        let world = World::virtual_time(0);
        let drives = unpack(&world, set);
        let scan = world.block_on(Scan::of(world.pool(), drives.clone()));
        let verdict = scan.assemblies[0].verdict(1).unwrap();
        assert!(matches!(verdict, Verdict::Stale { slot: Some(1), .. }), "{verdict}");
        assert_eq!(scan.assemblies[0].slots[1], None);
        read(&world, &drives, &set.entry.name, &set.entry.content[0]);
    }
}

/// What md's bad-block log lists is never read from its member, and leaves the log with a write.
#[test]
fn bad_blocks_leave_the_log_when_they_are_written() {
    for set in sets("bad_blocks").iter().filter(|set| set.entry.state == "badblocks") {
        let Entry { name, content, .. } = &set.entry;
        let world = World::virtual_time(0);
        let drives = unpack(&world, set);
        let whole = read(&world, &drives, name, &content[0]);
        let scan = world.block_on(Scan::of(world.pool(), drives.clone()));
        let mode = OpenMode { read_only: false, ..MODE };
        let array = world.block_on(scan.open(&world, &scan.assemblies[0], mode)).unwrap();
        let listed =
            |array: &Array| -> u64 { array.status().slots.iter().map(|slot| slot.bad_bytes).sum() };
        assert_eq!(listed(&array), (8 + 16) * 512, "as md says in badblocks.txt");
        for (part, bytes) in whole.chunks(1 << 20).enumerate() {
            let buffers = WriteBufs::from_iter([world.pool().copy_of(bytes)]);
            let write = array.write((part as u64) << 20, buffers, Durability::Cached);
            world.block_on(write).unwrap();
        }
        assert_eq!(listed(&array), 0);
        world.block_on(array.stop()).unwrap();
        let scan = world.block_on(Scan::of(world.pool(), drives.clone()));
        assert!(!scan.candidates.iter().any(|found| found.view.bad_blocks.unwrap().in_use));
        read(&world, &drives, name, &content[0]);
    }
}

/// Reads a set whole and with every loss it survives; gives how often.
fn read_with_losses(set: &Set) -> usize {
    let Entry { name, state, content, .. } = &set.entry;
    let world = World::virtual_time(0);
    let drives = unpack(&world, set);
    let whole = read(&world, &drives, name, &content[0]);
    // What was in flight when a set was cut off is only whole with all its members.
    let cut_off = ["dirty", "recovery", "resync", "replace", "badblocks"];
    if cut_off.contains(&state.as_str()) {
        return 1;
    }
    let scan = world.block_on(Scan::of(world.pool(), drives.clone()));
    let assembly = &scan.assemblies[0];
    let redundancy = match scan.candidates[assembly.reference].view.layout.level {
        Level::Raid6 => 2,
        Level::Raid1 | Level::Raid4 | Level::Raid5 | Level::Raid10 => 1,
        _ => 0,
    };
    let gone = assembly.slots.iter().filter(|slot| slot.is_none()).count();
    let mut read_sets = 1;
    for lost in losses(drives.len(), redundancy - gone.min(redundancy)) {
        let journal = |(candidate, verdict): &(usize, Verdict)| {
            *verdict == Verdict::Journal && lost.contains(&scan.candidates[*candidate].drive)
        };
        if assembly.verdicts.iter().any(journal) {
            continue;
        }
        let left = drives.iter().enumerate().filter(|(index, _)| !lost.contains(index));
        let left: Vec<_> = left.map(|(_, drive)| Rc::clone(drive)).collect();
        let array = open(&world, &left);
        let array = array.unwrap_or_else(|error| panic!("{name} without {lost:?}: {error}"));
        pieces(&world, &array, content[0].size, |at, piece| {
            let same = whole[at as usize..][..piece.len()] == *piece;
            assert!(same, "{name} without {lost:?} differs in the MiB from {at} on");
        });
        read_sets += 1;
    }
    read_sets
}

#[test]
fn every_set_reads_as_recorded_with_every_loss_it_survives() {
    let apart = ["split-brain", "stale"];
    let mut sets = sets("every_set");
    sets.retain(|set| !apart.contains(&set.entry.state.as_str()));
    // Worlds belong to one thread each; the sets have nothing to do with each other.
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let read_sets: usize = std::thread::scope(|scope| {
        let reader = |first: usize| {
            let sets = &sets;
            scope.spawn(move || {
                sets.iter().skip(first).step_by(threads).map(read_with_losses).sum::<usize>()
            })
        };
        let readers: Vec<_> = (0..threads).map(reader).collect();
        readers.into_iter().map(|reader| reader.join().unwrap()).sum()
    });
    println!("{} sets, {read_sets} readings", sets.len());
}

/// What md left half done is gone on with where it stood, and then holds what is recorded, with
/// every loss the level survives.
#[test]
fn half_done_recoveries_are_completed_to_the_recorded_content() {
    let half = ["recovery", "resync", "replace"];
    let mut sets = sets("half_done");
    sets.retain(|set| half.contains(&set.entry.state.as_str()));
    for Set { folder, entry } in sets {
        let world = World::virtual_time(0);
        let name = entry.name.clone();
        let set = Set { folder, entry };
        let drives = unpack(&world, &set);
        let scan = world.block_on(Scan::of(world.pool(), drives.clone()));
        let mode = OpenMode { read_only: false, ..MODE };
        let array = world.block_on(scan.open(&world, &scan.assemblies[0], mode)).unwrap();
        world.block_on(array.background_done());
        let status = array.status();
        let job = status.last_job.unwrap_or_else(|| panic!("{name}: nothing was done"));
        assert_eq!(job.end, Some(JobEnd::Done), "{name}");
        assert_eq!(status.health, Health::Healthy, "{name}");
        let members: Vec<_> = status.slots.iter().map(|slot| slot.drive.clone().unwrap()).collect();
        world.block_on(array.stop()).unwrap();
        let named = |drive: &&Rc<dyn Drive>| members.contains(&drive.facts().name.to_string());
        let members: Vec<_> = drives.iter().filter(named).cloned().collect();
        for lost in 0..members.len() {
            let left = members.iter().enumerate().filter(|(index, _)| *index != lost);
            let left: Vec<_> = left.map(|(_, drive)| Rc::clone(drive)).collect();
            read(&world, &left, &name, &set.entry.content[0]);
        }
        println!("{name}: {} went from half to whole", job.kind.word());
    }
}

/// Checks a set; gives what was found as `(position or array offset, bytes)`, and the array's
/// block: nothing smaller is told apart.
fn check(world: &World, drives: &[Rc<dyn Drive>], name: &str) -> (Vec<(u64, u64)>, u64) {
    let array = open(world, drives).unwrap_or_else(|error| panic!("{name}: {error}"));
    array.start_check().unwrap_or_else(|error| panic!("{name}: {error}"));
    world.block_on(array.background_done());
    let scrub = array.status().scrub.unwrap();
    assert_eq!(scrub.state, ScrubState::Done, "{name}");
    assert_eq!(scrub.counts.compared_bytes, scrub.end_bytes, "{name}");
    let position = |found: &array::Mismatch| match found.stripe {
        Some(_) => found.members[0].data_offset,
        None => found.array_offset,
    };
    let found = scrub.findings.iter().map(|found| (position(found), found.bytes)).collect();
    (found, array.facts().block_bytes.into())
}

/// Flips a byte in the middle of each slot's data; gives where a check finds that.
fn flip_some(world: &World, drives: &[Rc<dyn Drive>]) -> Vec<(u64, u64)> {
    let scan = world.block_on(Scan::of(world.pool(), drives.to_vec()));
    let assembly = &scan.assemblies[0];
    let array = world.block_on(scan.open(world, assembly, MODE)).unwrap();
    let geometry = array.geometry();
    let mut places = BTreeMap::new();
    let count = assembly.slots.len() as u64;
    for (slot, candidate) in assembly.slots.iter().enumerate() {
        let candidate = &scan.candidates[candidate.unwrap()];
        // At another place on each, so that no two are of one stripe.
        let offset = geometry.used_bytes(slot) / (count + 1) * (slot as u64 + 1) / 512 * 512;
        let position = match geometry.home(slot, offset).unwrap() {
            Home::Data { array_offset, .. } if geometry.copies() > 1 => array_offset,
            _ => offset,
        };
        // Two copies of one sector could agree again.
        if places.insert(position, 512).is_some() {
            continue;
        }
        let drive = &drives[candidate.drive];
        let place = candidate.view.layout.data_offset_bytes + offset;
        let done = world.block_on(drive.read(place, ReadBufs::from_iter([world.pool().take(512)])));
        let mut sector = done.buffers[0].to_vec();
        sector[77] ^= 0x10;
        let buffers = WriteBufs::from_iter([world.pool().copy_of(&sector)]);
        world.block_on(drive.write(place, buffers, Durability::Cached)).unwrap();
    }
    places.into_iter().collect()
}

#[test]
fn a_check_finds_nothing_in_clean_sets_and_exactly_what_was_flipped() {
    let mut checked = 0;
    for set in sets("a_check").iter().filter(|set| set.entry.state == "clean") {
        let name = &set.entry.name;
        if name.starts_with("raid0") || name.starts_with("linear") {
            continue;
        }
        let world = World::virtual_time(0);
        let drives = unpack(&world, set);
        let (clean, block) = check(&world, &drives, name);
        assert_eq!(clean, [], "{name}");
        let flipped = flip_some(&world, &drives).into_iter();
        let flipped: Vec<_> = flipped.map(|(at, _)| (at - at % block, block)).collect();
        assert_eq!(check(&world, &drives, name).0, flipped, "{name}");
        checked += 1;
    }
    println!("{checked} sets checked");
    assert!(checked >= 3);
}

/// Sets with a log, opened for writing: recovered to the recorded content, written on, and still
/// right after a restart and without any one member.
#[test]
fn logs_of_md_are_recovered_and_written_on() {
    let mut sets = sets("logs_of_md");
    sets.retain(|set| ["journal", "ppl"].iter().any(|log| set.entry.name.contains(log)));
    assert!(sets.len() >= 2);
    for set in &sets {
        let Entry { name, content, .. } = &set.entry;
        let world = World::virtual_time(0);
        let drives = unpack(&world, set);
        let mode = OpenMode { read_only: false, ..MODE };
        let open_again = |drives: &[Rc<dyn Drive>], mode: OpenMode| {
            let scan = world.block_on(Scan::of(world.pool(), drives.to_vec()));
            let array = world.block_on(scan.open(&world, &scan.assemblies[0], mode));
            array.unwrap_or_else(|error| panic!("{name}: {error}"))
        };
        let array = open_again(&drives, mode);
        world.block_on(array.background_done());
        let mut all = Vec::new();
        pieces(&world, &array, content[0].size, |_, piece| all.extend_from_slice(piece));
        let hash: String = Sha256::digest(&all).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hash, content[0].sha256, "{name}");
        for start in (0..all.len() - (96 << 10)).step_by(700 << 10) {
            let range = start..start + (96 << 10);
            all[range.clone()].fill(start as u8 | 1);
            let buffers = WriteBufs::from_iter([world.pool().copy_of(&all[range])]);
            world.block_on(array.write(start as u64, buffers, Durability::Cached)).unwrap();
        }
        world.block_on(array.stop()).unwrap();
        let same = |array: &Array, what: &str| {
            pieces(&world, array, content[0].size, |at, piece| {
                assert!(all[at as usize..][..piece.len()] == *piece, "{name} {what}: MiB at {at}");
            });
        };
        same(&open_again(&drives, mode), "after a restart");
        for lost in 0..3 {
            let left = drives.iter().enumerate().filter(|(index, _)| *index != lost);
            let left: Vec<_> = left.map(|(_, drive)| Rc::clone(drive)).collect();
            same(&open_again(&left, MODE), &format!("without {lost}"));
        }
    }
}

/// Opened for writing, sets with a bitmap are resynced by it, a member that left comes back by it,
/// and afterwards every member can be spared.
#[test]
fn sets_with_a_bitmap_recover_by_it() {
    const SETS: [&str; 4] = [
        "raid1-2-bitmap-stale-member-v12",
        "raid5-4-dirty-bitmap-v12",
        "raid1-2-v10-bitmap",
        "raid5-4-c64-v11-bitmap",
    ];
    for set in sets("bitmap").iter().filter(|set| SETS.contains(&&*set.entry.name)) {
        let Entry { name, content, .. } = &set.entry;
        let world = World::virtual_time(0);
        let drives = unpack(&world, set);
        let scan = world.block_on(Scan::of(world.pool(), drives.clone()));
        let mode = OpenMode { read_only: false, ..MODE };
        let array = world.block_on(scan.open(&world, &scan.assemblies[0], mode)).unwrap();
        assert!(array.status().bitmap.is_some(), "{name}");
        world.block_on(array.background_done());
        assert_eq!(array.status().synced_to_bytes, None, "{name}");
        world.block_on(array.stop()).unwrap();
        read(&world, &drives, name, &content[0]);
        for lost in 0..drives.len() {
            let mut left = drives.clone();
            left.remove(lost);
            read(&world, &left, &format!("{name} without {lost}"), &content[0]);
        }
        world.end();
    }
}
