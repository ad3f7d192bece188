//! Observes a run: counters at the window's edges and in its middle, and the waits of the server's sessions in between.
//!
//! Invariant: nothing here is on a transaction's path; a separate thread bears the cost, which no figure includes.

use std::collections::BTreeMap;

use anyhow::Result;

use super::counters::{self, CountedProcesses, Counters};
use super::driver::{DriveTarget, RunMoment};
use super::footprint::Footprint;
use bigiron_probe::counters::span;
use bigiron_sql::database::{Database, Dialect, SqlValue};
use bigiron_sql::maria;
use bigiron_sql::pg::Connection;

/// External observations of a run.
#[derive(Clone, Debug, Default)]
pub struct Observations {
    /// Of the whole window.
    pub window: Counters,
    /// Of its first half, and its second.
    pub halves: [Counters; 2],
    /// The waits of sessions that were not idle, and their number of samples; `CPU` for none.
    pub waits: BTreeMap<String, u64>,
    /// Memory when the window closed.
    pub footprint: Footprint,
}

/// Reads counters and sessions while the run is driven.
pub struct RunMonitor {
    counted: CountedProcesses,
    /// The connection for querying the server.
    session: Option<Box<dyn Database>>,
    at: BTreeMap<u8, Counters>,
    waits: BTreeMap<String, u64>,
    footprint: Footprint,
}

impl RunMonitor {
    /// # Errors
    /// If the server has no connection for it.
    pub fn new(target: &DriveTarget<'_>) -> Result<Self> {
        let (counted, session): (_, Option<Box<dyn Database>>) = match target {
            DriveTarget::Postgres(url) => {
                let session = Connection::connect(url)?;
                let counted = counters::postmaster_of(session.server().cancel.process);
                (counted, Some(Box::new(session)))
            }
            DriveTarget::MariaDb { place, server } => {
                (CountedProcesses::Server(*server as i32), Some(Box::new(maria::Connection::connect(place)?)))
            }
            DriveTarget::Sqlite { .. } => (CountedProcesses::Own, None),
        };
        Ok(Self { counted, session, at: BTreeMap::new(), waits: BTreeMap::new(), footprint: Footprint::default() })
    }

    /// Whether the server's processes can be seen.
    pub fn sees_server(&self) -> bool {
        matches!(self.counted, CountedProcesses::Server(_))
    }

    /// Must be called at the moments of a run.
    pub fn look(&mut self, moment: RunMoment) {
        let slot = match moment {
            RunMoment::Connecting => return,
            RunMoment::Sample => return self.sample(),
            RunMoment::Opened => 0,
            RunMoment::Halfway => 1,
            RunMoment::Closed => 2,
        };
        if moment == RunMoment::Closed {
            self.footprint = Footprint::look(self.counted);
        }
        let mut read = counters::read(self.counted);
        if let Some(session) = &mut self.session {
            counters::statistics(&mut **session, &mut read);
        }
        self.at.insert(slot, read);
        // The client that opens or closes the window has no time for it.
        match moment {
            RunMoment::Opened => span::before(),
            RunMoment::Closed => span::after(),
            _ => {}
        }
    }

    fn sample(&mut self) {
        const STATES: &str = "SELECT coalesce(nullif(state, ''), 'CPU'), count(*) FROM information_schema.processlist \
                              WHERE command <> 'Sleep' AND id <> connection_id() AND user <> 'system user' GROUP BY 1";
        const WAITS: &str = "SELECT coalesce(wait_event_type || ':' || wait_event, 'CPU'), count(*) FROM pg_stat_activity \
                             WHERE backend_type = 'client backend' AND state <> 'idle' AND pid <> pg_backend_pid() GROUP BY 1";
        let Some(session) = &mut self.session else { return };
        let sql = if session.dialect() == Dialect::MariaDb { STATES } else { WAITS };
        // A server that is lost, or only speaks PostgreSQL's protocol, gives no rows.
        let rows = session.rows(sql).unwrap_or_default();
        for row in rows {
            if let [SqlValue::Text(event), SqlValue::Integer(count)] = &row[..] {
                *self.waits.entry(event.clone()).or_default() += count.unsigned_abs();
            }
        }
    }

    /// The observations; empty for a window that never opened.
    pub fn seen(self) -> Observations {
        let part = |from: u8, to: u8| match (self.at.get(&from), self.at.get(&to)) {
            (Some(before), Some(after)) => counters::since(before, after),
            _ => Counters::new(),
        };
        Observations {
            window: part(0, 2),
            halves: [part(0, 1), part(1, 2)],
            waits: self.waits.clone(),
            footprint: self.footprint,
        }
    }
}
