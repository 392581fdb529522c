//! What to expect of members before they are failed.

/// How much is borne with. May be changed while the array is open: [`Array::set_policy`].
///
/// [`Array::set_policy`]: crate::Array::set_policy
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Read errors of a member that are mended; with one more it is failed. The count halves every
    /// hour. md's own limit and decay.
    pub read_errors_max: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Policy { read_errors_max: 20 }
    }
}
