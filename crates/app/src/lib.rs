//! `app`: a business in three tiers: the driver of `web`, Tomcat with the servlets of java/app, and a database.
//!
//! Invariant: a run counts only if the database holds exactly what the servlets said they had done, and its own conditions hold.

mod calls;
mod conditions;
mod database;
mod loss_guard;
mod metrics;
mod options;
mod remote_tier;
mod search;
mod settings;
#[cfg(test)]
mod tests;
mod tier;
mod tiers;
mod trial;
mod workload;

pub use remote_tier::{WORKER, worker};
pub use workload::App;
