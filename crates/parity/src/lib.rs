//! XOR and P+Q redundancy with recovery, in SIMD kernels picked at run time.
//!
//! RAID 5 keeps P, the XOR of a stripe's data. RAID 6 adds Q, the sum of g^k times the k-th data
//! block in GF(2^8) ([`field`]); Linux md and SNIA DDF use the same field and generator, and
//! differ in which block is the k-th, which is geometry's business. A hole in the sequence of
//! exponents, as DDF's layouts have, is given as `None`.
//!
//! | wanted | function |
//! | --- | --- |
//! | P of a full stripe | [`xor`] |
//! | P and Q of a full stripe | [`pq`], or [`q`] alone |
//! | P and Q after part of a stripe has changed | [`update_p`], [`update_q`] |
//! | lost blocks | [`recover`] |
//! | the one wrong block | [`locate`] |
//!
//! ```
//! use parity::{Blocks, Role};
//!
//! let (mut first, mut second) = (*b"four", *b"more");
//! let (mut p, mut q) = ([0; 4], [0; 4]);
//! parity::pq(&mut p, &mut q, &[Some(&first), Some(&second)]);
//!
//! first.fill(0);
//! second.fill(0);
//! let data = vec![Some(&mut first[..]), Some(&mut second[..])];
//! let mut blocks = Blocks { data, p: Some(&mut p), q: Some(&mut q) };
//! parity::recover(&mut blocks, &[Role::Data(0), Role::Data(1)])?;
//! assert_eq!((&first, &second), (b"four", b"more"));
//! # Ok::<(), parity::RecoverError>(())
//! ```
//!
//! These functions use the fastest [`Kernel`] the processor can run. Slices may have any length
//! and alignment; the kernels are made for chunks of some KiB and more.
//!
//! Left out: a third parity, and erasure codes for which another field pays.

pub mod field;
mod generate;
mod kernel;
mod locate;
mod recover;

pub use generate::{pq, q, update_p, update_q, xor, xor_into};
pub use kernel::Kernel;
pub use locate::{Located, locate};
pub use recover::{Blocks, RecoverError, Role, recover};
