//! Fixed newstyle negotiation as a state machine: bytes in, bytes out.
//!
//! ```text
//! greeting -> client flags -> [ option header -> option data -> replies ]* -> Terms
//! ```
//!
//! [`Handshake::receive`] takes whatever bytes came, in pieces of any size,
//! and handles at most one option a call, so that the output is bounded by one
//! reply and the shell can send it before the next one is made. What is kept
//! is the option that is not complete yet, [`OPTION_DATA_BYTES_MAX`] at most;
//! longer data is counted, thrown away, and answered as too big.
//!
//! A client that does not ask for block sizes, or knows only `EXPORT_NAME`, is
//! welcome: the server serves any alignment. Left out: TLS (answered as not
//! supported) and time-outs, which need a clock and are the shell's.

use super::closing::{CloseReason, Phase};
use super::export::{Export, Exports};
use super::options::{BASE_ALLOCATION, InfoRequest, Malformed, MetaRequest};
use super::options::{parse_nothing, parse_string};
use super::transmission::Terms;
use super::wire::{
    CLIENT_FIXED_NEWSTYLE, CLIENT_FLAGS_BYTES, CLIENT_NO_ZEROES, EXPORT_NAME_ZEROES, InfoType,
    OPTION_MAGIC, OPTION_REPLY_MAGIC, OptionCode, OptionHeader, OptionReply, SERVER_FIXED_NEWSTYLE,
    SERVER_MAGIC, SERVER_NO_ZEROES,
};

/// Longest option data that is kept and parsed. The longest sensible option
/// selects a metadata context or two by name; this is room for 15 queries of
/// the greatest length.
pub const OPTION_DATA_BYTES_MAX: u32 = 64 << 10;
/// Longest option data that is read and thrown away to answer "too big";
/// beyond it, closing is cheaper than being polite.
pub const OPTION_SKIP_BYTES_MAX: u32 = 16 << 20;
/// Options a client may send before it has to choose: far more than the dozen
/// any client needs, and an end for one that would haggle for ever.
pub const OPTIONS_MAX: u32 = 1024;

/// Context id of `base:allocation`; any value does, this one is not zero.
pub const BASE_ALLOCATION_ID: u32 = 1;

/// What a call of [`Handshake::receive`] came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandshakeEvent {
    /// All input is consumed; bring more.
    NeedMore,
    /// An option was answered: send the output, then call again.
    Reply,
    /// Send the output, then requests follow.
    Ready(Terms),
    /// Send the output, then close.
    Close(CloseReason),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    ClientFlags,
    OptionHeader,
    OptionData(OptionHeader),
    Skip { header: OptionHeader, left: u32 },
    Over,
}

/// One negotiation.
#[derive(Debug)]
pub struct Handshake {
    exports: Exports,
    state: State,
    /// Bytes of the field that is not complete yet.
    partial: Vec<u8>,
    options: u32,
    fixed_newstyle: bool,
    no_zeroes: bool,
    structured_replies: bool,
    /// Export for which `base:allocation` is selected.
    base_allocation: Option<usize>,
    shutdown: bool,
}

impl Handshake {
    /// Starts a negotiation and puts the greeting into `output`.
    pub fn new(exports: Exports, output: &mut Vec<u8>) -> Self {
        output.extend(SERVER_MAGIC.to_be_bytes());
        output.extend(OPTION_MAGIC.to_be_bytes());
        output.extend((SERVER_FIXED_NEWSTYLE | SERVER_NO_ZEROES).to_be_bytes());
        Self {
            exports,
            state: State::ClientFlags,
            partial: Vec::new(),
            options: 0,
            fixed_newstyle: false,
            no_zeroes: false,
            structured_replies: false,
            base_allocation: None,
            shutdown: false,
        }
    }

    /// From now on all options but `ABORT` are answered "about to stop".
    pub fn shut_down(&mut self) {
        self.shutdown = true;
    }

    /// Where the negotiation is.
    pub fn phase(&self) -> Phase {
        let received = self.partial.len();
        match self.state {
            State::ClientFlags => Phase::ClientFlags { received },
            State::OptionHeader => Phase::OptionHeader { received },
            State::OptionData(OptionHeader { option, length }) => {
                Phase::OptionData { option, received: received as u32, length }
            }
            State::Skip { header: OptionHeader { option, length }, left } => {
                Phase::OptionData { option, received: length - left, length }
            }
            State::Over => Phase::Closed,
        }
    }

    /// Takes bytes of the client and puts replies into `output`. Returns how
    /// many bytes were consumed, and what came of them.
    pub fn receive(&mut self, input: &[u8], output: &mut Vec<u8>) -> (usize, HandshakeEvent) {
        let mut rest = input;
        let event = loop {
            match self.step(&mut rest, output) {
                Some(event) => break event,
                None => continue,
            }
        };
        if matches!(event, HandshakeEvent::Ready(_) | HandshakeEvent::Close(_)) {
            self.state = State::Over;
            self.partial = Vec::new();
        }
        (input.len() - rest.len(), event)
    }

    /// Completes one field; `None` leads to the next one.
    fn step(&mut self, rest: &mut &[u8], output: &mut Vec<u8>) -> Option<HandshakeEvent> {
        match self.state {
            State::ClientFlags => {
                let Some(flags) = self.collect(rest, CLIENT_FLAGS_BYTES) else {
                    return Some(HandshakeEvent::NeedMore);
                };
                self.client_flags(&flags).err().map(HandshakeEvent::Close)
            }
            State::OptionHeader => {
                let Some(header) = self.collect(rest, OptionHeader::BYTES) else {
                    return Some(HandshakeEvent::NeedMore);
                };
                self.option_header(&header).err().map(HandshakeEvent::Close)
            }
            State::OptionData(header) => {
                let Some(data) = self.collect(rest, header.length as usize) else {
                    return Some(HandshakeEvent::NeedMore);
                };
                self.state = State::OptionHeader;
                Some(self.option(header.option, &data, output))
            }
            State::Skip { header, left } => {
                let skipped = left.min(u32::try_from(rest.len()).unwrap_or(u32::MAX));
                *rest = &rest[skipped as usize..];
                if skipped < left {
                    self.state = State::Skip { header, left: left - skipped };
                    return Some(HandshakeEvent::NeedMore);
                }
                self.state = State::OptionHeader;
                let known = OptionCode::from_code(header.option);
                let (kind, text) = match known {
                    Some(_) => (OptionReply::ErrorTooBig, "the data is too long"),
                    None => (OptionReply::ErrorUnsupported, UNKNOWN_OPTION),
                };
                put_reply(output, header.option, kind, &[text.as_bytes()]);
                Some(match known {
                    Some(OptionCode::Abort) => HandshakeEvent::Close(CloseReason::Aborted),
                    _ => HandshakeEvent::Reply,
                })
            }
            State::Over => {
                *rest = &[];
                Some(HandshakeEvent::NeedMore)
            }
        }
    }

    /// Moves input to the partial field and takes it once it has `length` bytes.
    fn collect(&mut self, rest: &mut &[u8], length: usize) -> Option<Vec<u8>> {
        let wanted = (length - self.partial.len()).min(rest.len());
        let (taken, left) = rest.split_at(wanted);
        self.partial.extend_from_slice(taken);
        *rest = left;
        (self.partial.len() == length).then(|| std::mem::take(&mut self.partial))
    }

    fn client_flags(&mut self, field: &[u8]) -> Result<(), CloseReason> {
        let flags = field.iter().fold(0, |flags, &byte| flags << 8 | u32::from(byte));
        if flags & !(CLIENT_FIXED_NEWSTYLE | CLIENT_NO_ZEROES) != 0 {
            return Err(CloseReason::ClientFlags { flags });
        }
        self.fixed_newstyle = flags & CLIENT_FIXED_NEWSTYLE != 0;
        self.no_zeroes = flags & CLIENT_NO_ZEROES != 0;
        self.state = State::OptionHeader;
        Ok(())
    }

    fn option_header(&mut self, field: &[u8]) -> Result<(), CloseReason> {
        let header = field.first_chunk().and_then(OptionHeader::decode);
        let header = header.ok_or(CloseReason::NotAnOption)?;
        let OptionHeader { option, length } = header;
        let export_name = option == OptionCode::ExportName.code();
        self.options += 1;
        if self.options > OPTIONS_MAX {
            return Err(CloseReason::TooManyOptions { options: self.options });
        }
        if !self.fixed_newstyle && !export_name {
            return Err(CloseReason::NotFixedNewstyle { option });
        }
        self.state = if length <= OPTION_DATA_BYTES_MAX {
            State::OptionData(header)
        } else if length <= OPTION_SKIP_BYTES_MAX && !export_name {
            State::Skip { header, left: length }
        } else {
            return Err(CloseReason::OptionTooLong { option, length });
        };
        Ok(())
    }

    /// Answers one complete option.
    fn option(&mut self, code: u32, data: &[u8], output: &mut Vec<u8>) -> HandshakeEvent {
        let known = OptionCode::from_code(code);
        match known {
            Some(OptionCode::Abort) => {
                put_reply(output, code, OptionReply::Ack, &[]);
                return HandshakeEvent::Close(CloseReason::Aborted);
            }
            Some(OptionCode::ExportName) => return self.export_name(data, output),
            _ => {}
        }
        let answered = if self.shutdown {
            Err(Refused { kind: OptionReply::ErrorShutdown, text: SHUTDOWN.into() })
        } else {
            match known {
                Some(OptionCode::List) => self.list(data, output),
                Some(OptionCode::Info) => self.info(code, data, output).map(|_| ()),
                Some(OptionCode::Go) => match self.info(code, data, output) {
                    Ok(terms) => {
                        put_reply(output, code, OptionReply::Ack, &[]);
                        return HandshakeEvent::Ready(terms);
                    }
                    Err(refused) => Err(refused),
                },
                Some(OptionCode::StructuredReply) => parse_nothing(data)
                    .map(|()| self.structured_replies = true)
                    .map_err(Refused::from),
                Some(OptionCode::ListMetaContext) => self.list_meta_context(data, output),
                Some(OptionCode::SetMetaContext) => self.set_meta_context(data, output),
                Some(OptionCode::StartTls) => parse_nothing(data)
                    .map_err(Refused::from)
                    .and(Err(Refused { kind: OptionReply::ErrorUnsupported, text: NO_TLS.into() })),
                Some(OptionCode::ExportName | OptionCode::Abort) | None => Err(Refused {
                    kind: OptionReply::ErrorUnsupported,
                    text: UNKNOWN_OPTION.into(),
                }),
            }
        };
        match answered {
            Ok(()) => put_reply(output, code, OptionReply::Ack, &[]),
            Err(Refused { kind, text }) => put_reply(output, code, kind, &[text.as_bytes()]),
        }
        HandshakeEvent::Reply
    }

    fn export_name(&self, data: &[u8], output: &mut Vec<u8>) -> HandshakeEvent {
        if self.shutdown {
            return HandshakeEvent::Close(CloseReason::Shutdown);
        }
        let found = parse_string(data).ok().and_then(|name| self.find(name).ok());
        let Some((index, export)) = found else {
            let name = String::from_utf8_lossy(&data[..data.len().min(256)]).into_owned();
            return HandshakeEvent::Close(CloseReason::UnknownExport { name });
        };
        let terms = self.terms(index, export, false);
        output.extend(terms.size_bytes.to_be_bytes());
        output.extend(terms.flags.bits().to_be_bytes());
        if !self.no_zeroes {
            output.extend([0; EXPORT_NAME_ZEROES]);
        }
        HandshakeEvent::Ready(terms)
    }

    fn list(&self, data: &[u8], output: &mut Vec<u8>) -> Result<(), Refused> {
        parse_nothing(data)?;
        for Export { name, description, .. } in self.exports.as_slice() {
            let length = (name.len() as u32).to_be_bytes();
            let parts = [&length, name.as_bytes(), description.as_bytes()];
            put_reply(output, OptionCode::List.code(), OptionReply::Server, &parts);
        }
        Ok(())
    }

    /// Tells what `INFO` and `GO` tell, short of the final reply.
    fn info(&self, code: u32, data: &[u8], output: &mut Vec<u8>) -> Result<Terms, Refused> {
        let request = InfoRequest::parse(data)?;
        let (index, export) = self.find(request.name)?;
        let terms = self.terms(index, export, request.wants_block_size);
        let mut put = |info: InfoType, parts: [&[u8]; 3]| {
            let parts = [&info.code().to_be_bytes(), parts[0], parts[1], parts[2]];
            put_reply(output, code, OptionReply::Info, &parts);
        };
        let size = terms.size_bytes.to_be_bytes();
        put(InfoType::Export, [&size, &terms.flags.bits().to_be_bytes(), &[]]);
        if request.wants_name {
            put(InfoType::Name, [export.name.as_bytes(), &[], &[]]);
        }
        if request.wants_description && !export.description.is_empty() {
            put(InfoType::Description, [export.description.as_bytes(), &[], &[]]);
        }
        if request.wants_block_size {
            let [min, preferred, max] =
                [export.block_min, export.block_preferred, export.block_max].map(u32::to_be_bytes);
            put(InfoType::BlockSize, [&min, &preferred, &max]);
        }
        Ok(terms)
    }

    fn list_meta_context(&self, data: &[u8], output: &mut Vec<u8>) -> Result<(), Refused> {
        let request = self.meta_request(data)?;
        self.find(request.name)?;
        if request.lists {
            // The id is reserved in a list.
            put_context(output, OptionCode::ListMetaContext, 0);
        }
        Ok(())
    }

    fn set_meta_context(&mut self, data: &[u8], output: &mut Vec<u8>) -> Result<(), Refused> {
        // What was selected before is gone, also if this fails.
        self.base_allocation = None;
        let request = self.meta_request(data)?;
        let (index, _) = self.find(request.name)?;
        if request.selects {
            self.base_allocation = Some(index);
            put_context(output, OptionCode::SetMetaContext, BASE_ALLOCATION_ID);
        }
        Ok(())
    }

    fn meta_request<'a>(&self, data: &'a [u8]) -> Result<MetaRequest<'a>, Refused> {
        if !self.structured_replies {
            let text = "structured replies have to be negotiated first".into();
            return Err(Refused { kind: OptionReply::ErrorInvalid, text });
        }
        Ok(MetaRequest::parse(data)?)
    }

    fn find(&self, name: &str) -> Result<(usize, &Export), Refused> {
        let index = self.exports.find(name);
        let found = index.and_then(|index| Some((index, self.exports.get(index)?)));
        found.ok_or_else(|| Refused {
            kind: OptionReply::ErrorUnknown,
            text: "no export of this name is offered".into(),
        })
    }

    fn terms(&self, index: usize, export: &Export, block_size_asked: bool) -> Terms {
        let base_allocation = self.structured_replies && self.base_allocation == Some(index);
        Terms::new(index, export, self.structured_replies, base_allocation, block_size_asked)
    }
}

const UNKNOWN_OPTION: &str = "this server does not know the option";
const NO_TLS: &str = "this server has no TLS";
const SHUTDOWN: &str = "the server is about to stop";

/// An option answered by an error.
struct Refused {
    kind: OptionReply,
    text: String,
}

impl From<Malformed> for Refused {
    fn from(malformed: Malformed) -> Self {
        Self { kind: OptionReply::ErrorInvalid, text: malformed.to_string() }
    }
}

/// One reply to an option.
///
/// | bytes | field |
/// | --- | --- |
/// | 0..8 | [`OPTION_REPLY_MAGIC`] |
/// | 8..12 | option as sent |
/// | 12..16 | type of the reply |
/// | 16..20 | length of the data |
/// | 20.. | data |
fn put_reply(output: &mut Vec<u8>, option: u32, kind: OptionReply, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    output.extend(OPTION_REPLY_MAGIC.to_be_bytes());
    output.extend(option.to_be_bytes());
    output.extend(kind.code().to_be_bytes());
    // Three strings of 4096 bytes at most.
    output.extend((length as u32).to_be_bytes());
    for part in parts {
        output.extend_from_slice(part);
    }
}

fn put_context(output: &mut Vec<u8>, option: OptionCode, id: u32) {
    let parts = [&id.to_be_bytes(), BASE_ALLOCATION.as_bytes()];
    put_reply(output, option.code(), OptionReply::MetaContext, &parts);
}
