//! A database whose machine lost its power during a run: compares the recovered data with the acknowledgements.
//!
//! Invariant: nothing is loaded or repaired here: the engine recovers by itself, and its result is judged.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;

use super::check::{self, CheckReport};
use super::job::Job;
use super::ledger::Account;
use super::trial_database::TrialDatabase;
use bigiron_service::error::ServerError;
use bigiron_workload::{Context, Progress, WrongData};

/// Lets the engine recover the data on the machine's disk, and verifies them: TPC-C's conditions, and every commit in the ledger
/// `acknowledged`. Returns the database, ready for more, and what was verified.
///
/// # Errors
/// A [`WrongData`] if the engine does not recover, or anything is missing or half-done.
pub fn prove(cx: &Context<'_>, job: &Job, acknowledged: &Path) -> Result<(TrialDatabase, BTreeMap<String, String>)> {
    let (account, marks) = Account::read(acknowledged)?;
    let step = |step| (cx.progress)(Progress { step, done: 0, of: 0 });
    step("recover");
    let mut trial_database = TrialDatabase::open(cx, job, &job.config(cx.clock, cx.cpus)).map_err(|e| match e
        .downcast::<ServerError>(
    ) {
        Ok(ServerError::Failed(said)) => WrongData(format!("The server does not recover: {said}")).into(),
        Ok(other) => other.into(),
        Err(e) => e,
    })?;
    trial_database.after = account.latest().unwrap_or(i64::MIN).max(marks.latest);
    let mut database = trial_database.database()?;
    let failures = |report: &CheckReport| report.failures().map(ToString::to_string).collect::<Vec<_>>();
    step("prove");
    // Unreadable rows count as missing.
    let unreadable = |e: anyhow::Error| WrongData(format!("The data cannot be read: {e:#}"));
    let told = check::prove(&mut *database, &marks, &account).map_err(unreadable)?;
    step("conditions");
    let conditions = check::conditions(&mut *database, false).map_err(unreadable)?;
    let findings: Vec<String> = [failures(&told), failures(&conditions)].concat();
    if !findings.is_empty() {
        return Err(WrongData(findings.join("; ")).into());
    }
    let facts = [
        ("acknowledged", format!("{} write transactions, all of them there", account.entries.len())),
        ("conditions", format!("{}, all that hold after a run", holding(&conditions))),
    ];
    Ok((trial_database, facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()))
}

/// Number of checks that were made and passed.
fn holding(report: &CheckReport) -> usize {
    let made = |outcome: &check::CheckOutcome| {
        !matches!(outcome, check::CheckOutcome::Skipped(_) | check::CheckOutcome::TooFew { .. })
    };
    report.checks.iter().filter(|check| made(&check.outcome) && !check.failed()).count()
}
