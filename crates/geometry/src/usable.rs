//! What each level makes of drives of unequal size: the figures behind a choice.
//!
//! Equal-stripe levels take from each drive what the smallest has. Zones (RAID 0) and
//! hybrids (one array for each step in size, joined end to end) go on with the drives
//! that reach further. Either way each byte of each drive is accounted for: usable, spent
//! on redundancy, or unused with a reason.
//!
//! Sizes are data areas: what metadata takes is already off, and rounding to whole chunks,
//! less than one chunk a drive and zone, is left out. [`Geometry`](crate::Geometry) gives
//! the exact size of an array once its shape is decided.

use std::fmt;

use thiserror::Error;

use crate::{BYTES_MAX, Level};

/// A way to use some drives.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Linear: one drive after the other.
    Linear,
    /// RAID 0 with the same from each drive.
    Raid0Equal,
    /// RAID 0 as md makes it: zones, narrower as drives end.
    Raid0Zones,
    /// RAID 1 over all drives.
    Raid1,
    /// RAID 10 with this many copies, on any number of drives.
    Raid10 {
        /// Copies of each chunk, near or far or offset.
        copies: usize,
    },
    /// RAID 4 (and RAID 3).
    Raid4,
    /// RAID 5.
    Raid5,
    /// RAID 6.
    Raid6,
    /// A parity array for each step in size, each surviving the loss of `parities` drives:
    /// RAID 5 or 6, and a mirror where there are just enough drives for one.
    Hybrid {
        /// Drives that may be lost: 1 or 2.
        parities: usize,
    },
}

/// What a [`Choice`] makes of the drives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// The choice in question.
    pub choice: Choice,
    /// Usable bytes.
    pub bytes: u64,
    /// Bytes that hold copies or parity.
    pub redundancy_bytes: u64,
    /// What becomes of each drive, in the order given.
    pub drives: Vec<DriveUse>,
    /// The parts of the array, in its order, with their width.
    pub widths: Vec<Width>,
}

/// What becomes of a drive. `used_bytes` and `unused_bytes` sum to its size.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct DriveUse {
    /// Bytes the array takes.
    pub used_bytes: u64,
    /// Bytes it leaves.
    pub unused_bytes: u64,
    /// Why it leaves them; `None` if it leaves none.
    pub why: Option<Unused>,
}

/// Why a part of a drive stays unused.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Unused {
    /// Each drive gives what the smallest has.
    BeyondSmallest {
        /// The drive that sets the limit.
        limiting_drive: usize,
    },
    /// Too few drives reach that far for the redundancy asked.
    TooFewReach {
        /// Drives that reach that far.
        reaching: usize,
        /// Drives it would take.
        needed: usize,
    },
}

/// A part of an array that spreads over the same drives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Width {
    /// The drives, rising. One alone is as fast as that drive, and no faster.
    pub drives: Vec<usize>,
    /// Where the part starts on each of them, in bytes.
    pub drive_start: u64,
    /// Where it ends on each of them, in bytes.
    pub drive_end: u64,
    /// Usable bytes of the part.
    pub bytes: u64,
}

/// Why drives give no capacity at all.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Error)]
pub enum UsableError {
    /// Fewer drives than the choice needs.
    #[error("{choice} needs at least {needed} drives, got {drives}")]
    TooFewDrives {
        /// The choice in question.
        choice: Choice,
        /// The fewest it works with.
        needed: usize,
        /// Drives given.
        drives: usize,
    },
    /// The drives together pass [`BYTES_MAX`].
    #[error("the drives together pass the limit of {BYTES_MAX} bytes")]
    TooLarge,
}

impl Choice {
    /// The choices worth showing side by side.
    pub const ALL: [Choice; 10] = [
        Choice::Linear,
        Choice::Raid0Equal,
        Choice::Raid0Zones,
        Choice::Raid1,
        Choice::Raid10 { copies: 2 },
        Choice::Raid4,
        Choice::Raid5,
        Choice::Raid6,
        Choice::Hybrid { parities: 1 },
        Choice::Hybrid { parities: 2 },
    ];

    /// The fewest drives it works with.
    pub fn drives_min(self) -> usize {
        match self {
            Choice::Linear => Level::Linear.members_min(),
            Choice::Raid0Equal | Choice::Raid0Zones => Level::Raid0.members_min(),
            Choice::Raid1 => Level::Raid1.members_min(),
            Choice::Raid10 { copies } => copies.max(Level::Raid10.members_min()),
            Choice::Raid4 => Level::Raid4.members_min(),
            Choice::Raid5 => Level::Raid5.members_min(),
            Choice::Raid6 => Level::Raid6.members_min(),
            Choice::Hybrid { parities } => parities + 1,
        }
    }

    /// Usable bytes of `drives` drives that each give `bytes`.
    fn usable_bytes(self, drives: usize, bytes: u64) -> u64 {
        let drives = drives as u64;
        match self {
            Choice::Linear | Choice::Raid0Equal | Choice::Raid0Zones => drives * bytes,
            Choice::Raid1 => bytes,
            Choice::Raid10 { copies } => drives * bytes / copies.max(1) as u64,
            Choice::Raid4 | Choice::Raid5 => (drives - 1) * bytes,
            Choice::Raid6 => (drives - 2) * bytes,
            Choice::Hybrid { parities } => (drives - parities as u64) * bytes,
        }
    }

    /// The parts of the array as (drives, start, end).
    fn parts(self, drive_bytes: &[u64]) -> Vec<(Vec<usize>, u64, u64)> {
        let smallest = drive_bytes.iter().copied().min().unwrap_or(0);
        match self {
            Choice::Linear => {
                let part = |(drive, &bytes)| (vec![drive], 0, bytes);
                drive_bytes.iter().enumerate().map(part).collect()
            }
            Choice::Raid0Zones | Choice::Hybrid { .. } => {
                let mut parts = steps(drive_bytes);
                parts.retain(|(drives, _, _)| drives.len() >= self.drives_min());
                parts
            }
            _ => vec![((0..drive_bytes.len()).collect(), 0, smallest)],
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Linear => f.pad("linear"),
            Choice::Raid0Equal => f.pad("raid0 (equal stripes)"),
            Choice::Raid0Zones => f.pad("raid0 (zones)"),
            Choice::Raid1 => f.pad("raid1"),
            Choice::Raid10 { copies } => f.pad(&format!("raid10 ({copies} copies)")),
            Choice::Raid4 => f.pad("raid4"),
            Choice::Raid5 => f.pad("raid5"),
            Choice::Raid6 => f.pad("raid6"),
            Choice::Hybrid { parities } => f.pad(&format!("hybrid ({parities} parity)")),
        }
    }
}

/// What each choice makes of drives of these sizes, in the order of `choices`.
///
/// # Errors
/// For each choice its own: too few drives, or sizes that sum beyond [`BYTES_MAX`].
pub fn usable(choices: &[Choice], drive_bytes: &[u64]) -> Vec<Result<Capacity, UsableError>> {
    choices.iter().map(|choice| capacity(*choice, drive_bytes)).collect()
}

fn capacity(choice: Choice, drive_bytes: &[u64]) -> Result<Capacity, UsableError> {
    let needed = choice.drives_min();
    if drive_bytes.len() < needed {
        return Err(UsableError::TooFewDrives { choice, needed, drives: drive_bytes.len() });
    }
    drive_bytes
        .iter()
        .try_fold(0u64, |sum, bytes| sum.checked_add(*bytes))
        .filter(|sum| *sum <= BYTES_MAX)
        .ok_or(UsableError::TooLarge)?;

    let mut used = vec![0; drive_bytes.len()];
    let mut widths = Vec::new();
    for (drives, drive_start, drive_end) in choice.parts(drive_bytes) {
        for drive in &drives {
            used[*drive] += drive_end - drive_start;
        }
        widths.push(Width {
            bytes: choice.usable_bytes(drives.len(), drive_end - drive_start),
            drives,
            drive_start,
            drive_end,
        });
    }
    let bytes = widths.iter().map(|width| width.bytes).sum();
    let account = |(&bytes, &used): (&u64, &u64)| DriveUse {
        used_bytes: used,
        unused_bytes: bytes - used,
        why: (bytes > used).then(|| why_unused(choice, drive_bytes, used)),
    };
    Ok(Capacity {
        choice,
        bytes,
        redundancy_bytes: used.iter().sum::<u64>() - bytes,
        drives: drive_bytes.iter().zip(&used).map(account).collect(),
        widths,
    })
}

/// Why a drive is used no further than `used`.
fn why_unused(choice: Choice, drive_bytes: &[u64], used: u64) -> Unused {
    if let Choice::Hybrid { .. } = choice {
        return Unused::TooFewReach {
            reaching: drive_bytes.iter().filter(|bytes| **bytes > used).count(),
            needed: choice.drives_min(),
        };
    }
    let smallest = drive_bytes.iter().enumerate().min_by_key(|(_, bytes)| **bytes);
    Unused::BeyondSmallest { limiting_drive: smallest.map_or(0, |(drive, _)| drive) }
}

/// Each step in size: the drives that reach it, from the last step to this one.
fn steps(drive_bytes: &[u64]) -> Vec<(Vec<usize>, u64, u64)> {
    let mut ends = drive_bytes.to_vec();
    ends.sort_unstable();
    ends.dedup();
    let mut start = 0;
    let mut steps = Vec::new();
    for end in ends.into_iter().filter(|end| *end > 0) {
        let drives = (0..drive_bytes.len()).filter(|drive| drive_bytes[*drive] >= end).collect();
        steps.push((drives, start, end));
        start = end;
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    const TB: u64 = 1_000_000_000_000;
    const MB: u64 = 1 << 20;

    fn one(choice: Choice, drive_bytes: &[u64]) -> Capacity {
        capacity(choice, drive_bytes).unwrap()
    }

    /// A web calculator said 32 TB for RAID 5 on 8, 8, 8, 8, 4, 4.
    #[test]
    fn mixed_sizes() {
        let drives = [8, 8, 8, 8, 4, 4].map(|size| size * TB);
        let table = [
            (Choice::Raid5, 20),
            (Choice::Raid6, 16),
            (Choice::Hybrid { parities: 1 }, 32),
            (Choice::Hybrid { parities: 2 }, 24),
            (Choice::Linear, 40),
            (Choice::Raid0Equal, 24),
            (Choice::Raid0Zones, 40),
            (Choice::Raid10 { copies: 2 }, 12),
            (Choice::Raid1, 4),
        ];
        for (choice, size) in table {
            assert_eq!(one(choice, &drives).bytes, size * TB, "{choice}");
        }
        let raid5 = one(Choice::Raid5, &drives);
        let unused = DriveUse {
            used_bytes: 4 * TB,
            unused_bytes: 4 * TB,
            why: Some(Unused::BeyondSmallest { limiting_drive: 4 }),
        };
        assert_eq!(raid5.drives[..4], [unused; 4]);
        assert_eq!(raid5.drives[4].unused_bytes, 0);
        assert_eq!(raid5.redundancy_bytes, 4 * TB);
        let zones = one(Choice::Raid0Zones, &drives).widths;
        let widths: Vec<_> = zones.iter().map(|zone| (zone.drives.len(), zone.bytes)).collect();
        assert_eq!(widths, [(6, 24 * TB), (4, 16 * TB)]);
    }

    /// Users expect 8 TB of 2 + 6 striped: only with zones, and then 4 TB on one drive.
    #[test]
    fn two_and_six() {
        let drives = [2 * TB, 6 * TB];
        let equal = one(Choice::Raid0Equal, &drives);
        assert_eq!(equal.bytes, 4 * TB);
        assert_eq!(equal.drives[1].unused_bytes, 4 * TB);
        let zones = one(Choice::Raid0Zones, &drives);
        assert_eq!(zones.bytes, 8 * TB);
        let last = zones.widths.last().unwrap();
        assert_eq!((last.drives.as_slice(), last.bytes), ([1].as_slice(), 4 * TB));
        assert_eq!(one(Choice::Linear, &drives).bytes, 8 * TB);
        let hybrid = one(Choice::Hybrid { parities: 1 }, &drives);
        assert_eq!(hybrid.bytes, 2 * TB);
        assert_eq!(hybrid.drives[1].why, Some(Unused::TooFewReach { reaching: 1, needed: 2 }));
    }

    #[test]
    fn parity_is_shown() {
        let raid5 = one(Choice::Raid5, &[32 * MB; 3]);
        assert_eq!((raid5.bytes, raid5.redundancy_bytes), (64 * MB, 32 * MB));
    }

    /// RAID 0 of 1 TB + 250 GB: each drive's size, use, rest and reason are all there.
    #[test]
    fn a_small_drive_hides_nothing() {
        let drives = [TB, TB / 4];
        let zones = one(Choice::Raid0Zones, &drives);
        assert_eq!(zones.bytes, TB + TB / 4);
        assert!(zones.drives.iter().all(|drive| drive.why.is_none()));
        let equal = one(Choice::Raid0Equal, &drives);
        assert_eq!(equal.bytes, TB / 2);
        assert_eq!(
            equal.drives[0],
            DriveUse {
                used_bytes: TB / 4,
                unused_bytes: TB - TB / 4,
                why: Some(Unused::BeyondSmallest { limiting_drive: 1 }),
            }
        );
    }

    #[test]
    fn every_byte_is_accounted_for() {
        let drives = [5 * TB, 0, 3 * TB, 3 * TB, 9 * TB, 1];
        for capacity in usable(&Choice::ALL, &drives) {
            let capacity = capacity.unwrap();
            let used: u64 = capacity.drives.iter().map(|drive| drive.used_bytes).sum();
            assert_eq!(used, capacity.bytes + capacity.redundancy_bytes);
            for (drive, bytes) in capacity.drives.iter().zip(drives) {
                assert_eq!(drive.used_bytes + drive.unused_bytes, bytes);
                assert_eq!(drive.why.is_some(), drive.unused_bytes > 0);
            }
        }
    }

    #[test]
    fn too_few_and_too_large_are_errors() {
        for choice in Choice::ALL {
            let few = vec![TB; choice.drives_min() - 1];
            let expected =
                UsableError::TooFewDrives { choice, needed: few.len() + 1, drives: few.len() };
            assert_eq!(capacity(choice, &few), Err(expected));
            assert_eq!(capacity(choice, &[u64::MAX; 4]), Err(UsableError::TooLarge));
        }
    }
}
