//! Hard disks: geometry, arm and rotation, buffer and queue, and their descriptions.
//!
//! | file | what |
//! | --- | --- |
//! | `layout` | where blocks lie: zones, skew, spares |
//! | `seek` | how long the arm takes |
//! | `mechanics` | arm, heads and rotation in time |
//! | `buffer` | the segments of the buffer |
//! | `machine` | timing: queue, arm, buffer, link |
//! | `replay` | measured requests on a model |
//! | `parameters` | what a hard disk is made of |
//! | `description` | reads `hardware/*.toml` |
//! | `shape` | the layout of a disk of which only a datasheet is known |
//! | `extracted` | reads the parameters that were extracted from real disks |

pub mod buffer;
pub mod description;
pub mod extracted;
pub mod layout;
pub mod machine;
pub mod mechanics;
pub mod parameters;
pub mod replay;
pub mod seek;
pub mod shape;
