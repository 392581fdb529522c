//! Speed side by side with the peers, as ratios.
//!
//! Both sides take turns on the same machine in one run, and medians are compared: an absolute
//! figure says little about a program on a machine that other work shares. Every line says what
//! the goal is and whether it was met.

mod nbd;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::run::{cargo, output, root, succeed};
use crate::tools;

/// Rounds in which the two sides take turns.
const ROUNDS: usize = 3;

/// Size of the file and the loop device that are read.
const READ_SPAN_BYTES: u64 = 1 << 30;

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// P+Q and XOR beside ISA-L
    Parity,
    /// 4 KiB random reads beside fio
    Reads,
    /// The NBD server beside nbdkit
    Nbd,
    /// What the engine adds to a read of a memory drive
    Overhead,
    /// Resync, rebuild and check beside simply reading the same memory drives
    Passes,
}

/// Runs the named comparisons, all of them without a name.
pub fn run(names: &[Name], seconds: u64) -> Result<()> {
    tools::provide(tools::FOR_COMPARISONS);
    let all = Name::value_variants();
    for &name in if names.is_empty() { all } else { names } {
        println!("\n== {}", heading(name));
        match name {
            Name::Parity => parity()?,
            Name::Reads => reads(seconds)?,
            Name::Nbd => nbd::run(seconds, ROUNDS)?,
            Name::Overhead => overhead()?,
            Name::Passes => passes()?,
        }
    }
    Ok(())
}

fn heading(name: Name) -> &'static str {
    match name {
        Name::Parity => "parity beside ISA-L (goal: at least 1.0 times its rate)",
        Name::Reads => {
            "4 KiB random reads beside fio's io_uring engine (goal: at least its IOPS, at most 0.8 \
             of its processor time per request)"
        }
        Name::Nbd => "NBD from memory beside nbdkit (goal: at least 1.0 times its rate)",
        Name::Overhead => {
            "4 KiB reads through an array beside the bare drive (goal: under 1000 ns)"
        }
        Name::Passes => {
            "background passes over memory drives on one core (goal: at least 0.80 of reading them, \
             or limited by the processor and at least 0.50 of the parity kernel)"
        }
    }
}

/// "met" or "MISSED": words, so that the verdict does not hang on a colour.
fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}

fn parity() -> Result<()> {
    let manifest = root().join("bench/isal/Cargo.toml");
    let mut command = cargo();
    command.args(["run", "--quiet", "--release", "--manifest-path"]).arg(manifest);
    for line in output(&mut command)?.lines() {
        let figures: serde_json::Value = serde_json::from_str(line).context("a line of figures")?;
        let text = |name: &str| figures[name].as_str().unwrap_or("?").to_owned();
        let ratio = figures["ratio"].as_f64().context("a ratio")?;
        println!(
            "{:<4} of {:>2}, {:>7} byte chunks, {:<4} {:<12} {ratio:5.2} times  {}",
            text("operation"),
            figures["data_count"],
            figures["chunk_bytes"],
            text("working_set"),
            text("kernel"),
            verdict(ratio >= 1.0)
        );
    }
    Ok(())
}

fn overhead() -> Result<()> {
    let mut command = cargo();
    command.args(["run", "--quiet", "--release", "--package", "array", "--example", "overhead"]);
    for line in output(&mut command)?.lines() {
        let figures: serde_json::Value = serde_json::from_str(line).context("a line of figures")?;
        let added = figures["added_ns_per_read"].as_f64().context("a figure")?;
        let (case, total) = (figures["case"].as_str().unwrap_or("?"), &figures["ns_per_read"]);
        println!("{case:<12} {total:>8} ns, adds {added:7.1} ns  {}", verdict(added < 1000.0));
    }
    Ok(())
}

fn passes() -> Result<()> {
    let mut command = cargo();
    command.args(["run", "--quiet", "--release", "--package", "array", "--example", "passes"]);
    for line in output(&mut command)?.lines() {
        let figures: serde_json::Value = serde_json::from_str(line).context("a line of figures")?;
        let rate = |name: &str| figures[name].as_f64().context("a rate");
        let pass = rate("member_bytes_per_second")?;
        let of_reading = pass / rate("read_bytes_per_second")?;
        let of_kernel = pass / rate("kernel_bytes_per_second")?;
        let limiter = figures["limiter"].as_str().unwrap_or("?");
        println!(
            "{:<14} {:>6.0} MiB/s of each member, {of_reading:4.2} of reading, {of_kernel:4.2} of \
             the parity kernel, limited by {limiter}  {}",
            figures["case"].as_str().unwrap_or("?"),
            pass / 1_048_576.0,
            verdict(of_reading >= 0.8 || limiter == "processor" && of_kernel >= 0.5)
        );
    }
    Ok(())
}

fn reads(seconds: u64) -> Result<()> {
    let mut build = cargo();
    build.args([
        "build",
        "--quiet",
        "--release",
        "--package",
        "workload",
        "--example",
        "against_fio",
    ]);
    succeed(&mut build)?;
    let folder = tempfile::tempdir_in(root().join("target"))?;
    let file = folder.path().join("reads.img");
    fill(&file)?;
    println!("a file:");
    beside_fio(&file, seconds)?;
    drop(folder);
    let memory = tempfile::tempdir_in("/dev/shm")?;
    let backing = memory.path().join("loop.img");
    fill(&backing)?;
    match LoopDevice::over(&backing) {
        Ok(device) => {
            println!("a loop device over memory:");
            beside_fio(&device.0, seconds)
        }
        Err(error) => {
            println!("skipped: a loop device over memory: {error:#}");
            Ok(())
        }
    }
}

fn beside_fio(path: &Path, seconds: u64) -> Result<()> {
    let mut command = Command::new(root().join("target/release/examples/against_fio"));
    command.arg(path).args(["--seconds", &seconds.to_string(), "--rounds", &ROUNDS.to_string()]);
    succeed(&mut command)
}

/// Writes the span, so that no read meets a hole.
fn fill(path: &Path) -> Result<()> {
    let mut file = std::fs::File::create(path)?;
    let block: Vec<u8> = (0..1 << 20).map(|index: u32| (index * 31) as u8).collect();
    for _ in 0..READ_SPAN_BYTES >> 20 {
        file.write_all(&block)?;
    }
    file.sync_all().context("filling the file to read")
}

/// A loop device, detached when dropped.
struct LoopDevice(PathBuf);

impl LoopDevice {
    fn over(path: &Path) -> Result<LoopDevice> {
        let mut attach = Command::new("losetup");
        let device = output(attach.args(["--find", "--show", "--direct-io=on"]).arg(path))?;
        Ok(LoopDevice(device.trim().into()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // Nothing can be done about a device that stays, and the run's result stands.
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}
