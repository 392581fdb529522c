//! The programs of others that tests and comparisons use, and where to get them.

use std::path::Path;
use std::process::{Command, Stdio};

/// A program, and the Debian package that has it.
pub struct Tool {
    /// A file that is there when the program is: an absolute path, or a name in `PATH`.
    pub probe: &'static str,
    pub package: &'static str,
}

const fn tool(probe: &'static str, package: &'static str) -> Tool {
    Tool { probe, package }
}

/// What the tests use.
pub const FOR_TESTS: &[Tool] = &[
    tool("fio", "fio"),
    tool("linux.uml", "user-mode-linux"),
    tool("losetup", "mount"),
    tool("mdadm", "mdadm"),
    tool("mkfs.ext4", "e2fsprogs"),
    tool("mkfs.xfs", "xfsprogs"),
    tool("nbdcopy", "libnbd-bin"),
    tool("/usr/lib/python3/dist-packages/nbd.py", "python3-libnbd"),
    tool("qemu-img", "qemu-utils"),
    tool("sfdisk", "fdisk"),
];

/// What the comparisons use.
pub const FOR_COMPARISONS: &[Tool] = &[
    tool("fio", "fio"),
    tool("gcc", "gcc"),
    tool("losetup", "mount"),
    tool("nbdcopy", "libnbd-bin"),
    tool("nbdkit", "nbdkit"),
    tool("/usr/include/isa-l.h", "libisal-dev"),
];

fn present(tool: &Tool) -> bool {
    if tool.probe.starts_with('/') {
        return Path::new(tool.probe).exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian keeps administrators' programs where an ordinary PATH does not look.
    let extra = ["/usr/sbin", "/sbin"].map(Into::into);
    std::env::split_paths(&path).chain(extra).any(|folder| folder.join(tool.probe).exists())
}

/// Installs what is missing where that is possible, and says what stays missing.
pub fn provide(tools: &[Tool]) {
    let missing = |tools: &[Tool]| -> Vec<&'static str> {
        tools.iter().filter(|tool| !present(tool)).map(|tool| tool.package).collect()
    };
    let packages = missing(tools);
    if packages.is_empty() {
        return;
    }
    // /proc/self belongs to the user this process runs as.
    let root = std::os::unix::fs::MetadataExt::uid(
        &std::fs::metadata("/proc/self").expect("Linux has /proc"),
    ) == 0;
    if root && present(&tool("apt-get", "apt")) {
        println!("installing {}", packages.join(" "));
        let apt = |words: &[&str]| {
            let mut command = Command::new("apt-get");
            command.env("DEBIAN_FRONTEND", "noninteractive").args(words).stdout(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        // One package that does not exist here must not keep the others away.
        if apt(&["update"]) {
            for package in packages {
                apt(&["install", "-y", "--no-install-recommends", package]);
            }
        }
    }
    let still = missing(tools);
    if !still.is_empty() {
        println!("missing, what needs it is skipped: {}", still.join(" "));
        println!("hint: apt-get install {}", still.join(" "));
    }
}
