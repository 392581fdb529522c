//! What style rules can be checked by a program.
#![allow(clippy::unwrap_used, reason = "a test ends with the first surprise")]

use std::path::{Path, PathBuf};

/// Over this, a file is split by concept.
const FILE_LINES_MAX: usize = 800;

/// What fits beside another file on a screen.
const LINE_CHARS_MAX: usize = 100;

/// Rooms without clock, files, threads or hash-map order.
const PURE: [&str; 5] = ["geometry", "parity", "format", "array", "workload"];
const IMPURE_WORDS: [&str; 6] =
    ["Instant::now", "SystemTime::now", "std::fs", "thread::", "HashMap", "HashSet"];

/// Rooms that may hold `unsafe`.
const UNSAFE: [&str; 2] = ["parity", "world"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

fn files(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') && name != "node_modules" {
                files(&path, ending, found);
            }
        } else if name.ends_with(ending) {
            found.push(path);
        }
    }
}

fn sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    files(&root(), ".rs", &mut found);
    found.sort();
    let relative = |path: &Path| path.strip_prefix(root()).unwrap().display().to_string();
    found.iter().map(|path| (relative(path), std::fs::read_to_string(path).unwrap())).collect()
}

/// Lines before the file's test module.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate();
    lines.take_while(|(_, line)| !line.starts_with("#[cfg(test)]")).map(|(at, line)| (at + 1, line))
}

fn assert_none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
}

#[test]
fn files_are_short_and_say_what_they_are() {
    let mut found = Vec::new();
    for (path, text) in sources() {
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            found.push(format!("{path} has {lines} lines"));
        }
        if !path.ends_with("build.rs")
            && !text.starts_with("//!")
            && !text.starts_with("#![no_main]")
        {
            found.push(format!("{path} has no module doc"));
        }
    }
    assert_none("files", &found);
}

/// Comments and documents, which the formatter leaves alone. Rows of tables and links can't be
/// broken; what a text in the code says is the code's affair.
#[test]
fn lines_fit_a_screen() {
    let mut documents = Vec::new();
    files(&root(), ".md", &mut documents);
    files(&root(), ".rs", &mut documents);
    let mut found = Vec::new();
    for path in documents {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        let mut example = false;
        for (at, line) in std::fs::read_to_string(&path).unwrap().lines().enumerate() {
            let bare = line.trim_start().trim_start_matches(['/', '!', ' ']);
            let code = name.ends_with(".rs") && !line.trim_start().starts_with("//");
            example ^= bare.starts_with("```");
            let unbreakable = code || example || bare.starts_with('|') || bare.contains("://");
            if line.chars().count() > LINE_CHARS_MAX && !unbreakable {
                found.push(format!("{name}:{}: {} characters", at + 1, line.chars().count()));
            }
        }
    }
    assert_none("long lines", &found);
}

#[test]
fn pure_rooms_stay_pure() {
    let mut found = Vec::new();
    for (path, text) in sources() {
        if !PURE.iter().any(|room| path.starts_with(&format!("crates/{room}/src/"))) {
            continue;
        }
        for (at, line) in code(&text) {
            for word in IMPURE_WORDS {
                if line.contains(word) && !line.trim_start().starts_with("//") {
                    found.push(format!("{path}:{at}: {word}"));
                }
            }
        }
    }
    assert_none("impure", &found);
}

#[test]
fn unsafe_stays_where_it_belongs() {
    let mut found = Vec::new();
    for (path, text) in sources() {
        let room = path.strip_prefix("crates/").and_then(|rest| rest.split('/').next());
        if room.is_none_or(|room| UNSAFE.contains(&room)) {
            continue;
        }
        for (at, line) in text.lines().enumerate() {
            if line.contains("allow(unsafe_code)") {
                found.push(format!("{path}:{}", at + 1));
            }
        }
    }
    assert_none("unsafe outside its rooms", &found);
}

#[test]
fn nothing_is_left_unfinished() {
    // Put together so that this file does not find itself.
    let words =
        [["TO", "DO"], ["FIX", "ME"], ["XX", "X"], ["#[ign", "ore"], ["allow(dead", "_code"]];
    let mut found = Vec::new();
    for (path, text) in sources() {
        for (at, line) in text.lines().enumerate() {
            for word in &words {
                if line.contains(&word.concat()) {
                    found.push(format!("{path}:{}: {}", at + 1, word.concat()));
                }
            }
        }
    }
    assert_none("unfinished", &found);
}

#[test]
fn links_of_the_documents_lead_somewhere() {
    let mut documents = Vec::new();
    files(&root(), ".md", &mut documents);
    let mut found = Vec::new();
    for path in documents {
        let text = std::fs::read_to_string(&path).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().unwrap_or_default();
            let outside = target.is_empty() || target.contains("://");
            if !outside && !path.parent().unwrap().join(target).exists() {
                found.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert_none("dead links", &found);
}
