//! Jobs and users for tests.

use std::path::Path;
use std::time::Duration;

use super::scheduler::User;
use crate::input::{Input, TransactionKind};
use crate::job::Job;
use crate::options::OPTIONS;
use crate::trial::TrialContext;
use bigiron_model::clock::Clock;
use bigiron_model::workload::Options;

/// The default job with these `settings`.
pub fn job(settings: &[(&str, &str)]) -> Job {
    let mut options: Options = OPTIONS.iter().map(|o| (o.name.to_owned(), o.default.to_owned())).collect();
    options.extend(settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
    Job::parse(&options).unwrap()
}

/// The surroundings of a trial in `dir`, under the exact clock.
pub fn context(dir: &Path) -> TrialContext<'_> {
    TrialContext {
        dir,
        seed: 5,
        clock: Clock::Exact,
        cpus: 2,
        after: i64::MIN,
        unavailable: &[],
        rendezvous: None,
        ack_sink: None,
        progress: &|_| {},
    }
}

/// A user that requests stock levels of its own district number, counted from 1, and thinks for a given time.
pub struct Plain {
    pub number: u32,
    pub think: Duration,
}

impl User for Plain {
    fn next(&mut self) -> Input {
        Input::StockLevel { warehouse: 1, district: self.number, threshold: 10 }
    }

    fn keying(&self, _: TransactionKind) -> Duration {
        Duration::ZERO
    }

    fn think(&mut self, _: TransactionKind) -> Duration {
        self.think
    }
}
