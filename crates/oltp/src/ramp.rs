//! A ramp of users, as in OAST: how many users does the machine sustain?
//!
//! Invariant: a step is held if it completed and all its response times stayed within their limits; the ramp ends with the first
//! step that is not held, and its effect on the data is checked.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Error, Result, anyhow};

use super::check::Marks;
use super::config::Config;
use super::driver::{DriveResult, DriveTarget, FIRST_DATE};
use super::facts::{self, Facts};
use super::footprint::Footprint;
use super::input::TransactionKind;
use super::job::Job;
use super::loss::{AckLedger, Loss};
use super::metrics::{USERS_HELD, kinds};
use super::run_monitor::Observations;
use super::trial::{self, StateBefore, TrialContext};
use super::trial_database::TrialDatabase;
use bigiron_model::workload::Window;
use bigiron_probe::counters::span;
use bigiron_service::instance::patiently;
use bigiron_sql::database::Database;
use bigiron_sql::maria::MariaError;
use bigiron_sql::pg::{PgError, SqlState};
use bigiron_workload::limits;
use bigiron_workload::{Progress, WorkloadResult, WrongData};

/// Dates of a step, in microseconds: more than the number of its transactions can be, in any number of parts.
const STEP_DATES: i64 = 100_000_000_000_000;
/// How long the sessions of a step may take to end before the next step starts.
const PATIENCE: Duration = Duration::from_secs(120);
/// MariaDB's error "Server shutdown in progress".
const SHUTDOWN: u16 = 1053;
/// Interval of the check whether they have.
const POLL: Duration = Duration::from_millis(200);

/// The results of the steps.
#[derive(Default)]
struct Steps {
    facts: Facts,
    /// Users of the last step that was held, and the facts of its run.
    held: Option<(u32, Facts)>,
    /// New orders of all steps that are committed according to the client.
    committed: u64,
    /// If the server was lost.
    loss: Option<Loss>,
}

/// Runs the steps one after the other, on the same data. A lost server ends the ramp; it is started again and its data are
/// checked.
///
/// # Errors
/// If not even the first step is held; if the data are wrong afterwards, or cannot be checked.
pub fn run(job: &Job, trial_database: &mut TrialDatabase, cx: &TrialContext<'_>) -> Result<WorkloadResult> {
    trial::told(cx, of_steps(job, trial_database, cx))
}

fn of_steps(job: &Job, trial_database: &mut TrialDatabase, cx: &TrialContext<'_>) -> Result<WorkloadResult> {
    let config = job.config(cx.clock, cx.cpus);
    limits::allow_files(super::driver::files(&config))?;
    let mut opening = StateBefore::new(job, &config, &trial_database.target(), cx)?;
    let acks = opening.ack_ledger(job, &config, cx)?;
    opening.meet(cx)?;
    let mut steps = steps(job, &trial_database.target(), cx, &opening.marks, acks)?;
    // Steps with several numbers of users do not explain a single metric.
    span::cut();
    let windows = vec![Window { metrics: Vec::new(), operations: 0, ns: 0 }];
    match steps.loss.take() {
        None => opening.note(cx, steps.committed)?,
        Some(loss) => {
            let why = loss.why.clone();
            let said = loss.judge(trial_database);
            if steps.held.is_none() || said.is::<WrongData>() {
                return Err(said);
            }
            steps.facts.insert("lost-server".to_owned(), format!("{said:#}"));
            opening.lost(why);
        }
    }
    let Some((users, of_run)) = steps.held else {
        let step = steps.facts.values().next().map_or("no transaction ended", String::as_str);
        return Err(anyhow!("Not even {} users are held: {step}; start `oltp.users` with fewer", job.users[0]));
    };
    let mut facts = of_run;
    facts.extend(steps.facts);
    facts.insert("within-limits".to_owned(), format!("all kinds with {users} users"));
    let values = BTreeMap::from([(USERS_HELD.to_owned(), f64::from(users))]);
    Ok(WorkloadResult { windows, ..opening.close(&trial_database.target(), facts, values)? })
}

fn steps(
    job: &Job,
    target: &DriveTarget<'_>,
    cx: &TrialContext<'_>,
    marks: &Marks,
    mut acks: AckLedger,
) -> Result<Steps> {
    let mut steps = Steps::default();
    let mut watch = WatchSession::open(target)?;
    let sessions = sessions(target);
    let before = Footprint::of_machine();
    for (step, &users) in (0..).zip(&job.users) {
        await_sessions(target, sessions);
        let config = job.config_for(users, cx.clock, cx.cpus);
        let killed = Footprint::of_machine().killed;
        let lost = |why: String, in_doubt: usize, acks: AckLedger| {
            let why = format!("with {users} users: {}{why}", by_whom(killed, Footprint::of_machine().killed));
            Loss { why, in_doubt, marks: marks.clone(), acks }
        };
        let name = format!("{PREFIX}{users:07}");
        let after = marks.latest.max(FIRST_DATE) + i64::from(step) * STEP_DATES;
        let (called, of) = (format!("{users} users"), job.users.len() as u32);
        let progress = Progress { step: &called, done: step, of };
        let (mut driven, seen) = match trial::drive(&config, target, (cx, progress), after, &mut acks) {
            Ok(found) => found,
            // More connections than the server accepts, or than this machine has processes or memory for: the breaking point.
            Err(e) => {
                // A lost session means that the server is going down, although it may still respond for a moment; so may a connection that was
                // not made and not refused in words.
                let lives = !is_cut_off(&e) && if is_refusal(&e) { watch.lives() } else { watch.lives_on() };
                if !is_of_connections(&e) || (lives && steps.held.is_none()) {
                    return Err(e);
                }
                let why = format!("{e:#}");
                steps.facts.insert(name, format!("not held: {}{why}", by_whom(killed, Footprint::of_machine().killed)));
                steps.loss = (!lives).then(|| lost(why, 0, acks));
                return Ok(steps);
            }
        };
        steps.committed += trial::committed(&driven);
        // A server can end all sessions of one step and recover before the next one connects.
        if driven.lost.is_none() && !watch.lives() {
            driven.lost = Some("it has ended a session that was idle".to_owned());
        }
        if let Some(why) = &driven.lost {
            let by_whom = by_whom(killed, Footprint::of_machine().killed);
            steps.facts.insert(name, format!("not held: the server was lost: {by_whom}{why}"));
            steps.loss = Some(lost(why.clone(), driven.in_doubt.len(), acks));
            return Ok(steps);
        }
        let verdict = verdict(job, &driven);
        steps.facts.extend(of_step(&name, &verdict, job, &config, &driven, &seen, &before));
        if verdict != HELD {
            return Ok(steps);
        }
        steps.held = Some((users, facts::of_run(job, &driven, &seen)));
    }
    Ok(steps)
}

/// Whether the driver could not get its connections, for whatever reason of the server.
fn is_of_connections(e: &Error) -> bool {
    e.is::<PgError>() || e.is::<MariaError>()
}

/// Whether an established connection was lost, or the server says that it is going down or has crashed.
fn is_cut_off(e: &Error) -> bool {
    let of_postgres = |e: &PgError| matches!(e, PgError::Closed(_)) || e.sqlstate().is_some_and(SqlState::is_shutdown);
    let of_mariadb = |e: &MariaError| matches!(e, MariaError::Closed(_)) || e.code() == Some(SHUTDOWN);
    e.downcast_ref().is_some_and(of_postgres) || e.downcast_ref().is_some_and(of_mariadb)
}

/// Whether the server refuses the connection in its own words.
fn is_refusal(e: &Error) -> bool {
    e.downcast_ref().is_some_and(|e: &PgError| e.sqlstate().is_some())
        || e.downcast_ref().is_some_and(|e: &MariaError| e.code().is_some())
}

/// A session without work from before the first step to the end of the ramp: it is lost exactly if the server was, even if the
/// server accepts connections again.
struct WatchSession(Option<Box<dyn Database>>);

impl WatchSession {
    fn open(target: &DriveTarget<'_>) -> Result<Self> {
        // An embedded engine is lost with this process.
        let is_embedded = matches!(target, DriveTarget::Sqlite { .. });
        Ok(Self(if is_embedded { None } else { Some(trial::database(target)?) }))
    }

    fn lives(&mut self) -> bool {
        self.0.as_mut().is_none_or(|session| session.rows("SELECT 1").is_ok())
    }

    /// Whether it lives now and for some time: a server that is about to crash may not have ended it yet.
    fn lives_on(&mut self) -> bool {
        patiently(|| (!self.lives()).then_some(())).is_none()
    }
}

/// Names the OOM killer if the kernel has killed processes since.
fn by_whom(before: Option<u64>, after: Option<u64>) -> String {
    match (before, after) {
        (Some(before), Some(after)) if after > before => {
            let n = after - before;
            format!("the kernel's OOM killer killed {n} process{}; ", if n == 1 { "" } else { "es" })
        }
        _ => String::new(),
    }
}

/// Number of client sessions of the server.
fn sessions(target: &DriveTarget<'_>) -> Option<i64> {
    let count = match target {
        DriveTarget::Sqlite { .. } => return None,
        DriveTarget::Postgres(_) => "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'",
        DriveTarget::MariaDb { .. } => {
            "SELECT count(*) FROM information_schema.processlist WHERE user <> 'system user'"
        }
    };
    trial::number(&mut *trial::database(target).ok()?, count).ok()
}

/// Waits until no more sessions exist than before the ramp: those of the last step would use connections and memory of the next
/// one.
fn await_sessions(target: &DriveTarget<'_>, before: Option<i64>) {
    let Some(before) = before else { return };
    let end = Instant::now() + PATIENCE;
    // A server other than PostgreSQL does not report its sessions.
    while Instant::now() < end && sessions(target).is_some_and(|now| now > before) {
        std::thread::sleep(POLL);
    }
}

/// A step in the facts of a record; sizes in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    pub users: u32,
    pub result: String,
    /// The decrease of the machine's available memory since before the ramp.
    pub memory: Option<u64>,
    pub page_tables: Option<u64>,
    /// Private memory and page tables of one session.
    pub session: Option<u64>,
}

/// Whether a fact belongs to [`steps_of`], other than a detail.
pub fn is_of_step(name: &str) -> bool {
    name.starts_with(PREFIX) && !name.ends_with(DETAIL)
}

/// The steps recorded in the facts, fewest users first.
pub fn steps_of(facts: &Facts) -> Vec<Step> {
    let users = |name: &String| name.strip_prefix(PREFIX)?.parse().ok();
    let step = |(name, result): (&String, &String)| {
        let bytes = |what: &str| facts.get(&format!("{name}.{what}-bytes"))?.parse().ok();
        Some(Step {
            users: users(name)?,
            result: result.clone(),
            memory: bytes(MEMORY),
            page_tables: bytes(PAGE_TABLES),
            session: bytes(SESSION),
        })
    };
    facts.iter().filter_map(step).collect()
}

/// Prefix of the names of step facts, which contain the users with leading zeros, so that names sort like numbers.
const PREFIX: &str = "users.";
const DETAIL: &str = ".detail";
const MEMORY: &str = "memory";
const PAGE_TABLES: &str = "page-table";
const SESSION: &str = "session";

const HELD: &str = "held";

fn verdict(job: &Job, driven: &DriveResult) -> String {
    let names = |kinds: &[TransactionKind]| kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(" and ");
    // A kind that waits for the whole window has no response time that could be beyond its limit.
    let absent: Vec<_> = kinds(job).filter(|kind| driven.tally.latency[kind.index()].count() == 0).collect();
    match &facts::beyond_limits(job, driven)[..] {
        _ if driven.transactions() == 0 => "not held, no transaction ended".to_owned(),
        [] if absent.is_empty() => HELD.to_owned(),
        [] => format!("not held, no {} ended in the window; a longer `oltp.length` has more", names(&absent)),
        some => format!("not held, {} too slow", names(some)),
    }
}

/// The facts of a step: a line, figures, and details.
fn of_step(
    name: &str,
    verdict: &str,
    job: &Job,
    config: &Config,
    driven: &DriveResult,
    seen: &Observations,
    before: &Footprint,
) -> Facts {
    let mut facts = Facts::new();
    let p90 = |kind: TransactionKind| driven.tally.latency[kind.index()].quantile(0.9);
    let mut line = format!("{verdict}; {:.0} tx/min", driven.new_orders_per_minute());
    let share = |kind: TransactionKind, ns: u64| ns as f64 * 100.0 / job.limits[kind.index()].as_nanos() as f64;
    let worst = kinds(job).filter_map(|kind| Some((kind, share(kind, p90(kind)?)))).max_by(|x, y| x.1.total_cmp(&y.1));
    if let Some((kind, percent)) = worst {
        line += &format!("; worst p90 {} {percent:.1} % of its limit", kind.name());
    }
    let pressure = |resource: &str| {
        let us = seen.window.get(&format!("pressure-{resource}-some-us"))?;
        Some(*us as f64 * 1e5 / driven.window_ns.max(1) as f64)
    };
    if let Some(percent) = pressure("memory") {
        line += &format!("; memory pressure {percent:.1} %");
    }
    facts.insert(name.to_owned(), line);
    let mut detail: Vec<String> =
        kinds(job).filter_map(|kind| Some(format!("{} p90 {} ns", kind.name(), p90(kind)?))).collect();
    for resource in ["cpu", "io", "memory"] {
        detail.extend(pressure(resource).map(|percent| format!("pressure {resource} {percent:.1} %")));
    }
    detail.push(format!("{} connections", config.connections));
    facts.insert(format!("{name}{DETAIL}"), detail.join("; "));
    let now = &seen.footprint;
    // A remote server is not visible from here.
    let used = before.available.zip(now.available).map(|(before, now)| before.saturating_sub(now));
    let used = used.filter(|_| !job.is_elsewhere());
    for (what, bytes) in [
        (MEMORY, used),
        (PAGE_TABLES, now.page_tables.filter(|_| !job.is_elsewhere())),
        (SESSION, now.session.map(|s| s.private + s.page_tables)),
    ] {
        facts.extend(bytes.map(|n| (format!("{name}.{what}-bytes"), n.to_string())));
    }
    facts
}

#[cfg(test)]
#[path = "ramp_tests.rs"]
mod tests;
