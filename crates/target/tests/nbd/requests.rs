//! Each command, in and out of place, and the bytes it has to bring.

use target::nbd::wire::{CommandCode, CommandFlags, OptionCode, RequestHeader, TransmissionFlags};
use target::nbd::{
    CloseReason, Command, Export, PAYLOAD_BYTES_MAX, Phase, Refusal, Terms, Verdict, judge,
};

use crate::client::{DATA, FLAGS, SIZE_BYTES, Shell, exports, full_negotiation, option};
use crate::client::{request, run};

const NONE: CommandFlags = CommandFlags::EMPTY;
const COOKIE: &[u8] = b"\xa1\xa2\xa3\xa4\xa5\xa6\xa7\xa8";
const COOKIE_NUMBER: u64 = 0xa1a2_a3a4_a5a6_a7a8;

/// What `requests` bring after `negotiation`.
fn answers(negotiation: &[u8], requests: &[u8]) -> Vec<u8> {
    let before = run(negotiation, usize::MAX).output.len();
    run(&[negotiation, requests].concat(), usize::MAX).output.split_off(before)
}

/// Transmission by the oldest way: no structured replies, no block sizes.
fn plain_negotiation() -> Vec<u8> {
    [FLAGS, &option(OptionCode::ExportName, b"disk")].concat()
}

fn terms(change: impl FnOnce(&mut Export)) -> Terms {
    let mut export = Export::new("disk", SIZE_BYTES);
    change(&mut export);
    Terms::new(0, &export, true, true, true)
}

fn verdict(terms: &Terms, code: CommandCode, flags: CommandFlags, at: (u64, u32)) -> Verdict {
    let (offset, length) = at;
    judge(&RequestHeader { flags, command: code.code(), cookie: 0, offset, length }, terms)
}

#[test]
fn every_command_with_simple_replies() {
    use CommandCode as Code;
    let done = [b"\x67\x44\x66\x98\0\0\0\0", COOKIE].concat();
    let invalid = [b"\x67\x44\x66\x98\0\0\0\x16", COOKIE].concat();
    let read = [&done[..], &[DATA; 16]].concat();
    let no_flags = [
        (Code::Read, (0x1000, 16), &read),
        (Code::Flush, (0, 0), &done),
        (Code::Trim, (0x1000, 16), &done),
        (Code::Cache, (0x1000, 16), &done),
        (Code::WriteZeroes, (0x1000, 16), &done),
        (Code::BlockStatus, (0x1000, 16), &invalid),
    ];
    for (code, (offset, length), expected) in no_flags {
        let request = request(code, NONE, COOKIE_NUMBER, offset, length);
        assert_eq!(&answers(&plain_negotiation(), &request), expected, "{code}");
    }
    let mut write = request(Code::Write, NONE, COOKIE_NUMBER, 0x1000, 3);
    write.extend(b"abc");
    assert_eq!(answers(&plain_negotiation(), &write), done);
    let transcript = run(&[plain_negotiation(), write].concat(), usize::MAX);
    assert_eq!(transcript.payloads, [b"abc".to_vec()]);
}

#[test]
fn every_command_with_structured_replies() {
    use CommandCode as Code;
    let done = [b"\x67\x44\x66\x98\0\0\0\0", COOKIE].concat();
    let read =
        [b"\x66\x8e\x33\xef\0\x01\0\x01", COOKIE, b"\0\0\0\x18\0\0\0\0\0\0\x10\0", &[DATA; 16]]
            .concat();
    let status = [
        b"\x66\x8e\x33\xef\0\x01\0\x05",
        COOKIE,
        b"\0\0\0\x14\0\0\0\x01\0\0\x02\0\0\0\0\x03\0\0\x02\0\0\0\0\0",
    ]
    .concat();
    let one =
        [b"\x66\x8e\x33\xef\0\x01\0\x05", COOKIE, b"\0\0\0\x0c\0\0\0\x01\0\0\x02\0\0\0\0\x03"]
            .concat();
    let table = [
        (Code::Read, NONE, (0x1000, 16), &read),
        (Code::Read, CommandFlags::DF, (0x1000, 16), &read),
        (Code::Flush, CommandFlags::FUA, (0, 0), &done),
        (Code::Trim, CommandFlags::FUA, (0x1000, 16), &done),
        (Code::Cache, NONE, (0x1000, 16), &done),
        (Code::WriteZeroes, CommandFlags::NO_HOLE, (0x1000, 16), &done),
        (Code::BlockStatus, NONE, (0, 0x400), &status),
        (Code::BlockStatus, CommandFlags::REQ_ONE, (0, 0x400), &one),
    ];
    for (code, flags, (offset, length), expected) in table {
        let request = request(code, flags, COOKIE_NUMBER, offset, length);
        assert_eq!(&answers(&full_negotiation(), &request), expected, "{code} {flags:?}");
    }
}

#[test]
fn a_refusal_is_an_error_chunk_with_words() {
    let past = request(CommandCode::Read, NONE, COOKIE_NUMBER, SIZE_BYTES - 1, 2);
    let expected = [
        b"\x66\x8e\x33\xef\0\x01\x80\x01",
        COOKIE,
        b"\0\0\0\x2f\0\0\0\x16\0\x29",
        b"the range ends past the end of the export",
    ];
    assert_eq!(answers(&full_negotiation(), &past), expected.concat());
}

#[test]
fn flags_arrive_in_the_command() {
    let all = terms(|_| ());
    let zeroes = CommandFlags::FUA.with(CommandFlags::NO_HOLE).with(CommandFlags::FAST_ZERO);
    let (offset, length) = (1, 3);
    let expected = Verdict::Serve(Command::WriteZeroes {
        offset,
        length,
        fua: true,
        no_hole: true,
        fast_only: true,
    });
    assert_eq!(verdict(&all, CommandCode::WriteZeroes, zeroes, (1, 3)), expected);
    let expected = Verdict::Serve(Command::Write { offset, length, fua: true });
    assert_eq!(verdict(&all, CommandCode::Write, CommandFlags::FUA, (1, 3)), expected);
    let expected = Verdict::Serve(Command::BlockStatus { offset, length, one_extent: true });
    assert_eq!(verdict(&all, CommandCode::BlockStatus, CommandFlags::REQ_ONE, (1, 3)), expected);
}

/// Each flag bit on each command: served exactly where the protocol has it.
#[test]
fn a_flag_out_of_place_is_refused() {
    use CommandCode as Code;
    let all = terms(|_| ());
    for &code in Code::ALL {
        for bit in 0..16 {
            let flag = CommandFlags::from_bits(1 << bit);
            let place = match bit {
                0 => true,
                1 | 4 => code == Code::WriteZeroes,
                2 => code == Code::Read,
                3 => code == Code::BlockStatus,
                _ => false,
            };
            let at = if code == Code::Flush { (0, 0) } else { (0, 512) };
            match verdict(&all, code, flag, at) {
                Verdict::Serve(_) => assert!(place, "{code} bit {bit}"),
                Verdict::Refuse(refusal) => {
                    assert_eq!((refusal, place), (Refusal::Flag, false), "{code} bit {bit}");
                }
                Verdict::Disconnect => assert_eq!(code, Code::Disconnect),
                Verdict::Nothing => panic!("{code} has a range"),
            }
        }
    }
    let plain = terms(|export| (export.can_fua, export.can_fast_zero) = (false, false));
    for (code, flag) in
        [(Code::Write, CommandFlags::FUA), (Code::WriteZeroes, CommandFlags::FAST_ZERO)]
    {
        assert_eq!(verdict(&plain, code, flag, (0, 512)), Verdict::Refuse(Refusal::Flag));
    }
    let simple = Terms::new(0, &Export::new("disk", SIZE_BYTES), false, false, false);
    let refused = verdict(&simple, Code::Read, CommandFlags::DF, (0, 512));
    assert_eq!(refused, Verdict::Refuse(Refusal::Flag), "DF without structured replies");
}

#[test]
fn ranges_end_at_the_end() {
    use CommandCode as Code;
    let all = terms(|_| ());
    let ranged = [
        (Code::Read, 22),
        (Code::Write, 28),
        (Code::Trim, 22),
        (Code::Cache, 22),
        (Code::WriteZeroes, 28),
        (Code::BlockStatus, 22),
    ];
    for (code, error) in ranged {
        for at in [(SIZE_BYTES, 1), (SIZE_BYTES - 1, 2), (u64::MAX, 1), (u64::MAX, u32::MAX)] {
            let Verdict::Refuse(refusal) = verdict(&all, code, NONE, at) else {
                panic!("{code} at {at:?} ends past the end");
            };
            assert_eq!(refusal.code().code(), error, "{code} at {at:?}");
        }
        let last = verdict(&all, code, NONE, (SIZE_BYTES - 1, 1));
        assert!(matches!(last, Verdict::Serve(_)), "{code} of the last byte");
    }
    for at in [(1, 0), (0, 1), (u64::MAX, 1)] {
        let refused = verdict(&all, Code::Flush, NONE, at);
        assert_eq!(refused, Verdict::Refuse(Refusal::FlushWithRange));
    }
}

#[test]
fn an_empty_range_is_no_work_and_no_error() {
    use CommandCode as Code;
    let all = terms(|_| ());
    for code in [Code::Read, Code::Write, Code::Trim, Code::Cache, Code::WriteZeroes] {
        assert_eq!(verdict(&all, code, NONE, (SIZE_BYTES, 0)), Verdict::Nothing, "{code}");
        let refused = verdict(&all, code, NONE, (SIZE_BYTES + 1, 0));
        assert!(matches!(refused, Verdict::Refuse(_)), "{code} starts past the end");
    }
    let refused = verdict(&all, Code::BlockStatus, NONE, (0, 0));
    assert_eq!(refused, Verdict::Refuse(Refusal::EmptyStatus));
    let read = request(Code::Read, NONE, COOKIE_NUMBER, 0, 0);
    let end = [b"\x66\x8e\x33\xef\0\x01\0\0", COOKIE, b"\0\0\0\0"].concat();
    assert_eq!(answers(&full_negotiation(), &read), end);
}

#[test]
fn a_read_only_export_permits_no_write_and_drains_its_payload() {
    use CommandCode as Code;
    let go = option(OptionCode::Go, b"\0\0\0\x03rom\0\0");
    let negotiation = [FLAGS, &go].concat();
    let denied = [b"\x67\x44\x66\x98\0\0\0\x01", COOKIE].concat();
    for code in [Code::Trim, Code::WriteZeroes] {
        let request = request(code, NONE, COOKIE_NUMBER, 0, 512);
        assert_eq!(answers(&negotiation, &request), denied);
    }
    let mut requests = request(Code::Write, NONE, COOKIE_NUMBER, 0, 100_000);
    requests.extend(vec![0x25; 100_000]);
    requests.extend(request(Code::Flush, NONE, COOKIE_NUMBER, 0, 0));
    let done = [b"\x67\x44\x66\x98\0\0\0\0", COOKIE].concat();
    assert_eq!(answers(&negotiation, &requests), [denied, done].concat());
}

/// libnbd hangs up on a reply to a request that it is still sending.
#[test]
fn a_refusal_waits_for_the_end_of_the_payload() {
    let mut shell = Shell::new(exports());
    shell.feed(&full_negotiation());
    shell.feed(&request(CommandCode::Write, NONE, 1, SIZE_BYTES, 3));
    shell.feed(b"ab");
    assert_eq!(shell.transcript().refusals, []);
    shell.feed(b"c");
    assert_eq!(shell.transcript().refusals, [Some(Refusal::WritePastEnd)]);
}

#[test]
fn lengths_are_bounded_by_what_was_negotiated() {
    let small = terms(|export| export.block_max = 1 << 20);
    let large = Export { size_bytes: 1 << 40, block_max: 1 << 20, ..Export::new("disk", 0) };
    let asked = Terms::new(0, &large, true, false, true);
    let not_asked = Terms::new(0, &large, false, false, false);
    assert_eq!((small.payload_bytes_max, not_asked.payload_bytes_max), (1 << 20, 32 << 20));

    let judged = |terms: &Terms, code, length| verdict(terms, code, NONE, (0, length));
    let (mib, over) = (1 << 20, (1 << 20) + 1);
    assert!(matches!(judged(&asked, CommandCode::Read, mib), Verdict::Serve(_)));
    let refused = judged(&asked, CommandCode::Read, over);
    assert_eq!(refused, Verdict::Refuse(Refusal::ReadTooLong));
    assert_eq!(Refusal::ReadTooLong.code().code(), 75);
    let refused = judged(&asked, CommandCode::Write, over);
    assert_eq!(refused, Verdict::Refuse(Refusal::PayloadTooLong));
    assert!(matches!(judged(&not_asked, CommandCode::Write, 32 << 20), Verdict::Serve(_)));
    let refused = judged(&not_asked, CommandCode::Read, (32 << 20) + 1);
    assert_eq!(refused, Verdict::Refuse(Refusal::PayloadTooLong));
    for code in [CommandCode::Trim, CommandCode::WriteZeroes, CommandCode::Cache] {
        assert!(matches!(judged(&asked, code, u32::MAX), Verdict::Serve(_)), "{code}");
    }
}

#[test]
fn a_payload_beyond_bearing_closes() {
    let write = request(CommandCode::Write, NONE, 1, 0, PAYLOAD_BYTES_MAX);
    let transcript = run(&[full_negotiation(), write].concat(), usize::MAX);
    let draining = Phase::WritePayload { missing: PAYLOAD_BYTES_MAX };
    assert_eq!((transcript.closed, transcript.phase), (None, Some(draining)));
    let length = PAYLOAD_BYTES_MAX + 1;
    let write = request(CommandCode::Write, NONE, 1, 0, length);
    let transcript = run(&[full_negotiation(), write].concat(), usize::MAX);
    assert_eq!(transcript.closed, Some(CloseReason::PayloadTooLong { length }));
}

#[test]
fn out_of_step_closes_and_goodbye_is_clean() {
    let input = [full_negotiation(), vec![0; 28]].concat();
    assert_eq!(run(&input, usize::MAX).closed, Some(CloseReason::NotARequest));
    // Flags and range of a goodbye don't matter: there is no reply to refuse it by.
    let goodbye = request(CommandCode::Disconnect, CommandFlags::DF, 1, 5, 5);
    let transcript = run(&[full_negotiation(), goodbye].concat(), usize::MAX);
    assert_eq!(transcript.closed, Some(CloseReason::Disconnected));
    assert_eq!(answers(&full_negotiation(), b""), b"");
}

#[test]
fn a_stopping_server_answers_and_drains() {
    let mut shell = Shell::new(exports());
    shell.feed(&full_negotiation());
    shell.session().shut_down();
    shell.feed(&request(CommandCode::Write, NONE, 1, 0, 3));
    assert_eq!(
        shell.session().peer_closed(),
        "peer closed during the payload of a write (3 bytes missing)"
    );
    shell.feed(b"abc");
    shell.feed(&request(CommandCode::Read, NONE, 2, 0, 3));
    let transcript = shell.finish();
    assert_eq!(transcript.refusals, [Some(Refusal::Shutdown); 2]);
    assert!(transcript.output.ends_with(b"\0\0\0\x6c\0\x1bthe server is about to stop"));
}

/// Case G02: each command with and without its flag offered, and an unknown
/// one, gets a reply with its handle, and the next read is served.
#[test]
fn g02_every_handle_gets_a_reply_and_the_connection_stays_usable() {
    use CommandCode as Code;
    for offered in [true, false] {
        let mut export = Export::new("disk", SIZE_BYTES);
        (export.can_flush, export.can_fua, export.can_trim) = (offered, offered, offered);
        (export.can_write_zeroes, export.can_cache) = (offered, offered);
        let exports = target::nbd::Exports::new(vec![export]).expect("in order");
        let mut shell = Shell::new(exports);
        shell.feed(&plain_negotiation());
        let negotiated = 18 + 10;
        let probes = [Code::Flush, Code::Trim, Code::WriteZeroes, Code::Cache, Code::BlockStatus];
        for (cookie, code) in probes.into_iter().enumerate() {
            let length = if code == Code::Flush { 0 } else { 512 };
            shell.feed(&request(code, NONE, cookie as u64, 0, length));
        }
        let mut unknown = request(Code::Read, NONE, 5, 0, 512);
        unknown[7] = 0xff;
        shell.feed(&unknown);
        shell.feed(&request(Code::Read, NONE, 6, 0, 1));
        let replies = shell.finish().output.split_off(negotiated);
        let refused_from = if offered { 4 } else { 0 };
        let mut expected = Vec::new();
        for cookie in 0..6_u32 {
            let error = if cookie < refused_from { 0 } else { 22 };
            expected.extend([0x67, 0x44, 0x66, 0x98, 0, 0, 0, error]);
            expected.extend(u64::from(cookie).to_be_bytes());
        }
        expected.extend(*b"\x67\x44\x66\x98\0\0\0\0\0\0\0\0\0\0\0\x06d");
        assert_eq!(replies, expected, "offered: {offered}");
    }
}

/// Case G07, after the handshake: the line names the request or its payload.
#[test]
fn g07_a_peer_closing_in_transmission_is_named() {
    let negotiation = full_negotiation();
    let mut write = request(CommandCode::Write, NONE, 1, 0, 3);
    write.extend(b"abc");
    // The second one is refused: what is thrown away counts alike.
    write.extend(request(CommandCode::Write, NONE, 2, SIZE_BYTES, 3));
    write.extend(b"abc");
    for end in 0..=write.len() {
        let mut shell = Shell::new(exports());
        shell.feed(&negotiation);
        for byte in write[..end].chunks(1) {
            shell.feed(byte);
        }
        let place = match end % 31 {
            0 => "transmission, between requests".into(),
            came @ 1..28 => format!("the header of a request ({came} of 28 bytes came)"),
            at => format!("the payload of a write ({} bytes missing)", 31 - at),
        };
        assert_eq!(shell.session().peer_closed(), format!("peer closed during {place}"));
    }
}

/// Case G09: a client that knows nothing of block sizes is served at any
/// alignment, also where a larger minimum is advertised.
#[test]
fn g09_requests_below_the_advertised_block_are_served() {
    let export = Export { block_min: 4096, ..Export::new("disk", SIZE_BYTES) };
    for block_size_asked in [false, true] {
        let terms = Terms::new(0, &export, false, false, block_size_asked);
        for at in [(512, 512), (1024, 1024), (1, 1), (4095, 2)] {
            for code in [CommandCode::Read, CommandCode::Write] {
                assert!(matches!(verdict(&terms, code, NONE, at), Verdict::Serve(_)));
            }
        }
    }
    assert!(!export.transmission_flags(false).contains(TransmissionFlags::SEND_DF));
}
