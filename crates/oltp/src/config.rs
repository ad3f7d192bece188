//! The work of oltp, in numbers.
//!
//! Invariant: a valid [`Config`] can be run: everything that can be refused without a server has been refused.

use super::scale::Scale;
pub use bigiron_sql::engine::Engine;
pub use bigiron_workload::run_control::RunLength;

/// How a transaction is sent.
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

/// When a terminal issues its next transaction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Each terminal waits for its response, then for keying and think time.
    Closed {
        /// Factor on TPC-C's keying times (18, 3, 2, 2, 2 s); 0 for none.
        keying: f64,
        /// Factor on TPC-C's mean think times (12, 12, 10, 5, 5 s), exponential, cut at ten times the mean; 0 for none.
        think: f64,
    },
    /// Poisson arrivals of this many transactions per second over all terminals; latency counts from the intended start.
    Open { rate: f64 },
}

impl Config {
    /// The home warehouses of this part's terminals, first and last.
    pub fn homes(&self) -> (u32, u32) {
        let ((first, last), (part, parts)) = (self.touched, self.part);
        let begin = |part: u32| first + (u64::from(part) * u64::from(last - first + 1) / u64::from(parts)) as u32;
        (begin(part - 1), begin(part) - 1)
    }

    /// The seed of this part's own draws; draws that all parts must agree on use the run's seed.
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
    /// First and last of the warehouses used; others are loaded but not used.
    pub touched: (u32, u32),
    /// The number of this driver process, from 1, and their total. Each process's terminals have their homes in its own range of
    /// the warehouses used.
    pub part: (u32, u32),
    /// Connections to the server.
    pub connections: u32,
    /// Users; each has a home warehouse. With as many connections as terminals each has its own, as in OAST; with fewer they are
    /// shared, as in DBT-2's client.
    pub terminals: u32,
    /// Driver threads.
    pub drivers: u32,
    /// Per mille of each [`super::TransactionKind`], 1000 in total.
    pub mix: [u32; 5],
    pub pace: Pace,
    /// Warm-up, not measured.
    pub ramp: RunLength,
    /// The measured window.
    pub length: RunLength,
}
