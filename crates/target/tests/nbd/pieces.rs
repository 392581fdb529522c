//! The same bytes in other pieces bring the same result, and any bytes at all
//! bring no panic, no growth, and one reply for each handle.

use proptest::prelude::*;
use target::nbd::handshake::OPTION_DATA_BYTES_MAX;
use target::nbd::wire::{CommandCode, CommandFlags, OptionCode, OptionHeader, RequestHeader};
use target::nbd::{CloseReason, Command, Phase};

use crate::client::{FLAGS, SIZE_BYTES, Shell, exports, full_negotiation, option, request, run};

/// A session that uses everything: each option, each command, a refused write.
fn long_session() -> Vec<u8> {
    let none = CommandFlags::EMPTY;
    let mut input = FLAGS.to_vec();
    for code in [OptionCode::List, OptionCode::StartTls, OptionCode::Info] {
        input.extend(option(code, b""));
    }
    input.extend(option(OptionCode::Info, b"\0\0\0\0\0\x02\0\x03\0\x01"));
    input.extend(OptionHeader { option: 77, length: 3 }.encode());
    input.extend(b"abc");
    input.extend(&full_negotiation()[4..]);
    input.extend(request(CommandCode::Write, CommandFlags::FUA, 1, 3, 5));
    input.extend(b"hello");
    input.extend(request(CommandCode::Write, none, 2, SIZE_BYTES, 4));
    input.extend(b"lost");
    input.extend(request(CommandCode::Read, none, 3, 0, 7));
    input.extend(request(CommandCode::BlockStatus, none, 4, 0, 512));
    input.extend(request(CommandCode::Write, none, 5, 0, 0));
    input.extend(request(CommandCode::Flush, none, 6, 0, 0));
    input.extend(request(CommandCode::Disconnect, none, 7, 0, 0));
    input
}

#[test]
fn a_session_in_two_pieces_or_byte_by_byte_is_the_same() {
    let input = long_session();
    let whole = run(&input, usize::MAX);
    assert_eq!(whole.closed, Some(CloseReason::Disconnected));
    assert_eq!(whole.payloads, [b"hello".to_vec()]);
    assert_eq!(run(&input, 1), whole);
    for split in 0..input.len() {
        let mut shell = Shell::new(exports());
        shell.feed(&input[..split]);
        shell.feed(&input[split..]);
        assert_eq!(shell.finish(), whole, "split at {split}");
    }
}

#[test]
fn a_peer_closing_at_any_byte_leaves_a_phase() {
    let input = long_session();
    for end in 0..input.len() {
        let transcript = run(&input[..end], usize::MAX);
        assert_ne!(transcript.phase, Some(Phase::Closed), "{end}");
        assert_eq!(transcript.closed, None, "{end}");
    }
}

/// Options as clients send them, and broken ones.
fn any_option() -> impl Strategy<Value = Vec<u8>> {
    let data = prop_oneof![
        Just(b"\0\0\0\x04disk\0\0".to_vec()),
        Just(b"\0\0\0\x04disk\0\0\0\x01\0\0\0\x0fbase:allocation".to_vec()),
        Just(Vec::new()),
        prop::collection::vec(any::<u8>(), 0..40),
    ];
    (0_u32..14, data, -2_i64..3).prop_map(|(option, data, wrong)| {
        // Now and then the length is not that of the data.
        let length = (data.len() as i64 + wrong / 2).max(0) as u32;
        [&OptionHeader { option, length }.encode()[..], &data].concat()
    })
}

/// Requests in and out of order; the writes have their payload.
fn any_request() -> impl Strategy<Value = (RequestHeader, Vec<u8>)> {
    let offset = prop_oneof![0..SIZE_BYTES + 2, any::<u64>()];
    let flags = prop_oneof![3 => Just(0_u16), 1 => 0_u16..32, 1 => any::<u16>()];
    (flags, 0_u16..10, any::<u64>(), offset, 0_u32..3000).prop_map(
        |(flags, command, cookie, offset, length)| {
            let flags = CommandFlags::from_bits(flags);
            let header = RequestHeader { flags, command, cookie, offset, length };
            let write = command == CommandCode::Write.code();
            let payload = if write { vec![cookie as u8; length as usize] } else { Vec::new() };
            (header, payload)
        },
    )
}

/// The marks of the replies in a server's stream, which are all final here.
/// `reads` gives the length of the data behind a simple reply.
fn marks(mut stream: &[u8], reads: &[(u64, Command)], structured: bool) -> Vec<u64> {
    let mut marks = Vec::new();
    let mut reads = reads.iter().filter_map(|(cookie, command)| match command {
        Command::Read { length, .. } => Some((*cookie, *length as usize)),
        _ => None,
    });
    let mut next_read = reads.next();
    while !stream.is_empty() {
        let cookie = u64::from_be_bytes(*stream[8..].first_chunk().expect("a whole head"));
        let length = if stream[..4] == [0x67, 0x44, 0x66, 0x98] {
            match next_read {
                Some((mark, length)) if !structured && mark == cookie && stream[7] == 0 => {
                    next_read = reads.next();
                    16 + length
                }
                _ => 16,
            }
        } else {
            assert_eq!(stream[..6], [0x66, 0x8e, 0x33, 0xef, 0, 1], "one last chunk");
            20 + u32::from_be_bytes(*stream[16..].first_chunk().expect("a whole head")) as usize
        };
        marks.push(cookie);
        stream = &stream[length..];
    }
    marks
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_bring_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), piece in 1_usize..40) {
        prop_assert_eq!(run(&bytes, piece), run(&bytes, usize::MAX));
        let input = [full_negotiation(), bytes].concat();
        prop_assert_eq!(run(&input, piece), run(&input, usize::MAX));
    }

    #[test]
    fn any_options_bring_the_same_in_any_pieces(
        options in prop::collection::vec(any_option(), 0..12),
        piece in 1_usize..40,
    ) {
        let input = [FLAGS, &options.concat()].concat();
        prop_assert_eq!(run(&input, piece), run(&input, usize::MAX));
    }

    #[test]
    fn what_is_kept_of_an_option_is_bounded(option in any::<u32>(), length in any::<u32>()) {
        let mut shell = Shell::new(exports());
        shell.feed(FLAGS);
        shell.feed(&OptionHeader { option, length }.encode());
        for _ in 0..3 {
            shell.feed(&[0; 40_000]);
            if let Phase::OptionData { received, length, .. } = shell.session().phase() {
                prop_assert!(length > OPTION_DATA_BYTES_MAX || received <= length);
            }
        }
    }

    /// Case G13: each reply matches one open handle, exactly once, in whatever
    /// pieces the requests come and whether they are in order or not.
    #[test]
    fn g13_each_handle_is_answered_exactly_once(
        requests in prop::collection::vec(any_request(), 0..40),
        structured in any::<bool>(),
        piece in 1_usize..5000,
    ) {
        let negotiation = if structured {
            full_negotiation()
        } else {
            [FLAGS, &option(OptionCode::Go, b"\0\0\0\x04disk\0\0")].concat()
        };
        let before = run(&negotiation, usize::MAX).output.len();
        let mut input = negotiation;
        let mut sent = Vec::new();
        let mut payloads = Vec::new();
        for (header, payload) in requests {
            if header.command == CommandCode::Disconnect.code() {
                break;
            }
            input.extend(header.encode());
            input.extend(&payload);
            sent.push(header.cookie);
            payloads.push((header.cookie, payload));
        }
        let transcript = run(&input, piece);
        prop_assert_eq!(&transcript, &run(&input, usize::MAX));
        prop_assert_eq!(&transcript.closed, &None);
        prop_assert_eq!(marks(&transcript.output[before..], &transcript.commands, structured), sent);
        let mut written = transcript.payloads.iter();
        for (cookie, command) in &transcript.commands {
            if let Command::Write { .. } = command {
                let payload = written.next().expect("one for each write");
                prop_assert!(payloads.contains(&(*cookie, payload.clone())));
            }
        }
    }
}
