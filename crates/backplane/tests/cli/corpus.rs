//! Arrays that a real kernel made, read out through the command line.

use std::fs;

use crate::common::{Bench, corpus, digest, unpack};

#[derive(serde::Deserialize)]
struct Index {
    array: Vec<Entry>,
}

#[derive(serde::Deserialize)]
struct Entry {
    name: String,
    state: String,
    content: Vec<Content>,
}

#[derive(serde::Deserialize)]
struct Content {
    size: usize,
    sha256: String,
}

/// One of each kind; the engine's own tests read all of them with every loss.
const SETS: [&str; 4] = [
    "raid5-4-degraded-missing2-v12",
    "raid10-3-o2-v12",
    "raid5-4-stale-member-v12",
    "raid1-2-split-brain-v12",
];

#[test]
fn sets_of_the_corpus_read_as_their_index_says() {
    let Some(corpus) = corpus() else {
        println!("skipped: sets_of_the_corpus: needs the corpus (BACKPLANE_CORPUS)");
        return;
    };
    let index: Index =
        toml::from_str(&fs::read_to_string(corpus.join("index.toml")).unwrap()).unwrap();
    for entry in index.array.iter().filter(|entry| SETS.contains(&entry.name.as_str())) {
        let bench = Bench::new();
        unpack(&corpus, &entry.name, &bench.path("."), "");
        let before = bench.snapshot();
        let whole = bench.line("array extract . --to -");
        if entry.state == "split-brain" {
            let error = whole.refused("separate sides").stderr;
            assert!(error.contains("side 0, ") && error.contains("d1.img"), "{error}");
            for (content, drive) in entry.content.iter().zip(["d0.img", "d1.img"]) {
                let side = bench.line(&format!("array extract {drive} --to -"));
                assert_eq!((side.status, digest(&side.stdout)), (1, content.sha256.clone()));
            }
        } else {
            let content = &entry.content[0];
            let ill = ["degraded", "stale"].contains(&entry.state.as_str());
            assert_eq!(whole.status, i32::from(ill), "{}: {whole:?}", entry.name);
            assert_eq!(digest(&whole.stdout[..content.size]), content.sha256, "{}", entry.name);
        }
        assert_eq!(bench.snapshot(), before, "{}", entry.name);
    }
}

/// Containers that firmware made: said to be there, and not supported yet.
#[test]
fn containers_of_other_kinds_are_named() {
    let Some(corpus) = corpus() else {
        println!("skipped: containers_of_other_kinds: needs the corpus (BACKPLANE_CORPUS)");
        return;
    };
    for (set, kind) in [("imsm-raid1-2", "an Intel IMSM"), ("ddf-raid5-3", "a SNIA DDF")] {
        let bench = Bench::new();
        unpack(&corpus, set, &bench.path("."), "");
        let fact = format!("these drives hold {kind} container: not supported yet");
        let scan = bench.line("array scan .");
        assert!(scan.status == 1 && scan.text().contains(&fact), "{scan:#?}");
        bench.line("array extract . --to -").refused(&fact);
    }
}
