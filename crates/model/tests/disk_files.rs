//! Parameters of real disks are read, and their layouts have every block once.
//!
//! They lie in `../shared/facts/disks` beside the checkout, or in the folder that
//! `BACKPLANE_DISKS` names.

#[expect(dead_code, reason = "other tests use the rest")]
mod disks;

use std::collections::BTreeSet;

use disks::{disks, read};
use model::disk::extracted::{block, disk};
use model::disk::replay::{Measured, replay};
use world::SplitMix64;

#[test]
fn every_block_of_a_real_disk_has_a_place_of_its_own() {
    let Some(disks) = disks("disk_files::every_block_of_a_real_disk_has_a_place_of_its_own") else {
        return;
    };
    for disk in disks {
        let parameters = read(&disk).unwrap_or_else(|error| panic!("{disk:?}: {error}"));
        let layout = &parameters.mechanics.layout;
        let mut number = 0;
        let (mut tracks, mut places) = (0_u64, BTreeSet::new());
        while number < layout.blocks() {
            let place = layout.find(number);
            assert!(place.run > 0 && place.run <= place.track_blocks, "{disk:?}: block {number}");
            // The last of the run is on the track, and what follows is not.
            let last = layout.find(number + u64::from(place.run) - 1);
            assert_eq!((last.cylinder, last.head, last.run), (place.cylinder, place.head, 1));
            assert!(places.insert((place.cylinder, place.head, place.angle_blocks)));
            number += u64::from(place.run);
            tracks += 1;
        }
        let most = u64::from(layout.cylinders()) * u64::from(layout.heads());
        assert!(tracks <= most, "{disk:?}: {tracks} tracks of {most}");
        println!("{}: {} blocks on {tracks} tracks", parameters.name, layout.blocks());
    }
}

/// A text with one of its numbers replaced, or cut off.
fn damaged(text: &str, random: &mut SplitMix64) -> String {
    let numbers: Vec<(usize, usize)> = text
        .match_indices(|next: char| next.is_ascii_digit())
        .filter(|(at, _)| !text[..*at].ends_with(|next: char| next.is_ascii_digit()))
        .map(|(at, _)| {
            let end = text[at..].find(|next: char| !next.is_ascii_digit() && next != '.');
            (at, end.map_or(text.len(), |end| at + end))
        })
        .collect();
    let (at, end) = numbers[random.below(numbers.len() as u64) as usize];
    let values = ["0", "1", "-1", "0.5", "4294967295", "1e300", "99999999999999999999", "x", ""];
    match random.below(10) {
        0 => text[..at].to_owned(),
        index => format!("{}{}{}", &text[..at], values[index as usize - 1], &text[end..]),
    }
}

#[test]
fn damaged_files_are_refused_or_make_a_disk() {
    let Some(disks) = disks("disk_files::damaged_files_are_refused_or_make_a_disk") else { return };
    let mut random = SplitMix64::new(1);
    let (mut refused, mut made) = (0, 0);
    for path in disks {
        let specs = std::fs::read_to_string(&path).expect("a file");
        let model =
            block::parse(&specs).expect("a block").word("Model").expect("a file").to_owned();
        let beside = |name: &str| std::fs::read_to_string(path.with_file_name(name));
        let model = beside(model.trim_start_matches("source ")).expect("a model");
        let mechanics = block::parse(&model).expect("a block");
        let mechanics = mechanics.block("Mechanical Model").expect("one");
        let named = mechanics.word("Full seek curve").ok();
        let seeks = named.map(|name| beside(name).expect("a table"));
        for round in 0..300 {
            let mut texts = [specs.clone(), model.clone(), seeks.clone().unwrap_or_default()];
            let damage = &mut texts[round % if seeks.is_some() { 3 } else { 2 }];
            *damage = damaged(damage, &mut random);
            let [specs, model, table] = &texts;
            let (Ok(specs), Ok(model)) = (block::parse(specs), block::parse(model)) else {
                refused += 1;
                continue;
            };
            let Ok(parameters) = disk(&specs, &model, seeks.is_some().then_some(table)) else {
                refused += 1;
                continue;
            };
            made += 1;
            let blocks = parameters.blocks;
            let mut requests = Vec::new();
            for index in 0..50 {
                let (write, first) = (index % 3 == 0, random.below(blocks));
                let blocks = (blocks - first).min(1 + random.below(64));
                requests.push(Measured { write, first, blocks, service_ns: 1, gap_ns: 1 });
            }
            assert_eq!(replay(parameters, &requests).len(), requests.len());
        }
    }
    assert!(refused > 100 && made > 100, "{refused} refused, {made} made");
}
