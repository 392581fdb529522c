//! The NBD protocol where its two ends meet: what goes over the wire, and how an export is named.
//!
//! The server is a way out of an array, the client is a drive; neither knows the other, and both
//! speak these words. Bytes in, values out: nothing here waits or owns a socket.
//!
//! | file | what |
//! | --- | --- |
//! | `wire` | numbers, codes, flags, fixed structs |
//! | `uri` | where an export is |

mod uri;
pub mod wire;

pub use uri::{Address, PORT_DEFAULT, Uri, UriError};
