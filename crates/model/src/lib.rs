//! Hardware in virtual time, for those who don't own it: a modelled drive is a drive that sleeps.
//!
//! | module | what |
//! | --- | --- |
//! | `disk` | hard disks: layout, arm and rotation, parameters of real ones |
//! | `ssd` | solid-state drives: flash translation, timing, states |
//! | `modelled` | either as a drive in virtual time |
//! | `description` | what descriptions of hardware have in common |
//! | `command` | what goes into a drive's timing and comes out |
//! | `split` | where a request's time went |
//!
//! Left out on purpose: real I/O, and what the array above does with the drives.

pub mod command;
pub mod description;
pub mod disk;
pub mod modelled;
pub mod split;
pub mod ssd;
