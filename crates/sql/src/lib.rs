//! SQL databases under test: clients of PostgreSQL and MariaDB, private servers with their settings, and images of loaded databases.

pub mod catalogue;
pub mod database;
pub mod engine;
pub mod maria;
pub mod pg;
pub mod server;
pub mod sqlite;
pub mod sqlite_load;
pub mod stage;
