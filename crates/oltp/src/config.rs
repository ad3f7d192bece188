//! What oltp is asked to do, in numbers.
//!
//! Invariant: a [`Config`] that exists can be run: everything that can be refused without a server has been refused.

use std::time::Duration;

use super::scale::Scale;

/// How a transaction travels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// One call of a stored procedure.
    #[default]
    Procedures,
    /// The transaction's own statements, all sent at once with one Sync at the end.
    Pipelined,
    /// The same statements, one round trip each: a test of network and scheduler.
    RoundTrips,
}

/// Where the transactions run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Engine {
    /// A private cluster that bigiron makes, starts and stops.
    Postgres {
        /// The major version, e.g. 15.
        version: u32,
        transport: Transport,
        /// Server settings beyond bigiron's own, `NAME=VALUE`, in the order given.
        settings: Vec<(String, String)>,
    },
    /// A server that somebody else runs: `postgresql://…`.
    Url(String),
    /// In this process.
    Sqlite { journal: SqliteJournal },
}

/// How the driver reaches a private cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    #[default]
    Unix,
    Tcp,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SqliteJournal {
    #[default]
    Wal,
    /// The rollback journal (`journal_mode=DELETE`).
    Rollback,
}

/// Work or time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// Transactions of all terminals together.
    Transactions(u64),
    Time(Duration),
}

/// When a terminal asks for its next transaction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Each terminal waits for its answer, then for keying and think time.
    Closed {
        /// Times TPC-C's keying times (18, 3, 2, 2, 2 s); 0 is none.
        keying: f64,
        /// Times TPC-C's mean think times (12, 12, 10, 5, 5 s), exponential, cut at ten times the mean; 0 is none.
        think: f64,
    },
    /// Poisson arrivals of this many transactions per second over all terminals; latency counts from the intended start.
    Open { rate: f64 },
}

impl Config {
    /// The warehouses that this part's terminals call home, first and last.
    pub fn homes(&self) -> (u32, u32) {
        let ((first, last), (part, parts)) = (self.touched, self.part);
        let begin = |part: u32| first + (u64::from(part) * u64::from(last - first + 1) / u64::from(parts)) as u32;
        (begin(part - 1), begin(part) - 1)
    }

    /// The seed of what this part draws for itself; what all parts must agree on is drawn from the run's.
    pub fn seed_of_part(&self, seed: u64) -> u64 {
        seed.wrapping_add(u64::from(self.part.0 - 1) << 53)
    }
}

/// A checked configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub engine: Engine,
    pub mode: Mode,
    pub scale: Scale,
    /// Warehouses touched, first and last; what is outside is loaded and left alone.
    pub touched: (u32, u32),
    /// Which of how many driver processes this is, from 1. Terminals of each are at home in a range of their own of the warehouses touched.
    pub part: (u32, u32),
    /// Connections to the server.
    pub connections: u32,
    /// Users; each has a home warehouse. As many connections as terminals means that each has its own, as in OAST; fewer are shared, as by
    /// DBT-2's client.
    pub terminals: u32,
    /// Driver threads.
    pub drivers: u32,
    /// Per mille of each [`super::TransactionKind`], 1000 together.
    pub mix: [u32; 5],
    pub pace: Pace,
    /// Warm-up, not measured.
    pub ramp: Length,
    /// The measured window.
    pub length: Length,
}
