//! Waiting for several futures at once.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::Poll;

use smallvec::SmallVec;

enum Part<F: Future> {
    Running(Pin<Box<F>>),
    Ended(F::Output),
}

/// Runs all futures to their end and gives their results in order. Each wake polls every one that
/// has not ended: right for the few members of an array, not for thousands.
pub async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> SmallVec<[F::Output; 8]> {
    let mut parts: SmallVec<[Part<F>; 8]> =
        futures.into_iter().map(|future| Part::Running(Box::pin(future))).collect();
    std::future::poll_fn(|context| {
        let mut pending = false;
        for part in &mut parts {
            if let Part::Running(future) = part {
                match future.as_mut().poll(context) {
                    Poll::Ready(output) => *part = Part::Ended(output),
                    Poll::Pending => pending = true,
                }
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    let outputs = parts.into_iter().map(|part| match part {
        Part::Ended(output) => output,
        Part::Running(_) => unreachable!("every future has ended"),
    });
    outputs.collect()
}

/// Runs both until one ends: `Ok` of the first, `Err` of the second. The other is dropped. When
/// both are ready, the first wins.
///
/// # Errors
/// The second future's output, when it ends first.
pub async fn race<A: Future, B: Future>(first: A, second: B) -> Result<A::Output, B::Output> {
    let mut first = pin!(first);
    let mut second = pin!(second);
    std::future::poll_fn(|context| {
        if let Poll::Ready(output) = first.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        second.as_mut().poll(context).map(Err)
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::World;

    #[test]
    fn results_keep_their_order_whoever_ends_first() {
        let world = World::virtual_time(3);
        let waits = [30, 10, 20].map(|ms| {
            let world = world.clone();
            async move {
                world.sleep(Duration::from_millis(ms)).await;
                ms
            }
        });
        assert_eq!(world.block_on(join_all(waits)).as_slice(), [30, 10, 20]);
        assert_eq!(world.now_ns(), 30_000_000);
    }
}
