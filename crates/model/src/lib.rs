//! Hardware in virtual time, for those who don't own it: a modelled drive is a drive that sleeps.
//!
//! | module | what |
//! | --- | --- |
//! | `disk` | hard disks: layout, arm and rotation, parameters of real ones |
//! | `ssd` | solid-state drives: flash translation, timing, states |
//!
//! Left out on purpose: real I/O, and what the array above does with the drives.

pub mod disk;
pub mod ssd;
