//! Layouts by name, as mdadm prints and takes them.
//!
//! RAID 10's number is made of parts, so its name is too: "near=2", "far=2", "offset=3",
//! "near=2, far=2"; short "n2", "f2", "o3". Far set modes, which mdadm cannot name, are
//! written "sets=1" and "sets=2" after the far copies.

use thiserror::Error;

use crate::Level;

/// RAID 5's layouts, then mdadm's short and DDF names for the same numbers.
const RAID5: &[(&str, u32)] = &[
    ("left-asymmetric", 0),
    ("right-asymmetric", 1),
    ("left-symmetric", 2),
    ("right-symmetric", 3),
    ("parity-first", 4),
    ("parity-last", 5),
    ("la", 0),
    ("ra", 1),
    ("ls", 2),
    ("rs", 3),
    ("ddf-zero-restart", 1),
    ("ddf-N-restart", 0),
    ("ddf-N-continue", 2),
];

/// RAID 6's layouts, then the short names.
const RAID6: &[(&str, u32)] = &[
    ("left-asymmetric", 0),
    ("right-asymmetric", 1),
    ("left-symmetric", 2),
    ("right-symmetric", 3),
    ("parity-first", 4),
    ("parity-last", 5),
    ("ddf-zero-restart", 8),
    ("ddf-N-restart", 9),
    ("ddf-N-continue", 10),
    ("left-asymmetric-6", 16),
    ("right-asymmetric-6", 17),
    ("left-symmetric-6", 18),
    ("right-symmetric-6", 19),
    ("parity-first-6", 20),
    ("la", 0),
    ("ra", 1),
    ("ls", 2),
    ("rs", 3),
];

/// RAID 0's orders of unequal members. "unknown" is what old superblocks say.
const RAID0: &[(&str, u32)] = &[("unknown", 0), ("original", 1), ("alternate", 2)];

/// A layout name that means nothing for the level.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// The level has layouts, but none of this name.
    #[error("unknown {level} layout {name:?}")]
    Unknown {
        /// The level asked for.
        level: Level,
        /// The name given.
        name: String,
    },
    /// The level has only one way to place its bytes.
    #[error("{level} has no layouts")]
    LevelHasNone {
        /// The level asked for.
        level: Level,
    },
}

/// md's number of the layout a new array gets: left-symmetric, near=2, alternate, else 0.
pub fn default_layout(level: Level) -> u32 {
    match level {
        Level::Raid5 | Level::Raid6 => 2,
        Level::Raid10 => 0x102,
        Level::Raid0 => 2,
        Level::Linear | Level::Raid1 | Level::Raid4 => 0,
    }
}

/// The layout's name; `None` where the level has no layouts, or not this one.
pub fn layout_name(level: Level, layout: u32) -> Option<String> {
    if level == Level::Raid10 {
        return raid10_name(layout);
    }
    let (name, _) = table(level).iter().find(|(_, number)| *number == layout)?;
    Some((*name).to_owned())
}

/// md's number of a layout by name, long or short; case does not matter.
///
/// # Errors
/// A name the level does not know. Whether the layout suits a number of members is
/// [`Geometry::new`](crate::Geometry::new)'s to say.
pub fn parse_layout(level: Level, name: &str) -> Result<u32, LayoutError> {
    let found = match level {
        Level::Linear | Level::Raid1 | Level::Raid4 => {
            return Err(LayoutError::LevelHasNone { level });
        }
        Level::Raid10 => raid10_number(name),
        Level::Raid0 | Level::Raid5 | Level::Raid6 => table(level)
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, number)| *number),
    };
    found.ok_or_else(|| LayoutError::Unknown { level, name: name.to_owned() })
}

fn table(level: Level) -> &'static [(&'static str, u32)] {
    match level {
        Level::Raid0 => RAID0,
        Level::Raid5 => RAID5,
        Level::Raid6 => RAID6,
        Level::Linear | Level::Raid1 | Level::Raid4 | Level::Raid10 => &[],
    }
}

fn raid10_name(layout: u32) -> Option<String> {
    let (near, far) = (layout & 0xff, layout >> 8 & 0xff);
    let (offset, sets) = (layout >> 16 & 1, layout >> 17);
    if near == 0 || far == 0 || sets > 2 {
        return None;
    }
    let mut parts = Vec::new();
    if near > 1 || far == 1 {
        parts.push(format!("near={near}"));
    }
    if far > 1 || offset == 1 {
        let kind = if offset == 1 { "offset" } else { "far" };
        parts.push(format!("{kind}={far}"));
    }
    if sets > 0 {
        parts.push(format!("sets={sets}"));
    }
    Some(parts.join(", "))
}

fn raid10_number(name: &str) -> Option<u32> {
    let (mut near, mut far, mut sets) = (None, None, None);
    for part in name.split(',') {
        let part = part.trim().to_ascii_lowercase();
        let digits = part.find(|c: char| c.is_ascii_digit())?;
        let (kind, number) = part.split_at(digits);
        let number: u32 = number.parse().ok().filter(|n| (1..=255).contains(n))?;
        let (slot, value) = match kind {
            "n" | "near=" => (&mut near, number),
            "f" | "far=" => (&mut far, number << 8),
            "o" | "offset=" => (&mut far, number << 8 | 1 << 16),
            "sets=" if number <= 2 => (&mut sets, number << 17),
            _ => return None,
        };
        if slot.replace(value).is_some() {
            return None;
        }
    }
    Some(near.unwrap_or(1) | far.unwrap_or(1 << 8) | sets.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_return_to_their_numbers() {
        let mut named = 0;
        for level in Level::ALL {
            for layout in (0..32).chain(0..0x8_0000) {
                if let Some(name) = layout_name(level, layout) {
                    assert_eq!(parse_layout(level, &name), Ok(layout), "{level} {name}");
                    named += 1;
                }
            }
        }
        assert!(named > 2 * 255 * 255);
    }

    #[test]
    fn mdadm_names() {
        let table = [
            (Level::Raid5, "left-symmetric", 2),
            (Level::Raid5, "LS", 2),
            (Level::Raid5, "ddf-zero-restart", 1),
            (Level::Raid6, "ddf-zero-restart", 8),
            (Level::Raid6, "ddf-N-restart", 9),
            (Level::Raid6, "left-symmetric-6", 18),
            (Level::Raid6, "parity-first-6", 20),
            (Level::Raid10, "near=2", 0x102),
            (Level::Raid10, "n2", 0x102),
            (Level::Raid10, "f2", 0x201),
            (Level::Raid10, "o2", 0x10201),
            (Level::Raid10, "offset=3", 0x10301),
            (Level::Raid10, "near=2, far=2", 0x202),
            (Level::Raid10, "far=2, sets=2", 0x40201),
            (Level::Raid0, "original", 1),
            (Level::Raid0, "alternate", 2),
        ];
        for (level, name, layout) in table {
            assert_eq!(parse_layout(level, name), Ok(layout), "{level} {name}");
        }
        assert_eq!(layout_name(Level::Raid10, 0x10201).as_deref(), Some("offset=2"));
        assert_eq!(layout_name(Level::Raid6, 7), None);
        assert_eq!(layout_name(Level::Raid10, 0x002), None);
    }

    #[test]
    fn nonsense_is_refused() {
        for name in ["", "n", "n0", "n256", "x2", "n2,n2", "f2,o2", "n2x", "sets=3", "near=-1"] {
            assert!(parse_layout(Level::Raid10, name).is_err(), "{name:?}");
        }
        assert!(parse_layout(Level::Raid5, "left-symmetric-6").is_err());
        assert_eq!(
            parse_layout(Level::Raid1, "near=2"),
            Err(LayoutError::LevelHasNone { level: Level::Raid1 })
        );
    }
}
