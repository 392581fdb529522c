//! Where an export is, as NBD's own URIs say it (`doc/uri.md` of the NBD project).
//!
//! | form | what |
//! | --- | --- |
//! | `nbd://HOST[:PORT]/EXPORT` | TCP |
//! | `nbd+unix:///EXPORT?socket=PATH` | a Unix socket |
//!
//! `%` and two hexadecimal digits stand for a byte. Left out: TLS and vsock.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The port that is meant where none is given.
pub const PORT_DEFAULT: u16 = 10809;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// A host, by name or number, and its port.
    Tcp {
        /// Without the brackets of an IPv6 number.
        host: String,
        /// [`PORT_DEFAULT`] unless given.
        port: u16,
    },
}

/// An export and its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uri {
    /// The server.
    pub address: Address,
    /// The export's name; empty for the server's default one.
    pub export: String,
}

/// Why a word names no export.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UriError {
    /// Another kind of word.
    #[error(
        "{0:?} is no NBD URI\nhint: nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH"
    )]
    Scheme(String),
    /// Something this client does not speak.
    #[error(
        "{0} is not supported\n\
         hint: nbd:// and nbd+unix:// are; across an untrusted network, go through an SSH tunnel"
    )]
    Unsupported(&'static str),
    /// A Unix socket without its path.
    #[error("an nbd+unix URI names its socket\nhint: nbd+unix:///EXPORT?socket=PATH")]
    NoSocket,
    /// A host where none belongs, or none where one does.
    #[error("{0:?} is no host for this kind of URI\nhint: nbd://HOST/EXPORT, nbd+unix:///EXPORT")]
    Host(String),
    /// No number from 1 to 65535.
    #[error("{0:?} is no port\nhint: 1 to 65535; without one, 10809 is meant")]
    Port(String),
    /// A `%` without two hexadecimal digits, or bytes that are no text.
    #[error("{0:?} is not encoded as a URI\nhint: write % as %25")]
    Encoding(String),
    /// A parameter nobody knows.
    #[error("the URI parameter {0:?} is not known\nhint: socket=PATH is")]
    Parameter(String),
}

/// Whether a word means to be an NBD URI, be it a good one or not.
fn scheme_of(word: &str) -> Option<(&str, &str)> {
    word.split_once("://").filter(|(scheme, _)| scheme.starts_with("nbd"))
}

impl Uri {
    /// Whether a word is meant as an NBD URI and not as a path, good or not.
    #[must_use]
    pub fn is_meant_by(word: &str) -> bool {
        scheme_of(word).is_some()
    }
}

impl FromStr for Uri {
    type Err = UriError;

    fn from_str(word: &str) -> Result<Self, UriError> {
        let (scheme, rest) = scheme_of(word).ok_or_else(|| UriError::Scheme(word.to_owned()))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
        let export = decoded(export)?;
        let mut socket = None;
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("socket", path)) => socket = Some(decoded(path)?),
                _ => return Err(UriError::Parameter(parameter.to_owned())),
            }
        }
        let address = match scheme {
            "nbd" if socket.is_some() => return Err(UriError::Parameter("socket".to_owned())),
            "nbd" => host(authority)?,
            "nbd+unix" if !authority.is_empty() => {
                return Err(UriError::Host(authority.to_owned()));
            }
            "nbd+unix" => match socket {
                Some(path) if !path.is_empty() => Address::Unix(path.into()),
                _ => return Err(UriError::NoSocket),
            },
            "nbds" | "nbds+unix" => return Err(UriError::Unsupported("NBD over TLS")),
            "nbd+vsock" | "nbds+vsock" => return Err(UriError::Unsupported("NBD over vsock")),
            _ => return Err(UriError::Scheme(word.to_owned())),
        };
        Ok(Uri { address, export })
    }
}

fn host(authority: &str) -> Result<Address, UriError> {
    let refused = || UriError::Host(authority.to_owned());
    if authority.contains('@') {
        return Err(refused());
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or_else(refused)?;
            match after.strip_prefix(':') {
                None if !after.is_empty() => return Err(refused()),
                port => (host, port),
            }
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if host.is_empty() {
        return Err(refused());
    }
    let port = match port {
        None | Some("") => PORT_DEFAULT,
        Some(port) => {
            let number = port.parse().ok().filter(|&number| number > 0);
            number.ok_or_else(|| UriError::Port(port.to_owned()))?
        }
    };
    Ok(Address::Tcp { host: decoded(host)?, port })
}

/// A part of a URI without its escapes.
fn decoded(part: &str) -> Result<String, UriError> {
    let refused = || UriError::Encoding(part.to_owned());
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let [high, low, after @ ..] = rest else { return Err(refused()) };
        let value = digit(*high).zip(digit(*low)).map(|(high, low)| (high * 16 + low) as u8);
        bytes.push(value.ok_or_else(refused)?);
        rest = after;
    }
    let text = String::from_utf8(bytes).map_err(|_| refused())?;
    if text.contains('\0') { Err(refused()) } else { Ok(text) }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => path.display().fmt(f),
            Address::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16, export: &str) -> Uri {
        let address = Address::Tcp { host: host.to_owned(), port };
        Uri { address, export: export.to_owned() }
    }

    #[test]
    fn each_form_names_its_server_and_export() {
        let table = [
            ("nbd://localhost", tcp("localhost", 10809, "")),
            ("nbd://localhost/", tcp("localhost", 10809, "")),
            ("nbd://nas.example:10810/disk", tcp("nas.example", 10810, "disk")),
            ("nbd://[::1]:1/a%20b", tcp("::1", 1, "a b")),
            ("nbd://[fe80::1]/x/y", tcp("fe80::1", 10809, "x/y")),
        ];
        for (word, uri) in table {
            assert_eq!(word.parse(), Ok(uri), "{word}");
        }
        let address = Address::Unix("/run/a b".into());
        let uri = Uri { address, export: "disk".to_owned() };
        assert_eq!("nbd+unix:///disk?socket=/run/a%20b".parse(), Ok(uri));
    }

    #[test]
    fn each_mistake_has_its_error() {
        let error = |word: &str| word.parse::<Uri>().unwrap_err();
        let owned = |word: &str| word.to_owned();
        assert_eq!(error("/dev/sda"), UriError::Scheme(owned("/dev/sda")));
        assert_eq!(error("nbdx://a"), UriError::Scheme(owned("nbdx://a")));
        assert_eq!(error("nbds://a/"), UriError::Unsupported("NBD over TLS"));
        assert_eq!(error("nbd+unix:///disk"), UriError::NoSocket);
        assert_eq!(error("nbd+unix:///disk?socket="), UriError::NoSocket);
        assert_eq!(error("nbd+unix://host/?socket=/s"), UriError::Host(owned("host")));
        assert_eq!(error("nbd:///disk"), UriError::Host(String::new()));
        assert_eq!(error("nbd://me@host/"), UriError::Host(owned("me@host")));
        assert_eq!(error("nbd://[::1/"), UriError::Host(owned("[::1")));
        assert_eq!(error("nbd://host:0/"), UriError::Port(owned("0")));
        assert_eq!(error("nbd://host:65536/"), UriError::Port(owned("65536")));
        assert_eq!(error("nbd://host/%4"), UriError::Encoding(owned("%4")));
        assert_eq!(error("nbd://host/%ff"), UriError::Encoding(owned("%ff")));
        assert_eq!(error("nbd://host/%00"), UriError::Encoding(owned("%00")));
        assert_eq!(error("nbd://host/?tls=1"), UriError::Parameter(owned("tls=1")));
        assert_eq!(error("nbd://host/?socket=/s"), UriError::Parameter(owned("socket")));
    }

    #[test]
    fn a_path_is_not_meant_as_a_uri() {
        assert!(Uri::is_meant_by("nbds://host"));
        assert!(!Uri::is_meant_by("nbd"));
        assert!(!Uri::is_meant_by("http://host"));
    }
}
