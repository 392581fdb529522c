//! What descriptions of hardware have in common: `hardware/*.toml`, one file each.
//!
//! Each value is a table `{ v, src, conf }`: the value in the unit its name ends with, where it
//! comes from, and how sure that is (`high`, `medium`, `low`, or `estimated` for what is derived
//! or chosen). Values under `[rated]` are what the maker or a review states; the models do not use
//! them, their checks do.

use serde::Deserialize;

/// How sure a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// Read in a public source.
    High,
    /// From memory of a source, or from a sister model.
    Medium,
    /// From weak memory.
    Low,
    /// Derived, or chosen.
    Estimated,
}

/// A value and where it comes from.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Value<T> {
    /// The value.
    pub v: T,
    /// Its source.
    pub src: String,
    /// How sure it is.
    pub conf: Confidence,
}

/// Why a description can't be used.
#[derive(Debug, thiserror::Error)]
pub enum DescriptionError {
    /// It is not what a description looks like.
    #[error("{0}")]
    Syntax(#[from] toml::de::Error),
    /// A value makes no drive.
    #[error("{name}: {what}")]
    Value {
        /// The drive's name.
        name: String,
        /// What is wrong, and what to do.
        what: &'static str,
    },
}

/// Nanoseconds of a time in microseconds.
pub(crate) fn us_as_ns(us: f64) -> u64 {
    (us * 1000.0).round() as u64
}
