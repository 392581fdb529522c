//! What is wrong with a plan, and where.
//!
//! An error keeps its kind (matched on), its place (file, line, column), the
//! line it stands on and, where one is known, a hint. Its text is complete:
//!
//! ```text
//! plans/mine.toml:7:1: unknown key `levle` in [[subjects]]
//!    7 | levle = "raid5"
//!      | ^^^^^
//! hint: did you mean `level`?
//! ```

use std::fmt;
use std::ops::Range;

/// One fault of a plan, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError {
    /// The file as the caller named it.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The whole line, without its end.
    pub source_line: String,
    /// How many characters of the line are meant, at least 1.
    pub width: usize,
    /// What is wrong.
    pub kind: PlanErrorKind,
    /// What to do about it.
    pub hint: Option<String>,
}

/// What can be wrong with a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanErrorKind {
    /// Not TOML.
    #[error("not valid TOML: {0}")]
    Syntax(String),
    /// A key nobody reads; most often a slip of the pen.
    #[error("unknown key `{key}` in {place}")]
    UnknownKey {
        /// The key as written.
        key: String,
        /// The table it stands in.
        place: &'static str,
    },
    /// A key that must be there is not.
    #[error("{place} has no `{key}`")]
    MissingKey {
        /// The key that is needed.
        key: &'static str,
        /// The table that needs it.
        place: &'static str,
    },
    /// A value of another type than the key takes.
    #[error("`{key}` must be {expected}, not {found}")]
    WrongType {
        /// The key.
        key: &'static str,
        /// What it takes.
        expected: &'static str,
        /// What it was given.
        found: &'static str,
    },
    /// A text that is none of the known names.
    #[error("unknown {what} `{name}`")]
    UnknownName {
        /// What is named: a level, a workload, …
        what: &'static str,
        /// The name as written.
        name: String,
    },
    /// A text that is not a size or a duration.
    #[error("`{text}` is not {expected}")]
    BadQuantity {
        /// The text as written.
        text: String,
        /// What it should have been.
        expected: &'static str,
    },
    /// A number outside of what can be measured.
    #[error("`{key}` is {value}, outside of {least} to {most}")]
    OutOfRange {
        /// The key.
        key: &'static str,
        /// The value, with unit.
        value: String,
        /// The least value, with unit.
        least: String,
        /// The greatest value, with unit.
        most: String,
    },
    /// A sweep that never arrives, or has no points.
    #[error("impossible sweep: {0}")]
    ImpossibleSweep(ImpossibleSweep),
    /// A list without entries.
    #[error("`{key}` is empty")]
    Empty {
        /// The key.
        key: &'static str,
    },
    /// The same name or value twice.
    #[error("{what} `{name}` is there twice")]
    Twice {
        /// What is named.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// Two keys that exclude each other, or one that has no meaning here.
    #[error("`{key}` cannot be used here: {reason}")]
    Conflict {
        /// The key that stands in the way.
        key: &'static str,
        /// Why.
        reason: &'static str,
    },
    /// An access specification that is none.
    #[error(transparent)]
    Spec(#[from] workload::SpecError),
    /// Data that can't be made.
    #[error(transparent)]
    Data(#[from] workload::DataPatternError),
    /// Members, level, layout and chunk that make no array.
    #[error(transparent)]
    Geometry(#[from] geometry::GeometryError),
    /// A layout the level does not have.
    #[error(transparent)]
    Layout(#[from] geometry::LayoutError),
    /// More cells than a run is ever meant to have.
    #[error("the plan has {cells} cells, more than {most}")]
    TooManyCells {
        /// Cells of the plan.
        cells: u64,
        /// The limit.
        most: u64,
    },
}

/// Why a sweep cannot be walked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImpossibleSweep {
    /// It starts above its end.
    #[error("it starts at {from}, above its end {to}")]
    Backwards {
        /// First value.
        from: String,
        /// Last value.
        to: String,
    },
    /// Its steps pass over its end.
    #[error("from {from} in steps of {factor} times it passes over {to}")]
    Overshoots {
        /// First value.
        from: String,
        /// Last value.
        to: String,
        /// Factor between neighbours.
        factor: u64,
    },
}

impl fmt::Display for PlanError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{}:{}:{}: {}", self.file, self.line, self.column, self.kind)?;
        let number = self.line.to_string();
        writeln!(out, "{number:>4} | {}", self.source_line)?;
        // Tabs are kept so that the mark stands under its text.
        let lead: String = self
            .source_line
            .chars()
            .take(self.column - 1)
            .map(|character| if character == '\t' { '\t' } else { ' ' })
            .collect();
        write!(out, "     | {lead}{}", "^".repeat(self.width))?;
        match &self.hint {
            Some(hint) => write!(out, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for PlanError {}

/// The text of a plan and its name: turns byte ranges into places.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    /// The file as the caller named it.
    pub file: &'a str,
    /// The whole text.
    pub text: &'a str,
}

impl Source<'_> {
    /// An error at a byte range of the text.
    pub fn error(
        &self,
        span: Range<usize>,
        kind: PlanErrorKind,
        hint: Option<String>,
    ) -> Box<PlanError> {
        let start = floor_boundary(self.text, span.start);
        let line_start = self.text[..start].rfind('\n').map_or(0, |position| position + 1);
        let line_end = self.text[start..].find('\n').map_or(self.text.len(), |end| start + end);
        let source_line = self.text[line_start..line_end].trim_end_matches('\r').to_owned();
        let end = floor_boundary(self.text, span.end.clamp(start, line_end));
        Box::new(PlanError {
            file: self.file.to_owned(),
            line: self.text[..start].matches('\n').count() + 1,
            column: self.text[line_start..start].chars().count() + 1,
            source_line,
            width: self.text[start..end].chars().count().max(1),
            kind,
            hint,
        })
    }
}

/// The greatest character boundary that is not after `position`.
fn floor_boundary(text: &str, position: usize) -> usize {
    let mut position = position.min(text.len());
    while !text.is_char_boundary(position) {
        position -= 1;
    }
    position
}

/// The known name that was most likely meant: at most a third of its letters differ.
pub(super) fn closest<'a>(written: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|name| (distance(&written.to_lowercase(), name), *name))
        .filter(|(distance, name)| *distance <= (name.chars().count() / 3).max(1))
        .min()
        .map(|(_, name)| name)
}

/// Edit distance in which swapping two neighbours counts once (optimal string alignment).
fn distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().collect();
    let right: Vec<char> = right.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=right.len()).collect();
    for row in 1..=left.len() {
        let mut current = vec![row];
        for column in 1..=right.len() {
            let change = usize::from(left[row - 1] != right[column - 1]);
            let mut best =
                (above[column] + 1).min(current[column - 1] + 1).min(above[column - 1] + change);
            let swapped = row > 1
                && column > 1
                && left[row - 1] == right[column - 2]
                && left[row - 2] == right[column - 1];
            if swapped {
                best = best.min(before[column - 2] + 1);
            }
            current.push(best);
        }
        before = std::mem::replace(&mut above, current);
    }
    above[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_guesses_are_not_made() {
        let known = ["level", "layout", "chunk", "drives", "name"];
        assert_eq!(closest("levle", &known), Some("level"));
        assert_eq!(closest("Level", &known), Some("level"));
        assert_eq!(closest("drive", &known), Some("drives"));
        assert_eq!(closest("chunks", &known), Some("chunk"));
        assert_eq!(closest("colour", &known), None);
        assert_eq!(closest("", &known), None);
    }

    #[test]
    fn a_place_is_counted_in_characters() {
        let source = Source { file: "p.toml", text: "a = 1\n# ü ü\nkäse = 2\r\n" };
        let start = source.text.find("= 2").unwrap();
        let error = source.error(start..start + 3, PlanErrorKind::Empty { key: "k" }, None);
        assert_eq!((error.line, error.column, error.width), (3, 6, 3));
        assert_eq!(error.source_line, "käse = 2");
        // Ranges beyond the text or inside a character are pulled back, never a panic.
        let beyond = source.error(999..2000, PlanErrorKind::Empty { key: "k" }, None);
        assert_eq!((beyond.line, beyond.width), (4, 1));
        let inside = source.text.find('ü').unwrap() + 1;
        source.error(inside..inside, PlanErrorKind::Empty { key: "k" }, None);
    }
}
