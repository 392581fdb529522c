//! The end of a server.

use std::io::Read;
use std::time::Duration;

use target::nbd::server::Limits;
use target::nbd::wire::{CommandCode, ErrorCode};

use crate::drives::{HELD_OFFSET, LateDrive, RELEASE_OFFSET};
use crate::harness::{Offers, Running, SIZE_BYTES, memory, one, request};

fn late(world: &world::World) -> Offers {
    one(LateDrive::serve(world, SIZE_BYTES))
}

/// Case B18: what is in flight is finished, drives are flushed, then connections close.
#[test]
fn b18_a_stop_finishes_what_is_in_flight() {
    let server = Running::start(late, Limits::default());
    let (mut held, mut idle, mut half) = (server.client(), server.client(), server.client());
    let mut negotiating = server.connect();
    held.ask(CommandCode::Read, 1, HELD_OFFSET, 100);
    // Answered, so the read before it is in flight.
    held.ask(CommandCode::Read, 2, 0, 100);
    assert_eq!(held.success().cookie, 2);
    // A write of which a part has come; what it follows is answered, so the part was seen.
    let write = request(CommandCode::Write, 3, RELEASE_OFFSET, 4);
    half.send(&[&request(CommandCode::Read, 4, 0, 1)[..], &write, b"go"].concat());
    assert_eq!(half.success().cookie, 4);
    server.begin_stop();
    for stream in [&mut idle.stream, &mut negotiating] {
        stream.read_to_end(&mut Vec::new()).expect("these are closed first");
    }
    // It is too late for this, but the connection still answers.
    held.ask(CommandCode::Read, 5, 0, 100);
    let refused = held.reply().unwrap();
    assert_eq!((refused.cookie, refused.error), (5, ErrorCode::Shutdown.code()));
    half.send(b"on");
    assert_eq!(half.success().cookie, 3, "the write that had begun");
    assert_eq!(held.success().cookie, 1, "the read that waited for it");
    for client in [&mut held, &mut half] {
        assert_eq!(client.stream.read(&mut [0]).unwrap(), 0);
    }
    server.stop().0.unwrap();
}

#[test]
fn b18_a_stop_has_a_limit_and_says_what_was_not_drained() {
    let limits = Limits { stop: Duration::from_millis(40), ..Limits::default() };
    let server = Running::start(late, limits);
    let mut client = server.client();
    client.ask(CommandCode::Read, 1, HELD_OFFSET, 100);
    client.ask(CommandCode::Read, 2, 0, 100);
    client.success();
    let (result, _) = server.stop();
    let words = result.unwrap_err().to_string();
    assert_eq!(words, "stopped after 40ms with 1 connections not drained");
}

#[test]
fn new_clients_are_not_let_in_and_the_path_is_gone() {
    let server = Running::start(memory, Limits::default());
    let mut client = server.client();
    client.write(1, RELEASE_OFFSET, b"kept");
    client.success();
    let path = server.path();
    let (result, log) = server.stop();
    result.unwrap();
    assert!(log.last().unwrap().contains("closed: the server stops"), "{log:?}");
    assert!(!path.exists());
}
