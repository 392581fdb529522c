//! Reads the parameters that were extracted from real disks, as DiskSim keeps them.
//!
//! A disk has a `.diskspecs` file (controller, buffer, overheads), which names a `.model` file
//! (layout and mechanics), which may name a `.seek` file (measured seek times). Both are blocks of
//! `name = value`, values being numbers, words, lists and blocks; times are in milliseconds.
//! [`block`] reads that notation; [`read_disk`] makes [`Parameters`] of it.
//!
//! [`Parameters`]: super::parameters::Parameters

pub mod block;
mod convert;

pub use convert::{disk, seek_table};

use super::parameters::Parameters;

/// Why a disk's files can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ExtractedError {
    /// A file can't be read.
    #[error("{name}: {source}")]
    File {
        /// Which.
        name: String,
        /// Why.
        source: std::io::Error,
    },
    /// The notation is broken.
    #[error("line {line}: {what}")]
    Syntax {
        /// Where.
        line: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// A value is missing.
    #[error("{0:?} is not stated")]
    Missing(&'static str),
    /// A value is none that a disk can have.
    #[error("{name:?} is {value}, which no disk has")]
    Value {
        /// Its name.
        name: &'static str,
        /// What it is.
        value: String,
    },
}

/// Reads a disk from its `.diskspecs` file and the files that it names, which lie beside it; `text`
/// gives what is in the file of a name.
///
/// # Errors
/// When a file can't be read, or says what no disk has.
pub fn read_disk(
    name: &str,
    text: impl Fn(&str) -> std::io::Result<String>,
) -> Result<Parameters, ExtractedError> {
    let read = |name: &str| {
        text(name).map_err(|source| ExtractedError::File { name: name.to_owned(), source })
    };
    let specs = block::parse(&read(name)?)?;
    let model = match specs.word("Model")?.strip_prefix("source ") {
        Some(name) => block::parse(&read(name.trim())?)?,
        None => specs.block("Model")?.clone(),
    };
    let table = match model.block("Mechanical Model")?.word("Full seek curve") {
        Ok(name) => Some(read(name)?),
        Err(_) => None,
    };
    disk(&specs, &model, table.as_deref())
}
