//! What is accepted, what is refused and how it says so, and the largest arrays.

use geometry::{
    BYTES_MAX, Geometry, GeometryError, Home, Level, MEMBERS_MAX, Shape, default_layout,
};

fn shape(level: Level, members: usize, bytes: u64) -> Shape {
    Shape {
        level,
        layout: default_layout(level),
        chunk_bytes: 64 << 10,
        member_bytes: vec![bytes; members],
    }
}

#[test]
fn the_largest_arrays() {
    for level in Level::ALL {
        let members = level.members_min();
        let data = match level {
            Level::Raid10 => 1,
            _ => members - level.parities(),
        };
        let most = BYTES_MAX / data as u64;
        let geometry = Geometry::new(&shape(level, members, most)).unwrap();
        let size = geometry.array_bytes();
        assert!(size > BYTES_MAX - (1 << 20), "{level}: {size}");
        let run = geometry.runs(size - 1, 1).next().unwrap();
        let home = Home::Data { array_offset: size - 1, copy: 0 };
        assert_eq!(geometry.home(run.first.member, run.first.offset), Some(home));
        assert_eq!(
            Geometry::new(&shape(level, 2 * members, u64::MAX)),
            Err(GeometryError::TooLarge),
            "{level}"
        );
    }
}

#[test]
fn member_counts() {
    for level in Level::ALL {
        let min = level.members_min();
        let few = Geometry::new(&shape(level, min - 1, 1 << 30));
        let too_few = GeometryError::TooFewMembers { level, min, members: min - 1 };
        assert_eq!(few, Err(too_few));
        assert!(Geometry::new(&shape(level, min, 1 << 30)).is_ok());
        let many = Geometry::new(&shape(level, MEMBERS_MAX + 1, 1 << 30));
        assert!(matches!(many, Err(GeometryError::TooManyMembers { .. })));
    }
    // Q has 255 exponents: 257 members, but 255 where DDF's holes count.
    for (layout, max) in [(2, 257), (18, 257), (8, 255)] {
        for members in [max, max + 1] {
            let shape = Shape { layout, ..shape(Level::Raid6, members, 1 << 30) };
            assert_eq!(Geometry::new(&shape).is_ok(), members == max);
        }
    }
}

#[test]
fn chunks_layouts_and_sizes() {
    use GeometryError::{Layout, MemberTooSmall, NoCopies, TooManyCopies};
    for level in [Level::Raid0, Level::Raid10, Level::Raid4, Level::Raid5, Level::Raid6] {
        for chunk_bytes in [0, 1, 2048, 4097, 32 << 20] {
            let shape = Shape { chunk_bytes, ..shape(level, 4, 1 << 30) };
            let error = Geometry::new(&shape).unwrap_err();
            assert!(matches!(error, GeometryError::Chunk { bytes, .. } if bytes == chunk_bytes));
        }
        let error = Geometry::new(&shape(level, 4, 65535)).unwrap_err();
        assert!(matches!(error, MemberTooSmall { member: 0, bytes: 65535, .. }), "{level}");
    }
    let twelve =
        |level| Geometry::new(&Shape { chunk_bytes: 12 << 10, ..shape(level, 4, 1 << 30) });
    assert!(twelve(Level::Raid0).is_ok() && twelve(Level::Raid5).is_err());

    let with = |level, layout| Geometry::new(&Shape { layout, ..shape(level, 4, 1 << 30) });
    for (level, layout) in [
        (Level::Raid0, 3),
        (Level::Raid5, 6),
        (Level::Raid5, 16),
        (Level::Raid6, 6),
        (Level::Raid6, 7),
        (Level::Raid6, 11),
        (Level::Raid6, 21),
        (Level::Raid10, 0x002),
        (Level::Raid10, 0x200),
        (Level::Raid10, 0x60201),
    ] {
        assert_eq!(with(level, layout), Err(Layout { level, layout }));
    }
    assert_eq!(with(Level::Raid10, 0x101), Err(NoCopies { layout: 0x101 }));
    assert_eq!(
        with(Level::Raid10, 0x302),
        Err(TooManyCopies { layout: 0x302, copies: 6, members: 4 })
    );
    assert_eq!(
        Geometry::new(&shape(Level::Linear, 0, 1)).unwrap_err().to_string(),
        "linear needs at least 1 members, got 0"
    );
}

#[test]
fn stripes_for_large_requests() {
    let chunk = 64 << 10;
    for (level, layout, members, chunks) in [
        (Level::Raid0, 2, 4, 4),
        (Level::Raid10, 0x102, 4, 2),
        (Level::Raid10, 0x102, 5, 5),
        (Level::Raid10, 0x201, 4, 4),
        (Level::Raid4, 0, 4, 3),
        (Level::Raid5, 2, 4, 3),
        (Level::Raid6, 2, 6, 4),
    ] {
        let shape = Shape { layout, ..shape(level, members, 1 << 30) };
        assert_eq!(Geometry::new(&shape).unwrap().stripe_bytes(), chunks * chunk);
    }
}
