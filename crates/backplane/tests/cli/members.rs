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

/// What it became is said first: the member it was, by the bitmap, or a new one, and why.
#[test]
fn a_drive_that_is_added_comes_back_or_is_told_why_not() {
    let bench = Bench::new();
    let names = "d0 d1 d2 d3";
    bench.line(&format!("drive create {names} --size 400M")).well();
    bench
        .line("array create data --level raid1 d0 d1 d2 --consistency bitmap --assume-clean")
        .well();
    let mut server = bench.spawn("array serve d0 d1 d2 --nbd unix:socket");
    wait_for_start(&mut server);
    assert_eq!(bench.line("array fail data d1").status, 1);
    let mut client = Client::connect(&bench.path("socket"), "data");
    client.write(200 << 20, &[7; 100_000]);
    client.leave();
    let back = bench.line("array add data d1").well().text();
    let chunks = 400 / 64 + 1;
    assert!(back.starts_with(&format!("d1: re-added to slot:1: 1 of {chunks} chunks")), "{back}");
    let written = ["d0", "d1"].map(|name| bench.peek(name, 200 << 20, 8 << 20));
    assert!(written[0].contains(&7) && written[0] == written[1], "it got what it missed");
    let spare = bench.line("array add data d3 --json").well().json();
    assert_eq!(spare["added"]["as"], "new");
    assert_eq!(spare["added"]["why"], "it never was a member");
    assert_eq!(spare["added"]["spare"], true);
    // The spare takes its slot, so the one that failed has none to come back to.
    assert!(bench.line("array fail data d1").status <= 1);
    bench.line("array show data --follow").well();
    let late = bench.line("array add data d1").well().text();
    assert!(late.starts_with("d1: added as a spare: its slot is not empty"), "{late}");
    bench.line("array stop data").well();
    server.wait().unwrap();
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
