//! Which operation meets which fault: scripted by kind, place and count, or left to the seed.

use std::ops::Range;
use std::time::Duration;

use world::SplitMix64;

use crate::error::{ErrorKind, Operation};

/// What a fault does to an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It fails, and nothing is stored.
    Fail(ErrorKind),
    /// It begins this much later; several delays add up.
    Delay(Duration),
    /// It waits until it is released.
    Hang,
    /// A write (or zeroes) stores some of its first blocks, never all.
    Torn {
        /// Whether it is acknowledged all the same; else it fails with a medium error.
        acknowledged: bool,
    },
    /// A write, flush, discard or zeroes is acknowledged and nothing happens.
    Lost,
    /// A write is stored at a place of the seed's choice in the fault's range, and acknowledged.
    Misdirect,
    /// One bit is flipped: of what a read returns, or of what a write stores.
    Rot,
}

/// A fault, and the operations it is for. Made by [`Fault::new`] for all of them; each method
/// narrows it.
#[derive(Debug, Clone)]
pub struct Fault {
    effect: Effect,
    operation: Option<Operation>,
    range: Range<u64>,
    skip: u64,
    times: u64,
    one_in: u64,
}

impl Fault {
    /// A fault for every operation, everywhere, for ever.
    #[must_use]
    pub fn new(effect: Effect) -> Fault {
        Fault { effect, operation: None, range: 0..u64::MAX, skip: 0, times: u64::MAX, one_in: 1 }
    }

    /// Only for this kind of operation.
    #[must_use]
    pub fn on(self, operation: Operation) -> Fault {
        Fault { operation: Some(operation), ..self }
    }

    /// Only for operations that touch these bytes (flushes touch none and all).
    #[must_use]
    pub fn within(self, range: Range<u64>) -> Fault {
        Fault { range, ..self }
    }

    /// Not for the first `count` operations that it would be for.
    #[must_use]
    pub fn after(self, count: u64) -> Fault {
        Fault { skip: count, ..self }
    }

    /// At most `count` times.
    #[must_use]
    pub fn times(self, count: u64) -> Fault {
        Fault { times: count, ..self }
    }

    /// Only for one in `count` of the operations, as the seed decides.
    #[must_use]
    pub fn one_in(self, count: u64) -> Fault {
        Fault { one_in: count.max(1), ..self }
    }

    fn concerns(&self, operation: Operation, offset: u64, bytes: u64) -> bool {
        let here = operation == Operation::Flush
            || (offset < self.range.end && self.range.start < offset.saturating_add(bytes));
        here && self.operation.is_none_or(|only| only == operation)
    }
}

/// Names a fault that was added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultId(u64);

/// What happens to one operation.
pub(super) struct Verdict {
    pub delay: Duration,
    pub hangs: bool,
    /// The first effect that is not about time.
    pub effect: Option<Effect>,
    /// Where that fault is.
    pub range: Range<u64>,
}

/// The faults in force, and the seed's choices.
pub(super) struct Plan {
    faults: Vec<(FaultId, Fault)>,
    random: SplitMix64,
    added: u64,
    injected: u64,
}

impl Plan {
    pub fn new(seed: u64) -> Plan {
        Plan { faults: Vec::new(), random: SplitMix64::new(seed), added: 0, injected: 0 }
    }

    pub fn add(&mut self, fault: Fault) -> FaultId {
        self.added += 1;
        let id = FaultId(self.added);
        self.faults.push((id, fault));
        id
    }

    pub fn remove(&mut self, id: FaultId) {
        self.faults.retain(|(other, _)| *other != id);
    }

    pub fn clear(&mut self) {
        self.faults.clear();
    }

    pub fn injected(&self) -> u64 {
        self.injected
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    /// A byte of the request that lies in `range`, counted from the request's start.
    pub fn place_in(&mut self, range: &Range<u64>, offset: u64, bytes: u64) -> u64 {
        let start = range.start.max(offset);
        let end = range.end.min(offset + bytes);
        start - offset + self.random.below(end - start)
    }

    pub fn judge(&mut self, operation: Operation, offset: u64, bytes: u64) -> Verdict {
        let mut verdict =
            Verdict { delay: Duration::ZERO, hangs: false, effect: None, range: 0..u64::MAX };
        let mut changed = false;
        for (_, fault) in &mut self.faults {
            if !fault.concerns(operation, offset, bytes) {
                continue;
            }
            if fault.skip > 0 {
                fault.skip -= 1;
                continue;
            }
            if fault.times == 0 || !self.random.chance(1, fault.one_in) {
                continue;
            }
            match fault.effect {
                Effect::Delay(delay) => verdict.delay = verdict.delay.saturating_add(delay),
                Effect::Hang => verdict.hangs = true,
                effect if verdict.effect.is_none() => {
                    verdict.effect = Some(effect);
                    verdict.range = fault.range.clone();
                }
                _ => continue,
            }
            fault.times -= 1;
            changed = true;
        }
        self.injected += u64::from(changed);
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_apply_by_kind_place_and_count() {
        let mut plan = Plan::new(1);
        let media = Effect::Fail(ErrorKind::Media);
        plan.add(Fault::new(media).on(Operation::Read).within(4096..8192).after(1).times(2));
        let id = plan.add(Fault::new(Effect::Delay(Duration::from_millis(5))));
        let mut effect = |operation, offset, bytes| plan.judge(operation, offset, bytes).effect;
        assert_eq!(effect(Operation::Write, 4096, 512), None, "another kind");
        assert_eq!(effect(Operation::Read, 0, 4096), None, "ends before it");
        assert_eq!(effect(Operation::Read, 0, 4097), None, "let through");
        assert_eq!(effect(Operation::Read, 8191, 1), Some(media));
        assert_eq!(effect(Operation::Read, 4096, 4096), Some(media));
        assert_eq!(effect(Operation::Read, 4096, 4096), None, "used up");
        assert_eq!(plan.injected(), 6, "all were delayed");
        plan.remove(id);
        assert!(plan.judge(Operation::Flush, 0, 0).delay.is_zero());
    }

    #[test]
    fn the_seed_decides_which_of_many() {
        let hits = |seed| {
            let mut plan = Plan::new(seed);
            plan.add(Fault::new(Effect::Lost).on(Operation::Write).one_in(10));
            let hit = |at: &u64| plan.judge(Operation::Write, *at, 1).effect.is_some();
            (0..1000u64).filter(hit).collect::<Vec<u64>>()
        };
        assert_eq!(hits(3), hits(3));
        assert_ne!(hits(3), hits(4));
        assert!((50..200).contains(&hits(3).len()));
    }
}
