//! A stage of a load: tasks that several connections share.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError, mpsc};

use super::super::schema::{TABLES, Table};
use super::{LoadError, Progress};

/// Tables by size, the largest first, so that no connection is left alone with a large one at the end.
const BY_SIZE: [&str; 9] =
    ["stock", "customer", "order_line", "history", "orders", "item", "new_order", "district", "warehouse"];

/// The tables in this order.
pub(super) fn by_size() -> [&'static Table; 9] {
    BY_SIZE.map(|name| TABLES.iter().find(|t| t.name == name).expect("A table of the schema"))
}

/// Distributes the tasks among the sessions, each taking the next one left. The first error ends the stage, and sets `failed`, which tasks in
/// progress may watch.
pub(super) fn stage<S: Send, T: Sync>(
    sessions: &mut [S],
    failed: &AtomicBool,
    tasks: &[T],
    (what, of): (&str, u64),
    progress: Progress<'_>,
    each: impl Fn(&mut S, &T, &dyn Fn(u64)) -> Result<(), LoadError> + Sync,
) -> Result<(), LoadError> {
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
