//! A job of nothing but request classes, on this machine, without a trial around it.
//!
//! Invariant: what is measured lies between the opening of the window and its closing; ramp and set-up are not in it.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::load::Histogram;
use crate::sys::segment::Segment;

use super::super::crew::Crew;
use super::super::instance::{Instance, Phase};
use super::super::job::{Job, Kind, Length};
use super::board::Action;
use super::processes_of;

/// What one request class did in the window.
pub struct Measured {
    pub class: String,
    pub reads: u64,
    pub writes: u64,
    pub elapsed: Duration,
    /// CPU time, user and system, of all processes of the job.
    pub cpu: Duration,
    /// Of reads, writes and syncs.
    pub latency: [Histogram; 3],
}

/// Runs the job's request classes on files that have been laid out in `dir`.
pub fn run_alone(job: &Job, dir: &Path, seed: u64) -> Result<Vec<Measured>> {
    super::check(job).map_err(anyhow::Error::msg)?;
    if job.classes.iter().any(|c| !matches!(c.kind, Kind::Requests(_))) {
        bail!("A job with other classes than requests needs its database");
    }
    let segment = Segment::new(Instance::bytes(job)).context("Cannot map the shared segment")?;
    let (milestones, milestone) = std::io::pipe().context("Cannot make a pipe")?;
    let file = |end: std::os::fd::OwnedFd| std::fs::File::from(end);
    let instance = Instance::new(&segment, job, dir, seed, 0, 0, file(milestone.into()));
    let mut crew = Crew::start(&instance, file(milestones.into()))?;
    crew.wait_milestone()?;
    if let Some(Length::Time(ramp)) = job.run.ramp {
        std::thread::sleep(ramp);
    }
    let count = |of: fn(&super::Counters) -> &std::sync::atomic::AtomicU64, class| -> u64 {
        processes_of(&instance, class)
            .map(|p| of(&instance.counters[p]).load(std::sync::atomic::Ordering::SeqCst))
            .sum()
    };
    let counts = || -> Vec<_> {
        (0..job.classes.len()).map(|class| (count(|c| &c.reads, class), count(|c| &c.writes, class))).collect()
    };
    let cpu = crew.cpu_time()?;
    let before = counts();
    let start = Instant::now();
    instance.enter(Phase::Measure);
    match job.run.length {
        Length::Time(window) => std::thread::sleep(window),
        _ => crew.wait_milestone()?,
    }
    let elapsed = start.elapsed();
    let after = counts();
    let cpu = crew.cpu_time()? - cpu;
    instance.enter(Phase::Leave);
    crew.wait_gone(|_| true)?;
    instance.requests.save(dir)?;
    let classes = job.classes.iter().enumerate();
    Ok(classes
        .map(|(class, c)| Measured {
            class: c.name.clone(),
            reads: after[class].0 - before[class].0,
            writes: after[class].1 - before[class].1,
            elapsed,
            cpu,
            latency: [Action::Read, Action::Write, Action::Sync]
                .map(|action| instance.requests.latencies(processes_of(&instance, class), action)),
        })
        .collect())
}
