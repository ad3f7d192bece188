//! oltp: TPC-C-like transactions on a real PostgreSQL or MariaDB, on any server with PostgreSQL's protocol, or on the embedded SQLite.
//!
//! Invariant: the same seed gives the same transactions in every wire mode and on every engine, and leaves the same rows.
//!
//! Derived from TPC-C, but not a TPC benchmark: it reports no tpmC, but new-orders per minute (NOTPM, as DBT-2 counts them).

pub mod abilities;
pub mod check;
pub mod claims;
pub mod config;
pub mod counters;
pub mod driver;
pub mod facts;
pub mod footprint;
pub mod images;
pub mod input;
pub mod job;
pub mod jobs;
pub mod ledger;
pub mod load;
pub mod loss;
pub mod maria;
pub mod metrics;
pub mod options;
pub mod output;
pub mod population;
pub mod ramp;
pub mod random;
pub mod rendezvous;
pub mod run_monitor;
pub mod scale;
pub mod schema;
pub mod sql;
pub mod sqlite;
pub mod survival;
pub mod terminal;
pub mod tpcc;
pub mod trial;
pub mod trial_database;
mod values;
pub mod workload;

pub use config::{Config, Mode};
pub use input::{Input, Request, TransactionKind};
pub use output::{Output, TransactionError};
pub use scale::Scale;
pub use workload::Oltp;
