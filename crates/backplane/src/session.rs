//! One real world per process, and how it ends: by itself, or by a signal.

use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;
use world::{RingConfig, World};

use crate::error::Failure;
use crate::output::Outcome;

/// What a command found out about its end.
pub struct Ended {
    /// Its outcome.
    pub outcome: Outcome,
    /// A drive hangs: the kernel may hold on to what was asked of it, and waiting for that would
    /// hang as well.
    pub hangs: bool,
}

impl From<Outcome> for Ended {
    fn from(outcome: Outcome) -> Self {
        Ended { outcome, hangs: false }
    }
}

/// Buffers of a command that looks at a few blocks of each drive. Those of [`RingConfig`]'s
/// default are for streams, and would take longer to set up than the command takes.
const LOOK_ARENA_BYTES: usize = 1 << 20;

/// Runs a command that moves much data in a new real world, and ends it.
pub fn run<E: Into<Ended>>(
    command: impl AsyncFnOnce(&World) -> Result<E, Failure>,
) -> Result<Outcome, Failure> {
    run_in(RingConfig::default(), command)
}

/// Runs a command that looks at drives.
pub fn look<E: Into<Ended>>(
    command: impl AsyncFnOnce(&World) -> Result<E, Failure>,
) -> Result<Outcome, Failure> {
    run_in(RingConfig { arena_bytes: LOOK_ARENA_BYTES, ..RingConfig::default() }, command)
}

fn run_in<E: Into<Ended>>(
    config: RingConfig,
    command: impl AsyncFnOnce(&World) -> Result<E, Failure>,
) -> Result<Outcome, Failure> {
    let world = World::real(config)?;
    let ended = world.block_on(command(&world)).map(Into::into);
    match ended {
        Ok(Ended { hangs: true, outcome }) => {
            std::mem::forget(world);
            Ok(outcome)
        }
        Ok(Ended { outcome, .. }) => {
            world.end();
            Ok(outcome)
        }
        Err(error) => {
            world.end();
            Err(error)
        }
    }
}

/// Completes when the process is told to end, by Ctrl-C or SIGTERM.
///
/// # Errors
/// When the system has no descriptors left.
pub fn interruption(world: &World) -> Result<impl Future<Output = ()> + 'static, Failure> {
    let (ours, theirs) = UnixStream::pair()?;
    pipe::register(SIGINT, theirs.try_clone()?)?;
    pipe::register(SIGTERM, theirs)?;
    let ring = world.ring().expect("a real world has a ring").clone();
    let (ours, buffer) = (ring.adopt(ours.into()), world.pool().take(1));
    Ok(async move {
        // However it ends, nobody could interrupt any more.
        let _ = ring.receive(&ours, buffer, false).await;
    })
}
