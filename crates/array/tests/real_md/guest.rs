//! A Linux kernel with the real md driver, run as an ordinary program on image files.
//!
//! User-Mode Linux needs no privileges and no virtual machine. The guest sees the host's file
//! system read-only as its root (that is where its shell and mdadm come from), and one folder of
//! images that it may write; the images become loop devices. A script goes in; facts come back in
//! a file of that folder. Loop devices are used because the guest has only sixteen disks of its
//! own, and because they hold unsynchronized writes back, as a drive's cache does.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use tempfile::TempDir;

/// A guest that takes longer hangs. One run takes about ten seconds on a busy machine. It halts by
/// itself then, also where the test that started it has been killed.
const TIME_LIMIT: Duration = Duration::from_secs(300);

/// Enough for the guest's cache of all images of a run.
const MEMORY: &str = "mem=512M";

/// Where Debian's package keeps the guest's modules.
const MODULES: &str = "/usr/lib/uml/modules";

/// A folder in memory: the guest flushes its images often.
const FAST_FOLDER: &str = "/dev/shm";

/// The line after which the guest loses its power.
const POWER_CUT: &str = "POWER-CUT";

/// What every script starts with. `devices` are the loop devices of the array at work, `md` is its
/// own device, `sys` its state in sysfs.
const PRELUDE: &str = r#"
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
md=/dev/md0
sys=/sys/block/md0/md
attach() {
    devices=
    for image in "$@"; do
        devices="$devices $(losetup --find --show /run/images/$image)"
    done
}
detach() {
    losetup --detach $devices
}
say() {
    echo "$*" >> /run/images/results
}
# Waits for the end of resync, recovery or check.
idle() {
    action=busy
    until [ "$action" = idle ]; do
        sleep 0.02
        read action < $sys/sync_action
    done
}
# Compares copies or parity with the data, and says how many sectors differ.
check() {
    idle
    echo check > $sys/sync_action
    idle
    say $1 mismatches $(cat $sys/mismatch_cnt)
}
# Writes pieces of the file $1 to their places: block size, first block and number of blocks each.
scatter() {
    from=$1
    shift
    while [ $# -gt 0 ]; do
        dd if=/run/images/$from of=$md bs=$1 skip=$2 seek=$2 count=$3 oflag=direct conv=notrunc
        shift 3
    done
}
"#;

/// What a script said: its words by array and key.
pub struct Report(BTreeMap<(String, String), String>);

impl Report {
    /// What was said about `key` of `array`.
    pub fn get(&self, array: &str, key: &str) -> &str {
        let said = self.0.get(&(array.to_owned(), key.to_owned()));
        said.unwrap_or_else(|| panic!("the guest said nothing about {key} of {array}"))
    }
}

/// Images, and guests that work on them.
pub struct Bench {
    images: TempDir,
    scripts: TempDir,
    preload: Option<PathBuf>,
}

impl Bench {
    /// A new bench; `None`, said aloud, where the programs are missing.
    pub fn new(test: &str) -> Option<Bench> {
        let programs = ["linux.uml", "mdadm"];
        let found = |program: &&str| {
            let path = std::env::var_os("PATH").unwrap_or_default();
            let sbin = ["/sbin", "/usr/sbin"].map(PathBuf::from);
            std::env::split_paths(&path).chain(sbin).any(|folder| folder.join(program).exists())
        };
        if !programs.iter().all(found) || !Path::new(MODULES).exists() {
            println!("skipped: real_md::{test}: needs user-mode-linux and mdadm");
            return None;
        }
        let fast = Path::new(FAST_FOLDER);
        let images = if fast.exists() { tempfile::tempdir_in(fast) } else { tempfile::tempdir() };
        let (images, scripts) = (images.unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir_all(scripts.path().join("root/lib")).unwrap();
        symlink(MODULES, scripts.path().join("root/lib/modules")).unwrap();
        let preload = wide_registers().then(|| build_preload(scripts.path()));
        Some(Bench { images, scripts, preload })
    }

    /// The path of an image, on the host.
    pub fn path(&self, name: &str) -> PathBuf {
        self.images.path().join(name)
    }

    /// Runs a script to its end.
    pub fn run(&self, script: &str) -> Report {
        let console = self.boot(&format!("{script}\nsay script ended 1\nsync\n"));
        let results = std::fs::read_to_string(self.path("results")).unwrap_or_default();
        let fact = |line: &str| {
            let mut words = line.splitn(3, ' ').map(str::to_owned);
            Some(((words.next()?, words.next()?), words.next().unwrap_or_default()))
        };
        let report = Report(results.lines().filter_map(fact).collect());
        let ended = report.0.contains_key(&("script".to_owned(), "ended".to_owned()));
        assert!(ended, "the guest did not reach the script's end:\n{}", tail(&console));
        report
    }

    /// Runs a script and cuts the power at its end: what was not synchronized is lost.
    pub fn run_until_power_cut(&self, script: &str) {
        let console = self.boot(&format!("{script}\necho {POWER_CUT}\nsleep 600\n"));
        let cut = console.iter().any(|line| line == POWER_CUT);
        assert!(cut, "the guest did not reach the power cut:\n{}", tail(&console));
    }

    /// Starts a guest, waits for its end or ends it; gives what its console showed.
    fn boot(&self, script: &str) -> Vec<String> {
        let _ = std::fs::remove_file(self.path("results"));
        let init = self.scripts.path().join("init");
        let text = format!(
            "#!/bin/sh -ex\n{PRELUDE}\n\
             mount -t proc proc /proc\n\
             mount -t sysfs sysfs /sys\n\
             mount -t tmpfs tmpfs /run\n\
             mkdir /run/images\n\
             mount -t hostfs -o {} none /run/images\n\
             for module in loop md-mod linear raid0 raid1 raid10 raid456; do\n\
             modprobe --dirname {}/root $module\n\
             done\n\
             for limit in /proc/sys/dev/raid/speed_limit_m*; do echo 2000000 > $limit; done\n\
             (sleep {}; halt -f) &\n\
             {script}\n\
             exec halt -f\n",
            self.images.path().display(),
            self.scripts.path().display(),
            TIME_LIMIT.as_secs(),
        );
        std::fs::write(&init, text).unwrap();
        std::fs::set_permissions(&init, PermissionsExt::from_mode(0o755)).unwrap();
        let mut command = Command::new("linux.uml");
        command.args([MEMORY, "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro"]);
        command.arg(format!("init={}", init.display()));
        command.args(["con=null", "con0=null,fd:1", "ssl=null", "quiet", "loglevel=3"]);
        if let Some(preload) = &self.preload {
            command.env("LD_PRELOAD", preload);
        }
        // A group of its own: the guest's processes are processes of the host.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut guest = command.spawn().unwrap();
        let output = BufReader::new(guest.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        let reader = std::thread::spawn(move || {
            for line in output.split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut console = Vec::new();
        while let Ok(line) = lines.recv_timeout(TIME_LIMIT) {
            console.push(line);
            if console.last().is_some_and(|line| line == POWER_CUT) {
                break;
            }
        }
        kill_group(guest.id());
        guest.wait().unwrap();
        drop(lines);
        reader.join().unwrap();
        console
    }
}

/// Ends what is left of a guest.
fn kill_group(id: u32) {
    let mut kill = Command::new("kill");
    kill.args(["-KILL", "--", &format!("-{id}")]).stderr(Stdio::null());
    // It fails where all have ended already.
    let _ = kill.status();
}

/// The last lines, without what a kernel says that lost its first program.
fn tail(console: &[String]) -> String {
    let panic = console.iter().position(|line| line.starts_with("Kernel panic"));
    let console = &console[..panic.unwrap_or(console.len())];
    console[console.len().saturating_sub(40)..].join("\n")
}

/// Whether the processor has registers that the guest's kernel does not know of.
fn wide_registers() -> bool {
    std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|info| info.contains(" amx_tile"))
}

/// Builds what lets the guest run there.
fn build_preload(folder: &Path) -> PathBuf {
    let library = folder.join("registers.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real_md/registers.c");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([library.as_path(), source.as_path()])
        .status();
    assert!(built.unwrap().success(), "building {} failed", source.display());
    library
}
