//! Whether all redundancy on the members agrees, computed apart from the engine.

use array::Array;
use geometry::{Geometry, Parity, StripeMap};
use world::{BufMut, Pool};

use crate::bed::{Bed, SECTOR, Trouble};

/// What a member holds, where it can be read.
struct Content<'a> {
    bed: &'a Bed,
    /// Per slot the whole used area; `None` where the member can't be relied on as a whole.
    members: Vec<Option<BufMut>>,
}

impl Content<'_> {
    /// A piece of a member, unless it can't be read there.
    fn piece(&self, slot: usize, offset: u64, bytes: u64) -> Option<&[u8]> {
        let content = self.members[slot].as_ref()?;
        let well = !self.bed.impaired(slot, offset, bytes);
        well.then(|| &content[offset as usize..(offset + bytes) as usize])
    }
}

/// Reads all members and compares.
///
/// # Errors
/// The first place that does not agree.
pub async fn redundancy_agrees(bed: &Bed, array: &Array) -> Result<(), Trouble> {
    let geometry = array.geometry();
    let pool = bed.world.pool();
    let mut members = Vec::new();
    for slot in 0..geometry.members() {
        members.push(member(bed, pool, slot, geometry.used_bytes(slot)).await?);
    }
    let content = Content { bed, members };
    match geometry {
        Geometry::Parity(parity) => {
            (0..parity.stripes()).try_for_each(|stripe| stripe_agrees(&content, parity, stripe))
        }
        geometry => copies_agree(&content, geometry),
    }
}

async fn member(
    bed: &Bed,
    pool: &Pool,
    slot: usize,
    bytes: u64,
) -> Result<Option<BufMut>, Trouble> {
    if bed.is_gone(slot) {
        return Ok(None);
    }
    // Not through the faults: a latent error is no disagreement.
    let drive = bed.beneath(slot).as_ref();
    let read = array::read_bytes(pool, drive, bed.data_offset, bytes as usize).await;
    read.map(Some).map_err(|error| Trouble::Failed(format!("reading member {slot}: {error}")))
}

fn stripe_agrees(content: &Content<'_>, parity: &Parity, stripe: u64) -> Result<(), Trouble> {
    let map = parity.stripe(stripe);
    let chunk = parity.chunk_bytes();
    for within in (0..chunk).step_by(SECTOR as usize) {
        let offset = map.member_offset() + within;
        if content.bed.in_hole(offset / SECTOR) {
            continue;
        }
        row_agrees(content, &map, offset).map_err(|which| {
            Trouble::Failed(format!("{which} of stripe {stripe} is wrong at byte {within}"))
        })?;
    }
    Ok(())
}

/// One sector of each chunk. With one of them lost, RAID 6 still has one parity to compare.
fn row_agrees(content: &Content<'_>, map: &StripeMap, offset: u64) -> Result<(), &'static str> {
    let piece = |slot| content.piece(slot, offset, SECTOR);
    let mut columns: Vec<Option<Vec<u8>>> =
        (0..map.data_members()).map(|column| piece(map.data(column)).map(<[u8]>::to_vec)).collect();
    let (p, q) = (piece(map.p()), map.q().and_then(piece));
    let lost: Vec<usize> = (0..columns.len()).filter(|&column| columns[column].is_none()).collect();
    match (lost.as_slice(), p) {
        ([], _) => {}
        ([column], Some(p)) if q.is_some() => {
            let mut recovered = p.to_vec();
            columns.iter().flatten().for_each(|other| parity::xor_into(&mut recovered, other));
            columns[*column] = Some(recovered);
        }
        _ => return Ok(()),
    }
    let mut by_exponent: Vec<Option<&[u8]>> = vec![None; map.exponents().max(columns.len())];
    for (column, data) in columns.iter().enumerate() {
        by_exponent[map.exponent(column)] = data.as_deref();
    }
    let (mut p_right, mut q_right) = ([0; SECTOR as usize], [0; SECTOR as usize]);
    parity::pq(&mut p_right, &mut q_right, &by_exponent);
    if p.is_some_and(|p| p != p_right) {
        return Err("P");
    }
    if q.is_some_and(|q| q != q_right) {
        return Err("Q");
    }
    Ok(())
}

fn copies_agree(content: &Content<'_>, geometry: &Geometry) -> Result<(), Trouble> {
    for run in geometry.runs(0, geometry.array_bytes()) {
        for within in (0..run.bytes).step_by(SECTOR as usize) {
            let pieces = (0..geometry.copies()).filter_map(|copy| {
                let place = geometry.copy(&run, copy);
                content.piece(place.member, place.offset + within, SECTOR)
            });
            let pieces: Vec<&[u8]> = pieces.collect();
            if pieces.windows(2).any(|pair| pair[0] != pair[1]) {
                let at = run.array_offset + within;
                return Err(Trouble::Failed(format!("the copies of byte {at} differ")));
            }
        }
    }
    Ok(())
}
