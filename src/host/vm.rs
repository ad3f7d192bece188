//! The host `vm`: every trial is a QEMU guest of its own, booted from the arm's kernel and thrown away.
//!
//! Invariant: what a guest did is a [`TrialResult`], whatever it did; a [`HostError`] is never about the arm.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::files::{self, Files};
use super::{Host, HostError, Phase, Trial, TrialResult};
use crate::clock::Clock;
use crate::guest::protocol::{self, Event, Job, Module, PROTOCOL, Storage, WorkloadJob};
use crate::kernel::{Kernel, modinfo, modules};
use crate::lever;
use crate::metric::Metric;
use crate::store::record::{Failure, HostCost};
use crate::study::plan::{Machine, Plan};
use crate::study::storage::{self, DISK_CACHE_FACT, Medium, Profile};
use crate::vm::disk::{self, Disk};
use crate::vm::image;
use crate::vm::initramfs::Archive;
use crate::vm::qemu::{Accelerator, Config, Process, Qemu};
use crate::vm::watch::{Ended, Watch};
use crate::workload;

/// Idle seconds of the guest's clock before work. Free under the exact clock.
const SETTLE_EXACT_S: u32 = 5;
const SETTLE_WALL_S: u32 = 3;

/// How often a running guest is looked at.
const POLL: Duration = Duration::from_millis(10);

/// Lines of the console that go into a failed trial's message.
const TAIL_LINES: usize = 20;

/// VMs on this machine.
pub struct VmHost {
    qemu: Qemu,
    accelerator: Accelerator,
    cache: PathBuf,
    arms: Vec<PreparedArm>,
}

/// What is the same for every boot of an arm.
struct PreparedArm {
    kernel: PathBuf,
    /// Agent, modules, file-system images.
    archive: Vec<u8>,
    /// The modules in the archive, in the order in which they load.
    modules: Vec<Module>,
    cmdline: Vec<String>,
}

impl VmHost {
    /// Prepares all arms of `plan`; `kernels` are theirs, in the same order, and `agent` is the executable that each guest gets as its PID 1.
    /// Nothing boots yet.
    ///
    /// # Errors
    /// A module that the kernel does not have, a file system that cannot be made, an unreadable agent.
    pub fn new(
        plan: &Plan,
        kernels: &[Kernel],
        cache: &Path,
        qemu: Qemu,
        accelerator: Accelerator,
        agent: &Path,
    ) -> anyhow::Result<Self> {
        let agent = std::fs::read(agent).with_context(|| format!("Cannot read the agent {}", agent.display()))?;
        let arms = plan
            .arms
            .iter()
            .zip(kernels)
            .map(|(arm, kernel)| {
                prepare(plan, arm, kernel, cache, &agent).with_context(|| format!("Arm `{}`", arm.name))
            })
            .collect::<anyhow::Result<_>>()?;
        Ok(Self { qemu, accelerator, cache: cache.to_owned(), arms })
    }
}

fn prepare(
    plan: &Plan,
    arm: &crate::study::plan::Arm,
    kernel: &Kernel,
    cache: &Path,
    agent: &[u8],
) -> anyhow::Result<PreparedArm> {
    let mut archive = Archive::new();
    for dir in ["/dev", "/proc", "/sys", "/tmp", "/data", "/modules", "/images"] {
        archive.directory(dir, 0o755);
    }
    archive.character_device("/dev/console", 0o600, 5, 1).file("/init", 0o755, agent);
    let wanted = wanted_modules(plan, arm)?;
    let sizes = storage_sizes(plan, arm);
    let mut to_load = Vec::new();
    for (n, module) in modules::load_order(kernel, &wanted)?.iter().enumerate() {
        // Unpacked here: a kernel need not be able to unpack them, and none pays for it.
        let path = format!("/modules/{n:02}-{}.ko", module.name);
        archive.file(&path, 0o644, &modinfo::read_module(&module.path, module.compression)?);
        let parameters = parameters(&module.name, plan.workloads.len(), sizes.last().copied().unwrap_or(0));
        to_load.push(Module { path, parameters, optional: module.optional });
    }
    if storage_of(plan)?.is_in_memory() {
        for size_mib in sizes {
            let packed = image::packed(cache, &plan.machine.filesystem, size_mib)?;
            archive.file(&image_path(&plan.machine, size_mib), 0o644, &packed);
        }
    }
    Ok(PreparedArm {
        kernel: kernel.image.clone(),
        archive: archive.finish(),
        modules: to_load,
        cmdline: lever::cmdline(&arm.settings),
    })
}

/// Left alone, null_blk makes a disk of its own beside those of configfs, and brd sixteen small ones: one for each workload, as
/// large as the largest, is wanted (memory is taken only as it is written).
fn parameters(module: &str, disks: usize, size_mib: u64) -> String {
    match module {
        "null_blk" => "nr_devices=0".to_owned(),
        "brd" => format!("rd_nr={disks} rd_size={}", size_mib << 10),
        _ => String::new(),
    }
}

fn image_path(machine: &Machine, size_mib: u64) -> String {
    format!("/images/{}-{size_mib}", machine.filesystem)
}

fn storage_of(plan: &Plan) -> anyhow::Result<&'static Profile> {
    let name = &plan.machine.storage;
    let profile = storage::find(name).with_context(|| format!("No storage `{name}`"))?;
    profile.goes_with(plan.clock).map_err(anyhow::Error::msg)?;
    Ok(profile)
}

/// The sizes of the file systems that the arm's workloads ask for, each once.
fn storage_sizes(plan: &Plan, arm: &crate::study::plan::Arm) -> Vec<u64> {
    let mut sizes: Vec<u64> = plan
        .workloads
        .iter()
        .filter_map(|w| storage_mib(plan, &w.name, &lever::workload_options(plan, arm, &w.name)))
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// MiB of file system for a workload: what it asks for, and what the file system itself needs (journal, metadata; xfs refuses less
/// than 300 MiB).
fn storage_mib(plan: &Plan, name: &str, options: &workload::Options) -> Option<u64> {
    let bytes = workload::find(name)?.needs(options).storage_bytes?;
    let least = if plan.machine.filesystem == "xfs" { 320 } else { 64 };
    Some((bytes.div_ceil(1 << 20) * 5 / 4 + 64).max(least).next_multiple_of(64))
}

fn wanted_modules(plan: &Plan, arm: &crate::study::plan::Arm) -> anyhow::Result<Vec<&'static str>> {
    let mut wanted = Vec::new();
    let mut storage = false;
    for planned in &plan.workloads {
        let workload = workload::find(&planned.name).with_context(|| format!("No workload `{}`", planned.name))?;
        let needs = workload.needs(&lever::workload_options(plan, arm, &planned.name));
        storage |= needs.storage_bytes.is_some();
        wanted.extend(needs.modules);
    }
    if storage {
        match storage_of(plan)?.medium {
            Medium::Ram => wanted.push("brd"),
            Medium::Modelled { .. } => wanted.extend(["configfs", "null_blk"]),
            Medium::HostFile => wanted.extend(["virtio_pci", "virtio_blk"]),
        }
        wanted.push(match plan.machine.filesystem.as_str() {
            "ext4" => "ext4",
            "xfs" => "xfs",
            other => anyhow::bail!("No module is known for the file system `{other}`"),
        });
    }
    Ok(wanted)
}

impl Host for VmHost {
    fn parallel(&self) -> usize {
        std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
    }

    fn run(&self, trial: &Trial<'_>, phase: &dyn Fn(Phase)) -> Result<TrialResult, HostError> {
        let begun = Instant::now();
        let arm = &self.arms[trial.slot.arm];
        let files = Files::in_dir(trial.artifacts);
        let (job, disks) = self.job(trial, arm, &files).map_err(|e| HostError::Fatal(format!("{e:#}")))?;
        files.write_initramfs(&arm.archive, &job).map_err(|e| files::fatal(&e, &files.initramfs))?;
        let config = Config {
            clock: trial.plan.clock,
            accelerator: self.accelerator,
            cpus: trial.plan.machine.cpus,
            memory_bytes: trial.plan.machine.memory_bytes,
            seed: trial.slot.boot_seed,
            kernel: &arm.kernel,
            initramfs: &files.initramfs,
            cmdline: &arm.cmdline,
            console: &files.console,
            events: &files.events,
            disks: &disks,
        };
        let mut process =
            Process::start(&self.qemu, &config, &files.errors).map_err(|e| files::fatal(&e, &files.errors))?;
        let started = Instant::now();
        phase(Phase::Booting);
        let mut watch = Watch::new(&files.events, &files.console, trial.plan.design.hang_cpu_seconds);
        let mut heard = Heard::default();
        let ended = loop {
            if trial.cancel.load(Ordering::Relaxed) {
                files.remove_bulk(&process);
                return Err(HostError::Cancelled);
            }
            // The status first: what was written before the end is then read whole.
            let status = process.ended().map_err(|e| HostError::Void(format!("QEMU cannot be waited for: {e}")))?;
            for event in watch.read().map_err(|e| HostError::Void(format!("The guest's events: {e}")))? {
                heard.take(event, phase);
            }
            files.check_room()?;
            if let Some(status) = status {
                break Ended::Exited(status);
            }
            if let Some(why) = watch.hung(process.cpu_seconds(), heard.last_step()) {
                process.kill();
                break Ended::Hung(why);
            }
            std::thread::sleep(POLL);
        };
        let stopped = Instant::now();
        let cpu_s = watch.cpu_seconds();
        files.remove_bulk(&process);
        let console = std::fs::read(&files.console).unwrap_or_default();
        let console = String::from_utf8_lossy(&console);
        let failure = verdict(&ended, &heard, &console, &process)?;
        let metrics = if failure.is_none() { heard.metrics(trial) } else { Vec::new() };
        let set_up = heard.set_up();
        let overhead = (started - begun) + set_up + stopped.elapsed();
        Ok(TrialResult {
            failure,
            guest: heard.guest,
            metrics,
            facts: heard.facts.into_iter().chain(disk_fact(&disks)).collect(),
            complaints: heard.complaints,
            cost: HostCost {
                accelerator: self.accelerator.name().to_owned(),
                qemu: self.qemu.version.to_string(),
                wall_s: round(begun.elapsed()),
                cpu_s,
                overhead_s: round(overhead),
            },
        })
    }
}

impl VmHost {
    fn job(&self, trial: &Trial<'_>, arm: &PreparedArm, files: &Files) -> anyhow::Result<(Job, Vec<Disk>)> {
        let plan = trial.plan;
        let profile = storage_of(plan)?;
        let mut disks = Vec::new();
        let mut workloads = Vec::new();
        for &n in &trial.slot.order {
            let planned = &plan.workloads[n];
            let options = lever::workload_options(plan, trial.arm, &planned.name);
            let mut storage = None;
            if let Some(size_mib) = storage_mib(plan, &planned.name, &options) {
                let device = disk::device(profile, size_mib, plan.machine.cpus, n, &planned.name);
                let mut image = Some(image_path(&plan.machine, size_mib));
                if let protocol::Device::Virtio { serial } = &device {
                    let path = files.disk(serial);
                    image::write_raw(&self.cache, &plan.machine.filesystem, size_mib, &path)?;
                    let cache = disk::cache(plan.clock, &path)?;
                    disks.push(Disk { path, serial: serial.clone(), cache });
                    image = None;
                }
                storage = Some(Storage { device, filesystem: plan.machine.filesystem.clone(), image });
            }
            let metrics = planned.metrics.clone();
            workloads.push(WorkloadJob { name: planned.name.clone(), options, metrics, storage });
        }
        let job = Job {
            protocol: PROTOCOL,
            clock: plan.clock,
            settle_seconds: if plan.clock == Clock::Exact { SETTLE_EXACT_S } else { SETTLE_WALL_S },
            jitter: trial.slot.jitter,
            seed: trial.slot.workload_seed,
            modules: arm.modules.clone(),
            cmdline: arm.cmdline.clone(),
            fault: lever::injected(&trial.arm.settings),
            workloads,
        };
        Ok((job, disks))
    }
}

/// How the host opens the disks, for the record: the guest cannot know.
fn disk_fact(disks: &[Disk]) -> Option<(String, String)> {
    disks.first().map(|disk| (DISK_CACHE_FACT.to_owned(), disk.cache.summary().to_owned()))
}

fn round(d: Duration) -> f64 {
    (d.as_secs_f64() * 1000.0).round() / 1000.0
}

/// What the guest has said so far.
#[derive(Default)]
struct Heard {
    guest: Option<crate::store::record::GuestIdentity>,
    hello: Option<Instant>,
    ready: Option<Instant>,
    step: Option<(String, String)>,
    results: Vec<(String, Vec<(String, f64)>)>,
    facts: Vec<(String, String)>,
    complaints: Vec<crate::store::record::Complaint>,
    failed: Option<(Failure, String)>,
    unfit: Option<String>,
    done: bool,
}

impl Heard {
    fn take(&mut self, event: Event, phase: &dyn Fn(Phase)) {
        match event {
            Event::Hello { guest, .. } => {
                self.guest = Some(guest);
                self.hello = Some(Instant::now());
                phase(Phase::Up);
            }
            Event::Ready => self.ready = Some(Instant::now()),
            Event::Quiet { clocksource } => {
                if let Some(guest) = &mut self.guest {
                    guest.clocksource = clocksource;
                }
            }
            Event::Step { workload, step, done, of } => {
                self.step = Some((workload.clone(), step.clone()));
                phase(Phase::Step { workload, step, done, of });
            }
            Event::Result { workload, values, facts } => {
                self.facts.extend(facts.into_iter().map(|(k, v)| (format!("{workload}.{k}"), v)));
                self.results.push((workload, values));
            }
            // The first failure is the cause; what follows from it comes later.
            Event::Failed { failure, message } => {
                self.failed.get_or_insert((failure, message));
            }
            Event::Unfit { message } => self.unfit = Some(message),
            Event::Complaints { lines } => self.complaints = lines,
            Event::Done => self.done = true,
        }
    }

    fn last_step(&self) -> String {
        match (&self.step, self.ready, self.hello) {
            (Some((workload, step)), ..) => format!("in `{workload}`, step `{step}`"),
            (None, Some(_), _) => "before the first workload".to_owned(),
            (None, None, Some(_)) => "while the agent set the guest up".to_owned(),
            (None, None, None) => "while it booted".to_owned(),
        }
    }

    /// The agent's own work in the guest, by the host's clock.
    fn set_up(&self) -> Duration {
        self.hello.zip(self.ready).map_or(Duration::ZERO, |(hello, ready)| ready - hello)
    }

    /// The metrics in the plan's order: the same whatever the order in which the workloads ran.
    fn metrics(&self, trial: &Trial<'_>) -> Vec<Metric> {
        let mut metrics = Vec::new();
        for planned in &trial.plan.workloads {
            let Some((_, values)) = self.results.iter().find(|(name, _)| *name == planned.name) else { continue };
            for def in &planned.metrics {
                if let Some((_, value)) = values.iter().find(|(name, _)| *name == def.name) {
                    metrics.push(def.measured(&planned.name, *value));
                }
            }
        }
        metrics
    }
}

/// The trial's failure, from how the VM ended and what the guest had said until then.
fn verdict(
    ended: &Ended,
    heard: &Heard,
    console: &str,
    process: &Process,
) -> Result<Option<(Failure, String)>, HostError> {
    if let Some(message) = &heard.unfit {
        let message = format!("The guest cannot be used: {message}\n{}", tail(console));
        return Err(HostError::Fatal(message.trim_end().to_owned()));
    }
    let status = match ended {
        Ended::Hung(why) => return Ok(Some((Failure::Hang, with_tail(why, console)))),
        Ended::Exited(status) => *status,
    };
    if let Some(line) = console.lines().find(|l| l.contains("Kernel panic - not syncing")) {
        let said = line.split_once("Kernel panic").map_or(line, |(_, rest)| rest);
        let message = format!("Kernel panic{said}, {}", heard.last_step());
        return Ok(Some((Failure::Panic, with_tail(&message, console))));
    }
    if heard.done && status.code() == Some(protocol::EXIT_DONE_STATUS) {
        return Ok(heard.failed.clone());
    }
    not_orderly(status, heard, console, process)
}

/// QEMU ended without the agent's word for it: whose doing was it?
fn not_orderly(
    status: ExitStatus,
    heard: &Heard,
    console: &str,
    process: &Process,
) -> Result<Option<(Failure, String)>, HostError> {
    use std::os::unix::process::ExitStatusExt;
    let errors = process.errors();
    if let Some(signal) = status.signal() {
        let said = if errors.is_empty() { String::new() } else { format!(": {errors}") };
        return Err(HostError::Void(format!("QEMU was killed by signal {signal} {}{said}", heard.last_step())));
    }
    if !status.success() {
        let what = format!("QEMU ended with {status}: {errors}");
        // Nothing ever ran: the next slot would fare the same.
        return Err(if console.is_empty() && heard.hello.is_none() {
            HostError::Fatal(what)
        } else {
            HostError::Void(what)
        });
    }
    let (failure, what) = if heard.hello.is_none() {
        (Failure::NoAgent, "The VM ended before the agent said a word".to_owned())
    } else {
        (Failure::EarlyExit, format!("The VM ended {} without the agent's doing", heard.last_step()))
    };
    Ok(Some((failure, with_tail(&what, console))))
}

fn with_tail(message: &str, console: &str) -> String {
    match tail(console) {
        tail if tail.is_empty() => format!("{message}; the console is empty"),
        tail => format!("{message}\n{tail}"),
    }
}

fn tail(console: &str) -> String {
    let lines: Vec<&str> = console.lines().map(str::trim_end).filter(|l| !l.is_empty()).collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}
