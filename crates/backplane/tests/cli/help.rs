//! Help texts, manual pages and completions.

use crate::common::Bench;

#[test]
fn the_top_names_every_noun() {
    let help = Bench::new().line("--help").well().text();
    assert_eq!(help, TOP, "{help}");
}

const TOP: &str = "\
Builds disk arrays from drives, serves them, and measures them

Usage: backplane <COMMAND>

Commands:
  drive  Drives: block devices, and files that serve as drives
  array  Arrays: made from drives, found on them, served and read out
  bench  Measure one target
  lab    Plans, runs and reports
  help   Print this message or the help of the given subcommand(s)

Options:
  -h, --help     Print help
  -V, --version  Print version

Exit status: 0 done; 1 done, and what was asked about is not well; 2 not done.
Sizes are bytes, or powers of 1024: 64K, 1M, 10G, 2T. Durations: 500ms, 10s, 2m.
";

#[test]
fn every_command_has_help_that_fits_a_page() {
    let bench = Bench::new();
    let commands = [
        "drive list",
        "drive create",
        "drive examine",
        "array create",
        "array scan",
        "array show",
        "array serve",
        "array extract",
        "array check",
        "array repair",
        "array fail",
        "array remove",
        "array add",
        "array replace",
        "array stop",
        "bench",
        "lab run",
        "lab report",
        "lab list",
        "lab workloads",
    ];
    for command in commands {
        let help = bench.line(&format!("{command} --help")).well().text();
        assert!(help.contains(&format!("Usage: backplane {command}")), "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
    }
}

#[test]
fn manual_pages_and_completions_come_from_the_commands() {
    let bench = Bench::new();
    bench.line("man pages").well();
    let page = std::fs::read_to_string(bench.path("pages/backplane-array-scan.1")).unwrap();
    assert!(page.contains("Which arrays drives form"), "{page}");
    assert!(bench.path("pages/backplane.1").exists());
    for shell in ["bash", "zsh", "fish"] {
        let script = bench.line(&format!("completions {shell}")).well().text();
        assert!(script.contains("extract"), "{shell}");
    }
}

/// No colour where nobody sees it, and none where it is not wanted.
#[test]
fn errors_are_plain_without_a_terminal() {
    let bench = Bench::new();
    let ran = bench.line("array scan nowhere");
    assert_eq!(
        ran.stderr,
        "error: nowhere does not exist\n\
         hint: `backplane drive list` shows the drives of this machine; `backplane drive create` \
         makes a file to serve as one\n"
    );
    let mut command = bench.command(&["array", "scan", "nowhere"]);
    command.env("NO_COLOR", "1").env("CLICOLOR_FORCE", "0");
    assert!(!bench.output(command).stderr.contains('\x1b'));
}
