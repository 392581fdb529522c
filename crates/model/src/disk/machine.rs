//! The timing of a hard disk: a discrete-event machine without a clock.
//!
//! The owner submits commands at non-decreasing times, asks when the next event is due, and
//! advances to it; completions come out in order. One command at a time has the arm; the others
//! wait in the queue, and the schedule says which is next. What happens under the head between two
//! events is computed when somebody asks, not step by step.
//!
//! Read: command, arm, rotation, blocks under the head, and the link, which begins as soon as there
//! is something to send. Behind the request the disk reads ahead into the segment until another
//! command takes the arm. Write: command, link, and the platter; when the host hears that it is
//! over is told by [`Writes`].
//!
//! Left out: retries, thermal recalibration, and the link being taken by other disks.

mod cache;
mod media;
mod reads;
mod schedule;
mod spoiled;
mod writes;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use self::cache::Cache;
use self::media::Log;
use self::spoiled::Spoiled;
use super::buffer::Segments;
use super::layout::Place;
use super::mechanics::{Position, Visit};
use super::parameters::{Parameters, Writes};
use crate::command::{Command, Completion, Timing};
use crate::split::{Split, Stage};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A command's data go over the link.
    Link(usize),
    /// A command is over for the host.
    End(usize),
    /// Nothing holds the arm any more.
    Free,
    /// The disk has been idle for long enough to write what is in its cache.
    Idle,
}

/// When the last blocks of a read come into the buffer, and how many at once: more than one when
/// they passed before the ones in front of them.
#[derive(Debug, Clone, Copy)]
struct Ready {
    at_ns: u64,
    blocks: u64,
}

#[derive(Debug)]
struct Request {
    tag: u64,
    first: u64,
    blocks: u64,
    write: bool,
    /// Over once it is on the platter.
    to_platter: bool,
    submitted_ns: u64,
    /// When the command has been understood.
    ready_ns: u64,
    place: Place,
    /// When everything of a read is in the buffer.
    ready: Ready,
    failed: bool,
    /// Up to when the split is filled.
    at_ns: u64,
    split: Split,
}

impl Request {
    /// Its time up to `until_ns` was service by a stage.
    fn served(&mut self, stage: Stage, until_ns: u64) {
        self.split.add(stage, 0, until_ns.saturating_sub(self.at_ns));
        self.at_ns = self.at_ns.max(until_ns);
    }

    /// Its time up to `until_ns` was waiting for a stage.
    fn waited(&mut self, stage: Stage, until_ns: u64) {
        self.split.add(stage, until_ns.saturating_sub(self.at_ns), 0);
        self.at_ns = self.at_ns.max(until_ns);
    }

    fn end(&self) -> u64 {
        self.first + self.blocks
    }
}

/// What happens under the head.
#[derive(Debug, Clone, Copy)]
enum Media {
    Still,
    Reading { segment: usize, visit: Visit },
    Writing { segment: Option<usize>, visit: Visit, end: u64, until_ns: u64 },
}

/// Who has the arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    /// Nobody, or reading ahead.
    Nobody,
    /// A command, until it is over for the host.
    Request(usize),
    /// Somebody, until an event.
    Event,
}

/// One hard disk in time.
#[derive(Debug)]
pub struct Machine {
    parameters: Parameters,
    position: Position,
    segments: Segments,
    media: Media,
    holder: Holder,
    requests: Vec<Option<Request>>,
    unused: Vec<usize>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    pushed: u64,
    /// Commands that wait for the arm, by age.
    queue: Vec<usize>,
    /// Commands that wait for a place in the queue the disk offers.
    beyond: VecDeque<(u64, u64, Command)>,
    active: u32,
    after_write: bool,
    link_free_ns: u64,
    cache: Cache,
    log: Log,
    /// When a command came last.
    last_ns: u64,
    idle_asked: bool,
    /// A block near the arm.
    near: u64,
    /// The elevator goes down.
    down: bool,
    spoiled: Spoiled,
    /// Flushes, by age; everything that comes after the first waits.
    flushes: VecDeque<usize>,
    done: VecDeque<Completion>,
}

impl Machine {
    /// A disk whose heads are over its first cylinder.
    #[must_use]
    pub fn new(parameters: Parameters) -> Self {
        Machine {
            position: Position::default(),
            segments: Segments::new(parameters.buffer),
            media: Media::Still,
            holder: Holder::Nobody,
            requests: Vec::new(),
            unused: Vec::new(),
            events: BinaryHeap::new(),
            pushed: 0,
            queue: Vec::new(),
            beyond: VecDeque::new(),
            active: 0,
            after_write: false,
            link_free_ns: 0,
            cache: Cache::default(),
            log: Log::default(),
            last_ns: 0,
            idle_asked: false,
            near: 0,
            down: false,
            spoiled: Spoiled::default(),
            flushes: VecDeque::new(),
            done: VecDeque::new(),
            parameters,
        }
    }

    /// What it is made of.
    #[must_use]
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    fn push(&mut self, at_ns: u64, event: Event) {
        self.pushed += 1;
        self.events.push(Reverse((at_ns, self.pushed, event)));
    }

    fn request(&mut self, id: usize) -> &mut Request {
        self.requests[id].as_mut().expect("a request is known until it ends")
    }

    /// The blocks a command touches, at least one.
    fn range(&self, offset: u64, bytes: u64) -> (u64, u64) {
        let block = u64::from(self.parameters.block_bytes);
        let first = (offset / block).min(self.parameters.blocks - 1);
        let end = (offset + bytes).div_ceil(block).clamp(first + 1, self.parameters.blocks);
        (first, end - first)
    }

    fn accept(&mut self, now_ns: u64, submitted_ns: u64, tag: u64, command: Command) {
        self.active += 1;
        self.last_ns = now_ns;
        let (offset, bytes, write, durable) = match command {
            Command::Read { offset, bytes } => (offset, bytes, false, false),
            Command::Write { offset, bytes, durable } => (offset, bytes, true, durable),
            Command::Trim { offset, bytes } => (offset, bytes, true, false),
            Command::Flush => (0, 0, true, false),
        };
        let (first, blocks) = self.range(offset, bytes);
        let at = if write { self.write_place(first, first + blocks) } else { first };
        let place = self.parameters.mechanics.layout.find(at);
        let mut request = Request {
            tag,
            first,
            blocks,
            write,
            to_platter: durable || self.parameters.writes == Writes::OnPlatter,
            submitted_ns,
            ready_ns: now_ns,
            place,
            ready: Ready { at_ns: now_ns, blocks: 1 },
            failed: false,
            at_ns: submitted_ns,
            split: Split::default(),
        };
        request.waited(Stage::Queue, now_ns);
        let id = self.unused.pop().unwrap_or_else(|| {
            self.requests.push(None);
            self.requests.len() - 1
        });
        self.requests[id] = Some(request);
        self.catch_up(now_ns);
        match command {
            Command::Read { .. } => self.read_arrives(now_ns, id),
            Command::Write { .. } => self.write_arrives(now_ns, id),
            Command::Trim { .. } => {
                let ns = self.parameters.overheads.write_ns[usize::from(self.after_write)];
                self.end_at(now_ns + ns, id, Stage::Command);
            }
            Command::Flush => {
                self.flushes.push_back(id);
                self.dispatch(now_ns);
            }
        }
    }

    /// The last stage of a command serves it until `at_ns`.
    fn end_at(&mut self, at_ns: u64, id: usize, stage: Stage) {
        self.request(id).served(stage, at_ns);
        self.push(at_ns, Event::End(id));
    }

    fn end(&mut self, now_ns: u64, id: usize) {
        let Some(request) = self.requests[id].take() else { return };
        self.unused.push(id);
        debug_assert_eq!(request.split.total_ns(), now_ns - request.submitted_ns);
        self.active -= 1;
        self.done.push_back(Completion {
            tag: request.tag,
            at_ns: now_ns,
            failed: request.failed,
            split: request.split,
        });
        if self.holder == Holder::Request(id) {
            self.free(now_ns);
        } else if !self.flushes.is_empty() {
            self.dispatch(now_ns);
        }
        self.admit(now_ns);
    }

    /// Commands that found the queue full, or a flush in front of them, come in.
    fn admit(&mut self, now_ns: u64) {
        while self.active < self.parameters.queue_depth && self.flushes.is_empty() {
            let Some((submitted_ns, tag, command)) = self.beyond.pop_front() else { return };
            self.accept(now_ns, submitted_ns, tag, command);
        }
    }

    /// The arm is taken until a time.
    fn hold_until(&mut self, at_ns: u64) {
        self.holder = Holder::Event;
        self.push(at_ns, Event::Free);
    }

    /// Whatever held the arm is over.
    fn free(&mut self, now_ns: u64) {
        if let Media::Writing { until_ns, .. } = self.media {
            if until_ns > now_ns {
                // Blocks were appended since.
                self.hold_until(until_ns);
                return;
            }
            self.written(now_ns);
        }
        self.holder = Holder::Nobody;
        self.catch_up(now_ns);
        self.dispatch(now_ns);
    }

    /// Gives the arm to the next command, if it is free.
    fn dispatch(&mut self, now_ns: u64) {
        if self.holder != Holder::Nobody {
            return;
        }
        self.catch_up(now_ns);
        if self.log_presses() && self.clean(now_ns) {
            return;
        }
        if self.cache_presses() && self.destage(now_ns) {
            return;
        }
        if let Some(place) = self.choose(now_ns) {
            let id = self.queue.remove(place);
            if self.request(id).write {
                self.start_write(now_ns, id, false);
            } else {
                self.start_read(now_ns, id, false);
            }
        } else if !self.destage(now_ns) {
            self.end_flushes(now_ns);
            if let Some(media) = self.parameters.media
                && self.log.within(0, self.parameters.blocks)
                && self.idle_for(now_ns, media.idle_ns)
            {
                self.clean(now_ns);
            }
        }
    }

    /// Whether no command came for a time; if not, it is looked at again when that is over.
    fn idle_for(&mut self, now_ns: u64, idle_ns: u64) -> bool {
        let idle_ns = self.last_ns + idle_ns;
        if now_ns < idle_ns && !std::mem::replace(&mut self.idle_asked, true) {
            self.push(idle_ns, Event::Idle);
        }
        now_ns >= idle_ns
    }

    /// The disk may have had nothing to do for a while.
    fn idle(&mut self, now_ns: u64) {
        self.idle_asked = false;
        self.dispatch(now_ns);
    }

    /// Flushes end when nothing came before them that is not on the platter.
    fn end_flushes(&mut self, now_ns: u64) {
        if self.flushes.len() < self.active as usize || !self.cache.clean() {
            return;
        }
        let ns = self.parameters.overheads.write_ns[usize::from(self.after_write)];
        while let Some(id) = self.flushes.pop_front() {
            self.request(id).waited(Stage::Flush, now_ns);
            self.end_at(now_ns + ns, id, Stage::Flush);
        }
    }

    /// Blocks that passed under the head since the last look are in their segment.
    fn catch_up(&mut self, now_ns: u64) {
        let Media::Reading { segment, mut visit } = self.media else { return };
        let ahead_end = self.segments.get(segment).ahead_end;
        while visit.end < ahead_end && visit.end_ns() <= now_ns {
            let Some(next) = self.parameters.mechanics.next(&visit, false) else { break };
            visit = next;
        }
        self.position = visit.position;
        self.segments.fill(segment, visit.reached(now_ns).min(ahead_end));
        self.media = Media::Reading { segment, visit };
        if visit.reached(now_ns) >= ahead_end {
            self.media = Media::Still;
        }
    }

    /// What a write changes is not read from the buffer any more, nor read ahead.
    fn forget(&mut self, first: u64, end: u64, except: Option<usize>) {
        self.segments.forget(first, end - first, except);
        if let Media::Reading { segment, .. } = self.media
            && self.segments.covers(segment, first, end)
        {
            let write_stops = self.parameters.buffer.write_stops_ahead;
            self.segments.stop(segment, if write_stops { 0 } else { first });
        }
    }

    /// Reading ahead ends for another command; when the arm may leave.
    fn stop(&mut self, now_ns: u64) -> u64 {
        let Media::Reading { visit, .. } = std::mem::replace(&mut self.media, Media::Still) else {
            return now_ns;
        };
        self.position = visit.position;
        if self.parameters.buffer.stops_in_block {
            return now_ns;
        }
        let there_ns = visit.start_ns - visit.wait_ns;
        if now_ns < there_ns {
            there_ns
        } else if now_ns < visit.start_ns {
            visit.start_ns
        } else {
            let next = visit.reached(now_ns);
            if next < visit.end { visit.passed_ns(next) } else { now_ns }
        }
    }
}

impl Timing for Machine {
    fn submit(&mut self, now_ns: u64, tag: u64, command: Command) {
        if self.active == self.parameters.queue_depth || !self.flushes.is_empty() {
            self.beyond.push_back((now_ns, tag, command));
        } else {
            self.accept(now_ns, now_ns, tag, command);
        }
    }

    fn next_ns(&self) -> Option<u64> {
        self.events.peek().map(|Reverse((at, _, _))| *at)
    }

    fn advance(&mut self, now_ns: u64) {
        while self.next_ns().is_some_and(|at| at <= now_ns) {
            let Some(Reverse((at, _, event))) = self.events.pop() else { return };
            match event {
                Event::Link(id) => self.link_read(at, id),
                Event::End(id) => self.end(at, id),
                Event::Free => self.free(at),
                Event::Idle => self.idle(at),
            }
        }
    }

    fn completion(&mut self) -> Option<Completion> {
        self.done.pop_front()
    }
}
