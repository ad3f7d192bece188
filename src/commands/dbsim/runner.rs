//! The child that runs a job, and the way its parent hears of it.
//!
//! A process of its own: the parent shows how far it is, answers Ctrl-C, and tidies up whatever becomes of the child.
//!
//! Invariant: when [`Runner`] is dropped, the child and every process that it started are gone.

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

/// What the child says.
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
    /// Lost or wrong data, or syncs that reach no device.
    Wrong(String),
    Failed(String),
}

/// What is to be run, and where.
pub(super) struct RunOrder<'a> {
    pub job: &'a Job,
    pub seed: u64,
    pub work: &'a Path,
    pub validate: bool,
    /// Whether anybody looks on.
    pub live: bool,
}

/// A child that runs a job.
pub(super) struct Runner {
    child: Option<Child>,
    group: Pid,
}

impl Runner {
    /// Starts a child. `heard` gets what it says, the last of it when it has ended.
    pub(super) fn start(order: &RunOrder<'_>, heard: impl FnOnce(File)) -> anyhow::Result<Self> {
        // Orphans of the run are then this process's to reap.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid())).context("Cannot become a reaper")?;
        let (from, to) = pipe_with(PipeFlags::CLOEXEC).context("Cannot make a pipe")?;
        let child = process::fork_child(|| {
            // A group of its own: a Ctrl-C at the terminal reaches the parent alone.
            if rustix::process::setpgid(None, None).is_err() {
                return 1;
            }
            let Ok(to) = to.try_clone() else { return 1 };
            work(order, File::from(to));
            0
        })
        .context("Cannot start a process")?;
        let group = child.pid();
        // Either of the two may come first.
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
            // The run's processes die with their supervisors, and those with the child: all come to us, and then there is none left.
            while matches!(rustix::process::wait(WaitOptions::empty()), Ok(_) | Err(Errno::INTR)) {}
        }
    }
}

/// Reads what a child says, line by line, until it has ended.
pub(super) fn events(from: File) -> impl Iterator<Item = anyhow::Result<RunnerEvent>> {
    BufReader::new(from).lines().map(|line| {
        serde_json::from_str(&line?).context("The process that runs the job said something else than an event")
    })
}

fn work(order: &RunOrder<'_>, to: File) {
    let say = |event: &RunnerEvent| {
        let mut line = serde_json::to_vec(event).expect("events have string keys only");
        line.push(b'\n');
        // If the parent is gone, so is this process.
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
        // Data that is right now, and may not be after a power failure, is not durable: a run of the kind is no pass.
        let durable = sync.map_or(Ok(()), |honesty| honesty.validate().map_err(anyhow::Error::from));
        match dbsim::verify(order.job, &cx).and(durable) {
            Ok(()) => say(&RunnerEvent::Verified),
            Err(e) => say(&RunnerEvent::Wrong(format!("{e:#}"))),
        }
    }
}
