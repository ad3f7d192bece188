//! Shares work among threads, one for each CPU, until it is done or stopped.
//!
//! Invariant: the result does not depend on the number of threads or on which of them did which work.

use std::num::NonZero;
use std::panic;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;

/// The judge was stopped before it finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Interrupted while judging; every trial is kept, and `bigiron report` judges the study again")]
pub struct Stopped;

/// Applies `work` to each item and returns the results in the order of the items. Stops between two items once `stop` is set.
pub(super) fn each<T: Sync, R: Send>(
    items: &[T],
    stop: &AtomicBool,
    work: impl Fn(&T) -> R + Sync,
) -> Result<Vec<R>, Stopped> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(items.len());
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(items.len())));
    let take = || {
        let mut own = Vec::new();
        while !stop.load(Relaxed) {
            let index = next.fetch_add(1, Relaxed);
            let Some(item) = items.get(index) else { break };
            own.push((index, work(item)));
        }
        done.lock().expect("no thread panics while it holds the lock").extend(own);
    };
    thread::scope(|scope| {
        // Fewer, if no more can be started.
        let others: Vec<_> =
            (1..threads).map_while(|_| thread::Builder::new().spawn_scoped(scope, take).ok()).collect();
        take();
        others.into_iter().for_each(|other| other.join().unwrap_or_else(|why| panic::resume_unwind(why)));
    });
    let mut done = done.into_inner().expect("no thread panics while it holds the lock");
    if done.len() < items.len() {
        return Err(Stopped);
    }
    done.sort_unstable_by_key(|(index, _)| *index);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<u64> = (0..1_000).collect();
        let squares = each(&items, &AtomicBool::new(false), |n| n * n).unwrap();
        assert_eq!(squares, items.iter().map(|n| n * n).collect::<Vec<_>>());
        assert_eq!(each(&[] as &[u64], &AtomicBool::new(false), |n| n * n), Ok(Vec::new()));
    }

    #[test]
    fn nothing_more_is_begun_once_it_is_told_to_stop() {
        let (stop, begun) = (AtomicBool::new(false), AtomicUsize::new(0));
        let items = [(); 1_000_000];
        let result = each(&items, &stop, |()| {
            begun.fetch_add(1, Relaxed);
            stop.store(true, Relaxed);
        });
        assert_eq!(result, Err(Stopped));
        let threads = thread::available_parallelism().map_or(1, NonZero::get);
        assert!(begun.into_inner() <= threads);
    }
}
