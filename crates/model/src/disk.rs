//! Hard disks: geometry, arm and rotation, buffer and queue, and their descriptions.
//!
//! | file | what |
//! | --- | --- |
//! | `layout` | where blocks lie: zones, skew, spares |
//! | `seek` | how long the arm takes |
//! | `mechanics` | arm, heads and rotation in time |
//! | `parameters` | what a hard disk is made of |
//! | `extracted` | reads the parameters that were extracted from real disks |

pub mod extracted;
pub mod layout;
pub mod mechanics;
pub mod parameters;
pub mod seek;
