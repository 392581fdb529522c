//! Which command has the arm next.

use super::super::parameters::Schedule;
use super::{Machine, Media};

impl Machine {
    /// The place in the queue of the command that is next.
    pub(super) fn choose(&mut self, now_ns: u64) -> Option<usize> {
        if self.queue.is_empty() {
            return None;
        }
        let request = |id: usize| self.requests[id].as_ref().expect("it waits");
        let cylinder = self.position.cylinder;
        match self.parameters.schedule {
            Schedule::FirstCome => Some(0),
            Schedule::ShortestSeek => {
                let distance = |id: &usize| request(*id).place.cylinder.abs_diff(cylinder);
                let all = self.queue.iter().map(distance).enumerate();
                all.min_by_key(|found| found.1).map(|found| found.0)
            }
            Schedule::Elevator => {
                let at = self.near;
                let ahead = |down: bool| {
                    let all = self.queue.iter().map(|id| request(*id).first).enumerate();
                    all.filter(|found| (found.1 < at) == down)
                        .min_by_key(|found| found.1.abs_diff(at))
                };
                let next = ahead(self.down).or_else(|| ahead(!self.down))?;
                self.down = next.1 < at;
                Some(next.0)
            }
            Schedule::ShortestPositioning { age_max_ns, window } => {
                let oldest = request(self.queue[0]);
                if now_ns - oldest.submitted_ns > age_max_ns {
                    return Some(0);
                }
                let mechanics = &self.parameters.mechanics;
                let planned_ns = self.last_passed_ns(now_ns);
                let mut best = (u64::MAX, 0);
                for (place, id) in self.queue.iter().take(window as usize).enumerate() {
                    let request = request(*id);
                    let start_ns = request.ready_ns.max(planned_ns);
                    let (to, write) = (&request.place, request.write);
                    let ns = mechanics.positioning_ns(start_ns, self.position, to, write)
                        + (start_ns - planned_ns);
                    if ns < best.0 {
                        best = (ns, place);
                    }
                }
                Some(best.1)
            }
        }
    }

    /// The disk knows its angle from the last block that passed while it reads ahead.
    fn last_passed_ns(&self, now_ns: u64) -> u64 {
        match &self.media {
            Media::Reading { visit, .. } if visit.reached(now_ns) > visit.first => {
                visit.passed_ns(visit.reached(now_ns) - 1).min(now_ns)
            }
            _ => now_ns,
        }
    }
}
