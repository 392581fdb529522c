//! A map file of what the last check or repair left wrong: which parts of the array are not to be
//! relied on.
//!
//! The form is that of GNU ddrescue's map files, which recovery and file-system tools read: each
//! line has a position, a size and a sign, `+` for what is well, `-` for what is not, `?` for what
//! was not looked at.

use crate::arrays::scrub::{DONE_WELL, Scrub};

/// The map of an array of `size_bytes`.
pub fn map_file(title: &str, size_bytes: u64, scrub: Option<&Scrub>) -> String {
    let mut text = format!("# Map of {title}: + agrees, - left wrong or lost, ? not compared\n");
    let Some(scrub) = scrub else {
        text.push_str("# no check has run\n0x0 ? 1\n");
        text.push_str(&line(0, size_bytes, '?'));
        return text;
    };
    let left = scrub.findings.iter().filter(|finding| !DONE_WELL.contains(&&*finding.done));
    let mut bad: Vec<(u64, u64)> = left.map(|f| (f.array_offset, f.bytes)).collect();
    bad.sort_unstable();
    let listed: u64 = scrub.findings.iter().map(|finding| finding.bytes).sum();
    let found = scrub.mismatched_bytes + scrub.unreadable_bytes;
    if found > listed {
        text.push_str(&format!("# {} bytes more were found than are listed\n", found - listed));
    }
    // Positions are of each member, or of the array: only a share is the same.
    let share = match scrub.end_bytes {
        0 => size_bytes,
        end => (u128::from(size_bytes) * u128::from(scrub.position_bytes) / u128::from(end)) as u64,
    };
    text.push_str(&format!("{share:#x} {} 1\n", if share < size_bytes { '?' } else { '+' }));
    let mut at = 0;
    for (start, bytes) in bad {
        let (start, end) = (start.max(at), (start + bytes).min(size_bytes));
        if start >= end {
            continue;
        }
        text.push_str(&well(at, start, share));
        text.push_str(&line(start, end - start, '-'));
        at = end;
    }
    text.push_str(&well(at, size_bytes, share));
    text
}

/// From `start` to `end` nothing was found; behind `compared` nobody has looked.
fn well(start: u64, end: u64, compared: u64) -> String {
    let middle = compared.clamp(start, end.max(start));
    line(start, middle - start, '+') + &line(middle, end.saturating_sub(middle), '?')
}

fn line(start: u64, bytes: u64, sign: char) -> String {
    if bytes == 0 { String::new() } else { format!("{start:#x} {bytes:#x} {sign}\n") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrays::scrub::Finding;

    fn finding(array_offset: u64, done: &str) -> Finding {
        Finding {
            what: "mismatch".into(),
            array_offset,
            bytes: 512,
            stripe: None,
            slot: None,
            done: done.into(),
            members: vec![],
        }
    }

    #[test]
    fn what_is_left_wrong_is_marked_and_the_rest_covered() {
        let findings = vec![
            finding(8192, "left as it is"),
            finding(4096, "mended"),
            finding(0, "mending failed"),
        ];
        let scrub = Scrub {
            kind: "check".into(),
            state: "stopped".into(),
            started_unix_s: 0,
            recorded_unix_s: 0,
            position_bytes: 3 << 13,
            end_bytes: 1 << 15,
            compared_bytes: 0,
            skipped_bytes: 0,
            mismatched_bytes: 2048,
            mismatched_stripes: 4,
            undecided_bytes: 0,
            unmended_bytes: 0,
            mended_bytes: 0,
            unreadable_bytes: 0,
            findings,
        };
        let map = map_file("data", 1 << 16, Some(&scrub));
        let lines: Vec<_> = map.lines().skip(1).collect();
        let expected = [
            "# 512 bytes more were found than are listed",
            "0xc000 ? 1",
            "0x0 0x200 -",
            "0x200 0x1e00 +",
            "0x2000 0x200 -",
            "0x2200 0x9e00 +",
            "0xc000 0x4000 ?",
        ];
        assert_eq!(lines, expected);
        let none = map_file("data", 1 << 16, None);
        assert!(none.ends_with("0x0 0x10000 ?\n"), "{none}");
    }
}
