//! The child that runs the workloads, and the agent's end of the pipes to it.
//!
//! It is a separate process, so that PID 1 survives to report a workload that is killed, crashes or exhausts the memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, anyhow};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, kill_process};

use super::block::Mounts;
use super::recording::Armed;
use super::{Finding, channel, journal, rest_after_prepare};
use crate::lever::Fault;
use crate::protocol::{ACK_PORT, GuestEvent, GuestJob, WorkloadJob};
use bigiron_model::counters::TrialCounters;
use bigiron_model::purpose::Purpose;
use bigiron_model::record::{Failure, GuestIdentity};
use bigiron_probe::counters::span;
use bigiron_probe::locks::stat;
use bigiron_probe::{filesystem, symbols};
use bigiron_sys as sys;
use bigiron_sys::port;
use bigiron_sys::process::Exit;
use bigiron_workload::registry::Registry;
use bigiron_workload::shortage;
use bigiron_workload::shortage::Shortage;
use bigiron_workload::{AckSink, Configured, Context, EndedBadly, Progress, WorkloadResult};

/// The job's workloads with parsed options, in order.
///
/// # Errors
/// If this executable lacks one of them, or its options are wrong.
pub fn workloads(registry: Registry, job: &GuestJob) -> anyhow::Result<Vec<Box<dyn Configured>>> {
    job.workloads.iter().map(|w| registry.configure(&w.name, &w.options).map_err(anyhow::Error::msg)).collect()
}

/// Runs the job's workloads in a child and forwards its events. Returns the trial's failure, if the child could not report it
/// itself.
pub(super) fn run(
    workloads: &[Box<dyn Configured>],
    job: &GuestJob,
    guest: &GuestIdentity,
    mounts: &[Mounts],
) -> anyhow::Result<Option<(Failure, String)>> {
    let (events, events_in) = pipe_with(PipeFlags::CLOEXEC)?;
    let (acks, acks_in) = pipe_with(PipeFlags::CLOEXEC)?;
    let killed = shortage::killed();
    let armed = Armed::of(job);
    let child = sys::process::fork_child(|| {
        let (events, acks) = (File::from(clone(&events_in)), File::from(clone(&acks)));
        serve(workloads, job, guest, mounts, Path::new("/init"), events, acks);
        0
    })?;
    drop((events_in, acks));
    let recording = armed.map(Armed::start);
    let mut acks = File::from(acks_in);
    let mut marks = Vec::new();
    let mut finished = false;
    for line in BufReader::new(File::from(events)).split(b'\n') {
        let event = event(&line?)?;
        finished |= matches!(event, GuestEvent::Done);
        match event {
            GuestEvent::Done => {}
            // A recording in this process is divided into the windows here.
            GuestEvent::Marks { marks: more } if recording.is_some() => marks.extend(more),
            event => channel::send(&event),
        }
        // The wait below detects a child that has ended.
        let _ = acks.write_all(b".");
    }
    let exit = child.wait()?;
    if let Some(recording) = recording {
        channel::send(&recording.stop(&marks));
    }
    send_artifacts(job, mounts);
    let killed = shortage::killed().saturating_sub(killed);
    Ok((!finished).then(|| match killed {
        0 => (Failure::AgentDied, died(exit)),
        n => {
            let shortage = Shortage::of_memory("", n, &died(exit), "reduce the workload");
            (Failure::OutOfMemory, shortage.to_string())
        }
    }))
}

/// Parses an event of the workload's process.
fn event(line: &[u8]) -> Result<GuestEvent, Finding> {
    GuestEvent::of_line(line).map_err(|said| {
        Finding(Failure::BadEvent, format!("The workload's process said `{said}`, which is not an event"))
    })
}

/// Maximum number of files that a workload may leave in a guest for keeping, and of bytes of each: they leave through a port, a
/// byte at a time.
const ARTIFACT_FILES: usize = 32;
const ARTIFACT_BYTES: usize = 64 << 10;

fn send_artifacts(job: &GuestJob, mounts: &[Mounts]) {
    for (workload, mounts) in job.workloads.iter().zip(mounts) {
        let left = std::fs::read_dir(mounts.dir.join("work").join(bigiron_workload::ARTIFACTS));
        let mut paths: Vec<_> = left.into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths.into_iter().take(ARTIFACT_FILES) {
            let Ok(bytes) = std::fs::read(&path) else { continue };
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(ARTIFACT_BYTES)..]).into_owned();
            channel::send(&GuestEvent::Artifact { name: format!("{}.{name}", workload.name), text });
        }
    }
}

fn clone(fd: &OwnedFd) -> OwnedFd {
    fd.try_clone().expect("a descriptor is free")
}

fn died(exit: Exit) -> String {
    match exit {
        Exit::Signal(signal) => format!("The process that ran the workload was killed by signal {signal}"),
        Exit::Status(status) => format!("The process that ran the workload ended with status {status}"),
    }
}

/// The child's pipe to the agent, which forwards its events.
struct EventPipe<'a> {
    events: File,
    acks: File,
    executable: &'a Path,
}

impl EventPipe<'_> {
    /// Sends `event` and waits until the agent has forwarded it.
    fn say(&mut self, event: &GuestEvent) {
        let mut line = serde_json::to_vec(event).expect("events have string keys only");
        line.push(b'\n');
        // If the agent is gone, so is the guest.
        let _ = self.events.write_all(&line).and_then(|()| self.acks.read_exact(&mut [0]));
    }
}

/// Facts about a workload's disks after its run.
fn said(mounts: &Mounts) -> BTreeMap<String, String> {
    let journal = mounts.journal.as_deref().map(journal::facts).unwrap_or_default();
    mounts.facts.clone().into_iter().chain(journal).collect()
}

/// Runs the job's workloads in this process. Each event is sent as a line, and the work continues when one byte comes back.
pub fn serve(
    workloads: &[Box<dyn Configured>],
    job: &GuestJob,
    guest: &GuestIdentity,
    mounts: &[Mounts],
    executable: &Path,
    events: File,
    acks: File,
) {
    let voice = &mut EventPipe { events, acks, executable };
    if let Err(message) = job.placement.take() {
        voice.say(&GuestEvent::Unfit { message });
        voice.say(&GuestEvent::Done);
        return;
    }
    let armed = if job.is_recorded() { sys::mark::arm() } else { Ok(()) };
    if let Err(e) = armed {
        voice.say(&GuestEvent::Unfit { message: format!("There is no memory for marks: {e}") });
        voice.say(&GuestEvent::Done);
        return;
    }
    // Without memory for them there are no counters; the trial continues.
    let _ = span::arm(job.shared);
    let mut failed = false;
    let (mut windows, mut programs, mut read) = (Vec::new(), Vec::new(), Vec::new());
    let mut cuts = 0;
    for ((workload, mounts), configured) in job.workloads.iter().zip(mounts).zip(workloads) {
        match one(configured.as_ref(), job, guest, workload, mounts, voice) {
            Ok(outcome) => {
                programs.extend(outcome.programs);
                let counted = span::windows(cuts);
                cuts += counted.len();
                if counted.len() == outcome.windows.len() {
                    read.push((workload.name.clone(), outcome.windows.iter().cloned().zip(counted).collect()));
                }
                windows.push(GuestEvent::Windows { workload: workload.name.clone(), windows: outcome.windows });
                voice.say(&GuestEvent::Result {
                    workload: workload.name.clone(),
                    values: outcome.values.into_iter().collect(),
                    facts: said(mounts).into_iter().chain(outcome.facts).collect(),
                });
            }
            Err((failure, e)) => {
                let message = format!("{}: {e:#}", workload.name);
                // A user's limit on the machine under test, or another machine that is not there, is no failure of its kernel.
                voice.say(&match e.downcast_ref() {
                    Some(Shortage::Processes(_) | Shortage::Machine(_)) if job.shared => GuestEvent::Unfit { message },
                    _ => GuestEvent::Failed { failure, message },
                });
                failed = true;
                break;
            }
        }
    }
    let disk = job.workloads.iter().zip(mounts).find(|(w, _)| w.storage.is_some());
    if let (true, false, Some((workload, mounts))) = (job.features, failed, disk) {
        let step = "features".to_owned();
        voice.say(&GuestEvent::Step { workload: workload.name.clone(), step, done: 0, of: 0 });
        let found = filesystem::features(&mounts.dir);
        voice.say(&GuestEvent::Features { found: found.into_iter().map(|(n, v)| (n.to_owned(), v)).collect() });
    }
    // Last, and only in a counted guest: up to here it has executed the same instructions as all others.
    if job.is_counted() && !failed {
        windows.iter().for_each(|event| voice.say(event));
        programs.extend(symbols::running());
        programs.sort();
        programs.dedup();
        voice.say(&GuestEvent::Programs { programs });
        let text = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        for part in symbols::compact(&text).chunks(SYMBOL_LINES) {
            voice.say(&GuestEvent::Symbols { text: part.join("\n") + "\n" });
        }
    }
    if let Some(counters) = TrialCounters::of(&read).filter(|_| !failed) {
        voice.say(&GuestEvent::Counters { counters });
    }
    if job.is_recorded() && !failed {
        windows.iter().for_each(|event| voice.say(event));
        let marks: Vec<_> = sys::mark::written().unwrap_or_default().into_iter().map(|(m, ns)| (m as u8, ns)).collect();
        for part in marks.chunks(MARKS) {
            voice.say(&GuestEvent::Marks { marks: part.to_vec() });
        }
    }
    voice.say(&GuestEvent::Done);
}

/// Maximum number of marks in one event.
const MARKS: usize = 4096;

/// Maximum number of symbols in one event.
const SYMBOL_LINES: usize = 1000;

fn one(
    workload: &dyn Configured,
    job: &GuestJob,
    guest: &GuestIdentity,
    planned: &WorkloadJob,
    mounts: &Mounts,
    voice: &mut EventPipe<'_>,
) -> Result<WorkloadResult, (Failure, anyhow::Error)> {
    let error = |e| (Failure::WorkloadError, e);
    let (killed, dir) = (shortage::killed(), mounts.dir.join("work"));
    let more = workload.room_option().map(|option| format!("{}.{option}", planned.name));
    let failed = |e: anyhow::Error| shortage::failure(e, killed, &dir, more.as_deref());
    let executable = voice.executable.to_owned();
    let voice = std::cell::RefCell::new(voice);
    let step = |p: Progress<'_>| {
        voice.borrow_mut().say(&GuestEvent::Step {
            workload: planned.name.clone(),
            step: p.step.to_owned(),
            done: p.done,
            of: p.of,
        });
    };
    let cx = Context {
        seed: job.seed,
        clock: job.clock,
        dir: dir.clone(),
        images: &mounts.images,
        devices: &mounts.devices,
        foundation: &planned.foundation,
        cpus: guest.cpus,
        memory_bytes: guest.memory_bytes,
        executable,
        network: job.placement.network.as_ref(),
        ack_sink: job.crash.as_ref().map(|_| &(ack_sink as fn() -> Box<dyn AckSink>) as &dyn Fn() -> Box<dyn AckSink>),
        progress: &step,
    };
    let mut running = match job.crash.as_ref().and_then(|crash| Some((crash.acknowledged.as_ref()?, crash.proves_only)))
    {
        None => {
            std::fs::create_dir(&cx.dir).map_err(|e| error(anyhow!("{}: {e}", cx.dir.display())))?;
            step(Progress { step: "prepare", done: 0, of: 0 });
            workload.prepare(&cx).context("Preparing").map_err(failed)?
        }
        Some((acknowledged, proves_only)) => {
            let (running, facts) = workload.recover(&cx, Path::new(acknowledged)).map_err(failed)?;
            let facts = facts.into_iter().collect();
            voice.borrow_mut().say(&GuestEvent::Proved { workload: planned.name.clone(), facts });
            if proves_only {
                return Ok(WorkloadResult::default());
            }
            running
        }
    };
    if workload.lays_out() {
        rustix::fs::sync();
        super::sleep(rest_after_prepare(job.clock));
    }
    inject(job.fault);
    let accounted = job.purpose == Purpose::Locks && Path::new(stat::FILE).exists() && stat::begin().is_ok();
    let begun = Instant::now();
    sys::mark::instrument();
    let outcome = running.run(&cx);
    sys::mark::release();
    let outcome = outcome.map_err(failed)?;
    let ns = begun.elapsed().as_nanos() as u64;
    if let (true, Ok(stat)) = (accounted, stat::read(&planned.name, ns)) {
        voice.borrow_mut().say(&GuestEvent::LockStat { stat });
    }
    step(Progress { step: "verify", done: 0, of: 0 });
    running.verify(&cx).map_err(|e| if e.is::<EndedBadly>() { failed(e) } else { (Failure::VerifyFailed, e) })?;
    match outcome.values.iter().find(|(_, value)| !value.is_finite()) {
        Some((name, value)) => Err(error(anyhow!("The metric `{name}` is {value}"))),
        None => Ok(outcome),
    }
}

/// The acknowledgement channel of a machine that will lose its power: every byte is on the host once it has been written.
struct AckPort;

impl AckSink for AckPort {
    fn send(&mut self, piece: &[u8]) -> anyhow::Result<()> {
        port::write(ACK_PORT, piece).context("The port for acknowledgements is not writable")
    }
}

fn ack_sink() -> Box<dyn AckSink> {
    Box::new(AckPort)
}

/// Injects the failure of the lever `fault.inject`, just before the measured part.
fn inject(fault: Option<Fault>) {
    match fault {
        None | Some(Fault::KillInit) => {}
        Some(Fault::Panic) => {
            let _ = std::fs::write("/proc/sysrq-trigger", "c");
        }
        Some(Fault::Hang) => sys::spin::iterations(u64::MAX),
        Some(Fault::KillAgent) => {
            let _ = kill_process(rustix::process::getpid(), Signal::KILL);
        }
    }
}

#[cfg(test)]
#[path = "runner_tests.rs"]
mod tests;
