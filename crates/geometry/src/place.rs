//! Answers: a place on a member, a run of the array, and what lives at a place.

/// A place on a member.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Slot of the member.
    pub member: usize,
    /// Bytes from the start of the member's data area.
    pub offset: u64,
}

/// A piece of the array that is contiguous on the member of each of its copies.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Where the piece starts in the array, in bytes.
    pub array_offset: u64,
    /// Its length in bytes, never 0.
    pub bytes: u64,
    /// Its first copy; [`Geometry::copy`](crate::Geometry::copy) gives the others.
    pub first: Place,
}

/// What lives at a place: the inverse of placement.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Home {
    /// A byte of the array.
    Data {
        /// Its offset in the array.
        array_offset: u64,
        /// Which copy of it this is: 0 is [`Run::first`].
        copy: usize,
    },
    /// Parity P of this stripe.
    P {
        /// Stripe index.
        stripe: u64,
    },
    /// Parity Q of this stripe.
    Q {
        /// Stripe index.
        stripe: u64,
    },
}
