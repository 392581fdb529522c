//! Plans, runs, the result store, analysis and the report.
//!
//! Follow a run as data: a [`plan`] file says what to measure ([`Plan::parse`],
//! [`Plan::cells`]); the runner measures and fills a [`Run`] cell by cell; the
//! [`store`] keeps each cell as it ends; [`analysis`] reads the figures and says
//! what they mean; [`report`], [`table`] and [`export`] write it down.
//!
//! Everything after the measuring is a function of the run: the same run gives
//! the same words and the same bytes. Only the store touches files.

pub mod analysis;
pub mod export;
#[cfg(test)]
mod made_up;
pub mod model;
pub mod plan;
pub mod report;
pub mod runner;
pub mod store;
pub mod table;
pub mod units;

pub use model::Run;
pub use plan::{Plan, PlanError};
pub use runner::{LabError, PlanSource, RunOptions, RunOutcome, Show, run_plan};
