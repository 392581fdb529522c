//! What standard error shows when a command was not done: fact, detail, `hint:`.
//!
//! Errors of all rooms are typed; their text is a fact, and a hint on a line of its own that
//! begins with `hint: `. Sources are the details. This is the one place that puts them together.

use std::error::Error;
use std::fmt::{self, Display};
use std::io::Write;

use clap::builder::styling::{AnsiColor, Style};
use serde::{Deserialize, Serialize};

/// Any room's error on its way to standard error.
pub type Failure = Box<dyn Error>;

/// The word that starts a line with what to do.
const HINT: &str = "hint: ";

const RED: Style = AnsiColor::Red.on_default().bold();
const YELLOW: Style = AnsiColor::Yellow.on_default().bold();
const CYAN: Style = AnsiColor::Cyan.on_default().bold();

/// An error taken apart; it can go to another process and is the same error there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parts {
    /// What is the matter.
    pub fact: String,
    /// What else is known.
    #[serde(default)]
    pub details: Vec<String>,
    /// What to do.
    #[serde(default)]
    pub hints: Vec<String>,
}

impl fmt::Display for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.fact)?;
        self.details.iter().try_for_each(|detail| write!(f, "\n{detail}"))?;
        self.hints.iter().try_for_each(|hint| write!(f, "\n{HINT}{hint}"))
    }
}

impl Error for Parts {}

impl Parts {
    /// Of an error and its sources.
    pub fn of(error: &dyn Error) -> Self {
        let mut parts = Parts::default();
        let mut seen = String::new();
        let mut next = Some(error);
        while let Some(error) = next {
            let text = error.to_string();
            next = error.source();
            // Some errors tell their source's text themselves.
            if seen.contains(&text) {
                continue;
            }
            seen.push_str(&text);
            for line in text.lines() {
                match line.strip_prefix(HINT) {
                    Some(hint) => parts.hints.push(hint.to_owned()),
                    None if parts.fact.is_empty() => line.clone_into(&mut parts.fact),
                    None => parts.details.push(line.to_owned()),
                }
            }
        }
        parts
    }
}

/// Writes a line to standard error. Where nobody can read it, the work goes on all the same.
pub fn tell(line: impl Display) {
    let _ = writeln!(anstream::stderr(), "{line}");
}

/// Writes an error to standard error.
pub fn show(error: &dyn Error) {
    let parts = Parts::of(error);
    tell(format_args!("{RED}error:{RED:#} {}", parts.fact));
    for detail in parts.details {
        tell(format_args!("  {detail}"));
    }
    for text in parts.hints {
        hint(&text);
    }
}

/// Writes what to do next to standard error.
pub fn hint(text: &str) {
    tell(format_args!("{CYAN}hint:{CYAN:#} {text}"));
}

/// Writes something that does not stop the command, but that somebody has to know.
pub fn warn(text: &str) {
    tell(format_args!("{YELLOW}warning:{YELLOW:#} {text}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer fact\nand a detail\nhint: do this")]
    struct Outer(#[source] Inner);

    #[derive(Debug, thiserror::Error)]
    #[error("inner fact")]
    struct Inner;

    #[derive(Debug, thiserror::Error)]
    #[error("told: {0}")]
    struct Telling(#[source] Inner);

    #[test]
    fn an_error_is_a_fact_details_and_hints() {
        let parts = Parts::of(&Outer(Inner));
        assert_eq!(parts.fact, "outer fact");
        assert_eq!(parts.details, ["and a detail", "inner fact"]);
        assert_eq!(parts.hints, ["do this"]);
    }

    #[test]
    fn a_kernel_without_io_uring() {
        let system = std::io::Error::from_raw_os_error(libc::ENOSYS);
        let parts = Parts::of(&world::RingError::Unavailable(system));
        assert!(parts.fact.starts_with("this kernel offers no io_uring"), "{parts:?}");
        assert!(parts.hints[0].contains("kernel.io_uring_disabled"), "{parts:?}");
    }

    #[test]
    fn a_source_that_was_told_is_not_repeated() {
        let parts = Parts::of(&Telling(Inner));
        assert_eq!((parts.fact.as_str(), parts.details.len()), ("told: inner fact", 0));
    }
}
