//! The metrics of workloads: each declares its name, unit, direction and whether it is its workload's primary.
//!
//! Invariant: every unit reads back as it was written, including users' own units.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The direction of change that is an improvement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    Higher,
    Lower,
}

/// The class of a metric, which determines its default margin (docs/concepts/statistics.md).
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
    /// The use of a resource that may be 0 in a run, such as major faults: the only kind whose values may be 0.
    Usage,
}

/// The unit of a metric's value. Values are always stored in the base unit named here; reports scale them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    /// Bytes.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
    /// Transactions per second.
    TransactionsPerSecond,
    /// Transactions per minute.
    TransactionsPerMinute,
    /// Operations per second.
    OperationsPerSecond,
    /// Jobs per minute.
    JobsPerMinute,
    /// Queries per hour.
    QueriesPerHour,
    /// A plain number of things.
    Count,
    /// A unit named by a user, printed unchanged.
    Other(UnitName),
}

const UNITS: [(&str, Unit); 9] = [
    ("ns", Unit::Ns),
    ("B", Unit::Bytes),
    ("B/s", Unit::BytesPerSecond),
    ("tx/s", Unit::TransactionsPerSecond),
    ("tx/min", Unit::TransactionsPerMinute),
    ("op/s", Unit::OperationsPerSecond),
    ("jobs/min", Unit::JobsPerMinute),
    ("queries/h", Unit::QueriesPerHour),
    ("count", Unit::Count),
];

/// The name of a unit that only the user knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitName(&'static str);

impl UnitName {
    pub fn as_str(self) -> &'static str {
        self.0
    }
}

impl Unit {
    /// The unit called `name` in records; any name is possible. Each name is stored once, as long as the process runs; a study declares few.
    pub fn named(name: &str) -> Unit {
        static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
        if let Some((_, unit)) = UNITS.iter().find(|(n, _)| *n == name) {
            return *unit;
        }
        let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = names.get(name).copied().unwrap_or_else(|| {
            let kept: &'static str = Box::leak(name.into());
            names.insert(kept);
            kept
        });
        Unit::Other(UnitName(kept))
    }

    /// Its name in records.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Other(name) => name.0,
            known => UNITS.iter().find(|(_, unit)| *unit == known).map_or("", |(name, _)| name),
        }
    }
}

impl Serialize for Unit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Unit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Unit::named(&String::deserialize(deserializer)?))
    }
}

/// A metric's declaration: what a workload promises to deliver before it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricDef {
    /// Kebab-case, unique within its workload, e.g. `commit-p99`.
    pub name: String,
    pub unit: Unit,
    pub better: Better,
    pub kind: Kind,
    /// Exactly one metric of a workload is its primary, which carries the workload's verdict.
    pub primary: bool,
    /// One line for people: what exactly it measures.
    pub summary: String,
}

impl Kind {
    /// Whether a trial may deliver `value`: finite and > 0, because comparisons use ratios; for the kind [`Kind::Usage`] it may also be 0.
    pub fn takes(self, value: f64) -> bool {
        value.is_finite() && (value > 0.0 || (self == Kind::Usage && value == 0.0))
    }
}

/// The name of a primary that is the geometric mean of its workload's other metrics.
pub const MEAN: &str = "geomean";

impl MetricDef {
    /// Whether it is the mean of its workload's other metrics, which are a family then.
    pub fn is_mean(&self) -> bool {
        self.primary && self.name == MEAN
    }

    /// A smaller value counts as this one in a ratio; 0 for kinds whose values are never 0. For [`Kind::Usage`] it is the smallest meaningful amount:
    /// one event, one block of 4 KiB, a tenth of a millisecond (below that, tick-based accounting of CPU time is noise).
    pub fn floor(&self) -> f64 {
        match (self.kind, self.unit) {
            (Kind::Usage, Unit::Ns) => 100_000.0,
            (Kind::Usage, Unit::Bytes) => 4096.0,
            (Kind::Usage, _) => 1.0,
            _ => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_read_back_as_they_were_written() {
        for name in ["ns", "B/s", "count", "frames", "°C", ""] {
            let unit = Unit::named(name);
            assert_eq!(unit.name(), name);
            let text = serde_json::to_string(&unit).unwrap();
            assert_eq!(serde_json::from_str::<Unit>(&text).unwrap(), unit);
        }
        assert_eq!(Unit::named("op/s"), Unit::OperationsPerSecond);
        assert_ne!(Unit::named("frames"), Unit::named("fps"));
    }

    #[test]
    fn only_usage_may_be_nothing() {
        assert!(Kind::Usage.takes(0.0) && Kind::Usage.takes(3.0) && Kind::Cost.takes(0.1));
        assert!(!Kind::Cost.takes(0.0) && !Kind::Usage.takes(-1.0) && !Kind::Usage.takes(f64::NAN));
    }
}
