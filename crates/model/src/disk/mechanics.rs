//! Arm, heads and the turning platter, without a clock: times come in and go out as values.
//!
//! Angles are nanoseconds since the mark of the turn passed the heads; the platter turns without
//! rest from time zero on, so that the angle at a time is the rest of a division.

use std::rc::Rc;

use super::layout::{Layout, Place};
use super::seek::SeekCurve;

/// How far an angle may be off by rounding.
const ROUNDING_NS: u64 = 2;

/// The moving parts of a disk. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Mechanics {
    /// Where blocks lie.
    pub layout: Rc<Layout>,
    /// The arm.
    pub seek: Rc<SeekCurve>,
    /// One turn of the platter.
    pub turn_ns: u64,
    /// From one head to another on the same cylinder.
    pub head_switch_ns: u64,
    /// How much longer the head needs to settle before it may write; less than nothing where the
    /// curve of the arm was measured with writes.
    pub settle_ns: i64,
    /// The same where only the head is switched.
    pub switch_settle_ns: i64,
    /// Whether reading and writing begin with whatever block of the request passes first.
    pub any_order: [bool; 2],
}

/// Where the heads are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Position {
    /// Cylinder.
    pub cylinder: u32,
    /// Head that reads or writes.
    pub head: u32,
}

/// A head over blocks that follow each other on one track.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Visit {
    /// First block.
    pub first: u64,
    /// Behind the last block it can reach on the track.
    pub end: u64,
    /// Arm and settling before it.
    pub seek_ns: u64,
    /// Rotation before it.
    pub wait_ns: u64,
    /// When the first block begins to pass.
    pub start_ns: u64,
    /// The first of the blocks up to the track's end that passed before the first one, as the head
    /// came down in front of it; the track's end if there are none, or order matters.
    pub early: u64,
    track_blocks: u32,
    turn_ns: u64,
    /// Where.
    pub position: Position,
}

impl Visit {
    /// When `block` and all before it have passed.
    #[must_use]
    pub fn passed_ns(&self, block: u64) -> u64 {
        let blocks = block.min(self.early - 1) - self.first + 1;
        self.start_ns + (blocks * self.turn_ns).div_ceil(u64::from(self.track_blocks))
    }

    /// When everything on the track has passed.
    #[must_use]
    pub fn end_ns(&self) -> u64 {
        self.passed_ns(self.end - 1)
    }

    /// Behind the last block that has passed, with all before it, at `now_ns`.
    #[must_use]
    pub fn reached(&self, now_ns: u64) -> u64 {
        let since = now_ns.saturating_sub(self.start_ns);
        let blocks = since * u64::from(self.track_blocks) / self.turn_ns;
        let linear = self.first + blocks;
        if linear >= self.early { self.end } else { linear }
    }

    /// Nothing passed early.
    pub fn in_order(&mut self) {
        self.early = self.end;
    }

    /// Everything happens `ns` later.
    pub fn delay(&mut self, ns: u64) {
        self.start_ns += ns;
        self.wait_ns += ns;
    }
}

impl Mechanics {
    /// The angle of a place's first edge.
    fn angle_ns(&self, place: &Place) -> u64 {
        u64::from(place.angle_blocks) * self.turn_ns / u64::from(place.track_blocks)
    }

    /// Arm, head switch and settling, from one position to another.
    #[must_use]
    pub fn seek_ns(&self, from: Position, to: Position, write: bool) -> u64 {
        let arm = self.seek.ns(from.cylinder.abs_diff(to.cylinder));
        let switch = if from.head == to.head { 0 } else { self.head_switch_ns };
        let ns = arm.max(switch);
        if ns == 0 || !write {
            return ns;
        }
        let moved = from.cylinder != to.cylinder;
        ns.saturating_add_signed(if moved { self.settle_ns } else { self.switch_settle_ns })
    }

    /// Rotation from `now_ns` until a place begins to pass.
    #[must_use]
    pub fn wait_ns(&self, now_ns: u64, place: &Place) -> u64 {
        let (now, then) = (now_ns % self.turn_ns, self.angle_ns(place));
        let wait_ns = (then + self.turn_ns - now) % self.turn_ns;
        // Right behind the block before it, whose end was rounded up.
        if self.turn_ns - wait_ns <= ROUNDING_NS { 0 } else { wait_ns }
    }

    /// Seek and rotation from `now_ns` until a place begins to pass: what a queue is ordered by.
    #[must_use]
    pub fn positioning_ns(&self, now_ns: u64, from: Position, place: &Place, write: bool) -> u64 {
        let to = Position { cylinder: place.cylinder, head: place.head };
        let seek_ns = self.seek_ns(from, to, write);
        seek_ns + self.wait_ns(now_ns + seek_ns, place)
    }

    /// The arm leaves `from` at `now_ns` for `block` at `place`.
    #[must_use]
    pub fn visit(
        &self,
        now_ns: u64,
        from: Position,
        (block, place): (u64, &Place),
        write: bool,
    ) -> Visit {
        let position = Position { cylinder: place.cylinder, head: place.head };
        let seek_ns = self.seek_ns(from, position, write);
        let there_ns = now_ns + seek_ns;
        let wait_ns = self.wait_ns(there_ns, place);
        let end = block + u64::from(place.run);
        let mut early = end;
        if self.any_order[usize::from(write)] {
            // Whole blocks that pass between the head's coming down and the track's end.
            let track_blocks = u64::from(place.track_blocks);
            let since = (self.turn_ns - wait_ns) * track_blocks;
            early = end.min((block + since.div_ceil(self.turn_ns)).max(block + 1));
        }
        Visit {
            first: block,
            end,
            early,
            seek_ns,
            wait_ns,
            start_ns: there_ns + wait_ns,
            track_blocks: place.track_blocks,
            turn_ns: self.turn_ns,
            position,
        }
    }

    /// The visit of the next track after `visit`, where blocks go on; none at the end of the disk.
    #[must_use]
    pub fn next(&self, visit: &Visit, write: bool) -> Option<Visit> {
        if visit.end >= self.layout.blocks() {
            return None;
        }
        let place = self.layout.find(visit.end);
        let target = (visit.end, &place);
        Some(self.visit(visit.end_ns(), visit.position, target, write))
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::{HeadOrder, Region, Sparing, Zone};
    use super::*;

    /// Ten blocks a track, a block a millisecond, two heads; the next head takes 2 ms, the next
    /// cylinder 3 ms, and skew is what that needs.
    fn mechanics() -> Mechanics {
        let sparing = Sparing::Blocks { region: Region::Zone, at_front: false, slip_to_end: false };
        let zone = Zone {
            first_cylinder: 0,
            last_cylinder: 9,
            track_blocks: 10,
            offset: 0,
            unused: 0,
            track_skew: 2,
            cylinder_skew: 3,
            spare: 0,
            slips: Vec::new(),
            moved: Vec::new(),
        };
        Mechanics {
            layout: Rc::new(Layout::new(2, HeadOrder::Same, sparing, vec![zone])),
            seek: Rc::new(SeekCurve::Table(vec![(1, 3_000_000), (9, 11_000_000)])),
            turn_ns: 10_000_000,
            head_switch_ns: 2_000_000,
            settle_ns: 500_000,
            switch_settle_ns: 500_000,
            any_order: [false; 2],
        }
    }

    const MS: u64 = 1_000_000;

    fn visit(mechanics: &Mechanics, now_ns: u64, block: u64, write: bool) -> Visit {
        let place = mechanics.layout.find(block);
        mechanics.visit(now_ns, Position::default(), (block, &place), write)
    }

    #[test]
    fn a_block_passes_after_seek_and_rotation() {
        let mechanics = mechanics();
        // Cylinder 2, head 0: 4 ms away, begins at 10 of 10 blocks round.
        let there = visit(&mechanics, 0, 45, false);
        assert_eq!((there.seek_ns, there.wait_ns), (4 * MS, MS));
        assert_eq!(there.passed_ns(45), 6 * MS);
        assert_eq!((there.first, there.end), (45, 50));
        let written = visit(&mechanics, 0, 45, true);
        assert_eq!((written.seek_ns, written.wait_ns), (4_500_000, 500_000));
    }

    #[test]
    fn skew_lets_it_read_on_without_losing_a_turn() {
        let mechanics = mechanics();
        let mut at = visit(&mechanics, 0, 0, false);
        for track in 1..6_u64 {
            at = mechanics.next(&at, false).expect("more tracks");
            assert_eq!(at.wait_ns, 0, "track {track}");
            let turns = track * 10 + track.div_ceil(2) * 2 + track / 2 * 3;
            assert_eq!(at.start_ns, turns * MS);
        }
    }

    #[test]
    fn a_skew_that_is_too_short_costs_a_turn() {
        let mut mechanics = mechanics();
        mechanics.head_switch_ns += ROUNDING_NS + 1;
        let first = visit(&mechanics, 0, 0, false);
        let second = mechanics.next(&first, false).expect("more tracks");
        assert_eq!(second.start_ns, 22 * MS);
    }

    #[test]
    fn in_any_order_a_whole_track_takes_one_turn() {
        let mut mechanics = mechanics();
        mechanics.any_order = [true, false];
        let read = visit(&mechanics, 3 * MS + 1, 0, false);
        // Blocks 4 to 9 pass first, then 0 to 3.
        assert_eq!((read.early, read.end_ns()), (4, 14 * MS));
        assert_eq!((read.passed_ns(2), read.passed_ns(6)), (13 * MS, 14 * MS));
        assert_eq!((read.reached(13 * MS), read.reached(14 * MS)), (3, 10));
        assert_eq!(visit(&mechanics, 3 * MS + 1, 0, true).end_ns(), 20 * MS);
        // The head comes down right at the first block, or before it.
        assert_eq!(visit(&mechanics, 0, 0, false).end_ns(), 10 * MS);
        assert_eq!(visit(&mechanics, 0, 5, false).end_ns(), 10 * MS);
        assert_eq!(visit(&mechanics, 5 * MS - 1, 5, false).early, 10);
    }

    #[test]
    fn what_has_passed_is_known_at_every_time() {
        let mechanics = mechanics();
        let at = visit(&mechanics, 0, 45, false);
        for (ms, reached) in [(0, 45), (5, 45), (6, 46), (9, 49), (10, 50), (30, 50)] {
            assert_eq!(at.reached(ms * MS), reached, "{ms} ms");
        }
    }

    #[test]
    fn the_disk_ends() {
        let mechanics = mechanics();
        let last = visit(&mechanics, 0, 195, false);
        assert_eq!(mechanics.next(&last, false), None);
    }
}
