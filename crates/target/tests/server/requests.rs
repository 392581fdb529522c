//! Requests of clients that behave.

use std::io::Read;
use std::rc::Rc;

use drive::{ErrorKind, MemoryDrive};
use target::nbd::server::Limits;
use target::nbd::wire::{CommandCode, CommandFlags, ErrorCode, RequestHeader};

use crate::drives::{FAILURES, FailingDrive, HELD_OFFSET, LateDrive, RELEASE_OFFSET};
use crate::harness::{Client, Running, SIZE_BYTES, memory, one, request};

fn late(world: &world::World) -> crate::harness::Offers {
    one(LateDrive::serve(world, SIZE_BYTES))
}

/// Bytes that tell their place.
fn pattern(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes).map(|index| (index / 7 + index) as u8 ^ seed).collect()
}

fn round_trip(client: &mut Client) {
    let lengths = [1, 511, 4096, 70_000, 128 << 10, 131_072 + 28, 3 << 20, 32 << 20];
    for (index, length) in lengths.into_iter().enumerate() {
        let (cookie, offset) = (index as u64, 12_345 * index as u64);
        let data = pattern(length, index as u8);
        client.write(cookie, offset, &data);
        assert_eq!(client.success().cookie, cookie);
        client.ask(CommandCode::Read, cookie + 100, offset, length as u32);
        let reply = client.success();
        assert_eq!(reply.cookie, cookie + 100);
        assert!(reply.data == data, "{length} bytes come back");
    }
}

#[test]
fn what_was_written_is_read_at_every_size() {
    for offers in [memory, late] {
        let server = Running::start(offers, Limits::default());
        round_trip(&mut server.client());
        let (result, _) = server.stop();
        result.unwrap();
    }
}

#[test]
fn a_drive_with_blocks_is_served_at_any_alignment() {
    let blocks = |_: &world::World| one(Rc::new(MemoryDrive::new("blocks", SIZE_BYTES, 4096)));
    let server = Running::start(blocks, Limits::default());
    round_trip(&mut server.client());
}

#[test]
fn many_requests_in_one_message_are_each_answered() {
    for offers in [memory, late] {
        let server = Running::start(offers, Limits::default());
        let mut client = server.client();
        let mut bytes = Vec::new();
        for cookie in 0..100 {
            let data = pattern(1000, cookie as u8);
            bytes.extend(request(CommandCode::Write, cookie, cookie * 1000, 1000));
            bytes.extend(&data);
            bytes.extend(request(CommandCode::BlockStatus, cookie + 1000, 0, 512));
        }
        client.send(&bytes);
        let mut answered: Vec<u64> = (0..200).map(|_| client.success().cookie).collect();
        answered.sort_unstable();
        assert_eq!(answered, (0..100).chain(1000..1100).collect::<Vec<_>>());
        client.ask(CommandCode::Read, 7, 0, 100_000);
        let expected: Vec<u8> = (0..100).flat_map(|seed| pattern(1000, seed)).collect();
        assert!(client.success().data == expected);
    }
}

#[test]
fn replies_come_in_the_order_of_completion() {
    let server = Running::start(late, Limits::default());
    let mut client = server.client();
    client.ask(CommandCode::Read, 1, HELD_OFFSET, 16);
    client.ask(CommandCode::Read, 2, 0, 16);
    assert_eq!(client.success().cookie, 2);
    client.write(3, RELEASE_OFFSET, b"go");
    let answered = [client.success().cookie, client.success().cookie];
    assert!(answered.contains(&1) && answered.contains(&3), "{answered:?}");
}

#[test]
fn a_full_connection_waits_and_goes_on() {
    let limits = Limits {
        connection_requests_max: 2,
        connection_bytes_max: 8192,
        requests_max: 3,
        bytes_max: 10_000,
        ..Limits::default()
    };
    for offers in [memory, late] {
        let server = Running::start(offers, limits);
        let mut clients = [server.client(), server.client()];
        for client in &mut clients {
            for cookie in 0..50 {
                client.ask(CommandCode::Read, cookie, cookie * 100, 100 * cookie as u32 + 1);
            }
            round_trip_of_reads(client);
        }
        round_trip(&mut clients[1]);
    }
}

fn round_trip_of_reads(client: &mut Client) {
    let mut answered: Vec<u64> = (0..50)
        .map(|_| {
            let reply = client.success();
            assert_eq!(reply.data.len() as u64, 100 * reply.cookie + 1);
            reply.cookie
        })
        .collect();
    answered.sort_unstable();
    assert_eq!(answered, (0..50).collect::<Vec<_>>());
}

#[test]
fn a_peer_that_reads_nothing_blocks_only_itself() {
    let server = Running::start(memory, Limits::default());
    let mut greedy = server.client();
    for cookie in 0..300 {
        greedy.ask(CommandCode::Read, cookie, 0, 1 << 20);
    }
    round_trip(&mut server.client());
    for _ in 0..300 {
        assert_eq!(greedy.success().data.len(), 1 << 20);
    }
}

#[test]
fn errors_of_drives_have_their_number_and_the_connection_lives_on() {
    let server = Running::start(|_| one(FailingDrive::serve(SIZE_BYTES)), Limits::default());
    let mut client = server.client();
    for (index, kind) in FAILURES.into_iter().enumerate() {
        let expected = match kind {
            ErrorKind::Full => ErrorCode::NoSpace,
            ErrorKind::ReadOnly => ErrorCode::NotPermitted,
            ErrorKind::Misaligned => ErrorCode::Invalid,
            _ => ErrorCode::InputOutput,
        };
        let offset = (index as u64 + 1) << 20;
        client.ask(CommandCode::Read, 1, offset, 512);
        assert_eq!(client.reply().unwrap().error, expected.code(), "read: {kind}");
        client.write(2, offset, b"data");
        assert_eq!(client.reply().unwrap().error, expected.code(), "write: {kind}");
        server.logged(&format!("write of 0 bytes at {offset} on failing: {kind}"));
        client.ask(CommandCode::Trim, 3, offset, 512);
        assert_eq!(client.reply().unwrap().error, expected.code(), "trim: {kind}");
    }
    client.ask(CommandCode::Flush, 4, 0, 0);
    client.success();
}

#[test]
fn what_a_drive_lacks_is_made_up_for() {
    let server = Running::start(|_| one(FailingDrive::serve(SIZE_BYTES)), Limits::default());
    let mut client = server.client();
    let offset = 16 << 20;
    client.write(1, offset, &pattern(3 << 20, 1));
    client.success();
    client.ask(CommandCode::Trim, 2, offset, 3 << 20);
    client.success();
    let zeroed = (2 << 20) + 5;
    client.ask(CommandCode::WriteZeroes, 3, offset + 1, zeroed);
    client.success();
    client.ask(CommandCode::Read, 4, offset, 3 << 20);
    let data = client.success().data;
    let mut expected = pattern(3 << 20, 1);
    expected[1..=zeroed as usize].fill(0);
    assert!(data == expected);
    client.ask(CommandCode::Cache, 5, offset, 3 << 20);
    client.success();
    client.ask(CommandCode::BlockStatus, 6, offset, 1 << 20);
    assert_eq!(client.success().data, b"\0\0\0\x01\0\x10\0\0\0\0\0\0", "all of it is data");
}

#[test]
fn durable_trims_and_writes_are_answered() {
    let server = Running::start(memory, Limits::default());
    let mut client = server.client();
    for (command, payload) in
        [(CommandCode::Write, 100), (CommandCode::Trim, 0), (CommandCode::WriteZeroes, 0)]
    {
        let flags = CommandFlags::FUA;
        let header =
            RequestHeader { flags, command: command.code(), cookie: 9, offset: 1, length: 100 };
        client.send(&[&header.encode()[..], &vec![1; payload]].concat());
        assert_eq!(client.success().cookie, 9);
    }
}

#[test]
fn refused_writes_keep_the_connection_in_step() {
    let server = Running::start(memory, Limits::default());
    let mut client = server.client();
    client.write(1, SIZE_BYTES - 10, &[1; 100_000]);
    assert_eq!(client.reply().unwrap().error, ErrorCode::NoSpace.code());
    client.write(2, SIZE_BYTES - 10, &[1; 10]);
    assert_eq!(client.success().cookie, 2);
}

#[test]
fn a_goodbye_finishes_what_is_in_flight() {
    let server = Running::start(late, Limits::default());
    let mut client = server.client();
    let mut bytes = request(CommandCode::Read, 1, 0, 4096);
    bytes.extend(request(CommandCode::Disconnect, 2, 0, 0));
    client.send(&bytes);
    assert_eq!(client.success().cookie, 1);
    assert_eq!(client.stream.read(&mut [0]).unwrap(), 0);
    server.logged("client disconnected");
}
