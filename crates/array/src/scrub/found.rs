//! What a scrub finds, gathered: neighbours joined, a bounded list, counters with units.

use format::own::scrub::{FINDINGS_MAX, Finding, FindingKind, Outcome, ScrubCounts, ScrubRecord};

/// What was found in a window.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) counts: ScrubCounts,
    pub(crate) findings: Vec<Finding>,
    /// The last finding, also when the list had no room for it: its neighbour joins it.
    last: Option<Finding>,
}

impl Found {
    /// Adds a finding that lies behind all before it, or beside one of another member. It joins
    /// the last one where that ends at it and says the same, unless it starts at a multiple of
    /// `border`: what lies on both sides of that has different members.
    pub(crate) fn add(&mut self, finding: Finding, border: u64) {
        let Finding { bytes, slot, outcome, .. } = finding;
        match finding.kind {
            FindingKind::Mismatch => match outcome {
                Outcome::Mended | Outcome::AsTold => self.counts.mended_bytes += bytes,
                Outcome::Left | Outcome::Failed => {}
            },
            FindingKind::Unreadable => {
                self.counts.unreadable_bytes += bytes;
                self.counts.rewritten_bytes += if outcome == Outcome::Mended { bytes } else { 0 };
            }
            FindingKind::Lost => self.counts.lost_bytes += bytes,
        }
        let joins = |last: &Finding| {
            last.position + last.bytes == finding.position
                && !finding.position.is_multiple_of(border)
                && (last.kind, last.slot, last.outcome) == (finding.kind, slot, outcome)
        };
        if let Some(last) = self.last.as_mut().filter(|last| joins(last)) {
            let listed = self.findings.last_mut().filter(|listed| *listed == last);
            last.bytes += bytes;
            if let Some(listed) = listed {
                *listed = *last;
            }
            return;
        }
        self.counts.findings += 1;
        self.last = Some(finding);
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }
}

/// Adds what was found in a window to what was found before it.
pub(crate) fn append(record: &mut ScrubRecord, window: &Found) {
    let (counts, more) = (&mut record.counts, &window.counts);
    counts.compared_bytes += more.compared_bytes;
    counts.skipped_bytes += more.skipped_bytes;
    counts.mismatched_bytes += more.mismatched_bytes;
    counts.mismatched_stripes += more.mismatched_stripes;
    counts.undecided_bytes += more.undecided_bytes;
    counts.unmended_bytes += more.unmended_bytes;
    counts.mended_bytes += more.mended_bytes;
    counts.unreadable_bytes += more.unreadable_bytes;
    counts.rewritten_bytes += more.rewritten_bytes;
    counts.lost_bytes += more.lost_bytes;
    counts.findings += more.findings;
    let room = FINDINGS_MAX.saturating_sub(record.findings.len());
    record.findings.extend(window.findings.iter().take(room));
}

#[cfg(test)]
mod tests {
    use format::md::Uuid;
    use format::own::scrub::{ScrubKind, ScrubState};

    use super::*;

    fn mismatch(position: u64, bytes: u64, slot: Option<u16>, outcome: Outcome) -> Finding {
        Finding { position, bytes, kind: FindingKind::Mismatch, slot, outcome }
    }

    #[test]
    fn neighbours_that_say_the_same_join_up_to_a_border() {
        let mut found = Found::default();
        let steps = [
            mismatch(0, 512, None, Outcome::Left),
            mismatch(512, 512, None, Outcome::Left),
            mismatch(1024, 512, Some(2), Outcome::Left),
            mismatch(1536, 512, Some(2), Outcome::Mended),
            mismatch(3584, 512, None, Outcome::Left),
            mismatch(4096, 512, None, Outcome::Left),
        ];
        for step in steps {
            found.add(step, 4096);
        }
        let places: Vec<(u64, u64)> =
            found.findings.iter().map(|finding| (finding.position, finding.bytes)).collect();
        assert_eq!(places, [(0, 1024), (1024, 512), (1536, 512), (3584, 512), (4096, 512)]);
        assert_eq!((found.counts.findings, found.counts.mended_bytes), (5, 512));
    }

    #[test]
    fn the_list_has_an_end_and_the_counters_have_none() {
        let mut window = Found::default();
        for index in 0..100 {
            window.add(mismatch(index * 2048, 512, None, Outcome::Left), 4096);
            window.add(mismatch(index * 2048 + 512, 512, None, Outcome::Left), 4096);
        }
        let mut all = ScrubRecord {
            set_uuid: Uuid::default(),
            sequence: 0,
            kind: ScrubKind::Check,
            state: ScrubState::Running,
            started_seconds: 0,
            written_seconds: 0,
            position: 0,
            end: 0,
            counts: ScrubCounts::default(),
            findings: Vec::new(),
        };
        for _ in 0..3 {
            append(&mut all, &window);
        }
        assert_eq!((all.findings.len(), all.counts.findings), (FINDINGS_MAX, 300));
        let mut one = Found::default();
        for index in 0..400 {
            one.add(mismatch(index * 1024, 512, None, Outcome::Left), 4096);
            one.add(mismatch(index * 1024 + 512, 256, None, Outcome::Left), 4096);
        }
        assert_eq!((one.findings.len(), one.counts.findings), (FINDINGS_MAX, 400));
    }
}
