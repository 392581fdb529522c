//! The NBD server as a whole: sockets, drives, real peers, and hostile ones.

#[cfg(test)]
mod client;
#[cfg(test)]
mod drives;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod peers;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod stopping;
