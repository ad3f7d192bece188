//! One kernel in one night: its identity, and the values that each row of the grid measured, boot by boot.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use bigiron_model::identity::Identity;
use bigiron_model::metric::MetricDef;
use bigiron_model::store::line::{LineContent, sha256_hex};

/// Version of the entries' format.
pub const SCHEMA: u32 = 1;

/// One kernel in one night.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistoryEntry {
    pub schema: u32,
    /// Hash of the night's own description: all kernels of one night have the same.
    pub night: String,
    /// When the night began, UTC.
    pub begun: String,
    /// Version of bigiron.
    pub bigiron: String,
    /// The arm's name in that night.
    pub arm: String,
    /// Whether the night compared its other kernels with this one.
    pub baseline: bool,
    pub kernel: Identity,
    pub rows: Vec<EntryRow>,
}

/// The values that one row measured for a kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EntryRow {
    pub row: String,
    pub workload: String,
    /// Whether the row was run again alone, because a boot that it shared with other rows failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub alone: bool,
    /// Everything except kernel and seeds on which a value depends, part by part: entries can be compared if all their parts are equal.
    pub configuration: BTreeMap<String, String>,
    /// How boots failed; their values are missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
    /// The boots that completed.
    pub boots: Vec<Boot>,
    pub metrics: Vec<Measured>,
}

/// One boot, by its seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boot {
    pub workload_seed: u64,
    pub boot_seed: u64,
}

/// A metric and its values, one for each boot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    #[serde(flatten)]
    pub metric: MetricDef,
    pub values: Vec<f64>,
}

impl LineContent for HistoryEntry {
    const NAME: &'static str = "entry";
    const SCHEMA: u32 = SCHEMA;

    fn check(&self) -> Result<(), String> {
        for row in &self.rows {
            if let Some(bad) = row.metrics.iter().find(|m| m.values.len() != row.boots.len()) {
                let (row, metric, values, boots) = (&row.row, &bad.metric.name, bad.values.len(), row.boots.len());
                return Err(format!("{row} {metric} has {values} values of {boots} boots"));
            }
        }
        Ok(())
    }
}

impl EntryRow {
    /// The first digits of the hash of its configuration.
    pub fn digest(&self) -> String {
        let mut digest = sha256_hex(serde_json::to_string(&self.configuration).unwrap_or_default().as_bytes());
        digest.truncate(12);
        digest
    }

    /// The parts of the configuration that differ from `other`'s.
    pub fn differences<'a>(&'a self, other: &'a EntryRow) -> Vec<&'a str> {
        let keys = self.configuration.keys().chain(other.configuration.keys());
        let mut names: Vec<&str> =
            keys.filter(|k| self.configuration.get(*k) != other.configuration.get(*k)).map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(parts: &[(&str, &str)]) -> EntryRow {
        EntryRow {
            row: "micro".into(),
            workload: "micro".into(),
            alone: false,
            configuration: parts.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            failures: Vec::new(),
            boots: Vec::new(),
            metrics: Vec::new(),
        }
    }

    #[test]
    fn configurations_differ_by_what_is_named() {
        let one = row(&[("clock", "exact"), ("executable", "a"), ("option.scale", "1")]);
        let other = row(&[("clock", "exact"), ("executable", "b")]);
        assert_eq!(one.differences(&other), ["executable", "option.scale"]);
        assert_eq!(other.differences(&one), one.differences(&other));
        assert!(one.differences(&one).is_empty() && one.digest() != other.digest());
    }
}
