//! The child process that runs a job, and its messages to the parent.
//!
//! A separate process, so that the parent can show progress, answer Ctrl-C, and clean up however the child ends.
//!
//! Invariant: when [`Runner`] is dropped, the child and every process that it started have ended.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use anyhow::Context as _;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions};
use serde::{Deserialize, Serialize};

use super::live::LiveSample;
use super::tables::Tables;
use bigiron_dbsim as dbsim;
use bigiron_dbsim::job::Job;
use bigiron_dbsim::{IntervalSample, JobContext};
use bigiron_model::clock::Clock;
use bigiron_sys::process;
use bigiron_sys::process::{Child, Exit};
use bigiron_workload::Progress;

/// A message of the child.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RunnerEvent {
    Step {
        step: String,
        done: u32,
        of: u32,
    },
    Sample(LiveSample),
    Result(Box<Tables>),
    /// Everything was verified.
    Verified,
    /// Data are lost or wrong, or syncs do not reach the device.
    Wrong(String),
    Failed(String),
}

/// What to run, and where.
pub(super) struct RunOrder<'a> {
    pub job: &'a Job,
    pub seed: u64,
    pub work: &'a Path,
    pub validate: bool,
    /// Whether progress is shown.
    pub live: bool,
}

/// A child that runs a job.
pub(super) struct Runner {
    child: Option<Child>,
    group: Pid,
}

impl Runner {
    /// Starts a child. `heard` receives the pipe of its messages, which ends when the child does.
    pub(super) fn start(order: &RunOrder<'_>, heard: impl FnOnce(File)) -> anyhow::Result<Self> {
        // This process then reaps the orphans of the run.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid())).context("Cannot become a reaper")?;
        let (from, to) = pipe_with(PipeFlags::CLOEXEC).context("Cannot create a pipe")?;
        let child = process::fork_child(|| {
            // In its own process group: a Ctrl-C at the terminal reaches only the parent.
            if rustix::process::setpgid(None, None).is_err() {
                return 1;
            }
            let Ok(to) = to.try_clone() else { return 1 };
            work(order, File::from(to));
            0
        })
        .context("Cannot start a process")?;
        let group = child.pid();
        // Parent and child race; whichever comes first sets the group.
        let _ = rustix::process::setpgid(Some(group), Some(group));
        drop(to);
        heard(File::from(from));
        Ok(Runner { child: Some(child), group })
    }

    /// How the child ended.
    pub(super) fn wait(mut self) -> anyhow::Result<Exit> {
        let child = self.child.take().context("A child is waited for once")?;
        let exit = child.wait().context("Cannot wait for the process that runs the job")?;
        Ok(exit)
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            let _ = rustix::process::kill_process_group(self.group, Signal::KILL);
            drop(child);
            // The run's processes die with their supervisors, and the supervisors with the child: all are reparented to this
            // process, which reaps them until none is left.
            while matches!(rustix::process::wait(WaitOptions::empty()), Ok(_) | Err(Errno::INTR)) {}
        }
    }
}

/// Reads the child's messages, line by line, until it ends.
pub(super) fn events(from: File) -> impl Iterator<Item = anyhow::Result<RunnerEvent>> {
    BufReader::new(from).lines().map(|line| {
        serde_json::from_str(&line?).context("The process that runs the job sent a line that is not an event")
    })
}

fn work(order: &RunOrder<'_>, to: File) {
    let say = |event: &RunnerEvent| {
        let mut line = serde_json::to_vec(event).expect("events have string keys only");
        line.push(b'\n');
        // If the parent has ended, this process ends too.
        let _ = (&to).write_all(&line);
    };
    let step = |p: Progress<'_>| say(&RunnerEvent::Step { step: p.step.to_owned(), done: p.done, of: p.of });
    let live = |live: &IntervalSample<'_>| say(&RunnerEvent::Sample(LiveSample::of(live)));
    let cx = JobContext {
        dir: order.work,
        seed: order.seed,
        clock: Clock::Wall,
        network: None,
        progress: &step,
        live: if order.live { Some(&live) } else { None },
    };
    let ran = dbsim::prepare(order.job, &cx).and_then(|()| {
        let outcome = dbsim::run(order.job, &cx)?;
        Ok((Tables::new(order.job, &outcome)?, outcome.sync))
    });
    let sync = match ran {
        Ok((tables, sync)) => {
            say(&RunnerEvent::Result(Box::new(tables)));
            sync
        }
        Err(e) => return say(&RunnerEvent::Failed(format!("{e:#}"))),
    };
    if order.validate {
        // Data that are correct now but may not survive a power failure are not durable: such a run does not pass.
        let durable = sync.map_or(Ok(()), |honesty| honesty.validate().map_err(anyhow::Error::from));
        match dbsim::verify(order.job, &cx).and(durable) {
            Ok(()) => say(&RunnerEvent::Verified),
            Err(e) => say(&RunnerEvent::Wrong(format!("{e:#}"))),
        }
    }
}
