//! The workloads that come with the lab, each with where its figures are from.
//!
//! Numbers published under the same name differ; the ones here are those most
//! results were measured with. A known deviating copy of the file server
//! (60 % of 2 KiB, adding up to 95 %) and of the web server are left out on purpose.

use crate::spec::{AccessSpec, SpecError, SpecLine};

const K: u32 = 1024;

/// A named workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// The name used in plans and on the command line.
    pub name: &'static str,
    /// What it is, in one line.
    pub summary: &'static str,
    /// Where the figures come from, in one line.
    pub source: &'static str,
    /// Its lines; the shares are per cent.
    pub lines: &'static [SpecLine],
    /// Requests outstanding where the source names a number; `None` where the
    /// load is varied.
    pub queue_depth: Option<u32>,
}

impl Workload {
    /// The specification of this workload. Never fails for those of the
    /// catalogue, which a test holds.
    pub fn spec(&self) -> Result<AccessSpec, SpecError> {
        AccessSpec::new(self.lines)
    }
}

/// The built-in workloads in the order they are listed.
pub const CATALOGUE: &[Workload] = &[
    Workload {
        name: "file-server",
        summary: "many sizes around 4 KiB, 80 % reads, all random",
        source: "Intel's Iometer pattern, as in fio's iometer-file-access-server example",
        lines: &[
            SpecLine::new(10, 512, 80, 100),
            SpecLine::new(5, K, 80, 100),
            SpecLine::new(5, 2 * K, 80, 100),
            SpecLine::new(60, 4 * K, 80, 100),
            SpecLine::new(2, 8 * K, 80, 100),
            SpecLine::new(4, 16 * K, 80, 100),
            SpecLine::new(4, 32 * K, 80, 100),
            SpecLine::new(10, 64 * K, 80, 100),
        ],
        queue_depth: None,
    },
    Workload {
        name: "web-server",
        summary: "512 B to 512 KiB, reads only, all random",
        source: "Iometer pattern, Tom's Hardware hard disk charts 2009",
        lines: &[
            SpecLine::new(22, 512, 100, 100),
            SpecLine::new(15, K, 100, 100),
            SpecLine::new(8, 2 * K, 100, 100),
            SpecLine::new(23, 4 * K, 100, 100),
            SpecLine::new(15, 8 * K, 100, 100),
            SpecLine::new(2, 16 * K, 100, 100),
            SpecLine::new(6, 32 * K, 100, 100),
            SpecLine::new(7, 64 * K, 100, 100),
            SpecLine::new(1, 128 * K, 100, 100),
            SpecLine::new(1, 512 * K, 100, 100),
        ],
        queue_depth: None,
    },
    Workload {
        name: "database",
        summary: "8 KiB, 67 % reads, all random",
        source: "Iometer pattern, Tom's Hardware hard disk charts 2009",
        lines: &[SpecLine::new(100, 8 * K, 67, 100)],
        queue_depth: None,
    },
    Workload {
        name: "workstation",
        summary: "8 KiB, 80 % reads, 80 % random",
        source: "StorageReview's Iometer pattern, Tom's Hardware hard disk charts 2009",
        lines: &[SpecLine::new(100, 8 * K, 80, 80)],
        queue_depth: None,
    },
    Workload {
        name: "streaming-read",
        summary: "64, 128 and 256 KiB in sequence, reads only",
        source: "Iometer pattern, Tom's Hardware hard disk charts 2009",
        lines: &[
            SpecLine::new(34, 64 * K, 100, 0),
            SpecLine::new(33, 128 * K, 100, 0),
            SpecLine::new(33, 256 * K, 100, 0),
        ],
        queue_depth: None,
    },
    Workload {
        name: "streaming-write",
        summary: "64, 128 and 256 KiB in sequence, writes only",
        source: "Iometer pattern, Tom's Hardware hard disk charts 2009",
        lines: &[
            SpecLine::new(34, 64 * K, 0, 0),
            SpecLine::new(33, 128 * K, 0, 0),
            SpecLine::new(33, 256 * K, 0, 0),
        ],
        queue_depth: None,
    },
    Workload {
        name: "sequential-read",
        summary: "1 MiB in sequence, reads only; the size is usually swept",
        source: "F-Center's method: depth 4, sizes in powers of two",
        lines: &[SpecLine::new(100, 1024 * K, 100, 0)],
        queue_depth: Some(4),
    },
    Workload {
        name: "sequential-write",
        summary: "1 MiB in sequence, writes only; the size is usually swept",
        source: "F-Center's method: depth 4, sizes in powers of two",
        lines: &[SpecLine::new(100, 1024 * K, 0, 0)],
        queue_depth: Some(4),
    },
    Workload {
        name: "random-read",
        summary: "4 KiB at random places, reads only",
        source: "common practice; the depth is usually swept",
        lines: &[SpecLine::new(100, 4 * K, 100, 100)],
        queue_depth: None,
    },
    Workload {
        name: "random-write",
        summary: "4 KiB at random places, writes only",
        source: "common practice; the depth is usually swept",
        lines: &[SpecLine::new(100, 4 * K, 0, 100)],
        queue_depth: None,
    },
    Workload {
        name: "mix-67-33",
        summary: "4 KiB, 67 % reads and 33 % writes, all random",
        source: "the 67/33 charts of disk array reviews; read as reads/writes",
        lines: &[SpecLine::new(100, 4 * K, 67, 100)],
        queue_depth: None,
    },
    Workload {
        name: "mix-33-67",
        summary: "4 KiB, 33 % reads and 67 % writes, all random",
        source: "the 67/33 charts of disk array reviews; read as writes/reads",
        lines: &[SpecLine::new(100, 4 * K, 33, 100)],
        queue_depth: None,
    },
    Workload {
        name: "access-time",
        summary: "512 B at random places, reads only, one at a time",
        source: "the access time charts of disk array reviews",
        lines: &[SpecLine::new(100, 512, 100, 100)],
        queue_depth: Some(1),
    },
    Workload {
        name: "access-time-write",
        summary: "512 B at random places, writes only, one at a time",
        source: "the access time charts of disk array reviews",
        lines: &[SpecLine::new(100, 512, 0, 100)],
        queue_depth: Some(1),
    },
];

/// The workload of that name.
pub fn find_workload(name: &str) -> Option<&'static Workload> {
    CATALOGUE.iter().find(|workload| workload.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_is_valid_and_named_once() {
        for workload in CATALOGUE {
            assert_eq!(workload.spec().map(|spec| spec.share_total()), Ok(100));
            let same = CATALOGUE.iter().filter(|other| other.name == workload.name);
            assert_eq!(same.count(), 1, "{}", workload.name);
            assert_eq!(find_workload(workload.name), Some(workload));
        }
        assert_eq!(find_workload("nas"), None);
    }

    #[test]
    fn published_mean_request_sizes() {
        let table = [
            ("file-server", 11_345.92, 80.0, 100.0),
            ("web-server", 16_035.84, 100.0, 100.0),
            ("database", 8_192.0, 67.0, 100.0),
            ("workstation", 8_192.0, 80.0, 80.0),
            ("streaming-read", 152_043.52, 100.0, 0.0),
            ("streaming-write", 152_043.52, 0.0, 0.0),
            ("access-time", 512.0, 100.0, 100.0),
        ];
        for (name, mean_request_bytes, read_percent, random_percent) in table {
            let spec = find_workload(name).unwrap().spec().unwrap();
            assert_eq!(spec.mean_request_bytes(), mean_request_bytes, "{name}");
            assert_eq!(spec.read_percent(), read_percent, "{name}");
            assert_eq!(spec.random_percent(), random_percent, "{name}");
        }
    }
}
