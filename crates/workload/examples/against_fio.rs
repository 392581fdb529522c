//! 4 KiB random reads of a file or block device, and fio doing the same beside it.
//!
//! ```text
//! against_fio PATH [--depth 1,32] [--seconds 4] [--rounds 5] [--alone]
//! ```
//!
//! The two take turns, so that both see the same machine; medians of the rounds and their ratios
//! come last. Reading only: nothing on PATH is changed. With `--alone` fio is not run. On a busy
//! machine `nice -n -20` keeps others from deciding the result.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use drive::{Access, Direct, Drive, Durability, FileDrive, OpenOptions};
use rustix::time::{ClockId, clock_gettime};
use workload::{
    AccessSpec, Arrival, DataPattern, GeneratorConfig, GeneratorMode, Job, Observer, WorkingSet,
};
use world::{RingConfig, World};

const BLOCK_BYTES: u32 = 4096;
const RAMP: Duration = Duration::from_millis(500);

struct Arguments {
    path: PathBuf,
    depths: Vec<u32>,
    seconds: u64,
    rounds: usize,
    alone: bool,
}

/// What one round of one program gave.
#[derive(Clone, Copy)]
struct Figures {
    requests_per_second: f64,
    cpu_ns_per_request: f64,
}

fn arguments() -> Result<Arguments, Box<dyn Error>> {
    let mut given = Arguments {
        path: PathBuf::new(),
        depths: vec![1, 32],
        seconds: 4,
        rounds: 5,
        alone: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--depth" => {
                given.depths = value()?.split(',').map(str::parse).collect::<Result<_, _>>()?;
            }
            "--seconds" => given.seconds = value()?.parse()?,
            "--rounds" => given.rounds = value()?.parse()?,
            "--alone" => given.alone = true,
            path => given.path = path.into(),
        }
    }
    Ok(given)
}

/// CPU time of this process, its kernel workers included.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn ours(path: &Path, depth: u32, seconds: u64, seed: u64) -> Result<Figures, Box<dyn Error>> {
    let world = World::real(RingConfig::default())?;
    let options =
        OpenOptions { access: Access::ReadOnly, direct: Direct::Require, ..OpenOptions::LOOK };
    let drive = FileDrive::open(&world, path, options)?;
    let job = Job {
        spec: AccessSpec::uniform(BLOCK_BYTES, 100, 100)?,
        generator: GeneratorConfig {
            mode: GeneratorMode::Aligned,
            working_set: WorkingSet::whole(drive.facts().size_bytes)?,
            seed,
            worker: 0,
            streams: 1,
        },
        workers: 1,
        arrival: Arrival::Closed { queue_depth: depth, think_ns: 0 },
        data: DataPattern::Zeros,
        durability: Durability::Cached,
        ramp: RAMP,
        time: Duration::from_secs(seconds),
        interval: Duration::from_secs(1),
        requests_max: None,
        errors_in_a_row_max: 1,
        drain_limit: Duration::from_secs(10),
    };
    let observer = Observer { cpu_ns: Some(&cpu_ns), ..Observer::default() };
    let measured = world.block_on(workload::run(&world, Rc::new(drive), &job, observer))?;
    world.end();
    let reads = &measured.summary.reads;
    if let Some(error) = measured.first_error {
        return Err(error.into());
    }
    Ok(Figures {
        requests_per_second: reads.requests_per_second.ok_or("nothing was measured")?,
        cpu_ns_per_request: measured.cpu_ns.ok_or("no CPU time")? as f64 / reads.requests as f64,
    })
}

fn fio(path: &Path, depth: u32, seconds: u64, seed: u64) -> Result<Figures, Box<dyn Error>> {
    let size_bytes = std::fs::File::open(path).and_then(|mut file| {
        use std::io::Seek;
        file.seek(std::io::SeekFrom::End(0))
    })?;
    let output = Command::new("fio")
        .args(["--name=randread", "--ioengine=io_uring", "--direct=1", "--norandommap"])
        .args(["--bs=4k", "--rw=randread", "--numjobs=1", "--time_based", "--readonly"])
        .arg(format!("--filename={}", path.display()))
        .args([format!("--size={size_bytes}"), format!("--iodepth={depth}")])
        .args([format!("--runtime={seconds}"), format!("--randseed={seed}")])
        .args([format!("--ramp_time={}ms", RAMP.as_millis()), "--output-format=json".into()])
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let job = &report["jobs"][0];
    let figure = |value: &serde_json::Value| value.as_f64().ok_or("fio's report lacks a figure");
    let cpu_percent = figure(&job["usr_cpu"])? + figure(&job["sys_cpu"])?;
    let runtime_ns = figure(&job["job_runtime"])? * 1e6;
    Ok(Figures {
        requests_per_second: figure(&job["read"]["iops"])?,
        cpu_ns_per_request: cpu_percent / 100.0 * runtime_ns / figure(&job["read"]["total_ios"])?,
    })
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn medians(rounds: &[Figures]) -> Figures {
    Figures {
        requests_per_second: median(rounds.iter().map(|round| round.requests_per_second)),
        cpu_ns_per_request: median(rounds.iter().map(|round| round.cpu_ns_per_request)),
    }
}

fn show(depth: u32, who: &str, figures: Figures) {
    let Figures { requests_per_second, cpu_ns_per_request } = figures;
    println!("{depth:>5} {who:<9} {requests_per_second:>11.0} {cpu_ns_per_request:>12.0}");
}

fn main() -> Result<(), Box<dyn Error>> {
    let given = arguments()?;
    println!("depth who        requests/s  CPU ns/request");
    for &depth in &given.depths {
        let (mut own, mut others) = (Vec::new(), Vec::new());
        for round in 0..given.rounds {
            own.push(ours(&given.path, depth, given.seconds, round as u64)?);
            show(depth, "backplane", own[round]);
            if !given.alone {
                others.push(fio(&given.path, depth, given.seconds, round as u64)?);
                show(depth, "fio", others[round]);
            }
        }
        let own = medians(&own);
        show(depth, "median", own);
        if !given.alone {
            let other = medians(&others);
            show(depth, "of fio", other);
            println!(
                "{depth:>5} ratio     {:>11.3} {:>12.3}",
                own.requests_per_second / other.requests_per_second,
                own.cpu_ns_per_request / other.cpu_ns_per_request
            );
        }
    }
    Ok(())
}
