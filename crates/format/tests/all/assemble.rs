//! Verdicts on the sets of a real md in `tests/data`, and on what was done to them.

use crate::common::members;
use format::md::{
    ArrayState, Assembly, Candidate, DevFlags, Features, Layout, Level, MemberView, Refusal, Role,
    SUPERBLOCK_BYTES, Superblock, Timestamp, Uuid, Verdict, decide, parse090, place090, places,
};
use proptest::prelude::*;

/// What geometry would say, near enough for these sets.
fn can_run(layout: &Layout, present: &[bool]) -> bool {
    let missing = present.iter().filter(|present| !**present).count();
    match layout.level {
        Level::Raid1 => missing < present.len(),
        Level::Raid4 | Level::Raid5 => missing <= 1,
        Level::Raid6 => missing <= 2,
        // Two near copies on an even number of members.
        Level::Raid10 => present.chunks(2).all(|pair| pair.contains(&true)),
        _ => missing == 0,
    }
}

fn judge(candidates: &[Candidate]) -> Vec<Assembly> {
    decide(candidates, &can_run)
}

fn candidates(set: &str) -> Vec<Candidate> {
    let mut all = Vec::new();
    for (drive, member) in members(set).into_iter().enumerate() {
        for place in places(member.device_bytes) {
            let bytes = member.read(place.offset_bytes, SUPERBLOCK_BYTES);
            if let Ok(superblock) = Superblock::parse(&bytes, place) {
                let implausible = superblock.validate(member.device_bytes).err();
                all.push(Candidate { drive, view: MemberView::from(&superblock), implausible });
            }
        }
        if let Some(offset) = place090(member.device_bytes)
            && let Ok(view) = parse090(&member.read(offset, 4096), offset)
        {
            all.push(Candidate { drive, view, implausible: None });
        }
    }
    all
}

fn only(candidates: &[Candidate]) -> Assembly {
    let mut all = judge(candidates);
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn verdicts(assembly: &Assembly) -> Vec<Verdict> {
    assembly.verdicts.iter().map(|&(_, verdict)| verdict).collect()
}

fn in_sync(slots: impl IntoIterator<Item = u16>) -> Vec<Verdict> {
    slots.into_iter().map(|slot| Verdict::InSync { slot }).collect()
}

#[test]
fn every_set_of_the_corpus_gets_the_state_its_name_says() {
    for set in crate::common::sets() {
        if set.starts_with("imsm") || set.starts_with("ddf") {
            continue;
        }
        let assembly = only(&candidates(&set));
        let whole = assembly.is_whole();
        match &assembly.state {
            ArrayState::Startable => {
                let degraded = ["degraded", "stale", "recovery", "missing"];
                let expected = !degraded.iter().any(|word| set.contains(word));
                assert_eq!(whole, expected, "{set}: {:?}", assembly.verdicts);
            }
            ArrayState::Reshaping { position_bytes } => {
                assert!(set.contains("reshape") && *position_bytes > 0, "{set}");
            }
            ArrayState::SplitBrain { .. } => assert!(set.contains("split-brain"), "{set}"),
            other => panic!("{set}: {other:?} {:?}", assembly.verdicts),
        }
        assert_eq!(set.contains("reshape"), matches!(assembly.state, ArrayState::Reshaping { .. }));
    }
}

#[test]
fn a_stale_member_is_left_out() {
    let assembly = only(&candidates("raid5-4-stale-member-v12"));
    let stale = Verdict::Stale { slot: Some(1), events: 18, newest: 23 };
    assert_eq!(verdicts(&assembly)[1], stale);
    assert_eq!(assembly.missing(), [1]);
    assert_eq!(assembly.state, ArrayState::Startable);
}

#[test]
fn a_split_brain_is_never_merged() {
    let all = candidates("raid1-2-split-brain-v12");
    let assembly = only(&all);
    let ArrayState::SplitBrain { sides } = &assembly.state else {
        panic!("{:?}", assembly.state);
    };
    assert_eq!(sides.len(), 2);
    // Equal event counts: the later one comes first.
    assert_eq!((&sides[0].candidates[..], &sides[1].candidates[..]), (&[1][..], &[0][..]));
    for member in all {
        let alone = only(&[member]);
        assert_eq!(alone.state, ArrayState::Startable);
        assert_eq!(alone.missing().len(), 1);
    }
}

#[test]
fn recovery_and_replacement_know_how_far_they_are() {
    let assembly = only(&candidates("raid5-4-recovery-half-v12"));
    assert!(
        matches!(verdicts(&assembly)[3], Verdict::Recovering { slot: 3, to_bytes } if to_bytes > 0)
    );
    assert!(assembly.missing().is_empty() && !assembly.is_whole());

    let all = candidates("raid5-4-replace-half-v12");
    let assembly = only(&all);
    let to_bytes = 15360 * 512;
    assert_eq!(verdicts(&assembly)[4], Verdict::Replacement { slot: 1, to_bytes: Some(to_bytes) });
    assert!(assembly.is_whole());
    // Without the original, the replacement is what holds the slot.
    let assembly = only(&[&all[..1], &all[2..]].concat());
    assert_eq!(verdicts(&assembly)[3], Verdict::Recovering { slot: 1, to_bytes });
}

#[test]
fn the_journal_is_needed() {
    let all = candidates("raid5-3-journal-writeback-dirty-v12");
    assert_eq!(verdicts(&only(&all))[3], Verdict::Journal);
    let without = only(&all[..3]);
    assert_eq!(without.state, ArrayState::Refused(Refusal::JournalMissing));
}

#[test]
fn a_dirty_set_does_not_start_degraded_by_itself() {
    let all = candidates("raid6-5-dirty-v12");
    assert_eq!(only(&all).state, ArrayState::Startable);
    assert_eq!(only(&all[1..]).state, ArrayState::Refused(Refusal::DirtyDegraded));
    // The partial parity log tells what was in flight.
    assert_eq!(only(&candidates("raid5-4-ppl-dirty-v12")[1..]).state, ArrayState::Startable);
}

#[test]
fn slightly_stale_members_start_by_themselves_or_can_be_forced() {
    let events = |stale: &[usize]| {
        let mut all = candidates("raid10-4-n2-v12");
        for (index, candidate) in all.iter_mut().enumerate() {
            candidate.view.events = if stale.contains(&index) { 6527 } else { 6531 };
        }
        only(&all)
    };
    let one_of_each_pair = events(&[1, 3]);
    assert_eq!(one_of_each_pair.state, ArrayState::Startable);
    assert_eq!(one_of_each_pair.missing(), [1, 3]);
    let both_of_a_pair = events(&[2, 3]);
    assert_eq!(both_of_a_pair.state, ArrayState::Incomplete { forced: vec![2] });
    let nothing_helps = only(&candidates("raid10-4-n2-v12")[2..]);
    assert_eq!(nothing_helps.state, ArrayState::Incomplete { forced: vec![] });
}

#[test]
fn one_event_behind_is_current_two_are_not() {
    let mut all = candidates("raid5-4-left-symmetric-v12");
    all[2].view.events -= 1;
    assert!(only(&all).is_whole());
    all[2].view.events -= 1;
    assert_eq!(only(&all).missing(), [2]);
}

#[test]
fn the_newest_table_overrules_a_members_own_claim() {
    let mut all = candidates("raid5-4-left-symmetric-v12");
    all[0].view.events += 1;
    let number = all[2].view.dev_number as usize;
    all[0].view.roles[number] = Role::Faulty;
    let assembly = only(&all);
    assert_eq!(verdicts(&assembly)[2], Verdict::Ejected { slot: 2, by: 0 });
    assert_eq!((assembly.missing(), assembly.state), (vec![2], ArrayState::Startable));
}

#[test]
fn an_old_member_of_a_set_that_was_rebuilt_is_no_split_brain() {
    let mut all = candidates("raid5-4-left-symmetric-v12");
    let mut old = all[1].clone();
    (old.drive, old.view.events) = (9, old.view.events - 10);
    // A new member took slot 1 under a new number.
    let number = old.view.dev_number as usize;
    for candidate in &mut all {
        candidate.view.roles[number] = Role::Spare;
        candidate.view.roles[20] = Role::Slot(1);
    }
    all[1].view.dev_number = 20;
    all[1].view.device_uuid = Some(Uuid([77; 16]));
    all.push(old);
    let assembly = only(&all);
    assert!(assembly.is_whole());
    assert!(matches!(verdicts(&assembly)[4], Verdict::Stale { slot: Some(1), .. }));
}

/// Found by a history: members failed one after the other and others came, until the last one's
/// table shared no holder with the first one's.
#[test]
fn members_left_behind_one_by_one_are_no_split_brain() {
    let mut all = candidates("raid5-4-left-symmetric-v12");
    all.truncate(3);
    let events = all[0].view.events;
    let numbers: Vec<usize> = all.iter().map(|of| of.view.dev_number as usize).collect();
    for (index, held) in [[0, 1], [1, 2], [2, 2]].into_iter().enumerate() {
        let view = &mut all[index].view;
        view.events = events + 10 * index as u64;
        view.roles.fill(Role::Faulty);
        held.into_iter().for_each(|slot| view.roles[numbers[slot]] = Role::Slot(slot as u16));
    }
    let assembly = only(&all);
    assert!(!matches!(assembly.state, ArrayState::SplitBrain { .. }), "{:?}", assembly.state);
    assert!(matches!(verdicts(&assembly)[0], Verdict::Stale { slot: Some(0), .. }));
    // Without the one in between nothing tells.
    all.remove(1);
    assert!(matches!(only(&all).state, ArrayState::SplitBrain { .. }));
}

#[test]
fn clones_and_double_claims() {
    let mut all = candidates("raid1-2-v12-writemostly");
    let mut clone = all[1].clone();
    clone.drive = 5;
    all.push(clone);
    let assembly = only(&all);
    assert_eq!(verdicts(&assembly)[2], Verdict::DuplicateOf { candidate: 1 });
    assert_eq!(assembly.state, ArrayState::Startable);
    // Written apart: no telling which is right.
    let updated = all[2].view.updated;
    all[2].view.updated = Timestamp::new(updated.seconds() + 9, 0);
    let refused = Refusal::DoubleClaim { slot: 1, candidate: 1, other: 2 };
    assert_eq!(only(&all).state, ArrayState::Refused(refused));
    // Of unequal copies the newer counts.
    all[2].view.events += 1;
    let assembly = only(&all);
    assert_eq!(verdicts(&assembly)[1], Verdict::DuplicateOf { candidate: 2 });
}

#[test]
fn unknown_features_clusters_and_conflicts_are_refused() {
    let state = |change: &dyn Fn(&mut Vec<Candidate>)| {
        let mut all = candidates("raid5-4-left-symmetric-v12");
        change(&mut all);
        only(&all).state
    };
    let features =
        |bits| state(&|all| all.iter_mut().for_each(|c| c.view.features = Features(bits)));
    let unknown = Refusal::UnknownFeatures(Features(1 << 20));
    assert_eq!(features(1 << 20), ArrayState::Refused(unknown));
    assert_eq!(features(Features::CLUSTERED.0), ArrayState::Refused(Refusal::Clustered));
    let faulty = state(&|all| all.iter_mut().for_each(|c| c.view.layout.level = Level::Faulty));
    assert_eq!(faulty, ArrayState::Refused(Refusal::UnsupportedLevel(Level::Faulty)));
    let conflict = state(&|all| all[2].view.layout.chunk_bytes *= 2);
    let ArrayState::Refused(Refusal::ConflictingShape { .. }) = conflict else {
        panic!("{conflict:?}");
    };
}

#[test]
fn ghosts_blanks_and_short_drives_never_take_part() {
    let mut all = candidates("raid5-4-left-symmetric-v12");
    // A former array's superblock on the drive of member 0.
    let mut ghosts = candidates("linear-3-unequal-v090");
    ghosts.truncate(1);
    ghosts[0].view.updated = Timestamp::new(1, 0);
    all.extend(ghosts);
    // A member wiped to an empty header.
    let mut blank = all[1].clone();
    (blank.drive, blank.view.set_uuid, blank.view.layout.raid_disks) = (7, Uuid::default(), 0);
    all.push(blank);
    let sets = judge(&all);
    assert_eq!(sets.len(), 3);
    assert!(sets[0].is_whole());
    let nothing = ArrayState::Refused(Refusal::NothingUsable);
    assert_eq!((verdicts(&sets[1]), &sets[1].state), (vec![Verdict::Ghost { newer: 0 }], &nothing));
    assert_eq!((verdicts(&sets[2]), &sets[2].state), (vec![Verdict::Blank], &nothing));
    // A drive whose end is hidden.
    let member = &members("raid5-4-left-symmetric-v12")[0];
    let place = places(member.device_bytes).next().expect("large enough");
    let bytes = member.read(place.offset_bytes, SUPERBLOCK_BYTES);
    let superblock = Superblock::parse(&bytes, place).expect("valid");
    all.truncate(4);
    all[0].implausible = superblock.validate(member.device_bytes - 1_081_856).err();
    let assembly = only(&all);
    assert_eq!(verdicts(&assembly)[0], Verdict::TooSmall { missing_bytes: 1_081_856 });
    assert_eq!(verdicts(&assembly)[1..], in_sync(1..4));
}

/// Few values for each field, so that members meet and contradict each other often.
fn any_candidate() -> impl Strategy<Value = Candidate> {
    let base = candidates("raid5-4-left-symmetric-v12").remove(0);
    let role = (0_u16..8).prop_map(|code| match code {
        0..6 => Role::Slot(code),
        6 => Role::Faulty,
        _ => Role::Spare,
    });
    let roles = prop::collection::vec(role, 0..8);
    let flags = (any::<bool>(), 0_u32..1 << 13, 0_u8..3);
    (0..5_usize, 0..3_u8, 0..6_u64, 0..9_u32, 0..7_u32, roles, flags, 0..4_u8).prop_map(
        move |(drive, set, events, dev_number, raid_disks, roles, flags, device)| {
            let (recovering, features, seconds) = flags;
            let mut candidate = base.clone();
            candidate.drive = drive;
            let view = &mut candidate.view;
            view.set_uuid = Uuid([set; 16]);
            view.device_uuid = Some(Uuid([device; 16]));
            view.role = roles.get(dev_number as usize).copied().unwrap_or(Role::Spare);
            view.layout.raid_disks = raid_disks;
            view.features = Features(features);
            view.replacement = features & 16 != 0;
            view.recovered_to_bytes = recovering.then_some(4096);
            view.updated = Timestamp::new(seconds.into(), 0);
            view.devflags = DevFlags(0);
            (view.events, view.dev_number, view.roles) = (events, dev_number, roles);
            candidate
        },
    )
}

proptest! {
    #[test]
    fn any_mix_gets_one_verdict_per_candidate(all in prop::collection::vec(any_candidate(), 0..9)) {
        let sets = judge(&all);
        let mut seen: Vec<usize> = Vec::new();
        for set in &sets {
            for &(candidate, verdict) in &set.verdicts {
                seen.push(candidate);
                prop_assert!(!verdict.to_string().is_empty());
            }
            for (slot, member) in set.slots.iter().enumerate() {
                let Some(member) = *member else { continue };
                let slot = slot as u16;
                let verdict = set.verdict(member);
                let held = match verdict {
                    Some(Verdict::Recovering { slot, .. } | Verdict::InSync { slot }) => Some(slot),
                    _ => None,
                };
                prop_assert_eq!(held, Some(slot));
                // Nothing old is ever in a slot.
                let newest = all[set.reference].view.events;
                prop_assert!(all[member].view.events + 1 >= newest);
            }
        }
        seen.sort_unstable();
        prop_assert_eq!(seen, (0..all.len()).collect::<Vec<_>>());
    }
}
