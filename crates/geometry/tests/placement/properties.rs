//! Arrays of any shape and size against the naive model: random ranges, up to the largest
//! arrays there can be.

use geometry::{BYTES_MAX, Geometry, Home, Level, Role, Shape};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::model;

/// Chunk sizes: powers of two from 4 KiB to 16 MiB.
fn chunk() -> impl Strategy<Value = u64> {
    (12..=24u32).prop_map(|shift| 1 << shift)
}

/// Sizes from a chunk to what leaves room for all members below the limit.
fn member_bytes(members: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = Vec<u64>> {
    members.prop_flat_map(|n| {
        let most = BYTES_MAX / n as u64;
        let size = (28..63u32, any::<u64>()).prop_map(move |(bits, random)| {
            let low = 1 << 28;
            low + random % (1u64 << bits).min(most - low)
        });
        vec(size, n)
    })
}

fn layouts(level: Level) -> Vec<u32> {
    match level {
        Level::Raid5 => (0..=5).collect(),
        Level::Raid6 => (0..=5).chain(8..=10).chain(16..=20).collect(),
        Level::Raid0 => vec![1, 2],
        Level::Raid10 => {
            vec![0x102, 0x103, 0x201, 0x301, 0x202, 0x10201, 0x10301, 0x20201, 0x40201, 0x40202]
        }
        Level::Linear | Level::Raid1 | Level::Raid4 => vec![0],
    }
}

/// Any shape the crate accepts.
fn shapes() -> impl Strategy<Value = (Shape, Geometry)> {
    select(Level::ALL.to_vec())
        .prop_flat_map(|level| {
            let members = level.members_min()..=24;
            (select(layouts(level)), chunk(), member_bytes(members)).prop_map(
                move |(layout, chunk_bytes, member_bytes)| Shape {
                    level,
                    layout,
                    chunk_bytes,
                    member_bytes,
                },
            )
        })
        .prop_filter_map("a layout that suits the members", |shape| {
            let geometry = Geometry::new(&shape).ok()?;
            Some((shape, geometry))
        })
}

/// A range of at most about a hundred chunks, at the ends of the array more often than not.
fn range(geometry: &Geometry, at: u64, bytes: u64, end: u8) -> (u64, u64) {
    let size = geometry.array_bytes();
    let bytes = bytes % (100 << 20).min(size) + 1;
    let offset = match end {
        0 => 0,
        1 => size - bytes,
        _ => at % (size - bytes + 1),
    };
    (offset, bytes)
}

proptest! {
    #[test]
    fn runs_tile_the_range_as_the_model_places_it(
        (shape, geometry) in shapes(),
        (at, bytes, end) in (any::<u64>(), any::<u64>(), 0..3u8),
    ) {
        let (offset, bytes) = range(&geometry, at, bytes, end);
        let mut next = offset;
        for run in geometry.runs(offset, bytes).take(200) {
            prop_assert_eq!(run.array_offset, next);
            prop_assert!(run.bytes > 0);
            let first = model::copies(&shape, run.array_offset);
            let last = model::copies(&shape, run.array_offset + run.bytes - 1);
            for copy in 0..geometry.copies() {
                let place = geometry.copy(&run, copy);
                prop_assert_eq!((place.member, place.offset), first[copy]);
                prop_assert_eq!((place.member, place.offset + run.bytes - 1), last[copy]);
                prop_assert!(place.offset + run.bytes <= geometry.used_bytes(place.member));
                let home = Home::Data { array_offset: run.array_offset, copy };
                prop_assert_eq!(geometry.home(place.member, place.offset), Some(home));
            }
            next += run.bytes;
        }
        let count = geometry.runs(offset, bytes).count();
        prop_assert!(count > 200 || next == offset + bytes);
        let total: u64 = geometry.runs(offset, bytes).map(|run| run.bytes).sum();
        prop_assert_eq!(total, bytes);
        if geometry.level() == Level::Raid1 {
            prop_assert_eq!(count, 1);
        }
    }

    #[test]
    fn home_is_where_the_model_says((shape, geometry) in shapes(), pick in any::<u64>(), at in any::<u64>()) {
        let member = (pick % geometry.members() as u64) as usize;
        let used = geometry.used_bytes(member);
        prop_assert!(used <= shape.member_bytes[member]);
        prop_assert_eq!(geometry.home(member, used), None);
        let at = at % used;
        match geometry.home(member, at) {
            Some(Home::Data { array_offset, copy }) => {
                prop_assert!(array_offset < geometry.array_bytes());
                prop_assert_eq!(model::copies(&shape, array_offset)[copy], (member, at));
            }
            Some(Home::P { stripe }) => {
                prop_assert_eq!(stripe, at / shape.chunk_bytes);
                prop_assert_eq!(model::stripe_cells(&shape, stripe)[member], model::Cell::P);
            }
            Some(Home::Q { stripe }) => {
                prop_assert_eq!(stripe, at / shape.chunk_bytes);
                prop_assert_eq!(model::stripe_cells(&shape, stripe)[member], model::Cell::Q);
            }
            // Only copies that don't come out even leave a hole, in the last chunk row.
            None => prop_assert!(
                geometry.level() == Level::Raid10 && !geometry.members().is_multiple_of(geometry.copies())
            ),
        }
    }

    #[test]
    fn a_stripe_has_each_role_once((_, geometry) in shapes(), at in any::<u64>()) {
        let Geometry::Parity(parity) = &geometry else { return Ok(()) };
        let index = at % parity.stripes();
        let map = parity.stripe(index);
        let mut data = vec![false; parity.data_members()];
        let mut exponents = vec![false; map.exponents()];
        let (mut p, mut q) = (0, 0);
        for member in 0..parity.members() {
            match map.role(member) {
                Role::Data(chunk) => {
                    prop_assert_eq!(map.data(chunk), member);
                    prop_assert!(!std::mem::replace(&mut data[chunk], true));
                    prop_assert!(!std::mem::replace(&mut exponents[map.exponent(chunk)], true));
                }
                Role::P => p += 1,
                Role::Q => q += 1,
            }
        }
        prop_assert_eq!((p, q), (1, parity.parities() - 1));
        prop_assert!(data.iter().all(|seen| *seen));
        for chunk in 0..parity.data_members() {
            let offset = index * parity.stripe_bytes() + chunk as u64 * parity.chunk_bytes();
            prop_assert_eq!(parity.stripe_of(offset + 7), (index, chunk, 7));
        }
    }

    /// Nonsense is an error, never a panic.
    #[test]
    fn any_shape_is_answered(
        level in select(Level::ALL.to_vec()),
        layout in prop_oneof![0..32u32, any::<u32>()],
        chunk_bytes in prop_oneof![Just(0), chunk(), any::<u64>()],
        member_bytes in vec(prop_oneof![any::<u64>(), Just(0), Just(u64::MAX), Just(BYTES_MAX)], 0..12),
    ) {
        let shape = Shape { level, layout, chunk_bytes, member_bytes };
        match Geometry::new(&shape) {
            Ok(geometry) => {
                prop_assert!((1..=BYTES_MAX).contains(&geometry.array_bytes()));
                prop_assert_eq!(geometry.members(), shape.member_bytes.len());
                for at in [0, geometry.array_bytes() - 1] {
                    let run = geometry.runs(at, 1).next().expect("one byte is one run");
                    for copy in 0..geometry.copies() {
                        let place = geometry.copy(&run, copy);
                        let home = Home::Data { array_offset: at, copy };
                        prop_assert_eq!(geometry.home(place.member, place.offset), Some(home));
                    }
                }
            }
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}
