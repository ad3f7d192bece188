//! What plans and records say of workloads: options, windows, programs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The values of a workload's options, complete (defaults filled in).
pub type Options = BTreeMap<String, String>;

/// A stretch of work that explains metrics: all between the marks of one cut.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// The metrics' names; none, if it only had to be kept out of the others. What several windows have of one metric is added up.
    pub metrics: Vec<String>,
    /// Operations, transactions or requests done in it.
    pub operations: u64,
    /// Nanoseconds it took by the guest's clock.
    pub ns: u64,
}

impl Window {
    /// One that explains one metric.
    pub fn of(metric: impl Into<String>, operations: u64, ns: u64) -> Self {
        Self { metrics: vec![metric.into()], operations, ns }
    }
}

/// A part of a program, executable and mapped.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Program {
    pub start: u64,
    pub end: u64,
    /// The file, as `/proc/PID/maps` names it.
    pub file: String,
}
