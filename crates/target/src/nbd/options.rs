//! The data of the options that have some: parsing, and nothing else.
//!
//! Parsing borrows from the option's bytes and allocates nothing, so that a
//! hostile count can't cost memory. Each byte has to be accounted for: data
//! that is too short or too long is refused, as the protocol asks.

use thiserror::Error;

use super::wire::{Fields, InfoType, STRING_BYTES_MAX};

/// Name of the one metadata context this server has.
pub(super) const BASE_ALLOCATION: &str = "base:allocation";
/// Query that lists all contexts of the protocol's own namespace.
const BASE_WILDCARD: &str = "base:";

/// Why the data of an option is refused; its words go to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum Malformed {
    #[error("the data ends too early")]
    TooShort,
    #[error("the data goes on after its last field")]
    TooLong,
    #[error("this option takes no data")]
    Unexpected,
    #[error("a string has more than {STRING_BYTES_MAX} bytes")]
    LongString,
    #[error("a string is no UTF-8 or holds a NUL character")]
    NotAString,
    #[error("a metadata query has no namespace")]
    NoNamespace,
}

/// The data of an option that has none.
pub(super) fn parse_nothing(data: &[u8]) -> Result<(), Malformed> {
    if data.is_empty() { Ok(()) } else { Err(Malformed::Unexpected) }
}

/// A string that fills `bytes`.
pub(super) fn parse_string(bytes: &[u8]) -> Result<&str, Malformed> {
    if bytes.len() > STRING_BYTES_MAX {
        return Err(Malformed::LongString);
    }
    let string = std::str::from_utf8(bytes).map_err(|_| Malformed::NotAString)?;
    if string.contains('\0') { Err(Malformed::NotAString) } else { Ok(string) }
}

/// A string after its 32-bit length.
fn take_string<'a>(fields: &mut Fields<'a>) -> Result<&'a str, Malformed> {
    let length = fields.u32().ok_or(Malformed::TooShort)?;
    let length = usize::try_from(length).map_err(|_| Malformed::TooShort)?;
    parse_string(fields.bytes(length).ok_or(Malformed::TooShort)?)
}

/// Data of `INFO` and `GO`.
///
/// | bytes | field |
/// | --- | --- |
/// | 0..4 | length n of the name |
/// | 4..4+n | name |
/// | +2 | count of requests |
/// | +2 each | type of information |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InfoRequest<'a> {
    pub name: &'a str,
    pub wants_name: bool,
    pub wants_description: bool,
    pub wants_block_size: bool,
}

impl<'a> InfoRequest<'a> {
    /// Unknown types are passed over, and one named twice is answered once.
    pub fn parse(data: &'a [u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(data);
        let name = take_string(&mut fields)?;
        let count = usize::from(fields.u16().ok_or(Malformed::TooShort)?);
        let mut request =
            Self { name, wants_name: false, wants_description: false, wants_block_size: false };
        for _ in 0..count {
            match InfoType::from_code(fields.u16().ok_or(Malformed::TooShort)?) {
                Some(InfoType::Name) => request.wants_name = true,
                Some(InfoType::Description) => request.wants_description = true,
                Some(InfoType::BlockSize) => request.wants_block_size = true,
                Some(InfoType::Export) | None => {}
            }
        }
        if fields.0.is_empty() { Ok(request) } else { Err(Malformed::TooLong) }
    }
}

/// Data of `LIST_META_CONTEXT` and `SET_META_CONTEXT`.
///
/// | bytes | field |
/// | --- | --- |
/// | 0..4 | length n of the name |
/// | 4..4+n | name |
/// | +4 | count of queries |
/// | +4+m each | length m and query |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MetaRequest<'a> {
    pub name: &'a str,
    /// `base:allocation` is to be listed: there is no query, or one finds it.
    pub lists: bool,
    /// `base:allocation` is selected: one query names it in full.
    pub selects: bool,
}

impl<'a> MetaRequest<'a> {
    /// Unknown namespaces and contexts are passed over.
    pub fn parse(data: &'a [u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(data);
        let name = take_string(&mut fields)?;
        let count = fields.u32().ok_or(Malformed::TooShort)?;
        let mut request = Self { name, lists: count == 0, selects: false };
        for _ in 0..count {
            let query = take_string(&mut fields)?;
            match query.find(':') {
                None | Some(0) => return Err(Malformed::NoNamespace),
                Some(_) => {}
            }
            request.selects |= query == BASE_ALLOCATION;
            request.lists |= query == BASE_WILDCARD || query == BASE_ALLOCATION;
        }
        if fields.0.is_empty() { Ok(request) } else { Err(Malformed::TooLong) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_data_is_parsed_to_its_last_byte() {
        let data = b"\0\0\0\x02ab\0\x03\0\x03\0\x63\0\x01";
        let request = InfoRequest::parse(data).expect("well formed");
        let expected = InfoRequest {
            name: "ab",
            wants_name: true,
            wants_description: false,
            wants_block_size: true,
        };
        assert_eq!(request, expected);
        for end in 0..data.len() {
            assert_eq!(InfoRequest::parse(&data[..end]), Err(Malformed::TooShort), "{end}");
        }
        assert_eq!(InfoRequest::parse(b"\0\0\0\0\0\0x"), Err(Malformed::TooLong));
        assert_eq!(InfoRequest::parse(b"\0\0\0\x01\xff\0\0"), Err(Malformed::NotAString));
        assert_eq!(InfoRequest::parse(b"\0\0\0\x01\0\0\0"), Err(Malformed::NotAString));
        assert_eq!(InfoRequest::parse(b"\xff\xff\xff\xff\0\0"), Err(Malformed::TooShort));
    }

    #[test]
    fn meta_queries_list_and_select() {
        let parse = |queries: &[&str]| {
            let mut data = b"\0\0\0\x01d".to_vec();
            data.extend((queries.len() as u32).to_be_bytes());
            for query in queries {
                data.extend((query.len() as u32).to_be_bytes());
                data.extend(query.as_bytes());
            }
            MetaRequest::parse(&data).map(|request| (request.lists, request.selects))
        };
        assert_eq!(parse(&[]), Ok((true, false)));
        assert_eq!(parse(&["base:"]), Ok((true, false)));
        assert_eq!(parse(&["qemu:x", "base:allocation"]), Ok((true, true)));
        assert_eq!(parse(&["base:other", "x-y:"]), Ok((false, false)));
        assert_eq!(parse(&["base"]), Err(Malformed::NoNamespace));
        assert_eq!(parse(&[":base"]), Err(Malformed::NoNamespace));
    }

    #[test]
    fn a_hostile_count_ends_with_the_data() {
        let data = b"\0\0\0\0\xff\xff\xff\xff\0\0\0\x05base:";
        assert_eq!(MetaRequest::parse(data), Err(Malformed::TooShort));
        assert_eq!(parse_string(&[b'a'; 4097]), Err(Malformed::LongString));
    }
}
