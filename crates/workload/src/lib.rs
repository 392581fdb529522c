//! Access specifications, generators and meters.
