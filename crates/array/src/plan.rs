//! How to bring parity up to date for one band: the cheapest way that still works.
//!
//! - *Read-modify-write* reads the old content of what is written and the old parity:
//!   P' = P + old + new, Q' = Q + g^e (old + new). It needs parity that is right.
//! - *Reconstruct-write* reads the columns that are not written and computes parity anew. It also
//!   heals parity that was never right, so it is the only way before the first resync is done.
//! - *Recovery* reads everything that is left, recovers the old content of columns that can't be
//!   read, and computes parity anew.
//!
//! The way with the fewest reads wins; the writes are the same for all. A tie goes to
//! reconstruct-write. Source of the first two: Patterson, Gibson, Katz: "A case for redundant
//! arrays of inexpensive disks" (1988), and Chen et al.: "RAID" (1994), section 3.3.

/// What the band meets: what is written, and what can be read and written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Situation<'a> {
    /// Per column: is it written?
    pub(crate) written: &'a [bool],
    /// Per column: can its old content be read?
    pub(crate) readable: &'a [bool],
    /// Per parity (P, then Q): is there a member to write it to?
    pub(crate) parity_writable: &'a [bool],
    /// Per parity: can its old content be read?
    pub(crate) parity_readable: &'a [bool],
    /// Whether the old parity agrees with the old data.
    pub(crate) in_sync: bool,
    /// All parities are wanted, also one that no member can be given: a journal keeps all of a row
    /// or none, and whoever replays it later may find a member there.
    pub(crate) journalled: bool,
}

/// The chosen way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// No parity can be written: the data alone is.
    DataOnly,
    ReadModifyWrite,
    ReconstructWrite,
    Recover,
}

/// The cheapest way, or `None` when columns that are needed can't be had any more.
pub(crate) fn choose(situation: &Situation<'_>) -> Option<Way> {
    let Situation { written, readable, parity_writable, parity_readable, in_sync, journalled } =
        *situation;
    let columns = written.len();
    let targets = parity_writable.iter().filter(|&&writable| writable).count();
    if targets == 0 {
        return Some(Way::DataOnly);
    }
    let writes = written.iter().filter(|&&written| written).count();
    let all_readable = |wanted: bool| {
        let mut of_kind = written.iter().zip(readable).filter(|(written, _)| **written == wanted);
        of_kind.all(|(_, readable)| *readable)
    };
    let parity_known = parity_writable
        .iter()
        .zip(parity_readable)
        .all(|(writable, readable)| !writable || *readable);
    let reconstruct = all_readable(false).then_some((columns - writes, Way::ReconstructWrite));
    let suffices = targets == parity_writable.len() || !journalled;
    let modify = (in_sync && parity_known && suffices && all_readable(true))
        .then_some((writes + targets, Way::ReadModifyWrite));
    if let Some((_, way)) =
        [reconstruct, modify].into_iter().flatten().min_by_key(|(reads, _)| *reads)
    {
        return Some(way);
    }
    let lost = readable.iter().filter(|&&readable| !readable).count();
    let parities = parity_readable.iter().filter(|&&readable| readable).count();
    (lost <= parities).then_some(Way::Recover)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Members as letters: for columns `w` written, `.` not, capital: can't be read; for parity
    /// `p` fine, `P` written but not readable, `-` not there.
    fn way(columns: &str, parity: &str, in_sync: bool) -> Option<Way> {
        way_with(columns, parity, in_sync, false)
    }

    fn way_with(columns: &str, parity: &str, in_sync: bool, journalled: bool) -> Option<Way> {
        let of = |text: &str, test: fn(char) -> bool| text.chars().map(test).collect::<Vec<_>>();
        choose(&Situation {
            written: &of(columns, |c| c == 'w' || c == 'W'),
            readable: &of(columns, |c| c == 'w' || c == '.'),
            parity_writable: &of(parity, |c| c != '-'),
            parity_readable: &of(parity, |c| c == 'p'),
            in_sync,
            journalled,
        })
    }

    #[test]
    fn the_fewest_reads_win() {
        use Way::{DataOnly, ReadModifyWrite, ReconstructWrite, Recover};
        let table = [
            // Three columns: one written costs 2 reads either way.
            ("w..", "p", true, Some(ReconstructWrite)),
            ("w...", "p", true, Some(ReadModifyWrite)),
            ("ww..", "p", true, Some(ReconstructWrite)),
            ("www", "p", true, Some(ReconstructWrite)),
            ("w.....", "pp", true, Some(ReadModifyWrite)),
            ("w....", "pp", true, Some(ReadModifyWrite)),
            ("w...", "pp", true, Some(ReconstructWrite)),
            // Parity that was never right must not be built on.
            ("w.......", "p", false, Some(ReconstructWrite)),
            // A lost column that is not written: only its parity knows it.
            ("w.X..", "p", true, Some(ReadModifyWrite)),
            ("www.X", "p", true, Some(ReadModifyWrite)),
            // A lost column that is written.
            ("W....", "p", true, Some(ReconstructWrite)),
            // Both: the old content has to be recovered first.
            ("W.X..", "pp", true, Some(Recover)),
            ("wX...", "Pp", true, Some(Recover)),
            ("W.X..", "p-", true, None),
            // Parity lost.
            ("w...", "-", true, Some(DataOnly)),
            ("w.....", "-p", true, Some(ReadModifyWrite)),
            ("w.X", "--", true, Some(DataOnly)),
            ("wXX", "P", true, None),
        ];
        for (columns, parity, in_sync, expected) in table {
            assert_eq!(way(columns, parity, in_sync), expected, "{columns} {parity} {in_sync}");
        }
    }

    #[test]
    fn a_journal_gets_all_parities_or_none() {
        use Way::{DataOnly, ReadModifyWrite, ReconstructWrite, Recover};
        let table = [
            ("w.....", "pp", Some(ReadModifyWrite)),
            ("w.....", "-p", Some(ReconstructWrite)),
            ("w.....", "p-", Some(ReconstructWrite)),
            // The lost column has to be worked out for the parity that is lost too.
            ("w.X..", "p-", Some(Recover)),
            ("w.X..", "p", Some(ReadModifyWrite)),
            ("w...", "--", Some(DataOnly)),
        ];
        for (columns, parity, expected) in table {
            let way = way_with(columns, parity, true, true);
            assert_eq!(way, expected, "{columns} {parity}");
        }
    }
}
