//! The array engine: reads, writes, serves degraded and resyncs over drives and a clock.
//!
//! | file | what |
//! | --- | --- |
//! | `examine` | looking at drives: superblocks, and which arrays they form |
//! | `assemble` | opening an array |
//! | `replay`, `replay_ppl`, `replay_journal` | replaying its log (in memory where it is only read) |
//! | `create`, `consistency` | making one, and the record of writes in flight it keeps |
//! | `array`, `core`, `slot` | an open array, what its parts share, its members |
//! | `read` | the way of a read, directly or from redundancy |
//! | `copies` | writing where there is no parity |
//! | `stripe`, `bands`, `plan` | writing parity stripes: gathered, cut, by the cheapest way |
//! | `log`, `ppl`, `journal` | what a stripe needs in its log before it is written |
//! | `batch`, `split` | requests to members, and client buffers cut for them |
//! | `around` | reading what can be read, and where the rest is |
//! | `mend`, `bad_blocks`, `lost` | what could not be read is written anew, or listed as bad; what is lost |
//! | `deadline` | members that take too long |
//! | `policy` | what to expect of members |
//! | `checked`, `checksums`, `learn` | checksums of the members' data: compared, kept, given |
//! | `lock` | who may touch which stripes |
//! | `intent`, `bitmap`, `bits` | the write-intent bitmap: what it says, and its place on the members |
//! | `metadata`, `status` | the superblocks while it is open, and the one typed state |
//! | `due`, `job`, `pace`, `job_status` | background passes: which, their driver, their speed, their state |
//! | `resync`, `resync_stripes`, `resync_copies`, `unsynced` | the pass that makes copies and parity agree, and what it had to leave |
//! | `rebuild`, `fill_stripes`, `fill_copies` | the passes that fill members |
//! | `members`, `returning` | members that come, go, are replaced and come back; spares |
//! | `scrub`, `mismatch` | the pass that compares them, and what it found |
//! | `mutant` | faults to plant, for the simulator's own test |
//!
//! It knows neither files nor threads nor the time of day: drives and a [`World`](world::World)
//! come in, so it runs unchanged on modelled drives in virtual time. What to do is decided by pure
//! functions (`plan`, `bands`, and `decide` in the format crate); the asynchronous parts carry it
//! out.

mod around;
mod array;
mod assemble;
mod bad_blocks;
mod bands;
mod batch;
mod bitmap;
mod bits;
mod checked;
mod checksums;
mod consistency;
mod copies;
mod core;
mod create;
mod deadline;
mod due;
mod examine;
mod fill_copies;
mod fill_stripes;
mod intent;
mod job;
mod job_status;
mod journal;
mod learn;
mod lock;
mod log;
mod lost;
mod members;
mod mend;
mod metadata;
mod mismatch;
#[cfg(feature = "mutants")]
pub mod mutant;
#[cfg(not(feature = "mutants"))]
mod mutant;
mod pace;
mod plan;
mod policy;
mod ppl;
mod read;
mod rebuild;
mod replay;
mod replay_journal;
mod replay_ppl;
mod resync;
mod resync_copies;
mod resync_stripes;
mod returning;
mod scrub;
mod slot;
mod split;
mod status;
mod stripe;
mod unsynced;

pub use array::{Array, RawCopy};
pub use assemble::{AssembleError, OpenMode};
pub use bitmap::{BitmapStatus, BitmapTrouble};
pub use checksums::ChecksumStatus;
pub use consistency::Consistency;
pub use create::{CHUNK_BYTES_DEFAULT, CreateError, CreatePlan, NewArray};
pub use examine::{
    DamageReason, DamagedSuperblock, Examined, FoundSuperblock, Scan, examine, read_bytes,
};
pub use job_status::{JobEnd, JobKind, JobStatus, Limiter, Loss};
pub use members::{MemberError, SparePool};
pub use metadata::Failure;
pub use mismatch::{Candidate, Holds, Involved, Mismatch, ScrubStatus};
pub use pace::JobPolicy;
pub use policy::Policy;
pub use returning::Returned;
pub use scrub::{FindingKind, Outcome, ScrubCounts, ScrubKind, ScrubRefused, ScrubState};
pub use slot::SlotState;
pub use status::{Health, SlotStatus, Status};
