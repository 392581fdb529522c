//! Stripes that a resync had to leave as they are, since it could not know what belongs there.
//!
//! What redundancy gives for a block there is a guess: it may answer a read, where there is nothing
//! better, and is never written.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

/// Places kept one by one; with more than these every place counts as one of them.
const PLACES_MAX: usize = 4096;

/// The stripes, or where runs of copies start in the array.
#[derive(Debug, Default)]
pub(crate) struct Unsynced {
    places: RefCell<BTreeSet<u64>>,
    beyond: Cell<u64>,
}

impl Unsynced {
    pub(crate) fn add(&self, place: u64) {
        let mut places = self.places.borrow_mut();
        if places.len() < PLACES_MAX || places.contains(&place) {
            places.insert(place);
        } else {
            self.beyond.set(self.beyond.get() + 1);
        }
    }

    pub(crate) fn has(&self, place: u64) -> bool {
        self.beyond.get() > 0 || self.places.borrow().contains(&place)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.places.borrow().len() as u64 + self.beyond.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_counts_once_and_too_many_are_all() {
        let unsynced = Unsynced::default();
        for place in [7, 9, 7] {
            unsynced.add(place);
        }
        assert_eq!((unsynced.count(), unsynced.has(9), unsynced.has(8)), (2, true, false));
        (100..100 + PLACES_MAX as u64).for_each(|place| unsynced.add(place));
        assert_eq!((unsynced.count(), unsynced.has(8)), (2 + PLACES_MAX as u64, true));
    }
}
