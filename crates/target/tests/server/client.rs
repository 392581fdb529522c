//! The client of the drive crate: on this server, and on others.

use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use drive::{Drive, Durability, ErrorKind, MemoryDrive, NbdDrive, NbdError, conformance};
use target::nbd::server::Limits;
use world::{RingConfig, World, WriteBufs};

use crate::harness::{Offers, Running, SIZE_BYTES, memory, one};
use crate::peers::present;

fn real_world() -> World {
    World::real(RingConfig { entries: 64, arena_bytes: 8 << 20 }).unwrap()
}

/// The whole body that every drive has to pass.
fn conforms(uri: &str) {
    let world = real_world();
    let drive = NbdDrive::open(&world, uri).unwrap();
    conformance::run(&world, &drive, 11);
    drop(drive);
    world.end();
}

fn blocks(_world: &World) -> Offers {
    one(Rc::new(MemoryDrive::new("blocks", SIZE_BYTES, 4096)))
}

#[test]
fn an_export_of_this_server_is_a_drive() {
    for offers in [memory, blocks] {
        let server = Running::start(offers, Limits::default());
        conforms(&server.uri("disk"));
        server.logged("client disconnected");
        server.stop().0.unwrap();
    }
}

#[test]
fn an_export_that_is_not_there_is_refused_with_a_hint() {
    let server = Running::start(memory, Limits::default());
    let world = real_world();
    let opened = NbdDrive::open(&world, &server.uri("other"));
    let Err(error @ NbdError::Refused { .. }) = opened else { panic!("there is no such export") };
    assert!(error.to_string().contains("hint: the server has no export of this name"), "{error}");
}

#[test]
fn a_server_that_stops_is_a_drive_that_is_gone() {
    let server = Running::start(memory, Limits::default());
    let world = real_world();
    let drive = NbdDrive::open(&world, &server.uri("disk")).unwrap();
    server.stop().0.unwrap();
    for _ in 0..2 {
        let data = WriteBufs::from_iter([world.pool().take_zeroed(4096).freeze()]);
        let error = world.block_on(drive.write(0, data, Durability::Durable)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Gone, "{error}");
    }
}

/// A peer's server; it ends with this.
struct Peer(Child);

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn on_peer(test: &str, program: &str, arguments: impl Fn(&str, &str) -> Vec<String>) {
    if !present(test, &[program]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).display().to_string();
    let (socket, image) = (place("socket"), place("image"));
    drive::create_file(image.as_ref(), SIZE_BYTES).unwrap();
    let mut command = Command::new(program);
    command.args(arguments(&socket, &image)).stdin(Stdio::null()).stderr(Stdio::null());
    let _peer = Peer(command.spawn().unwrap());
    let start = Instant::now();
    while std::os::unix::net::UnixStream::connect(&socket).is_err() {
        assert!(start.elapsed() < Duration::from_secs(60), "{program} opens no socket");
        std::thread::sleep(Duration::from_millis(20));
    }
    conforms(&format!("nbd+unix:///?socket={socket}"));
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

#[test]
fn an_export_of_nbdkit_is_a_drive() {
    on_peer("an_export_of_nbdkit_is_a_drive", "nbdkit", |socket, image| {
        words(&["--foreground", "--unix", socket, "file", image])
    });
}

#[test]
fn an_export_of_qemu_is_a_drive() {
    on_peer("an_export_of_qemu_is_a_drive", "qemu-nbd", |socket, image| {
        words(&["--format=raw", "--persistent", "--shared=4", "--socket", socket, image])
    });
}
