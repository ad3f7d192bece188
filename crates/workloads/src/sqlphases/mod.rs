//! `sqlphases`: one database client creates tables, inserts, selects, updates and deletes rows, and changes the schema; each phase is timed.
//!
//! Invariant: the statements depend only on the options, the clock's name and the seed; every query's answer is checked.

mod options;
mod phase;
mod reading;
mod schema_changes;
mod session;
mod tables;
#[cfg(test)]
mod tests;
mod wisconsin;
mod writing;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};

use self::options::{OPTIONS, Settings};
use self::session::Session;
use bigiron_model::metric::{Better, Kind, MetricDef, Unit};
use bigiron_model::workload::{Options, Window};
use bigiron_probe::counters::span;
use bigiron_probe::symbols;
use bigiron_sql::catalogue;
use bigiron_sql::engine::{Engine, PrivateDatabase};
use bigiron_sql::server::Sizing;
use bigiron_sys::cpu_clock::thread_cpu_time;
use bigiron_sys::load::files::file_system;
use bigiron_sys::load::now_ns;
use bigiron_workload::{
    ByClock, Configured, Context, EndedBadly, ImageContext, Images, Needs, NightlyRow, OptionDef, Progress, Running,
    Workload, WorkloadResult, WrongData,
};

/// The primary metric's name.
const PRIMARY: &str = "total";
/// The metric of the client's and the server's CPU time per statement.
const CPU: &str = "statement-cpu";
/// SQLite's database file in a trial's folder.
const FILE: &str = "sqlphases.sqlite";
/// Size of a new server's data and log, in bytes.
const SERVER_BYTES: u64 = 256 << 20;
/// Space that one row needs in all tables, indexes and logs of a phase, in bytes.
const ROW_BYTES: u64 = 8 << 10;

/// The workload `sqlphases`.
pub struct SqlPhases;

impl Workload for SqlPhases {
    fn name(&self) -> &'static str {
        "sqlphases"
    }

    fn summary(&self) -> &'static str {
        "SQL statements of one client, timed phase by phase, on PostgreSQL, MariaDB or SQLite"
    }

    fn options(&self) -> &'static [OptionDef] {
        OPTIONS
    }

    fn check_dotted(&self, name: &str) -> Result<(), String> {
        options::check_dotted(name)
    }

    fn dotted(&self) -> Vec<String> {
        catalogue::option_names()
    }

    fn nightly(&self) -> &'static [NightlyRow] {
        const ROWS: &[NightlyRow] =
            &[NightlyRow { label: "sqlite", options: &[("engine", "sqlite")], ..NightlyRow::PLAIN }
                .quick(&[("rows", "200")])];
        ROWS
    }

    fn alone(&self, metric: &str) -> Option<(&'static str, String)> {
        phase::ALL.iter().any(|phase| phase.name == metric).then(|| ("phases", metric.to_owned()))
    }

    fn parse(&self, options: &Options) -> Result<Box<dyn Configured>, String> {
        Ok(Box::new(ByClock::read(|clock| Settings::parse(options, clock))?))
    }
}

impl Settings {
    fn sizing(&self, cx: &Context<'_>) -> Sizing {
        // 1 KiB per row, in the phase with the most tables.
        Sizing { memory_bytes: cx.memory_bytes, data_bytes: self.rows << 10, connections: 2 }
    }

    fn room(&self) -> u64 {
        SERVER_BYTES + self.rows * ROW_BYTES
    }
}

impl Configured for Settings {
    fn needs(&self) -> Needs {
        let server = if matches!(self.engine, Engine::Sqlite { .. }) { 0 } else { 192 << 20 };
        Needs {
            storage_bytes: Some(self.room() + (64 << 20)),
            // The client holds each answer as a whole.
            memory_bytes: (96 << 20) + server + self.rows * 256,
            modules: Vec::new(),
        }
    }

    fn images(&self, cx: &ImageContext<'_>) -> Result<Images> {
        PrivateDatabase::images(&self.engine, cx, self.room())
    }

    fn metrics(&self) -> Vec<MetricDef> {
        let def = |name: &str, summary: String| MetricDef {
            primary: name == PRIMARY,
            name: name.to_owned(),
            unit: Unit::Ns,
            better: Better::Lower,
            kind: Kind::Cost,
            summary,
        };
        let mut metrics = vec![def(PRIMARY, "Time of all phases together".to_owned())];
        metrics
            .extend(self.phases.iter().map(|phase| def(phase.name, format!("Time of the phase: {}", phase.summary))));
        metrics.push(def(CPU, "Mean CPU time per statement of the client and the server, over all phases".to_owned()));
        metrics
    }

    fn prepare(&self, cx: &Context<'_>) -> Result<Box<dyn Running + '_>> {
        let database = PrivateDatabase::open(cx, &self.engine, &self.sizing(cx), FILE)?;
        Ok(Box::new(Trial { settings: self, database }))
    }
}

/// A trial with its open database. Dropping it kills the server.
struct Trial<'a> {
    settings: &'a Settings,
    database: PrivateDatabase,
}

impl Running for Trial<'_> {
    fn run(&mut self, cx: &Context<'_>) -> Result<WorkloadResult> {
        let mut outcome = WorkloadResult::default();
        let (mut total, mut statements, mut cpu) = (0, 0, 0);
        let of = self.settings.phases.len() as u32;
        for (done, phase) in self.settings.phases.iter().enumerate() {
            (cx.progress)(Progress { step: phase.name, done: done as u32, of });
            let cost = self.phase(phase, cx.seed).map_err(|error| match self.database.complaint() {
                Some(complaint) if !error.is::<WrongData>() => error.context(complaint),
                _ => error,
            });
            let cost = cost.with_context(|| format!("In phase {}", phase.name))?;
            ensure!(cost.ns > 0, "The clock did not advance in phase {}", phase.name);
            total += cost.ns;
            statements += cost.statements;
            cpu += cost.cpu_ns;
            outcome.values.insert(phase.name.to_owned(), cost.ns as f64);
            let metrics = vec![phase.name.to_owned(), PRIMARY.to_owned()];
            outcome.windows.push(Window { metrics, operations: cost.statements, ns: cost.ns });
            let mean = cost.ns as f64 / cost.statements as f64 / 1e3;
            let text = format!("{} statements, {mean:.1} µs each", cost.statements);
            outcome.facts.insert(format!("phase.{}", phase.name), text);
        }
        outcome.values.insert(PRIMARY.to_owned(), total as f64);
        outcome.values.insert(CPU.to_owned(), cpu as f64 / statements as f64);
        outcome.facts.extend(self.facts(cx));
        // While the server is still visible.
        outcome.programs = symbols::running();
        Ok(outcome)
    }

    fn verify(self: Box<Self>, _: &Context<'_>) -> Result<()> {
        // Each phase has checked its tables and dropped them.
        self.database.close().context(EndedBadly)
    }
}

/// The cost of a phase.
struct Cost {
    ns: u64,
    /// Of the client and the server, in nanoseconds.
    cpu_ns: u64,
    statements: u64,
}

impl Trial<'_> {
    fn phase(&self, phase: &phase::Phase, seed: u64) -> Result<Cost> {
        let mut session = Session::begin(&self.database, self.settings.rows, seed, phase.name)?;
        (phase.lay_out)(&mut session).context("While creating its tables")?;
        session.statements = 0;
        let cpu = || self.database.server_cpu_ns() + thread_cpu_time().as_nanos() as u64;
        let cpu_before = cpu();
        let begun = span::open(now_ns);
        let worked = (phase.work)(&mut session);
        let ended = span::close(now_ns);
        span::cut();
        let cpu_ns = cpu().saturating_sub(cpu_before);
        worked?;
        let statements = session.statements;
        (phase.finish)(&mut session).context("While checking its tables")?;
        Ok(Cost { ns: ended - begun, cpu_ns, statements })
    }

    fn facts(&self, cx: &Context<'_>) -> BTreeMap<String, String> {
        let mut facts = BTreeMap::new();
        let mut put = |name: &str, value: String| facts.insert(name.to_owned(), value);
        put("rows", self.settings.rows.to_string());
        put("file-system", file_system(&cx.dir));
        put("engine", self.settings.engine.in_words());
        let weakened = self.settings.engine.weakened();
        put(
            "durability",
            match weakened.is_empty() {
                true => "every commit is synced".to_owned(),
                false => format!("weakened: {}", weakened.join("; ")),
            },
        );
        facts
    }
}
