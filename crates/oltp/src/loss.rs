//! The loss of a server during a run: the commits that it had acknowledged, and whether they are there after its recovery.
//!
//! Invariant: an acknowledged commit that is missing is lost data, whatever happened to the server.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use anyhow::{Error, Result, anyhow};

use super::check::{self, CheckReport, Marks};
use super::config::{Config, Engine};
use super::driver::{DriveResult, LedgerWriter};
use super::ledger::{Account, Entry, Stream};
use super::trial_database::TrialDatabase;
use bigiron_service::error::ServerError;
use bigiron_workload::WrongData;

/// Maximum number of entries kept, of 40 bytes each. A run with more is not compared with its ledger.
const MOST: usize = 4 << 20;

/// Why a server with a full disk is lost.
pub const FULL: &str = "its disk is full";

/// The commits acknowledged to the driver. It is in memory: the driver outlives its server, and no file disturbs the measurement.
/// On a machine that will lose its power the same data leave it as a stream.
#[derive(Debug, Default)]
pub struct AckLedger {
    entries: Vec<Entry>,
    is_full: bool,
    pub stream: Option<Stream>,
}

impl AckLedger {
    pub fn with(stream: Option<Stream>) -> Self {
        Self { stream, ..Self::default() }
    }

    /// Adds a run's pages, and its requests in doubt.
    pub fn enter(&mut self, pages: LedgerPages, driven: &DriveResult) {
        for page in pages.of_threads {
            let page = page.into_inner().unwrap_or_else(PoisonError::into_inner);
            self.is_full |= page.len() > pages.each;
            self.entries.extend(page);
        }
        self.entries.extend(driven.in_doubt.iter().filter_map(Entry::unknown));
    }
}

/// A ledger in progress: a page for each driver thread.
pub struct LedgerPages {
    /// Only its own thread takes a page's lock during the run.
    of_threads: Vec<Mutex<Vec<Entry>>>,
    /// Maximum number of entries of a thread.
    each: usize,
}

impl LedgerPages {
    pub fn new(config: &Config) -> Self {
        Self::with_room(config, MOST)
    }

    fn with_room(config: &Config, most: usize) -> Self {
        // An embedded engine's threads are its connections.
        let threads = match config.engine {
            Engine::Sqlite { .. } => config.connections,
            Engine::Postgres { .. } | Engine::MariaDb { .. } | Engine::Url(_) => config.drivers,
        };
        let of_threads = (0..threads).map(|_| Mutex::default()).collect();
        Self { of_threads, each: most / threads as usize }
    }

    /// The writer of a thread's page.
    pub fn ledger<'a>(&'a self, thread: u32, stream: Option<&'a Stream>) -> LedgerWriter<'a> {
        Box::new(move |request, output| {
            if let (Some(stream), Some(entry)) = (stream, Entry::answered(request, output)) {
                stream.append(&entry);
            }
            let mut page = self.of_threads[thread as usize].lock().unwrap_or_else(PoisonError::into_inner);
            // One entry beyond the limit shows that there are more.
            if page.len() <= self.each {
                page.extend(Entry::answered(request, output));
            }
        })
    }
}

/// A lost server, as the error of the run that lost it.
#[derive(Debug)]
pub struct Loss {
    pub why: String,
    /// Number of requests whose commit is in doubt.
    pub in_doubt: usize,
    /// The state before the run.
    pub marks: Marks,
    pub acks: AckLedger,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.in_doubt == 1 { " is" } else { "s are" };
        write!(f, "The server was lost: {}; {} transaction{s} in doubt", self.why, self.in_doubt)
    }
}

impl std::error::Error for Loss {}

impl Loss {
    /// Recovers the server and checks the data: returns the run's error, a [`WrongData`] if they are wrong.
    pub fn judge(mut self, trial_database: &mut TrialDatabase) -> Error {
        // The connection only knows that it broke; the server may know why.
        if let Some(ServerError::Space { .. }) = trial_database.complaint()
            && !self.why.contains(FULL)
        {
            self.why = format!("{FULL}: {}", self.why);
        }
        match trial_database.recover() {
            Ok(false) => {
                return anyhow!(
                    "{self}; the data were not checked, because bigiron did not start this server: when it is back, `bigiron oltp prove` compares them with what \
                     `oltp.acks` has received"
                );
            }
            Ok(true) => {}
            // The server's own statement about its data, other than a lack of space for its recovery.
            Err(ServerError::Failed(said)) => return WrongData(format!("{self}; it does not recover: {said}")).into(),
            Err(other) => return anyhow!("{self}; it could not be started again: {other}"),
        }
        match self.findings(trial_database) {
            Ok((told, findings)) if findings.is_empty() => {
                anyhow!("{self}; after its recovery {told}every consistency condition holds")
            }
            Ok((_, findings)) => WrongData(format!("{self}; after its recovery {}", findings.join("; "))).into(),
            Err(e) => anyhow!("{self}; the data could not be checked after its recovery: {e:#}"),
        }
    }

    /// The number of acknowledged transactions found, and the errors.
    fn findings(&self, trial_database: &TrialDatabase) -> Result<(String, Vec<String>)> {
        let mut database = trial_database.database()?;
        let failures = |report: &CheckReport| report.failures().map(ToString::to_string).collect::<Vec<_>>();
        let mut findings = failures(&check::conditions(&mut *database, false)?);
        if self.acks.is_full {
            return Ok(("the client's ledger was too small for that many transactions; ".to_owned(), findings));
        }
        // The driver survived, and has recorded the requests in doubt itself.
        let account = Account { in_flight: 0, entries: self.acks.entries.clone() };
        findings.extend(failures(&check::prove(&mut *database, &self.marks, &account)?));
        let told = account.entries.len();
        Ok((format!("all acknowledged transactions are there ({told} that write), and "), findings))
    }
}

#[cfg(test)]
#[path = "loss_tests.rs"]
mod tests;
