//! The host `vm`: every trial is a QEMU guest of its own, booted from the arm's kernel and thrown away.
//!
//! Invariant: what a guest did is a [`TrialResult`], whatever it did; a [`HostError`] is never about the arm.

mod arm;
pub mod crash;
mod evidence;
mod files;
pub mod gate;
mod images;
mod kernel;
mod outcome;
mod stop_detector;
mod storage;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::foundation;
use super::received_events::ReceivedEvents;
use super::{Host, HostError, Phase, Trial, TrialEvidence, TrialResult};
use crate::guest::COMPLAINTS;
use crate::lever::{self, vm::MachineShape};
use crate::protocol::{GuestJob, WorkloadJob};
use crate::vm::disk::{self, Disk};
use crate::vm::lockstep::Library;
use crate::vm::process::Process;
use crate::vm::profile::{Counts, Plugin};
use crate::vm::qemu::{Accelerator, Config, Qemu};
use crate::vm::watch::{VmEnd, Watch};
use arm::PreparedArm;
use bigiron_archive::Kernel;
use bigiron_model::clock::Clock;
use bigiron_model::environment::{Environment, OF_HOST};
use bigiron_model::folder_files;
use bigiron_model::plan::Plan;
use bigiron_model::purpose::Purpose;
use bigiron_model::record::{Complaint, Failure, HostCost};
use bigiron_model::storage::DISK_CACHE_FACT;
use bigiron_model::values::Values;
use bigiron_probe::{dmesg, environment};
use bigiron_sys::this_machine;
use bigiron_workload::registry::Registry;
use files::Files;
use kernel::Start;
use stop_detector::StopDetector;

/// Idle seconds of the guest's clock before work. Free under the exact clock.
const SETTLE_EXACT_S: u32 = 5;
const SETTLE_WALL_S: u32 = 3;

/// Interval at which a running guest is checked.
const POLL: Duration = Duration::from_millis(10);

/// VMs on this machine.
pub struct VmHost {
    qemu: Qemu,
    accelerator: Accelerator,
    cache: PathBuf,
    arms: Vec<PreparedArm>,
    /// For the exact clock alone: on the others the host's time is the guest's.
    lockstep: Option<Result<Library, String>>,
    /// What drives the exact clock and counts instructions, or why nothing is profiled; none on the wall clock, where guests sample themselves.
    plugin: Option<Result<Plugin, String>>,
    /// Whether the clock is not what it is without the plugin.
    needs_plugin: bool,
    /// Whether caches and TLBs are modelled where instructions are counted.
    models: bool,
}

/// A guest that has ended.
struct FinishedGuest {
    result: TrialResult,
    received: ReceivedEvents,
}

impl VmHost {
    /// Prepares all arms of `plan`; `kernels` are theirs, in the same order (of a plan with rebuilds, all builds of each), and `agent` is the executable
    /// that each guest gets as its PID 1. Nothing boots yet.
    ///
    /// # Errors
    /// A module that the kernel does not have, a file system that cannot be made.
    pub fn new(
        registry: Registry,
        plan: &Plan,
        kernels: &[Kernel],
        cache: &Path,
        qemu: Qemu,
        accelerator: Accelerator,
        agent: &[u8],
    ) -> anyhow::Result<Self> {
        let arms = plan
            .arms
            .iter()
            .zip(kernel::images(kernels, plan)?)
            .map(|(arm, kernel)| {
                let workloads = registry.of_arm(plan, arm).map_err(anyhow::Error::msg)?;
                arm::prepare(&workloads, plan, arm, kernel, cache, agent).with_context(|| format!("Arm `{}`", arm.name))
            })
            .collect::<anyhow::Result<_>>()?;
        let lockstep = (plan.clock.is_exact()).then(|| Library::of(&qemu));
        let plugin = match plan.clock {
            Clock::Exact | Clock::ExactParallel | Clock::Exact1 => {
                Some(Plugin::new().map_err(|e| format!("the plugin cannot be put into memory ({e})")))
            }
            Clock::Wall => None,
            Clock::None => Some(Err(format!("the clock `{}` times nothing; `--clock exact` does", plan.clock))),
        };
        let needs_plugin = plan.clock.charges_moves();
        let models = plan.clock.charges_moves();
        Ok(Self { qemu, accelerator, cache: cache.to_owned(), arms, lockstep, plugin, needs_plugin, models })
    }

    /// Why guests of the exact clock will not run in lockstep, if that is known before the first boot.
    pub fn out_of_step(&self) -> Option<&str> {
        self.lockstep.as_ref()?.as_ref().err().map(String::as_str)
    }
}

impl Host for VmHost {
    fn parallel(&self) -> usize {
        this_machine::cpus() as usize
    }

    fn supports(&self, purpose: Purpose) -> Result<(), String> {
        match (purpose, &self.plugin) {
            // On the wall clock a guest samples itself, or says why it cannot.
            (_, None | Some(Ok(_))) => Ok(()),
            (Purpose::Judge | Purpose::Locks, _) if !self.needs_plugin => Ok(()),
            (_, Some(Err(why))) => Err(why.clone()),
        }
    }

    fn run(&self, trial: &Trial<'_>, phase: &dyn Fn(Phase)) -> Result<TrialResult, HostError> {
        self.supports(trial.purpose).map_err(HostError::Fatal)?;
        let void = |e| HostError::Void(format!("{e:#}"));
        let counts = trial.artifacts.join("profile");
        let is_counted = trial.purpose == Purpose::Profile && self.plugin.is_some();
        let mut booted = self.boot(trial, phase, is_counted.then_some(counts.as_path()))?;
        if booted.result.failure.is_some() {
            return Ok(booted.result);
        }
        booted.result.evidence = match trial.purpose {
            Purpose::Judge => None,
            Purpose::Profile if is_counted => {
                let evidence = evidence::counted(trial, &mut booted, &counts).map_err(void)?;
                // It is large, and in the evidence.
                std::fs::remove_file(&counts).map_err(|e| full(&e, &counts))?;
                Some(TrialEvidence::Executed(evidence))
            }
            Purpose::Profile => Some(TrialEvidence::Executed(evidence::sampled(trial, &mut booted).map_err(void)?)),
            Purpose::Locks => Some(TrialEvidence::Waited(evidence::waiting(trial, &mut booted).map_err(void)?)),
        };
        Ok(booted.result)
    }
}

impl VmHost {
    /// Boots the guest of a trial and watches it until it ends; its instructions are counted into the file `counts`.
    fn boot(
        &self,
        trial: &Trial<'_>,
        phase: &dyn Fn(Phase),
        counts: Option<&Path>,
    ) -> Result<FinishedGuest, HostError> {
        let starts = kernel::starts(&self.arms[trial.slot.arm], trial);
        let mut starts = starts.map_err(|e| HostError::Void(format!("A kernel in memory: {e}")))?.into_iter();
        let mut booted = self.attempt(trial, phase, counts, &starts.next().expect("there is one at least"))?;
        for start in starts {
            if booted.received.hello.is_some() {
                break;
            }
            booted = self.attempt(trial, phase, counts, &start)?;
        }
        Ok(booted)
    }

    /// Starts a kernel and watches its guest until it ends.
    fn attempt(
        &self,
        trial: &Trial<'_>,
        phase: &dyn Fn(Phase),
        counts: Option<&Path>,
        start: &Start,
    ) -> Result<FinishedGuest, HostError> {
        let begun = Instant::now();
        let arm = &self.arms[trial.slot.arm];
        let files = Files::in_dir(trial.artifacts);
        let (job, disks) = self.job(trial, arm, &files).map_err(|e| HostError::Fatal(format!("{e:#}")))?;
        let pmems = arm.images.pmems();
        let shape = MachineShape::of(&trial.arm.settings);
        let modelled = self.models.then_some((trial.plan.machine.memory_bytes, shape.nodes));
        files.write_initramfs(&arm.archive, &job).map_err(|e| full(&e, &files.initramfs))?;
        let config = Config {
            clock: trial.plan.clock,
            accelerator: self.accelerator,
            cpus: trial.plan.machine.cpus,
            memory_bytes: trial.plan.machine.memory_bytes,
            nodes: shape.nodes,
            threads: shape.threads,
            seed: trial.slot.boot_seed,
            kernel: &start.path,
            initramfs: &files.initramfs,
            cmdline: &arm.cmdline,
            console: &files.console,
            events: &files.events,
            acks: None,
            disks: &disks,
            pmems: &pmems,
            plugin: self.plugin.as_ref().and_then(|plugin| plugin.as_ref().ok()),
            counts: counts.map(|out| Counts { out, modelled }),
        };
        let library = self.lockstep.as_ref().and_then(|library| library.as_ref().ok());
        let mut process =
            Process::start(&self.qemu, &config, library, &files.errors).map_err(|e| full(&e, &files.errors))?;
        let started = Instant::now();
        phase(Phase::Booting);
        let mut watch = Watch::new(&files.events, &files.console, trial.plan.design.hang_cpu_seconds);
        let mut received = ReceivedEvents::default();
        let (mut in_lockstep, mut boot_cpu_s) = (false, None);
        let ended = see_to_its_end(
            trial.cancel,
            &mut process,
            &mut watch,
            &files,
            &mut received,
            phase,
            &mut |process, quiet| {
                in_lockstep = in_lockstep || library.is_some() && process.is_in_lockstep();
                if quiet && boot_cpu_s.is_none() {
                    boot_cpu_s = process.cpu_seconds();
                }
            },
        );
        let stopped = Instant::now();
        let cpu_s = watch.cpu_seconds();
        files.remove_bulk(&process);
        let ended = ended?;
        files.cut_console();
        let console = std::fs::read(&files.console).unwrap_or_default();
        let console = String::from_utf8_lossy(&console);
        let mut failure = outcome::verdict(&ended, &received, &console, &process.errors())?;
        for (name, text) in &received.artifacts {
            match files.check_artifact(name) {
                Ok(()) => folder_files::write_whole(trial.artifacts, name, text.as_bytes(), 0o666)
                    .map_err(|e| full(&e, &trial.artifacts.join(name)))?,
                Err(why) => {
                    failure.get_or_insert((
                        Failure::BadEvent,
                        format!("The guest has an artefact without a usable name: {why}"),
                    ));
                }
            }
        }
        let metrics = if failure.is_none() { received.metrics() } else { Values::default() };
        let set_up = received.set_up();
        let overhead = (started - begun) + set_up + stopped.elapsed();
        let facts = std::mem::take(&mut received.facts)
            .into_iter()
            .chain(disk_fact(&disks))
            .chain(self.cpu_fact())
            .chain([start.fact()]);
        let result = TrialResult {
            failure,
            guest: received.guest.take(),
            metrics,
            facts: facts.chain(trial.arm.foundation.clone()).collect(),
            environment: std::mem::take(&mut received.environment).into_iter().chain(around(trial)).collect(),
            counters: received.counters.take(),
            changes: std::mem::take(&mut received.changes),
            complaints: complaints(std::mem::take(&mut received.complaints), &console),
            cost: HostCost {
                accelerator: self.accelerator.name().to_owned(),
                qemu: self.qemu.version.to_string(),
                lockstep: self.lockstep.as_ref().map(|_| in_lockstep),
                wall_s: round(begun.elapsed()),
                cpu_s,
                boot_cpu_s,
                overhead_s: round(overhead),
            },
            evidence: None,
        };
        Ok(FinishedGuest { result, received })
    }
}

impl VmHost {
    fn job(&self, trial: &Trial<'_>, arm: &PreparedArm, files: &Files) -> anyhow::Result<(GuestJob, Vec<Disk>)> {
        let plan = trial.plan;
        let kind = arm::kind(plan, trial.arm);
        let mut disks = Vec::new();
        let mut workloads = Vec::new();
        for &n in &trial.slot.order {
            let planned = &plan.workloads[n];
            let storage = self.storage(plan, (trial.arm, arm), n, &mut |serial, content| {
                let path = files.disk(serial);
                self.lay(kind.on(n), content, &path)?;
                let cache = disk::cache(plan.clock, &path)?;
                disks.push(Disk { path, serial: serial.to_owned(), cache, log: None });
                Ok(())
            })?;
            workloads.push(WorkloadJob {
                name: planned.name.clone(),
                options: plan.options_in(trial.arm, &planned.name),
                storage,
                trees: arm.images.trees(&planned.name),
                loaded: arm.images.data(&planned.name).map(|loaded| loaded.name.to_owned()),
                foundation: foundation::of(&trial.arm.foundation, &planned.name),
            });
        }
        let settings = &trial.arm.settings;
        let job = GuestJob {
            settle_seconds: if plan.clock.is_exact() { SETTLE_EXACT_S } else { SETTLE_WALL_S },
            jitter: trial.slot.jitter,
            modules: arm.modules.clone(),
            cmdline: arm.cmdline.clone(),
            fault: lever::injected(settings),
            levers: lever::of_runtime(settings),
            lever_modules: arm.lever_modules.clone(),
            mount: lever::fs::mount(settings).to_owned(),
            shape: MachineShape::of(settings),
            raw_disks: arm.raw_disks.clone(),
            features: features_asked(trial),
            // On the exact clock all boots of an arm are alike, and reading takes a guest tenths of a second of CPU time.
            environment: !plan.clock.is_exact() || trial.slot.pair == 0,
            purpose: trial.purpose,
            workloads,
            ..GuestJob::new(plan.clock, trial.slot.workload_seed)
        };
        Ok((job, disks))
    }
}

/// Watches a guest until it has ended, or is ended here; `speaking` is called while it runs, from the agent's first word on, and told
/// whether the guest has become quiet.
fn see_to_its_end(
    cancel: &AtomicBool,
    process: &mut Process,
    watch: &mut Watch,
    files: &Files,
    received: &mut ReceivedEvents,
    phase: &dyn Fn(Phase),
    speaking: &mut dyn FnMut(&Process, bool),
) -> Result<VmEnd, HostError> {
    let mut stop_detector = StopDetector::default();
    loop {
        if cancel.load(Ordering::Relaxed) {
            return Err(HostError::Cancelled);
        }
        // The exit status is read first: then everything written before the end is read completely.
        let status = process.ended().map_err(|e| HostError::Void(format!("QEMU cannot be waited for: {e}")))?;
        if let Some(end) = hear(watch, received, files, phase)? {
            process.kill();
            return Ok(end);
        }
        // By then the kernel has waited for many timers.
        if received.hello.is_some() {
            speaking(process, received.quiet);
        }
        if let Some(status) = status {
            return Ok(VmEnd::Exited(status));
        }
        stop_detector.check(process, received)?;
        if let Some(why) = watch.hung(process.cpu_seconds(), received.last_step()) {
            process.kill();
            return Ok(VmEnd::Hung(why));
        }
        std::thread::sleep(POLL);
    }
}

/// Takes what a guest has said since the last call. A guest that has to be ended for it is to blame, unless the disk is full.
fn hear(
    watch: &mut Watch,
    received: &mut ReceivedEvents,
    files: &Files,
    phase: &dyn Fn(Phase),
) -> Result<Option<VmEnd>, HostError> {
    let said = watch.read().map_err(|e| HostError::Void(format!("The guest's events: {e}")))?;
    // Before the room, which it may have taken.
    if let Some(what) = watch.flooded() {
        return Ok(Some(VmEnd::Flooded(what)));
    }
    files.check_room()?;
    for said in said {
        match said {
            Ok(event) => received.take(event, phase),
            Err(line) => return Ok(Some(VmEnd::Malformed(line))),
        }
    }
    Ok(None)
}

/// What the guest has told of its kernel's log, and what the console has of other classes: a guest that died has told nothing, and the log
/// keeps no more than its latest lines.
fn complaints(mut told: Vec<Complaint>, console: &str) -> Vec<Complaint> {
    let seen = dmesg::complaints(console.lines().map(dmesg::console_message), COMPLAINTS);
    let untold: Vec<Complaint> = seen.into_iter().filter(|c| told.iter().all(|t| t.class != c.class)).collect();
    told.extend(untold);
    told
}

/// What a disk of the host begins with.
pub(super) enum DiskContent<'a> {
    Image(&'a Path),
    /// A file system of this many MiB.
    Empty(u64),
    /// The journal of one of this many MiB.
    Journal(u64),
}

/// The serial number of the disk with the journal of `workload`'s file system.
pub fn journal_serial(workload: &str) -> String {
    format!("{workload}-journal")
}

/// Whether a trial finds out what its file system can do: where arms differ in it, and once, since all pairs would find the same.
fn features_asked(trial: &Trial<'_>) -> bool {
    trial.slot.pair == 0 && trial.plan.arms.iter().any(|arm| lever::fs::is_set(&arm.settings))
}

impl VmHost {
    /// The CPU of a guest that does not have all that the host's has.
    fn cpu_fact(&self) -> Option<(String, String)> {
        let differs = self.accelerator == Accelerator::KvmWithoutCapabilities;
        differs.then(|| ("vm.cpu".to_owned(), self.accelerator.host_cpu().to_owned()))
    }
}

/// The environment of the guest's machine, where the trial's times depend on it.
fn around(trial: &Trial<'_>) -> Environment {
    if trial.plan.clock.is_exact() {
        return Environment::new();
    }
    environment::machine(Path::new("/")).into_iter().map(|(name, value)| (format!("{OF_HOST}{name}"), value)).collect()
}

/// How the host opens the disks, for the record: the guest cannot know.
fn disk_fact(disks: &[Disk]) -> Option<(String, String)> {
    disks.first().map(|disk| (DISK_CACHE_FACT.to_owned(), disk.cache.summary().to_owned()))
}

fn full(e: &std::io::Error, path: &Path) -> HostError {
    HostError::Fatal(format!("{}: {e}", path.display()))
}

fn round(d: Duration) -> f64 {
    (d.as_secs_f64() * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests;
