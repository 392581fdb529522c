//! The fuzz targets, for a while each.

use anyhow::{Context, Result, bail, ensure};

use crate::run::{cargo, root, succeed};

/// Runs `targets` (all without a name), each for `seconds`.
pub fn run(targets: &[String], seconds: u64) -> Result<()> {
    if !cargo().args(["fuzz", "--version"]).output().is_ok_and(|output| output.status.success()) {
        println!("installing cargo-fuzz");
        succeed(cargo().args(["install", "--quiet", "cargo-fuzz"]))
            .context("cargo-fuzz is missing and can't be installed")?;
    }
    let known = known()?;
    for target in targets {
        ensure!(known.contains(target), "no fuzz target {target}; there are: {}", known.join(" "));
    }
    let chosen = if targets.is_empty() { &known } else { targets };
    let mut failed = Vec::new();
    for target in chosen {
        println!("fuzzing {target} for {seconds} s");
        // Without a sanitizer the stable compiler will do; there is no unsafe code in the decoders.
        let mut command = cargo();
        command.args(["fuzz", "run", "--sanitizer", "none", target, "--"]);
        command.args([format!("-max_total_time={seconds}"), "-print_final_stats=1".to_owned()]);
        if succeed(&mut command).is_err() {
            failed.push(target.as_str());
        }
    }
    if !failed.is_empty() {
        bail!("fuzzing found something in: {}", failed.join(" "));
    }
    Ok(())
}

fn known() -> Result<Vec<String>> {
    let folder = root().join("fuzz/targets");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        if let Some(stem) = entry?.path().file_stem() {
            names.push(stem.to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}
