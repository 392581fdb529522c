//! Everything a change has to pass: format, lints, and all tests, with one summary.
//!
//! A test that finds out that it can't run on this machine prints a line `skipped: NAME: why` and
//! returns; here it is counted as skipped and named, not as passed.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::run::{cargo, succeed};
use crate::tools;

/// Runs all of it. `filter`: only tests whose name contains it.
pub fn run(filter: Option<&str>, tests_only: bool) -> Result<()> {
    tools::provide(tools::FOR_TESTS);
    if !tests_only {
        succeed(cargo().args(["fmt", "--all", "--check"]))?;
        let lints = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
        succeed(cargo().args(lints))?;
        // A link to a private item helps the reader of the source, who is the reader there is.
        let strict = "-Dwarnings -Arustdoc::private_intra_doc_links";
        succeed(cargo().args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", strict))?;
    }
    let mut tests = cargo();
    tests.args(["test", "--workspace", "--no-fail-fast"]).args(filter);
    tests.args(["--", "--show-output"]);
    let summary = watch(&mut tests)?;
    if !summary.skipped.is_empty() {
        println!("\nskipped on this machine:");
        for line in &summary.skipped {
            println!("  {line}");
        }
    }
    let Summary { passed, failed, skipped, ended_well } = &summary;
    let ran = passed.saturating_sub(skipped.len());
    println!("\n{ran} passed, {failed} failed, {} skipped", skipped.len());
    ensure!(*failed == 0 && *ended_well, "tests failed");
    ensure!(*passed > 0, "no test ran");
    Ok(())
}

#[derive(Debug, Default)]
struct Summary {
    passed: usize,
    failed: usize,
    skipped: Vec<String>,
    ended_well: bool,
}

impl Summary {
    /// Counts what a line of the test runner says.
    fn note(&mut self, line: &str) {
        if let Some(counts) = line.strip_prefix("test result: ") {
            let count = |word: &str| -> usize {
                let part = counts.split([';', '.']).find(|part| part.trim_end().ends_with(word));
                let number = part.and_then(|part| part.split_whitespace().next());
                number.and_then(|number| number.parse().ok()).unwrap_or(0)
            };
            self.passed += count("passed");
            self.failed += count("failed");
        } else if let Some(what) = line.strip_prefix("skipped: ") {
            self.skipped.push(what.to_owned());
        }
    }
}

fn watch(tests: &mut Command) -> Result<Summary> {
    let mut child = tests.stdout(Stdio::piped()).spawn().context("cargo can't be started")?;
    let output = child.stdout.take().expect("piped above");
    let mut summary = Summary::default();
    for line in BufReader::new(output).lines() {
        let line = line.context("reading what the tests print")?;
        summary.note(&line);
        println!("{line}");
    }
    summary.ended_well = child.wait()?.success();
    Ok(summary)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_tests_are_not_passed_ones() {
        let mut summary = Summary::default();
        let lines = "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured\n\
                     skipped: fio_verifies: needs fio\n\
                     test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured";
        lines.lines().for_each(|line| summary.note(line));
        assert_eq!((summary.passed, summary.failed), (15, 2));
        assert_eq!(summary.skipped, ["fio_verifies: needs fio"]);
    }
}
