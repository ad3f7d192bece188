//! The host `local`: every trial is a separate process on this machine's running kernel.
//!
//! Invariant: a trial's files are in a folder that is removed after it, no process of a trial outlives the trial or bigiron, and
//! all changes by its levers are undone before the next trial begins.

mod descendants;
mod outcome;
mod worker;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, anyhow, bail, ensure};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::artifacts;
use super::foundation::{self, Foundation};
use super::{Host, HostError, Phase, Trial, TrialEvidence, TrialResult};
use super::{samples, waits};
use crate::guest::block::Mounts;
use crate::lever;
use crate::lever::apply::{self, Applied};
use crate::lever::disks::Disks;
use crate::lever::site::Site;
use crate::protocol::{GuestJob, WorkloadJob};
use crate::undo::{self, Ledger, LedgerMark};
use bigiron_model::clock::Clock;
use bigiron_model::evidence::Evidence;
use bigiron_model::host::HostKind;
use bigiron_model::identity::Identity;
use bigiron_model::plan::Plan;
use bigiron_model::purpose::Purpose;
use bigiron_model::record::{Failure, GuestIdentity, HostCost};
use bigiron_model::values::Values;
use bigiron_model::waits::TrialWaits;
use bigiron_model::workload::{Options, Window};
use bigiron_probe::environment;
use bigiron_probe::locks::names::LockSymbols;
use bigiron_probe::locks::recorder as locks;
use bigiron_probe::locks::waits::waited;
use bigiron_probe::noise::{MachineSample, Watch};
use bigiron_probe::recorder::Recorder;
use bigiron_probe::sampled::profile::Profiles;
use bigiron_probe::sampled::recorder;
use bigiron_probe::sampled::recorder::{Recording, Sampling};
use bigiron_probe::sampled::spans::Spans;
use bigiron_probe::symbols::Symbols;
use bigiron_sys::mount;
use bigiron_sys::network::{TrialLink, VethPair};
use bigiron_sys::owned_folder::OwnedFolder;
use bigiron_sys::this_machine;
use bigiron_workload::Workload;
use bigiron_workload::registry::Registry;
use bigiron_workload::shortage;

use outcome::failure;
use worker::{Limit, work};

pub use worker::worker;

/// This machine.
pub struct LocalHost {
    machine: GuestIdentity,
    /// For each arm of the plan: whether its workloads have clients behind network devices.
    has_network: Vec<bool>,
    /// The foundation of each arm whose trials run here.
    foundations: BTreeMap<usize, Foundation>,
    /// Held while the study runs, if any of its arms changes this machine.
    ledger: Option<Mutex<Ledger>>,
    watch: Watch,
}

/// The input of a trial's process.
#[derive(Serialize, Deserialize)]
struct Task {
    job: GuestJob,
    machine: GuestIdentity,
    mounts: Vec<Mounts>,
}

/// The running kernel's identity, as in a plan.
pub fn identity() -> Identity {
    let uname = rustix::system::uname();
    let (release, version) = (uname.release().to_string_lossy(), uname.version().to_string_lossy());
    let hash = Sha256::new().chain_update(release.as_bytes()).chain_update(version.as_bytes()).finalize();
    Identity {
        spec: "running".to_owned(),
        release: release.into_owned(),
        package: None,
        // Its image need not be readable or even exist any more: a hash of its version stands for it.
        image_sha256: hash.iter().map(|byte| format!("{byte:02x}")).collect(),
        config_sha256: None,
    }
}

/// The type of the file system that holds `path`, as the kernel calls it; `unknown` if /proc does not show it.
pub fn filesystem(path: &Path) -> String {
    mount::of(path).map_or_else(|| "unknown".to_owned(), |mount| mount.kind)
}

impl LocalHost {
    /// Checks that this is still the machine of `plan`.
    ///
    /// # Errors
    /// If the running kernel or the workloads' foundation differs from the plan's; if levers are to be set while another
    /// bigiron changes this machine; or if a killed one left it changed.
    pub fn new(registry: Registry, plan: &Plan) -> anyhow::Result<Self> {
        let here = identity();
        for arm in &plan.arms {
            ensure!(
                arm.kernel.image_sha256 == here.image_sha256,
                "The study was started on {}; the running kernel is now {}",
                arm.kernel.release,
                here.release
            );
        }
        Self::of_arms(registry, plan, |_| true)
    }

    /// The host of one arm's trials, on whatever kernel is running: the caller has proved that it is the arm's.
    ///
    /// # Errors
    /// As [`LocalHost::new`].
    pub fn for_arm(registry: Registry, plan: &Plan, arm: usize) -> anyhow::Result<Self> {
        Self::of_arms(registry, plan, |other| other == arm)
    }

    fn of_arms(registry: Registry, plan: &Plan, is_used: impl Fn(usize) -> bool) -> anyhow::Result<Self> {
        let (mut has_network, mut foundations) = (Vec::new(), BTreeMap::new());
        for (i, arm) in plan.arms.iter().enumerate() {
            if !is_used(i) {
                has_network.push(false);
                continue;
            }
            let workloads = registry.of_arm(plan, arm).map_err(anyhow::Error::msg)?;
            let on_target = plan.machine.host == HostKind::Ssh;
            let found = if on_target {
                foundation::of_trial(&workloads, plan, arm)
            } else {
                foundation::find(&workloads, plan, arm)
            };
            foundations.insert(i, found?);
            let has = workloads.iter().any(|workload| workload.needs().has_network());
            // Created and dropped, so that errors appear before anything runs.
            lever::net::link(has, VethPair::make)?;
            has_network.push(has);
        }
        let changes = (0..).zip(&plan.arms).any(|(i, arm)| is_used(i) && !lever::of_runtime(&arm.settings).is_empty());
        let ledger = if changes {
            Some(Mutex::new(Ledger::open()?))
        } else {
            // A baseline would be measured with the settings that a killed bigiron left.
            undo::check_restored()?;
            None
        };
        Ok(Self {
            has_network,
            foundations,
            machine: identity_here(plan.machine.cpus, plan.machine.memory_bytes),
            ledger,
            watch: Watch::default(),
        })
    }

    /// Sets the arm's levers for one trial whose folder is `dir`.
    fn set(&self, trial: &Trial<'_>, dir: &Path, link: &TrialLink) -> anyhow::Result<Option<LeversInForce<'_>>> {
        let settings = lever::of_runtime(&trial.arm.settings);
        let Some(ledger) = self.ledger.as_ref().filter(|_| !settings.is_empty()) else { return Ok(None) };
        let mut ledger = ledger.lock().unwrap_or_else(PoisonError::into_inner);
        let mark = ledger.mark();
        let site = Site { root: Path::new("/"), disks: Disks::below(dir), link };
        let applied = apply::apply(&settings, &site, &mut *ledger);
        // Also dropped on failure, which undoes the changes made until then.
        let mut set = LeversInForce { ledger, mark, applied: Applied::default() };
        match applied {
            Ok(applied) => set.applied = applied,
            Err(why) => {
                return Err(set.restored().err().map_or_else(|| anyhow!(why.clone()), |e| anyhow!("{why}; {e:#}")));
            }
        }
        Ok(Some(set))
    }

    fn task(&self, trial: &Trial<'_>, dir: &Path) -> anyhow::Result<Task> {
        let plan = trial.plan;
        let (mut workloads, mut mounts) = (Vec::new(), Vec::new());
        for &n in &trial.slot.order {
            let planned = &plan.workloads[n];
            workloads.push(WorkloadJob {
                name: planned.name.clone(),
                options: plan.options_in(trial.arm, &planned.name),
                storage: None,
                trees: Vec::new(),
                loaded: None,
                foundation: foundation::of(&self.foundations[&trial.slot.arm], &planned.name),
            });
            let dir = dir.join(&planned.name);
            fs::create_dir_all(&dir).with_context(|| format!("Cannot create {}", dir.display()))?;
            mounts.push(Mounts { dir, ..Mounts::default() });
        }
        let job = job(plan.clock, trial.slot.workload_seed, workloads);
        Ok(Task { job, machine: self.machine.clone(), mounts })
    }
}

/// The levers of one trial, in force until this is dropped.
struct LeversInForce<'a> {
    ledger: MutexGuard<'a, Ledger>,
    mark: LedgerMark,
    applied: Applied,
}

impl LeversInForce<'_> {
    /// Undoes all changes.
    fn restored(mut self) -> anyhow::Result<()> {
        let troubles: Vec<String> = self.ledger.undo_since(self.mark).iter().map(ToString::to_string).collect();
        ensure!(
            troubles.is_empty(),
            "This machine is not as it was: {}; `bigiron undo` tries again",
            troubles.join("; ")
        );
        Ok(())
    }
}

impl Drop for LeversInForce<'_> {
    fn drop(&mut self) {
        // A change that cannot be undone stays in the ledger, which reports it when it is closed.
        self.ledger.undo_since(self.mark);
    }
}

/// This machine as a guest would describe itself.
fn identity_here(cpus: u32, memory_bytes: u64) -> GuestIdentity {
    let uname = rustix::system::uname();
    let clocksource = fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    GuestIdentity {
        release: uname.release().to_string_lossy().into_owned(),
        version: uname.version().to_string_lossy().into_owned(),
        cmdline: fs::read_to_string("/proc/cmdline").unwrap_or_default().trim().to_owned(),
        cpus,
        memory_bytes,
        clocksource: clocksource.unwrap_or_default().trim().to_owned(),
    }
}

/// The job of `workloads` on this machine, which is shared with other processes.
fn job(clock: Clock, seed: u64, workloads: Vec<WorkloadJob>) -> GuestJob {
    GuestJob { shared: true, workloads, ..GuestJob::new(clock, seed) }
}

impl Host for LocalHost {
    fn parallel(&self) -> usize {
        1
    }

    fn supports(&self, purpose: Purpose) -> Result<(), String> {
        match purpose {
            Purpose::Judge => Ok(()),
            Purpose::Profile => recorder::permitted().map_err(|why| format!("{why}, so no trial is profiled here")),
            Purpose::Locks => locks::permitted().map_err(|why| format!("{why}, so no locks are traced here")),
        }
    }

    fn run(&self, trial: &Trial<'_>, phase: &dyn Fn(Phase)) -> Result<TrialResult, HostError> {
        let mut ran = self.trial(trial, phase)?;
        let void = |e| HostError::Void(format!("{e:#}"));
        ran.result.evidence = match trial.purpose {
            Purpose::Judge => None,
            Purpose::Profile => Some(TrialEvidence::Executed(sampled(trial, &mut ran).map_err(void)?)),
            Purpose::Locks => Some(TrialEvidence::Waited(waiting(trial, &mut ran).map_err(void)?)),
        };
        Ok(ran.result)
    }
}

/// A completed trial.
struct FinishedTrial {
    result: TrialResult,
    windows: Vec<(String, Window)>,
    /// Marks' numbers and times.
    marks: Vec<(u8, u64)>,
    recorded: Recorded,
}

/// The recorders of a trial.
enum Recorders {
    None,
    Samples(Sampling, Recorder<Recording>),
    Locks(Recorder<locks::Recording>),
}

/// The data recorded during a trial.
enum Recorded {
    Nothing,
    /// The method, and the data.
    Samples(Sampling, Recording),
    Locks(locks::Recording),
}

impl Recorders {
    fn start(purpose: Purpose) -> Result<Self, String> {
        Ok(match purpose {
            Purpose::Judge => Self::None,
            Purpose::Profile => {
                let sampling = Sampling::of_this_machine();
                Self::Samples(sampling, recorder::Armed::new(sampling)?.start()?)
            }
            Purpose::Locks => Self::Locks(locks::Armed::new()?.start()?),
        })
    }

    fn stop(self) -> Recorded {
        match self {
            Self::None => Recorded::Nothing,
            Self::Samples(sampling, recorder) => Recorded::Samples(sampling, recorder.stop()),
            Self::Locks(recorder) => Recorded::Locks(recorder.stop()),
        }
    }
}

/// The evidence of what a trial executed, from its recording.
fn sampled(trial: &Trial<'_>, ran: &mut FinishedTrial) -> anyhow::Result<Evidence> {
    if let Some((failure, message)) = &ran.result.failure {
        bail!("{}: {message}", failure.verb());
    }
    let Recorded::Samples(sampling, recording) = &ran.recorded else { bail!("Nothing was recorded") };
    let kallsyms = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let spans = Spans::of_numbers(&ran.marks);
    let profiles = Profiles::new(*sampling, recording, &spans, &kallsyms).map_err(anyhow::Error::msg)?;
    samples::evidence(trial, ran.result.metrics.clone(), 0.0, std::mem::take(&mut ran.windows), profiles)
}

/// The evidence of what a trial waited for, from its recording.
fn waiting(trial: &Trial<'_>, ran: &mut FinishedTrial) -> anyhow::Result<TrialWaits> {
    if let Some((failure, message)) = &ran.result.failure {
        bail!("{}: {message}", failure.verb());
    }
    let Recorded::Locks(recording) = &ran.recorded else { bail!("Nothing was recorded") };
    let kallsyms = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let symbols = Symbols::new(&kallsyms, Vec::new()).map_err(anyhow::Error::msg)?;
    let spans = Spans::of_numbers(&ran.marks);
    let (windows, traced) = waited(recording, &spans, &symbols, &LockSymbols::new(&kallsyms));
    waits::evidence(trial, ran.result.metrics.clone(), &ran.windows, (recording.cpus, traced, &windows), Vec::new())
}

impl LocalHost {
    /// Runs a trial, and records the evidence that it is run for.
    fn trial(&self, trial: &Trial<'_>, phase: &dyn Fn(Phase)) -> Result<FinishedTrial, HostError> {
        let begun = Instant::now();
        let dir = folder(trial.artifacts)?;
        let mut task = self.task(trial, dir.path()).map_err(fatal)?;
        let link = lever::net::link(self.has_network[trial.slot.arm], VethPair::make).map_err(fatal)?;
        let set = self.set(trial, dir.path(), &link).map_err(fatal)?;
        let mut changes = Vec::new();
        if let Some(set) = &set {
            task.job.placement = set.applied.placement.clone();
            changes.clone_from(&set.applied.changes);
        }
        task.job.placement.network = link.network();
        task.job.purpose = trial.purpose;
        let recorders = Recorders::start(trial.purpose).map_err(HostError::Void)?;
        let before = MachineSample::now();
        let killed = shortage::killed();
        let limit = Limit { cpu_seconds: trial.plan.design.hang_cpu_seconds, cpus: trial.plan.machine.cpus };
        let (mut received, end) = work(&task, Some(limit), trial.cancel, phase)?;
        let recorded = recorders.stop();
        let noise = self.watch.card(&before);
        // Before the levers are undone.
        let environment = environment::read(Path::new("/"));
        artifacts::keep(&task.job.workloads, &task.mounts, trial.artifacts).map_err(fatal)?;
        if let Some(set) = set {
            set.restored().map_err(fatal)?;
        }
        if let Some(message) = received.unfit.take() {
            return Err(HostError::Fatal(message));
        }
        let failure = failure(&mut received, end, shortage::killed().saturating_sub(killed))?;
        let metrics = if failure.is_none() { received.metrics() } else { Values::default() };
        let result = TrialResult {
            failure,
            guest: received.guest,
            metrics,
            environment,
            facts: received.facts.into_iter().chain(noise).chain(self.foundations[&trial.slot.arm].clone()).collect(),
            counters: received.counters,
            changes,
            complaints: received.complaints,
            cost: HostCost {
                accelerator: "local".to_owned(),
                wall_s: begun.elapsed().as_secs_f64(),
                ..HostCost::default()
            },
            evidence: None,
        };
        Ok(FinishedTrial { result, windows: received.windows, marks: received.marks, recorded })
    }
}

/// The result of one run of a workload without a study.
pub struct SingleRun {
    pub failure: Option<(Failure, String)>,
    pub values: BTreeMap<String, f64>,
    pub facts: BTreeMap<String, String>,
}

/// Runs a workload once in its own folder below `dir`, with the foundation that its images have.
///
/// # Errors
/// As [`Host::run`].
pub fn once(
    workload: &dyn Workload,
    options: &Options,
    foundation: BTreeMap<String, String>,
    seed: u64,
    dir: &Path,
    cancel: &AtomicBool,
    phase: &dyn Fn(Phase),
) -> Result<SingleRun, HostError> {
    let dir = folder(dir)?;
    let at = dir.path().join(workload.name());
    fs::create_dir(&at).with_context(|| format!("Cannot create {}", at.display())).map_err(fatal)?;
    let planned = WorkloadJob {
        name: workload.name().to_owned(),
        options: options.clone(),
        storage: None,
        trees: Vec::new(),
        loaded: None,
        foundation,
    };
    let task = Task {
        job: job(Clock::Wall, seed, vec![planned]),
        machine: identity_here(this_machine::cpus(), this_machine::memory_bytes()),
        mounts: vec![Mounts { dir: at, ..Mounts::default() }],
    };
    let killed = shortage::killed();
    // There is no time limit: the run may last a moment or a day, and the user can interrupt it.
    let (mut received, end) = work(&task, None, cancel, phase)?;
    let prefix = format!("{}.", workload.name());
    let bare = |name: String| name.strip_prefix(&prefix).unwrap_or(&name).to_owned();
    let failed = failure(&mut received, end, shortage::killed().saturating_sub(killed))?;
    // There is no other arm that could be blamed wrongly.
    let unfit = received.unfit.take().map(|message| (Failure::WorkloadError, message));
    Ok(SingleRun {
        failure: unfit.or(failed),
        values: received.results.into_iter().flat_map(|(_, values)| values).collect(),
        facts: received.facts.into_iter().map(|(name, value)| (bare(name), value)).collect(),
    })
}

fn fatal(e: anyhow::Error) -> HostError {
    HostError::Fatal(format!("{e:#}"))
}

/// A folder for one trial, gone when it is dropped. Others may pass through it: a server's user is not ours.
fn folder(below: &Path) -> Result<OwnedFolder, HostError> {
    let make = || {
        let below = std::path::absolute(below)?;
        let dir = OwnedFolder::make(&below, "bigiron-work-")?;
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o711))?;
        Ok::<_, std::io::Error>(dir)
    };
    make().with_context(|| format!("Cannot create a folder in {}", below.display())).map_err(fatal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_system_of_a_folder_is_its_mounts() {
        assert_eq!(filesystem(Path::new("/proc/self")), "proc");
        assert_eq!(filesystem(Path::new("/sys")), "sysfs");
    }
}
