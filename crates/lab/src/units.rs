//! Sizes, rates and times between text and numbers.
//!
//! Sizes in plans and block sizes in reports are powers of 1024 (`64K` is
//! 65 536 bytes), because that is what blocks and chunks are. Rates are powers
//! of 1000 (1 MB/s is 10^6 bytes per second), because that is what drives are
//! sold and links are rated by. The report says so where it prints them.
//!
//! Parsing returns `None` on bad input: the caller knows where the text stood
//! and words the error. Formatting is deterministic and has no locale.

/// Binary suffixes, largest first, with their factors.
const BINARY: [(char, u64); 4] = [('T', 1 << 40), ('G', 1 << 30), ('M', 1 << 20), ('K', 1 << 10)];

/// Nanoseconds in a second.
pub const NS_PER_SECOND: u64 = 1_000_000_000;

/// Reads a size such as `4096`, `64K`, `1M`, `10G` or `2T` (powers of 1024) in bytes.
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let last = text.chars().last()?;
    let (digits, factor) = match BINARY.iter().find(|(suffix, _)| *suffix == last) {
        Some((_, factor)) => (&text[..text.len() - 1], *factor),
        None => (text, 1),
    };
    parse_digits(digits)?.checked_mul(factor)
}

/// Reads a duration such as `500ms`, `10s` or `2m` in nanoseconds.
pub fn parse_duration_ns(text: &str) -> Option<u64> {
    let text = text.trim();
    // `ms` before `s` and `m`: the longest suffix that fits is meant.
    let suffixes: [(&str, u64); 4] = [
        ("ms", 1_000_000),
        ("s", NS_PER_SECOND),
        ("m", 60 * NS_PER_SECOND),
        ("h", 3600 * NS_PER_SECOND),
    ];
    let (digits, factor) = suffixes
        .iter()
        .find_map(|(suffix, factor)| text.strip_suffix(suffix).map(|digits| (digits, *factor)))?;
    parse_digits(digits)?.checked_mul(factor)
}

/// Decimal digits only: no sign, no space, no fraction.
fn parse_digits(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

/// Writes a size as a plan would: `512`, `4K`, `1536`, `1M`. Exact, and read back by
/// [`parse_size`].
pub fn plan_size(bytes: u64) -> String {
    for (suffix, factor) in BINARY {
        if bytes >= factor && bytes.is_multiple_of(factor) {
            return format!("{}{suffix}", bytes / factor);
        }
    }
    bytes.to_string()
}

/// Writes a size for a reader: `512 B`, `4 KiB`, `1 MiB`, `1.5 GiB`.
pub fn size(bytes: u64) -> String {
    for (suffix, factor) in BINARY {
        if bytes >= factor {
            let value = bytes as f64 / factor as f64;
            return format!("{} {suffix}iB", trimmed(value, 1));
        }
    }
    format!("{bytes} B")
}

/// Writes a duration in nanoseconds for a reader: `850 ns`, `85.2 µs`, `1.30 ms`, `2 s`, `2 min 5
/// s`.
pub fn duration(ns: u64) -> String {
    let value = ns as f64;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} µs", significant(value / 1e3)),
        1_000_000..NS_PER_SECOND => format!("{} ms", significant(value / 1e6)),
        _ if ns < 60 * NS_PER_SECOND => format!("{} s", trimmed(value / 1e9, 2)),
        _ => {
            let seconds = ns.div_ceil(NS_PER_SECOND);
            let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
            let parts = [(hours, "h"), (minutes, "min"), (rest, "s")];
            let parts: Vec<String> = parts
                .iter()
                .filter(|(amount, _)| *amount > 0)
                .map(|(amount, unit)| format!("{amount} {unit}"))
                .collect();
            parts.join(" ")
        }
    }
}

/// Writes a rate in bytes per second: `512 kB/s`, `85.2 MB/s`, `2.91 GB/s` (powers of 1000).
pub fn rate(bytes_per_second: f64) -> String {
    match bytes_per_second {
        value if value >= 1e9 => format!("{} GB/s", significant(value / 1e9)),
        value if value >= 1e6 => format!("{} MB/s", significant(value / 1e6)),
        value => format!("{} kB/s", significant(value / 1e3)),
    }
}

/// Writes a number with three significant digits, without an exponent: `0.0123`, `8.52`, `85.2`,
/// `852`, `8520`.
pub fn significant(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return "0".to_owned();
    }
    let magnitude = value.abs().log10().floor() as i32;
    if magnitude >= 2 {
        // Whole numbers, rounded to three digits: 12 345 is not known to the last digit.
        let step = 10f64.powi(magnitude - 2);
        return format!("{:.0}", (value / step).round() * step);
    }
    format!("{value:.*}", (2 - magnitude).unsigned_abs() as usize)
}

/// Writes a count with thin spaces between thousands, three significant digits: `186 000`.
pub fn count(value: f64) -> String {
    grouped(&significant(value))
}

/// Writes a whole number exactly, with thin spaces between thousands: `12 345`.
pub fn exact(value: u64) -> String {
    grouped(&value.to_string())
}

/// Puts a narrow no-break space between groups of three digits of the whole part.
fn grouped(digits: &str) -> String {
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mut text = String::new();
    for (index, digit) in whole.chars().enumerate() {
        let rest = whole.len() - index;
        // Four digits read well without a gap.
        if index > 0 && rest.is_multiple_of(3) && whole.len() > 4 {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    if !fraction.is_empty() {
        text.push('.');
        text.push_str(fraction);
    }
    text
}

/// A number with at most `places` decimals and no trailing zeros.
pub fn trimmed(value: f64, places: usize) -> String {
    let text = format!("{value:.places$}");
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024_or_plain_bytes() {
        let table = [
            ("512", Some(512)),
            ("4K", Some(4096)),
            ("1M", Some(1 << 20)),
            ("10G", Some(10 << 30)),
            ("2T", Some(2 << 40)),
            ("", None),
            ("K", None),
            ("4k", None),
            ("-4K", None),
            ("1.5M", None),
            ("4 K", None),
            ("99999999999999999999", None),
            ("99999999999T", None),
        ];
        for (text, expected) in table {
            assert_eq!(parse_size(text), expected, "{text}");
        }
    }

    #[test]
    fn durations_need_a_unit() {
        let table = [
            ("500ms", Some(500_000_000)),
            ("10s", Some(10 * NS_PER_SECOND)),
            ("2m", Some(120 * NS_PER_SECOND)),
            ("1h", Some(3600 * NS_PER_SECOND)),
            ("10", None),
            ("s", None),
            ("1.5s", None),
            ("99999999999999999h", None),
        ];
        for (text, expected) in table {
            assert_eq!(parse_duration_ns(text), expected, "{text}");
        }
    }

    #[test]
    fn plan_sizes_are_read_back() {
        for bytes in [0, 1, 512, 1000, 1024, 1536, 4096, 1 << 20, (1 << 20) + 512, 3 << 40] {
            assert_eq!(parse_size(&plan_size(bytes)), Some(bytes));
        }
    }

    #[test]
    fn numbers_are_written_for_readers() {
        assert_eq!(size(512), "512 B");
        assert_eq!(size(4096), "4 KiB");
        assert_eq!(size(3 << 29), "1.5 GiB");
        assert_eq!(duration(850), "850 ns");
        assert_eq!(duration(85_240), "85.2 µs");
        assert_eq!(duration(1_300_000), "1.30 ms");
        assert_eq!(duration(1_500_000_000), "1.5 s");
        assert_eq!(duration(125 * NS_PER_SECOND), "2 min 5 s");
        assert_eq!(rate(2.912e9), "2.91 GB/s");
        assert_eq!(rate(85.24e6), "85.2 MB/s");
        assert_eq!(rate(512e3), "512 kB/s");
        assert_eq!(count(186_432.0), "186\u{202f}000");
        assert_eq!(count(9_999.0), "10\u{202f}000");
        assert_eq!(count(0.0), "0");
        assert_eq!(exact(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(significant(0.012_34), "0.0123");
    }
}
