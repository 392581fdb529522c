//! What to expect of members before they are failed.

use std::time::Duration;

/// How much is borne with. May be changed while the array is open: [`Array::set_policy`].
///
/// With the defaults a drive that hangs holds no client up for more than a second where the array
/// has its data elsewhere: in the worst case a partial write waits for the read of old content,
/// then for its own write.
///
/// [`Array::set_policy`]: crate::Array::set_policy
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Read errors of a member that are mended; with one more it is failed. The count halves every
    /// hour. md's own limit and decay.
    pub read_errors_max: u32,
    /// A read that takes longer is answered from redundancy.
    pub read_deadline: Duration,
    /// A write that takes longer fails its member. Longer for drives that pause by nature:
    /// shingled ones, or such as are put to sleep one by one.
    pub write_deadline: Duration,
    /// The same for a flush, which empties the drive's cache.
    pub flush_deadline: Duration,
    /// How long a member is waited for that the array can't do without.
    pub patience: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            read_errors_max: 20,
            read_deadline: Duration::from_millis(300),
            write_deadline: Duration::from_millis(600),
            flush_deadline: Duration::from_millis(900),
            patience: Duration::from_secs(180),
        }
    }
}
