//! One small executor in two worlds: io_uring with the real clock, and virtual time.
