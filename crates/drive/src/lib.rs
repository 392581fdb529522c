//! What a drive is: addressable bytes that can be read, written, flushed, discarded and zeroed.
//!
//! Everything above sees only the [`Drive`] trait, so a file, a block device, memory, a modelled
//! disk and a whole array are the same to it. Wrappers add one concern each.
//!
//! | file | what |
//! | --- | --- |
//! | `api` | the trait, its facts and its futures |
//! | `error` | what went wrong, where |
//! | `memory` | a drive in memory |

mod api;
mod error;
mod memory;

pub use api::{Discarded, Drive, Durability, Facts, Io, ReadDone, Zeroing, check_range};
pub use error::{DriveError, ErrorKind, Operation};
pub use memory::MemoryDrive;
