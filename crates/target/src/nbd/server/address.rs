//! Where a server listens: the words of the command line, and binding.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::net::{TcpListener, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use thiserror::Error;

/// The host of a TCP address that names none: other machines can't reach it.
const LOOPBACK: &str = "127.0.0.1";

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket at this path.
    Unix(PathBuf),
    /// A TCP port. NBD has no passwords: whoever reaches it owns the data.
    Tcp {
        /// A host name or address of this machine.
        host: String,
        /// The port; 0 takes a free one.
        port: u16,
    },
}

/// Words that are no address.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AddressError {
    /// Neither `unix:` nor `tcp:`.
    #[error(
        "{words:?} is no address to listen on\n\
         hint: write unix:PATH, tcp:PORT (this machine only) or tcp:HOST:PORT"
    )]
    Kind {
        /// What was given.
        words: String,
    },
    /// `unix:` without a path.
    #[error("a Unix socket needs a path\nhint: write unix:PATH")]
    NoPath,
    /// The port is missing or no number up to 65535.
    #[error("{port:?} is no TCP port\nhint: write tcp:HOST:PORT, NBD's own port is 10809")]
    Port {
        /// What was given.
        port: String,
    },
}

impl FromStr for Address {
    type Err = AddressError;

    /// `unix:PATH`, `tcp:PORT` (loopback) or `tcp:HOST:PORT`; an IPv6 address stands in brackets.
    fn from_str(words: &str) -> Result<Self, AddressError> {
        if let Some(path) = words.strip_prefix("unix:") {
            if path.is_empty() {
                return Err(AddressError::NoPath);
            }
            return Ok(Address::Unix(path.into()));
        }
        let Some(rest) = words.strip_prefix("tcp:") else {
            return Err(AddressError::Kind { words: words.into() });
        };
        let (host, port) = rest.rsplit_once(':').unwrap_or(("", rest));
        let port = port.parse().map_err(|_| AddressError::Port { port: port.into() })?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = match bare.unwrap_or(host) {
            "" => LOOPBACK,
            host => host,
        };
        Ok(Address::Tcp { host: host.into(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp { host, port } if host.contains(':') => write!(f, "tcp:[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "tcp:{host}:{port}"),
        }
    }
}

/// Why a server can't listen at an address.
#[derive(Debug, Error)]
pub enum ListenError {
    /// Another server answers there.
    #[error("{address} is in use\nhint: stop the other server, or listen elsewhere")]
    InUse {
        /// Where.
        address: Address,
    },
    /// The path is taken by something that is no socket, and is left alone.
    #[error("{} exists and is no socket\nhint: choose another path", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The host has no address, or the system refuses.
    #[error("listening at {address} failed ({source})")]
    Failed {
        /// Where.
        address: Address,
        /// The system's error.
        source: io::Error,
    },
}

/// A listening socket.
pub(crate) struct Bound {
    pub(crate) socket: OwnedFd,
    /// The address with the port that was taken.
    pub(crate) address: Address,
    pub(crate) path: Option<SocketPath>,
}

/// Removes a Unix socket's path when the server no longer listens, unless somebody else has put
/// their own there.
pub(crate) struct SocketPath {
    path: PathBuf,
    identity: (u64, u64),
}

impl SocketPath {
    fn new(path: &Path) -> io::Result<Self> {
        let metadata = fs::symlink_metadata(path)?;
        Ok(SocketPath { path: path.into(), identity: (metadata.dev(), metadata.ino()) })
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        let now = fs::symlink_metadata(&self.path);
        if now.is_ok_and(|now| (now.dev(), now.ino()) == self.identity) {
            // Gone already, or a directory that became read-only: a stale socket harms nobody.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Starts to listen.
pub(crate) fn bind(address: &Address) -> Result<Bound, ListenError> {
    let failed = |source| ListenError::Failed { address: address.clone(), source };
    match address {
        Address::Unix(path) => {
            // Two servers that find the same stale socket must not remove each other's new one.
            let _turn = turn(path);
            clear_the_way(address, path)?;
            let socket = UnixListener::bind(path).map_err(|source| in_use(address, source))?;
            let path = Some(SocketPath::new(path).map_err(failed)?);
            Ok(Bound { socket: socket.into(), address: address.clone(), path })
        }
        Address::Tcp { host, port } => {
            let found = (host.as_str(), *port).to_socket_addrs().map_err(failed)?;
            let found: Vec<_> = found.collect();
            let socket = TcpListener::bind(&found[..]).map_err(|source| in_use(address, source))?;
            let port = socket.local_addr().map_err(failed)?.port();
            let address = Address::Tcp { host: host.clone(), port };
            Ok(Bound { socket: socket.into(), address, path: None })
        }
    }
}

fn in_use(address: &Address, source: io::Error) -> ListenError {
    let address = address.clone();
    match source.kind() {
        io::ErrorKind::AddrInUse => ListenError::InUse { address },
        _ => ListenError::Failed { address, source },
    }
}

/// Keeps others who bind in the same folder waiting until it is dropped. Where a folder can't be
/// locked, binding goes on: what is lost is the order of two starts at the same moment.
fn turn(path: &Path) -> Option<File> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = File::open(folder.unwrap_or(Path::new("."))).ok()?;
    folder.lock().ok()?;
    Some(folder)
}

/// Removes a socket that nobody listens on, which a killed server leaves behind.
fn clear_the_way(address: &Address, path: &Path) -> Result<(), ListenError> {
    let failed = |source| ListenError::Failed { address: address.clone(), source };
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if !metadata.file_type().is_socket() {
        return Err(ListenError::NotASocket { path: path.into() });
    }
    match answers(path) {
        // Refused: no one listens. Every other answer, as a full queue, comes from a live one.
        Err(Errno::CONNREFUSED) => fs::remove_file(path).map_err(failed),
        Err(Errno::NOENT) => Ok(()),
        _ => Err(ListenError::InUse { address: address.clone() }),
    }
}

fn answers(path: &Path) -> Result<(), Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_parsed_and_printed_alike() {
        let tcp = |host: &str, port| Address::Tcp { host: host.into(), port };
        let table = [
            ("unix:/run/a:b", Address::Unix("/run/a:b".into()), "unix:/run/a:b"),
            ("tcp:10809", tcp(LOOPBACK, 10809), "tcp:127.0.0.1:10809"),
            ("tcp::1", tcp(LOOPBACK, 1), "tcp:127.0.0.1:1"),
            ("tcp:0.0.0.0:10809", tcp("0.0.0.0", 10809), "tcp:0.0.0.0:10809"),
            ("tcp:nas:0", tcp("nas", 0), "tcp:nas:0"),
            ("tcp:[::1]:10809", tcp("::1", 10809), "tcp:[::1]:10809"),
        ];
        for (words, address, printed) in table {
            assert_eq!(words.parse(), Ok(address.clone()), "{words}");
            assert_eq!(address.to_string(), printed);
        }
        for words in ["", "/run/socket", "unix:", "tcp:", "tcp:nas", "tcp:nas:70000", "tcp:nas:-1"]
        {
            let error = words.parse::<Address>().expect_err(words);
            assert!(error.to_string().contains("\nhint: "), "{error}");
        }
    }

    #[test]
    fn a_stale_socket_is_replaced_and_anything_else_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let address = Address::Unix(path.clone());
        drop(UnixListener::bind(&path).unwrap());
        let bound = bind(&address).expect("nobody listens on it");
        assert!(matches!(bind(&address), Err(ListenError::InUse { .. })));
        drop(bound);
        assert!(!path.exists(), "the path goes with the server");
        fs::write(&path, "precious").unwrap();
        assert!(matches!(bind(&address), Err(ListenError::NotASocket { .. })));
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn a_path_that_somebody_else_took_over_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let bound = bind(&Address::Unix(path.clone())).unwrap();
        fs::rename(&path, folder.path().join("moved")).unwrap();
        let _theirs = UnixListener::bind(&path).unwrap();
        drop(bound);
        assert!(path.exists());
    }
}
