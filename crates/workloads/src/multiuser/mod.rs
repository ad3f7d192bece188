//! `multiuser`: many users, each a process that runs the same tests in another order; jobs per minute over the number of users.
//! Like AIM7 in OSDL's version ReAIM, and like AIM9 in single mode.
//!
//! Invariant: the users' work depends only on the options, the seed and the users' numbers; the next number of users depends on
//! the times of the last points.

mod board;
mod config_file;
mod curve;
#[cfg(test)]
mod fuzz;
mod keys;
mod metrics;
mod mixes;
mod options;
mod ramp;
mod rates;
mod single;
mod trial;
mod user_processes;
pub mod work;
mod workfile;

use std::time::Duration;

use anyhow::Result;

use self::options::{Mode, Settings};
use bigiron_model::clock::Clock;
use bigiron_model::metric::MetricDef;
use bigiron_model::workload::Options;
use bigiron_workload::library::Library;
use bigiron_workload::silence::{BESIDE_LOAD, EMULATED_SECOND};
use bigiron_workload::{Configured, Context, Explanation, Needs, OptionDef, Running, RunsOn, Workload, WorkloadResult};

/// The workload `multiuser`.
pub struct Multiuser;

/// Memory of a user's process before its first test, with page tables and kernel structures: measured about 70 KiB, with a
/// margin.
const USER_MEMORY: u64 = 96 << 10;
/// Expected users of a ramp without an end.
const EXPECTED_USERS: u32 = 64;
/// Bytes of file system for what each user creates besides its files; and for all together, including the tree of names.
const USER_STORAGE: u64 = 48 << 10;
const STORAGE: u64 = 32 << 20;
/// Upper bound on the mean time for which a job occupies the whole machine, if its loops are not divided.
const JOB: Duration = Duration::from_millis(100);

impl Workload for Multiuser {
    fn name(&self) -> &'static str {
        "multiuser"
    }

    fn summary(&self) -> &'static str {
        "Many users, each a process that runs a mix of tests in its own order: jobs per minute over users"
    }

    fn options(&self) -> &'static [OptionDef] {
        &keys::OPTIONS
    }

    fn library(&self) -> Option<(&'static str, &'static Library)> {
        Some(("mix", &mixes::LIBRARY))
    }

    fn explain(&self, name: &str) -> Vec<Explanation> {
        bigiron_workload::keys::explain(keys::KEYS, name).into_iter().collect()
    }

    fn embed(&self, name: &str, value: &str, _: RunsOn) -> Result<String, String> {
        match name {
            "mix" => mixes::embed(value).map_err(|e| e.to_string()),
            "config" => mixes::embed_config(value).map_err(|e| e.to_string()),
            _ => Ok(value.to_owned()),
        }
    }

    fn parse(&self, options: &Options) -> Result<Box<dyn Configured>, String> {
        Ok(Box::new(Settings::parse(options)?))
    }
}

impl Configured for Settings {
    fn needs(&self) -> Needs {
        let (users, expected) = self.users();
        // Each user's file, its copy, and one shared file, at the sizes of the clock that makes them largest.
        let file = |users: u32| self.file_bytes(users, Clock::Wall) * (2 * u64::from(users) + 1);
        let files = file(1).max(file(expected));
        let has_files = self.mix.tests().any(|t| t.needs == work::Needs::File);
        let own = u64::from(expected) * USER_STORAGE + STORAGE;
        Needs {
            storage_bytes: Some(own + if has_files { files } else { 0 }),
            // The end of a ramp is its result: only its first point must fit.
            memory_bytes: (64 << 20) + u64::from(users) * USER_MEMORY,
            modules: Vec::new(),
        }
    }

    fn metrics(&self) -> Vec<MetricDef> {
        metrics::of(self)
    }

    fn silence(&self) -> Duration {
        BESIDE_LOAD + self.longest(Clock::Wall, 1)
    }

    fn guest_silence(&self) -> Duration {
        self.longest(Clock::Exact, EMULATED_SECOND)
    }

    fn prepare(&self, cx: &Context<'_>) -> Result<Box<dyn Running + '_>> {
        trial::prepare(self, cx)?;
        Ok(Box::new(self))
    }
}

impl Settings {
    /// The number of users at the first point, and the expected number at the last.
    fn users(&self) -> (u32, u32) {
        match (self.mode, self.most_users()) {
            (Mode::Single, _) => (1, 1),
            (Mode::Multi, (users, more)) => (users, if more { users.max(EXPECTED_USERS) } else { users }),
        }
    }

    /// The duration of the longest load point, if each of its seconds takes `second` seconds.
    fn longest(&self, clock: Clock, second: u32) -> Duration {
        let jobs = self.users().1.saturating_mul(self.jobs());
        let work = JOB.saturating_mul(jobs).as_secs_f64() / self.divisor(clock) as f64;
        let work = Duration::try_from_secs_f64(work).unwrap_or(Duration::MAX);
        work.saturating_add(self.period(clock)).saturating_mul(second)
    }
}

impl Running for &Settings {
    fn run(&mut self, cx: &Context<'_>) -> Result<WorkloadResult> {
        trial::run(self, cx)
    }

    fn verify(self: Box<Self>, cx: &Context<'_>) -> Result<()> {
        trial::verify(*self, cx)
    }
}

#[cfg(test)]
mod tests;
