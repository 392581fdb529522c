//! Our NBD server beside nbdkit's, both over memory and a Unix socket: fio's nbd engine at several
//! depths, and nbdcopy both ways.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::verdict;
use crate::run::{cargo, output, root, succeed};

const EXPORT_BYTES: u64 = 1 << 30;

/// How long a server may take to open its socket.
const SERVE_LIMIT: Duration = Duration::from_secs(20);

const CASES: [Case; 8] = [
    Case::Fio { write: false, depth: 1 },
    Case::Fio { write: false, depth: 16 },
    Case::Fio { write: false, depth: 64 },
    Case::Fio { write: true, depth: 1 },
    Case::Fio { write: true, depth: 16 },
    Case::Fio { write: true, depth: 64 },
    Case::Copy { to_server: true },
    Case::Copy { to_server: false },
];

#[derive(Clone, Copy)]
enum Case {
    /// 4 KiB random requests; the figure is requests per second.
    Fio { write: bool, depth: u32 },
    /// nbdcopy of the whole export; the figure is bytes per second.
    Copy { to_server: bool },
}

impl Case {
    fn name(self) -> String {
        match self {
            Case::Fio { write, depth } => {
                let kind = if write { "writes" } else { "reads" };
                format!("4 KiB random {kind}, depth {depth}")
            }
            Case::Copy { to_server: true } => "nbdcopy to the server".to_owned(),
            Case::Copy { to_server: false } => "nbdcopy from the server".to_owned(),
        }
    }

    fn measure(self, server: &Server, seconds: u64) -> Result<f64> {
        let uri = format!("nbd+unix:///?socket={}", server.socket.display());
        match self {
            Case::Fio { write, depth } => {
                let mut fio = Command::new("fio");
                let kind = if write { "randwrite" } else { "randread" };
                fio.args(["--name=compare", "--ioengine=nbd", "--bs=4k", "--norandommap"]);
                fio.args(["--time_based", "--ramp_time=500ms", "--output-format=json"]);
                fio.arg(format!("--uri={uri}")).arg(format!("--rw={kind}"));
                fio.arg(format!("--iodepth={depth}")).arg(format!("--runtime={seconds}"));
                fio.arg(format!("--size={EXPORT_BYTES}"));
                let text = output(&mut fio)?;
                // fio may say something before its report.
                let report = &text[text.find('{').context("fio's report")?..];
                let report: serde_json::Value = serde_json::from_str(report)?;
                let side = if write { "write" } else { "read" };
                report["jobs"][0][side]["iops"].as_f64().context("fio's IOPS")
            }
            Case::Copy { to_server } => {
                let mut copy = Command::new("nbdcopy");
                // "null:" takes everything; zeroes to send come from a null export of nbdkit.
                if to_server {
                    copy.args(["--", "[", "nbdkit", "--exit-with-parent", "pattern"]);
                    copy.args([&EXPORT_BYTES.to_string(), "]", &uri]);
                } else {
                    copy.args([&uri, "null:"]);
                }
                let start = Instant::now();
                succeed(&mut copy)?;
                Ok(EXPORT_BYTES as f64 / start.elapsed().as_secs_f64())
            }
        }
    }
}

/// A server under measurement; it is ended when dropped.
struct Server {
    socket: PathBuf,
    process: Child,
}

impl Server {
    fn start(command: &mut Command, socket: PathBuf) -> Result<Server> {
        let process = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn();
        let process = process.with_context(|| format!("{command:?} can't be started"))?;
        let server = Server { socket, process };
        let start = Instant::now();
        while !server.socket.exists() {
            if start.elapsed() > SERVE_LIMIT {
                bail!("waited {SERVE_LIMIT:?} for the socket of {command:?}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    fn ours(folder: &Path) -> Result<Server> {
        let socket = folder.join("ours");
        let mut command = Command::new(root().join("target/release/examples/nbd_memory"));
        command.arg(format!("unix:{}", socket.display())).arg("1").arg(EXPORT_BYTES.to_string());
        Server::start(&mut command, socket)
    }

    fn nbdkit(folder: &Path) -> Result<Server> {
        let socket = folder.join("nbdkit");
        let mut command = Command::new("nbdkit");
        command.args(["--foreground", "--unix"]).arg(&socket);
        command.arg("memory").arg(EXPORT_BYTES.to_string());
        Server::start(&mut command, socket)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Measures every case on both servers in turn.
pub fn run(seconds: u64, rounds: usize) -> Result<()> {
    let mut build = cargo();
    build.args(["build", "--quiet", "--release", "--package", "target", "--example", "nbd_memory"]);
    succeed(&mut build)?;
    let folder = tempfile::tempdir()?;
    let (ours, nbdkit) = (Server::ours(folder.path())?, Server::nbdkit(folder.path())?);
    // Both hold real pages from here on.
    for server in [&ours, &nbdkit] {
        Case::Copy { to_server: true }.measure(server, seconds)?;
    }
    for case in CASES {
        let mut figures = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            for (server, figures) in [&ours, &nbdkit].into_iter().zip(&mut figures) {
                figures.push(case.measure(server, seconds)?);
            }
        }
        let [ours, theirs] = figures.map(median);
        let ratio = ours / theirs;
        println!("{:<32} {ratio:5.2} times  {}", case.name(), verdict(ratio >= 1.0));
    }
    Ok(())
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
