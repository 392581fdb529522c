//! What a scrub found, in words of the array: which bytes of it, which members, where on them, and
//! the contents that are at odds, so that they can be saved and compared.

use format::own::scrub::{Finding, FindingKind, Outcome, ScrubCounts, ScrubKind, ScrubState};
use geometry::{Geometry, Role};
use world::BufMut;

use crate::batch::ReadBatch;
use crate::core::Core;
use crate::lock::Mode;

/// What a member holds of a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// These bytes of the array, as the only one or as one of several copies.
    Data {
        /// Their first, in bytes of the array.
        array_offset: u64,
    },
    /// The parity P of the stripe.
    P,
    /// The parity Q of the stripe.
    Q,
}

/// A member that has to do with a mismatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Involved {
    /// Its slot.
    pub slot: usize,
    /// What it holds there.
    pub holds: Holds,
    /// Where, in bytes of its data area.
    pub data_offset: u64,
    /// Where, in bytes from the start of the drive; `None` where no drive is in the slot.
    pub drive_offset: Option<u64>,
}

/// A range in which redundancy does not agree, or could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// What was found.
    pub kind: FindingKind,
    /// The first byte of the array it concerns: of the member that is wrong, where that is known
    /// and holds data; else of the first member that holds data there.
    pub array_offset: u64,
    /// Bytes on each member.
    pub bytes: u64,
    /// The stripe, on levels with parity.
    pub stripe: Option<u64>,
    /// All members that hold something there, by role: data in order, P, Q; copies in order.
    pub members: Vec<Involved>,
    /// The slot that is wrong, or could not be read; `None`: nobody can know.
    pub slot: Option<usize>,
    /// What was done.
    pub outcome: Outcome,
}

/// The state and result of the last scrub, or of the one under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScrubStatus {
    /// What it was to do.
    pub kind: ScrubKind,
    /// How it stands.
    pub state: ScrubState,
    /// When it was started, seconds since 1970.
    pub started_seconds: u64,
    /// When this was last recorded, seconds since 1970.
    pub recorded_seconds: u64,
    /// Everything before this was gone over: bytes of each member, of the array for mirrors.
    pub position_bytes: u64,
    /// Where it ends, in the same measure.
    pub end_bytes: u64,
    /// What was counted, each with its unit.
    pub counts: ScrubCounts,
    /// The first ranges found, by position; `counts.findings` says how many there are.
    pub findings: Vec<Mismatch>,
}

/// The contents of one member that are at odds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The member.
    pub member: Involved,
    /// What it holds; `None` where it can't be read.
    pub read: Option<Vec<u8>>,
    /// What the others say it should hold; `None` where they are too few, and for copies, where
    /// the others' content is what they hold.
    pub computed: Option<Vec<u8>>,
}

impl ScrubStatus {
    pub(crate) fn of(core: &Core) -> Option<Self> {
        let record = core.scrub.record()?;
        Some(ScrubStatus {
            kind: record.kind,
            state: record.state,
            started_seconds: record.started_seconds,
            recorded_seconds: record.written_seconds,
            position_bytes: record.position,
            end_bytes: record.end,
            counts: record.counts,
            findings: record.findings.iter().filter_map(|found| place(core, found)).collect(),
        })
    }
}

/// A finding with its members; `None` if it does not lie in the array, which a record that another
/// shape of the set has left behind may say.
fn place(core: &Core, finding: &Finding) -> Option<Mismatch> {
    let Finding { position, bytes, kind, slot, outcome } = *finding;
    let slot = slot.map(usize::from);
    let on = |slot: usize, holds: Holds, data_offset: u64| {
        let member = core.slots.get(slot).and_then(|slot| slot.member());
        let drive_offset = member.map(|member| member.data_offset + data_offset);
        Involved { slot, holds, data_offset, drive_offset }
    };
    let end = position.checked_add(bytes).filter(|_| bytes > 0)?;
    let (stripe, members) = match &core.geometry {
        Geometry::Parity(parity) => {
            let chunk = parity.chunk_bytes();
            let stripe = position / chunk;
            if stripe >= parity.stripes() || end > (stripe + 1) * chunk {
                return None;
            }
            let map = parity.stripe(stripe);
            let data = |column: usize| {
                let start = stripe * parity.stripe_bytes() + column as u64 * chunk;
                let array_offset = start + position % chunk;
                on(map.data(column), Holds::Data { array_offset }, position)
            };
            let mut members: Vec<Involved> = (0..map.data_members()).map(data).collect();
            members.push(on(map.p(), Holds::P, position));
            members.extend(map.q().map(|slot| on(slot, Holds::Q, position)));
            (Some(stripe), members)
        }
        geometry => {
            if end > geometry.array_bytes() {
                return None;
            }
            let run = geometry.runs(position, bytes).next().filter(|run| run.bytes == bytes)?;
            let copy = |copy| {
                let place = geometry.copy(&run, copy);
                on(place.member, Holds::Data { array_offset: position }, place.offset)
            };
            (None, (0..geometry.copies()).map(copy).collect())
        }
    };
    let data = members.iter().filter_map(|member| match member.holds {
        Holds::Data { array_offset } => Some((member.slot, array_offset)),
        Holds::P | Holds::Q => None,
    });
    let first = data.clone().next()?.1;
    let of_slot = data.clone().find(|(of, _)| Some(*of) == slot);
    let array_offset = of_slot.map_or(first, |(_, array_offset)| array_offset);
    Some(Mismatch { kind, array_offset, bytes, stripe, members, slot, outcome })
}

/// Reads what every member holds at a mismatch, and computes what it should hold.
pub(crate) async fn candidates(core: &Core, mismatch: &Mismatch) -> Vec<Candidate> {
    let locked = match (&core.geometry, mismatch.stripe) {
        (Geometry::Parity(_), Some(stripe)) => stripe..stripe + 1,
        _ => mismatch.array_offset..mismatch.array_offset + mismatch.bytes,
    };
    let _lock = core.locks.lock(locked, Mode::Shared).await;
    let mut batch = ReadBatch::new();
    for (index, member) in mismatch.members.iter().enumerate() {
        if core.slots[member.slot].readable(member.data_offset, mismatch.bytes) {
            let buffer = core.world.pool().take(mismatch.bytes as usize);
            batch.add(member.slot, member.data_offset, buffer, index);
        }
    }
    let results = batch.run(core).await;
    let mut read: Vec<Option<BufMut>> =
        std::iter::repeat_with(|| None).take(mismatch.members.len()).collect();
    for (index, buffer) in results.read {
        read[index] = Some(buffer);
    }
    let contents: Vec<Option<&[u8]>> = read.iter().map(Option::as_deref).collect();
    let computed = (0..contents.len()).map(|index| computed(core, mismatch, &contents, index));
    let computed: Vec<Option<Vec<u8>>> = computed.collect();
    let members = mismatch.members.iter().zip(contents).zip(computed);
    members
        .map(|((member, read), computed)| Candidate {
            member: *member,
            read: read.map(<[u8]>::to_vec),
            computed,
        })
        .collect()
}

/// What the member of this index should hold, as the others say: data from the others and P, else
/// Q; P and Q from the data.
fn computed(
    core: &Core,
    mismatch: &Mismatch,
    contents: &[Option<&[u8]>],
    index: usize,
) -> Option<Vec<u8>> {
    let Geometry::Parity(parity) = &core.geometry else { return None };
    let map = parity.stripe(mismatch.stripe?);
    let wanted = map.role(mismatch.members[index].slot);
    let columns = map.data_members();
    let mut blocks: Vec<Vec<u8>> = contents
        .iter()
        .map(|content| content.map_or_else(|| vec![0; mismatch.bytes as usize], <[u8]>::to_vec))
        .collect();
    let role_of = |role| match role {
        Role::Data(column) => parity::Role::Data(map.exponent(column)),
        Role::P => parity::Role::P,
        Role::Q => parity::Role::Q,
    };
    let mut lost = vec![role_of(wanted)];
    for (other, content) in contents.iter().enumerate() {
        if other != index && content.is_none() {
            lost.push(role_of(map.role(mismatch.members[other].slot)));
        }
    }
    let places = if map.q().is_some() { map.exponents() } else { columns };
    let mut data: Vec<Option<&mut [u8]>> = std::iter::repeat_with(|| None).take(places).collect();
    let (data_blocks, parities) = blocks.split_at_mut(columns);
    for (column, block) in data_blocks.iter_mut().enumerate() {
        data[map.exponent(column)] = Some(block);
    }
    let mut parities = parities.iter_mut().map(|block| &mut block[..]);
    let (p, q) = (parities.next(), parities.next());
    parity::recover(&mut parity::Blocks { data, p, q }, &lost).ok()?;
    Some(blocks.swap_remove(index))
}
