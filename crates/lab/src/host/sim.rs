//! A host that boots nothing: it plays a script of times, effects and incidents. It serves to test everything above hosts, and to
//! try a study file (`host = "sim"`).
//!
//! Invariant: a trial's result is a function of the script, the plan and the slot (its seeds) alone, and its cost is the time in
//! the script: a study played twice gives the same records, byte for byte.

use std::collections::BTreeMap;
use std::f64::consts::TAU;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Host, HostError, Phase, Trial, TrialResult};
use bigiron_model::environment::Environment;
use bigiron_model::metric::Unit;
use bigiron_model::record::{Complaint, Failure, GuestIdentity, HostCost};
use bigiron_model::values::Values;

/// The script of the simulated host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Script {
    /// Real time that a trial takes, milliseconds.
    pub delay_ms: u64,
    /// Up to this many milliseconds more, drawn from the slot's boot seed.
    pub spread_ms: u64,
    /// How many trials may run in parallel.
    pub parallel: usize,
    /// Standard deviation of a boot's own noise, on the log of a metric (0.01 is about 1 %).
    pub noise: f64,
    /// The same for the noise that all boots of a pair share.
    pub pair_noise: f64,
    /// The same for the noise that all boots of an image share: of a build of an arm, or of the arm if it is not rebuilt.
    pub build_noise: f64,
    /// Added to the log of a metric from one slot to the next: a machine that warms up.
    pub drift: f64,
    /// Added to the log of a metric from one position in a pair to the next.
    pub position_effect: f64,
    /// Number of machines; each pair runs on one of them.
    pub machines: u32,
    /// Standard deviation of the speed of machines, on the log of a metric.
    pub machine_speed: f64,
    /// Standard deviation of the log of the factor on `noise` that a machine has.
    pub machine_noise: f64,
    /// Standard deviation of what all boots of an arm have in common on a machine: of how much machines disagree about an effect.
    pub machine_effect: f64,
    /// Factors on metrics, by the arm's name and `workload.metric`, `workload.*` or `*`; the most specific name counts.
    pub effects: BTreeMap<String, BTreeMap<String, f64>>,
    /// Facts of the environment, by the arm's name or `*` for all arms.
    pub environment: BTreeMap<String, Environment>,
    /// Incidents; the first that matches a trial happens to it.
    pub incidents: Vec<Incident>,
}

impl Default for Script {
    fn default() -> Self {
        Script {
            delay_ms: 0,
            spread_ms: 0,
            parallel: 4,
            noise: 0.005,
            pair_noise: 0.0,
            build_noise: 0.0,
            drift: 0.0,
            position_effect: 0.0,
            machines: 1,
            machine_speed: 0.0,
            machine_noise: 0.0,
            machine_effect: 0.0,
            effects: BTreeMap::new(),
            environment: BTreeMap::new(),
            incidents: Vec::new(),
        }
    }
}

/// More machines than any study has.
const MOST_MACHINES: u32 = 64;

impl Script {
    /// The names of several machines.
    pub fn machine_names(&self) -> Vec<String> {
        if self.machines < 2 {
            return Vec::new();
        }
        (1..=self.machines.min(MOST_MACHINES)).map(|n| format!("m{n}")).collect()
    }
}

/// An incident, which happens in every trial that matches all its conditions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Incident {
    pub what: What,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arm: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pair: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The machine's name, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// A workload of the trial, alone or with others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
}

/// The kind of an incident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// The host fails once.
    Void,
    /// The host fails for good.
    Fatal,
    /// The trial does not end until it is cancelled.
    Stall,
    /// The guest names another kernel release than its arm's.
    WrongRelease,
    /// The workload omits its last metric.
    MissingMetric,
    /// The guest fails.
    #[serde(untagged)]
    Guest(Failure),
}

impl What {
    fn failure(self) -> Option<Failure> {
        match self {
            What::Guest(failure) => Some(failure),
            What::Void | What::Fatal | What::Stall | What::WrongRelease | What::MissingMetric => None,
        }
    }
}

/// What all boots of an image share.
fn image_seed(trial: &Trial<'_>) -> u64 {
    let build = trial.plan.design.build_of(trial.slot.pair).and_then(|build| trial.arm.builds.get(build as usize));
    let of_arm =
        || trial.arm.name.bytes().fold(trial.plan.design.seed, |hash, byte| hash.rotate_left(5) ^ u64::from(byte));
    build.map_or_else(of_arm, |build| build.layout)
}

/// The simulated host.
#[derive(Clone, Debug, Default)]
pub struct SimHost {
    script: Script,
}

impl SimHost {
    pub fn new(script: Script) -> Self {
        SimHost { script }
    }

    fn incident(&self, trial: &Trial<'_>) -> Option<What> {
        let matches = |i: &&Incident| {
            i.arm.as_ref().is_none_or(|a| *a == trial.arm.name)
                && i.pair.is_none_or(|p| p == trial.slot.pair)
                && i.slot.is_none_or(|s| s == trial.slot.slot)
                && i.attempt.is_none_or(|a| a == trial.attempt)
                && i.machine
                    .as_ref()
                    .is_none_or(|m| trial.plan.machine_of(trial.slot).is_some_and(|own| own.name == *m))
                && i.workload.as_ref().is_none_or(|w| trial.plan.workloads.iter().any(|planned| planned.name == *w))
        };
        self.script.incidents.iter().find(matches).map(|i| i.what)
    }

    fn duration(&self, trial: &Trial<'_>) -> Duration {
        let spread = match self.script.spread_ms {
            0 => 0,
            ms => trial.slot.boot_seed % (ms + 1),
        };
        Duration::from_millis(self.script.delay_ms + spread)
    }

    fn metrics(&self, trial: &Trial<'_>) -> Values {
        let mut metrics = Values::default();
        for &index in &trial.slot.order {
            let workload = &trial.plan.workloads[index];
            for def in &workload.metrics {
                let name = format!("{}.{}", workload.name, def.name);
                let own =
                    |what: &str| normal(trial.plan.design.seed, &format!("{what} of machine {}", trial.slot.machine));
                let noise = self.script.noise * (self.script.machine_noise * own("noise")).exp();
                let log = noise * normal(trial.slot.boot_seed, &name)
                    + self.script.machine_speed * own("speed")
                    + self.script.machine_effect * own(&format!("{} and {name}", trial.arm.name))
                    + self.script.pair_noise * normal(trial.slot.workload_seed, &name)
                    + self.script.build_noise * normal(image_seed(trial), &name)
                    + self.script.drift * f64::from(trial.slot.slot)
                    + self.script.position_effect * f64::from(trial.slot.position);
                let value = base(def.unit) * self.factor(&trial.arm.name, &workload.name, &name) * log.exp();
                metrics.insert(&workload.name, &def.name, value);
            }
        }
        metrics
    }

    /// The facts of an arm: its own over those of all arms.
    fn environment(&self, arm: &str) -> Environment {
        ["*", arm]
            .iter()
            .filter_map(|name| self.script.environment.get(*name))
            .flatten()
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect()
    }

    fn factor(&self, arm: &str, workload: &str, name: &str) -> f64 {
        let Some(effects) = self.script.effects.get(arm) else { return 1.0 };
        let wildcard = format!("{workload}.*");
        [name, &wildcard, "*"].iter().find_map(|key| effects.get(*key)).copied().unwrap_or(1.0)
    }
}

impl Host for SimHost {
    fn parallel(&self) -> usize {
        self.script.parallel.max(1)
    }

    fn run(&self, trial: &Trial<'_>, phase: &dyn Fn(Phase)) -> Result<TrialResult, HostError> {
        let what = self.incident(trial);
        let duration = self.duration(trial);
        let end = Instant::now() + duration;
        phase(Phase::Booting);
        match what {
            Some(What::Void) => return Err(HostError::Void("The script says that the host fails here".to_owned())),
            Some(What::Fatal) => {
                return Err(HostError::Fatal("The script says that the host fails for good".to_owned()));
            }
            _ => {}
        }
        let steps = trial.slot.order.len() as u32;
        // The boot takes as long as one workload.
        let share = duration / (steps + 1);
        let until = |step: u32| end.checked_sub(share * (steps - step)).unwrap_or(end);
        pause(until(0), trial.cancel)?;
        let talks = !matches!(what, Some(What::Guest(Failure::NoAgent)));
        if talks {
            phase(Phase::Up);
            for (done, &index) in trial.slot.order.iter().enumerate() {
                let workload = trial.plan.workloads[index].name.clone();
                let done = done as u32;
                phase(Phase::Step { workload, step: "run".to_owned(), done, of: steps });
                pause(until(done + 1), trial.cancel)?;
            }
        }
        while what == Some(What::Stall) {
            pause(Instant::now() + Duration::from_secs(1), trial.cancel)?;
        }
        let failure = what.and_then(What::failure);
        let said = failure.map(|f| format!("Simulated: the guest {}", f.verb()));
        let release = match what {
            Some(What::WrongRelease) => "0.0.0-another".to_owned(),
            _ => trial.arm.kernel.release.clone(),
        };
        let console =
            format!("Linux version {release}\n{}", said.as_deref().map_or(String::new(), |s| format!("{s}\n")));
        fs::write(trial.artifacts.join("console.log"), console)
            .map_err(|e| HostError::Fatal(format!("Cannot keep the console's log: {e}")))?;
        let mut metrics = if failure.is_some() { Values::default() } else { self.metrics(trial) };
        if let (Some(What::MissingMetric), Some(last)) = (what, trial.plan.workloads.last()) {
            last.metrics.last().into_iter().for_each(|def| metrics.remove(&last.name, &def.name));
        }
        let complaints = match failure {
            Some(Failure::Panic) => vec![Complaint { class: "oops".to_owned(), line: "Simulated oops".to_owned() }],
            _ => Vec::new(),
        };
        Ok(TrialResult {
            failure: failure.zip(said),
            guest: talks.then(|| GuestIdentity {
                release,
                version: "simulated".to_owned(),
                cmdline: trial.arm.settings.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" "),
                cpus: trial.plan.machine.cpus,
                memory_bytes: trial.plan.machine.memory_bytes,
                clocksource: "simulated".to_owned(),
            }),
            metrics,
            facts: BTreeMap::from([("sim.boot-seed".to_owned(), trial.slot.boot_seed.to_string())]),
            environment: self.environment(&trial.arm.name),
            counters: None,
            changes: Vec::new(),
            complaints,
            cost: HostCost {
                accelerator: "sim".to_owned(),
                qemu: String::new(),
                lockstep: None,
                wall_s: duration.as_secs_f64(),
                cpu_s: 0.0,
                boot_cpu_s: None,
                overhead_s: 0.0,
            },
            evidence: None,
        })
    }
}

/// A plausible value for a metric of that unit, before effects and noise.
fn base(unit: Unit) -> f64 {
    match unit {
        Unit::Ns => 1_000.0,
        Unit::Bytes => 1e6,
        Unit::BytesPerSecond => 1e9,
        Unit::TransactionsPerSecond => 5_000.0,
        Unit::TransactionsPerMinute => 30_000.0,
        Unit::OperationsPerSecond => 100_000.0,
        Unit::JobsPerMinute | Unit::QueriesPerHour => 20_000.0,
        Unit::Count | Unit::Other(_) => 100.0,
    }
}

/// A standard normal deviate that depends only on `seed` and `name` (Box–Muller on two words of a hash).
fn normal(seed: u64, name: &str) -> f64 {
    let digest = Sha256::new().chain_update(seed.to_le_bytes()).chain_update(name).finalize();
    let uniform = |at: usize| {
        let word = digest[at..at + 8].iter().fold(0u64, |word, &b| word << 8 | u64::from(b));
        // 53 bits, in (0, 1): the logarithm needs a number above 0.
        ((word >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    };
    (-2.0 * uniform(0).ln()).sqrt() * (TAU * uniform(8)).cos()
}

fn pause(until: Instant, cancel: &AtomicBool) -> Result<(), HostError> {
    loop {
        if cancel.load(Ordering::Relaxed) {
            return Err(HostError::Cancelled);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(Duration::from_millis(5)));
    }
}
