//! An export of an NBD server as a drive.
//!
//! | file | what |
//! | --- | --- |
//! | `handshake` | from a fresh connection to the export's facts |
//! | `link` | requests and their replies, any number at a time |
//!
//! Simple replies only: they cost the fewest bytes, and nothing here needs more. One connection;
//! when it breaks, every operation fails with [`ErrorKind::Gone`] until the drive is opened again.
//! The server may keep a cache of its own: "direct" means that this host keeps none.

mod handshake;
mod link;

use std::fs::File;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

use nbd::wire::{CommandCode, CommandFlags, OptionReply, TransmissionFlags};
use nbd::{Address, Uri, UriError};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use world::{ReadBufs, World, WriteBufs, total_bytes};

use crate::api::{Discarded, Drive, Durability, Facts, Io, ReadDone, Zeroing, check_range};
use crate::cut::{append, shared_part, split_front};
use crate::error::{DriveError, ErrorKind, Operation};
use handshake::Export;
use link::{Link, Request};

/// How long a connection may take, and a handshake.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Bytes of one request that changes a range without carrying it.
const RANGE_BYTES_MAX: u64 = 1 << 30;
/// A piece of zeroes for a server that can't make them.
const ZEROES_BYTES: u64 = 1 << 20;
/// Requests of programs are multiples of this; an export with smaller blocks pretends to have it.
const BLOCK_BYTES: u32 = 512;

/// Why an export can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NbdError {
    /// The word names no export.
    #[error(transparent)]
    Uri(#[from] UriError),
    /// Virtual time has no sockets.
    #[error("{uri} needs the real world's ring")]
    NoRing {
        /// As given.
        uri: String,
    },
    /// Nobody listens there.
    #[error(
        "{address} can't be reached ({source})\nhint: is the server running, and is it this one?"
    )]
    Connect {
        /// Where.
        address: Address,
        /// The operating system's reason.
        source: io::Error,
    },
    /// Something else listens there, or a server that breaks the protocol.
    #[error(
        "{uri}: {what}\nhint: an NBD server of fixed newstyle is needed (qemu-nbd, nbdkit and nbd-server are)"
    )]
    Protocol {
        /// As given.
        uri: String,
        /// What was wrong.
        what: &'static str,
    },
    /// The server said no.
    #[error("{uri} was refused: {reason}{message}\nhint: {}", hint(*reason))]
    Refused {
        /// As given.
        uri: String,
        /// The kind of no.
        reason: OptionReply,
        /// The server's words, if it had any.
        message: String,
    },
    /// The connection broke.
    #[error("{uri}: the connection broke ({source})")]
    Broken {
        /// As given.
        uri: String,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The server went silent.
    #[error("{uri}: no answer to the handshake within {CONNECT_LIMIT:?}")]
    Silent {
        /// As given.
        uri: String,
    },
    /// An export that can't be a drive.
    #[error("{uri} has {size_bytes} bytes in blocks of {block_bytes}: no drive")]
    Shape {
        /// As given.
        uri: String,
        /// The server's figure.
        size_bytes: u64,
        /// The server's figure.
        block_bytes: u32,
    },
}

fn hint(reason: OptionReply) -> &'static str {
    match reason {
        OptionReply::ErrorUnknown => {
            "the server has no export of this name; `nbdinfo --list` shows which it has"
        }
        OptionReply::ErrorTlsRequired => {
            "the server wants TLS, which is not supported: go through a tunnel"
        }
        OptionReply::ErrorPolicy => "the server's owner forbids it",
        OptionReply::ErrorShutdown => "the server is about to stop: try again later",
        _ => "see the server's log",
    }
}

/// An export of an NBD server.
pub struct NbdDrive(Rc<Opened>);

struct Opened {
    facts: Facts,
    world: World,
    export: Export,
    link: Rc<Link>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.link.end();
    }
}

impl NbdDrive {
    /// Connects to an export; nothing on it is read or written.
    ///
    /// # Errors
    /// See [`NbdError`]; each says what to do.
    pub fn open(world: &World, uri: &str) -> Result<NbdDrive, NbdError> {
        let place: Uri = uri.parse()?;
        let ring = world.ring().ok_or_else(|| NbdError::NoRing { uri: uri.to_owned() })?;
        let unreachable = |source| NbdError::Connect { address: place.address.clone(), source };
        let socket = File::from(connect(&place.address).map_err(unreachable)?);
        for timeout in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&socket, timeout, Some(CONNECT_LIMIT))
                .map_err(|error| unreachable(error.into()))?;
        }
        let export = handshake::negotiate(&socket, uri, &place.export)?;
        // From here on the ring waits, and the link has its own limit.
        for timeout in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&socket, timeout, None)
                .map_err(|error| unreachable(error.into()))?;
        }
        let facts = facts(uri, &export)?;
        let link = Link::start(world, ring, ring.adopt(socket.into()));
        Ok(NbdDrive(Rc::new(Opened { facts, world: world.clone(), export, link })))
    }
}

fn facts(uri: &str, export: &Export) -> Result<Facts, NbdError> {
    let size_bytes = export.size_bytes;
    let block_bytes = match export.block_min {
        less if less < BLOCK_BYTES && size_bytes.is_multiple_of(BLOCK_BYTES.into()) => BLOCK_BYTES,
        block => block,
    };
    let whole = block_bytes.is_power_of_two() && size_bytes.is_multiple_of(block_bytes.into());
    if size_bytes == 0 || !whole {
        return Err(NbdError::Shape { uri: uri.to_owned(), size_bytes, block_bytes });
    }
    let has = |flag| export.flags.contains(flag);
    Ok(Facts {
        name: Rc::from(uri),
        size_bytes,
        block_bytes,
        preferred_bytes: u64::from(export.block_preferred.max(block_bytes)),
        read_only: has(TransmissionFlags::READ_ONLY),
        rotational: has(TransmissionFlags::ROTATIONAL).then_some(true),
        direct: true,
    })
}

fn connect(address: &Address) -> io::Result<OwnedFd> {
    match address {
        Address::Unix(path) => UnixStream::connect(path).map(OwnedFd::from),
        Address::Tcp { host, port } => {
            let mut error = io::Error::from(io::ErrorKind::NotFound);
            for place in (host.as_str(), *port).to_socket_addrs()? {
                match TcpStream::connect_timeout(&place, CONNECT_LIMIT) {
                    Ok(stream) => {
                        // A request must not wait for the reply to the one before it.
                        stream.set_nodelay(true)?;
                        return Ok(stream.into());
                    }
                    Err(new) => error = new,
                }
            }
            Err(error)
        }
    }
}

impl Opened {
    fn has(&self, flag: TransmissionFlags) -> bool {
        self.export.flags.contains(flag)
    }

    fn error(
        &self,
        operation: Operation,
        offset: u64,
        bytes: u64,
        error: Rc<io::Error>,
    ) -> DriveError {
        let kind = match error.raw_os_error() {
            // The connection's own faults carry no number.
            None if error.kind() == io::ErrorKind::TimedOut => ErrorKind::TimedOut,
            None => ErrorKind::Gone,
            Some(libc::EINVAL) => ErrorKind::OutOfRange,
            Some(_) => ErrorKind::of(&error),
        };
        let drive = self.facts.name.clone();
        DriveError { kind, operation, offset, bytes, drive, source: Some(error) }
    }

    fn check(&self, operation: Operation, offset: u64, bytes: u64) -> Result<(), DriveError> {
        check_range(&self.facts, operation, offset, bytes)
    }

    /// Bytes of one request with data.
    fn payload_bytes(&self) -> u64 {
        let block = u64::from(self.facts.block_bytes);
        let most = u64::from(self.export.payload_max);
        (most - most % block).max(block)
    }

    fn request(&self, command: CommandCode, offset: u64, bytes: u64) -> Request {
        // Whoever asks has cut the range to what a request carries.
        let length = u32::try_from(bytes).expect("a request's range fits 32 bits");
        Request { command, flags: CommandFlags::EMPTY, offset, length }
    }

    async fn read(&self, offset: u64, buffers: ReadBufs) -> (ReadBufs, Result<(), Rc<io::Error>>) {
        let mut filled = ReadBufs::new();
        let mut rest = buffers;
        let (mut at, mut cut) = (offset, false);
        let mut result = Ok(());
        while !rest.is_empty() && result.is_ok() {
            let bytes = self.payload_bytes().min(total_bytes(&rest));
            let (part, cut_again) = split_front(&mut rest, bytes);
            let request = self.request(CommandCode::Read, at, bytes);
            let done = self.link.read(request, part).await;
            append(&mut filled, done.0, cut);
            (at, cut, result) = (at + bytes, cut_again, done.1);
        }
        append(&mut filled, rest, cut);
        (filled, result)
    }

    async fn write(
        &self,
        offset: u64,
        buffers: WriteBufs,
        durability: Durability,
    ) -> Result<(), Rc<io::Error>> {
        let bytes = total_bytes(&buffers);
        let at_once = durability == Durability::Durable && self.has(TransmissionFlags::SEND_FUA);
        let mut done = 0;
        while done < bytes {
            let length = self.payload_bytes().min(bytes - done);
            let mut request = self.request(CommandCode::Write, offset + done, length);
            request.flags = request.flags.with_if(at_once, CommandFlags::FUA);
            self.link.send(request, shared_part(&buffers, done, length)).await?;
            done += length;
        }
        if durability == Durability::Durable && !at_once { self.flush().await } else { Ok(()) }
    }

    /// A server that takes no flush has nothing to flush.
    async fn flush(&self) -> Result<(), Rc<io::Error>> {
        if !self.has(TransmissionFlags::SEND_FLUSH) {
            return Ok(());
        }
        self.link.send(self.request(CommandCode::Flush, 0, 0), WriteBufs::new()).await
    }

    async fn zero(
        &self,
        offset: u64,
        bytes: u64,
        zeroing: Zeroing,
        durability: Durability,
    ) -> Result<(), Rc<io::Error>> {
        if !self.has(TransmissionFlags::SEND_WRITE_ZEROES) {
            let zeroes = self.world.pool().take_zeroed(ZEROES_BYTES.min(bytes) as usize).freeze();
            for (at, length) in steps(offset, bytes, ZEROES_BYTES) {
                let part = WriteBufs::from_iter([zeroes.slice(0, length as usize)]);
                self.write(at, part, Durability::Cached).await?;
            }
        } else {
            for (at, length) in steps(offset, bytes, RANGE_BYTES_MAX) {
                let mut request = self.request(CommandCode::WriteZeroes, at, length);
                let keep = zeroing == Zeroing::KeepAllocated;
                request.flags = request.flags.with_if(keep, CommandFlags::NO_HOLE);
                self.link.send(request, WriteBufs::new()).await?;
            }
        }
        if durability == Durability::Durable { self.flush().await } else { Ok(()) }
    }

    async fn discard(&self, offset: u64, bytes: u64) -> Result<Discarded, Rc<io::Error>> {
        if self.has(TransmissionFlags::SEND_TRIM) {
            for (at, length) in steps(offset, bytes, RANGE_BYTES_MAX) {
                let request = self.request(CommandCode::Trim, at, length);
                self.link.send(request, WriteBufs::new()).await?;
            }
        }
        Ok(Discarded::Unspecified)
    }
}

/// A range in pieces of at most `most` bytes: their offsets and lengths.
fn steps(offset: u64, bytes: u64, most: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..bytes.div_ceil(most)).map(move |step| (offset + step * most, most.min(bytes - step * most)))
}

impl Drive for NbdDrive {
    fn facts(&self) -> &Facts {
        &self.0.facts
    }

    fn read(&self, offset: u64, buffers: ReadBufs) -> Io<ReadDone> {
        let bytes = total_bytes(&buffers);
        let checked = self.0.check(Operation::Read, offset, bytes);
        if checked.is_err() || bytes == 0 {
            return Io::ready(ReadDone { buffers, result: checked });
        }
        let drive = Rc::clone(&self.0);
        Io::later(async move {
            let (buffers, result) = drive.read(offset, buffers).await;
            let result = result.map_err(|error| drive.error(Operation::Read, offset, bytes, error));
            ReadDone { buffers, result }
        })
    }

    fn write(
        &self,
        offset: u64,
        buffers: WriteBufs,
        durability: Durability,
    ) -> Io<Result<(), DriveError>> {
        let bytes = total_bytes(&buffers);
        let checked = self.0.check(Operation::Write, offset, bytes);
        if checked.is_err() || bytes == 0 {
            return Io::ready(checked);
        }
        let drive = Rc::clone(&self.0);
        Io::later(async move {
            let result = drive.write(offset, buffers, durability).await;
            result.map_err(|error| drive.error(Operation::Write, offset, bytes, error))
        })
    }

    fn flush(&self) -> Io<Result<(), DriveError>> {
        let drive = Rc::clone(&self.0);
        Io::later(async move {
            let result = drive.flush().await;
            result.map_err(|error| drive.error(Operation::Flush, 0, 0, error))
        })
    }

    fn discard(&self, offset: u64, bytes: u64) -> Io<Result<Discarded, DriveError>> {
        let checked = self.0.check(Operation::Discard, offset, bytes);
        if checked.is_err() || bytes == 0 {
            return Io::ready(checked.map(|()| Discarded::Unspecified));
        }
        let drive = Rc::clone(&self.0);
        Io::later(async move {
            let result = drive.discard(offset, bytes).await;
            result.map_err(|error| drive.error(Operation::Discard, offset, bytes, error))
        })
    }

    fn write_zeroes(
        &self,
        offset: u64,
        bytes: u64,
        zeroing: Zeroing,
        durability: Durability,
    ) -> Io<Result<(), DriveError>> {
        let checked = self.0.check(Operation::WriteZeroes, offset, bytes);
        if checked.is_err() || bytes == 0 {
            return Io::ready(checked);
        }
        let drive = Rc::clone(&self.0);
        Io::later(async move {
            let result = drive.zero(offset, bytes, zeroing, durability).await;
            result.map_err(|error| drive.error(Operation::WriteZeroes, offset, bytes, error))
        })
    }
}
