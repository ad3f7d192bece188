//! The line on a terminal that shows a run's progress. Without a terminal, nothing is shown.

use std::io::{IsTerminal, Write};

use serde::{Deserialize, Serialize};

use bigiron_dbsim::IntervalSample;

/// What the child did since its last report.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct LiveSample {
    pub elapsed_ns: u64,
    pub interval_ns: u64,
    pub transactions: u64,
    pub commits: u64,
    pub reads: u64,
    pub redo_writes: u64,
    pub phase: String,
}

impl LiveSample {
    pub(super) fn of(live: &IntervalSample<'_>) -> Self {
        LiveSample {
            elapsed_ns: live.elapsed.as_nanos() as u64,
            interval_ns: live.interval.as_nanos() as u64,
            transactions: live.done.transactions,
            commits: live.done.commits,
            reads: live.done.reads,
            redo_writes: live.done.redo_writes,
            phase: live.phase.to_owned(),
        }
    }

    fn add(&mut self, next: &LiveSample) {
        self.elapsed_ns = next.elapsed_ns;
        self.interval_ns += next.interval_ns;
        self.transactions += next.transactions;
        self.commits += next.commits;
        self.reads += next.reads;
        self.redo_writes += next.redo_writes;
        self.phase.clone_from(&next.phase);
    }

    fn line(&self) -> String {
        let rate = |n: u64| n as f64 / (self.interval_ns.max(1) as f64 / 1e9);
        let phase = if self.phase.is_empty() { String::new() } else { format!("  {}", self.phase) };
        format!(
            "{:>6.1} s{phase}  {:>8.0} tx/s  {:>8.0} commits/s  {:>8.0} reads/s  {:>7.0} redo writes/s",
            self.elapsed_ns as f64 / 1e9,
            rate(self.transactions),
            rate(self.commits),
            rate(self.reads),
            rate(self.redo_writes)
        )
    }
}

/// The line.
pub(super) struct Display {
    on: bool,
    since: LiveSample,
}

impl Display {
    pub(super) fn stderr() -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|t| t == "dumb");
        Display { on: std::io::stderr().is_terminal() && !dumb, since: LiveSample::default() }
    }

    /// Whether standard error is a terminal.
    pub(super) fn is_on(&self) -> bool {
        self.on
    }

    pub(super) fn step(&mut self, step: &str, done: u32, of: u32) {
        if step == "lay out" && of > 0 {
            self.write(&format!("{step} {done}/{of}"));
        } else {
            self.write(step);
        }
    }

    /// Updates at most once a second, which is enough to read.
    pub(super) fn sample(&mut self, sample: &LiveSample) {
        self.since.add(sample);
        if self.since.interval_ns >= 950_000_000 {
            self.write(&self.since.line());
            self.since = LiveSample::default();
        }
    }

    /// Clears the line.
    pub(super) fn clear(&mut self) {
        self.write("");
    }

    fn write(&mut self, text: &str) {
        if self.on {
            let mut err = std::io::stderr().lock();
            // Return to the start of the line and erase it.
            let _ = write!(err, "\r\x1b[K{text}").and_then(|()| err.flush());
        }
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_rates_of_all_that_was_added() {
        let mut sum = LiveSample::default();
        for elapsed in [500_000_000, 1_000_000_000] {
            sum.add(&LiveSample {
                elapsed_ns: elapsed,
                interval_ns: 500_000_000,
                transactions: 40,
                ..LiveSample::default()
            });
        }
        assert!(sum.line().starts_with("   1.0 s        80 tx/s"), "{}", sum.line());
    }
}
