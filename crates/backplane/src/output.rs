//! What standard output shows: tables of words, or one JSON document.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::error::Failure;

/// The version of every JSON document; it goes up when a reader of the old one would fail.
const SCHEMA: u32 = 1;

/// How a command that was done ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Exit status 0.
    Well,
    /// Exit status 1: done, and what was asked about is not well.
    NotWell,
}

impl Outcome {
    /// Well if `well`.
    pub fn of(well: bool) -> Self {
        if well { Outcome::Well } else { Outcome::NotWell }
    }
}

/// Writes text to standard output. A reader that has seen enough is no failure.
pub fn write(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Writes one document: `fields`, an object, with the schema's number.
pub fn write_json(mut fields: Value) -> Result<(), Failure> {
    fields["schema"] = json!(SCHEMA);
    write(&format!("{fields:#}\n"))
}

/// Rows in columns of equal width, each line behind `indent` blanks, without blanks at its end.
pub fn columns(indent: usize, rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..rows.iter().map(Vec::len).max().unwrap_or(0)).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = " ".repeat(indent);
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:<width$}  "));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A row of a table.
pub fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_each_other() {
        let rows = [row(["a", "long", ""]), row(["wide", "b", "c"])];
        assert_eq!(columns(1, &rows), " a     long\n wide  b     c\n");
    }
}
