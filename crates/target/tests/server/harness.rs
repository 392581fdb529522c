//! A server in a thread of its own, and a plain client that blocks.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use drive::{Drive, MemoryDrive};
use target::nbd::Export;
use target::nbd::server::{Address, Events, Limits, Server, ServerEvent, offer};
use target::nbd::wire::{
    CommandCode, CommandFlags, OptionCode, OptionHeader, RequestHeader, SIMPLE_REPLY_MAGIC,
    STRUCTURED_REPLY_MAGIC,
};
use tempfile::TempDir;
use world::{RingConfig, World};

/// What a server serves.
pub type Offers = Vec<(Export, Rc<dyn Drive>)>;

/// Bytes of the drive of [`memory`].
pub const SIZE_BYTES: u64 = 64 << 20;

/// One drive in memory.
pub fn memory(_world: &World) -> Offers {
    one(Rc::new(MemoryDrive::new("memory", SIZE_BYTES, 1)))
}

/// One drive.
pub fn one(drive: Rc<dyn Drive>) -> Offers {
    vec![(offer("disk", drive.facts()), drive)]
}

struct Note(Sender<String>);

impl Events for Note {
    fn note(&self, event: &ServerEvent<'_>) {
        // A test that is done listening does not mind.
        let _ = self.0.send(event.to_string());
    }
}

/// A running server.
pub struct Running {
    pub folder: TempDir,
    stop: UnixStream,
    thread: JoinHandle<Result<(), Words>>,
    log: Receiver<String>,
}

/// Errors go between threads as words.
#[derive(Debug)]
pub struct Words(pub String);

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Running {
    pub fn start(offers: fn(&World) -> Offers, limits: Limits) -> Running {
        let folder = tempfile::tempdir().unwrap();
        let address = Address::Unix(folder.path().join("socket"));
        let (stop, stopped) = UnixStream::pair().unwrap();
        let (sender, log) = channel();
        let thread = std::thread::spawn(move || {
            // Small, because many tests run at once.
            let config = RingConfig { arena_bytes: 4 << 20, ..RingConfig::default() };
            let world = World::real(config).unwrap();
            let server =
                Server::new(&world, offers(&world), limits, Rc::new(Note(sender))).unwrap();
            server.listen(&address).unwrap();
            let (stopper, ring) = (server.clone(), world.ring().unwrap().clone());
            let (stopped, buffer) = (ring.adopt(stopped.into()), world.pool().take(1));
            world.spawn(async move {
                let _ = ring.receive(&stopped, buffer, false).await;
                stopper.stop();
            });
            let result = world.block_on(server.serve());
            drop(server);
            world.end();
            result.map_err(|error| Words(error.to_string()))
        });
        assert!(log.recv().unwrap().starts_with("listening on unix:"));
        Running { folder, stop, thread, log }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    pub fn uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.path().display())
    }

    pub fn connect(&self) -> UnixStream {
        UnixStream::connect(self.path()).unwrap()
    }

    /// A client on the export `disk`.
    pub fn client(&self) -> Client {
        Client::on(self.connect())
    }

    /// Waits until a line of the log holds `words`, and returns it.
    pub fn logged(&self, words: &str) -> String {
        self.logged_by(|line| line.contains(words))
    }

    /// Waits for a line that is the one, and returns it.
    pub fn logged_by(&self, is_it: impl Fn(&str) -> bool) -> String {
        loop {
            let line = self.log.recv().expect("the server runs");
            if is_it(&line) {
                return line;
            }
        }
    }

    /// Stops the server; returns its result and what was logged since.
    pub fn stop(self) -> (Result<(), Words>, Vec<String>) {
        self.begin_stop();
        let result = self.thread.join().expect("the server does not panic");
        (result, self.log.try_iter().collect())
    }

    pub fn begin_stop(&self) {
        self.stop.shutdown(std::net::Shutdown::Both).unwrap();
    }
}

/// Bytes of an option.
pub fn option(option: OptionCode, data: &[u8]) -> Vec<u8> {
    let header = OptionHeader { option: option.code(), length: data.len() as u32 };
    [&header.encode()[..], data].concat()
}

/// Bytes of a request.
pub fn request(command: CommandCode, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    let (flags, command) = (CommandFlags::EMPTY, command.code());
    RequestHeader { flags, command, cookie, offset, length }.encode().to_vec()
}

/// All a client says until it may send requests.
pub fn negotiation() -> Vec<u8> {
    [
        &b"\0\0\0\x03"[..],
        &option(OptionCode::StructuredReply, b""),
        &option(OptionCode::SetMetaContext, b"\0\0\0\x04disk\0\0\0\x01\0\0\0\x0fbase:allocation"),
        &option(OptionCode::Go, b"\0\0\0\x04disk\0\x01\0\x03"),
    ]
    .concat()
}

/// A client past its negotiation, with structured replies.
pub struct Client {
    pub stream: UnixStream,
}

/// One reply, or chunk of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Reply {
    pub cookie: u64,
    pub error: u32,
    pub data: Vec<u8>,
}

impl Client {
    pub fn on(mut stream: UnixStream) -> Client {
        stream.write_all(&negotiation()).unwrap();
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).unwrap();
        for option in [OptionCode::StructuredReply, OptionCode::SetMetaContext, OptionCode::Go] {
            loop {
                let mut head = [0; 20];
                stream.read_exact(&mut head).unwrap();
                assert_eq!(head[8..12], option.code().to_be_bytes());
                let length = u32::from_be_bytes(head[16..20].try_into().unwrap());
                stream.read_exact(&mut vec![0; length as usize]).unwrap();
                let kind = u32::from_be_bytes(head[12..16].try_into().unwrap());
                assert!(kind < 1 << 31, "{option} was refused");
                if kind == 1 {
                    break;
                }
            }
        }
        Client { stream }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub fn ask(&mut self, command: CommandCode, cookie: u64, offset: u64, length: u32) {
        self.send(&request(command, cookie, offset, length));
    }

    pub fn write(&mut self, cookie: u64, offset: u64, data: &[u8]) {
        let header = request(CommandCode::Write, cookie, offset, data.len() as u32);
        self.send(&[&header[..], data].concat());
    }

    pub fn reply(&mut self) -> io::Result<Reply> {
        let mut magic = [0; 4];
        self.stream.read_exact(&mut magic)?;
        match u32::from_be_bytes(magic) {
            SIMPLE_REPLY_MAGIC => {
                let mut rest = [0; 12];
                self.stream.read_exact(&mut rest)?;
                let error = u32::from_be_bytes(rest[..4].try_into().unwrap());
                let cookie = u64::from_be_bytes(rest[4..].try_into().unwrap());
                Ok(Reply { cookie, error, data: Vec::new() })
            }
            STRUCTURED_REPLY_MAGIC => {
                let mut rest = [0; 16];
                self.stream.read_exact(&mut rest)?;
                let kind = u16::from_be_bytes(rest[2..4].try_into().unwrap());
                let cookie = u64::from_be_bytes(rest[4..12].try_into().unwrap());
                let length = u32::from_be_bytes(rest[12..].try_into().unwrap());
                let mut data = vec![0; length as usize];
                self.stream.read_exact(&mut data)?;
                let failed = kind >= 1 << 15;
                let error =
                    if failed { u32::from_be_bytes(data[..4].try_into().unwrap()) } else { 0 };
                // Data follows its offset.
                let data = if kind == 1 { data.split_off(8) } else { data };
                Ok(Reply { cookie, error, data: if failed { Vec::new() } else { data } })
            }
            other => panic!("{other:#x} starts no reply"),
        }
    }

    /// The next reply, which has to be a success.
    pub fn success(&mut self) -> Reply {
        let reply = self.reply().unwrap();
        assert_eq!(reply.error, 0, "{reply:?}");
        reply
    }
}
