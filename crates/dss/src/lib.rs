//! dss: TPC-H-like decision support on DataFusion, PostgreSQL or SQLite: eight tables, 22 queries, two refresh functions.
//!
//! Invariant: the same scale, seed and stream give the same rows, the same queries and the same answers on every engine.
//!
//! Derived from TPC-H, but not a TPC benchmark: bigiron has its own query texts, and no result is comparable with a published one.

pub mod answer;
pub mod answers;
pub mod database;
pub mod datafusion;
pub mod date;
pub mod existing;
pub mod images;
pub mod load;
pub mod metrics;
pub mod orders;
pub mod parameters;
pub mod query;
pub mod refresh;
pub mod scale;
pub mod settings;
pub mod statements;
pub mod stream;
pub mod table;
#[cfg(test)]
mod tests;
pub mod trial;
pub mod workload;

pub use answer::{Answer, run};
pub use date::Date;
pub use parameters::Parameters;
pub use query::Sql;
pub use refresh::Refresh;
pub use scale::Scale;
pub use table::Table;
