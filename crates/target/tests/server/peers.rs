//! Clients that other people wrote. Each test names the programs it needs, and is skipped by name
//! where one is missing.

use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use drive::MemoryDrive;
use target::nbd::server::Limits;

use crate::drives::LateDrive;
use crate::harness::{Offers, Running, SIZE_BYTES, memory, one};

fn late(world: &world::World) -> Offers {
    one(LateDrive::serve(world, SIZE_BYTES))
}

/// A drive whose blocks clients need not know.
fn blocks(_world: &world::World) -> Offers {
    one(Rc::new(MemoryDrive::new("blocks", SIZE_BYTES, 4096)))
}

/// Whether all programs are there; says so if not.
pub fn present(test: &str, programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found =
        |program: &str| std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    let missing: Vec<&str> = programs.iter().copied().filter(|&program| !found(program)).collect();
    if !missing.is_empty() {
        println!("skipped: {test}: needs {}", missing.join(", "));
    }
    missing.is_empty()
}

/// Runs a program that has to succeed, and returns what it printed.
fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let words = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}\n{words}\n{errors}");
    words
}

/// A file as large as the export, with bytes that do not repeat, and holes.
fn image(path: &Path) {
    let mut bytes = vec![0; SIZE_BYTES as usize];
    let mut random = world::SplitMix64::new(3);
    for chunk in bytes.chunks_mut(8).filter(|chunk| chunk.as_ptr() as usize >> 20 & 3 != 0) {
        chunk.copy_from_slice(&random.next_u64().to_ne_bytes());
    }
    std::fs::write(path, bytes).unwrap();
}

fn same(one: &Path, other: &Path) -> bool {
    std::fs::read(one).unwrap() == std::fs::read(other).unwrap()
}

#[test]
fn nbdinfo_sees_the_export() {
    if !present("nbdinfo_sees_the_export", &["nbdinfo"]) {
        return;
    }
    let server = Running::start(memory, Limits::default());
    let words = run("nbdinfo", &[&server.uri("disk")]);
    for line in ["export-size: 67108864", "can_multi_conn: true", "can_fua: true"] {
        assert!(words.contains(line), "{words}");
    }
    let map = run("nbdinfo", &["--map", &server.uri("")]);
    assert!(map.contains("67108864"), "{map}");
    assert!(run("nbdinfo", &["--list", &server.uri("")]).contains("export=\"disk\""));
}

#[test]
fn nbdcopy_there_and_back() {
    if !present("nbdcopy_there_and_back", &["nbdcopy"]) {
        return;
    }
    for offers in [memory, late] {
        let server = Running::start(offers, Limits::default());
        let (there, back) = (server.folder.path().join("there"), server.folder.path().join("back"));
        image(&there);
        std::fs::write(&back, b"").unwrap();
        let uri = server.uri("disk");
        run("nbdcopy", &["--flush", there.to_str().unwrap(), &uri]);
        run("nbdcopy", &[&uri, back.to_str().unwrap()]);
        assert!(same(&there, &back));
        run("nbdcopy", &["--connections=1", "--request-size=33554432", &uri, "null:"]);
    }
}

#[test]
fn qemu_img_converts_and_compares() {
    if !present("qemu_img_converts_and_compares", &["qemu-img"]) {
        return;
    }
    let server = Running::start(memory, Limits::default());
    let image_path = server.folder.path().join("image");
    image(&image_path);
    let (file, uri) = (image_path.to_str().unwrap(), server.uri("disk"));
    run("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", "-W", "-m", "8", file, &uri]);
    let words = run("qemu-img", &["compare", "-f", "raw", "-F", "raw", file, &uri]);
    assert!(words.contains("identical"), "{words}");
}

#[test]
fn qemu_io_with_any_alignment() {
    if !present("qemu_io_with_any_alignment", &["qemu-io"]) {
        return;
    }
    let server = Running::start(blocks, Limits::default());
    let words = run(
        "qemu-io",
        &[
            "-f",
            "raw",
            "-c",
            "write -P 0x11 0 1M",
            "-c",
            "write -f -P 0x22 513 70001",
            "-c",
            "write -z 1000 3000",
            "-c",
            "discard 400k 100k",
            "-c",
            "aio_write -P 0x33 300001 7",
            "-c",
            "aio_flush",
            "-c",
            "flush",
            "-c",
            "read -P 0x11 0 513",
            "-c",
            "read -P 0x22 513 487",
            "-c",
            "read -P 0 1000 3000",
            "-c",
            "read -P 0x22 4000 66514",
            "-c",
            "read -P 0x33 300001 7",
            "-c",
            "read -P 0x11 300008 1000",
            &server.uri("disk"),
        ],
    );
    assert!(!words.contains("failed"), "{words}");
}

#[test]
fn fio_verifies_at_depth_32() {
    if !present("fio_verifies_at_depth_32", &["fio"]) {
        return;
    }
    for offers in [memory, late, blocks] {
        let server = Running::start(offers, Limits::default());
        let uri = format!("--uri={}", server.uri("disk"));
        run(
            "fio",
            &[
                "--name=verify",
                "--ioengine=nbd",
                &uri,
                "--rw=randrw",
                "--bsrange=512-128k",
                "--bs_unaligned=1",
                "--iodepth=32",
                "--size=48m",
                "--verify=crc32c",
                "--verify_fatal=1",
                "--randseed=1",
            ],
        );
    }
}

#[test]
fn libnbd_gives_odd_commands() {
    const PYTHON: &str = "/usr/bin/python3";
    const TEST: &str = "libnbd_gives_odd_commands";
    let installed = Command::new(PYTHON).args(["-c", "import nbd"]).output();
    if !installed.is_ok_and(|output| output.status.success()) {
        println!("skipped: {TEST}: needs python3-libnbd");
        return;
    }
    let server = Running::start(memory, Limits::default());
    let script = r#"
import nbd, errno, sys
def refused(number, act):
    try:
        act()
    except nbd.Error as error:
        assert error.errnum == number, error
    else:
        raise SystemExit("not refused")
h = nbd.NBD()
h.add_meta_context("base:allocation")
h.set_strict_mode(0)
h.connect_uri(sys.argv[1])
size = h.get_size()
h.pwrite(b"x" * 1000, 3, nbd.CMD_FLAG_FUA)
assert h.pread(1000, 3, nbd.CMD_FLAG_DF) == b"x" * 1000
h.zero(500, 3, nbd.CMD_FLAG_NO_HOLE | nbd.CMD_FLAG_FUA)
h.trim(100, 600, nbd.CMD_FLAG_FUA)
h.cache(size, 0)
h.flush()
assert h.pread(1000, 3) == bytes(500) + b"x" * 97 + bytes(100) + b"x" * 303
extents = []
h.block_status(size, 0, lambda context, offset, entries, error: extents.extend(entries))
assert extents == [size, 0], extents
h.block_status(4096, 512, lambda *_: 0, nbd.CMD_FLAG_REQ_ONE)
refused(errno.EINVAL, lambda: h.pread(2, size - 1))
refused(errno.ENOSPC, lambda: h.pwrite(b"xy", size - 1))
refused(errno.EINVAL, lambda: h.trim(2, size - 1))
refused(errno.EINVAL, lambda: h.zero(4096, 0, nbd.CMD_FLAG_FAST_ZERO))
refused(errno.EINVAL, lambda: h.block_status(0, 0, lambda *_: 0))
assert h.pread(1, size - 1) == b"\0"
cookies = [h.aio_pread(nbd.Buffer(65536), i * 4096) for i in range(200)]
while h.aio_in_flight() > 0:
    h.poll(-1)
assert all(h.aio_command_completed(cookie) for cookie in cookies)
h.shutdown()
"#;
    run(PYTHON, &["-c", script, &server.uri("disk")]);
    server.logged("client disconnected");
}
