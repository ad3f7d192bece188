//! A stage of a load: tasks that several connections share.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError, mpsc};

/// Receives the current activity, the amount done, and the total.
pub type Progress<'a> = &'a dyn Fn(&str, u64, u64);

/// Distributes the tasks among the sessions; each takes the next remaining task. The first error ends the stage and sets `failed`, which running
/// tasks may watch.
///
/// # Errors
/// The first task's error.
pub fn stage<S: Send, T: Sync, E: Send>(
    sessions: &mut [S],
    failed: &AtomicBool,
    tasks: &[T],
    (what, of): (&str, u64),
    progress: Progress<'_>,
    each: impl Fn(&mut S, &T, &dyn Fn(u64)) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let next = AtomicUsize::new(0);
    let error = Mutex::new(None);
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for session in sessions {
            let (sender, next, error, each) = (sender.clone(), &next, &error, &each);
            scope.spawn(move || {
                while let Some(task) = tasks.get(next.fetch_add(1, Relaxed)) {
                    if failed.load(Relaxed) {
                        break;
                    }
                    // The receiver lives as long as the stage.
                    let told = |count: u64| {
                        let _ = sender.send(count);
                    };
                    if let Err(e) = each(session, task, &told) {
                        let mut first = error.lock().unwrap_or_else(PoisonError::into_inner);
                        if !failed.swap(true, Relaxed) {
                            *first = Some(e);
                        }
                    }
                }
            });
        }
        drop(sender);
        let mut done = 0;
        progress(what, done, of);
        for count in receiver {
            done += count;
            progress(what, done, of);
        }
    });
    error.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}
