//! What bounds a server: how much is in progress, and how long it waits.

use std::rc::Rc;
use std::time::Duration;

use world::{Permit, Semaphore};

/// The bounds of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at the same time; one more is closed at once.
    pub connections_max: usize,
    /// Requests of one connection that are not answered yet; further ones wait in its socket.
    pub connection_requests_max: usize,
    /// Bytes those may move. One request that alone has more waits until it is the only one.
    pub connection_bytes_max: usize,
    /// Requests of all connections.
    pub requests_max: usize,
    /// Bytes those may move. It is several times what one connection may have, so that one whose
    /// peer does not read its replies leaves room for the others.
    pub bytes_max: usize,
    /// How long a negotiation may take.
    pub negotiation: Duration,
    /// How long a peer may leave a reply untaken, or a request unfinished.
    pub stall: Duration,
    /// How long stopping waits for what is in flight.
    pub stop: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections_max: 256,
            // Twice the queue of a kernel client (128), so that none ever waits here.
            connection_requests_max: 256,
            // Two of the longest requests.
            connection_bytes_max: 128 << 20,
            requests_max: 4096,
            bytes_max: 1 << 30,
            negotiation: Duration::from_secs(10),
            // Longer than a switch reboots and a laptop's lid is closed by mistake.
            stall: Duration::from_secs(60),
            stop: Duration::from_secs(60),
        }
    }
}

/// Room for requests and their bytes.
pub(super) struct Room {
    requests: Rc<Semaphore>,
    bytes: Rc<Semaphore>,
    bytes_max: usize,
}

impl Room {
    pub(super) fn new(requests: usize, bytes: usize) -> Self {
        Room {
            requests: Rc::new(Semaphore::new(requests)),
            bytes: Rc::new(Semaphore::new(bytes)),
            bytes_max: bytes,
        }
    }

    fn try_take(&self, bytes: usize) -> Option<Place> {
        let request = self.requests.try_acquire(1)?;
        let bytes = self.bytes.try_acquire(bytes.min(self.bytes_max))?;
        Some(Place { _request: request, _bytes: bytes })
    }

    async fn take(&self, bytes: usize) -> Place {
        let request = self.requests.acquire(1).await;
        let bytes = self.bytes.acquire(bytes.min(self.bytes_max)).await;
        Place { _request: request, _bytes: bytes }
    }
}

struct Place {
    _request: Permit,
    _bytes: Permit,
}

/// What a request holds until its reply is sent.
pub(super) struct Admitted {
    _connection: Place,
    _server: Place,
}

/// Waits for room, first in the connection, so that only requests that it may have wait in the
/// queue that it shares with others.
pub(super) async fn admit(connection: &Room, server: &Room, bytes: usize) -> Admitted {
    let place = match connection.try_take(bytes) {
        Some(place) => place,
        None => connection.take(bytes).await,
    };
    let shared = match server.try_take(bytes) {
        Some(place) => place,
        None => server.take(bytes).await,
    };
    Admitted { _connection: place, _server: shared }
}

#[cfg(test)]
mod tests {
    use super::*;
    use world::World;

    #[test]
    fn a_request_larger_than_the_room_waits_until_it_is_alone() {
        let world = World::virtual_time(1);
        let (connection, server) = (Room::new(4, 100), Room::new(4, 1000));
        let limit = Duration::from_secs(1);
        world.block_on(async {
            let small = admit(&connection, &server, 1).await;
            let mut large = Box::pin(admit(&connection, &server, 5000));
            assert!(world.within(limit, "room", &mut large).await.is_err());
            drop(small);
            let large = large.await;
            let more = world.within(limit, "room", admit(&connection, &server, 1)).await;
            assert!(more.is_err());
            drop(large);
        });
    }
}
