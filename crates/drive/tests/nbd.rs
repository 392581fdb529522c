//! The NBD client on servers that do what no server should.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread::JoinHandle;

use drive::{Drive, ErrorKind, NbdDrive, NbdError};
use nbd::wire::{
    CommandCode, InfoType, OPTION_REPLY_MAGIC, OptionCode, OptionReply, RequestHeader,
    SimpleReplyHeader,
};
use tempfile::TempDir;
use world::{ReadBufs, RingConfig, World};

const GREETING: &[u8] = b"NBDMAGICIHAVEOPT\0\x03";
const SIZE_BYTES: u64 = 1 << 20;

/// A server that says what it is told to.
struct Server {
    folder: TempDir,
    thread: JoinHandle<()>,
}

impl Server {
    fn start(talk: impl FnOnce(&mut UnixStream) + Send + 'static) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        let thread = std::thread::spawn(move || talk(&mut listener.accept().unwrap().0));
        Server { folder, thread }
    }

    fn uri(&self) -> String {
        format!("nbd+unix:///disk?socket={}", self.folder.path().join("socket").display())
    }
}

fn world() -> World {
    World::real(RingConfig { entries: 16, arena_bytes: 1 << 20 }).unwrap()
}

fn refusal(talk: impl FnOnce(&mut UnixStream) + Send + 'static) -> NbdError {
    let server = Server::start(talk);
    let world = world();
    let opened = NbdDrive::open(&world, &server.uri());
    let error = opened.err().expect("nobody can open this");
    drop(world);
    server.thread.join().unwrap();
    error
}

fn skip(socket: &mut UnixStream, bytes: usize) {
    socket.read_exact(&mut vec![0; bytes]).unwrap();
}

fn option_reply(option: OptionCode, reply: u32, data: &[u8]) -> Vec<u8> {
    let words = [option.code(), reply, data.len() as u32];
    let words: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    [&OPTION_REPLY_MAGIC.to_be_bytes()[..], &words, data].concat()
}

/// Reads the client's flags and its GO.
fn hear_go(socket: &mut UnixStream) {
    socket.write_all(GREETING).unwrap();
    skip(socket, 4 + 16 + 4 + "disk".len() + 2 + 2);
}

fn accept(socket: &mut UnixStream, block_bytes: u32) {
    hear_go(socket);
    let mut export = InfoType::Export.code().to_be_bytes().to_vec();
    export.extend(SIZE_BYTES.to_be_bytes());
    export.extend(1u16.to_be_bytes());
    let mut block = InfoType::BlockSize.code().to_be_bytes().to_vec();
    block.extend([block_bytes, 4096, 1 << 20].iter().flat_map(|word| word.to_be_bytes()));
    for data in [export, block] {
        let reply = option_reply(OptionCode::Go, OptionReply::Info.code(), &data);
        socket.write_all(&reply).unwrap();
    }
    let ack = option_reply(OptionCode::Go, OptionReply::Ack.code(), b"");
    socket.write_all(&ack).unwrap();
}

#[test]
fn what_is_no_nbd_server_is_told_apart() {
    let protocol = |error| match error {
        NbdError::Protocol { what, .. } => what,
        other => panic!("{other}"),
    };
    let said =
        |bytes: &'static [u8]| protocol(refusal(move |socket| socket.write_all(bytes).unwrap()));
    assert_eq!(said(b"HTTP/1.1 400 Bad Request\r\n"), "what listens there is no NBD server");
    assert_eq!(said(b"NBDMAGIC\0\0\x42\x02\x81\x86\x12\x53\0\0"), "the server is too old");
    assert_eq!(said(b"NBDMAGICIHAVEOPT\0\0"), "the server is too old");
    let answered = |reply: Vec<u8>| {
        protocol(refusal(move |socket| {
            hear_go(socket);
            socket.write_all(&reply).unwrap();
        }))
    };
    let ack = OptionReply::Ack.code();
    let other = option_reply(OptionCode::List, ack, b"");
    assert_eq!(answered(other), "the server answers another question");
    let early = option_reply(OptionCode::Go, ack, b"");
    assert_eq!(answered(early), "the export's size is missing");
    let cut = option_reply(OptionCode::Go, OptionReply::Info.code(), &[0, 0, 1]);
    assert_eq!(answered(cut), "a reply is cut short");
    let unknown = option_reply(OptionCode::Go, 1 << 31 | 999, b"");
    assert_eq!(answered(unknown), "the server refuses for a reason nobody knows");
    let mut long = option_reply(OptionCode::Go, ack, b"");
    long[16..].copy_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(answered(long), "a reply is longer than any may be");
}

#[test]
fn a_refusal_gives_the_servers_words() {
    let error = refusal(|socket| {
        hear_go(socket);
        let reply = option_reply(OptionCode::Go, OptionReply::ErrorPolicy.code(), b"not\x1b you");
        socket.write_all(&reply).unwrap();
    });
    let words = error.to_string();
    assert!(
        words.contains("was refused: ERR_POLICY (not you)\nhint: the server's owner"),
        "{words}"
    );
}

#[test]
fn an_export_that_can_be_no_drive_is_refused() {
    let error = refusal(|socket| accept(socket, 3000));
    assert!(matches!(error, NbdError::Shape { block_bytes: 3000, .. }), "{error}");
}

#[test]
fn a_server_without_go_is_asked_the_old_way() {
    let server = Server::start(|socket| {
        hear_go(socket);
        let unknown = OptionReply::ErrorUnsupported.code();
        socket.write_all(&option_reply(OptionCode::Go, unknown, b"")).unwrap();
        skip(socket, 16 + "disk".len());
        socket.write_all(&SIZE_BYTES.to_be_bytes()).unwrap();
        socket.write_all(&3u16.to_be_bytes()).unwrap();
    });
    let world = world();
    let drive = NbdDrive::open(&world, &server.uri()).unwrap();
    let facts = drive.facts();
    assert_eq!((facts.size_bytes, facts.block_bytes, facts.read_only), (SIZE_BYTES, 512, true));
}

/// What a read of 4096 bytes comes to, if the server answers with `reply` to the cookie it got.
fn read_with(reply: impl FnOnce(u64) -> Vec<u8> + Send + 'static) -> ErrorKind {
    let server = Server::start(move |socket| {
        accept(socket, 512);
        let mut request = [0; RequestHeader::BYTES];
        socket.read_exact(&mut request).unwrap();
        let request = RequestHeader::decode(&request).unwrap();
        assert_eq!((request.command, request.length), (CommandCode::Read.code(), 4096));
        socket.write_all(&reply(request.cookie)).unwrap();
    });
    let world = world();
    let drive = NbdDrive::open(&world, &server.uri()).unwrap();
    let buffers = ReadBufs::from_iter([world.pool().take(4096)]);
    let done = world.block_on(drive.read(0, buffers));
    assert_eq!(done.buffers.len(), 1, "buffers come back");
    server.thread.join().unwrap();
    done.result.unwrap_err().kind
}

#[test]
fn each_bad_answer_has_its_error() {
    let head = |cookie, error| SimpleReplyHeader { error, cookie }.encode().to_vec();
    assert_eq!(read_with(move |cookie| head(cookie, 5)), ErrorKind::Media);
    assert_eq!(read_with(move |cookie| head(cookie, 1)), ErrorKind::ReadOnly);
    assert_eq!(read_with(move |cookie| head(cookie, 108)), ErrorKind::Gone);
    assert_eq!(read_with(move |cookie| head(cookie, 12345)), ErrorKind::Media);
    assert_eq!(read_with(move |cookie| head(cookie + 1, 0)), ErrorKind::Gone);
    assert_eq!(read_with(|_| vec![b'x'; 16]), ErrorKind::Gone);
    assert_eq!(read_with(|_| Vec::new()), ErrorKind::Gone);
    let cut = move |cookie| [head(cookie, 0), vec![7; 100]].concat();
    assert_eq!(read_with(cut), ErrorKind::Gone);
}
