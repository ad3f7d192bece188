//! The environment of workloads' tests.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use bigiron_model::clock::Clock;
use bigiron_model::workload::Options;

use crate::{Context, Progress, Workload, complete};

static NO_IMAGES: BTreeMap<String, PathBuf> = BTreeMap::new();
static NO_FOUNDATION: BTreeMap<String, String> = BTreeMap::new();

/// A trial in `dir`: seed 7, the exact clock, a machine with 2 CPUs and 1 GiB, and nothing else.
pub fn context<'a>(dir: &Path) -> Context<'a> {
    fn nobody_listens(_: Progress<'_>) {}
    Context {
        seed: 7,
        clock: Clock::Exact,
        dir: dir.to_owned(),
        images: &NO_IMAGES,
        devices: &[],
        foundation: &NO_FOUNDATION,
        cpus: 2,
        memory_bytes: 1 << 30,
        executable: PathBuf::new(),
        network: None,
        ack_sink: None,
        progress: &nobody_listens,
    }
}

/// Says that the test that runs now shows nothing of this on this machine. Not by `eprintln!`, which the harness shows of failed tests alone;
/// `scripts/test` repeats it at its end.
pub fn skipped(what: impl Display, why: impl Display) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {what}: {why}");
}

/// The complete options of `workload` with `settings` as they were typed, which [`Workload::parse`] accepts.
///
/// # Errors
/// As [`complete`], or [`Workload::parse`] refuses them.
pub fn options<'a>(
    workload: &dyn Workload,
    settings: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<Options, String> {
    let options = complete(workload, settings)?;
    workload.parse(&options)?;
    Ok(options)
}
