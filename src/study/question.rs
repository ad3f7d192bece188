//! A question as it was asked, by arguments or by a study file: what was not said is `None`.

use bigiron_model::host::HostKind;
use std::collections::BTreeMap;

use super::arm::ArmText;
use bigiron_model::clock::Clock;
use bigiron_model::metric::Kind;
use bigiron_model::refusal::Refusal;
use bigiron_model::setting::Setting;

/// What was asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Question {
    /// The question in words, from a study file.
    pub text: Option<String>,
    pub arms: Vec<ArmText>,
    /// Names of workloads, in the order asked.
    pub workloads: Vec<String>,
    /// Settings of all arms.
    pub settings: Vec<Setting>,
    pub clock: Option<Clock>,
    pub pairs: Option<u32>,
    /// Fewer pairs than a verdict usually takes are wanted; see [`bigiron_model::plan::Plan::is_screening`].
    pub screening: bool,
    /// The pairs are evidence among other pairs, which are judged together: as few as can be balanced will do.
    pub step: bool,
    pub seed: Option<u64>,
    /// CPU seconds without progress.
    pub hang_limit: Option<u32>,
    /// Seconds.
    pub idle_gap: Option<u32>,
    pub host: Option<HostKind>,
    pub cpus: Option<u32>,
    pub memory_bytes: Option<u64>,
    pub storage: Option<String>,
    pub filesystem: Option<String>,
    pub margins: BTreeMap<Kind, f64>,
    pub places: QuestionPlaces,
}

/// Where in a study file each part of a question stands; empty for arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuestionPlaces {
    pub file: String,
    /// Key (`design.pairs`, `arms.1`) → line, from 1.
    pub lines: BTreeMap<String, usize>,
}

impl QuestionPlaces {
    /// `study.toml:7`, if the part stands in a file.
    pub fn of(&self, key: &str) -> Option<String> {
        if self.file.is_empty() {
            return None;
        }
        Some(match self.lines.get(key) {
            Some(line) => format!("{}:{line}", self.file),
            None => self.file.clone(),
        })
    }

    /// A refusal because of the part `key`.
    pub fn refuse(&self, key: &str, message: impl Into<String>) -> Refusal {
        Refusal::new(message).at(self.of(key))
    }
}
