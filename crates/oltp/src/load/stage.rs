//! A stage of a load: tables that several connections share.

use std::sync::atomic::AtomicBool;

use super::super::schema::{TABLES, Table};
use super::{LoadError, Progress};

/// Tables by size, the largest first, so that no connection is left alone with a large one at the end.
const BY_SIZE: [&str; 9] =
    ["stock", "customer", "order_line", "history", "orders", "item", "new_order", "district", "warehouse"];

/// The tables in this order.
pub(super) fn by_size() -> [&'static Table; 9] {
    BY_SIZE.map(|name| TABLES.iter().find(|t| t.name == name).expect("A table of the schema"))
}

/// [`bigiron_sql::stage::stage`] with this workload's errors.
pub(super) fn stage<S: Send, T: Sync>(
    sessions: &mut [S],
    failed: &AtomicBool,
    tasks: &[T],
    of: (&str, u64),
    progress: Progress<'_>,
    each: impl Fn(&mut S, &T, &dyn Fn(u64)) -> Result<(), LoadError> + Sync,
) -> Result<(), LoadError> {
    bigiron_sql::stage::stage(sessions, failed, tasks, of, progress, each)
}
