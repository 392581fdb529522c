//! A control server: a line in, lines out, over a Unix socket.
//!
//! What the lines say is its owner's affair ([`Acts`]); here are the socket, who may speak, and the
//! bounds: of a line, of the connections, of every wait for a peer. One request of a connection is
//! carried out at a time, the next one when it is answered. A peer that goes away ends the wait for
//! its answer, not what it asked for.
//!
//! Only the user that serves and root may speak: the socket is theirs (mode 0600), and the kernel
//! says who is at the other end, so a socket in a folder that others can reach gives nothing away.

mod inbox;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use rustix::net::{Shutdown, sockopt};
use smallvec::smallvec;
use thiserror::Error;
use world::{FixedFile, Gate, Ring, World};

use crate::nbd::server::address::{self, Address, ListenError, SocketPath};
use inbox::{Inbox, Line};

/// Pause after a client could not be let in for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Bounds of a server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time; who comes on top of them is closed at once.
    pub connections_max: usize,
    /// Bytes of a request, without the end of its line.
    pub request_bytes_max: usize,
    /// How long a peer may take to send a request, from its connection or last answer on.
    pub request: Duration,
    /// How long a peer may take to receive a line.
    pub reply: Duration,
    /// How long the end waits for acts under way.
    pub stop: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections_max: 16,
            request_bytes_max: 64 << 10,
            request: Duration::from_secs(60),
            reply: Duration::from_secs(10),
            stop: Duration::from_secs(10),
        }
    }
}

/// Why a peer is not listened to.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// Somebody else's process.
    #[error("user {uid} may not control this server")]
    User {
        /// The user.
        uid: u32,
    },
    /// A request without an end.
    #[error("a request has at most {bytes_max} bytes")]
    TooLong {
        /// The limit.
        bytes_max: usize,
    },
    /// Half a request, and then nothing.
    #[error("waited {limit:?} for the end of a request")]
    Stalled {
        /// The limit.
        limit: Duration,
    },
}

/// The peer is gone, or takes no answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("nobody listens to the answer")]
pub struct NobodyListens;

/// What a control server does.
pub trait Acts {
    /// Carries out one request, a line without its end, and answers with any number of lines.
    fn act(&self, request: Vec<u8>, replies: Replies) -> Pin<Box<dyn Future<Output = ()>>>;

    /// The line that says why a peer is not listened to.
    fn refuse(&self, why: &Refused) -> String;
}

/// Where the answers to one request go.
#[derive(Clone)]
pub struct Replies {
    shared: Rc<Shared>,
    socket: FixedFile,
    sending: Rc<Cell<bool>>,
}

impl Replies {
    fn to(shared: &Rc<Shared>, socket: &FixedFile) -> Self {
        let (shared, socket) = (Rc::clone(shared), socket.clone());
        Replies { shared, socket, sending: Rc::default() }
    }

    /// Whether a line is on its way: another one sent now could end up in the middle of it.
    #[must_use]
    pub fn sending(&self) -> bool {
        self.sending.get()
    }

    /// Sends a line, which has no end of line in it.
    ///
    /// # Errors
    /// When the peer is gone or does not take it in time. Whatever it asked for may go on.
    pub async fn send(&self, line: &str) -> Result<(), NobodyListens> {
        let mut bytes = Vec::with_capacity(line.len() + 1);
        bytes.extend(line.bytes().filter(|&byte| byte != b'\n'));
        bytes.push(b'\n');
        let message = self.shared.world.pool().copy_of(&bytes);
        let sending = self.shared.ring.send(&self.socket, smallvec![message]);
        self.sending.set(true);
        let sent = self.shared.world.within(self.shared.limits.reply, "a reply", sending).await;
        self.sending.set(false);
        if matches!(sent, Ok(Ok(sent)) if sent == bytes.len()) {
            return Ok(());
        }
        end(&self.socket);
        Err(NobodyListens)
    }
}

/// Why there is no control server.
#[derive(Debug, Error)]
pub enum ControlError {
    /// Virtual time has no sockets.
    #[error("a control server needs the real world")]
    NoRing,
    /// The path can't be listened at.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The socket can't be kept to its user.
    #[error("changing the mode of {} failed ({source})", path.display())]
    Mode {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

struct Shared {
    world: World,
    ring: Ring,
    limits: Limits,
    acts: Rc<dyn Acts>,
    /// Connections; the flag says that an act is under way.
    live: RefCell<BTreeMap<u64, (FixedFile, Cell<bool>)>>,
    stopping: Cell<bool>,
    /// Connections and accept loops.
    inside: Gate,
}

struct Listener {
    socket: FixedFile,
    path: Option<SocketPath>,
}

/// A control server; clones are the same one.
#[derive(Clone)]
pub struct ControlServer {
    shared: Rc<Shared>,
    listeners: Rc<RefCell<Vec<Listener>>>,
    connections: Rc<Cell<u64>>,
}

impl ControlServer {
    /// A server that does what `acts` does.
    ///
    /// # Errors
    /// In virtual time, which has no sockets.
    pub fn new(
        world: &World,
        limits: Limits,
        acts: Rc<dyn Acts>,
    ) -> Result<ControlServer, ControlError> {
        let ring = world.ring().ok_or(ControlError::NoRing)?.clone();
        let shared = Shared {
            world: world.clone(),
            ring,
            limits,
            acts,
            live: RefCell::default(),
            stopping: Cell::new(false),
            inside: Gate::default(),
        };
        Ok(ControlServer {
            shared: Rc::new(shared),
            listeners: Rc::default(),
            connections: Rc::default(),
        })
    }

    /// Starts to listen at `path`. A socket there on which nobody listens is replaced.
    ///
    /// # Errors
    /// When somebody listens there, something else lies there, or the system refuses.
    pub fn listen(&self, path: &Path) -> Result<(), ControlError> {
        let bound = address::bind(&Address::Unix(path.to_owned()))?;
        // Until here nobody was let in: who may speak is asked of each connection as well.
        fs::set_permissions(path, Permissions::from_mode(0o600))
            .map_err(|source| ControlError::Mode { path: path.to_owned(), source })?;
        let socket = self.shared.ring.adopt(bound.socket);
        self.listeners.borrow_mut().push(Listener { socket: socket.clone(), path: bound.path });
        self.shared.inside.enter();
        let server = self.clone();
        self.shared.world.spawn(async move {
            server.accept(socket).await;
            server.shared.inside.leave();
        });
        Ok(())
    }

    /// Lets nobody in any more, and waits for the acts under way, but not for ever.
    pub async fn stop(&self) {
        self.shared.stopping.set(true);
        for listener in self.listeners.take() {
            end(&listener.socket);
            drop(listener.path);
        }
        for (socket, busy) in self.shared.live.borrow().values() {
            if !busy.get() {
                end(socket);
            }
        }
        let limit = self.shared.limits.stop;
        let drained = self.shared.inside.drained();
        if self.shared.world.within(limit, "acts under way", drained).await.is_err() {
            for (socket, _) in self.shared.live.borrow().values() {
                end(socket);
            }
        }
    }

    async fn accept(&self, listener: FixedFile) {
        let shared = &self.shared;
        loop {
            let accepted = shared.ring.accept(&listener).await;
            if shared.stopping.get() {
                return;
            }
            match accepted {
                Ok(_) if shared.live.borrow().len() >= shared.limits.connections_max => {}
                Ok(socket) => {
                    let peer = sockopt::socket_peercred(&socket).map(|peer| peer.uid);
                    let own = rustix::process::geteuid();
                    let stranger = peer.ok().filter(|uid| *uid != own && !uid.is_root());
                    self.connect(shared.ring.adopt(socket), stranger.map(|uid| uid.as_raw()));
                }
                Err(_) => shared.world.sleep(ACCEPT_PAUSE).await,
            }
        }
    }

    fn connect(&self, socket: FixedFile, stranger: Option<u32>) {
        let number = self.connections.get() + 1;
        self.connections.set(number);
        let shared = Rc::clone(&self.shared);
        shared.inside.enter();
        shared.live.borrow_mut().insert(number, (socket.clone(), Cell::new(false)));
        self.shared.world.spawn(async move {
            let refused = match stranger {
                Some(uid) => Some(Refused::User { uid }),
                None => serve(&shared, &socket, number).await,
            };
            if let Some(why) = refused {
                let replies = Replies::to(&shared, &socket);
                // The last words: whether they arrive changes nothing.
                let _ = replies.send(&shared.acts.refuse(&why)).await;
            }
            // A receive that was given up holds the socket until it ends.
            end(&socket);
            shared.live.borrow_mut().remove(&number);
            shared.inside.leave();
        });
    }
}

/// Carries out the requests of one connection, to its end or to why it is not listened to.
async fn serve(shared: &Rc<Shared>, socket: &FixedFile, number: u64) -> Option<Refused> {
    let mut inbox = Inbox::new(shared.limits.request_bytes_max);
    let busy = |now: bool| {
        if let Some((_, busy)) = shared.live.borrow().get(&number) {
            busy.set(now);
        }
    };
    while !shared.stopping.get() {
        let limit = shared.limits.request;
        let line = inbox.line(&shared.ring, shared.world.pool(), socket);
        let request = match shared.world.within(limit, "a request", line).await {
            Ok(Line::Request(request)) => request,
            Ok(Line::End) => return None,
            Ok(Line::TooLong) => {
                return Some(Refused::TooLong { bytes_max: shared.limits.request_bytes_max });
            }
            Err(_) => return Some(Refused::Stalled { limit }),
        };
        busy(true);
        let replies = Replies::to(shared, socket);
        shared.acts.act(request, replies).await;
        busy(false);
    }
    None
}

/// Ends both directions of a socket, and every wait on it.
fn end(socket: &FixedFile) {
    // Fails only when the peer is gone already.
    let _ = rustix::net::shutdown(socket, Shutdown::Both);
}
