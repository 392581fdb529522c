//! The kernel's text tables, as pure functions: mounts, swap space, device numbers and places.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// How a drive is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Transport {
    Sata,
    Sas,
    Usb,
    Nvme,
    Virtio,
    Iscsi,
    FibreChannel,
    Mmc,
    /// Made by software: loop, md, device mapper, zram.
    Virtual,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Sata => "sata",
            Transport::Sas => "sas",
            Transport::Usb => "usb",
            Transport::Nvme => "nvme",
            Transport::Virtio => "virtio",
            Transport::Iscsi => "iscsi",
            Transport::FibreChannel => "fc",
            Transport::Mmc => "mmc",
            Transport::Virtual => "virtual",
        })
    }
}

/// The steps of a device's place in sysfs that give its transport away, outermost first: a SATA
/// drive in a USB case is a USB drive.
const STEPS: [(&str, Transport); 9] = [
    ("/usb", Transport::Usb),
    ("/session", Transport::Iscsi),
    ("/rport-", Transport::FibreChannel),
    ("/end_device-", Transport::Sas),
    ("/ata", Transport::Sata),
    ("/nvme", Transport::Nvme),
    ("/mmc_host", Transport::Mmc),
    ("/virtio", Transport::Virtio),
    ("/devices/virtual/", Transport::Virtual),
];

/// The transport of the device at this place in sysfs.
pub(super) fn transport_of(place: &str) -> Option<Transport> {
    STEPS.into_iter().find(|(step, _)| place.contains(step)).map(|(_, transport)| transport)
}

/// `8:1` as a device number.
pub(super) fn parse_number(text: &str) -> Option<u64> {
    let (major, minor) = text.trim().split_once(':')?;
    Some(libc::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// A mounted file system.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mount {
    pub number: u64,
    pub at: PathBuf,
    pub source: PathBuf,
}

/// The lines of `/proc/self/mountinfo`: id, parent, device number, root, mount point, options, any
/// number of optional fields, `-`, type, source, more options. Lines of another form are passed
/// over.
pub(super) fn parse_mounts(table: &[u8]) -> Vec<Mount> {
    let mounts = table.split(|&byte| byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|&byte| byte == b' ');
        let number = parse_number(str::from_utf8(fields.nth(2)?).ok()?)?;
        let at = unescape(fields.nth(1)?);
        let source = unescape(fields.skip_while(|field| *field != b"-").nth(2)?);
        Some(Mount { number, at, source })
    });
    mounts.collect()
}

/// The paths in `/proc/swaps`, whose first line is a heading.
pub(super) fn parse_swaps(table: &[u8]) -> Vec<PathBuf> {
    let lines = table.split(|&byte| byte == b'\n').skip(1);
    let paths = lines.filter_map(|line| line.split(|byte| byte.is_ascii_whitespace()).next());
    paths.filter(|path| !path.is_empty()).map(unescape).collect()
}

/// Undoes the kernel's escapes: white space and backslashes as three octal digits.
fn unescape(text: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| first == b'\\').and_then(|digits| {
            digits.iter().try_fold(0u32, |value, &digit| match digit {
                b'0'..=b'7' => Some(value * 8 + u32::from(digit - b'0')),
                _ => None,
            })
        });
        match octal.and_then(|value| u8::try_from(value).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn escapes_are_undone_and_others_kept() {
        let table = [
            (&br"/a\040b"[..], &b"/a b"[..]),
            (br"/tab\011", b"/tab\t"),
            (br"\134n", br"\n"),
            (br"\\777\", br"\\777\"),
            (br"\04", br"\04"),
        ];
        for (text, wanted) in table {
            assert_eq!(unescape(text).into_os_string().into_vec(), wanted);
        }
    }

    #[test]
    fn mount_lines_of_any_form() {
        let table = b"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 shared:2 - ext3 /dev/root rw\n\
            37 35 0:5 / /proc rw - proc proc rw\nnonsense\n\n38 1 8:x / /x rw - a b c\n39 1 8:1 / /y rw\n";
        let mounts = parse_mounts(table);
        assert_eq!(mounts.len(), 2);
        let (at, source) = (PathBuf::from("/mnt2"), PathBuf::from("/dev/root"));
        assert_eq!(mounts[0], Mount { number: libc::makedev(98, 0), at, source });
        assert_eq!(mounts[1].source, Path::new("proc"));
    }

    #[test]
    fn places_give_the_transport_away() {
        let pci = "/sys/devices/pci0000:00/0000:00:14.0";
        let table = [
            ("usb2/2-1/2-1:1.0/host6/target6:0:0/6:0:0:0/block/sdb", Some(Transport::Usb)),
            ("ata1/host0/target0:0:0/0:0:0:0/block/sda", Some(Transport::Sata)),
            ("host0/port-0:1/end_device-0:1/target0:0:1/0:0:1:0/block/sdc", Some(Transport::Sas)),
            ("virtio1/block/vda", Some(Transport::Virtio)),
            ("nvme/nvme0/nvme0n1", Some(Transport::Nvme)),
            ("host0/target0:2:0/0:2:0:0/block/sdd", None),
        ];
        for (place, wanted) in table {
            assert_eq!(transport_of(&format!("{pci}/{place}")), wanted, "{place}");
        }
        let device = transport_of("/sys/devices/virtual/block/md0");
        assert_eq!(device, Some(Transport::Virtual));
    }
}
