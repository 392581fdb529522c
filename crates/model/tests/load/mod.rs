//! Commands for a machine that always has some.

use model::command::{Command, Completion, Timing};

/// Keeps `depth` commands under way until `count` are over; `over` hears of each. Gives the time.
pub fn keep_busy(
    machine: &mut impl Timing,
    depth: u64,
    count: u64,
    mut next: impl FnMut() -> Command,
    mut over: impl FnMut(Completion),
) -> u64 {
    let (mut submitted, mut ended, mut now_ns) = (0, 0, 0);
    while ended < count {
        while submitted < count && submitted - ended < depth {
            machine.submit(now_ns, submitted, next());
            submitted += 1;
        }
        now_ns = machine.next_ns().expect("commands are under way");
        machine.advance(now_ns);
        while let Some(completion) = machine.completion() {
            ended += 1;
            over(completion);
        }
    }
    now_ns
}
