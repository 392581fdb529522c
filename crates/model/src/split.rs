//! Where a request's time went.

/// What a request waits for or is served by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// A place in the queue of commands the drive takes, or a hard disk's arm.
    Queue,
    /// The host link.
    Link,
    /// The controller's processor.
    Command,
    /// Room in the write buffer, and the acknowledgement.
    Buffer,
    /// A die: reads, programs and erases.
    Die,
    /// A channel.
    Channel,
    /// Everything buffered being programmed or written, and the map being saved.
    Flush,
    /// A hard disk's arm, with head switch and settling.
    Seek,
    /// The platter turning to the first block.
    Rotation,
    /// Blocks passing under the head, with what it takes from track to track.
    Media,
}

const STAGES: usize = 10;

/// A request's response time by stage: waited for and served. Their sum is the response time.
/// Of a request with several parts it is the way of the part that ended last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Split {
    waited_ns: [u64; STAGES],
    served_ns: [u64; STAGES],
}

impl Split {
    pub(crate) fn add(&mut self, stage: Stage, waited_ns: u64, served_ns: u64) {
        self.waited_ns[stage as usize] += waited_ns;
        self.served_ns[stage as usize] += served_ns;
    }

    /// Adds another request's times, for the sum over a run.
    pub fn merge(&mut self, other: &Split) {
        for (sum, part) in self.waited_ns.iter_mut().zip(other.waited_ns) {
            *sum += part;
        }
        for (sum, part) in self.served_ns.iter_mut().zip(other.served_ns) {
            *sum += part;
        }
    }

    /// Time it stood in the stage's queue.
    #[must_use]
    pub fn waited_ns(&self, stage: Stage) -> u64 {
        self.waited_ns[stage as usize]
    }

    /// Time the stage worked for it.
    #[must_use]
    pub fn served_ns(&self, stage: Stage) -> u64 {
        self.served_ns[stage as usize]
    }

    /// The response time.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.waited_ns.iter().chain(&self.served_ns).sum()
    }
}
