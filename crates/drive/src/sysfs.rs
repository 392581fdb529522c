//! What the kernel tells about block devices under `/sys`: one small text file per fact.
//!
//! The root is a parameter everywhere, so that a made-up tree can stand in for a machine. A fact
//! that can't be read is `None`, never a guess.

use std::fs;
use std::path::{Path, PathBuf};

/// Where the kernel shows its devices.
pub(crate) const ROOT: &str = "/sys";

/// A device number as sysfs writes it: `8:1`.
pub(crate) fn number_text(number: u64) -> String {
    format!("{}:{}", libc::major(number), libc::minor(number))
}

/// The text of one attribute file without the white space around it; empty text counts as none.
pub(crate) fn attribute(directory: &Path, name: &str) -> Option<String> {
    let bytes = fs::read(directory.join(name)).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    (!text.is_empty()).then(|| text.to_owned())
}

/// An attribute that is a number.
pub(crate) fn number(directory: &Path, name: &str) -> Option<u64> {
    attribute(directory, name)?.parse().ok()
}

/// An attribute that is 0 or 1.
pub(crate) fn flag(directory: &Path, name: &str) -> Option<bool> {
    number(directory, name).map(|value| value != 0)
}

/// The directory of the whole device that `number` (a device or a partition of it) belongs to.
pub(crate) fn whole_device(root: &Path, number: u64) -> Option<PathBuf> {
    let entry = root.join("dev/block").join(number_text(number));
    let entry = fs::canonicalize(entry).ok()?;
    if entry.join("partition").exists() {
        return entry.parent().map(Path::to_owned);
    }
    Some(entry)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_partition_leads_to_its_device_and_missing_facts_stay_unknown() {
        let root = tempfile::tempdir().unwrap();
        let disk = root.path().join("devices/pci0/sda");
        fs::create_dir_all(disk.join("sda1")).unwrap();
        fs::create_dir_all(disk.join("queue")).unwrap();
        fs::create_dir_all(root.path().join("dev/block")).unwrap();
        fs::write(disk.join("queue/rotational"), "1\n").unwrap();
        fs::write(disk.join("sda1/partition"), "1\n").unwrap();
        fs::write(disk.join("model"), "  \n").unwrap();
        for (number, target) in [("8:0", "sda"), ("8:1", "sda/sda1")] {
            let target = Path::new("../../devices/pci0").join(target);
            symlink(target, root.path().join("dev/block").join(number)).unwrap();
        }
        let whole = whole_device(root.path(), libc::makedev(8, 1)).unwrap();
        assert_eq!(whole, whole_device(root.path(), libc::makedev(8, 0)).unwrap());
        assert_eq!(flag(&whole, "queue/rotational"), Some(true));
        assert_eq!((attribute(&whole, "model"), number(&whole, "size")), (None, None));
        assert_eq!(whole_device(root.path(), libc::makedev(9, 0)), None);
    }
}
