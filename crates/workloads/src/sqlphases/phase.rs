//! The phases: for each, the tables it starts from, the statements it times, and the checks that follow.
//!
//! The phases follow MySQL's sql-bench, with statements of our own: one client sends many small statements and waits for each answer. Unlike in
//! sql-bench, no phase is cut off at a time limit and extrapolated.
//!
//! Invariant: no phase depends on another, so each can run alone; its statements depend only on the number of rows, the seed and the dialect.

use anyhow::Result;

use super::session::Session;
use super::{reading, schema_changes, wisconsin, writing};

/// A step of a phase.
type Step = fn(&mut Session<'_>) -> Result<()>;

/// A phase.
#[derive(Clone, Copy, Debug)]
pub struct Phase {
    pub name: &'static str,
    pub summary: &'static str,
    /// Creates and fills its tables before the clock starts.
    pub lay_out: Step,
    /// Runs the timed statements, and checks each query's answer as it arrives.
    pub work: Step,
    /// Checks the remaining rows and drops the tables after the clock has stopped.
    pub finish: Step,
}

/// All phases, in the order in which they run.
pub const ALL: &[Phase] = &[
    Phase {
        name: "connect",
        summary: "connections, each of which runs one query",
        lay_out: reading::one_table,
        work: reading::connect,
        finish: reading::drop_table,
    },
    Phase {
        name: "create",
        summary: "tables created, counted and dropped; tables with eight secondary indexes created and dropped",
        lay_out: nothing,
        work: schema_changes::create,
        finish: nothing,
    },
    Phase {
        name: "insert",
        summary: "rows inserted one at a time in ascending, descending and random order, and duplicates rejected",
        lay_out: writing::empty_table,
        work: writing::insert,
        finish: writing::inserted,
    },
    Phase {
        name: "insert-many",
        summary: "rows inserted 100 per statement, and a table copied",
        lay_out: writing::empty_table,
        work: writing::insert_many,
        finish: writing::copied,
    },
    Phase {
        name: "select",
        summary: "lookups by key, ranges, lists of keys, minima and maxima, groups, sorts and joins",
        lay_out: reading::two_tables,
        work: reading::select,
        finish: reading::drop_both,
    },
    Phase {
        name: "update",
        summary: "rows updated by key, in ranges, without a change, and all at once",
        lay_out: reading::one_table,
        work: writing::update,
        finish: writing::updated,
    },
    Phase {
        name: "delete",
        summary: "rows deleted by key, in ranges, and all at once",
        lay_out: reading::one_table,
        work: writing::delete,
        finish: writing::deleted,
    },
    Phase {
        name: "alter",
        summary: "columns added and dropped, and indexes created and dropped, on a table with rows",
        lay_out: reading::one_table,
        work: schema_changes::alter,
        finish: schema_changes::altered,
    },
    Phase {
        name: "big-tables",
        summary: "rows of 101 columns inserted and read",
        lay_out: schema_changes::wide_table,
        work: schema_changes::wide,
        finish: schema_changes::drop_wide,
    },
    Phase {
        name: "wisconsin",
        summary: "selections, joins and aggregates like those of the Wisconsin benchmark",
        lay_out: wisconsin::lay_out,
        work: wisconsin::work,
        finish: wisconsin::finish,
    },
    Phase {
        name: "transactions",
        summary: "transactions of ten inserts, committed or rolled back",
        lay_out: writing::empty_table,
        work: writing::transactions,
        finish: writing::committed,
    },
];

fn nothing(_: &mut Session<'_>) -> Result<()> {
    Ok(())
}
