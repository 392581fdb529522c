//! Plans, runs, the result store, analysis and the report.
//!
//! A [`Plan`] says what to measure, the runner measures it and fills a [`Run`]
//! cell by cell, and everything after that is a function of the run's figures.

pub mod analysis;
pub mod export;
#[cfg(test)]
mod made_up;
pub mod model;
pub mod plan;
pub mod report;
pub mod store;
pub mod table;
pub mod units;

pub use model::Run;
pub use plan::{Plan, PlanError};
