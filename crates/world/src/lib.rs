//! One small executor in two worlds: io_uring with the real clock, and virtual time.
//!
//! A [`World`] runs tasks on one thread. In the real world it parks in the kernel's io_uring until
//! a completion or a timer is due; in the virtual world it jumps the clock to the next timer, and a
//! seed decides the order of what happens at the same time. Whoever holds a `World` can spawn,
//! read the clock and sleep, and can't tell which of the two it is in; only drives and targets ask
//! for the [`Ring`].
//!
//! | file | what |
//! | --- | --- |
//! | `executor` | tasks, wakers, `block_on` |
//! | `timer` | what is due when |
//! | `clock` | the real time |
//! | `ring` | the io_uring reactor: operations that own their buffers |
//! | `buffer` | aligned, pooled buffers with one owner |
//! | `inbox` | the receive buffer of a connection |
//! | `sync`, `join` | waiting for each other within one thread |
//! | `random` | a seeded generator for orderings |
//!
//! Left out on purpose: threads (one world, one thread; more cores are more worlds), and I/O in
//! virtual time (a modelled drive is a drive that sleeps).

mod buffer;
mod clock;
mod executor;
mod inbox;
mod join;
mod random;
mod ring;
mod sync;
mod timer;

pub use buffer::{Buf, BufMut, Pool, ReadBufs, SLOT_ALIGN_BYTES, WriteBufs, total_bytes};
pub use executor::{Task, TimedOut, World};
pub use inbox::Inbox;
pub use join::{join_all, race};
pub use random::SplitMix64;
pub use ring::{FixedFile, Ring, RingConfig, RingError};
pub use sync::{Gate, Notify, Permit, Semaphore};
pub use timer::Sleep;
