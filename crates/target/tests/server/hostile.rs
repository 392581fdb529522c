//! Clients that go away, send nonsense, or do nothing at all.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use target::nbd::server::Limits;
use target::nbd::wire::CommandCode;
use world::SplitMix64;

use crate::harness::{Client, Running, memory, negotiation, request};

/// A limit that a client which waits for its end reaches soon.
const SHORT: Duration = Duration::from_millis(40);

fn still_serves(server: &Running) {
    let mut client = server.client();
    client.ask(CommandCode::Read, 1, 0, 10);
    assert_eq!(client.success().cookie, 1);
}

/// Case G07: a peer that closes at any byte is an everyday event.
#[test]
fn g07_a_peer_may_close_at_every_byte_of_the_negotiation_and_of_a_request() {
    let server = Running::start(memory, Limits::default());
    let write = request(CommandCode::Write, 1, 0, 100);
    let bytes = [&negotiation()[..], &write, &[1; 99]].concat();
    for length in 0..=bytes.len() {
        let mut stream = server.connect();
        stream.write_all(&bytes[..length]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let line = server.logged("closed");
        assert!(line.contains("peer closed during "), "after {length} bytes: {line}");
    }
    still_serves(&server);
    server.stop().0.unwrap();
}

#[test]
fn a_peer_that_vanishes_with_replies_due_is_just_gone() {
    let server = Running::start(memory, Limits::default());
    for _ in 0..20 {
        let mut client = server.client();
        for cookie in 0..20 {
            client.ask(CommandCode::Read, cookie, 0, 1 << 20);
        }
        drop(client);
        assert!(server.logged("closed").contains("peer closed during transmission"));
    }
    still_serves(&server);
}

#[test]
fn random_bytes_harm_nobody() {
    let server = Running::start(memory, Limits::default());
    let mut random = SplitMix64::new(7);
    for round in 0..200 {
        let mut stream = server.connect();
        let front = negotiation();
        // Nonsense from the start, in the middle of the negotiation, or after it.
        let mut bytes = match round % 3 {
            0 => Vec::new(),
            1 => front[..random.below(front.len() as u64) as usize].to_vec(),
            _ => front,
        };
        bytes.extend((0..random.below(2000)).map(|_| random.next_u64() as u8));
        // The server may close before it has read all of it.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
        server.logged("connection ");
    }
    still_serves(&server);
    server.stop().0.unwrap();
}

#[test]
fn requests_with_random_fields_keep_the_connection_in_step() {
    let server = Running::start(memory, Limits::default());
    let mut client = server.client();
    let mut random = SplitMix64::new(11);
    for cookie in 0..2000 {
        let mut bytes = request(CommandCode::Flush, cookie, random.next_u64(), 0);
        // Flags, the command (no write, no goodbye), and a length that may be anything.
        bytes[4..6].copy_from_slice(&(random.next_u64() as u16 & 0x3f).to_be_bytes());
        let command = [0, 3, 4, 5, 6, 7, 8, 99][random.below(8) as usize];
        bytes[6..8].copy_from_slice(&u16::to_be_bytes(command));
        bytes[24..].copy_from_slice(&(random.next_u64() as u32).to_be_bytes());
        client.send(&bytes);
        assert_eq!(client.reply().unwrap().cookie, cookie);
    }
}

/// Case G05: clients that come and go at the same time leave nothing behind.
#[test]
fn g05_attach_and_detach_in_parallel_leave_no_socket() {
    let server = Running::start(memory, Limits::default());
    std::thread::scope(|scope| {
        for thread in 0..9 {
            let path = server.path();
            scope.spawn(move || {
                for round in 0..100 {
                    let mut client = Client::on(UnixStream::connect(&path).unwrap());
                    client.ask(CommandCode::Read, round, 512 * thread, 512);
                    // Every other one says goodbye and the rest just go, a third without waiting.
                    if round % 2 == 0 {
                        client.ask(CommandCode::Disconnect, 0, 0, 0);
                    }
                    if round % 3 != 0 {
                        assert_eq!(client.success().cookie, round);
                    }
                }
            });
        }
    });
    let ended = |line: &str| line.contains("peer closed") || line.contains("disconnected");
    for _ in 0..900 {
        server.logged_by(ended);
    }
    // Accepted sockets carry their listener's path in the kernel's table.
    let table = std::fs::read_to_string("/proc/net/unix").unwrap();
    let path = server.path();
    let left = table.lines().filter(|line| line.ends_with(path.to_str().unwrap())).count();
    assert_eq!(left, 1, "only the listener is left");
    still_serves(&server);
    server.stop().0.unwrap();
}

#[test]
fn a_negotiation_has_a_limit() {
    let limits = Limits { negotiation: SHORT, ..Limits::default() };
    let server = Running::start(memory, limits);
    let mut stream = server.connect();
    stream.write_all(&negotiation()[..10]).unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
    let line = server.logged("closed");
    assert!(line.contains("40ms during the header of an option (6 of 16 bytes came)"), "{line}");
}

#[test]
fn half_a_request_has_a_limit_and_idleness_has_none() {
    let server = Running::start(memory, Limits { stall: SHORT, ..Limits::default() });
    let mut idle = server.client();
    let write = request(CommandCode::Write, 1, 0, 1000);
    for bytes in [&write[..10], &[&write[..], &[1; 500]].concat()] {
        let mut client = server.client();
        client.send(bytes);
        client.stream.read_to_end(&mut Vec::new()).unwrap();
        let line = server.logged("closed");
        assert!(line.contains("no byte from the peer for 40ms during the "), "{line}");
    }
    idle.ask(CommandCode::Read, 1, 0, 10);
    assert_eq!(idle.success().cookie, 1, "it was idle for longer than the limit");
}

#[test]
fn replies_that_nobody_takes_have_a_limit() {
    let server = Running::start(memory, Limits { stall: SHORT, ..Limits::default() });
    let mut client = server.client();
    for cookie in 0..10 {
        client.ask(CommandCode::Read, cookie, 0, 1 << 20);
    }
    let line = server.logged("closed");
    assert!(line.contains("the peer took none of its replies for 40ms"), "{line}");
    still_serves(&server);
}

#[test]
fn requests_without_end_and_without_reading_are_bounded() {
    let server = Running::start(memory, Limits { stall: SHORT, ..Limits::default() });
    let mut client = server.client();
    // Refused requests: their answers wait in the server until it takes no more requests.
    let bytes = request(CommandCode::Read, 1, u64::MAX, 1).repeat(1000);
    while client.stream.write_all(&bytes).is_ok() {}
    server.logged("the peer took none of its replies");
}

#[test]
fn one_connection_too_many_is_closed() {
    let server = Running::start(memory, Limits { connections_max: 1, ..Limits::default() });
    let first = server.client();
    assert_eq!(server.connect().read_to_end(&mut Vec::new()).unwrap(), 0);
    server.logged("1 connections is the limit");
    drop(first);
    server.logged("peer closed");
    drop(Client::on(server.connect()));
}
