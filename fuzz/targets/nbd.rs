//! An NBD client that sends what it likes, in pieces of any size.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use target::nbd::wire::{CommandFlags, OptionHeader, RequestHeader};
use target::nbd::{Command, Event, Export, Exports, Session};

#[derive(Arbitrary, Debug)]
enum Message<'a> {
    /// The client's flags, as today's clients send them.
    Flags,
    Option {
        code: u8,
        /// Of the header, where it is not the data's own.
        length: Option<u32>,
        data: &'a [u8],
    },
    /// Goes to transmission.
    Go {
        structured: bool,
    },
    Request {
        flags: u16,
        command: u8,
        cookie: u64,
        offset: u64,
        length: u32,
        payload: &'a [u8],
    },
    Raw(&'a [u8]),
}

impl Message<'_> {
    fn bytes(&self) -> Vec<u8> {
        let option = |option, data: &[u8]| {
            let header = OptionHeader { option, length: data.len() as u32 };
            [&header.encode()[..], data].concat()
        };
        match *self {
            Message::Flags => b"\0\0\0\x03".to_vec(),
            Message::Option { code, length, data } => {
                let length = length.unwrap_or(data.len() as u32);
                let header = OptionHeader { option: code.into(), length };
                [&header.encode()[..], data].concat()
            }
            Message::Go { structured } => {
                let before = if structured { option(8, b"") } else { Vec::new() };
                [before, option(7, b"\0\0\0\x04disk\0\x01\0\x03")].concat()
            }
            Message::Request { flags, command, cookie, offset, length, payload } => {
                let flags = CommandFlags::from_bits(flags);
                let command = u16::from(command);
                let header = RequestHeader { flags, command, cookie, offset, length };
                [&header.encode()[..], payload].concat()
            }
            Message::Raw(bytes) => bytes.to_vec(),
        }
    }
}

/// What was answered, what was to be done, and the reason for the end.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    output: Vec<u8>,
    events: Vec<String>,
}

fn exports() -> Exports {
    let mut rom = Export::new("rom", 1 << 20);
    rom.read_only = true;
    rom.block_min = 512;
    Exports::new(vec![Export::new("disk", 1 << 20), rom]).expect("both are in order")
}

fn run<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Seen {
    let mut seen = Seen::default();
    let mut session = Session::new(exports(), &mut seen.output);
    let mut buffer: Vec<u8> = Vec::new();
    let mut payload_left = 0;
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            let taken = buffer.len().min(payload_left);
            buffer.drain(..taken);
            session.payload_received(taken as u32);
            payload_left -= taken;
            if payload_left > 0 {
                break;
            }
            let (consumed, event) = session.receive(&buffer, &mut seen.output);
            buffer.drain(..consumed);
            match &event {
                Event::NeedMore => {
                    assert!(buffer.len() < RequestHeader::BYTES, "no more is ever kept");
                    break;
                }
                Event::Request { command: Command::Write { length, .. }, .. } => {
                    payload_left = *length as usize;
                }
                Event::Close(_) => {
                    seen.events.push(format!("{event:?}"));
                    return seen;
                }
                _ => {}
            }
            seen.events.push(format!("{event:?}"));
        }
    }
    let _ = session.peer_closed();
    seen
}

fuzz_target!(|data: (Vec<Message>, Vec<u8>)| {
    let (messages, cuts) = data;
    let input: Vec<u8> = messages.iter().flat_map(Message::bytes).collect();
    let whole = run(std::iter::once(&input[..]));
    // As the network cuts it: the same comes of it.
    let mut rest = &input[..];
    let mut pieces = Vec::new();
    for cut in cuts {
        let (piece, later) = rest.split_at(rest.len().min(cut.into()));
        pieces.push(piece);
        rest = later;
    }
    pieces.push(rest);
    assert_eq!(run(pieces.into_iter()), whole);
});
