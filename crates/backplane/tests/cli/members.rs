//! Members that come and go while the array is served.

use crate::common::{Bench, digest};
use crate::serve::{Client, wait_for_start};

/// Three drives of six, served as `data`, with something on it.
fn served(bench: &Bench) -> std::process::Child {
    bench.drives(6);
    bench.line("array create data --level raid5 --chunk 4K d0 d1 d2 --assume-clean").well();
    let mut server = bench.spawn("array serve d0 d1 d2 --nbd unix:socket");
    wait_for_start(&mut server);
    let mut client = Client::connect(&bench.path("socket"), "data");
    let data: Vec<u8> = (0..1_000_000_u32).map(|index| (index * 7 % 251) as u8).collect();
    client.write(4321, &data);
    client.leave();
    server
}

#[test]
fn a_failed_member_is_removed_and_another_drive_takes_its_place() {
    let bench = Bench::new();
    let mut server = served(&bench);
    assert_eq!(bench.line("array fail data d1").status, 1);
    bench.line("array remove data d0").refused("data can't do without slot 0");
    bench.line("array replace data slot:1 d3").refused("nobody serves in slot 1 of data");
    let removed = bench.line("array remove data slot:1");
    assert_eq!(removed.status, 1, "{removed:?}");
    assert!(removed.text().contains("no member for slot 1"), "{removed:?}");
    bench.line("array remove data slot:1").refused("nobody is in slot 1 of data");
    let added = bench.line("array add data d3").well();
    assert!(added.text().contains("data: healthy"), "{added:?}");
    assert!(added.text().contains("last job     rebuild of slot:1 done"), "{added:?}");
    bench.line("array add data d3").refused("d3 is in the array already");
    bench.line("array stop data").well();
    server.wait().unwrap();
    let whole = bench.line("array extract d0 d2 d3 --to -").well();
    let rest = bench.line("array extract d2 d3 --to -");
    assert_eq!(digest(&rest.stdout), digest(&whole.stdout), "what was filled is right");
}

#[test]
fn a_member_is_replaced_while_it_serves() {
    let bench = Bench::new();
    let mut server = served(&bench);
    let before = bench.line("array replace data d0 d4").well().text();
    assert!(before.contains("last job     replace of slot:0 done"), "{before}");
    bench.line("array stop data").well();
    server.wait().unwrap();
    let whole = bench.line("array extract d1 d2 d4 --to -").well();
    let rest = bench.line("array extract d1 d4 --to -");
    assert_eq!(digest(&rest.stdout), digest(&whole.stdout));
}

#[test]
fn a_drive_that_holds_something_or_is_too_small_does_not_become_a_member() {
    let bench = Bench::new();
    let mut server = served(&bench);
    bench.line("array create other --level raid1 d4 d5 --assume-clean").well();
    bench.line("drive create small --size 4M").well();
    bench.line("array add data small").refused("sectors too small");
    bench.line("array add data nowhere").refused("does not exist");
    let held = bench.line("array add data d4").refused("what is on ");
    assert!(held.stderr.contains("--yes-destroy other"), "{held:?}");
    bench.line("array add data d3 --yes-destroy other").refused("names nothing");
    let added = bench.line("array add data d4 --yes-destroy other").well();
    assert!(added.text().contains("spares       1"), "{added:?}");
    // A spare takes over from whoever fails.
    let failed = bench.line("array fail data d2");
    assert!(failed.status <= 1, "{failed:?}");
    let followed = bench.line("array show data --follow").well();
    assert!(followed.text().contains("rebuild of slot:2 done"), "{followed:?}");
    bench.line("array stop data").well();
    server.wait().unwrap();
}
