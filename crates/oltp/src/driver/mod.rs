//! The driver: a few threads that act as thousands of terminals.
//!
//! Invariant: the requests, their order and their intended starts are determined by the configuration and the seed; the engine
//! decides only when they are answered.

mod arrivals;
mod dates;
mod driver_thread;
mod postgres;
mod remote;
pub mod scheduler;
mod sqlite;
mod tally;

#[cfg(test)]
pub mod fixture;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use anyhow::{Context as _, Result, anyhow};

use bigiron_sys::cpu_clock::ThreadCpu;
use bigiron_sys::load::poll::Stop;
use bigiron_sys::load::{Histogram, now_ns};
use bigiron_workload::limits;
use bigiron_workload::run_control::{RunControl, look_on};

use super::config::{Config, Engine, Pace};
use super::input::{Request, TransactionKind};
use super::maria::{self, MariaSession};
use super::random::Constants;
use super::sqlite::Engine as Embedded;
use super::terminal::Terminal;
use bigiron_sql::maria::Place;
use bigiron_sql::pg::Url;
use bigiron_sql::sqlite::SqliteJournal;

use dates::Dates;
use driver_thread::{DriverThread, ThreadResult};
use postgres::PostgresSession;
use scheduler::{ConnectionScheduler, Demand};

pub use bigiron_workload::run_control::RunMoment;
pub use dates::FIRST as FIRST_DATE;
pub use driver_thread::{LedgerWriter, ThreadError};
pub use remote::{NextStep, Session};
pub use tally::{TransactionCounts, TransactionTally};

/// Number of connections after which the monitor is told: thousands take minutes on a slow guest.
const CONNECTIONS_TOLD: u32 = 50;

/// The engine to drive.
#[derive(Clone, Copy, Debug)]
pub enum DriveTarget<'a> {
    /// A running server, with loaded tables and, for that mode, installed procedures.
    Postgres(&'a Url),
    /// A running server, as above, and the number of its process.
    MariaDb { place: &'a Place, server: u32 },
    /// A loaded database file.
    Sqlite { path: &'a Path, journal: SqliteJournal },
}

/// One run, or one step of a ramp of users.
pub struct Drive<'a> {
    pub config: &'a Config,
    pub target: DriveTarget<'a>,
    pub seed: u64,
    /// The last date in the database: rows added by this run are later.
    pub after: i64,
    /// Called by the thread that waits for the others: while connections are established, when the window opens, is half over and
    /// closes, and every second of it.
    pub watch: &'a mut dyn FnMut(RunMoment),
    /// Creates the ledger of a thread, by its number.
    pub ledger: Option<&'a dyn Fn(u32) -> LedgerWriter<'a>>,
}

/// The results of a run.
#[derive(Clone, Debug)]
pub struct DriveResult {
    /// Nanoseconds of the window; 0 if it never opened.
    pub window_ns: u64,
    pub tally: TransactionTally,
    /// CPU time of the driver threads in the window.
    pub cpu: ThreadCpu,
    pub threads: u32,
    /// Open loop: number of requests waiting for a connection when the window closed; and the maximum at any time, for either
    /// loop.
    pub backlog: u64,
    pub longest_queue: u64,
    /// If the server was lost: the reason, and the requests whose commit is in doubt.
    pub lost: Option<String>,
    pub in_doubt: Vec<Request>,
}

impl DriveResult {
    /// Transactions completed in the window.
    pub fn transactions(&self) -> u64 {
        self.tally.window.iter().map(TransactionCounts::ended).sum()
    }

    /// New-orders per minute of the window. Rolled-back ones are counted, as in DBT-2.
    pub fn new_orders_per_minute(&self) -> f64 {
        self.tally.window[TransactionKind::NewOrder.index()].ended() as f64 * 60e9 / self.window_ns as f64
    }

    /// Latencies of all kinds.
    pub fn latency(&self) -> Histogram {
        let mut all = Histogram::new();
        self.tally.latency.iter().for_each(|h| all.merge(h));
        all
    }
}

/// A thread's connections.
enum Lanes {
    Postgres(Vec<PostgresSession>),
    MariaDb(Vec<MariaSession>),
    Sqlite(Embedded),
}

impl Lanes {
    fn count(&self) -> usize {
        match self {
            Lanes::Postgres(sessions) => sessions.len(),
            Lanes::MariaDb(sessions) => sessions.len(),
            Lanes::Sqlite(_) => 1,
        }
    }
}

/// A thread's sessions after its work: they end at the server when they are dropped.
type Held = Box<dyn Any + Send>;

fn held<S: Any + Send>(ended: Result<(ThreadResult, Vec<S>)>) -> Result<(ThreadResult, Held)> {
    ended.map(|(report, sessions)| (report, Box::new(sessions) as Held))
}

/// Approximate number of files that the driver opens: a socket for each connection, or the files of an embedded engine.
pub fn files(config: &Config) -> u64 {
    let each = if matches!(config.engine, Engine::Sqlite { .. }) { 4 } else { 1 };
    u64::from(config.connections) * each + 256
}

/// Drives the target from the first transaction to the last response.
///
/// # Errors
/// If a connection cannot be established, or a transaction fails for another reason than a deadlock, a serialization failure or
/// the loss of the server. The loss of the server is not an error, see [`DriveResult::lost`].
pub fn run(drive: Drive<'_>) -> Result<DriveResult> {
    let Drive { config, target, seed, after, watch, ledger } = drive;
    let threads = match target {
        DriveTarget::Postgres(_) | DriveTarget::MariaDb { .. } => config.drivers,
        // The engine works in the calling thread.
        DriveTarget::Sqlite { .. } => config.connections,
    };
    limits::allow_files(files(config))?;
    let lanes = connect(config, &target, threads, watch)?;
    let constants = Constants::new(seed);
    let seed = config.seed_of_part(seed);
    let users: Vec<Vec<Terminal>> = (0..threads)
        .map(|thread| {
            share(config.terminals, (thread, threads)).map(|n| Terminal::new(config, &constants, seed, n)).collect()
        })
        .collect();
    let first: Vec<u64> = (0..config.terminals).map(|n| arrivals::first(config, seed, n)).collect();
    let stop = Stop::new().context("Cannot make an event descriptor")?;
    let (tell, hear) = channel();
    let start = now_ns();
    let all_started = start + first.iter().max().copied().unwrap_or(0);
    let control = RunControl::new(config.ramp, config.length, start, all_started, tell);
    let reports: Vec<Result<(ThreadResult, Held)>> = thread::scope(|scope| {
        let (control, stop) = (&control, &stop);
        let handles: Vec<_> = (0..threads)
            .zip(lanes)
            .zip(users)
            .map(|((thread, lanes), users)| {
                let demand = match config.pace {
                    Pace::Closed { .. } => {
                        let at = |n: u32| start + first[n as usize];
                        Demand::Closed { first: share(config.terminals, (thread, threads)).map(at).collect() }
                    }
                    Pace::Open { rate } => Demand::Open(arrivals::arrivals(seed, (thread, threads), rate, start)),
                };
                let scheduler = ConnectionScheduler::new(
                    users,
                    lanes.count(),
                    demand,
                    Dates::new(after, (thread, threads)).of_part(config.part.0),
                );
                let shift = DriverThread::new(scheduler, control, stop, ledger.map(|of| of(thread)));
                scope.spawn(move || match lanes {
                    Lanes::Postgres(sessions) => held(remote::work(shift, sessions, stop)),
                    Lanes::MariaDb(sessions) => held(remote::work(shift, sessions, stop)),
                    Lanes::Sqlite(engine) => {
                        held(sqlite::work(shift, engine, stop).map(|report| (report, Vec::<()>::new())))
                    }
                })
            })
            .collect();
        look_on(&hear, watch);
        handles.into_iter().map(|h| h.join().unwrap_or_else(|_| Err(anyhow!("A driver thread panicked")))).collect()
    });
    // The monitor has observed all sessions with their memory and CPU time: only now they end.
    let reports: Vec<ThreadResult> = reports.into_iter().map(|ended| Ok(ended?.0)).collect::<Result<_>>()?;
    driven(reports, control.window().unwrap_or(0))
}

/// The numbers below `count` that belong to one of the threads.
fn share(count: u32, (thread, threads): (u32, u32)) -> impl Iterator<Item = u32> {
    (thread..count).step_by(threads as usize)
}

/// Each thread's connections, established in parallel by as many threads.
fn connect(
    config: &Config,
    target: &DriveTarget<'_>,
    threads: u32,
    watch: &mut dyn FnMut(RunMoment),
) -> Result<Vec<Lanes>> {
    let one = |thread: u32, made: &Sender<()>| match *target {
        DriveTarget::Postgres(url) => {
            let count = share(config.connections, (thread, threads)).count();
            let sessions = postgres::connect(url, config.mode, count, made);
            Ok(Lanes::Postgres(
                sessions.with_context(|| format!("Cannot establish {} connections", config.connections))?,
            ))
        }
        DriveTarget::MariaDb { place, .. } => {
            let count = share(config.connections, (thread, threads)).count();
            let sessions = maria::connect(place, config.mode, count, made);
            Ok(Lanes::MariaDb(
                sessions.with_context(|| format!("Cannot establish {} connections", config.connections))?,
            ))
        }
        DriveTarget::Sqlite { path, journal } => Ok(Lanes::Sqlite(Embedded::open(path, journal)?)),
    };
    thread::scope(|scope| {
        let (made, hear) = channel();
        let one = &one;
        let handles: Vec<_> = (0..threads)
            .map(|thread| (thread, made.clone()))
            .map(|(n, made)| scope.spawn(move || one(n, &made)))
            .collect();
        drop(made);
        for (number, ()) in (1..).zip(hear) {
            if number % CONNECTIONS_TOLD == 0 {
                watch(RunMoment::Connecting);
            }
        }
        handles.into_iter().map(|h| h.join().unwrap_or_else(|_| Err(anyhow!("A driver thread panicked")))).collect()
    })
}

fn driven(reports: Vec<ThreadResult>, window_ns: u64) -> Result<DriveResult> {
    let mut driven = DriveResult {
        window_ns,
        tally: TransactionTally::default(),
        cpu: ThreadCpu::default(),
        threads: reports.len() as u32,
        backlog: 0,
        longest_queue: 0,
        lost: None,
        in_doubt: Vec::new(),
    };
    let mut failed = None;
    for report in reports {
        driven.tally.add(&report.tally);
        driven.cpu = driven.cpu.plus(report.cpu);
        driven.backlog += report.backlog as u64;
        driven.longest_queue = driven.longest_queue.max(report.longest_queue as u64);
        driven.in_doubt.extend(report.in_doubt);
        match report.trouble {
            Some(ThreadError::Failed(why)) => failed = failed.or(Some(why)),
            Some(ThreadError::Lost(why)) => driven.lost = driven.lost.or(Some(why)),
            None => {}
        }
    }
    match failed {
        Some(why) => Err(anyhow!("A transaction failed: {why}")),
        None => Ok(driven),
    }
}
