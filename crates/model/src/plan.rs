//! The plan: a study with everything decided (kernels resolved, options complete, every slot drawn), validated and written to `plan.toml` before the
//! first boot. The judge and the session read only the plan, never the question.

use crate::host::HostKind;
use std::collections::BTreeMap;

use bigiron_stats::{Flips, power};
use serde::{Deserialize, Serialize};

use crate::build::Build;
use crate::clock::Clock;
use crate::identity::Identity;
use crate::metric::{Kind, MetricDef};
use crate::provenance::Provenance;
use crate::rule::Rule;
use crate::setting::options_of;
use crate::workload::Options;

/// Version of the plan's format; a folder with another version is refused.
pub const SCHEMA: u32 = 1;

/// The name of the kernel that a machine runs already.
pub const RUNNING: &str = "running";

/// A study with everything decided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub schema: u32,
    /// Version of bigiron that made the plan.
    pub bigiron: String,
    /// Hash of the question (everything except the seed and the resolved kernels), by which the folder to resume is found.
    pub question_sha256: String,
    /// The question in words, if the user gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// The command line or study file that repeats the study, for "how to repeat".
    pub repeat: String,
    pub clock: Clock,
    /// The rule by which it is judged; absent in plans of builds with the first rule.
    #[serde(default, skip_serializing_if = "Rule::is_first")]
    pub rule: Rule,
    /// The programs that run its trials; absent in plans of builds that did not store them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Provenance>,
    /// When the plan was made, in UTC; absent in plans of builds that did not store it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<String>,
    pub design: Design,
    pub machine: Machine,
    /// First is the baseline (A).
    pub arms: Vec<Arm>,
    pub workloads: Vec<PlannedWorkload>,
    /// Margins on the ratio, by kind of metric: 0.02 is 2 %.
    pub margins: BTreeMap<Kind, f64>,
    /// Margins of single metrics, by `WORKLOAD.METRIC`, where this machine's noise card says that the kind's margin is out of reach.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub wider_margins: BTreeMap<String, f64>,
    /// The machine's last A/A check before the plan was made, if it failed: then no verdict is valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_check: Option<FailedCheck>,
    /// What the machine's noise card says of a study of this size; absent if there was no card, and from older plans.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_floor: Option<NoiseFloor>,
    /// Every boot, fixed before the first: `pairs × arms` slots in order of execution.
    pub slots: Vec<Slot>,
}

impl Plan {
    /// The reports' word for trials: a guest's trial is a boot, but nothing boots on this machine itself.
    pub fn trials(&self) -> &'static str {
        if self.machine.host.is_machine() && !self.boots() { "trials" } else { "boots" }
    }

    /// Whether a machine must boot before each of its trials: an arm has another kernel or command line than the running one.
    pub fn boots(&self) -> bool {
        let is_other =
            |arm: &Arm| arm.kernel.spec != RUNNING || arm.settings.iter().any(|(l, _)| l.starts_with("boot."));
        self.machine.host != HostKind::Local && self.arms.iter().any(is_other)
    }

    /// Which pairs, or builds, the judge's re-randomisations may exchange.
    pub fn flips(&self) -> Flips {
        match self.design.has_balanced_builds() {
            true => Flips::Full,
            false => self.rule.flips_on(self.clock, self.machine.members.len()),
        }
    }

    /// The machine on which a slot runs, if there are several.
    pub fn machine_of(&self, slot: &Slot) -> Option<&Member> {
        self.machine.members.get(slot.machine as usize)
    }

    /// The margin of a metric on the ratio. A plan has one for every kind of its time; an old plan may lack a new kind, and without a margin every
    /// difference matters.
    pub fn margin(&self, workload: &str, metric: &MetricDef) -> f64 {
        let own = self.wider_margins.get(&format!("{workload}.{}", metric.name));
        own.or_else(|| self.margins.get(&metric.kind)).copied().unwrap_or(0.0).max(0.0)
    }

    /// Whether a failed boot is run again, to show that it was not the host's fault: only the exact clock repeats a boot exactly.
    pub fn confirms_failures(&self) -> bool {
        self.clock.is_exact() && self.rule >= Rule::Second
    }

    /// Whether it has too few pairs for the flip interval, so that Student's is used: the quick budget of a night.
    pub fn is_screening(&self) -> bool {
        self.design.rebuilds.is_none() && self.design.pairs < power::SMALLEST_DESIGN
    }

    /// The options of the workload `name` in a boot of `arm`: the plan's, overridden by the arm's own.
    pub fn options_in(&self, arm: &Arm, name: &str) -> Options {
        let mut options = self.workloads.iter().find(|w| w.name == name).map(|w| w.options.clone()).unwrap_or_default();
        for (option, value) in options_of(&arm.settings, name) {
            options.insert(option.to_owned(), value.to_owned());
        }
        options
    }

    /// Whether all arms are the same, so that the study itself is an A/A check.
    pub fn is_aa(&self) -> bool {
        let same = |arm: &Arm| arm.kernel == self.arms[0].kernel && arm.settings == self.arms[0].settings;
        self.design.rebuilds.is_none() && self.arms.iter().all(same)
    }

    /// The singular of [`Plan::trials`].
    pub fn trial(&self) -> &'static str {
        self.trials().trim_end_matches('s')
    }
}

/// An A/A check that the machine failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailedCheck {
    /// Release of the kernel that was compared with itself.
    pub kernel: String,
    pub reasons: Vec<String>,
}

/// What a machine cannot show, by its last A/A check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoiseFloor {
    /// Release of the kernel that was compared with itself, and in how many pairs.
    pub kernel: String,
    pub pairs: u32,
    /// The smallest detectable effects of the plan's primaries in the plan's pairs, by `WORKLOAD METRIC`, on the ratio: 0.02 is 2 %.
    pub effects: BTreeMap<String, f64>,
}

/// How the boots are arranged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Design {
    /// Number of pairs (each boots every arm once); even.
    pub pairs: u32,
    /// The source of everything random in the study.
    pub seed: u64,
    /// CPU seconds that a guest may use without a sign of progress before it counts as hung.
    pub hang_cpu_seconds: u32,
    /// Idle seconds before each boot, the same for all boots; only used on the wall clock.
    #[serde(default)]
    pub idle_gap_seconds: u32,
    /// Number of images linked from each arm's source, of which pair `i` boots number `i mod rebuilds` of every arm; absent if each arm is one image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebuilds: Option<u32>,
}

/// The machine that each arm boots on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    pub host: HostKind,
    /// The machine's name for OpenSSH, if the host is another machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    pub cpus: u32,
    pub memory_bytes: u64,
    /// One of [`super::storage::PROFILES`].
    pub storage: String,
    /// One of those in `bigiron doc fs`; an arm may have another (`fs.type`).
    pub filesystem: String,
    /// The machines, if there are several: each pair runs on one of them. The numbers above are then the least of theirs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<Member>,
}

impl Machine {
    /// Each of several machines as a study on it alone would have it; this one, if there is one.
    pub fn each(&self) -> Vec<Machine> {
        if self.members.is_empty() {
            return vec![self.clone()];
        }
        let of = |member: &Member| Machine {
            host: self.host,
            target: Some(member.name.clone()),
            cpus: member.cpus,
            memory_bytes: member.memory_bytes,
            storage: self.storage.clone(),
            filesystem: member.filesystem.clone(),
            members: Vec::new(),
        };
        self.members.iter().map(of).collect()
    }
}

/// One of several machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Its name for OpenSSH.
    pub name: String,
    pub cpus: u32,
    pub memory_bytes: u64,
    pub filesystem: String,
}

/// One side of the comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// Its name in reports: as typed, shortened where that is unambiguous. Unique in the plan.
    pub name: String,
    pub kernel: Identity,
    /// Lever settings of this arm, in the order given: (lever, value).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<(String, String)>,
    /// What the arm's workloads start from besides the kernel (a server's programs, a loaded database) when the plan is made, by `WORKLOAD.NAME`:
    /// every later trial must find the same.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub foundation: BTreeMap<String, String>,
    /// The images linked from its kernel's objects, one for each of [`Design::rebuilds`]; `kernel` is then the tree's own image, which does not boot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub builds: Vec<Build>,
}

/// A workload with its options and declared metrics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedWorkload {
    pub name: String,
    /// Options common to all arms, complete. An arm's own settings override them.
    pub options: Options,
    pub metrics: Vec<MetricDef>,
}

fn is_first(machine: &u32) -> bool {
    *machine == 0
}

/// One boot's place in the schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slot {
    /// Its number in order of execution, from 0.
    pub slot: u32,
    /// Its pair, from 0.
    pub pair: u32,
    /// Its position within the pair, from 0.
    pub position: u32,
    /// Index into [`Plan::arms`].
    pub arm: usize,
    /// Index into [`Machine::members`], the same for all slots of a pair; 0 if there is one machine.
    #[serde(default, skip_serializing_if = "is_first")]
    pub machine: u32,
    /// Seed of the workloads: one per pair, the same for every arm.
    pub workload_seed: u64,
    /// Seed of the boot (QEMU's random source: KASLR, stack and hash randomisation): one per slot.
    pub boot_seed: u64,
    /// Idle instructions executed before the workload, which shift the phase of the timer tick. One number per slot.
    pub jitter: u32,
    /// Order of the workloads in this boot: indices into [`Plan::workloads`]; one per pair.
    pub order: Vec<usize>,
}
