//! The parsed options of the workload.
//!
//! Invariant: every user of a trial has the same commands, all of them known before anything boots.

use std::time::Duration;

use super::tasks::{TASKS, Task};
use bigiron_model::clock::Clock;
use bigiron_model::suggest;
use bigiron_model::workload::Options;
use bigiron_service::program::work_folder;
use bigiron_workload::units;

/// The value that leaves a choice to the clock.
pub const AUTO: &str = "auto";
/// The limit of the original benchmark.
const USERS_LIMIT: u32 = 999;
const POINTS_LIMIT: usize = 64;

/// All options, parsed.
pub struct Spec {
    /// Numbers of users, one load point each; `None` depends on the clock.
    users: Option<Vec<u32>>,
    pub tasks: Vec<&'static Task>,
    pub limit: Duration,
}

impl Spec {
    pub fn parse(options: &Options) -> Result<Self, String> {
        let get = |name: &str| options.get(name).map_or("", String::as_str);
        let users = match get("users") {
            AUTO => None,
            text => Some(points(text)?),
        };
        let without: Vec<&str> = get("without").split(',').map(str::trim).filter(|w| !w.is_empty()).collect();
        for name in &without {
            if !TASKS.iter().any(|t| t.name == *name) {
                let names = TASKS.iter().map(|t| t.name);
                let right = match suggest::nearest(name, names.clone()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("it can contain {}", suggest::list(names)),
                };
                return Err(format!("`scripts.without` cannot contain `{name}`; {right}"));
            }
        }
        let tasks: Vec<_> = TASKS.iter().filter(|t| !without.contains(&t.name)).collect();
        if tasks.is_empty() {
            return Err("`scripts.without` leaves no command".to_owned());
        }
        let limit = units::duration(get("limit")).filter(|d| !d.is_zero());
        let limit =
            limit.ok_or_else(|| format!("`scripts.limit` must be {}, not `{}`", units::A_TIME, get("limit")))?;
        Ok(Self { users, tasks, limit })
    }

    /// Load points: numbers of users.
    pub fn points(&self, clock: Clock) -> Vec<u32> {
        let usual = if clock == Clock::Wall { 32 } else { 2 };
        self.users.clone().unwrap_or_else(|| vec![usual])
    }

    /// The load points with their own metrics: all, if there are several.
    pub fn named_points(&self) -> &[u32] {
        self.users.as_deref().filter(|points| points.len() > 1).unwrap_or_default()
    }

    /// Commands of a script, each as often as it occurs, in the table's order.
    pub fn multiset(&self) -> Vec<&'static Task> {
        self.tasks.iter().flat_map(|t| std::iter::repeat_n(*t, t.times as usize)).collect()
    }

    /// Refuses commands whose programs this machine does not have.
    pub fn runnable(&self) -> Result<(), String> {
        let missing = work_folder::missing(self.tasks.iter().flat_map(|t| t.needs.iter().copied()));
        if missing.is_empty() {
            return Ok(());
        }
        let lacks = |t: &&&Task| t.needs.iter().any(|need| missing.contains(need));
        let without: Vec<&str> = self.tasks.iter().filter(lacks).map(|t| t.name).collect();
        let mut once = missing.clone();
        once.dedup();
        Err(format!("{}, or leave them out with `scripts.without={}`", work_folder::bring(&once), without.join(",")))
    }
}

/// `1,2,4`.
fn points(text: &str) -> Result<Vec<u32>, String> {
    let wrong = || {
        format!(
            "`scripts.users` must be a number of users from 1 to {USERS_LIMIT}, or a rising list such as `1,2,4`, not `{text}`"
        )
    };
    let points: Vec<u32> = text.split(',').map(|n| n.trim().parse().map_err(|_| wrong())).collect::<Result<_, _>>()?;
    let grow = points.windows(2).all(|w| w[0] < w[1]);
    if points.len() > POINTS_LIMIT || !grow || points.iter().any(|n| !(1..=USERS_LIMIT).contains(n)) {
        return Err(wrong());
    }
    Ok(points)
}
