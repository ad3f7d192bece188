//! A machine that loses its power repeatedly: each power cycle boots on the disk that the previous one left, verifies the earlier
//! acknowledgements, and works until its VM is killed.
//!
//! Invariant: acknowledgements of a cycle had reached the host before the guest continued, and the disk holds what the guest had
//! flushed, plus a random part of the rest.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bigiron_stats::order::{ChaCha12Rng, Rng as _, rng};

use super::files::Files;
use super::{DiskContent, POLL, StopDetector, VmHost, full, hear, outcome};
use crate::host::foundation;
use crate::host::received_events::ReceivedEvents;
use crate::host::{HostError, Phase};
use crate::lever::{self, vm::MachineShape};
use crate::protocol::{Crash, GuestJob, WorkloadJob};
use crate::vm::disk::{Cache, Disk};
use crate::vm::process::Process;
use crate::vm::qemu::Config;
use crate::vm::watch::{VmEnd, Watch};
use crate::vm::writes::{self, Honesty, WriteFate};
use bigiron_model::plan::Plan;
use bigiron_model::record::Failure;

/// Where the initramfs has what was acknowledged.
const ACKNOWLEDGED: &str = "/acknowledged";
/// Interval at which a guest that is about to be killed is checked.
const WATCHING: Duration = Duration::from_millis(2);

/// Bytes that a guest may acknowledge in a cycle: 16 million acknowledgements, of which a cycle of minutes has a hundredth.
const ACKS_LIMIT: u64 = 512 << 20;

/// When a power cycle ends.
pub enum PowerCycleEnd<'a> {
    /// So long after the predicate says yes to the bytes that were acknowledged in this cycle.
    Kill { when: &'a dyn Fn(u64) -> bool, then: Duration },
    /// When the proof is done.
    Proof,
}

/// What a power cycle has shown.
#[derive(Debug)]
pub struct PowerCycle {
    /// What was proved of the cycles before; `None` in the first one.
    pub proved: Option<Vec<(String, String)>>,
    /// The failure, if it was not killed and did not end as it should.
    pub failure: Option<(Failure, String)>,
    /// What became of the disk's writes when the power was lost. `None` if it was not, or if the disk kept them all.
    pub fate: Option<WriteFate>,
}

/// A machine with its disk, over all its power cycles. The plan has one arm and one workload, and storage that is a file of the host.
pub struct CrashMachine<'a> {
    host: &'a VmHost,
    plan: &'a Plan,
    dir: PathBuf,
    honesty: Honesty,
    draws: ChaCha12Rng,
    cycles: u32,
}

impl<'a> CrashMachine<'a> {
    /// `dir` is a folder of its own, which exists and is empty.
    pub fn new(host: &'a VmHost, plan: &'a Plan, dir: &Path, honesty: Honesty) -> Self {
        let draws = rng(plan.design.seed);
        let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
        Self { host, plan, dir, honesty, draws, cycles: 0 }
    }

    /// The disk between two cycles, and while a guest runs.
    fn disk(&self) -> PathBuf {
        self.dir.join("left.disk")
    }

    /// All that was acknowledged, in all cycles.
    pub fn acknowledged(&self) -> PathBuf {
        self.dir.join("acknowledged")
    }

    /// Boots once more.
    ///
    /// # Errors
    /// The host's own, and the user's interruption.
    pub fn live(
        &mut self,
        end: &PowerCycleEnd<'_>,
        cancel: &AtomicBool,
        phase: &dyn Fn(Phase),
    ) -> Result<PowerCycle, HostError> {
        let fatal = |e: anyhow::Error| HostError::Fatal(format!("{e:#}"));
        let files = Files::in_dir(&self.dir);
        let (running, log, acks) = (self.dir.join("running.disk"), self.dir.join("writes.log"), self.dir.join("acks"));
        let job = self.job(end).map_err(fatal)?;
        bigiron_image::restore(&self.disk(), &running).map_err(fatal)?;
        for fresh in [&log, &acks] {
            fs::write(fresh, "").map_err(|e| full(&e, fresh))?;
        }
        let arm = &self.host.arms[0];
        let mut initramfs = arm.archive.clone();
        if self.cycles > 0 {
            let told = fs::read(self.acknowledged()).map_err(|e| full(&e, &self.acknowledged()))?;
            let mut more = crate::vm::initramfs::Archive::new();
            more.file(ACKNOWLEDGED, 0o644, &told);
            initramfs.extend(more.finish());
        }
        files.write_initramfs(&initramfs, &job).map_err(|e| full(&e, &files.initramfs))?;
        let serial = self.plan.workloads[0].name.clone();
        let shape = MachineShape::of(&self.plan.arms[0].settings);
        let disks = [Disk { path: running.clone(), serial, cache: Cache::WriteBack, log: Some(log.clone()) }];
        let config = Config {
            clock: self.plan.clock,
            accelerator: self.host.accelerator,
            cpus: self.plan.machine.cpus,
            memory_bytes: self.plan.machine.memory_bytes,
            nodes: shape.nodes,
            threads: shape.threads,
            seed: self.draws.next_u64(),
            kernel: &arm.boots[0].path,
            initramfs: &files.initramfs,
            cmdline: &arm.cmdline,
            console: &files.console,
            events: &files.events,
            acks: Some(&acks),
            disks: &disks,
            pmems: &arm.images.pmems(),
            plugin: None,
            counts: None,
        };
        let _ = fs::remove_file(&files.events);
        let process = Process::start(&self.host.qemu, &config, None, &files.errors);
        let process = process.map_err(|e| full(&e, &files.errors))?;
        phase(Phase::Booting);
        let (cycle, killed) = self.watch(process, &files, &acks, end, cancel, phase)?;
        self.cycles += 1;
        if !killed {
            return Ok(cycle);
        }
        let told = fs::read(&acks).map_err(|e| full(&e, &acks))?;
        let mut all = fs::OpenOptions::new().create(true).append(true).open(self.acknowledged());
        all.as_mut().map_or_else(
            |e| Err(full(e, &acks)),
            |all| {
                // Whole records only: those of the next cycle begin behind them.
                std::io::Write::write_all(all, &told[..told.len() / 32 * 32]).map_err(|e| full(&e, &acks))
            },
        )?;
        let fate = writes::lose_power(&log, &self.disk(), self.honesty, &mut self.draws).map_err(fatal)?;
        if fate.is_none() {
            fs::rename(&running, self.disk()).map_err(|e| full(&e, &running))?;
        }
        Ok(PowerCycle { fate, ..cycle })
    }

    /// Watches until the guest has ended, or it is time to kill it; returns whether it was killed.
    fn watch(
        &self,
        mut process: Process,
        files: &Files,
        acks: &Path,
        end: &PowerCycleEnd<'_>,
        cancel: &AtomicBool,
        phase: &dyn Fn(Phase),
    ) -> Result<(PowerCycle, bool), HostError> {
        let mut watch = Watch::new(&files.events, &files.console, self.plan.design.hang_cpu_seconds);
        let (mut received, mut told, mut due) = (ReceivedEvents::default(), 0, None);
        let mut stop_detector = StopDetector::default();
        let ended = loop {
            if cancel.load(Ordering::Relaxed) {
                return Err(HostError::Cancelled);
            }
            let status = process.ended().map_err(|e| HostError::Void(format!("QEMU cannot be waited for: {e}")))?;
            if let Some(end) = hear(&mut watch, &mut received, files, phase)? {
                process.kill();
                break end;
            }
            if let Some(status) = status {
                break VmEnd::Exited(status);
            }
            let length = fs::metadata(acks).map_or(0, |m| m.len());
            if length > ACKS_LIMIT {
                process.kill();
                break VmEnd::Flooded(format!("The guest acknowledged more than {} MiB", ACKS_LIMIT >> 20));
            }
            if length != told {
                told = length;
                watch.seen();
            }
            if let (None, PowerCycleEnd::Kill { when, then }) = (due, end)
                && when(told)
            {
                due = Some(Instant::now() + *then);
            }
            if due.is_some_and(|at| Instant::now() >= at) {
                process.kill();
                return Ok((PowerCycle { proved: received.proved, failure: None, fate: None }, true));
            }
            stop_detector.check(&mut process, &received)?;
            if let Some(why) = watch.hung(process.cpu_seconds(), received.last_step()) {
                process.kill();
                break VmEnd::Hung(why);
            }
            std::thread::sleep(if told > 0 { WATCHING } else { POLL });
        };
        let console = fs::read(&files.console).unwrap_or_default();
        let failure = outcome::verdict(&ended, &received, &String::from_utf8_lossy(&console), &process.errors())?;
        Ok((PowerCycle { proved: received.proved, failure, fate: None }, false))
    }

    /// The job of the next cycle. In the first one the disk is made.
    fn job(&self, end: &PowerCycleEnd<'_>) -> anyhow::Result<GuestJob> {
        let (plan, arm, planned) = (self.plan, &self.host.arms[0], &self.plan.workloads[0]);
        ensure!(arm.raw_disks.is_none(), "The disks of `vm.disks` are in the guest's memory and would lose everything");
        ensure!(
            lever::fs::journal(&plan.arms[0].settings).is_none(),
            "A test of crashes has one disk, and with `{}` there are two",
            lever::fs::JOURNAL
        );
        let (first, kind) = (self.cycles == 0, super::arm::kind(plan, &plan.arms[0]));
        let storage = self.host.storage(plan, (&plan.arms[0], arm), 0, &mut |_: &str, content: DiskContent<'_>| {
            if first { self.host.lay(kind, content, &self.disk()) } else { Ok(()) }
        });
        let mut storage = storage?.context("A test of crashes needs a workload with a disk")?;
        if !first {
            storage.files = None;
        }
        let seed = plan.design.seed.wrapping_add(u64::from(self.cycles));
        Ok(GuestJob {
            modules: arm.modules.clone(),
            cmdline: arm.cmdline.clone(),
            levers: lever::of_runtime(&plan.arms[0].settings),
            lever_modules: arm.lever_modules.clone(),
            mount: lever::fs::mount(&plan.arms[0].settings).to_owned(),
            shape: MachineShape::of(&plan.arms[0].settings),
            crash: Some(Crash {
                acknowledged: (!first).then(|| ACKNOWLEDGED.to_owned()),
                proves_only: matches!(end, PowerCycleEnd::Proof),
            }),
            workloads: vec![WorkloadJob {
                name: planned.name.clone(),
                options: plan.options_in(&plan.arms[0], &planned.name),
                storage: Some(storage),
                trees: arm.images.trees(&planned.name),
                loaded: arm.images.data(&planned.name).map(|loaded| loaded.name.to_owned()),
                foundation: foundation::of(&plan.arms[0].foundation, &planned.name),
            }],
            ..GuestJob::new(plan.clock, seed)
        })
    }
}
