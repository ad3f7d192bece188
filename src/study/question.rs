//! A question as given by arguments or by a study file: parts that were not given are `None`.

use bigiron_model::host::HostKind;
use std::collections::BTreeMap;
use std::time::Duration;

use super::arm::ArmText;
use bigiron_model::clock::Clock;
use bigiron_model::metric::Kind;
use bigiron_model::qemu::QemuSource;
use bigiron_model::refusal::Refusal;
use bigiron_model::setting::Setting;

/// A question.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Question {
    /// The question in words, from a study file.
    pub text: Option<String>,
    pub arms: Vec<ArmText>,
    /// Names of workloads, in the order given.
    pub workloads: Vec<String>,
    /// Settings of all arms.
    pub settings: Vec<Setting>,
    pub clock: Option<Clock>,
    pub pairs: Option<u32>,
    /// The time that the trials may take; it chooses the pairs.
    pub budget: Option<Duration>,
    /// The greatest expected half width of the primaries' intervals, on the ratio (0.01 is 1 %); it chooses the pairs.
    pub precision: Option<f64>,
    /// The pairs were given beside a study file, and override it.
    pub overrides_pairs: bool,
    /// Images linked from the objects of each arm's build tree.
    pub rebuilds: Option<u32>,
    /// The question asks for fewer pairs than a verdict usually takes; see [`bigiron_model::plan::Plan::is_screening`].
    pub screening: bool,
    /// A gate relies on the verdict (`--fail-on`): by default as many pairs as on the wall clock, which meet rarer modes of boots.
    pub gates: bool,
    /// The pairs are evidence among other pairs, which are judged together: the smallest balanced number suffices.
    pub step: bool,
    pub seed: Option<u64>,
    /// In CPU seconds without progress.
    pub hang_limit: Option<u32>,
    /// Seconds.
    pub idle_gap: Option<u32>,
    pub host: Option<HostKind>,
    /// The machines' names for OpenSSH, if the host is another machine or several.
    pub targets: Vec<String>,
    /// The machine may be lost (`--no-way-back`); no part of the question.
    pub no_way_back: bool,
    /// Kernels need not boot in a VM first (`--no-vm-gate`); no part of the question.
    pub no_vm_gate: bool,
    pub qemu: Option<QemuSource>,
    pub cpus: Option<u32>,
    pub memory_bytes: Option<u64>,
    pub storage: Option<String>,
    pub filesystem: Option<String>,
    pub margins: BTreeMap<Kind, f64>,
    pub places: QuestionPlaces,
}

/// The place of each part of a question in a study file; empty for arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuestionPlaces {
    pub file: String,
    /// Key (`design.pairs`, `arms.1`) → line, from 1.
    pub lines: BTreeMap<String, usize>,
}

impl QuestionPlaces {
    /// `study.toml:7`, if the part is in a file.
    pub fn of(&self, key: &str) -> Option<String> {
        if self.file.is_empty() {
            return None;
        }
        Some(match self.lines.get(key) {
            Some(line) => format!("{}:{line}", self.file),
            None => self.file.clone(),
        })
    }

    /// A refusal caused by the part `key`.
    pub fn refuse(&self, key: &str, message: impl Into<String>) -> Refusal {
        Refusal::new(message).at(self.of(key))
    }
}
