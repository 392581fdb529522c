//! kill -9 of a serving process under writes: whatever was acknowledged is there when it is served
//! again, and its redundancy agrees in the end.
//!
//! Each sector that is written carries its number and the number of the write, so a sector that is
//! read back names the write it comes from: the last one that was acknowledged, or one that was
//! under way when the process was killed, and nothing else. A short share runs with all tests;
//! `cargo xtask torture` asks for more rounds through [`ROUNDS`] and repeats one with [`SEED`].

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::common::Bench;
use crate::serve::{Client, wait_for_start};

/// How often a process is killed.
const ROUNDS: &str = "BACKPLANE_KILL_ROUNDS";
const ROUNDS_DEFAULT: usize = 5;

/// Where all draws come from.
const SEED: &str = "BACKPLANE_KILL_SEED";

const SECTOR_BYTES: usize = 512;

/// Writers, each with a connection and sectors of its own.
const WRITERS: usize = 4;
const WRITER_SECTORS: usize = 2048;
const WRITE_SECTORS_MAX: usize = 96;

/// A process is killed at most this long after its clients began.
const LIFE_MS_MAX: u64 = 400;

/// How long redundancy may take to agree again.
const AGREE_LIMIT: Duration = Duration::from_secs(120);

/// SplitMix64.
#[derive(Clone)]
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

/// What a writer knows about its sectors.
struct Writer {
    first: usize,
    draw: Draw,
    /// The number of the last write; 0 where nothing was written.
    written: u64,
    /// Per sector, the last acknowledged write.
    acknowledged: Vec<u64>,
    /// The one that has no answer.
    under_way: Option<(Range<usize>, u64)>,
    writes: u64,
}

impl Writer {
    fn stamp(sector: usize, write: u64) -> [u8; SECTOR_BYTES] {
        let mut bytes = [0; SECTOR_BYTES];
        for part in bytes.chunks_mut(16) {
            part[..8].copy_from_slice(&(sector as u64).to_le_bytes());
            part[8..].copy_from_slice(&write.to_le_bytes());
        }
        bytes
    }

    /// Checks every sector against what may be there, and goes on from what is there. A server that
    /// is killed meanwhile leaves everything as it was.
    fn verify(&mut self, client: &mut Client) -> Result<io::Result<()>, String> {
        let bytes = WRITER_SECTORS * SECTOR_BYTES;
        let content = match client.try_read((self.first * SECTOR_BYTES) as u64, bytes) {
            Ok(content) => content,
            Err(error) => return Ok(Err(error)),
        };
        for (index, sector) in content.chunks(SECTOR_BYTES).enumerate() {
            let number = self.first + index;
            let acknowledged = self.acknowledged[index];
            let is_write = |write: u64| match write {
                0 => sector.iter().all(|&byte| byte == 0),
                _ => sector == Self::stamp(number, write),
            };
            if is_write(acknowledged) {
                continue;
            }
            let under_way = self.under_way.as_ref().filter(|(range, _)| range.contains(&index));
            match under_way {
                Some((_, write)) if is_write(*write) => self.acknowledged[index] = *write,
                _ => {
                    let head: Vec<_> = sector[..16].to_vec();
                    return Err(format!(
                        "sector {number}: write {acknowledged} was acknowledged, \
                         {under_way:?} was under way, there is {head:?}"
                    ));
                }
            }
        }
        self.under_way = None;
        Ok(Ok(()))
    }

    /// What a client does until its server is killed: verify, tell that, and write.
    fn live(&mut self, socket: &Path, verified: &Sender<()>) -> io::Result<()> {
        let mut client = Client::try_connect(socket, "data")?;
        self.verify(&mut client).unwrap_or_else(|error| panic!("{error}"))?;
        // Nobody waits for it where the server is to be killed before that.
        let _ = verified.send(());
        self.write(&mut client)
    }

    /// Writes until the connection ends.
    fn write(&mut self, client: &mut Client) -> io::Result<()> {
        loop {
            let sectors = 1 + self.draw.below(WRITE_SECTORS_MAX as u64) as usize;
            let start = self.draw.below((WRITER_SECTORS - sectors) as u64) as usize;
            let write = self.written + 1;
            let data: Vec<u8> = (start..start + sectors)
                .flat_map(|index| Self::stamp(self.first + index, write))
                .collect();
            self.written = write;
            self.under_way = Some((start..start + sectors, write));
            client.try_write(((self.first + start) * SECTOR_BYTES) as u64, &data)?;
            self.under_way = None;
            self.acknowledged[start..start + sectors].fill(write);
            self.writes += 1;
            if self.draw.below(20) == 0 {
                client.try_flush()?;
            }
        }
    }
}

fn serve(bench: &Bench) -> Child {
    let mut server = bench.spawn("array serve . --nbd unix:socket --force");
    wait_for_start(&mut server);
    // Read to its end, or a talkative server would wait for its reader.
    let errors = server.stderr.take();
    thread::spawn(move || errors.map(|mut errors| io::copy(&mut errors, &mut io::sink())));
    server
}

/// One life of a process: its clients verify and write, and it is killed; in some lives before
/// everything is verified.
fn round(bench: &Bench, writers: Vec<Writer>, draw: &mut Draw) -> Vec<Writer> {
    let mut server = serve(bench);
    let socket: PathBuf = bench.path("socket");
    let (sender, verified) = mpsc::channel();
    let tasks: Vec<JoinHandle<Writer>> = writers
        .into_iter()
        .map(|mut writer| {
            let (socket, sender) = (socket.clone(), sender.clone());
            thread::spawn(move || {
                // It ends with the process.
                let _ = writer.live(&socket, &sender);
                writer
            })
        })
        .collect();
    drop(sender);
    if draw.below(4) > 0 {
        // One that found a fault has ended, and sends nothing: its panic is seen below.
        let _ = verified.iter().take(WRITERS).count();
    }
    thread::sleep(Duration::from_millis(draw.below(LIFE_MS_MAX)));
    assert_eq!(server.try_wait().unwrap(), None, "it ended before it was killed");
    server.kill().unwrap();
    server.wait().unwrap();
    tasks.into_iter().map(|task| task.join().unwrap()).collect()
}

/// Serves once more, until copies and parity agree, and compares what every member alone gives.
fn agree(bench: &Bench, writers: &mut [Writer], members: usize, journal: &str) {
    let mut server = serve(bench);
    for writer in writers {
        let mut client = Client::connect(&bench.path("socket"), "data");
        writer.verify(&mut client).unwrap_or_else(|error| panic!("{error}")).unwrap();
        client.leave();
    }
    let start = Instant::now();
    loop {
        let state = bench.line("array show data --json").json();
        if state["array"]["redundancy_agrees"] == true {
            break;
        }
        assert!(start.elapsed() < AGREE_LIMIT, "waited for redundancy: {state:#}");
        thread::sleep(Duration::from_millis(100));
    }
    bench.line("array stop data").well();
    server.wait().unwrap();
    let whole = bench.line("array extract . --to -").well().stdout;
    for without in 0..members {
        let others: Vec<_> =
            (0..members).filter(|&m| m != without).map(|m| format!("d{m}")).collect();
        let rest = bench.line(&format!("array extract {} {journal} --to -", others.join(" ")));
        assert_eq!(rest.status, 1, "{rest:?}");
        assert!(rest.stdout == whole, "without d{without} something else is read");
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn kills(level: &str, members: usize) {
    kills_beside(level, members, "");
}

/// The same with a journal, where `journal` names its drive.
fn kills_beside(level: &str, members: usize, journal: &str) {
    let rounds = number(ROUNDS).map_or(ROUNDS_DEFAULT, |rounds| rounds as usize);
    let clock = std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos();
    let seed = number(SEED).unwrap_or_else(|| u64::from(clock));
    println!("{level}: {rounds} kills from seed {seed} ({SEED}={seed} repeats its draws)");
    let bench = Bench::new();
    let names = bench.drives(members);
    if !journal.is_empty() {
        bench.line(&format!("drive create {journal} --size 32M")).well();
    }
    bench.line(&format!("array create data --level {level} {names}")).well();
    let mut draw = Draw(seed);
    let mut writers: Vec<Writer> = (0..WRITERS)
        .map(|index| Writer {
            first: index * WRITER_SECTORS,
            draw: Draw(seed ^ (index as u64 + 1) << 32),
            written: 0,
            acknowledged: vec![0; WRITER_SECTORS],
            under_way: None,
            writes: 0,
        })
        .collect();
    for _ in 0..rounds {
        writers = round(&bench, writers, &mut draw);
    }
    agree(&bench, &mut writers, members, journal);
    let writes: u64 = writers.iter().map(|writer| writer.writes).sum();
    assert!(writes > 0, "nothing was acknowledged, so nothing was shown");
    println!("{level}: {rounds} kills, {writes} writes acknowledged, all of them kept");
}

#[test]
fn kill_9_of_raid1_loses_nothing() {
    kills("raid1", 2);
}

#[test]
fn kill_9_of_raid10_loses_nothing() {
    kills("raid10 --chunk 4K", 4);
}

#[test]
fn kill_9_of_raid5_loses_nothing() {
    kills("raid5 --chunk 4K", 3);
}

#[test]
fn kill_9_of_raid6_loses_nothing() {
    kills("raid6 --chunk 16K", 4);
}

#[test]
fn kill_9_of_raid5_bitmap_loses_nothing() {
    kills("raid5 --chunk 4K --consistency bitmap", 3);
}

#[test]
fn kill_9_of_raid10_bitmap_loses_nothing() {
    kills("raid10 --chunk 4K --consistency bitmap", 4);
}

#[test]
fn kill_9_of_raid5_ppl_loses_nothing() {
    kills("raid5 --chunk 4K --consistency ppl", 3);
}

#[test]
fn kill_9_of_raid6_journal_loses_nothing() {
    kills_beside("raid6 --chunk 16K --consistency journal=log", 4, "log");
}

/// The judge itself: a write that was acknowledged and is not there is found.
#[test]
fn a_write_that_is_not_there_is_found() {
    let bench = Bench::new();
    bench.drives(2);
    bench.line("array create data --level raid1 d0 d1 --assume-clean").well();
    let mut server = serve(&bench);
    let mut writer = Writer {
        first: 0,
        draw: Draw(1),
        written: 1,
        acknowledged: vec![0; WRITER_SECTORS],
        under_way: Some((3..5, 1)),
        writes: 0,
    };
    let mut client = Client::connect(&bench.path("socket"), "data");
    writer.verify(&mut client).unwrap().unwrap();
    client.write(3 * SECTOR_BYTES as u64, &Writer::stamp(3, 1));
    writer.under_way = Some((3..5, 1));
    writer.verify(&mut client).unwrap().unwrap();
    assert_eq!(writer.acknowledged[3..5], [1, 0]);
    writer.acknowledged[4] = 1;
    assert!(writer.verify(&mut client).unwrap_err().starts_with("sector 4: write 1"));
    client.leave();
    bench.line("array stop data").well();
    server.wait().unwrap();
}
