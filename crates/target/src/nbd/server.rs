//! The NBD server: sockets, drives and the protocol together.
//!
//! A [`Server`] lives in one [`World`] with its drives. It listens at any number of addresses,
//! runs one task per connection, and bounds all of them together ([`Limits`]). All connections of
//! an export share its drive, so a flush on one covers what was answered on any: that is what
//! NBD's multi-conn promises.
//!
//! ```text
//! listener ─ accept ─ connection ─ inbox ─ session (the protocol) ─ command ─ drive
//!                                  outbox ◄─────────────────────────┘
//! ```
//!
//! | file | what |
//! | --- | --- |
//! | `address` | words of the command line, binding |
//! | `limits` | bounds, and admission to them |
//! | `events` | what the owner is told |
//! | `connection` | one client |
//! | `control` | its progress and its end, from outside |
//! | `outbox` | replies to send |
//! | `operations` | what a drive has not answered yet |
//! | `command` | one request on a drive |
//!
//! Left out: TLS, and any access control beyond that of the socket's path or the loopback. Who
//! opens another address says so in full.

pub(crate) mod address;
mod command;
mod connection;
mod control;
mod events;
mod limits;
mod operations;
mod outbox;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use drive::{Drive, DriveError, Facts, Padded};
use rustix::net::{AddressFamily, Shutdown, sockopt};
use thiserror::Error;
use world::{FixedFile, Gate, Notify, Ring, World, join_all};

pub use address::{Address, AddressError, ListenError};
pub use events::{Closed, Events, ServerEvent, Wait};
pub use limits::Limits;

use super::export::{BLOCK_PREFERRED_BYTES_MIN, Export, ExportError, Exports};
use super::wire::DEFAULT_PAYLOAD_BYTES_MAX;
use address::SocketPath;
use control::Control;
use limits::Room;

/// Pause after a client could not be let in for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Send buffer of a Unix socket, asked for and as far as the system allows: room for two sends, so
/// that a send mostly ends at once instead of in pieces as the peer reads.
const UNIX_SEND_BYTES: usize = 1 << 20;

/// TCP keep-alive: a peer whose machine is gone is noticed after two minutes, however idle.
const KEEP_ALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEP_ALIVE_PROBES: u32 = 6;

/// Why there is no server.
#[derive(Debug, Error)]
pub enum ServerError {
    /// An export breaks the protocol's rules.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// An export promises more than its drive has.
    #[error(
        "export {name:?} of {export_bytes} bytes is larger than its drive of {drive_bytes} bytes"
    )]
    DriveTooSmall {
        /// The export.
        name: String,
        /// Its size.
        export_bytes: u64,
        /// The drive's.
        drive_bytes: u64,
    },
    /// Virtual time has no sockets.
    #[error("a server needs the real world")]
    NoRing,
}

/// What was not finished when the server stopped.
#[derive(Debug, Error)]
pub enum StopError {
    /// Connections whose requests took longer than the limit.
    #[error("stopped after {limit:?} with {connections} connections not drained")]
    NotDrained {
        /// How many.
        connections: usize,
        /// The limit.
        limit: Duration,
    },
    /// A drive could not be flushed: what was written last may be lost.
    #[error("the last flush failed ({0})")]
    Flush(#[source] DriveError),
    /// A drive did not finish its flush in time.
    #[error("stopped after {limit:?} with {drives} drives not flushed")]
    NotFlushed {
        /// How many.
        drives: usize,
        /// The limit.
        limit: Duration,
    },
}

/// The export that shows a drive as it is, under a name.
pub fn offer(name: impl Into<String>, facts: &Facts) -> Export {
    let mut export = Export::new(name, facts.size_bytes);
    let largest = u64::from(DEFAULT_PAYLOAD_BYTES_MAX);
    let preferred = facts.preferred_bytes.clamp(1, largest).next_power_of_two() as u32;
    export.block_preferred = preferred.clamp(BLOCK_PREFERRED_BYTES_MIN, DEFAULT_PAYLOAD_BYTES_MAX);
    export.read_only = facts.read_only;
    export.rotational = facts.rotational == Some(true);
    // Drives do not tell whether they are fast at zeroing.
    export.can_fast_zero = false;
    export
}

/// A drive that takes any alignment.
fn padded(world: &World, drive: Rc<dyn Drive>) -> Rc<dyn Drive> {
    if drive.facts().block_bytes == 1 { drive } else { Rc::new(Padded::new(world, drive)) }
}

struct Listener {
    socket: FixedFile,
    path: Option<SocketPath>,
}

/// What connections share.
struct Shared {
    world: World,
    exports: Exports,
    drives: Vec<Rc<dyn Drive>>,
    limits: Limits,
    events: Rc<dyn Events>,
    room: Room,
    stopping: Cell<bool>,
    live: RefCell<BTreeMap<u64, Rc<Control>>>,
    /// Connections and accept loops.
    inside: Gate,
}

/// A server; clones are the same one.
#[derive(Clone)]
pub struct Server {
    shared: Rc<Shared>,
    ring: Ring,
    listeners: Rc<RefCell<Vec<Listener>>>,
    stop: Rc<Notify>,
    connections: Rc<Cell<u64>>,
}

impl Server {
    /// A server of `exports`, each with the drive behind it; the first one is the default. Drives
    /// with larger blocks than one byte are padded, so clients may use any alignment.
    ///
    /// # Errors
    /// When the exports can't be offered together, or promise more than their drives have.
    pub fn new(
        world: &World,
        exports: Vec<(Export, Rc<dyn Drive>)>,
        limits: Limits,
        events: Rc<dyn Events>,
    ) -> Result<Server, ServerError> {
        let ring = world.ring().ok_or(ServerError::NoRing)?.clone();
        let (exports, drives): (Vec<Export>, Vec<_>) = exports.into_iter().unzip();
        let drives: Vec<_> = drives.into_iter().map(|drive| padded(world, drive)).collect();
        for (export, drive) in exports.iter().zip(&drives) {
            let (export_bytes, drive_bytes) = (export.size_bytes, drive.facts().size_bytes);
            if export_bytes > drive_bytes {
                let name = export.name.clone();
                return Err(ServerError::DriveTooSmall { name, export_bytes, drive_bytes });
            }
        }
        let shared = Shared {
            world: world.clone(),
            exports: Exports::new(exports)?,
            drives,
            limits,
            events,
            room: Room::new(limits.requests_max, limits.bytes_max),
            stopping: Cell::new(false),
            live: RefCell::default(),
            inside: Gate::default(),
        };
        Ok(Server {
            shared: Rc::new(shared),
            ring,
            listeners: Rc::default(),
            stop: Rc::default(),
            connections: Rc::default(),
        })
    }

    /// Starts to listen, and returns the address with the port that was taken. Clients are let in
    /// from now on, as far as the world runs.
    ///
    /// # Errors
    /// When somebody else listens there, or the system refuses.
    pub fn listen(&self, address: &Address) -> Result<Address, ListenError> {
        let bound = address::bind(address)?;
        let socket = self.ring.adopt(bound.socket);
        self.shared.events.note(&ServerEvent::Listening { address: &bound.address });
        self.listeners.borrow_mut().push(Listener { socket: socket.clone(), path: bound.path });
        self.shared.inside.enter();
        let server = self.clone();
        self.shared.world.spawn(async move {
            server.accept(socket).await;
            server.shared.inside.leave();
        });
        Ok(bound.address)
    }

    /// Serves until [`Server::stop`] is called, finishes what is in flight, and flushes the drives.
    ///
    /// # Errors
    /// What could not be finished or flushed.
    pub async fn serve(&self) -> Result<(), StopError> {
        if !self.shared.stopping.get() {
            self.stop.wait().await;
        }
        let limit = self.shared.limits.stop;
        let world = &self.shared.world;
        let drained = world.within(limit, "connections", self.shared.inside.drained()).await;
        let connections = self.shared.live.borrow().len();
        let live: Vec<_> = self.shared.live.borrow().values().cloned().collect();
        for control in live {
            control.close(Some(Closed::Stopped));
        }
        // Flushed in any case: what was answered is worth keeping, whatever hangs beside it.
        self.flush().await?;
        drained.map_err(|_| StopError::NotDrained { connections, limit })
    }

    /// Ends [`Server::serve`]: no new clients, no new requests.
    pub fn stop(&self) {
        self.shared.stopping.set(true);
        for listener in self.listeners.take() {
            // An accept that waits ends with this; a listener has no other end.
            let _ = rustix::net::shutdown(&listener.socket, Shutdown::Both);
            drop(listener.path);
        }
        for control in self.shared.live.borrow().values() {
            control.stop();
        }
        self.stop.notify_all();
    }

    async fn flush(&self) -> Result<(), StopError> {
        let limit = self.shared.limits.stop;
        let left = Cell::new(self.shared.drives.len());
        let flushes = self.shared.drives.iter().map(async |drive| {
            let result = drive.flush().await;
            left.set(left.get() - 1);
            result
        });
        match self.shared.world.within(limit, "flush", join_all(flushes)).await {
            Ok(results) => results.into_iter().collect::<Result<(), _>>().map_err(StopError::Flush),
            Err(_) => Err(StopError::NotFlushed { drives: left.get(), limit }),
        }
    }

    async fn accept(&self, listener: FixedFile) {
        let shared = &self.shared;
        loop {
            let accepted = self.ring.accept(&listener).await;
            if shared.stopping.get() {
                return;
            }
            match accepted {
                Ok(_) if shared.live.borrow().len() >= shared.limits.connections_max => {
                    let connections = shared.limits.connections_max;
                    shared.events.note(&ServerEvent::TooMany { connections });
                }
                Ok(socket) => self.connect(socket),
                Err(error) => {
                    shared.events.note(&ServerEvent::AcceptFailed { error: &error });
                    shared.world.sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn connect(&self, socket: OwnedFd) {
        let number = self.connections.get() + 1;
        self.connections.set(number);
        let peer = prepare(&socket);
        self.shared.events.note(&ServerEvent::Connected { connection: number, peer: &peer });
        let socket = self.ring.adopt(socket);
        let (shared, ring) = (Rc::clone(&self.shared), self.ring.clone());
        shared.inside.enter();
        self.shared.world.spawn(async move {
            let reason = connection::run(Rc::clone(&shared), ring, socket, number).await;
            let reason = &reason;
            shared.events.note(&ServerEvent::Closed { connection: number, reason });
            shared.inside.leave();
        });
    }
}

/// Sets a client's socket up, and says who it is. Options that a system lacks cost only comfort.
fn prepare(socket: &OwnedFd) -> String {
    if sockopt::socket_domain(socket) == Ok(AddressFamily::UNIX) {
        let _ = sockopt::set_socket_send_buffer_size(socket, UNIX_SEND_BYTES);
        return sockopt::socket_peercred(socket).map_or_else(
            |_| "a local client".to_string(),
            |peer| format!("process {} of user {}", peer.pid.as_raw_nonzero(), peer.uid.as_raw()),
        );
    }
    let _ = sockopt::set_tcp_nodelay(socket, true);
    let _ = sockopt::set_socket_keepalive(socket, true);
    let _ = sockopt::set_tcp_keepidle(socket, KEEP_ALIVE_IDLE);
    let _ = sockopt::set_tcp_keepintvl(socket, KEEP_ALIVE_INTERVAL);
    let _ = sockopt::set_tcp_keepcnt(socket, KEEP_ALIVE_PROBES);
    let peer = rustix::net::getpeername(socket).ok().flatten();
    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
    peer.map_or_else(|| "a client".to_string(), |peer| peer.to_string())
}
