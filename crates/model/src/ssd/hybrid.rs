//! Translation of first-generation controllers (JMicron JMF602): the map knows only large units,
//! and writes into them go to a few log units.
//!
//! A write that continues the log of its unit, or finds room in it, is appended. When no log is
//! left for a unit, the least recently used one is merged: everything valid of its unit is read
//! and programmed into an erased unit, and two units are erased. A log that was written in order
//! from start to end takes its unit's place without a copy, so sequential writes run at full
//! speed, while random writes beyond the logs cost unit / R + unit / W each: the stutter.

use std::collections::VecDeque;

use super::translation::{Counters, Effects, Place};

/// Sizes of a hybrid mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Translation units in one mapped unit.
    pub units: u32,
    /// Logs.
    pub logs: u32,
}

#[derive(Debug, Clone, Copy)]
struct Log {
    mapped: u32,
    used: u32,
    /// Units 0 to `used` in order, nothing else.
    in_order: bool,
}

/// The translation of one drive. Memory follows the logs, never the capacity.
#[derive(Debug, Clone)]
pub struct Hybrid {
    shape: Shape,
    /// The least recently used one is first.
    logs: VecDeque<Log>,
    counters: Counters,
}

impl Hybrid {
    /// A drive whose logs are empty.
    #[must_use]
    pub fn new(shape: Shape) -> Self {
        Hybrid { shape, logs: VecDeque::new(), counters: Counters::default() }
    }

    /// What happened since the drive was made.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Where a unit lies: in the block of its number.
    #[must_use]
    pub fn find(&self, unit: u32) -> Place {
        Place { block: unit / self.shape.units, slot: unit % self.shape.units }
    }

    /// The host writes a unit.
    pub fn write(&mut self, unit: u32, effects: &mut impl Effects) {
        let Place { block: mapped, slot } = self.find(unit);
        self.counters.host_units += 1;
        let found = self.logs.iter().position(|log| log.mapped == mapped);
        let mut log = match found.and_then(|at| self.logs.remove(at)) {
            Some(log) => log,
            None => {
                if self.logs.len() >= self.shape.logs as usize
                    && let Some(oldest) = self.logs.pop_front()
                {
                    self.merge(oldest, effects);
                }
                Log { mapped, used: 0, in_order: true }
            }
        };
        if log.used == self.shape.units {
            self.merge(log, effects);
            log = Log { mapped, used: 0, in_order: true };
        }
        log.in_order &= log.used == slot;
        effects.program(Place { block: mapped, slot: log.used }, true);
        log.used += 1;
        self.logs.push_back(log);
    }

    fn merge(&mut self, log: Log, effects: &mut impl Effects) {
        // What was written in order stays where it is; only the rest is copied behind it.
        let first = if log.in_order { log.used } else { 0 };
        for slot in first..self.shape.units {
            effects.read(Place { block: log.mapped, slot });
            effects.program(Place { block: log.mapped, slot }, false);
            self.counters.moved_units += 1;
        }
        // The old unit, and the log where it did not take the unit's place.
        for _ in 0..if log.in_order { 1 } else { 2 } {
            effects.erase(log.mapped);
            self.counters.erases += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_in_order_cost_no_copies() {
        let mut hybrid = Hybrid::new(Shape { units: 8, logs: 2 });
        (0..64).for_each(|unit| hybrid.write(unit, &mut ()));
        assert_eq!(hybrid.counters().moved_units, 0);
        // Six of eight units have left their logs.
        assert_eq!(hybrid.counters().erases, 6);
    }

    #[test]
    fn a_write_outside_the_logs_merges_a_whole_unit() {
        let mut hybrid = Hybrid::new(Shape { units: 8, logs: 2 });
        for mapped in [0, 1, 0, 1, 5, 1] {
            hybrid.write(mapped * 8 + 3, &mut ());
        }
        // Only the fifth write found no log.
        assert_eq!(hybrid.counters().moved_units, 8);
        assert_eq!(hybrid.counters().erases, 2);
    }
}
