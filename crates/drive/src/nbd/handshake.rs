//! From a fresh connection to the export's facts: fixed newstyle, option GO, and EXPORT_NAME for
//! servers that don't know that one.
//!
//! Source of every number and rule: the protocol document of the NBD project (`doc/proto.md`).

use std::fs::File;
use std::io::{self, Read, Write};
use std::time::Instant;

use nbd::wire::{
    CLIENT_FIXED_NEWSTYLE, CLIENT_NO_ZEROES, DEFAULT_PAYLOAD_BYTES_MAX, EXPORT_NAME_ZEROES, Fields,
    InfoType, OPTION_MAGIC, OPTION_REPLY_MAGIC, OptionCode, OptionHeader, OptionReply,
    SERVER_FIXED_NEWSTYLE, SERVER_MAGIC, SERVER_NO_ZEROES, TransmissionFlags,
};

use super::{CONNECT_LIMIT, NbdError};

/// Longest data of a reply that is taken in: a name, a description, and room.
const REPLY_BYTES_MAX: u32 = 64 << 10;
/// Replies to one option, before the server counts as broken.
const REPLIES_MAX: u32 = 1000;
/// The block of a server that names none (the protocol's own rule).
const BLOCK_BYTES_DEFAULT: u32 = 1;
/// The size requests do best with, where the server names none.
const PREFERRED_BYTES_DEFAULT: u32 = 4096;

/// What the server says of the export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Export {
    pub(super) size_bytes: u64,
    pub(super) flags: TransmissionFlags,
    /// Requests are multiples of this.
    pub(super) block_min: u32,
    pub(super) block_preferred: u32,
    /// Most bytes of one read or write.
    pub(super) payload_max: u32,
}

impl Export {
    fn new(size_bytes: u64, flags: u16) -> Self {
        Export {
            size_bytes,
            flags: TransmissionFlags::from_bits(flags),
            block_min: BLOCK_BYTES_DEFAULT,
            block_preferred: PREFERRED_BYTES_DEFAULT,
            payload_max: DEFAULT_PAYLOAD_BYTES_MAX,
        }
    }
}

struct Talk<'a> {
    socket: &'a File,
    uri: &'a str,
    begin: Instant,
}

/// Negotiates `name` on a socket nothing was received from yet, and whose reads and writes end
/// after [`CONNECT_LIMIT`].
pub(super) fn negotiate(socket: &File, uri: &str, name: &str) -> Result<Export, NbdError> {
    let talk = Talk { socket, uri, begin: Instant::now() };
    let greeting = talk.receive(18)?;
    let mut fields = Fields(&greeting);
    if fields.u64() != Some(SERVER_MAGIC) {
        return Err(talk.protocol("what listens there is no NBD server"));
    }
    let newstyle = fields.u64() == Some(OPTION_MAGIC);
    let flags = fields.u16().filter(|flags| newstyle && flags & SERVER_FIXED_NEWSTYLE != 0);
    let flags = flags.ok_or_else(|| talk.protocol("the server is too old"))?;
    let no_zeroes = flags & SERVER_NO_ZEROES != 0;
    let client = CLIENT_FIXED_NEWSTYLE | if no_zeroes { CLIENT_NO_ZEROES } else { 0 };
    talk.send(&client.to_be_bytes())?;
    match talk.go(name) {
        Err(NbdError::Refused { reason: OptionReply::ErrorUnsupported, .. }) => {
            talk.export_name(name, no_zeroes)
        }
        result => result,
    }
}

impl Talk<'_> {
    fn protocol(&self, what: &'static str) -> NbdError {
        NbdError::Protocol { uri: self.uri.to_owned(), what }
    }

    fn broken(&self, source: io::Error) -> NbdError {
        let uri = self.uri.to_owned();
        match source.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => NbdError::Silent { uri },
            _ => NbdError::Broken { uri, source },
        }
    }

    /// A server that sends a byte now and then doesn't get any longer than one that sends none.
    fn still_in_time(&self) -> Result<(), NbdError> {
        if self.begin.elapsed() > CONNECT_LIMIT {
            return Err(NbdError::Silent { uri: self.uri.to_owned() });
        }
        Ok(())
    }

    fn send(&self, bytes: &[u8]) -> Result<(), NbdError> {
        let mut socket = self.socket;
        socket.write_all(bytes).map_err(|error| self.broken(error))
    }

    fn receive(&self, bytes: usize) -> Result<Vec<u8>, NbdError> {
        let mut socket = self.socket;
        let mut received = vec![0; bytes];
        let mut done = 0;
        while done < bytes {
            self.still_in_time()?;
            match socket.read(&mut received[done..]) {
                Ok(0) => return Err(self.broken(io::ErrorKind::UnexpectedEof.into())),
                Ok(more) => done += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.broken(error)),
            }
        }
        Ok(received)
    }

    fn option(&self, option: OptionCode, data: &[u8]) -> Result<(), NbdError> {
        let header = OptionHeader { option: option.code(), length: data.len() as u32 };
        self.send(&[&header.encode()[..], data].concat())
    }

    /// One reply to `option`: its type and data.
    fn reply(&self, option: OptionCode) -> Result<(u32, Vec<u8>), NbdError> {
        let head = self.receive(20)?;
        let mut fields = Fields(&head);
        let (magic, of) = (fields.u64(), fields.u32());
        let (Some(kind), Some(length)) = (fields.u32(), fields.u32()) else {
            return Err(self.protocol("a reply is cut short"));
        };
        if magic != Some(OPTION_REPLY_MAGIC) || of != Some(option.code()) {
            return Err(self.protocol("the server answers another question"));
        }
        if length > REPLY_BYTES_MAX {
            return Err(self.protocol("a reply is longer than any may be"));
        }
        Ok((kind, self.receive(length as usize)?))
    }

    fn go(&self, name: &str) -> Result<Export, NbdError> {
        let mut data = (name.len() as u32).to_be_bytes().to_vec();
        data.extend_from_slice(name.as_bytes());
        data.extend_from_slice(&1u16.to_be_bytes());
        data.extend_from_slice(&InfoType::BlockSize.code().to_be_bytes());
        self.option(OptionCode::Go, &data)?;
        let mut export = None;
        let mut blocks = None;
        for _ in 0..REPLIES_MAX {
            let (kind, data) = self.reply(OptionCode::Go)?;
            match OptionReply::from_code(kind) {
                Some(OptionReply::Ack) => {
                    let export: Option<Export> = export;
                    let mut export =
                        export.ok_or_else(|| self.protocol("the export's size is missing"))?;
                    if let Some((min, preferred, max)) = blocks {
                        export.block_min = min;
                        export.block_preferred = preferred;
                        export.payload_max = DEFAULT_PAYLOAD_BYTES_MAX.min(max);
                    }
                    return Ok(export);
                }
                Some(OptionReply::Info) => {
                    let mut fields = Fields(&data);
                    let cut = || self.protocol("a reply is cut short");
                    match fields.u16().and_then(InfoType::from_code) {
                        Some(InfoType::Export) => {
                            let (size, flags) = (fields.u64(), fields.u16());
                            let (size, flags) = size.zip(flags).ok_or_else(cut)?;
                            export = Some(Export::new(size, flags));
                        }
                        Some(InfoType::BlockSize) => {
                            let mut next = || fields.u32().ok_or_else(cut);
                            blocks = Some((next()?, next()?, next()?));
                        }
                        // Words for people, and what is not known.
                        _ => {}
                    }
                }
                Some(reason) if kind & 1 << 31 != 0 => {
                    let words = String::from_utf8_lossy(&data);
                    let clean = |c: char| !c.is_control();
                    let words: String = words.chars().filter(|&c| clean(c)).take(200).collect();
                    let message = if words.is_empty() { words } else { format!(" ({words})") };
                    return Err(NbdError::Refused { uri: self.uri.to_owned(), reason, message });
                }
                None if kind & 1 << 31 != 0 => {
                    return Err(self.protocol("the server refuses for a reason nobody knows"));
                }
                _ => return Err(self.protocol("the server answers another question")),
            }
        }
        Err(self.protocol("the server does not come to an end"))
    }

    fn export_name(&self, name: &str, no_zeroes: bool) -> Result<Export, NbdError> {
        self.option(OptionCode::ExportName, name.as_bytes())?;
        let zeroes = if no_zeroes { 0 } else { EXPORT_NAME_ZEROES };
        let answer = self.receive(10 + zeroes)?;
        let mut fields = Fields(&answer);
        let (size, flags) = (fields.u64(), fields.u16());
        let (size, flags) = size.zip(flags).ok_or_else(|| self.protocol("a reply is cut short"))?;
        Ok(Export::new(size, flags))
    }
}
