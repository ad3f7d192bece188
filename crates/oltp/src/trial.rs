//! A trial of a job on a target: the tables are loaded or checked, the run, and the data afterwards.
//!
//! Invariant: a run gives no figures if its inputs did not meet the specification, or its count of new orders differs from the
//! server's.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::check::{self, CheckReport, Marks};
use super::claims;
use super::config::{self, Config};
use super::driver::{self, Drive, DriveResult, DriveTarget, RunMoment, TransactionCounts};
use super::facts::{self, Facts};
use super::input::TransactionKind;
use super::job::{Claim, Job};
use super::ledger::Stream;
use super::loss::{AckLedger, LedgerPages, Loss};
use super::metrics;
use super::rendezvous::{self, Rendezvous, Stage};
use super::run_monitor::{Observations, RunMonitor};
use super::schema::{INDEXES, TABLES};
use super::sqlite::Engine;
use bigiron_model::clock::Clock;
use bigiron_model::workload::Window;
use bigiron_probe::counters::span;
use bigiron_probe::symbols;
use bigiron_sql::database::{Database, SqlValue};
use bigiron_sql::pg::Connection;
use bigiron_sql::server::mariadb::PLUMBING;
use bigiron_sql::server::settings::deviations;
use bigiron_sql::{catalogue, maria};
use bigiron_workload::{AckSink, Progress, WorkloadResult};

/// Notes of the run for the later check, in the trial's directory.
const NOTES: &str = "oltp.json";
/// Maximum relative difference between the client's and the server's counts of new orders.
const COUNT_TOLERANCE: f64 = 0.005;

/// The surroundings of a trial.
pub struct TrialContext<'a> {
    /// A directory for notes from the run for the check.
    pub dir: &'a Path,
    pub seed: u64,
    pub clock: Clock,
    pub cpus: u32,
    /// No earlier run has a later date.
    pub after: i64,
    /// Features that an existing server lacks.
    pub unavailable: &'a [String],
    /// The meeting point of the processes of a shared run.
    pub rendezvous: Option<&'a Rendezvous>,
    /// As [`bigiron_workload::Context::ack_sink`].
    pub ack_sink: Option<&'a dyn Fn() -> Box<dyn AckSink>>,
    pub progress: &'a dyn Fn(Progress<'_>),
}

/// The client's knowledge that the server must share.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Notes {
    /// The sum of D_NEXT_O_ID before the run.
    before: u64,
    /// New orders whose commit was acknowledged to the client.
    committed: u64,
}

/// A connection for everything outside the measurements.
pub fn database(target: &DriveTarget<'_>) -> Result<Box<dyn Database>> {
    Ok(match target {
        DriveTarget::Postgres(url) => Box::new(Connection::connect(url)?),
        DriveTarget::MariaDb { place, .. } => Box::new(maria::Connection::connect(place)?),
        DriveTarget::Sqlite { path, journal } => Box::new(Engine::open(path, *journal)?),
    })
}

/// Checks the consistency conditions of freshly loaded tables.
///
/// # Errors
/// If the tables have another scale, or a condition does not hold.
pub fn prepare(job: &Job, target: &DriveTarget<'_>, cx: &TrialContext<'_>) -> Result<()> {
    let mut database = database(target)?;
    let warehouses = number(&mut *database, "SELECT count(*) FROM warehouse")?;
    ensure!(
        warehouses == i64::from(job.scale.warehouses),
        "The database has {warehouses} warehouses, but the job says {}",
        job.scale.warehouses
    );
    (cx.progress)(Progress { step: "check", done: 0, of: 0 });
    passed(&check::conditions(&mut *database, true)?, "before the run")
}

/// Makes a private server read all tables and indexes, if the job claims that they are in its memory: a guest's server has just
/// been started, and tens of thousands of transactions would be needed before every page had been touched by chance.
///
/// # Errors
/// If the server refuses.
pub fn warm(job: &Job, target: &DriveTarget<'_>) -> Result<()> {
    if job.claim != Some(Claim::Cached) {
        return Ok(());
    }
    let mut database = database(target)?;
    match job.engine {
        config::Engine::Postgres { .. } => {}
        config::Engine::MariaDb { .. } => {
            for table in TABLES {
                let of_table = INDEXES.iter().filter(|index| index.table == table.name).map(|index| index.name);
                let key = (!table.key.is_empty()).then_some("PRIMARY");
                for index in key.into_iter().chain(of_table) {
                    number(&mut *database, &format!("SELECT count(*) FROM {} FORCE INDEX ({index})", table.name))?;
                }
            }
            return Ok(());
        }
        config::Engine::Url(_) | config::Engine::Sqlite { .. } => return Ok(()),
    }
    database.execute("CREATE EXTENSION IF NOT EXISTS pg_prewarm").context("The server has no `pg_prewarm`")?;
    let all = "SELECT sum(pg_prewarm(oid)) FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'i')";
    ensure!(number(&mut *database, all)? > 0, "Nothing was read into shared buffers");
    Ok(())
}

/// Runs the job, one without a ramp, on tables that [`prepare`] has seen.
///
/// # Errors
/// If something was not measured, the server was lost (a [`Loss`]), the data are not what the inputs make of them, or the job's claim does not hold.
pub fn run(job: &Job, target: &DriveTarget<'_>, cx: &TrialContext<'_>) -> Result<WorkloadResult> {
    told(cx, alone_or_shared(job, target, cx))
}

/// Reports a failure here to the other parts of a shared run.
pub fn told<T>(cx: &TrialContext<'_>, ran: Result<T>) -> Result<T> {
    if let (Some(rendezvous), Err(e)) = (cx.rendezvous, &ran) {
        // If even that fails there is no server, which the others notice themselves.
        let _ = rendezvous.tell(Stage::Failed, &format!("{e:#}"));
    }
    ran
}

fn alone_or_shared(job: &Job, target: &DriveTarget<'_>, cx: &TrialContext<'_>) -> Result<WorkloadResult> {
    let config = job.config(cx.clock, cx.cpus);
    let mut opening = StateBefore::new(job, &config, target, cx)?;
    let mut acks = opening.ack_ledger(job, &config, cx)?;
    opening.meet(cx)?;
    let progress = Progress { step: "run", done: 0, of: 1 };
    let (mut driven, seen) = drive(&config, target, (cx, progress), opening.marks.latest, &mut acks)?;
    span::cut();
    // While the server is still visible.
    let programs = symbols::running();
    if let Some(why) = driven.lost {
        return Err(Loss { why, in_doubt: driven.in_doubt.len(), marks: opening.marks, acks }.into());
    }
    if let Some(rendezvous) = cx.rendezvous {
        rendezvous.tell(Stage::Ended, &rendezvous::written(&driven)?)?;
        rendezvous::merge(&mut driven, &rendezvous.await_all(Stage::Ended)?)?;
    }
    opening.note(cx, committed(&driven))?;
    let values = metrics::values(job, &driven, &seen)?;
    let window = Window::of(metrics::NEW_ORDERS, driven.transactions(), driven.window_ns);
    let mut facts = facts::of_run(job, &driven, &seen);
    if let Some(claim) = claims::assert(job, &driven, &seen)? {
        facts.insert("claim".to_owned(), claim);
    }
    Ok(WorkloadResult { windows: vec![window], programs, ..opening.close(target, facts, values)? })
}

/// The state before a run, for comparison with the state after it.
pub struct StateBefore {
    facts: Facts,
    pub marks: Marks,
    notes: Notes,
    /// Why the driver's count must not be compared with the server's: it is incomplete.
    lost: Option<String>,
}

impl StateBefore {
    /// # Errors
    /// If the database cannot be queried.
    pub fn new(job: &Job, config: &Config, target: &DriveTarget<'_>, cx: &TrialContext<'_>) -> Result<Self> {
        let mut database = database(target)?;
        let mut facts = facts::of_job(job, config);
        facts.extend(durability(&mut *database, target)?);
        if !cx.unavailable.is_empty() {
            let text = format!("not available on this server: {}", cx.unavailable.join("; "));
            facts.insert("not-available".to_owned(), text);
        }
        let mut marks = Marks::take(&mut *database)?;
        marks.latest = marks.latest.max(cx.after);
        let notes = Notes { before: check::server_new_orders(&mut *database)?, committed: 0 };
        Ok(Self { facts, marks, notes, lost: None })
    }

    /// The ledger of acknowledgements; they also leave the server's machine if the job or the trial says so.
    ///
    /// # Errors
    /// If their destination is not writable.
    pub fn ack_ledger(&self, job: &Job, config: &Config, cx: &TrialContext<'_>) -> Result<AckLedger> {
        let sink = match (cx.ack_sink, &job.acks) {
            (Some(open), _) => Some(open()),
            (None, Some(acks)) => Some(acks.open()?),
            (None, None) => None,
        };
        let stream = sink.map(|sink| Stream::begin(sink, config.connections, &self.marks)).transpose()?;
        Ok(AckLedger::with(stream))
    }

    /// Waits until all parts of a shared run are ready.
    ///
    /// # Errors
    /// If one of them has failed.
    pub fn meet(&self, cx: &TrialContext<'_>) -> Result<()> {
        let Some(rendezvous) = cx.rendezvous else { return Ok(()) };
        (cx.progress)(Progress { step: "wait for all parts", done: 0, of: 0 });
        rendezvous.tell(Stage::Ready, "")?;
        rendezvous.await_all(Stage::Ready).map(drop)
    }

    /// Saves the number of new orders that the driver knows to be committed, for the check.
    ///
    /// # Errors
    /// If the trial's directory is not writable.
    pub fn note(&mut self, cx: &TrialContext<'_>, committed: u64) -> Result<()> {
        self.notes.committed = committed;
        self.notes.write(cx.dir)
    }

    /// Records that the run ended with the loss of its server, whose data were checked; it cannot know which transactions were in
    /// progress.
    pub fn lost(&mut self, why: String) {
        self.lost = Some(why);
    }

    /// Checks the rows added by the run, and returns its outcome.
    ///
    /// # Errors
    /// If the data do not match the inputs.
    pub fn close(
        mut self,
        target: &DriveTarget<'_>,
        facts: Facts,
        values: BTreeMap<String, f64>,
    ) -> Result<WorkloadResult> {
        let mut database = database(target)?;
        self.facts.extend(facts);
        if self.lost.is_none() {
            self.facts.extend(agreement(&self.notes, &mut *database)?);
        }
        let audit = check::audit(&mut *database, &self.marks)?;
        for check in &audit.checks {
            self.facts.insert(format!("audit.{}", check.name), check.to_string());
        }
        passed(&audit, "of the run's inputs")?;
        for table in check::sums(&mut *database)? {
            self.facts.insert(format!("rows.{}", table.table), table.rows.to_string());
        }
        Ok(WorkloadResult { values, facts: self.facts, ..WorkloadResult::default() })
    }
}

/// One run, or one step of a ramp, reported as `progress`, with dates later than `after`; its acknowledgements are added to the
/// ledger.
pub fn drive(
    config: &Config,
    target: &DriveTarget<'_>,
    (cx, progress): (&TrialContext<'_>, Progress<'_>),
    after: i64,
    acks: &mut AckLedger,
) -> Result<(DriveResult, Observations)> {
    let mut watch = RunMonitor::new(target)?;
    (cx.progress)(progress);
    let mut look = |moment: RunMoment| match moment {
        // Repeated to show that it continues.
        RunMoment::Connecting => (cx.progress)(progress),
        other => watch.look(other),
    };
    let pages = LedgerPages::new(config);
    let ledger = |thread: u32| pages.ledger(thread, acks.stream.as_ref());
    let target = *target;
    let driven = driver::run(Drive { config, target, seed: cx.seed, after, watch: &mut look, ledger: Some(&ledger) })?;
    acks.stream.as_ref().map_or(Ok(()), Stream::end)?;
    acks.enter(pages, &driven);
    Ok((driven, watch.seen()))
}

/// New orders known to the client as committed, from the first transaction to the last.
pub fn committed(driven: &DriveResult) -> u64 {
    let TransactionCounts { committed, .. } = driven.tally.whole[TransactionKind::NewOrder.index()];
    committed
}

/// Checks the data that a run has left.
///
/// # Errors
/// If a consistency condition does not hold, or the server lacks new orders that the client knows of.
pub fn verify(target: &DriveTarget<'_>, cx: &TrialContext<'_>) -> Result<()> {
    let mut database = database(target)?;
    passed(&check::conditions(&mut *database, false)?, "after the run")?;
    // An interrupted run has left no notes.
    if let Some(notes) = Notes::read(cx.dir)? {
        agreement(&notes, &mut *database)?;
    }
    Ok(())
}

/// Compares the client's count of new orders with the server's.
fn agreement(notes: &Notes, database: &mut dyn Database) -> Result<Facts> {
    let server = check::server_new_orders(database)?.saturating_sub(notes.before);
    let client = notes.committed;
    let apart = server.abs_diff(client) as f64 / client.max(1) as f64;
    ensure!(
        apart <= COUNT_TOLERANCE,
        "The driver counted {client} new orders, but the database has {server} more than before: {:.2} % apart, and at most {:.1} % are allowed",
        apart * 100.0,
        COUNT_TOLERANCE * 100.0
    );
    let text = format!("{client} new orders by the driver's count, {server} by the database's");
    Ok(Facts::from([("agreement".to_owned(), text)]))
}

fn passed(report: &CheckReport, when: &str) -> Result<()> {
    let failures: Vec<String> = report.failures().map(ToString::to_string).collect();
    ensure!(failures.is_empty(), "The data {when} are wrong: {}", failures.join("; "));
    Ok(())
}

/// The single number returned by a query.
///
/// # Errors
/// If the server refuses it, or it returns none.
pub fn number(database: &mut dyn Database, sql: &str) -> Result<i64> {
    match database.rows(sql)?.first().and_then(|row| row.first()) {
        Some(SqlValue::Integer(n)) => Ok(*n),
        // A sum of 64-bit integers is a numeric.
        Some(SqlValue::Text(text)) => text.parse().with_context(|| format!("Not a number: `{sql}`")),
        _ => bail!("No number: `{sql}`"),
    }
}

/// The engine's own statement about durability; everything weakened is named, on an existing server too.
fn durability(database: &mut dyn Database, target: &DriveTarget<'_>) -> Result<Facts> {
    let mut facts = Facts::new();
    match target {
        DriveTarget::Postgres(_) => {
            let (mut all, mut weak) = (Vec::new(), Vec::new());
            for name in
                catalogue::POSTGRES.of_durability().chain(["wal_sync_method", "shared_buffers", "server_version"])
            {
                // A server other than PostgreSQL may lack it.
                let Ok(rows) = database.rows(&format!("SHOW {name}")) else { continue };
                if let Some(SqlValue::Text(value)) = rows.first().and_then(|row| row.first()) {
                    all.push(format!("{name}={value}"));
                    weak.extend(
                        catalogue::POSTGRES.weakens(name, value).map(|what| format!("{name}={value} ({what})")),
                    );
                }
            }
            facts.insert("durability".to_owned(), all.join(", "));
            // As above: a server other than PostgreSQL has no such list.
            for found in deviations(database).unwrap_or_default() {
                let default = if found.default.is_empty() { "nothing" } else { &found.default };
                facts.insert(format!("setting.{}", found.name), format!("{}, {default} by default", found.value));
            }
            if !weak.is_empty() {
                facts.insert("weakened".to_owned(), weak.join("; "));
            }
        }
        DriveTarget::MariaDb { .. } => {
            let names = maria::DURABILITY.map(|name| format!("'{name}'")).join(", ");
            let sql = format!("SHOW GLOBAL VARIABLES WHERE variable_name IN ({names})");
            let (mut all, mut weak) = (Vec::new(), Vec::new());
            for row in database.rows(&sql)? {
                let [SqlValue::Text(name), SqlValue::Text(value)] = row.as_slice() else { continue };
                all.push(format!("{name}={value}"));
                let what = catalogue::MARIADB.weakens(name, value);
                weak.extend(what.map(|what| format!("{name}={value} ({what})")));
            }
            facts.insert("durability".to_owned(), all.join(", "));
            if !weak.is_empty() {
                facts.insert("weakened".to_owned(), weak.join("; "));
            }
            let set = "SELECT lower(variable_name), global_value, default_value FROM information_schema.system_variables \
                       WHERE global_value_origin = 'CONFIG' AND global_value <> default_value ORDER BY 1";
            for row in database.rows(set)? {
                let [SqlValue::Text(name), SqlValue::Text(value), SqlValue::Text(default)] = row.as_slice() else {
                    continue;
                };
                if !PLUMBING.contains(&name.as_str()) {
                    let default = if default.is_empty() { "nothing" } else { default };
                    facts.insert(format!("setting.{name}"), format!("{value}, {default} by default"));
                }
            }
        }
        DriveTarget::Sqlite { path, journal } => {
            let engine = Engine::open(path, *journal)?;
            let f = engine.facts();
            facts.insert(
                "durability".to_owned(),
                format!("journal_mode={}, synchronous={}, every commit is synced", f.journal, f.synchronous),
            );
            facts.insert("sqlite-version".to_owned(), f.version.to_owned());
            facts.insert("cache-bytes".to_owned(), f.cache_bytes.to_string());
            facts.insert("data-bytes".to_owned(), std::fs::metadata(path)?.len().to_string());
        }
    }
    Ok(facts)
}

impl Notes {
    fn write(&self, dir: &Path) -> Result<()> {
        let path = dir.join(NOTES);
        std::fs::write(&path, serde_json::to_vec(self)?).with_context(|| format!("Cannot write {}", path.display()))
    }

    fn read(dir: &Path) -> Result<Option<Self>> {
        let path = dir.join(NOTES);
        match std::fs::read(&path) {
            Ok(text) => {
                Ok(Some(serde_json::from_slice(&text).with_context(|| format!("Cannot read {}", path.display()))?))
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e).with_context(|| format!("Cannot read {}", path.display())),
        }
    }
}
