//! What `mdadm --examine` says about an image.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Its lines, by what stands before the colon.
pub struct Examined(BTreeMap<String, String>);

/// Asks mdadm, on the host.
pub fn examine(image: &Path) -> Examined {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("mdadm");
    command.env("PATH", format!("{path}:/usr/sbin:/sbin")).env("LC_ALL", "C");
    let output = command.arg("--examine").arg(image).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "mdadm --examine {}: {errors}", image.display());
    let lines = text.lines().filter_map(|line| line.split_once(" : "));
    Examined(lines.map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned())).collect())
}

impl Examined {
    /// The words of a line; empty where it is not there.
    pub fn get(&self, key: &str) -> &str {
        self.0.get(key).map_or("", String::as_str)
    }

    /// The number a line starts with.
    pub fn number(&self, key: &str) -> u64 {
        let first = self.get(key).split(' ').next().unwrap_or_default();
        first.parse().unwrap_or_else(|_| panic!("{key} is {:?}", self.get(key)))
    }
}
