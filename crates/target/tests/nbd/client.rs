//! The other side of the wire for tests: bytes a client sends, and a shell
//! that feeds them to a session in pieces and answers from no drive at all.

use target::nbd::wire::{CommandCode, CommandFlags, OptionCode, OptionHeader, RequestHeader};
use target::nbd::{
    Allocation, BlockStatus, CloseReason, Command, Event, Export, Exports, Phase, Refusal, Session,
    Terms, Ticket,
};

/// Size in bytes of both exports.
pub const SIZE_BYTES: u64 = 1 << 20;
/// The byte each read gives.
pub const DATA: u8 = b'd';
/// Client flags of today's clients: fixed newstyle, no zeroes.
pub const FLAGS: &[u8] = b"\0\0\0\x03";

/// A writable disk with a description, and a read-only one without.
pub fn exports() -> Exports {
    let mut disk = Export::new("disk", SIZE_BYTES);
    disk.description = "a disk".into();
    let mut rom = Export::new("rom", SIZE_BYTES);
    rom.read_only = true;
    rom.block_min = 512;
    Exports::new(vec![disk, rom]).expect("both are in order")
}

/// Bytes of an option.
pub fn option(option: OptionCode, data: &[u8]) -> Vec<u8> {
    let header = OptionHeader { option: option.code(), length: data.len() as u32 };
    [&header.encode()[..], data].concat()
}

/// Bytes of a request without payload.
pub fn request(
    command: CommandCode,
    flags: CommandFlags,
    cookie: u64,
    offset: u64,
    length: u32,
) -> Vec<u8> {
    let command = command.code();
    RequestHeader { flags, command, cookie, offset, length }.encode().to_vec()
}

/// Options up to transmission on `disk` with everything negotiated.
pub fn full_negotiation() -> Vec<u8> {
    let context = b"\0\0\0\x04disk\0\0\0\x01\0\0\0\x0fbase:allocation";
    [
        FLAGS,
        &option(OptionCode::StructuredReply, b""),
        &option(OptionCode::SetMetaContext, context),
        &option(OptionCode::Go, b"\0\0\0\x04disk\0\x01\0\x03"),
    ]
    .concat()
}

/// All that can be seen of a session from outside.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Transcript {
    /// All bytes sent.
    pub output: Vec<u8>,
    /// Terms, once negotiated.
    pub terms: Option<Terms>,
    /// Commands to carry out, with the mark of their request.
    pub commands: Vec<(u64, Command)>,
    /// Payloads of the writes.
    pub payloads: Vec<Vec<u8>>,
    /// Requests answered without a command: refused, or empty.
    pub refusals: Vec<Option<Refusal>>,
    /// Why the session closed.
    pub closed: Option<CloseReason>,
    /// Where it was at the end of the input.
    pub phase: Option<Phase>,
}

/// Feeds `input` to a fresh session in pieces of `piece` bytes.
pub fn run(input: &[u8], piece: usize) -> Transcript {
    let mut shell = Shell::new(exports());
    for bytes in input.chunks(piece.max(1)) {
        shell.feed(bytes);
    }
    shell.finish()
}

/// Like [`run`] in one piece, without the greeting: what the input brings.
pub fn answers(input: &[u8]) -> Vec<u8> {
    run(input, usize::MAX).output.split_off(18)
}

/// What the sockets' side will do, on vectors.
pub struct Shell {
    session: Session,
    buffer: Vec<u8>,
    payload_left: usize,
    transcript: Transcript,
}

impl Shell {
    pub fn new(exports: Exports) -> Self {
        let mut transcript = Transcript::default();
        let session = Session::new(exports, &mut transcript.output);
        Self { session, buffer: Vec::new(), payload_left: 0, transcript }
    }

    pub fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    pub fn transcript(&self) -> &Transcript {
        &self.transcript
    }

    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
        loop {
            self.take_payload();
            if self.payload_left > 0 {
                return;
            }
            let output = &mut self.transcript.output;
            let (consumed, event) = self.session.receive(&self.buffer, output);
            self.buffer.drain(..consumed);
            match event {
                Event::NeedMore => {
                    assert!(self.buffer.len() < RequestHeader::BYTES, "no more is ever kept");
                    return;
                }
                Event::Reply => {}
                Event::Ready(terms) => self.transcript.terms = Some(terms),
                Event::Request { ticket, command } => self.serve(ticket, command),
                Event::Answer { head, refusal } => {
                    self.transcript.output.extend_from_slice(head.as_bytes());
                    self.transcript.refusals.push(refusal);
                }
                Event::Close(reason) => {
                    self.transcript.closed = Some(reason);
                    self.buffer.clear();
                    return;
                }
            }
        }
    }

    pub fn finish(mut self) -> Transcript {
        self.transcript.phase = Some(self.session.phase());
        self.transcript
    }

    fn take_payload(&mut self) {
        let taken = self.payload_left.min(self.buffer.len());
        if let Some(payload) = self.transcript.payloads.last_mut() {
            payload.extend(self.buffer.drain(..taken));
            self.payload_left -= taken;
            self.session.payload_received(taken as u32);
        }
    }

    fn serve(&mut self, ticket: Ticket, command: Command) {
        self.transcript.commands.push((ticket.cookie(), command));
        let output = &mut self.transcript.output;
        match command {
            Command::Read { length, .. } => {
                output.extend_from_slice(ticket.data().as_bytes());
                output.resize(output.len() + length as usize, DATA);
            }
            Command::BlockStatus { length, .. } => {
                let mut status = BlockStatus::of(&command).expect("it is a block status");
                status.push(u64::from(length) / 2, Allocation::Hole);
                status.push(u64::from(length), Allocation::Data);
                let (extents, bytes) = status.finish();
                output.extend_from_slice(ticket.status(1, extents).as_bytes());
                output.extend(bytes);
            }
            Command::Write { length, .. } => {
                self.payload_left = length as usize;
                self.transcript.payloads.push(Vec::new());
                output.extend_from_slice(ticket.done().as_bytes());
            }
            Command::Flush
            | Command::Trim { .. }
            | Command::Cache { .. }
            | Command::WriteZeroes { .. } => output.extend_from_slice(ticket.done().as_bytes()),
        }
    }
}
