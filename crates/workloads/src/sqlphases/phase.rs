//! The phases: what each lays out, what it does under the clock, and what must be there afterwards.
//!
//! The phases are those of MySQL's sql-bench, with our own statements: many small statements of one client, each an answer to wait for. Unlike there
//! no phase is cut by a time limit and estimated.
//!
//! Invariant: a phase depends on no other one, so that it can run alone; its statements depend only on the rows, the seed and the dialect.

use anyhow::Result;

use super::session::Session;
use super::{reading, schema_changes, wisconsin, writing};

/// What a step of a phase does on its session.
type Step = fn(&mut Session<'_>) -> Result<()>;

/// A phase.
#[derive(Clone, Copy, Debug)]
pub struct Phase {
    pub name: &'static str,
    pub summary: &'static str,
    /// Lays out its tables, before the clock starts.
    pub lay_out: Step,
    /// The measured statements. Answers are checked as they arrive.
    pub work: Step,
    /// Checks what is left, and removes the phase's tables, after the clock has stopped.
    pub finish: Step,
}

/// All phases, in their order.
pub const ALL: &[Phase] = &[
    Phase {
        name: "connect",
        summary: "connections, each with one statement",
        lay_out: reading::one_table,
        work: reading::connect,
        finish: reading::drop_it,
    },
    Phase {
        name: "create",
        summary: "tables created, counted and dropped; tables with eight indexes created and dropped",
        lay_out: nothing,
        work: schema_changes::create,
        finish: nothing,
    },
    Phase {
        name: "insert",
        summary: "rows inserted one at a time, in rising, falling and random order, and rows refused for their key",
        lay_out: writing::empty_table,
        work: writing::insert,
        finish: writing::inserted,
    },
    Phase {
        name: "insert-many",
        summary: "rows inserted a hundred at a time, and copied from another table",
        lay_out: writing::empty_table,
        work: writing::insert_many,
        finish: writing::copied,
    },
    Phase {
        name: "select",
        summary: "rows by key, ranges, lists of keys, extremes, groups, sorting and joins",
        lay_out: reading::two_tables,
        work: reading::select,
        finish: reading::drop_both,
    },
    Phase {
        name: "update",
        summary: "rows changed by key, by the first part of a key, and all at once",
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
        summary: "columns added and dropped, indexes made and dropped, on a table with rows",
        lay_out: reading::one_table,
        work: schema_changes::alter,
        finish: schema_changes::altered,
    },
    Phase {
        name: "big-tables",
        summary: "a table of a hundred columns: rows inserted and read",
        lay_out: schema_changes::wide_table,
        work: schema_changes::wide,
        finish: schema_changes::drop_wide,
    },
    Phase {
        name: "wisconsin",
        summary: "selections of 1 and 10 %, joins and aggregates, as the Wisconsin benchmark has them",
        lay_out: wisconsin::lay_out,
        work: wisconsin::work,
        finish: wisconsin::finish,
    },
    Phase {
        name: "transactions",
        summary: "transactions of ten rows, committed and rolled back",
        lay_out: writing::empty_table,
        work: writing::transactions,
        finish: writing::committed,
    },
];

fn nothing(_: &mut Session<'_>) -> Result<()> {
    Ok(())
}
