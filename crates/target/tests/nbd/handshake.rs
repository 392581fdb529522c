//! Each option, good and bad, and the bytes it has to bring.

use target::nbd::wire::{OptionCode, OptionHeader};
use target::nbd::{CloseReason, Phase, Terms};

use crate::client::{FLAGS, SIZE_BYTES, Shell, answers, exports, option, run};

/// Start of a reply to an option.
const MAGIC: &[u8] = b"\x00\x03\xe8\x89\x04\x55\x65\xa9";

/// Replies to options after today's client flags.
fn replies(options: &[Vec<u8>]) -> Vec<u8> {
    answers(&[FLAGS, &options.concat()].concat())
}

fn terms(options: &[Vec<u8>]) -> Option<Terms> {
    run(&[FLAGS, &options.concat()].concat(), usize::MAX).terms
}

fn closed(input: &[u8]) -> Option<CloseReason> {
    run(input, usize::MAX).closed
}

#[test]
fn the_greeting_offers_fixed_newstyle_without_zeroes() {
    assert_eq!(run(b"", 1).output, b"NBDMAGICIHAVEOPT\0\x03");
}

#[test]
fn unknown_client_flags_close() {
    assert_eq!(closed(b"\0\0\0\x07"), Some(CloseReason::ClientFlags { flags: 7 }));
    assert_eq!(closed(b"\x80\0\0\x01"), Some(CloseReason::ClientFlags { flags: 0x8000_0001 }));
    for flags in 0..4 {
        assert_eq!(closed(&[0, 0, 0, flags]), None);
    }
}

#[test]
fn export_name_is_answered_with_or_without_zeroes() {
    let name = option(OptionCode::ExportName, b"disk");
    let head = b"\0\0\0\0\0\x10\0\0\x0d\x6d";
    assert_eq!(replies(std::slice::from_ref(&name)), head);
    let old = answers(&[b"\0\0\0\x01", &name[..]].concat());
    assert_eq!(old, [&head[..], &[0; 124]].concat());
    // Plain newstyle, which knows no other option.
    let oldest = answers(&[b"\0\0\0\0", &name[..]].concat());
    assert_eq!(oldest, [&head[..], &[0; 124]].concat());
}

#[test]
fn export_name_takes_the_default_and_structured_replies() {
    let default = option(OptionCode::ExportName, b"");
    assert_eq!(replies(std::slice::from_ref(&default)), b"\0\0\0\0\0\x10\0\0\x0d\x6d");
    let structured = [option(OptionCode::StructuredReply, b""), default];
    let expected = [MAGIC, b"\0\0\0\x08\0\0\0\x01\0\0\0\0", b"\0\0\0\0\0\x10\0\0\x0d\xed"].concat();
    assert_eq!(replies(&structured), expected);
    assert!(terms(&structured).is_some_and(|terms| terms.structured_replies));
}

#[test]
fn export_name_closes_where_it_can_t_be_granted() {
    for (data, name) in [(&b"none"[..], "none"), (b"\xff", "\u{fffd}"), (b"a\0", "a\0")] {
        let input = [FLAGS, &option(OptionCode::ExportName, data)].concat();
        assert_eq!(closed(&input), Some(CloseReason::UnknownExport { name: name.into() }));
        assert_eq!(answers(&input), b"");
    }
    let long = OptionHeader { option: 1, length: 65_537 }.encode();
    let reason = CloseReason::OptionTooLong { option: 1, length: 65_537 };
    assert_eq!(closed(&[FLAGS, &long].concat()), Some(reason));
}

#[test]
fn abort_is_acknowledged_whatever_it_carries() {
    for data in [&b""[..], b"bye"] {
        let input = [FLAGS, &option(OptionCode::Abort, data)].concat();
        assert_eq!(answers(&input), [MAGIC, b"\0\0\0\x02\0\0\0\x01\0\0\0\0"].concat());
        assert_eq!(closed(&input), Some(CloseReason::Aborted));
    }
}

#[test]
fn list_names_each_export_with_its_description() {
    let expected = [
        MAGIC,
        b"\0\0\0\x03\0\0\0\x02\0\0\0\x0e\0\0\0\x04diska disk",
        MAGIC,
        b"\0\0\0\x03\0\0\0\x02\0\0\0\x07\0\0\0\x03rom",
        MAGIC,
        b"\0\0\0\x03\0\0\0\x01\0\0\0\0",
    ];
    assert_eq!(replies(&[option(OptionCode::List, b"")]), expected.concat());
    let invalid =
        [MAGIC, b"\0\0\0\x03\x80\0\0\x03\0\0\0\x19", b"this option takes no data"].concat();
    assert_eq!(replies(&[option(OptionCode::List, b"x")]), invalid);
}

#[test]
fn info_gives_what_is_asked_for() {
    let asked = b"\0\0\0\x00\0\x04\0\x03\0\x02\0\x01\0\x00";
    let expected = [
        MAGIC,
        b"\0\0\0\x06\0\0\0\x03\0\0\0\x0c\0\0\0\0\0\0\0\x10\0\0\x0d\x6d",
        MAGIC,
        b"\0\0\0\x06\0\0\0\x03\0\0\0\x06\0\x01disk",
        MAGIC,
        b"\0\0\0\x06\0\0\0\x03\0\0\0\x08\0\x02a disk",
        MAGIC,
        b"\0\0\0\x06\0\0\0\x03\0\0\0\x0e\0\x03\0\0\0\x01\0\0\x10\0\x02\0\0\0",
        MAGIC,
        b"\0\0\0\x06\0\0\0\x01\0\0\0\0",
    ];
    let info = option(OptionCode::Info, asked);
    assert_eq!(replies(std::slice::from_ref(&info)), expected.concat());
    assert_eq!(terms(&[info]), None, "asking does not start");
}

#[test]
fn go_tells_the_export_and_starts() {
    let go = option(OptionCode::Go, b"\0\0\0\x03rom\0\x01\0\x03");
    let expected = [
        MAGIC,
        b"\0\0\0\x07\0\0\0\x03\0\0\0\x0c\0\0\0\0\0\0\0\x10\0\0\x05\x0f",
        MAGIC,
        b"\0\0\0\x07\0\0\0\x03\0\0\0\x0e\0\x03\0\0\x02\0\0\0\x10\0\x02\0\0\0",
        MAGIC,
        b"\0\0\0\x07\0\0\0\x01\0\0\0\0",
    ];
    assert_eq!(replies(std::slice::from_ref(&go)), expected.concat());
    let terms = terms(&[go]).expect("negotiated");
    assert_eq!((terms.export, terms.size_bytes), (1, SIZE_BYTES));
    assert!(!terms.structured_replies && !terms.base_allocation);
}

#[test]
fn go_without_block_sizes_is_welcome() {
    let go = option(OptionCode::Go, b"\0\0\0\x04disk\0\0");
    let expected = [
        MAGIC,
        b"\0\0\0\x07\0\0\0\x03\0\0\0\x0c\0\0\0\0\0\0\0\x10\0\0\x0d\x6d",
        MAGIC,
        b"\0\0\0\x07\0\0\0\x01\0\0\0\0",
    ];
    assert_eq!(replies(&[go]), expected.concat());
}

#[test]
fn info_and_go_refuse_and_haggling_goes_on() {
    for (code, byte) in [(OptionCode::Info, 6), (OptionCode::Go, 7)] {
        let mut options = vec![option(code, b"\0\0\0\x04none\0\0")];
        let head = [0, 0, 0, byte, 0x80, 0, 0, 6, 0, 0, 0, 33];
        let mut expected = [MAGIC, &head, b"no export of this name is offered"].concat();
        for short in [&b""[..], b"\0\0\0\x07disk\0\0", b"\0\0\0\x04disk\0", b"\0\0\0\0\0\x01"] {
            options.push(option(code, short));
            let head = [0, 0, 0, byte, 0x80, 0, 0, 3, 0, 0, 0, 23];
            expected.extend([MAGIC, &head, b"the data ends too early"].concat());
        }
        options.push(option(OptionCode::Abort, b""));
        expected.extend([MAGIC, b"\0\0\0\x02\0\0\0\x01\0\0\0\0"].concat());
        assert_eq!(replies(&options), expected);
    }
}

#[test]
fn structured_reply_takes_no_data() {
    let option = option(OptionCode::StructuredReply, b"x");
    let text = b"this option takes no data";
    let expected = [MAGIC, b"\0\0\0\x08\x80\0\0\x03\0\0\0\x19", text].concat();
    assert_eq!(replies(&[option]), expected);
}

#[test]
fn starttls_is_not_supported_and_not_fatal() {
    let expected = [MAGIC, b"\0\0\0\x05\x80\0\0\x01\0\0\0\x16", b"this server has no TLS"].concat();
    assert_eq!(replies(&[option(OptionCode::StartTls, b"")]), expected);
    let text = b"this option takes no data";
    let expected = [MAGIC, b"\0\0\0\x05\x80\0\0\x03\0\0\0\x19", text].concat();
    assert_eq!(replies(&[option(OptionCode::StartTls, b"x")]), expected);
}

#[test]
fn unknown_options_are_skipped_with_their_data() {
    let unknown = |code: u32, data: &[u8]| {
        let length = data.len() as u32;
        [&OptionHeader { option: code, length }.encode()[..], data].concat()
    };
    let text = b"this server does not know the option";
    // PEEK_EXPORT, EXTENDED_HEADERS, and one with more data than is kept.
    let options = [unknown(4, b"disk"), unknown(11, b""), unknown(0xffff_fffe, &vec![7; 100_000])];
    let expected = [
        MAGIC,
        b"\0\0\0\x04\x80\0\0\x01\0\0\0\x24",
        text,
        MAGIC,
        b"\0\0\0\x0b\x80\0\0\x01\0\0\0\x24",
        text,
        MAGIC,
        b"\xff\xff\xff\xfe\x80\0\0\x01\0\0\0\x24",
        text,
    ];
    assert_eq!(replies(&options), expected.concat());
}

#[test]
fn data_beyond_the_bound_is_too_big_and_then_too_much() {
    let list = option(OptionCode::List, &vec![0; 65_537]);
    let expected = [MAGIC, b"\0\0\0\x03\x80\0\0\x09\0\0\0\x14", b"the data is too long"].concat();
    assert_eq!(replies(&[list]), expected);
    // The end of the data is found wherever a piece ends.
    let input = [FLAGS, &option(OptionCode::List, &vec![0; 65_537]), b"IHAVEOPT"].concat();
    for split in input.len() - 12..input.len() {
        let mut shell = Shell::new(exports());
        shell.feed(&input[..split]);
        shell.feed(&input[split..]);
        assert_eq!(shell.session().phase(), Phase::OptionHeader { received: 8 });
        assert_eq!(shell.finish().output.split_off(18), expected);
    }
    let endless = OptionHeader { option: 3, length: u32::MAX }.encode();
    let reason = CloseReason::OptionTooLong { option: 3, length: u32::MAX };
    assert_eq!(closed(&[FLAGS, &endless].concat()), Some(reason));
}

#[test]
fn contexts_need_structured_replies() {
    let data = b"\0\0\0\x04disk\0\0\0\0";
    let text = b"structured replies have to be negotiated first";
    for (code, byte) in [(OptionCode::ListMetaContext, 9), (OptionCode::SetMetaContext, 10)] {
        let head = [0, 0, 0, byte, 0x80, 0, 0, 3, 0, 0, 0, 46];
        assert_eq!(replies(&[option(code, data)]), [MAGIC, &head, text].concat());
    }
}

#[test]
fn contexts_are_listed_by_query() {
    let structured = option(OptionCode::StructuredReply, b"");
    let acknowledged = [MAGIC, b"\0\0\0\x08\0\0\0\x01\0\0\0\0"].concat();
    let context = [MAGIC, b"\0\0\0\x09\0\0\0\x04\0\0\0\x13\0\0\0\0base:allocation"].concat();
    let end = [MAGIC, b"\0\0\0\x09\0\0\0\x01\0\0\0\0"].concat();
    let tables: [(&[u8], bool); 5] = [
        (b"\0\0\0\x04disk\0\0\0\0", true),
        (b"\0\0\0\x04disk\0\0\0\x01\0\0\0\x05base:", true),
        (b"\0\0\0\x04disk\0\0\0\x01\0\0\0\x0fbase:allocation", true),
        (b"\0\0\0\x04disk\0\0\0\x01\0\0\0\x06base:x", false),
        (b"\0\0\0\x04disk\0\0\0\x01\0\0\0\x05qemu:", false),
    ];
    for (data, found) in tables {
        let list = option(OptionCode::ListMetaContext, data);
        let found = if found { &context[..] } else { b"" };
        let expected = [&acknowledged[..], found, &end].concat();
        assert_eq!(replies(&[structured.clone(), list]), expected);
    }
    let unknown = option(OptionCode::ListMetaContext, b"\0\0\0\x01x\0\0\0\0");
    let text = b"no export of this name is offered";
    let expected = [&acknowledged[..], MAGIC, b"\0\0\0\x09\x80\0\0\x06\0\0\0\x21", text].concat();
    assert_eq!(replies(&[structured, unknown]), expected);
}

#[test]
fn a_context_is_selected_for_one_export_by_the_last_try() {
    let structured = option(OptionCode::StructuredReply, b"");
    let set = |data: &[u8]| option(OptionCode::SetMetaContext, data);
    let good = set(b"\0\0\0\x04disk\0\0\0\x01\0\0\0\x0fbase:allocation");
    let go = |name: &[u8]| {
        let data = [&(name.len() as u32).to_be_bytes()[..], name, b"\0\0"].concat();
        option(OptionCode::Go, &data)
    };
    let acknowledged = [MAGIC, b"\0\0\0\x08\0\0\0\x01\0\0\0\0"].concat();
    let selected = [
        &acknowledged[..],
        MAGIC,
        b"\0\0\0\x0a\0\0\0\x04\0\0\0\x13\0\0\0\x01base:allocation",
        MAGIC,
        b"\0\0\0\x0a\0\0\0\x01\0\0\0\0",
    ];
    assert_eq!(replies(&[structured.clone(), good.clone()]), selected.concat());

    let chosen = |options: &[Vec<u8>]| {
        terms(&[std::slice::from_ref(&structured), options].concat())
            .map(|terms| terms.base_allocation)
    };
    assert_eq!(chosen(&[good.clone(), go(b"disk")]), Some(true));
    assert_eq!(chosen(&[good.clone(), go(b"")]), Some(true), "the default is this export");
    assert_eq!(chosen(&[good.clone(), go(b"rom")]), Some(false), "another export");
    assert_eq!(chosen(&[go(b"disk")]), Some(false));
    let wildcard = set(b"\0\0\0\x04disk\0\0\0\x01\0\0\0\x05base:");
    assert_eq!(chosen(&[good.clone(), wildcard, go(b"disk")]), Some(false));
    let none = set(b"\0\0\0\x04disk\0\0\0\0");
    assert_eq!(chosen(&[good.clone(), none, go(b"disk")]), Some(false));
    let broken = set(b"\0\0\0\x04disk\0\0\0\x01");
    assert_eq!(chosen(&[good, broken, go(b"disk")]), Some(false), "a failure unselects");
}

#[test]
fn a_client_without_fixed_newstyle_may_only_name_an_export() {
    let input = [b"\0\0\0\0", &option(OptionCode::List, b"")[..]].concat();
    assert_eq!(closed(&input), Some(CloseReason::NotFixedNewstyle { option: 3 }));
    let input = [FLAGS, b"GET / HTTP/1.1\r\n"].concat();
    assert_eq!(closed(&input), Some(CloseReason::NotAnOption));
}

#[test]
fn haggling_ends() {
    let list = option(OptionCode::List, b"x");
    let input = [FLAGS, &list.repeat(1024)].concat();
    assert_eq!(closed(&input), None);
    let input = [&input[..], &list].concat();
    assert_eq!(closed(&input), Some(CloseReason::TooManyOptions { options: 1025 }));
}

#[test]
fn a_stopping_server_says_so() {
    let mut shell = Shell::new(exports());
    shell.feed(FLAGS);
    shell.session().shut_down();
    shell.feed(&option(OptionCode::Go, b"\0\0\0\x04disk\0\0"));
    shell.feed(&option(OptionCode::Abort, b""));
    let transcript = shell.finish();
    let expected = [
        b"NBDMAGICIHAVEOPT\0\x03",
        MAGIC,
        b"\0\0\0\x07\x80\0\0\x07\0\0\0\x1bthe server is about to stop",
        MAGIC,
        b"\0\0\0\x02\0\0\0\x01\0\0\0\0",
    ];
    assert_eq!(transcript.output, expected.concat());
    assert_eq!(transcript.closed, Some(CloseReason::Aborted));

    let mut shell = Shell::new(exports());
    shell.session().shut_down();
    shell.feed(&[FLAGS, &option(OptionCode::ExportName, b"disk")].concat());
    assert_eq!(shell.finish().closed, Some(CloseReason::Shutdown));
}

/// Case G07: a peer that closes at any byte is a line in the log that says
/// where it was, never an error of the server.
#[test]
fn g07_a_peer_closing_at_any_byte_is_named() {
    let list = option(OptionCode::List, b"");
    let go = option(OptionCode::Go, b"\0\0\0\x04disk\0\0");
    let input = [FLAGS, &list, &go].concat();
    for end in 0..=input.len() {
        let mut shell = Shell::new(exports());
        shell.feed(&input[..end]);
        let line = shell.session().peer_closed();
        let expected = match end {
            0..4 => format!("peer closed during the client flags ({end} of 4 bytes came)"),
            4 | 20 => "peer closed during the negotiation, between options".into(),
            5..20 => {
                format!("peer closed during the header of an option ({} of 16 bytes came)", end - 4)
            }
            21..36 => {
                let came = end - 20;
                format!("peer closed during the header of an option ({came} of 16 bytes came)")
            }
            36..46 => {
                let came = end - 36;
                format!("peer closed during the data of option GO ({came} of 10 bytes came)")
            }
            _ => "peer closed during transmission, between requests".into(),
        };
        assert_eq!(line, expected);
        assert_eq!(shell.finish().closed, None);
    }
    assert_eq!(
        run(&[FLAGS, &option(OptionCode::Abort, b"")].concat(), 1).phase,
        Some(Phase::Closed)
    );
}
