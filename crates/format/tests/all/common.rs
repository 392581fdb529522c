//! Reads the cut members in `tests/data` (see the README there).

use std::collections::BTreeMap;
use std::path::PathBuf;

/// The metadata areas of one member; all else reads as zero.
pub struct CutMember {
    /// File name of the member.
    pub name: String,
    /// Size of the whole member.
    pub device_bytes: u64,
    runs: BTreeMap<u64, Vec<u8>>,
}

impl CutMember {
    /// Bytes as the member would give them.
    pub fn read(&self, start: u64, length: usize) -> Vec<u8> {
        let mut out = vec![0; length];
        for (&at, run) in &self.runs {
            let (from, to) = (at.max(start), (at + run.len() as u64).min(start + length as u64));
            if from < to {
                out[(from - start) as usize..(to - start) as usize]
                    .copy_from_slice(&run[(from - at) as usize..(to - at) as usize]);
            }
        }
        out
    }
}

/// The members of one set, by the set's name.
pub fn members(set: &str) -> Vec<CutMember> {
    let path = data().join(format!("{set}.cut"));
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let mut members: Vec<CutMember> = Vec::new();
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let end = rest.iter().position(|&byte| byte == b'\n').expect("a line");
        let line = std::str::from_utf8(&rest[..end]).expect("text");
        rest = &rest[end + 1..];
        let words: Vec<&str> = line.split(' ').collect();
        let number = |index: usize| words[index].parse::<u64>().expect("a number");
        match words[0] {
            "member" => members.push(CutMember {
                name: words[1].to_owned(),
                device_bytes: number(2),
                runs: BTreeMap::new(),
            }),
            "at" => {
                let length = number(2) as usize;
                let member = members.last_mut().expect("a member line comes first");
                member.runs.insert(number(1), rest[..length].to_vec());
                rest = &rest[length + 1..];
            }
            other => panic!("{path:?}: unknown record {other}"),
        }
    }
    members
}

/// The names of all sets in `tests/data`.
pub fn sets() -> Vec<String> {
    let entries = std::fs::read_dir(data()).expect("tests/data");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("entry").file_name().into_string().expect("text"))
        .filter_map(|name| name.strip_suffix(".cut").map(str::to_owned))
        .collect();
    names.sort();
    names
}

fn data() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}
