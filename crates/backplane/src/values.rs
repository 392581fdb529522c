//! Sizes, durations and levels as people write them, and the values they stand for.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use geometry::Level;
use lab::units;

/// Words that are no value of their kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// No size.
    #[error("expected bytes or a size such as 64K, 1M, 10G or 2T (powers of 1024)")]
    Size,
    /// Beyond what the kernel can address.
    #[error("no file or drive is that large: less than 8388608T is possible")]
    TooLarge,
    /// No duration.
    #[error("expected a duration such as 500ms, 10s or 2m")]
    Duration,
    /// No level.
    #[error(
        "expected linear (or jbod, span), raid0, raid1, raid3, raid4, raid5, raid6, raid10, \
         raid50 or raid60"
    )]
    Level,
    /// Consistency that does not exist.
    #[error("expected none, resync, bitmap, ppl or journal=DRIVE")]
    Consistency,
}

/// Reads a size in bytes.
pub fn size(text: &str) -> Result<u64, ValueError> {
    let bytes = units::parse_size(text).ok_or(ValueError::Size)?;
    if i64::try_from(bytes).is_ok() { Ok(bytes) } else { Err(ValueError::TooLarge) }
}

/// Reads a duration.
pub fn duration(text: &str) -> Result<Duration, ValueError> {
    units::parse_duration_ns(text).map(Duration::from_nanos).ok_or(ValueError::Duration)
}

/// Bytes with the exact number behind: `1.5 GiB (1610612736 bytes)`; only the number where that
/// says it all.
pub fn exact_size(bytes: u64) -> String {
    if bytes < 1024 {
        format!("{bytes} bytes")
    } else {
        format!("{} ({bytes} bytes)", units::size(bytes))
    }
}

/// A point in time, in seconds since 1970, as date and time in UTC.
pub fn date(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|s| jiff::Timestamp::from_second(s).ok());
    time.map_or_else(
        || format!("{seconds} s after 1970"),
        |time| time.strftime("%Y-%m-%d %H:%M UTC").to_string(),
    )
}

/// A level as it is asked for: one of the engine's, or one nested in RAID 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskedLevel {
    /// One array.
    Plain {
        /// Its level.
        level: Level,
        /// RAID 3: the smallest chunk, so that all members move together.
        smallest_chunk: bool,
    },
    /// RAID 0 over arrays of this level.
    Nested(Level),
}

impl FromStr for AskedLevel {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let word = text.to_ascii_lowercase();
        match word.as_str() {
            "raid50" => return Ok(AskedLevel::Nested(Level::Raid5)),
            "raid60" => return Ok(AskedLevel::Nested(Level::Raid6)),
            _ => {}
        }
        let level = word.parse().map_err(|_| ValueError::Level)?;
        Ok(AskedLevel::Plain { level, smallest_chunk: word == "raid3" })
    }
}

/// Which record of writes in flight is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AskedConsistency {
    /// Nothing: after a crash everything is brought to agree again (`none` for levels that have
    /// nothing to agree).
    Resync,
    /// The parts that were being written.
    Bitmap,
    /// Parity of the stripes that were being written.
    Ppl,
    /// What was being written, on this drive.
    Journal(PathBuf),
}

impl FromStr for AskedConsistency {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "none" | "resync" => Ok(AskedConsistency::Resync),
            "bitmap" => Ok(AskedConsistency::Bitmap),
            "ppl" => Ok(AskedConsistency::Ppl),
            _ => match text.strip_prefix("journal=") {
                Some(drive) if !drive.is_empty() => Ok(AskedConsistency::Journal(drive.into())),
                _ => Err(ValueError::Consistency),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_are_read_or_refused() {
        let sizes = [("4096", Some(4096)), ("64K", Some(65536)), ("10G", Some(10 << 30))];
        let bad = ["", "K", "1.5G", "-1", "64KB", "99999999999T", "1 G"];
        for (text, bytes) in sizes.into_iter().chain(bad.map(|text| (text, None))) {
            assert_eq!(size(text).ok(), bytes, "{text:?}");
        }
        assert_eq!(size("8388608T"), Err(ValueError::TooLarge));
        let durations = [("500ms", Some(500)), ("10s", Some(10_000)), ("2m", Some(120_000))];
        for (text, ms) in durations.into_iter().chain(["", "10", "s", "1d"].map(|t| (t, None))) {
            assert_eq!(duration(text).ok(), ms.map(Duration::from_millis), "{text:?}");
        }
    }

    #[test]
    fn levels_have_their_usual_names() {
        let plain = |level, smallest_chunk| Ok(AskedLevel::Plain { level, smallest_chunk });
        assert_eq!("RAID5".parse(), plain(Level::Raid5, false));
        assert_eq!("raid3".parse(), plain(Level::Raid4, true));
        assert_eq!("jbod".parse(), plain(Level::Linear, false));
        assert_eq!("raid60".parse(), Ok(AskedLevel::Nested(Level::Raid6)));
        assert_eq!("raid7".parse::<AskedLevel>(), Err(ValueError::Level));
    }

    #[test]
    fn a_journal_needs_its_drive() {
        assert_eq!("journal=".parse::<AskedConsistency>(), Err(ValueError::Consistency));
        assert_eq!("journal=x".parse(), Ok(AskedConsistency::Journal("x".into())));
    }
}
