//! The map of a drive that is mostly untouched: three levels, of which only those that were
//! written exist. An index structure with one look-up per level keeps a request at a few
//! nanoseconds; a hash map would be smaller only for isolated units.

/// Units below one leaf (4 MiB of 4 KiB units) and leaves below one branch.
const LEAF_UNITS: usize = 1024;
const BRANCH_LEAVES: usize = 1024;

/// Where a unit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Where {
    /// No request has touched it: it is as the drive's first state has it.
    Untouched,
    /// Trimmed.
    Gone,
    /// In this block, as the entry with this index.
    At { block: u32, entry: u32 },
}

const UNTOUCHED: u64 = u64::MAX;
const GONE: u64 = u64::MAX - 1;

type Leaf = Box<[u64]>;

/// From unit to place.
#[derive(Debug, Clone, Default)]
pub(super) struct UnitMap(Vec<Option<Box<[Option<Leaf>]>>>);

impl UnitMap {
    fn split(unit: u32) -> (usize, usize, usize) {
        let leaf = unit as usize / LEAF_UNITS;
        (leaf / BRANCH_LEAVES, leaf % BRANCH_LEAVES, unit as usize % LEAF_UNITS)
    }

    pub(super) fn get(&self, unit: u32) -> Where {
        let (branch, leaf, at) = Self::split(unit);
        let leaf = self.0.get(branch).and_then(|branch| branch.as_ref()?[leaf].as_ref());
        match leaf.map_or(UNTOUCHED, |leaf| leaf[at]) {
            UNTOUCHED => Where::Untouched,
            GONE => Where::Gone,
            place => Where::At { block: (place >> 32) as u32, entry: place as u32 },
        }
    }

    /// The next unit from `unit` on that may be touched, or `end`: skips what has no leaf.
    pub(super) fn next_touched(&self, unit: u32, end: u32) -> u32 {
        let mut at = u64::from(unit);
        while at < u64::from(end) {
            let (branch, leaf, _) = Self::split(at as u32);
            let units = match self.0.get(branch).and_then(Option::as_ref) {
                None => (LEAF_UNITS * BRANCH_LEAVES) as u64,
                Some(branch) if branch[leaf].is_none() => LEAF_UNITS as u64,
                Some(_) => return at as u32,
            };
            at = (at / units + 1) * units;
        }
        end
    }

    pub(super) fn set(&mut self, unit: u32, place: Where) {
        let (branch, leaf, at) = Self::split(unit);
        if self.0.len() <= branch {
            self.0.resize(branch + 1, None);
        }
        let branch = self.0[branch].get_or_insert_with(|| vec![None; BRANCH_LEAVES].into());
        let leaf = branch[leaf].get_or_insert_with(|| vec![UNTOUCHED; LEAF_UNITS].into());
        leaf[at] = match place {
            Where::Untouched => UNTOUCHED,
            Where::Gone => GONE,
            Where::At { block, entry } => u64::from(block) << 32 | u64::from(entry),
        };
    }
}
