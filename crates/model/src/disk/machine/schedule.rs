//! Which command has the arm next.

use super::super::parameters::Schedule;
use super::Machine;

impl Machine {
    /// The place in the queue of the command that is next.
    pub(super) fn choose(&self, now_ns: u64) -> Option<usize> {
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
            Schedule::ShortestPositioning { age_max_ns, window } => {
                let oldest = request(self.queue[0]);
                if now_ns - oldest.submitted_ns > age_max_ns {
                    return Some(0);
                }
                let mechanics = &self.parameters.mechanics;
                let mut best = (u64::MAX, 0);
                for (place, id) in self.queue.iter().take(window as usize).enumerate() {
                    let request = request(*id);
                    let start_ns = request.ready_ns.max(now_ns);
                    let (to, write) = (&request.place, request.write);
                    let ns = mechanics.positioning_ns(start_ns, self.position, to, write)
                        + (start_ns - now_ns);
                    if ns < best.0 {
                        best = (ns, place);
                    }
                }
                Some(best.1)
            }
        }
    }
}
