//! What a workload measures: every metric declares its name, unit, direction and whether it is its workload's primary.

use serde::{Deserialize, Serialize};

/// Which direction of change is an improvement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    Higher,
    Lower,
}

/// What sort of quantity a metric is; decides its default margin (docs/concepts/statistics.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Operations, transactions or bytes per second.
    Throughput,
    /// Cost of one operation: CPU time, or mean time of a latency micro-test.
    Cost,
    /// Median latency.
    P50,
    /// 99th percentile latency.
    P99,
    /// 99.9th percentile latency.
    P999,
    /// An amount, such as memory held by page tables.
    Amount,
}

/// Unit of a metric's value. Values are always kept in the base unit named here; reports scale them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Nanoseconds.
    #[serde(rename = "ns")]
    Ns,
    /// Bytes.
    #[serde(rename = "B")]
    Bytes,
    /// Bytes per second.
    #[serde(rename = "B/s")]
    BytesPerSecond,
    /// Transactions per second.
    #[serde(rename = "tx/s")]
    TransactionsPerSecond,
    /// Transactions per minute.
    #[serde(rename = "tx/min")]
    TransactionsPerMinute,
    /// Operations per second.
    #[serde(rename = "op/s")]
    OperationsPerSecond,
    /// A plain number of things.
    #[serde(rename = "count")]
    Count,
}

/// A metric's declaration: what a workload promises to deliver before it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricDef {
    /// Kebab-case, unique within its workload, e.g. `commit-p99`.
    pub name: String,
    pub unit: Unit,
    pub better: Better,
    pub kind: Kind,
    /// Exactly one metric of a workload is its primary: the one that carries the workload's verdict.
    pub primary: bool,
    /// One line for people: what exactly is measured.
    pub summary: String,
}

/// A metric's value from one trial. Finite and > 0: comparisons are made on ratios.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    pub workload: String,
    pub name: String,
    pub unit: Unit,
    pub better: Better,
    pub kind: Kind,
    pub primary: bool,
    pub value: f64,
}

impl MetricDef {
    /// Joins a declaration with the value measured for it in `workload`.
    pub fn measured(&self, workload: &str, value: f64) -> Metric {
        Metric {
            workload: workload.to_owned(),
            name: self.name.clone(),
            unit: self.unit,
            better: self.better,
            kind: self.kind,
            primary: self.primary,
            value,
        }
    }
}
