//! Typed reading of a TOML table, with the place of every fault.
//!
//! A thin layer over the `toml` crate's table with spans. It exists because
//! derived deserialisation words its own errors: it can't say "did you mean",
//! nor which `[[subjects]]` a fault is in.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{PlanError, PlanErrorKind, Source, closest};
use crate::units;

/// A table whose keys are all known.
pub(super) struct Table<'a> {
    source: Source<'a>,
    place: &'static str,
    span: Range<usize>,
    entries: &'a DeTable<'a>,
}

/// The value of one key.
#[derive(Clone)]
pub(super) struct Value<'a> {
    source: Source<'a>,
    key: &'static str,
    span: Range<usize>,
    value: &'a DeValue<'a>,
}

impl<'a> Table<'a> {
    /// The top table of a document.
    pub fn top(
        source: Source<'a>,
        document: &'a Spanned<DeTable<'a>>,
        known: &[&'static str],
    ) -> Result<Self, Box<PlanError>> {
        // A missing key of the top table is shown at the head of the file.
        Self::new(source, "the plan", 0..0, document.get_ref(), known)
    }

    /// A table at `place`; the first key that is not `known` is the error.
    fn new(
        source: Source<'a>,
        place: &'static str,
        span: Range<usize>,
        entries: &'a DeTable<'a>,
        known: &[&'static str],
    ) -> Result<Self, Box<PlanError>> {
        let unknown = entries
            .keys()
            .filter(|key| !known.contains(&key.get_ref().as_ref()))
            .min_by_key(|key| key.span().start);
        if let Some(key) = unknown {
            let name = key.get_ref().to_string();
            let hint = match closest(&name, known) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("keys known here: {}", known.join(", ")),
            };
            let kind = PlanErrorKind::UnknownKey { key: name, place };
            return Err(source.error(key.span(), kind, Some(hint)));
        }
        Ok(Self { source, place, span, entries })
    }

    /// The value of a key that may be absent.
    pub fn get(&self, key: &'static str) -> Option<Value<'a>> {
        self.entries.get(key).map(|value| Value {
            source: self.source,
            key,
            span: value.span(),
            value: value.get_ref(),
        })
    }

    /// The value of a key that must be there.
    pub fn require(&self, key: &'static str, hint: &str) -> Result<Value<'a>, Box<PlanError>> {
        self.get(key).ok_or_else(|| {
            let kind = PlanErrorKind::MissingKey { key, place: self.place };
            self.source.error(self.span.clone(), kind, Some(hint.to_owned()))
        })
    }

    /// Refuses a key, if it is there.
    pub fn refuse(
        &self,
        key: &'static str,
        reason: &'static str,
        hint: &str,
    ) -> Result<(), Box<PlanError>> {
        match self.get(key) {
            Some(value) => {
                Err(value.error(PlanErrorKind::Conflict { key, reason }, Some(hint.to_owned())))
            }
            None => Ok(()),
        }
    }
}

impl<'a> Value<'a> {
    /// An error at this value.
    pub fn error(&self, kind: PlanErrorKind, hint: Option<String>) -> Box<PlanError> {
        self.source.error(self.span.clone(), kind, hint)
    }

    fn wrong_type(&self, expected: &'static str, hint: Option<&str>) -> Box<PlanError> {
        let found = match self.value {
            DeValue::String(_) => "a text",
            DeValue::Integer(_) => "a whole number",
            DeValue::Float(_) => "a fraction",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        let kind = PlanErrorKind::WrongType { key: self.key, expected, found };
        self.error(kind, hint.map(str::to_owned))
    }

    /// A text that is not empty.
    pub fn text(&self) -> Result<&'a str, Box<PlanError>> {
        match self.value {
            DeValue::String(text) if text.trim().is_empty() => {
                Err(self.error(PlanErrorKind::Empty { key: self.key }, None))
            }
            DeValue::String(text) => Ok(text.as_ref()),
            _ => Err(self.wrong_type("a text", Some("put it in quotation marks"))),
        }
    }

    /// `true` or `false`.
    pub fn boolean(&self) -> Result<bool, Box<PlanError>> {
        match self.value {
            DeValue::Boolean(value) => Ok(*value),
            _ => Err(self.wrong_type("true or false", None)),
        }
    }

    /// A whole number within a range.
    pub fn integer(&self, least: u64, most: u64) -> Result<u64, Box<PlanError>> {
        let DeValue::Integer(integer) = self.value else {
            return Err(self.wrong_type("a whole number", None));
        };
        match u64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(value) if (least..=most).contains(&value) => Ok(value),
            _ => Err(self.out_of_range(integer.to_string(), least.to_string(), most.to_string())),
        }
    }

    /// A size in bytes within a range: `"64K"` or a number of bytes.
    pub fn size(&self, least: u64, most: u64) -> Result<u64, Box<PlanError>> {
        let expected = "a size: bytes, or a text such as \"64K\", \"1M\" or \"10G\"";
        let bytes = match self.value {
            DeValue::Integer(integer) => {
                u64::from_str_radix(integer.as_str(), integer.radix()).ok()
            }
            DeValue::String(text) => Some(units::parse_size(text).ok_or_else(|| {
                let kind = PlanErrorKind::BadQuantity { text: text.to_string(), expected };
                let hint = "suffixes are K, M, G and T, in powers of 1024, without a space";
                self.error(kind, Some(hint.to_owned()))
            })?),
            _ => return Err(self.wrong_type(expected, None)),
        };
        match bytes {
            Some(bytes) if (least..=most).contains(&bytes) => Ok(bytes),
            _ => Err(self.out_of_range(
                bytes.map_or_else(|| "not in the range of 64 bits".to_owned(), units::plan_size),
                units::plan_size(least),
                units::plan_size(most),
            )),
        }
    }

    /// A duration in nanoseconds within a range: `"500ms"`, `"10s"`, `"2m"`.
    pub fn duration_ns(&self, least: u64, most: u64) -> Result<u64, Box<PlanError>> {
        let expected = "a duration: a text such as \"500ms\", \"10s\" or \"2m\"";
        let DeValue::String(text) = self.value else {
            return Err(self.wrong_type(expected, Some("a duration carries its unit")));
        };
        let ns = units::parse_duration_ns(text).ok_or_else(|| {
            let kind = PlanErrorKind::BadQuantity { text: text.to_string(), expected };
            self.error(kind, Some("units are ms, s, m and h, without a space".to_owned()))
        })?;
        if (least..=most).contains(&ns) {
            return Ok(ns);
        }
        Err(self.out_of_range(text.to_string(), units::duration(least), units::duration(most)))
    }

    fn out_of_range(&self, value: String, least: String, most: String) -> Box<PlanError> {
        self.error(PlanErrorKind::OutOfRange { key: self.key, value, least, most }, None)
    }

    /// One of a set of names.
    pub fn name_of(
        &self,
        what: &'static str,
        known: &[&'static str],
    ) -> Result<&'static str, Box<PlanError>> {
        let text = self.text()?;
        let found = known.iter().find(|name| **name == text).copied();
        found.ok_or_else(|| self.unknown_name(what, text, known))
    }

    /// The error of a name that is none of the `known` ones.
    pub fn unknown_name(&self, what: &'static str, name: &str, known: &[&str]) -> Box<PlanError> {
        let hint = match closest(name, known) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("known: {}", known.join(", ")),
        };
        self.error(PlanErrorKind::UnknownName { what, name: name.to_owned() }, Some(hint))
    }

    /// Whether this is a list.
    pub fn is_list(&self) -> bool {
        matches!(self.value, DeValue::Array(_))
    }

    /// Whether this is a table.
    pub fn is_table(&self) -> bool {
        matches!(self.value, DeValue::Table(_))
    }

    /// A list with at least one entry; `expected` says of what.
    pub fn list(&self, expected: &'static str) -> Result<Vec<Value<'a>>, Box<PlanError>> {
        let DeValue::Array(array) = self.value else {
            return Err(self.wrong_type(expected, None));
        };
        if array.is_empty() {
            return Err(self.error(PlanErrorKind::Empty { key: self.key }, None));
        }
        Ok(array
            .iter()
            .map(|entry| Value {
                source: self.source,
                key: self.key,
                span: entry.span(),
                value: entry.get_ref(),
            })
            .collect())
    }

    /// A table of known keys; `expected` says which shape.
    pub fn table(
        &self,
        place: &'static str,
        expected: &'static str,
        known: &[&'static str],
    ) -> Result<Table<'a>, Box<PlanError>> {
        match self.value {
            DeValue::Table(entries) => {
                Table::new(self.source, place, self.span.clone(), entries, known)
            }
            _ => Err(self.wrong_type(expected, None)),
        }
    }
}
