//! Whether the data are what five correct transactions leave behind: TPC-C's consistency conditions, an audit of the inputs, sums.
//!
//! Invariant: a check counts what is wrong in the rows themselves and trusts no counter of the driver; it changes nothing but temporary tables.

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

pub use sums::{Digest, TableSum, digest, sums};

/// The examples that are shown of what is wrong.
const EXAMPLES: usize = 3;

/// What came of one check.
#[derive(Clone, Debug, PartialEq)]
pub enum CheckOutcome {
    /// Rows (or groups of rows) that are wrong; right if there are none.
    Violations { count: u64, examples: Vec<String> },
    /// A share that has to lie in `low..=high`, which are wider than the specification's band by four standard errors of the sample.
    Share { value: f64, low: f64, high: f64, sample: u64 },
    /// The sample cannot tell right from wrong.
    TooFew { sample: u64, needed: u64 },
    /// It does not apply here, and why.
    Skipped(&'static str),
}

/// One check and its outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// `condition-1` … `condition-12`, `remote-lines`, …
    pub name: &'static str,
    /// What has to hold.
    pub claim: &'static str,
    pub outcome: CheckOutcome,
}

impl Check {
    /// Whether something is wrong; a check that could not be made is not.
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
                "{}: {verdict}, {:.3} % of {sample}, where {:.3} to {:.3} % is right ({})",
                self.name,
                value * 100.0,
                low * 100.0,
                high * 100.0,
                self.claim
            ),
            CheckOutcome::TooFew { sample, needed } => {
                write!(f, "{}: too few, {sample} where {needed} are needed ({})", self.name, self.claim)
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

/// Violations as they are found: counted, the first ones remembered.
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
