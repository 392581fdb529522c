//! Serving: a client writes, the server is told to stop, and everything is there afterwards.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command};

use crate::common::Bench;

/// The smallest NBD client: one export, simple replies, one request at a time.
pub struct Client(UnixStream);

const OPTION_EXPORT_NAME: u32 = 1;
const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;

impl Client {
    pub fn connect(socket: &Path, export: &str) -> Client {
        Self::try_connect(socket, export).unwrap()
    }

    /// Connects, or is told that the server is gone.
    pub fn try_connect(socket: &Path, export: &str) -> io::Result<Client> {
        let mut stream = UnixStream::connect(socket)?;
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        // Fixed newstyle, no zeroes.
        stream.write_all(&3_u32.to_be_bytes())?;
        let mut option = b"IHAVEOPT".to_vec();
        option.extend(OPTION_EXPORT_NAME.to_be_bytes());
        option.extend((export.len() as u32).to_be_bytes());
        option.extend(export.as_bytes());
        stream.write_all(&option)?;
        stream.read_exact(&mut [0; 10])?;
        Ok(Client(stream))
    }

    fn ask(&mut self, command: u16, offset: u64, length: u32, data: &[u8]) -> io::Result<()> {
        let mut request = 0x2560_9513_u32.to_be_bytes().to_vec();
        request.extend(0_u16.to_be_bytes());
        request.extend(command.to_be_bytes());
        request.extend(7_u64.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend(length.to_be_bytes());
        request.extend(data);
        self.0.write_all(&request)
    }

    fn answer(&mut self) -> io::Result<()> {
        let mut reply = [0; 16];
        self.0.read_exact(&mut reply)?;
        assert_eq!(reply[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0], "no error");
        Ok(())
    }

    /// Writes, or is told that the server is gone.
    pub fn try_write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.ask(WRITE, offset, data.len() as u32, data)?;
        self.answer()
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) {
        self.try_write(offset, data).unwrap();
    }

    /// Reads, or is told that the server is gone.
    pub fn try_read(&mut self, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        self.ask(READ, offset, bytes as u32, &[])?;
        self.answer()?;
        let mut data = vec![0; bytes];
        self.0.read_exact(&mut data)?;
        Ok(data)
    }

    pub fn read(&mut self, offset: u64, bytes: usize) -> Vec<u8> {
        self.try_read(offset, bytes).unwrap()
    }

    /// Flushes, or is told that the server is gone.
    pub fn try_flush(&mut self) -> io::Result<()> {
        self.ask(FLUSH, 0, 0, &[])?;
        self.answer()
    }

    pub fn flush(&mut self) {
        self.try_flush().unwrap();
    }

    pub fn leave(mut self) {
        self.ask(DISCONNECT, 0, 0, &[]).unwrap();
    }
}

/// Reads what the server says until it says how to attach.
pub fn wait_for_start(server: &mut Child) -> String {
    let mut said = String::new();
    let mut out = BufReader::new(server.stdout.as_mut().unwrap());
    while !said.contains("attach: ") {
        if out.read_line(&mut said).unwrap() == 0 {
            panic!("the server has ended: {said}");
        }
    }
    said
}

pub fn interrupt(server: Child) -> (Option<i32>, String) {
    let pid = server.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = server.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn what_was_written_is_there_after_an_interrupt_and_without_a_member() {
    let bench = Bench::new();
    bench.drives(3);
    bench.line("array create data --level raid5 --chunk 4K d0 d1 d2").well();
    let mut server = bench.spawn("array serve . --nbd unix:socket");
    let said = wait_for_start(&mut server);
    assert!(said.contains("nbd+unix:///data?socket=socket"), "{said}");
    let data: Vec<u8> = (0..100_000_u32).map(|index| (index * 7 % 251) as u8).collect();
    let mut client = Client::connect(&bench.path("socket"), "data");
    client.write(12_345, &data);
    client.flush();
    assert!(client.read(12_345, data.len()) == data);
    client.leave();
    let (status, said) = interrupt(server);
    assert_eq!(status, Some(0), "{said}");
    assert!(!bench.path("socket").exists(), "the socket's path is removed");
    let whole = bench.line("array extract d0 d2 --to -");
    assert_eq!(whole.status, 1);
    assert!(whole.stdout[12_345..][..data.len()] == data);
    let shown = bench.line("array show . --json").json();
    assert_eq!(shown["array"]["missing_slots"], serde_json::json!([]));
}

#[test]
fn a_degraded_array_is_served_and_says_so_and_a_read_only_one_is_not_changed() {
    let bench = Bench::new();
    bench.drives(3);
    bench.line("array create data --level raid5 d0 d1 d2 --assume-clean").well();
    let before = bench.snapshot();
    let mut server = bench.spawn("array serve d0 d2 --nbd unix:socket --read-only");
    let said = wait_for_start(&mut server);
    assert!(said.contains("data: degraded") && said.contains("read-only"), "{said}");
    let mut client = Client::connect(&bench.path("socket"), "data");
    client.read(0, 4096);
    client.leave();
    let (status, said) = interrupt(server);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("warning: data is degraded: no member for slot 1"), "{said}");
    assert_eq!(bench.snapshot(), before);
}

/// One array that can't start keeps no other from being served.
#[test]
fn an_incomplete_array_keeps_no_other_from_being_served() {
    let bench = Bench::new();
    bench.drives(4);
    bench.line("array create lost --level raid0 d0 d1").well();
    bench.line("array create good --level raid1 d2 d3 --assume-clean").well();
    std::fs::remove_file(bench.path("d1")).unwrap();
    let mut server = bench.spawn("array serve . --nbd unix:socket");
    let said = wait_for_start(&mut server);
    assert!(said.starts_with("good: healthy"), "{said}");
    let (status, said) = interrupt(server);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("warning: lost is incomplete: no member for slot 1"), "{said}");
    bench.line("array serve d0 --nbd unix:socket").refused("array lost can't be opened");
    let named = "array serve . --array lost --nbd unix:socket";
    bench.line(named).refused("array lost can't be opened");
}
