//! A plan somebody wrote: a good one with any number of edits.
#![no_main]

use lab::Plan;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

const GOOD: &str = include_str!("../../plans/first-look.toml");

/// Takes the place of some characters.
#[derive(Arbitrary, Debug)]
struct Edit<'a> {
    at: u16,
    removed: u8,
    inserted: Inserted<'a>,
}

#[derive(Arbitrary, Debug)]
enum Inserted<'a> {
    Text(&'a str),
    Number(i64),
    Size(u16, Unit),
    /// Another part of the good plan.
    Copy {
        at: u16,
        length: u8,
    },
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Unit {
    Bytes,
    Kibi,
    Tebi,
    Seconds,
    Hours,
}

/// The characters from `at` on, wherever that falls.
fn cut(text: &str, at: usize, length: usize) -> (usize, usize) {
    let boundary = |mut at: usize| {
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        at
    };
    let start = boundary(at % (text.len() + 1));
    (start, boundary((start + length).min(text.len())))
}

fuzz_target!(|edits: Vec<Edit>| {
    let mut text = GOOD.to_owned();
    for Edit { at, removed, inserted } in edits.into_iter().take(64) {
        let (start, end) = cut(&text, at.into(), removed.into());
        let inserted = match inserted {
            Inserted::Text(text) => text.to_owned(),
            Inserted::Number(number) => number.to_string(),
            Inserted::Size(count, unit) => {
                let unit = match unit {
                    Unit::Bytes => "",
                    Unit::Kibi => "K",
                    Unit::Tebi => "T",
                    Unit::Seconds => "s",
                    Unit::Hours => "h",
                };
                format!("\"{count}{unit}\"")
            }
            Inserted::Copy { at, length } => {
                let (start, end) = cut(GOOD, at.into(), length.into());
                GOOD[start..end].to_owned()
            }
        };
        text.replace_range(start..end, &inserted);
    }
    match Plan::parse("plan.toml", &text) {
        Ok(plan) => {
            assert!(!plan.cells().is_empty(), "a plan that is accepted measures something");
            let _ = (plan.measuring_ns(), plan.written_paths());
            for test in &plan.tests {
                for block_bytes in test.blocks() {
                    assert!(test.spec_at(block_bytes).is_ok(), "checked before");
                }
            }
        }
        Err(error) => assert!(error.to_string().starts_with("plan.toml"), "{error}"),
    }
});
