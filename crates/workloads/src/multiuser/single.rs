//! Single mode: one process runs one test after the other, each repeated for a period; the result is a table of operations per
//! second.
//!
//! Invariant: a window ends with the call that exceeds its period; each call counts in full.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};

use super::metrics::GEOMEAN;
use super::options::Settings;
use super::work::{TestDirectory, UserContext};
use bigiron_model::workload::Window;
use bigiron_probe::counters::span;
use bigiron_sys::load::now_ns;
use bigiron_workload::{Context, Progress, WorkloadResult};

/// Runs every test of the mix.
///
/// # Errors
/// A failed test, by its name; a [`WrongData`](bigiron_workload::WrongData) for a wrong result.
pub fn run(settings: &Settings, cx: &Context<'_>, disk: &TestDirectory) -> Result<WorkloadResult> {
    let scale = settings.scale(cx.clock);
    let period = settings.period(cx.clock).as_nanos() as u64;
    let file_bytes = settings.file_bytes(1, cx.clock);
    let (mut values, mut facts, mut windows, mut logs) = (BTreeMap::new(), BTreeMap::new(), Vec::new(), 0.0);
    let of = settings.mix.tests().count() as u32;
    for (done, test) in (0..).zip(settings.mix.tests()) {
        (cx.progress)(Progress { step: test.name, done, of });
        let mut place = UserContext::new(disk, &cx.executable, 0, cx.seed).scaled(scale).syncing(settings.syncs);
        // Unwritten data of the previous test must not count for this one.
        rustix::fs::sync();
        let start = span::open(now_ns);
        let (mut calls, mut elapsed) = (0_u64, 0);
        while elapsed < period {
            (test.run)(&mut place).with_context(|| format!("Test `{}`", test.name))?;
            calls += 1;
            elapsed = now_ns().saturating_sub(start);
        }
        span::close(|| ());
        span::cut();
        ensure!(elapsed > 0, "The clock did not advance in {calls} calls of `{}`", test.name);
        let per_second = calls as f64 * 1e9 / elapsed as f64;
        let operations = per_second * test.operations(file_bytes, scale);
        logs += operations.ln();
        windows.push(Window::of(test.name, calls, elapsed));
        values.insert(test.name.to_owned(), operations);
        let line = format!(
            "{:.4} s; {calls} calls; {per_second:.3} calls/s; {operations:.3} {}/s",
            elapsed as f64 / 1e9,
            test.unit
        );
        facts.insert(format!("test.{:02}.{}", done + 1, test.name), line);
    }
    values.insert(GEOMEAN.to_owned(), (logs / f64::from(of)).exp());
    Ok(WorkloadResult { values, facts, windows, ..WorkloadResult::default() })
}
