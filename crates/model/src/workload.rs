//! The workload data in plans and records: options, windows, programs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The values of a workload's options, complete (defaults filled in).
pub type Options = BTreeMap<String, String>;

/// A part of a trial that explains metrics: everything between the marks of one cut.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// The names of the metrics; empty if the window only had to be separated from the others. The parts of several windows for one metric are added
    /// up.
    pub metrics: Vec<String>,
    /// Operations, transactions or requests in it.
    pub operations: u64,
    /// Its nanoseconds by the guest's clock.
    pub ns: u64,
}

impl Window {
    /// A window that explains one metric.
    pub fn of(metric: impl Into<String>, operations: u64, ns: u64) -> Self {
        Self { metrics: vec![metric.into()], operations, ns }
    }
}

/// Stands before the name of a method in place of a file.
pub const METHOD: &str = "method:";

/// An executable mapping of a program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Program {
    pub start: u64,
    pub end: u64,
    /// The file, as `/proc/PID/maps` names it, or what a program compiled as it ran: [`METHOD`] and its name.
    pub file: String,
}
