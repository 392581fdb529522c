//! Plans, runs, the result store, analysis and the report.
