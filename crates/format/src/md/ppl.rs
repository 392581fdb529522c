//! The partial parity log of RAID 5: closes the write hole without a journal drive.
//!
//! Before a stripe's data and parity are overwritten, the member that holds the parity logs the
//! XOR of the data chunks that are *not* being written (the partial parity). After a power cut,
//! parity is rebuilt as that XOR the data now found in the chunks that were being written.
//! It keeps untouched data safe; the interrupted write itself may be old, new or mixed.
//!
//! A log is a header of 4096 bytes and the partial parities in the order of its entries:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 512 | all ones |
//! | 512 | 4 | signature: CRC-32C of the set uuid |
//! | 520 | 8 | generation, rising |
//! | 528 | 4 | entries |
//! | 532 | 4 | CRC-32C of the header with this field zero |
//! | 536 | 24 each | entry: data sector (8), partial parity bytes, data bytes, parity slot, CRC |
//!
//! The area holds one log, or with [`Features::MULTIPLE_PPLS`](super::Features) a ring: logs one
//! behind the other with rising generation, the newest being the one before the first that is
//! invalid or older.

use super::SECTOR_BYTES;
use super::types::Uuid;
use crate::bytes::{put, u32_le, u64_le};
use crate::checksum::crc32c;

/// Size of a log's header.
pub const PPL_HEADER_BYTES: usize = 4096;

const ENTRY_BYTES: usize = 24;
const ENTRIES_OFFSET: usize = 536;
/// Entries a log can have: as many as fit behind the header's fixed part.
pub const PPL_ENTRIES_MAX: usize = (PPL_HEADER_BYTES - ENTRIES_OFFSET) / ENTRY_BYTES;
const RESERVED_BYTES: usize = 512;
const CHECKSUM_OFFSET: usize = 532;

/// Why a log or one of its entries cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PplError {
    /// Fewer bytes than the log needs.
    #[error("partial parity log needs {needed} bytes and has {given}")]
    TooShort {
        /// Bytes needed.
        needed: usize,
        /// Bytes given.
        given: usize,
    },
    /// Damaged, torn, or never written.
    #[error("partial parity log header checksum is {stored:#010x}, computed {computed:#010x}")]
    BadChecksum {
        /// In the header.
        stored: u32,
        /// Over its bytes.
        computed: u32,
    },
    /// The log of another set.
    #[error("partial parity log signature is {stored:#010x}, this set's is {expected:#010x}")]
    BadSignature {
        /// In the header.
        stored: u32,
        /// For the set.
        expected: u32,
    },
    /// More entries than a header can hold.
    #[error("partial parity log claims {entries} entries, at most {PPL_ENTRIES_MAX} fit")]
    TooManyEntries {
        /// The number stored.
        entries: u32,
    },
    /// An entry's partial parity was torn or damaged.
    #[error("partial parity checksum is {stored:#010x}, computed {computed:#010x}")]
    BadEntryChecksum {
        /// In the entry.
        stored: u32,
        /// Over the partial parity.
        computed: u32,
    },
}

/// One write that was in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PplEntry {
    /// First array sector written, rounded down to its stripe's first logged block as md does.
    pub data_sector: u64,
    /// Bytes of partial parity; 0 if whole stripes were written.
    pub partial_parity_bytes: u32,
    /// Bytes of data written.
    pub data_bytes: u32,
    /// Slot of the parity member: the log's own.
    pub parity_slot: u32,
    /// CRC-32C of the partial parity.
    pub checksum: u32,
    /// Where the partial parity lies, in bytes from the start of the log area.
    pub partial_parity_start: u64,
}

impl PplEntry {
    /// The entry's partial parity out of the log area, checked.
    ///
    /// # Errors
    /// Too short an area, or a checksum that does not fit: the entry must be skipped.
    pub fn partial_parity<'a>(&self, area: &'a [u8]) -> Result<&'a [u8], PplError> {
        let given = area.len();
        let start = usize::try_from(self.partial_parity_start).unwrap_or(usize::MAX);
        let needed = start.saturating_add(self.partial_parity_bytes as usize);
        let bytes = area.get(start..needed).ok_or(PplError::TooShort { needed, given })?;
        let computed = crc32c(&[bytes]);
        if computed != self.checksum {
            return Err(PplError::BadEntryChecksum { stored: self.checksum, computed });
        }
        Ok(bytes)
    }
}

/// One write to log, before it begins.
#[derive(Clone, Copy, Debug)]
pub struct PplWrite<'a> {
    /// First array sector written.
    pub data_sector: u64,
    /// Bytes of data: equally much of each chunk that is written, which follow one another.
    pub data_bytes: u32,
    /// Slot of the parity member: the log's own.
    pub parity_slot: u32,
    /// XOR of the chunks that are not written; empty if all are.
    pub partial_parity: &'a [u8],
}

/// One log: the writes that were in flight on the stripes whose parity this member holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PplLog {
    /// Rises with every log written on the member.
    pub generation: u64,
    /// Writes, in the order of their partial parities.
    pub entries: Vec<PplEntry>,
}

impl PplLog {
    /// Parses the log whose header starts at byte `start` of the log area.
    ///
    /// # Errors
    /// [`PplError`] says what is wrong with the header; entries are checked when used.
    pub fn parse(area: &[u8], start: usize, set_uuid: Uuid) -> Result<Self, PplError> {
        let (needed, given) = (start.saturating_add(PPL_HEADER_BYTES), area.len());
        let header = area.get(start..needed).ok_or(PplError::TooShort { needed, given })?;
        let stored = u32_le(header, CHECKSUM_OFFSET);
        let computed = header_checksum(header);
        if stored != computed {
            return Err(PplError::BadChecksum { stored, computed });
        }
        let (stored, expected) = (u32_le(header, RESERVED_BYTES), signature(set_uuid));
        if stored != expected {
            return Err(PplError::BadSignature { stored, expected });
        }
        let entries = u32_le(header, 528);
        if entries as usize > PPL_ENTRIES_MAX {
            return Err(PplError::TooManyEntries { entries });
        }
        let mut parity_start = needed as u64;
        let entries = header[ENTRIES_OFFSET..]
            .chunks_exact(ENTRY_BYTES)
            .take(entries as usize)
            .map(|entry| {
                let partial_parity_bytes = u32_le(entry, 8);
                let partial_parity_start = parity_start;
                parity_start += u64::from(partial_parity_bytes);
                PplEntry {
                    data_sector: u64_le(entry, 0),
                    partial_parity_bytes,
                    data_bytes: u32_le(entry, 12),
                    parity_slot: u32_le(entry, 16),
                    checksum: u32_le(entry, 20),
                    partial_parity_start,
                }
            })
            .collect();
        Ok(Self { generation: u64_le(header, 520), entries })
    }

    /// The log to replay out of a member's whole log area, a ring or a single log.
    ///
    /// # Errors
    /// What is wrong with the first log, if not even that one is valid: the log is then useless
    /// and a dirty set needs a whole resync.
    pub fn newest(area: &[u8], set_uuid: Uuid) -> Result<Self, PplError> {
        let mut newest = Self::parse(area, 0, set_uuid)?;
        let mut start = 0_u64;
        loop {
            let parities = newest.entries.iter().map(|entry| {
                // The ring counts whole sectors.
                u64::from(entry.partial_parity_bytes) / SECTOR_BYTES * SECTOR_BYTES
            });
            start += PPL_HEADER_BYTES as u64 + parities.sum::<u64>();
            let next = usize::try_from(start).unwrap_or(usize::MAX);
            match Self::parse(area, next, set_uuid) {
                Ok(log) if log.generation >= newest.generation => newest = log,
                _ => return Ok(newest),
            }
        }
    }

    /// The header of a log without entries, which a new set starts with.
    pub fn build_empty(set_uuid: Uuid) -> Vec<u8> {
        Self::build(set_uuid, 0, &[])
    }

    /// The header of a log of these writes; their partial parities follow it in the same order.
    ///
    /// # Panics
    /// With more than [`PPL_ENTRIES_MAX`] writes, or a partial parity of 4 GiB or more.
    pub fn build(set_uuid: Uuid, generation: u64, writes: &[PplWrite<'_>]) -> Vec<u8> {
        assert!(writes.len() <= PPL_ENTRIES_MAX, "{} entries in one log", writes.len());
        let mut header = vec![0; PPL_HEADER_BYTES];
        header[..RESERVED_BYTES].fill(0xff);
        put(&mut header, RESERVED_BYTES, &signature(set_uuid).to_le_bytes());
        put(&mut header, 520, &generation.to_le_bytes());
        put(&mut header, 528, &(writes.len() as u32).to_le_bytes());
        let entries = header[ENTRIES_OFFSET..].chunks_exact_mut(ENTRY_BYTES);
        for (entry, write) in entries.zip(writes) {
            let parity_bytes = u32::try_from(write.partial_parity.len()).expect("less than 4 GiB");
            put(entry, 0, &write.data_sector.to_le_bytes());
            put(entry, 8, &parity_bytes.to_le_bytes());
            put(entry, 12, &write.data_bytes.to_le_bytes());
            put(entry, 16, &write.parity_slot.to_le_bytes());
            put(entry, 20, &crc32c(&[write.partial_parity]).to_le_bytes());
        }
        let sum = header_checksum(&header);
        put(&mut header, CHECKSUM_OFFSET, &sum.to_le_bytes());
        header
    }
}

fn signature(set_uuid: Uuid) -> u32 {
    crc32c(&[&set_uuid.0])
}

fn header_checksum(header: &[u8]) -> u32 {
    crc32c(&[&header[..CHECKSUM_OFFSET], &[0; 4], &header[CHECKSUM_OFFSET + 4..]])
}

#[cfg(test)]
mod tests {
    use super::*;

    const SET: Uuid = Uuid([3; 16]);

    /// One log with one entry of `parity`.
    fn log(generation: u64, parity: &[u8]) -> Vec<u8> {
        let write =
            PplWrite { data_sector: 77, data_bytes: 4096, parity_slot: 0, partial_parity: parity };
        let mut bytes = PplLog::build(SET, generation, &[write]);
        bytes.extend(parity);
        bytes
    }

    #[test]
    fn the_newest_log_of_a_ring_is_found() {
        let area = [log(5, &[1; 1024]), log(6, &[2; 512]), log(2, &[3; 512])].concat();
        let newest = PplLog::newest(&area, SET).expect("valid");
        assert_eq!(newest.generation, 6);
        assert_eq!(newest.entries[0].data_sector, 77);
        assert_eq!(newest.entries[0].partial_parity(&area), Ok(&[2; 512][..]));
    }

    #[test]
    fn what_is_built_is_parsed_again() {
        let parities = [vec![7; 512], Vec::new(), vec![9; 8192]];
        let writes = parities.iter().zip(1..).map(|(partial_parity, number)| PplWrite {
            data_sector: u64::from(number) << 33,
            data_bytes: number * 4096,
            parity_slot: number,
            partial_parity,
        });
        let mut area = PplLog::build(SET, u64::MAX - 1, &writes.collect::<Vec<_>>());
        area.extend(parities.concat());
        let log = PplLog::newest(&area, SET).expect("valid");
        assert_eq!((log.generation, log.entries.len()), (u64::MAX - 1, 3));
        for ((entry, parity), number) in log.entries.iter().zip(&parities).zip(1..) {
            assert_eq!(entry.data_sector, u64::from(number) << 33);
            assert_eq!((entry.data_bytes, entry.parity_slot), (number * 4096, number));
            assert_eq!(entry.partial_parity(&area), Ok(&parity[..]));
        }
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let good = log(5, &[1; 512]);
        assert!(matches!(PplLog::newest(&good[..4000], SET), Err(PplError::TooShort { .. })));
        let other = PplLog::newest(&good, Uuid([4; 16]));
        assert!(matches!(other, Err(PplError::BadSignature { .. })));
        let mut torn = good.clone();
        torn[600] ^= 1;
        assert!(matches!(PplLog::newest(&torn, SET), Err(PplError::BadChecksum { .. })));
        let mut torn = good.clone();
        torn[4096] ^= 1;
        let entry = PplLog::newest(&torn, SET).expect("the header is whole").entries[0];
        assert!(matches!(entry.partial_parity(&torn), Err(PplError::BadEntryChecksum { .. })));
        let cut = entry.partial_parity(&good[..4100]);
        assert_eq!(cut, Err(PplError::TooShort { needed: 4608, given: 4100 }));
    }
}
