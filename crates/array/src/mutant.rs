//! Faults that can be planted in the engine, so that the simulator shows it would catch them.
//!
//! Only with the feature `mutants`; without it [`planted`] is a constant and the product carries
//! nothing of this.

#[cfg(feature = "mutants")]
use std::cell::Cell;
use std::ops::Range;

/// Names them once: the variant, its name, and what breaks.
macro_rules! mutants {
    ($($variant:ident $name:literal $law:literal,)*) => {
        /// A planted fault.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Mutant {
            $(#[doc = $law] $variant,)*
        }

        #[cfg(feature = "mutants")]
        impl Mutant {
            /// All of them.
            pub const ALL: &[Mutant] = &[$(Mutant::$variant,)*];

            /// Its name.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Mutant::$variant => $name,)* }
            }

            /// What it breaks.
            #[must_use]
            pub fn law(self) -> &'static str {
                match self { $(Mutant::$variant => $law,)* }
            }

            /// The one of this name.
            #[must_use]
            pub fn named(name: &str) -> Option<Mutant> {
                Mutant::ALL.iter().copied().find(|mutant| mutant.name() == name)
            }
        }
    };
}

mutants! {
    FlushLeftOut "flush-left-out" "a flush leaves out the last member that is in sync",
    FlushErrorIgnored "flush-error-ignored" "a member whose flush failed stays in the array",
    FlushNothing "flush-nothing" "a flush is acknowledged without one",
    DurableDropped "durable-dropped" "a durable write goes to the members as an ordinary one",
    DurableGatheredDropped "durable-gathered" "of gathered writes only the leader's durability counts",
    WriteErrorIgnored "write-error-ignored" "a member that failed a write stays in the array",
    FailureNotRecorded "failure-not-recorded" "a failure is acknowledged before the superblocks know of it",
    FailureOneEvent "failure-one-event" "a failure is one event, after which the member counts as current",
    FailureLeftInRoles "failure-left-in-roles" "the role table still names a member that failed",
    CommitLeavesOneOut "commit-leaves-one-out" "the last member's superblock is not written",
    CommitCached "commit-cached" "superblocks are written without being made durable",
    DirtyNotMarked "dirty-not-marked" "an array that is written to is not marked dirty",
    DirtyAcknowledgedEarly "dirty-early" "the dirty mark is taken as recorded before it is",
    CleanWithWrites "clean-with-writes" "members are marked clean while writes are under way",
    CleanWithoutFlush "clean-without-flush" "members are marked clean without a flush",
    StopWithoutFlush "stop-without-flush" "an array is stopped without a flush",
    ParityNotUpdated "parity-not-updated" "a read-modify-write leaves P as it was",
    QNotUpdated "q-not-updated" "a read-modify-write leaves Q as it was",
    QWrongExponent "q-wrong-exponent" "Q is updated with the neighbour's coefficient",
    ParityTrustedEarly "parity-trusted-early" "parity is built on before the resync has reached it",
    ParityOfOldData "parity-of-old-data" "a reconstruct-write computes parity from old content",
    StripeLockShared "stripe-lock-shared" "writers of a stripe don't exclude each other",
    LockReleasedEarly "lock-released-early" "a stripe is unlocked before its writes have ended",
    GatherOverlaps "gather-overlaps" "a write is gathered with one of the same bytes before it",
    GatherOutside "gather-outside" "a write is gathered whose stripes are not locked",
    CopyLeftOut "copy-left-out" "the last copy of a write is not stored",
    CopiesUnguarded "copies-unguarded" "writes to the same copies don't exclude each other",
    ZeroesLeaveOneOut "zeroes-leave-one-out" "zeroes are not stored on the last member",
    ZeroStripesUnlocked "zero-stripes-unlocked" "whole stripes are zeroed without their lock",
    ResyncNotDurable "resync-not-durable" "the resync's position is recorded before it is durable",
    ResyncUnlocked "resync-unlocked" "the resync works on stripes that are being written",
    ResyncLeavesQ "resync-leaves-q" "the resync leaves Q as it is",
    ResyncWrongSource "resync-wrong-source" "the resync takes the copy that clients don't read",
    ResyncNever "resync-never" "a dirty array is taken for one in sync",
    UnsyncedAnyCopy "unsynced-any-copy" "before the resync, any copy answers a read",
    FailedStillRead "failed-still-read" "a member that failed is still read",
    RescueUnlocked "rescue-unlocked" "lost content is computed while its stripe is being written",
    StaleTrusted "stale-trusted" "a stale member is taken back as if it were current",
    CatchUpSkipped "catch-up-skipped" "a member that missed the last event does not get it",
    RebuildUnlocked "rebuild-unlocked" "a rebuild works on stripes that are being written",
    RebuildNotDurable "rebuild-not-durable" "a rebuild's position is recorded before it is durable",
    ReplacementNotWritten "replacement-not-written" "a write does not go to the replacement",
    ReplacementNotFlushed "replacement-not-flushed" "a flush does not reach the replacement",
    PplSkipped "ppl-skipped" "stripes are written without their partial parity in the log",
    JournalSkipped "journal-skipped" "stripes are written that the journal does not have",
    BitmapNotSet "bitmap-not-set" "what is written is not noted in the bitmap",
    SumsNotCompared "sums-not-compared" "what is read is not compared with its checksum",
    SumsNotChanged "sums-not-changed" "a write leaves the checksums as they were",
    SumsBelievedDirty "sums-believed-dirty" "checksums are believed that were not settled",
    SumsNotWritten "sums-not-written" "checksums count as settled without being written",
    RestlessSumsKept "restless-sums-kept" "checksums of what was being written outlive a power cut",
    BitsClearedBeforeSums "bits-cleared-before-sums" "bits are cleared before checksums are stored",
    ReadErrorPasses "read-error-passes" "a read error is passed on although redundancy has the content",
}

#[cfg(feature = "mutants")]
thread_local! {
    static PLANTED: Cell<Option<Mutant>> = const { Cell::new(None) };
}

/// Plants a fault in the engine as this thread runs it, in place of the one before.
#[cfg(feature = "mutants")]
pub fn set(mutant: Option<Mutant>) {
    PLANTED.set(mutant);
}

/// Whether this fault is planted.
#[cfg(feature = "mutants")]
pub(crate) fn planted(mutant: Mutant) -> bool {
    PLANTED.get() == Some(mutant)
}

/// Without the feature, none ever is.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub(crate) const fn planted(_mutant: Mutant) -> bool {
    false
}

/// The range to lock; with the fault planted an empty one, which excludes nobody.
pub(crate) fn unless_unlocked(mutant: Mutant, range: Range<u64>) -> Range<u64> {
    if planted(mutant) { 0..0 } else { range }
}
