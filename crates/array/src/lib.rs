//! The array engine: read, write, degraded service and resync over drives and a clock.
