//! Solid-state drives: flash translation and its write amplification.
//!
//! | file | what |
//! | --- | --- |
//! | `translation` | page-mapped translation: where each unit lies, cleaning, TRIM, wear |
//! | `unit_map` | the map of a drive that is mostly untouched |
//! | `victims` | which block is cleaned next |
//! | `scattered` | content that was there before the first request, as counts for each block |
//! | `amplification` | write amplification in closed form |

pub mod amplification;
mod scattered;
pub mod translation;
mod unit_map;
pub mod victims;
