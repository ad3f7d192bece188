//! Checks that the data are the result of correct transactions: TPC-C's consistency conditions, an audit of the inputs, sums.
//!
//! Invariant: a check counts errors in the rows themselves and trusts no counter of the driver; it changes only temporary tables.

use std::fmt;

mod audit;
mod conditions;
mod ledger;
mod query;
mod skew;
mod sums;

#[cfg(test)]
mod postgres_tests;
#[cfg(test)]
mod run_tests;
#[cfg(test)]
mod tests;

pub use audit::{Marks, audit, server_new_orders};
pub use conditions::conditions;
pub use ledger::prove;
#[cfg(test)]
pub(crate) use query::micros;

pub use sums::{Digest, TableSum, digest, sums};

/// Number of examples shown for each error.
const EXAMPLES: usize = 3;

/// The result of one check.
#[derive(Clone, Debug, PartialEq)]
pub enum CheckOutcome {
    /// Number of wrong rows (or groups of rows); the check passes if there are none.
    Violations { count: u64, examples: Vec<String> },
    /// A share that must lie in `low..=high`, which are wider than the specification's band by four standard errors of the
    /// sample.
    Share { value: f64, low: f64, high: f64, sample: u64 },
    /// The sample is too small to decide.
    TooFew { sample: u64, needed: u64 },
    /// It does not apply; the reason.
    Skipped(&'static str),
}

/// One check and its outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// `condition-1` … `condition-12`, `remote-lines`, …
    pub name: &'static str,
    /// The condition.
    pub claim: &'static str,
    pub outcome: CheckOutcome,
}

impl Check {
    /// Whether something is wrong; a skipped check has not failed.
    pub fn failed(&self) -> bool {
        match &self.outcome {
            CheckOutcome::Violations { count, .. } => *count > 0,
            CheckOutcome::Share { value, low, high, .. } => !(*low..=*high).contains(value),
            CheckOutcome::TooFew { .. } | CheckOutcome::Skipped(_) => false,
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.failed() { "FAILED" } else { "ok" };
        match &self.outcome {
            CheckOutcome::Violations { count: 0, .. } => write!(f, "{}: ok ({})", self.name, self.claim),
            CheckOutcome::Violations { count, examples } => {
                write!(f, "{}: FAILED, {count} times ({}): {}", self.name, self.claim, examples.join("; "))
            }
            CheckOutcome::Share { value, low, high, sample } => write!(
                f,
                "{}: {verdict}, {:.3} % of {sample}, must be {:.3} to {:.3} % ({})",
                self.name,
                value * 100.0,
                low * 100.0,
                high * 100.0,
                self.claim
            ),
            CheckOutcome::TooFew { sample, needed } => {
                write!(f, "{}: too few, {sample} of {needed} needed ({})", self.name, self.claim)
            }
            CheckOutcome::Skipped(why) => write!(f, "{}: not checked, {why} ({})", self.name, self.claim),
        }
    }
}

/// All checks of one kind, in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckReport {
    pub checks: Vec<Check>,
}

impl CheckReport {
    pub fn passed(&self) -> bool {
        !self.checks.iter().any(Check::failed)
    }

    pub fn failures(&self) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(|check| check.failed())
    }
}

/// Violations found: their number and the first examples.
#[derive(Default)]
struct Violations {
    count: u64,
    examples: Vec<String>,
}

impl Violations {
    fn add(&mut self, example: impl FnOnce() -> String) {
        self.add_many(1, example);
    }

    fn add_many(&mut self, count: u64, example: impl FnOnce() -> String) {
        self.count += count;
        if count > 0 && self.examples.len() < EXAMPLES {
            self.examples.push(example());
        }
    }

    fn check(self, name: &'static str, claim: &'static str) -> Check {
        Check { name, claim, outcome: CheckOutcome::Violations { count: self.count, examples: self.examples } }
    }
}
