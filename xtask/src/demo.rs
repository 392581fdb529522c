//! An array made of files, served, filled, broken and read back: every step a command that is
//! printed, so that a reader can do the same by hand.

use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use crate::run::{cargo, root, succeed};
use crate::tools::{self, FOR_TESTS};

/// How long a server may take to open its socket.
const SERVE_LIMIT: Duration = Duration::from_secs(20);

/// Runs the demonstration in a folder of its own.
pub fn run() -> Result<()> {
    tools::provide(FOR_TESTS);
    succeed(cargo().args(["build", "--release", "--package", "backplane"]))?;
    let folder = tempfile::tempdir()?;
    let demo = Demo { folder: folder.path() };
    demo.backplane("drive create d0.img --size 64M")?;
    demo.backplane("drive create d1.img --size 64M")?;
    demo.backplane("drive create d2.img --size 64M")?;
    demo.backplane("drive create d3.img --size 64M")?;
    demo.backplane("array create demo --level raid5 --chunk 64K d0.img d1.img d2.img d3.img")?;
    demo.shell("mdadm --examine d0.img")?;
    demo.shell("head -c 100M /dev/urandom > before")?;
    demo.serve(&["."], |demo| demo.shell("nbdcopy before 'nbd+unix:///demo?socket=sock'"))?;
    println!("\n# the drive d2 is gone");
    std::fs::rename(folder.path().join("d2.img"), folder.path().join("lost.img"))?;
    // Degraded is worth an exit status of 1.
    let _ = demo.backplane("array scan d0.img d1.img d3.img");
    demo.serve(&["d0.img", "d1.img", "d3.img"], |demo| {
        demo.shell("nbdcopy 'nbd+unix:///demo?socket=sock' after")
    })?;
    demo.shell("cmp -n 104857600 before after && echo 'everything reads back'")
}

struct Demo<'a> {
    folder: &'a Path,
}

impl Demo<'_> {
    fn program(&self, words: &[&str]) -> Command {
        println!("\n$ backplane {}", words.join(" "));
        let mut command = Command::new(root().join("target/release/backplane"));
        command.current_dir(self.folder).args(words);
        command
    }

    fn backplane(&self, line: &str) -> Result<()> {
        succeed(&mut self.program(&line.split_whitespace().collect::<Vec<_>>()))
    }

    fn shell(&self, line: &str) -> Result<()> {
        println!("\n$ {line}");
        succeed(Command::new("sh").current_dir(self.folder).args(["-c", line]))
    }

    /// Serves the array on these drives while `act` runs.
    fn serve(&self, drives: &[&str], act: impl FnOnce(&Self) -> Result<()>) -> Result<()> {
        let socket = self.folder.join("sock");
        let mut words = vec!["array", "serve"];
        words.extend(drives);
        words.extend(["--nbd", "unix:sock"]);
        let mut server = self.program(&words).spawn()?;
        let result = wait_for(&socket, &mut server).and_then(|()| act(self));
        // The server drains, flushes and marks the members clean on this signal.
        succeed(Command::new("kill").args(["-TERM", &server.id().to_string()]))?;
        let status = server.wait()?;
        result?;
        ensure!(status.code().is_some_and(|code| code <= 1), "the server ended with {status}");
        Ok(())
    }
}

fn wait_for(socket: &Path, server: &mut Child) -> Result<()> {
    let start = Instant::now();
    while start.elapsed() < SERVE_LIMIT {
        if socket.exists() {
            return Ok(());
        }
        if let Some(status) = server.try_wait()? {
            bail!("the server ended with {status}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    bail!("waited {SERVE_LIMIT:?} for the server's socket")
}
