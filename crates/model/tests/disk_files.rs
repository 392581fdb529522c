//! Parameters of real disks are read, and their layouts have every block once.
//!
//! They lie in `../shared/facts/disks` beside the checkout, or in the folder that
//! `BACKPLANE_DISKS` names.

mod disks;

use std::collections::BTreeSet;

use disks::disks;
use model::disk::extracted::read_disk;

#[test]
fn every_block_of_a_real_disk_has_a_place_of_its_own() {
    let Some(disks) = disks("disk_files::every_block_of_a_real_disk_has_a_place_of_its_own") else {
        return;
    };
    for disk in disks {
        let parameters = read_disk(&disk).unwrap_or_else(|error| panic!("{disk:?}: {error}"));
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
