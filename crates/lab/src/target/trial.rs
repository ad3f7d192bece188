//! A trial on the target: detached, with its events and its result on the disk.
//!
//! Invariant: a trial is started at most once. Its folder appears whole, with its job, before it runs; while it runs, its process holds the lock
//! in it; what ended without a result is never run again under the same name.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use bigiron_model::plan::{Arm, RUNNING};
use bigiron_model::purpose::Purpose;
use bigiron_sys::this_machine;
use bigiron_workload::registry::Registry;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal};

use super::folder::{self, TargetFolder};
use super::messages::{BootState, FinishedOnTarget, Job, TrialEnd, TrialKey, TrialState};
use super::watchdog::Watchdog;
use super::{allow, boot, in_use, look};
use crate::host::local::LocalHost;
use crate::host::{Host as _, HostError, Phase, Trial};

const JOB: &str = "job.json";
const LOCK: &str = "lock";
const PHASES: &str = "phases";
const RESULT: &str = "result.json";
const BOOT_ID: &str = "boot-id.json";
const LOG: &str = "log";
pub const ARTIFACTS: &str = "artifacts";

/// Interval at which a waiting connection looks for news. Nothing of it is done in the trial's processes.
const POLL: Duration = Duration::from_millis(250);

/// How far a trial is.
pub(super) fn state(folder: &TargetFolder, key: &TrialKey) -> anyhow::Result<TrialState> {
    let dir = folder.trial(key)?;
    if let Some(result) = folder::read::<FinishedOnTarget>(&dir, RESULT)? {
        return Ok(TrialState::Done(Box::new(result)));
    }
    let Some(from) = folder::read::<String>(&dir, BOOT_ID)? else { return Ok(TrialState::Unknown) };
    if is_locked(&dir) {
        return Ok(TrialState::Running);
    }
    // It may have ended since.
    Ok(match folder::read::<FinishedOnTarget>(&dir, RESULT)? {
        Some(result) => TrialState::Done(Box::new(result)),
        None => TrialState::Died { rebooted: from != this_machine::boot_id() },
    })
}

fn is_locked(dir: &Path) -> bool {
    let Ok(file) = File::open(dir.join(LOCK)) else { return false };
    // Shared: another connection that looks at the same moment is no trial.
    flock(&file, FlockOperation::NonBlockingLockShared).is_err()
}

/// The folders of the running trials. One with a result has only to end.
pub(super) fn running(folder: &TargetFolder) -> Vec<PathBuf> {
    let studies = fs::read_dir(folder.path().join("trials")).into_iter().flatten().flatten();
    let trials = studies.flat_map(|study| fs::read_dir(study.path()).into_iter().flatten().flatten());
    trials.map(|trial| trial.path()).filter(|dir| is_locked(dir) && !dir.join(RESULT).exists()).collect()
}

/// What the process of a trial wrote before it ended; `None` if that is nothing.
pub(super) fn log(dir: &Path) -> Option<String> {
    super::last_lines(&dir.join(LOG)).filter(|text| !text.trim().is_empty())
}

/// Starts a trial that was not started yet.
pub(super) fn start(folder: &TargetFolder, job: &Job) -> anyhow::Result<TrialState> {
    let _turn = in_use::turn(folder)?;
    match state(folder, &job.key)? {
        TrialState::Unknown => {}
        known => return Ok(known),
    }
    in_use::check(folder, &job.key.study, job.nonce.is_some())?;
    if job.nonce.is_some() {
        let boot = boot::state(folder, &job.key)?;
        ensure!(boot == BootState::Up, "The kernel of this trial is not running");
        boot::check_cleared()?;
    }
    let look = look::look()?;
    allow::check(&look, job.demands, 0)?;
    look::check_restored(&look)?;
    let dir = folder.trial(&job.key)?;
    folder::make_durable(&dir)?;
    let lock = OpenOptions::new().create(true).truncate(false).write(true).open(dir.join(LOCK))?;
    // In this turn, and not started, it is held by nobody but a connection that looks at it, and that for a moment.
    flock(&lock, FlockOperation::LockExclusive)?;
    fs::create_dir_all(dir.join(ARTIFACTS))?;
    let slot = job.plan.slots.get(job.key.slot as usize).context("The plan has no such slot")?;
    let arm = &job.plan.arms[slot.arm];
    folder.audit(&job.key.study, &format!("trial {} of {}{}", job.key.name(), arm.name, details(job, arm)))?;
    folder::write(&dir, JOB, job)?;
    // From now on it counts as started.
    folder::write(&dir, BOOT_ID, &this_machine::boot_id())?;
    let log = File::create(dir.join(LOG))?;
    let mut command = Command::new("/proc/self/exe");
    command.args(["target", "run"]).arg(&dir);
    // The process inherits the lock as its standard input.
    command.stdin(Stdio::from(lock)).stdout(Stdio::null()).stderr(Stdio::from(log));
    command.spawn().context("Cannot start the trial's process")?;
    Ok(TrialState::Running)
}

/// What a trial changes and what it is run for, for the audit log.
fn details(job: &Job, arm: &Arm) -> String {
    let settings: Vec<String> = arm.settings.iter().map(|(lever, value)| format!("{lever}={value}")).collect();
    let settings = if settings.is_empty() { String::new() } else { format!(": sets {}", settings.join(", ")) };
    let purpose = match job.key.purpose {
        Purpose::Judge => "",
        Purpose::Profile => " (run again with profiling)",
        Purpose::Locks => " (run again to trace waits)",
    };
    settings + purpose
}

/// `bigiron target run DIR`: runs the trial of a folder to its end, also if the connection ends.
pub(super) fn run(dir: &Path, registry: Registry, cancel: &AtomicBool) -> anyhow::Result<()> {
    // No signal of the connection's terminal or session reaches it.
    let _ = rustix::process::setsid();
    let _lock = File::from(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?);
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    folder::write(dir, "pid.json", &std::process::id())?;
    let job: Job = folder::read(dir, JOB)?.context("The trial has no job")?;
    let end = match run_job(dir, &job, registry, cancel) {
        Ok(result) => TrialEnd::Ran(Box::new(result)),
        Err(HostError::Void(why)) => TrialEnd::Void(why),
        Err(HostError::Fatal(why)) => TrialEnd::Fatal(why),
        Err(HostError::Cancelled) => TrialEnd::Cancelled,
    };
    let mut artifacts = Vec::new();
    for entry in fs::read_dir(dir.join(ARTIFACTS))?.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_file())) {
        File::open(entry.path())?.sync_all()?;
        artifacts.push(entry.file_name().to_string_lossy().into_owned());
    }
    artifacts.sort();
    let Err(why) = folder::write(dir, RESULT, &FinishedOnTarget { end, artifacts }) else { return Ok(()) };
    // Mostly the disk is full. Without the artefacts there may be room to say so; the trial itself runs again.
    let _ = fs::remove_dir_all(dir.join(ARTIFACTS));
    let end = TrialEnd::Fatal(format!("The trial's result cannot be kept: {why:#}"));
    folder::write(dir, RESULT, &FinishedOnTarget { end, artifacts: Vec::new() })
}

fn run_job(
    dir: &Path,
    job: &Job,
    registry: Registry,
    cancel: &AtomicBool,
) -> Result<crate::host::TrialResult, HostError> {
    let fatal = |e: anyhow::Error| HostError::Fatal(format!("{e:#}"));
    let plan = &job.plan;
    let slot = &plan.slots[job.key.slot as usize];
    let arm = &plan.arms[slot.arm];
    if job.nonce.is_none() && arm.kernel.spec == RUNNING {
        let here = crate::host::local::identity();
        if here.image_sha256 != arm.kernel.image_sha256 {
            return Err(HostError::Fatal(format!(
                "The study was started on {}; the target's kernel is now {}",
                arm.kernel.release, here.release
            )));
        }
    }
    if let Some(nonce) = &job.nonce {
        boot::verify(arm, nonce).map_err(HostError::Fatal)?;
    }
    let host = LocalHost::for_arm(registry, plan, slot.arm).map_err(fatal)?;
    // The machine's own kernel is not bigiron's to guard.
    let folder = TargetFolder::open().map_err(fatal)?;
    let watchdog = job.nonce.as_ref().and_then(|_| Watchdog::start(&folder));
    if let Some(Watchdog { name, .. }) = &watchdog {
        folder.audit(&job.key.study, &format!("started the watchdog {name}")).map_err(fatal)?;
    }
    let phases = OpenOptions::new().create(true).append(true).open(dir.join(PHASES)).map_err(|e| fatal(e.into()))?;
    let phases = Mutex::new(phases);
    let artifacts = dir.join(ARTIFACTS);
    let trial =
        Trial { plan, slot, arm, purpose: job.key.purpose, attempt: job.key.attempt, artifacts: &artifacts, cancel };
    let mut result = host.run(&trial, &|phase: Phase| {
        let Ok(mut line) = serde_json::to_vec(&phase) else { return };
        line.push(b'\n');
        let mut file = phases.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // `wait` shows these lines. The result does not depend on them.
        let _ = file.write_all(&line);
    })?;
    if let Some(Watchdog { name, .. }) = &watchdog {
        result.facts.insert("machine.watchdog".to_owned(), name.clone());
    }
    Ok(result)
}

/// Writes a trial's phases to standard output, one a line, until it runs no more.
pub(super) fn wait(folder: &TargetFolder, key: &TrialKey) -> anyhow::Result<()> {
    let dir = folder.trial(key)?;
    let (mut written, mut seen) = (0, 0);
    loop {
        let over = !is_locked(&dir);
        let size = fs::metadata(dir.join(PHASES)).map_or(0, |m| m.len());
        if size != seen {
            seen = size;
            let text = fs::read_to_string(dir.join(PHASES))?;
            let lines: Vec<&str> = text.split_inclusive('\n').filter(|line| line.ends_with('\n')).collect();
            let mut out = std::io::stdout().lock();
            for line in lines.iter().skip(written) {
                out.write_all(line.as_bytes())?;
            }
            out.flush()?;
            written = lines.len();
        }
        if over {
            return Ok(());
        }
        thread::sleep(POLL);
    }
}

/// Ends a running trial, which undoes its settings.
pub(super) fn stop(folder: &TargetFolder, key: &TrialKey) -> anyhow::Result<()> {
    let dir = folder.trial(key)?;
    if is_locked(&dir) {
        log_ending(folder, &key.study, &dir);
    }
    stop_in(&dir)
}

/// Logs that a trial is ended. Where the log cannot be written, as on a full disk, its settings must be taken back all the same.
fn log_ending(folder: &TargetFolder, study: &str, dir: &Path) {
    let trial = dir.file_name().unwrap_or_default().to_string_lossy();
    let _ = folder.audit(study, &format!("end trial {trial}, which takes back its settings"));
}

fn stop_in(dir: &Path) -> anyhow::Result<()> {
    let mut is_told = false;
    for _ in 0..240 {
        if !is_locked(dir) {
            return Ok(());
        }
        // A process that has just been started has not written its number yet.
        if !is_told && let Some(pid) = folder::read::<i32>(dir, "pid.json")?.and_then(Pid::from_raw) {
            is_told = rustix::process::kill_process(pid, Signal::TERM).is_ok();
        }
        thread::sleep(POLL);
    }
    bail!("The trial in {} did not end within a minute; end its processes there, then try again", dir.display())
}

/// Ends all running trials: names of the studies that had one.
pub(super) fn stop_all(folder: &TargetFolder) -> anyhow::Result<Vec<String>> {
    let mut stopped = Vec::new();
    for dir in running(folder) {
        let study = dir.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
        log_ending(folder, &study, &dir);
        stop_in(&dir)?;
        stopped.push(study);
    }
    Ok(stopped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_without_a_result_is_never_unknown_again() {
        let dir = tempfile::tempdir().unwrap();
        let folder = TargetFolder::at(dir.path().join("bigiron")).unwrap();
        let key = TrialKey { study: "s".to_owned(), slot: 3, attempt: 0, purpose: Purpose::Judge, again: 0 };
        assert!(matches!(state(&folder, &key).unwrap(), TrialState::Unknown));
        let at = folder.trial(&key).unwrap();
        folder::make_durable(&at).unwrap();
        // Killed before it counted as started: it may be started.
        fs::write(at.join(LOCK), "").unwrap();
        assert!(matches!(state(&folder, &key).unwrap(), TrialState::Unknown));
        folder::write(&at, BOOT_ID, &this_machine::boot_id()).unwrap();
        let lock = File::open(at.join(LOCK)).unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        assert!(matches!(state(&folder, &key).unwrap(), TrialState::Running));
        assert_eq!(running(&folder), std::slice::from_ref(&at));
        // Closing it would not be enough: a process that another test forks meanwhile holds it too until it executes its program.
        flock(&lock, FlockOperation::Unlock).unwrap();
        assert!(matches!(state(&folder, &key).unwrap(), TrialState::Died { rebooted: false }));
        assert!(running(&folder).is_empty());
        fs::write(at.join(LOG), "\n").unwrap();
        assert_eq!(log(&at), None);
        fs::write(at.join(LOG), "Cannot write result.json: No space left on device\n").unwrap();
        assert_eq!(log(&at).as_deref(), Some("Cannot write result.json: No space left on device"));
        folder::write(&at, BOOT_ID, &"another boot").unwrap();
        assert!(matches!(state(&folder, &key).unwrap(), TrialState::Died { rebooted: true }));
        folder::write(&at, RESULT, &FinishedOnTarget { end: TrialEnd::Cancelled, artifacts: Vec::new() }).unwrap();
        assert!(matches!(state(&folder, &key).unwrap(), TrialState::Done(_)));
    }
}
