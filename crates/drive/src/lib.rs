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
//! | `file` | files and block devices through io_uring |
//! | `nbd` | an export of an NBD server |
//! | `open`, `sysfs` | opening one: what it is, whether it is free, direct I/O |
//! | `conformance` | what every drive must do, as a test |
//! | `part` | a window of a drive |
//! | `overlay` | a drive that is only read, with writes in memory |
//! | `padded` | any alignment over larger blocks |
//! | `fault` | any drive, with faults and power cuts |
//! | `counting` | counts what reaches a drive |
//! | `list`, `holders` | the block devices of this machine, and who uses them |
//! | `create` | making a file to serve as a drive |

mod api;
pub mod conformance;
mod counting;
mod create;
mod cut;
mod error;
mod fault;
mod file;
mod holders;
mod list;
mod memory;
mod nbd;
mod open;
mod overlay;
mod padded;
mod part;
mod sysfs;

pub use api::{Discarded, Drive, Durability, Facts, Io, ReadDone, Zeroing, check_range};
pub use counting::{Counting, Counts};
pub use create::{CreateError, create_file};
pub use error::{DriveError, ErrorKind, Operation};
pub use fault::{Effect, Fault, FaultControl, FaultId, Faulty};
pub use file::FileDrive;
pub use holders::holders;
pub use list::{
    BlockDevice, ListError, Partition, Roots, Transport, Use, User, in_use, list_devices,
};
pub use memory::MemoryDrive;
pub use nbd::{NbdDrive, NbdError};
pub use open::{Access, Direct, Identity, OpenError, OpenOptions};
pub use overlay::Overlay;
pub use padded::Padded;
pub use part::Slice;
