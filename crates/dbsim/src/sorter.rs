//! A sorter: sorts pseudo-random keys in private memory and temporary files, like a query without an index.
//!
//! Invariant: the keys depend only on the seed and the process's number.

use anyhow::Result;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::instance::Instance;
use super::sideline::{self, Traffic};
use super::sort::Sort;

/// Keys are drawn from separate streams.
const KEYS: u64 = 1 << 48;

/// Runs sorter `process`: sorts of `bytes` in `memory`, with requests of this many bytes to temporary files.
pub fn run(instance: &Instance<'_>, process: usize, bytes: u64, memory: u64, request: usize) -> Result<()> {
    let spec = sideline::sort_spec(instance.job, bytes, memory, request);
    let name = format!("temp.{process:05}");
    let mut random = ChaCha8Rng::seed_from_u64(instance.seed);
    random.set_stream(KEYS + process as u64);
    sideline::drive(instance, process, |stop| {
        let mut traffic = Traffic(&instance.counters[process]);
        let sorted = Sort::new(spec, instance.dir, &name, &mut traffic, stop)?.run(|| random.next_u64())?;
        Ok(sorted.is_some())
    })
}
