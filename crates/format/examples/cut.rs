//! Cuts the non-zero sectors out of chosen ranges of member images, for `tests/data`.
//!
//! `cargo run -p format --example cut -- head=16K tail=128K at=2M+64K d0.img d1.img > NAME.cut`
//!
//! The output is one record per member: a line `member NAME SIZE`, then for each run of non-zero
//! sectors a line `at OFFSET LENGTH`, its bytes, and a newline. All else reads as zero.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};

const SECTOR: usize = 512;

fn main() -> std::io::Result<()> {
    let (mut head, mut tail, mut extra) = (0, 0, Vec::new());
    let mut out = std::io::stdout().lock();
    for argument in std::env::args().skip(1) {
        if let Some(value) = argument.strip_prefix("head=") {
            head = size(value);
        } else if let Some(value) = argument.strip_prefix("tail=") {
            tail = size(value);
        } else if let Some((start, length)) =
            argument.strip_prefix("at=").and_then(|value| value.split_once('+'))
        {
            extra.push((size(start), size(length)));
        } else {
            let bytes = std::fs::metadata(&argument)?.len();
            let mut ranges = vec![(0, head), (bytes.saturating_sub(tail), tail)];
            ranges.extend(&extra);
            cut(&argument, bytes, &ranges, &mut out)?;
        }
    }
    Ok(())
}

/// `16K`, `2M` or plain bytes.
fn size(text: &str) -> u64 {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'M') => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    digits.parse::<u64>().expect("a number with K, M or nothing behind it") * unit
}

fn cut(
    path: &str,
    device_bytes: u64,
    ranges: &[(u64, u64)],
    out: &mut impl Write,
) -> std::io::Result<()> {
    let name = path.rsplit('/').next().unwrap_or(path);
    writeln!(out, "member {name} {device_bytes}")?;
    let mut file = File::open(path)?;
    for &(start, length) in ranges {
        let mut bytes = vec![0; length.min(device_bytes) as usize];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut bytes)?;
        let mut run_start = None;
        for sector in 0..=bytes.len() / SECTOR {
            let used = bytes
                .get(sector * SECTOR..(sector + 1) * SECTOR)
                .is_some_and(|sector| sector.iter().any(|&byte| byte != 0));
            match (run_start, used) {
                (None, true) => run_start = Some(sector),
                (Some(first), false) => {
                    let run = &bytes[first * SECTOR..sector * SECTOR];
                    writeln!(out, "at {} {}", start + (first * SECTOR) as u64, run.len())?;
                    out.write_all(run)?;
                    out.write_all(b"\n")?;
                    run_start = None;
                }
                _ => {}
            }
        }
    }
    Ok(())
}
