//! The workload `oltp`, as a study sees it.
//!
//! Invariant: the measured database is one that this trial has created, or one that the user has named.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::config::{Engine, RunLength};
use super::job::Job;
use super::loss::Loss;
use super::options::AS_JOB;
use super::rendezvous::{LOADING, Rendezvous, Stage};
use super::trial::{self, TrialContext};
use super::trial_database::{self, TrialDatabase};
use super::{images, jobs, metrics, options, ramp, survival};
use bigiron_model::clock::Clock;
use bigiron_model::metric::MetricDef;
use bigiron_model::workload::Options;
use bigiron_sql::catalogue;
use bigiron_sql::pg::Url;
use bigiron_workload::acknowledgements::AckTarget;
use bigiron_workload::library::Library;
use bigiron_workload::{
    Configured, Context, EndedBadly, Explanation, ImageContext, Images, Needs, NightlyRow, OptionDef, Running, RunsOn,
    Workload, WorkloadResult, check_network, keys, path_elsewhere,
};

/// Bytes of a warehouse right after load, with its indexes, on any engine; and of the items.
const WAREHOUSE_BYTES: u64 = 130 << 20;
/// The growth of the database in a run: orders, old versions of rows, log.
const GROWTH_BYTES: u64 = 512 << 20;

/// Private memory of a server process that has run all five transactions, with its page tables and kernel structures.
const SESSION_BYTES: u64 = 5 << 20;

/// The workload `oltp`.
pub struct Oltp;

impl Workload for Oltp {
    fn name(&self) -> &'static str {
        "oltp"
    }

    fn summary(&self) -> &'static str {
        "TPC-C-like transactions on PostgreSQL, MariaDB or the embedded SQLite, up to thousands of users"
    }

    fn options(&self) -> &'static [OptionDef] {
        &options::OPTIONS
    }

    fn check_dotted(&self, name: &str) -> Result<(), String> {
        options::check_dotted(name)
    }

    fn dotted(&self) -> Vec<String> {
        catalogue::option_names()
    }

    fn library(&self) -> Option<(&'static str, &'static Library)> {
        Some(("job", &jobs::LIBRARY))
    }

    fn explain(&self, name: &str) -> Vec<Explanation> {
        let option = || keys::explain_option(self.options(), name);
        keys::explain(options::KEYS, name).or_else(option).into_iter().collect()
    }

    fn embed(&self, name: &str, value: &str, on: RunsOn) -> Result<String, String> {
        match name {
            "job" => jobs::embed(value).map_err(|e| e.to_string()),
            // A trial works in its own folder, which is removed with it.
            "acks" => match (value.parse(), on) {
                (Ok(AckTarget::File(_)), _) if [AS_JOB, "none"].contains(&value) => Ok(value.to_owned()),
                (Ok(AckTarget::File(_)), RunsOn::Elsewhere) => path_elsewhere("oltp.acks", value),
                (Ok(AckTarget::File(path)), _) => {
                    Ok(std::path::absolute(path).map_err(|e| e.to_string())?.display().to_string())
                }
                _ => Ok(value.to_owned()),
            },
            _ => Ok(value.to_owned()),
        }
    }

    fn nightly(&self) -> &'static [NightlyRow] {
        const ROWS: &[NightlyRow] = &[
            NightlyRow { label: "sqlite", options: &[("engine", "sqlite")], ..NightlyRow::PLAIN },
            NightlyRow { label: "mariadb", options: &[("engine", "mariadb")], ..NightlyRow::PLAIN }
                .quick(&[("ramp", "200"), ("length", "400")]),
        ];
        ROWS
    }

    fn parse(&self, options: &Options) -> Result<Box<dyn Configured>, String> {
        let job = Job::parse(options)?;
        if let Engine::Url(url) = &job.engine {
            Url::parse(url).map_err(|e| e.to_string())?;
        }
        Ok(Box::new(job))
    }
}

impl Configured for Job {
    fn check_arm(&self, on: RunsOn) -> Result<(), String> {
        if on == RunsOn::Guest && self.acks.is_some() {
            return Err(
                "`oltp.acks` sends acknowledgements out of the machine, which a guest cannot do; omit it, or use `bigiron oltp crash-test`"
                    .to_owned(),
            );
        }
        if let Engine::Url(_) = self.engine { check_network("oltp.url", on) } else { Ok(()) }
    }

    fn needs(&self) -> Needs {
        let job = self;
        let data = u64::from(job.scale.warehouses) * WAREHOUSE_BYTES;
        let config = job.config(Clock::Wall, 1);
        // The end of a ramp is its result: only its first step must fit.
        let sessions = job.users.first().map_or(config.connections, |users| config.connections.min(*users));
        Needs {
            // For a remote server only the notes are here.
            storage_bytes: Some(if job.is_elsewhere() { 1 << 20 } else { data + GROWTH_BYTES }),
            // A terminal's generators and next input, histograms of every thread, and SQLite's caches.
            memory_bytes: (64 << 20)
                + u64::from(config.terminals) * 1024
                + match job.engine {
                    Engine::Sqlite { .. } => u64::from(config.connections) * (66 << 20),
                    Engine::Postgres { .. } | Engine::MariaDb { .. } => u64::from(sessions) * SESSION_BYTES,
                    Engine::Url(_) => 0,
                },
            modules: Vec::new(),
        }
    }

    fn images(&self, cx: &ImageContext<'_>) -> Result<Images> {
        images::of(self, cx)
    }

    fn metrics(&self) -> Vec<MetricDef> {
        metrics::of(self)
    }

    fn silence(&self) -> Duration {
        let config = self.config(Clock::Wall, 1);
        let time = |length| if let RunLength::Time(time) = length { time } else { Duration::ZERO };
        let run = time(config.ramp) + time(config.length);
        if config.part.0 > 1 { run.max(LOADING) } else { run }
    }

    fn guest_silence(&self) -> Duration {
        // A transaction of MariaDB takes up to 60 ms of CPU time where a machine emulates slowly.
        const TRANSACTION: Duration = Duration::from_millis(200);
        let config = self.config(Clock::Exact, 1);
        let number = |length| if let RunLength::Operations(n) = length { n } else { 0 };
        TRANSACTION.mul_f64((number(config.ramp) + number(config.length)) as f64)
    }

    fn prepare(&self, cx: &Context<'_>) -> Result<Box<dyn Running + '_>> {
        let job = self;
        let trial_database = TrialDatabase::open(cx, job, &job.config(cx.clock, cx.cpus))?;
        // The contents of a guest's image were checked when it was made.
        if !cx.images.contains_key(trial_database::DATA) && job.part.0 == 1 {
            let prepared = trial::prepare(job, &trial_database.target(), &trial_context(cx, &trial_database));
            if let Some(rendezvous) = &trial_database.rendezvous {
                match &prepared {
                    Ok(()) => rendezvous.tell(Stage::Loaded, "")?,
                    Err(e) => rendezvous.tell(Stage::Failed, &format!("{e:#}"))?,
                }
            }
            prepared?;
        }
        trial::warm(job, &trial_database.target())?;
        Ok(Box::new(OpenTrial { job, trial_database }))
    }

    fn recover(
        &self,
        cx: &Context<'_>,
        acknowledged: &Path,
    ) -> Result<(Box<dyn Running + '_>, BTreeMap<String, String>)> {
        let job = self;
        let (trial_database, facts) = survival::prove(cx, job, acknowledged)?;
        trial::warm(job, &trial_database.target())?;
        Ok((Box::new(OpenTrial { job, trial_database }), facts))
    }
}

/// A trial with its open database. Dropping it stops everything that was started.
struct OpenTrial<'a> {
    job: &'a Job,
    trial_database: TrialDatabase,
}

impl Running for OpenTrial<'_> {
    fn run(&mut self, cx: &Context<'_>) -> Result<WorkloadResult> {
        let OpenTrial { job, trial_database } = self;
        // A ramp may have to restart the trial database's server, so the context borrows nothing from it.
        let (unavailable, rendezvous) =
            (std::mem::take(&mut trial_database.unavailable), trial_database.rendezvous.take());
        let context = context(cx, trial_database.after, &unavailable, rendezvous.as_ref());
        let outcome = if job.users.is_empty() {
            trial::run(job, &trial_database.target(), &context)
        } else {
            ramp::run(job, trial_database, &context)
        };
        (trial_database.unavailable, trial_database.rendezvous) = (unavailable, rendezvous);
        outcome.map_err(|e| match e.downcast::<Loss>() {
            Ok(loss) => loss.judge(trial_database),
            Err(e) => e,
        })
    }

    fn verify(self: Box<Self>, cx: &Context<'_>) -> Result<()> {
        let trial_database = self.trial_database;
        trial::verify(&trial_database.target(), &trial_context(cx, &trial_database))?;
        if let Some(rendezvous) = &trial_database.rendezvous {
            rendezvous.close().context(EndedBadly)?;
        }
        trial_database.close().context(EndedBadly)
    }
}

fn trial_context<'a>(cx: &'a Context<'_>, trial_database: &'a TrialDatabase) -> TrialContext<'a> {
    context(cx, trial_database.after, &trial_database.unavailable, trial_database.rendezvous.as_ref())
}

fn context<'a>(
    cx: &'a Context<'_>,
    after: i64,
    unavailable: &'a [String],
    rendezvous: Option<&'a Rendezvous>,
) -> TrialContext<'a> {
    TrialContext {
        dir: &cx.dir,
        seed: cx.seed,
        clock: cx.clock,
        cpus: cx.cpus,
        after,
        unavailable,
        rendezvous,
        ack_sink: cx.ack_sink,
        progress: cx.progress,
    }
}

#[cfg(test)]
#[path = "workload_tests.rs"]
mod tests;
