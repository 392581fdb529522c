//! Page-mapped flash translation: each unit is written to the end of a log, and cleaning makes
//! room for the log by moving what is still valid out of a block and erasing it.
//!
//! A *unit* is what the map knows (4 KiB on most drives); a *block* is what is erased together,
//! which for drives that stripe over all dies is the block of all of them. Host writes and what
//! cleaning moves go to the same open block. Cleaning starts when fewer free blocks than the low
//! water mark are left. With [`Pace::Even`] it moves for each host unit just as many units as the
//! victim makes necessary, so that no write waits for a whole block; with [`Pace::AtOnce`] a
//! victim is emptied in one go.
//!
//! What the drive held before the first request is in `scattered`. Left out: hot and cold streams
//! (all writes share one log), and static wear levelling beyond taking the free blocks in turn.

use std::collections::VecDeque;

use world::SplitMix64;

use super::amplification;
use super::scattered::Scattered;
use super::unit_map::{UnitMap, Where};
use super::victims::{Cleaning, Victims};

/// Sizes of a translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Units the host can address.
    pub units: u32,
    /// Blocks there are, spare ones included.
    pub blocks: u32,
    /// Units in a block.
    pub units_per_block: u32,
    /// Cleaning starts when fewer blocks than this are free; at least 2.
    pub low_water_blocks: u32,
    /// How blocks to clean are chosen.
    pub cleaning: Cleaning,
    /// How cleaning shares time with the host.
    pub pace: Pace,
}

impl Layout {
    /// Units that may hold data, over units that are addressed: what write amplification follows.
    /// Blocks that are kept free do not count.
    #[must_use]
    pub fn alpha(&self) -> f64 {
        let blocks = f64::from(self.blocks) - f64::from(self.low_water_blocks);
        blocks * f64::from(self.units_per_block) / f64::from(self.units)
    }
}

/// How cleaning shares time with the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// A victim is emptied before the next host write.
    AtOnce,
    /// A few units with each host write.
    Even,
}

/// What the drive held before the first request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Nothing: each block is erased.
    Fresh,
    /// Every unit was written once, in order.
    Preconditioned,
    /// As after many drive writes at random: blocks of every age have lost the units they lose.
    Steady,
}

/// A place in flash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Block.
    pub block: u32,
    /// Unit within the block, in the order they are programmed.
    pub slot: u32,
}

/// What translation makes the flash do, in order.
pub trait Effects {
    /// A unit is read to be moved.
    fn read(&mut self, place: Place);
    /// A unit is programmed; `host` says whose.
    fn program(&mut self, place: Place, host: bool);
    /// A block is erased.
    fn erase(&mut self, block: u32);
}

/// Nobody looks.
impl Effects for () {
    fn read(&mut self, _: Place) {}
    fn program(&mut self, _: Place, _: bool) {}
    fn erase(&mut self, _: u32) {}
}

/// What happened since the drive was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Units the host wrote.
    pub host_units: u64,
    /// Units cleaning moved.
    pub moved_units: u64,
    /// Units programmed without content, to get a partial page out on a flush.
    pub padded_units: u64,
    /// Blocks erased.
    pub erases: u64,
    /// Units the host trimmed that held something.
    pub trimmed_units: u64,
}

impl Counters {
    /// Units programmed per unit the host wrote; `None` before the first.
    #[must_use]
    pub fn write_amplification(&self) -> Option<f64> {
        let programmed = self.host_units + self.moved_units + self.padded_units;
        (self.host_units > 0).then(|| programmed as f64 / self.host_units as f64)
    }
}

/// What was programmed into a block: slot and unit, where a request named the unit.
#[derive(Debug, Clone, Copy)]
struct Entry {
    slot: u32,
    unit: u32,
}

#[derive(Debug, Clone, Default)]
struct Block {
    entries: Vec<Entry>,
    valid: u32,
    /// Valid units that no request has touched.
    untouched: u32,
    used: u32,
    erases: u32,
    closed: bool,
    /// Holds the untouched units that have this block's number, as the first fill left them.
    first_fill: bool,
}

/// A block being emptied.
#[derive(Debug, Clone, Copy)]
struct Victim {
    block: u32,
    valid_at_start: u32,
    moved: u32,
    next_entry: usize,
    /// Moves that are due, in shares of what the block yields.
    credit: u64,
}

/// The translation of one drive.
#[derive(Debug, Clone)]
pub struct Translation {
    layout: Layout,
    map: UnitMap,
    blocks: Vec<Block>,
    free: VecDeque<u32>,
    open: u32,
    victims: Victims,
    victim: Option<Victim>,
    scattered: Scattered,
    filled: bool,
    random: SplitMix64,
    counters: Counters,
}

impl Translation {
    /// A drive in `state`; `seed` decides where content lies that no request has named.
    ///
    /// # Panics
    /// When the layout has too few spare blocks to be cleaned at all.
    #[must_use]
    pub fn new(layout: Layout, state: State, seed: u64) -> Self {
        let full = layout.units.div_ceil(layout.units_per_block);
        assert!(layout.low_water_blocks >= 2, "cleaning needs two blocks to move data through");
        assert!(layout.blocks > full + layout.low_water_blocks, "no spare blocks");
        let mut made = Translation {
            layout,
            map: UnitMap::default(),
            blocks: vec![Block::default(); layout.blocks as usize],
            free: VecDeque::new(),
            open: 0,
            victims: Victims::new(layout.cleaning, layout.blocks as usize, layout.units_per_block),
            victim: None,
            scattered: Scattered::new(layout.blocks as usize),
            filled: state != State::Fresh,
            random: SplitMix64::new(seed),
            counters: Counters::default(),
        };
        match state {
            State::Fresh => made.begin_log(0),
            State::Preconditioned => made.fill_in_order(full),
            State::Steady => made.prime(),
        }
        made
    }

    /// Blocks from `first` on are free, the first of them is open.
    fn begin_log(&mut self, first: u32) {
        self.open = first;
        self.free.extend(first + 1..self.layout.blocks);
    }

    fn fill_in_order(&mut self, full: u32) {
        let per_block = self.layout.units_per_block;
        for block in 0..full {
            let held = per_block.min(self.layout.units - block * per_block);
            self.blocks[block as usize].first_fill = true;
            self.set_full(block, held);
        }
        self.begin_log(full);
    }

    fn set_full(&mut self, block: u32, valid: u32) {
        let state = &mut self.blocks[block as usize];
        (state.valid, state.untouched) = (valid, valid);
        (state.used, state.closed) = (self.layout.units_per_block, true);
        self.victims.close(block, valid);
    }

    /// Draws the state that random writes lead to: the block at position p of the log (0 the
    /// newest, 1 the oldest) has a share exp(-p alpha / A) of valid units, each by itself.
    fn prime(&mut self) {
        let per_block = self.layout.units_per_block;
        let full = self.layout.blocks - self.layout.low_water_blocks;
        let capacity = f64::from(full) * f64::from(per_block);
        let alpha = capacity / f64::from(self.layout.units);
        let lap = alpha / amplification::first_in_first_out(alpha);
        let mut valid: Vec<u32> = (0..full)
            .map(|block| {
                let position = 1.0 - (f64::from(block) + 0.5) / f64::from(full);
                binomial(&mut self.random, per_block, (-position * lap).exp())
            })
            .collect();
        // Chance leaves a few units too many or too few: they are spread one by one.
        let mut surplus =
            valid.iter().map(|&units| i64::from(units)).sum::<i64>() - i64::from(self.layout.units);
        while surplus != 0 {
            let units = &mut valid[self.random.below(u64::from(full)) as usize];
            if surplus > 0 && *units > 0 {
                *units -= 1;
                surplus -= 1;
            } else if surplus < 0 && *units < per_block {
                *units += 1;
                surplus += 1;
            }
        }
        for (block, &units) in (0..full).zip(&valid) {
            self.set_full(block, units);
            self.scattered.add(block, u64::from(units));
        }
        self.begin_log(full);
    }

    /// What happened since the drive was made.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Its sizes.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Erases of the block with the fewest and of the one with the most.
    #[must_use]
    pub fn wear(&self) -> (u32, u32) {
        let erases = || self.blocks.iter().map(|block| block.erases);
        (erases().min().unwrap_or(0), erases().max().unwrap_or(0))
    }

    /// Units that hold data.
    #[must_use]
    pub fn valid_units(&self) -> u64 {
        self.blocks.iter().map(|block| u64::from(block.valid)).sum()
    }

    /// Where a unit lies; `None` where it holds nothing. A unit that no request has touched lies
    /// at a place that follows from its number.
    #[must_use]
    pub fn find(&self, unit: u32) -> Option<Place> {
        match self.map.get(unit) {
            Where::At { block, entry } => {
                let slot = self.blocks[block as usize].entries[entry as usize].slot;
                Some(Place { block, slot })
            }
            Where::Gone => None,
            Where::Untouched if !self.filled => None,
            Where::Untouched => {
                let per_block = self.layout.units_per_block;
                let home = unit / per_block;
                if self.blocks[home as usize].first_fill {
                    return Some(Place { block: home, slot: unit % per_block });
                }
                let mut random = SplitMix64::new(u64::from(unit));
                let block = self.scattered.find(random.below(self.scattered.total()));
                let slot = random.below(u64::from(per_block)) as u32;
                Some(Place { block, slot })
            }
        }
    }

    /// The host writes a unit.
    pub fn write(&mut self, unit: u32, effects: &mut impl Effects) {
        assert!(unit < self.layout.units, "unit {unit} of {}", self.layout.units);
        self.release(unit);
        self.counters.host_units += 1;
        self.program(Some(unit), true, effects);
        self.clean(effects);
    }

    /// The host no longer needs `units` from `first` on.
    pub fn trim(&mut self, first: u32, units: u32) {
        if units == self.layout.units {
            return self.trim_all();
        }
        let (mut unit, end) = (first, first + units);
        loop {
            // On a drive that was empty only what was written can hold anything.
            if !self.filled {
                unit = self.map.next_touched(unit, end);
            }
            if unit >= end {
                return;
            }
            if self.release(unit) {
                self.map.set(unit, Where::Gone);
                self.counters.trimmed_units += 1;
            }
            unit += 1;
        }
    }

    /// Nothing is needed any more: what was on the drive is forgotten at once.
    fn trim_all(&mut self) {
        self.counters.trimmed_units += self.valid_units();
        self.map = UnitMap::default();
        self.scattered = Scattered::new(self.blocks.len());
        self.filled = false;
        self.victim = self.victim.map(|victim| Victim { next_entry: 0, ..victim });
        for (block, state) in (0..).zip(&mut self.blocks) {
            let Block { used, erases, closed, valid, .. } = *state;
            *state = Block { used, erases, closed, ..Block::default() };
            if closed {
                self.victims.lose_all(block, valid);
            }
        }
    }

    /// Programs units without content until the open block stands at a multiple of `units`.
    pub fn pad(&mut self, units: u32, effects: &mut impl Effects) {
        while !self.blocks[self.open as usize].used.is_multiple_of(units) {
            let slot = self.blocks[self.open as usize].used;
            self.blocks[self.open as usize].used += 1;
            self.counters.padded_units += 1;
            effects.program(Place { block: self.open, slot }, false);
        }
    }

    /// The old place of a unit holds nothing any more. Whether it held something.
    fn release(&mut self, unit: u32) -> bool {
        let block = match self.map.get(unit) {
            Where::At { block, .. } => block,
            Where::Gone => return false,
            Where::Untouched if !self.filled => return false,
            Where::Untouched => {
                let home = unit / self.layout.units_per_block;
                if self.blocks[home as usize].first_fill {
                    self.blocks[home as usize].untouched -= 1;
                    home
                } else {
                    let which = self.random.below(self.scattered.total());
                    let block = self.scattered.find(which);
                    self.scattered.remove(block, 1);
                    self.blocks[block as usize].untouched -= 1;
                    block
                }
            }
        };
        let state = &mut self.blocks[block as usize];
        state.valid -= 1;
        if state.closed {
            self.victims.lose_one(block, state.valid);
        }
        true
    }

    /// Puts a unit at the end of the log: a named one, or one that no request has touched.
    fn program(&mut self, unit: Option<u32>, host: bool, effects: &mut impl Effects) {
        if self.blocks[self.open as usize].used == self.layout.units_per_block {
            let full = &mut self.blocks[self.open as usize];
            full.closed = true;
            self.victims.close(self.open, full.valid);
            self.open = self.free.pop_front().expect("the low water mark keeps a block free");
        }
        let block = &mut self.blocks[self.open as usize];
        let slot = block.used;
        block.used += 1;
        block.valid += 1;
        match unit {
            Some(unit) => {
                let entry = block.entries.len() as u32;
                block.entries.push(Entry { slot, unit });
                self.map.set(unit, Where::At { block: self.open, entry });
            }
            None => {
                block.untouched += 1;
                self.scattered.add(self.open, 1);
            }
        }
        effects.program(Place { block: self.open, slot }, host);
    }

    /// Moves as much as is due.
    fn clean(&mut self, effects: &mut impl Effects) {
        let mut host_unit = true;
        loop {
            if self.victim.is_none() {
                if self.free.len() >= self.layout.low_water_blocks as usize {
                    return;
                }
                let Some(block) = self.victims.take() else { return };
                self.begin_cleaning(block);
            }
            let Some(victim) = &mut self.victim else { return };
            // A block with v of n units valid yields n - v: v moves per n - v host units.
            let gain = u64::from(self.layout.units_per_block - victim.valid_at_start);
            if std::mem::take(&mut host_unit) {
                victim.credit += u64::from(victim.valid_at_start);
            }
            let valid = self.blocks[victim.block as usize].valid;
            if valid > 0 {
                // Padding takes room without paying for it: then cleaning hurries.
                let late = self.free.len() + 1 < self.layout.low_water_blocks as usize;
                if self.layout.pace == Pace::Even && gain > 0 && !late {
                    if victim.credit < gain {
                        return;
                    }
                    victim.credit -= gain;
                }
                self.move_one(effects);
            } else {
                self.erase(effects);
            }
        }
    }

    fn begin_cleaning(&mut self, block: u32) {
        let state = &mut self.blocks[block as usize];
        state.closed = false;
        if std::mem::take(&mut state.first_fill) {
            self.scattered.add(block, u64::from(state.untouched));
        }
        let valid_at_start = state.valid;
        self.victim = Some(Victim { block, valid_at_start, moved: 0, next_entry: 0, credit: 0 });
    }

    fn move_one(&mut self, effects: &mut impl Effects) {
        let Some(victim) = &mut self.victim else { return };
        let block = &self.blocks[victim.block as usize];
        // Which slots the untouched units have nobody knows: they are taken as spread evenly.
        let even = u64::from(victim.moved) * u64::from(self.layout.units_per_block)
            / u64::from(victim.valid_at_start.max(1));
        victim.moved += 1;
        let mut moved = None;
        while moved.is_none() && victim.next_entry < block.entries.len() {
            let Entry { slot, unit } = block.entries[victim.next_entry];
            let here = Where::At { block: victim.block, entry: victim.next_entry as u32 };
            victim.next_entry += 1;
            moved = (self.map.get(unit) == here).then_some((slot, unit));
        }
        let slot = moved.map_or(even as u32, |(slot, _)| slot);
        let place = Place { block: victim.block, slot };
        let state = &mut self.blocks[victim.block as usize];
        state.valid -= 1;
        if moved.is_none() {
            state.untouched -= 1;
            self.scattered.remove(place.block, 1);
        }
        effects.read(place);
        self.counters.moved_units += 1;
        self.program(moved.map(|(_, unit)| unit), false, effects);
    }

    fn erase(&mut self, effects: &mut impl Effects) {
        let Some(victim) = self.victim.take() else { return };
        let state = &mut self.blocks[victim.block as usize];
        let erases = state.erases + 1;
        *state = Block { erases, ..Block::default() };
        self.counters.erases += 1;
        self.free.push_back(victim.block);
        effects.erase(victim.block);
    }
}

/// How many of `trials` succeed with `probability`: counted for small numbers, by the normal
/// distribution (a sum of twelve uniform numbers) for large ones.
fn binomial(random: &mut SplitMix64, trials: u32, probability: f64) -> u32 {
    let unit = |random: &mut SplitMix64| (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    if trials <= 4096 {
        return (0..trials).filter(|_| unit(random) < probability).count() as u32;
    }
    let n = f64::from(trials);
    let normal = (0..12).map(|_| unit(random)).sum::<f64>() - 6.0;
    let drawn = n * probability + normal * (n * probability * (1.0 - probability)).sqrt();
    (drawn.round().max(0.0) as u32).min(trials)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_that_was_trimmed_is_as_good_as_new() {
        for cleaning in [Cleaning::Greedy, Cleaning::FirstInFirstOut] {
            let layout = Layout {
                units: 4096,
                blocks: 80,
                units_per_block: 64,
                low_water_blocks: 2,
                cleaning,
                pace: Pace::Even,
            };
            for state in [State::Fresh, State::Preconditioned, State::Steady] {
                let mut translation = Translation::new(layout, state, 1);
                let mut random = SplitMix64::new(2);
                let mut write = |translation: &mut Translation| {
                    translation.write(random.below(4096) as u32, &mut ());
                };
                (0..3000).for_each(|_| write(&mut translation));
                translation.trim(0, 4096);
                assert_eq!(translation.valid_units(), 0);
                assert!((0..4096).all(|unit| translation.find(unit).is_none()));
                let moved = translation.counters().moved_units;
                (0..3000).for_each(|_| write(&mut translation));
                assert_eq!(translation.counters().moved_units, moved, "{cleaning:?} {state:?}");
            }
        }
    }
}
