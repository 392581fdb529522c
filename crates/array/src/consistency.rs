//! The record of writes in flight an array keeps, as md names them: what has to be made to agree
//! after a sudden end, and whether that can go wrong.

use std::fmt;
use std::rc::Rc;

use drive::Drive;
use geometry::Level;

/// Members larger than this get a bitmap unless something else is asked for: a resync of them takes
/// longer than people wait. mdadm does the same from 100 GiB a member on.
const BITMAP_FROM_BYTES: u64 = 1 << 30;

/// The record of writes in flight.
#[derive(Clone)]
pub enum Consistency {
    /// None, and none is needed: the level has no redundancy.
    None,
    /// None: after a sudden end all of the array is made to agree.
    Resync,
    /// A write-intent bitmap on every member: only the parts that were being written are.
    Bitmap {
        /// What a bit stands for, in bytes of each member (raid10: of the array): a power of two,
        /// 4 KiB or more. 64 MiB where nobody chooses, and more where the bits don't fit.
        chunk_bytes: Option<u32>,
    },
    /// A partial parity log (RAID 5): parity of the stripes that were being written is mended from
    /// it, also when a member is lost at the same time.
    Ppl,
    /// A journal on this drive (RAID 4, 5 and 6): what was being written is written again.
    Journal(Rc<dyn Drive>),
}

impl Consistency {
    /// What an array gets that nobody chose for, with `used_bytes` of each member in use.
    #[must_use]
    pub fn default_for(level: Level, used_bytes: u64) -> Self {
        match level {
            Level::Linear | Level::Raid0 => Consistency::None,
            _ if used_bytes > BITMAP_FROM_BYTES => Consistency::Bitmap { chunk_bytes: None },
            _ => Consistency::Resync,
        }
    }

    /// Whether a sudden end together with the loss of a member can damage what nobody was writing:
    /// the write hole of levels with parity.
    #[must_use]
    pub fn leaves_write_hole(&self, level: Level) -> bool {
        let closes = matches!(self, Consistency::Ppl | Consistency::Journal(_));
        level.parities() > 0 && !closes
    }
}

impl fmt::Display for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Consistency::None => "none",
            Consistency::Resync => "resync",
            Consistency::Bitmap { .. } => "bitmap",
            Consistency::Ppl => "ppl",
            Consistency::Journal(_) => "journal",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_redundant_arrays_get_a_bitmap() {
        let table = [
            (Level::Raid0, 4 << 40, "none"),
            (Level::Linear, 4096, "none"),
            (Level::Raid1, 1 << 30, "resync"),
            (Level::Raid1, (1 << 30) + 65536, "bitmap"),
            (Level::Raid10, 4 << 40, "bitmap"),
            (Level::Raid6, 4 << 40, "bitmap"),
        ];
        for (level, used_bytes, word) in table {
            let default = Consistency::default_for(level, used_bytes);
            assert_eq!(default.to_string(), word, "{level} {used_bytes}");
        }
    }

    #[test]
    fn only_logs_close_the_write_hole() {
        assert!(Consistency::Bitmap { chunk_bytes: None }.leaves_write_hole(Level::Raid6));
        assert!(!Consistency::Ppl.leaves_write_hole(Level::Raid5));
        assert!(!Consistency::Resync.leaves_write_hole(Level::Raid10));
    }
}
