//! A study's trials as an array job of Slurm: each task is a worker with the slot of its index.
//!
//! Invariant: Slurm only says what is still to come. What is done are the deliveries in the study's folder, so that nothing is lost with this
//! process, with Slurm's controller or with a node, and a task that Slurm starts twice does no harm.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bigiron_model::host::Slurm;
use bigiron_model::qemu::QemuSource;
use bigiron_model::refusal::Refusal;
use bigiron_model::shell::quote;
use bigiron_model::store::{Folder, SlotTally};

use super::Observer;
use crate::session;

/// Slurm's usual limit is 1001 (`MaxArraySize`), and no index may reach it.
const TASKS_LIMIT: usize = 1000;
/// How often tasks that ended without a delivery are submitted again, if no other one brought any.
const ATTEMPTS: u32 = 3;
/// Time between polls of the folder, and number of polls for each check of the queue.
const POLL: Duration = Duration::from_millis(500);
const POLLS_PER_QUEUE_CHECK: u32 = 4;
/// The folder of the tasks' output, and the numbers of the jobs, in the study's.
const LOGS: &str = "slurm";
const JOBS: &str = "jobs";

/// Refuses Slurm before anything is planned, if its commands are missing or have no configuration.
///
/// # Errors
/// Which command, and what it said.
pub fn check() -> Result<(), Refusal> {
    for name in ["sbatch", "squeue", "scancel"] {
        // Even this needs Slurm's configuration.
        let ran = Command::new(name).arg("--version").stdin(Stdio::null()).output();
        match ran {
            Ok(ran) if ran.status.success() => {}
            Ok(ran) => {
                let said = String::from_utf8_lossy(&ran.stderr);
                let said = said.trim().lines().last().unwrap_or("it gives no reason");
                return Err(Refusal::new(format!("`--on slurm` needs Slurm's `{name}`, which fails here: {said}"))
                    .hint(
                        "Run bigiron on a machine that can submit jobs, or set SLURM_CONF to the path of the cluster's slurm.conf",
                    ));
            }
            Err(e) => {
                return Err(Refusal::new(format!("`--on slurm` needs Slurm's `{name}`, which cannot be started: {e}"))
                    .hint("On Debian it is in the package slurm-client"));
            }
        }
    }
    Ok(())
}

/// A study at Slurm.
pub struct SlurmJob<'a> {
    pub folder: &'a Folder,
    pub slurm: &'a Slurm,
    /// The study file, if its host is `sim`.
    pub script: Option<&'a Path>,
    /// The QEMU that the study was prepared with.
    pub qemu: QemuSource,
    pub observer: &'a dyn Observer,
}

impl SlurmJob<'_> {
    /// Lets Slurm run the trials that have no result. Returns when all have one.
    ///
    /// # Errors
    /// Slurm refuses the job, or its tasks end without results; `cancel` was set, and the jobs are cancelled.
    pub fn run(&self, cancel: &AtomicBool) -> anyhow::Result<()> {
        let logs = self.folder.dir().join(LOGS);
        fs::create_dir_all(&logs).with_context(|| format!("Cannot create `{}`", logs.display()))?;
        let mut failures = 0;
        // Those of a bigiron that was killed are waited for first.
        let mut jobs =
            fs::read_to_string(logs.join(JOBS)).unwrap_or_default().split_whitespace().map(str::to_owned).collect();
        loop {
            let before = self.missing()?.len();
            self.wait(&jobs, cancel)?;
            let missing = self.missing()?;
            if missing.is_empty() {
                return Ok(());
            }
            failures = if missing.len() < before { 0 } else { failures + u32::from(!jobs.is_empty()) };
            if failures >= ATTEMPTS {
                bail!(
                    "Slurm's tasks ended {ATTEMPTS} times without a result, with {} of {} trials left; the output of the tasks is in `{}`{}",
                    missing.len(),
                    self.folder.plan().slots.len(),
                    logs.display(),
                    last_output_line(&logs)
                );
            }
            jobs = self.submit(&missing, &logs)?;
        }
    }

    /// Slots without a result.
    fn missing(&self) -> anyhow::Result<Vec<u32>> {
        let records = session::all_records(self.folder)?;
        let mut slots: Vec<u32> =
            SlotTally::of(self.folder.plan(), &records).missing().into_iter().map(|(slot, _)| slot).collect();
        slots.sort_unstable();
        slots.dedup();
        Ok(slots)
    }

    /// Submits a task for each slot; returns the jobs' numbers.
    fn submit(&self, slots: &[u32], logs: &Path) -> anyhow::Result<Vec<String>> {
        let executable = env::current_exe().context("Cannot find this executable")?;
        let dir = self.folder.dir().canonicalize().context("Cannot find the study's folder")?;
        let mut jobs: Vec<String> = Vec::new();
        for (part, slots) in array_parts(slots) {
            let mut command = Command::new("sbatch");
            command.args(["--parsable", "--requeue", "--job-name"]);
            command.arg(format!("bigiron-{}", &self.folder.plan().question_sha256[..8]));
            command.arg(format!("--array={}", ranges(&slots)));
            let plan = self.folder.plan();
            command.arg(format!("--cpus-per-task={}", plan.clock.host_cpus(plan.machine.cpus)));
            command.arg(format!(
                "--output={}",
                logs.canonicalize().unwrap_or(logs.to_owned()).join("%A_%a.log").display()
            ));
            command.args(self.slurm.partition.iter().map(|name| format!("--partition={name}")));
            let script =
                self.script.map(|path| path.canonicalize()).transpose().context("Cannot find the study file")?;
            let word = |path: &Path| quote(&path.display().to_string());
            let task = format!(
                "#!/bin/sh\nexec {} worker {} --slot $(({} + SLURM_ARRAY_TASK_ID)) --machine \"$SLURMD_NODENAME\"{}{}\n",
                word(&executable),
                word(&dir),
                part * TASKS_LIMIT,
                if self.qemu == QemuSource::default() {
                    String::new()
                } else {
                    format!(" --qemu {}", self.qemu.name())
                },
                script.map_or(String::new(), |path| format!(" --script {}", word(&path)))
            );
            let path = logs.join("task.sh");
            fs::write(&path, task).with_context(|| format!("Cannot write `{}`", path.display()))?;
            let said = output_of(command.arg(&path))?;
            // `NUMBER` or `NUMBER;CLUSTER`.
            let number = said.split([';', '\n']).next().unwrap_or_default().trim().to_owned();
            if number.is_empty() || !number.chars().all(|c| c.is_ascii_digit()) {
                bail!("sbatch printed `{}` instead of a job number", said.trim());
            }
            jobs.push(number);
            fs::write(logs.join(JOBS), jobs.join("\n")).context("Cannot keep the jobs' numbers")?;
        }
        let names = jobs.join(", ");
        self.observer.note(&format!("Submitted {} trials to Slurm as array job {names}", slots.len()));
        Ok(jobs)
    }

    /// Waits until the jobs have ended, or all trials have results.
    fn wait(&self, jobs: &Vec<String>, cancel: &AtomicBool) -> anyhow::Result<()> {
        let total = self.folder.plan().slots.len();
        let mut told = None;
        for poll in 0.. {
            if cancel.load(Ordering::Relaxed) {
                if !jobs.is_empty() {
                    let _ = Command::new("scancel").args(jobs).status();
                }
                bail!(
                    "Interrupted with {} of {total} trials done; the Slurm jobs are cancelled, and the same command resumes the study",
                    total - self.missing()?.len()
                );
            }
            let left = self.missing()?.len();
            if told != Some(left) && !jobs.is_empty() {
                self.observer.note(&format!("[{}/{total}] trials have results", total - left));
                told = Some(left);
            }
            if left == 0 || jobs.is_empty() || (poll % POLLS_PER_QUEUE_CHECK == 0 && !in_queue(jobs)?) {
                return Ok(());
            }
            thread::sleep(POLL);
        }
        Ok(())
    }
}

/// Whether a task of these jobs waits or runs.
fn in_queue(jobs: &[String]) -> anyhow::Result<bool> {
    for job in jobs {
        let mut command = Command::new("squeue");
        let output =
            command.args(["--noheader", "--format=%i", "--jobs", job]).output().context("Cannot start squeue")?;
        // A job that has ended and is forgotten is an invalid one.
        let forgotten = String::from_utf8_lossy(&output.stderr).contains("Invalid job id");
        if !output.status.success() && !forgotten {
            return Err(failed(&command, &output));
        }
        if output.status.success() && !output.stdout.trim_ascii().is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn output_of(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("Cannot start {}", command.get_program().display()))?;
    if !output.status.success() {
        return Err(failed(command, &output));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn failed(command: &Command, output: &Output) -> anyhow::Error {
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::anyhow!("{} failed ({}): {}", command.get_program().display(), output.status, said.trim())
}

/// Slots as indices of arrays of at most [`TASKS_LIMIT`] tasks: each part's number, and the indices within it.
fn array_parts(slots: &[u32]) -> Vec<(usize, Vec<u32>)> {
    let part = |slot: u32| slot as usize / TASKS_LIMIT;
    let index = |slot: &u32| slot % TASKS_LIMIT as u32;
    slots
        .chunk_by(|a, b| part(*a) == part(*b))
        .map(|chunk| (part(chunk[0]), chunk.iter().map(index).collect()))
        .collect()
}

/// `0-3,7`.
fn ranges(numbers: &[u32]) -> String {
    let runs = numbers.chunk_by(|a, b| a + 1 == *b).map(|run| match run {
        [one] => one.to_string(),
        run => format!("{}-{}", run[0], run[run.len() - 1]),
    });
    runs.collect::<Vec<_>>().join(",")
}

/// The last line of the newest output of a task, for a message.
fn last_output_line(logs: &Path) -> String {
    let files = fs::read_dir(logs).into_iter().flatten().flatten().map(|entry| entry.path());
    let newest = files
        .filter(|p| p.extension().is_some_and(|e| e == "log"))
        .max_by_key(|p| p.metadata().and_then(|m| m.modified()).ok());
    let text = newest.and_then(|path: PathBuf| fs::read_to_string(path).ok()).unwrap_or_default();
    text.trim().lines().last().map_or(String::new(), |line| format!("; the last task wrote: {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_indices_below_the_limit_of_an_array() {
        assert_eq!(ranges(&[0, 1, 2, 3, 7, 9, 10]), "0-3,7,9-10");
        assert_eq!(ranges(&[5]), "5");
        assert_eq!(array_parts(&[3, 999, 1000, 2001]), [(0, vec![3, 999]), (1, vec![0]), (2, vec![1])]);
    }
}
