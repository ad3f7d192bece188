//! What tests of workloads run in.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{Context, Progress};
use bigiron_model::clock::Clock;

static NO_IMAGES: BTreeMap<String, PathBuf> = BTreeMap::new();
static NO_FOUNDATION: BTreeMap<String, String> = BTreeMap::new();

/// A trial in `dir`: seed 7, the exact clock, a machine of 2 CPUs and 1 GiB, and nothing else.
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
        witness: None,
        progress: &nobody_listens,
    }
}
