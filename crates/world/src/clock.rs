//! The real clock as a plain number.
//!
//! `Instant` reads the same clock, but spends as much on its checks as the kernel's fast path does
//! on the time; a measured request asks twice.

#![allow(unsafe_code)]

/// Nanoseconds of CLOCK_MONOTONIC.
pub(crate) fn monotonic_ns() -> u64 {
    read_ns(libc::CLOCK_MONOTONIC)
}

/// Processor time that this thread has had, in its programs and in the kernel.
pub(crate) fn thread_ns() -> u64 {
    read_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn read_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable. The call can't fail: every Linux has these clocks.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
