//! The block devices of this machine: which drive is which, and who uses it.
//!
//! Everything comes from `/sys` and `/proc`; no device is opened, so looking disturbs nothing. A
//! fact the kernel does not tell is `None`. Who uses a drive is found from mounts, swap, holders
//! (md, device mapper, bcache) and loop devices, on the drive and on each of its partitions; a
//! program that merely has it open, and file systems over several drives that only name one of
//! them (btrfs, ZFS), do not show here, and only opening it exclusively tells.

mod parse;

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::sysfs;
pub use parse::Transport;
use parse::{Mount, parse_mounts, parse_number, parse_swaps, transport_of};

/// The kernel counts sizes and offsets in these, whatever the device's block is.
const SYSFS_SECTOR_BYTES: u64 = 512;

/// Where the kernel's tables are; a made-up tree stands in for a machine in tests.
#[derive(Debug, Clone)]
pub struct Roots {
    /// `/sys`.
    pub sys: PathBuf,
    /// `/proc`.
    pub proc: PathBuf,
    /// `/dev`.
    pub dev: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Roots { sys: sysfs::ROOT.into(), proc: "/proc".into(), dev: "/dev".into() }
    }
}

/// A table that could not be read.
#[derive(Debug, thiserror::Error)]
#[error("reading {} failed: {source}\nhint: is {} mounted, and readable for this user?",
        .path.display(), .path.display())]
pub struct ListError {
    /// What was read.
    pub path: PathBuf,
    /// The operating system's error.
    pub source: io::Error,
}

/// Somebody's hold on a device or file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Use {
    /// The device or file that is used: a drive's own name, or one of its partitions'.
    pub name: String,
    /// By whom.
    pub by: User,
}

/// Who uses it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum User {
    /// A mounted file system.
    Mount {
        /// Where it is mounted.
        at: PathBuf,
    },
    /// Swap space.
    Swap,
    /// A device built on it: an md array, a device mapper volume, a loop device.
    Device {
        /// Its kernel name: `md0`, `dm-1`, `loop3`.
        name: String,
    },
    /// A program that keeps it to itself.
    Process {
        /// Its number.
        pid: u32,
        /// What it is called.
        name: String,
    },
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match &self.by {
            User::Mount { at } => write!(f, "{name} is mounted at {}", at.display()),
            User::Swap => write!(f, "{name} is swap space"),
            User::Device { name: device } => write!(f, "{name} is part of {device}"),
            User::Process { pid, name: program } => {
                write!(f, "{name} is held by process {pid} ({program})")
            }
        }
    }
}

/// A part of a drive, as its partition table says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// Kernel name: `sda1`.
    pub name: String,
    /// Its node below `/dev`.
    pub path: PathBuf,
    /// Device number.
    pub number: u64,
    /// First byte on the drive.
    pub start_bytes: u64,
    /// Its size.
    pub size_bytes: u64,
    /// Who uses it.
    pub uses: Vec<Use>,
}

/// A block device that is not a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockDevice {
    /// Kernel name: `sda`.
    pub name: String,
    /// Its node below `/dev`.
    pub path: PathBuf,
    /// Device number.
    pub number: u64,
    /// Its size.
    pub size_bytes: u64,
    /// As its maker calls it, with the maker where the kernel tells.
    pub model: Option<String>,
    /// As printed on it.
    pub serial: Option<String>,
    /// World wide name (`naa.…`, `eui.…`).
    pub wwn: Option<String>,
    /// How it is attached.
    pub transport: Option<Transport>,
    /// Whether it turns.
    pub rotational: Option<bool>,
    /// Whether it can be taken out while the machine runs, as a card or a stick.
    pub removable: Option<bool>,
    /// Whether it is write-protected.
    pub read_only: Option<bool>,
    /// Smallest unit it addresses, in bytes.
    pub logical_block_bytes: Option<u64>,
    /// Smallest unit it writes without reading, in bytes.
    pub physical_block_bytes: Option<u64>,
    /// Who uses it as a whole.
    pub uses: Vec<Use>,
    /// In the order of their numbers.
    pub partitions: Vec<Partition>,
}

impl BlockDevice {
    /// Every use of the drive and of its partitions: what a write to the whole of it would hit.
    #[must_use]
    pub fn all_uses(&self) -> Vec<Use> {
        let parts = self.partitions.iter().flat_map(|partition| &partition.uses);
        self.uses.iter().chain(parts).cloned().collect()
    }

    /// Every use that a write to the device `number` would hit: of the drive and all its
    /// partitions, or of one partition and the drive as a whole; `None` for another drive's number.
    fn uses_of(&self, number: u64) -> Option<Vec<Use>> {
        if self.number == number {
            return Some(self.all_uses());
        }
        let partition = self.partitions.iter().find(|partition| partition.number == number)?;
        Some(self.uses.iter().chain(&partition.uses).cloned().collect())
    }
}

/// The block devices that have a size, in the order of their numbers.
///
/// # Errors
/// When a table of the kernel can't be read; a single missing fact is no error.
pub fn list_devices(roots: &Roots) -> Result<Vec<BlockDevice>, ListError> {
    let users = Users::read(roots)?;
    let folder = roots.sys.join("block");
    let failed = |source| ListError { path: folder.clone(), source };
    let mut devices = Vec::new();
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        devices.extend(device(roots, &users, &name, &entry.path()));
    }
    devices.sort_by_key(|device| (libc::major(device.number), libc::minor(device.number)));
    Ok(devices)
}

/// Who uses the block device or regular file at `path`; empty where nobody is known to. For a drive
/// with partitions their uses count too, for a partition those of the whole drive.
///
/// # Errors
/// When `path` or a table of the kernel can't be read.
pub fn in_use(path: &Path, roots: &Roots) -> Result<Vec<Use>, ListError> {
    let failed = |source| ListError { path: path.to_owned(), source };
    let status = fs::metadata(path).map_err(failed)?;
    if status.file_type().is_block_device() {
        let devices = list_devices(roots)?;
        let uses = devices.iter().find_map(|device| device.uses_of(status.rdev()));
        return Ok(uses.unwrap_or_default());
    }
    let path = fs::canonicalize(path).map_err(failed)?;
    Ok(Users::read(roots)?.of(&path.to_string_lossy(), None, &path, &[]))
}

/// What the kernel's tables say about who uses what.
struct Users {
    mounts: Vec<Mount>,
    swaps: Vec<PathBuf>,
    /// Loop devices and the path behind each.
    loops: Vec<(String, PathBuf)>,
}

impl Users {
    fn read(roots: &Roots) -> Result<Users, ListError> {
        let path = roots.proc.join("self/mountinfo");
        let mounts = fs::read(&path).map_err(|source| ListError { path, source })?;
        // A kernel without swap has no such table.
        let swaps = fs::read(roots.proc.join("swaps")).unwrap_or_default();
        let mut loops = Vec::new();
        for entry in fs::read_dir(roots.sys.join("block")).into_iter().flatten().flatten() {
            if let Some(path) = sysfs::attribute(&entry.path(), "loop/backing_file") {
                let name = entry.file_name().to_string_lossy().into_owned();
                loops.push((name, PathBuf::from(path)));
            }
        }
        loops.sort();
        Ok(Users { mounts: parse_mounts(&mounts), swaps: parse_swaps(&swaps), loops })
    }

    /// Who uses the thing called `name` at `path`; `number` where it is a device.
    fn of(&self, name: &str, number: Option<u64>, path: &Path, holders: &[String]) -> Vec<Use> {
        let mounts = self.mounts.iter().filter(|mount| {
            number.is_some() && (number == Some(mount.number) || mount.source == path)
        });
        let mounts = mounts.map(|mount| User::Mount { at: mount.at.clone() });
        let swaps = self.swaps.iter().filter(|swap| *swap == path).map(|_| User::Swap);
        let loops = self.loops.iter().filter(|(_, backing)| backing == path);
        let devices = loops.map(|(device, _)| device).chain(holders);
        let devices = devices.map(|device| User::Device { name: device.clone() });
        let users = mounts.chain(swaps).chain(devices);
        users.map(|by| Use { name: name.to_owned(), by }).collect()
    }
}

/// The names in a folder, sorted; none where there is no folder.
fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn size_of(folder: &Path) -> u64 {
    sysfs::number(folder, "size").unwrap_or(0).saturating_mul(SYSFS_SECTOR_BYTES)
}

/// `None` for what is no drive now: a slot without a medium, a hidden path of a multipath drive.
fn device(roots: &Roots, users: &Users, name: &str, folder: &Path) -> Option<BlockDevice> {
    let number = parse_number(&sysfs::attribute(folder, "dev")?)?;
    let size_bytes = size_of(folder);
    if size_bytes == 0 || sysfs::flag(folder, "hidden") == Some(true) {
        return None;
    }
    // A slash in a device's name is a `!` in sysfs.
    let path = roots.dev.join(name.replace('!', "/"));
    let holders = names_in(&folder.join("holders"));
    let mut partitions: Vec<(u64, Partition)> = names_in(folder)
        .into_iter()
        .filter_map(|part| partition(roots, users, &folder.join(&part), part))
        .collect();
    partitions.sort_by_key(|(index, _)| *index);
    let fact = |names: &[&str]| names.iter().find_map(|name| sysfs::attribute(folder, name));
    let place = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    Some(BlockDevice {
        uses: users.of(name, Some(number), &path, &holders),
        name: name.to_owned(),
        path,
        number,
        size_bytes,
        model: model(folder),
        serial: fact(&["serial", "device/serial"]).or_else(|| page_serial(folder)),
        wwn: fact(&["wwid", "device/wwid"]),
        transport: transport_of(&place.to_string_lossy()),
        rotational: sysfs::flag(folder, "queue/rotational"),
        removable: sysfs::flag(folder, "removable"),
        read_only: sysfs::flag(folder, "ro"),
        logical_block_bytes: sysfs::number(folder, "queue/logical_block_size"),
        physical_block_bytes: sysfs::number(folder, "queue/physical_block_size"),
        partitions: partitions.into_iter().map(|(_, partition)| partition).collect(),
    })
}

/// A partition and its number in the table.
fn partition(
    roots: &Roots,
    users: &Users,
    folder: &Path,
    name: String,
) -> Option<(u64, Partition)> {
    let index = sysfs::number(folder, "partition")?;
    let number = parse_number(&sysfs::attribute(folder, "dev")?)?;
    let path = roots.dev.join(name.replace('!', "/"));
    let holders = names_in(&folder.join("holders"));
    let uses = users.of(&name, Some(number), &path, &holders);
    let start = sysfs::number(folder, "start").unwrap_or(0);
    let start_bytes = start.saturating_mul(SYSFS_SECTOR_BYTES);
    let size_bytes = size_of(folder);
    Some((index, Partition { name, path, number, start_bytes, size_bytes, uses }))
}

/// Model with its maker. `ATA` is a bus and `0x…` a number, not makers.
fn model(folder: &Path) -> Option<String> {
    let model = sysfs::attribute(folder, "device/model")
        .or_else(|| sysfs::attribute(folder, "device/name"))?;
    let vendor = sysfs::attribute(folder, "device/vendor");
    match vendor.filter(|vendor| vendor != "ATA" && !vendor.starts_with("0x")) {
        Some(vendor) if !model.starts_with(&vendor) => Some(format!("{vendor} {model}")),
        _ => Some(model),
    }
}

/// The serial number a SCSI or SATA drive gives in its vital product data, page 0x80: four bytes of
/// header, then text.
fn page_serial(folder: &Path) -> Option<String> {
    let page = fs::read(folder.join("device/vpd_pg80")).ok()?;
    let text = String::from_utf8_lossy(page.get(4..)?).into_owned();
    let text = text.trim_matches(|c: char| c.is_whitespace() || c.is_control());
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A machine with a SATA disk in use in several ways, an NVMe drive, a loop device and an
    /// empty card reader.
    fn machine() -> (tempfile::TempDir, Roots) {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let disk = "sys/devices/pci0/ata3/host2/target2:0:0/2:0:0:0/block/sda";
        let facts = [
            ("dev", "8:0\n"),
            ("size", "7814037168\n"),
            ("ro", "0\n"),
            ("queue/rotational", "1\n"),
            ("queue/logical_block_size", "512\n"),
            ("queue/physical_block_size", "4096\n"),
            ("device/model", "WDC WD40EFRX    \n"),
            ("device/vendor", "ATA     \n"),
            ("device/wwid", "naa.50014ee2b1234567\n"),
            ("device/vpd_pg80", "\0\u{80}\0\u{14}     WD-WCC4E0123456\0"),
            ("sda1/dev", "8:1\n"),
            ("sda1/partition", "1\n"),
            ("sda1/start", "2048\n"),
            ("sda1/size", "204800\n"),
            ("sda2/dev", "8:2\n"),
            ("sda2/partition", "2\n"),
            ("sda2/size", "4096\n"),
            ("sda2/holders/md0/dev", "9:0\n"),
            ("sda10/dev", "8:10\n"),
            ("sda10/partition", "10\n"),
            ("sda10/size", "4096\n"),
        ];
        for (name, text) in facts {
            put(&format!("{disk}/{name}"), text);
        }
        let nvme = "sys/devices/pci0/nvme/nvme0/nvme0n1";
        for (name, text) in [
            ("dev", "259:0"),
            ("size", "1000"),
            ("device/model", "Fast 1TB"),
            ("device/serial", "S4EWNX0"),
            ("wwid", "eui.0025385b01234567"),
        ] {
            put(&format!("{nvme}/{name}"), text);
        }
        let looped = "sys/devices/virtual/block/loop0";
        for (name, text) in
            [("dev", "7:0"), ("size", "8"), ("loop/backing_file", "/srv/images/a drive\n")]
        {
            put(&format!("{looped}/{name}"), text);
        }
        put("sys/devices/pci0/usb1/block/sdb/dev", "8:16");
        put("sys/devices/pci0/usb1/block/sdb/size", "0");
        fs::create_dir_all(root.path().join("sys/block")).unwrap();
        for target in [disk, nvme, looped, "sys/devices/pci0/usb1/block/sdb"] {
            let name = Path::new(target).file_name().unwrap();
            symlink(root.path().join(target), root.path().join("sys/block").join(name)).unwrap();
        }
        put(
            "proc/self/mountinfo",
            "27 1 8:1 / /boot\\040area rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
             30 1 0:44 /sub /data rw - btrfs /dev/nvme0n1 rw\n",
        );
        let swaps = "Filename\t\t\tType\t\tSize\tUsed\tPriority\n/dev/sda10   partition 9 0 -2\n\
                     /srv/swap\\040file file 9 0 -3\n";
        put("proc/swaps", swaps);
        let of = |name: &str| root.path().join(name);
        let roots = Roots { sys: of("sys"), proc: of("proc"), dev: "/dev".into() };
        (root, roots)
    }

    #[test]
    fn every_drive_says_who_it_is() {
        let (_root, roots) = machine();
        let devices = list_devices(&roots).unwrap();
        let names: Vec<&str> = devices.iter().map(|device| &*device.name).collect();
        assert_eq!(names, ["loop0", "sda", "nvme0n1"], "no empty reader");
        let disk = &devices[1];
        assert_eq!(disk.size_bytes, 4_000_787_030_016);
        assert_eq!(disk.model.as_deref(), Some("WDC WD40EFRX"));
        assert_eq!(disk.serial.as_deref(), Some("WD-WCC4E0123456"));
        assert_eq!(disk.wwn.as_deref(), Some("naa.50014ee2b1234567"));
        assert_eq!(disk.transport, Some(Transport::Sata));
        assert_eq!(
            (disk.rotational, disk.read_only, disk.removable),
            (Some(true), Some(false), None)
        );
        assert_eq!((disk.logical_block_bytes, disk.physical_block_bytes), (Some(512), Some(4096)));
        let parts: Vec<&str> = disk.partitions.iter().map(|part| &*part.name).collect();
        assert_eq!(parts, ["sda1", "sda2", "sda10"]);
        assert_eq!(disk.partitions[0].start_bytes, 1 << 20);
        let nvme = &devices[2];
        assert_eq!(nvme.serial.as_deref(), Some("S4EWNX0"));
        assert_eq!(nvme.wwn.as_deref(), Some("eui.0025385b01234567"));
        assert_eq!((nvme.transport, nvme.rotational), (Some(Transport::Nvme), None));
    }

    #[test]
    fn uses_of_partitions_are_uses_of_the_drive() {
        let (_root, roots) = machine();
        let devices = list_devices(&roots).unwrap();
        let said = |number| {
            let uses = devices.iter().find_map(|device| device.uses_of(number)).unwrap();
            uses.iter().map(Use::to_string).collect::<Vec<String>>()
        };
        let mounted = "sda1 is mounted at /boot area";
        let all = [mounted, "sda2 is part of md0", "sda10 is swap space"];
        assert_eq!(said(libc::makedev(8, 0)), all);
        assert_eq!(said(libc::makedev(8, 1)), [mounted]);
        assert_eq!(said(libc::makedev(259, 0)), ["nvme0n1 is mounted at /data"], "by its source");
        assert!(devices.iter().find_map(|device| device.uses_of(1)).is_none());
        let users = Users::read(&roots).unwrap();
        let file = |path: &str| users.of(path, None, Path::new(path), &[]);
        assert_eq!(file("/srv/swap file")[0].by, User::Swap);
        assert_eq!(
            file("/srv/images/a drive")[0].to_string(),
            "/srv/images/a drive is part of loop0"
        );
        assert!(file("/srv/other").is_empty());
    }

    #[test]
    fn this_machine_can_be_listed() {
        let roots = Roots::default();
        if !roots.sys.join("block").exists() {
            println!("skipped: this machine's list (no /sys/block)");
            return;
        }
        let devices = list_devices(&roots).unwrap();
        assert!(devices.iter().all(|device| device.size_bytes > 0));
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(in_use(file.path(), &roots).unwrap(), []);
        let missing = in_use(Path::new("/no/such/drive"), &roots).unwrap_err();
        assert!(missing.to_string().contains("/no/such/drive"));
    }
}
