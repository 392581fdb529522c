//! Solid-state drives: flash translation, timing, states and their descriptions.
//!
//! | file | what |
//! | --- | --- |
//! | `translation` | page-mapped translation: where each unit lies, cleaning, TRIM, wear |
//! | `unit_map` | the map of a drive that is mostly untouched |
//! | `victims` | which block is cleaned next |
//! | `scattered` | content that was there before the first request, as counts for each block |
//! | `hybrid` | translation of first-generation controllers: large units and a few logs |
//! | `machine` | timing: link, controller, buffer, channels, dies |
//! | `description` | reads `hardware/*.toml` |
//! | `parameters` | what an SSD is made of |
//! | `amplification` | write amplification in closed form |

pub mod amplification;
pub mod description;
pub mod hybrid;
pub mod machine;
pub mod parameters;
mod scattered;
pub mod translation;
mod unit_map;
pub mod victims;
