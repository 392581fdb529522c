//! The levels, with md's numbers and the names people type.
//!
//! Nested levels (50, 60, 10 made by hand) are no levels of their own: an array is itself
//! a drive. RAID 3 is RAID 4 with the smallest chunk, so its name parses as [`Level::Raid4`];
//! whoever parses it chooses the chunk.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// How an array spreads its bytes over members.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Members one after the other: span, JBOD.
    Linear,
    /// Striping without redundancy; unequal members give zones.
    Raid0,
    /// The same bytes on every member.
    Raid1,
    /// Striped copies: near, far or offset, on any number of members.
    Raid10,
    /// Parity on the last member.
    Raid4,
    /// Rotating parity.
    Raid5,
    /// Rotating P and Q.
    Raid6,
}

/// A level that is not one of ours.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LevelError {
    /// md uses this number for something else (multipath, faulty, container), or not at all.
    #[error("md level {0} is not supported")]
    Number(i32),
    /// No level has this name.
    #[error(
        "unknown level {0:?}: expected linear, raid0, raid1, raid3, raid4, raid5, raid6 or raid10"
    )]
    Name(String),
}

impl Level {
    /// Every level, in the order of the enum.
    pub const ALL: [Level; 7] = [
        Level::Linear,
        Level::Raid0,
        Level::Raid1,
        Level::Raid10,
        Level::Raid4,
        Level::Raid5,
        Level::Raid6,
    ];

    /// The fewest members md starts an array of this level with.
    pub fn members_min(self) -> usize {
        match self {
            Level::Linear | Level::Raid0 | Level::Raid1 => 1,
            Level::Raid10 | Level::Raid4 | Level::Raid5 => 2,
            Level::Raid6 => 4,
        }
    }

    /// Parity chunks in each stripe: 1 for RAID 4 and 5, 2 for RAID 6, else 0.
    pub fn parities(self) -> usize {
        match self {
            Level::Raid4 | Level::Raid5 => 1,
            Level::Raid6 => 2,
            Level::Linear | Level::Raid0 | Level::Raid1 | Level::Raid10 => 0,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Level::Linear => "linear",
            Level::Raid0 => "raid0",
            Level::Raid1 => "raid1",
            Level::Raid10 => "raid10",
            Level::Raid4 => "raid4",
            Level::Raid5 => "raid5",
            Level::Raid6 => "raid6",
        }
    }
}

impl From<Level> for i32 {
    fn from(level: Level) -> i32 {
        match level {
            Level::Linear => -1,
            Level::Raid0 => 0,
            Level::Raid1 => 1,
            Level::Raid10 => 10,
            Level::Raid4 => 4,
            Level::Raid5 => 5,
            Level::Raid6 => 6,
        }
    }
}

impl TryFrom<i32> for Level {
    type Error = LevelError;

    fn try_from(number: i32) -> Result<Level, LevelError> {
        Level::ALL
            .into_iter()
            .find(|level| i32::from(*level) == number)
            .ok_or(LevelError::Number(number))
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Level {
    type Err = LevelError;

    fn from_str(name: &str) -> Result<Level, LevelError> {
        match name.to_ascii_lowercase().as_str() {
            "linear" | "jbod" | "span" => Ok(Level::Linear),
            "raid0" => Ok(Level::Raid0),
            "raid1" => Ok(Level::Raid1),
            "raid10" => Ok(Level::Raid10),
            "raid3" | "raid4" => Ok(Level::Raid4),
            "raid5" => Ok(Level::Raid5),
            "raid6" => Ok(Level::Raid6),
            _ => Err(LevelError::Name(name.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_return() {
        for level in Level::ALL {
            assert_eq!(level.to_string().parse::<Level>(), Ok(level));
            assert_eq!(Level::try_from(i32::from(level)), Ok(level));
        }
        assert_eq!("JBOD".parse::<Level>(), Ok(Level::Linear));
        assert_eq!("span".parse::<Level>(), Ok(Level::Linear));
        assert_eq!("raid3".parse::<Level>(), Ok(Level::Raid4));
    }

    #[test]
    fn others_are_refused() {
        assert_eq!(Level::try_from(-4), Err(LevelError::Number(-4)));
        assert_eq!("raid7".parse::<Level>(), Err(LevelError::Name("raid7".into())));
    }
}
