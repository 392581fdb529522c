//! Which of several disagreeing superblocks to trust.
//!
//! Every member carries its own copy of the set's state. After a crash, a pulled drive, a clone
//! or a mix-up these copies disagree. [`decide`] looks at all of them at once and gives each
//! member a verdict and each set a state, without touching anything:
//!
//! 1. Candidates are grouped by set uuid. Of several superblocks on one drive the one written
//!    last counts, the others are ghosts.
//! 2. The superblock with the most events is the *reference* (a tie goes to the later update
//!    time). A member one event behind it is current too: a crash may fall between the writes of
//!    one update, and nothing but the clean mark changes in a single step.
//! 3. The reference's role table overrules a member's own claim: who was failed there is out,
//!    whatever it says about itself.
//! 4. Two sides of which each went on without the other are a split brain: both hold writes the
//!    other lacks. They are never merged; the caller asks which side to take and decides again
//!    with the members of that side alone.
//!
//! Only what differs is told apart here; whether the members left can carry the data is geometry's
//! knowledge and comes in as `can_run`.

use std::collections::{BTreeMap, BTreeSet};

use super::member::{ConsistencyPlace, Layout, MemberView, Resync};
use super::types::{Features, Level, Role, Uuid};
use super::validate::Implausible;
use super::verdict::{ArrayState, Assembly, Candidate, Refusal, Side, Verdict};

/// How far behind the newest event count a member may be and still be current.
const EVENTS_SLACK: u64 = 1;

/// Groups the candidates into sets and judges each. `can_run(layout, present)` says whether a
/// shape holds all data with the slots marked present.
///
/// Sets come in the order of their first candidate. The same candidates give the same answer;
/// their order matters only between two that are equal in every respect.
pub fn decide(
    candidates: &[Candidate],
    can_run: &dyn Fn(&Layout, &[bool]) -> bool,
) -> Vec<Assembly> {
    let mut groups: Vec<(Uuid, Vec<usize>)> = Vec::new();
    let mut group_of = BTreeMap::new();
    for (index, candidate) in candidates.iter().enumerate() {
        let uuid = candidate.view.set_uuid;
        let group = *group_of.entry(uuid).or_insert_with(|| {
            groups.push((uuid, Vec::new()));
            groups.len() - 1
        });
        groups[group].1.push(index);
    }
    let ghosts = ghosts(candidates);
    groups
        .into_iter()
        .map(|(set_uuid, members)| Judge { candidates, can_run }.judge(set_uuid, members, &ghosts))
        .collect()
}

/// Of several superblocks on one drive, the plausible one written last counts.
fn ghosts(candidates: &[Candidate]) -> BTreeMap<usize, usize> {
    let rank = |index: usize| {
        let candidate = &candidates[index];
        let updated = candidate.view.updated;
        let plausible = candidate.implausible.is_none() && !is_blank(&candidate.view);
        (plausible, updated.seconds(), updated.microseconds(), candidate.view.events)
    };
    let mut best: BTreeMap<usize, usize> = BTreeMap::new();
    for (index, candidate) in candidates.iter().enumerate() {
        let best = best.entry(candidate.drive).or_insert(index);
        if rank(index) > rank(*best) {
            *best = index;
        }
    }
    let ghost = |(index, candidate): (usize, &Candidate)| {
        let newer = best[&candidate.drive];
        (newer != index).then_some((index, newer))
    };
    candidates.iter().enumerate().filter_map(ghost).collect()
}

fn is_blank(view: &MemberView) -> bool {
    view.set_uuid.is_nil() || view.layout.raid_disks == 0
}

struct Judge<'a> {
    candidates: &'a [Candidate],
    can_run: &'a dyn Fn(&Layout, &[bool]) -> bool,
}

impl Judge<'_> {
    fn view(&self, candidate: usize) -> &MemberView {
        &self.candidates[candidate].view
    }

    fn judge(
        &self,
        set_uuid: Uuid,
        members: Vec<usize>,
        ghosts: &BTreeMap<usize, usize>,
    ) -> Assembly {
        let mut verdicts: BTreeMap<usize, Verdict> = BTreeMap::new();
        for &member in &members {
            if let Some(verdict) = self.unusable(member, ghosts) {
                verdicts.insert(member, verdict);
            }
        }
        let usable: Vec<usize> =
            members.iter().copied().filter(|member| !verdicts.contains_key(member)).collect();
        let Some(reference) = self.newest(&usable) else {
            return Assembly {
                set_uuid,
                reference: members[0],
                verdicts: in_order(&members, &verdicts),
                slots: Vec::new(),
                state: ArrayState::Refused(Refusal::NothingUsable),
            };
        };
        self.mark_duplicates(&usable, reference, &mut verdicts);
        for &member in &usable {
            verdicts.entry(member).or_insert_with(|| self.against(member, reference));
        }
        let sides = self.sides(&usable, &verdicts);
        for (side, split) in sides.iter().enumerate().skip(1) {
            for &member in &split.candidates {
                verdicts.insert(member, Verdict::SplitBrain { side });
            }
        }
        let slots = self.fill_slots(reference, &usable, &mut verdicts);
        let mut assembly = Assembly {
            set_uuid,
            reference,
            verdicts: in_order(&members, &verdicts),
            slots,
            state: ArrayState::Startable,
        };
        assembly.state = self.state(&assembly, sides);
        assembly
    }

    /// Superblocks that say nothing about their set.
    fn unusable(&self, member: usize, ghosts: &BTreeMap<usize, usize>) -> Option<Verdict> {
        if let Some(&newer) = ghosts.get(&member) {
            return Some(Verdict::Ghost { newer });
        }
        if is_blank(self.view(member)) {
            return Some(Verdict::Blank);
        }
        self.candidates[member].implausible.map(|implausible| match implausible {
            Implausible::DataPastEnd { end_bytes, device_bytes } => {
                Verdict::TooSmall { missing_bytes: end_bytes - device_bytes }
            }
            other => Verdict::Damaged(other),
        })
    }

    fn is_current(&self, member: usize, reference: usize) -> bool {
        let newest = self.view(reference).events;
        self.view(member).events.saturating_add(EVENTS_SLACK) >= newest
    }

    fn newest(&self, members: &[usize]) -> Option<usize> {
        members.iter().copied().max_by_key(|&member| {
            let view = self.view(member);
            let updated = (view.updated.seconds(), view.updated.microseconds());
            (view.events, updated, core::cmp::Reverse(member))
        })
    }

    /// Members that are one and the same: only the newest of them counts.
    fn mark_duplicates(
        &self,
        usable: &[usize],
        reference: usize,
        verdicts: &mut BTreeMap<usize, Verdict>,
    ) {
        let mut same: BTreeMap<Uuid, Vec<usize>> = BTreeMap::new();
        for &member in usable {
            if let Some(uuid) = self.view(member).device_uuid.filter(|uuid| !uuid.is_nil()) {
                same.entry(uuid).or_default().push(member);
            }
        }
        for copies in same.into_values().filter(|copies| copies.len() > 1) {
            let Some(kept) = self.newest(&copies) else { continue };
            for copy in copies.into_iter().filter(|&copy| copy != kept) {
                let (view, other) = (self.view(copy), self.view(kept));
                // Written apart since they were copied, and equally new: no telling which.
                let apart = view.events == other.events
                    && view.updated != other.updated
                    && self.is_current(copy, reference);
                let verdict = match view.role {
                    Role::Slot(slot) if apart => Verdict::DoubleClaim { slot, candidate: kept },
                    _ => Verdict::DuplicateOf { candidate: kept },
                };
                verdicts.insert(copy, verdict);
            }
        }
    }

    /// What `member` is in the eyes of the reference.
    fn against(&self, member: usize, reference: usize) -> Verdict {
        let (view, newest) = (self.view(member), self.view(reference));
        let is_current = self.is_current(member, reference);
        let stale = |slot| Verdict::Stale { slot, events: view.events, newest: newest.events };
        let slot = match view.role {
            Role::Faulty => return Verdict::Faulty,
            Role::Spare | Role::Reserved(_) => return Verdict::Spare,
            Role::Journal if is_current => return Verdict::Journal,
            Role::Journal => return stale(None),
            Role::Slot(slot) => slot,
        };
        if !is_current {
            return stale(Some(slot));
        }
        if view.events == newest.events && shape(view) != shape(newest) {
            return Verdict::Conflicting { with: reference };
        }
        if usize::from(slot) >= slot_count(newest) {
            return Verdict::Foreign;
        }
        match newest.roles.get(view.dev_number as usize) {
            Some(&Role::Slot(given)) if given == slot => {}
            Some(_) => return Verdict::Ejected { slot, by: reference },
            None => return Verdict::Foreign,
        }
        match (view.replacement, view.recovered_to_bytes) {
            (true, to_bytes) => Verdict::Replacement { slot, to_bytes },
            (false, Some(to_bytes)) => Verdict::Recovering { slot, to_bytes },
            (false, None) => Verdict::InSync { slot },
        }
    }

    /// The sides of a split brain; empty if there is none. Each side's table has no holder for
    /// any slot of the other side, nor of whoever was left behind by it: each saw all the others
    /// fail, and went on.
    fn sides(&self, usable: &[usize], verdicts: &BTreeMap<usize, Verdict>) -> Vec<Side> {
        let holds = |member: &usize| {
            matches!(
                verdicts.get(member),
                Some(Verdict::InSync { .. } | Verdict::Recovering { .. })
            )
        };
        let first: Vec<usize> = usable.iter().copied().filter(holds).collect();
        let mut left: Vec<usize> = usable
            .iter()
            .copied()
            .filter(|member| {
                matches!(
                    verdicts.get(member),
                    Some(Verdict::Ejected { .. } | Verdict::Stale { slot: Some(_), .. })
                )
            })
            .collect();
        let mut sides = Vec::new();
        self.push_side(first, &mut sides);
        // One of each table so far, of those that were left behind on the way too: members may have
        // come and gone one by one, until the last table shares no holder with the first.
        let mut tables: Vec<usize> = sides.iter().map(|side: &Side| side.reference).collect();
        while let Some(reference) = self.newest(&left) {
            let with_it = |&member: &usize| {
                matches!(
                    self.against(member, reference),
                    Verdict::InSync { .. } | Verdict::Recovering { .. }
                )
            };
            let together: Vec<usize> = left.iter().copied().filter(with_it).collect();
            let apart = tables.iter().all(|&table| self.are_apart(table, reference));
            tables.push(reference);
            left.retain(|member| *member != reference && !together.contains(member));
            if apart && !sides.is_empty() {
                self.push_side(together, &mut sides);
            }
        }
        if sides.len() > 1 { sides } else { Vec::new() }
    }

    fn push_side(&self, candidates: Vec<usize>, sides: &mut Vec<Side>) {
        if let Some(reference) = self.newest(&candidates) {
            let events = self.view(reference).events;
            sides.push(Side { candidates, reference, events });
        }
    }

    /// True if neither table has a holder for any slot the other has.
    fn are_apart(&self, one: usize, other: usize) -> bool {
        held_slots(self.view(one)).is_disjoint(&held_slots(self.view(other)))
    }

    /// The member of each slot. Two members of one slot can only be a contradiction here; a
    /// replacement whose original is gone takes its place.
    fn fill_slots(
        &self,
        reference: usize,
        usable: &[usize],
        verdicts: &mut BTreeMap<usize, Verdict>,
    ) -> Vec<Option<usize>> {
        let mut slots: Vec<Option<usize>> = vec![None; slot_count(self.view(reference))];
        for &member in usable {
            let Some(&Verdict::InSync { slot } | &Verdict::Recovering { slot, .. }) =
                verdicts.get(&member)
            else {
                continue;
            };
            match slots[usize::from(slot)] {
                None => slots[usize::from(slot)] = Some(member),
                Some(candidate) => {
                    verdicts.insert(member, Verdict::DoubleClaim { slot, candidate });
                }
            }
        }
        for &member in usable {
            let Some(&Verdict::Replacement { slot, to_bytes }) = verdicts.get(&member) else {
                continue;
            };
            let place = &mut slots[usize::from(slot)];
            if place.is_none() {
                *place = Some(member);
                let verdict = match to_bytes {
                    None => Verdict::InSync { slot },
                    Some(to_bytes) => Verdict::Recovering { slot, to_bytes },
                };
                verdicts.insert(member, verdict);
            }
        }
        slots
    }

    fn state(&self, assembly: &Assembly, sides: Vec<Side>) -> ArrayState {
        if !sides.is_empty() {
            return ArrayState::SplitBrain { sides };
        }
        if let Some(refusal) = self.refusal(assembly) {
            return ArrayState::Refused(refusal);
        }
        let view = self.view(assembly.reference);
        let present: Vec<bool> = assembly.in_sync().collect();
        if !self.runs(view, &present) {
            return ArrayState::Incomplete { forced: self.forced(assembly, present) };
        }
        let journal = assembly.verdicts.iter().any(|(_, verdict)| *verdict == Verdict::Journal);
        if view.features.contains(Features::JOURNAL) && !journal {
            return ArrayState::Refused(Refusal::JournalMissing);
        }
        let degraded = present.contains(&false);
        let dirty = view.resync != Resync::Clean;
        let logged = journal || matches!(view.consistency, ConsistencyPlace::Ppl { .. });
        if view.layout.level.has_parity() && degraded && dirty && !logged {
            return ArrayState::Refused(Refusal::DirtyDegraded);
        }
        match view.reshape {
            Some(reshape) => ArrayState::Reshaping { position_bytes: reshape.position_bytes },
            None => ArrayState::Startable,
        }
    }

    fn refusal(&self, assembly: &Assembly) -> Option<Refusal> {
        let view = self.view(assembly.reference);
        let unknown = view.features.unknown();
        if unknown != Features::default() {
            return Some(Refusal::UnknownFeatures(unknown));
        }
        if view.features.contains(Features::CLUSTERED) {
            return Some(Refusal::Clustered);
        }
        let level = view.layout.level;
        if !level.is_redundant() && !matches!(level, Level::Linear | Level::Raid0) {
            return Some(Refusal::UnsupportedLevel(level));
        }
        assembly.verdicts.iter().find_map(|&(candidate, verdict)| match verdict {
            Verdict::Conflicting { with } => {
                Some(Refusal::ConflictingShape { candidate, other: with })
            }
            Verdict::DoubleClaim { slot, candidate: other } => {
                Some(Refusal::DoubleClaim { slot, candidate, other })
            }
            _ => None,
        })
    }

    /// Can the set run, in both shapes while it is being reshaped?
    fn runs(&self, view: &MemberView, present: &[bool]) -> bool {
        let shape_runs = |layout: &Layout| {
            let slots = layout.raid_disks as usize;
            present.get(..slots).is_some_and(|present| (self.can_run)(layout, present))
        };
        match &view.reshape {
            Some(reshape) => shape_runs(&reshape.old) && shape_runs(&reshape.new),
            None => shape_runs(&view.layout),
        }
    }

    /// Stale members, the least old first, until the set would run with them.
    fn forced(&self, assembly: &Assembly, mut present: Vec<bool>) -> Vec<usize> {
        let view = self.view(assembly.reference);
        let mut stale: Vec<(u64, usize, u16)> = assembly
            .verdicts
            .iter()
            .filter_map(|&(candidate, verdict)| match verdict {
                Verdict::Stale { slot: Some(slot), events, .. } => Some((events, candidate, slot)),
                Verdict::Ejected { slot, .. } => {
                    Some((self.view(candidate).events, candidate, slot))
                }
                _ => None,
            })
            .filter(|&(_, candidate, _)| {
                let member = self.view(candidate);
                shape(member) == shape(view) && member.recovered_to_bytes.is_none()
            })
            .collect();
        stale.sort_by_key(|&(events, candidate, _)| (core::cmp::Reverse(events), candidate));
        let mut forced = Vec::new();
        for (_, candidate, slot) in stale {
            match present.get_mut(usize::from(slot)) {
                Some(held) if !*held => *held = true,
                _ => continue,
            }
            forced.push(candidate);
            if self.runs(view, &present) {
                return forced;
            }
        }
        Vec::new()
    }
}

/// What members of one set must agree on. The data offset is each member's own.
fn shape(view: &MemberView) -> (Layout, u64, Option<Layout>) {
    let common = |layout: Layout| Layout { data_offset_bytes: 0, ..layout };
    (common(view.layout), view.used_bytes, view.reshape.map(|reshape| common(reshape.new)))
}

/// Slots of the set, of the larger shape while reshaping. Never more than the table can name.
fn slot_count(view: &MemberView) -> usize {
    let new = view.reshape.map_or(0, |reshape| reshape.new.raid_disks);
    (view.layout.raid_disks.max(new) as usize).min(view.roles.len())
}

fn held_slots(view: &MemberView) -> BTreeSet<u16> {
    let slot = |role: &Role| match role {
        Role::Slot(slot) => Some(*slot),
        _ => None,
    };
    view.roles.iter().filter_map(slot).collect()
}

fn in_order(members: &[usize], verdicts: &BTreeMap<usize, Verdict>) -> Vec<(usize, Verdict)> {
    members.iter().filter_map(|member| Some((*member, *verdicts.get(member)?))).collect()
}
