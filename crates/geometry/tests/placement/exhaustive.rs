//! Small arrays whole: every level, layout and member count against the naive model, every
//! chunk in both directions, every set of missing members.

use std::collections::BTreeSet;

use crate::model::{self, Cell};
use geometry::{Geometry, GeometryError, Home, Level, Place, Role, Shape};

const CHUNK: u64 = 4096;

fn shape(level: Level, layout: u32, chunks: &[u64]) -> Shape {
    Shape {
        level,
        layout,
        chunk_bytes: CHUNK,
        // A tail that is no whole chunk, different for each member.
        member_bytes: (1..).zip(chunks).map(|(tail, c)| c * CHUNK + tail).collect(),
    }
}

/// Every chunk of the array at its first and last byte, and every chunk of every member.
fn check(shape: &Shape) {
    let geometry = Geometry::new(shape).unwrap_or_else(|error| panic!("{shape:?}: {error}"));
    let n = geometry.members();
    let mut homes = BTreeSet::new();
    let mut chunk_members = Vec::new();
    let mut offset = 0;
    // Steps of a chunk, except where linear members end between.
    for run in geometry.runs(0, geometry.array_bytes()) {
        assert_eq!(run.array_offset, offset, "{shape:?}");
        offset += run.bytes;
        for at in [run.array_offset, offset - 1] {
            let one = geometry.runs(at, 1).next().expect("one byte is one run");
            let places: Vec<Place> =
                (0..geometry.copies()).map(|k| geometry.copy(&one, k)).collect();
            let found: Vec<_> = places.iter().map(|p| (p.member, p.offset)).collect();
            assert_eq!(found, model::copies(shape, at), "{shape:?} at {at}");
            assert_eq!(places[0], one.first);
            for (copy, place) in places.iter().enumerate() {
                let home = Home::Data { array_offset: at, copy };
                assert_eq!(geometry.home(place.member, place.offset), Some(home), "{shape:?}");
                assert!(place.offset < geometry.used_bytes(place.member));
                assert!(homes.insert((place.member, place.offset)) || run.bytes == 1, "{shape:?}");
            }
            chunk_members.push(places.iter().map(|p| p.member).collect::<Vec<_>>());
        }
    }
    assert_eq!(offset, geometry.array_bytes());

    // From the members' side: whatever home() claims is real.
    let mut data_bytes = 0;
    for member in 0..n {
        let size = shape.member_bytes[member];
        for at in (0..size).step_by(512) {
            match geometry.home(member, at) {
                Some(Home::Data { array_offset, copy }) => {
                    let spots = model::copies(shape, array_offset);
                    assert_eq!(spots[copy], (member, at), "{shape:?}");
                    data_bytes += 512;
                }
                Some(_) => assert!(geometry.copies() == 1 && at < geometry.used_bytes(member)),
                None => {}
            }
        }
        assert_eq!(geometry.home(member, geometry.used_bytes(member)), None);
        assert_eq!(geometry.home(member, u64::MAX), None);
    }
    if shape.level != Level::Linear && shape.level != Level::Raid1 {
        let copies = geometry.copies() as u64;
        assert_eq!(data_bytes, geometry.array_bytes() * copies, "{shape:?}");
    }

    for lost in 0..1u32 << n {
        let missing: Vec<bool> = (0..n).map(|member| lost >> member & 1 == 1).collect();
        let expected = match &geometry {
            Geometry::Parity(parity) => lost.count_ones() as usize <= parity.parities(),
            _ => chunk_members.iter().all(|set| set.iter().any(|m| !missing[*m])),
        };
        assert_eq!(geometry.survives(&missing), expected, "{shape:?} {missing:?}");
    }
}

#[test]
fn linear_and_raid1() {
    for chunks in [&[1][..], &[3, 1], &[2, 2, 5], &[1, 2, 3, 4]] {
        check(&shape(Level::Linear, 0, chunks));
        check(&shape(Level::Raid1, 0, chunks));
        let mut unrounded = shape(Level::Linear, 0, chunks);
        unrounded.chunk_bytes = 0;
        check(&unrounded);
    }
}

/// Every combination of one to five members of one to three chunks, both orders.
#[test]
fn raid0() {
    for n in 1..=5 {
        for code in 0..3u64.pow(n) {
            let chunks: Vec<u64> = (0..n).map(|m| code / 3u64.pow(m) % 3 + 1).collect();
            for layout in [1, 2] {
                check(&shape(Level::Raid0, layout, &chunks));
            }
            let equal = chunks.iter().all(|c| *c == chunks[0]);
            let unknown = Geometry::new(&shape(Level::Raid0, 0, &chunks));
            match unknown {
                Ok(_) => assert!(equal),
                Err(error) => assert!(!equal && error == GeometryError::ZoneLayoutUnknown),
            }
        }
    }
}

/// A chunk that is no power of two, which md's RAID 0 takes.
#[test]
fn raid0_odd_chunk() {
    for layout in [1, 2] {
        check(&Shape {
            level: Level::Raid0,
            layout,
            chunk_bytes: 12 << 10,
            member_bytes: vec![100 << 10, 36 << 10, 72 << 10],
        });
    }
}

/// All near, far, offset and far set numbers on up to nine members. A layout is refused
/// exactly when md's formula would put two chunks in one place.
#[test]
fn raid10() {
    let mut refused = 0;
    for n in 2..=9 {
        for near in 1..=n {
            for far in 1..=n / near {
                if near * far < 2 {
                    continue;
                }
                for mode in 0..6 {
                    let layout = (near | far << 8 | mode << 16) as u32;
                    let rows = 2 * far as u64 + 1;
                    let shape = shape(Level::Raid10, layout, &vec![rows; n]);
                    if model::raid10_collides(&shape) {
                        refused += 1;
                        let error = GeometryError::Overlap { layout, members: n };
                        assert_eq!(Geometry::new(&shape), Err(error));
                    } else {
                        check(&shape);
                    }
                }
            }
        }
    }
    assert!(refused > 0);
}

/// Every layout on up to seven members, two full rotations and one stripe.
#[test]
fn parity() {
    let layouts = |level| -> &[u32] {
        match level {
            Level::Raid4 => &[0],
            Level::Raid5 => &[0, 1, 2, 3, 4, 5],
            _ => &[0, 1, 2, 3, 4, 5, 8, 9, 10, 16, 17, 18, 19, 20],
        }
    };
    for level in [Level::Raid4, Level::Raid5, Level::Raid6] {
        for n in level.members_min()..=7 {
            for &layout in layouts(level) {
                let shape = shape(level, layout, &vec![2 * n as u64 + 1; n]);
                check(&shape);
                check_stripes(&shape);
            }
        }
    }
}

fn check_stripes(shape: &Shape) {
    let Ok(Geometry::Parity(parity)) = Geometry::new(shape) else { panic!("{shape:?}") };
    for index in 0..parity.stripes() {
        let map = parity.stripe(index);
        let cells = model::stripe_cells(shape, index);
        assert_eq!(map.member_offset(), index * CHUNK);
        assert_eq!(map.data_members(), parity.data_members());
        for (member, cell) in cells.iter().enumerate() {
            let role = match cell {
                Cell::Data(index) => Role::Data(*index),
                Cell::P => Role::P,
                Cell::Q => Role::Q,
            };
            assert_eq!(map.role(member), role, "{shape:?} stripe {index}");
            match role {
                Role::Data(data) => assert_eq!(map.data(data), member),
                Role::P => assert_eq!(map.p(), member),
                Role::Q => assert_eq!(map.q(), Some(member)),
            }
        }
        if shape.level == Level::Raid6 {
            let exponents = model::exponents(shape, &cells);
            let found: Vec<_> = (0..parity.data_members()).map(|d| map.exponent(d)).collect();
            assert_eq!(found, exponents, "{shape:?} stripe {index}");
            let highest = exponents.iter().max().expect("data");
            assert_eq!(map.exponents(), highest + 1, "{shape:?} stripe {index}");
        } else {
            assert_eq!(map.q(), None);
        }
    }
}
