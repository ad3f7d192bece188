//! A ramp of users, as OAST's: how many does the machine hold?
//!
//! Invariant: a step is held if all its response times stay within their limits; the ramp ends with the first that is not.

use std::collections::BTreeMap;

use anyhow::{Result, bail};

use super::check::Marks;
use super::driver::{Driven, Target};
use super::facts::{self, Facts};
use super::input::Kind;
use super::job::Job;
use super::loss::{Book, Loss};
use super::metrics::USERS_HELD;
use super::trial::{self, TrialContext};
use super::watch::Seen;

/// Dates of a step, in microseconds: more than it can have transactions.
const STEP_DATES: i64 = 1_000_000_000_000;

/// What came of a ramp.
pub struct Ramped {
    pub values: BTreeMap<String, f64>,
    pub facts: Facts,
    /// New orders of all steps that the client knows to be committed.
    pub committed: u64,
}

/// Runs the steps one after the other, on the same data, with dates later than those of `marks`.
///
/// # Errors
/// If not even the first step is held, or the server is lost.
pub fn run(job: &Job, target: &Target<'_>, cx: &TrialContext<'_>, marks: &Marks, book: &mut Book) -> Result<Ramped> {
    let (mut held, mut facts, mut committed) = (None, Facts::new(), 0);
    for (step, &users) in (0..).zip(&job.users) {
        let config = job.config_for(users, cx.clock, cx.cpus);
        let name = format!("users.{users:07}");
        let (driven, seen) = match trial::drive(&config, target, cx, marks.latest + step * STEP_DATES, book) {
            Ok(found) => found,
            // More connections than the server takes, or than this machine has processes for: that is where it breaks.
            Err(e) if held.is_some() => {
                facts.insert(name, format!("not held: {e:#}"));
                break;
            }
            Err(e) => return Err(e),
        };
        committed += trial::committed(&driven);
        if let Some(why) = driven.lost {
            let why = format!("with {users} users: {why}");
            let book = std::mem::take(book);
            return Err(Loss { why, in_doubt: driven.in_doubt.len(), marks: marks.clone(), book }.into());
        }
        let beyond = facts::beyond_limits(job, &driven);
        facts.insert(name, row(job, &driven, &seen, &beyond));
        if !beyond.is_empty() || driven.transactions() == 0 {
            break;
        }
        held = Some((users, facts::of_run(job, &driven, &seen)));
    }
    let Some((users, of_run)) = held else {
        bail!(
            "Not even {} users are held: {}; begin `oltp.users` with fewer",
            job.users[0],
            facts.values().next().map_or("no transaction ended", String::as_str)
        );
    };
    facts.extend(of_run);
    facts.insert("within-limits".to_owned(), format!("all kinds with {users} users"));
    Ok(Ramped { values: BTreeMap::from([(USERS_HELD.to_owned(), f64::from(users))]), facts, committed })
}

/// A step in one line.
fn row(job: &Job, driven: &Driven, seen: &Seen, beyond: &[Kind]) -> String {
    let verdict = match beyond {
        [] => "held".to_owned(),
        some => {
            format!("not held, {} beyond the limit", some.iter().map(|k| k.name()).collect::<Vec<_>>().join(" and "))
        }
    };
    let mut row = format!("{verdict}; {:.1} tx/min of new-orders", driven.new_orders_per_minute());
    for kind in Kind::ALL.into_iter().filter(|k| job.mix[k.index()] > 0) {
        if let Some(p90) = driven.tally.latency[kind.index()].quantile(0.9) {
            row += &format!("; {} p90 {p90} ns", kind.name());
        }
    }
    for (name, bytes) in [("page tables", seen.page_tables), ("memory available", seen.available)] {
        if let Some(bytes) = bytes {
            row += &format!("; {name} {bytes} B");
        }
    }
    for resource in ["cpu", "io", "memory"] {
        if let Some(us) = seen.window.get(&format!("pressure-{resource}-some-us")) {
            row += &format!("; pressure {resource} {:.1} %", *us as f64 * 1e5 / driven.window_ns.max(1) as f64);
        }
    }
    row
}
