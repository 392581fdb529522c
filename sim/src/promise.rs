//! What an array promises, by level and consistency policy: the one place that the faults of every
//! history come from, and that the table in `docs/promises.md` is printed from.

use std::rc::Rc;

use array::Consistency;
use drive::Drive;
use geometry::Level;

/// The record of writes in flight an array keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Nothing is redundant, so nothing can come to disagree.
    None,
    /// Everything is resynced after a sudden end.
    Resync,
    /// Only what was in flight is.
    Bitmap,
    /// A partial parity log on the members.
    Ppl,
    /// A journal on a drive of its own.
    Journal,
}

/// Some bits for each member.
const BITMAP_CHUNK_BYTES: u32 = 16 << 10;

impl Policy {
    /// As the engine wants it, with the drive for the journal where there is one.
    pub fn consistency(self, journal: Option<Rc<dyn Drive>>) -> Consistency {
        match self {
            Policy::None => Consistency::None,
            Policy::Ppl => Consistency::Ppl,
            Policy::Journal => journal.map_or(Consistency::Resync, Consistency::Journal),
            Policy::Resync => Consistency::Resync,
            Policy::Bitmap => Consistency::Bitmap { chunk_bytes: Some(BITMAP_CHUNK_BYTES) },
        }
    }

    /// Whether what is written is logged before it is stored.
    pub fn logs(self) -> bool {
        matches!(self, Policy::Ppl | Policy::Journal)
    }

    fn word(self) -> &'static str {
        match self {
            Policy::None => "none",
            Policy::Resync => "resync",
            Policy::Bitmap => "bitmap",
            Policy::Ppl => "ppl",
            Policy::Journal => "journal",
        }
    }
}

/// What survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promise {
    /// Members that may be lost, whichever they are; more where the geometry allows it.
    pub losses: Losses,
    /// What a cut costs that meets an array with members lost.
    pub hole: Hole,
}

/// What is not kept when a cut and a loss come together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hole {
    /// Everything is.
    None,
    /// What was being written on a member that is lost in the same moment.
    Flight,
    /// What lost members held in all rows that were being written, since data and parity disagree
    /// there: after a cut while it is degraded, or a loss before the resync has ended.
    Rows,
}

/// How many members may be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Losses {
    /// None.
    None,
    /// That many.
    Members(usize),
    /// Of each byte all copies but one.
    CopiesButOne,
}

/// What an array of this level with this policy promises.
pub fn promise(level: Level, policy: Policy) -> Promise {
    let losses = match level {
        Level::Linear | Level::Raid0 => Losses::None,
        Level::Raid1 | Level::Raid10 => Losses::CopiesButOne,
        Level::Raid4 | Level::Raid5 | Level::Raid6 => Losses::Members(level.parities()),
    };
    let hole = match policy {
        Policy::Resync | Policy::Bitmap if level.parities() > 0 => Hole::Rows,
        Policy::Ppl => Hole::Flight,
        _ => Hole::None,
    };
    Promise { losses, hole }
}

/// The combinations there are.
const ROWS: [(&str, &[Level], &[Policy]); 8] = [
    ("linear, RAID 0", &[Level::Linear, Level::Raid0], &[Policy::None]),
    ("RAID 1", &[Level::Raid1], &[Policy::Resync, Policy::Bitmap]),
    ("RAID 10", &[Level::Raid10], &[Policy::Resync, Policy::Bitmap]),
    ("RAID 4, 5", &[Level::Raid4, Level::Raid5], &[Policy::Resync, Policy::Bitmap]),
    ("RAID 5", &[Level::Raid5], &[Policy::Ppl]),
    ("RAID 4, 5", &[Level::Raid4, Level::Raid5], &[Policy::Journal]),
    ("RAID 6", &[Level::Raid6], &[Policy::Resync, Policy::Bitmap]),
    ("RAID 6", &[Level::Raid6], &[Policy::Journal]),
];

/// The table as the document has it.
pub fn table() -> String {
    let mut lines = vec![
        "| level | policy | members lost | cut while healthy | then a loss before the resync ended \
         | cut while degraded | silent change | with checksums |"
            .to_owned(),
        "| --- | --- | --- | --- | --- | --- | --- | --- |".to_owned(),
    ];
    for (name, levels, policies) in ROWS {
        for &policy in policies {
            let promise = promise(levels[0], policy);
            let losses = match promise.losses {
                Losses::None => "none".to_owned(),
                Losses::Members(1) => "one".to_owned(),
                Losses::Members(2) => "two".to_owned(),
                Losses::Members(count) => count.to_string(),
                Losses::CopiesButOne if levels[0] == Level::Raid1 => "all but one".to_owned(),
                Losses::CopiesButOne => "of each byte, all copies but one".to_owned(),
            };
            let (later, degraded) = match (promise.losses, promise.hole) {
                (Losses::None, _) => ("–", "–"),
                (_, Hole::None) => ("kept", "kept"),
                (_, Hole::Flight) => ("kept but for what was being written on it", "kept"),
                (_, Hole::Rows) => ("kept but for the write hole", "kept but for the write hole"),
            };
            let (silent, checked) = match levels[0] {
                Level::Linear | Level::Raid0 => ("handed out", "–"),
                Level::Raid1 | Level::Raid10 => {
                    ("seen by a check, mended with three copies", "answered from redundancy")
                }
                Level::Raid4 | Level::Raid5 => ("seen by a check", "answered from redundancy"),
                Level::Raid6 => ("mended by a repair", "answered from redundancy"),
            };
            let policy = policy.word();
            lines.push(format!(
                "| {name} | {policy} | {losses} | kept | {later} | {degraded} | {silent} \
                 | {checked} |"
            ));
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_the_table_that_histories_follow() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/promises.md");
        let document = std::fs::read_to_string(path).expect("the document is there");
        assert!(document.contains(&table()), "docs/promises.md wants this table:\n{}", table());
    }
}
