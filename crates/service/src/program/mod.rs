//! Programs of this machine, run by a workload: in a guest on an image of the files that they need, on this machine directly.
//!
//! Invariant: only the program runs between the two clock readings, and none of its processes outlives its run.

mod cgroup;
pub mod measured;
pub mod outputs;
pub mod process_guard;
pub mod root;
pub mod work_folder;

use std::time::Duration;

use anyhow::bail;

use self::measured::{MeasuredRun, RunEnd};
use self::outputs::Outputs;

/// A run that does not end with status 0 is an error, with the end of its output. `what` names the run: ``run-3 of `make -C src` ``; its outputs are
/// called `name`.
pub fn succeeded(run: &MeasuredRun, what: &str, name: &str, limit: Duration, outputs: &Outputs) -> anyhow::Result<()> {
    let how = match run.ended {
        RunEnd::Status(0) => return Ok(()),
        RunEnd::Status(n) => format!("ended with status {n}"),
        RunEnd::Signal(n) => format!("was killed by signal {n}"),
        RunEnd::Limit => format!("took longer than its limit of {} s and was killed", limit.as_secs_f64()),
    };
    let tail = outputs.tail(name);
    let said = if tail.is_empty() {
        "; standard error is empty".to_owned()
    } else {
        format!("; standard error ends:\n{tail}")
    };
    bail!("{what} {how}{said}")
}
