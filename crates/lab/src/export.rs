//! A run for other programs: one JSON document, or CSV with a line per cell.

mod csv;

use serde::{Deserialize, Serialize};

pub use csv::csv;

use crate::model::Run;

/// Number of the JSON document's shape. It grows when a reader of the old one would be misled.
pub const SCHEMA: u32 = 1;

/// The JSON document.
#[derive(Serialize, Deserialize)]
struct Document<R> {
    schema: u32,
    run: R,
}

/// Why a run can't be exported or read back.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// Not JSON, or not of this shape.
    #[error("not an exported run: {0}")]
    Json(#[from] serde_json::Error),
    /// Written by a later version.
    #[error("exported run has schema {found}, this version reads {SCHEMA}")]
    Schema {
        /// The document's number.
        found: u32,
    },
}

/// The whole run as one JSON document with a `schema` number.
///
/// # Errors
///
/// A figure that JSON can't hold (not a number, infinite).
pub fn json(run: &Run) -> Result<String, ExportError> {
    Ok(serde_json::to_string_pretty(&Document { schema: SCHEMA, run })?)
}

/// Reads what [`json`] wrote.
///
/// # Errors
///
/// Text that is no such document, or of a later schema.
pub fn from_json(text: &str) -> Result<Run, ExportError> {
    // The number first: a later shape would fail in some less helpful way.
    #[derive(Deserialize)]
    struct Head {
        schema: u32,
    }
    let head: Head = serde_json::from_str(text)?;
    if head.schema != SCHEMA {
        return Err(ExportError::Schema { found: head.schema });
    }
    let document: Document<Run> = serde_json::from_str(text)?;
    Ok(document.run)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up;

    #[test]
    fn a_run_returns_from_json() {
        let mut run = made_up::troubled();
        run.cells[0].drive_traffic = None;
        let text = json(&run).unwrap();
        assert!(text.starts_with("{\n  \"schema\": 1,"));
        assert!(from_json(&text).unwrap() == run);
    }

    #[test]
    fn other_documents_are_refused() {
        let later = "{\"schema\": 2, \"run\": {}}";
        assert!(matches!(from_json(later), Err(ExportError::Schema { found: 2 })));
        let odd = json(&made_up::run()).unwrap().replace("010203fa", "0x");
        for text in ["", "[]", "{\"schema\": 1}", "{\"schema\": 1, \"run\": {}}", odd.as_str()] {
            assert!(matches!(from_json(text), Err(ExportError::Json(_))));
        }
    }
}
