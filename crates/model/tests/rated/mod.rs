//! Descriptions beside what they state under `[rated]`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use model::description::Value;

/// The name and text of each description of a kind.
pub fn descriptions(kind: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hardware");
    let entries = std::fs::read_dir(folder).expect("the folder of descriptions");
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("a description");
        if text.contains(&format!("kind = \"{kind}\"")) {
            found.push((path.file_stem().expect("a name").to_string_lossy().into_owned(), text));
        }
    }
    found.sort();
    found
}

/// All rated values are met within 5 %, but for those that are known to be `missed`: file, value,
/// why.
pub struct Verdict {
    missed: &'static [(&'static str, &'static str, &'static str)],
    met: BTreeSet<(String, String)>,
    wrong: Vec<String>,
}

impl Verdict {
    pub fn new(missed: &'static [(&'static str, &'static str, &'static str)]) -> Verdict {
        Verdict { missed, met: BTreeSet::new(), wrong: Vec::new() }
    }

    /// Compares what a file states with what `measure` gives for it.
    pub fn compare(
        &mut self,
        file: &str,
        rated: &BTreeMap<String, Value<f64>>,
        measure: impl Fn(&str) -> f64,
    ) {
        for (what, value) in rated {
            let measured = measure(what);
            let off = (measured / value.v - 1.0) * 100.0;
            println!("{file} {what}: {measured:.2}, rated {}, off by {off:+.1} %", value.v);
            let known = self.missed.iter().any(|miss| miss.0 == file && miss.1 == what);
            if known {
                self.met.insert((file.to_owned(), what.clone()));
            }
            if (off.abs() > 5.0) != known {
                self.wrong.push(format!("{file} {what}: {measured:.2}, rated {}", value.v));
            }
        }
    }

    pub fn assert(self) {
        assert!(self.wrong.is_empty(), "{}", self.wrong.join("\n"));
        assert_eq!(self.met.len(), self.missed.len());
    }
}
