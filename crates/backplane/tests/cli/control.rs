//! Arrays in service, reached through their control socket.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use serde_json::Value;

use crate::common::Bench;
use crate::serve::{Client, interrupt, wait_for_start};

/// Three drives, served as `data`.
fn served(bench: &Bench) -> std::process::Child {
    bench.drives(3);
    bench.line("array create data --level raid5 --chunk 4K d0 d1 d2 --assume-clean").well();
    let mut server = bench.spawn("array serve . --nbd unix:socket");
    wait_for_start(&mut server);
    server
}

/// One line to the socket, and the lines that come back.
fn say(socket: &Path, line: &[u8]) -> Vec<Value> {
    let mut stream = UnixStream::connect(socket).unwrap();
    // A server that has heard enough may have closed already.
    let _ = stream.write_all(line);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    lines.map(|line| serde_json::from_str(&line).unwrap()).collect()
}

#[test]
fn a_served_array_is_found_by_its_name_and_by_its_drives() {
    let bench = Bench::new();
    let server = served(&bench);
    for words in ["array show data", "array show d0 d1", "array show ."] {
        let shown = bench.line(words).well().text();
        assert!(shown.contains("served       read-write, by process"), "{words}: {shown}");
    }
    let shown = bench.line("array show data --json").well().json();
    let array = &shown["array"];
    assert_eq!(array["served"]["pid"], server.id());
    assert_eq!((&array["state"], &array["members"][1]["slot"]), (&"healthy".into(), &1.into()));
    // Another word for it.
    let uuid = array["uuid"].as_str().unwrap();
    assert!(bench.run(&["array", "show", uuid]).well().text().contains("by process"));
    assert_eq!(interrupt(server).0, Some(0));
    let shown = bench.line("array show d0 d1 d2 --json").well().json();
    assert_eq!(shown["array"]["served"], Value::Null);
    bench.line("array fail data d0").refused("no array called \"data\" is served");
}

#[test]
fn a_member_is_failed_while_clients_write_and_no_more_than_the_level_survives() {
    let bench = Bench::new();
    let server = served(&bench);
    let mut client = Client::connect(&bench.path("socket"), "data");
    client.write(0, &[7; 40_000]);
    bench.line("array fail data d9").refused("data has no member \"d9\"");
    bench.line("array fail data slot:3").refused("slot:2 ");
    let failed = bench.line("array fail data d1");
    assert_eq!(failed.status, 1, "{failed:?}");
    let text = failed.text();
    assert!(text.contains("data: degraded") && text.contains("d1 has failed"), "{text}");
    // It is failed already: nothing more to do.
    assert_eq!(bench.line("array fail data slot:1").status, 1);
    bench.line("array fail data d0").refused("data can't do without slot 0");
    client.write(50_000, &[8; 10_000]);
    assert_eq!(client.read(0, 40_000), [7; 40_000]);
    client.flush();
    client.leave();
    let stopped = bench.line("array stop data").well();
    assert_eq!(stopped.text(), "data: stopped, its members are clean\n");
    let output = server.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "degraded: {output:?}");
    assert!(!bench.path("run/data.sock").exists());
    // What was written after the failure is not taken from the failed member.
    let content = bench.line("array extract d0 d1 d2 --to -");
    assert!(content.stdout[50_000..60_000] == [8; 10_000]);
}

#[test]
fn one_process_serves_several_arrays_and_stops_them_together() {
    let bench = Bench::new();
    bench.drives(4);
    bench.line("array create one --level raid1 d0 d1 --assume-clean").well();
    bench.line("array create two --level raid1 d2 d3 --assume-clean").well();
    let mut server = bench.spawn("array serve . --nbd unix:socket");
    wait_for_start(&mut server);
    assert!(bench.line("array show two").well().text().starts_with("two: healthy"));
    bench.line("array stop one").refused("this process serves other arrays too: two");
    bench.line("array stop one --all").well();
    assert_eq!(server.wait_with_output().unwrap().status.code(), Some(0));
}

#[test]
fn a_socket_can_be_named_and_one_that_is_not_ours_is_not_used() {
    let bench = Bench::new();
    bench.drives(2);
    bench.line("array create data --level raid1 d0 d1 --assume-clean").well();
    let mut server = bench.spawn("array serve . --nbd unix:socket --control here.sock");
    wait_for_start(&mut server);
    assert!(!bench.path("run").exists(), "only where it was asked for");
    bench.line("array stop data").refused("no array called \"data\" is served");
    bench.line("array stop data --control elsewhere").refused("no control socket at elsewhere");
    bench.line("array stop data --control d0").refused("d0 is no socket");
    bench.line("array stop other --control here.sock").refused("no array is called \"other\"");
    bench.line("array stop data --control here.sock").well();
    assert_eq!(server.wait_with_output().unwrap().status.code(), Some(0));
    // A socket that nobody listens on any more.
    drop(UnixListener::bind(bench.path("stale")).unwrap());
    bench.line("array stop data --control stale").refused("nobody answers at stale");
    // A folder in which somebody else could put a socket.
    use std::os::unix::fs::PermissionsExt;
    fs::create_dir_all(bench.path("run")).unwrap();
    fs::set_permissions(bench.path("run"), fs::Permissions::from_mode(0o777)).unwrap();
    bench.line("array stop data").refused("others may write to it");
    let mut server = bench.spawn("array serve . --nbd unix:socket");
    wait_for_start(&mut server);
    let (status, said) = interrupt(server);
    assert_eq!(status, Some(0));
    assert!(said.contains("warning: data has no control socket"), "{said}");
}

/// A process that was killed leaves its socket behind: the next one takes its place.
#[test]
fn a_killed_process_leaves_nothing_in_the_way() {
    let bench = Bench::new();
    let mut server = served(&bench);
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(bench.path("run/data.sock").exists());
    assert!(!bench.line("array show d0 d1 d2").text().contains("by process"));
    let mut server = bench.spawn("array serve . --nbd unix:socket");
    wait_for_start(&mut server);
    assert!(bench.line("array show data").text().contains("by process"));
    bench.line("array stop data").well();
    server.wait().unwrap();
}

#[test]
fn hostile_requests_are_answered_with_an_error_and_harm_nobody() {
    let bench = Bench::new();
    let server = served(&bench);
    let socket = bench.path("run/data.sock");
    let long = vec![b'x'; 100_000];
    let table: [&[u8]; 7] = [
        b"\n",
        b"nonsense\n",
        b"\xff\xfe\x00\n",
        br#"{"schema":1,"act":"stop","array":"data""#,
        b"{\"schema\":9,\"act\":\"list\"}\n",
        b"{\"schema\":1,\"act\":\"fail\",\"array\":\"data\",\"member\":\"slot:99999999999\"}\n",
        &long,
    ];
    for request in table {
        let answers = say(&socket, request);
        let errors = answers.iter().filter(|answer| answer["error"]["fact"].is_string()).count();
        assert_eq!(answers.len(), errors, "{answers:?}");
    }
    // Many that say nothing, and one that is not let in for it.
    let silent: Vec<_> = (0..16).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    let crowded = bench.line("array show data --control run/data.sock");
    assert_eq!(crowded.status, 2, "{crowded:?}");
    drop(silent);
    // The server may notice a moment later that they have gone.
    let twice = b"{\"schema\":1,\"act\":\"list\"}\n{\"schema\":1,\"act\":\"list\"}\n";
    let mut tries = (0..1000).map(|_| say(&socket, twice));
    let lists = tries.find(|lists| !lists.is_empty()).unwrap();
    assert_eq!(lists.len(), 2, "{lists:?}");
    assert_eq!(lists[1]["done"]["arrays"][0]["title"], "data");
    bench.line("array show data").well();
    assert_eq!(interrupt(server).0, Some(0));
}

#[test]
fn an_array_that_is_only_read_is_not_changed() {
    let bench = Bench::new();
    bench.drives(2);
    bench.line("array create data --level raid1 d0 d1 --assume-clean").well();
    let mut server = bench.spawn("array serve . --nbd unix:socket --read-only");
    wait_for_start(&mut server);
    let shown = bench.line("array show data").well().text();
    assert!(shown.contains("read-only, by process"), "{shown}");
    let shown = bench.line("array show data --json").well().json();
    assert_eq!(shown["array"]["health"], "read-only");
    bench.line("array fail data d0").refused("data is served read-only");
    bench.line("array stop data").well();
    server.wait().unwrap();
}

/// Members are not opened by two at once; who has them is named.
#[test]
fn drives_in_service_are_not_served_again() {
    let bench = Bench::new();
    let server = served(&bench);
    let second = bench.line("array serve d0 d1 d2 --nbd unix:second").refused("d0 is in use");
    assert!(second.stderr.contains(&format!("process {}", server.id())), "{second:?}");
    assert_eq!(interrupt(server).0, Some(0));
}
