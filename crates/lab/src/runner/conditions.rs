//! The machine a run is made on, as the kernel tells it: read once, at the edge.
//!
//! Left out: what changes while the run goes on. A fact that can't be read is left blank.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use drive::{BlockDevice, Roots};

/// What the kernel says about the machine.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Host {
    /// Its name.
    pub name: String,
    /// Kernel name and release.
    pub kernel: String,
    /// Processor model.
    pub cpu: String,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Tasks that ran or waited over the last minute.
    pub load_average: Option<f64>,
    /// Whether it runs under a hypervisor, which may cache what it takes for its drives.
    pub virtual_machine: bool,
}

impl Host {
    /// Reads the tables below `proc`.
    pub fn read(proc: &Path) -> Self {
        let text = |name: &str| fs::read_to_string(proc.join(name)).unwrap_or_default();
        let word = |name: &str| match text(name).trim() {
            "" => "unknown".to_owned(),
            word => word.to_owned(),
        };
        let cpuinfo = text("cpuinfo");
        Self {
            name: word("sys/kernel/hostname"),
            kernel: format!("{} {}", word("sys/kernel/ostype"), word("sys/kernel/osrelease")),
            // Other architectures than x86 call it otherwise, or don't tell.
            cpu: ["model name", "Model", "Processor", "cpu"]
                .iter()
                .find_map(|name| entry(&cpuinfo, name))
                .unwrap_or("unknown")
                .to_owned(),
            memory_bytes: entry(&text("meminfo"), "MemTotal")
                .and_then(|value| value.strip_suffix(" kB")?.trim().parse::<u64>().ok())
                .map(|kilobytes| kilobytes.saturating_mul(1024)),
            load_average: text("loadavg").split(' ').next().and_then(|load| load.parse().ok()),
            virtual_machine: entry(&cpuinfo, "flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
        }
    }
}

/// The value of the first `name: value` of a table.
fn entry<'a>(table: &'a str, name: &str) -> Option<&'a str> {
    table.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

/// What a file lies on, in words: `file on ext4, /dev/vda, scheduler none`.
pub(super) fn file_kind(path: &Path, roots: &Roots) -> String {
    let Ok(status) = fs::metadata(path) else { return "file".to_owned() };
    let number = number_text(status.dev());
    let mounts = fs::read_to_string(roots.proc.join("self/mountinfo")).unwrap_or_default();
    let mut parts = vec!["file".to_owned()];
    // The last mount is the one on top.
    if let Some((kind, source)) = mounts.lines().rev().find_map(|line| mount(line, &number)) {
        parts[0] = format!("file on {kind}");
        // A file system without a device has any word there.
        parts.extend(source.starts_with('/').then(|| source.to_owned()));
    }
    parts.extend(scheduler(status.dev(), roots).map(|name| format!("scheduler {name}")));
    parts.join(", ")
}

/// Type and source of the mount that a line of mountinfo describes, if it is of device `number`.
fn mount<'a>(line: &'a str, number: &str) -> Option<(&'a str, &'a str)> {
    let (before, after) = line.split_once(" - ")?;
    let mut after = after.split(' ');
    (before.split(' ').nth(2)? == number).then_some((after.next()?, after.next()?))
}

/// What a block device is, in words: `block device, SAMSUNG MZVL2512, scheduler none`.
pub(super) fn device_kind(device: Option<&BlockDevice>, number: u64, roots: &Roots) -> String {
    let mut parts = vec!["block device".to_owned()];
    parts.extend(device.and_then(|device| device.model.clone()));
    parts.extend(scheduler(number, roots).map(|name| format!("scheduler {name}")));
    parts.join(", ")
}

/// Whether the block device has a volatile write cache that is on.
pub(super) fn write_cache(number: u64, roots: &Roots) -> Option<bool> {
    let text = fs::read_to_string(queue(number, roots).join("write_cache")).ok()?;
    match text.trim() {
        "write back" => Some(true),
        "write through" => Some(false),
        _ => None,
    }
}

/// The scheduler in brackets, as the kernel marks the one in use; a name alone is in use too.
fn scheduler(number: u64, roots: &Roots) -> Option<String> {
    let text = fs::read_to_string(queue(number, roots).join("scheduler")).ok()?;
    let marked = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    let name = marked.map_or(text.trim(), |(name, _)| name);
    (!name.is_empty()).then(|| name.to_owned())
}

/// The queue of the device, or of the whole one that it is a partition of.
fn queue(number: u64, roots: &Roots) -> PathBuf {
    let device = roots.sys.join("dev/block").join(number_text(number));
    let own = device.join("queue");
    if own.is_dir() {
        return own;
    }
    // A path of symbolic links: `..` has to be taken after they are followed.
    fs::canonicalize(&device).map_or(own, |device| device.join("../queue"))
}

fn number_text(number: u64) -> String {
    format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_made_up_machine_is_described() {
        let root = tempfile::tempdir().unwrap();
        let proc = root.path();
        fs::create_dir_all(proc.join("sys/kernel")).unwrap();
        for (name, text) in [
            ("sys/kernel/hostname", "bench\n"),
            ("sys/kernel/ostype", "Linux\n"),
            ("sys/kernel/osrelease", "6.12.1\n"),
            (
                "cpuinfo",
                "processor\t: 0\nmodel name\t: Example 9000\nflags\t\t: fpu hypervisor sse\n",
            ),
            ("meminfo", "MemTotal:       16384 kB\nMemFree: 1 kB\n"),
            ("loadavg", "0.25 0.1 0.0 1/99 4711\n"),
        ] {
            fs::write(proc.join(name), text).unwrap();
        }
        let expected = Host {
            name: "bench".into(),
            kernel: "Linux 6.12.1".into(),
            cpu: "Example 9000".into(),
            memory_bytes: Some(16 << 20),
            load_average: Some(0.25),
            virtual_machine: true,
        };
        assert_eq!(Host::read(proc), expected);
        let nothing = Host::read(&proc.join("missing"));
        assert_eq!((nothing.cpu.as_str(), nothing.memory_bytes), ("unknown", None));
        assert!(!nothing.virtual_machine);
    }

    #[test]
    fn a_file_tells_its_file_system_and_scheduler() {
        let root = tempfile::tempdir().unwrap();
        let number = fs::metadata(root.path()).unwrap().dev();
        let roots = Roots {
            sys: root.path().join("sys"),
            proc: root.path().join("proc"),
            dev: root.path().join("dev"),
        };
        assert_eq!(file_kind(root.path(), &roots), "file");
        let queue = roots.sys.join("dev/block").join(number_text(number)).join("queue");
        fs::create_dir_all(&queue).unwrap();
        fs::create_dir_all(roots.proc.join("self")).unwrap();
        fs::write(queue.join("scheduler"), "none [mq-deadline] bfq\n").unwrap();
        fs::write(queue.join("write_cache"), "write back\n").unwrap();
        let line = format!("27 1 {} / / rw - ext4 /dev/vda rw\n", number_text(number));
        fs::write(roots.proc.join("self/mountinfo"), line).unwrap();
        let expected = "file on ext4, /dev/vda, scheduler mq-deadline";
        assert_eq!(file_kind(root.path(), &roots), expected);
        assert_eq!(device_kind(None, number, &roots), "block device, scheduler mq-deadline");
        assert_eq!(write_cache(number, &roots), Some(true));
    }
}
