//! The bad-block log: which sectors of a member cannot be trusted.
//!
//! A list of little-endian `u64`: the low 10 bits are a length, the high 54 a start, both in
//! units of `512 << shift` bytes and counted from the start of the member (not of its data area).
//! All ones ends the list.

use super::SECTOR_BYTES;
use super::member::ByteRange;
use crate::bytes::{put, u64_le};

const LENGTH_BITS: u32 = 10;
const LENGTH_MAX: u64 = (1 << LENGTH_BITS) - 1;
const END: u64 = u64::MAX;
const ENTRY_BYTES: usize = 8;

/// Units larger than this would overflow any length; md itself uses 0.
const SHIFT_MAX: u8 = 32;

/// Why a bad-block log cannot be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadBlocksError {
    /// The unit is absurd.
    #[error("bad-block log unit is 2^{shift} sectors")]
    BadShift {
        /// Power of two of the unit.
        shift: u8,
    },
    /// An entry lies beyond what 64-bit byte offsets can say.
    #[error("bad-block log entry {index} lies at an impossible place")]
    Overflow {
        /// Index of the entry.
        index: usize,
    },
    /// More bad ranges than the log has room for.
    #[error("bad-block log has room for {room} entries, {needed} are needed")]
    Full {
        /// Entries that fit.
        room: usize,
        /// Entries needed.
        needed: usize,
    },
    /// A range that is no whole number of units.
    #[error("bad range at byte {start} is not a whole number of {unit_bytes}-byte units")]
    Unaligned {
        /// Start of the range.
        start: u64,
        /// The unit.
        unit_bytes: u64,
    },
}

/// Reads the log: ranges in bytes from the start of the member, in the order found.
///
/// # Errors
/// An absurd unit or entry: the log is damaged, and the member must not be trusted at all.
pub fn parse_bad_blocks(log: &[u8], shift: u8) -> Result<Vec<ByteRange>, BadBlocksError> {
    let unit = unit_bytes(shift)?;
    let mut ranges = Vec::new();
    for (index, entry) in log.chunks_exact(ENTRY_BYTES).enumerate() {
        let entry = u64_le(entry, 0);
        if entry == END {
            break;
        }
        let length = (entry & LENGTH_MAX) * unit;
        let start = (entry >> LENGTH_BITS).checked_mul(unit);
        let Some(start) = start.filter(|start| start.checked_add(length).is_some()) else {
            return Err(BadBlocksError::Overflow { index });
        };
        if length > 0 {
            ranges.push(ByteRange { start, length });
        }
    }
    Ok(ranges)
}

/// Builds a log of `log_bytes` that holds `ranges`; long ranges take several entries.
///
/// # Errors
/// Too many ranges for the log, or ranges that are not whole units.
pub fn build_bad_blocks(
    ranges: &[ByteRange],
    shift: u8,
    log_bytes: usize,
) -> Result<Vec<u8>, BadBlocksError> {
    let unit_bytes = unit_bytes(shift)?;
    let room = log_bytes / ENTRY_BYTES;
    let mut log = vec![0xff; log_bytes];
    let mut needed = 0;
    for &ByteRange { start, length } in ranges {
        if start % unit_bytes != 0 || length % unit_bytes != 0 {
            return Err(BadBlocksError::Unaligned { start, unit_bytes });
        }
        let (mut unit, mut left) = (start / unit_bytes, length / unit_bytes);
        let entries = usize::try_from(left.div_ceil(LENGTH_MAX)).unwrap_or(usize::MAX);
        if entries > room.saturating_sub(needed) {
            return Err(BadBlocksError::Full { room, needed: needed.saturating_add(entries) });
        }
        while left > 0 {
            if unit >> (64 - LENGTH_BITS) != 0 {
                return Err(BadBlocksError::Overflow { index: needed });
            }
            let length = left.min(LENGTH_MAX);
            put(&mut log, needed * ENTRY_BYTES, &(unit << LENGTH_BITS | length).to_le_bytes());
            (unit, left, needed) = (unit + length, left - length, needed + 1);
        }
    }
    Ok(log)
}

fn unit_bytes(shift: u8) -> Result<u64, BadBlocksError> {
    if shift > SHIFT_MAX {
        return Err(BadBlocksError::BadShift { shift });
    }
    Ok(SECTOR_BYTES << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_survives_the_round_trip() {
        let ranges = [
            ByteRange { start: 4096, length: 512 },
            ByteRange { start: 1 << 40, length: 1023 * 512 },
        ];
        let log = build_bad_blocks(&ranges, 0, 4096).expect("fits");
        assert_eq!(parse_bad_blocks(&log, 0), Ok(ranges.to_vec()));
    }

    #[test]
    fn long_ranges_take_several_entries() {
        let range = ByteRange { start: 0, length: 2000 * 512 };
        let log = build_bad_blocks(&[range], 0, 16).expect("fits");
        let halves = parse_bad_blocks(&log, 0).expect("valid");
        assert_eq!(halves.iter().map(|range| range.length).sum::<u64>(), range.length);
        assert_eq!(
            build_bad_blocks(&[range], 0, 8),
            Err(BadBlocksError::Full { room: 1, needed: 2 })
        );
        let unaligned = ByteRange { start: 1, length: 512 };
        assert_eq!(
            build_bad_blocks(&[unaligned], 0, 8),
            Err(BadBlocksError::Unaligned { start: 1, unit_bytes: 512 })
        );
    }

    #[test]
    fn only_an_entrys_start_has_to_fit() {
        let last = ByteRange { start: ((1 << 54) - 1) * 512, length: 500 * 512 };
        let log = build_bad_blocks(&[last], 0, 8).expect("fits");
        assert_eq!(parse_bad_blocks(&log, 0), Ok(vec![last]));
        let beyond = ByteRange { start: 1 << 63, length: 512 };
        assert_eq!(build_bad_blocks(&[beyond], 0, 8), Err(BadBlocksError::Overflow { index: 0 }));
    }

    #[test]
    fn absurd_entries_are_refused() {
        assert_eq!(parse_bad_blocks(&[], 60), Err(BadBlocksError::BadShift { shift: 60 }));
        let entry = (u64::MAX - 1).to_le_bytes();
        assert_eq!(parse_bad_blocks(&entry, 2), Err(BadBlocksError::Overflow { index: 0 }));
        assert_eq!(parse_bad_blocks(&[0; 20], 0), Ok(vec![]));
    }
}
