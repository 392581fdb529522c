//! Asking a serving process: connect, one request, answers until it is done.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::place::{self, PlaceError};
use super::protocol::{Act, Answer, List, ProtocolError, Request};
use crate::error::Failure;

/// How long a serving process may be silent. It speaks at least once a second while it works.
const SILENCE: Duration = Duration::from_secs(30);

/// How long one of many sockets may take to say which arrays it is about.
const LIST_SILENCE: Duration = Duration::from_secs(3);

/// Longer than any answer; a peer that never ends its line is no serving process.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// Why a serving process gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody serves an array of that name.
    #[error(
        "no array called {name:?} is served\n\
         hint: `backplane array serve` serves it; with a socket elsewhere, name that with --control"
    )]
    NotServed {
        /// As given.
        name: String,
    },
    /// Nobody listens.
    #[error(
        "nobody answers at {}: {source}\n\
         hint: was the serving process killed? serve the array again",
        .socket.display()
    )]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It went away, or is silent.
    #[error(
        "waited for the serving process at {}: {source}\n\
         hint: `array show` says how the array is now; what was asked may have been done",
        .socket.display()
    )]
    Lost {
        /// The socket.
        socket: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// A connection to a serving process.
pub struct Client {
    /// Where it listens.
    pub socket: PathBuf,
    stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects.
    pub fn connect(socket: &Path) -> Result<Client, Failure> {
        place::is_trusted(socket)?;
        let connect = || -> io::Result<UnixStream> {
            let flags = SocketFlags::CLOEXEC;
            let descriptor =
                rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            // It bounds the wait for a place in the queue as well.
            sockopt::set_socket_timeout(&descriptor, sockopt::Timeout::Send, Some(SILENCE))?;
            sockopt::set_socket_timeout(&descriptor, sockopt::Timeout::Recv, Some(SILENCE))?;
            rustix::net::connect(&descriptor, &SocketAddrUnix::new(socket)?)?;
            Ok(descriptor.into())
        };
        let socket = socket.to_owned();
        match connect() {
            Ok(stream) => Ok(Client { socket, stream: BufReader::new(stream) }),
            Err(source) => Err(ClientError::Connect { socket, source }.into()),
        }
    }

    /// Asks for one thing, shows how it goes on, and gives what it came to.
    pub fn ask<T: DeserializeOwned>(
        &mut self,
        act: Act,
        mut progress: impl FnMut(&Value),
    ) -> Result<T, Failure> {
        let mut line = serde_json::to_string(&Request::from(act))?;
        line.push('\n');
        let sent = self.stream.get_mut().write_all(line.as_bytes());
        sent.map_err(|source| self.lost(source))?;
        loop {
            match self.answer()? {
                Answer::Progress(value) => progress(&value),
                Answer::Done(value) => {
                    return Ok(serde_json::from_value(value).map_err(ProtocolError::Answer)?);
                }
                Answer::Error(parts) => return Err(parts.into()),
            }
        }
    }

    fn answer(&mut self) -> Result<Answer, Failure> {
        let mut line = String::new();
        let read = (&mut self.stream).take(ANSWER_BYTES_MAX).read_line(&mut line);
        match read {
            Ok(_) if line.ends_with('\n') => Ok(Answer::read(&line)?),
            Ok(_) => Err(self.lost(io::ErrorKind::UnexpectedEof.into()).into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(self.lost(io::ErrorKind::TimedOut.into()).into())
            }
            Err(error) => Err(self.lost(error).into()),
        }
    }

    fn lost(&self, source: io::Error) -> ClientError {
        ClientError::Lost { socket: self.socket.clone(), source }
    }

    /// Which arrays it serves.
    fn list(&mut self) -> Result<List, Failure> {
        let limited = self.stream.get_ref().set_read_timeout(Some(LIST_SILENCE));
        limited.map_err(|source| self.lost(source))?;
        let list = self.ask(Act::List, |_| ());
        let restored = self.stream.get_ref().set_read_timeout(Some(SILENCE));
        restored.map_err(|source| self.lost(source))?;
        list
    }
}

/// The process that serves an array, in this user's folder of sockets. Sockets on which nobody
/// listens, or that don't answer, are passed over: a killed process leaves one behind.
pub fn find(name: &str) -> Result<Option<Client>, Failure> {
    let folder = place::folder();
    match place::own(&folder) {
        Ok(()) => {}
        // Nobody has served anything here.
        Err(PlaceError::Folder { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let by_name = place::named(&folder, name);
    let mut sockets = place::all(&folder);
    // The likeliest first.
    sockets.sort_by_key(|path| Some(path) != by_name.as_ref());
    for socket in sockets {
        let Ok(mut client) = Client::connect(&socket) else { continue };
        let Ok(list) = client.list() else { continue };
        if list.arrays.iter().any(|array| array.is_called(name)) {
            return Ok(Some(client));
        }
    }
    Ok(None)
}

/// The process that serves an array: at `control` if that is given, else wherever it is found.
///
/// # Errors
/// When nobody serves it.
pub fn serving(name: &str, control: Option<&Path>) -> Result<Client, Failure> {
    match control {
        Some(socket) => Client::connect(socket),
        None => find(name)?.ok_or_else(|| ClientError::NotServed { name: name.to_owned() }.into()),
    }
}
