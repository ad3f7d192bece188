//! Claims of a job about its own run, checked when it is over.
//!
//! Invariant: a claim about something that could not be observed fails.

use anyhow::{Context as _, Result, ensure};

use super::counters::{Counters, FILE_READ, STORAGE_READ, SWAPPED_IN, SWAPPED_OUT};
use super::driver::DriveResult;
use super::job::{Claim, Job};
use super::run_monitor::Observations;
use crate::config::Engine;

/// Bytes of PostgreSQL's blocks.
const BLOCK: f64 = 8192.0;
/// Maximum number of blocks read per transaction in a cached run. Not 0: signals that wake a backend are read from a descriptor,
/// and a catalogue may be read for the first time.
const CACHED_MOST: f64 = 0.05;
/// Minimum number of blocks read per transaction in an uncached run.
const UNCACHED_LEAST: f64 = 0.5;
/// Maximum ratio between the reads of the window's halves for which reads count as proportional to the transactions.
const PROPORTION: f64 = 2.0;

/// The setting of the server's own cache.
fn cache(job: &Job) -> &'static str {
    match job.engine {
        Engine::MariaDb { .. } => "`oltp.mariadb.innodb_buffer_pool_size`",
        _ => "`oltp.postgres.shared_buffers`",
    }
}

/// Checks the job's claim; returns the findings in words.
///
/// # Errors
/// If it does not hold.
pub fn assert(job: &Job, driven: &DriveResult, seen: &Observations) -> Result<Option<String>> {
    match job.claim {
        Some(Claim::Cached) => {
            swaps_not(seen)?;
            let (what, counter) = match job.engine {
                // A server's reads count even if the page cache serves them: its own cache must be large enough.
                Engine::Postgres { .. } | Engine::Url(_) | Engine::MariaDb { .. } => ("read from files", FILE_READ),
                Engine::Sqlite { .. } => ("read from storage", STORAGE_READ),
            };
            let blocks = reads(&seen.window, counter)? / driven.transactions().max(1) as f64;
            ensure!(
                blocks <= CACHED_MOST,
                "The job `{}` claims that its working set is cached, but {blocks:.3} blocks of 8 KiB were {what} per transaction (at most \
                 {CACHED_MOST} are right); {} is too small for {} warehouses, or `oltp.ramp` too short",
                job.name,
                cache(job),
                job.scale.warehouses
            );
            Ok(Some(format!("cached: {blocks:.4} blocks {what} per transaction, no swapping: holds")))
        }
        Some(Claim::Uncached) => {
            swaps_not(seen)?;
            let [first, second] = [reads(&seen.halves[0], FILE_READ)?, reads(&seen.halves[1], FILE_READ)?];
            let blocks = (first + second) / driven.transactions().max(1) as f64;
            ensure!(
                blocks >= UNCACHED_LEAST,
                "The job `{}` claims that its working set is not cached, but {blocks:.3} blocks of 8 KiB were read per transaction (at least \
                 {UNCACHED_LEAST} are right); {} is too large for {} warehouses",
                job.name,
                cache(job),
                job.scale.warehouses
            );
            ensure!(
                first <= second * PROPORTION && second <= first * PROPORTION,
                "The job `{}` claims that reads grow with the transactions, but the first half of the window read {:.0} blocks and the second \
                 {:.0}; a longer `oltp.ramp` lets the cache settle",
                job.name,
                first,
                second
            );
            Ok(Some(format!(
                "uncached: {blocks:.3} blocks read per transaction, {first:.0} and {second:.0} in the window's halves, no swapping: holds"
            )))
        }
        // The ramp itself checks this claim.
        Some(Claim::Users) | None => Ok(None),
    }
}

/// Number of blocks read.
fn reads(counters: &Counters, name: &str) -> Result<f64> {
    let bytes = counters
        .get(name)
        .context("The job claims something about reads, but /proc/PID/io of the engine cannot be read")?;
    Ok(*bytes as f64 / BLOCK)
}

fn swaps_not(seen: &Observations) -> Result<()> {
    for counter in [SWAPPED_IN, SWAPPED_OUT] {
        let pages = seen.window.get(counter).copied().unwrap_or(0);
        ensure!(pages == 0, "The machine swapped in the window ({counter}: {pages}); the job needs more memory");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{TransactionTally, fixture};
    use bigiron_sys::cpu_clock::ThreadCpu;

    fn run(transactions: u64) -> DriveResult {
        let mut tally = TransactionTally::default();
        tally.window[0].committed = transactions;
        DriveResult {
            window_ns: 1,
            tally,
            cpu: ThreadCpu::default(),
            threads: 1,
            backlog: 0,
            longest_queue: 0,
            lost: None,
            in_doubt: Vec::new(),
        }
    }

    fn seen(halves: [u64; 2], swapped: u64) -> Observations {
        let counters = |blocks: u64| {
            Counters::from([
                (FILE_READ.to_owned(), blocks * 8192),
                (STORAGE_READ.to_owned(), 0),
                (SWAPPED_IN.to_owned(), swapped),
            ])
        };
        Observations {
            window: counters(halves[0] + halves[1]),
            halves: halves.map(counters),
            ..Observations::default()
        }
    }

    #[test]
    fn a_cached_run_reads_nothing() {
        let job = fixture::job(&[("job", "cached")]);
        assert!(assert(&job, &run(1000), &seen([3, 2], 0)).unwrap().unwrap().ends_with("holds"));
        let broken = assert(&job, &run(1000), &seen([300, 200], 0)).unwrap_err().to_string();
        assert!(
            broken.contains("0.500 blocks of 8 KiB were read from files") && broken.contains("shared_buffers"),
            "{broken}"
        );
        assert!(assert(&job, &run(1000), &seen([0, 0], 1)).unwrap_err().to_string().contains("swapped"));
        assert!(assert(&job, &run(1000), &Observations::default()).is_err());
        // For an embedded engine, data in the page cache count as cached.
        let sqlite = fixture::job(&[("job", "cached"), ("engine", "sqlite")]);
        assert!(assert(&sqlite, &run(1000), &seen([300, 200], 0)).is_ok());
    }

    #[test]
    fn an_uncached_run_reads_in_proportion() {
        let job = fixture::job(&[("job", "uncached")]);
        assert!(assert(&job, &run(1000), &seen([2000, 1500], 0)).unwrap().unwrap().contains("3.500 blocks"));
        assert!(assert(&job, &run(1000), &seen([100, 100], 0)).unwrap_err().to_string().contains("too large"));
        assert!(assert(&job, &run(1000), &seen([5000, 1000], 0)).unwrap_err().to_string().contains("oltp.ramp"));
        assert!(assert(&fixture::job(&[]), &run(1), &Observations::default()).unwrap().is_none());
    }
}
