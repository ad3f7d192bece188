//! dbsim: the platform-critical activities of a database kernel and, above all, the waits between its processes, in real
//! processes that share memory.
//!
//! Invariant: nothing depends on time, process ids or addresses: the same seed gives the same transactions, and under the exact
//! clock the same time to the nanosecond.

pub mod acks;
mod archiver;
pub mod audit;
mod backup;
mod block;
mod cache;
mod checkpointer;
mod checkpoints;
mod checksum;
mod choice;
mod client;
mod control_file;
mod counters;
mod db_writer;
mod executor;
mod facts;
mod files;
mod foreground;
mod guard;
pub mod honest_sync;
mod huge_pages;
mod idle;
mod instance;
pub mod job;
mod journal;
mod ledger;
mod link;
mod loader;
mod log;
mod log_facts;
mod log_writer;
mod lru;
mod memory;
mod metrics;
mod nodes;
pub mod outcome;
mod pace;
mod page_tables;
mod placing;
mod plan;
mod poll;
pub mod requests;
mod scanner;
pub mod series;
mod sideline;
mod sort;
mod sorter;
mod stages;
mod supervisor;
mod temp;
mod torn;
mod transaction;
mod trial;
mod turns;
mod verify;
pub mod waits;
mod worker_group;

#[cfg(test)]
mod log_run_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_cache;
#[cfg(test)]
mod tests_front;
#[cfg(test)]
mod tests_many;

use std::time::Duration;

use anyhow::{Result, ensure};

use bigiron_model::clock::Clock;
use bigiron_model::metric::MetricDef;
use bigiron_sys::network;

use bigiron_model::workload::{Options, Window};
use bigiron_workload::library::Library;
use bigiron_workload::{
    Configured, Context, Explanation, Needs, OptionDef, RawNeeds, Running, RunsOn, Workload, WorkloadResult,
};

use cache::Cache;
use instance::Instance;
use job::Job;
use ledger::Ledger;
use outcome::JobOutcome;
use plan::Plan;

pub use block::BlockError;
pub use trial::{IntervalSample, JobContext, examine, prepare, run, verify};
pub use verify::{AckSource, Verdict, VerifyFailed};

/// The workload `dbsim`.
pub struct Dbsim;

impl Workload for Dbsim {
    fn name(&self) -> &'static str {
        "dbsim"
    }

    fn summary(&self) -> &'static str {
        "A database kernel's load: shared buffer cache, group commit, database writer, scanner; no database"
    }

    fn options(&self) -> &'static [OptionDef] {
        job::OPTIONS
    }

    fn check_dotted(&self, name: &str) -> Result<(), String> {
        job::check_dotted(name)
    }

    fn dotted(&self) -> Vec<String> {
        job::dotted()
    }

    fn library(&self) -> Option<(&'static str, &'static Library)> {
        Some(("job", &job::shipped::LIBRARY))
    }

    fn explain(&self, name: &str) -> Vec<Explanation> {
        job::explain_key(name)
    }

    fn embed(&self, name: &str, value: &str, _: RunsOn) -> Result<String, String> {
        if name == "job" { job::embed(value).map_err(|e| e.to_string()) } else { Ok(value.to_owned()) }
    }

    fn parse(&self, options: &Options) -> Result<Box<dyn Configured>, String> {
        Ok(Box::new(Job::parse(options)?))
    }
}

impl Configured for Job {
    fn needs(&self) -> Needs {
        let job = self;
        let processes = instance::roles(job).len();
        Needs {
            storage_bytes: Some(
                job.data.bytes
                    + job.journal.files as u64 * job.journal.bytes
                    + archiver::storage_bytes(job)
                    + sideline::storage_bytes(job)
                    + Ledger::bytes(job.transactors(), job.blocks())
                    + requests::saved_bytes(job)
                    // Directory, extents, and the file system's own data per file.
                    + (1 << 20),
            ),
            // The segment, and half a mebibyte for each process's own stack, heap and page tables.
            memory_bytes: (Instance::bytes(job) + Cache::bytes(job) + (processes << 19)) as u64
                + job.journal.files as u64 * job.journal.bytes
                + sideline::memory_bytes(job)
                + Ledger::bytes(job.transactors(), job.blocks())
                + verify::memory_bytes(job),
            modules: if job.run.network == job::Wire::Veth { vec![network::MODULE] } else { Vec::new() },
        }
    }

    fn raw_disks(&self) -> Option<RawNeeds> {
        let each = u64::from(self.blocks_per_file()) * block::BLOCK as u64;
        self.data.places.is_empty().then_some(RawNeeds { count: self.data.files, bytes: each })
    }

    fn metrics(&self) -> Vec<MetricDef> {
        metrics::of(self)
    }

    fn silence(&self) -> Duration {
        Plan::new(self, Clock::Wall).longest_part()
    }

    fn prepare(&self, cx: &Context<'_>) -> Result<Box<dyn Running + '_>> {
        let job = placed(self, cx)?;
        prepare(&job, &job_context(cx))?;
        Ok(Box::new(Placed(job)))
    }
}

/// A job with its files prepared.
struct Placed(Job);

impl Running for Placed {
    fn run(&mut self, cx: &Context<'_>) -> Result<WorkloadResult> {
        result(&self.0, &run(&self.0, &job_context(cx))?)
    }

    fn verify(self: Box<Self>, cx: &Context<'_>) -> Result<()> {
        verify(&self.0, &job_context(cx))
    }
}

/// The metrics and facts of a run of `job`.
pub fn result(job: &Job, outcome: &JobOutcome) -> Result<WorkloadResult> {
    let values = metrics::values(job, outcome)?;
    let operations = if job.transactors() > 0 { outcome.transactions } else { outcome.requests().0 };
    let primary = metrics::of(job).into_iter().find(|def| def.primary);
    let window = primary.map(|def| Window::of(def.name, operations, outcome.elapsed.as_nanos() as u64));
    Ok(WorkloadResult {
        values,
        facts: facts::of(job, outcome),
        windows: window.into_iter().collect(),
        ..WorkloadResult::default()
    })
}

/// The metrics that [`result`] gives for `job`.
pub fn metrics(job: &Job) -> Vec<MetricDef> {
    metrics::of(job)
}

/// The job with the trial's raw disks as the places of its data.
fn placed(job: &Job, cx: &Context<'_>) -> Result<Job> {
    let mut job = job.clone();
    if job.data.places.is_empty() && !cx.devices.is_empty() {
        ensure!(job.data.files <= cx.devices.len(), "A disk holds one data file, but the job has {}", job.data.files);
        job.data.places = cx.devices.to_vec();
    }
    Ok(job)
}

fn job_context<'a>(cx: &'a Context<'_>) -> JobContext<'a> {
    let network = cx.network;
    JobContext { dir: &cx.dir, seed: cx.seed, clock: cx.clock, network, progress: cx.progress, live: None }
}
